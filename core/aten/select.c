/* Operators made of sorting, counting and indexed writes: positions of true elements, the mode, histograms, segments, norms of slices. */
#include "aten/family.h"

static tnx_value full_i(tnx_builder *b, tnx_dtype t, int64_t v, int rank, const tnx_dim *sizes) { return tnx_b_full(b, tnx_b_const_i(b, t, v), rank, sizes); }
static tnx_value last_dim_squeezed(tnx_builder *b, tnx_value x, int dim) { return tnx_b_squeeze(b, x, &dim, 1); }

/* ---- positions of true elements, their number known ---- */

tnx_status lower_nonzero_static(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  tnx_dim n = a[1].dim, sizes[2] = {n, rank};
  int64_t fill = arg_int(a + 2, -1);
  if (!tnx_dim_is_symbolic(n) && n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "nonzero_static: 'size' must be an non-negative integer");
  if (rank == 0) return give(l, results, full_i(b, TNX_I64, fill, 2, sizes));
  return give(l, results, tnx_b_nonzero(b, tnx_b_convert(b, x, TNX_BOOL), n, fill));
}

/* Coordinates of a triangle, row by row. Its size follows from the numbers alone. */
static tnx_status triangle_indices(tnx_lower *l, const tnx_arg *a, tnx_dtype t, bool lower, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (arg_symbolic(a) || arg_symbolic(a + 1) || arg_symbolic(a + 2)) return uncovered(l, "symbolic size");
  int64_t rows = a[0].dim, columns = a[1].dim, offset = arg_int(a + 2, 0), n = 0;
  if (rows < 0 || columns < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "row and col must be non-negative, got row %lld, col %lld", (long long)rows, (long long)columns);
  for (int64_t i = 0; i < rows; i++) {
    int64_t below = i + offset + (lower ? 1 : 0); /* elements of the row up to (without) the first one above the diagonal */
    below = below < 0 ? 0 : below > columns ? columns : below;
    n += lower ? below : columns - below;
  }
  tnx_dim sizes[2] = {rows, columns}, empty[2] = {2, n};
  if (n == 0) return give(l, results, full_i(b, t, 0, 2, empty));
  tnx_value i = tnx_b_iota(b, 2, sizes, 0), j = tnx_b_iota(b, 2, sizes, 1);
  tnx_value inside = tnx_b_binary(b, lower ? TNX_OP_LE : TNX_OP_GE, sub(b, j, i), tnx_b_const_i(b, TNX_I64, offset));
  return give(l, results, tnx_b_convert(b, tnx_b_swap_dims(b, tnx_b_nonzero(b, inside, n, 0), 0, 1), t));
}
tnx_status lower_tril_indices(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return triangle_indices(l, a, arg_dtype(a + 3, TNX_I64), true, results); }
tnx_status lower_triu_indices(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return triangle_indices(l, a, arg_dtype(a + 3, TNX_I64), false, results); }

/* ---- mode ---- */

/* The most frequent value of each row, the smallest among several: in sorted order, the end of the first longest run of equal values. */
tnx_status lower_mode(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x), d = tnx_b_wrap_dim(b, a[1].dim, rank);
  tnx_dtype t = tnx_b_dtype(b, x);
  if (b->status != TNX_OK) return b->status;
  if (tnx_dtype_is_complex(t)) return uncovered(l, "complex");
  if (rank == 0) return give2(l, results, x, tnx_b_const_i(b, TNX_I64, 0));
  tnx_dim n = tnx_b_size(b, x, d);
  if (tnx_dim_is_symbolic(n) || tnx_b_numel(b, x) == 0) return uncovered(l, "empty or symbolic");
  tnx_value v = tnx_b_topk(b, t == TNX_BOOL ? tnx_b_convert(b, x, TNX_U8) : x, d, n, false, true), index = v + 1;
  if (!v) return b->status;
  tnx_value at = tnx_b_iota(b, rank, tnx_b_sizes(b, v), d), best = 0;
  if (n > 1) {
    tnx_value differs = tnx_b_binary(b, TNX_OP_NE, tnx_b_slice(b, v, d, 1, n - 1, 1), tnx_b_slice(b, v, d, 0, n - 1, 1));
    tnx_value first = full_like_f(b, tnx_b_slice(b, v, d, 0, 1, 1), TNX_BOOL, 1), parts[2] = {first, differs};
    tnx_value start = tnx_b_select(b, tnx_b_concat(b, parts, 2, d), at, tnx_b_const_i(b, TNX_I64, 0));
    best = tnx_b_reduce(b, TNX_OP_ARGMAX, sub(b, at, tnx_b_scan(b, TNX_OP_CUMMAX, start, d)), &d, 1, true);
  } else {
    best = full_like_f(b, v, TNX_I64, 0);
  }
  v = tnx_b_convert(b, tnx_b_gather(b, v, best, d), t), index = tnx_b_gather(b, index, best, d);
  if (!arg_bool(a + 2)) v = last_dim_squeezed(b, v, d), index = last_dim_squeezed(b, index, d);
  return give2(l, results, v, index);
}

/* ---- moving ---- */

tnx_status lower_channel_shuffle(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  if (rank < 3 || rank >= TNX_MAX_RANK) return tnx_fail(TNX_SHAPE, "channel_shuffle expects input with > 2 dims, but got input with %d dims", rank);
  tnx_dim groups = a[1].dim, channels = tnx_b_size(b, x, 1), sizes[TNX_MAX_RANK];
  if (tnx_dim_is_symbolic(groups) || tnx_dim_is_symbolic(channels)) return uncovered(l, "symbolic channels");
  if (groups <= 0) return tnx_fail(TNX_INVALID_ARGUMENT, "Number of groups to divide channels in must be positive.");
  if (channels % groups) return tnx_fail(TNX_INVALID_ARGUMENT, "Number of channels must be divisible by groups. Got %lld channels and %lld groups.", (long long)channels, (long long)groups);
  sizes[0] = tnx_b_size(b, x, 0), sizes[1] = groups, sizes[2] = channels / groups;
  for (int i = 2; i < rank; i++) sizes[i + 1] = tnx_b_size(b, x, i);
  tnx_value r = tnx_b_swap_dims(b, tnx_b_reshape(b, x, rank + 1, sizes), 1, 2);
  return give(l, results, tnx_b_reshape(b, r, rank, tnx_b_sizes(b, x)));
}

/* Windows added back to where unfold took them: window w's element k to w * step + k. */
tnx_status lower_unfold_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value g = a[0].value;
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = arg_sizes(b, a + 1, sizes), perm[TNX_MAX_RANK];
  if (rank < 0) return b->status;
  tnx_dtype t = tnx_b_dtype(b, g), acc = tnx_acc_of(t);
  if (rank == 0) return give(l, results, tnx_b_reshape(b, reduce(b, TNX_OP_REDUCE_SUM, g, NULL, 0, false), 0, NULL));
  int d = tnx_b_wrap_dim(b, a[2].dim, rank);
  if (b->status != TNX_OK) return b->status;
  for (int i = 0, k = 0; i <= rank; i++) perm[i] = i == d + 1 ? rank : k++; /* the window's elements go beside the windows */
  tnx_value src = tnx_b_transpose(b, tnx_b_convert(b, g, acc), perm);
  tnx_dim merged[TNX_MAX_RANK], grid[2] = {tnx_b_size(b, g, d), a[3].dim};
  for (int i = 0; i < rank; i++) merged[i] = i == d ? tnx_b_dim_mul(b, grid[0], grid[1]) : sizes[i];
  src = tnx_b_reshape(b, src, rank, merged);
  tnx_value index = add(b, tnx_b_binary(b, TNX_OP_MUL, tnx_b_iota(b, 2, grid, 0), tnx_b_dimval(b, a[4].dim)), tnx_b_iota(b, 2, grid, 1));
  tnx_value zeros = tnx_b_full(b, tnx_b_const_f(b, acc, 0), rank, sizes);
  return give(l, results, tnx_b_convert(b, tnx_b_put(b, zeros, flattened(b, index), src, d, ADD), t));
}

/* ---- norms of slices ---- */

/* What makes longer slices as long as max. */
static tnx_value shortening(tnx_builder *b, tnx_value norm, double max) {
  tnx_value factor = divide(b, full_like_f(b, norm, tnx_b_dtype(b, norm), max), add_f(b, norm, 1e-7));
  return select_f(b, compare_f(b, TNX_OP_GT, norm, max), factor, 1);
}

tnx_status lower_renorm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = to_acc(b, a[0].value);
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  int rank = tnx_b_rank(b, a[0].value), dims[TNX_MAX_RANK], n = dims_except(rank, tnx_b_wrap_dim(b, a[2].dim, rank), dims);
  if (tnx_dtype_is_integral(t)) return tnx_fail(TNX_DTYPE, "renorm(): input must be floating point or complex");
  if (rank < 2) return tnx_fail(TNX_SHAPE, "renorm: input needs at least 2 dimensions, got %d dimensions", rank);
  if (arg_number(a + 1, 2) <= 0) return tnx_fail(TNX_INVALID_ARGUMENT, "renorm: non-positive norm not supported");
  if (arg_number(a + 3, 0) < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "renorm: expected maxnorm to be >= 0");
  if (!x) return b->status;
  tnx_value factor = shortening(b, lower_norm_of(b, x, arg_number(a + 1, 2), dims, n, true), arg_number(a + 3, 0));
  return give(l, results, tnx_b_convert(b, mul(b, x, tnx_b_convert(b, factor, tnx_b_dtype(b, x))), t));
}

/* The rows named are read, shortened and written back; a row named twice is written twice alike. */
tnx_status lower_embedding_renorm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value w = a[0].value, index = flattened(b, a[1].value);
  tnx_dtype t = tnx_b_dtype(b, w);
  if (tnx_b_rank(b, w) != 2) return tnx_fail(TNX_SHAPE, "'self' must be 2-D");
  int column = 1;
  tnx_value rows = to_acc(b, tnx_b_take(b, w, index, 0));
  if (!rows) return b->status;
  rows = mul(b, rows, shortening(b, lower_norm_of(b, rows, arg_number(a + 3, 2), &column, 1, true), arg_number(a + 2, 0)));
  return give(l, results, tnx_b_put(b, w, index, tnx_b_convert(b, rows, t), 0, SET));
}

/* ---- segments ---- */

typedef struct segments {
  tnx_value id;     /* of each element along the axis, expanded to the data's shape; those behind the last segment have the number of segments */
  tnx_value length; /* of each segment, int64, with the result's rank */
  tnx_dim sizes[TNX_MAX_RANK], room[TNX_MAX_RANK]; /* the result's, and with one more segment for the rest */
  int axis, rank;
} segments;

/* From lengths, or offsets with a last one behind the end; both have the data's dimensions before the axis, then the segments. */
static bool segments_of(tnx_lower *l, tnx_value data, const tnx_arg *lengths, const tnx_arg *offsets, const tnx_arg *axis, segments *s) {
  tnx_builder *b = &l->b;
  tnx_value given = arg_value(lengths), ends;
  bool by_length = given != 0;
  if (!given) given = arg_value(offsets);
  if (!given) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "segment_reduce(): Either lengths or offsets must be defined."), false;
  s->rank = tnx_b_rank(b, data), s->axis = tnx_b_wrap_dim(b, arg_int(axis, 0), s->rank);
  if (b->status != TNX_OK) return false;
  if (tnx_b_rank(b, given) != s->axis + 1) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "segments of another rank"), false;
  int d = s->axis;
  tnx_dim n = tnx_b_size(b, given, d);
  given = tnx_b_convert(b, given, TNX_I64);
  if (!by_length) n = tnx_b_dim_sub(b, n, 1);
  if (tnx_dim_is_symbolic(n) || n < 1 || tnx_b_numel(b, data) == 0) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "no segments or elements"), false;
  tnx_value starts = by_length ? 0 : tnx_b_slice(b, given, d, 0, n, 1);
  ends = by_length ? tnx_b_scan(b, TNX_OP_CUMSUM, given, d) : tnx_b_slice(b, given, d, 1, n, 1);
  s->length = by_length ? given : sub(b, ends, starts);
  /* Each end moves what follows to the next segment: marks, then their running sum. */
  tnx_dim marks[TNX_MAX_RANK];
  for (int i = 0; i < s->rank; i++) s->sizes[i] = s->room[i] = tnx_b_size(b, data, i);
  for (int i = 0; i <= d; i++) marks[i] = s->sizes[i];
  marks[d] = tnx_b_dim_add(b, s->sizes[d], 1);
  tnx_value mark = tnx_b_scatter(b, full_i(b, TNX_I64, 0, d + 1, marks), ends, full_like_f(b, ends, TNX_I64, 1), d, ADD);
  tnx_value id = tnx_b_slice(b, tnx_b_scan(b, TNX_OP_CUMSUM, mark, d), d, 0, s->sizes[d], 1);
  for (int i = d + 1; i < s->rank; i++) id = tnx_b_unsqueeze(b, id, i), s->length = tnx_b_unsqueeze(b, s->length, i);
  s->id = tnx_b_broadcast_to(b, id, s->rank, s->sizes);
  s->sizes[d] = n, s->room[d] = n + 1;
  return b->status == TNX_OK;
}

static int segment_mode(const tnx_arg *a) { return arg_is(a, "sum") || arg_is(a, "mean") ? ADD : arg_is(a, "prod") ? MUL : arg_is(a, "min") ? MIN : arg_is(a, "max") ? MAX : -1; }

/* (data, reduce, lengths, indices, offsets, axis, unsafe, initial). Empty segments give the initial value, or NaN for a mean without one. */
tnx_status lower_segment_reduce(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  segments s;
  int mode = segment_mode(a + 1);
  bool mean = arg_is(a + 1, "mean");
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  if (mode < 0 || !arg_none(a + 3) || !tnx_dtype_is_float(t)) return uncovered(l, "reduction, indices or dtype");
  if (!segments_of(l, a[0].value, a + 2, a + 4, a + 5, &s)) return b->status;
  double neutral = mode == MUL ? 1 : mode == MIN ? INFINITY : mode == MAX ? -INFINITY : 0;
  tnx_value first = arg_none(a + 7) ? tnx_b_const_f(b, acc, neutral) : tnx_b_scalar(b, a + 7, acc);
  tnx_value r = tnx_b_scatter(b, tnx_b_full(b, first, s.rank, s.room), s.id, tnx_b_convert(b, a[0].value, acc), s.axis, mode);
  r = tnx_b_slice(b, r, s.axis, 0, s.sizes[s.axis], 1);
  if (mean) {
    tnx_value length = tnx_b_convert(b, s.length, acc), empty = compare_f(b, TNX_OP_EQ, length, 0);
    r = tnx_b_select(b, empty, arg_none(a + 7) ? tnx_b_const_f(b, acc, NAN) : first, divide(b, r, length));
  }
  return give(l, results, tnx_b_convert(b, r, t));
}

/* (grad, output, data, reduce, lengths, offsets, axis, initial) */
tnx_status lower_segment_reduce_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  segments s;
  int mode = segment_mode(a + 3), d;
  tnx_dtype t = tnx_b_dtype(b, a[2].value), acc = tnx_acc_of(t);
  if (mode < 0 || !tnx_dtype_is_float(t)) return uncovered(l, "reduction or dtype");
  if (!segments_of(l, a[2].value, a + 4, a + 5, a + 6, &s)) return b->status;
  d = s.axis;
  tnx_value data = tnx_b_convert(b, a[2].value, acc), grad = tnx_b_convert(b, a[0].value, acc), zero = tnx_b_const_f(b, acc, 0), r;
  tnx_value last = tnx_b_const_i(b, TNX_I64, s.sizes[d] - 1), at = tnx_b_binary(b, TNX_OP_MIN, s.id, last), outside = tnx_b_binary(b, TNX_OP_GT, s.id, last);
  if (arg_is(a + 3, "mean")) grad = divide(b, grad, tnx_b_convert(b, s.length, acc));
  if (mode == ADD) {
    r = tnx_b_gather(b, grad, at, d);
  } else if (mode == MUL) { /* the product of the others: output / data, but for segments with zeros */
    tnx_value none = compare_f(b, TNX_OP_EQ, data, 0), one = tnx_b_const_f(b, acc, 1), start = arg_none(a + 7) ? one : tnx_b_scalar(b, a + 7, acc);
    tnx_value zeros = tnx_b_scatter(b, tnx_b_full(b, zero, s.rank, s.room), s.id, tnx_b_convert(b, none, acc), d, ADD);
    tnx_value product = tnx_b_scatter(b, tnx_b_full(b, start, s.rank, s.room), s.id, tnx_b_select(b, none, one, data), d, MUL);
    zeros = sub(b, tnx_b_gather(b, zeros, s.id, d), tnx_b_convert(b, none, acc)); /* among the others */
    product = tnx_b_gather(b, product, s.id, d);
    tnx_value others = tnx_b_select(b, compare_f(b, TNX_OP_GT, zeros, 0), zero, tnx_b_select(b, none, product, divide(b, product, data)));
    r = mul(b, tnx_b_gather(b, grad, at, d), others);
  } else { /* shared by the elements that are the extreme one; NaN is one */
    tnx_value out = tnx_b_gather(b, tnx_b_convert(b, a[1].value, acc), at, d);
    tnx_value wins = tnx_b_binary(b, TNX_OP_OR, tnx_b_binary(b, TNX_OP_EQ, data, out), tnx_b_unary(b, TNX_OP_ISNAN, data));
    tnx_value count = tnx_b_scatter(b, tnx_b_full(b, zero, s.rank, s.room), s.id, tnx_b_convert(b, wins, acc), d, ADD);
    r = tnx_b_select(b, wins, divide(b, tnx_b_gather(b, grad, at, d), tnx_b_gather(b, count, s.id, d)), zero);
  }
  return give(l, results, tnx_b_convert(b, tnx_b_select(b, outside, zero, r), t));
}
