/* Streams: a ring of task records for each stream, many producers, one consumer at a time.
 *
 * The consumer role is `owner`: whoever changes it from 0 to its own token runs tasks until it gives the role back. The worker thread takes it
 * whenever it is awake and work is there; a thread that waits for the stream takes it when it is free. Two rules keep work from
 * being forgotten:
 *   - A producer publishes a task under `lock` and wakes the worker if it is parked and no helper holds the role, or goes on to wait for its
 *     task, which takes the role itself.
 *   - A helper gives the role back under `lock` and, if tasks are left, wakes the worker, or the sleeping waiters if there is no worker.
 * The worker parks under `lock` after it saw that nothing is left or that a helper holds the role. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/programs.h"
#include "runtime/state.h"

enum { RING_BYTES = 256 << 10, SPILL_BYTES = 8 << 10 };
enum worker_state { WORKER_NONE, WORKER_RUNNING, WORKER_FAILED };

/* Where a launch-blocking producer waits for its task's own status. */
typedef struct result { tnx_status status; char text[TNX_ERROR_BYTES]; } result;

/* A record is followed by its payload, or points at it. fn == NULL: skip to the ring's start; only `bytes` is valid then, which fits the 16
 * bytes a ring end has at least. */
typedef struct record {
  tnx_task_fn fn;
  uint32_t bytes; /* of the record with its payload, a multiple of 16 */
  uint32_t spilled;
  void (*drop)(void *);
  void *payload;
  result *result;
  uint64_t pad;
} record;
_Static_assert(sizeof(record) == 48, "payloads are 16-byte aligned");

/* Without what is held back. */
static inline uint64_t queued(tnx_stream *s) { return atomic_load_explicit(&s->pushed, memory_order_acquire); }

static inline bool claim(tnx_stream *s, uintptr_t token) {
  uintptr_t none = 0;
  return atomic_load_explicit(&s->owner, memory_order_relaxed) == 0 && atomic_compare_exchange_strong_explicit(&s->owner, &none, token, memory_order_acquire, memory_order_relaxed);
}

bool tnx_stream_is_mine(tnx_stream *s) { return (atomic_load_explicit(&s->owner, memory_order_relaxed) & ~(uintptr_t)1) == tnx_thread_token(); }

static void note_failure(tnx_stream *s, result *r, tnx_status status) {
  if (r) {
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", tnx_error_text());
    return;
  }
  tnx_mutex_lock(&s->lock);
  if (s->error == TNX_OK) {
    s->error = status;
    snprintf(s->error_text, TNX_ERROR_BYTES, "%s", tnx_error_text());
  }
  tnx_mutex_unlock(&s->lock);
  TNX_LOG(STREAM, "task failed on stream %llu of device %d: %s: %s", (unsigned long long)tnx_stream_id(s), s->device->index, tnx_status_name(status), tnx_error_text());
}

/* Wakes everybody who sleeps for progress. */
static void wake_waiters(tnx_stream *s) {
  tnx_mutex_lock(&s->lock);
  atomic_store(&s->wait_min, UINT64_MAX);
  atomic_fetch_add(&s->done_word, 1);
  tnx_mutex_unlock(&s->lock);
  tnx_futex_wake(&s->done_word, INT_MAX);
}

/* Runs the next task. The caller is the owner and knows that there is one. */
static void run_next(tnx_stream *s) {
  uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
  record *r = (record *)(s->ring + (tail & (RING_BYTES - 1)));
  if (!r->fn) {
    tail += r->bytes;
    r = (record *)s->ring;
  }
  const tnx_driver *driver = s->device->driver;
  s->pool.workers = tnx_team_size(s->pool.team);
  if (driver->work_begin) driver->work_begin(s->device->index);
  tnx_status status = r->fn(r->payload, &s->pool);
  if (driver->work_end) driver->work_end(s->device->index);
  if (status != TNX_OK) note_failure(s, r->result, status);
  if (r->drop) r->drop(r->payload);
  if (r->spilled) tnx_heap_free(r->payload);
  atomic_store_explicit(&s->tail, tail + r->bytes, memory_order_release);
  uint64_t done = atomic_load_explicit(&s->done, memory_order_relaxed) + 1;
  atomic_store(&s->done, done);
  if (done >= atomic_load(&s->wait_min)) wake_waiters(s);
}

/* Wakes the worker after `lock` is released. */
static bool unpark_locked(tnx_stream *s) {
  if (!s->parked) return false;
  s->parked = false;
  atomic_fetch_add_explicit(&s->worker_word, 1, memory_order_relaxed);
  return true;
}

static void release_helper(tnx_stream *s) {
  tnx_mutex_lock(&s->lock);
  atomic_store_explicit(&s->owner, 0, memory_order_release);
  bool left = queued(s) != tnx_stream_done(s);
  bool wake_worker = (left || atomic_load(&s->stop)) && unpark_locked(s);
  bool wake_others = left && s->worker != WORKER_RUNNING && atomic_load(&s->wait_min) != UINT64_MAX;
  tnx_mutex_unlock(&s->lock);
  if (wake_worker) tnx_futex_wake(&s->worker_word, 1);
  if (wake_others) wake_waiters(s);
}

static void *worker_main(void *arg) {
  tnx_stream *s = arg;
  uintptr_t token = tnx_thread_token() | 1;
  tnx_spin spin = {0};
  tnx_spin_begin(&spin);
  for (;;) {
    if (!atomic_load(&s->stop) && queued(s) != tnx_stream_done(s) && claim(s, token)) {
      /* Threads that never cease to queue must not keep the worker from ending. */
      while (queued(s) != tnx_stream_done(s) && !atomic_load_explicit(&s->stop, memory_order_relaxed)) run_next(s);
      atomic_store_explicit(&s->owner, 0, memory_order_release);
      tnx_spin_begin(&spin);
    }
    if (!atomic_load_explicit(&tnx_rt.stopped, memory_order_relaxed) && tnx_spin_once(&spin)) continue;
    tnx_mutex_lock(&s->lock);
    bool left = queued(s) != tnx_stream_done(s);
    bool helped = atomic_load_explicit(&s->owner, memory_order_relaxed) != 0;
    if (atomic_load(&s->stop) && !helped) break;
    if (left && !helped) {
      tnx_mutex_unlock(&s->lock);
      continue;
    }
    s->parked = true;
    uint32_t word = atomic_load_explicit(&s->worker_word, memory_order_relaxed);
    tnx_mutex_unlock(&s->lock);
    tnx_futex_wait(&s->worker_word, word);
    tnx_mutex_lock(&s->lock);
    s->parked = false;
    tnx_mutex_unlock(&s->lock);
    tnx_spin_begin(&spin);
  }
  s->worker = WORKER_NONE;
  tnx_mutex_unlock(&s->lock);
  wake_waiters(s); /* one of them goes on with what is left */
  return NULL;
}

static void wait_for(tnx_stream *s, uint64_t target) {
  uintptr_t token = tnx_thread_token();
  tnx_spin spin = {0};
  tnx_spin_begin(&spin);
  for (;;) {
    if (tnx_stream_done(s) >= target) return;
    if (claim(s, token)) {
      while (tnx_stream_done(s) < target) run_next(s);
      release_helper(s);
      return;
    }
    if (tnx_spin_once(&spin)) continue;
    tnx_mutex_lock(&s->lock);
    if (target < atomic_load_explicit(&s->wait_min, memory_order_relaxed)) atomic_store(&s->wait_min, target);
    uint32_t word = atomic_load(&s->done_word);
    tnx_mutex_unlock(&s->lock);
    /* The role may have become free before wait_min was visible: only sleep while somebody holds it. */
    if (atomic_load(&s->done) >= target) return;
    if (atomic_load(&s->owner) == 0) {
      tnx_spin_begin(&spin);
      continue;
    }
    tnx_futex_wait(&s->done_word, word);
    tnx_spin_begin(&spin);
  }
}

void tnx_stream_wait(tnx_stream *s, uint64_t target) {
  if (tnx_stream_done(s) >= target) return;
  if (queued(s) < target) tnx_stream_release(s); /* its failure becomes the stream's */
  atomic_fetch_add_explicit(&tnx_rt.waiters, 1, memory_order_relaxed);
  wait_for(s, target);
  atomic_fetch_sub_explicit(&tnx_rt.waiters, 1, memory_order_relaxed);
}

tnx_status tnx_stream_take_error(tnx_stream *s) {
  tnx_mutex_lock(&s->lock);
  tnx_status status = s->error;
  s->error = TNX_OK;
  if (status != TNX_OK) tnx_fail(status, "%s", s->error_text);
  tnx_mutex_unlock(&s->lock);
  return status;
}

/* Makes room for `need` bytes in front of head; the lock is held, and released and taken again while waiting. */
static tnx_status reserve_locked(tnx_stream *s, uint32_t need) {
  for (;;) {
    uint64_t to_end = RING_BYTES - (s->head & (RING_BYTES - 1));
    uint64_t total = need <= to_end ? need : need + to_end;
    if (s->head + total - s->tail_seen > RING_BYTES) s->tail_seen = atomic_load_explicit(&s->tail, memory_order_acquire);
    if (s->head + total - s->tail_seen <= RING_BYTES) {
      if (need > to_end) {
        record *skip = (record *)(s->ring + (s->head & (RING_BYTES - 1)));
        skip->fn = NULL;
        skip->bytes = (uint32_t)to_end;
        s->head += to_end;
      }
      return TNX_OK;
    }
    if (tnx_stream_is_mine(s)) return tnx_fail(TNX_INTERNAL, "the queue of the stream is full and the task that adds to it is its own consumer");
    /* Wait for half of the queue: one long sleep is cheaper than many short ones. */
    uint64_t done = tnx_stream_done(s), target = done + (queued(s) - done + 1) / 2;
    tnx_mutex_unlock(&s->lock);
    tnx_stream_wait(s, target);
    tnx_mutex_lock(&s->lock);
  }
}

tnx_status tnx_stream_run_wait(void *payload, tnx_pool *pool) {
  tnx_stream_point *p = payload;
  tnx_stream_wait(p->stream, p->ticket);
  return TNX_OK;
}

/* Queues a task. `held`: it is the one that is held back. `wake`: see that somebody runs it; otherwise the caller waits for *ticket_out next, which does. On failure nothing was
 * queued and drop is not called. */
static tnx_status push(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, result *own, bool held, bool wake, uint64_t *ticket_out) {
  void *spilled = NULL;
  if (__builtin_expect(size > SPILL_BYTES, 0)) {
    spilled = tnx_heap_alloc(size);
    if (!spilled) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a task's payload of %zu bytes", size);
    memcpy(spilled, payload, size);
  }
  uint32_t bytes = (uint32_t)(sizeof(record) + (spilled ? 0 : (size + 15) & ~(size_t)15));

  tnx_mutex_lock(&s->lock);
  uint64_t at = s->head & (RING_BYTES - 1);
  if (__builtin_expect(bytes > RING_BYTES - at || s->head + bytes - s->tail_seen > RING_BYTES, 0)) {
    tnx_status status = reserve_locked(s, bytes);
    if (status != TNX_OK) {
      tnx_mutex_unlock(&s->lock);
      tnx_heap_free(spilled);
      return status;
    }
  }
  record *r = (record *)(s->ring + (s->head & (RING_BYTES - 1)));
  *r = (record){.fn = fn, .bytes = bytes, .spilled = spilled != NULL, .drop = drop, .payload = spilled ? spilled : (void *)(r + 1), .result = own};
  if (!spilled && size) memcpy(r + 1, payload, size);
  s->head += bytes;
  uint64_t ticket = atomic_load_explicit(&s->pushed, memory_order_relaxed) + 1;
  atomic_store_explicit(&s->pushed, ticket, memory_order_release);
  if (held) atomic_store_explicit(&s->held, false, memory_order_release); /* after `pushed`: see tnx_stream_pushed */
  *ticket_out = ticket;
  if (!wake) {
    tnx_mutex_unlock(&s->lock);
    return TNX_OK;
  }
  bool unparked = false;
  if (__builtin_expect(s->worker != WORKER_RUNNING, 0)) {
    if (s->worker == WORKER_NONE && !atomic_load_explicit(&tnx_rt.stopped, memory_order_relaxed))
      s->worker = tnx_thread_start(&s->thread, "tnx-stream", worker_main, s) == TNX_OK ? WORKER_RUNNING : WORKER_FAILED;
  } else if (__builtin_expect(s->parked, 0)) {
    uintptr_t owner = atomic_load_explicit(&s->owner, memory_order_relaxed);
    unparked = (owner == 0 || (owner & 1)) && unpark_locked(s);
  }
  bool alone = s->worker != WORKER_RUNNING; /* no worker will come: run it here */
  tnx_mutex_unlock(&s->lock);
  if (unparked) tnx_futex_wake(&s->worker_word, 1);
  if (__builtin_expect(alone, 0) && !tnx_stream_is_mine(s)) tnx_stream_wait(s, ticket);
  return TNX_OK;
}

/* What is queued on a stream of normal priority comes after what the default stream was given before: much code written for GPUs fills its inputs there and
 * counts on the microseconds of a kernel's start. A wait is for earlier work only, so no two streams wait for each other. */
static tnx_status follow_default(tnx_stream *s) {
  if (s->is_default || s->priority < 0) return TNX_OK;
  tnx_stream *first = atomic_load_explicit(&s->device->streams[0], memory_order_relaxed);
  tnx_stream_point p = {first, tnx_stream_pushed(first)};
  if (queued(first) < p.ticket && !tnx_stream_is_mine(first)) TNX_TRY(tnx_stream_release(first));
  if (atomic_load_explicit(&s->followed, memory_order_relaxed) == p.ticket) return TNX_OK;
  if (tnx_stream_done(first) < p.ticket && !tnx_stream_is_mine(first)) {
    uint64_t ticket;
    TNX_TRY(push(s, tnx_stream_run_wait, NULL, &p, sizeof p, NULL, false, true, &ticket));
  }
  atomic_store_explicit(&s->followed, p.ticket, memory_order_relaxed); /* last: another thread may queue the same wait once more, never none */
  return TNX_OK;
}

tnx_status tnx_stream_release(tnx_stream *s) {
  if (__builtin_expect(!atomic_load_explicit(&s->held, memory_order_acquire), 1) || tnx_stream_is_mine(s)) return TNX_OK;
  return tnx_rt.release_held(s);
}

tnx_status tnx_stream_run(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out) {
  result own = {.status = TNX_OK};
  uint64_t ticket;
  *queued_out = false;
  if (tnx_stream_is_mine(s)) return tnx_fail(TNX_INVALID_ARGUMENT, "a task may not wait for its own stream");
  TNX_TRY(tnx_stream_release(s));
  TNX_TRY(follow_default(s));
  TNX_TRY(push(s, fn, drop, payload, size, &own, false, false, &ticket));
  *queued_out = true;
  tnx_stream_wait(s, ticket);
  return own.status == TNX_OK ? TNX_OK : tnx_fail(own.status, "%s", own.text);
}

static bool blocks(tnx_stream *s) { return __builtin_expect(atomic_load_explicit(&tnx_rt.blocking, memory_order_relaxed), 0) && !tnx_stream_is_mine(s); }

tnx_status tnx_stream_submit(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out) {
  if (blocks(s)) return tnx_stream_run(s, fn, drop, payload, size, queued_out);
  uint64_t ticket;
  tnx_status status = tnx_stream_release(s);
  if (status == TNX_OK) status = follow_default(s);
  if (status == TNX_OK) status = push(s, fn, drop, payload, size, NULL, false, true, &ticket);
  *queued_out = status == TNX_OK;
  return status;
}

tnx_status tnx_stream_enqueue(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size) {
  TNX_TRY(tnx_runtime_ensure());
  bool queued;
  return tnx_stream_submit(s, fn, drop, payload, size, &queued);
}

tnx_status tnx_stream_follow(tnx_stream *s) { return follow_default(s); }

void tnx_stream_hold(tnx_stream *s) {
  tnx_mutex_lock(&s->lock);
  atomic_store(&s->held, true);
  tnx_mutex_unlock(&s->lock);
}

tnx_status tnx_stream_enqueue_held(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out) {
  uint64_t ticket;
  bool wait = blocks(s);
  result own = {.status = TNX_OK};
  *queued_out = false;
  tnx_status status = push(s, fn, drop, payload, size, wait ? &own : NULL, true, !wait, &ticket);
  if (status != TNX_OK) return status;
  *queued_out = true;
  if (!wait) return TNX_OK;
  tnx_stream_wait(s, ticket);
  return own.status == TNX_OK ? TNX_OK : tnx_fail(own.status, "%s", own.text);
}

void *tnx_stream_get_holder(tnx_stream *s) { return atomic_load_explicit(&s->holder, memory_order_acquire); }
void tnx_stream_set_holder(tnx_stream *s, void *state) { atomic_store_explicit(&s->holder, state, memory_order_release); }

uint64_t tnx_stream_pushed_or_held(tnx_stream *s) {
  tnx_mutex_lock(&s->lock);
  uint64_t n = queued(s) + atomic_load(&s->held);
  tnx_mutex_unlock(&s->lock);
  return n;
}

tnx_status tnx_stream_synchronize(tnx_stream *s) {
  TNX_TRY(tnx_runtime_ensure());
  if (tnx_stream_is_mine(s)) return tnx_fail(TNX_INVALID_ARGUMENT, "a task may not wait for its own stream");
  tnx_stream_wait(s, tnx_stream_pushed(s));
  return tnx_stream_take_error(s);
}

bool tnx_stream_query(tnx_stream *s) {
  tnx_stream_release(s);
  uint64_t done = tnx_stream_done(s); /* first: pushed only grows */
  return done == tnx_stream_pushed(s);
}

tnx_status tnx_stream_new(tnx_device *device, tnx_stream **out) {
  size_t bytes = sizeof(tnx_stream) + TNX_ERROR_BYTES + RING_BYTES + 64;
  unsigned char *raw = tnx_heap_alloc(bytes);
  if (!raw) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a stream");
  tnx_stream *s = (tnx_stream *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
  memset(s, 0, sizeof *s);
  s->error_text = (char *)(s + 1);
  memset(s->error_text, 0, TNX_ERROR_BYTES);
  s->ring = (unsigned char *)s->error_text + TNX_ERROR_BYTES;
  s->device = device;
  s->pool.team = device->team;
  atomic_store(&s->wait_min, UINT64_MAX);
  *out = s;
  return TNX_OK;
}

tnx_status tnx_stream_create(int device, int priority, tnx_stream **out) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_status status = TNX_OK;
  tnx_stream *s = NULL;
  tnx_mutex_lock(&d->lock);
  int n = atomic_load(&d->stream_count), slot = 1;
  for (; slot < n; slot++) { /* a destroyed stream's object is taken over: its counters go on, so old events stay done */
    s = atomic_load(&d->streams[slot]);
    if (!s->live) break;
    s = NULL;
  }
  if (!s) {
    if (n == TNX_MAX_STREAMS) status = tnx_fail(TNX_DEVICE, "device %d has %d live streams; there can be no more", device, n);
    else status = tnx_stream_new(d, &s);
    if (status == TNX_OK) {
      atomic_store(&d->streams[n], s);
      atomic_store(&d->stream_count, n + 1);
      slot = n;
    }
  }
  if (status == TNX_OK) {
    s->live = true;
    s->priority = priority;
    /* Slot in the low bits for tnx_stream_find, the device above, a generation on top: unique in the process. */
    atomic_store(&s->id, ++d->generation << 16 | (uint64_t)d->index << 10 | (uint64_t)slot);
    *out = s;
  }
  tnx_mutex_unlock(&d->lock);
  return status;
}
_Static_assert(TNX_MAX_STREAMS == 1 << 10 && TNX_MAX_DEVICES == 1 << 6, "stream ids");

void tnx_stream_destroy(tnx_stream *s) {
  if (!s || s->is_default || !tnx_runtime_is_open()) return;
  tnx_stream_wait(s, tnx_stream_pushed(s));
  tnx_mutex_lock(&s->lock);
  s->error = TNX_OK;
  tnx_mutex_unlock(&s->lock);
  tnx_mutex_lock(&s->device->lock);
  s->live = false;
  atomic_store(&s->id, UINT64_MAX);
  tnx_mutex_unlock(&s->device->lock);
}

void tnx_stream_stop(tnx_stream *s) {
  if (tnx_stream_is_mine(s)) return; /* exit() from inside a task: the process ends under it */
  tnx_stream_wait(s, tnx_stream_pushed(s));
  tnx_mutex_lock(&s->lock);
  bool join = s->worker == WORKER_RUNNING;
  atomic_store(&s->stop, true);
  bool wake = unpark_locked(s);
  tnx_mutex_unlock(&s->lock);
  if (wake) tnx_futex_wake(&s->worker_word, 1);
  if (join) pthread_join(s->thread, NULL);
  tnx_mutex_lock(&s->lock);
  atomic_store(&s->stop, false);
  tnx_mutex_unlock(&s->lock);
}

tnx_status tnx_stream_default(int device, tnx_stream **out) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  *out = atomic_load_explicit(&d->streams[0], memory_order_relaxed);
  return TNX_OK;
}

int tnx_stream_device(const tnx_stream *s) { return s->device->index; }
uint64_t tnx_stream_id(const tnx_stream *s) { return atomic_load_explicit(&((tnx_stream *)s)->id, memory_order_relaxed); }

tnx_stream *tnx_stream_find(int device, uint64_t id) {
  tnx_device *d;
  if (tnx_device_get(device, &d) != TNX_OK) return NULL;
  uint64_t slot = id & (TNX_MAX_STREAMS - 1);
  if (slot >= (uint64_t)atomic_load_explicit(&d->stream_count, memory_order_acquire)) return NULL;
  tnx_stream *s = atomic_load_explicit(&d->streams[slot], memory_order_acquire);
  return tnx_stream_id(s) == id ? s : NULL;
}
