/* Search in sorted rows, membership, histograms. */
#include "aten/family.h"

/* ---- search in sorted rows ---- */

/* How many boundaries are before each value: equal ones count with `right`. NaN is after everything. Few boundaries are compared with every value; in
 * many, each value's place is found by steps of falling powers of two. */
static tnx_value count_before(tnx_builder *b, tnx_value boundaries, tnx_value x, bool right, tnx_dtype out) {
  tnx_value both[2] = {boundaries, x};
  tnx_dtype t = tnx_b_result_type(b, both, 2);
  int last = x ? tnx_b_rank(b, x) : 0;
  tnx_value values = tnx_b_convert(b, x, t), edges = at_least_1d(b, tnx_b_convert(b, boundaries, t));
  tnx_op before = right ? TNX_OP_GT : TNX_OP_GE;
  if (!values || !edges) return 0;
  int rank = tnx_b_rank(b, edges);
  tnx_dim n = tnx_b_size(b, edges, -1);
  if (tnx_dim_is_symbolic(n) || n <= 64) {
    if (rank > 1) edges = tnx_b_unsqueeze(b, edges, rank - 1);
    tnx_value after = tnx_b_unary(b, TNX_OP_NOT, tnx_b_binary(b, before, edges, tnx_b_unsqueeze(b, values, last)));
    return reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, after, out), &last, 1, false);
  }
  int64_t step = 1;
  while (step <= n / 2) step *= 2;
  tnx_value place = full_like_f(b, values, TNX_I64, 0);
  for (; step; step /= 2) {
    tnx_value next = add_f(b, place, (double)step), at = tnx_b_binary(b, TNX_OP_MIN, add_f(b, next, -1), tnx_b_const_i(b, TNX_I64, n - 1));
    tnx_value edge = rank > 1 ? tnx_b_gather(b, edges, at, rank - 1) : tnx_b_take(b, edges, at, 0);
    tnx_value passed = tnx_b_unary(b, TNX_OP_NOT, tnx_b_binary(b, before, edge, values));
    passed = tnx_b_binary(b, TNX_OP_AND, passed, tnx_b_binary(b, TNX_OP_LE, next, tnx_b_const_i(b, TNX_I64, n)));
    place = tnx_b_select(b, passed, next, place);
  }
  return tnx_b_convert(b, place, out);
}

tnx_status lower_bucketize(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype out = arg_bool(a + 2) ? TNX_I32 : TNX_I64;
  if (tnx_b_rank(b, a[1].value) != 1) return tnx_fail(TNX_SHAPE, "boundaries tensor must be 1 dimension");
  tnx_value x = arg_value(a);
  if (!x) x = tnx_b_scalar(b, a, promote_number(b, tnx_b_dtype(b, a[1].value), a));
  return give(l, results, count_before(b, a[1].value, x, arg_bool(a + 3), out));
}

tnx_status lower_searchsorted(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  bool right = arg_bool(a + 3) || arg_is(a + 4, "right");
  if (arg_is(a + 4, "left") && a[4].kind == TNX_ARG_STRING && arg_bool(a + 3)) return tnx_fail(TNX_INVALID_ARGUMENT, "side and right can't be set to opposites");
  tnx_value x = arg_value(a + 1);
  if (!x) x = tnx_b_scalar(b, a + 1, promote_number(b, tnx_b_dtype(b, a[0].value), a + 1));
  if (tnx_b_rank(b, a[0].value) != 1 && (!x || tnx_b_rank(b, x) != tnx_b_rank(b, a[0].value))) return tnx_fail(TNX_SHAPE, "sorted_sequence's dimensions differ");
  tnx_value sequence = a[0].value;
  if (arg_value(a + 5) && tnx_b_rank(b, sequence)) sequence = tnx_b_gather(b, sequence, a[5].value, tnx_b_rank(b, sequence) - 1);
  return give(l, results, count_before(b, sequence, x, right, arg_bool(a + 2) ? TNX_I32 : TNX_I64));
}

/* ---- membership ---- */

tnx_status lower_isin(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = promote_args(b, a, a + 1);
  tnx_value x = tnx_b_scalar(b, a, t), tests = tnx_b_scalar(b, a + 1, t);
  if (!x || !tests) return b->status;
  tnx_dim flat = -1, count = tnx_b_numel(b, tests);
  if (!tnx_dim_is_symbolic(count) && count > 64 && !tnx_dtype_is_complex(t)) { /* found in sorted order */
    if (t == TNX_BOOL) x = tnx_b_convert(b, x, TNX_U8), tests = tnx_b_convert(b, tests, TNX_U8);
    tnx_value order = tnx_b_topk(b, tnx_b_reshape(b, tests, 1, &count), 0, count, false, true);
    tnx_value at = tnx_b_binary(b, TNX_OP_MIN, count_before(b, order, x, false, TNX_I64), tnx_b_const_i(b, TNX_I64, count - 1));
    return give(l, results, tnx_b_binary(b, arg_bool(a + 3) ? TNX_OP_NE : TNX_OP_EQ, order ? tnx_b_take(b, order, at, 0) : 0, x));
  }
  int last = tnx_b_rank(b, x);
  tnx_value equal = tnx_b_binary(b, TNX_OP_EQ, tnx_b_unsqueeze(b, x, last), tnx_b_reshape(b, tests, 1, &flat));
  tnx_value found = reduce(b, TNX_OP_REDUCE_MAX, equal, &last, 1, false);
  return give(l, results, arg_bool(a + 3) ? tnx_b_unary(b, TNX_OP_NOT, found) : found);
}

/* ---- counts in equal bins ---- */

/* Counts in equal bins between min and max, both ends inside; min == max: the data's own range. Integers are counted in integers, as PyTorch's GPU kernels do. */
tnx_status lower_histc(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  int64_t bins = a[1].dim;
  if (bins <= 0) return tnx_fail(TNX_INVALID_ARGUMENT, "bins must be > 0");
  tnx_dtype acc = tnx_dtype_is_integral(t) ? TNX_I64 : tnx_acc_of(t);
  tnx_dim flat = -1, n_bins = bins;
  x = tnx_b_convert(b, tnx_b_reshape(b, x, 1, &flat), acc);
  tnx_value low = tnx_b_scalar(b, a + 2, acc), high = tnx_b_scalar(b, a + 3, acc);
  if (arg_number(a + 2, 0) == arg_number(a + 3, 0)) {
    if (x && tnx_b_size(b, x, 0) != 0) low = reduce(b, TNX_OP_REDUCE_MIN, x, NULL, 0, false), high = reduce(b, TNX_OP_REDUCE_MAX, x, NULL, 0, false);
    tnx_value same = tnx_b_binary(b, TNX_OP_EQ, low, high);
    low = tnx_b_select(b, same, add_f(b, low, -1), low), high = tnx_b_select(b, same, add_f(b, high, 1), high);
  }
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, x, low), tnx_b_binary(b, TNX_OP_LE, x, high));
  tnx_value width = sub(b, high, low), from = sub(b, x, low);
  /* halves are rounded after every operation, as PyTorch computes the place in the operand's dtype */
  tnx_dtype step = tnx_dtype_is_integral(t) ? acc : t;
  from = tnx_b_convert(b, tnx_b_convert(b, from, step), acc);
  tnx_value at = tnx_b_convert(b, tnx_b_convert(b, mul_f(b, from, (double)bins), step), acc);
  at = divide(b, at, tnx_b_convert(b, tnx_b_convert(b, width, step), acc));
  at = tnx_b_convert(b, at, step);
  at = tnx_b_select(b, inside, tnx_b_convert(b, at, TNX_I64), tnx_b_const_i(b, TNX_I64, 0));
  at = tnx_b_binary_f(b, TNX_OP_MIN, at, (double)(bins - 1));
  tnx_value zeros = tnx_b_full(b, tnx_b_const_i(b, t, 0), 1, &n_bins);
  return give(l, results, tnx_b_scatter(b, zeros, at, tnx_b_convert(b, inside, t), 0, ADD));
}

/* ---- histograms with edges ---- */

/* One dimension's edges: bins equal steps over its range, or over what the data have, widened by half where that is one number. */
static tnx_value equal_edges(tnx_lower *l, tnx_value x, tnx_dim bins, const tnx_arg *range, int d) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, x);
  tnx_value low, high;
  if (bins <= 0) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "torch.histogram(): bins must be > 0, but got %lld for dimension %d", (long long)bins, d);
  if (!arg_none(range)) {
    if (range->kind != TNX_ARG_FLOATS || (int)range->count < 2 * d + 2) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "torch.histogramdd: range should have 2 elements for each dimension");
    double from = range->numbers[2 * d], to = range->numbers[2 * d + 1];
    if (!isfinite(from) || !isfinite(to)) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "torch.histogramdd: dimension %d's range [%g, %g] is not finite", d, from, to);
    if (from > to) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "torch.histogramdd: min should not exceed max, but got min %g max %g for dimension %d", from, to, d);
    low = tnx_b_const_f(b, t, from), high = tnx_b_const_f(b, t, to);
  } else if (tnx_b_numel(b, x) == 0) {
    low = tnx_b_const_f(b, t, 0), high = tnx_b_const_f(b, t, 1);
  } else {
    low = reduce(b, TNX_OP_REDUCE_MIN, x, NULL, 0, false), high = reduce(b, TNX_OP_REDUCE_MAX, x, NULL, 0, false);
  }
  tnx_value same = tnx_b_binary(b, TNX_OP_EQ, low, high);
  low = tnx_b_select(b, same, add_f(b, low, -0.5), low), high = tnx_b_select(b, same, add_f(b, high, 0.5), high);
  tnx_dim n = bins + 1;
  tnx_value k = tnx_b_iota(b, 1, &n, 0), step = tnx_b_binary_f(b, TNX_OP_DIV, sub(b, high, low), (double)bins);
  tnx_value up = add(b, low, mul(b, step, tnx_b_convert(b, k, t))), down = sub(b, high, mul(b, step, tnx_b_convert(b, rsub_f(b, (double)bins, k), t)));
  return tnx_b_select(b, compare_f(b, TNX_OP_LT, k, (double)(n / 2)), up, down);
}

/* Samples [n, dims] (or any shape with one dimension of edges) counted in the boxes between edges; the last edge belongs to the last bin. */
static tnx_value count_in_bins(tnx_lower *l, tnx_value x, const tnx_value *edges, int dims, tnx_value weight, bool density) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, x);
  tnx_dim rows = -1, total = 1, sizes[TNX_MAX_RANK];
  tnx_value at = 0, inside = 0;
  for (int d = 0; d < dims; d++) {
    if (!edges[d]) return 0;
    if (tnx_b_rank(b, edges[d]) != 1) return tnx_b_fail(b, TNX_SHAPE, "torch.histogramdd: bins tensor should have one dimension");
    tnx_dim n = tnx_b_size(b, edges[d], 0);
    if (tnx_dim_is_symbolic(n) || n < 2) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "histogram: number of edges");
    if (tnx_b_dtype(b, edges[d]) != t) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "histogram: dtypes");
    sizes[d] = n - 1, total = tnx_b_dim_mul(b, total, n - 1);
  }
  for (int d = 0; d < dims; d++) {
    tnx_value column = dims == 1 ? tnx_b_reshape(b, x, 1, &rows) : tnx_b_reshape(b, tnx_b_slice(b, x, -1 + tnx_b_rank(b, x), d, 1, 1), 1, &rows);
    tnx_value first = tnx_b_slice(b, edges[d], 0, 0, 1, 1), last = tnx_b_slice(b, edges[d], 0, sizes[d], 1, 1);
    tnx_value in = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, column, first), tnx_b_binary(b, TNX_OP_LE, column, last));
    tnx_value bin = add_f(b, count_before(b, edges[d], column, true, TNX_I64), -1);
    bin = tnx_b_binary(b, TNX_OP_MIN, tnx_b_binary_f(b, TNX_OP_MAX, bin, 0), tnx_b_const_i(b, TNX_I64, sizes[d] - 1));
    at = d ? add(b, tnx_b_binary(b, TNX_OP_MUL, at, tnx_b_const_i(b, TNX_I64, sizes[d])), bin) : bin;
    inside = d ? tnx_b_binary(b, TNX_OP_AND, inside, in) : in;
  }
  tnx_value each = weight ? select_f(b, inside, tnx_b_reshape(b, weight, 1, &rows), 0) : tnx_b_convert(b, inside, t);
  tnx_value r = tnx_b_scatter(b, tnx_b_full(b, tnx_b_const_f(b, t, 0), 1, &total), at, each, 0, ADD);
  r = tnx_b_reshape(b, r, dims, sizes);
  if (!density) return r;
  r = divide(b, r, reduce(b, TNX_OP_REDUCE_SUM, r, NULL, 0, false));
  for (int d = 0; d < dims; d++) {
    tnx_value width = sub(b, tnx_b_slice(b, edges[d], 0, 1, sizes[d], 1), tnx_b_slice(b, edges[d], 0, 0, sizes[d], 1));
    for (int i = d + 1; i < dims; i++) width = tnx_b_unsqueeze(b, width, i - d);
    r = divide(b, r, width);
  }
  return r;
}

static bool histogram_dtype(tnx_builder *b, tnx_value x, const tnx_arg *weight) {
  tnx_dtype t = tnx_b_dtype(b, x);
  return (t == TNX_F32 || t == TNX_F64) && (!arg_value(weight) || tnx_b_dtype(b, weight->value) == t);
}

/* (self, bins, range, weight, density) */
tnx_status lower_histogram_count(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!histogram_dtype(&l->b, a[0].value, a + 3) || arg_symbolic(a + 1)) return uncovered(l, "dtype");
  tnx_value edges = equal_edges(l, a[0].value, a[1].dim, a + 2, 0);
  return give2(l, results, count_in_bins(l, a[0].value, &edges, 1, arg_value(a + 3), arg_bool(a + 4)), edges);
}
/* (self, edges, weight, density) */
tnx_status lower_histogram_edges(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!histogram_dtype(&l->b, a[0].value, a + 2)) return uncovered(l, "dtype");
  return give2(l, results, count_in_bins(l, a[0].value, &a[1].value, 1, arg_value(a + 2), arg_bool(a + 3)), a[1].value);
}

/* The number of dimensions, which is the last size; 0 where the call is not covered. */
static int histogram_dims(tnx_lower *l, tnx_value x, uint32_t given) {
  tnx_dim n = tnx_b_rank(&l->b, x) >= 2 ? tnx_b_size(&l->b, x, -1) : 0;
  return !tnx_dim_is_symbolic(n) && n >= 1 && n < TNX_MAX_RANK && n == (int64_t)given ? (int)n : 0;
}
static bool edges_of_dims(tnx_lower *l, const tnx_arg *a, int dims, tnx_value *edges) {
  tnx_builder *b = &l->b;
  for (int d = 0; d < dims; d++)
    if (!(edges[d] = equal_edges(l, tnx_b_slice(b, a[0].value, tnx_b_rank(b, a[0].value) - 1, d, 1, 1), a[1].dims[d], a + 2, d))) return false;
  return true;
}
tnx_status lower_histogramdd_edges(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims = a[1].kind == TNX_ARG_INTS ? histogram_dims(l, a[0].value, a[1].count) : 0;
  if (!dims || !histogram_dtype(&l->b, a[0].value, a + 3)) return uncovered(l, "shape or dtype");
  l->n_results = (uint32_t)dims;
  return edges_of_dims(l, a, dims, results) ? TNX_OK : l->b.status;
}
tnx_status lower_histogramdd_counts(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims = a[1].kind == TNX_ARG_INTS ? histogram_dims(l, a[0].value, a[1].count) : 0;
  tnx_value edges[TNX_MAX_RANK];
  if (!dims || !histogram_dtype(&l->b, a[0].value, a + 3)) return uncovered(l, "shape or dtype");
  if (!edges_of_dims(l, a, dims, edges)) return l->b.status;
  return give(l, results, count_in_bins(l, a[0].value, edges, dims, arg_value(a + 3), arg_bool(a + 4)));
}
/* (self, edges of each dimension, weight, density) */
tnx_status lower_histogramdd_tensors(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims = histogram_dims(l, a[0].value, a[1].count);
  if (!dims || !histogram_dtype(&l->b, a[0].value, a + 2)) return uncovered(l, "shape or dtype");
  return give(l, results, count_in_bins(l, a[0].value, a[1].values, dims, arg_value(a + 2), arg_bool(a + 3)));
}
