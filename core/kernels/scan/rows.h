/* Internal to the scan family: the split of rows into units, kernels' declarations. */
#ifndef TNXK_SCAN_ROWS_H
#define TNXK_SCAN_ROWS_H
#include <string.h>

#include "kernels/scan/scan.h"

/* Scans take up to this many rows that are neighbours in one dimension together, so that a scan along an outer dimension
 * still reads whole cache lines. */
enum { TNXK_SCAN_TILE = 32 };

/* The dimension whose neighbours share a unit: the last one that has any; -1: none. */
static inline int tnxk_scan_tile_dim(const tnxk_scan *p) {
  for (int d = p->rank - 1; d >= 0; d--)
    if (p->sizes[d] != 1) return d;
  return -1;
}

/* Can the scan be computed for this dtype? */
bool tnxk_scan_has(tnx_dtype dtype, tnxk_scan_op op);

/* Top-k by a bounded heap pays while k is a small part of n; beyond, the whole row is sorted. The CPU's order of equals says when. */
static inline bool tnxk_topk_by_heap(const tnxk_topk *p) { return p->k <= p->n / (p->stable ? 16 : 64); }
/* Keys of up to 4 bytes share a 64-bit word with a 32-bit position. */
static inline bool tnxk_topk_narrow(const tnxk_topk *p) {
  return tnx_dtype_size((tnx_dtype)p->dtype) <= 4 && (uint64_t)p->n <= UINT32_MAX;
}
enum { TNXK_TOPK_CHUNK = 128, TNXK_TOPK_COUNTS = 8 * 256 };

#define TNXK_SCAN(isa, operation, function) \
  void function(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
#include "kernels/scan/kernels.def"
#undef TNXK_SCAN
#endif
