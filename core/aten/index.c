/* Indexed reads and writes: gather, scatter, advanced indexing, embedding. Masks whose true elements decide a size are not covered. */
#include "aten/family.h"

static int dim_of(tnx_lower *l, const tnx_arg *a, tnx_value x) { return tnx_b_wrap_dim(&l->b, a->dim, tnx_b_rank(&l->b, x)); }

/* A result computed on an operand that got a first dimension goes back to 0 dimensions. */
static tnx_value like_rank(tnx_builder *b, tnx_value r, tnx_value x) {
  int first = 0;
  return r && tnx_b_rank(b, x) == 0 ? tnx_b_squeeze(b, r, &first, 1) : r;
}

/* ---- reads ---- */

tnx_status lower_index_select(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = dim_of(l, a + 1, a[0].value);
  tnx_value index = at_least_1d(b, a[2].value);
  b->fault = TNX_FAULT_ROW;
  if (index && tnx_b_rank(b, index) != 1) return tnx_fail(TNX_INDEX, "index_select(): Index is supposed to be a vector");
  if (tnx_b_rank(b, a[0].value) == 0) return give(l, results, like_rank(b, tnx_b_take(b, at_least_1d(b, a[0].value), index, dim), a[0].value));
  return give(l, results, tnx_b_take(b, a[0].value, index, dim));
}

tnx_status lower_gather(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = a[2].value;
  int dim = dim_of(l, a + 1, x);
  b->fault = TNX_FAULT_GATHER;
  if (tnx_b_numel(b, index) == 0) return give(l, results, full_like_f(b, index, tnx_b_dtype(b, x), 0)); /* of any dtype and rank */
  if (tnx_b_rank(b, x) == 0 || tnx_b_rank(b, index) == 0) {
    if (tnx_b_rank(b, x) > 1 || tnx_b_rank(b, index) > 1) return tnx_fail(TNX_SHAPE, "Index tensor must have the same number of dimensions as input tensor");
    return give(l, results, like_rank(b, tnx_b_gather(b, at_least_1d(b, x), at_least_1d(b, index), dim), index));
  }
  return give(l, results, tnx_b_gather(b, x, index, dim));
}

/* Along one dimension, indices and operand broadcast; without one, over the flat operand. */
tnx_status lower_take_along_dim(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = a[1].value;
  b->fault = TNX_FAULT_GATHER;
  if (arg_none(a + 2)) return give(l, results, tnx_b_gather(b, flattened(b, x), flattened(b, index), 0));
  int rank = tnx_b_rank(b, x), dim = dim_of(l, a + 2, x);
  if (rank != tnx_b_rank(b, index)) return tnx_fail(TNX_SHAPE, "torch.take_along_dim(): input and indices should have the same number of dimensions");
  tnx_dim sx[TNX_MAX_RANK], si[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    tnx_dim n = tnx_b_size(b, x, i), m = tnx_b_size(b, index, i);
    sx[i] = i != dim && n == 1 ? m : n;
    si[i] = i != dim && m == 1 ? n : m;
  }
  return give(l, results, tnx_b_gather(b, tnx_b_broadcast_to(b, x, rank, sx), tnx_b_broadcast_to(b, index, rank, si), dim));
}

/* Over the flat operand; negative indices count from the end. */
tnx_status lower_take(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = 0;
  b->fault = TNX_FAULT_TAKE;
  return give(l, results, tnx_b_index(b, flattened(b, a[0].value), &a[1].value, &dim, 1));
}

tnx_status lower_put(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dim = 0;
  tnx_value index = flattened(b, a[1].value), src = flattened(b, a[2].value);
  b->fault = TNX_FAULT_TAKE;
  if (!index || !src) return b->status;
  if (differ(tnx_b_size(b, index, 0), tnx_b_size(b, src, 0))) return tnx_fail(TNX_SHAPE, "put_(): Expected source and index to have the same number of elements");
  tnx_value r = tnx_b_index_put(b, flattened(b, a[0].value), src, &index, &dim, 1, arg_bool(a + 3) ? ADD : SET);
  return give(l, results, tnx_b_reshape(b, r, tnx_b_rank(b, a[0].value), tnx_b_sizes(b, a[0].value)));
}

tnx_status lower_embedding(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (tnx_b_rank(&l->b, a[0].value) != 2) return tnx_fail(TNX_SHAPE, "'weight' must be 2-D");
  l->b.fault = TNX_FAULT_ROW;
  return give(l, results, tnx_b_take(&l->b, a[0].value, a[1].value, 0));
}

/* Rows of the gradient summed into their weights; padding_idx gets none; by frequency: divided by how often the row was used. */
tnx_status lower_embedding_dense_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value dy = a[0].value, index = flattened(b, a[1].value);
  if (!index) return b->status;
  b->fault = TNX_FAULT_ROW;
  tnx_dtype t = tnx_b_dtype(b, dy), acc = tnx_acc_of(t);
  tnx_dim width = tnx_b_size(b, dy, -1), rows[2] = {tnx_b_size(b, index, 0), width}, sizes[2] = {a[2].dim, width}, count[2] = {a[2].dim, 1};
  dy = tnx_b_convert(b, tnx_b_reshape(b, dy, 2, rows), acc);
  tnx_value keep = tnx_b_binary(b, TNX_OP_NE, index, tnx_b_scalar(b, a + 3, tnx_b_dtype(b, index)));
  if (arg_symbolic(a + 3) || a[3].dim >= 0) dy = tnx_b_select(b, tnx_b_unsqueeze(b, keep, 1), dy, tnx_b_const_f(b, acc, 0));
  tnx_value dw = tnx_b_put(b, tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, sizes), index, dy, 0, ADD);
  if (arg_bool(a + 4)) {
    tnx_dim ones[2] = {rows[0], 1};
    tnx_value used = tnx_b_put(b, tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, count), index, tnx_b_full(b, tnx_b_const_f(b, acc, 1), 2, ones), 0, ADD);
    dw = divide(b, dw, tnx_b_binary_f(b, TNX_OP_MAX, used, 1));
  }
  return give(l, results, tnx_b_convert(b, dw, t));
}

/* ---- advanced indexing ---- */

typedef struct advanced {
  tnx_value x;                   /* the operand, transposed where the indexed dimensions are not neighbours */
  tnx_value index[TNX_MAX_RANK]; /* of one shape */
  int dims[TNX_MAX_RANK], n;
  int perm[TNX_MAX_RANK];
  bool moved;
} advanced;

/* The index list of index.Tensor and its relatives. False: not covered or wrong; a mask of one element per slice is the caller's. */
static bool advanced_init(tnx_lower *l, tnx_value x, const tnx_arg *list, advanced *s) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x), shape_rank = 0;
  tnx_dim shape[TNX_MAX_RANK];
  *s = (advanced){.x = x};
  if ((int)list->count > rank) {
    tnx_b_fail(b, TNX_INDEX, "too many indices for tensor of dimension %d (got %u)", rank, list->count);
    return false;
  }
  for (uint32_t i = 0; i < list->count; i++) {
    tnx_value v = list->values[i];
    if (v == TNX_NO_TENSOR || v == 0) continue;
    tnx_dtype t = tnx_b_dtype(b, v);
    if (t == TNX_BOOL || t == TNX_U8) {
      tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "indexing with a mask");
      return false;
    }
    if (t != TNX_I64 && t != TNX_I32) v = tnx_dtype_is_integral(t) ? tnx_b_convert(b, v, TNX_I64) : tnx_b_fail(b, TNX_INDEX, "tensors used as indices must be long, int, byte or bool tensors");
    if (!v) return false;
    s->dims[s->n] = (int)i;
    s->index[s->n++] = v;
    tnx_dim both[TNX_MAX_RANK];
    int r = tnx_b_broadcast_shape(b, shape_rank, shape, tnx_b_rank(b, v), tnx_b_sizes(b, v), both);
    if (r < 0) return false;
    shape_rank = r;
    memcpy(shape, both, sizeof shape);
  }
  if (s->n == 0) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "indexing without indices");
    return false;
  }
  for (int i = 0; i < s->n; i++) s->index[i] = tnx_b_broadcast_to(b, s->index[i], shape_rank, shape);
  for (int i = 1; i < s->n; i++) s->moved |= s->dims[i] != s->dims[i - 1] + 1;
  if (s->moved) {
    /* indexed dimensions come first, in order, as PyTorch's result has their shape in front */
    uint32_t indexed = 0;
    int k = 0;
    for (int i = 0; i < s->n; i++) indexed |= 1u << s->dims[i], s->perm[k++] = s->dims[i], s->dims[i] = i;
    for (int i = 0; i < rank; i++)
      if (!(indexed >> i & 1)) s->perm[k++] = i;
    s->x = tnx_b_transpose(b, x, s->perm);
  }
  return b->status == TNX_OK;
}

tnx_status lower_index(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  advanced s;
  if (!advanced_init(l, a[0].value, a + 1, &s)) return l->b.status;
  return give(l, results, tnx_b_index(&l->b, s.x, s.index, s.dims, s.n));
}

/* One mask over the leading dimensions: where it holds, the value, or the next row of values that has one for each true element. 0 where the
 * call is anything else. */
static tnx_value masked_put(tnx_lower *l, const tnx_arg *a) {
  tnx_builder *b = &l->b;
  if (a[1].count != 1) return 0;
  tnx_value x = a[0].value, mask = a[1].values[0], value = a[2].value;
  if (!mask || mask == TNX_NO_TENSOR) return 0;
  tnx_dtype t = tnx_b_dtype(b, mask), xt = tnx_b_dtype(b, x);
  int rm = tnx_b_rank(b, mask), rest = tnx_b_rank(b, x) - rm;
  if ((t != TNX_BOOL && t != TNX_U8) || rest < 0 || (tnx_b_dtype(b, value) != xt && tnx_b_numel(b, value) != 1)) return 0;
  tnx_dim flat[TNX_MAX_RANK] = {1};
  for (int i = 0; i < rm; i++) {
    if (differ(tnx_b_size(b, mask, i), tnx_b_size(b, x, i))) return tnx_b_fail(b, TNX_INDEX, "The shape of the mask does not match the shape of the indexed tensor");
    flat[0] = tnx_b_dim_mul(b, flat[0], tnx_b_size(b, x, i));
  }
  for (int i = 0; i < rest; i++) flat[i + 1] = tnx_b_size(b, x, rm + i);
  tnx_value rows = tnx_b_reshape(b, x, rest + 1, flat), chosen = tnx_b_convert(b, tnx_b_reshape(b, mask, 1, flat), TNX_BOOL), src = tnx_b_convert(b, value, xt);
  if (tnx_b_rank(b, value) > rest && tnx_b_size(b, value, 0) != 1) {
    if (tnx_b_rank(b, value) != rest + 1) return 0;
    if (tnx_b_size(b, value, 0) == 0) return x;
    tnx_value order = tnx_b_scan(b, TNX_OP_CUMSUM, tnx_b_convert(b, chosen, TNX_I64), 0);
    src = tnx_b_take(b, src, tnx_b_select(b, chosen, add_f(b, order, -1), tnx_b_const_i(b, TNX_I64, 0)), 0);
  }
  tnx_value beside = chosen;
  for (int i = 0; i < rest; i++) beside = tnx_b_unsqueeze(b, beside, i + 1);
  src = tnx_b_broadcast_to(b, src, rest + 1, flat);
  if (arg_bool(a + 3)) src = tnx_b_binary(b, xt == TNX_BOOL ? TNX_OP_OR : TNX_OP_ADD, rows, src);
  return tnx_b_reshape(b, tnx_b_select(b, beside, src, rows), rm + rest, tnx_b_sizes(b, x));
}

tnx_status lower_index_put(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value selected = masked_put(l, a);
  if (selected || b->status != TNX_OK) return give(l, results, selected);
  advanced s;
  if (tnx_b_dtype(b, a[0].value) != tnx_b_dtype(b, a[2].value)) return tnx_fail(TNX_DTYPE, "Index put requires the source and destination dtypes match");
  if (!advanced_init(l, a[0].value, a + 1, &s)) return b->status;
  tnx_value r = tnx_b_index_put(b, s.x, a[2].value, s.index, s.dims, s.n, arg_bool(a + 3) ? ADD : SET);
  if (s.moved) {
    int back[TNX_MAX_RANK];
    for (int i = 0; i < tnx_b_rank(b, a[0].value); i++) back[s.perm[i]] = i;
    r = tnx_b_transpose(b, r, back);
  }
  return give(l, results, r);
}

/* index where the mask holds, else fill: indices outside the mask may be out of range, so they read 0. */
tnx_status lower_unsafe_masked_index(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  advanced s;
  if (!advanced_init(l, a[0].value, a + 2, &s)) return b->status;
  for (int i = 0; i < s.n; i++) s.index[i] = tnx_b_select(b, a[1].value, s.index[i], tnx_b_const_i(b, s.index[i] ? tnx_b_dtype(b, s.index[i]) : TNX_I64, 0));
  tnx_value r = tnx_b_index(b, s.x, s.index, s.dims, s.n), mask = a[1].value;
  if (!r) return b->status;
  /* the mask has the indices' shape: it lies over the result's first or only dimensions */
  if (s.dims[0] != 0 || s.n != tnx_b_rank(b, s.x)) return uncovered(l, "slices");
  return give(l, results, tnx_b_select(b, mask, r, tnx_b_scalar(b, a + 3, tnx_b_dtype(b, r))));
}

/* ---- scatter ---- */

static tnx_status scatter(tnx_lower *l, const tnx_arg *a, tnx_value src, int mode, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = a[2].value;
  int dim = dim_of(l, a + 1, x);
  if (!src) return b->status;
  b->fault = TNX_FAULT_GATHER;
  if (tnx_b_numel(b, index) == 0) return give(l, results, x); /* of any dtype and rank */
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, src)) return tnx_fail(TNX_DTYPE, "scatter(): Expected self.dtype to be equal to src.dtype");
  if (tnx_b_rank(b, x) == 0 || tnx_b_rank(b, index) == 0 || tnx_b_rank(b, src) == 0)
    return give(l, results, like_rank(b, tnx_b_scatter(b, at_least_1d(b, x), at_least_1d(b, index), at_least_1d(b, src), dim, mode), x));
  return give(l, results, tnx_b_scatter(b, x, index, src, dim, mode));
}

static tnx_value value_like_index(tnx_builder *b, const tnx_arg *a) { return expand_like(b, lower_stored_number(b, a + 3, tnx_b_dtype(b, a[0].value)), a[2].value); }

tnx_status lower_scatter_src(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return scatter(l, a, a[3].value, SET, results); }
tnx_status lower_scatter_value(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return scatter(l, a, value_like_index(&l->b, a), SET, results); }
tnx_status lower_scatter_add(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return scatter(l, a, a[3].value, ADD, results); }

/* "add" or "multiply" (a[4]). */
static int old_mode(const tnx_arg *a) { return arg_is(a, "add") ? ADD : arg_is(a, "multiply") ? MUL : -1; }

tnx_status lower_scatter_src_reduce(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int mode = old_mode(a + 4);
  if (mode < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "reduce argument must be either add or multiply.");
  return scatter(l, a, a[3].value, mode, results);
}
tnx_status lower_scatter_value_reduce(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int mode = old_mode(a + 4);
  if (mode < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "reduce argument must be either add or multiply.");
  return scatter(l, a, value_like_index(&l->b, a), mode, results);
}

static double highest(tnx_dtype t) { return t == TNX_U8 ? 255 : t == TNX_I8 ? 127 : t == TNX_I16 ? 32767 : t == TNX_I32 ? 2147483647.0 : t == TNX_BOOL ? 1 : INFINITY; }
static double lowest(tnx_dtype t) { return t == TNX_U8 || t == TNX_BOOL ? 0 : t == TNX_I8 ? -128 : t == TNX_I16 ? -32768 : t == TNX_I32 ? -2147483648.0 : -INFINITY; }

/* The neutral element of a reduction; out of range constants of int64 saturate in tnx_b_const_i. */
static tnx_value neutral(tnx_builder *b, int mode, tnx_dtype t) {
  if (mode == MIN && t == TNX_I64) return tnx_b_const_i(b, t, INT64_MAX);
  if (mode == MAX && t == TNX_I64) return tnx_b_const_i(b, t, INT64_MIN);
  return tnx_b_const_f(b, t, mode == MUL ? 1 : mode == MIN ? highest(t) : mode == MAX ? lowest(t) : 0);
}

static int new_mode(const tnx_arg *a) {
  return arg_is(a, "sum") || arg_is(a, "mean") ? ADD : arg_is(a, "prod") ? MUL : arg_is(a, "amin") ? MIN : arg_is(a, "amax") ? MAX : -1;
}

/* Without the operand's own values, those at the indices are first replaced by the neutral element. Mean: divided by the counts, at least 1. */
tnx_status lower_scatter_reduce(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = a[2].value, src = a[3].value;
  tnx_dtype t = tnx_b_dtype(b, x);
  bool mean = arg_is(a + 4, "mean"), include = arg_bool(a + 5);
  int mode = new_mode(a + 4), dim = dim_of(l, a + 1, x);
  if (mode < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "reduce argument must be either sum, prod, mean, amax or amin.");
  if (t != tnx_b_dtype(b, src)) return tnx_fail(TNX_DTYPE, "scatter(): Expected self.dtype to be equal to src.dtype");
  if ((t == TNX_BOOL && mean) || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  tnx_dtype out = t;
  t = t == TNX_BOOL ? TNX_I32 : tnx_acc_of(t); /* sums of bools are counts until they are stored */
  b->fault = TNX_FAULT_GATHER;
  tnx_value base = tnx_b_convert(b, at_least_1d(b, x), t);
  index = at_least_1d(b, index), src = tnx_b_convert(b, at_least_1d(b, src), t);
  if (!include) base = tnx_b_scatter(b, base, index, expand_like(b, neutral(b, mode, t), index), dim, SET);
  tnx_value r = tnx_b_scatter(b, base, index, src, dim, mode);
  if (mean) {
    tnx_value count = full_like_f(b, at_least_1d(b, x), t, include ? 1 : 0);
    count = tnx_b_binary_f(b, TNX_OP_MAX, tnx_b_scatter(b, count, index, full_like_f(b, index, t, 1), dim, ADD), 1);
    r = tnx_b_binary(b, tnx_dtype_is_integral(t) ? TNX_OP_FLOORDIV : TNX_OP_DIV, r, count);
  }
  return give(l, results, tnx_b_convert(b, like_rank(b, r, x), out));
}

/* ---- slices along a dimension ---- */

static tnx_status put_slices(tnx_lower *l, const tnx_arg *a, tnx_value src, int mode, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = at_least_1d(b, a[2].value);
  int dim = dim_of(l, a + 1, x);
  if (!src || !index) return b->status;
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, src)) return tnx_fail(TNX_DTYPE, "self and source have different dtypes");
  if (tnx_b_rank(b, x) == 0 || tnx_b_rank(b, src) == 0) {
    if (tnx_b_rank(b, x) > 1) return uncovered(l, "0-dim source");
    return give(l, results, like_rank(b, tnx_b_put(b, at_least_1d(b, x), index, at_least_1d(b, src), dim, mode), x));
  }
  return give(l, results, tnx_b_put(b, x, index, src, dim, mode));
}

tnx_status lower_index_copy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  l->b.fault = TNX_FAULT_INDEX_COPY;
  return put_slices(l, a, a[3].value, SET, results);
}

tnx_status lower_index_add(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value src = a[3].value;
  b->fault = tnx_b_rank(b, a[0].value) > 1 ? TNX_FAULT_GATHER : TNX_FAULT_ROW;
  if (tnx_b_dtype(b, src) == TNX_BOOL) { /* a sum of bools is whether any is true: counted in int32 */
    if (tnx_b_dtype(b, a[0].value) != TNX_BOOL) return uncovered(l, "bool");
    if (arg_number(a + 4, 1) == 0) return give(l, results, a[0].value);
    tnx_arg wide[3] = {a[0], a[1], a[2]};
    wide[0].value = tnx_b_convert(b, a[0].value, TNX_I32);
    TNX_TRY(put_slices(l, wide, tnx_b_convert(b, src, TNX_I32), ADD, results));
    return give(l, results, tnx_b_convert(b, results[0], TNX_BOOL));
  }
  if (!arg_equals(a + 4, 1)) src = mul(b, src, tnx_b_scalar(b, a + 4, tnx_b_dtype(b, src)));
  return put_slices(l, a, src, ADD, results);
}

tnx_status lower_index_fill(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = at_least_1d(b, a[2].value), fill = lower_stored_number(b, a + 3, tnx_b_dtype(b, x));
  if (!index || !fill) return b->status;
  if (tnx_b_rank(b, fill) != 0) return tnx_fail(TNX_SHAPE, "index_fill_ only supports a 0-dimensional value tensor");
  if (tnx_b_rank(b, index) != 1) return tnx_fail(TNX_INDEX, "Index has to be a vector/scalar");
  int dim = dim_of(l, a + 1, x);
  return give(l, results, like_rank(b, tnx_b_index_put(b, at_least_1d(b, x), fill, &index, &dim, 1, SET), x)); /* negative indices count from the end */
}

static int reduce_mode(const tnx_arg *a) { return arg_is(a, "prod") ? MUL : arg_is(a, "amin") ? MIN : arg_is(a, "amax") ? MAX : arg_is(a, "mean") ? ADD : -1; }

tnx_status lower_index_reduce(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, index = at_least_1d(b, a[2].value), src = a[3].value;
  int mode = reduce_mode(a + 4), dim = dim_of(l, a + 1, x);
  bool include = arg_bool(a + 5);
  tnx_dtype t = tnx_b_dtype(b, x);
  if (mode < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "reduce argument must be either prod, mean, amax or amin.");
  if (t != tnx_b_dtype(b, src) || t == TNX_BOOL || tnx_dtype_is_complex(t)) return uncovered(l, "dtype");
  tnx_dtype out = t;
  t = tnx_acc_of(t);
  b->fault = TNX_FAULT_ROW;
  tnx_value base = tnx_b_convert(b, at_least_1d(b, x), t), first = base;
  src = tnx_b_convert(b, at_least_1d(b, src), t);
  if (!include) base = tnx_b_put(b, base, index, expand_like(b, neutral(b, mode, t), src), dim, SET);
  tnx_value r = tnx_b_put(b, base, index, src, dim, mode);
  if (arg_is(a + 4, "mean")) {
    tnx_value count = tnx_b_put(b, full_like_f(b, first, t, include ? 1 : 0), index, full_like_f(b, src, t, 1), dim, ADD);
    r = tnx_b_binary(b, tnx_dtype_is_integral(t) ? TNX_OP_FLOORDIV : TNX_OP_DIV, r, tnx_b_binary_f(b, TNX_OP_MAX, count, 1));
  }
  return give(l, results, tnx_b_convert(b, like_rank(b, r, x), out));
}

/* The i-th true element of the mask takes the i-th element of source. */
tnx_status lower_masked_scatter(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, mask = a[1].value, source = flattened(b, a[2].value);
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, a[2].value)) return tnx_fail(TNX_DTYPE, "masked_scatter: expected self and source to have same dtypes");
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_broadcast_shape(b, tnx_b_rank(b, x), tnx_b_sizes(b, x), tnx_b_rank(b, mask), tnx_b_sizes(b, mask), sizes);
  if (rank < 0 || !source) return b->status;
  x = tnx_b_broadcast_to(b, x, rank, sizes), mask = tnx_b_convert(b, tnx_b_broadcast_to(b, mask, rank, sizes), TNX_BOOL);
  if (tnx_b_numel(b, source) == 0) return give(l, results, x);
  tnx_value chosen = flattened(b, mask), order = tnx_b_scan(b, TNX_OP_CUMSUM, tnx_b_convert(b, chosen, TNX_I64), 0);
  tnx_value at = tnx_b_select(b, chosen, add_f(b, order, -1), tnx_b_const_i(b, TNX_I64, 0));
  b->fault = TNX_FAULT_MASKED_SCATTER;
  tnx_value taken = tnx_b_reshape(b, tnx_b_take(b, source, at, 0), rank, sizes);
  return give(l, results, tnx_b_select(b, mask, taken, x));
}

/* ---- gradients of reads ---- */

static tnx_value zeros_like_sizes(tnx_builder *b, const tnx_arg *sizes, tnx_dtype t) {
  return tnx_b_full(b, tnx_b_const_f(b, t, 0), (int)sizes->count, sizes->dims);
}

tnx_status lower_index_select_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (a[1].count == 0) return uncovered(l, "0-dim");
  tnx_value zeros = zeros_like_sizes(b, a + 1, tnx_b_dtype(b, a[0].value));
  return give(l, results, tnx_b_put(b, zeros, at_least_1d(b, a[3].value), a[0].value, tnx_b_wrap_dim(b, a[2].dim, (int)a[1].count), ADD));
}

/* one-hot rows: class i of the last dimension. The number of classes has to be given. */
tnx_status lower_one_hot(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  int rank = tnx_b_rank(b, x);
  if (tnx_b_dtype(b, x) != TNX_I64) return tnx_fail(TNX_DTYPE, "one_hot is only applicable to index tensor of type LongTensor.");
  if (a[1].dim < 0 && !arg_symbolic(a + 1)) return uncovered(l, "number of classes from the data");
  tnx_dim sizes[TNX_MAX_RANK];
  if (rank + 1 > TNX_MAX_RANK) return uncovered(l, "rank");
  for (int i = 0; i < rank; i++) sizes[i] = tnx_b_size(b, x, i);
  sizes[rank] = a[1].dim;
  x = tnx_b_check(b, x, compare_f(b, TNX_OP_GE, x, 0), TNX_FAULT_CLASS_NEGATIVE);
  x = tnx_b_check(b, x, tnx_b_binary(b, TNX_OP_LT, x, tnx_b_dimval(b, a[1].dim)), TNX_FAULT_CLASS_LARGE);
  tnx_value classes = tnx_b_iota(b, rank + 1, sizes, rank);
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_EQ, tnx_b_unsqueeze(b, x, rank), classes), TNX_I64));
}
