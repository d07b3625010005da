/* Diagnostic lines on stderr, chosen by TNX_LOG=alloc,plan,kernel,fallback,stream (or "all"). Any thread.
 * A category that is off costs one load and one test; arguments are not evaluated. */
#ifndef TNX_BASE_LOG_H
#define TNX_BASE_LOG_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tnx/status.h"

typedef enum tnx_log_category {
  TNX_LOG_ALLOC = 1u << 0,    /* segments, cache, shortage */
  TNX_LOG_PLAN = 1u << 1,     /* graphs, passes, plan cache */
  TNX_LOG_KERNEL = 1u << 2,   /* which kernel a step uses */
  TNX_LOG_FALLBACK = 1u << 3, /* operators run by another backend */
  TNX_LOG_STREAM = 1u << 4    /* streams, threads, devices */
} tnx_log_category;

/* The bit that says the environment has not been read yet; set with every category, so the inline test covers it. */
#define TNX_LOG_UNREAD (1u << 31)
extern _Atomic uint32_t tnx_log_mask;

bool tnx_log_read_environment(tnx_log_category category);
void tnx_log_write(tnx_log_category category, const char *fmt, ...) TNX_PRINTF(2, 3);
/* Replaces the mask of the environment. For tests and tools. */
void tnx_log_set(uint32_t mask);

static inline bool tnx_log_on(tnx_log_category category) {
  uint32_t m = atomic_load_explicit(&tnx_log_mask, memory_order_relaxed);
  return (m & (uint32_t)category) && (!(m & TNX_LOG_UNREAD) || tnx_log_read_environment(category));
}

#define TNX_LOG(category, ...)                                                             \
  do {                                                                                     \
    if (tnx_log_on(TNX_LOG_##category)) tnx_log_write(TNX_LOG_##category, __VA_ARGS__);    \
  } while (0)
#endif
