/* Activations and their gradients. Halves are computed in float32 and rounded once. */
#include "aten/family.h"

/* The operand in its computation dtype; *t is the result's. 0: dtype not covered. */
static tnx_value activation(tnx_lower *l, const tnx_arg *a, tnx_dtype *t) {
  *t = tnx_b_dtype(&l->b, a[0].value);
  return tnx_dtype_is_float(*t) ? to_acc(&l->b, a[0].value) : 0;
}
#define ACTIVATION(x)                        \
  tnx_builder *b = &l->b;                    \
  tnx_dtype t;                               \
  tnx_value x = activation(l, a, &t);        \
  if (!(x)) return uncovered(l, "dtype")
#define RESULT(v) give(l, results, tnx_b_convert(b, (v), t))

tnx_status lower_relu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  if (t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_binary_f(&l->b, TNX_OP_MAX, a[0].value, 0));
}

static tnx_value silu_of(tnx_builder *b, tnx_value x) { return divide(b, x, add_f(b, tnx_b_unary(b, TNX_OP_EXP, neg(b, x)), 1)); }

tnx_status lower_silu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (tnx_dtype_is_complex(tnx_b_dtype(&l->b, a[0].value))) return give(l, results, silu_of(&l->b, a[0].value));
  ACTIVATION(x);
  return RESULT(silu_of(b, x));
}

tnx_status lower_gelu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  if (arg_is(a + 1, "tanh")) {
    tnx_value cube = mul(b, mul(b, x, x), x);
    tnx_value inner = mul_f(b, add(b, x, mul_f(b, cube, 0.044715)), 0.79788456080286535588);
    return RESULT(mul(b, mul_f(b, x, 0.5), add_f(b, tnx_b_unary(b, TNX_OP_TANH, inner), 1)));
  }
  return RESULT(mul(b, mul_f(b, x, 0.5), add_f(b, tnx_b_unary(b, TNX_OP_ERF, mul_f(b, x, 0.70710678118654752440)), 1)));
}

tnx_status lower_hardtanh(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_binary(b, TNX_OP_MIN, tnx_b_binary(b, TNX_OP_MAX, a[0].value, lower_stored_number(b, a + 1, t)), lower_stored_number(b, a + 2, t)));
}

/* min(max(x + 3, 0), 6) */
static tnx_value relu6_shifted(tnx_builder *b, tnx_value x) { return tnx_b_binary_f(b, TNX_OP_MIN, tnx_b_binary_f(b, TNX_OP_MAX, add_f(b, x, 3), 0), 6); }

tnx_status lower_hardsigmoid(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  return RESULT(mul_f(b, relu6_shifted(b, x), 1.0 / 6));
}

tnx_status lower_hardswish(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  return RESULT(mul_f(b, mul(b, x, relu6_shifted(b, x)), 1.0 / 6));
}

tnx_status lower_leaky_relu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, x, 0), x, mul(b, x, tnx_b_scalar(b, a + 1, tnx_acc_of(t)))));
}

tnx_status lower_elu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  double alpha = arg_number(a + 1, 1), scale = arg_number(a + 2, 1), input_scale = arg_number(a + 3, 1);
  tnx_value low = mul_f(b, tnx_b_unary(b, TNX_OP_EXPM1, mul_f(b, x, input_scale)), alpha * scale);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_LT, x, 0), low, mul_f(b, x, scale)));
}

tnx_status lower_softplus(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  double beta = arg_number(a + 1, 1);
  tnx_value scaled = mul_f(b, x, beta), soft = tnx_b_binary_f(b, TNX_OP_DIV, tnx_b_unary(b, TNX_OP_LOG1P, tnx_b_unary(b, TNX_OP_EXP, scaled)), beta);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, scaled, arg_number(a + 2, 20)), x, soft));
}

tnx_status lower_mish(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  return RESULT(mul(b, x, tnx_b_unary(b, TNX_OP_TANH, tnx_b_unary(b, TNX_OP_LOG1P, tnx_b_unary(b, TNX_OP_EXP, x)))));
}

tnx_status lower_log_sigmoid(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  tnx_value z = tnx_b_unary(b, TNX_OP_EXP, neg(b, tnx_b_unary(b, TNX_OP_ABS, x)));
  tnx_value y = sub(b, tnx_b_binary_f(b, TNX_OP_MIN, x, 0), tnx_b_unary(b, TNX_OP_LOG1P, z));
  return give2(l, results, tnx_b_convert(b, y, t), tnx_b_convert(b, z, t));
}

tnx_status lower_threshold(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  tnx_value x = a[0].value;
  return give(l, results, tnx_b_select(b, tnx_b_binary(b, TNX_OP_LE, x, lower_stored_number(b, a + 1, t)), lower_stored_number(b, a + 2, t), x));
}

tnx_status lower_hardshrink(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  double lambd = arg_number(a + 1, 0.5);
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GE, x, -lambd), compare_f(b, TNX_OP_LE, x, lambd));
  return RESULT(tnx_b_select(b, inside, tnx_b_const_f(b, tnx_acc_of(t), 0), x));
}

tnx_status lower_softshrink(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  double lambd = arg_number(a + 1, 0.5);
  tnx_value low = tnx_b_select(b, compare_f(b, TNX_OP_LT, x, -lambd), add_f(b, x, lambd), mul_f(b, x, 0));
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, x, lambd), add_f(b, x, -lambd), low));
}

tnx_status lower_prelu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, x, 0), x, mul(b, x, to_acc(b, a[1].value))));
}

tnx_status lower_glu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ACTIVATION(x);
  int dim = tnx_b_wrap_dim(b, a[1].dim, tnx_b_rank(b, x));
  if (b->status != TNX_OK) return b->status;
  tnx_dim size = tnx_b_size(b, x, dim);
  if (tnx_dim_is_symbolic(size)) return uncovered(l, "symbolic size");
  if (size % 2) return tnx_fail(TNX_SHAPE, "Halving dimension must be even");
  tnx_value left = tnx_b_slice(b, x, dim, 0, size / 2, 1), right = tnx_b_slice(b, x, dim, size / 2, size / 2, 1);
  return RESULT(mul(b, left, tnx_b_unary(b, TNX_OP_SIGMOID, right)));
}

tnx_status lower_logit(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value));
  if (!tnx_dtype_is_float(t)) return uncovered(l, "complex");
  tnx_value x = tnx_b_convert(b, a[0].value, tnx_acc_of(t));
  double eps = arg_number(a + 1, -1);
  if (eps >= 0) x = tnx_b_binary_f(b, TNX_OP_MIN, tnx_b_binary_f(b, TNX_OP_MAX, x, eps), 1 - eps);
  return RESULT(tnx_b_unary(b, TNX_OP_LOG, divide(b, x, rsub_f(b, 1, x))));
}

/* ---- gradients ---- */

/* dy * (mask ? slope : other), everything in the computation dtype. */
static tnx_value grad_of(tnx_lower *l, const tnx_arg *dy, tnx_dtype *t) {
  *t = tnx_b_dtype(&l->b, dy->value);
  return tnx_dtype_is_float(*t) ? to_acc(&l->b, dy->value) : 0;
}
#define GRADIENT(dy, x)                                        \
  tnx_builder *b = &l->b;                                      \
  tnx_dtype t;                                                 \
  tnx_value dy = grad_of(l, a, &t), x = to_acc(b, a[1].value); \
  if (!(dy) || !(x) || tnx_b_dtype(b, x) != tnx_b_dtype(b, dy)) return uncovered(l, "dtype")

static tnx_value both(tnx_builder *b, tnx_value x, tnx_value y) { return tnx_b_binary(b, TNX_OP_AND, x, y); }

tnx_status lower_threshold_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value all[2] = {a[0].value, a[1].value};
  tnx_dtype t = tnx_b_result_type(b, all, 2);
  tnx_value x = tnx_b_convert(b, a[1].value, t);
  return give(l, results, tnx_b_select(b, tnx_b_binary(b, TNX_OP_LE, x, tnx_b_scalar(b, a + 2, t)), tnx_b_const_f(b, t, 0), tnx_b_convert(b, a[0].value, t)));
}

tnx_status lower_sigmoid_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, y);
  return RESULT(mul(b, dy, mul(b, rsub_f(b, 1, y), y)));
}

tnx_status lower_tanh_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, y);
  return RESULT(mul(b, dy, rsub_f(b, 1, mul(b, y, y))));
}

tnx_status lower_silu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value s = tnx_b_unary(b, TNX_OP_SIGMOID, x);
  return RESULT(mul(b, mul(b, dy, s), add_f(b, mul(b, x, rsub_f(b, 1, s)), 1)));
}

tnx_status lower_gelu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  if (arg_is(a + 2, "tanh")) {
    const double beta = 0.79788456080286535588, kappa = 0.044715;
    tnx_value sq = mul(b, x, x), inner = mul_f(b, add(b, x, mul_f(b, mul(b, sq, x), kappa)), beta), th = tnx_b_unary(b, TNX_OP_TANH, inner);
    tnx_value left = mul_f(b, add_f(b, th, 1), 0.5), dinner = mul_f(b, add_f(b, mul_f(b, sq, 3 * kappa), 1), beta);
    tnx_value right = mul(b, mul_f(b, x, 0.5), mul(b, rsub_f(b, 1, mul(b, th, th)), dinner));
    return RESULT(mul(b, dy, add(b, left, right)));
  }
  tnx_value cdf = mul_f(b, add_f(b, tnx_b_unary(b, TNX_OP_ERF, mul_f(b, x, 0.70710678118654752440)), 1), 0.5);
  tnx_value pdf = mul_f(b, tnx_b_unary(b, TNX_OP_EXP, mul_f(b, mul(b, x, x), -0.5)), 0.39894228040143267794);
  return RESULT(mul(b, dy, add(b, cdf, mul(b, x, pdf))));
}

tnx_status lower_hardtanh_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value inside = both(b, compare_f(b, TNX_OP_GT, x, arg_number(a + 2, -1)), compare_f(b, TNX_OP_LT, x, arg_number(a + 3, 1)));
  return RESULT(select_f(b, inside, dy, 0));
}

tnx_status lower_hardsigmoid_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  return RESULT(select_f(b, both(b, compare_f(b, TNX_OP_GT, x, -3), compare_f(b, TNX_OP_LT, x, 3)), mul_f(b, dy, 1.0 / 6), 0));
}

tnx_status lower_hardswish_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value middle = mul(b, dy, add_f(b, mul_f(b, x, 1.0 / 3), 0.5));
  tnx_value r = tnx_b_select(b, compare_f(b, TNX_OP_LT, x, 3), middle, dy);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_LE, x, -3), tnx_b_const_f(b, tnx_acc_of(t), 0), r));
}

tnx_status lower_leaky_relu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, x, 0), dy, mul_f(b, dy, arg_number(a + 2, 0.01))));
}

/* (grad, alpha, scale, input_scale, is_result, self or result) */
tnx_status lower_elu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t;
  tnx_value dy = grad_of(l, a, &t), x = to_acc(b, a[5].value);
  if (!dy || !x) return uncovered(l, "dtype");
  double alpha = arg_number(a + 1, 1), scale = arg_number(a + 2, 1), input_scale = arg_number(a + 3, 1);
  tnx_value low = arg_bool(a + 4) ? mul_f(b, add_f(b, x, alpha * scale), input_scale) : mul_f(b, tnx_b_unary(b, TNX_OP_EXP, mul_f(b, x, input_scale)), input_scale * alpha * scale);
  return RESULT(mul(b, dy, tnx_b_select(b, compare_f(b, TNX_OP_LE, x, 0), low, full_like_f(b, x, tnx_acc_of(t), scale))));
}

tnx_status lower_softplus_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value scaled = mul_f(b, x, arg_number(a + 2, 1)), z = tnx_b_unary(b, TNX_OP_EXP, scaled);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_GT, scaled, arg_number(a + 3, 20)), dy, divide(b, mul(b, dy, z), add_f(b, z, 1))));
}

tnx_status lower_mish_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value s = tnx_b_unary(b, TNX_OP_SIGMOID, x), th = tnx_b_unary(b, TNX_OP_TANH, tnx_b_unary(b, TNX_OP_LOG1P, tnx_b_unary(b, TNX_OP_EXP, x)));
  return RESULT(mul(b, dy, add(b, th, mul(b, mul(b, x, s), rsub_f(b, 1, mul(b, th, th))))));
}

/* d log(sigmoid(x)) = 1 - sigmoid(x), from z = exp(-|x|) */
tnx_status lower_log_sigmoid_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_dtype acc = tnx_acc_of(t);
  tnx_value z = tnx_b_unary(b, TNX_OP_EXP, neg(b, tnx_b_unary(b, TNX_OP_ABS, x))), negative = compare_f(b, TNX_OP_LT, x, 0);
  tnx_value limit = tnx_b_select(b, negative, tnx_b_const_f(b, acc, 1), tnx_b_const_f(b, acc, 0)), sign = tnx_b_select(b, negative, tnx_b_const_f(b, acc, 1), tnx_b_const_f(b, acc, -1));
  return RESULT(mul(b, dy, sub(b, limit, mul(b, sign, divide(b, z, add_f(b, z, 1))))));
}

tnx_status lower_logit_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  double eps = arg_number(a + 2, -1);
  tnx_value g = divide(b, dy, mul(b, x, rsub_f(b, 1, x))), low = compare_f(b, TNX_OP_LT, x, eps < 0 ? 0 : eps), high = compare_f(b, TNX_OP_GT, x, eps < 0 ? 1 : 1 - eps);
  return RESULT(tnx_b_select(b, tnx_b_binary(b, TNX_OP_OR, low, high), tnx_b_const_f(b, tnx_acc_of(t), eps < 0 ? NAN : 0), g));
}

tnx_status lower_glu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  int dim = tnx_b_wrap_dim(b, a[2].dim, tnx_b_rank(b, x));
  if (b->status != TNX_OK) return b->status;
  tnx_dim size = tnx_b_size(b, x, dim);
  if (tnx_dim_is_symbolic(size) || size % 2) return uncovered(l, "size");
  tnx_value left = tnx_b_slice(b, x, dim, 0, size / 2, 1), s = tnx_b_unary(b, TNX_OP_SIGMOID, tnx_b_slice(b, x, dim, size / 2, size / 2, 1));
  tnx_value g = mul(b, dy, s), parts[2] = {g, mul(b, mul(b, g, left), rsub_f(b, 1, s))};
  return RESULT(b->status == TNX_OK ? tnx_b_concat(b, parts, 2, dim) : 0);
}

/* (grad, self, weight): gradients of self and of every weight element, summed by the caller */
tnx_status lower_prelu_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  tnx_value w = to_acc(b, a[2].value), positive = compare_f(b, TNX_OP_GT, x, 0);
  tnx_value dx = tnx_b_select(b, positive, dy, mul(b, dy, w)), dw = tnx_b_select(b, positive, tnx_b_const_f(b, tnx_acc_of(t), 0), mul(b, dy, x));
  return give2(l, results, tnx_b_convert(b, dx, t), tnx_b_convert(b, dw, t));
}

/* Hard and soft shrink pass the gradient where the operand is outside [-lambda, lambda]. */
tnx_status lower_shrink_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  GRADIENT(dy, x);
  double lambd = arg_number(a + 2, 0.5);
  tnx_value inside = both(b, compare_f(b, TNX_OP_GE, x, -lambd), compare_f(b, TNX_OP_LE, x, lambd));
  return RESULT(tnx_b_select(b, inside, tnx_b_const_f(b, tnx_acc_of(t), 0), dy));
}
