/* What the lowering families share: reading arguments, promotion with scalar arguments, dimension lists and small graph idioms.
 *
 * Every lowering named in aten.def is declared here. Helpers follow the builder's rule: after a failure they return 0 and b->status holds it. */
#ifndef TNX_ATEN_FAMILY_H
#define TNX_ATEN_FAMILY_H
#include <math.h>
#include <string.h>

#include "aten/lower.h"

#define ATEN(functional, inplace, out, fn, flags) tnx_status fn(tnx_lower *l, const tnx_arg *a, tnx_value *results);
#include "aten/aten.def"
#undef ATEN

/* ---- arguments ---- */
static inline bool arg_none(const tnx_arg *a) { return a->kind == TNX_ARG_NONE; }
static inline tnx_value arg_value(const tnx_arg *a) { return a->kind == TNX_ARG_TENSOR && a->value != TNX_NO_TENSOR ? a->value : 0; }
static inline bool arg_bool(const tnx_arg *a) { return !arg_none(a) && a->dim != 0; }
static inline int64_t arg_int(const tnx_arg *a, int64_t none) { return a->kind == TNX_ARG_INT || a->kind == TNX_ARG_BOOL ? a->dim : a->kind == TNX_ARG_FLOAT ? (int64_t)a->number[0] : none; }
static inline double arg_number(const tnx_arg *a, double none) {
  return a->kind == TNX_ARG_INT || a->kind == TNX_ARG_BOOL ? (double)a->dim : a->kind == TNX_ARG_FLOAT || a->kind == TNX_ARG_COMPLEX ? a->number[0] : none;
}
static inline tnx_dtype arg_dtype(const tnx_arg *a, tnx_dtype none) { return a->kind == TNX_ARG_DTYPE ? a->dtype : none; }
static inline bool arg_symbolic(const tnx_arg *a) { return a->kind == TNX_ARG_INT && tnx_dim_is_symbolic(a->dim); }
/* A string argument's equality; NONE equals "". */
static inline bool arg_is(const tnx_arg *a, const char *s) { return a->kind == TNX_ARG_STRING ? strcmp(a->string, s) == 0 : *s == 0; }
/* True for the real number v, whatever kind it has. */
static inline bool arg_equals(const tnx_arg *a, double v) { return a->kind != TNX_ARG_NONE && a->kind != TNX_ARG_COMPLEX && !arg_symbolic(a) && arg_number(a, NAN) == v; }

/* A floating number that is not a tensor of its own: given as one, or passed by value (TNX_ROW_NUMBERS). */
static inline bool arg_by_value(const tnx_builder *b, const tnx_arg *a) { return a->kind == TNX_ARG_TENSOR && a->value != TNX_NO_TENSOR && (b->g->values.data[a->value].flags & TNX_VALUE_WRAPPED); }
static inline bool arg_is_fraction(const tnx_builder *b, const tnx_arg *a) { return a->kind == TNX_ARG_FLOAT || (arg_by_value(b, a) && tnx_dtype_is_float((tnx_dtype)b->g->values.data[a->value].dtype)); }

/* Entry i of a list of sizes for each spatial dimension, where one number stands for all; `none` for an empty or missing list. */
static inline int64_t arg_listed(const tnx_arg *a, int i, int64_t none) {
  if (a->kind != TNX_ARG_INTS) return arg_int(a, none);
  return a->count == 0 ? none : a->dims[a->count == 1 ? 0 : i];
}

/* A memory_format argument decides how new results are laid out. */
static inline void take_format(tnx_lower *l, const tnx_arg *a) {
  if (a->kind == TNX_ARG_INT) l->memory_format = (int)a->dim;
}

/* ---- results ---- */
static inline tnx_status give(tnx_lower *l, tnx_value *results, tnx_value v) {
  results[0] = v;
  return l->b.status;
}
static inline tnx_status give2(tnx_lower *l, tnx_value *results, tnx_value v, tnx_value w) {
  results[0] = v, results[1] = w;
  l->n_results = 2;
  return l->b.status;
}
static inline tnx_status give3(tnx_lower *l, tnx_value *results, tnx_value v, tnx_value w, tnx_value x) {
  results[0] = v, results[1] = w, results[2] = x;
  l->n_results = 3;
  return l->b.status;
}
static inline tnx_status uncovered(const tnx_lower *l, const char *why) {
  return l->b.status != TNX_OK ? l->b.status : tnx_fail(TNX_NOT_IMPLEMENTED, "%s: %s", l->row->functional[0] ? l->row->functional : l->row->out[0] ? l->row->out : l->row->inplace, why);
}

/* ---- promotion, dimensions ---- */
/* torch.result_type of a tensor dtype and a number. */
static inline tnx_dtype promote_number(const tnx_builder *b, tnx_dtype t, const tnx_arg *number) {
  if (number->kind == TNX_ARG_NONE || tnx_dtype_is_complex(t)) return t;
  if (number->kind == TNX_ARG_COMPLEX) {
    if (tnx_dtype_is_float(t)) return t == TNX_F64 ? TNX_C128 : TNX_C64;
    return b->default_dtype == TNX_F64 ? TNX_C128 : TNX_C64;
  }
  if (tnx_dtype_is_float(t)) return t;
  if (number->kind == TNX_ARG_FLOAT) return b->default_dtype;
  return t == TNX_BOOL && number->kind == TNX_ARG_INT ? TNX_I64 : t;
}

/* torch.result_type of two arguments, each a tensor or a number. */
static inline tnx_dtype promote_args(tnx_builder *b, const tnx_arg *x, const tnx_arg *y) {
  tnx_value vx = arg_value(x), vy = arg_value(y), both[2] = {vx, vy};
  if (vx && vy) return tnx_b_result_type(b, both, 2);
  return vx ? promote_number(b, tnx_b_dtype(b, vx), y) : promote_number(b, tnx_b_dtype(b, vy), x);
}

/* A list (or one number) of dimensions, wrapped, checked for repeats; NONE and an empty list give 0, which reductions take as all. */
static inline int arg_dims(tnx_builder *b, const tnx_arg *a, int rank, int *dims) {
  if (a->kind == TNX_ARG_NONE) return 0;
  const tnx_dim *list = a->kind == TNX_ARG_INT ? &a->dim : a->dims;
  uint32_t count = a->kind == TNX_ARG_INT ? 1 : a->count;
  uint32_t seen = 0;
  if (count > TNX_MAX_RANK) return (int)tnx_b_fail(b, TNX_SHAPE, "too many dimensions");
  for (uint32_t i = 0; i < count; i++) {
    dims[i] = tnx_b_wrap_dim(b, list[i], rank);
    if (seen >> dims[i] & 1) return (int)tnx_b_fail(b, TNX_INVALID_ARGUMENT, "dim %d appears multiple times in the list of dims", dims[i]);
    seen |= 1u << dims[i];
  }
  return b->status == TNX_OK ? (int)count : 0;
}

/* Copies the sizes of an INTS (or INT) argument; -1 on failure. */
static inline int arg_sizes(tnx_builder *b, const tnx_arg *a, tnx_dim *sizes) {
  if (a->kind == TNX_ARG_INT) {
    sizes[0] = a->dim;
    return 1;
  }
  if (a->kind != TNX_ARG_INTS || a->count > TNX_MAX_RANK) {
    tnx_b_fail(b, TNX_SHAPE, "a list of at most %d sizes is expected", TNX_MAX_RANK);
    return -1;
  }
  if (a->count) memcpy(sizes, a->dims, sizeof *sizes * a->count);
  return (int)a->count;
}

/* The number of elements reduced: product of these dimensions (n = 0: all). */
static inline tnx_dim extent(tnx_builder *b, tnx_value x, const int *dims, int n) {
  if (n == 0) return tnx_b_numel(b, x);
  tnx_dim e = 1;
  if (tnx_b_rank(b, x) == 0) return e;
  for (int i = 0; i < n; i++) e = tnx_b_dim_mul(b, e, tnx_b_size(b, x, dims[i]));
  return e;
}

/* Reduction in which a 0-dim operand is its own result. */
static inline tnx_value reduce(tnx_builder *b, tnx_op op, tnx_value x, const int *dims, int n, bool keepdim) {
  if (!x || b->status != TNX_OK) return 0;
  if (tnx_b_rank(b, x) == 0) return op == TNX_OP_ARGMAX || op == TNX_OP_ARGMIN ? tnx_b_const_i(b, TNX_I64, 0) : x;
  return tnx_b_reduce(b, op, x, dims, n, keepdim);
}
/* Known to differ. Symbolic sizes that should be equal are taken to be: Dynamo guards them. */
static inline bool differ(tnx_dim x, tnx_dim y) { return x != y && !tnx_dim_is_symbolic(x) && !tnx_dim_is_symbolic(y); }
/* A size as a number of dtype t. */
static inline tnx_value dim_number(tnx_builder *b, tnx_dim d, tnx_dtype t) { return tnx_b_convert(b, tnx_b_dimval(b, d), t); }

/* ---- small idioms ---- */
enum { SET, ADD, MUL, MIN, MAX }; /* modes of SCATTER, PUT and INDEX_PUT (ops/ops.def) */
static inline tnx_value add(tnx_builder *b, tnx_value x, tnx_value y) { return tnx_b_binary(b, TNX_OP_ADD, x, y); }
static inline tnx_value sub(tnx_builder *b, tnx_value x, tnx_value y) { return tnx_b_binary(b, TNX_OP_SUB, x, y); }
static inline tnx_value mul(tnx_builder *b, tnx_value x, tnx_value y) { return tnx_b_binary(b, TNX_OP_MUL, x, y); }
static inline tnx_value divide(tnx_builder *b, tnx_value x, tnx_value y) { return tnx_b_binary(b, TNX_OP_DIV, x, y); }
static inline tnx_value add_f(tnx_builder *b, tnx_value x, double y) { return tnx_b_binary_f(b, TNX_OP_ADD, x, y); }
static inline tnx_value mul_f(tnx_builder *b, tnx_value x, double y) { return tnx_b_binary_f(b, TNX_OP_MUL, x, y); }
static inline tnx_value neg(tnx_builder *b, tnx_value x) { return tnx_b_unary(b, TNX_OP_NEG, x); }
static inline tnx_value compare_f(tnx_builder *b, tnx_op op, tnx_value x, double y) { return tnx_b_binary_f(b, op, x, y); }
/* y - x for a constant y */
static inline tnx_value rsub_f(tnx_builder *b, double y, tnx_value x) { return x ? sub(b, tnx_b_const_f(b, tnx_b_dtype(b, x), y), x) : 0; }
static inline tnx_value select_f(tnx_builder *b, tnx_value pred, tnx_value x, double y) { return x ? tnx_b_select(b, pred, x, tnx_b_const_f(b, tnx_b_dtype(b, x), y)) : 0; }
/* A constant of x's shape. */
static inline tnx_value full_like_f(tnx_builder *b, tnx_value x, tnx_dtype t, double v) {
  return x ? tnx_b_full(b, tnx_b_const_f(b, t, v), tnx_b_rank(b, x), tnx_b_sizes(b, x)) : 0;
}
static inline bool is_half(tnx_dtype t) { return tnx_acc_of(t) != t; }
/* x in the dtype PyTorch computes in. */
static inline tnx_value to_acc(tnx_builder *b, tnx_value x) { return x ? tnx_b_convert(b, x, tnx_acc_of(tnx_b_dtype(b, x))) : 0; }
/* A 0-dim value becomes one of one dimension, others stay. */
static inline tnx_value at_least_1d(tnx_builder *b, tnx_value x) { return x && tnx_b_rank(b, x) == 0 ? tnx_b_unsqueeze(b, x, 0) : x; }
/* The dimensions other than `dim`, and how many they are. */
static inline int dims_except(int rank, int dim, int *dims) {
  int n = 0;
  for (int i = 0; i < rank; i++)
    if (i != dim) dims[n++] = i;
  return n;
}
/* x brought to like's shape, or to these sizes. */
static inline tnx_value expand_like(tnx_builder *b, tnx_value x, tnx_value like) { return x && like ? tnx_b_broadcast_to(b, x, tnx_b_rank(b, like), tnx_b_sizes(b, like)) : 0; }
static inline bool same_sizes(const tnx_builder *b, tnx_value x, tnx_value y) {
  int r = tnx_b_rank(b, x);
  return r == tnx_b_rank(b, y) && (r == 0 || memcmp(tnx_b_sizes(b, x), tnx_b_sizes(b, y), sizeof(tnx_dim) * (size_t)r) == 0);
}
/* A number as a constant of dtype t, as operators take it that store it: an error where t cannot hold it. Tensors and symbols pass. */
tnx_value lower_stored_number(tnx_builder *b, const tnx_arg *number, tnx_dtype t);
/* All elements in row-major order. */
static inline tnx_value flattened(tnx_builder *b, tnx_value x) {
  tnx_dim n = x ? tnx_b_numel(b, x) : 0;
  return tnx_b_reshape(b, x, 1, &n);
}
/* 0 .. n - 1 along dimension dim of `rank`, the others of size 1. */
static inline tnx_value axis_iota(tnx_builder *b, int rank, int dim, tnx_dim n) {
  tnx_dim sizes[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) sizes[i] = i == dim ? n : 1;
  return tnx_b_iota(b, rank, sizes, dim);
}
/* The p-norm over these dimensions (n = 0: all), in the real dtype of x, which is one that PyTorch computes in. */
tnx_value lower_norm_of(tnx_builder *b, tnx_value x, double p, const int *dims, int n, bool keepdim);
/* softmax and log-softmax over one dimension, in x's dtype */
tnx_value lower_softmax_of(tnx_builder *b, tnx_value x, int dim, bool log);
/* log(exp(x) + exp(y)) of complex numbers */
tnx_value lower_logaddexp_of(tnx_builder *b, tnx_value x, tnx_value y);
/* x @ y for every dtype: integers and complex are products and sums. */
tnx_value lower_product_of(tnx_builder *b, tnx_value x, tnx_value y);
/* Uniform numbers of f32 (24 bits) or f64 (53 bits) in [0, 1), element i from words i*words+word.. of the stream. */
tnx_value lower_uniform01(tnx_lower *l, const tnx_arg *a, tnx_dtype t, int rank, const tnx_dim *sizes, int word, int words);
#endif
