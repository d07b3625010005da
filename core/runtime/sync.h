/* The few synchronisation primitives of the runtime: a small mutex that is inlined on its uncontended path, futex sleep and wake, a
 * monotonic clock and a bounded spin.
 *
 * Lock ranks. A thread takes locks in rising rank only and never two of the same rank:
 *   10  runtime.lock      opening, closing, thread counts
 *   20  device.lock       the table of streams of a device
 *   30  allocator.lock    one device's blocks, segments, statistics
 *   40  event.lock        one event's last record
 *   42  inbox.lock        messages of one rank of a communicator that came early
 *   44  comm.lock         tickets and the first failure of a communicator
 *   50  stream.lock       one stream's producers, its parked flag, its deferred error
 *   60  team.lock         one device's helper threads (start and stop)
 *   70  host_memory.lock  the table of pinned host memory
 *   80  locks of a driver */
#ifndef TNX_RUNTIME_SYNC_H
#define TNX_RUNTIME_SYNC_H
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void tnx_cpu_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline uint64_t tnx_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sleeps while *word == expected; may return early. */
static inline void tnx_futex_wait(_Atomic uint32_t *word, uint32_t expected) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0); }
static inline void tnx_futex_wake(_Atomic uint32_t *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

/* 0 free, 1 held, 2 held and somebody may sleep (U. Drepper, "Futexes Are Tricky", mutex 2). Zero-initialised. */
typedef struct tnx_mutex { _Atomic uint32_t word; } tnx_mutex;

static inline void tnx_mutex_lock(tnx_mutex *m) {
  uint32_t seen = 0;
  if (atomic_compare_exchange_strong_explicit(&m->word, &seen, 1, memory_order_acquire, memory_order_relaxed)) return;
  for (int i = 0; i < 100; i++) { /* critical sections are tens of nanoseconds; spinning longer only hurts when the holder lost its core */
    tnx_cpu_pause();
    seen = 0;
    if (atomic_load_explicit(&m->word, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_strong_explicit(&m->word, &seen, 1, memory_order_acquire, memory_order_relaxed))
      return;
  }
  while (atomic_exchange_explicit(&m->word, 2, memory_order_acquire) != 0) tnx_futex_wait(&m->word, 2);
}

static inline void tnx_mutex_unlock(tnx_mutex *m) {
  if (atomic_exchange_explicit(&m->word, 0, memory_order_release) == 2) tnx_futex_wake(&m->word, 1);
}

/* A bounded spin. tnx_spin_once is false when the budget is used up. The budget halves when the thread finds that it lost its core while
 * spinning (the machine has more runnable threads than cores, so spinning takes time from somebody's work) and grows back otherwise. */
typedef struct tnx_spin { uint64_t start, last; uint32_t budget, polls; } tnx_spin; /* nanoseconds */

enum { TNX_SPIN_MAX = 50000, TNX_SPIN_MIN = 2000, TNX_SPIN_LOST_CORE = 50000 };

static inline void tnx_spin_begin(tnx_spin *s) {
  if (s->budget == 0) s->budget = TNX_SPIN_MAX;
  s->polls = 0;
}
static inline bool tnx_spin_once(tnx_spin *s) {
  tnx_cpu_pause();
  if (++s->polls & 31) return true; /* the clock costs more than a poll */
  uint64_t now = tnx_now_ns();
  if (s->polls == 32) {
    s->start = s->last = now;
    return true;
  }
  bool lost = now - s->last > TNX_SPIN_LOST_CORE;
  s->last = now;
  if (lost) {
    s->budget = s->budget / 2 < TNX_SPIN_MIN ? TNX_SPIN_MIN : s->budget / 2;
    return false;
  }
  if (now - s->start < s->budget) return true;
  s->budget += s->budget / 4;
  if (s->budget > TNX_SPIN_MAX) s->budget = TNX_SPIN_MAX;
  return false;
}
#endif
