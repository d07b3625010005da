/* Random numbers: counter based (Philox4x32-10), so that a value depends on seed, offset and its place only. Element i uses words
 * i * words .. i * words + words - 1 of the stream, at most 4: a caller that moves its offset by one for each element never repeats any. */
#include "aten/family.h"

/* The places of the elements in memory order, in one dimension. */
static tnx_value places(tnx_builder *b, int rank, const tnx_dim *sizes) {
  tnx_dim n = 1;
  for (int i = 0; i < rank; i++) n = tnx_b_dim_mul(b, n, sizes[i]);
  return tnx_b_iota(b, 1, &n, 0);
}

/* 32 random bits for each element, in int64: its word `word` of `words`. */
static tnx_value random_bits(tnx_lower *l, const tnx_arg *a, int rank, const tnx_dim *sizes, int word, int words) {
  tnx_builder *b = &l->b;
  tnx_value index = places(b, rank, sizes);
  if (words != 1) index = add_f(b, mul_f(b, index, words), word);
  return tnx_b_philox(b, a[l->n_args - 2].value, a[l->n_args - 1].value, tnx_b_reshape(b, index, rank, sizes));
}

static tnx_value shift_right(tnx_builder *b, tnx_value x, int bits) { return tnx_b_binary_f(b, TNX_OP_SHR, x, bits); }
static tnx_value shift_left(tnx_builder *b, tnx_value x, int bits) { return tnx_b_binary_f(b, TNX_OP_SHL, x, bits); }

/* 24 bits for float32, 53 from two words for float64. */
tnx_value lower_uniform01(tnx_lower *l, const tnx_arg *a, tnx_dtype t, int rank, const tnx_dim *sizes, int word, int words) {
  tnx_builder *b = &l->b;
  tnx_value w = random_bits(l, a, rank, sizes, word, words);
  if (t != TNX_F64) return mul_f(b, tnx_b_convert(b, shift_right(b, w, 8), TNX_F32), 0x1p-24);
  tnx_value low = random_bits(l, a, rank, sizes, word + 1, words);
  return mul_f(b, tnx_b_convert(b, add(b, shift_left(b, shift_right(b, w, 5), 26), shift_right(b, low, 6)), TNX_F64), 0x1p-53);
}

#define SELF                                                     \
  tnx_builder *b = &l->b;                                        \
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t); \
  int rank = tnx_b_rank(b, a[0].value);                          \
  const tnx_dim *sizes = tnx_b_sizes(b, a[0].value)

/* Words one uniform number takes. */
static int words_of(tnx_dtype acc) { return acc == TNX_F64 ? 2 : 1; }

/* Half types get as many bits as they hold, so that rounding never reaches the upper end. */
static tnx_value uniform(tnx_lower *l, const tnx_arg *a, tnx_dtype t, int rank, const tnx_dim *sizes) {
  tnx_builder *b = &l->b;
  if (tnx_dtype_is_complex(t)) {
    tnx_dtype real = tnx_dtype_real(t);
    int w = words_of(real);
    return tnx_b_binary(b, TNX_OP_COMPLEX, lower_uniform01(l, a, real, rank, sizes, 0, 2 * w), lower_uniform01(l, a, real, rank, sizes, w, 2 * w));
  }
  int bits = t == TNX_BF16 ? 8 : t == TNX_F16 ? 11 : 0;
  if (!bits) return lower_uniform01(l, a, t, rank, sizes, 0, words_of(t));
  return mul_f(b, tnx_b_convert(b, shift_right(b, random_bits(l, a, rank, sizes, 0, 1), 32 - bits), TNX_F32), ldexp(1, -bits));
}

/* A standard normal number is the quantile of a uniform one: sqrt(2) erfinv(x), where x lies in the middle of its step of (-1, 1), so that the two signs are alike
 * and neither end is reached. A complex number takes two, with variance 1/2 in each part. */
static tnx_value normal_part(tnx_lower *l, const tnx_arg *a, tnx_dtype t, int rank, const tnx_dim *sizes, int word, int words) {
  tnx_builder *b = &l->b;
  tnx_value x = add_f(b, mul_f(b, lower_uniform01(l, a, t, rank, sizes, word, words), 2), (t == TNX_F64 ? 0x1p-53 : 0x1p-24) - 1);
  return tnx_b_unary(b, TNX_OP_ERFINV, x);
}
static tnx_value normal(tnx_lower *l, const tnx_arg *a, tnx_dtype acc, int rank, const tnx_dim *sizes) {
  tnx_dtype real = tnx_dtype_real(acc);
  int w = words_of(real);
  if (real == acc) return mul_f(&l->b, normal_part(l, a, real, rank, sizes, 0, w), 1.41421356237309504880);
  return tnx_b_binary(&l->b, TNX_OP_COMPLEX, normal_part(l, a, real, rank, sizes, 0, 2 * w), normal_part(l, a, real, rank, sizes, w, 2 * w));
}

static tnx_value exponential(tnx_lower *l, const tnx_arg *a, tnx_dtype acc, int rank, const tnx_dim *sizes) {
  tnx_builder *b = &l->b;
  tnx_value u = lower_uniform01(l, a, acc, rank, sizes, 0, words_of(acc));
  /* never 0: the result is divided by in sampling */
  return tnx_b_binary_f(b, TNX_OP_MAX, neg(b, tnx_b_unary(b, TNX_OP_LOG1P, neg(b, u))), acc == TNX_F64 ? 0x1p-54 : 0x1p-25);
}

/* ---- fills: the result has self's shape and dtype ---- */

tnx_status lower_uniform(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (tnx_dtype_is_integral(t)) return uncovered(l, "dtype");
  double from = arg_number(a + 1, 0), to = arg_number(a + 2, 1);
  if (from > to) return tnx_fail(TNX_INVALID_ARGUMENT, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", from, to);
  tnx_value u = uniform(l, a, t, rank, sizes);
  if (from != 0 || to != 1) u = add(b, mul_f(b, u, to - from), tnx_b_const_c(b, u ? tnx_b_dtype(b, u) : t, from, tnx_dtype_is_complex(t) ? from : 0));
  (void)acc;
  return give(l, results, tnx_b_convert(b, u, t));
}

tnx_status lower_normal(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (tnx_dtype_is_integral(t)) return uncovered(l, "dtype");
  if (arg_number(a + 2, 1) < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "normal expects std >= 0.0, but found std %g", arg_number(a + 2, 1));
  return give(l, results, tnx_b_convert(b, add_f(b, mul_f(b, normal(l, a, acc, rank, sizes), arg_number(a + 2, 1)), arg_number(a + 1, 0)), t));
}

tnx_status lower_log_normal(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  tnx_value z = add_f(b, mul_f(b, normal(l, a, acc, rank, sizes), arg_number(a + 2, 2)), arg_number(a + 1, 1));
  return give(l, results, tnx_b_convert(b, tnx_b_unary(b, TNX_OP_EXP, z), t));
}

tnx_status lower_exponential(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  double lambd = arg_number(a + 1, 1);
  if (!(lambd > 0)) return tnx_fail(TNX_INVALID_ARGUMENT, "exponential_ expects lambda > 0.0, but found lambda=%g", lambd);
  return give(l, results, tnx_b_convert(b, tnx_b_binary_f(b, TNX_OP_DIV, exponential(l, a, acc, rank, sizes), lambd), t));
}

tnx_status lower_cauchy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  tnx_value u = add_f(b, lower_uniform01(l, a, acc, rank, sizes, 0, words_of(acc)), -0.5);
  tnx_value c = tnx_b_unary(b, TNX_OP_TAN, mul_f(b, u, 3.14159265358979323846));
  return give(l, results, tnx_b_convert(b, add_f(b, mul_f(b, c, arg_number(a + 2, 1)), arg_number(a + 1, 0)), t));
}

tnx_status lower_geometric(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  double p = arg_number(a + 1, 0.5);
  if (!(p > 0 && p < 1)) return tnx_fail(TNX_INVALID_ARGUMENT, "geometric_ expects p to be in (0, 1), but got p=%g", p);
  if (t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  if (tnx_dtype_is_integral(t)) acc = TNX_F32;
  tnx_value u = tnx_b_unary(b, TNX_OP_LOG, rsub_f(b, 1, lower_uniform01(l, a, acc, rank, sizes, 0, words_of(acc))));
  tnx_value k = tnx_b_unary(b, TNX_OP_CEIL, tnx_b_binary_f(b, TNX_OP_DIV, u, log1p(-p)));
  return give(l, results, tnx_b_convert(b, tnx_b_binary_f(b, TNX_OP_MAX, k, 1), t));
}

/* ---- bernoulli ---- */

static tnx_status bernoulli(tnx_lower *l, const tnx_arg *a, const tnx_arg *p, tnx_value *results) {
  SELF;
  tnx_value u = lower_uniform01(l, a, TNX_F32, rank, sizes, 0, 1), limit;
  (void)acc;
  if (p->kind == TNX_ARG_TENSOR) {
    if (!tnx_dtype_is_float(tnx_b_dtype(b, p->value))) return uncovered(l, "integer probabilities");
    limit = tnx_b_convert(b, p->value, TNX_F32);
    limit = expand_like(b, tnx_b_check(b, limit, tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GE, limit, 0), compare_f(b, TNX_OP_LE, limit, 1)), TNX_FAULT_PROBABILITY), a[0].value);
  } else {
    double v = arg_number(p, 0.5);
    if (!(v >= 0 && v <= 1)) return tnx_fail(TNX_INVALID_ARGUMENT, "bernoulli_ expects p to be in [0, 1], but got p=%g", v);
    limit = tnx_b_const_f(b, TNX_F32, v);
  }
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_LT, u, limit), t));
}
tnx_status lower_bernoulli(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return bernoulli(l, a, a, results); }
tnx_status lower_bernoulli_p(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return bernoulli(l, a, a + 1, results); }

/* ---- integers ---- */

/* Uniform in [from, from + range); range 0 stands for 2^64. */
static tnx_value integers(tnx_lower *l, const tnx_arg *a, int64_t from, uint64_t range, int rank, const tnx_dim *sizes) {
  tnx_builder *b = &l->b;
  tnx_value v;
  if (range != 0 && range <= UINT64_C(1) << 32) {
    v = random_bits(l, a, rank, sizes, 0, 1);
    if (range < UINT64_C(1) << 32) v = tnx_b_binary(b, TNX_OP_REMAINDER, v, tnx_b_const_i(b, TNX_I64, (int64_t)range));
  } else {
    tnx_value high = shift_left(b, random_bits(l, a, rank, sizes, 0, 2), 32);
    v = tnx_b_binary(b, TNX_OP_OR, high, random_bits(l, a, rank, sizes, 1, 2));
    if (range != 0 && range <= INT64_MAX) {
      v = tnx_b_binary(b, TNX_OP_AND, v, tnx_b_const_i(b, TNX_I64, INT64_MAX));
      v = tnx_b_binary(b, TNX_OP_REMAINDER, v, tnx_b_const_i(b, TNX_I64, (int64_t)range));
    } else if (range == UINT64_C(1) << 63) {
      v = tnx_b_binary(b, TNX_OP_AND, v, tnx_b_const_i(b, TNX_I64, INT64_MAX));
    } else if (range != 0) {
      tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "random integers of a range above 2^63");
    }
  }
  return from ? add(b, v, tnx_b_const_i(b, TNX_I64, from)) : v;
}

/* Values 0 .. limit that every number of the dtype's integers holds exactly. */
static uint64_t whole_range(tnx_dtype t) {
  switch (t) {
    case TNX_BOOL: return 2;
    case TNX_U8: return 256;
    case TNX_I8: return 128;
    case TNX_I16: return 32768;
    case TNX_I32: return UINT64_C(1) << 31;
    case TNX_F16: return (1 << 11) + 1;
    case TNX_BF16: return (1 << 8) + 1;
    case TNX_F32: return (1 << 24) + 1;
    case TNX_F64: return (UINT64_C(1) << 53) + 1;
    default: return UINT64_C(1) << 63;
  }
}

static tnx_status random_range(tnx_lower *l, const tnx_arg *a, int64_t from, uint64_t range, tnx_value *results) {
  SELF;
  (void)acc;
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  return give(l, results, tnx_b_convert(b, integers(l, a, from, range, rank, sizes), t));
}
tnx_status lower_random(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return random_range(l, a, 0, whole_range(tnx_b_dtype(&l->b, a[0].value)), results); }
tnx_status lower_random_to(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (a[1].dim <= 0) return tnx_fail(TNX_INVALID_ARGUMENT, "random_ expects 'from' to be less than 'to', but got from=0 >= to=%lld", (long long)a[1].dim);
  return random_range(l, a, 0, (uint64_t)a[1].dim, results);
}
tnx_status lower_random_from(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (arg_none(a + 2)) {
    uint64_t whole = whole_range(tnx_b_dtype(&l->b, a[0].value));
    if (a[1].dim == INT64_MIN) return random_range(l, a, INT64_MIN, 0, results);
    return random_range(l, a, a[1].dim, whole - (uint64_t)a[1].dim, results);
  }
  if (a[1].dim >= a[2].dim) return tnx_fail(TNX_INVALID_ARGUMENT, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld", (long long)a[1].dim, (long long)a[2].dim);
  return random_range(l, a, a[1].dim, (uint64_t)a[2].dim - (uint64_t)a[1].dim, results);
}

/* A permutation: the order of random keys. */
static tnx_status randperm(tnx_lower *l, const tnx_arg *a, tnx_dtype t, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dim n = a[0].dim;
  if (!tnx_dim_is_symbolic(n) && n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "n must be non-negative");
  tnx_value sorted = tnx_b_topk(b, integers(l, a, 0, UINT64_C(1) << 63, 1, &n), 0, n, false, true);
  return give(l, results, sorted ? tnx_b_convert(b, sorted + 1, t) : 0);
}
tnx_status lower_randperm(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return randperm(l, a, arg_dtype(a + 1, TNX_I64), results); }
tnx_status lower_randperm_generator(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return randperm(l, a, arg_dtype(a + 2, TNX_I64), results); }
tnx_status lower_randperm_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return randperm(l, a, TNX_I64, results); }

/* ---- by size (graphs) ---- */

#define SIZED(at, dtype_arg, none)                            \
  tnx_builder *b = &l->b;                                     \
  tnx_dim sizes[TNX_MAX_RANK];                                \
  int rank = arg_sizes(b, a + (at), sizes);                   \
  tnx_dtype t = arg_dtype(a + (dtype_arg), (none));           \
  if (rank < 0) return b->status

tnx_status lower_rand(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SIZED(0, 1, l->b.default_dtype);
  return give(l, results, tnx_b_convert(b, uniform(l, a, t, rank, sizes), t));
}
tnx_status lower_randn(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SIZED(0, 1, l->b.default_dtype);
  return give(l, results, tnx_b_convert(b, normal(l, a, tnx_acc_of(t), rank, sizes), t));
}
tnx_status lower_randint(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SIZED(1, 2, TNX_I64);
  if (arg_symbolic(a) || a[0].dim <= 0) return uncovered(l, "range");
  return give(l, results, tnx_b_convert(b, integers(l, a, 0, (uint64_t)a[0].dim, rank, sizes), t));
}
tnx_status lower_randint_low(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SIZED(2, 3, TNX_I64);
  if (arg_symbolic(a) || arg_symbolic(a + 1) || a[0].dim >= a[1].dim) return uncovered(l, "range");
  return give(l, results, tnx_b_convert(b, integers(l, a, a[0].dim, (uint64_t)a[1].dim - (uint64_t)a[0].dim, rank, sizes), t));
}

/* like a tensor: (self, dtype, ...) */
static tnx_status random_like(tnx_lower *l, const tnx_arg *a, bool gaussian, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = arg_dtype(a + 1, tnx_b_dtype(b, a[0].value));
  if (tnx_dtype_is_integral(t)) return uncovered(l, "dtype");
  int rank = tnx_b_rank(b, a[0].value);
  const tnx_dim *sizes = tnx_b_sizes(b, a[0].value);
  return give(l, results, tnx_b_convert(b, gaussian ? normal(l, a, tnx_acc_of(t), rank, sizes) : uniform(l, a, t, rank, sizes), t));
}
tnx_status lower_rand_like(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return random_like(l, a, false, results); }
tnx_status lower_randn_like(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return random_like(l, a, true, results); }

/* normal(mean, std): either may be a tensor; the result has the tensors' common shape and the first tensor's dtype. */
tnx_status lower_normal_tensors(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value mean = arg_value(a), std = arg_value(a + 1);
  tnx_dtype t = tnx_b_dtype(b, mean ? mean : std), acc = tnx_acc_of(t);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_broadcast_shape(b, mean ? tnx_b_rank(b, mean) : 0, mean ? tnx_b_sizes(b, mean) : NULL, std ? tnx_b_rank(b, std) : 0, std ? tnx_b_sizes(b, std) : NULL, sizes);
  if (rank < 0) return b->status;
  tnx_value scale = tnx_b_scalar(b, a + 1, acc);
  if (std) scale = tnx_b_check(b, scale, compare_f(b, TNX_OP_GE, scale, 0), TNX_FAULT_STD);
  tnx_value z = mul(b, normal(l, a, acc, rank, sizes), scale);
  return give(l, results, tnx_b_convert(b, add(b, z, tnx_b_scalar(b, a, acc)), t));
}

/* ---- dropout ---- */

static tnx_value keep_mask(tnx_lower *l, const tnx_arg *a, double keep) {
  return compare_f(&l->b, TNX_OP_LT, lower_uniform01(l, a, TNX_F32, tnx_b_rank(&l->b, a[0].value), tnx_b_sizes(&l->b, a[0].value), 0, 1), keep);
}

/* x * mask / keep, in the computation dtype, rounded once */
static tnx_value dropped(tnx_builder *b, tnx_value x, tnx_value mask, double scale) {
  tnx_value v = select_f(b, mask, mul_f(b, to_acc(b, x), scale), 0);
  return tnx_b_convert(b, v, tnx_b_dtype(b, x));
}

tnx_status lower_native_dropout(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  double p = arg_number(a + 1, 0.5);
  if (!tnx_dtype_is_float(tnx_b_dtype(b, a[0].value))) return uncovered(l, "dtype");
  if (!(p >= 0 && p <= 1)) return tnx_fail(TNX_INVALID_ARGUMENT, "dropout probability has to be between 0 and 1, but got %g", p);
  if ((!arg_none(a + 2) && !arg_bool(a + 2)) || p == 0) return give2(l, results, a[0].value, full_like_f(b, a[0].value, TNX_BOOL, 1));
  if (p == 1) return give2(l, results, full_like_f(b, a[0].value, tnx_b_dtype(b, a[0].value), 0), full_like_f(b, a[0].value, TNX_BOOL, 0));
  tnx_value mask = keep_mask(l, a, 1 - p);
  return give2(l, results, dropped(b, a[0].value, mask, 1 / (1 - p)), mask);
}

tnx_status lower_fused_dropout(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  double keep = arg_number(a + 1, 0.5);
  if (!tnx_dtype_is_float(tnx_b_dtype(&l->b, a[0].value))) return uncovered(l, "dtype");
  tnx_value mask = keep_mask(l, a, keep);
  return give2(l, results, dropped(&l->b, a[0].value, mask, 1 / keep), tnx_b_convert(&l->b, mask, TNX_U8));
}

/* grad * mask * scale */
tnx_status lower_native_dropout_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_float_of(tnx_b_dtype(b, a[0].value));
  tnx_value g = tnx_b_convert(b, a[0].value, tnx_acc_of(t)), m = tnx_b_convert(b, a[1].value, tnx_acc_of(t));
  return give(l, results, tnx_b_convert(b, mul_f(b, mul(b, g, m), arg_number(a + 2, 1)), t));
}

/* ---- randomized leaky relu ---- */

/* (self, noise, lower, upper, training, generator) -> result, noise: negative elements times a random slope, which noise keeps; 1 for the others */
tnx_status lower_rrelu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  SELF;
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  double low = arg_number(a + 2, 0.125), high = arg_number(a + 3, 1.0 / 3);
  tnx_value x = to_acc(b, a[0].value), positive = compare_f(b, TNX_OP_GT, x, 0);
  if (!arg_bool(a + 4)) return give2(l, results, tnx_b_convert(b, tnx_b_select(b, positive, x, mul_f(b, x, (low + high) / 2)), t), a[1].value);
  tnx_value slope = add_f(b, mul_f(b, lower_uniform01(l, a, acc, rank, sizes, 0, words_of(acc)), high - low), low);
  slope = tnx_b_convert(b, tnx_b_select(b, positive, tnx_b_const_f(b, acc, 1), slope), tnx_b_dtype(b, a[1].value));
  return give2(l, results, tnx_b_convert(b, mul(b, x, tnx_b_convert(b, slope, acc)), t), slope);
}

/* ---- by rejection: in float64, each number from the bits of a uniform one ---- */

static tnx_value sampled(tnx_lower *l, const tnx_arg *a, tnx_op op, tnx_value parameter) {
  tnx_builder *b = &l->b;
  tnx_value u = lower_uniform01(l, a, TNX_F64, tnx_b_rank(b, parameter), tnx_b_sizes(b, parameter), 0, 2);
  return tnx_b_binary(b, op, tnx_b_convert(b, parameter, TNX_F64), u);
}

tnx_status lower_poisson(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  tnx_value rate = tnx_b_check(b, a[0].value, compare_f(b, TNX_OP_GE, a[0].value, 0), TNX_FAULT_RATE);
  return give(l, results, tnx_b_convert(b, sampled(l, a, TNX_OP_SAMPLE_POISSON, rate), t));
}

/* At least the smallest normal number, as PyTorch has it: the logarithm of a sample is finite. */
static tnx_value gammas(tnx_lower *l, const tnx_arg *a) {
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  double least = t == TNX_F64 ? 0x1p-1022 : t == TNX_F16 ? 0x1p-14 : 0x1p-126;
  return tnx_b_binary_f(&l->b, TNX_OP_MAX, sampled(l, a, TNX_OP_SAMPLE_GAMMA, a[0].value), least);
}

tnx_status lower_standard_gamma(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dtype t = tnx_b_dtype(&l->b, a[0].value);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_convert(&l->b, gammas(l, a), t));
}

tnx_status lower_sample_dirichlet(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  int last = tnx_b_rank(b, a[0].value) - 1;
  if (!tnx_dtype_is_float(t) || last < 0) return uncovered(l, "dtype or rank");
  tnx_value g = gammas(l, a);
  return give(l, results, tnx_b_convert(b, divide(b, g, reduce(b, TNX_OP_REDUCE_SUM, g, &last, 1, true)), t));
}

tnx_status lower_standard_gamma_grad(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_SAMPLE_GAMMA_GRAD, tnx_b_convert(b, a[0].value, TNX_F64), tnx_b_convert(b, a[1].value, TNX_F64)), t));
}

/* ---- multinomial ---- */

/* Without replacement, or one sample: the largest of p / q, q exponential. With replacement: where the cumulative sum passes a uniform number. */
tnx_status lower_multinomial(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value p = a[0].value;
  int rank = tnx_b_rank(b, p);
  tnx_dim k = a[1].dim;
  if ((rank != 1 && rank != 2) || !tnx_dtype_is_float(tnx_b_dtype(b, p)) || tnx_dim_is_symbolic(k)) return uncovered(l, "rank, dtype or symbolic count");
  tnx_dim classes = tnx_b_size(b, p, -1);
  if (k <= 0 || (!arg_bool(a + 2) && !tnx_dim_is_symbolic(classes) && k > classes)) return tnx_fail(TNX_INVALID_ARGUMENT, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  int last = rank - 1;
  p = to_acc(b, p);
  if (!p) return b->status;
  bool top = !arg_bool(a + 2) || k == 1;
  tnx_value positive = compare_f(b, TNX_OP_GE, p, 0), finite = tnx_b_unary(b, TNX_OP_ISFINITE, p);
  p = tnx_b_check(b, p, finite, top ? TNX_FAULT_WEIGHTS : TNX_FAULT_WEIGHT_INFINITE);
  p = tnx_b_check(b, p, positive, top ? TNX_FAULT_WEIGHTS : TNX_FAULT_WEIGHT_NEGATIVE);
  p = tnx_b_check(b, p, compare_f(b, TNX_OP_GT, reduce(b, TNX_OP_REDUCE_SUM, p, &last, 1, true), 0), TNX_FAULT_WEIGHT_SUM);
  if (!p) return b->status;
  if (top) {
    tnx_dtype acc = tnx_b_dtype(b, p);
    tnx_value score = divide(b, p, exponential(l, a, acc, rank, tnx_b_sizes(b, p)));
    if (k == 1) return give(l, results, reduce(b, TNX_OP_ARGMAX, score, &last, 1, true));
    tnx_value best = tnx_b_topk(b, score, last, k, true, true);
    return give(l, results, best ? best + 1 : 0);
  }
  tnx_value cdf = tnx_b_scan(b, TNX_OP_CUMSUM, tnx_b_convert(b, p, TNX_F64), last);
  tnx_dim draws[2] = {rank == 2 ? tnx_b_size(b, p, 0) : k, k};
  tnx_value total = tnx_b_slice(b, cdf, last, tnx_b_dim_sub(b, classes, 1), 1, 1);
  tnx_value at = mul(b, lower_uniform01(l, a, TNX_F64, rank, draws, 0, 2), total);
  tnx_value passed = tnx_b_binary(b, TNX_OP_LE, tnx_b_unsqueeze(b, cdf, last), tnx_b_unsqueeze(b, at, rank));
  tnx_value index = reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, passed, TNX_I64), &rank, 1, false);
  return give(l, results, tnx_b_binary(b, TNX_OP_MIN, index, tnx_b_dimval(b, tnx_b_dim_sub(b, classes, 1))));
}
