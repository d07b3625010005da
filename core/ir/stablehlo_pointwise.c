/* StableHLO writer: pointwise operators, conversions and the Philox generator. Halves and float8 compute in float32. Integer operators whose edge cases
 * differ between the two languages (division by zero, wide shifts) compute in int64 and wrap, as the program kernels do. */
#include <math.h>

#include "ir/stablehlo.h"

static bool narrow(uint8_t t) { return t == TNX_F16 || t == TNX_BF16 || t == TNX_F8E4M3 || t == TNX_F8E5M2; }

hlo hlo_wide(hlo_writer *w, hlo x) { return narrow(x.dtype) ? hlo_convert(w, x, TNX_F32) : x; }

/* ---- conversions ---- */

static hlo float_to_int(hlo_writer *w, hlo x, tnx_dtype t) {
  if (t == TNX_U64) return hlo_convert(w, hlo_wide(w, x), t);
  /* Truncation, the lowest number outside int64's range (as the conversion instruction gives), then the low bits. */
  hlo f = hlo_convert(w, x, TNX_F64), i = hlo_convert(w, f, TNX_I64);
  hlo in_range = hlo_bin(w, "stablehlo.and", hlo_compare(w, "GE", f, hlo_full_f(w, f, -0x1p63)), hlo_compare(w, "LT", f, hlo_full_f(w, f, 0x1p63)));
  return hlo_convert(w, hlo_select(w, in_range, i, hlo_full_i(w, i, INT64_MIN)), t);
}

hlo hlo_cast(hlo_writer *w, hlo x, tnx_dtype t) {
  tnx_dtype from = (tnx_dtype)x.dtype;
  if (from == t) return x;
  if (t == TNX_BOOL) return hlo_compare(w, "NE", x, hlo_full_f(w, x, 0));
  if (tnx_dtype_is_complex(from)) {
    hlo re = hlo_op(w, "stablehlo.real", &x, 1, hlo_retype(x, tnx_dtype_real(from)));
    if (!tnx_dtype_is_complex(t)) return hlo_cast(w, re, t);
    hlo im = hlo_op(w, "stablehlo.imag", &x, 1, re);
    hlo in[2] = {hlo_convert(w, re, tnx_dtype_real(t)), hlo_convert(w, im, tnx_dtype_real(t))};
    return hlo_op(w, "stablehlo.complex", in, 2, hlo_retype(x, t));
  }
  if (tnx_dtype_is_complex(t)) {
    hlo re = hlo_cast(w, x, tnx_dtype_real(t)), in[2] = {re, hlo_full_f(w, re, 0)};
    return hlo_op(w, "stablehlo.complex", in, 2, hlo_retype(x, t));
  }
  if (tnx_dtype_is_float(from) && tnx_dtype_is_integral(t)) return float_to_int(w, x, t);
  /* PyTorch rounds to the narrow formats from float32 */
  if (narrow((uint8_t)t) && from != TNX_F32) x = hlo_convert(w, x, TNX_F32);
  if (t == TNX_F8E4M3) /* stays at its largest number, where StableHLO would give NaN */
    x = hlo_bin(w, "stablehlo.minimum", hlo_bin(w, "stablehlo.maximum", x, hlo_full_f(w, x, -448)), hlo_full_f(w, x, 448));
  return hlo_convert(w, x, t);
}

/* ---- unary ---- */

static hlo is_zero(hlo_writer *w, hlo x) { return hlo_compare(w, "EQ", x, hlo_full_f(w, x, 0)); }
static hlo is_negative(hlo_writer *w, hlo x) { return hlo_compare(w, "LT", x, hlo_full_f(w, x, 0)); }
hlo hlo_copysign(hlo_writer *w, hlo x, hlo y) {
  tnx_dtype bits = y.dtype == TNX_F64 ? TNX_I64 : TNX_I32;
  hlo i = hlo_op(w, "stablehlo.bitcast_convert", &y, 1, hlo_retype(y, bits)), a = hlo_un(w, "stablehlo.abs", x);
  return hlo_select(w, is_negative(w, i), hlo_un(w, "stablehlo.negate", a), a);
}

static hlo scaled_log(hlo_writer *w, hlo x, double factor) { return hlo_bin(w, "stablehlo.multiply", hlo_un(w, "stablehlo.log", x), hlo_full_f(w, x, factor)); }

static hlo sign(hlo_writer *w, hlo x) {
  hlo zero = hlo_full_f(w, x, 0);
  hlo pos = hlo_convert(w, hlo_compare(w, "GT", x, zero), (tnx_dtype)x.dtype), neg = hlo_convert(w, hlo_compare(w, "LT", x, zero), (tnx_dtype)x.dtype);
  return hlo_bin(w, "stablehlo.subtract", pos, neg);
}

hlo hlo_part(hlo_writer *w, const char *name, hlo x) { return hlo_op(w, name, &x, 1, hlo_retype(x, tnx_dtype_real((tnx_dtype)x.dtype))); }
hlo hlo_conj(hlo_writer *w, hlo x) {
  hlo in[2] = {hlo_part(w, "stablehlo.real", x), hlo_un(w, "stablehlo.negate", hlo_part(w, "stablehlo.imag", x))};
  return hlo_op(w, "stablehlo.complex", in, 2, x);
}

/* Operators that are one operation there. */
static const char *const unary_names[TNX_OP_COUNT] = {
    [TNX_OP_NEG] = "stablehlo.negate",    [TNX_OP_CEIL] = "stablehlo.ceil",   [TNX_OP_FLOOR] = "stablehlo.floor",         [TNX_OP_ROUND] = "stablehlo.round_nearest_even",
    [TNX_OP_SQRT] = "stablehlo.sqrt",     [TNX_OP_RSQRT] = "stablehlo.rsqrt", [TNX_OP_EXP] = "stablehlo.exponential",     [TNX_OP_EXPM1] = "stablehlo.exponential_minus_one",
    [TNX_OP_LOG] = "stablehlo.log",       [TNX_OP_LOG1P] = "stablehlo.log_plus_one", [TNX_OP_SIN] = "stablehlo.sine",     [TNX_OP_COS] = "stablehlo.cosine",
    [TNX_OP_TAN] = "stablehlo.tan",       [TNX_OP_ASIN] = "chlo.asin",        [TNX_OP_ACOS] = "chlo.acos",                [TNX_OP_ATAN] = "chlo.atan",
    [TNX_OP_SINH] = "chlo.sinh",          [TNX_OP_COSH] = "chlo.cosh",        [TNX_OP_TANH] = "stablehlo.tanh",           [TNX_OP_ASINH] = "chlo.asinh",
    [TNX_OP_ACOSH] = "chlo.acosh",        [TNX_OP_ATANH] = "chlo.atanh",      [TNX_OP_ERF] = "chlo.erf",                  [TNX_OP_ERFC] = "chlo.erfc",
    [TNX_OP_ERFINV] = "chlo.erf_inv",     [TNX_OP_LGAMMA] = "chlo.lgamma",    [TNX_OP_SIGMOID] = "stablehlo.logistic",
    [TNX_OP_NOT] = "stablehlo.not"};

static hlo unary(hlo_writer *w, tnx_op op, hlo x) {
  if (unary_names[op]) return hlo_un(w, unary_names[op], x);
  tnx_dtype t = (tnx_dtype)x.dtype;
  switch (op) {
    case TNX_OP_ABS: return tnx_dtype_get_kind(t) == TNX_KIND_UINT ? x : hlo_op(w, "stablehlo.abs", &x, 1, hlo_retype(x, tnx_dtype_real(t)));
    case TNX_OP_SIGN: return sign(w, x);
    case TNX_OP_TRUNC: return hlo_select(w, hlo_compare(w, "LT", x, hlo_full_f(w, x, 0)), hlo_un(w, "stablehlo.ceil", x), hlo_un(w, "stablehlo.floor", x));
    case TNX_OP_EXP2: return hlo_bin(w, "stablehlo.power", hlo_full_f(w, x, 2), x);
    case TNX_OP_LOG2: return scaled_log(w, x, 1.4426950408889634074);
    case TNX_OP_LOG10: return scaled_log(w, x, 0.43429448190325182765);
    case TNX_OP_DIGAMMA: /* at 0 infinity with the other sign, where chlo has NaN */
      return hlo_select(w, is_zero(w, x), hlo_un(w, "stablehlo.negate", hlo_copysign(w, hlo_full_f(w, x, INFINITY), x)), hlo_un(w, "chlo.digamma", x));
    case TNX_OP_ISNAN:
      if (!tnx_dtype_is_complex(t)) return hlo_isnan(w, x);
      return hlo_bin(w, "stablehlo.or", hlo_isnan(w, hlo_part(w, "stablehlo.real", x)), hlo_isnan(w, hlo_part(w, "stablehlo.imag", x)));
    case TNX_OP_ISFINITE: {
      if (!tnx_dtype_is_complex(t)) return hlo_op(w, "stablehlo.is_finite", &x, 1, hlo_retype(x, TNX_BOOL));
      hlo re = hlo_part(w, "stablehlo.real", x), im = hlo_part(w, "stablehlo.imag", x), b = hlo_retype(x, TNX_BOOL);
      return hlo_bin(w, "stablehlo.and", hlo_op(w, "stablehlo.is_finite", &re, 1, b), hlo_op(w, "stablehlo.is_finite", &im, 1, b));
    }
    case TNX_OP_REAL: return hlo_part(w, "stablehlo.real", x);
    case TNX_OP_IMAG: return hlo_part(w, "stablehlo.imag", x);
    case TNX_OP_CONJ: return hlo_conj(w, x);
    default: return hlo_special(w, op, x, (hlo){0});
  }
}

/* ---- binary ---- */

/* rest != 0 and its sign is not y's: Python's and C's remainders differ there. */
static hlo signs_differ(hlo_writer *w, hlo rest, hlo y) {
  hlo nonzero = hlo_compare(w, "NE", rest, hlo_full_f(w, rest, 0));
  return hlo_bin(w, "stablehlo.and", nonzero, hlo_bin(w, "stablehlo.xor", is_negative(w, rest), is_negative(w, y)));
}

/* int64; a division by zero gives 0. */
static hlo int_divide(hlo_writer *w, tnx_op op, hlo x, hlo y) {
  hlo zero = is_zero(w, y), d = hlo_select(w, zero, hlo_full_i(w, y, 1), y), r;
  hlo rest = hlo_bin(w, "stablehlo.remainder", x, d), q = hlo_bin(w, "stablehlo.divide", x, d);
  switch (op) {
    case TNX_OP_DIV: r = q; break;
    case TNX_OP_FMOD: r = rest; break;
    case TNX_OP_REMAINDER: r = hlo_select(w, signs_differ(w, rest, d), hlo_bin(w, "stablehlo.add", rest, d), rest); break;
    default: r = hlo_select(w, signs_differ(w, rest, d), hlo_bin(w, "stablehlo.subtract", q, hlo_full_i(w, q, 1)), q);
  }
  return hlo_select(w, zero, hlo_full_i(w, r, 0), r);
}

/* torch.floor_divide of floats, step by step. */
static hlo float_floordiv(hlo_writer *w, hlo x, hlo y) {
  hlo rest = hlo_bin(w, "stablehlo.remainder", x, y), one = hlo_full_f(w, x, 1), plain = hlo_bin(w, "stablehlo.divide", x, y);
  hlo q = hlo_bin(w, "stablehlo.divide", hlo_bin(w, "stablehlo.subtract", x, rest), y);
  q = hlo_select(w, signs_differ(w, rest, y), hlo_bin(w, "stablehlo.subtract", q, one), q);
  hlo f = hlo_un(w, "stablehlo.floor", q);
  hlo up = hlo_compare(w, "GT", hlo_bin(w, "stablehlo.subtract", q, f), hlo_full_f(w, q, 0.5));
  f = hlo_select(w, up, hlo_bin(w, "stablehlo.add", f, one), f);
  f = hlo_select(w, is_zero(w, q), hlo_copysign(w, hlo_full_f(w, x, 0), plain), f);
  return hlo_select(w, is_zero(w, y), plain, f);
}

static hlo hypot_of(hlo_writer *w, hlo x, hlo y) {
  hlo a = hlo_un(w, "stablehlo.abs", x), b = hlo_un(w, "stablehlo.abs", y), inf = hlo_full_f(w, x, INFINITY);
  hlo m = hlo_bin(w, "stablehlo.maximum", a, b), n = hlo_bin(w, "stablehlo.minimum", a, b), one = hlo_full_f(w, x, 1);
  hlo q = hlo_bin(w, "stablehlo.divide", n, hlo_select(w, is_zero(w, m), one, m));
  hlo r = hlo_bin(w, "stablehlo.multiply", m, hlo_un(w, "stablehlo.sqrt", hlo_bin(w, "stablehlo.add", one, hlo_bin(w, "stablehlo.multiply", q, q))));
  hlo infinite = hlo_bin(w, "stablehlo.or", hlo_compare(w, "EQ", a, inf), hlo_compare(w, "EQ", b, inf));
  return hlo_select(w, infinite, inf, r);
}

/* int64: shifts by less than 0 or more than 63 bits shift everything out. */
static hlo shift(hlo_writer *w, tnx_op op, hlo x, hlo y) {
  hlo good = hlo_bin(w, "stablehlo.and", hlo_compare(w, "GE", y, hlo_full_i(w, y, 0)), hlo_compare(w, "LT", y, hlo_full_i(w, y, 64)));
  hlo amount = hlo_select(w, good, y, hlo_full_i(w, y, 63));
  if (op == TNX_OP_SHR) return hlo_bin(w, "stablehlo.shift_right_arithmetic", x, amount);
  return hlo_select(w, good, hlo_bin(w, "stablehlo.shift_left", x, amount), hlo_full_i(w, x, 0));
}

static const char *const binary_names[TNX_OP_COUNT] = {
    [TNX_OP_ADD] = "stablehlo.add",         [TNX_OP_SUB] = "stablehlo.subtract", [TNX_OP_MUL] = "stablehlo.multiply", [TNX_OP_DIV] = "stablehlo.divide", [TNX_OP_FMOD] = "stablehlo.remainder",
    [TNX_OP_POW] = "stablehlo.power",       [TNX_OP_ATAN2] = "stablehlo.atan2",  [TNX_OP_MAX] = "stablehlo.maximum",  [TNX_OP_MIN] = "stablehlo.minimum", [TNX_OP_AND] = "stablehlo.and",
    [TNX_OP_NEXTAFTER] = "chlo.next_after", [TNX_OP_OR] = "stablehlo.or",        [TNX_OP_XOR] = "stablehlo.xor"};
static const char *const directions[TNX_OP_COUNT] = {[TNX_OP_EQ] = "EQ", [TNX_OP_NE] = "NE", [TNX_OP_LT] = "LT", [TNX_OP_LE] = "LE", [TNX_OP_GT] = "GT", [TNX_OP_GE] = "GE"};

static hlo binary(hlo_writer *w, tnx_op op, hlo x, hlo y) {
  if (directions[op]) return hlo_compare(w, directions[op], x, y);
  bool integers = tnx_dtype_is_integral((tnx_dtype)x.dtype) && x.dtype != TNX_BOOL;
  if (integers)
    switch (op) {
      case TNX_OP_DIV: case TNX_OP_FMOD: case TNX_OP_REMAINDER: case TNX_OP_FLOORDIV: return int_divide(w, op, hlo_convert(w, x, TNX_I64), hlo_convert(w, y, TNX_I64));
      case TNX_OP_SHL: case TNX_OP_SHR: return shift(w, op, hlo_convert(w, x, TNX_I64), hlo_convert(w, y, TNX_I64));
      case TNX_OP_POW: return hlo_bin(w, "stablehlo.power", hlo_convert(w, x, TNX_I64), hlo_convert(w, y, TNX_I64));
      default: break;
    }
  if (binary_names[op]) return hlo_bin(w, binary_names[op], x, y);
  switch (op) {
    case TNX_OP_REMAINDER: {
      hlo rest = hlo_bin(w, "stablehlo.remainder", x, y);
      return hlo_select(w, signs_differ(w, rest, y), hlo_bin(w, "stablehlo.add", rest, y), rest);
    }
    case TNX_OP_FLOORDIV: return float_floordiv(w, x, y);
    case TNX_OP_HYPOT: return hypot_of(w, x, y);
    case TNX_OP_COPYSIGN: return hlo_copysign(w, x, y);
    case TNX_OP_FMAX:
    case TNX_OP_FMIN: {
      hlo m = hlo_bin(w, op == TNX_OP_FMAX ? "stablehlo.maximum" : "stablehlo.minimum", x, y);
      return hlo_select(w, hlo_isnan(w, x), y, hlo_select(w, hlo_isnan(w, y), x, m));
    }
    case TNX_OP_COMPLEX: {
      hlo in[2] = {x, y};
      return hlo_op(w, "stablehlo.complex", in, 2, hlo_retype(x, x.dtype == TNX_F64 ? TNX_C128 : TNX_C64));
    }
    default: return hlo_special(w, op, x, y);
  }
}

/* ---- Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11) ---- */

static hlo low32(hlo_writer *w, hlo x) { return hlo_convert(w, x, TNX_U32); }
static hlo high32(hlo_writer *w, hlo x) { return low32(w, hlo_bin(w, "stablehlo.shift_right_logical", x, hlo_full_i(w, x, 32))); }

static hlo philox(hlo_writer *w, hlo seed, hlo offset, hlo index) {
  hlo u = hlo_retype(index, TNX_U32), two = hlo_full_i(w, index, 2);
  hlo counter = hlo_convert(w, hlo_bin(w, "stablehlo.add", offset, hlo_bin(w, "stablehlo.shift_right_arithmetic", index, two)), TNX_U64);
  hlo key = hlo_convert(w, seed, TNX_U64), k0 = low32(w, key), k1 = high32(w, key);
  hlo c[4] = {low32(w, counter), high32(w, counter), hlo_full_i(w, u, 0), hlo_full_i(w, u, 0)};
  hlo m0 = hlo_full_i(w, counter, 0xD2511F53), m1 = hlo_full_i(w, counter, 0xCD9E8D57), w0 = hlo_full_i(w, u, 0x9E3779B9), w1 = hlo_full_i(w, u, 0xBB67AE85);
  for (int round = 0; round < 10; round++) {
    if (round) {
      k0 = hlo_bin(w, "stablehlo.add", k0, w0);
      k1 = hlo_bin(w, "stablehlo.add", k1, w1);
    }
    hlo p0 = hlo_bin(w, "stablehlo.multiply", hlo_convert(w, c[0], TNX_U64), m0), p1 = hlo_bin(w, "stablehlo.multiply", hlo_convert(w, c[2], TNX_U64), m1);
    hlo next0 = hlo_bin(w, "stablehlo.xor", hlo_bin(w, "stablehlo.xor", high32(w, p1), c[1]), k0);
    hlo next2 = hlo_bin(w, "stablehlo.xor", hlo_bin(w, "stablehlo.xor", high32(w, p0), c[3]), k1);
    c[0] = next0;
    c[1] = low32(w, p1);
    c[2] = next2;
    c[3] = low32(w, p0);
  }
  hlo word = hlo_bin(w, "stablehlo.and", index, hlo_full_i(w, index, 3)), r = c[0];
  for (int i = 1; i < 4; i++) r = hlo_select(w, hlo_compare(w, "EQ", word, hlo_full_i(w, word, i)), c[i], r);
  return hlo_convert(w, r, TNX_I64);
}

/* ---- nodes ---- */

void hlo_pointwise(hlo_writer *w) {
  const tnx_node *n = w->node;
  tnx_op op = (tnx_op)n->op;
  hlo x = hlo_operand(w, 0), r;
  switch (op) {
    case TNX_OP_CONVERT: r = x; break; /* hlo_set_result converts */
    case TNX_OP_CHECK: r = x; break;   /* StableHLO has no faults */
    case TNX_OP_SELECT: r = hlo_select(w, x, hlo_operand(w, 1), hlo_operand(w, 2)); break;
    case TNX_OP_PHILOX: r = philox(w, x, hlo_operand(w, 1), hlo_operand(w, 2)); break;
    case TNX_OP_NEXTAFTER: r = binary(w, op, x, hlo_operand(w, 1)); break; /* the neighbour in its own format */
    default:
      x = hlo_wide(w, x);
      r = n->n_inputs == 1 ? unary(w, op, x) : binary(w, op, x, hlo_wide(w, hlo_operand(w, 1)));
  }
  hlo_set_result(w, 0, r);
}
