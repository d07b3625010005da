/* Special functions that are a few nodes of the graph each; those that are one operator have no code but their row (aten.def). */
#include "aten/family.h"

/* sin(x) / x; near 0 by its series, 0 at the infinities. */
tnx_status lower_spherical_bessel_j0(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  tnx_value x = tnx_b_convert(b, a[0].value, acc), far = divide(b, tnx_b_unary(b, TNX_OP_SIN, x), x), size = tnx_b_unary(b, TNX_OP_ABS, x);
  static const double c[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800};
  tnx_value q = mul(b, x, x), near = full_like_f(b, x, acc, c[6]);
  for (int i = 5; i >= 0; i--) near = add_f(b, mul(b, near, q), c[i]);
  tnx_value r = tnx_b_select(b, compare_f(b, TNX_OP_LT, size, 0.5), near, far);
  return give(l, results, tnx_b_convert(b, select_f(b, tnx_b_unary(b, TNX_OP_NOT, compare_f(b, TNX_OP_EQ, size, INFINITY)), r, 0), t));
}

tnx_status lower_frexp(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!tnx_dtype_is_float(tnx_b_dtype(b, a[0].value))) return tnx_fail(TNX_DTYPE, "torch.frexp() only supports floating-point dtypes");
  tnx_value exponent = tnx_b_unary(b, TNX_OP_EXPONENT, to_acc(b, a[0].value));
  return give2(l, results, tnx_b_unary(b, TNX_OP_MANTISSA, a[0].value), tnx_b_convert(b, exponent, TNX_I32));
}

/* The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x). The first one is reflected at 1/2, as PyTorch's is, which is what it gives at its poles. */
static tnx_status polygamma(tnx_lower *l, const tnx_arg *order, tnx_value x, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, x)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_complex(t) || arg_symbolic(order)) return uncovered(l, "complex");
  int64_t n = order->dim;
  if (n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "polygamma(n, x) does not support negative n.");
  x = tnx_b_convert(b, x, acc);
  if (n == 0) return give(l, results, tnx_b_convert(b, tnx_b_unary(b, TNX_OP_DIGAMMA, x), t));
  if (n == 1) {
    tnx_value left = compare_f(b, TNX_OP_LT, x, 0.5), sine = tnx_b_unary(b, TNX_OP_SIN, mul_f(b, x, 3.14159265358979323846));
    tnx_value z = tnx_b_binary(b, TNX_OP_ZETA, full_like_f(b, x, acc, 2), tnx_b_select(b, left, rsub_f(b, 1, x), x));
    tnx_value mirror = divide(b, full_like_f(b, x, acc, 9.8696044010893586188), mul(b, sine, sine));
    return give(l, results, tnx_b_convert(b, tnx_b_select(b, left, sub(b, mirror, z), z), t));
  }
  tnx_value z = tnx_b_binary(b, TNX_OP_ZETA, full_like_f(b, x, acc, (double)n + 1), x);
  return give(l, results, tnx_b_convert(b, mul_f(b, z, (n & 1 ? 1 : -1) * tgamma((double)n + 1)), t));
}
tnx_status lower_polygamma(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return polygamma(l, a, a[1].value, results); }
tnx_status lower_polygamma_inplace(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return polygamma(l, a + 1, a[0].value, results); }

/* Chebyshev polynomials of 2x - 1. */
static tnx_status shifted(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(promote_args(b, a, a + 1)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  tnx_value x = tnx_b_scalar(b, a, acc), n = tnx_b_scalar(b, a + 1, acc);
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, op, add_f(b, add(b, x, x), -1), n), t));
}
tnx_status lower_shifted_chebyshev_t(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shifted(l, a, results, TNX_OP_CHEBYSHEV_T); }
tnx_status lower_shifted_chebyshev_u(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shifted(l, a, results, TNX_OP_CHEBYSHEV_U); }
tnx_status lower_shifted_chebyshev_v(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shifted(l, a, results, TNX_OP_CHEBYSHEV_V); }
tnx_status lower_shifted_chebyshev_w(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shifted(l, a, results, TNX_OP_CHEBYSHEV_W); }
