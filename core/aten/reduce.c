/* Reductions and scans: sums, means, variances, norms, extrema, cumulative operators. Half types accumulate in float32 and round once. */
#include "aten/family.h"

/* The dimensions of an argument that lists them; status in the builder. */
#define DIMS(arg)                                                        \
  int dims[TNX_MAX_RANK], n = arg_dims(&l->b, (arg), tnx_b_rank(&l->b, a[0].value), dims); \
  if (l->b.status != TNX_OK) return l->b.status

static const tnx_arg no_dims = {.kind = TNX_ARG_NONE};

/* ---- sums and products ---- */

static tnx_dtype sum_dtype(tnx_builder *b, tnx_value x, const tnx_arg *dtype) {
  tnx_dtype t = tnx_b_dtype(b, x);
  return arg_dtype(dtype, tnx_dtype_is_integral(t) ? TNX_I64 : t);
}

static tnx_status sum(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool keepdim, const tnx_arg *dtype, bool skip_nan, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (skip_nan && !tnx_dtype_is_integral(tnx_b_dtype(b, x))) x = tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, x), tnx_b_const_f(b, tnx_b_dtype(b, x), 0), x);
  return give(l, results, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, x, sum_dtype(b, a[0].value, dtype)), dims, n, keepdim));
}
tnx_status lower_sum(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sum(l, a, &no_dims, false, a + 1, false, results); }
tnx_status lower_sum_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sum(l, a, a + 1, arg_bool(a + 2), a + 3, false, results); }
tnx_status lower_nansum(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sum(l, a, a + 1, arg_bool(a + 2), a + 3, true, results); }

static tnx_status mean(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool keepdim, const tnx_arg *dtype, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_dtype t = arg_dtype(dtype, tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_integral(t)) return tnx_fail(TNX_DTYPE, "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype.");
  tnx_value x = tnx_b_convert(b, a[0].value, acc), count = dim_number(b, extent(b, a[0].value, dims, n), acc);
  return give(l, results, tnx_b_convert(b, divide(b, reduce(b, TNX_OP_REDUCE_SUM, x, dims, n, keepdim), count), t));
}
tnx_status lower_mean(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return mean(l, a, &no_dims, false, a + 1, results); }
tnx_status lower_mean_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return mean(l, a, a + 1, arg_bool(a + 2), a + 3, results); }

static tnx_status prod(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool keepdim, const tnx_arg *dtype, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_dtype t = sum_dtype(b, a[0].value, dtype);
  return give(l, results, tnx_b_convert(b, reduce(b, t == TNX_BOOL ? TNX_OP_REDUCE_MIN : TNX_OP_REDUCE_PROD, tnx_b_convert(b, a[0].value, tnx_acc_of(t)), dims, n, keepdim), t));
}
tnx_status lower_prod(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return prod(l, a, &no_dims, false, a + 1, results); }
tnx_status lower_prod_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return prod(l, a, a + 1, arg_bool(a + 2), a + 3, results); }

static tnx_status count_nonzero(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  return give(l, results, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, tnx_b_convert(b, a[0].value, TNX_BOOL), TNX_I64), dims, n, false));
}
tnx_status lower_count_nonzero(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return count_nonzero(l, a, a + 1, results); }

tnx_status lower_trace(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, a[0].value) != 2) return tnx_fail(TNX_SHAPE, "trace: expected a matrix");
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  return give(l, results, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, tnx_b_diagonal(b, a[0].value, 0, 0, 1), tnx_dtype_is_integral(t) ? TNX_I64 : t), NULL, 0, false));
}

/* ---- variance ---- */

/* Two passes: the mean, then the squared differences. correction is subtracted from the count, which is not taken below 0. */
static tnx_status variance(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, double correction, bool keepdim, bool root, bool with_mean, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  bool complex = tnx_dtype_is_complex(t);
  if (!tnx_dtype_is_float(t) && !complex) return tnx_fail(TNX_DTYPE, "std and var only support floating point and complex dtypes");
  tnx_dtype real = tnx_dtype_real(acc), out = complex ? real : t;
  tnx_value x = tnx_b_convert(b, a[0].value, acc), count = dim_number(b, extent(b, a[0].value, dims, n), real), of = tnx_b_convert(b, count, acc);
  tnx_value mu = divide(b, reduce(b, TNX_OP_REDUCE_SUM, x, dims, n, true), of), diff = sub(b, x, mu), square;
  if (complex) { /* |diff|^2 */
    tnx_value re = tnx_b_unary(b, TNX_OP_REAL, diff), im = tnx_b_unary(b, TNX_OP_IMAG, diff);
    square = add(b, mul(b, re, re), mul(b, im, im));
  } else {
    square = mul(b, diff, diff);
  }
  tnx_value divisor = tnx_b_binary_f(b, TNX_OP_MAX, tnx_b_binary_f(b, TNX_OP_SUB, count, correction), 0);
  tnx_value v = divide(b, reduce(b, TNX_OP_REDUCE_SUM, square, dims, n, keepdim), divisor);
  if (root) v = tnx_b_unary(b, TNX_OP_SQRT, v);
  if (!with_mean) return give(l, results, tnx_b_convert(b, v, out));
  tnx_value m = divide(b, reduce(b, TNX_OP_REDUCE_SUM, x, dims, n, keepdim), of);
  return give2(l, results, tnx_b_convert(b, v, out), tnx_b_convert(b, m, t));
}

#define VARIANCE(name, root, with_mean)                                                                                                              \
  tnx_status lower_##name##_correction(tnx_lower *l, const tnx_arg *a, tnx_value *results) {                                                         \
    return variance(l, a, a + 1, arg_number(a + 2, 1), arg_bool(a + 3), root, with_mean, results);                                                   \
  }                                                                                                                                                  \
  tnx_status lower_##name##_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return variance(l, a, a + 1, arg_bool(a + 2), arg_bool(a + 3), root, with_mean, results); } \
  tnx_status lower_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return variance(l, a, &no_dims, arg_bool(a + 1), false, root, with_mean, results); }
VARIANCE(var, false, false)
VARIANCE(std, true, false)
VARIANCE(var_mean, false, true)
VARIANCE(std_mean, true, true)

/* ---- norms ---- */

tnx_value lower_norm_of(tnx_builder *b, tnx_value x, double p, const int *dims, int n, bool keepdim) {
  if (!x) return 0;
  if (p != 2 || tnx_dtype_is_complex(tnx_b_dtype(b, x))) x = tnx_b_unary(b, TNX_OP_ABS, x); /* a square has no sign */
  if (isinf(p)) return reduce(b, p > 0 ? TNX_OP_REDUCE_MAX : TNX_OP_REDUCE_MIN, x, dims, n, keepdim);
  if (p == 0) return reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, compare_f(b, TNX_OP_NE, x, 0), tnx_b_dtype(b, x)), dims, n, keepdim);
  if (p == 1) return reduce(b, TNX_OP_REDUCE_SUM, x, dims, n, keepdim);
  if (p == 2) return tnx_b_unary(b, TNX_OP_SQRT, reduce(b, TNX_OP_REDUCE_SUM, mul(b, x, x), dims, n, keepdim));
  return tnx_b_binary_f(b, TNX_OP_POW, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_binary_f(b, TNX_OP_POW, x, p), dims, n, keepdim), 1 / p);
}

static tnx_status norm(tnx_lower *l, const tnx_arg *a, double p, const tnx_arg *dim, bool keepdim, const tnx_arg *dtype, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_dtype in = arg_dtype(dtype, tnx_b_dtype(b, a[0].value)), t = tnx_dtype_real(in), acc = tnx_acc_of(t);
  if (tnx_dtype_is_integral(in)) return tnx_fail(TNX_DTYPE, "norm: Expected a floating point or complex tensor as input");
  tnx_value r = lower_norm_of(b, tnx_b_convert(b, a[0].value, is_half(in) ? acc : in), p, dims, n, keepdim);
  return give(l, results, tnx_b_convert(b, r, t));
}
tnx_status lower_vector_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return norm(l, a, arg_number(a + 1, 2), a + 2, arg_bool(a + 3), a + 4, results); }
tnx_status lower_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return norm(l, a, arg_number(a + 1, 2), &no_dims, false, &no_dims, results); }
tnx_status lower_norm_dtype(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return norm(l, a, arg_number(a + 1, 2), &no_dims, false, a + 2, results); }
tnx_status lower_norm_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return norm(l, a, arg_number(a + 1, 2), a + 2, arg_bool(a + 3), &no_dims, results); }
tnx_status lower_norm_dim_dtype(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return norm(l, a, arg_number(a + 1, 2), a + 2, arg_bool(a + 3), a + 4, results); }

/* p-norm of self - other */
tnx_status lower_dist(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_value both[2] = {a[0].value, a[1].value};
  tnx_dtype t = tnx_b_result_type(&l->b, both, 2);
  if (tnx_dtype_is_integral(t)) return uncovered(l, "integers");
  tnx_arg diff = a[0];
  diff.value = sub(&l->b, tnx_b_convert(&l->b, both[0], t), tnx_b_convert(&l->b, both[1], t));
  if (!diff.value) return l->b.status;
  return norm(l, &diff, arg_number(a + 2, 2), &no_dims, false, &no_dims, results);
}

/* log(sum(exp(x))) around the maximum (of the real parts); an infinite maximum is not subtracted. */
tnx_status lower_logsumexp(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  DIMS(a + 1);
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(t);
  tnx_value x = tnx_b_convert(b, a[0].value, acc), max = reduce(b, TNX_OP_REDUCE_MAX, tnx_dtype_is_complex(t) ? tnx_b_unary(b, TNX_OP_REAL, x) : x, dims, n, true);
  tnx_value m = tnx_b_convert(b, select_f(b, compare_f(b, TNX_OP_NE, tnx_b_unary(b, TNX_OP_ABS, max), INFINITY), max, 0), acc);
  tnx_value r = add(b, tnx_b_unary(b, TNX_OP_LOG, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_unary(b, TNX_OP_EXP, sub(b, x, m)), dims, n, true)), m);
  if (!arg_bool(a + 2) && r && tnx_b_rank(b, r)) {
    int all[TNX_MAX_RANK];
    for (int i = 0; i < tnx_b_rank(b, r); i++) all[i] = i;
    r = tnx_b_squeeze(b, r, n ? dims : all, n ? n : tnx_b_rank(b, r));
  }
  return give(l, results, tnx_b_convert(b, r, t));
}

/* ---- hash ---- */

/* The bits of a number as float64. */
static tnx_value double_bits(tnx_builder *b, tnx_value x) {
  tnx_dtype t = TNX_I64;
  x = tnx_b_convert(b, x, TNX_F64);
  tnx_value size = tnx_b_unary(b, TNX_OP_ABS, x), m = tnx_b_unary(b, TNX_OP_MANTISSA, size), e = tnx_b_convert(b, tnx_b_unary(b, TNX_OP_EXPONENT, size), t);
  /* size = m 2^e, m in [1/2, 1); below 2^-1022 the exponent's field is 0 and the unit 2^-1074 */
  tnx_value normal = add(b, tnx_b_binary_f(b, TNX_OP_SHL, add_f(b, e, 1021), 52), tnx_b_convert(b, mul_f(b, m, 0x1p53), t));
  tnx_value small = tnx_b_convert(b, mul_f(b, mul_f(b, size, 0x1p537), 0x1p537), t);
  tnx_value bits = tnx_b_select(b, compare_f(b, TNX_OP_LT, size, 0x1p-1022), small, normal);
  bits = tnx_b_select(b, compare_f(b, TNX_OP_EQ, size, INFINITY), tnx_b_const_i(b, t, INT64_C(0x7ff) << 52), bits);
  bits = tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, x), tnx_b_const_i(b, t, INT64_C(0xfff) << 51), bits);
  tnx_value sign = compare_f(b, TNX_OP_LT, tnx_b_binary(b, TNX_OP_COPYSIGN, full_like_f(b, x, TNX_F64, 1), x), 0);
  return tnx_b_binary(b, TNX_OP_OR, bits, tnx_b_select(b, sign, tnx_b_const_i(b, t, INT64_MIN), tnx_b_const_i(b, t, 0)));
}

/* The exclusive or of all bits, by halves. */
tnx_status lower_hash_tensor(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  DIMS(a + 1);
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  int rank = tnx_b_rank(b, a[0].value), all[TNX_MAX_RANK];
  if (arg_int(a + 3, 0) != 0 || tnx_dtype_is_complex(t)) return uncovered(l, "mode or dtype");
  tnx_value zero = tnx_b_const_i(b, TNX_I64, 0), x;
  if (t == TNX_BOOL) x = tnx_b_select(b, a[0].value, tnx_b_const_i(b, TNX_I64, 1), zero); /* programs have no conversion of bool to uint64 */
  else x = tnx_dtype_is_float(t) ? double_bits(b, a[0].value) : tnx_b_convert(b, a[0].value, TNX_I64);
  for (int i = 0; i < rank; i++) all[i] = i;
  const int *over = n ? dims : all;
  int count = rank == 0 ? 0 : n ? n : rank;
  for (int i = 0; i < count && b->status == TNX_OK; i++) {
    tnx_dim low[TNX_MAX_RANK] = {0}, high[TNX_MAX_RANK] = {0}, size = tnx_b_size(b, x, over[i]);
    if (tnx_dim_is_symbolic(size)) return uncovered(l, "symbolic sizes");
    for (high[over[i]] = size == 0; size == 0; size = 1) x = tnx_b_pad(b, x, zero, low, high);
    while (size > 1 && b->status == TNX_OK) {
      int64_t half = (size + 1) / 2;
      high[over[i]] = 2 * half - size;
      x = tnx_b_binary(b, TNX_OP_XOR, tnx_b_slice(b, x, over[i], 0, half, 1), tnx_b_pad(b, tnx_b_slice(b, x, over[i], half, size - half, 1), zero, low, high));
      size = half;
    }
  }
  if (!arg_bool(a + 2) && count) x = tnx_b_squeeze(b, x, over, count);
  return give(l, results, tnx_b_convert(b, x, TNX_U64));
}

/* ---- any, all ---- */

static tnx_value as_bool(tnx_builder *b, tnx_value x) { return tnx_b_convert(b, x, TNX_BOOL); }

/* uint8 gives uint8, everything else bool. An empty list reduces nothing, no list reduces all. */
static tnx_status any_all(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool keepdim, tnx_op op, tnx_value *results) {
  DIMS(dim);
  tnx_builder *b = &l->b;
  tnx_value x = as_bool(b, a[0].value);
  if (dim->kind != TNX_ARG_INTS || dim->count) x = reduce(b, op, x, dims, n, keepdim);
  return give(l, results, tnx_b_convert(b, x, tnx_b_dtype(b, a[0].value) == TNX_U8 ? TNX_U8 : TNX_BOOL));
}
tnx_status lower_any(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return any_all(l, a, &no_dims, false, TNX_OP_REDUCE_MAX, results); }
tnx_status lower_all(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return any_all(l, a, &no_dims, false, TNX_OP_REDUCE_MIN, results); }
tnx_status lower_any_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return any_all(l, a, a + 1, arg_bool(a + 2), TNX_OP_REDUCE_MAX, results); }
tnx_status lower_all_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return any_all(l, a, a + 1, arg_bool(a + 2), TNX_OP_REDUCE_MIN, results); }

/* ---- extrema ---- */

/* Fails if a reduced dimension is known to be empty: there is no extremum. */
static bool has_elements(tnx_lower *l, tnx_value x, const int *dims, int n) {
  for (int i = 0; i < tnx_b_rank(&l->b, x); i++) {
    bool reduced = n == 0;
    for (int k = 0; k < n; k++) reduced |= dims[k] == i;
    if (reduced && tnx_b_size(&l->b, x, i) == 0) {
      tnx_b_fail(&l->b, n ? TNX_INDEX : TNX_SHAPE, "Expected reduction dim to have non-zero size.");
      return false;
    }
  }
  return true;
}

static tnx_status extremum(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool keepdim, tnx_op op, tnx_value *results) {
  DIMS(dim);
  if (tnx_dtype_is_complex(tnx_b_dtype(&l->b, a[0].value))) return uncovered(l, "complex");
  if (!has_elements(l, a[0].value, dims, n)) return l->b.status;
  return give(l, results, reduce(&l->b, op, a[0].value, dims, n, keepdim));
}
tnx_status lower_amax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum(l, a, a + 1, arg_bool(a + 2), TNX_OP_REDUCE_MAX, results); }
tnx_status lower_amin(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum(l, a, a + 1, arg_bool(a + 2), TNX_OP_REDUCE_MIN, results); }
tnx_status lower_max(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum(l, a, &no_dims, false, TNX_OP_REDUCE_MAX, results); }
tnx_status lower_min(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum(l, a, &no_dims, false, TNX_OP_REDUCE_MIN, results); }

static tnx_status argument(tnx_lower *l, const tnx_arg *a, tnx_op op, tnx_value *results) {
  DIMS(a + 1);
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  if (t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  if (!has_elements(l, a[0].value, dims, n)) return l->b.status;
  return give(l, results, reduce(&l->b, op, a[0].value, dims, n, arg_bool(a + 2)));
}
tnx_status lower_argmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return argument(l, a, TNX_OP_ARGMAX, results); }
tnx_status lower_argmin(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return argument(l, a, TNX_OP_ARGMIN, results); }

static tnx_status extremum_dim(tnx_lower *l, const tnx_arg *a, tnx_op op, tnx_op arg_op, tnx_value *results) {
  DIMS(a + 1);
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (tnx_dtype_is_complex(tnx_b_dtype(b, x))) return uncovered(l, "complex");
  if (!has_elements(l, x, dims, n)) return b->status;
  return give2(l, results, reduce(b, op, x, dims, n, arg_bool(a + 2)), reduce(b, arg_op, x, dims, n, arg_bool(a + 2)));
}
tnx_status lower_max_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum_dim(l, a, TNX_OP_REDUCE_MAX, TNX_OP_ARGMAX, results); }
tnx_status lower_min_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return extremum_dim(l, a, TNX_OP_REDUCE_MIN, TNX_OP_ARGMIN, results); }

tnx_status lower_aminmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  DIMS(a + 1);
  if (tnx_dtype_is_complex(tnx_b_dtype(&l->b, a[0].value))) return uncovered(l, "complex");
  if (!has_elements(l, a[0].value, dims, n)) return l->b.status;
  return give2(l, results, reduce(&l->b, TNX_OP_REDUCE_MIN, a[0].value, dims, n, arg_bool(a + 2)), reduce(&l->b, TNX_OP_REDUCE_MAX, a[0].value, dims, n, arg_bool(a + 2)));
}

/* ---- scans ---- */

static tnx_value scan(tnx_builder *b, tnx_op op, tnx_value x, const tnx_arg *dim) {
  int d = tnx_b_wrap_dim(b, dim->dim, tnx_b_rank(b, x));
  return b->status != TNX_OK || tnx_b_rank(b, x) == 0 ? x : tnx_b_scan(b, op, x, d);
}

static tnx_status cumulative(tnx_lower *l, const tnx_arg *a, tnx_op op, tnx_value *results) {
  tnx_builder *b = &l->b;
  return give(l, results, scan(b, op, tnx_b_convert(b, a[0].value, sum_dtype(b, a[0].value, a + 2)), a + 1));
}
tnx_status lower_cumsum(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return cumulative(l, a, TNX_OP_CUMSUM, results); }
tnx_status lower_cumprod(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return cumulative(l, a, TNX_OP_CUMPROD, results); }

/* Complex numbers: after the step of 2^i each place holds what is up to 2^(i + 1) - 1 places before it as well. */
static tnx_value running_logsumexp(tnx_builder *b, tnx_value x, int dim) {
  int rank = tnx_b_rank(b, x);
  tnx_dim n = tnx_b_size(b, x, dim), low[TNX_MAX_RANK] = {0}, high[TNX_MAX_RANK] = {0};
  if (tnx_dim_is_symbolic(n)) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "logcumsumexp: complex of symbolic size");
  tnx_value none = tnx_b_const_f(b, tnx_b_dtype(b, x), -INFINITY);
  for (int64_t by = 1; by < n && rank; by *= 2) {
    low[dim] = by, high[dim] = -by;
    x = lower_logaddexp_of(b, tnx_b_pad(b, x, none, low, high), x);
    if (!x) return 0;
  }
  return x;
}

tnx_status lower_logcumsumexp(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  if (tnx_dtype_is_complex(t)) {
    int dim = tnx_b_wrap_dim(&l->b, a[1].dim, tnx_b_rank(&l->b, a[0].value));
    return l->b.status != TNX_OK ? l->b.status : give(l, results, running_logsumexp(&l->b, a[0].value, dim));
  }
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  return give(l, results, scan(&l->b, TNX_OP_LOGCUMSUMEXP, a[0].value, a + 1));
}

static tnx_status cumulative_extremum(tnx_lower *l, const tnx_arg *a, tnx_op op, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, a[0].value) == 0) return give2(l, results, scan(b, op, a[0].value, a + 1), tnx_b_const_i(b, TNX_I64, 0));
  tnx_value v = scan(b, op, a[0].value, a + 1);
  return give2(l, results, v, v + 1);
}
tnx_status lower_cummax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return cumulative_extremum(l, a, TNX_OP_CUMMAX, results); }
tnx_status lower_cummin(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return cumulative_extremum(l, a, TNX_OP_CUMMIN, results); }
