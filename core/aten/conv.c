/* Convolutions as matrix products over windows, their transposes and gradients, for 1 to 3 spatial dimensions. Spatial sizes are known; the
 * batch may be symbolic. Halves: the product accumulates in float32. */
#include <stdio.h>

#include "aten/family.h"

typedef struct geometry {
  int spatial; /* dimensions after batch and channels */
  int64_t kernel[3], stride[3], pad[3], dilation[3], out_pad[3];
  int64_t groups;
  bool transposed;
} geometry;


/* More output padding would be rows that no window reaches. */
static bool output_padding_ok(tnx_builder *b, const geometry *g) {
  static const char *const names[3] = {"depth", "height", "width"};
  bool ok = true;
  for (int i = 0; i < g->spatial; i++) ok &= g->out_pad[i] < g->stride[i] || g->out_pad[i] < g->dilation[i];
  if (ok) return true;
  char text[512];
  size_t n = 0;
  const struct { const char *name; const int64_t *values; } lists[3] = {{"output_padding", g->out_pad}, {"stride", g->stride}, {"dilation", g->dilation}};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < g->spatial; i++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%s_%s: %lld", n ? " " : "", lists[k].name, names[3 - g->spatial + i], (long long)lists[k].values[i]);
  tnx_b_fail(b, TNX_INVALID_ARGUMENT, "output padding must be smaller than either stride or dilation, but got %s", text);
  return false;
}

/* (weight, stride, padding, dilation, transposed, output_padding, groups) */
static bool geometry_init(tnx_lower *l, tnx_value x, tnx_value weight, const tnx_arg *a, geometry *g) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x);
  *g = (geometry){.spatial = rank - 2, .groups = a[5].dim, .transposed = arg_bool(a + 3)};
  bool ok = rank >= 3 && rank <= 5 && tnx_b_rank(b, weight) == rank && (tnx_dtype_is_float(tnx_b_dtype(b, x)) || tnx_b_dtype(b, x) == TNX_I64) && tnx_b_dtype(b, x) == tnx_b_dtype(b, weight) && g->groups > 0;
  for (int i = 1; i < rank && ok; i++) ok = !tnx_dim_is_symbolic(tnx_b_size(b, x, i)) && !tnx_dim_is_symbolic(tnx_b_size(b, weight, i));
  if (!ok || tnx_dim_is_symbolic(tnx_b_size(b, weight, 0))) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "convolution: ranks, dtypes or symbolic sizes");
    return false;
  }
  for (int i = 0; i < g->spatial; i++) {
    g->kernel[i] = tnx_b_size(b, weight, i + 2), g->stride[i] = arg_listed(a, i, 0), g->pad[i] = arg_listed(a + 1, i, 0), g->dilation[i] = arg_listed(a + 2, i, 0), g->out_pad[i] = arg_listed(a + 4, i, 0);
    if (g->dilation[i] < 1) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "non-positive dilation is not supported"), false;
    if (g->kernel[i] < 1 || g->stride[i] < 1 || g->dilation[i] < 1) {
      tnx_b_fail(b, TNX_INVALID_ARGUMENT, "convolution: kernel, stride and dilation have to be positive");
      return false;
    }
  }
  return !g->transposed || output_padding_ok(b, g);
}

static int64_t span(const geometry *g, int i) { return (g->kernel[i] - 1) * g->dilation[i] + 1; }

/* x with `low` and `high` zeros around each spatial dimension */
static tnx_value padded(tnx_builder *b, tnx_value x, const geometry *g, const int64_t *low, const int64_t *high) {
  tnx_dim lo[5] = {0}, hi[5] = {0};
  for (int i = 0; i < g->spatial; i++) lo[i + 2] = low[i], hi[i + 2] = high[i];
  return x ? tnx_b_pad(b, x, tnx_b_const_f(b, tnx_b_dtype(b, x), 0), lo, hi) : 0;
}

/* The windows of a padded x [n, c, s...]: [n, c, out..., kernel...]; out sizes into `out`. */
static tnx_value windows(tnx_builder *b, tnx_value x, const geometry *g, tnx_dim *out) {
  for (int i = 0; i < g->spatial; i++) {
    if (!x) return 0;
    int64_t size = tnx_b_size(b, x, i + 2), width = span(g, i);
    if (size < width) return tnx_b_fail(b, TNX_SHAPE, "Calculated padded input size per channel is smaller than the kernel");
    out[i] = (size - width) / g->stride[i] + 1;
    x = tnx_b_unfold(b, x, i + 2, width, g->stride[i]);
    if (g->dilation[i] > 1 && x) x = tnx_b_slice(b, x, tnx_b_rank(b, x) - 1, 0, g->kernel[i], g->dilation[i]);
  }
  return x;
}

/* Windows as matrices: [n, groups, c / groups * kernel, positions]. */
static tnx_value columns(tnx_builder *b, tnx_value x, const geometry *g, tnx_dim *out, tnx_dim *positions) {
  tnx_value w = windows(b, x, g, out);
  if (!w) return 0;
  int perm[8] = {0, 1};
  tnx_dim sizes[4] = {tnx_b_size(b, x, 0), g->groups, tnx_b_size(b, x, 1) / g->groups, 1};
  for (int i = 0; i < g->spatial; i++) {
    perm[2 + i] = 2 + g->spatial + i, perm[2 + g->spatial + i] = 2 + i;
    sizes[2] *= g->kernel[i], sizes[3] *= out[i];
  }
  *positions = sizes[3];
  return tnx_b_reshape(b, tnx_b_transpose(b, w, perm), 4, sizes);
}

/* One channel a group and few taps: a sum of shifted products, which becomes one pointwise loop. */
static tnx_value depthwise(tnx_builder *b, tnx_value x, tnx_value weight, const geometry *g, tnx_dim *out) {
  tnx_dtype acc = tnx_acc_of(tnx_b_dtype(b, x));
  int64_t taps = 1;
  tnx_value sum = 0;
  for (int i = 0; i < g->spatial; i++) {
    int64_t size = tnx_b_size(b, x, i + 2);
    if (size < span(g, i)) return tnx_b_fail(b, TNX_SHAPE, "Calculated padded input size per channel is smaller than the kernel");
    out[i] = (size - span(g, i)) / g->stride[i] + 1;
    taps *= g->kernel[i];
  }
  tnx_dim flat[2] = {tnx_b_size(b, weight, 0), taps}, channels[5] = {1, flat[0], 1, 1, 1};
  tnx_value w = tnx_b_convert(b, tnx_b_reshape(b, weight, 2, flat), acc);
  x = tnx_b_convert(b, x, acc);
  for (int64_t t = 0; t < taps; t++) {
    tnx_value part = x;
    int64_t rest = t;
    for (int i = g->spatial - 1; i >= 0; i--) {
      part = tnx_b_slice(b, part, i + 2, rest % g->kernel[i] * g->dilation[i], out[i], g->stride[i]);
      rest /= g->kernel[i];
    }
    tnx_value term = mul(b, part, tnx_b_reshape(b, tnx_b_slice(b, w, 1, t, 1, 1), g->spatial + 2, channels));
    sum = sum ? add(b, sum, term) : term;
  }
  return sum;
}

/* Convolution of an x that is padded already, with weight [o, c / groups, kernel...] and bias [o] or none. */
static tnx_value convolve(tnx_builder *b, tnx_value x, tnx_value weight, tnx_value bias, const geometry *g) {
  if (!x || !weight) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  tnx_dim out[3], positions = 0, sizes[5] = {tnx_b_size(b, x, 0), tnx_b_size(b, weight, 0)};
  int64_t o = sizes[1], c = tnx_b_size(b, weight, 1), taps = 1;
  if (tnx_b_size(b, x, 1) != c * g->groups || o % g->groups) return tnx_b_fail(b, TNX_SHAPE, "convolution: channels of input and weight do not fit the groups");
  for (int i = 0; i < g->spatial; i++) taps *= g->kernel[i];
  tnx_value y;
  if (c == 1 && o == g->groups && taps <= 16 && o > 1) {
    y = depthwise(b, x, weight, g, out);
    if (bias) {
      tnx_dim channels[5] = {1, o, 1, 1, 1};
      y = add(b, y, tnx_b_convert(b, tnx_b_reshape(b, bias, g->spatial + 2, channels), tnx_acc_of(t)));
    }
    y = tnx_b_convert(b, y, t);
    for (int i = 0; i < g->spatial; i++) sizes[2 + i] = out[i];
  } else {
    tnx_value cols = columns(b, x, g, out, &positions);
    tnx_dim w[4] = {1, g->groups, o / g->groups, c * taps};
    for (int i = 0; i < g->spatial; i++) sizes[2 + i] = cols ? out[i] : 0;
    tnx_value rows = tnx_b_reshape(b, weight, 4, w);
    tnx_dim column[4] = {1, g->groups, o / g->groups, 1};
    if (t == TNX_I64) y = lower_product_of(b, rows, cols);
    else y = bias ? tnx_b_addmm(b, tnx_b_reshape(b, bias, 4, column), rows, cols, 1, 1) : tnx_b_matmul(b, rows, cols);
    if (bias && t == TNX_I64) y = add(b, y, tnx_b_reshape(b, bias, 4, column));
  }
  return tnx_b_reshape(b, y, g->spatial + 2, sizes);
}

/* weight [c, o / groups, kernel...] of a transposed convolution as that of the plain one that computes it: [o, c / groups, kernel...], turned around. */
static tnx_value turned(tnx_builder *b, tnx_value weight, const geometry *g) {
  int rank = g->spatial + 2, dims[3];
  tnx_dim c = tnx_b_size(b, weight, 0), o = tnx_b_size(b, weight, 1), split[6] = {g->groups, c / g->groups, o}, joined[5] = {o * g->groups, c / g->groups};
  for (int i = 0; i < g->spatial; i++) split[3 + i] = joined[2 + i] = g->kernel[i], dims[i] = i + 2;
  tnx_value w = tnx_b_swap_dims(b, tnx_b_reshape(b, weight, rank + 1, split), 1, 2);
  return tnx_b_reverse(b, tnx_b_reshape(b, w, rank, joined), dims, g->spatial);
}

/* Transposed convolution: the input spread out by the stride, then a plain convolution of step 1. out: the result's spatial sizes. */
static tnx_value convolve_transposed(tnx_builder *b, tnx_value x, tnx_value weight, tnx_value bias, const geometry *g, const int64_t *out) {
  geometry plain = *g;
  int64_t low[3], high[3];
  if (tnx_b_size(b, weight, 0) % g->groups || tnx_b_size(b, x, 1) != tnx_b_size(b, weight, 0)) return tnx_b_fail(b, TNX_SHAPE, "convolution: channels of input and weight do not fit the groups");
  tnx_value w = turned(b, weight, g);
  for (int i = 0; i < g->spatial; i++) {
    if (!x) return 0;
    int64_t size = tnx_b_size(b, x, i + 2), spread = (size - 1) * g->stride[i] + 1;
    if (g->stride[i] > 1) {
      tnx_dim sizes[5];
      for (int j = 0; j < g->spatial + 2; j++) sizes[j] = j == i + 2 ? spread : tnx_b_size(b, x, j);
      x = tnx_b_update_slice(b, tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, x), 0), g->spatial + 2, sizes), x, i + 2, 0, g->stride[i]);
    }
    low[i] = span(g, i) - 1 - g->pad[i];
    high[i] = out[i] + span(g, i) - 1 - spread - low[i];
    plain.stride[i] = 1;
  }
  return convolve(b, padded(b, x, g, low, high), w, bias, &plain);
}

/* Gradient of the weight [o, c / groups, kernel...]: the products of dy [n, o, positions] and the windows of x, over batch and positions. */
static tnx_value weight_gradient(tnx_builder *b, tnx_value dy, tnx_value x, const geometry *g, tnx_value weight) {
  tnx_dim out[3], positions = 0;
  int64_t need[3], none[3] = {0};
  /* only as much of x as the windows reach */
  for (int i = 0; i < g->spatial; i++) need[i] = (tnx_b_size(b, dy, i + 2) - 1) * g->stride[i] + span(g, i) - tnx_b_size(b, x, i + 2);
  tnx_value cols = columns(b, padded(b, x, g, none, need), g, out, &positions);
  if (!cols) return 0;
  tnx_dim n = tnx_b_size(b, dy, 0), o = tnx_b_size(b, dy, 1), k = tnx_b_size(b, cols, 2), all = tnx_b_dim_mul(b, n, positions);
  tnx_dim dy_split[4] = {n, g->groups, o / g->groups, positions}, left[3] = {g->groups, o / g->groups, all}, right[3] = {g->groups, k, all};
  static const int batch_in[4] = {1, 2, 0, 3};
  tnx_value y = tnx_b_reshape(b, tnx_b_transpose(b, tnx_b_reshape(b, dy, 4, dy_split), batch_in), 3, left);
  tnx_value w = tnx_b_swap_dims(b, tnx_b_reshape(b, tnx_b_transpose(b, cols, batch_in), 3, right), 1, 2);
  return tnx_b_reshape(b, tnx_b_matmul(b, y, w), g->spatial + 2, tnx_b_sizes(b, weight));
}

static tnx_value forward(tnx_builder *b, tnx_value x, tnx_value weight, tnx_value bias, const geometry *g) {
  if (!g->transposed) return convolve(b, padded(b, x, g, g->pad, g->pad), weight, bias, g);
  int64_t out[3];
  for (int i = 0; i < g->spatial; i++) out[i] = (tnx_b_size(b, x, i + 2) - 1) * g->stride[i] - 2 * g->pad[i] + span(g, i) + g->out_pad[i];
  return convolve_transposed(b, x, weight, bias, g, out);
}

/* (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) */
tnx_status lower_convolution(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  geometry g;
  if (!geometry_init(l, a[0].value, a[1].value, a + 3, &g)) return b->status;
  tnx_value bias = arg_value(a + 2);
  if (bias && tnx_b_dtype(b, bias) != tnx_b_dtype(b, a[1].value)) return tnx_fail(TNX_DTYPE, "Input type and bias type should be the same");
  return give(l, results, forward(b, a[0].value, a[1].value, bias, &g));
}

/* a: grad_output, input, weight; how: stride, padding, dilation, transposed, output_padding, groups, output_mask */
static tnx_status backward(tnx_lower *l, const tnx_arg *a, const tnx_arg *how, tnx_value *results) {
  tnx_builder *b = &l->b;
  geometry g;
  const tnx_dim *mask = how[6].dims;
  if (!geometry_init(l, a[1].value, a[2].value, how, &g)) return b->status;
  tnx_value dy = a[0].value, x = a[1].value, w = a[2].value, dx = 0, dw = 0, db = 0;
  if (mask[0]) {
    if (g.transposed) {
      /* exactly as many windows as x has places: output padding may leave room for more */
      geometry plain = g;
      int64_t high[3];
      plain.transposed = false;
      for (int i = 0; i < g.spatial; i++) high[i] = (tnx_b_size(b, x, i + 2) - 1) * g.stride[i] + span(&g, i) - g.pad[i] - tnx_b_size(b, dy, i + 2);
      dx = convolve(b, padded(b, dy, &g, g.pad, high), w, 0, &plain);
    } else {
      int64_t sizes[3];
      for (int i = 0; i < g.spatial; i++) sizes[i] = tnx_b_size(b, x, i + 2);
      dx = convolve_transposed(b, dy, w, 0, &g, sizes);
    }
  }
  if (mask[1]) dw = g.transposed ? weight_gradient(b, x, padded(b, dy, &g, g.pad, g.pad), &g, w) : weight_gradient(b, dy, padded(b, x, &g, g.pad, g.pad), &g, w);
  if (mask[2]) {
    int dims[4] = {0};
    for (int i = 0; i < g.spatial; i++) dims[i + 1] = i + 2;
    db = reduce(b, TNX_OP_REDUCE_SUM, dy, dims, g.spatial + 1, false);
  }
  return give3(l, results, dx, dw, db);
}
tnx_status lower_convolution_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return backward(l, a, a + 3, results); }
/* convolution_backward names the bias' sizes too. */
tnx_status lower_convolution_backward_sizes(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return backward(l, a, a + 4, results); }
