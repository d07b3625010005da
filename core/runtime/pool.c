/* The compute threads of a device ("team") and the loops they share.
 *
 * One loop at a time uses the helpers; its ranges are claimed by compare-and-swap on `next`, which holds the loop's number in its upper and
 * the next hand-out in its lower half. A helper reads the loop's fields, then claims: the claim succeeds only while that very loop
 * is open, so stale fields are never used, and a helper that has claimed nothing is never waited for. Before the fields change, `next` is set to
 * the following loop's number with no hand-outs left (CLOSED).
 * A second stream of the device that wants the helpers meanwhile runs its ranges itself, and takes the helpers over as soon as they are free. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/state.h"

enum { CLOSED = 0x7fffffff };

typedef struct helper { tnx_team *team; int number; pthread_t thread; } helper;

struct tnx_team {
  void *raw; /* what the heap gave; the team is aligned in it */
  _Atomic bool busy; /* a loop uses the helpers */
  bool stop;         /* under lock */
  tnx_mutex lock;    /* rank 60: started, helpers, stop */
  _Atomic int started;
  helper *helpers; /* helpers[TNX_MAX_WORKERS]; worker i is helpers[i - 1], worker 0 the caller */

  _Alignas(64) _Atomic uint64_t next; /* loop number << 32 | next hand-out */
  /* The open loop. Written by the caller while `next` is CLOSED; release stores and acquire loads, so that who sees a new field also sees that
   * `next` has moved on, and its claim fails. */
  _Alignas(64) _Atomic(tnx_range_fn) fn;
  _Atomic(void *) ctx;
  _Atomic int64_t begin, n, grain;
  _Atomic uint32_t pieces; /* hand-outs of this loop */
  _Atomic int workers;     /* helpers numbered below this take part */

  _Alignas(64) _Atomic uint32_t finished; /* hand-outs done */
  _Atomic uint32_t caller_sleeps, caller_word;
  _Alignas(64) _Atomic uint32_t parked, wake_word;
  _Atomic bool ending;
};

/* Which loop the thread is in the middle of, for nested loops. */
static _Thread_local tnx_team *inside;
static _Thread_local int inside_worker;

int tnx_team_size(const tnx_team *team) {
  int n = atomic_load_explicit(&tnx_rt.threads, memory_order_relaxed);
  return n > 0 ? n : tnx_rt.default_threads;
}

tnx_status tnx_team_create(tnx_device *device, tnx_team **out) {
  unsigned char *raw = tnx_heap_zalloc(1, sizeof(tnx_team) + 64);
  helper *helpers = tnx_heap_zalloc(TNX_MAX_WORKERS, sizeof *helpers);
  if (!raw || !helpers) {
    tnx_heap_free(raw);
    tnx_heap_free(helpers);
    return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for the threads of device %d", device->index);
  }
  tnx_team *t = (tnx_team *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
  t->raw = raw;
  t->helpers = helpers;
  atomic_store(&t->next, CLOSED);
  *out = t;
  return TNX_OK;
}

void tnx_team_destroy(tnx_team *t) {
  tnx_heap_free(t->helpers);
  tnx_heap_free(t->raw);
}

/* Runs one hand-out of the open loop as `worker`. False: nothing to claim. */
static bool run_piece(tnx_team *t, int worker) {
  uint64_t seen = atomic_load_explicit(&t->next, memory_order_acquire);
  tnx_range_fn fn;
  void *ctx;
  int64_t begin, n, grain;
  do {
    uint32_t piece = (uint32_t)seen;
    if (piece >= atomic_load_explicit(&t->pieces, memory_order_acquire) || worker >= atomic_load_explicit(&t->workers, memory_order_acquire)) return false;
    fn = atomic_load_explicit(&t->fn, memory_order_acquire);
    ctx = atomic_load_explicit(&t->ctx, memory_order_acquire);
    grain = atomic_load_explicit(&t->grain, memory_order_acquire);
    n = atomic_load_explicit(&t->n, memory_order_acquire);
    begin = atomic_load_explicit(&t->begin, memory_order_acquire) + (int64_t)piece * grain;
  } while (!atomic_compare_exchange_weak_explicit(&t->next, &seen, seen + 1, memory_order_acquire, memory_order_acquire));
  fn(ctx, begin, n - begin < grain ? n : begin + grain, worker);
  uint32_t pieces = atomic_load_explicit(&t->pieces, memory_order_relaxed); /* before the last mark: the loop may end with it */
  if (atomic_fetch_add(&t->finished, 1) + 1 == pieces && worker != 0 && atomic_load(&t->caller_sleeps)) {
    atomic_fetch_add(&t->caller_word, 1);
    tnx_futex_wake(&t->caller_word, 1);
  }
  return true;
}

static void *helper_main(void *arg) {
  helper *h = arg;
  tnx_team *t = h->team;
  inside = t;
  inside_worker = h->number;
  tnx_spin spin = {0};
  tnx_spin_begin(&spin);
  for (;;) {
    if (run_piece(t, h->number)) {
      while (run_piece(t, h->number)) {}
      tnx_spin_begin(&spin);
    }
    if (h->number < tnx_team_size(t) && tnx_spin_once(&spin)) continue;
    uint32_t word = atomic_load(&t->wake_word);
    atomic_fetch_add(&t->parked, 1);
    /* Announced before the last look: a caller that publishes a loop now sees a parked helper. */
    uint32_t piece = (uint32_t)atomic_load(&t->next);
    bool ending = atomic_load(&t->ending);
    bool work = piece < atomic_load(&t->pieces) && h->number < atomic_load(&t->workers);
    if (!work && !ending) tnx_futex_wait(&t->wake_word, word);
    atomic_fetch_sub(&t->parked, 1);
    if (ending) return NULL;
    tnx_spin_begin(&spin);
  }
}

static void start_helpers(tnx_team *t, int workers) {
  tnx_mutex_lock(&t->lock);
  int i = atomic_load(&t->started);
  for (; i < workers - 1 && !t->stop; i++) {
    t->helpers[i].team = t;
    t->helpers[i].number = i + 1;
    if (tnx_thread_start(&t->helpers[i].thread, "tnx-pool", helper_main, &t->helpers[i]) != TNX_OK) break; /* fewer helpers, same results */
    atomic_store(&t->started, i + 1);
  }
  tnx_mutex_unlock(&t->lock);
}

void tnx_team_stop(tnx_team *t) {
  tnx_mutex_lock(&t->lock);
  t->stop = true;
  atomic_store(&t->ending, true);
  atomic_fetch_add(&t->wake_word, 1);
  tnx_futex_wake(&t->wake_word, INT_MAX);
  int n = atomic_load(&t->started);
  for (int i = 0; i < n; i++) pthread_join(t->helpers[i].thread, NULL);
  atomic_store(&t->started, 0);
  atomic_store(&t->ending, false);
  t->stop = false;
  tnx_mutex_unlock(&t->lock);
}

/* A loop of at most CLOSED - 1 hand-outs with the helpers, by the thread that set `busy`. */
static void run_shared(tnx_team *t, int workers, int64_t begin, int64_t n, int64_t grain, tnx_range_fn fn, void *ctx) {
  uint32_t pieces = (uint32_t)((n - begin + grain - 1) / grain);
  uint64_t number = (atomic_load_explicit(&t->next, memory_order_relaxed) >> 32) + 1;
  atomic_store(&t->next, number << 32 | CLOSED);
  atomic_store_explicit(&t->fn, fn, memory_order_release);
  atomic_store_explicit(&t->ctx, ctx, memory_order_release);
  atomic_store_explicit(&t->begin, begin, memory_order_release);
  atomic_store_explicit(&t->n, n, memory_order_release);
  atomic_store_explicit(&t->grain, grain, memory_order_release);
  atomic_store_explicit(&t->pieces, pieces, memory_order_release);
  atomic_store_explicit(&t->workers, workers, memory_order_release);
  atomic_store_explicit(&t->finished, 0, memory_order_relaxed);
  atomic_store(&t->next, number << 32);
  if (atomic_load_explicit(&t->started, memory_order_relaxed) < workers - 1) start_helpers(t, workers);
  uint32_t parked = atomic_load(&t->parked);
  if (parked) {
    atomic_fetch_add(&t->wake_word, 1);
    tnx_futex_wake(&t->wake_word, pieces - 1 < parked && atomic_load(&t->started) < workers ? (int)pieces - 1 : INT_MAX);
  }
  while (run_piece(t, 0)) {}
  tnx_spin spin = {0};
  tnx_spin_begin(&spin);
  while (atomic_load_explicit(&t->finished, memory_order_acquire) != pieces) {
    if (tnx_spin_once(&spin)) continue;
    uint32_t word = atomic_load(&t->caller_word);
    atomic_store(&t->caller_sleeps, 1);
    if (atomic_load(&t->finished) != pieces) tnx_futex_wait(&t->caller_word, word);
    atomic_store(&t->caller_sleeps, 0);
    tnx_spin_begin(&spin);
  }
}

/* How many threads compute now. While no thread of the host waits, one of them is likely busy queueing the next operators; where the team has as many threads as there are
 * cores, one of them leaves its core to it: in eager code Python is the slower side, and a helper that preempts it costs more than it gains. */
static int engaged(const tnx_pool *pool) {
  bool host_runs = atomic_load_explicit(&tnx_rt.waiters, memory_order_relaxed) == 0;
  return host_runs && pool->workers >= tnx_rt.cores ? pool->workers - 1 : pool->workers;
}

void tnx_pool_for(tnx_pool *pool, int64_t n, int64_t grain, tnx_range_fn fn, void *ctx) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  tnx_team *t = pool->team;
  if (n <= grain || pool->workers < 2 || inside == t) {
    int worker = inside == t ? inside_worker : 0;
    for (int64_t i = 0; i < n; i += grain) fn(ctx, i, n - i < grain ? n : i + grain, worker);
    return;
  }
  for (int64_t i = 0; i < n;) {
    int workers = engaged(pool);
    if (workers < 2 || atomic_exchange_explicit(&t->busy, true, memory_order_acquire)) {
      int64_t end = n - i < grain ? n : i + grain;
      fn(ctx, i, end, 0);
      i = end;
      continue;
    }
    int64_t end = (n - i) / grain < CLOSED - 1 ? n : i + (int64_t)(CLOSED - 1) * grain;
    tnx_team *outer = inside;
    int outer_worker = inside_worker;
    inside = t;
    inside_worker = 0;
    run_shared(t, workers, i, end, grain, fn, ctx);
    inside = outer;
    inside_worker = outer_worker;
    atomic_store_explicit(&t->busy, false, memory_order_release);
    i = end;
  }
}

int tnx_pool_workers(const tnx_pool *pool) { return pool->workers; }

void *tnx_pool_scratch(tnx_pool *pool, int worker, size_t bytes) {
  if (worker < -1 || worker >= TNX_MAX_WORKERS) return NULL;
  if (worker >= 0 && !pool->worker) {
    pool->worker = tnx_heap_zalloc(TNX_MAX_WORKERS, sizeof *pool->worker);
    if (!pool->worker) return NULL;
  }
  tnx_scratch *s = worker < 0 ? &pool->shared : &pool->worker[worker];
  if (s->aligned && s->bytes >= bytes) return s->aligned;
  size_t want = bytes < 4096 ? 4096 : bytes;
  if (want < s->bytes + s->bytes / 2) want = s->bytes + s->bytes / 2; /* growing step by step costs a logarithmic number of copies */
  if (want > SIZE_MAX - 64) return NULL;
  void *raw = tnx_heap_alloc(want + 64);
  if (!raw) return NULL;
  tnx_heap_free(s->raw);
  s->raw = raw;
  s->aligned = (void *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
  s->bytes = want;
  return s->aligned;
}

static void trim(tnx_scratch *s, size_t kept) {
  if (s->bytes <= kept) return;
  tnx_heap_free(s->raw);
  *s = (tnx_scratch){0};
}

void tnx_pool_trim(tnx_pool *pool, size_t kept) {
  trim(&pool->shared, kept);
  for (int i = 0; pool->worker && i < TNX_MAX_WORKERS; i++) trim(&pool->worker[i], kept);
}
