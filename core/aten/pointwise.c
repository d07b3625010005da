/* Elementwise operators: arithmetic, comparisons, choices, complex numbers. Rows that are one operator of the graph are made by the macros of aten.def. */
#include "aten/family.h"

/* ---- one operand ---- */

static bool takes_complex(tnx_op op) {
  switch (op) {
    case TNX_OP_NEG: case TNX_OP_ABS: case TNX_OP_SQRT: case TNX_OP_EXP: case TNX_OP_LOG: case TNX_OP_SIN: case TNX_OP_COS: case TNX_OP_TANH:
    case TNX_OP_TAN: case TNX_OP_ASIN: case TNX_OP_ACOS: case TNX_OP_ATAN: case TNX_OP_SINH: case TNX_OP_COSH: case TNX_OP_ASINH: case TNX_OP_ACOSH: case TNX_OP_ATANH: case TNX_OP_EXPM1: case TNX_OP_LOG1P:
    case TNX_OP_CONJ: return true;
    default: return false;
  }
}

/* Functions of complex numbers by those there are; 0 for the others. */
static tnx_value complex_form(tnx_builder *b, tnx_op op, tnx_value x) {
  tnx_value one = tnx_b_const_f(b, tnx_b_dtype(b, x), 1);
  switch (op) {
    case TNX_OP_RSQRT: return divide(b, one, tnx_b_unary(b, TNX_OP_SQRT, x));
    case TNX_OP_SIGMOID: return divide(b, one, add_f(b, tnx_b_unary(b, TNX_OP_EXP, neg(b, x)), 1));
    case TNX_OP_EXP2: return tnx_b_unary(b, TNX_OP_EXP, mul_f(b, x, 0.69314718055994530942));
    case TNX_OP_LOG2: return mul_f(b, tnx_b_unary(b, TNX_OP_LOG, x), 1.44269504088896340736);
    case TNX_OP_LOG10: return mul_f(b, tnx_b_unary(b, TNX_OP_LOG, x), 0.43429448190325182765);
    default: return 0;
  }
}

/* Integers become the default float. */
static tnx_status unary_float(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (tnx_dtype_is_complex(tnx_b_dtype(b, x)) && !takes_complex(op)) {
    tnx_value r = complex_form(b, op, x);
    return r || b->status != TNX_OK ? give(l, results, r) : uncovered(l, "complex");
  }
  return give(l, results, tnx_b_unary(b, op, tnx_b_convert(b, x, tnx_float_of(tnx_b_dtype(b, x)))));
}

/* The dtype stays. bool: the operand itself where the operator is the identity on 0 and 1. */
static tnx_status unary_same(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (tnx_dtype_is_complex(t) && !takes_complex(op)) return uncovered(l, "complex");
  if (t == TNX_BOOL) {
    if (op == TNX_OP_NEG) return tnx_fail(TNX_INVALID_ARGUMENT, "negative of a bool tensor");
    if (op != TNX_OP_SIGN && op != TNX_OP_ABS) return uncovered(l, "bool");
    return give(l, results, a[0].value);
  }
  bool integral = tnx_dtype_is_integral(t);
  if (integral && (op == TNX_OP_CEIL || op == TNX_OP_FLOOR || op == TNX_OP_TRUNC || op == TNX_OP_ROUND)) return give(l, results, a[0].value);
  if (op == TNX_OP_ABS && tnx_dtype_get_kind(t) == TNX_KIND_UINT) return give(l, results, a[0].value);
  return give(l, results, tnx_b_unary(b, op, a[0].value));
}

/* ---- two operands: a tensor or a number each ---- */

typedef struct operands { tnx_value x, y; tnx_dtype t; } operands;

static operands promoted(tnx_builder *b, const tnx_arg *x, const tnx_arg *y) {
  operands o = {0, 0, promote_args(b, x, y)};
  o.x = tnx_b_scalar(b, x, o.t);
  o.y = tnx_b_scalar(b, y, o.t);
  return o;
}

static operands as_dtype(tnx_builder *b, const tnx_arg *x, const tnx_arg *y, tnx_dtype t) { return (operands){tnx_b_scalar(b, x, t), tnx_b_scalar(b, y, t), t}; }

/* The quotient or the rest of integers, which PyTorch's CPU kernels refuse to take by zero. */
static tnx_value divided(tnx_builder *b, tnx_op op, operands o) {
  if (o.t != TNX_BOOL && tnx_dtype_is_integral(o.t)) {
    o.y = tnx_b_check(b, o.y, compare_f(b, TNX_OP_NE, o.y, 0), TNX_FAULT_ZERO_DIVISION);
  }
  return tnx_b_binary(b, op, o.x, o.y);
}

static tnx_status binary_same(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  operands o = promoted(&l->b, a, a + 1);
  if (tnx_dtype_is_complex(o.t)) return uncovered(l, "complex");
  if (o.t == TNX_BOOL && op != TNX_OP_MAX && op != TNX_OP_MIN) return uncovered(l, "bool");
  bool divides = op == TNX_OP_FMOD || op == TNX_OP_REMAINDER || op == TNX_OP_FLOORDIV;
  return give(l, results, divides ? divided(&l->b, op, o) : tnx_b_binary(&l->b, op, o.x, o.y));
}

static tnx_status binary_float(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  tnx_dtype t = tnx_float_of(promote_args(&l->b, a, a + 1));
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  operands o = as_dtype(&l->b, a, a + 1, t);
  return give(l, results, tnx_b_binary(&l->b, op, o.x, o.y));
}

/* Floats only. */
static tnx_status binary_real(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  operands o = promoted(&l->b, a, a + 1);
  if (!tnx_dtype_is_float(o.t)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_binary(&l->b, op, o.x, o.y));
}

static tnx_status bitwise(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  operands o = promoted(&l->b, a, a + 1);
  bool shift = op == TNX_OP_SHL || op == TNX_OP_SHR;
  if (!tnx_dtype_is_integral(o.t) || (shift && o.t == TNX_BOOL)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_binary(&l->b, op, o.x, o.y));
}

static tnx_status compare(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  operands o = promoted(&l->b, a, a + 1);
  if (tnx_dtype_is_complex(o.t) && op != TNX_OP_EQ && op != TNX_OP_NE) return uncovered(l, "complex");
  return give(l, results, tnx_b_binary(&l->b, op, o.x, o.y));
}

static tnx_status logical(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  operands o = as_dtype(&l->b, a, a + 1, TNX_BOOL);
  return give(l, results, tnx_b_binary(&l->b, op, o.x, o.y));
}

#define ATEN(functional, inplace, out, fn, flags)
#define ONE(kind, fn, op) \
  tnx_status lower_##kind##_##op(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return fn(l, a, results, TNX_OP_##op); }
#define UNARY_FLOAT(functional, inplace, out, op) ONE(float, unary_float, op)
#define UNARY_SAME(functional, inplace, out, op) ONE(same, unary_same, op)
#define BINARY_SAME(functional, inplace, out, op) ONE(same, binary_same, op)
#define BINARY_FLOAT(functional, inplace, out, op) ONE(float, binary_float, op)
#define BINARY_REAL(functional, inplace, out, op) ONE(real, binary_real, op)
#define LOGICAL(functional, inplace, out, op) ONE(logical, logical, op)
#include "aten/aten.def"
#undef ATEN
ONE(bitwise, bitwise, AND) ONE(bitwise, bitwise, OR) ONE(bitwise, bitwise, XOR) ONE(bitwise, bitwise, SHL) ONE(bitwise, bitwise, SHR)
ONE(compare, compare, EQ) ONE(compare, compare, NE) ONE(compare, compare, LT) ONE(compare, compare, LE) ONE(compare, compare, GT) ONE(compare, compare, GE)
#undef ONE

/* Integers have no NaN to skip. */
static tnx_status fmax_fmin(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op, tnx_op integral) {
  return binary_same(l, a, results, tnx_dtype_is_integral(promote_args(&l->b, a, a + 1)) ? integral : op);
}
tnx_status lower_fmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return fmax_fmin(l, a, results, TNX_OP_FMAX, TNX_OP_MAX); }
tnx_status lower_fmin(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return fmax_fmin(l, a, results, TNX_OP_FMIN, TNX_OP_MIN); }

/* ---- arithmetic ---- */

static bool is_bool(const tnx_builder *b, const tnx_arg *a) { return a->kind == TNX_ARG_BOOL || (arg_value(a) && tnx_b_dtype(b, a->value) == TNX_BOOL); }

/* at::native::alpha_check */
static tnx_status check_alpha(const tnx_builder *b, tnx_dtype t, const tnx_arg *alpha) {
  if (alpha->kind == TNX_ARG_BOOL && t != TNX_BOOL) return tnx_fail(TNX_INVALID_ARGUMENT, "Boolean alpha only supported for Boolean results.");
  if (tnx_dtype_is_integral(t) && (arg_is_fraction(b, alpha) || alpha->kind == TNX_ARG_COMPLEX))
    return tnx_fail(TNX_INVALID_ARGUMENT, "For integral input tensors, argument alpha must not be a floating point number.");
  if (alpha->kind == TNX_ARG_COMPLEX && !tnx_dtype_is_complex(t))
    return tnx_fail(TNX_INVALID_ARGUMENT, "For non-complex input tensors, argument alpha must not be a complex number.");
  return TNX_OK;
}

/* x + alpha * y. Halves with alpha are computed in float32 and rounded once. */
static tnx_status add_scaled(tnx_lower *l, const tnx_arg *x, const tnx_arg *y, const tnx_arg *alpha, bool minus, tnx_value *results) {
  tnx_builder *b = &l->b;
  operands o = promoted(b, x, y);
  bool unscaled = arg_none(alpha) || arg_equals(alpha, 1);
  if (minus && is_bool(b, x) && is_bool(b, y))
    return tnx_fail(TNX_INVALID_ARGUMENT, "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
  if (minus && (is_bool(b, x) || is_bool(b, y)))
    return tnx_fail(TNX_INVALID_ARGUMENT, "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
  TNX_TRY(check_alpha(b, o.t, alpha));
  if (o.t == TNX_BOOL) {
    return give(l, results, tnx_b_binary(b, TNX_OP_OR, o.x, unscaled || arg_number(alpha, 1) != 0 ? o.y : full_like_f(b, o.y, TNX_BOOL, 0)));
  }
  tnx_op op = minus ? TNX_OP_SUB : TNX_OP_ADD;
  if (unscaled) return give(l, results, tnx_b_binary(b, op, o.x, o.y));
  tnx_dtype acc = tnx_acc_of(o.t);
  tnx_value scaled = mul(b, tnx_b_convert(b, o.y, acc), tnx_b_scalar(b, alpha, acc));
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, op, tnx_b_convert(b, o.x, acc), scaled), o.t));
}

tnx_status lower_add(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return add_scaled(l, a, a + 1, a + 2, false, results); }
tnx_status lower_sub(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return add_scaled(l, a, a + 1, a + 2, true, results); }
tnx_status lower_rsub(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return add_scaled(l, a + 1, a, a + 2, true, results); }

/* mul and div of a half tensor by a 0-dim one take its value unrounded, as PyTorch's kernels do. */
static tnx_value half_by_number(tnx_builder *b, tnx_op op, const tnx_arg *a, tnx_dtype t) {
  tnx_value y = arg_value(a + 1);
  if (!is_half(t) || (y && tnx_b_rank(b, y) != 0)) return 0;
  operands o = as_dtype(b, a, a + 1, TNX_F32);
  return tnx_b_convert(b, tnx_b_binary(b, op, o.x, o.y), t);
}

tnx_status lower_mul(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = promote_args(b, a, a + 1);
  tnx_value half = half_by_number(b, TNX_OP_MUL, a, t);
  if (half) return give(l, results, half);
  operands o = as_dtype(b, a, a + 1, t);
  return give(l, results, tnx_b_binary(b, t == TNX_BOOL ? TNX_OP_AND : TNX_OP_MUL, o.x, o.y));
}

tnx_status lower_div(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = promote_args(b, a, a + 1);
  if (tnx_dtype_is_integral(t)) t = b->default_dtype;
  tnx_value half = half_by_number(b, TNX_OP_DIV, a, t);
  if (half) return give(l, results, half);
  operands o = as_dtype(b, a, a + 1, t);
  return give(l, results, divide(b, o.x, o.y));
}

tnx_status lower_div_mode(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (arg_none(a + 2)) return lower_div(l, a, results);
  tnx_builder *b = &l->b;
  operands o = promoted(b, a, a + 1);
  if (o.t == TNX_BOOL || tnx_dtype_is_complex(o.t)) return uncovered(l, "dtype");
  if (arg_is(a + 2, "floor")) return give(l, results, divided(b, TNX_OP_FLOORDIV, o));
  if (!arg_is(a + 2, "trunc")) return tnx_fail(TNX_INVALID_ARGUMENT, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'", a[2].string);
  if (tnx_dtype_is_integral(o.t)) return give(l, results, divided(b, TNX_OP_DIV, o));
  /* the quotient of halves is rounded before it is truncated, as PyTorch does */
  tnx_value q = tnx_b_convert(b, divide(b, to_acc(b, o.x), to_acc(b, o.y)), o.t);
  return give(l, results, tnx_b_convert(b, tnx_b_unary(b, TNX_OP_TRUNC, to_acc(b, q)), o.t));
}

/* Integers only to powers >= 0; the common exponents without pow, as PyTorch does. */
tnx_status lower_pow_tensor_scalar(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  operands o = promoted(b, a, a + 1);
  if (o.t == TNX_BOOL) return uncovered(l, "bool");
  bool integral = tnx_dtype_is_integral(o.t);
  if (integral && arg_number(a + 1, 0) < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "Integers to negative integer powers are not allowed.");
  if (arg_equals(a + 1, 0)) return give(l, results, full_like_f(b, o.x, o.t, 1));
  if (arg_equals(a + 1, 1)) return give(l, results, o.x);
  if (arg_equals(a + 1, 2)) return give(l, results, mul(b, o.x, o.x));
  if (arg_equals(a + 1, 3)) return give(l, results, mul(b, mul(b, o.x, o.x), o.x));
  if (!integral && !tnx_dtype_is_complex(o.t)) {
    if (arg_equals(a + 1, 0.5)) return give(l, results, tnx_b_unary(b, TNX_OP_SQRT, o.x));
    if (arg_equals(a + 1, -0.5)) return give(l, results, tnx_b_unary(b, TNX_OP_RSQRT, o.x));
    if (arg_equals(a + 1, -1)) return give(l, results, divide(b, tnx_b_const_f(b, o.t, 1), o.x));
    if (arg_equals(a + 1, -2)) return give(l, results, divide(b, tnx_b_const_f(b, o.t, 1), mul(b, o.x, o.x)));
  }
  return give(l, results, tnx_b_binary(b, TNX_OP_POW, o.x, o.y));
}

tnx_status lower_pow(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  operands o = promoted(&l->b, a, a + 1);
  if (o.t == TNX_BOOL) return uncovered(l, "bool");
  if (a[0].kind != TNX_ARG_TENSOR && arg_equals(a, 1)) return give(l, results, full_like_f(&l->b, o.y, o.t, 1));
  return give(l, results, tnx_b_binary(&l->b, TNX_OP_POW, o.x, o.y));
}

tnx_status lower_float_power(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dtype t = tnx_dtype_is_complex(promote_args(&l->b, a, a + 1)) ? TNX_C128 : TNX_F64;
  operands o = as_dtype(&l->b, a, a + 1, t);
  return give(l, results, tnx_b_binary(&l->b, TNX_OP_POW, o.x, o.y));
}

tnx_status lower_reciprocal(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value));
  return give(l, results, divide(b, tnx_b_const_f(b, t, 1), tnx_b_convert(b, a[0].value, t)));
}

tnx_status lower_square(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (tnx_b_dtype(&l->b, a[0].value) == TNX_BOOL) return uncovered(l, "bool");
  return give(l, results, mul(&l->b, a[0].value, a[0].value));
}

tnx_status lower_frac(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!tnx_dtype_is_float(tnx_b_dtype(&l->b, a[0].value))) return uncovered(l, "dtype");
  return give(l, results, sub(&l->b, a[0].value, tnx_b_unary(&l->b, TNX_OP_TRUNC, a[0].value)));
}

tnx_status lower_round_decimals(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  int64_t decimals = a[1].dim;
  double ten = pow(10, (double)(decimals < 0 ? -decimals : decimals));
  tnx_value x = to_acc(b, a[0].value);
  tnx_value r = tnx_b_unary(b, TNX_OP_ROUND, tnx_b_binary_f(b, decimals < 0 ? TNX_OP_DIV : TNX_OP_MUL, x, ten));
  return give(l, results, tnx_b_convert(b, tnx_b_binary_f(b, decimals < 0 ? TNX_OP_MUL : TNX_OP_DIV, r, ten), t));
}

/* ---- predicates ---- */

tnx_status lower_logical_not(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, tnx_b_unary(&l->b, TNX_OP_NOT, tnx_b_convert(&l->b, a[0].value, TNX_BOOL)));
}

tnx_status lower_bitwise_not(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!tnx_dtype_is_integral(tnx_b_dtype(&l->b, a[0].value))) return uncovered(l, "dtype");
  return give(l, results, tnx_b_unary(&l->b, TNX_OP_NOT, a[0].value));
}

tnx_status lower_isnan(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, tnx_b_unary(&l->b, TNX_OP_ISNAN, a[0].value)); }
tnx_status lower_isfinite(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, tnx_b_unary(&l->b, TNX_OP_ISFINITE, a[0].value)); }

static tnx_value equals_inf(tnx_builder *b, tnx_value x, double inf) {
  if (tnx_dtype_is_integral(tnx_b_dtype(b, x))) return full_like_f(b, x, TNX_BOOL, 0);
  return compare_f(b, TNX_OP_EQ, x, inf);
}

tnx_status lower_isinf(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!tnx_dtype_is_complex(tnx_b_dtype(b, a[0].value))) return give(l, results, equals_inf(b, tnx_dtype_is_integral(tnx_b_dtype(b, a[0].value)) ? a[0].value : tnx_b_unary(b, TNX_OP_ABS, a[0].value), INFINITY));
  tnx_value re = tnx_b_unary(b, TNX_OP_ABS, tnx_b_unary(b, TNX_OP_REAL, a[0].value)), im = tnx_b_unary(b, TNX_OP_ABS, tnx_b_unary(b, TNX_OP_IMAG, a[0].value));
  return give(l, results, tnx_b_binary(b, TNX_OP_OR, compare_f(b, TNX_OP_EQ, re, INFINITY), compare_f(b, TNX_OP_EQ, im, INFINITY)));
}

tnx_status lower_isposinf(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, equals_inf(&l->b, a[0].value, INFINITY)); }
tnx_status lower_isneginf(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, equals_inf(&l->b, a[0].value, -INFINITY)); }

tnx_status lower_signbit(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (t == TNX_BOOL) return give(l, results, full_like_f(b, x, TNX_BOOL, 0));
  if (tnx_dtype_is_float(t)) x = tnx_b_binary(b, TNX_OP_COPYSIGN, tnx_b_const_f(b, t, 1), x);
  return give(l, results, compare_f(b, TNX_OP_LT, x, 0));
}

/* ---- choices ---- */

tnx_status lower_where(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  operands o = promoted(b, a + 1, a + 2);
  return give(l, results, tnx_b_select(b, tnx_b_convert(b, a[0].value, TNX_BOOL), o.x, o.y));
}

tnx_status lower_where_numbers(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = promote_number(b, tnx_b_scalar_dtype(a + 1), a + 2);
  operands o = as_dtype(b, a + 1, a + 2, t == TNX_F32 ? b->default_dtype : t);
  return give(l, results, tnx_b_select(b, a[0].value, o.x, o.y));
}

/* The result has self's dtype. */
tnx_status lower_masked_fill(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value fill = lower_stored_number(b, a + 2, tnx_b_dtype(b, a[0].value));
  if (fill && tnx_b_rank(b, fill) != 0) return tnx_fail(TNX_SHAPE, "masked_fill_ only supports a 0-dimensional value tensor");
  l->memory_format = TNX_FORMAT_CONTIGUOUS; /* PyTorch fills a contiguous copy */
  return give(l, results, tnx_b_select(b, tnx_b_convert(b, a[1].value, TNX_BOOL), fill, a[0].value));
}

static tnx_status clamp(tnx_lower *l, const tnx_arg *x, const tnx_arg *low, const tnx_arg *high, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value all[3] = {x->value, low ? arg_value(low) : 0, high ? arg_value(high) : 0};
  tnx_dtype t = tnx_b_result_type(b, all, 3);
  if (low && !arg_value(low)) t = promote_number(b, t, low);
  if (high && !arg_value(high)) t = promote_number(b, t, high);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  tnx_value v = tnx_b_convert(b, x->value, t);
  bool any = false;
  if (low && !arg_none(low)) v = tnx_b_binary(b, TNX_OP_MAX, v, lower_stored_number(b, low, t)), any = true;
  if (high && !arg_none(high)) v = tnx_b_binary(b, TNX_OP_MIN, v, lower_stored_number(b, high, t)), any = true;
  if (!any) return tnx_fail(TNX_INVALID_ARGUMENT, "torch.clamp: At least one of 'min' or 'max' must not be None");
  return give(l, results, v);
}

tnx_status lower_clamp(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return clamp(l, a, a + 1, a + 2, results); }
tnx_status lower_clamp_min(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return clamp(l, a, a + 1, NULL, results); }
tnx_status lower_clamp_max(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return clamp(l, a, NULL, a + 1, results); }

static void finite_range(tnx_dtype t, double *max) {
  *max = t == TNX_F16 ? 65504.0 : t == TNX_BF16 ? 0x1.fep127 : t == TNX_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
}

tnx_status lower_nan_to_num(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (tnx_dtype_is_integral(t)) return give(l, results, x);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  double max;
  finite_range(t, &max);
  tnx_value pos = tnx_b_const_f(b, t, arg_number(a + 2, max)), low = tnx_b_const_f(b, t, arg_number(a + 3, -max)), nan = tnx_b_const_f(b, t, arg_number(a + 1, 0));
  tnx_value r = tnx_b_select(b, compare_f(b, TNX_OP_EQ, x, INFINITY), pos, x);
  r = tnx_b_select(b, compare_f(b, TNX_OP_EQ, x, -INFINITY), low, r);
  return give(l, results, tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, x), nan, r));
}

tnx_status lower_heaviside(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_dtype(b, a[0].value) != tnx_b_dtype(b, a[1].value)) return uncovered(l, "mixed dtypes");
  tnx_value x = a[0].value, above = tnx_b_convert(b, compare_f(b, TNX_OP_GT, x, 0), tnx_b_dtype(b, x));
  return give(l, results, tnx_b_select(b, compare_f(b, TNX_OP_EQ, x, 0), a[1].value, above));
}

/* ---- three operands ---- */

/* self + value * t1 (* or /) t2, computed in float32 for halves. */
static tnx_status addc(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op op) {
  tnx_builder *b = &l->b;
  tnx_value all[3] = {a[0].value, a[1].value, a[2].value};
  tnx_dtype t = tnx_b_result_type(b, all, 3), acc = tnx_acc_of(t);
  if (tnx_dtype_is_integral(t) && (op == TNX_OP_DIV || arg_is_fraction(b, a + 3) || t == TNX_BOOL)) return uncovered(l, "integers");
  tnx_value x = tnx_b_convert(b, all[0], acc), y = tnx_b_convert(b, all[1], acc), z = tnx_b_convert(b, all[2], acc);
  tnx_value scaled = arg_equals(a + 3, 1) ? y : mul(b, y, tnx_b_scalar(b, a + 3, acc));
  return give(l, results, tnx_b_convert(b, add(b, x, tnx_b_binary(b, op, scaled, z)), t));
}

tnx_status lower_addcmul(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return addc(l, a, results, TNX_OP_MUL); }
tnx_status lower_addcdiv(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return addc(l, a, results, TNX_OP_DIV); }

/* Exact at both ends: from whichever end is nearer. */
tnx_status lower_lerp(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  if (t != tnx_b_dtype(b, a[1].value) || (arg_value(a + 2) && !arg_by_value(b, a + 2) && t != tnx_b_dtype(b, a[2].value))) return tnx_fail(TNX_DTYPE, "lerp of different dtypes");
  if (tnx_dtype_is_integral(t)) return uncovered(l, "dtype");
  tnx_value x = tnx_b_convert(b, a[0].value, acc), end = tnx_b_convert(b, a[1].value, acc), w = tnx_b_scalar(b, a + 2, acc);
  tnx_value near_start = compare_f(b, TNX_OP_LT, tnx_b_unary(b, TNX_OP_ABS, w), 0.5);
  tnx_value nearer = tnx_b_select(b, near_start, x, end), part = tnx_b_select(b, near_start, w, add_f(b, w, -1));
  return give(l, results, tnx_b_convert(b, add(b, nearer, mul(b, sub(b, end, x), part)), t));
}

#define RESULT(v) give(l, results, tnx_b_convert(b, (v), t))

/* ---- further functions ---- */

/* x * log(y), 0 where x is 0 and y is not NaN. */
static tnx_status xlog(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_op log) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(promote_args(b, a, a + 1)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  operands o = as_dtype(b, a, a + 1, acc);
  tnx_value zero = tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_EQ, o.x, 0), tnx_b_unary(b, TNX_OP_NOT, tnx_b_unary(b, TNX_OP_ISNAN, o.y)));
  return RESULT(tnx_b_select(b, zero, tnx_b_const_f(b, acc, 0), mul(b, o.x, tnx_b_unary(b, log, o.y))));
}
tnx_status lower_xlogy(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return xlog(l, a, results, TNX_OP_LOG); }
tnx_status lower_xlog1py(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return xlog(l, a, results, TNX_OP_LOG1P); }

/* Complex log(exp(x) + exp(y)): the one of the larger real part plus log1p(exp(difference)). Where both real parts are infinite: either of two
 * -inf; of two +inf the direction of the sum of infinite vectors. */
tnx_value lower_logaddexp_of(tnx_builder *b, tnx_value x, tnx_value y) {
  tnx_value xr = tnx_b_unary(b, TNX_OP_REAL, x), yr = tnx_b_unary(b, TNX_OP_REAL, y), less = tnx_b_binary(b, TNX_OP_LT, xr, yr);
  tnx_value low = tnx_b_select(b, less, x, y), high = tnx_b_select(b, less, y, x), d = sub(b, low, high);
  tnx_value size = tnx_b_unary(b, TNX_OP_EXP, tnx_b_unary(b, TNX_OP_REAL, d)), angle = tnx_b_unary(b, TNX_OP_IMAG, d);
  tnx_value re = mul(b, size, tnx_b_unary(b, TNX_OP_COS, angle)), im = mul(b, size, tnx_b_unary(b, TNX_OP_SIN, angle));
  tnx_value norm = add(b, mul(b, re, add_f(b, re, 2)), mul(b, im, im)); /* |1 + z|^2 - 1 */
  tnx_value sum = add(b, high, tnx_b_binary(b, TNX_OP_COMPLEX, mul_f(b, tnx_b_unary(b, TNX_OP_LOG1P, norm), 0.5), tnx_b_binary(b, TNX_OP_ATAN2, im, add_f(b, re, 1))));
  tnx_value far[2];
  for (int i = 0; i < 2; i++) {
    tnx_value phase = tnx_b_unary(b, TNX_OP_IMAG, i ? y : x), cosine = tnx_b_unary(b, TNX_OP_COS, phase), sine = tnx_b_unary(b, TNX_OP_SIN, phase);
    tnx_value at_x = select_f(b, compare_f(b, TNX_OP_NE, cosine, 0), mul_f(b, cosine, INFINITY), 0), at_y = select_f(b, compare_f(b, TNX_OP_NE, sine, 0), mul_f(b, sine, INFINITY), 0);
    far[i] = tnx_b_binary(b, TNX_OP_COMPLEX, at_x, at_y);
  }
  tnx_value equal = tnx_b_binary(b, TNX_OP_EQ, xr, yr);
  sum = tnx_b_select(b, tnx_b_binary(b, TNX_OP_AND, equal, compare_f(b, TNX_OP_EQ, xr, INFINITY)), tnx_b_unary(b, TNX_OP_LOG, add(b, far[0], far[1])), sum);
  sum = tnx_b_select(b, tnx_b_binary(b, TNX_OP_AND, equal, compare_f(b, TNX_OP_EQ, xr, -INFINITY)), low, sum);
  tnx_value nan = tnx_b_binary(b, TNX_OP_OR, tnx_b_unary(b, TNX_OP_ISNAN, x), tnx_b_unary(b, TNX_OP_ISNAN, y));
  return sum ? tnx_b_select(b, nan, tnx_b_const_c(b, tnx_b_dtype(b, sum), NAN, NAN), sum) : 0;
}

/* log(exp(x) + exp(y)) without overflow; equal infinities give themselves. */
static tnx_status logaddexp(tnx_lower *l, const tnx_arg *a, tnx_value *results, double ln_base) {
  tnx_builder *b = &l->b;
  tnx_dtype t = promote_args(b, a, a + 1), acc = tnx_acc_of(t);
  if (!tnx_dtype_is_float(t) && !(tnx_dtype_is_complex(t) && ln_base == 1)) return uncovered(l, "dtype");
  operands o = as_dtype(b, a, a + 1, acc);
  if (tnx_dtype_is_complex(t)) return RESULT(lower_logaddexp_of(b, o.x, o.y));
  tnx_value max = tnx_b_binary(b, TNX_OP_MAX, o.x, o.y), diff = tnx_b_unary(b, TNX_OP_ABS, sub(b, o.x, o.y));
  tnx_value e = ln_base == 1 ? tnx_b_unary(b, TNX_OP_EXP, neg(b, diff)) : tnx_b_unary(b, TNX_OP_EXP2, neg(b, diff));
  tnx_value sum = add(b, max, mul_f(b, tnx_b_unary(b, TNX_OP_LOG1P, e), 1 / ln_base));
  tnx_value equal_inf = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_EQ, o.x, o.y), compare_f(b, TNX_OP_EQ, tnx_b_unary(b, TNX_OP_ABS, o.x), INFINITY));
  return RESULT(tnx_b_select(b, equal_inf, o.x, sum));
}
tnx_status lower_logaddexp(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return logaddexp(l, a, results, 1); }
tnx_status lower_logaddexp2(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return logaddexp(l, a, results, 0.69314718055994530942); }

tnx_status lower_sinc(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(t);
  tnx_value x = tnx_b_convert(b, a[0].value, acc), px = mul_f(b, x, 3.14159265358979323846);
  return RESULT(tnx_b_select(b, compare_f(b, TNX_OP_EQ, x, 0), tnx_b_const_f(b, acc, 1), divide(b, tnx_b_unary(b, TNX_OP_SIN, px), px)));
}

tnx_status lower_entr(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(t);
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  tnx_value x = tnx_b_convert(b, a[0].value, acc), r = mul(b, neg(b, x), tnx_b_unary(b, TNX_OP_LOG, x));
  r = tnx_b_select(b, compare_f(b, TNX_OP_GT, x, 0), r, tnx_b_select(b, compare_f(b, TNX_OP_EQ, x, 0), tnx_b_const_f(b, acc, 0), tnx_b_const_f(b, acc, -INFINITY)));
  return RESULT(tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, x), x, r));
}

static tnx_status scaled(tnx_lower *l, const tnx_arg *a, tnx_value *results, double factor) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value));
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  return RESULT(mul_f(b, tnx_b_convert(b, a[0].value, tnx_acc_of(t)), factor));
}
tnx_status lower_deg2rad(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return scaled(l, a, results, 0.017453292519943295769236907684886); }
tnx_status lower_rad2deg(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return scaled(l, a, results, 57.295779513082320876798154814105); }

/* ---- complex numbers ---- */

tnx_status lower_complex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  if (t != TNX_F32 && t != TNX_F64) return uncovered(l, "dtype");
  return give(l, results, tnx_b_binary(&l->b, TNX_OP_COMPLEX, a[0].value, a[1].value));
}

tnx_status lower_polar(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (t != TNX_F32 && t != TNX_F64) return uncovered(l, "dtype");
  tnx_value re = mul(b, a[0].value, tnx_b_unary(b, TNX_OP_COS, a[1].value)), im = mul(b, a[0].value, tnx_b_unary(b, TNX_OP_SIN, a[1].value));
  return give(l, results, tnx_b_binary(b, TNX_OP_COMPLEX, re, im));
}

tnx_status lower_conj(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, tnx_dtype_is_complex(tnx_b_dtype(&l->b, a[0].value)) ? tnx_b_unary(&l->b, TNX_OP_CONJ, a[0].value) : a[0].value);
}

tnx_status lower_real(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, tnx_b_unary(&l->b, TNX_OP_REAL, a[0].value)); }

tnx_status lower_imag(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!tnx_dtype_is_complex(tnx_b_dtype(&l->b, a[0].value))) return tnx_fail(TNX_DTYPE, "imag is not implemented for tensors with non-complex dtypes.");
  return give(l, results, tnx_b_unary(&l->b, TNX_OP_IMAG, a[0].value));
}

tnx_status lower_angle(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value));
  tnx_value x = tnx_b_convert(b, a[0].value, t);
  if (tnx_dtype_is_complex(t)) return give(l, results, tnx_b_binary(b, TNX_OP_ATAN2, tnx_b_unary(b, TNX_OP_IMAG, x), tnx_b_unary(b, TNX_OP_REAL, x)));
  tnx_value r = tnx_b_select(b, compare_f(b, TNX_OP_LT, x, 0), tnx_b_const_f(b, t, 3.14159265358979323846), tnx_b_const_f(b, t, 0));
  return give(l, results, tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, x), x, r));
}

/* Real: sign. Complex: z / |z|, 0 for 0. */
tnx_status lower_sgn(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (t == TNX_BOOL) return give(l, results, x);
  if (!tnx_dtype_is_complex(t)) return give(l, results, tnx_b_unary(b, TNX_OP_SIGN, x));
  tnx_value m = tnx_b_unary(b, TNX_OP_ABS, x);
  return give(l, results, tnx_b_select(b, compare_f(b, TNX_OP_EQ, m, 0), tnx_b_const_f(b, t, 0), divide(b, x, tnx_b_convert(b, m, t))));
}

tnx_status lower_view_as_complex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  tnx_dtype t = tnx_b_dtype(b, x);
  if ((t != TNX_F32 && t != TNX_F64) || rank == 0 || tnx_b_size(b, x, -1) != 2) return uncovered(l, "dtype or shape");
  int last = rank - 1;
  tnx_value re = tnx_b_squeeze(b, tnx_b_slice(b, x, last, 0, 1, 1), &last, 1), im = tnx_b_squeeze(b, tnx_b_slice(b, x, last, 1, 1, 1), &last, 1);
  return give(l, results, tnx_b_binary(b, TNX_OP_COMPLEX, re, im));
}

tnx_status lower_view_as_real(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (!tnx_dtype_is_complex(tnx_b_dtype(b, x))) return uncovered(l, "dtype");
  int rank = tnx_b_rank(b, x);
  tnx_value parts[2] = {tnx_b_unsqueeze(b, tnx_b_unary(b, TNX_OP_REAL, x), rank), tnx_b_unsqueeze(b, tnx_b_unary(b, TNX_OP_IMAG, x), rank)};
  return give(l, results, tnx_b_concat(b, parts, 2, rank));
}
