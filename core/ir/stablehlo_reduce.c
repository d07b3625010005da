/* StableHLO writer: reductions, scans and sorting. */
#include "ir/stablehlo.h"

/* bool as uint8, whose order and arithmetic both languages agree on */
static hlo ordered(hlo_writer *w, hlo x) { return x.dtype == TNX_BOOL ? hlo_convert(w, x, TNX_U8) : x; }

static int int_list(const hlo_writer *w, int64_t *v) {
  for (uint32_t i = 0; i < w->node->n_ints; i++) v[i] = hlo_int(w, i);
  return (int)w->node->n_ints;
}

/* ---- reductions ---- */

/* Row-major positions within the reduced dimensions. */
static hlo positions(hlo_writer *w, hlo x, const int64_t *dims, int n) {
  bool reduced[HLO_MAX_RANK] = {false};
  hlo type = hlo_retype(x, TNX_I64), sum = {0};
  for (int i = 0; i < n; i++) reduced[dims[i]] = true;
  uint64_t stride = 1;
  for (int d = x.rank - 1; d >= 0; d--) {
    if (!reduced[d]) continue;
    hlo term = hlo_iota(w, type, d);
    if (stride != 1) term = hlo_bin(w, "stablehlo.multiply", term, hlo_full_i(w, term, (int64_t)stride));
    sum = sum.id ? hlo_bin(w, "stablehlo.add", sum, term) : term;
    stride *= (uint64_t)x.sizes[d];
  }
  return sum.id ? sum : hlo_full_i(w, type, 0);
}

/* The first extreme element: a before b where a is larger (smaller), or NaN and b is not, or they are equal and a's position is lower. */
static hlo arg_reduce(hlo_writer *w, hlo x, const int64_t *dims, int n, bool smallest) {
  hlo type = {.dtype = TNX_I64}, none;
  if (n == 0) return hlo_full_i(w, hlo_retype(x, TNX_I64), 0);
  for (int i = 0; i < x.rank; i++) {
    bool reduced = false;
    for (int k = 0; k < n; k++) reduced |= dims[k] == i;
    if (!reduced) type.sizes[type.rank++] = x.sizes[i];
  }
  none = hlo_lowest(w, (tnx_dtype)x.dtype, smallest);
  hlo in[4] = {x, positions(w, x, dims, n), none, hlo_const_i(w, TNX_I64, INT64_MAX)};
  hlo args[4] = {none, in[3], none, in[3]}, results[2] = {hlo_retype(type, (tnx_dtype)x.dtype), type};
  hlo_begin_many(w, "stablehlo.reduce", in, 4, results, 2);
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "dimensions", dims, n);
  tnx_text_add(&w->text, "}>");
  hlo_region_begin(w, args, 4);
  hlo a = args[0], ia = args[1], b = args[2], ib = args[3], na = hlo_isnan(w, a), nb = hlo_isnan(w, b);
  hlo better = hlo_bin(w, "stablehlo.or", hlo_compare(w, smallest ? "LT" : "GT", a, b), hlo_bin(w, "stablehlo.and", na, hlo_un(w, "stablehlo.not", nb)));
  hlo tie = hlo_bin(w, "stablehlo.or", hlo_compare(w, "EQ", a, b), hlo_bin(w, "stablehlo.and", na, nb));
  hlo first = hlo_bin(w, "stablehlo.or", better, hlo_bin(w, "stablehlo.and", tie, hlo_compare(w, "LT", ia, ib)));
  hlo out[2] = {hlo_select(w, first, a, b), hlo_select(w, first, ia, ib)};
  hlo_region_end(w, out, 2);
  hlo_end(w, in, 4, results, 2);
  return results[1];
}

void hlo_reduction(hlo_writer *w) {
  int64_t dims[HLO_MAX_RANK];
  int n = int_list(w, dims);
  tnx_op op = (tnx_op)w->node->op;
  hlo x = hlo_operand(w, 0), want = hlo_result(w, 0), r;
  bool largest = op == TNX_OP_REDUCE_MAX;
  switch (op) {
    case TNX_OP_REDUCE_SUM:
    case TNX_OP_REDUCE_PROD:
      x = hlo_wide(w, x);
      r = hlo_reduce(w, op == TNX_OP_REDUCE_SUM ? "stablehlo.add" : "stablehlo.multiply", x, hlo_const_f(w, (tnx_dtype)x.dtype, op == TNX_OP_REDUCE_PROD), dims, n);
      break;
    case TNX_OP_REDUCE_MAX:
    case TNX_OP_REDUCE_MIN:
      if (x.dtype == TNX_BOOL) r = hlo_reduce(w, largest ? "stablehlo.or" : "stablehlo.and", x, hlo_const_i(w, TNX_BOOL, !largest), dims, n);
      else r = hlo_reduce(w, largest ? "stablehlo.maximum" : "stablehlo.minimum", x, hlo_lowest(w, (tnx_dtype)x.dtype, !largest), dims, n);
      break;
    default: r = arg_reduce(w, ordered(w, x), dims, n, op == TNX_OP_ARGMIN);
  }
  hlo_set_result(w, 0, hlo_reshape(w, r, want.rank, want.sizes));
}

/* ---- scans: log2(n) steps, each combining an element with the one 1, 2, 4, ... places before it ---- */

/* x moved `by` places along dim, `fill` in front. */
static hlo shifted(hlo_writer *w, hlo x, int dim, int64_t by, hlo fill) {
  int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0};
  low[dim] = by;
  high[dim] = -by;
  return hlo_pad(w, x, fill, low, high, NULL);
}

/* log(exp(x) + exp(y)), as PyTorch computes it; two equal infinities stay. */
static hlo log_add_exp(hlo_writer *w, hlo x, hlo y) {
  hlo low = hlo_bin(w, "stablehlo.minimum", x, y), high = hlo_bin(w, "stablehlo.maximum", x, y);
  hlo sum = hlo_bin(w, "stablehlo.add", hlo_un(w, "stablehlo.log_plus_one", hlo_un(w, "stablehlo.exponential", hlo_bin(w, "stablehlo.subtract", low, high))), high);
  hlo finite = hlo_op(w, "stablehlo.is_finite", &low, 1, hlo_retype(low, TNX_BOOL));
  return hlo_select(w, hlo_bin(w, "stablehlo.or", hlo_compare(w, "NE", low, high), finite), sum, x);
}

static void running_extreme(hlo_writer *w, hlo x, int dim, bool smallest) {
  hlo v = ordered(w, x), i = hlo_iota(w, hlo_retype(x, TNX_I64), dim), fill = hlo_lowest(w, (tnx_dtype)v.dtype, smallest), zero = hlo_const_i(w, TNX_I64, 0);
  for (int64_t by = 1; by < x.sizes[dim]; by *= 2) {
    hlo pv = shifted(w, v, dim, by, fill), pi = shifted(w, i, dim, by, zero);
    /* the later one stays among equals, and a NaN stays whatever follows */
    hlo later = hlo_bin(w, "stablehlo.and", hlo_un(w, "stablehlo.not", hlo_isnan(w, pv)), hlo_compare(w, smallest ? "LE" : "GE", v, pv));
    hlo keep = hlo_bin(w, "stablehlo.or", hlo_isnan(w, v), later);
    v = hlo_select(w, keep, v, pv);
    i = hlo_select(w, keep, i, pi);
  }
  hlo_set_result(w, 0, v);
  hlo_set_result(w, 1, i);
}

hlo hlo_running(hlo_writer *w, tnx_op op, hlo x, int dim) {
  tnx_dtype t;
  x = hlo_wide(w, x);
  t = (tnx_dtype)x.dtype;
  hlo fill = op == TNX_OP_LOGCUMSUMEXP ? hlo_lowest(w, t, false) : hlo_const_f(w, t, op == TNX_OP_CUMPROD);
  for (int64_t by = 1; by < x.sizes[dim]; by *= 2) {
    hlo before = shifted(w, x, dim, by, fill);
    if (op == TNX_OP_LOGCUMSUMEXP) x = log_add_exp(w, before, x);
    else x = hlo_bin(w, op == TNX_OP_CUMSUM ? "stablehlo.add" : "stablehlo.multiply", before, x);
  }
  return x;
}

/* ---- sort ---- */

static void topk(hlo_writer *w, hlo x, int dim, int64_t k, bool descending) {
  hlo v = ordered(w, x), in[2] = {v, hlo_iota(w, hlo_retype(x, TNX_I64), dim)}, results[2] = {in[0], in[1]};
  hlo args[4] = {v, v, in[1], in[1]};
  hlo_begin_many(w, "stablehlo.sort", in, 2, results, 2);
  tnx_text_add(&w->text, " <{dimension = %d : i64, is_stable = true}>", dim);
  hlo_region_begin(w, args, 4);
  hlo a = args[0], b = args[1], na = hlo_isnan(w, a), nb = hlo_isnan(w, b);
  hlo nan_first = hlo_bin(w, "stablehlo.and", descending ? na : nb, hlo_un(w, "stablehlo.not", descending ? nb : na));
  hlo before = hlo_bin(w, "stablehlo.or", nan_first, hlo_compare(w, descending ? "GT" : "LT", a, b));
  hlo_region_end(w, &before, 1);
  hlo_end(w, in, 2, results, 2);
  for (uint32_t i = 0; i < 2; i++) hlo_set_result(w, i, hlo_slice(w, results[i], dim, 0, k, 1));
}

void hlo_scan(hlo_writer *w) {
  tnx_op op = (tnx_op)w->node->op;
  hlo x = hlo_operand(w, 0);
  int dim = (int)hlo_int(w, 0);
  switch (op) {
    case TNX_OP_CUMMAX: running_extreme(w, x, dim, false); break;
    case TNX_OP_CUMMIN: running_extreme(w, x, dim, true); break;
    case TNX_OP_TOPK: topk(w, x, dim, hlo_result(w, 0).sizes[dim], hlo_int(w, 1) != 0); break;
    default: hlo_set_result(w, 0, hlo_running(w, op, x, dim));
  }
}
