/* StableHLO importer: constants and pointwise operations. */
#include <math.h>
#include <string.h>

#include "ir/hlo_import.h"

/* Operations that are one operator of the graph. */
static const struct { const char *name; uint16_t op; uint8_t operands; } plain[] = {
    {"stablehlo.negate", TNX_OP_NEG, 1},       {"stablehlo.abs", TNX_OP_ABS, 1},          {"stablehlo.ceil", TNX_OP_CEIL, 1},
    {"stablehlo.floor", TNX_OP_FLOOR, 1},      {"stablehlo.round_nearest_even", TNX_OP_ROUND, 1}, {"stablehlo.sqrt", TNX_OP_SQRT, 1},
    {"stablehlo.rsqrt", TNX_OP_RSQRT, 1},      {"stablehlo.exponential", TNX_OP_EXP, 1},  {"stablehlo.exponential_minus_one", TNX_OP_EXPM1, 1},
    {"stablehlo.log", TNX_OP_LOG, 1},          {"stablehlo.log_plus_one", TNX_OP_LOG1P, 1}, {"stablehlo.sine", TNX_OP_SIN, 1},
    {"stablehlo.cosine", TNX_OP_COS, 1},       {"stablehlo.tan", TNX_OP_TAN, 1},          {"stablehlo.tanh", TNX_OP_TANH, 1},
    {"stablehlo.logistic", TNX_OP_SIGMOID, 1}, {"stablehlo.not", TNX_OP_NOT, 1},          {"stablehlo.is_finite", TNX_OP_ISFINITE, 1},
    {"stablehlo.real", TNX_OP_REAL, 1},        {"stablehlo.imag", TNX_OP_IMAG, 1},        {"stablehlo.sign", TNX_OP_SIGN, 1},
    {"chlo.asin", TNX_OP_ASIN, 1},             {"chlo.acos", TNX_OP_ACOS, 1},             {"chlo.atan", TNX_OP_ATAN, 1},
    {"chlo.sinh", TNX_OP_SINH, 1},             {"chlo.cosh", TNX_OP_COSH, 1},             {"chlo.asinh", TNX_OP_ASINH, 1},
    {"chlo.acosh", TNX_OP_ACOSH, 1},           {"chlo.atanh", TNX_OP_ATANH, 1},           {"chlo.erf", TNX_OP_ERF, 1},
    {"chlo.erfc", TNX_OP_ERFC, 1},             {"chlo.erf_inv", TNX_OP_ERFINV, 1},        {"chlo.lgamma", TNX_OP_LGAMMA, 1},
    {"chlo.digamma", TNX_OP_DIGAMMA, 1},       {"stablehlo.add", TNX_OP_ADD, 2},          {"stablehlo.subtract", TNX_OP_SUB, 2},
    {"stablehlo.multiply", TNX_OP_MUL, 2},     {"stablehlo.divide", TNX_OP_DIV, 2},       {"stablehlo.remainder", TNX_OP_FMOD, 2},
    {"stablehlo.power", TNX_OP_POW, 2},        {"stablehlo.atan2", TNX_OP_ATAN2, 2},      {"stablehlo.maximum", TNX_OP_MAX, 2},
    {"stablehlo.minimum", TNX_OP_MIN, 2},      {"stablehlo.and", TNX_OP_AND, 2},          {"stablehlo.or", TNX_OP_OR, 2},
    {"stablehlo.xor", TNX_OP_XOR, 2},          {"stablehlo.complex", TNX_OP_COMPLEX, 2},
    {"stablehlo.shift_left", TNX_OP_SHL, 2},
};

/* The letters of verify.c's table for bool: sums and products of truth values are "or" and "and". */
static tnx_op for_bool(tnx_op op) { return op == TNX_OP_ADD ? TNX_OP_OR : op == TNX_OP_MUL ? TNX_OP_AND : op; }

static bool same_shapes(hlo_import *m) {
  for (uint32_t i = 1; i < m->op->n_in && !m->elementwise; i++) {
    const tnx_type *a = hlo_in_type(m, 0), *b = hlo_in_type(m, i);
    if (a->rank != b->rank || (a->rank && memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes))) return hlo_refuse(m, "operands of one shape expected"), false;
  }
  return true;
}

static tnx_value unsigned_of(hlo_import *m, tnx_value x) {
  switch (tnx_b_dtype(&m->b, x)) {
    case TNX_I8: return tnx_b_convert(&m->b, x, TNX_U8);
    case TNX_I16: return tnx_b_convert(&m->b, x, TNX_U16);
    case TNX_I32: return tnx_b_convert(&m->b, x, TNX_U32);
    default: return x;
  }
}

/* 64 bits are shifted with their sign and the copies of it cleared; narrower ones are never negative as int64. */
static tnx_value logical_shift(hlo_import *m, tnx_value x, tnx_value y) {
  tnx_builder *b = &m->b;
  if (!x || !y) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (!tnx_dtype_is_integral(t) || t == TNX_BOOL) return hlo_refuse(m, "integers expected");
  tnx_value wide = tnx_b_convert(b, unsigned_of(m, x), TNX_I64), amount = tnx_b_convert(b, unsigned_of(m, y), TNX_I64), r = tnx_b_binary(b, TNX_OP_SHR, wide, amount);
  tnx_value good = tnx_b_binary(b, TNX_OP_LT, amount, tnx_b_const_i(b, TNX_I64, 64)), zero = tnx_b_const_i(b, TNX_I64, 0);
  if (tnx_dtype_size(t) == 8) {
    tnx_value one = tnx_b_const_i(b, TNX_I64, 1), mask = tnx_b_binary(b, TNX_OP_SHR, tnx_b_const_i(b, TNX_I64, INT64_MAX), tnx_b_binary(b, TNX_OP_SUB, amount, one));
    r = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, amount, zero), wide, tnx_b_binary(b, TNX_OP_AND, r, mask));
    good = tnx_b_binary(b, TNX_OP_AND, good, tnx_b_binary(b, TNX_OP_GE, amount, zero));
  }
  return tnx_b_convert(b, tnx_b_select(b, good, r, zero), t);
}

/* ---- unsigned 64 bits: the graph computes with int64, whose sums and products have the same bits; order and quotients differ ---- */

static tnx_value as_signed_order(hlo_import *m, tnx_value x) {
  return tnx_b_binary(&m->b, TNX_OP_XOR, tnx_b_convert(&m->b, x, TNX_I64), tnx_b_const_i(&m->b, TNX_I64, INT64_MIN));
}
static tnx_value unsigned_compare(hlo_import *m, tnx_op op, tnx_value x, tnx_value y) { return tnx_b_binary(&m->b, op, as_signed_order(m, x), as_signed_order(m, y)); }

/* Half of x by y, doubled, is the quotient or one less (Hacker's Delight, 9-3); a divisor of 2^63 and more goes in once or not at all. By zero: 0, and x as the rest. */
static tnx_value unsigned_divide(hlo_import *m, tnx_op op, tnx_value x, tnx_value y) {
  tnx_builder *b = &m->b;
  if (!x || !y) return 0;
  tnx_value n = tnx_b_convert(b, x, TNX_I64), d = tnx_b_convert(b, y, TNX_I64), zero = tnx_b_const_i(b, TNX_I64, 0), one = tnx_b_const_i(b, TNX_I64, 1);
  tnx_value none = tnx_b_binary(b, TNX_OP_EQ, d, zero), large = tnx_b_binary(b, TNX_OP_LT, d, zero);
  tnx_value half = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_SHR, n, one), tnx_b_const_i(b, TNX_I64, INT64_MAX));
  tnx_value divisor = tnx_b_select(b, tnx_b_binary(b, TNX_OP_OR, none, large), one, d);
  tnx_value q = tnx_b_select(b, tnx_b_binary(b, TNX_OP_OR, none, large), zero, tnx_b_binary(b, TNX_OP_SHL, tnx_b_binary(b, TNX_OP_DIV, half, divisor), one));
  tnx_value rest = tnx_b_binary(b, TNX_OP_SUB, n, tnx_b_binary(b, TNX_OP_MUL, q, d));
  tnx_value more = tnx_b_binary(b, TNX_OP_AND, unsigned_compare(m, TNX_OP_GE, rest, d), tnx_b_unary(b, TNX_OP_NOT, none));
  tnx_value r = op == TNX_OP_DIV ? tnx_b_select(b, more, tnx_b_binary(b, TNX_OP_ADD, q, one), q) : tnx_b_select(b, more, tnx_b_binary(b, TNX_OP_SUB, rest, d), rest);
  return tnx_b_convert(b, r, TNX_U64);
}

static tnx_value binary(hlo_import *m, tnx_op op, tnx_value x, tnx_value y) {
  if (!x || !y) return 0;
  if (tnx_b_dtype(&m->b, x) == TNX_U64 && tnx_b_dtype(&m->b, y) == TNX_U64) {
    switch (op) {
      case TNX_OP_DIV:
      case TNX_OP_FMOD: return unsigned_divide(m, op, x, y);
      case TNX_OP_MAX: return tnx_b_select(&m->b, unsigned_compare(m, TNX_OP_GE, x, y), x, y);
      case TNX_OP_MIN: return tnx_b_select(&m->b, unsigned_compare(m, TNX_OP_LE, x, y), x, y);
      case TNX_OP_LT: case TNX_OP_LE: case TNX_OP_GT: case TNX_OP_GE: return unsigned_compare(m, op, x, y);
      default: break;
    }
  }
  return tnx_b_binary(&m->b, op, x, y);
}

/* ---- bits of floats: taken apart and put together with arithmetic that is exact, as the graph has no operator for them. A NaN's payload is lost. ---- */

typedef struct layout { int mantissa, bias, top, bits; } layout; /* top: the exponent field of infinities */

static bool layout_of(tnx_dtype t, layout *out) {
  switch (t) {
    case TNX_F64: *out = (layout){52, 1023, 0x7ff, 64}; return true;
    case TNX_F32: *out = (layout){23, 127, 0xff, 32}; return true;
    case TNX_BF16: *out = (layout){7, 127, 0xff, 16}; return true;
    case TNX_F16: *out = (layout){10, 15, 0x1f, 16}; return true;
    default: return false;
  }
}
static int64_t sign_bit(layout l) { return (int64_t)(UINT64_C(1) << (l.bits - 1)); }

static tnx_value number(hlo_import *m, double v) { return tnx_b_const_f(&m->b, TNX_F64, v); }
static tnx_value integer(hlo_import *m, int64_t v) { return tnx_b_const_i(&m->b, TNX_I64, v); }

/* int64; not negative unless there are 64 of them. */
static tnx_value bits_of(hlo_import *m, tnx_value x, layout l) {
  tnx_builder *b = &m->b;
  tnx_value y = tnx_b_convert(b, x, TNX_F64), size = tnx_b_unary(b, TNX_OP_ABS, y);
  tnx_value fraction = tnx_b_unary(b, TNX_OP_MANTISSA, size), exponent = tnx_b_convert(b, tnx_b_unary(b, TNX_OP_EXPONENT, size), TNX_I64);
  /* normal: size = 1.f 2^(field - bias), and the exponent is one above that power */
  tnx_value field = tnx_b_binary(b, TNX_OP_SHL, tnx_b_binary(b, TNX_OP_ADD, exponent, integer(m, l.bias - 1)), integer(m, l.mantissa));
  tnx_value rest = tnx_b_binary(b, TNX_OP_MUL, tnx_b_binary(b, TNX_OP_SUB, tnx_b_binary(b, TNX_OP_MUL, fraction, number(m, 2)), number(m, 1)), number(m, ldexp(1, l.mantissa)));
  tnx_value r = tnx_b_binary(b, TNX_OP_OR, field, tnx_b_convert(b, rest, TNX_I64));
  /* subnormal: a multiple of the least one, in two steps because its inverse is beyond the largest number */
  tnx_value small = tnx_b_binary(b, TNX_OP_LT, size, number(m, ldexp(1, 1 - l.bias))), half = number(m, ldexp(1, (l.bias + l.mantissa - 1) / 2));
  tnx_value other = number(m, ldexp(1, l.bias + l.mantissa - 1 - (l.bias + l.mantissa - 1) / 2));
  r = tnx_b_select(b, small, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_MUL, tnx_b_binary(b, TNX_OP_MUL, size, half), other), TNX_I64), r);
  r = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, size, number(m, INFINITY)), integer(m, (int64_t)l.top << l.mantissa), r);
  r = tnx_b_select(b, tnx_b_unary(b, TNX_OP_ISNAN, size), integer(m, ((int64_t)l.top << l.mantissa) | (INT64_C(1) << (l.mantissa - 1))), r);
  tnx_value negative = tnx_b_binary(b, TNX_OP_LT, tnx_b_binary(b, TNX_OP_COPYSIGN, number(m, 1), y), number(m, 0));
  return tnx_b_select(b, negative, tnx_b_binary(b, TNX_OP_OR, r, integer(m, sign_bit(l))), r);
}

static tnx_value float_of_bits(hlo_import *m, tnx_value x, tnx_dtype t, layout l) {
  tnx_builder *b = &m->b;
  tnx_value bits = tnx_b_convert(b, x, TNX_I64), one = integer(m, 1), zero = integer(m, 0);
  tnx_value field = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_SHR, bits, integer(m, l.mantissa)), integer(m, l.top));
  tnx_value rest = tnx_b_binary(b, TNX_OP_AND, bits, integer(m, (INT64_C(1) << l.mantissa) - 1)), small = tnx_b_binary(b, TNX_OP_EQ, field, zero);
  tnx_value whole = tnx_b_select(b, small, rest, tnx_b_binary(b, TNX_OP_OR, rest, integer(m, INT64_C(1) << l.mantissa)));
  tnx_value power = tnx_b_binary(b, TNX_OP_SUB, tnx_b_select(b, small, one, field), integer(m, l.bias + l.mantissa));
  tnx_value first = tnx_b_binary(b, TNX_OP_SHR, power, one), second = tnx_b_binary(b, TNX_OP_SUB, power, first); /* either power of two is a normal number */
  tnx_value r = tnx_b_convert(b, whole, TNX_F64);
  r = tnx_b_binary(b, TNX_OP_MUL, r, tnx_b_unary(b, TNX_OP_EXP2, tnx_b_convert(b, first, TNX_F64)));
  r = tnx_b_binary(b, TNX_OP_MUL, r, tnx_b_unary(b, TNX_OP_EXP2, tnx_b_convert(b, second, TNX_F64)));
  tnx_value special = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, rest, zero), number(m, INFINITY), number(m, NAN));
  r = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, field, integer(m, l.top)), special, r);
  tnx_value negative = tnx_b_binary(b, TNX_OP_NE, tnx_b_binary(b, TNX_OP_AND, bits, integer(m, sign_bit(l))), zero);
  return tnx_b_convert(b, tnx_b_select(b, negative, tnx_b_unary(b, TNX_OP_NEG, r), r), t);
}

static tnx_value bitcast(hlo_import *m) {
  tnx_value x = hlo_in(m, 0);
  if (!x) return 0;
  tnx_dtype from = tnx_b_dtype(&m->b, x), to = (tnx_dtype)hlo_out_type(m, 0)->dtype;
  bool integers = tnx_dtype_is_integral(from) && from != TNX_BOOL, integral = tnx_dtype_is_integral(to) && to != TNX_BOOL;
  if (tnx_dtype_size(from) != tnx_dtype_size(to)) return hlo_unsupported(m, "types of one size expected");
  layout l;
  if (integers && integral) return tnx_b_convert(&m->b, x, to);
  if (layout_of(from, &l) && integral) return tnx_b_convert(&m->b, bits_of(m, x, l), to);
  if (layout_of(to, &l) && integers) return float_of_bits(m, x, to, l);
  return from == to ? x : hlo_unsupported(m, "floats and integers expected");
}

/* Halves have neighbours of their own: the next bits, which are in the order of the sizes. */
static tnx_value next_after(hlo_import *m) {
  tnx_builder *b = &m->b;
  tnx_value x = hlo_in(m, 0), y = hlo_in(m, 1);
  layout l;
  if (!x || !y) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  if ((t != TNX_F16 && t != TNX_BF16) || !layout_of(t, &l)) return tnx_b_binary(b, TNX_OP_NEXTAFTER, x, y);
  tnx_value from = tnx_b_convert(b, x, TNX_F64), to = tnx_b_convert(b, y, TNX_F64), zero = number(m, 0), bits = bits_of(m, x, l);
  tnx_value up = tnx_b_binary(b, TNX_OP_LT, from, to), grows = tnx_b_binary(b, TNX_OP_EQ, up, tnx_b_binary(b, TNX_OP_GT, from, zero));
  tnx_value next = float_of_bits(m, tnx_b_select(b, grows, tnx_b_binary(b, TNX_OP_ADD, bits, integer(m, 1)), tnx_b_binary(b, TNX_OP_SUB, bits, integer(m, 1))), t, l);
  tnx_value least = tnx_b_convert(b, tnx_b_binary(b, TNX_OP_COPYSIGN, number(m, ldexp(1, 1 - l.bias - l.mantissa)), to), t);
  tnx_value r = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, from, zero), least, next);
  r = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, from, to), y, r);
  tnx_value nan = tnx_b_binary(b, TNX_OP_OR, tnx_b_unary(b, TNX_OP_ISNAN, from), tnx_b_unary(b, TNX_OP_ISNAN, to));
  return tnx_b_select(b, nan, tnx_b_const_f(b, t, NAN), r);
}

/* ---- the rest ---- */

static tnx_value constant(hlo_import *m) {
  const tnx_hlo_attr *a = hlo_attr(m, "value");
  if (!a || a->kind != TNX_HLO_DENSE) return hlo_unsupported(m, "a constant of one number expected");
  tnx_dtype t = (tnx_dtype)a->type.dtype;
  tnx_value v = tnx_dtype_is_integral(t) ? tnx_b_const_i(&m->b, t, a->i) : tnx_b_const_f(&m->b, t, a->f);
  return tnx_b_full(&m->b, v, a->type.rank, a->type.sizes);
}

static tnx_value compare(hlo_import *m) {
  static const struct { const char *name; tnx_op op; } directions[] = {{"EQ", TNX_OP_EQ}, {"NE", TNX_OP_NE}, {"LT", TNX_OP_LT}, {"LE", TNX_OP_LE}, {"GT", TNX_OP_GT}, {"GE", TNX_OP_GE}};
  const char *word = hlo_word_attr(m, "comparison_direction");
  for (int i = 0; i < 6; i++)
    if (strcmp(word, directions[i].name) == 0) return binary(m, directions[i].op, hlo_in(m, 0), hlo_in(m, 1));
  return hlo_refuse(m, "comparison_direction expected");
}

static bool operands(hlo_import *m, uint32_t n) {
  if (m->op->n_in != n || m->op->n_out != 1) return hlo_refuse(m, "another number of operands or results expected"), false;
  return n < 2 || same_shapes(m);
}

const char *hlo_pointwise_name(uint32_t i) { return i < sizeof plain / sizeof *plain ? plain[i].name : NULL; }

bool hlo_import_pointwise(hlo_import *m) {
  const char *name = m->op->name;
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    if (strcmp(plain[i].name, name) != 0) continue;
    if (!operands(m, plain[i].operands)) return true;
    tnx_value x = hlo_in(m, 0);
    tnx_op op = (tnx_op)plain[i].op;
    if (x && tnx_b_dtype(&m->b, x) == TNX_BOOL) op = for_bool(op);
    bool kept = x && op == TNX_OP_ABS && tnx_dtype_get_kind(tnx_b_dtype(&m->b, x)) == TNX_KIND_UINT;
    hlo_give(m, plain[i].operands == 2 ? binary(m, op, x, hlo_in(m, 1)) : kept ? x : tnx_b_unary(&m->b, op, x));
    return true;
  }
  if (strcmp(name, "stablehlo.constant") == 0) hlo_give(m, operands(m, 0) ? constant(m) : 0);
  else if (strcmp(name, "stablehlo.convert") == 0) hlo_give(m, operands(m, 1) ? tnx_b_convert(&m->b, hlo_in(m, 0), (tnx_dtype)hlo_out_type(m, 0)->dtype) : 0);
  else if (strcmp(name, "stablehlo.bitcast_convert") == 0) hlo_give(m, operands(m, 1) ? bitcast(m) : 0);
  else if (strcmp(name, "chlo.next_after") == 0) hlo_give(m, operands(m, 2) ? next_after(m) : 0);
  else if (strcmp(name, "stablehlo.compare") == 0) hlo_give(m, operands(m, 2) ? compare(m) : 0);
  else if (strcmp(name, "stablehlo.shift_right_arithmetic") == 0) hlo_give(m, operands(m, 2) ? tnx_b_binary(&m->b, TNX_OP_SHR, hlo_in(m, 0), hlo_in(m, 1)) : 0);
  else if (strcmp(name, "stablehlo.shift_right_logical") == 0) hlo_give(m, operands(m, 2) ? logical_shift(m, hlo_in(m, 0), hlo_in(m, 1)) : 0);
  else if (strcmp(name, "stablehlo.select") == 0) {
    /* a 0-dim predicate chooses between whole tensors */
    if (m->op->n_in != 3 || m->op->n_out != 1) hlo_refuse(m, "three operands expected");
    else hlo_give(m, tnx_b_select(&m->b, hlo_in(m, 0), hlo_in(m, 1), hlo_in(m, 2)));
  } else if (strcmp(name, "stablehlo.clamp") == 0) {
    if (m->op->n_in != 3 || m->op->n_out != 1) hlo_refuse(m, "three operands expected");
    else hlo_give(m, binary(m, TNX_OP_MIN, binary(m, TNX_OP_MAX, hlo_in(m, 1), hlo_in(m, 0)), hlo_in(m, 2)));
  } else {
    return false;
  }
  return true;
}
