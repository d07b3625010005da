/* Indexed reads and writes. All sizes are of a row-major iteration space; strides are in bytes and may be 0 or negative. */
#ifndef TNXK_INDEXING_H
#define TNXK_INDEXING_H
#include "kernels/kernel.h"

enum { TNXK_INDEX_MAX = 8 };

typedef enum tnxk_scatter_op { TNXK_SCATTER_SET, TNXK_SCATTER_ADD, TNXK_SCATTER_MUL, TNXK_SCATTER_MIN, TNXK_SCATTER_MAX } tnxk_scatter_op;

/* For every coordinate x of the iteration space [sizes]:
 *   gather:   out[x]  = src[base(x) + sum_t wrap(index_t[x]) * step_t]
 *   scatter:  out[base(x) + sum_t wrap(index_t[x]) * step_t] op= src[x]
 * where base(x) walks the indexed operand with `strides` (0 along dimensions that only the indices walk), index_t is an int64 or int32 tensor
 * walked with its own strides, wrap adds limit_t to a negative index, and an index outside [0, limit_t), or [-limit_t, limit_t) with `wraps`, is a fault and
 * touches nothing (out gets 0). This one form serves embedding, index_select, gather, take, index.Tensor with several index tensors, and as
 * scatter: index_copy, index_add, index_put (accumulate or not), scatter(_add, _reduce).
 * Rows: where the innermost dimension has step only through base (no index varies along it), whole rows are copied at once.
 * Scatter is deterministic: later coordinates win for SET, and sums are added in coordinate order, whatever the number of threads. */
typedef struct tnxk_index {
  int32_t rank, n_index;
  int64_t sizes[TNXK_MAX_RANK];
  const void *src;
  void *out;
  int64_t src_st[TNXK_MAX_RANK], out_st[TNXK_MAX_RANK];
  struct {
    const void *data; /* int64, or int32 */
    int64_t st[TNXK_MAX_RANK];
    int64_t limit; /* size of the indexed dimension */
    int64_t step;  /* its stride, in bytes, in the indexed operand */
  } index[TNXK_INDEX_MAX];
  uint8_t dtype;       /* of src and out */
  uint8_t index_dtype; /* I64 or I32 */
  uint8_t op;          /* tnxk_scatter_op; scatter only */
  bool wraps;          /* negative indices count from the end */
  tnxk_fault *fault;   /* may be NULL */
} tnxk_index;

tnx_status tnxk_gather_select(const tnxk_index *p, tnx_isa isa, int workers, tnxk_kernel *out);
tnx_status tnxk_scatter_select(const tnxk_index *p, tnx_isa isa, int workers, tnxk_kernel *out);

/* Plain strided copy without conversion, any element size 1, 2, 4, 8 or 16; memcpy for contiguous runs, blocked where one side is
 * transposed. src and out do not overlap. */
typedef struct tnxk_copy {
  int32_t rank;
  int64_t sizes[TNXK_MAX_RANK];
  const void *src;
  void *out;
  int64_t src_st[TNXK_MAX_RANK], out_st[TNXK_MAX_RANK];
  int32_t elem_size;
} tnxk_copy;

tnx_status tnxk_copy_select(const tnxk_copy *p, tnx_isa isa, int workers, tnxk_kernel *out);

/* The coordinates of the first `rows` true elements of a contiguous mask, in row-major order; rows that are left over get `fill`. */
typedef struct tnxk_nonzero {
  int32_t rank;
  int64_t sizes[TNXK_MAX_RANK];
  const void *mask; /* bool */
  void *out;        /* int64 */
  int64_t rows, row_st, column_st, fill;
} tnxk_nonzero;

tnx_status tnxk_nonzero_select(const tnxk_nonzero *p, tnx_isa isa, int workers, tnxk_kernel *out);
#endif
