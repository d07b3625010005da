/* Sampling of images at the places of a grid, in two or three dimensions, and its gradients.
 *
 * Along each dimension a place reads a few elements (taps) with weights; a result is the sum over all combinations of taps. What lies outside the
 * image reads as 0, or is brought back inside by clamping or reflection. Computed in float32 for halves; spatial sizes are known. */
#include "aten/family.h"

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { MAX_TAPS = 4 };

/* For one dimension, each [n, places]: position of a tap (int64, inside the image), its weight, 0 where it lies outside, and the derivative of the
 * weight by the grid's coordinate. */
typedef struct taps { int n; tnx_value at[MAX_TAPS], weight[MAX_TAPS], slope[MAX_TAPS]; } taps;

typedef struct sampler {
  tnx_builder *b;
  int spatial, mode, padding;
  bool align;
  tnx_dtype t, acc;
  tnx_dim n, channels, places;
  int64_t in[3], flat;
  tnx_value grid; /* [n, places, spatial] */
  taps along[3];
} sampler;

static bool sampler_init(tnx_lower *l, tnx_value input, tnx_value grid, const tnx_arg *how, int spatial, sampler *s) {
  tnx_builder *b = &l->b;
  *s = (sampler){.b = b, .spatial = spatial, .mode = (int)how[0].dim, .padding = (int)how[1].dim, .align = arg_bool(how + 2), .t = tnx_b_dtype(b, input), .flat = 1, .places = 1};
  s->acc = tnx_acc_of(s->t);
  bool ok = tnx_dtype_is_float(s->t) && tnx_b_rank(b, input) == spatial + 2 && tnx_b_rank(b, grid) == spatial + 2 && tnx_b_dtype(b, grid) == s->t &&
            s->mode >= 0 && s->mode <= (spatial == 2 ? BICUBIC : NEAREST) && s->padding >= 0 && s->padding <= REFLECTION;
  for (int i = 0; i < spatial && ok; i++) {
    tnx_dim size = tnx_b_size(b, input, 2 + i);
    ok = !tnx_dim_is_symbolic(size) && size > 0;
    s->in[i] = size;
    s->flat *= ok ? size : 1;
    s->places = tnx_b_dim_mul(b, s->places, tnx_b_size(b, grid, 1 + i));
  }
  if (ok && (differ(tnx_b_size(b, grid, spatial + 1), spatial) || differ(tnx_b_size(b, grid, 0), tnx_b_size(b, input, 0)))) {
    tnx_b_fail(b, TNX_SHAPE, "grid_sampler(): input and grid do not fit together");
    return false;
  }
  if (!ok) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "grid_sampler: ranks, dtypes or sizes");
    return false;
  }
  s->n = tnx_b_size(b, input, 0), s->channels = tnx_b_size(b, input, 1);
  tnx_dim sizes[3] = {s->n, s->places, spatial};
  s->grid = tnx_b_reshape(b, tnx_b_convert(b, grid, s->acc), 3, sizes);
  return s->grid != 0;
}

/* ---- coordinates ---- */

typedef struct coordinate { tnx_value v, slope; } coordinate; /* slope: derivative by the grid's coordinate; 0 means `factor` everywhere */

static double factor(const sampler *s, int64_t in) { return s->align ? (double)(in - 1) / 2 : (double)in / 2; }

/* -1 .. 1 to the image's: the centres of the outer elements, or their outer edges. */
static tnx_value unnormalized(const sampler *s, int dim) {
  tnx_builder *b = s->b;
  int last = 2;
  tnx_value x = tnx_b_squeeze(b, tnx_b_slice(b, s->grid, 2, s->spatial - 1 - dim, 1, 1), &last, 1), one = add_f(b, x, 1);
  if (s->align) return mul_f(b, mul_f(b, one, 0.5), (double)(s->in[dim] - 1));
  return mul_f(b, add_f(b, mul_f(b, one, (double)s->in[dim]), -1), 0.5);
}

/* Between low / 2 and high / 2, mirrored there; slopes get their sign. */
static coordinate reflected(const sampler *s, coordinate c, int64_t low, int64_t high) {
  tnx_builder *b = s->b;
  tnx_dtype t = s->acc;
  if (low == high) return (coordinate){full_like_f(b, c.v, t, 0), full_like_f(b, c.v, t, 0)};
  double min = (double)low / 2, span = (double)(high - low) / 2;
  tnx_value from = add_f(b, c.v, -min), distance = tnx_b_unary(b, TNX_OP_ABS, from);
  tnx_value extra = tnx_b_binary_f(b, TNX_OP_FMOD, distance, span), flips = tnx_b_unary(b, TNX_OP_FLOOR, tnx_b_binary_f(b, TNX_OP_DIV, distance, span));
  tnx_value even = compare_f(b, TNX_OP_EQ, tnx_b_binary_f(b, TNX_OP_FMOD, flips, 2), 0);
  tnx_value sign = tnx_b_binary(b, TNX_OP_MUL, tnx_b_select(b, compare_f(b, TNX_OP_LT, from, 0), tnx_b_const_f(b, t, -1), tnx_b_const_f(b, t, 1)),
                                tnx_b_select(b, even, tnx_b_const_f(b, t, 1), tnx_b_const_f(b, t, -1)));
  return (coordinate){tnx_b_select(b, even, add_f(b, extra, min), rsub_f(b, span + min, extra)), mul(b, c.slope, sign)};
}

/* Inside the image; the slope is 0 where the coordinate is held. */
static coordinate clamped(const sampler *s, coordinate c, int64_t in) {
  tnx_builder *b = s->b;
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GT, c.v, 0), compare_f(b, TNX_OP_LT, c.v, (double)(in - 1)));
  tnx_value low = select_f(b, compare_f(b, TNX_OP_GT, c.v, 0), c.v, 0); /* NaN becomes 0 */
  return (coordinate){tnx_b_binary_f(b, TNX_OP_MIN, low, (double)(in - 1)), select_f(b, inside, c.slope, 0)};
}

static coordinate padded(const sampler *s, coordinate c, int64_t in) {
  if (s->padding == REFLECTION) c = s->align ? reflected(s, c, 0, 2 * (in - 1)) : reflected(s, c, -1, 2 * in - 1);
  return s->padding == ZEROS ? c : clamped(s, c, in);
}

/* A tap at this whole coordinate: its position, and its weights made 0 where it is outside. */
static void add_tap(const sampler *s, taps *p, tnx_value whole, tnx_value weight, tnx_value slope, int64_t in) {
  tnx_builder *b = s->b;
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GE, whole, 0), compare_f(b, TNX_OP_LE, whole, (double)(in - 1)));
  p->at[p->n] = tnx_b_convert(b, select_f(b, inside, whole, 0), TNX_I64);
  p->weight[p->n] = select_f(b, inside, weight, 0);
  p->slope[p->n] = slope ? select_f(b, inside, slope, 0) : 0;
  p->n++;
}

/* Cubic convolution with A = -0.75 at distance x below 1, and between 1 and 2; and their derivatives. */
static tnx_value near(tnx_builder *b, tnx_value x) { return add_f(b, mul(b, mul(b, add_f(b, mul_f(b, x, 1.25), -2.25), x), x), 1); }
static tnx_value far(tnx_builder *b, tnx_value x) { return add_f(b, mul(b, add_f(b, mul(b, add_f(b, mul_f(b, x, -0.75), 3.75), x), -6), x), 3); }
static tnx_value near_slope(tnx_builder *b, tnx_value x) { return mul(b, add_f(b, mul_f(b, x, 3.75), -4.5), x); }
static tnx_value far_slope(tnx_builder *b, tnx_value x) { return add_f(b, mul(b, add_f(b, mul_f(b, x, -2.25), 7.5), x), -6); }

static void find_taps(sampler *s, int dim) {
  tnx_builder *b = s->b;
  taps *p = &s->along[dim];
  int64_t in = s->in[dim];
  coordinate c = {unnormalized(s, dim), 0};
  if (!c.v) return;
  c.slope = full_like_f(b, c.v, s->acc, factor(s, in));
  if (s->mode == BICUBIC) {
    tnx_value whole = tnx_b_unary(b, TNX_OP_FLOOR, c.v), x = sub(b, c.v, whole), y = rsub_f(b, 1, x), x1 = add_f(b, x, 1), y1 = add_f(b, y, 1);
    const tnx_value weight[4] = {far(b, x1), near(b, x), near(b, y), far(b, y1)};
    const tnx_value slope[4] = {far_slope(b, x1), near_slope(b, x), neg(b, near_slope(b, y)), neg(b, far_slope(b, y1))};
    for (int i = 0; i < 4; i++) {
      coordinate at = padded(s, (coordinate){add_f(b, whole, i - 1), c.slope}, in);
      add_tap(s, p, at.v, weight[i], mul(b, slope[i], c.slope), in);
    }
    return;
  }
  c = padded(s, c, in);
  if (s->mode == NEAREST) {
    add_tap(s, p, tnx_b_unary(b, TNX_OP_ROUND, c.v), tnx_b_const_f(b, s->acc, 1), 0, in);
    return;
  }
  tnx_value whole = tnx_b_unary(b, TNX_OP_FLOOR, c.v), x = sub(b, c.v, whole);
  add_tap(s, p, whole, rsub_f(b, 1, x), neg(b, c.slope), in);
  add_tap(s, p, add_f(b, whole, 1), x, c.slope, in);
}

/* One combination of taps: flat positions [n, places], and the product of the weights, of dimension `by` the slope instead (-1: none). */
static int combinations(const sampler *s) {
  int n = 1;
  for (int i = 0; i < s->spatial; i++) n *= s->along[i].n;
  return n;
}

static tnx_value combine(const sampler *s, int which, int by, tnx_value *at) {
  tnx_builder *b = s->b;
  tnx_value weight = 0, place = 0;
  for (int i = s->spatial - 1, rest = which; i >= 0; rest /= s->along[i].n, i--) {
    const taps *p = &s->along[i];
    tnx_value w = i == by ? p->slope[rest % p->n] : p->weight[rest % p->n];
    weight = weight ? mul(b, weight, w) : w;
  }
  int digits[3];
  for (int i = s->spatial - 1, rest = which; i >= 0; rest /= s->along[i].n, i--) digits[i] = rest % s->along[i].n;
  for (int i = 0; i < s->spatial; i++) {
    tnx_value v = s->along[i].at[digits[i]];
    place = place ? add(b, mul_f(b, place, (double)s->in[i]), v) : v;
  }
  *at = place;
  return weight;
}

/* [n, places] beside [n, channels, places] */
static tnx_value over_channels(const sampler *s, tnx_value v) {
  tnx_dim sizes[3] = {s->n, s->channels, s->places};
  return v ? tnx_b_broadcast_to(s->b, tnx_b_unsqueeze(s->b, v, 1), 3, sizes) : 0;
}

static tnx_status sample(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  sampler s;
  if (!sampler_init(l, a[0].value, a[1].value, a + 2, spatial, &s)) return b->status;
  for (int i = 0; i < spatial; i++) find_taps(&s, i);
  tnx_dim flat[3] = {s.n, s.channels, s.flat}, sizes[5] = {s.n, s.channels};
  for (int i = 0; i < spatial; i++) sizes[2 + i] = tnx_b_size(b, a[1].value, 1 + i);
  tnx_value x = tnx_b_reshape(b, a[0].value, 3, flat), sum = 0;
  for (int k = 0; k < combinations(&s) && b->status == TNX_OK; k++) {
    tnx_value at, w = combine(&s, k, -1, &at);
    tnx_value part = mul(b, tnx_b_convert(b, tnx_b_gather(b, x, over_channels(&s, at), 2), s.acc), tnx_b_unsqueeze(b, w, 1));
    sum = sum ? add(b, sum, part) : part;
  }
  return give(l, results, tnx_b_reshape(b, tnx_b_convert(b, sum, s.t), spatial + 2, sizes));
}
tnx_status lower_grid_sampler_2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sample(l, a, 2, results); }
tnx_status lower_grid_sampler_3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sample(l, a, 3, results); }

/* (grad, input, grid, mode, padding, align_corners, output_mask) -> gradients of input and grid */
static tnx_status sample_backward(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  sampler s;
  if (!sampler_init(l, a[1].value, a[2].value, a + 3, spatial, &s)) return b->status;
  for (int i = 0; i < spatial; i++) find_taps(&s, i);
  tnx_dim flat[3] = {s.n, s.channels, s.flat}, places[3] = {s.n, s.channels, s.places};
  tnx_value dy = tnx_b_reshape(b, tnx_b_convert(b, a[0].value, s.acc), 3, places), dx = 0, by[3] = {0}, dgrid = 0;
  tnx_value x = tnx_b_reshape(b, a[1].value, 3, flat);
  int channels = 1;
  if (a[6].dims[0]) dx = tnx_b_full(b, tnx_b_const_f(b, s.acc, 0), 3, flat);
  for (int k = 0; k < combinations(&s) && b->status == TNX_OK; k++) {
    tnx_value at, w = combine(&s, k, -1, &at);
    if (dx) dx = tnx_b_scatter(b, dx, over_channels(&s, at), mul(b, dy, tnx_b_unsqueeze(b, w, 1)), 2, ADD);
    if (s.mode == NEAREST || !a[6].dims[1]) continue;
    /* what this element contributes to the loss, for a weight of 1 */
    tnx_value read = tnx_b_convert(b, tnx_b_gather(b, x, over_channels(&s, at), 2), s.acc);
    tnx_value share = reduce(b, TNX_OP_REDUCE_SUM, mul(b, read, dy), &channels, 1, false);
    for (int i = 0; i < spatial; i++) {
      tnx_value part = mul(b, share, combine(&s, k, i, &at));
      by[i] = by[i] ? add(b, by[i], part) : part;
    }
  }
  if (a[6].dims[1]) {
    tnx_value parts[3];
    for (int i = 0; i < spatial; i++) {
      tnx_value v = by[spatial - 1 - i]; /* the grid's last dimension begins with the innermost one */
      if (!v) {
        tnx_dim sizes[2] = {s.n, s.places};
        v = tnx_b_full(b, tnx_b_const_f(b, s.acc, 0), 2, sizes);
      }
      parts[i] = tnx_b_unsqueeze(b, tnx_b_convert(b, v, s.t), 2);
    }
    dgrid = tnx_b_reshape(b, tnx_b_concat(b, parts, spatial, 2), spatial + 2, tnx_b_sizes(b, a[2].value));
  }
  return give2(l, results, dx ? tnx_b_reshape(b, tnx_b_convert(b, dx, s.t), spatial + 2, tnx_b_sizes(b, a[1].value)) : 0, dgrid);
}
tnx_status lower_grid_sampler_2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sample_backward(l, a, 2, results); }
tnx_status lower_grid_sampler_3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return sample_backward(l, a, 3, results); }
