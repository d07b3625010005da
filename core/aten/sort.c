/* Sorting and order statistics: all on TOPK, which takes NaN for the largest value. */
#include "aten/family.h"

typedef struct sorted { tnx_value values, index; int dim; } sorted;

/* The first k along dim (k = 0 for all of them when `whole`). A 0-dim operand is its own order. */
static sorted top(tnx_lower *l, tnx_value x, const tnx_arg *dim, tnx_dim k, bool whole, bool descending, bool stable) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x), d = tnx_b_wrap_dim(b, dim->dim, rank);
  tnx_dtype t = tnx_b_dtype(b, x);
  if (b->status != TNX_OK) return (sorted){0, 0, 0};
  if (tnx_dtype_is_complex(t)) return (sorted){tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "order of complex numbers"), 0, 0};
  if (rank == 0) return (sorted){x, tnx_b_const_i(b, TNX_I64, 0), 0};
  tnx_dim size = tnx_b_size(b, x, d);
  if (whole) k = size;
  if (!tnx_dim_is_symbolic(k) && !tnx_dim_is_symbolic(size) && (k < 0 || k > size)) return (sorted){tnx_b_fail(b, TNX_SHAPE, "selected index k out of range"), 0, 0};
  tnx_value v = tnx_b_topk(b, t == TNX_BOOL ? tnx_b_convert(b, x, TNX_U8) : x, d, k, descending, stable);
  return v ? (sorted){tnx_b_convert(b, v, t), v + 1, d} : (sorted){0, 0, 0};
}

tnx_status lower_topk(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  sorted s = top(l, a[0].value, a + 2, a[1].dim, false, arg_bool(a + 3), false);
  return give2(l, results, s.values, s.index);
}

static tnx_status sort(tnx_lower *l, const tnx_arg *a, const tnx_arg *dim, bool descending, bool only_index, tnx_value *results) {
  sorted s = top(l, a[0].value, dim, 0, true, descending, true);
  return only_index ? give(l, results, s.index) : give2(l, results, s.values, s.index);
}
tnx_status lower_sort(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sort(l, a, a + 1, arg_bool(a + 2), false, results); }
tnx_status lower_sort_stable(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sort(l, a, a + 2, arg_bool(a + 3), false, results); }
tnx_status lower_argsort(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sort(l, a, a + 1, arg_bool(a + 2), true, results); }
tnx_status lower_argsort_stable(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sort(l, a, a + 2, arg_bool(a + 3), true, results); }

static const tnx_arg first_dim = {.kind = TNX_ARG_INT, .dim = 0};

tnx_status lower_msort(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, top(l, a[0].value, &first_dim, 0, true, false, true).values); }

/* Position `at` of the sorted dimension; the dimension goes unless keepdim. */
static tnx_value pick(tnx_builder *b, tnx_value v, int dim, tnx_dim at, bool keepdim) {
  if (!v || tnx_b_rank(b, v) == 0) return v;
  v = tnx_b_slice(b, v, dim, at, 1, 1);
  return keepdim ? v : tnx_b_squeeze(b, v, &dim, 1);
}

tnx_status lower_kthvalue(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (arg_symbolic(a + 1)) return uncovered(l, "symbolic k");
  if (a[1].dim < 1) return tnx_fail(TNX_INDEX, "kthvalue(): selected number k out of range for dimension %lld", (long long)a[2].dim);
  sorted s = top(l, a[0].value, a + 2, a[1].dim, false, false, true);
  return give2(l, results, pick(b, s.values, s.dim, a[1].dim - 1, arg_bool(a + 3)), pick(b, s.index, s.dim, a[1].dim - 1, arg_bool(a + 3)));
}

/* The lower median. A NaN is the median of a row that has one, unless NaNs are to be skipped. */
static tnx_status median(tnx_lower *l, tnx_value x, const tnx_arg *dim, bool keepdim, bool skip_nan, bool with_index, tnx_value *results) {
  tnx_builder *b = &l->b;
  sorted s = top(l, x, dim, 0, true, false, true);
  if (!s.values) return b->status;
  if (tnx_b_rank(b, x) == 0) return with_index ? give2(l, results, s.values, s.index) : give(l, results, s.values);
  tnx_dim n = tnx_b_size(b, x, s.dim);
  if (tnx_dim_is_symbolic(n)) return uncovered(l, "symbolic size");
  if (n == 0) return uncovered(l, "empty");
  tnx_value v, i;
  bool floats = tnx_dtype_is_float(tnx_b_dtype(b, x));
  if (skip_nan && floats) {
    tnx_value valid = tnx_b_convert(b, tnx_b_unary(b, TNX_OP_NOT, tnx_b_unary(b, TNX_OP_ISNAN, x)), TNX_I64);
    tnx_value count = tnx_b_reduce(b, TNX_OP_REDUCE_SUM, valid, &s.dim, 1, true);
    tnx_value at = tnx_b_binary_f(b, TNX_OP_DIV, tnx_b_binary_f(b, TNX_OP_MAX, add_f(b, count, -1), 0), 2);
    v = pick(b, tnx_b_gather(b, s.values, at, s.dim), s.dim, 0, keepdim), i = pick(b, tnx_b_gather(b, s.index, at, s.dim), s.dim, 0, keepdim);
  } else {
    v = pick(b, s.values, s.dim, (n - 1) / 2, keepdim), i = pick(b, s.index, s.dim, (n - 1) / 2, keepdim);
    if (floats) {
      tnx_value last = pick(b, s.values, s.dim, n - 1, keepdim), nan = tnx_b_unary(b, TNX_OP_ISNAN, last);
      v = tnx_b_select(b, nan, last, v);
      if (with_index) i = tnx_b_select(b, nan, tnx_b_reduce(b, TNX_OP_ARGMAX, x, &s.dim, 1, keepdim), i);
    }
  }
  return with_index ? give2(l, results, v, i) : give(l, results, v);
}

tnx_status lower_median(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return median(l, flattened(&l->b, a[0].value), &first_dim, false, false, false, results); }
tnx_status lower_nanmedian(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return median(l, flattened(&l->b, a[0].value), &first_dim, false, true, false, results); }
tnx_status lower_median_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return median(l, a[0].value, a + 1, arg_bool(a + 2), false, true, results); }
tnx_status lower_nanmedian_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return median(l, a[0].value, a + 1, arg_bool(a + 2), true, true, results); }
