/* StableHLO writer: LU, QR and the matrix exponential as loops over columns, for all matrices of a batch at a time.
 *
 * A column, a row or an element whose number is the loop's count is read by a mask and a sum and written by a select: no addresses are computed. Pivots, signs and
 * scalings are LAPACK's, so that factors are the same ones. */
#include <math.h>

#include "ir/stablehlo_arith.h"

static bool is_complex(hlo x) { return tnx_dtype_is_complex((tnx_dtype)x.dtype); }
static hlo real_of(hlo_writer *w, hlo x) { return is_complex(x) ? hlo_part(w, "stablehlo.real", x) : x; }
static hlo imag_of(hlo_writer *w, hlo x) { return is_complex(x) ? hlo_part(w, "stablehlo.imag", x) : hlo_full_f(w, x, 0); }
static hlo from_real(hlo_writer *w, hlo x, hlo like) { return hlo_cast(w, x, (tnx_dtype)like.dtype); }
static hlo conj_of(hlo_writer *w, hlo x) { return is_complex(x) ? hlo_conj(w, x) : x; }

/* ---- rows, columns and elements of the last dimensions ---- */

static hlo places(hlo_writer *w, hlo x, int dim) { return hlo_iota(w, hlo_retype(x, TNX_I64), dim); }
static hlo sum_over(hlo_writer *w, hlo x, int dim) {
  int64_t d = dim;
  return hlo_reduce(w, "stablehlo.add", x, hlo_const_f(w, (tnx_dtype)x.dtype, 0), &d, 1);
}
/* x, which lacks dimension dim of like, repeated along it. */
static hlo along(hlo_writer *w, hlo x, hlo like, int dim) {
  int64_t dims[HLO_MAX_RANK];
  for (int i = 0; i < x.rank; i++) dims[i] = i < dim ? i : i + 1;
  return hlo_broadcast(w, x, dims, like);
}
/* The places along dim that are number `at`: 0-dim, or one for each of x's other places. */
static hlo mask(hlo_writer *w, const char *direction, hlo x, int dim, hlo at) {
  hlo i = places(w, x, dim);
  return hlo_compare(w, direction, i, at.rank == 0 ? hlo_splat(w, at, i) : along(w, at, i, dim));
}
static hlo pick(hlo_writer *w, hlo x, int dim, hlo at) { return sum_over(w, hlo_select(w, mask(w, "EQ", x, dim, at), x, hlo_full_f(w, x, 0)), dim); }
static hlo put(hlo_writer *w, hlo x, int dim, hlo at, hlo value) { return hlo_select(w, mask(w, "EQ", x, dim, at), along(w, value, x, dim), x); }
static hlo exchange(hlo_writer *w, hlo x, int dim, hlo i, hlo j) {
  hlo a = pick(w, x, dim, i), b = pick(w, x, dim, j);
  return put(w, put(w, x, dim, j, a), dim, i, b);
}

/* Loops whose first state value is the number of the column, up or down. */
static hlo column_begin(hlo_writer *w, hlo_loop *l, hlo *state, int n, int64_t from, int64_t columns, bool down) {
  state[0] = hlo_const_i(w, TNX_I64, down ? columns - 1 : from);
  hlo_loop_begin(w, l, state, n);
  hlo_loop_body(w, l, state, hlo_compare(w, down ? "GE" : "LT", state[0], hlo_const_i(w, TNX_I64, down ? from : columns)));
  return state[0];
}
static void column_end(hlo_writer *w, hlo_loop *l, hlo *state, bool down) {
  state[0] = add(w, state[0], hlo_const_i(w, TNX_I64, down ? -1 : 1));
  hlo_loop_end(w, l, state);
}

/* ---- LU ---- */

/* Right-looking elimination; the pivot is the first largest by |re| + |im|. */
static void lu(hlo_writer *w) {
  hlo a = hlo_operand(w, 0), pivots = hlo_result(w, 1), info = hlo_retype(hlo_result(w, 2), TNX_I64);
  int rows = a.rank - 2, cols = a.rank - 1;
  hlo_loop l;
  hlo v[4] = {{0}, a, hlo_full_i(w, hlo_retype(pivots, TNX_I64), 0), hlo_full_i(w, info, 0)};
  if (hlo_is_empty(a)) {
    for (uint32_t i = 0; i < 3; i++) hlo_set_result(w, i, v[i + 1]);
    return;
  }
  hlo j = column_begin(w, &l, v, 4, 0, pivots.sizes[pivots.rank - 1], false), one = hlo_const_i(w, TNX_I64, 1);
  hlo column = pick(w, v[1], cols, j), size = hlo_un(w, "stablehlo.abs", real_of(w, column));
  if (is_complex(a)) size = add(w, size, hlo_un(w, "stablehlo.abs", imag_of(w, column)));
  hlo below = mask(w, "GE", size, rows, j);
  size = hlo_select(w, below, size, hlo_full_f(w, size, -1));
  int64_t dim = rows;
  hlo most = hlo_reduce(w, "stablehlo.maximum", size, hlo_lowest(w, (tnx_dtype)size.dtype, false), &dim, 1);
  hlo best = both(w, below, hlo_compare(w, "EQ", size, along(w, most, size, rows))), at = places(w, size, rows);
  hlo first = hlo_reduce(w, "stablehlo.minimum", hlo_select(w, best, at, hlo_full_i(w, at, INT64_MAX)), hlo_const_i(w, TNX_I64, INT64_MAX), &dim, 1);
  hlo self = hlo_splat(w, j, first), p = hlo_select(w, hlo_compare(w, "EQ", first, hlo_full_i(w, first, INT64_MAX)), self, first); /* NaN: no largest */
  hlo m = exchange(w, v[1], rows, self, p), top = pick(w, m, rows, j), pivot = pick(w, top, cols - 1, j);
  hlo zero = hlo_compare(w, "EQ", pivot, hlo_full_f(w, pivot, 0)), divisor = hlo_select(w, zero, hlo_full_f(w, pivot, 1), pivot);
  column = pick(w, m, cols, j);
  hlo factors = quot(w, column, along(w, divisor, column, rows)), lower = mask(w, "GT", m, rows, j);
  hlo rest = sub(w, m, mul(w, along(w, factors, m, cols), along(w, top, m, rows)));
  m = hlo_select(w, both(w, lower, mask(w, "GT", m, cols, j)), rest, m);
  v[1] = hlo_select(w, both(w, lower, mask(w, "EQ", m, cols, j)), along(w, factors, m, cols), m);
  v[2] = put(w, v[2], v[2].rank - 1, j, add(w, p, hlo_splat(w, one, p)));
  hlo fresh = both(w, zero, hlo_compare(w, "EQ", v[3], hlo_full_i(w, v[3], 0)));
  v[3] = hlo_select(w, fresh, hlo_splat(w, add(w, j, one), v[3]), v[3]);
  column_end(w, &l, v, false);
  for (uint32_t i = 0; i < 3; i++) hlo_set_result(w, i, v[i + 1]);
}

/* The rows' order [.., m] that pivots [.., k] amount to. */
static hlo row_order(hlo_writer *w, hlo pivots, int64_t m) {
  int last = pivots.rank - 1;
  hlo type = hlo_retype(pivots, TNX_I64), from = hlo_convert(w, pivots, TNX_I64);
  type.sizes[last] = m;
  hlo_loop l;
  hlo v[2] = {{0}, hlo_iota(w, type, last)};
  if (hlo_is_empty(type) || hlo_is_empty(pivots)) return v[1];
  hlo j = column_begin(w, &l, v, 2, 0, pivots.sizes[last], false), p = pick(w, from, last, j);
  p = sub(w, p, hlo_full_i(w, p, 1));
  v[1] = exchange(w, v[1], last, hlo_splat(w, j, p), p);
  column_end(w, &l, v, false);
  return v[1];
}

static void lu_permutation(hlo_writer *w) {
  hlo pivots = hlo_operand(w, 0), want = hlo_result(w, 0);
  hlo order = row_order(w, hlo_reshape(w, pivots, pivots.rank - 1, pivots.sizes), want.sizes[want.rank - 2]);
  hlo_set_result(w, 0, hlo_reshape(w, order, want.rank, want.sizes));
}

/* L is unit lower and U upper, both in a. */
static hlo solve(hlo_writer *w, hlo a, hlo b, bool lower, int64_t transposed) { return hlo_triangular_solve(w, a, b, lower, lower, transposed); }

/* A = P L U. The permutation is a product with the matrix of zeros and ones. */
static void lu_solve(hlo_writer *w) {
  hlo a = hlo_operand(w, 0), b = hlo_operand(w, 2);
  int64_t transposed = hlo_int(w, 1), n = a.sizes[a.rank - 1];
  if (hlo_is_empty(b)) {
    hlo_set_result(w, 0, b);
    return;
  }
  int rows = a.rank - 2, cols = a.rank - 1;
  hlo order = row_order(w, hlo_operand(w, 1), n);
  hlo p = hlo_cast(w, hlo_compare(w, "EQ", along(w, order, places(w, a, cols), cols), places(w, a, cols)), (tnx_dtype)a.dtype);
  if (!transposed) b = solve(w, a, solve(w, a, hlo_dot(w, p, b, rows, cols, rows, (tnx_dtype)a.dtype), true, 0), false, 0);
  else b = hlo_dot(w, p, solve(w, a, solve(w, a, b, false, transposed), true, transposed), rows, rows, rows, (tnx_dtype)a.dtype);
  hlo_set_result(w, 0, b);
}

/* ---- QR: H = I - tau v v^H with v 1 on the diagonal and 0 above ---- */

static hlo reflector(hlo_writer *w, hlo a, hlo j) {
  hlo x = pick(w, a, a.rank - 1, j);
  x = hlo_select(w, mask(w, "GT", x, x.rank - 1, j), x, hlo_full_f(w, x, 0));
  return hlo_select(w, mask(w, "EQ", x, x.rank - 1, j), hlo_full_f(w, x, 1), x);
}

/* (I - tau v v^H) C, or C (I - tau v v^H) */
static hlo reflect(hlo_writer *w, hlo c, hlo v, hlo tau, bool left) {
  int dim = left ? c.rank - 2 : c.rank - 1, other = left ? c.rank - 1 : c.rank - 2;
  hlo wide = along(w, left ? conj_of(w, v) : v, c, other), inner = sum_over(w, mul(w, wide, c), dim);
  inner = mul(w, inner, along(w, tau, inner, inner.rank - 1));
  return sub(w, c, mul(w, along(w, inner, c, dim), along(w, left ? v : conj_of(w, v), c, other)));
}

static void qr(hlo_writer *w) {
  hlo a = hlo_operand(w, 0), taus = hlo_result(w, 1);
  int rows = a.rank - 2, cols = a.rank - 1;
  hlo_loop l;
  hlo v[3] = {{0}, a, hlo_full_f(w, taus, 0)};
  if (hlo_is_empty(a)) {
    for (uint32_t i = 0; i < 2; i++) hlo_set_result(w, i, v[i + 1]);
    return;
  }
  hlo j = column_begin(w, &l, v, 3, 0, taus.sizes[taus.rank - 1], false);
  hlo x = pick(w, v[1], cols, j), alpha = pick(w, x, rows, j), re = real_of(w, alpha), im = imag_of(w, alpha);
  hlo under = hlo_select(w, mask(w, "GT", x, rows, j), x, hlo_full_f(w, x, 0)), square = mul(w, real_of(w, under), real_of(w, under));
  if (is_complex(a)) square = add(w, square, mul(w, imag_of(w, under), imag_of(w, under)));
  hlo rest = sum_over(w, square, rows), none = both(w, hlo_compare(w, "EQ", rest, hlo_full_f(w, rest, 0)), hlo_compare(w, "EQ", im, hlo_full_f(w, im, 0)));
  hlo norm = hlo_un(w, "stablehlo.sqrt", add(w, rest, add(w, mul(w, re, re), mul(w, im, im))));
  hlo beta = hlo_select(w, hlo_compare(w, "LT", re, hlo_full_f(w, re, 0)), norm, hlo_un(w, "stablehlo.negate", norm));
  beta = from_real(w, hlo_select(w, none, hlo_full_f(w, beta, 1), beta), a);
  hlo zero = hlo_full_f(w, alpha, 0), tau = hlo_select(w, none, zero, quot(w, sub(w, beta, alpha), beta));
  hlo scale = hlo_select(w, none, hlo_full_f(w, alpha, 1), sub(w, alpha, beta));
  hlo u = hlo_select(w, mask(w, "EQ", x, rows, j), hlo_full_f(w, x, 1), quot(w, under, along(w, scale, x, rows)));
  /* Columns to the right are reflected; this one becomes beta above the reflector. */
  hlo m = hlo_select(w, mask(w, "GT", a, cols, j), reflect(w, v[1], u, conj_of(w, tau), true), v[1]);
  hlo self = hlo_select(w, mask(w, "GT", x, rows, j), u, put(w, x, rows, j, hlo_select(w, none, alpha, beta)));
  v[1] = put(w, m, cols, j, self);
  v[2] = put(w, v[2], v[2].rank - 1, j, tau);
  column_end(w, &l, v, false);
  for (uint32_t i = 0; i < 2; i++) hlo_set_result(w, i, v[i + 1]);
}

/* H_1 .. H_k applied to C: from the left the last one first, unless transposed. */
static hlo apply(hlo_writer *w, hlo a, hlo taus, hlo c, bool left, bool transposed) {
  hlo_loop l;
  hlo v[2] = {{0}, c};
  bool down = left != transposed;
  if (hlo_is_empty(c) || hlo_is_empty(taus)) return c;
  hlo j = column_begin(w, &l, v, 2, 0, taus.sizes[taus.rank - 1], down), tau = pick(w, taus, taus.rank - 1, j);
  v[1] = reflect(w, v[1], reflector(w, a, j), transposed ? conj_of(w, tau) : tau, left);
  column_end(w, &l, v, down);
  return v[1];
}

static hlo identity(hlo_writer *w, hlo like) { return hlo_cast(w, hlo_compare(w, "EQ", places(w, like, like.rank - 2), places(w, like, like.rank - 1)), (tnx_dtype)like.dtype); }

/* ---- the matrix exponential: Taylor's polynomial of A / 2^s, where it has converged, squared s times (Higham, "Functions of Matrices", 10.3) ---- */

static void matrix_exp(hlo_writer *w) {
  hlo a = hlo_operand(w, 0);
  if (hlo_is_empty(a)) {
    hlo_set_result(w, 0, a);
    return;
  }
  a = hlo_cast(w, a, is_complex(a) ? TNX_C128 : TNX_F64); /* each squaring doubles the error */
  int batch = a.rank - 2;
  hlo size = hlo_op(w, "stablehlo.abs", &a, 1, hlo_retype(a, tnx_dtype_real((tnx_dtype)a.dtype))), columns = sum_over(w, size, batch);
  int64_t last = batch;
  hlo norm = hlo_reduce(w, "stablehlo.maximum", columns, hlo_const_f(w, (tnx_dtype)columns.dtype, 0), &last, 1);
  norm = hlo_bin(w, "stablehlo.minimum", norm, hlo_full_f(w, norm, 0x1p100)); /* an infinite one needs no more squarings */
  hlo doublings = hlo_un(w, "stablehlo.ceil", mul(w, hlo_un(w, "stablehlo.log", hlo_bin(w, "stablehlo.maximum", norm, hlo_full_f(w, norm, 0.5))), hlo_full_f(w, norm, 1 / log(2))));
  hlo steps = hlo_convert(w, add(w, doublings, hlo_full_f(w, norm, 1)), TNX_I64);
  hlo scale = hlo_bin(w, "stablehlo.power", hlo_full_f(w, norm, 0.5), hlo_convert(w, steps, (tnx_dtype)norm.dtype));
  int64_t dims[HLO_MAX_RANK];
  for (int i = 0; i < batch; i++) dims[i] = i;
  hlo scaled = mul(w, a, hlo_broadcast(w, from_real(w, scale, a), dims, a)), eye = identity(w, a), r = eye;
  for (int k = 18; k >= 1; k--) r = add(w, eye, hlo_dot(w, mul(w, scaled, hlo_full_f(w, a, 1.0 / k)), r, batch, batch + 1, batch, (tnx_dtype)a.dtype));
  hlo most = hlo_reduce(w, "stablehlo.maximum", steps, hlo_const_i(w, TNX_I64, 0), dims, batch);
  hlo_loop l;
  hlo v[2] = {hlo_const_i(w, TNX_I64, 0), r};
  hlo_loop_begin(w, &l, v, 2);
  hlo_loop_body(w, &l, v, hlo_compare(w, "LT", v[0], most));
  hlo more = hlo_compare(w, "LT", hlo_splat(w, v[0], steps), steps), square = hlo_dot(w, v[1], v[1], batch, batch + 1, batch, (tnx_dtype)a.dtype);
  v[1] = hlo_select(w, hlo_broadcast(w, more, dims, a), square, v[1]);
  column_end(w, &l, v, false);
  hlo_set_result(w, 0, v[1]);
}

void hlo_factor(hlo_writer *w) {
  switch (w->node->op) {
    case TNX_OP_LU: lu(w); break;
    case TNX_OP_LU_SOLVE: lu_solve(w); break;
    case TNX_OP_LU_PERMUTATION: lu_permutation(w); break;
    case TNX_OP_QR: qr(w); break;
    case TNX_OP_QR_Q: hlo_set_result(w, 0, apply(w, hlo_operand(w, 0), hlo_operand(w, 1), identity(w, hlo_result(w, 0)), true, false)); break;
    case TNX_OP_QR_APPLY:
      hlo_set_result(w, 0, apply(w, hlo_operand(w, 0), hlo_operand(w, 1), hlo_operand(w, 2), hlo_int(w, 1) != 0, hlo_int(w, 2) != 0));
      break;
    case TNX_OP_MATRIX_EXP: matrix_exp(w); break;
    default: hlo_fail(w, TNX_NOT_IMPLEMENTED, "an iteration of LAPACK's that has no form here");
  }
}
