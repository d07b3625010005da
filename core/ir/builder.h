/* Builder: what lowerings write graphs with.
 *
 * Errors are sticky: after the first failure every call returns 0 and b->status holds it (its text is the thread's error text), so a lowering
 * checks once, at its end. Functions infer shapes and fold the obvious (identity views, conversions to the same dtype, arithmetic on constants,
 * x*1, x+0, ...), and equal nodes are created once. Dimensions may be negative where PyTorch's may. */
#ifndef TNX_IR_BUILDER_H
#define TNX_IR_BUILDER_H
#include "ir/graph.h"
#include "ops/faults.h"

typedef struct tnx_builder {
  tnx_graph *g;
  tnx_status status;
  tnx_dtype default_dtype; /* what Python floats become beside integers */
  tnx_fault fault;         /* of indices out of range in what is built next */
} tnx_builder;

static inline tnx_builder tnx_builder_on(tnx_graph *g) {
  tnx_builder b = {g, TNX_OK, TNX_F32, TNX_FAULT_NONE};
  return b;
}

/* ---- facts ---- */
static inline tnx_dtype tnx_b_dtype(const tnx_builder *b, tnx_value v) { return (tnx_dtype)b->g->values.data[v].dtype; }
static inline int tnx_b_rank(const tnx_builder *b, tnx_value v) { return b->g->values.data[v].rank; }
static inline const tnx_dim *tnx_b_sizes(const tnx_builder *b, tnx_value v) { return b->g->values.data[v].sizes; }
static inline tnx_dim tnx_b_size(const tnx_builder *b, tnx_value v, int dim) { return b->g->values.data[v].sizes[dim < 0 ? dim + tnx_b_rank(b, v) : dim]; }
tnx_dim tnx_b_numel(tnx_builder *b, tnx_value v);
/* Fails with `status` and the text; returns 0. */
tnx_value tnx_b_fail(tnx_builder *b, tnx_status status, const char *fmt, ...) TNX_PRINTF(3, 4);
/* Wraps a dimension number; out of range fails with INDEX in PyTorch's words. rank 0 accepts 0 and -1. */
int tnx_b_wrap_dim(tnx_builder *b, int64_t dim, int rank);

/* ---- symbolic arithmetic ---- */
tnx_dim tnx_b_dim(tnx_builder *b, tnx_dim_op op, tnx_dim x, tnx_dim y);
static inline tnx_dim tnx_b_dim_add(tnx_builder *b, tnx_dim x, tnx_dim y) { return tnx_b_dim(b, TNX_DIM_ADD, x, y); }
static inline tnx_dim tnx_b_dim_sub(tnx_builder *b, tnx_dim x, tnx_dim y) { return tnx_b_dim(b, TNX_DIM_SUB, x, y); }
static inline tnx_dim tnx_b_dim_mul(tnx_builder *b, tnx_dim x, tnx_dim y) { return tnx_b_dim(b, TNX_DIM_MUL, x, y); }
/* True where both are the same constant or the same expression. */
static inline bool tnx_b_dim_same(tnx_dim x, tnx_dim y) { return x == y; }

/* ---- leaves ---- */
tnx_value tnx_b_const_f(tnx_builder *b, tnx_dtype t, double v); /* 0-dim of any dtype, converted */
tnx_value tnx_b_const_i(tnx_builder *b, tnx_dtype t, int64_t v);
tnx_value tnx_b_const_c(tnx_builder *b, tnx_dtype t, double re, double im);
/* A scalar argument (INT, FLOAT, BOOL, COMPLEX) as a 0-dim value of dtype t; a symbolic INT becomes DIMVAL. */
tnx_value tnx_b_scalar(tnx_builder *b, const tnx_arg *a, tnx_dtype t);
/* The dtype a scalar argument has by itself: int64, the default float, bool, or complex. */
tnx_dtype tnx_b_scalar_dtype(const tnx_arg *a);
tnx_value tnx_b_full(tnx_builder *b, tnx_value scalar, int rank, const tnx_dim *sizes);
tnx_value tnx_b_iota(tnx_builder *b, int rank, const tnx_dim *sizes, int dim); /* int64 */
tnx_value tnx_b_dimval(tnx_builder *b, tnx_dim d);                             /* int64, 0-dim */

/* ---- pointwise ---- */
tnx_value tnx_b_convert(tnx_builder *b, tnx_value x, tnx_dtype t);
tnx_value tnx_b_unary(tnx_builder *b, tnx_op op, tnx_value x);
/* Operands of one dtype; broadcast together. */
tnx_value tnx_b_binary(tnx_builder *b, tnx_op op, tnx_value x, tnx_value y);
tnx_value tnx_b_select(tnx_builder *b, tnx_value pred, tnx_value x, tnx_value y);
/* x, which faults at run time where ok (broadcast to x) is false. */
tnx_value tnx_b_check(tnx_builder *b, tnx_value x, tnx_value ok, tnx_fault fault);
tnx_value tnx_b_philox(tnx_builder *b, tnx_value seed, tnx_value offset, tnx_value index);
/* Shorthands with a constant of x's dtype on the right. */
tnx_value tnx_b_binary_f(tnx_builder *b, tnx_op op, tnx_value x, double y);
/* PyTorch's result dtype of n operands (tensors of rank > 0, 0-dim tensors and wrapped numbers weigh differently); torch.result_type. */
tnx_dtype tnx_b_result_type(tnx_builder *b, const tnx_value *xs, int n);
/* The dtype floating functions (exp, mean of ints, true division) give for an input dtype: floats and complex stay, the others give float32. */
static inline tnx_dtype tnx_float_of(tnx_dtype t) { return tnx_dtype_is_integral(t) ? TNX_F32 : t; }
/* The dtype in which PyTorch computes a half type inside one operator: float32 for float16/bfloat16/float8, others unchanged. */
static inline tnx_dtype tnx_acc_of(tnx_dtype t) { return t == TNX_F16 || t == TNX_BF16 || t == TNX_F8E4M3 || t == TNX_F8E5M2 ? TNX_F32 : t; }

/* ---- views ---- */
tnx_value tnx_b_broadcast_to(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes); /* trailing alignment, as expand */
/* The common shape of x and y into sizes[TNX_MAX_RANK]; returns the rank, -1 on error. */
int tnx_b_broadcast_shape(tnx_builder *b, int rx, const tnx_dim *sx, int ry, const tnx_dim *sy, tnx_dim *sizes);
tnx_value tnx_b_reshape(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes); /* one size may be -1 */
tnx_value tnx_b_transpose(tnx_builder *b, tnx_value x, const int *perm);
tnx_value tnx_b_swap_dims(tnx_builder *b, tnx_value x, int d0, int d1);
/* x[start:start+len*step:step] along dim; start and len already clamped. */
tnx_value tnx_b_slice(tnx_builder *b, tnx_value x, int dim, tnx_dim start, tnx_dim len, int64_t step);
tnx_value tnx_b_reverse(tnx_builder *b, tnx_value x, const int *dims, int n);
tnx_value tnx_b_unsqueeze(tnx_builder *b, tnx_value x, int dim);
tnx_value tnx_b_squeeze(tnx_builder *b, tnx_value x, const int *dims, int n); /* drops those that have size 1 */
tnx_value tnx_b_diagonal(tnx_builder *b, tnx_value x, int64_t offset, int d1, int d2);
tnx_value tnx_b_strided(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes, const tnx_dim *strides, tnx_dim offset);
tnx_value tnx_b_unfold(tnx_builder *b, tnx_value x, int dim, int64_t size, int64_t step);

/* ---- data ---- */
tnx_value tnx_b_concat(tnx_builder *b, const tnx_value *xs, int n, int dim); /* equal dtypes */
tnx_value tnx_b_pad(tnx_builder *b, tnx_value x, tnx_value value, const tnx_dim *low, const tnx_dim *high);
tnx_value tnx_b_update_slice(tnx_builder *b, tnx_value base, tnx_value update, int dim, tnx_dim start, int64_t step);
tnx_value tnx_b_update_strided(tnx_builder *b, tnx_value base, tnx_value update, const tnx_dim *strides, tnx_dim offset);
tnx_value tnx_b_update_diagonal(tnx_builder *b, tnx_value base, tnx_value update, int64_t offset, int d1, int d2);

/* ---- reductions and scans ---- */
/* op: TNX_OP_REDUCE_* or ARGMAX/ARGMIN. dims wrapped and distinct; n = 0: all dimensions. keepdim = false drops them. */
tnx_value tnx_b_reduce(tnx_builder *b, tnx_op op, tnx_value x, const int *dims, int n, bool keepdim);
tnx_value tnx_b_scan(tnx_builder *b, tnx_op op, tnx_value x, int dim); /* CUMMAX, CUMMIN: the positions are the result + 1 */
tnx_value tnx_b_topk(tnx_builder *b, tnx_value x, int dim, tnx_dim k, bool descending, bool stable); /* positions: result + 1 */

/* ---- indexing ---- */
tnx_value tnx_b_take(tnx_builder *b, tnx_value x, tnx_value index, int dim);
tnx_value tnx_b_gather(tnx_builder *b, tnx_value x, tnx_value index, int dim);
tnx_value tnx_b_index(tnx_builder *b, tnx_value x, const tnx_value *index, const int *dims, int n);
tnx_value tnx_b_scatter(tnx_builder *b, tnx_value base, tnx_value index, tnx_value src, int dim, int mode);
tnx_value tnx_b_put(tnx_builder *b, tnx_value base, tnx_value index, tnx_value src, int dim, int mode);
tnx_value tnx_b_nonzero(tnx_builder *b, tnx_value mask, tnx_dim n, int64_t fill); /* [n, rank] */
tnx_value tnx_b_index_put(tnx_builder *b, tnx_value base, tnx_value src, const tnx_value *index, const int *dims, int n, int mode);

/* ---- products ---- */
tnx_value tnx_b_matmul(tnx_builder *b, tnx_value x, tnx_value y); /* batch sizes broadcast */
tnx_value tnx_b_linear(tnx_builder *b, tnx_value x, tnx_value weight, tnx_value bias);
tnx_value tnx_b_addmm(tnx_builder *b, tnx_value add, tnx_value x, tnx_value y, double beta, double alpha); /* add is broadcast */
tnx_value tnx_b_attention(tnx_builder *b, tnx_value q, tnx_value k, tnx_value v, tnx_value mask, bool causal, double scale); /* lse: result + 1 */
tnx_value tnx_b_attention_backward(tnx_builder *b, tnx_value dout, tnx_value q, tnx_value k, tnx_value v, tnx_value out, tnx_value lse, tnx_value mask,
                                   bool causal, double scale); /* dq; dk: + 1; dv: + 2 */

/* ---- dense linear algebra, Fourier transforms ---- */
/* Any LINALG operator but LU_PERMUTATION: operands of one batch; the first of its results, the others follow. */
tnx_value tnx_b_linalg(tnx_builder *b, tnx_op op, const tnx_value *xs, int n, int check, int flag0, int flag1, double number);
tnx_value tnx_b_lu_permutation(tnx_builder *b, tnx_value pivots, tnx_dim m); /* [.., k] -> [.., m] */
/* FFT, RFFT (size: ignored) or IRFFT (size: of the result along dim). */
tnx_value tnx_b_fft(tnx_builder *b, tnx_op op, tnx_value x, int dim, bool inverse, int norm, tnx_dim size);
#endif
