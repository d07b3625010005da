/* How programs are compiled, from the environment, read once.
 *
 * The cache's default is a folder of the user's own, not one in /tmp: what lies in a cache is loaded and run, so nobody else may write there. */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/trn/trn.h"

static const char *text_of(const char *name) {
  const char *s = getenv(name);
  return s && *s ? s : NULL;
}

static tnx_status number(const char *name, uint64_t unset, uint64_t most, uint64_t *out) {
  const char *s = text_of(name);
  *out = unset;
  if (!s) return TNX_OK;
  char *end;
  errno = 0;
  unsigned long long v = strtoull(s, &end, 10);
  if (!isdigit((unsigned char)*s) || *end || errno || v > most) return tnx_fail(TNX_INVALID_ARGUMENT, "%s is \"%.100s\", expected a number up to %llu", name, s, (unsigned long long)most);
  *out = v;
  return TNX_OK;
}

static tnx_status flag(const char *name, bool unset, bool *out) {
  uint64_t v;
  TNX_TRY(number(name, unset, 1, &v));
  *out = v;
  return TNX_OK;
}

/* The family of the hardware as the compiler's --target, and how many physical cores its logical ones have there. */
static const char *target_of(int family, int *cores_out) {
  *cores_out = 2;
  switch (family) {
    case NRT_INSTANCE_INF2:
    case NRT_INSTANCE_INF2E:
    case NRT_INSTANCE_TRN1:
    case NRT_INSTANCE_TRN1N: *cores_out = 1; return "trn1";
    case NRT_INSTANCE_TRN3:
    case NRT_INSTANCE_TRN3PDS98: return "trn3";
    default: return "trn2";
  }
}

static tnx_status read_target(int family, char *target, size_t size, int *cores) {
  const char *named = text_of("NEURON_PLATFORM_TARGET_OVERRIDE");
  snprintf(target, size, "%s", target_of(family, cores));
  if (!named) return TNX_OK;
  static const char *const names[][2] = {{"trn1", "trn1"}, {"gen2", "trn1"}, {"inf2", "trn1"}, {"trn2", "trn2"}, {"gen3", "trn2"}, {"trn3", "trn3"}, {"gen4", "trn3"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(named, names[i][0]) == 0) {
      snprintf(target, size, "%s", names[i][1]);
      *cores = strcmp(names[i][1], "trn1") == 0 ? 1 : 2;
      return TNX_OK;
    }
  return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_PLATFORM_TARGET_OVERRIDE is \"%.100s\", expected trn1, trn2, trn3, gen2, gen3 or gen4", named);
}

static tnx_status read_flags(trn_settings *s, int cores) {
  const char *level = text_of("NEURON_COMPILER_OPT_LEVEL"), *more = text_of("NEURON_CC_FLAGS");
  uint64_t lnc = (uint64_t)cores;
  if (text_of("NEURON_LOGICAL_NC_CONFIG")) TNX_TRY(number("NEURON_LOGICAL_NC_CONFIG", lnc, 2, &lnc));
  else TNX_TRY(number("NEURON_RT_VIRTUAL_CORE_SIZE", lnc, 2, &lnc));
  if (lnc < 1) return tnx_fail(TNX_INVALID_ARGUMENT, "a logical NeuronCore has 1 or 2 physical ones (NEURON_LOGICAL_NC_CONFIG, NEURON_RT_VIRTUAL_CORE_SIZE)");
  if (!level) level = "-O1";
  const char *digit = level[0] == '-' && level[1] == 'O' ? level + 2 : level;
  if (*digit < '1' || *digit > '3' || digit[1]) return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_COMPILER_OPT_LEVEL is \"%.100s\", expected -O1, -O2 or -O3", level);
  int n = snprintf(s->flags, sizeof s->flags, "--lnc %d -O%c --auto-cast=none%s%s", (int)lnc, *digit, more ? " " : "", more ? more : "");
  return n < (int)sizeof s->flags ? TNX_OK : tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_CC_FLAGS has %d characters, more than %zu", n, sizeof s->flags);
}

static const char *home(void) {
  const char *h = text_of("HOME");
  struct passwd *p = h ? NULL : getpwuid(getuid());
  return h ? h : p ? p->pw_dir : NULL;
}

static tnx_status read_folders(trn_settings *s) {
  const char *named = text_of("TORCH_NEURONX_NEFF_CACHE_DIR"), *xdg = text_of("XDG_CACHE_HOME"), *h = home(), *debug = text_of("TORCH_NEURONX_DEBUG_DIR");
  char base[600] = "";
  bool off;
  if (xdg && *xdg == '/') snprintf(base, sizeof base, "%.500s/torch_neuronx", xdg);
  else if (h) snprintf(base, sizeof base, "%.500s/.cache/torch_neuronx", h);
  if (named) snprintf(s->cache, sizeof s->cache, "%s", named);
  else if (*base) snprintf(s->cache, sizeof s->cache, "%s/neff", base);
  if (debug) snprintf(s->debug, sizeof s->debug, "%s", debug);
  else if (*base) snprintf(s->debug, sizeof s->debug, "%s/failed", base);
  TNX_TRY(flag("TORCH_NEURONX_NEFF_DISABLE_CACHE", false, &off));
  bool other;
  TNX_TRY(flag("TORCH_NEURONX_DISABLE_NEFF_CACHE", false, &other));
  if (off || other) s->cache[0] = 0;
  if (!named && s->cache[0] && trn_folder_make(s->cache) != TNX_OK) s->cache[0] = 0; /* a home that cannot be written to: no cache */
  struct stat st;
  if (s->cache[0] && stat(s->cache, &st) == 0 && !named && ((st.st_mode & S_IWOTH) || st.st_uid != getuid())) s->cache[0] = 0;
  return TNX_OK;
}

/* The program a command means, as execvp finds it; empty where there is none. */
static void find_program(const char *command, char *out, size_t size) {
  *out = 0;
  if (strchr(command, '/')) {
    if (access(command, X_OK) == 0) snprintf(out, size, "%s", command);
    return;
  }
  const char *path = text_of("PATH");
  for (const char *p = path; p; p = *p ? p + 1 : NULL) {
    size_t n = strcspn(p, ":");
    if (n && *p == '/') { /* an empty or relative element is the working directory: not for something that is run unseen */
      snprintf(out, size, "%.*s/%s", (int)n, p, command);
      if (access(out, X_OK) == 0) return;
      *out = 0;
    }
    p += n;
    if (!*p) break;
  }
}

static tnx_status read_all(int family, trn_settings *s) {
  int cores;
  uint64_t n;
  memset(s, 0, sizeof *s);
  const char *compiler = text_of("TORCH_NEURONX_COMPILER");
  char program[512];
  find_program(compiler ? compiler : "neuronx-cc", program, sizeof program);
  snprintf(s->compiler, sizeof s->compiler, "%s", *program ? program : compiler ? compiler : "neuronx-cc");
  struct stat st;
  if (stat(s->compiler, &st) == 0)
    snprintf(s->identity, sizeof s->identity, "%s %lld %lld.%09ld", s->compiler, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  TNX_TRY(read_target(family, s->target, sizeof s->target, &cores));
  TNX_TRY(read_flags(s, cores));
  TNX_TRY(read_folders(s));
  TNX_TRY(number("TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB", 16384, UINT32_MAX, &n));
  s->cache_limit = n << 20;
  TNX_TRY(number("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", 1200, 1 << 20, &n));
  s->lock_timeout = (unsigned)n;
  TNX_TRY(number("TORCH_NEURONX_COMPILE_TIMEOUT", 7200, 1 << 24, &n));
  s->compile_timeout = (unsigned)n;
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  TNX_TRY(number("TORCH_NEURONX_COMPILE_WORKERS", cpus > 8 ? 8 : cpus < 1 ? 1 : (uint64_t)cpus, 256, &n));
  s->workers = n ? (unsigned)n : 1;
  TNX_TRY(number("NEURON_RT_EXEC_TIMEOUT", 30, 1 << 20, &n));
  s->exec_timeout = (unsigned)n;
  return flag("TORCH_NEURONX_ENABLE_ASYNC_NRT", true, &s->async);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trn_settings settings;
static bool done;

tnx_status trn_settings_get(int family, const trn_settings **out) {
  pthread_mutex_lock(&lock);
  tnx_status status = done ? TNX_OK : read_all(family, &settings);
  done = status == TNX_OK;
  pthread_mutex_unlock(&lock);
  *out = &settings;
  return status;
}
