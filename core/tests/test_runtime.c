/* Streams, events, deferred errors, launch blocking, compute threads, fork and exit. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/sync.h"
#include "test.h"
#include "tnx/runtime.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SCALE = 10 }; /* sanitizers: fewer rounds */
#else
enum { SCALE = 1 };
#endif

static tnx_stream *default_stream(void) {
  tnx_stream *s = NULL;
  CHECK_OK(tnx_stream_default(0, &s));
  return s;
}

/* ---- tasks ---- */
typedef struct note { int *slot; int value; } note;
static tnx_status write_note(void *p, tnx_pool *pool) {
  note *n = p;
  *n->slot = n->value;
  return TNX_OK;
}

typedef struct append { int *list; _Atomic int *length; int value; } append;
static tnx_status run_append(void *p, tnx_pool *pool) {
  append *a = p;
  a->list[atomic_fetch_add(a->length, 1)] = a->value;
  return TNX_OK;
}

static tnx_status run_sleep(void *p, tnx_pool *pool) {
  usleep(*(unsigned *)p);
  return TNX_OK;
}

static tnx_status run_fail(void *p, tnx_pool *pool) { return tnx_fail(TNX_INDEX, "index %d is out of range", *(int *)p); }

static tnx_status wait_flag(void *p, tnx_pool *pool) {
  while (!atomic_load(*(_Atomic int **)p)) usleep(100);
  return TNX_OK;
}

static tnx_status run_loops(void *p, tnx_pool *pool);

static _Atomic int dropped;
static void count_drop(void *p) { atomic_fetch_add(&dropped, 1); }

/* ---- processes: before this process opens the runtime ---- */

/* Runs fn in a child and gives its exit status, -1 for a signal, -2 for a hang. */
static int in_child(int (*fn)(void)) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    test_bad = 0;
    exit(fn());
  }
  int status;
  for (int i = 0; i < 30000; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    usleep(1000);
  }
  kill(pid, 9);
  waitpid(pid, &status, 0);
  return -2;
}

static int child_malformed(void) {
  static const struct { const char *name, *value; } bad[] = {
      {"NEURON_RT_VISIBLE_CORES", "x"}, {"NEURON_RT_VISIBLE_CORES", "3-1"}, {"NEURON_RT_VISIBLE_CORES", "0,0"}, {"NEURON_RT_VISIBLE_CORES", "0,"},
      {"NEURON_RT_VISIBLE_CORES", "-1"}, {"NEURON_RT_VISIBLE_CORES", "0-99999"}, {"NEURON_RT_NUM_CORES", "0"}, {"NEURON_RT_NUM_CORES", "two"},
      {"NEURON_RT_NUM_CORES", "1x"}, {"NEURON_RT_NUM_CORES", "99999999999999999999"}, {"TORCH_NEURONX_NUM_THREADS", "-1"}, {"NEURON_LAUNCH_BLOCKING", "maybe"},
      {"TORCH_NEURONX_DRIVER", "gpu"}, {"TORCH_NEURONX_MEMORY_LIMIT", "12q"}, {"TORCH_NEURONX_MEMORY_LIMIT", "0"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    setenv(bad[i].name, bad[i].value, 1);
    CHECK_EQ(tnx_runtime_open(), TNX_INVALID_ARGUMENT);
    CHECK(strstr(tnx_error_text(), bad[i].name) != NULL);
    CHECK(strstr(tnx_error_text(), bad[i].value) != NULL);
    CHECK(!tnx_runtime_is_open());
    bool counts = strncmp(bad[i].name, "NEURON_RT", 9) == 0 || strcmp(bad[i].name, "TORCH_NEURONX_DRIVER") == 0;
    CHECK_EQ(tnx_device_count(), counts ? 0 : 1);
    unsetenv(bad[i].name);
  }
  CHECK_OK(tnx_runtime_open());
  return test_bad;
}

static int child_trn(void) {
  setenv("TORCH_NEURONX_DRIVER", "trn", 1);
  tnx_status s = tnx_runtime_open();
  CHECK(s == TNX_DEVICE || s == TNX_NOT_IMPLEMENTED);
  CHECK(strstr(tnx_error_text(), "libnrt.so.1") != NULL);
  CHECK_EQ(tnx_device_count(), 0);
  return test_bad;
}

static int child_devices(void) {
  static const struct { const char *value; int count; } good[] = {{"3", 1}, {"0-3", 4}, {"0,2", 2}, {"0-1, 4", 3}, {"7-7", 1}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    setenv("NEURON_RT_VISIBLE_CORES", good[i].value, 1);
    CHECK_EQ(tnx_device_count(), good[i].count);
    CHECK(!tnx_runtime_is_open());
  }
  unsetenv("NEURON_RT_VISIBLE_CORES");
  setenv("NEURON_RT_NUM_CORES", "3", 1);
  CHECK_EQ(tnx_device_count(), 3);
  CHECK_OK(tnx_runtime_open());
  CHECK_EQ(tnx_device_count(), 3);
  tnx_device_props p, q;
  CHECK_OK(tnx_device_get_props(2, &p));
  CHECK(strcmp(p.driver, "host") == 0 && strcmp(p.name, "host") == 0 && p.chip[0] && p.isa[0]);
  CHECK(p.cores >= 1 && p.total_memory >= (64u << 20));
  CHECK_OK(tnx_device_get_props(0, &q));
  CHECK(q.total_memory == p.total_memory);
  CHECK_EQ(tnx_device_get_props(3, &p), TNX_DEVICE);
  CHECK_EQ(tnx_device_get_props(-1, &p), TNX_DEVICE);
  void *a, *b;
  tnx_stream *s1;
  CHECK_OK(tnx_stream_default(1, &s1));
  CHECK_OK(tnx_mem_alloc(0, 100, NULL, &a));
  CHECK_OK(tnx_mem_alloc(1, 100, s1, &b));
  CHECK_EQ(tnx_mem_device_of(a), 0);
  CHECK_EQ(tnx_mem_device_of((char *)b + 50), 1);
  CHECK_EQ(tnx_mem_device_of(&a), -1);
  CHECK_EQ(tnx_mem_device_of(NULL), -1);
  CHECK_EQ(tnx_mem_alloc(0, 100, s1, &a), TNX_INVALID_ARGUMENT);
  return test_bad;
}

static int child_memory_limit(void) {
  setenv("TORCH_NEURONX_MEMORY_LIMIT", "64m", 1);
  void *p;
  uint64_t free_bytes, total;
  CHECK_OK(tnx_mem_get_info(0, &free_bytes, &total));
  CHECK_EQ(free_bytes, 64 << 20);
  CHECK_EQ(tnx_mem_alloc(0, 65 << 20, NULL, &p), TNX_OUT_OF_MEMORY);
  CHECK_OK(tnx_mem_alloc(0, 63 << 20, NULL, &p));
  return test_bad;
}

/* Threads that have nothing to do must sleep. */
static int child_idle(void) {
  tnx_stream *s = default_stream();
  uint64_t seed = 1;
  CHECK_OK(tnx_runtime_set_threads(4));
  CHECK_OK(tnx_stream_enqueue(s, run_loops, NULL, &seed, sizeof seed));
  CHECK_OK(tnx_stream_synchronize(s));
  usleep(20000);
  clock_t before = clock();
  usleep(300000);
  CHECK((double)(clock() - before) / CLOCKS_PER_SEC < 0.03);
  return test_bad;
}

static int child_exit_with_work(void) {
  tnx_stream *s = default_stream(), *t;
  CHECK_OK(tnx_stream_create(0, 0, &t));
  unsigned us = 1000;
  for (int i = 0; i < 50; i++) {
    CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
    CHECK_OK(tnx_stream_enqueue(t, run_sleep, NULL, &us, sizeof us));
  }
  return test_bad; /* exit() with both workers busy */
}

static tnx_status run_exit(void *p, tnx_pool *pool) { exit(7); }
static int child_exit_in_task(void) {
  tnx_stream *s = default_stream();
  int dummy = 0;
  CHECK_OK(tnx_stream_enqueue(s, run_exit, NULL, &dummy, sizeof dummy));
  sleep(20);
  return 1;
}

static void *keep_queueing(void *arg) {
  int slot;
  note n = {&slot, 1};
  for (;;) tnx_stream_enqueue(arg, write_note, NULL, &n, sizeof n);
  return NULL;
}
static int child_exit_with_live_producer(void) {
  static pthread_t thread;
  pthread_create(&thread, NULL, keep_queueing, default_stream());
  usleep(5000);
  return 0;
}

/* Several threads that always have something queued and wait for room: no worker may stay until they cease. */
static void *keep_the_queue_full(void *arg) {
  unsigned us = 300;
  for (;;) tnx_stream_enqueue(arg, run_sleep, NULL, &us, sizeof us);
  return NULL;
}
static int child_exit_with_full_queue(void) {
  static pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, keep_the_queue_full, default_stream());
  usleep(200000);
  return 0;
}

static void on_fault(int signal_number) { _exit(42); }
static int child_protect(void) {
  setenv("TNX_PROTECT", "1", 1);
  tnx_stream *s = default_stream();
  int host[4] = {1, 2, 3, 4}, back[4] = {0};
  void *d;
  CHECK_OK(tnx_mem_alloc(0, sizeof host, s, &d));
  CHECK_OK(tnx_copy_to_device(d, host, sizeof host, s, true));
  CHECK_OK(tnx_copy_to_host(back, d, sizeof back, s));
  CHECK(memcmp(host, back, sizeof host) == 0);
  if (test_bad) return test_bad;
  signal(SIGSEGV, on_fault);
  *(volatile int *)d = 5; /* must fault */
  return 0;
}

TEST(environment) {
  CHECK_EQ(in_child(child_malformed), 0);
  CHECK_EQ(in_child(child_trn), 0);
  CHECK_EQ(in_child(child_devices), 0);
  CHECK_EQ(in_child(child_memory_limit), 0);
  CHECK_EQ(in_child(child_idle), 0);
}

TEST(process_exit) {
  CHECK_EQ(in_child(child_exit_with_work), 0);
  CHECK_EQ(in_child(child_exit_in_task), 7);
  CHECK_EQ(in_child(child_exit_with_live_producer), 0);
  CHECK_EQ(in_child(child_exit_with_full_queue), 0);
}

TEST(protection) {
  CHECK_EQ(in_child(child_protect), 42);
}

static int child_after_fork(void) {
  void *p;
  tnx_stream *s;
  int x = 0;
  CHECK(tnx_runtime_in_bad_fork());
  CHECK(!tnx_runtime_is_open());
  CHECK_EQ(tnx_mem_alloc(0, 100, NULL, &p), TNX_BAD_FORK);
  CHECK(strstr(tnx_error_text(), "Cannot re-initialize Neuron in forked subprocess") != NULL);
  CHECK_EQ(tnx_stream_default(0, &s), TNX_BAD_FORK);
  CHECK_EQ(tnx_device_synchronize(0), TNX_BAD_FORK);
  CHECK_EQ(tnx_runtime_open(), TNX_BAD_FORK);
  CHECK_EQ(tnx_host_alloc(100, &p), TNX_BAD_FORK);
  tnx_mem_free(&x);
  tnx_runtime_close();
  return test_bad;
}

TEST(fork_after_open) {
  tnx_stream *s = default_stream();
  unsigned us = 2000;
  for (int i = 0; i < 5; i++) CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
  CHECK_EQ(in_child(child_after_fork), 0);
  CHECK_OK(tnx_stream_synchronize(s));
  CHECK(!tnx_runtime_in_bad_fork());
}

/* ---- streams ---- */

TEST(order_of_one_stream) {
  tnx_stream *s = default_stream();
  enum { N = 20000 };
  int *list = calloc(N, sizeof *list);
  _Atomic int length = 0;
  for (int i = 0; i < N; i++) {
    append a = {list, &length, i};
    CHECK_OK(tnx_stream_enqueue(s, run_append, NULL, &a, sizeof a));
    if (i % 1000 == 0) usleep(100);
    if (i % 777 == 0) CHECK_OK(tnx_stream_synchronize(s));
  }
  CHECK_OK(tnx_stream_synchronize(s));
  CHECK(tnx_stream_query(s));
  CHECK_EQ(length, N);
  for (int i = 0; i < N; i++)
    if (list[i] != i) {
      CHECK_EQ(list[i], i);
      break;
    }
  free(list);
}

typedef struct big { int size; unsigned char data[40000]; } big;
static _Atomic int64_t big_sum;
static tnx_status run_big(void *p, tnx_pool *pool) {
  big *b = p;
  if ((uintptr_t)p % 16) return tnx_fail(TNX_INTERNAL, "payload not aligned");
  int64_t sum = 0;
  for (int i = 0; i < b->size; i++) sum += b->data[i];
  atomic_fetch_add(&big_sum, sum);
  return TNX_OK;
}

TEST(payload_sizes) {
  tnx_stream *s = default_stream();
  big *b = malloc(sizeof *b);
  uint64_t seed = 1;
  int64_t want = 0;
  big_sum = 0;
  dropped = 0;
  enum { N = 3000 };
  for (int i = 0; i < N; i++) {
    b->size = (int)(test_rand(&seed) % (i % 10 ? 600 : sizeof b->data));
    for (int k = 0; k < b->size; k++) want += b->data[k] = (unsigned char)test_rand(&seed);
    CHECK_OK(tnx_stream_enqueue(s, run_big, count_drop, b, offsetof(big, data) + (size_t)b->size));
  }
  CHECK_OK(tnx_stream_synchronize(s));
  CHECK_EQ(big_sum, want);
  CHECK_EQ(dropped, N);
  free(b);
}

typedef struct producer { tnx_stream *s; _Atomic int64_t *sum; int rounds; _Atomic int *in_task; pthread_t thread; bool sync; } producer;
typedef struct add { _Atomic int64_t *sum; _Atomic int *in_task; int64_t value; } add;
static _Atomic int overlaps;
static tnx_status run_add(void *p, tnx_pool *pool) {
  add *a = p;
  if (atomic_fetch_add(a->in_task, 1)) atomic_fetch_add(&overlaps, 1); /* never two consumers */
  atomic_store_explicit(a->sum, atomic_load_explicit(a->sum, memory_order_relaxed) + a->value, memory_order_relaxed);
  atomic_fetch_sub(a->in_task, 1);
  return TNX_OK;
}
static void *produce(void *arg) {
  producer *p = arg;
  for (int i = 0; i < p->rounds; i++) {
    add a = {p->sum, p->in_task, i};
    if (tnx_stream_enqueue(p->s, run_add, NULL, &a, sizeof a) != TNX_OK) atomic_fetch_add(&overlaps, 1000000);
    if (p->sync && i % 16 == 0 && tnx_stream_synchronize(p->s) != TNX_OK) atomic_fetch_add(&overlaps, 1000000);
    if (i % 4096 == 4095) usleep(200); /* lets the worker park */
  }
  return NULL;
}

TEST(many_producers_and_waiters) {
  enum { THREADS = 6 };
  producer p[THREADS];
  _Atomic int64_t sum = 0;
  _Atomic int in_task = 0;
  overlaps = 0;
  int rounds = 40000 / SCALE;
  for (int i = 0; i < THREADS; i++) {
    p[i] = (producer){.s = default_stream(), .sum = &sum, .rounds = rounds, .in_task = &in_task, .sync = i % 2};
    pthread_create(&p[i].thread, NULL, produce, &p[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(p[i].thread, NULL);
  CHECK_OK(tnx_device_synchronize(0));
  CHECK_EQ(overlaps, 0);
  CHECK_EQ(sum, (int64_t)THREADS * rounds * (rounds - 1) / 2);
}

TEST(parked_worker) {
  /* A lone task after a pause must run without anybody waiting for it. */
  tnx_stream *s = default_stream();
  for (int i = 0; i < 50; i++) {
    _Atomic int64_t sum = 0;
    _Atomic int in_task = 0;
    add a = {&sum, &in_task, 1};
    usleep(i % 2 ? 300 : 60);
    CHECK_OK(tnx_stream_enqueue(s, run_add, NULL, &a, sizeof a));
    for (int k = 0; k < 20000 && !tnx_stream_query(s); k++) usleep(100);
    CHECK_EQ(sum, 1);
  }
}

TEST(stream_table) {
  tnx_stream *a, *b, *d = default_stream();
  CHECK_OK(tnx_stream_create(0, 0, &a));
  CHECK_OK(tnx_stream_create(0, -1, &b));
  CHECK_EQ(tnx_stream_id(d), 0);
  CHECK(tnx_stream_id(a) != 0 && tnx_stream_id(a) != tnx_stream_id(b));
  CHECK(tnx_stream_find(0, 0) == d);
  CHECK(tnx_stream_find(0, tnx_stream_id(a)) == a);
  CHECK(tnx_stream_find(0, tnx_stream_id(b)) == b);
  CHECK(tnx_stream_find(0, 123456789) == NULL);
  CHECK(tnx_stream_find(9, 0) == NULL);
  CHECK_EQ(tnx_stream_device(a), 0);
  uint64_t old = tnx_stream_id(a);
  tnx_stream_destroy(a);
  CHECK(tnx_stream_find(0, old) == NULL);
  CHECK_OK(tnx_stream_create(0, 0, &a));
  CHECK(tnx_stream_id(a) != old);
  CHECK_EQ(tnx_stream_create(1, 0, &a), TNX_DEVICE);
  tnx_stream_destroy(tnx_stream_find(0, tnx_stream_id(b)));
}

static tnx_status wait_inside(void *p, tnx_pool *pool) {
  tnx_stream *s = *(tnx_stream **)p;
  int slot = 0;
  CHECK_EQ(tnx_stream_synchronize(s), TNX_INVALID_ARGUMENT);
  CHECK_EQ(tnx_device_synchronize(0), TNX_INVALID_ARGUMENT);
  CHECK_EQ(tnx_copy_to_host(&slot, &slot, sizeof slot, s), TNX_INVALID_ARGUMENT);
  return TNX_OK;
}
static tnx_status nothing(void *p, tnx_pool *pool) { return TNX_OK; }
static tnx_status fill_own_queue(void *p, tnx_pool *pool) {
  /* A task that fills its own queue gets an error instead of waiting for itself for ever. */
  tnx_stream *s = *(tnx_stream **)p;
  char payload[100] = {0};
  for (int i = 0; i < 100000; i++) {
    tnx_status status = tnx_stream_enqueue(s, nothing, NULL, payload, sizeof payload);
    if (status != TNX_OK) return status == TNX_INTERNAL ? TNX_OK : status;
  }
  return tnx_fail(TNX_INTERNAL, "the queue has no end");
}
TEST(waiting_inside_a_task) {
  tnx_stream *s = default_stream();
  CHECK_OK(tnx_stream_enqueue(s, wait_inside, NULL, &s, sizeof s));
  CHECK_OK(tnx_stream_enqueue(s, fill_own_queue, NULL, &s, sizeof s));
  CHECK_OK(tnx_stream_synchronize(s));
}

/* ---- events ---- */

TEST(events) {
  tnx_stream *s = default_stream();
  tnx_event *e, *t0, *t1;
  double ms;
  CHECK_OK(tnx_event_create(false, &e));
  CHECK_OK(tnx_event_create(true, &t0));
  CHECK_OK(tnx_event_create(true, &t1));
  CHECK(tnx_event_query(e));
  CHECK_OK(tnx_event_synchronize(e));
  CHECK_EQ(tnx_event_elapsed_ms(t0, t1, &ms), TNX_INVALID_ARGUMENT);
  _Atomic int flag = 0, *at = &flag;
  unsigned us = 5000;
  CHECK_OK(tnx_event_record(t0, s));
  CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
  CHECK_OK(tnx_event_record(t1, s));
  CHECK_OK(tnx_stream_enqueue(s, wait_flag, NULL, &at, sizeof at));
  CHECK_OK(tnx_event_record(e, s));
  CHECK(!tnx_event_query(e));
  CHECK(!tnx_stream_query(s));
  CHECK_OK(tnx_event_synchronize(t1)); /* does not wait for the flag */
  CHECK(!tnx_event_query(e));
  CHECK_OK(tnx_event_elapsed_ms(t0, t1, &ms));
  CHECK(ms >= 5 && ms < 5000);
  CHECK_EQ(tnx_event_elapsed_ms(t0, e, &ms), TNX_INVALID_ARGUMENT);
  flag = 1;
  CHECK_OK(tnx_event_synchronize(e));
  CHECK(tnx_event_query(e));
  /* Destroying an event whose record is still queued. */
  flag = 0;
  CHECK_OK(tnx_stream_enqueue(s, wait_flag, NULL, &at, sizeof at));
  CHECK_OK(tnx_event_record(t0, s));
  tnx_event_destroy(t0);
  tnx_event_destroy(t1);
  tnx_event_destroy(e);
  flag = 1;
  CHECK_OK(tnx_stream_synchronize(s));
}

static tnx_status wait_gate(void *p, tnx_pool *pool) {
  _Atomic int *gate = *(_Atomic int **)p;
  while (!atomic_load(gate)) sched_yield();
  return TNX_OK;
}

static tnx_status open_gate(void *p, tnx_pool *pool) {
  atomic_store(*(_Atomic int **)p, 1);
  return TNX_OK;
}

TEST(cross_stream_waits) {
  tnx_stream *s[4];
  tnx_event *e;
  s[0] = default_stream();
  for (int i = 1; i < 4; i++) CHECK_OK(tnx_stream_create(0, 0, &s[i]));
  CHECK_OK(tnx_event_create(false, &e));
  enum { N = 1000 };
  int *list = calloc(N, sizeof *list);
  for (int round = 0; round < 5; round++) {
    _Atomic int length = 0;
    uint64_t seed = (uint64_t)round + 1;
    tnx_stream *last = NULL;
    for (int i = 0; i < N; i++) { /* a chain through random streams: the order must still be total */
      tnx_stream *t = s[test_rand(&seed) % 4];
      if (last) CHECK_OK(tnx_stream_wait_event(t, e));
      append a = {list, &length, i};
      CHECK_OK(tnx_stream_enqueue(t, run_append, NULL, &a, sizeof a));
      CHECK_OK(tnx_event_record(e, t));
      last = t;
    }
    if (round % 2) CHECK_OK(tnx_event_synchronize(e));
    else CHECK_OK(tnx_device_synchronize(0));
    CHECK_EQ(length, N);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += list[i] != i;
    CHECK_EQ(wrong, 0);
  }
  tnx_event_destroy(e);
  for (int i = 1; i < 4; i++) tnx_stream_destroy(s[i]);
  free(list);
}

/* What a stream of normal priority is given comes after what the default stream was given before, and no other order is made: one of high priority
 * starts while the default stream is held up. */
TEST(streams_follow_the_default) {
  tnx_stream *normal, *high;
  CHECK_OK(tnx_stream_create(0, 0, &normal));
  CHECK_OK(tnx_stream_create(0, -1, &high));
  enum { N = 200 };
  for (int round = 0; round < 2; round++) {
    int list[2 * N];
    _Atomic int length = 0;
    for (int i = 0; i < 2 * N; i++) {
      append a = {list, &length, i};
      CHECK_OK(tnx_stream_enqueue(i % 2 ? normal : default_stream(), run_append, NULL, &a, sizeof a));
      if (i % 2 && round) CHECK_OK(tnx_stream_synchronize(normal));
      if (i % 2 && round) CHECK_EQ(length, i + 1);
    }
    CHECK_OK(tnx_device_synchronize(0));
    CHECK_EQ(length, 2 * N);
    int place[2 * N], wrong = 0;
    for (int i = 0; i < 2 * N; i++) place[list[i]] = i;
    for (int i = 1; i < 2 * N; i += 2) wrong += place[i] < place[i - 1];
    CHECK_EQ(wrong, 0);
  }
  _Atomic int go = 0;
  _Atomic int *gate = &go;
  CHECK_OK(tnx_stream_enqueue(default_stream(), wait_gate, NULL, &gate, sizeof gate));
  CHECK_OK(tnx_stream_enqueue(high, open_gate, NULL, &gate, sizeof gate));
  CHECK_OK(tnx_device_synchronize(0));
  tnx_stream_destroy(normal);
  tnx_stream_destroy(high);
}

/* ---- errors ---- */

TEST(deferred_errors) {
  tnx_stream *s = default_stream(), *other;
  CHECK_OK(tnx_stream_create(0, 0, &other));
  int first = 7, second = 8, slot = 0;
  note n = {&slot, 5};
  dropped = 0;
  CHECK_OK(tnx_stream_enqueue(s, run_fail, count_drop, &first, sizeof first));
  CHECK_OK(tnx_stream_enqueue(s, run_fail, count_drop, &second, sizeof second));
  CHECK_OK(tnx_stream_enqueue(s, write_note, NULL, &n, sizeof n));
  CHECK_OK(tnx_stream_synchronize(other));
  tnx_fail(TNX_IO, "something else");
  CHECK_EQ(tnx_stream_synchronize(s), TNX_INDEX);
  CHECK(strcmp(tnx_error_text(), "index 7 is out of range") == 0);
  CHECK_EQ(slot, 5);
  CHECK_EQ(dropped, 2);
  CHECK_OK(tnx_stream_synchronize(s)); /* reported once */
  CHECK_OK(tnx_stream_enqueue(other, run_fail, NULL, &second, sizeof second));
  CHECK_EQ(tnx_device_synchronize(0), TNX_INDEX);
  CHECK(strcmp(tnx_error_text(), "index 8 is out of range") == 0);
  CHECK_OK(tnx_device_synchronize(0));
  /* A copy to the host is a synchronising call. */
  void *d;
  CHECK_OK(tnx_mem_alloc(0, 4, s, &d));
  CHECK_OK(tnx_stream_enqueue(s, run_fail, NULL, &second, sizeof second));
  CHECK_EQ(tnx_copy_to_host(&first, d, 4, s), TNX_INDEX);
  tnx_mem_free(d);
  tnx_stream_destroy(other);
}

TEST(launch_blocking) {
  tnx_stream *s = default_stream();
  int code = 3, slot = 0;
  note n = {&slot, 9};
  unsigned us = 1000;
  CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
  tnx_runtime_set_blocking(true);
  CHECK(tnx_runtime_get_blocking());
  dropped = 0;
  CHECK_OK(tnx_stream_enqueue(s, write_note, count_drop, &n, sizeof n));
  CHECK_EQ(slot, 9);
  CHECK_EQ(dropped, 1);
  CHECK_EQ(tnx_stream_enqueue(s, run_fail, count_drop, &code, sizeof code), TNX_INDEX);
  CHECK(strcmp(tnx_error_text(), "index 3 is out of range") == 0);
  CHECK_EQ(dropped, 2);
  CHECK_OK(tnx_stream_synchronize(s));
  tnx_runtime_set_blocking(false);
}

/* ---- copies and host memory ---- */

TEST(copies) {
  tnx_stream *s = default_stream();
  static const size_t sizes[] = {0, 1, 63, 4000, 8000, 8192, 100000, 1 << 20, (3 << 20) + 5, (9 << 20) + 1};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
    for (int wait = 0; wait < 2; wait++) {
      size_t n = sizes[k];
      unsigned char *src = malloc(n + 1), *back = calloc(n + 1, 1);
      void *d;
      for (size_t i = 0; i < n; i++) src[i] = (unsigned char)(i * 7 + k);
      unsigned us = 300;
      CHECK_OK(tnx_mem_alloc(0, n, s, &d));
      CHECK(n ? d != NULL && (uintptr_t)d % 64 == 0 : d == NULL);
      CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
      CHECK_OK(tnx_copy_to_device(d, src, n, s, wait));
      memset(src, 0xee, n); /* the copy must have taken a snapshot */
      CHECK_OK(tnx_copy_to_host(back, d, n, s));
      size_t wrong = 0;
      for (size_t i = 0; i < n; i++) wrong += back[i] != (unsigned char)(i * 7 + k);
      CHECK_EQ(wrong, 0);
      tnx_mem_free(d);
      free(src);
      free(back);
    }
}

TEST(host_memory) {
  void *p[40];
  for (int i = 0; i < 40; i++) {
    CHECK_OK(tnx_host_alloc((size_t)i * 1000 + 1, &p[i]));
    CHECK((uintptr_t)p[i] % 4096 == 0);
    memset(p[i], i, (size_t)i * 1000 + 1);
  }
  for (int i = 0; i < 40; i++) CHECK(tnx_host_is_pinned((char *)p[i] + i * 1000));
  CHECK(!tnx_host_is_pinned(&p) && !tnx_host_is_pinned(NULL));
  for (int i = 0; i < 40; i++) tnx_host_free(p[(i * 7) % 40]);
  for (int i = 0; i < 40; i++) CHECK(!tnx_host_is_pinned(p[i]));
  CHECK_OK(tnx_host_alloc(0, &p[0]));
  CHECK(p[0] == NULL);
  tnx_heap_fail_after(0);
  tnx_status s = tnx_host_alloc(100, &p[0]); /* the table may have room already */
  tnx_heap_fail_after(-1);
  CHECK(s == TNX_OK || s == TNX_OUT_OF_MEMORY);
  tnx_host_free(p[0]);
}

/* ---- compute threads ---- */

typedef struct loop { int64_t n, grain; unsigned char *hits; _Atomic int bad; int workers; bool nested; tnx_pool *pool; } loop;
static void nested_range(void *ctx, int64_t begin, int64_t end, int worker) { atomic_fetch_add((_Atomic int64_t *)ctx, end - begin); }
static void mark_range(void *ctx, int64_t begin, int64_t end, int worker) {
  loop *l = ctx;
  if (end - begin > l->grain || begin >= end || end > l->n || worker < 0 || worker >= l->workers) atomic_fetch_add(&l->bad, 1);
  for (int64_t i = begin; i < end; i++) l->hits[i]++;
  if (begin % 5 == 0)
    for (volatile int spin = 0; spin < (int)(begin % 4000); spin++) {} /* uneven */
  if (l->nested && begin % 3 == 0) {
    _Atomic int64_t sum = 0;
    tnx_pool_for(l->pool, 100, 7, nested_range, (void *)&sum);
    if (sum != 100) atomic_fetch_add(&l->bad, 1);
  }
}
static tnx_status run_loops(void *p, tnx_pool *pool) {
  loop l = {.workers = tnx_pool_workers(pool), .hits = calloc(20000, 1), .pool = pool};
  uint64_t seed = *(uint64_t *)p;
  for (int round = 0; round < 600 / SCALE; round++) {
    l.n = (int64_t)(test_rand(&seed) % (round % 10 ? 100 : 20000));
    l.grain = 1 + (int64_t)(test_rand(&seed) % 64);
    l.nested = round % 4 == 0;
    memset(l.hits, 0, 20000);
    unsigned char *a = tnx_pool_scratch(pool, -1, 1000), *b = tnx_pool_scratch(pool, l.workers - 1, 5000 + (size_t)round);
    if (!a || !b || a == b || (uintptr_t)a % 64 || (uintptr_t)b % 64) atomic_fetch_add(&l.bad, 1);
    tnx_pool_for(pool, l.n, l.grain, mark_range, &l);
    for (int64_t i = 0; i < 20000; i++)
      if (l.hits[i] != (i < l.n)) atomic_fetch_add(&l.bad, 1);
  }
  free(l.hits);
  return l.bad ? tnx_fail(TNX_INTERNAL, "%d wrong", l.bad) : TNX_OK;
}

TEST(pool_correctness) {
  tnx_stream *s = default_stream();
  int before = tnx_runtime_get_threads();
  for (int threads = 1; threads <= 5; threads++) {
    CHECK_OK(tnx_runtime_set_threads(threads));
    CHECK_EQ(tnx_runtime_get_threads(), threads);
    uint64_t seed = (uint64_t)threads;
    CHECK_OK(tnx_stream_enqueue(s, run_loops, NULL, &seed, sizeof seed));
    CHECK_OK(tnx_stream_synchronize(s));
  }
  CHECK_EQ(tnx_runtime_set_threads(100000), TNX_INVALID_ARGUMENT);
  CHECK_OK(tnx_runtime_set_threads(0));
  CHECK_EQ(tnx_runtime_get_threads(), before);
}

TEST(pool_from_two_streams) {
  tnx_stream *s[3];
  CHECK_OK(tnx_runtime_set_threads(4));
  s[0] = default_stream();
  for (int i = 1; i < 3; i++) CHECK_OK(tnx_stream_create(0, 0, &s[i]));
  for (uint64_t seed = 1; seed <= 4; seed++)
    for (int i = 0; i < 3; i++) CHECK_OK(tnx_stream_enqueue(s[i], run_loops, NULL, &seed, sizeof seed));
  CHECK_OK(tnx_device_synchronize(0));
  for (int i = 1; i < 3; i++) tnx_stream_destroy(s[i]);
  CHECK_OK(tnx_runtime_set_threads(0));
}

/* ---- closing ---- */

TEST(close_and_reopen) {
  tnx_stream *s = default_stream();
  unsigned us = 100;
  for (int i = 0; i < 20; i++) CHECK_OK(tnx_stream_enqueue(s, run_sleep, NULL, &us, sizeof us));
  void *p;
  CHECK_OK(tnx_mem_alloc(0, 5000, s, &p));
  tnx_runtime_close();
  CHECK(tnx_stream_query(s));
  memset(p, 1, 5000); /* memory stays valid */
  int slot = 0;
  note n = {&slot, 4};
  CHECK_OK(tnx_stream_enqueue(s, write_note, NULL, &n, sizeof n)); /* runs here: no threads are left */
  CHECK_EQ(slot, 4);
  tnx_mem_free(p);
  tnx_runtime_close();
  CHECK_OK(tnx_runtime_open());
  uint64_t seed = 3;
  CHECK_OK(tnx_stream_enqueue(s, run_loops, NULL, &seed, sizeof seed));
  CHECK_OK(tnx_stream_synchronize(s));
}

TEST(log_mask) {
  tnx_log_set(TNX_LOG_PLAN);
  CHECK(tnx_log_on(TNX_LOG_PLAN) && !tnx_log_on(TNX_LOG_ALLOC));
  tnx_log_set(0);
  CHECK(!tnx_log_on(TNX_LOG_PLAN));
}

int main(void) {
  RUN(environment);
  RUN(process_exit);
  RUN(protection);
  RUN(fork_after_open);
  RUN(order_of_one_stream);
  RUN(payload_sizes);
  RUN(many_producers_and_waiters);
  RUN(parked_worker);
  RUN(stream_table);
  RUN(waiting_inside_a_task);
  RUN(events);
  RUN(cross_stream_waits);
  RUN(streams_follow_the_default);
  RUN(deferred_errors);
  RUN(launch_blocking);
  RUN(copies);
  RUN(host_memory);
  RUN(pool_correctness);
  RUN(pool_from_two_streams);
  RUN(close_and_reopen);
  RUN(log_mask);
  return TEST_END;
}
