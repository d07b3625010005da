#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int64_t live;
static _Atomic int64_t countdown = -1; /* test hook, not state of the library */

static int fails_now(void) {
  if (atomic_load_explicit(&countdown, memory_order_relaxed) < 0) return 0;
  return atomic_fetch_sub(&countdown, 1) == 0;
}

void tnx_heap_fail_after(int64_t n) { atomic_store(&countdown, n); }
int64_t tnx_heap_live(void) { return atomic_load(&live); }

void *tnx_heap_alloc(size_t size) {
  if (fails_now()) return NULL;
  void *p = malloc(size ? size : 1);
  if (p) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
  return p;
}

void *tnx_heap_zalloc(size_t count, size_t size) {
  if (fails_now() || (size && count > SIZE_MAX / size)) return NULL;
  void *p = calloc(count ? count : 1, size ? size : 1);
  if (p) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
  return p;
}

void *tnx_heap_realloc(void *old, size_t size) {
  if (fails_now()) return NULL;
  void *p = realloc(old, size ? size : 1);
  if (p && !old) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
  return p;
}

void tnx_heap_free(void *p) {
  if (!p) return;
  atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
  free(p);
}
