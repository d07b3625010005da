/* Interpolation and padding by reading: along each spatial dimension the result is a sum of a few weighted reads, and the gradient adds the same
 * weights at the same places. Sizes of these dimensions are known. */
#include "aten/family.h"

enum { MAX_TAPS = 4 };

/* For one dimension: positions read, int64 [out], and their weights in the computation dtype; weight 0 means 1. */
typedef struct taps { int n; tnx_value at[MAX_TAPS], weight[MAX_TAPS]; } taps;

/* A vector [n] beside a tensor of this rank, along dim. */
static tnx_value beside(tnx_builder *b, tnx_value v, int rank, int dim) {
  if (!v) return 0;
  tnx_dim sizes[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) sizes[i] = i == dim ? tnx_b_size(b, v, 0) : 1;
  return tnx_b_reshape(b, v, rank, sizes);
}

static tnx_value read_taps(tnx_builder *b, tnx_value x, int dim, const taps *p) {
  tnx_value sum = 0;
  for (int i = 0; i < p->n && x; i++) {
    tnx_value part = tnx_b_take(b, x, p->at[i], dim);
    if (p->weight[i]) part = mul(b, part, beside(b, p->weight[i], tnx_b_rank(b, x), dim));
    sum = sum ? add(b, sum, part) : part;
  }
  return sum;
}

static tnx_value write_taps(tnx_builder *b, tnx_value dy, int dim, const taps *p, int64_t in) {
  if (!dy) return 0;
  int rank = tnx_b_rank(b, dy);
  tnx_dim sizes[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) sizes[i] = i == dim ? in : tnx_b_size(b, dy, i);
  tnx_value sum = tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, dy), 0), rank, sizes);
  for (int i = 0; i < p->n; i++) sum = tnx_b_put(b, sum, p->at[i], p->weight[i] ? mul(b, dy, beside(b, p->weight[i], rank, dim)) : dy, dim, ADD);
  return sum;
}

static tnx_value clamp_index(tnx_builder *b, tnx_value v, int64_t size) { return tnx_b_binary_f(b, TNX_OP_MIN, tnx_b_binary_f(b, TNX_OP_MAX, v, 0), (double)(size - 1)); }

static tnx_value positions(tnx_builder *b, int64_t out, tnx_dtype t) {
  tnx_dim n = out;
  return tnx_b_convert(b, tnx_b_iota(b, 1, &n, 0), t);
}

/* ---- interpolation ---- */

typedef enum method { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } method;

/* Source steps per result step: from the scale factor if one was given. */
static double step_of(int64_t in, int64_t out, bool align, const tnx_arg *factor) {
  if (align) return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  double f = arg_number(factor, 0);
  return f > 0 ? 1 / f : (double)in / (double)out;
}

/* Cubic convolution with A = -0.75: weights of the neighbours at distance t + 1, t, 1 - t, 2 - t. */
static tnx_value cubic_near(tnx_builder *b, tnx_value t) { /* ((A + 2) t - (A + 3)) t t + 1 */
  return add_f(b, mul(b, mul(b, add_f(b, mul_f(b, t, 1.25), -2.25), t), t), 1);
}
static tnx_value cubic_far(tnx_builder *b, tnx_value t) { /* ((A t - 5 A) t + 8 A) t - 4 A */
  return add_f(b, mul(b, add_f(b, mul(b, add_f(b, mul_f(b, t, -0.75), 3.75), t), -6), t), 3);
}

static taps interpolation(tnx_builder *b, method m, int64_t in, int64_t out, bool align, const tnx_arg *factor, tnx_dtype acc) {
  taps p = {0};
  double step = step_of(in, out, align, factor);
  if (m == NEAREST || m == NEAREST_EXACT) {
    /* computed in float32, as PyTorch does, so that ties fall the same way */
    tnx_value at = positions(b, out, TNX_F32);
    if (m == NEAREST_EXACT) at = add_f(b, at, 0.5);
    p.n = 1;
    p.at[0] = clamp_index(b, tnx_b_convert(b, tnx_b_unary(b, TNX_OP_FLOOR, mul_f(b, at, (double)(float)step)), TNX_I64), in);
    return p;
  }
  tnx_value at = positions(b, out, acc);
  at = align ? mul_f(b, at, step) : add_f(b, mul_f(b, add_f(b, at, 0.5), step), -0.5);
  if (m == LINEAR && !align) at = tnx_b_binary_f(b, TNX_OP_MAX, at, 0);
  tnx_value whole = tnx_b_unary(b, TNX_OP_FLOOR, at), t = sub(b, at, whole), left = tnx_b_convert(b, whole, TNX_I64);
  if (m == LINEAR) {
    p.n = 2;
    p.at[0] = clamp_index(b, left, in), p.at[1] = clamp_index(b, add_f(b, left, 1), in);
    p.weight[0] = rsub_f(b, 1, t), p.weight[1] = t;
    return p;
  }
  p.n = 4;
  for (int i = 0; i < 4; i++) p.at[i] = clamp_index(b, add_f(b, left, i - 1), in);
  tnx_value u = rsub_f(b, 1, t);
  p.weight[0] = cubic_far(b, add_f(b, t, 1)), p.weight[1] = cubic_near(b, t), p.weight[2] = cubic_near(b, u), p.weight[3] = cubic_far(b, add_f(b, u, 1));
  return p;
}

/* forward: x [n, c, in...], out sizes; backward: x is the gradient and in_size the operand's whole shape. */
static tnx_status interpolate(tnx_lower *l, tnx_value x, int spatial, method m, const tnx_arg *out_size, const tnx_arg *in_size, bool align, const tnx_arg *factors, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  bool nearest = m == NEAREST || m == NEAREST_EXACT;
  if (tnx_b_rank(b, x) != spatial + 2 || (!tnx_dtype_is_float(t) && !(nearest && !in_size && t == TNX_U8))) return uncovered(l, "rank or dtype");
  if (out_size->kind != TNX_ARG_INTS || (int)out_size->count != spatial) return tnx_fail(TNX_SHAPE, "output size does not fit");
  tnx_value v = nearest && !in_size ? x : tnx_b_convert(b, x, acc);
  for (int i = 0; i < spatial; i++) {
    tnx_dim in = in_size ? in_size->dims[i + 2] : tnx_b_size(b, x, i + 2), out = out_size->dims[i];
    if (tnx_dim_is_symbolic(in) || tnx_dim_is_symbolic(out)) return uncovered(l, "symbolic sizes");
    if (in < 1 || out < 1) return tnx_fail(TNX_SHAPE, "Input and output sizes should be greater than 0");
    taps p = interpolation(b, m, in, out, align, factors + i, acc);
    v = in_size ? write_taps(b, v, i + 2, &p, in) : read_taps(b, v, i + 2, &p);
  }
  return give(l, results, tnx_b_convert(b, v, t));
}

#define PLAIN(name, spatial, m)                                                                                                                                              \
  tnx_status lower_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return interpolate(l, a[0].value, spatial, m, a + 1, NULL, false, a + 2, results); }        \
  tnx_status lower_##name##_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return interpolate(l, a[0].value, spatial, m, a + 1, a + 2, false, a + 3, results); }
#define ALIGNED(name, spatial, m)                                                                                                                                            \
  tnx_status lower_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return interpolate(l, a[0].value, spatial, m, a + 1, NULL, arg_bool(a + 2), a + 3, results); } \
  tnx_status lower_##name##_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {                                                                                   \
    return interpolate(l, a[0].value, spatial, m, a + 1, a + 2, arg_bool(a + 3), a + 4, results);                                                                            \
  }
PLAIN(upsample_nearest1d, 1, NEAREST)
PLAIN(upsample_nearest2d, 2, NEAREST)
PLAIN(upsample_nearest3d, 3, NEAREST)
PLAIN(upsample_nearest_exact1d, 1, NEAREST_EXACT)
PLAIN(upsample_nearest_exact2d, 2, NEAREST_EXACT)
PLAIN(upsample_nearest_exact3d, 3, NEAREST_EXACT)
ALIGNED(upsample_linear1d, 1, LINEAR)
ALIGNED(upsample_bilinear2d, 2, LINEAR)
ALIGNED(upsample_trilinear3d, 3, LINEAR)
ALIGNED(upsample_bicubic2d, 2, CUBIC)

/* ---- interpolation with antialiasing: each result weighs all elements its widened filter reaches ---- */

/* Triangle, or cubic with A = -0.5. */
static tnx_value filter(tnx_builder *b, tnx_value x, bool cubic) {
  x = tnx_b_unary(b, TNX_OP_ABS, x);
  if (!cubic) return tnx_b_binary_f(b, TNX_OP_MAX, rsub_f(b, 1, x), 0);
  tnx_value near = add_f(b, mul(b, mul(b, add_f(b, mul_f(b, x, 1.5), -2.5), x), x), 1);
  tnx_value far = mul_f(b, add_f(b, mul(b, add_f(b, mul(b, add_f(b, x, -5), x), 8), x), -4), -0.5);
  return tnx_b_select(b, compare_f(b, TNX_OP_LT, x, 1), near, select_f(b, compare_f(b, TNX_OP_LT, x, 2), far, 0));
}

/* The weights as a matrix [out, in]. */
static tnx_value filter_matrix(tnx_builder *b, int64_t in, int64_t out, bool align, const tnx_arg *factor, bool cubic, tnx_dtype acc) {
  tnx_dim sizes[2] = {out, in}, rows[2] = {out, 1};
  double step = step_of(in, out, align, factor), wide = step >= 1 ? step : 1, support = (cubic ? 2 : 1) * wide;
  tnx_value centre = mul_f(b, add_f(b, tnx_b_convert(b, tnx_b_iota(b, 2, rows, 0), acc), 0.5), step), j = tnx_b_iota(b, 2, sizes, 1);
  tnx_value begin = tnx_b_convert(b, add_f(b, centre, 0.5 - support), TNX_I64), end = tnx_b_convert(b, add_f(b, centre, support + 0.5), TNX_I64);
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, j, begin), tnx_b_binary(b, TNX_OP_LT, j, end));
  tnx_value w = select_f(b, inside, filter(b, mul_f(b, add_f(b, sub(b, tnx_b_convert(b, j, acc), centre), 0.5), 1 / wide), cubic), 0);
  int last = 1;
  return divide(b, w, reduce(b, TNX_OP_REDUCE_SUM, w, &last, 1, true));
}

static tnx_status antialiased(tnx_lower *l, tnx_value x, bool cubic, const tnx_arg *out_size, const tnx_arg *in_size, bool align, const tnx_arg *factors, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  if (tnx_b_rank(b, x) != 4 || !tnx_dtype_is_float(t)) return uncovered(l, "rank or dtype");
  if (out_size->kind != TNX_ARG_INTS || out_size->count != 2) return tnx_fail(TNX_SHAPE, "output size does not fit");
  tnx_value v = tnx_b_convert(b, x, acc);
  for (int i = 0; i < 2 && v; i++) {
    tnx_dim in = in_size ? in_size->dims[i + 2] : tnx_b_size(b, x, i + 2), out = out_size->dims[i];
    if (tnx_dim_is_symbolic(in) || tnx_dim_is_symbolic(out)) return uncovered(l, "symbolic sizes");
    if (in < 1 || out < 1) return tnx_fail(TNX_SHAPE, "Input and output sizes should be greater than 0");
    tnx_value m = filter_matrix(b, in, out, align, factors + i, cubic, acc);
    v = tnx_b_swap_dims(b, tnx_b_matmul(b, tnx_b_swap_dims(b, v, i + 2, 3), in_size ? m : tnx_b_swap_dims(b, m, 0, 1)), i + 2, 3);
  }
  return give(l, results, tnx_b_convert(b, v, t));
}

#define ANTIALIASED(name, cubic)                                                                                                                                   \
  tnx_status lower_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return antialiased(l, a[0].value, cubic, a + 1, NULL, arg_bool(a + 2), a + 3, results); } \
  tnx_status lower_##name##_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {                                                                         \
    return antialiased(l, a[0].value, cubic, a + 1, a + 2, arg_bool(a + 3), a + 4, results);                                                                       \
  }
ANTIALIASED(upsample_bilinear2d_aa, false)
ANTIALIASED(upsample_bicubic2d_aa, true)

/* ---- padding ---- */

/* Positions of the padded dimension in the unpadded one: mirrored at the edges, or the edges repeated. */
static taps border(tnx_builder *b, int64_t in, int64_t low, int64_t high, bool reflect) {
  tnx_value at = add_f(b, positions(b, in + low + high, TNX_I64), (double)-low);
  if (reflect) at = rsub_f(b, (double)(in - 1), tnx_b_unary(b, TNX_OP_ABS, rsub_f(b, (double)(in - 1), tnx_b_unary(b, TNX_OP_ABS, at))));
  return (taps){.n = 1, .at = {reflect ? at : clamp_index(b, at, in)}};
}

static tnx_status pad(tnx_lower *l, tnx_value x, tnx_value like, const tnx_arg *padding, int spatial, bool reflect, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, x);
  int first = tnx_b_rank(b, x) - spatial;
  if ((first != 1 && first != 2) || (int)padding->count != 2 * spatial) return tnx_fail(TNX_SHAPE, "padding: rank of the input");
  tnx_value v = like ? tnx_b_convert(b, x, tnx_acc_of(t)) : x;
  for (int i = 0; i < spatial; i++) {
    tnx_dim in = tnx_b_size(b, like ? like : x, first + i), low = padding->dims[2 * (spatial - 1 - i)], high = padding->dims[2 * (spatial - 1 - i) + 1];
    if (tnx_dim_is_symbolic(in) || tnx_dim_is_symbolic(low) || tnx_dim_is_symbolic(high)) return uncovered(l, "symbolic sizes");
    if (in < 1 || (reflect && (low >= in || high >= in)) || in + low + high < 1) return tnx_fail(TNX_SHAPE, "Padding size should be less than the corresponding input dimension");
    if (low == 0 && high == 0) continue;
    taps p = border(b, in, low, high, reflect);
    v = like ? write_taps(b, v, first + i, &p, in) : read_taps(b, v, first + i, &p);
  }
  return give(l, results, tnx_b_convert(b, v, t));
}

#define PADDING(name, spatial, reflect)                                                                                                                          \
  tnx_status lower_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return pad(l, a[0].value, 0, a + 1, spatial, reflect, results); }                \
  tnx_status lower_##name##_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return pad(l, a[0].value, a[1].value, a + 2, spatial, reflect, results); }
PADDING(reflection_pad1d, 1, true)
PADDING(reflection_pad2d, 2, true)
PADDING(reflection_pad3d, 3, true)
PADDING(replication_pad1d, 1, false)
PADDING(replication_pad2d, 2, false)
PADDING(replication_pad3d, 3, false)
