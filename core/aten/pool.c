/* Pooling over the last two or three dimensions, by views of windows. Spatial sizes are known; dimensions in front of them are left alone. */
#include "aten/family.h"

typedef struct window { int spatial, first; int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3]; } window;

/* The windows' geometry; an empty stride list means the kernel's size. With `ceil` a last window may hang over the end, if it begins inside. */
static bool window_init(tnx_lower *l, tnx_value x, int spatial, const tnx_arg *kernel, const tnx_arg *stride, const tnx_arg *pad, const tnx_arg *dilation, bool ceil_mode, window *w) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x);
  *w = (window){.spatial = spatial, .first = rank - spatial};
  bool ok = (rank == spatial + 1 || rank == spatial + 2) && tnx_b_dtype(b, x) != TNX_BOOL && !tnx_dtype_is_complex(tnx_b_dtype(b, x));
  for (int i = rank - spatial - 1; i < rank && ok; i++)
    if (tnx_b_size(b, x, i) == 0) {
      tnx_b_fail(b, TNX_SHAPE, "Expected %dD or %dD (batch mode) tensor with optional 0 dim batch size for input", spatial + 1, spatial + 2);
      return false;
    }
  for (int i = 0; i < spatial && ok; i++) {
    tnx_dim in = tnx_b_size(b, x, w->first + i);
    int64_t k = arg_listed(kernel, i, 1), s = arg_listed(stride, i, k), p = arg_listed(pad, i, 0), d = dilation ? arg_listed(dilation, i, 1) : 1;
    if (tnx_dim_is_symbolic(in) || k < 1 || s < 1 || d < 1 || p < 0 || p > k / 2) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "pooling: geometry"), false;
    int64_t reach = in + 2 * p - d * (k - 1) - 1 + (ceil_mode ? s - 1 : 0), out = reach < 0 ? 0 : reach / s + 1;
    if (ceil_mode && (out - 1) * s >= in + p) out--;
    if (out < 1) return tnx_b_fail(b, TNX_SHAPE, "pooling: output size is too small"), false;
    if (out == 1 && d * (k - 1) >= in + 2 * p) k = (in + 2 * p - 1) / d + 1; /* a single window, which may be far larger than what there is */
    w->in[i] = in, w->out[i] = out, w->kernel[i] = k, w->stride[i] = s, w->pad[i] = p, w->dilation[i] = d;
  }
  if (!ok) tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "pooling: rank or dtype");
  return ok;
}

static int64_t span(const window *w, int i) { return (w->kernel[i] - 1) * w->dilation[i] + 1; }

/* -INFINITY for integers: the smallest there is. */
static tnx_value fill_value(tnx_builder *b, tnx_dtype t, double fill) {
  if (tnx_dtype_is_float(t) || isfinite(fill)) return tnx_b_const_f(b, t, fill);
  bool is_signed = tnx_dtype_get_kind(t) != TNX_KIND_UINT;
  return tnx_b_const_i(b, t, is_signed ? INT64_MIN >> (64 - 8 * (int)tnx_dtype_size(t)) : 0);
}

/* [.., out..., kernel...] of x padded with `fill` */
static tnx_value windows(tnx_builder *b, tnx_value x, const window *w, double fill) {
  tnx_dim low[5] = {0}, high[5] = {0};
  for (int i = 0; i < w->spatial; i++) {
    low[w->first + i] = w->pad[i];
    high[w->first + i] = (w->out[i] - 1) * w->stride[i] + span(w, i) - w->in[i] - w->pad[i];
  }
  x = x ? tnx_b_pad(b, x, fill_value(b, tnx_b_dtype(b, x), fill), low, high) : 0;
  for (int i = 0; i < w->spatial; i++) {
    x = tnx_b_unfold(b, x, w->first + i, span(w, i), w->stride[i]);
    if (x && w->dilation[i] > 1) x = tnx_b_slice(b, x, tnx_b_rank(b, x) - 1, 0, w->kernel[i], w->dilation[i]);
  }
  return x;
}

static void window_dims(const window *w, int *dims) {
  for (int i = 0; i < w->spatial; i++) dims[i] = w->first + w->spatial + i;
}

/* A vector along spatial dimension i beside a result of first + spatial dimensions: the output position. */
static tnx_value position(tnx_builder *b, const window *w, int i) {
  return axis_iota(b, w->first + w->spatial, w->first + i, w->out[i]);
}

/* ---- averages ---- */

/* Elements a window counts: those inside the padded input, or inside the input itself. */
static tnx_value divisor(tnx_builder *b, const window *w, bool with_pad, tnx_dtype acc) {
  tnx_value all = 0;
  for (int i = 0; i < w->spatial; i++) {
    tnx_value start = add_f(b, mul_f(b, position(b, w, i), (double)w->stride[i]), (double)-w->pad[i]);
    tnx_value end = tnx_b_binary_f(b, TNX_OP_MIN, add_f(b, start, (double)w->kernel[i]), (double)(w->in[i] + (with_pad ? w->pad[i] : 0)));
    if (!with_pad) start = tnx_b_binary_f(b, TNX_OP_MAX, start, 0);
    tnx_value n = tnx_b_convert(b, sub(b, end, start), acc);
    all = all ? mul(b, all, n) : n;
  }
  return all;
}

static tnx_value average_divisor(tnx_builder *b, const window *w, const tnx_arg *with_pad, const tnx_arg *over, tnx_dtype acc) {
  return arg_none(over) ? divisor(b, w, arg_bool(with_pad), acc) : tnx_b_const_i(b, acc, over->dim);
}

/* (self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static tnx_status avg_pool(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  window w;
  if (!window_init(l, a[0].value, spatial, a + 1, a + 2, a + 3, NULL, arg_bool(a + 4), &w)) return b->status;
  if (!tnx_dtype_is_float(tnx_b_dtype(b, a[0].value)) && tnx_b_dtype(b, a[0].value) != TNX_I64) return uncovered(l, "dtype");
  if (!arg_none(a + 6) && a[6].dim == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "divisor must be not zero");
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  int dims[3];
  window_dims(&w, dims);
  tnx_value sum = reduce(b, TNX_OP_REDUCE_SUM, windows(b, tnx_b_convert(b, a[0].value, acc), &w, 0), dims, spatial, false);
  return give(l, results, tnx_b_convert(b, divide(b, sum, average_divisor(b, &w, a + 5, a + 6, acc)), t));
}
tnx_status lower_avg_pool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return avg_pool(l, a, 2, results); }
tnx_status lower_avg_pool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return avg_pool(l, a, 3, results); }

/* Each element collects from the windows that hold it: the gradient spread out by the stride, then sums of windows of step 1. */
static tnx_status avg_pool_backward(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  window w;
  if (!window_init(l, a[1].value, spatial, a + 2, a + 3, a + 4, NULL, arg_bool(a + 5), &w)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  tnx_value g = divide(b, tnx_b_convert(b, a[0].value, acc), average_divisor(b, &w, a + 6, a + 7, acc));
  tnx_dim low[5] = {0}, high[5] = {0};
  int dims[3];
  for (int i = 0; i < spatial && g; i++) {
    int dim = w.first + i;
    int64_t wide = (w.out[i] - 1) * w.stride[i] + 1;
    if (w.stride[i] > 1) {
      tnx_dim sizes[5];
      for (int j = 0; j < w.first + spatial; j++) sizes[j] = j == dim ? wide : tnx_b_size(b, g, j);
      g = tnx_b_update_slice(b, tnx_b_full(b, tnx_b_const_f(b, acc, 0), w.first + spatial, sizes), g, dim, 0, w.stride[i]);
    }
    low[dim] = w.kernel[i] - 1 - w.pad[i];
    high[dim] = w.in[i] + w.kernel[i] - 1 - wide - low[dim];
  }
  g = g ? tnx_b_pad(b, g, tnx_b_const_f(b, acc, 0), low, high) : 0;
  for (int i = 0; i < spatial; i++) g = tnx_b_unfold(b, g, w.first + i, w.kernel[i], 1);
  window_dims(&w, dims);
  return give(l, results, tnx_b_convert(b, reduce(b, TNX_OP_REDUCE_SUM, g, dims, spatial, false), t));
}
tnx_status lower_avg_pool2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return avg_pool_backward(l, a, 2, results); }
tnx_status lower_avg_pool3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return avg_pool_backward(l, a, 3, results); }

/* ---- maxima ---- */

/* (self, kernel, stride, padding, dilation, ceil_mode): values and positions in the flat spatial dimensions. */
static tnx_status max_pool(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  window w;
  if (!window_init(l, a[0].value, spatial, a + 1, a + 2, a + 3, a + 4, arg_bool(a + 5), &w)) return b->status;
  int dims[3];
  window_dims(&w, dims);
  tnx_value v = windows(b, a[0].value, &w, -INFINITY), at = reduce(b, TNX_OP_ARGMAX, v, dims, spatial, false), index = 0;
  /* the place inside the window, dimension by dimension, added to the window's begin */
  for (int i = 0; i < spatial; i++) {
    int64_t below = 1;
    for (int j = i + 1; j < spatial; j++) below *= w.kernel[j];
    tnx_value inside = tnx_b_binary_f(b, TNX_OP_DIV, at, (double)below);
    at = sub(b, at, mul_f(b, inside, (double)below));
    tnx_value coordinate = add(b, mul_f(b, inside, (double)w.dilation[i]), add_f(b, mul_f(b, position(b, &w, i), (double)w.stride[i]), (double)-w.pad[i]));
    index = index ? add(b, mul_f(b, index, (double)w.in[i]), coordinate) : coordinate;
  }
  return give2(l, results, reduce(b, TNX_OP_REDUCE_MAX, v, dims, spatial, false), index);
}
tnx_status lower_max_pool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return max_pool(l, a, 2, results); }
tnx_status lower_max_pool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return max_pool(l, a, 3, results); }

/* (grad, self, kernel, stride, padding, dilation, ceil_mode, indices) */
static tnx_status max_pool_backward(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  window w;
  if (!window_init(l, a[1].value, spatial, a + 2, a + 3, a + 4, a + 5, arg_bool(a + 6), &w)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  tnx_dim in[3], out[3];
  in[w.first] = out[w.first] = 1;
  for (int j = 0; j < w.first; j++) in[j] = out[j] = tnx_b_size(b, a[1].value, j);
  for (int i = 0; i < spatial; i++) in[w.first] *= w.in[i], out[w.first] *= w.out[i];
  tnx_value zeros = tnx_b_full(b, tnx_b_const_f(b, acc, 0), w.first + 1, in);
  tnx_value g = tnx_b_reshape(b, tnx_b_convert(b, a[0].value, acc), w.first + 1, out), index = tnx_b_reshape(b, a[7].value, w.first + 1, out);
  tnx_value r = tnx_b_convert(b, tnx_b_scatter(b, zeros, index, g, w.first, ADD), t);
  return give(l, results, tnx_b_reshape(b, r, tnx_b_rank(b, a[1].value), tnx_b_sizes(b, a[1].value)));
}
tnx_status lower_max_pool2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return max_pool_backward(l, a, 2, results); }
tnx_status lower_max_pool3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return max_pool_backward(l, a, 3, results); }

/* ---- adaptive averages ---- */

/* The [out, in] matrix of means over floor(i * in / out) .. ceil((i + 1) * in / out). */
static tnx_value mean_matrix(tnx_builder *b, int64_t out, int64_t in, tnx_dtype acc) {
  tnx_dim sizes[2] = {out, in}, rows[2] = {out, 1};
  tnx_value i = tnx_b_iota(b, 2, rows, 0), j = tnx_b_iota(b, 2, sizes, 1);
  tnx_value start = tnx_b_binary_f(b, TNX_OP_DIV, mul_f(b, i, (double)in), (double)out);
  tnx_value end = tnx_b_binary_f(b, TNX_OP_DIV, add_f(b, mul_f(b, add_f(b, i, 1), (double)in), (double)(out - 1)), (double)out);
  tnx_value inside = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, j, start), tnx_b_binary(b, TNX_OP_LT, j, end));
  return divide(b, tnx_b_convert(b, inside, acc), tnx_b_convert(b, sub(b, end, start), acc));
}

/* x times the matrix along one dimension: [.., in, ..] to [.., out, ..], or back. */
static tnx_value along(tnx_builder *b, tnx_value x, int dim, tnx_value matrix) {
  if (!x) return 0;
  int last = tnx_b_rank(b, x) - 1;
  return tnx_b_swap_dims(b, tnx_b_matmul(b, tnx_b_swap_dims(b, x, dim, last), matrix), dim, last);
}

static tnx_status adaptive(tnx_lower *l, tnx_value x, tnx_value like, const tnx_arg *out_size, int spatial, bool backward, tnx_value *results) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x), first = rank - spatial;
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  if (!tnx_dtype_is_float(t) || (first != 1 && first != 2)) return uncovered(l, "rank or dtype");
  tnx_value v = tnx_b_convert(b, x, acc);
  for (int i = 0; i < spatial; i++) {
    tnx_dim in = tnx_b_size(b, backward ? like : x, first + i), out = backward ? tnx_b_size(b, x, first + i) : arg_listed(out_size, i, 1);
    if (tnx_dim_is_symbolic(in) || tnx_dim_is_symbolic(out) || in < 1 || out < 1) return uncovered(l, "sizes");
    tnx_value m = mean_matrix(b, out, in, acc);
    v = along(b, v, first + i, backward ? m : tnx_b_swap_dims(b, m, 0, 1));
  }
  return give(l, results, tnx_b_convert(b, v, t));
}
tnx_status lower_adaptive_avg_pool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive(l, a[0].value, 0, a + 1, 2, false, results); }
tnx_status lower_adaptive_avg_pool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive(l, a[0].value, 0, a + 1, 3, false, results); }
tnx_status lower_adaptive_avg_pool2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive(l, a[0].value, a[1].value, NULL, 2, true, results); }
tnx_status lower_adaptive_avg_pool3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive(l, a[0].value, a[1].value, NULL, 3, true, results); }
