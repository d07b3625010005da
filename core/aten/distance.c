/* Distances between the rows of matrices: p-norms of all differences, and their gradients. */
#include "aten/family.h"

/* The p-norm of the last dimension. */
static tnx_value norm_last(tnx_builder *b, tnx_value diff, double p) {
  if (!diff) return 0;
  int last = tnx_b_rank(b, diff) - 1;
  tnx_value d = tnx_b_unary(b, TNX_OP_ABS, diff);
  if (p == 0) return reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, compare_f(b, TNX_OP_NE, d, 0), tnx_b_dtype(b, d)), &last, 1, false);
  if (p == 1) return reduce(b, TNX_OP_REDUCE_SUM, d, &last, 1, false);
  if (p == 2) return tnx_b_unary(b, TNX_OP_SQRT, reduce(b, TNX_OP_REDUCE_SUM, mul(b, diff, diff), &last, 1, false));
  if (isinf(p)) return reduce(b, TNX_OP_REDUCE_MAX, d, &last, 1, false);
  return tnx_b_binary_f(b, TNX_OP_POW, reduce(b, TNX_OP_REDUCE_SUM, tnx_b_binary_f(b, TNX_OP_POW, d, p), &last, 1, false), 1 / p);
}

/* Derivative of the norm by each difference, times dy; dy and dist have the last dimension with size 1. */
static tnx_value norm_slope(tnx_builder *b, tnx_value diff, tnx_value dy, tnx_value dist, double p) {
  tnx_value d = tnx_b_unary(b, TNX_OP_ABS, diff), sign = tnx_b_unary(b, TNX_OP_SIGN, diff), same = compare_f(b, TNX_OP_EQ, dist, 0), g;
  if (p == 0) return full_like_f(b, diff, tnx_b_dtype(b, diff), 0);
  if (p == 1) return mul(b, sign, dy);
  if (isinf(p)) return mul(b, mul(b, dy, sign), tnx_b_convert(b, tnx_b_binary(b, TNX_OP_EQ, d, dist), tnx_b_dtype(b, diff)));
  if (p == 2) g = mul(b, dy, divide(b, diff, dist));
  else if (p < 2) g = divide(b, mul(b, mul(b, sign, tnx_b_binary_f(b, TNX_OP_POW, d, p - 1)), dy), tnx_b_binary_f(b, TNX_OP_POW, dist, p - 1));
  else g = divide(b, mul(b, mul(b, diff, tnx_b_binary_f(b, TNX_OP_POW, d, p - 2)), dy), tnx_b_binary_f(b, TNX_OP_POW, dist, p - 1));
  if (p < 1) same = tnx_b_binary(b, TNX_OP_OR, same, compare_f(b, TNX_OP_EQ, diff, 0));
  return select_f(b, tnx_b_unary(b, TNX_OP_NOT, same), g, 0);
}

static bool covers(tnx_lower *l, tnx_value x) {
  tnx_dtype t = tnx_b_dtype(&l->b, x);
  tnx_dim width = tnx_b_rank(&l->b, x) ? tnx_b_size(&l->b, x, -1) : 0;
  if ((t == TNX_F32 || t == TNX_F64) && tnx_b_rank(&l->b, x) >= 2 && !tnx_dim_is_symbolic(width)) return true;
  tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "distances: dtype or rank");
  return false;
}

/* x1 [.., p, m] and x2 [.., r, m] as differences [.., p, r, m]. */
static tnx_value differences(tnx_builder *b, tnx_value x1, tnx_value x2) {
  int d1 = tnx_b_rank(b, x1) - 1, d2 = tnx_b_rank(b, x2) - 2;
  return sub(b, tnx_b_unsqueeze(b, x1, d1), tnx_b_unsqueeze(b, x2, d2));
}

/* (x1, x2, p, compute_mode) */
tnx_status lower_cdist(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x1 = a[0].value, x2 = a[1].value;
  if (!covers(l, x1) || !covers(l, x2)) return b->status;
  if (tnx_b_dtype(b, x1) != tnx_b_dtype(b, x2) || differ(tnx_b_size(b, x1, -1), tnx_b_size(b, x2, -1))) return tnx_fail(TNX_SHAPE, "X1 and X2 must have the same number of columns");
  double p = arg_number(a + 2, 2);
  if (!(p >= 0)) return tnx_fail(TNX_INVALID_ARGUMENT, "cdist only supports non-negative p values");
  tnx_value diff = differences(b, x1, x2);
  /* the maximum of nothing is 0 here */
  if (diff && tnx_b_size(b, x1, -1) == 0) p = 1;
  return give(l, results, norm_last(b, diff, p));
}

/* (grad, x1, x2, p, cdist): the gradient of x1, with the batch of both */
tnx_status lower_cdist_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!covers(l, a[1].value) || !covers(l, a[2].value)) return b->status;
  tnx_value diff = differences(b, a[1].value, a[2].value);
  for (int i = 0; diff && i < tnx_b_rank(b, diff); i++)
    if (tnx_b_size(b, diff, i) == 0) return give(l, results, full_like_f(b, a[1].value, tnx_b_dtype(b, a[1].value), 0)); /* without the batch of both */
  int last = tnx_b_rank(b, a[0].value), rows = last - 1;
  tnx_value g = diff ? norm_slope(b, diff, tnx_b_unsqueeze(b, a[0].value, last), tnx_b_unsqueeze(b, a[4].value, last), arg_number(a + 3, 2)) : 0;
  return give(l, results, g ? reduce(b, TNX_OP_REDUCE_SUM, g, &rows, 1, false) : 0);
}

/* Pair k of rows i < j, in order: i from the root of k's equation, in float64 (exact for all sizes that fit in memory). */
static void pairs(tnx_builder *b, int64_t n, tnx_value *i, tnx_value *j) {
  tnx_dim count = n * (n - 1) / 2;
  tnx_value k = tnx_b_iota(b, 1, &count, 0);
  double half = (double)n - 0.5;
  tnx_value root = tnx_b_unary(b, TNX_OP_SQRT, rsub_f(b, half * half - 1, mul_f(b, tnx_b_convert(b, k, TNX_F64), 2)));
  *i = tnx_b_convert(b, rsub_f(b, half, root), TNX_I64);
  /* j = k - n i + i (i + 1) / 2 + i + 1 */
  tnx_value triangle = tnx_b_binary_f(b, TNX_OP_DIV, mul(b, *i, add_f(b, *i, 1)), 2);
  *j = add_f(b, add(b, add(b, sub(b, k, mul_f(b, *i, (double)n)), triangle), *i), 1);
}

static tnx_value pair_differences(tnx_builder *b, tnx_value x, tnx_value *i, tnx_value *j) {
  pairs(b, tnx_b_size(b, x, 0), i, j);
  return sub(b, tnx_b_take(b, x, *i, 0), tnx_b_take(b, x, *j, 0));
}

static bool pdist_covers(tnx_lower *l, tnx_value x) {
  if (!covers(l, x)) return false;
  if (tnx_b_rank(&l->b, x) == 2 && !tnx_dim_is_symbolic(tnx_b_size(&l->b, x, 0))) return true;
  tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "pdist: rank or symbolic rows");
  return false;
}

/* (self, p) */
tnx_status lower_pdist(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, i, j;
  if (!pdist_covers(l, x)) return b->status;
  double p = tnx_b_size(b, x, 1) == 0 ? 1 : arg_number(a + 1, 2);
  if (tnx_b_size(b, x, 0) < 2) {
    tnx_dim none = 0;
    return give(l, results, tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, x), 0), 1, &none));
  }
  return give(l, results, norm_last(b, pair_differences(b, x, &i, &j), p));
}

/* (grad, self, p, pdist) */
tnx_status lower_pdist_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[1].value, i, j, zeros;
  if (!pdist_covers(l, x)) return b->status;
  zeros = full_like_f(b, x, tnx_b_dtype(b, x), 0);
  if (tnx_b_size(b, x, 0) < 2 || tnx_b_size(b, x, 1) == 0) return give(l, results, zeros);
  tnx_value diff = pair_differences(b, x, &i, &j), g = norm_slope(b, diff, tnx_b_unsqueeze(b, a[0].value, 1), tnx_b_unsqueeze(b, a[3].value, 1), arg_number(a + 2, 2));
  return give(l, results, tnx_b_put(b, tnx_b_put(b, zeros, i, g, 0, ADD), j, neg(b, g), 0, ADD));
}
