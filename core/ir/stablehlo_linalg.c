/* StableHLO writer: the factorisations and the Fourier transforms that StableHLO has operations for. */
#include "ir/stablehlo.h"

static hlo transpose(hlo_writer *w, hlo x, int d0, int d1) {
  if (d0 == d1) return x;
  int64_t perm[HLO_MAX_RANK];
  hlo type = x;
  for (int i = 0; i < x.rank; i++) perm[i] = i;
  perm[d0] = d1, perm[d1] = d0;
  type.sizes[d0] = x.sizes[d1], type.sizes[d1] = x.sizes[d0];
  hlo r = hlo_begin(w, "stablehlo.transpose", &x, 1, type);
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "permutation", perm, x.rank);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, &x, 1, &r, 1);
  return r;
}

/* What lies on the wrong side of the diagonal becomes 0. */
static hlo triangle(hlo_writer *w, hlo x, bool upper) {
  hlo at = hlo_retype(x, TNX_I64);
  hlo keep = hlo_compare(w, upper ? "LE" : "GE", hlo_iota(w, at, x.rank - 2), hlo_iota(w, at, x.rank - 1));
  return hlo_select(w, keep, x, hlo_full_f(w, x, 0));
}

/* StableHLO fills the factor of a matrix that is not positive definite with NaN; `info` then says that, as 1, and not which minor it was. */
static void cholesky(hlo_writer *w) {
  hlo a = hlo_operand(w, 0), info = hlo_result(w, 1);
  bool upper = hlo_int(w, 1) != 0;
  if (hlo_is_empty(a)) {
    hlo_set_result(w, 0, a);
    hlo_set_result(w, 1, hlo_full_i(w, info, 0));
    return;
  }
  hlo l = hlo_begin(w, "stablehlo.cholesky", &a, 1, a);
  tnx_text_add(&w->text, " <{lower = %s}>", upper ? "false" : "true");
  hlo_end(w, &a, 1, &l, 1);
  l = triangle(w, l, upper);
  hlo_set_result(w, 0, l);
  hlo nan = hlo_compare(w, "NE", l, l);
  int64_t dims[2] = {l.rank - 2, l.rank - 1};
  nan = hlo_reduce(w, "stablehlo.or", nan, hlo_const_i(w, TNX_BOOL, 0), dims, 2);
  hlo_set_result(w, 1, hlo_convert(w, nan, TNX_I32));
}

hlo hlo_triangular_solve(hlo_writer *w, hlo a, hlo b, bool lower, bool unit, int64_t transposed) {
  static const char *const forms[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  hlo in[2] = {a, b}, r = hlo_begin(w, "stablehlo.triangular_solve", in, 2, b);
  tnx_text_add(&w->text, " <{left_side = true, lower = %s, unit_diagonal = %s, transpose_a = #stablehlo<transpose %s>}>", lower ? "true" : "false", unit ? "true" : "false",
               forms[transposed]);
  hlo_end(w, in, 2, &r, 1);
  return r;
}

static void triangular_solve(hlo_writer *w) {
  hlo b = hlo_operand(w, 1);
  int64_t flags = hlo_int(w, 1);
  hlo_set_result(w, 0, hlo_is_empty(b) ? b : hlo_triangular_solve(w, hlo_operand(w, 0), b, !(flags & 1), flags & 2, hlo_int(w, 2)));
}

void hlo_linalg(hlo_writer *w) {
  switch (w->node->op) {
    case TNX_OP_CHOLESKY: cholesky(w); break;
    case TNX_OP_TRIANGULAR_SOLVE: triangular_solve(w); break;
    default: hlo_factor(w);
  }
}

/* Along the last dimension; others are exchanged with it. StableHLO's inverse divides by the length. */
void hlo_fft(hlo_writer *w) {
  hlo x = hlo_operand(w, 0), want = hlo_result(w, 0);
  int dim = (int)hlo_int(w, 0), last = x.rank - 1;
  bool inverse = hlo_int(w, 1) != 0;
  int64_t norm = hlo_int(w, 2);
  if (hlo_is_empty(x) || hlo_is_empty(want)) {
    hlo_set_result(w, 0, hlo_full_f(w, want, 0));
    return;
  }
  int64_t n = w->node->op == TNX_OP_IRFFT ? want.sizes[dim] : x.sizes[dim];
  x = transpose(w, x, dim, last);
  hlo type = want;
  type.sizes[dim] = want.sizes[last];
  type.sizes[last] = want.sizes[dim];
  hlo r = hlo_begin(w, "stablehlo.fft", &x, 1, type);
  const char *name = w->node->op == TNX_OP_RFFT ? "RFFT" : w->node->op == TNX_OP_IRFFT ? "IRFFT" : inverse ? "IFFT" : "FFT";
  tnx_text_add(&w->text, " <{fft_type = #stablehlo<fft_type %s>, ", name);
  hlo_add_array(w, "fft_length", &n, 1);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, &x, 1, &r, 1);
  r = transpose(w, r, dim, last);
  double length = (double)n, scale = norm == 0 ? 1 : norm == 1 ? 1 / __builtin_sqrt(length) : 1 / length;
  if (inverse) scale *= length;
  if (scale != 1) r = hlo_bin(w, "stablehlo.multiply", r, hlo_full_f(w, r, scale));
  hlo_set_result(w, 0, r);
}
