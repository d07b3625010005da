/* Normalisations: softmax, layer, RMS, group and batch norm, with their backward operators. Computed in float32 for halves. */
#include "aten/family.h"

/* ---- softmax ---- */

tnx_value lower_softmax_of(tnx_builder *b, tnx_value x, int dim, bool log) {
  tnx_value shifted = sub(b, x, reduce(b, TNX_OP_REDUCE_MAX, x, &dim, 1, true)), e = tnx_b_unary(b, TNX_OP_EXP, shifted);
  tnx_value total = reduce(b, TNX_OP_REDUCE_SUM, e, &dim, 1, true);
  return log ? sub(b, shifted, tnx_b_unary(b, TNX_OP_LOG, total)) : divide(b, e, total);
}

static tnx_status softmax(tnx_lower *l, const tnx_arg *a, tnx_dtype out, bool log, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = tnx_b_wrap_dim(b, a[1].dim, tnx_b_rank(b, a[0].value));
  if (!tnx_dtype_is_float(out)) return uncovered(l, "dtype");
  tnx_value x = tnx_b_convert(b, a[0].value, tnx_acc_of(out));
  l->memory_format = TNX_FORMAT_CONTIGUOUS;
  return give(l, results, tnx_b_convert(b, lower_softmax_of(b, x, dim, log), out));
}

/* half_to_float: the result of a half is float32. */
static tnx_dtype softmax_dtype(tnx_lower *l, const tnx_arg *a) { return arg_bool(a + 2) ? TNX_F32 : tnx_b_dtype(&l->b, a[0].value); }

tnx_status lower_softmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax(l, a, softmax_dtype(l, a), false, results); }
tnx_status lower_log_softmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax(l, a, softmax_dtype(l, a), true, results); }
tnx_status lower_softmax_int(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax(l, a, arg_dtype(a + 2, tnx_b_dtype(&l->b, a[0].value)), false, results); }
tnx_status lower_log_softmax_int(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax(l, a, arg_dtype(a + 2, tnx_b_dtype(&l->b, a[0].value)), true, results); }

/* Rows that are -inf everywhere give 0 instead of NaN. */
tnx_status lower_safe_softmax(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  TNX_TRY(lower_softmax_int(l, a, results));
  int dim = tnx_b_wrap_dim(b, a[1].dim, tnx_b_rank(b, a[0].value));
  tnx_value masked = reduce(b, TNX_OP_REDUCE_MIN, compare_f(b, TNX_OP_EQ, a[0].value, -INFINITY), &dim, 1, true);
  return give(l, results, tnx_b_select(b, masked, tnx_b_const_f(b, tnx_b_dtype(b, results[0]), 0), results[0]));
}

/* (dy - sum(dy * y)) * y;  log: dy - exp(y) * sum(dy). The last argument is the forward input's dtype. */
static tnx_status softmax_backward(tnx_lower *l, const tnx_arg *a, bool log, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype out = arg_dtype(a + 3, tnx_b_dtype(b, a[0].value)), acc = tnx_acc_of(tnx_b_dtype(b, a[0].value));
  int dim = tnx_b_wrap_dim(b, a[2].dim, tnx_b_rank(b, a[0].value));
  if (!tnx_dtype_is_float(acc)) return uncovered(l, "dtype");
  tnx_value dy = tnx_b_convert(b, a[0].value, acc), y = tnx_b_convert(b, a[1].value, acc), dx;
  if (log) dx = sub(b, dy, mul(b, tnx_b_unary(b, TNX_OP_EXP, y), reduce(b, TNX_OP_REDUCE_SUM, dy, &dim, 1, true)));
  else dx = mul(b, sub(b, dy, reduce(b, TNX_OP_REDUCE_SUM, mul(b, dy, y), &dim, 1, true)), y);
  return give(l, results, tnx_b_convert(b, dx, out));
}
tnx_status lower_softmax_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax_backward(l, a, false, results); }
tnx_status lower_log_softmax_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return softmax_backward(l, a, true, results); }

/* ---- layer and RMS norm ---- */

/* The trailing dimensions that normalized_shape names; -1 if it does not fit. */
static int trailing_dims(tnx_lower *l, tnx_value x, const tnx_arg *shape, int *dims) {
  int rank = tnx_b_rank(&l->b, x), n = (int)shape->count;
  if (n < 1 || n > rank) {
    tnx_b_fail(&l->b, TNX_SHAPE, "normalized_shape does not fit the input");
    return -1;
  }
  for (int i = 0; i < n; i++) {
    dims[i] = rank - n + i;
    if (differ(tnx_b_size(&l->b, x, dims[i]), shape->dims[i])) {
      tnx_b_fail(&l->b, TNX_SHAPE, "normalized_shape does not fit the input");
      return -1;
    }
  }
  return n;
}

/* A weight or bias, or none, of exactly these sizes. */
static bool fits_shape(tnx_builder *b, tnx_value v, const tnx_arg *shape) {
  if (!v) return true;
  bool fits = tnx_b_rank(b, v) == (int)shape->count;
  for (uint32_t i = 0; fits && i < shape->count; i++) fits = !differ(tnx_b_size(b, v, (int)i), shape->dims[i]);
  return fits;
}

static tnx_value mean_of(tnx_builder *b, tnx_value x, const int *dims, int n) {
  if (!x) return 0;
  return divide(b, reduce(b, TNX_OP_REDUCE_SUM, x, dims, n, true), dim_number(b, extent(b, x, dims, n), tnx_b_dtype(b, x)));
}

/* y * weight + bias, each if given */
static tnx_value affine(tnx_builder *b, tnx_value y, tnx_value weight, tnx_value bias, tnx_dtype acc) {
  if (weight) y = mul(b, y, tnx_b_convert(b, weight, acc));
  if (bias) y = add(b, y, tnx_b_convert(b, bias, acc));
  return y;
}

/* (x - mu) * rstd * weight + bias as x * scale + shift, where scale and shift are much smaller than x. */
static tnx_value scale_and_shift(tnx_builder *b, tnx_value x, tnx_value mu, tnx_value rstd, tnx_value weight, tnx_value bias, tnx_dtype acc) {
  tnx_value scale = weight ? mul(b, rstd, tnx_b_convert(b, weight, acc)) : rstd, offset = mul(b, mu, scale);
  tnx_value shift = bias ? sub(b, tnx_b_convert(b, bias, acc), offset) : tnx_b_unary(b, TNX_OP_NEG, offset);
  return add(b, mul(b, x, scale), shift);
}

tnx_status lower_native_layer_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n = trailing_dims(l, a[0].value, a + 1, dims);
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  if (n < 0) return b->status;
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  tnx_value weight = arg_value(a + 2), bias = arg_value(a + 3), x = tnx_b_convert(b, a[0].value, acc);
  if (!fits_shape(b, weight, a + 1) || !fits_shape(b, bias, a + 1)) return tnx_fail(TNX_SHAPE, "weight and bias have normalized_shape's sizes");
  tnx_value mu = mean_of(b, x, dims, n), diff = sub(b, x, mu);
  tnx_value rstd = tnx_b_unary(b, TNX_OP_RSQRT, add_f(b, mean_of(b, mul(b, diff, diff), dims, n), arg_number(a + 4, 1e-5)));
  tnx_value y = affine(b, mul(b, diff, rstd), weight, bias, acc);
  l->memory_format = TNX_FORMAT_CONTIGUOUS;
  return give3(l, results, tnx_b_convert(b, y, t), mu, rstd); /* statistics stay in the computation dtype, as on accelerators */
}

/* Sums over the dimensions in front of the last n. */
static tnx_value sum_leading(tnx_builder *b, tnx_value x, int n) {
  int dims[TNX_MAX_RANK], count = x ? tnx_b_rank(b, x) - n : 0;
  for (int i = 0; i < count; i++) dims[i] = i;
  return count ? reduce(b, TNX_OP_REDUCE_SUM, x, dims, count, false) : x;
}

/* dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight */
static tnx_value norm_dx(tnx_builder *b, tnx_value g, tnx_value xhat, tnx_value rstd, const int *dims, int n, bool centred) {
  tnx_value inner = mul(b, xhat, mean_of(b, mul(b, g, xhat), dims, n));
  tnx_value dx = sub(b, g, inner);
  if (centred) dx = sub(b, dx, mean_of(b, g, dims, n));
  return mul(b, dx, rstd);
}

tnx_status lower_native_layer_norm_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n = trailing_dims(l, a[1].value, a + 2, dims);
  if (n < 0) return b->status;
  tnx_value weight = arg_value(a + 5), bias = arg_value(a + 6);
  tnx_dtype t = tnx_b_dtype(b, a[1].value), acc = tnx_acc_of(t), p = weight ? tnx_b_dtype(b, weight) : bias ? tnx_b_dtype(b, bias) : t;
  tnx_value dy = tnx_b_convert(b, a[0].value, acc), rstd = tnx_b_convert(b, a[4].value, acc);
  tnx_value xhat = mul(b, sub(b, tnx_b_convert(b, a[1].value, acc), tnx_b_convert(b, a[3].value, acc)), rstd), dx = 0, dw = 0, db = 0;
  tnx_value g = weight ? mul(b, dy, tnx_b_convert(b, weight, acc)) : dy;
  if (a[7].dims[0]) dx = tnx_b_convert(b, norm_dx(b, g, xhat, rstd, dims, n, true), t);
  if (a[7].dims[1] && weight) dw = tnx_b_convert(b, sum_leading(b, mul(b, dy, xhat), n), p);
  if (a[7].dims[2] && bias) db = tnx_b_convert(b, sum_leading(b, dy, n), p);
  return give3(l, results, dx, dw, db);
}

/* That of the dtype the norm is computed in. */
static double epsilon_of(tnx_dtype t) { return t == TNX_F64 ? 0x1p-52 : 0x1p-23; }

/* out = x * rsqrt(mean(x^2) + eps) * weight; *rstd keeps the reduced dimensions. eps: the computation dtype's if none is given. */
static tnx_value rms_norm(tnx_lower *l, const tnx_arg *a, tnx_value *rstd) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n = trailing_dims(l, a[0].value, a + 1, dims);
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  if (n < 0) return 0;
  if (!tnx_dtype_is_float(t)) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "rms_norm: dtype");
  tnx_value weight = arg_value(a + 2), x = tnx_b_convert(b, a[0].value, acc);
  *rstd = tnx_b_unary(b, TNX_OP_RSQRT, add_f(b, mean_of(b, mul(b, x, x), dims, n), arg_number(a + 3, epsilon_of(t))));
  tnx_value both[2] = {a[0].value, weight};
  tnx_dtype out = weight ? tnx_b_result_type(b, both, 2) : t;
  return tnx_b_convert(b, affine(b, mul(b, x, *rstd), weight, 0, acc), out);
}

tnx_status lower_fused_rms_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_value rstd = 0, y = rms_norm(l, a, &rstd);
  return give2(l, results, y, rstd);
}

tnx_status lower_rms_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_value rstd = 0;
  return give(l, results, rms_norm(l, a, &rstd));
}

tnx_status lower_fused_rms_norm_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n = trailing_dims(l, a[1].value, a + 2, dims);
  if (n < 0) return b->status;
  tnx_value weight = arg_value(a + 4), dx = 0, dw = 0;
  tnx_dtype t = tnx_b_dtype(b, a[1].value), acc = tnx_acc_of(t);
  tnx_value dy = tnx_b_convert(b, a[0].value, acc), rstd = tnx_b_convert(b, a[3].value, acc), xhat = mul(b, tnx_b_convert(b, a[1].value, acc), rstd);
  tnx_value g = weight ? mul(b, dy, tnx_b_convert(b, weight, acc)) : dy;
  if (a[5].dims[0]) dx = tnx_b_convert(b, norm_dx(b, g, xhat, rstd, dims, n, false), t);
  if (a[5].dims[1] && weight) dw = tnx_b_convert(b, sum_leading(b, mul(b, dy, xhat), n), tnx_b_dtype(b, weight));
  return give2(l, results, dx, dw);
}

/* ---- group norm ---- */

/* x [N, C, HxW] seen as [N, groups, C / groups, HxW] */
static tnx_value grouped(tnx_builder *b, tnx_value x, tnx_dim n, int64_t channels, int64_t groups, tnx_dim hxw) {
  tnx_dim sizes[4] = {n, groups, channels / groups, hxw};
  return tnx_b_reshape(b, x, 4, sizes);
}

static const int group_dims[2] = {2, 3};

tnx_status lower_native_group_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  int64_t channels = a[4].dim, groups = a[6].dim;
  if (!tnx_dtype_is_float(t) || tnx_dim_is_symbolic(channels)) return uncovered(l, "dtype or symbolic channels");
  if (groups <= 0 || channels % groups) return tnx_fail(TNX_SHAPE, "Expected number of channels in input to be divisible by num_groups");
  tnx_value weight = arg_value(a + 1), bias = arg_value(a + 2), x = grouped(b, tnx_b_convert(b, a[0].value, acc), a[3].dim, channels, groups, a[5].dim);
  tnx_value mu = mean_of(b, x, group_dims, 2), diff = sub(b, x, mu);
  tnx_value rstd = tnx_b_unary(b, TNX_OP_RSQRT, add_f(b, mean_of(b, mul(b, diff, diff), group_dims, 2), arg_number(a + 7, 1e-5)));
  tnx_dim per_channel[4] = {1, groups, channels / groups, 1}, stats[2] = {a[3].dim, groups};
  if (weight) weight = tnx_b_reshape(b, weight, 4, per_channel);
  if (bias) bias = tnx_b_reshape(b, bias, 4, per_channel);
  tnx_value y = scale_and_shift(b, x, mu, rstd, weight, bias, acc);
  y = tnx_b_reshape(b, tnx_b_convert(b, y, t), tnx_b_rank(b, a[0].value), tnx_b_sizes(b, a[0].value));
  return give3(l, results, y, tnx_b_convert(b, tnx_b_reshape(b, mu, 2, stats), t), tnx_b_convert(b, tnx_b_reshape(b, rstd, 2, stats), t));
}

tnx_status lower_native_group_norm_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[1].value), acc = tnx_acc_of(t);
  tnx_dim n = a[5].dim, hxw = a[7].dim;
  int64_t channels = a[6].dim, groups = a[8].dim;
  if (tnx_dim_is_symbolic(channels) || groups <= 0 || channels % groups) return uncovered(l, "channels");
  tnx_value weight = arg_value(a + 4), dx = 0, dw = 0, db = 0;
  tnx_dtype p = weight ? tnx_b_dtype(b, weight) : t;
  tnx_dim per_channel[4] = {1, groups, channels / groups, 1}, stats[4] = {n, groups, 1, 1}, flat = channels;
  tnx_value dy = grouped(b, tnx_b_convert(b, a[0].value, acc), n, channels, groups, hxw), x = grouped(b, tnx_b_convert(b, a[1].value, acc), n, channels, groups, hxw);
  tnx_value mu = tnx_b_reshape(b, tnx_b_convert(b, a[2].value, acc), 4, stats), rstd = tnx_b_reshape(b, tnx_b_convert(b, a[3].value, acc), 4, stats);
  tnx_value xhat = mul(b, sub(b, x, mu), rstd), g = weight ? mul(b, dy, tnx_b_reshape(b, tnx_b_convert(b, weight, acc), 4, per_channel)) : dy;
  const int outside[2] = {0, 3};
  if (a[9].dims[0]) dx = tnx_b_reshape(b, tnx_b_convert(b, norm_dx(b, g, xhat, rstd, group_dims, 2, true), t), tnx_b_rank(b, a[1].value), tnx_b_sizes(b, a[1].value));
  if (a[9].dims[1]) dw = tnx_b_convert(b, tnx_b_reshape(b, reduce(b, TNX_OP_REDUCE_SUM, mul(b, dy, xhat), outside, 2, false), 1, &flat), p);
  if (a[9].dims[2]) db = tnx_b_convert(b, tnx_b_reshape(b, reduce(b, TNX_OP_REDUCE_SUM, dy, outside, 2, false), 1, &flat), p);
  return give3(l, results, dx, dw, db);
}

/* ---- batch norm ---- */

/* The dimensions other than the channels' (1). */
static int batch_dims(const tnx_builder *b, tnx_value x, int *dims) { return dims_except(tnx_b_rank(b, x), 1, dims); }

/* A [C] value beside x. */
static tnx_value per_channel(tnx_builder *b, tnx_value v, tnx_value x, tnx_dtype acc) {
  if (!v) return 0;
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_rank(b, x);
  for (int i = 0; i < rank; i++) sizes[i] = i == 1 ? tnx_b_size(b, x, 1) : 1;
  return tnx_b_reshape(b, tnx_b_convert(b, v, acc), rank, sizes);
}

typedef struct batch_stats { tnx_value y, mean, rstd, var; tnx_dim count; } batch_stats;

/* Batch norm with these running statistics (inference) or the batch's own. mean, rstd, var: [C], in the computation dtype. */
static batch_stats batch_norm(tnx_lower *l, tnx_value input, tnx_value weight, tnx_value bias, tnx_value running_mean, tnx_value running_var, bool training, double eps) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, input), acc = tnx_acc_of(t);
  int dims[TNX_MAX_RANK], n = batch_dims(b, input, dims);
  tnx_dim channels = tnx_b_size(b, input, 1);
  tnx_value x = tnx_b_convert(b, input, acc), mu, var;
  batch_stats s = {.count = extent(b, input, dims, n)};
  if (training) {
    mu = mean_of(b, x, dims, n);
    tnx_value diff = sub(b, x, mu);
    var = mean_of(b, mul(b, diff, diff), dims, n);
  } else {
    mu = per_channel(b, running_mean, x, acc), var = per_channel(b, running_var, x, acc);
  }
  tnx_value rstd = tnx_b_unary(b, TNX_OP_RSQRT, add_f(b, var, eps));
  tnx_value y = scale_and_shift(b, x, mu, rstd, per_channel(b, weight, x, acc), per_channel(b, bias, x, acc), acc);
  s.y = tnx_b_convert(b, y, t);
  s.mean = tnx_b_reshape(b, mu, 1, &channels), s.rstd = tnx_b_reshape(b, rstd, 1, &channels), s.var = tnx_b_reshape(b, var, 1, &channels);
  return s;
}

static bool batch_norm_covers(tnx_lower *l, tnx_value x) { return tnx_dtype_is_float(tnx_b_dtype(&l->b, x)) && tnx_b_rank(&l->b, x) >= 2; }

static tnx_value empty_vector(tnx_builder *b, tnx_dtype t) {
  tnx_dim zero = 0;
  return tnx_b_full(b, tnx_b_const_f(b, t, 0), 1, &zero);
}

/* Inference, or training without running statistics to update: those are written in place and so need the functional form. The saved statistics
 * of native_batch_norm have the weight's dtype and are empty in inference; those of the newer operators are always there, in the computation dtype. */
static tnx_status batch_norm_row(tnx_lower *l, const tnx_arg *a, const tnx_arg *running_mean, const tnx_arg *running_var, bool training, double eps, bool legit,
                                 tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value rm = running_mean ? arg_value(running_mean) : 0, rv = running_var ? arg_value(running_var) : 0;
  if (!batch_norm_covers(l, a[0].value)) return uncovered(l, "dtype or rank");
  if (training && (rm || rv)) return uncovered(l, "running statistics in training");
  if (!training && (!rm || !rv)) return tnx_fail(TNX_INVALID_ARGUMENT, "Expected running_mean and running_var to be defined when training=False");
  batch_stats s = batch_norm(l, a[0].value, arg_value(a + 1), arg_value(a + 2), rm, rv, training, eps);
  if (legit) return give3(l, results, s.y, s.mean, s.rstd);
  tnx_dtype stats = tnx_b_dtype(b, arg_value(a + 1) ? a[1].value : a[0].value);
  if (!training) return give3(l, results, s.y, empty_vector(b, stats), empty_vector(b, stats));
  return give3(l, results, s.y, tnx_b_convert(b, s.mean, stats), tnx_b_convert(b, s.rstd, stats));
}
tnx_status lower_native_batch_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return batch_norm_row(l, a, a + 3, a + 4, arg_bool(a + 5), arg_number(a + 7, 1e-5), false, results); }
tnx_status lower_batch_norm_no_training(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return batch_norm_row(l, a, a + 3, a + 4, false, arg_number(a + 6, 1e-5), true, results); }
tnx_status lower_batch_norm_no_stats(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return batch_norm_row(l, a, NULL, NULL, arg_bool(a + 3), arg_number(a + 5, 1e-5), true, results); }

/* The functional form: the new running statistics are results 3 and 4. */
tnx_status lower_batch_norm_functional(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!batch_norm_covers(l, a[0].value)) return uncovered(l, "dtype or rank");
  bool training = arg_bool(a + 5);
  double momentum = arg_number(a + 6, 0.1);
  batch_stats s = batch_norm(l, a[0].value, arg_value(a + 1), arg_value(a + 2), a[3].value, a[4].value, training, arg_number(a + 7, 1e-5));
  tnx_dtype rt = tnx_acc_of(tnx_b_dtype(b, a[3].value));
  l->n_results = 5;
  results[0] = s.y;
  results[1] = s.mean, results[2] = s.rstd;
  results[3] = a[3].value, results[4] = a[4].value;
  if (training) {
    tnx_value count = dim_number(b, s.count, tnx_b_dtype(b, s.var)), unbiased = mul(b, s.var, divide(b, count, add_f(b, count, -1)));
    results[3] = add(b, mul_f(b, tnx_b_convert(b, a[3].value, rt), 1 - momentum), mul_f(b, tnx_b_convert(b, s.mean, rt), momentum));
    results[4] = add(b, mul_f(b, tnx_b_convert(b, a[4].value, rt), 1 - momentum), mul_f(b, tnx_b_convert(b, unbiased, rt), momentum));
  }
  return b->status;
}

/* (input, weight, bias, running_mean, running_var, momentum, eps) -> output, mean, inverse deviation, reserve (unused), the new running statistics */
tnx_status lower_batch_norm_with_update(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  const tnx_arg all[8] = {a[0], a[1], a[2], a[3], a[4], {.kind = TNX_ARG_BOOL, .dim = 1}, a[5], a[6]};
  TNX_TRY(lower_batch_norm_functional(l, all, results));
  results[5] = results[4], results[4] = results[3], results[3] = empty_vector(&l->b, TNX_U8);
  l->n_results = 6;
  return l->b.status;
}

tnx_status lower_native_batch_norm_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value input = a[1].value, weight = arg_value(a + 2), dx = 0, dw = 0, db = 0;
  if (!batch_norm_covers(l, input)) return uncovered(l, "dtype or rank");
  tnx_dtype t = tnx_b_dtype(b, input), acc = tnx_acc_of(t), p = weight ? tnx_b_dtype(b, weight) : t;
  bool training = arg_bool(a + 7);
  int dims[TNX_MAX_RANK], n = batch_dims(b, input, dims);
  tnx_dim channels = tnx_b_size(b, input, 1);
  tnx_value x = tnx_b_convert(b, input, acc), dy = tnx_b_convert(b, a[0].value, acc);
  tnx_value mu = per_channel(b, training ? arg_value(a + 5) : arg_value(a + 3), x, acc);
  tnx_value rstd = training ? per_channel(b, arg_value(a + 6), x, acc) : tnx_b_unary(b, TNX_OP_RSQRT, add_f(b, per_channel(b, arg_value(a + 4), x, acc), arg_number(a + 8, 1e-5)));
  tnx_value xhat = mul(b, sub(b, x, mu), rstd), g = weight ? mul(b, dy, per_channel(b, weight, x, acc)) : dy;
  if (a[9].dims[0]) dx = tnx_b_convert(b, training ? norm_dx(b, g, xhat, rstd, dims, n, true) : mul(b, g, rstd), t);
  if (a[9].dims[1]) dw = tnx_b_convert(b, tnx_b_reshape(b, reduce(b, TNX_OP_REDUCE_SUM, mul(b, dy, xhat), dims, n, true), 1, &channels), p);
  if (a[9].dims[2]) db = tnx_b_convert(b, tnx_b_reshape(b, reduce(b, TNX_OP_REDUCE_SUM, dy, dims, n, true), 1, &channels), p);
  return give3(l, results, dx, dw, db);
}

/* ---- weight norm ---- */

/* v * (g / |v|), where the norm is over all dimensions but the first or the last and g has its shape. The norm of bfloat16 stays float32, as PyTorch's Meta
   kernel has it. */
tnx_status lower_weight_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), p = tnx_b_dtype(b, a[1].value), acc = tnx_acc_of(t);
  if (!tnx_dtype_is_float(t) || t != p) return uncovered(l, "dtype");
  int rank = tnx_b_rank(b, a[0].value), dims[TNX_MAX_RANK], n = dims_except(rank, (int)a[2].dim, dims);
  if (a[2].dim && a[2].dim != rank - 1) return uncovered(l, "dim");
  tnx_value v = tnx_b_convert(b, a[0].value, acc), norm = n ? lower_norm_of(b, v, 2, dims, n, true) : tnx_b_unary(b, TNX_OP_ABS, v);
  tnx_value w = mul(b, v, divide(b, tnx_b_convert(b, a[1].value, acc), norm));
  return give2(l, results, tnx_b_convert(b, w, t), tnx_b_convert(b, norm, t == TNX_BF16 ? acc : t));
}

/* With s = sum(dw * v): dv = (dw - v * s / |v|^2) * g / |v|, dg = s / |v|. */
tnx_status lower_weight_norm_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[1].value), acc = tnx_acc_of(t);
  if (!tnx_dtype_is_float(t)) return uncovered(l, "dtype");
  int rank = tnx_b_rank(b, a[1].value), dims[TNX_MAX_RANK], n = dims_except(rank, (int)a[4].dim, dims);
  if (a[4].dim && a[4].dim != rank - 1) return uncovered(l, "dim");
  tnx_value dw = tnx_b_convert(b, a[0].value, acc), v = tnx_b_convert(b, a[1].value, acc), g = tnx_b_convert(b, a[2].value, acc), norm = tnx_b_convert(b, a[3].value, acc);
  tnx_value s = mul(b, dw, v);
  if (n) s = reduce(b, TNX_OP_REDUCE_SUM, s, dims, n, true);
  tnx_value dv = mul(b, sub(b, dw, mul(b, v, divide(b, s, mul(b, norm, norm)))), divide(b, g, norm));
  return give2(l, results, tnx_b_convert(b, dv, t), tnx_b_convert(b, divide(b, s, norm), tnx_b_dtype(b, a[2].value)));
}
