/* Pooling whose windows are not at regular places (adaptive and fractional maxima), the way back from the positions of maxima, and images taken
 * apart into columns. Elements are read and written by computed positions; spatial sizes are known. */
#include "aten/family.h"

/* x [planes.., in...]: `first` dimensions in front of the spatial ones. */
typedef struct image { int first, spatial; int64_t in[3], flat; tnx_dim planes; } image;

static bool image_init(tnx_lower *l, tnx_value x, int spatial, image *m) {
  tnx_builder *b = &l->b;
  *m = (image){.first = tnx_b_rank(b, x) - spatial, .spatial = spatial, .flat = 1, .planes = 1};
  bool ok = m->first == 1 || m->first == 2;
  for (int i = 0; i < m->first && ok; i++) m->planes = tnx_b_dim_mul(b, m->planes, tnx_b_size(b, x, i));
  for (int i = 0; i < spatial && ok; i++) {
    tnx_dim n = tnx_b_size(b, x, m->first + i);
    ok = !tnx_dim_is_symbolic(n);
    m->in[i] = n;
    m->flat *= ok ? n : 1;
  }
  if (!ok) tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "pooling: rank or symbolic sizes");
  return ok;
}

/* The sizes of x's planes followed by these spatial ones; returns the rank. */
static int with_planes(tnx_builder *b, tnx_value x, const image *m, const int64_t *spatial, tnx_dim *sizes) {
  for (int i = 0; i < m->first; i++) sizes[i] = tnx_b_size(b, x, i);
  for (int i = 0; i < m->spatial; i++) sizes[m->first + i] = spatial[i];
  return m->first + m->spatial;
}

/* Adds dy at `index` (flat positions within a plane) of an image like x. */
static tnx_status spread_back(tnx_lower *l, tnx_value dy, tnx_value x, tnx_value index, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  image m, o;
  if (!image_init(l, x, spatial, &m) || !image_init(l, dy, spatial, &o)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, dy), acc = tnx_acc_of(t);
  if (!same_sizes(b, dy, index)) return tnx_fail(TNX_SHAPE, "gradient and indices have different sizes");
  tnx_dim in[2] = {m.planes, m.flat}, out[2] = {m.planes, o.flat};
  tnx_value zeros = tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, in);
  tnx_value sum = tnx_b_scatter(b, zeros, tnx_b_reshape(b, index, 2, out), tnx_b_reshape(b, tnx_b_convert(b, dy, acc), 2, out), 1, ADD);
  return give(l, results, tnx_b_reshape(b, tnx_b_convert(b, sum, t), tnx_b_rank(b, x), tnx_b_sizes(b, x)));
}

/* The largest of x's elements at `at` [planes, out..., taps], which holds flat positions, and where it is. */
static tnx_status largest(tnx_lower *l, tnx_value x, const image *m, tnx_value at, int64_t taps, const int64_t *out, tnx_value *results) {
  tnx_builder *b = &l->b;
  int64_t n = taps;
  for (int i = 0; i < m->spatial; i++) n *= out[i];
  tnx_dim flat[2] = {m->planes, m->flat}, all[2] = {m->planes, n}, rows[3] = {m->planes, n / taps, taps}, sizes[TNX_MAX_RANK];
  int rank = with_planes(b, x, m, out, sizes), last = 2;
  tnx_value places = tnx_b_reshape(b, at, 3, rows);
  tnx_value v = tnx_b_reshape(b, tnx_b_gather(b, tnx_b_reshape(b, x, 2, flat), tnx_b_reshape(b, at, 2, all), 1), 3, rows);
  tnx_value best = reduce(b, TNX_OP_ARGMAX, v, &last, 1, true), index = tnx_b_gather(b, places, best, 2);
  tnx_value value = tnx_b_gather(b, v, best, 2);
  return give2(l, results, tnx_b_reshape(b, value, rank, sizes), tnx_b_reshape(b, index, rank, sizes));
}

/* Coordinates along one spatial dimension, [.., out at 1 + i, .., tap at 1 + spatial + i], joined to flat positions, one dimension after another. */
static tnx_value join_coordinate(tnx_builder *b, tnx_value flat, tnx_value coordinate, int64_t in) { return flat ? add(b, mul_f(b, flat, (double)in), coordinate) : coordinate; }

static tnx_value whole_places(tnx_builder *b, tnx_value at, const image *m, const int64_t *out, const int64_t *taps) {
  tnx_dim sizes[8] = {m->planes};
  for (int i = 0; i < m->spatial; i++) sizes[1 + i] = out[i], sizes[1 + m->spatial + i] = taps[i];
  return at ? tnx_b_broadcast_to(b, at, 1 + 2 * m->spatial, sizes) : 0;
}

/* ---- adaptive maxima: the windows are floor(i * in / out) .. ceil((i + 1) * in / out) ---- */

static tnx_status adaptive_max(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  image m;
  int64_t out[3], taps[3], all = 1;
  if (!image_init(l, a[0].value, spatial, &m)) return b->status;
  if (!tnx_dtype_is_float(tnx_b_dtype(b, a[0].value))) return uncovered(l, "dtype");
  tnx_value at = 0;
  for (int i = 0; i < spatial; i++) {
    int64_t in = m.in[i], o = out[i] = arg_listed(a + 1, i, 0);
    if (in < 1 || o < 1) return uncovered(l, "empty results");
    taps[i] = 1;
    for (int64_t j = 0; j < o; j++) {
      int64_t size = ((j + 1) * in + o - 1) / o - j * in / o;
      if (size > taps[i]) taps[i] = size;
    }
    all *= taps[i];
    int rank = 1 + 2 * spatial;
    tnx_value j = axis_iota(b, rank, 1 + i, o), begin = tnx_b_binary_f(b, TNX_OP_DIV, mul_f(b, j, (double)in), (double)o);
    tnx_value end = tnx_b_binary_f(b, TNX_OP_DIV, add_f(b, mul_f(b, add_f(b, j, 1), (double)in), (double)(o - 1)), (double)o);
    /* windows that are smaller than the largest repeat their last element, which changes neither the maximum nor its first place */
    tnx_value c = tnx_b_binary(b, TNX_OP_MIN, add(b, begin, axis_iota(b, rank, 1 + spatial + i, taps[i])), add_f(b, end, -1));
    at = join_coordinate(b, at, c, in);
  }
  return largest(l, a[0].value, &m, whole_places(b, at, &m, out, taps), all, out, results);
}
tnx_status lower_adaptive_max_pool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive_max(l, a, 2, results); }
tnx_status lower_adaptive_max_pool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adaptive_max(l, a, 3, results); }
tnx_status lower_adaptive_max_pool2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return spread_back(l, a[0].value, a[1].value, a[2].value, 2, results); }
tnx_status lower_adaptive_max_pool3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return spread_back(l, a[0].value, a[1].value, a[2].value, 3, results); }

/* ---- fractional maxima: windows of one size at pseudo-random places, from a sample for each plane and dimension ---- */

/* (self, kernel_size, output_size, random_samples [n, c, spatial]). Two dimensions: the first sample is the width's. */
static tnx_status fractional_max(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  image m;
  int64_t out[3], taps[3], all = 1;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (!image_init(l, a[0].value, spatial, &m)) return b->status;
  if (!tnx_dtype_is_float(t) || t != tnx_b_dtype(b, a[3].value) || tnx_b_rank(b, a[3].value) != 3 || tnx_b_size(b, a[3].value, 2) != spatial) return uncovered(l, "dtype or samples");
  tnx_dim planes[2] = {m.planes, spatial};
  tnx_value samples = tnx_b_reshape(b, a[3].value, 2, planes), at = 0;
  for (int i = 0; i < spatial; i++) {
    int64_t in = m.in[i], k = taps[i] = arg_listed(a + 1, i, 0), o = out[i] = arg_listed(a + 2, i, 0);
    if (o < 1 || k < 1 || o + k - 1 > in) return tnx_fail(TNX_SHAPE, "fractional pooling: the kernel or the result is larger than the input");
    all *= k;
    int rank = 1 + 2 * spatial;
    tnx_dim beside[7] = {m.planes, 1, 1, 1, 1, 1, 1};
    tnx_value u = tnx_b_reshape(b, tnx_b_slice(b, samples, 1, spatial == 2 ? 1 - i : i, 1, 1), rank, beside), j = axis_iota(b, rank, 1 + i, o);
    tnx_value begin = tnx_b_const_i(b, TNX_I64, in - k);
    if (o > 1) {
      tnx_value alpha = divide(b, tnx_b_const_f(b, t, (double)(in - k)), tnx_b_const_f(b, t, (double)(o - 1)));
      tnx_value step = sub(b, tnx_b_convert(b, mul(b, add(b, tnx_b_convert(b, j, t), u), alpha), TNX_I64), tnx_b_convert(b, mul(b, u, alpha), TNX_I64));
      begin = tnx_b_select(b, compare_f(b, TNX_OP_EQ, j, (double)(o - 1)), begin, step);
    }
    at = join_coordinate(b, at, add(b, begin, axis_iota(b, rank, 1 + spatial + i, k)), in);
  }
  return largest(l, a[0].value, &m, whole_places(b, at, &m, out, taps), all, out, results);
}
tnx_status lower_fractional_max_pool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return fractional_max(l, a, 2, results); }
tnx_status lower_fractional_max_pool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return fractional_max(l, a, 3, results); }
tnx_status lower_fractional_max_pool2d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return spread_back(l, a[0].value, a[1].value, a[4].value, 2, results); }
tnx_status lower_fractional_max_pool3d_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return spread_back(l, a[0].value, a[1].value, a[4].value, 3, results); }

/* ---- unpooling: values at the positions that pooling found, zeros elsewhere ---- */

static tnx_status unpool(tnx_lower *l, const tnx_arg *a, int spatial, tnx_value *results) {
  tnx_builder *b = &l->b;
  image m;
  int64_t out[3], flat = 1;
  if (!image_init(l, a[0].value, spatial, &m)) return b->status;
  if (!same_sizes(b, a[0].value, a[1].value) || tnx_b_dtype(b, a[1].value) != TNX_I64) return tnx_fail(TNX_SHAPE, "self and indices have different sizes, or indices are not int64");
  if ((int)a[2].count != spatial) return tnx_fail(TNX_SHAPE, "output_size has a size for each spatial dimension");
  for (int i = 0; i < spatial; i++) {
    if (tnx_dim_is_symbolic(a[2].dims[i])) return uncovered(l, "symbolic sizes");
    out[i] = a[2].dims[i];
    flat *= out[i];
  }
  tnx_dim sizes[TNX_MAX_RANK], to[2] = {m.planes, flat}, from[2] = {m.planes, m.flat};
  int rank = with_planes(b, a[0].value, &m, out, sizes);
  tnx_value zeros = tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, a[0].value), 0), 2, to);
  tnx_value v = tnx_b_scatter(b, zeros, tnx_b_reshape(b, a[1].value, 2, from), tnx_b_reshape(b, a[0].value, 2, from), 1, SET);
  return give(l, results, tnx_b_reshape(b, v, rank, sizes));
}
tnx_status lower_max_unpool2d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return unpool(l, a, 2, results); }
tnx_status lower_max_unpool3d(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return unpool(l, a, 3, results); }

/* ---- columns ---- */

typedef struct patches { int64_t kernel[2], dilation[2], pad[2], stride[2], out[2]; } patches;

/* kernel_size, dilation, padding, stride, over an image of these sizes */
static bool patches_init(tnx_lower *l, const tnx_arg *a, const int64_t *in, patches *p) {
  for (int i = 0; i < 2; i++) {
    p->kernel[i] = arg_listed(a, i, 0), p->dilation[i] = arg_listed(a + 1, i, 0), p->pad[i] = arg_listed(a + 2, i, 0), p->stride[i] = arg_listed(a + 3, i, 0);
    if (p->kernel[i] < 1 || p->dilation[i] < 1 || p->stride[i] < 1 || p->pad[i] < 0) return tnx_b_fail(&l->b, TNX_INVALID_ARGUMENT, "kernel, dilation and stride have to be positive"), false;
    int64_t reach = in[i] + 2 * p->pad[i] - p->dilation[i] * (p->kernel[i] - 1) - 1;
    if (reach < 0) return tnx_b_fail(&l->b, TNX_SHAPE, "the sliding blocks are larger than the image"), false;
    p->out[i] = reach / p->stride[i] + 1;
  }
  return true;
}

/* (self [n, c, h, w], kernel_size, dilation, padding, stride) -> [n, c * kernel, positions] */
tnx_status lower_im2col(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  image m;
  patches p;
  tnx_value x = a[0].value;
  if (!image_init(l, x, 2, &m) || !patches_init(l, a + 1, m.in, &p)) return b->status;
  tnx_dim low[4] = {0}, high[4] = {0};
  for (int i = 0; i < 2; i++) low[m.first + i] = high[m.first + i] = p.pad[i];
  x = tnx_b_pad(b, x, tnx_b_const_i(b, tnx_b_dtype(b, x), 0), low, high);
  for (int i = 0; i < 2; i++) {
    x = tnx_b_unfold(b, x, m.first + i, (p.kernel[i] - 1) * p.dilation[i] + 1, p.stride[i]);
    if (x && p.dilation[i] > 1) x = tnx_b_slice(b, x, tnx_b_rank(b, x) - 1, 0, p.kernel[i], p.dilation[i]);
  }
  /* [n, c, out, out, kernel, kernel] */
  int perm[6] = {0, 1};
  for (int i = 0; i < 2; i++) perm[m.first + i] = m.first + 2 + i, perm[m.first + 2 + i] = m.first + i;
  tnx_dim sizes[3], channels = tnx_b_dim_mul(b, tnx_b_size(b, a[0].value, m.first - 1), p.kernel[0] * p.kernel[1]);
  int rank = 0;
  if (m.first == 2) sizes[rank++] = tnx_b_size(b, a[0].value, 0);
  sizes[rank++] = channels, sizes[rank++] = p.out[0] * p.out[1];
  return give(l, results, x ? tnx_b_reshape(b, tnx_b_transpose(b, x, perm), rank, sizes) : 0);
}

/* (self [n, c * kernel, positions], output_size, kernel_size, dilation, padding, stride): overlapping elements add up */
tnx_status lower_col2im(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  patches p;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  if ((rank != 2 && rank != 3) || t == TNX_BOOL || a[1].count != 2 || tnx_dim_is_symbolic(a[1].dims[0]) || tnx_dim_is_symbolic(a[1].dims[1])) return uncovered(l, "rank or dtype");
  if (!patches_init(l, a + 2, a[1].dims, &p)) return b->status;
  int64_t taps = p.kernel[0] * p.kernel[1], n = p.out[0] * p.out[1] * taps, wide[2];
  tnx_dim columns = tnx_b_size(b, x, rank - 2), positions = tnx_b_size(b, x, rank - 1);
  if (tnx_dim_is_symbolic(columns) || columns % taps || differ(positions, p.out[0] * p.out[1])) return tnx_fail(TNX_SHAPE, "the columns do not fit the image");
  tnx_dim planes = tnx_b_dim_mul(b, rank == 3 ? tnx_b_size(b, x, 0) : 1, columns / taps);
  tnx_value at = 0;
  for (int i = 0; i < 2; i++) {
    wide[i] = a[1].dims[i] + 2 * p.pad[i];
    at = join_coordinate(b, at, add(b, mul_f(b, axis_iota(b, 4, i, p.kernel[i]), (double)p.dilation[i]), mul_f(b, axis_iota(b, 4, 2 + i, p.out[i]), (double)p.stride[i])), wide[i]);
  }
  tnx_dim flat[2] = {planes, wide[0] * wide[1]}, src[2] = {planes, n}, index[1] = {n}, image_sizes[3] = {planes, wide[0], wide[1]};
  tnx_value sum = tnx_b_put(b, tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, flat), tnx_b_reshape(b, at, 1, index), tnx_b_reshape(b, tnx_b_convert(b, x, acc), 2, src), 1, ADD);
  sum = tnx_b_reshape(b, sum, 3, image_sizes);
  for (int i = 0; i < 2 && sum; i++) sum = tnx_b_slice(b, sum, 1 + i, p.pad[i], a[1].dims[i], 1);
  tnx_dim sizes[4] = {rank == 3 ? tnx_b_size(b, x, 0) : 1, columns / taps, a[1].dims[0], a[1].dims[1]};
  return give(l, results, tnx_b_reshape(b, tnx_b_convert(b, sum, t), rank + 1, rank == 3 ? sizes : sizes + 1));
}
