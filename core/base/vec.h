/* Growable array of any type: TNX_VEC(int) v = {0}; tnx_vec_push(&v, 3) is false when memory is short. */
#ifndef TNX_BASE_VEC_H
#define TNX_BASE_VEC_H
#include <stdbool.h>

#include "base/alloc.h"

#define TNX_VEC(type) \
  struct {            \
    type *data;       \
    uint32_t len, cap; \
  }
#define tnx_vec_reserve(v, n) tnx_vec_reserve_((void **)&(v)->data, &(v)->cap, (n), sizeof *(v)->data)
#define tnx_vec_push(v, x) (tnx_vec_reserve((v), (v)->len + 1) && ((v)->data[(v)->len++] = (x), true))
#define tnx_vec_fini(v) (tnx_heap_free((v)->data), (v)->data = NULL, (v)->len = (v)->cap = 0)

static inline bool tnx_vec_reserve_(void **data, uint32_t *cap, uint32_t need, size_t elem) {
  if (need <= *cap) return true;
  uint32_t n = *cap ? *cap * 2 : 8;
  if (n < need) n = need;
  void *p = tnx_heap_realloc(*data, (size_t)n * elem);
  if (!p) return false;
  *data = p;
  *cap = n;
  return true;
}
#endif
