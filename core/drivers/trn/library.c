/* The Neuron runtime library: loaded at run time, so that nothing depends on it, from a place that only its owner can write. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "drivers/trn/trn.h"

trn_library trn_nrt;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* trn_nrt until it is loaded */
static _Atomic bool loaded, dead;
static char dead_text[256];

static const char USUAL[] = "/opt/aws/neuron/lib/libnrt.so.1";

/* A file that somebody else could replace is not loaded. */
static tnx_status check_file(const char *path) {
  char folder[512];
  struct stat file, dir;
  if (path[0] != '/') return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_NRT_LIBRARY is \"%.300s\", expected an absolute path", path);
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  slash[slash == folder] = 0;
  if (stat(path, &file) || stat(folder, &dir)) return tnx_fail(TNX_DEVICE, "the Neuron runtime library %.300s does not exist", path);
  if ((file.st_mode | dir.st_mode) & S_IWOTH) return tnx_fail(TNX_DEVICE, "the Neuron runtime library %.300s is not loaded: everybody may write to it or to its folder", path);
  return TNX_OK;
}

/* An element of LD_LIBRARY_PATH that is empty or relative means the working directory. */
static tnx_status check_search_path(void) {
  const char *path = getenv("LD_LIBRARY_PATH");
  char file[600];
  for (const char *p = path; p && *path;) {
    size_t n = strcspn(p, ":;");
    if (n == 0 || *p != '/') {
      snprintf(file, sizeof file, "%.*s/libnrt.so.1", n ? (int)(n < 500 ? n : 500) : 1, n ? p : ".");
      if (access(file, F_OK) == 0)
        return tnx_fail(TNX_DEVICE, "%.300s is not loaded: LD_LIBRARY_PATH has an element that means the working directory. TORCH_NEURONX_NRT_LIBRARY can name the library", file);
    }
    if (!p[n]) break;
    p += n + 1;
  }
  return TNX_OK;
}

static tnx_status find(void **handle_out, char *path, size_t size) {
  const char *named = getenv("TORCH_NEURONX_NRT_LIBRARY");
  if (named && *named) {
    TNX_TRY(check_file(named));
    *handle_out = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (!*handle_out) return tnx_fail(TNX_DEVICE, "TORCH_NEURONX_NRT_LIBRARY could not be loaded: %.300s", dlerror());
    snprintf(path, size, "%s", named);
    return TNX_OK;
  }
  TNX_TRY(check_search_path());
  *handle_out = dlopen("libnrt.so.1", RTLD_NOW | RTLD_LOCAL);
  snprintf(path, size, "libnrt.so.1");
  if (*handle_out) return TNX_OK;
  char why[320];
  const char *text = dlerror();
  snprintf(why, sizeof why, "%s", text ? text : "no reason given");
  if (check_file(USUAL) == TNX_OK && (*handle_out = dlopen(USUAL, RTLD_NOW | RTLD_LOCAL))) {
    snprintf(path, size, "%s", USUAL);
    return TNX_OK;
  }
  return tnx_fail(TNX_DEVICE,
                  "TORCH_NEURONX_DRIVER=trn needs the Neuron runtime library libnrt.so.1, which could not be loaded (%s). It is part of the package "
                  "aws-neuronx-runtime-lib; its folder, usually /opt/aws/neuron/lib, must be in the loader's path, or TORCH_NEURONX_NRT_LIBRARY name the file",
                  why);
}

static tnx_status load(void) {
  trn_library l = {0};
  const char *missing = NULL;
  TNX_TRY(find(&l.handle, l.path, sizeof l.path));
#define SYMBOL(name) *(void **)&l.name = dlsym(l.handle, #name);
#define REQUIRED(name) \
  SYMBOL(name)         \
  if (!l.name && !missing) missing = #name;
  TRN_FUNCTIONS(REQUIRED, SYMBOL)
#undef REQUIRED
#undef SYMBOL
  if (missing) {
    tnx_status status = tnx_fail(TNX_DEVICE, "the Neuron runtime library %.300s was loaded but lacks %s: it is not libnrt.so.1, or older than this driver can use", l.path, missing);
    dlclose(l.handle);
    return status;
  }
  trn_nrt = l;
  TNX_LOG(STREAM, "Neuron runtime library: %s%s", l.path, l.nrta_execute_schedule ? ", with asynchronous execution" : "");
  return TNX_OK;
}

tnx_status trn_library_get(const trn_library **out) {
  *out = &trn_nrt;
  if (atomic_load_explicit(&loaded, memory_order_acquire)) return TNX_OK;
  pthread_mutex_lock(&lock);
  tnx_status status = atomic_load(&loaded) ? TNX_OK : load();
  if (status == TNX_OK) atomic_store_explicit(&loaded, true, memory_order_release);
  pthread_mutex_unlock(&lock);
  return status;
}

/* ---- status ---- */

static const char *meaning(NRT_STATUS status) {
  switch (status) {
#define MEANING(name, value, text) case name: return text;
    NRT_STATUS_LIST(MEANING)
#undef MEANING
  }
  return "a status this driver does not know";
}

static const char *name_of(NRT_STATUS status) {
  switch (status) {
#define NAME(name, value, text) case name: return #name;
    NRT_STATUS_LIST(NAME)
#undef NAME
  }
  return "NRT_STATUS";
}

tnx_status trn_alive(void) {
  if (__builtin_expect(!atomic_load_explicit(&dead, memory_order_acquire), 1)) return TNX_OK;
  return tnx_fail(TNX_DEVICE, "the Neuron device cannot be used any more in this process, which has to be started anew: %s", dead_text);
}

tnx_status trn_check(NRT_STATUS status, const char *what) {
  tnx_status as = TNX_DEVICE;
  switch (status) {
    case NRT_SUCCESS: return TNX_OK;
    case NRT_EXEC_COMPLETED_WITH_NUM_ERR: /* the results are there, NaN and all, as PyTorch wants them */
      TNX_LOG(STREAM, "%s: completed with numerical errors", what);
      return TNX_OK;
    case NRT_RESOURCE:
    case NRT_FAIL_HOST_MEM_ALLOC: as = TNX_OUT_OF_MEMORY; break;
    case NRT_TIMEOUT: as = TNX_TIMEOUT; break;
    case NRT_EXEC_OOB: as = TNX_INDEX; break;
    case NRT_EXEC_UNIT_UNRECOVERABLE: {
      pthread_mutex_lock(&lock);
      if (!atomic_load(&dead)) snprintf(dead_text, sizeof dead_text, "%.120s failed with %s (%d)", what, name_of(status), (int)status);
      pthread_mutex_unlock(&lock);
      atomic_store_explicit(&dead, true, memory_order_release);
      return tnx_fail(TNX_DEVICE, "NRT execution error: %s: %s (%d), %s. The process has to be started anew", what, name_of(status), (int)status, meaning(status));
    }
    default: break;
  }
  return tnx_fail(as, "NRT error: %s: %s (%d), %s", what, name_of(status), (int)status, meaning(status));
}
