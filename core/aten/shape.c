/* Views (for graphs; eager tensors take PyTorch's own), copies, joins, pads, and the operators that write part of a tensor. Sizes may be symbolic:
 * nothing branches on them except through constants. */
#include "aten/family.h"

static int dim_of(tnx_lower *l, const tnx_arg *a, tnx_value x) { return tnx_b_wrap_dim(&l->b, a->dim, tnx_b_rank(&l->b, x)); }
static bool known(tnx_dim d) { return !tnx_dim_is_symbolic(d); }

/* ---- identity and copies ---- */

tnx_status lower_identity(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, a[0].value); }

tnx_status lower_clone(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  take_format(l, a + 1);
  return give(l, results, a[0].value);
}

/* (self, dtype, layout, device, pin_memory, non_blocking, memory_format) */
tnx_status lower_to_copy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  take_format(l, a + 6);
  return give(l, results, tnx_b_convert(&l->b, a[0].value, arg_dtype(a + 1, tnx_b_dtype(&l->b, a[0].value))));
}

/* self takes src's values: converted, broadcast. */
tnx_status lower_copy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, expand_like(&l->b, tnx_b_convert(&l->b, a[1].value, tnx_b_dtype(&l->b, a[0].value)), a[0].value));
}

tnx_status lower_type_as(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, tnx_b_convert(&l->b, a[0].value, tnx_b_dtype(&l->b, a[1].value))); }

tnx_status lower_view_dtype(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (arg_dtype(a + 1, TNX_DTYPE_NONE) != tnx_b_dtype(&l->b, a[0].value)) return uncovered(l, "reinterpreted bytes");
  return give(l, results, a[0].value);
}

/* ---- views ---- */

tnx_status lower_view(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = arg_sizes(&l->b, a + 1, sizes);
  return rank < 0 ? l->b.status : give(l, results, tnx_b_reshape(&l->b, a[0].value, rank, sizes));
}

tnx_status lower_view_as(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, tnx_b_reshape(&l->b, a[0].value, tnx_b_rank(&l->b, a[1].value), tnx_b_sizes(&l->b, a[1].value)));
}

tnx_status lower_flatten(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x), start = dim_of(l, a + 1, x), end = dim_of(l, a + 2, x), n = 0;
  tnx_dim sizes[TNX_MAX_RANK], one = 1;
  if (b->status != TNX_OK || start > end) return b->status != TNX_OK ? b->status : tnx_fail(TNX_INVALID_ARGUMENT, "flatten() has invalid args: start_dim cannot come after end_dim");
  if (rank == 0) return give(l, results, tnx_b_reshape(b, x, 1, &one));
  for (int i = 0; i < rank; i++) {
    if (i > start && i <= end) sizes[n - 1] = tnx_b_dim_mul(b, sizes[n - 1], tnx_b_size(b, x, i));
    else sizes[n++] = tnx_b_size(b, x, i);
  }
  return give(l, results, tnx_b_reshape(b, x, n, sizes));
}

tnx_status lower_unflatten(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x), dim = dim_of(l, a + 1, x), n = 0, parts = (int)a[2].count, open = -1;
  if (b->status != TNX_OK) return b->status;
  if (rank == 0 || rank - 1 + parts > TNX_MAX_RANK) return uncovered(l, "rank");
  tnx_dim sizes[TNX_MAX_RANK], product = 1;
  for (int i = 0; i < rank; i++) {
    if (i != dim) {
      sizes[n++] = tnx_b_size(b, x, i);
      continue;
    }
    for (int j = 0; j < parts; j++) {
      if (a[2].dims[j] == -1) open = n;
      else product = tnx_b_dim_mul(b, product, a[2].dims[j]);
      sizes[n++] = a[2].dims[j];
    }
  }
  if (open >= 0) {
    if (product == 0) return tnx_fail(TNX_SHAPE, "unflatten: cannot infer a size");
    sizes[open] = tnx_b_dim(b, TNX_DIM_FLOORDIV, tnx_b_size(b, x, dim), product);
  }
  return give(l, results, tnx_b_reshape(b, x, n, sizes));
}

tnx_status lower_transpose(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int d0 = dim_of(l, a + 1, a[0].value), d1 = dim_of(l, a + 2, a[0].value);
  return give(l, results, tnx_b_rank(&l->b, a[0].value) == 0 ? a[0].value : tnx_b_swap_dims(&l->b, a[0].value, d0, d1));
}

tnx_status lower_t(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int rank = tnx_b_rank(&l->b, a[0].value);
  if (rank > 2) return tnx_fail(TNX_SHAPE, "t() expects a tensor with <= 2 dimensions, but self is %dD", rank);
  return give(l, results, rank < 2 ? a[0].value : tnx_b_swap_dims(&l->b, a[0].value, 0, 1));
}

tnx_status lower_transpose_last(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int rank = tnx_b_rank(&l->b, a[0].value);
  if (rank < 2) return tnx_fail(TNX_SHAPE, "a tensor of at least 2 dimensions is expected");
  return give(l, results, tnx_b_swap_dims(&l->b, a[0].value, rank - 2, rank - 1));
}

tnx_status lower_permute(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int perm[TNX_MAX_RANK], rank = tnx_b_rank(&l->b, a[0].value), n = arg_dims(&l->b, a + 1, rank, perm);
  if (l->b.status == TNX_OK && n != rank) return tnx_fail(TNX_SHAPE, "permute: number of dimensions in the tensor input does not match the length of the desired ordering of dimensions");
  return give(l, results, rank ? tnx_b_transpose(&l->b, a[0].value, perm) : a[0].value);
}

tnx_status lower_movedim(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, a[0].value), from[TNX_MAX_RANK], to[TNX_MAX_RANK], perm[TNX_MAX_RANK];
  int n = arg_dims(b, a + 1, rank, from), m = arg_dims(b, a + 2, rank, to);
  if (b->status != TNX_OK || n != m) return b->status != TNX_OK ? b->status : tnx_fail(TNX_INVALID_ARGUMENT, "movedim: source and destination differ in length");
  if (rank == 0) return give(l, results, a[0].value);
  uint32_t moved = 0;
  for (int i = 0; i < rank; i++) perm[i] = -1;
  for (int i = 0; i < n; i++) perm[to[i]] = from[i], moved |= 1u << from[i];
  for (int i = 0, next = 0; i < rank; i++) {
    if (perm[i] >= 0) continue;
    while (moved >> next & 1) next++;
    perm[i] = next++;
  }
  return give(l, results, tnx_b_transpose(b, a[0].value, perm));
}

tnx_status lower_unsqueeze(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dim = tnx_b_wrap_dim(&l->b, a[1].dim, tnx_b_rank(&l->b, a[0].value) + 1);
  return give(l, results, tnx_b_unsqueeze(&l->b, a[0].value, dim));
}

tnx_status lower_squeeze(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims[TNX_MAX_RANK], rank = tnx_b_rank(&l->b, a[0].value), n = rank;
  for (int i = 0; i < rank; i++) dims[i] = i;
  if (l->n_args > 1) n = arg_dims(&l->b, a + 1, rank, dims);
  return give(l, results, rank ? tnx_b_squeeze(&l->b, a[0].value, dims, n) : a[0].value);
}

tnx_status lower_expand(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = arg_sizes(b, a + 1, sizes), lead = rank - tnx_b_rank(b, a[0].value);
  if (rank < 0) return b->status;
  for (int i = 0; i < rank; i++)
    if (sizes[i] == -1) {
      if (i < lead) return tnx_fail(TNX_SHAPE, "expand: a leading, non-existing dimension %d can't have size -1", i);
      sizes[i] = tnx_b_size(b, a[0].value, i - lead);
    }
  return give(l, results, tnx_b_broadcast_to(b, a[0].value, rank, sizes));
}

tnx_status lower_expand_as(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return give(l, results, expand_like(&l->b, a[0].value, a[1].value)); }

tnx_status lower_as_strided(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = arg_sizes(&l->b, a + 1, sizes);
  if (rank < 0 || (int)a[2].count != rank) return tnx_fail(TNX_SHAPE, "mismatch in length of strides and shape");
  return give(l, results, tnx_b_strided(&l->b, a[0].value, rank, sizes, a[2].dims, arg_none(a + 3) ? 0 : a[3].dim));
}

tnx_status lower_diagonal(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int d1 = dim_of(l, a + 2, a[0].value), d2 = dim_of(l, a + 3, a[0].value);
  return give(l, results, tnx_b_diagonal(&l->b, a[0].value, a[1].dim, d1, d2));
}

tnx_status lower_unfold(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dim = dim_of(l, a + 1, a[0].value);
  return give(l, results, tnx_b_unfold(&l->b, a[0].value, dim, a[2].dim, a[3].dim));
}

/* ---- slices ---- */

typedef struct range { tnx_dim start, len; int64_t step; } range;

/* start:end:step over size as Python counts, clamped where constants allow it. Symbolic ends are taken as guarded to lie inside. */
static range clamped(tnx_builder *b, tnx_dim size, const tnx_arg *start, const tnx_arg *end, int64_t step) {
  tnx_dim s = arg_none(start) ? 0 : start->dim, e = arg_none(end) ? size : end->dim;
  if (known(s) && s < 0) s = tnx_b_dim_add(b, s, size);
  if (known(e) && e < 0) e = tnx_b_dim_add(b, e, size);
  if (known(s) && s < 0) s = 0;
  if (known(s) && known(size) && s > size) s = size;
  if (known(e) && known(size) && e > size) e = size;
  if (known(e) && !known(size) && e >= INT64_C(1) << 40) e = size;
  if (known(s) && known(e) && e < s) e = s;
  tnx_dim len = tnx_b_dim_sub(b, e, s);
  if (step > 1) len = tnx_b_dim(b, TNX_DIM_FLOORDIV, tnx_b_dim_add(b, len, step - 1), step);
  return (range){s, len, step};
}

tnx_status lower_slice(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, a[0].value) == 0) return tnx_fail(TNX_SHAPE, "slice() cannot be applied to a 0-dim tensor.");
  int dim = dim_of(l, a + 1, a[0].value);
  if (b->status != TNX_OK) return b->status;
  if (arg_symbolic(a + 4)) return uncovered(l, "symbolic step");
  if (a[4].dim < 1) return tnx_fail(TNX_INVALID_ARGUMENT, "slice step must be positive");
  range r = clamped(b, tnx_b_size(b, a[0].value, dim), a + 2, a + 3, a[4].dim);
  return give(l, results, tnx_b_slice(b, a[0].value, dim, r.start, r.len, r.step));
}

/* An index into a dimension, made non-negative. */
static tnx_dim position(tnx_builder *b, tnx_dim index, tnx_dim size) {
  if (known(index) && known(size) && (index < -size || index >= size)) tnx_b_fail(b, TNX_INDEX, "index %lld is out of bounds for dimension of size %lld", (long long)index, (long long)size);
  return known(index) && index < 0 ? tnx_b_dim_add(b, index, size) : index;
}

tnx_status lower_select(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, a[0].value) == 0) return tnx_fail(TNX_INDEX, "select() cannot be applied to a 0-dim tensor.");
  int dim = dim_of(l, a + 1, a[0].value);
  if (b->status != TNX_OK) return b->status;
  tnx_dim at = position(b, a[2].dim, tnx_b_size(b, a[0].value, dim));
  return give(l, results, tnx_b_squeeze(b, tnx_b_slice(b, a[0].value, dim, at, 1, 1), &dim, 1));
}

tnx_status lower_narrow(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, a[0].value) == 0) return tnx_fail(TNX_SHAPE, "narrow() cannot be applied to a 0-dim tensor.");
  int dim = dim_of(l, a + 1, a[0].value);
  if (b->status != TNX_OK) return b->status;
  tnx_dim size = tnx_b_size(b, a[0].value, dim), start = known(a[2].dim) && a[2].dim < 0 ? tnx_b_dim_add(b, a[2].dim, size) : a[2].dim;
  if (known(start) && known(size) && known(a[3].dim) && (start < 0 || a[3].dim < 0 || start + a[3].dim > size)) return tnx_fail(TNX_SHAPE, "start and length exceed the dimension size");
  return give(l, results, tnx_b_slice(b, a[0].value, dim, start, a[3].dim, 1));
}

/* The pieces of a list result; more than TNX_MAX_RESULTS are not covered. */
static tnx_status pieces(tnx_lower *l, tnx_value x, int dim, const tnx_dim *sizes, int n, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (n > TNX_MAX_RESULTS) return uncovered(l, "many results");
  tnx_dim at = 0;
  for (int i = 0; i < n; i++) {
    results[i] = tnx_b_slice(b, x, dim, at, sizes[i], 1);
    at = tnx_b_dim_add(b, at, sizes[i]);
  }
  l->n_results = (uint32_t)n;
  return b->status;
}

/* Pieces of `piece` elements, the last one smaller. */
static tnx_status equal_pieces(tnx_lower *l, tnx_value x, int dim, int64_t size, int64_t piece, tnx_value *results) {
  tnx_dim sizes[TNX_MAX_RESULTS];
  int n = 0;
  if (piece <= 0) piece = 1;
  for (int64_t at = 0; at < size || n == 0; at += piece) {
    if (n == TNX_MAX_RESULTS) return uncovered(l, "many results");
    sizes[n++] = size - at < piece ? size - at : piece;
  }
  return pieces(l, x, dim, sizes, n, results);
}

tnx_status lower_split(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = dim_of(l, a + 2, a[0].value);
  if (b->status != TNX_OK || tnx_b_rank(b, a[0].value) == 0) return b->status != TNX_OK ? b->status : tnx_fail(TNX_SHAPE, "split expects at least a 1-dimensional tensor");
  tnx_dim size = tnx_b_size(b, a[0].value, dim);
  if (size == a[1].dim) return pieces(l, a[0].value, dim, &size, 1, results);
  if (!known(size) || !known(a[1].dim)) return uncovered(l, "symbolic sizes");
  return equal_pieces(l, a[0].value, dim, size, a[1].dim, results);
}

tnx_status lower_split_with_sizes(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = dim_of(l, a + 2, a[0].value);
  if (b->status != TNX_OK || tnx_b_rank(b, a[0].value) == 0) return b->status != TNX_OK ? b->status : tnx_fail(TNX_SHAPE, "split expects at least a 1-dimensional tensor");
  tnx_dim total = 0, size = tnx_b_size(b, a[0].value, dim);
  for (uint32_t i = 0; i < a[1].count; i++) total = tnx_b_dim_add(b, total, a[1].dims[i]);
  if (known(total) && known(size) && total != size) return tnx_fail(TNX_SHAPE, "split_with_sizes expects split_sizes to sum exactly to %lld", (long long)size);
  return pieces(l, a[0].value, dim, a[1].dims, (int)a[1].count, results);
}

tnx_status lower_chunk(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = dim_of(l, a + 2, a[0].value);
  if (b->status != TNX_OK || tnx_b_rank(b, a[0].value) == 0) return b->status != TNX_OK ? b->status : tnx_fail(TNX_SHAPE, "chunk expects at least a 1-dimensional tensor");
  tnx_dim size = tnx_b_size(b, a[0].value, dim);
  if (a[1].dim <= 0) return tnx_fail(TNX_INVALID_ARGUMENT, "chunk expects chunks to be greater than 0");
  if (!known(size) || size == 0) return uncovered(l, "symbolic or empty dimension");
  return equal_pieces(l, a[0].value, dim, size, (size + a[1].dim - 1) / a[1].dim, results);
}

tnx_status lower_unbind(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = dim_of(l, a + 1, a[0].value);
  if (b->status != TNX_OK || tnx_b_rank(b, a[0].value) == 0) return b->status != TNX_OK ? b->status : tnx_fail(TNX_INDEX, "unbind of a 0-dim tensor");
  tnx_dim size = tnx_b_size(b, a[0].value, dim);
  if (!known(size) || size > TNX_MAX_RESULTS) return uncovered(l, "many results");
  for (int i = 0; i < (int)size; i++) results[i] = tnx_b_squeeze(b, tnx_b_slice(b, a[0].value, dim, i, 1, 1), &dim, 1);
  l->n_results = (uint32_t)size;
  return b->status;
}

/* ---- writing part of a tensor ---- */

tnx_status lower_slice_scatter(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  if (rank == 0) return tnx_fail(TNX_SHAPE, "slice_scatter of a 0-dim tensor");
  int dim = dim_of(l, a + 2, x);
  if (b->status != TNX_OK) return b->status;
  if (arg_symbolic(a + 5)) return uncovered(l, "symbolic step");
  if (a[5].dim < 1) return tnx_fail(TNX_INVALID_ARGUMENT, "slice step must be positive");
  range r = clamped(b, tnx_b_size(b, x, dim), a + 3, a + 4, a[5].dim);
  tnx_dim sizes[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) sizes[i] = i == dim ? r.len : tnx_b_size(b, x, i);
  tnx_value src = tnx_b_broadcast_to(b, tnx_b_convert(b, a[1].value, tnx_b_dtype(b, x)), rank, sizes);
  return give(l, results, tnx_b_update_slice(b, x, src, dim, r.start, r.step));
}

tnx_status lower_select_scatter(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (tnx_b_rank(b, x) == 0) return tnx_fail(TNX_SHAPE, "select_scatter of a 0-dim tensor");
  int dim = dim_of(l, a + 2, x);
  if (b->status != TNX_OK) return b->status;
  if (tnx_b_rank(b, a[1].value) != tnx_b_rank(b, x) - 1) return tnx_fail(TNX_SHAPE, "expected src to have a size equal to the slice of self");
  tnx_value src = tnx_b_unsqueeze(b, tnx_b_convert(b, a[1].value, tnx_b_dtype(b, x)), dim);
  return give(l, results, tnx_b_update_slice(b, x, src, dim, position(b, a[3].dim, tnx_b_size(b, x, dim)), 1));
}

tnx_status lower_as_strided_scatter(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = arg_sizes(&l->b, a + 2, sizes);
  if (rank < 0 || (int)a[3].count != rank || tnx_b_rank(&l->b, a[1].value) != rank) return tnx_fail(TNX_SHAPE, "as_strided_scatter: shape, strides and src differ in rank");
  return give(l, results, tnx_b_update_strided(&l->b, a[0].value, tnx_b_broadcast_to(&l->b, a[1].value, rank, sizes), a[3].dims, arg_none(a + 4) ? 0 : a[4].dim));
}

tnx_status lower_diagonal_scatter(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int d1 = dim_of(l, a + 3, a[0].value), d2 = dim_of(l, a + 4, a[0].value);
  tnx_value part = tnx_b_diagonal(b, a[0].value, a[2].dim, d1, d2), src = expand_like(b, a[1].value, part);
  return give(l, results, tnx_b_update_diagonal(b, a[0].value, src, a[2].dim, d1, d2));
}

/* ---- gradients of views: zeros with the gradient written in ---- */

static tnx_value zeros(tnx_builder *b, const tnx_arg *sizes, tnx_value like) { return tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, like), 0), (int)sizes->count, sizes->dims); }

tnx_status lower_slice_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value base = zeros(b, a + 1, a[0].value);
  if (!base || tnx_b_rank(b, base) == 0) return uncovered(l, "0-dim");
  int dim = dim_of(l, a + 2, base);
  if (b->status != TNX_OK) return b->status;
  if (arg_symbolic(a + 5)) return uncovered(l, "symbolic step");
  range r = clamped(b, tnx_b_size(b, base, dim), a + 3, a + 4, a[5].dim);
  return give(l, results, tnx_b_update_slice(b, base, a[0].value, dim, r.start, r.step));
}

tnx_status lower_select_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value base = zeros(b, a + 1, a[0].value);
  if (!base || tnx_b_rank(b, base) == 0) return uncovered(l, "0-dim");
  int dim = dim_of(l, a + 2, base);
  if (b->status != TNX_OK) return b->status;
  return give(l, results, tnx_b_update_slice(b, base, tnx_b_unsqueeze(b, a[0].value, dim), dim, position(b, a[3].dim, tnx_b_size(b, base, dim)), 1));
}

tnx_status lower_diagonal_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value base = zeros(b, a + 1, a[0].value);
  if (!base) return b->status;
  int d1 = dim_of(l, a + 3, base), d2 = dim_of(l, a + 4, base);
  return give(l, results, tnx_b_update_diagonal(b, base, a[0].value, a[2].dim, d1, d2));
}

/* ---- joining, repeating, moving ---- */

/* Operands that are 1-d and empty are skipped whatever the others' rank, as torch.cat does. */
tnx_status lower_cat(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value small[64], *xs = small;
  uint32_t n = a[0].count, kept = 0;
  if (n == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "torch.cat(): expected a non-empty list of Tensors");
  if (n > 64 && !(xs = tnx_arena_alloc(&b->g->arena, n * sizeof *xs))) return tnx_fail(TNX_OUT_OF_MEMORY, "cat");
  tnx_dtype t = tnx_b_result_type(b, a[0].values, (int)n);
  for (uint32_t i = 0; i < n; i++) {
    tnx_value v = a[0].values[i];
    if (tnx_b_rank(b, v) == 0) return tnx_fail(TNX_SHAPE, "zero-dimensional tensor (at position %u) cannot be concatenated", i);
    if (tnx_b_rank(b, v) == 1 && tnx_b_size(b, v, 0) == 0) continue;
    xs[kept++] = tnx_b_convert(b, v, t);
  }
  if (kept == 0) return give(l, results, tnx_b_convert(b, a[0].values[0], t));
  if (b->status != TNX_OK) return b->status;
  return give(l, results, tnx_b_concat(b, xs, (int)kept, dim_of(l, a + 1, xs[0])));
}

tnx_status lower_stack(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value small[64], *xs = small;
  uint32_t n = a[0].count;
  if (n == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "stack expects a non-empty TensorList");
  if (n > 64 && !(xs = tnx_arena_alloc(&b->g->arena, n * sizeof *xs))) return tnx_fail(TNX_OUT_OF_MEMORY, "stack");
  tnx_dtype t = tnx_b_result_type(b, a[0].values, (int)n);
  int dim = tnx_b_wrap_dim(b, a[1].dim, tnx_b_rank(b, a[0].values[0]) + 1);
  for (uint32_t i = 0; i < n; i++) {
    if (!same_sizes(b, a[0].values[i], a[0].values[0]) && tnx_b_rank(b, a[0].values[i]) != tnx_b_rank(b, a[0].values[0])) return tnx_fail(TNX_SHAPE, "stack expects each tensor to be equal size");
    xs[i] = tnx_b_unsqueeze(b, tnx_b_convert(b, a[0].values[i], t), dim);
  }
  return give(l, results, b->status == TNX_OK ? tnx_b_concat(b, xs, (int)n, dim) : 0);
}

/* Each dimension [n] becomes [r, n] by broadcasting, then one of r * n. */
tnx_status lower_repeat(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x), out = (int)a[1].count, n = 0, k = 0;
  if (out < rank) return tnx_fail(TNX_SHAPE, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  tnx_dim split[2 * TNX_MAX_RANK], wide[2 * TNX_MAX_RANK], sizes[TNX_MAX_RANK];
  if (out > TNX_MAX_RANK) return uncovered(l, "rank");
  for (int i = 0; i < out; i++) {
    tnx_dim size = i < out - rank ? 1 : tnx_b_size(b, x, i - (out - rank)), r = a[1].dims[i];
    if (known(r) && r < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "repeat with a negative count");
    sizes[k++] = tnx_b_dim_mul(b, size, r);
    if (r != 1) split[n] = 1, wide[n++] = r;
    split[n] = size, wide[n++] = size;
  }
  if (n > TNX_MAX_RANK) return uncovered(l, "rank");
  return give(l, results, tnx_b_reshape(b, tnx_b_broadcast_to(b, tnx_b_reshape(b, x, n, split), n, wide), out, sizes));
}

tnx_status lower_repeat_interleave_int(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dim flat = -1;
  if (arg_none(a + 2) || tnx_b_rank(b, x) == 0) x = tnx_b_reshape(b, x, 1, &flat);
  if (!x) return b->status;
  int rank = tnx_b_rank(b, x), dim = arg_none(a + 2) ? 0 : dim_of(l, a + 2, x);
  if (rank + 1 > TNX_MAX_RANK) return uncovered(l, "rank");
  tnx_dim wide[TNX_MAX_RANK], sizes[TNX_MAX_RANK];
  for (int i = 0, k = 0; i < rank; i++) {
    wide[k++] = sizes[i] = tnx_b_size(b, x, i);
    if (i == dim) sizes[i] = tnx_b_dim_mul(b, sizes[i], a[1].dim), wide[k++] = a[1].dim;
  }
  return give(l, results, tnx_b_reshape(b, tnx_b_broadcast_to(b, tnx_b_unsqueeze(b, x, dim + 1), rank + 1, wide), rank, sizes));
}

tnx_status lower_flip(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims[TNX_MAX_RANK], rank = tnx_b_rank(&l->b, a[0].value), n = arg_dims(&l->b, a + 1, rank, dims);
  return give(l, results, rank && n ? tnx_b_reverse(&l->b, a[0].value, dims, n) : a[0].value);
}

/* One dimension rotated: the last `shift` elements come first. */
static tnx_value roll(tnx_builder *b, tnx_value x, int64_t shift, int dim) {
  tnx_dim size = tnx_b_size(b, x, dim);
  if (known(size)) {
    if (size == 0) return x;
    shift = (shift % size + size) % size;
  }
  if (shift == 0) return x;
  /* a symbolic size is taken to be larger than the shift */
  tnx_dim head = shift > 0 ? tnx_b_dim_sub(b, size, shift) : -shift, tail = shift > 0 ? shift : tnx_b_dim_add(b, size, shift);
  tnx_value parts[2] = {tnx_b_slice(b, x, dim, head, tail, 1), tnx_b_slice(b, x, dim, 0, head, 1)};
  return b->status == TNX_OK ? tnx_b_concat(b, parts, 2, dim) : 0;
}

tnx_status lower_roll(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  tnx_dim shifts[TNX_MAX_RANK];
  int n = arg_sizes(b, a + 1, shifts), rank = tnx_b_rank(b, x), count = a[2].kind == TNX_ARG_INTS ? (int)a[2].count : arg_none(a + 2) ? 0 : 1;
  if (n < 1 || rank == 0) return n < 0 ? b->status : rank == 0 ? give(l, results, x) : tnx_fail(TNX_INVALID_ARGUMENT, "`shifts` required");
  for (int i = 0; i < n; i++)
    if (!known(shifts[i])) return uncovered(l, "symbolic shift");
  if (count == 0) {
    tnx_dim flat = -1;
    if (n != 1) return tnx_fail(TNX_INVALID_ARGUMENT, "shifts and dimensions must align");
    if (tnx_b_numel(b, x) == 0) return give(l, results, x);
    tnx_value r = tnx_b_reshape(b, x, 1, &flat);
    return give(l, results, r ? tnx_b_reshape(b, roll(b, r, shifts[0], 0), rank, tnx_b_sizes(b, x)) : 0);
  }
  if (count != n) return tnx_fail(TNX_INVALID_ARGUMENT, "shifts and dimensions must align");
  for (int i = 0; i < n && x; i++) {
    int dim = tnx_b_wrap_dim(b, a[2].kind == TNX_ARG_INTS ? a[2].dims[i] : a[2].dim, rank);
    if (b->status == TNX_OK) x = roll(b, x, shifts[i], dim);
  }
  return give(l, results, x);
}

/* pad lists (low, high) from the last dimension backwards; negative ones crop. */
tnx_status lower_constant_pad_nd(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, a[0].value), n = (int)a[1].count;
  if (n % 2 || n / 2 > rank) return tnx_fail(TNX_SHAPE, "Length of pad must be even and at most twice the input's dimensions");
  tnx_dim low[TNX_MAX_RANK] = {0}, high[TNX_MAX_RANK] = {0};
  for (int i = 0; i < n / 2; i++) low[rank - 1 - i] = a[1].dims[2 * i], high[rank - 1 - i] = a[1].dims[2 * i + 1];
  return give(l, results, tnx_b_pad(b, a[0].value, lower_stored_number(b, a + 2, tnx_b_dtype(b, a[0].value)), low, high));
}

/* Elements of a matrix on one side of a diagonal; the others are 0. */
static tnx_status triangle(tnx_lower *l, const tnx_arg *a, bool lower, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  if (rank < 2) return tnx_fail(TNX_SHAPE, "tril/triu require tensors with at least 2 dimensions");
  const tnx_dim *sizes = tnx_b_sizes(b, x) + rank - 2;
  tnx_value row = tnx_b_iota(b, 2, sizes, 0), column = tnx_b_iota(b, 2, sizes, 1);
  tnx_value edge = add(b, row, tnx_b_scalar(b, a + 1, TNX_I64));
  return give(l, results, select_f(b, tnx_b_binary(b, lower ? TNX_OP_LE : TNX_OP_GE, column, edge), x, 0));
}
tnx_status lower_tril(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return triangle(l, a, true, results); }
tnx_status lower_triu(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return triangle(l, a, false, results); }

/* The last dimension laid on a diagonal of two new ones. */
tnx_status lower_diag_embed(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  if (rank == 0 || rank + 1 > TNX_MAX_RANK) return uncovered(l, "rank");
  int d1 = tnx_b_wrap_dim(b, a[2].dim, rank + 1), d2 = tnx_b_wrap_dim(b, a[3].dim, rank + 1);
  if (b->status != TNX_OK) return b->status;
  if (d1 == d2) return tnx_fail(TNX_INVALID_ARGUMENT, "diagonal dimensions cannot be identical");
  tnx_dim offset = a[1].dim, n = tnx_b_dim_add(b, tnx_b_size(b, x, -1), offset < 0 ? -offset : offset), sizes[TNX_MAX_RANK];
  for (int i = 0, k = 0; i < rank + 1; i++) sizes[i] = i == d1 || i == d2 ? n : tnx_b_size(b, x, k++);
  return give(l, results, tnx_b_update_diagonal(b, tnx_b_full(b, tnx_b_const_f(b, tnx_b_dtype(b, x), 0), rank + 1, sizes), x, offset, d1, d2));
}

static tnx_status shuffle(tnx_lower *l, const tnx_arg *a, bool up, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x), lead = rank - 3;
  int64_t r = a[1].dim;
  if (rank < 3 || rank + 2 > TNX_MAX_RANK || r < 1) return uncovered(l, "rank or factor");
  tnx_dim c = tnx_b_size(b, x, -3), h = tnx_b_size(b, x, -2), w = tnx_b_size(b, x, -1);
  if (!known(c) || !known(h) || !known(w)) return uncovered(l, "symbolic size");
  if (up ? c % (r * r) : h % r || w % r) return tnx_fail(TNX_SHAPE, "pixel shuffle: sizes are not divisible by the factor");
  tnx_dim split[TNX_MAX_RANK], sizes[TNX_MAX_RANK];
  int perm[TNX_MAX_RANK];
  for (int i = 0; i < lead; i++) split[i] = sizes[i] = tnx_b_size(b, x, i), perm[i] = i;
  const tnx_dim from_up[5] = {c / (r * r), r, r, h, w}, from_down[5] = {c, h / r, r, w / r, r};
  static const int order_up[5] = {0, 3, 1, 4, 2}, order_down[5] = {0, 2, 4, 1, 3};
  for (int i = 0; i < 5; i++) split[lead + i] = up ? from_up[i] : from_down[i], perm[lead + i] = lead + (up ? order_up[i] : order_down[i]);
  sizes[lead] = up ? c / (r * r) : c * r * r, sizes[lead + 1] = up ? h * r : h / r, sizes[lead + 2] = up ? w * r : w / r;
  return give(l, results, tnx_b_reshape(b, tnx_b_transpose(b, tnx_b_reshape(b, x, lead + 5, split), perm), rank, sizes));
}
tnx_status lower_pixel_shuffle(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shuffle(l, a, true, results); }
tnx_status lower_pixel_unshuffle(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return shuffle(l, a, false, results); }

/* The cross product over a dimension of size 3. */
tnx_status lower_cross(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value both[2] = {a[0].value, a[1].value};
  tnx_dtype t = tnx_b_result_type(b, both, 2);
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_broadcast_shape(b, tnx_b_rank(b, both[0]), tnx_b_sizes(b, both[0]), tnx_b_rank(b, both[1]), tnx_b_sizes(b, both[1]), sizes);
  if (rank < 1) return b->status != TNX_OK ? b->status : tnx_fail(TNX_SHAPE, "linalg.cross: 0-dim operands");
  int dim = tnx_b_wrap_dim(b, a[2].dim, rank);
  if (sizes[dim] != 3) return tnx_fail(TNX_SHAPE, "linalg.cross: inputs dimension must have length 3");
  tnx_value x[3], y[3], r[3];
  for (int i = 0; i < 3; i++) {
    x[i] = tnx_b_slice(b, tnx_b_broadcast_to(b, tnx_b_convert(b, both[0], t), rank, sizes), dim, i, 1, 1);
    y[i] = tnx_b_slice(b, tnx_b_broadcast_to(b, tnx_b_convert(b, both[1], t), rank, sizes), dim, i, 1, 1);
  }
  for (int i = 0; i < 3; i++) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    r[i] = sub(b, mul(b, x[j], y[k]), mul(b, x[k], y[j]));
  }
  return give(l, results, b->status == TNX_OK ? tnx_b_concat(b, r, 3, dim) : 0);
}
