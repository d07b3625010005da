/* Operations along one dimension of length n: cumulative scans, sort and top-k. Rows are the other dimensions.
 * Strides are in bytes. */
#ifndef TNXK_SCAN_H
#define TNXK_SCAN_H
#include "kernels/kernel.h"

typedef enum tnxk_scan_op { TNXK_CUMSUM, TNXK_CUMPROD, TNXK_CUMMAX, TNXK_CUMMIN, TNXK_LOGCUMSUMEXP } tnxk_scan_op;

/* out[i] = in[0] op ... op in[i] along the row; CUMMAX and CUMMIN also write the position of the value (last one among equals, NaN wins). */
typedef struct tnxk_scan {
  int32_t rank; /* of the rows' space, may be 0 */
  int64_t sizes[TNXK_MAX_RANK];
  int64_t n;
  const void *in;
  void *out;
  int64_t *index; /* CUMMAX, CUMMIN; else NULL */
  int64_t in_st[TNXK_MAX_RANK], out_st[TNXK_MAX_RANK], index_st[TNXK_MAX_RANK];
  int64_t in_step, out_step, index_step; /* along the row */
  uint8_t dtype; /* of in and out; halves accumulate in float32, floats as PyTorch's CPU kernels do */
  uint8_t op;    /* tnxk_scan_op */
} tnxk_scan;
tnx_status tnxk_scan_select(const tnxk_scan *p, tnx_isa isa, int workers, tnxk_kernel *out);

/* The k first elements of each row in sorted order, with their positions. k == n is a full sort. NaN counts as the largest value. */
typedef struct tnxk_topk {
  int32_t rank;
  int64_t sizes[TNXK_MAX_RANK];
  int64_t n, k;
  const void *in;
  void *values;   /* may be NULL */
  int64_t *index; /* may be NULL */
  int64_t in_st[TNXK_MAX_RANK], values_st[TNXK_MAX_RANK], index_st[TNXK_MAX_RANK];
  int64_t in_step, values_step, index_step;
  uint8_t dtype; /* every real type */
  bool descending;
  bool stable; /* equals by position; else in the order of PyTorch's CPU kernel of topk */
} tnxk_topk;
tnx_status tnxk_topk_select(const tnxk_topk *p, tnx_isa isa, int workers, tnxk_kernel *out);
#endif
