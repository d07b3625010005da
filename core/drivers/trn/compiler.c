/* Running the compiler: one process for each program, in a folder of its own, in a process group of its own so that a time-out ends all of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "drivers/trn/trn.h"
#include "runtime/sync.h"

extern char **environ;

enum { MAX_ARGUMENTS = 128, SHOWN = 1400 };

/* ---- the command ---- */

typedef struct command { char *arguments[MAX_ARGUMENTS + 1]; int n; char words[4096]; size_t used; } command;

static tnx_status add(command *c, const char *word, size_t length) {
  if (c->n == MAX_ARGUMENTS || c->used + length + 1 > sizeof c->words) return tnx_fail(TNX_INVALID_ARGUMENT, "the compiler's command line is too long (NEURON_CC_FLAGS)");
  char *at = c->words + c->used;
  memcpy(at, word, length);
  at[length] = 0;
  c->used += length + 1;
  c->arguments[c->n++] = at;
  return TNX_OK;
}

/* Words as a shell would see them, with quotes; no expansion. */
static tnx_status add_words(command *c, const char *text) {
  char word[2048];
  size_t n = 0;
  char quote = 0;
  bool in_word = false;
  for (const char *p = text;; p++) {
    if (*p == 0 || (!quote && (*p == ' ' || *p == '\t' || *p == '\n'))) {
      if (quote) return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_CC_FLAGS has a quote without its end: %.200s", text);
      if (in_word) TNX_TRY(add(c, word, n));
      n = 0;
      in_word = false;
      if (*p == 0) return TNX_OK;
    } else if (quote ? *p == quote : *p == '"' || *p == '\'') {
      quote = quote ? 0 : *p;
      in_word = true;
    } else {
      if (n + 1 >= sizeof word) return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_CC_FLAGS has a word of more than %zu characters", sizeof word);
      word[n++] = *p;
      in_word = true;
    }
  }
}

static tnx_status make_command(const trn_settings *s, const char *text, const char *neff, command *c) {
  c->n = 0;
  c->used = 0;
  const char *const before[] = {s->compiler, "compile", text, "--framework", "XLA", "--target", s->target};
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) TNX_TRY(add(c, before[i], strlen(before[i])));
  TNX_TRY(add_words(c, s->flags));
  TNX_TRY(add(c, "--output", 8));
  TNX_TRY(add(c, neff, strlen(neff)));
  c->arguments[c->n] = NULL;
  return TNX_OK;
}

/* ---- the process ---- */

static tnx_status start(command *c, const char *folder, const char *log, pid_t *out) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK); /* this thread blocks signals; the compiler must not */
  posix_spawnattr_setsigmask(&attributes, &none);
  int failed = posix_spawnp(out, c->arguments[0], &actions, &attributes, c->arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed == ENOENT)
    return tnx_fail(TNX_DEVICE, "the compiler %.300s was not found. It is part of the package neuronx-cc; TORCH_NEURONX_COMPILER names another command", c->arguments[0]);
  return failed ? tnx_fail(TNX_DEVICE, "the compiler %.300s could not be started: %s", c->arguments[0], strerror(failed)) : TNX_OK;
}

/* *status_out as waitpid gives it. TIMEOUT: the process group was ended. */
static tnx_status wait_for(pid_t pid, unsigned seconds, const char *name, int *status_out) {
  uint64_t begin = tnx_now_ns(), said = begin;
  for (long pause = 1000000;; pause = pause < 50000000 ? pause * 2 : pause) {
    pid_t got = waitpid(pid, status_out, WNOHANG);
    if (got == pid) return TNX_OK;
    if (got < 0 && errno != EINTR) { /* the application ignores SIGCHLD or waits for every child: how it ended is lost, the NEFF is there or not */
      *status_out = 0;
      return TNX_OK;
    }
    uint64_t now = tnx_now_ns();
    if ((now - begin) / 1000000000u >= seconds) {
      kill(-pid, SIGKILL);
      waitpid(pid, status_out, 0);
      return tnx_fail(TNX_TIMEOUT, "compiling took more than %u s (TORCH_NEURONX_COMPILE_TIMEOUT)", seconds);
    }
    if ((now - said) / 1000000000u >= 30) {
      fprintf(stderr, "torch_neuronx: still compiling %s after %llu s\n", name, (unsigned long long)((now - begin) / 1000000000u));
      said = now;
    }
    nanosleep(&(struct timespec){0, pause}, NULL);
  }
}

/* The end of the compiler's output. */
static void read_log(const char *path, char out[SHOWN + 1]) {
  void *data;
  size_t n;
  *out = 0;
  if (trn_file_read(path, &data, &n) != TNX_OK || !data) return;
  char *text = data;
  while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
  size_t from = n > SHOWN ? n - SHOWN : 0;
  snprintf(out, SHOWN + 1, "%.*s", (int)(n - from), text + from);
  tnx_heap_free(data);
}

static void remove_folder(const char *folder) {
  /* The compiler leaves files of its own: its working folder goes with everything in it. */
  command c = {.n = 0, .used = 0};
  pid_t pid;
  int status;
  const char *const words[] = {"/bin/rm", "-rf", "--", folder};
  for (size_t i = 0; i < 4; i++)
    if (add(&c, words[i], strlen(words[i])) != TNX_OK) return;
  c.arguments[c.n] = NULL;
  if (posix_spawn(&pid, c.arguments[0], NULL, NULL, c.arguments, environ) == 0) waitpid(pid, &status, 0);
}

/* Keeps the text of a program that the compiler refused. */
static void keep_text(const trn_settings *s, const trn_key *k, const char *text, size_t bytes, char *path, size_t size) {
  snprintf(path, size, "(not kept)");
  if (!s->debug[0] || trn_folder_make(s->debug) != TNX_OK) return;
  char at[1000];
  snprintf(at, sizeof at, "%s/%s.mlir", s->debug, k->text);
  if (trn_file_write(at, text, bytes) == TNX_OK) snprintf(path, size, "%s", at);
}

static tnx_status run_compiler(const trn_settings *s, const trn_key *k, const char *name, const char *text, size_t bytes, const char *folder, void **out, size_t *bytes_out) {
  char source[700], neff[700], log[700], said[SHOWN + 1], kept[1000];
  command c;
  pid_t pid;
  int ended = 0;
  snprintf(source, sizeof source, "%s/module.mlir", folder);
  snprintf(neff, sizeof neff, "%s/file.neff", folder);
  snprintf(log, sizeof log, "%s/output.txt", folder);
  TNX_TRY(trn_file_write(source, text, bytes));
  TNX_TRY(make_command(s, source, neff, &c));
  TNX_TRY(start(&c, folder, log, &pid));
  tnx_status status = wait_for(pid, s->compile_timeout, name, &ended);
  *out = NULL;
  if (status == TNX_OK && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) status = trn_file_read(neff, out, bytes_out);
  if (status == TNX_OK && *out) return TNX_OK;
  char why[300];
  if (status != TNX_OK) snprintf(why, sizeof why, "%.290s", tnx_error_text());
  else if (WIFSIGNALED(ended)) snprintf(why, sizeof why, "the compiler was ended by signal %d", WTERMSIG(ended));
  else if (WEXITSTATUS(ended)) snprintf(why, sizeof why, "the compiler ended with exit code %d", WEXITSTATUS(ended));
  else snprintf(why, sizeof why, "the compiler ended without an error and without a NEFF");
  read_log(log, said);
  keep_text(s, k, text, bytes, kept, sizeof kept);
  return tnx_fail(status == TNX_TIMEOUT ? TNX_TIMEOUT : TNX_DEVICE, "Compilation error: %s. The program: %.300s. %s%s", why, kept, *said ? "The compiler said: " : "", said);
}

static tnx_status compile(const trn_settings *s, const trn_key *k, const char *name, const char *text, size_t bytes, void **out, size_t *bytes_out) {
  const char *base = getenv("TMPDIR");
  char folder[600];
  snprintf(folder, sizeof folder, "%.500s/torch_neuronx_XXXXXX", base && *base == '/' ? base : "/tmp");
  if (!mkdtemp(folder)) return tnx_fail(TNX_IO, "no folder to compile in: %.500s: %s", folder, strerror(errno)); /* 0700: the user's own */
  uint64_t begin = tnx_now_ns();
  tnx_status status = run_compiler(s, k, name, text, bytes, folder, out, bytes_out);
  if (status == TNX_OK) TNX_LOG(PLAN, "%s: compiled in %.2f s, %zu bytes", name, (double)(tnx_now_ns() - begin) * 1e-9, *bytes_out);
  remove_folder(folder);
  return status;
}

tnx_status trn_compile(const trn_settings *s, const trn_key *k, const char *name, const char *text, size_t text_bytes, void **out, size_t *bytes_out,
                       bool *compiled_out) {
  int lock = -1;
  *compiled_out = false;
  TNX_TRY(trn_cache_load(s, k, out, bytes_out));
  if (*out) return TNX_OK;
  tnx_status locked = trn_cache_lock(s, k, &lock);
  if (locked == TNX_TIMEOUT) return locked;
  if (locked != TNX_OK) TNX_LOG(PLAN, "%s: the cache cannot be used: %s", name, tnx_error_text());
  tnx_status status = lock >= 0 ? trn_cache_load(s, k, out, bytes_out) : TNX_OK; /* another process may just have made it */
  if (status == TNX_OK && !*out) {
    status = compile(s, k, name, text, text_bytes, out, bytes_out);
    *compiled_out = true;
    if (status == TNX_OK && trn_cache_store(s, k, *out, *bytes_out) != TNX_OK) TNX_LOG(PLAN, "%s: not cached: %s", name, tnx_error_text());
  }
  trn_cache_unlock(lock);
  return status;
}
