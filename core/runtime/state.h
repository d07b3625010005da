/* The runtime object and what its files share: the process state, devices, streams. Internal to core/runtime.
 * Streams, events' stream references and segment descriptors are recycled but never given back to the heap, so a stale pointer to
 * one is always readable and its ever-growing task counters tell that its work is done. */
#ifndef TNX_RUNTIME_STATE_H
#define TNX_RUNTIME_STATE_H
#include <pthread.h>

#include "drivers/driver.h"
#include "runtime/sync.h"
#include "tnx/runtime.h"

enum { TNX_MAX_DEVICES = 64, TNX_MAX_STREAMS = 1024, TNX_ERROR_BYTES = 2048 };

typedef struct tnx_device tnx_device;
typedef struct tnx_allocator tnx_allocator;
typedef struct tnx_team tnx_team;
typedef struct tnx_free_lists tnx_free_lists;

typedef struct tnx_scratch { void *raw, *aligned; size_t bytes; } tnx_scratch;

/* What a task sees as its pool: the device's team through the eyes of one stream, with that stream's scratch. Touched by the stream's
 * consumer only. */
struct tnx_pool {
  tnx_team *team;
  int workers; /* latched before each task, so that scratch and worker numbers agree within it */
  tnx_scratch shared, *worker; /* worker[TNX_MAX_WORKERS], on first use */
};

struct tnx_stream {
  /* Producers, under `lock` (rank 50). */
  tnx_mutex lock;
  bool parked;        /* the worker sleeps, or is about to, on worker_word */
  uint8_t worker;     /* enum worker_state */
  _Atomic bool stop;  /* the worker shall end; written under lock. What is queued from now on is run by those who queue or wait */
  uint64_t head;      /* ring bytes written so far */
  uint64_t tail_seen; /* an old value of tail */
  unsigned char *ring;
  tnx_status error;   /* first deferred failure and its text */
  char *error_text;   /* TNX_ERROR_BYTES */

  _Alignas(64) _Atomic uint64_t pushed; /* tasks queued so far; written under lock */
  /* The consumer. */
  _Alignas(64) _Atomic uintptr_t owner; /* 0, or a thread token with bit 0 set for the worker; holders run tasks */
  _Atomic uint64_t tail;                /* ring bytes read so far; written by the owner */
  _Atomic uint64_t done;                /* tasks finished; written by the owner */
  _Atomic uint64_t wait_min;            /* the least `done` a sleeping waiter wants; UINT64_MAX: none. Written under lock */
  /* Sleeping. */
  _Alignas(64) _Atomic uint32_t worker_word, done_word;
  pthread_t thread;

  tnx_device *device;
  _Atomic uint64_t id;
  bool live, is_default; /* live: under device.lock */
  int priority;
  _Atomic uint64_t followed; /* tasks of the default stream that what is queued here comes after */
  _Atomic bool held;         /* work is held back: see programs.h; written under lock */
  _Atomic(void *) holder;
  tnx_pool pool;
  tnx_free_lists *free_lists; /* the allocator's, under allocator.lock */
};

struct tnx_device {
  int index;
  tnx_device_props props;
  const tnx_driver *driver;
  tnx_allocator *allocator;
  tnx_team *team;
  tnx_mutex lock; /* rank 20: the table below */
  _Atomic(tnx_stream *) streams[TNX_MAX_STREAMS]; /* [0] is the default stream; slots are filled in order and kept */
  _Atomic int stream_count;
  uint64_t generation; /* of stream ids */
};

typedef enum { TNX_RUNTIME_CLOSED, TNX_RUNTIME_OPEN, TNX_RUNTIME_BAD_FORK } tnx_runtime_state;

typedef struct tnx_runtime {
  _Atomic int state;
  _Atomic bool blocking, stopped; /* stopped: closed; tasks run on the thread that queues them */
  tnx_mutex lock;                 /* rank 10 */
  const tnx_driver *driver;
  tnx_status (*release_held)(tnx_stream *s);
  bool (*upload_held)(tnx_stream *s, void *to, const void *from, size_t bytes);
  _Atomic int threads;            /* asked for by tnx_runtime_set_threads; 0: default */
  int default_threads;
  int cores;                      /* that this process may use */
  _Atomic int waiters;            /* threads of the host that wait for a stream */
  int device_count;
  tnx_device *devices[TNX_MAX_DEVICES];
} tnx_runtime;

extern tnx_runtime tnx_rt;

/* runtime.c */
tnx_status tnx_runtime_ensure_slow(void);
static inline tnx_status tnx_runtime_ensure(void) { return atomic_load_explicit(&tnx_rt.state, memory_order_acquire) == TNX_RUNTIME_OPEN ? TNX_OK : tnx_runtime_ensure_slow(); }
/* Checks that the runtime is open (opening it) and that `device` exists. */
tnx_status tnx_device_get(int device, tnx_device **out);
/* Starts a thread of the runtime: all signals blocked, named. */
tnx_status tnx_thread_start(pthread_t *out, const char *name, void *(*main)(void *), void *arg);
/* An address that identifies the calling thread; even. */
uintptr_t tnx_thread_token(void);

/* stream.c */
tnx_status tnx_stream_new(tnx_device *device, tnx_stream **out); /* a stream object without an entry in the device's table */
uint64_t tnx_stream_pushed_or_held(tnx_stream *s);
/* Tasks queued so far; what is held back counts as one. `held` falls after `pushed` has grown, so it is read first. */
static inline uint64_t tnx_stream_pushed(tnx_stream *s) {
  if (atomic_load_explicit(&s->held, memory_order_acquire)) return tnx_stream_pushed_or_held(s);
  return atomic_load_explicit(&s->pushed, memory_order_acquire);
}
static inline uint64_t tnx_stream_done(tnx_stream *s) { return atomic_load_explicit(&s->done, memory_order_acquire); }
/* Waits until `target` tasks of s are done, running them itself when nobody does. The caller must not be the consumer of s. */
void tnx_stream_wait(tnx_stream *s, uint64_t target);
/* A task that waits for the first `ticket` tasks of another stream. */
typedef struct tnx_stream_point { tnx_stream *stream; uint64_t ticket; } tnx_stream_point;
tnx_status tnx_stream_run_wait(void *payload, tnx_pool *pool);
/* Queues a task, waits for it and returns its own status. *queued_out: whether it was queued, so that drop has been called. */
tnx_status tnx_stream_run(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out);
/* tnx_stream_enqueue for callers that must know whether drop will be called although the call failed (launch blocking). */
tnx_status tnx_stream_submit(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out);
bool tnx_stream_is_mine(tnx_stream *s); /* the calling thread is running a task of s */
tnx_status tnx_stream_take_error(tnx_stream *s);
void tnx_stream_stop(tnx_stream *s); /* drains, ends the worker */

/* pool.c */
tnx_status tnx_team_create(tnx_device *device, tnx_team **out);
void tnx_team_destroy(tnx_team *team); /* one whose helpers never started */
void tnx_team_stop(tnx_team *team);
int tnx_team_size(const tnx_team *team);

/* allocator.c */
tnx_status tnx_allocator_create(tnx_device *device, tnx_allocator **out);
#endif
