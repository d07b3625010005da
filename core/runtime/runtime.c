/* The process's runtime object: opening, environment, threads, fork and exit. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "runtime/programs.h"
#include "runtime/state.h"

tnx_runtime tnx_rt;

static _Thread_local _Alignas(16) char thread_token;

uintptr_t tnx_thread_token(void) { return (uintptr_t)&thread_token; }

/* A decimal number at *s, at most `most`; moves *s behind it. */
static bool parse_int(const char **s, long most, long *out) {
  if (**s < '0' || **s > '9') return false;
  char *end;
  errno = 0;
  long v = strtol(*s, &end, 10);
  if (errno || v > most) return false;
  *s = end;
  *out = v;
  return true;
}

/* "3", "0-3", "0,2", "0-1,4": how many cores; false where malformed or a core is named twice. */
static bool parse_cores(const char *s, int *count_out) {
  bool seen[1024] = {false};
  int count = 0;
  for (;;) {
    long first, last;
    s += strspn(s, " ");
    if (!parse_int(&s, 1023, &first)) return false;
    last = first;
    if (*s == '-' && (s++, !parse_int(&s, 1023, &last))) return false;
    if (last < first) return false;
    for (long i = first; i <= last; i++) {
      if (seen[i]) return false;
      seen[i] = true;
      count++;
    }
    s += strspn(s, " ");
    if (*s == 0) break;
    if (*s++ != ',') return false;
  }
  *count_out = count;
  return true;
}

/* Number of devices. NEURON_RT_VISIBLE_CORES takes precedence over NEURON_RT_NUM_CORES, as in the Neuron runtime. */
static tnx_status read_device_count(int *out) {
  const char *visible = getenv("NEURON_RT_VISIBLE_CORES"), *number = getenv("NEURON_RT_NUM_CORES");
  *out = 1;
  if (visible && *visible) {
    if (!parse_cores(visible, out))
      return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_RT_VISIBLE_CORES is \"%.100s\", expected core numbers such as \"3\", \"0-3\" or \"0,2\"", visible);
    if (*out > TNX_MAX_DEVICES)
      return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_RT_VISIBLE_CORES is \"%.100s\", which names %d cores; at most %d are supported", visible, *out, TNX_MAX_DEVICES);
  } else if (number && *number) {
    long n;
    const char *s = number;
    if (!parse_int(&s, TNX_MAX_DEVICES, &n) || *s || n < 1)
      return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_RT_NUM_CORES is \"%.100s\", expected a number from 1 to %d", number, TNX_MAX_DEVICES);
    *out = (int)n;
  }
  return TNX_OK;
}

/* A driver's own count follows the same variables, which are checked here all the same. */
static tnx_status count_devices(const tnx_driver *driver, int *out) {
  TNX_TRY(read_device_count(out));
  if (!driver->count) return TNX_OK;
  TNX_TRY(driver->count(out));
  if (*out > TNX_MAX_DEVICES) *out = TNX_MAX_DEVICES;
  return *out > 0 ? TNX_OK : tnx_fail(TNX_DEVICE, "the %s driver has no device", driver->name);
}

static tnx_status read_default_threads(int devices, int *out) {
  int cores = tnx_cpu_count() / devices;
  *out = cores < 1 ? 1 : cores > TNX_MAX_WORKERS ? TNX_MAX_WORKERS : cores;
  const char *number = getenv("TORCH_NEURONX_NUM_THREADS");
  if (!number || !*number) return TNX_OK;
  long n;
  const char *s = number;
  if (!parse_int(&s, TNX_MAX_WORKERS, &n) || *s || n < 1)
    return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_NUM_THREADS is \"%.100s\", expected a number from 1 to %d", number, TNX_MAX_WORKERS);
  *out = (int)n;
  return TNX_OK;
}

static tnx_status read_blocking(bool *out) {
  const char *s = getenv("NEURON_LAUNCH_BLOCKING");
  *out = s && strcmp(s, "1") == 0;
  if (!s || !*s || *out || strcmp(s, "0") == 0) return TNX_OK;
  return tnx_fail(TNX_INVALID_ARGUMENT, "NEURON_LAUNCH_BLOCKING is \"%.100s\", expected \"0\" or \"1\"", s);
}

static void mark_fork(void) {
  if (atomic_load(&tnx_rt.state) == TNX_RUNTIME_OPEN) atomic_store(&tnx_rt.state, TNX_RUNTIME_BAD_FORK);
}
/* fork() copies the runtime's lock in whatever state another thread left it; holding it across the fork keeps it usable in a child that
 * forked before the runtime was open. */
static void before_fork(void) { tnx_mutex_lock(&tnx_rt.lock); }
static void after_fork_parent(void) { tnx_mutex_unlock(&tnx_rt.lock); }
static void after_fork_child(void) {
  mark_fork();
  atomic_store(&tnx_rt.lock.word, 0);
}

static void at_exit(void) {
  tnx_runtime_close();
  if (tnx_runtime_is_open() && tnx_rt.driver->close) tnx_rt.driver->close();
}

static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;
static void install_hooks(void) {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  atexit(at_exit);
}

static tnx_status bad_fork(void) {
  return tnx_fail(TNX_BAD_FORK, "Cannot re-initialize Neuron in forked subprocess. To use Neuron with multiprocessing, you must use the 'spawn' start method");
}

static tnx_status create_device(int index, int devices, tnx_device **out) {
  tnx_device *d = tnx_heap_zalloc(1, sizeof *d);
  if (!d) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a device");
  d->index = index;
  d->driver = tnx_rt.driver;
  tnx_stream *s = NULL;
  tnx_status status;
  TNX_TRY_DONE(d->driver->get_props(index, devices, &d->props));
  TNX_TRY_DONE(tnx_team_create(d, &d->team));
  TNX_TRY_DONE(tnx_allocator_create(d, &d->allocator));
  TNX_TRY_DONE(tnx_stream_new(d, &s));
  s->is_default = s->live = true;
  atomic_store(&d->streams[0], s);
  atomic_store(&d->stream_count, 1);
  *out = d;
  return TNX_OK;
done: /* no thread has started and no segment exists: plain memory */
  tnx_heap_free(d->allocator);
  if (d->team) tnx_team_destroy(d->team);
  tnx_heap_free(d);
  return status;
}

static tnx_status open_locked(void) {
  int count, threads;
  bool blocking;
  TNX_TRY(tnx_driver_select(&tnx_rt.driver));
  TNX_TRY(count_devices(tnx_rt.driver, &count));
  TNX_TRY(read_default_threads(count, &threads));
  TNX_TRY(read_blocking(&blocking));
  TNX_TRY(tnx_rt.driver->open(count));
  tnx_rt.default_threads = threads;
  tnx_rt.cores = tnx_cpu_count();
  /* A failed opening keeps the devices it has made; the next attempt goes on from there. */
  for (int i = 0; i < count; i++)
    if (!tnx_rt.devices[i]) TNX_TRY(create_device(i, count, &tnx_rt.devices[i]));
  tnx_rt.device_count = count;
  if (blocking) atomic_store(&tnx_rt.blocking, true);
  TNX_LOG(STREAM, "opened: driver %s, %d device(s), %d thread(s) each, isa %s", tnx_rt.driver->name, count, threads, tnx_rt.devices[0]->props.isa);
  return TNX_OK;
}

tnx_status tnx_runtime_open(void) {
  if (atomic_load(&tnx_rt.state) == TNX_RUNTIME_BAD_FORK) return bad_fork();
  pthread_once(&hooks_once, install_hooks);
  tnx_mutex_lock(&tnx_rt.lock);
  tnx_status status = TNX_OK;
  if (atomic_load(&tnx_rt.state) == TNX_RUNTIME_CLOSED) {
    status = open_locked();
    if (status == TNX_OK) atomic_store(&tnx_rt.state, TNX_RUNTIME_OPEN);
  }
  if (status == TNX_OK) atomic_store(&tnx_rt.stopped, false);
  tnx_mutex_unlock(&tnx_rt.lock);
  return status;
}

tnx_status tnx_runtime_ensure_slow(void) { return tnx_runtime_open(); }

bool tnx_runtime_is_open(void) { return atomic_load(&tnx_rt.state) == TNX_RUNTIME_OPEN; }
bool tnx_runtime_in_bad_fork(void) { return atomic_load(&tnx_rt.state) == TNX_RUNTIME_BAD_FORK; }

void tnx_runtime_close(void) {
  if (!tnx_runtime_is_open()) return;
  tnx_mutex_lock(&tnx_rt.lock);
  atomic_store(&tnx_rt.stopped, true);
  for (int i = 0; i < tnx_rt.device_count; i++) {
    tnx_device *d = tnx_rt.devices[i];
    int n = atomic_load(&d->stream_count);
    for (int k = 0; k < n; k++) tnx_stream_stop(atomic_load(&d->streams[k]));
  }
  for (int i = 0; i < tnx_rt.device_count; i++) tnx_team_stop(tnx_rt.devices[i]->team);
  tnx_mutex_unlock(&tnx_rt.lock);
}

tnx_status tnx_runtime_get_driver(const tnx_driver **out) {
  if (!tnx_runtime_is_open()) return tnx_driver_select(out);
  *out = tnx_rt.driver;
  return TNX_OK;
}

void tnx_runtime_set_holder(tnx_status (*release)(tnx_stream *s), bool (*upload)(tnx_stream *s, void *to, const void *from, size_t bytes)) {
  tnx_rt.release_held = release;
  tnx_rt.upload_held = upload;
}

tnx_status tnx_device_get(int device, tnx_device **out) {
  TNX_TRY(tnx_runtime_ensure());
  if (device < 0 || device >= tnx_rt.device_count)
    return tnx_fail(TNX_DEVICE, "invalid device ordinal %d: there %s %d neuron device%s", device, tnx_rt.device_count == 1 ? "is" : "are", tnx_rt.device_count, tnx_rt.device_count == 1 ? "" : "s");
  *out = tnx_rt.devices[device];
  return TNX_OK;
}

int tnx_device_count(void) {
  if (tnx_runtime_is_open() || tnx_runtime_in_bad_fork()) return tnx_rt.device_count;
  int count;
  const tnx_driver *driver;
  return tnx_driver_select(&driver) == TNX_OK && count_devices(driver, &count) == TNX_OK ? count : 0;
}

bool tnx_program_get_stats(tnx_program_stats *out) {
  memset(out, 0, sizeof *out);
  bool programs = tnx_runtime_is_open() && tnx_rt.driver->programs;
  if (programs) tnx_rt.driver->programs->stats(out);
  return programs;
}

void tnx_runtime_set_blocking(bool blocking) { atomic_store(&tnx_rt.blocking, blocking); }
bool tnx_runtime_get_blocking(void) { return atomic_load(&tnx_rt.blocking); }

tnx_status tnx_runtime_set_threads(int n) {
  if (n > TNX_MAX_WORKERS) return tnx_fail(TNX_INVALID_ARGUMENT, "%d threads for each device, at most %d are supported", n, TNX_MAX_WORKERS);
  TNX_TRY(tnx_runtime_ensure());
  atomic_store(&tnx_rt.threads, n < 1 ? 0 : n);
  return TNX_OK;
}

int tnx_runtime_get_threads(void) {
  int n = atomic_load(&tnx_rt.threads);
  if (n > 0) return n;
  if (tnx_runtime_is_open() || tnx_runtime_in_bad_fork()) return tnx_rt.default_threads;
  int count;
  if (read_device_count(&count) != TNX_OK || read_default_threads(count, &n) != TNX_OK) return 1;
  return n;
}

tnx_status tnx_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg) {
  sigset_t all, old;
  sigfillset(&all); /* signals belong to the application's threads */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(out, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (failed) return tnx_fail(TNX_INTERNAL, "a thread could not be started (error %d)", failed);
  pthread_setname_np(*out, name);
  return TNX_OK;
}
