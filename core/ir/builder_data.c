/* Builder: data movement, reductions, scans, indexing and products. */
#include <string.h>

#include "ir/builder_internal.h"

static void copy_sizes(const tnx_builder *b, tnx_value x, tnx_dim *sizes) {
  int r = tnx_b_rank(b, x);
  if (r) memcpy(sizes, tnx_b_sizes(b, x), (size_t)r * sizeof *sizes);
}

/* Known to differ: two constants that are not equal. Symbols get the benefit of the doubt: Dynamo guards them. */
static bool differ(tnx_dim x, tnx_dim y) { return x != y && !tnx_dim_is_symbolic(x) && !tnx_dim_is_symbolic(y); }

/* Known to be larger. Whatever memory safety depends on is checked here, not left to PyTorch's Meta kernels, which see only the first call of a class. */
static bool exceeds(tnx_dim x, tnx_dim y) { return x > y && !tnx_dim_is_symbolic(x) && !tnx_dim_is_symbolic(y); }

/* Do len elements from start on, each step further, lie within a dimension of this size? Unknown counts as yes. */
static bool strip_fits(tnx_dim size, tnx_dim start, tnx_dim len, int64_t step) {
  if (tnx_dim_is_symbolic(size) || tnx_dim_is_symbolic(start) || tnx_dim_is_symbolic(len)) return true;
  return start >= 0 && len >= 0 && (len == 0 || (start < size && (len - 1) <= (size - 1 - start) / step));
}

/* ---- data ---- */

tnx_value tnx_b_concat(tnx_builder *b, const tnx_value *xs, int n, int dim) {
  if (b->status != TNX_OK) return 0;
  if (n == 0) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "expected a non-empty list of Tensors");
  if (n == 1) return xs[0];
  tnx_dim sizes[TNX_MAX_RANK], d = dim, total = 0;
  int rank = tnx_b_rank(b, xs[0]);
  copy_sizes(b, xs[0], sizes);
  for (int i = 0; i < n; i++) {
    if (tnx_b_rank(b, xs[i]) != rank) return tnx_b_fail(b, TNX_SHAPE, "Tensors must have same number of dimensions: got %d and %d", rank, tnx_b_rank(b, xs[i]));
    if (tnx_b_dtype(b, xs[i]) != tnx_b_dtype(b, xs[0])) return tnx_b_fail(b, TNX_DTYPE, "concatenation of different dtypes");
    for (int j = 0; j < rank; j++)
      if (j != dim && differ(tnx_b_size(b, xs[i], j), sizes[j]))
        return tnx_b_fail(b, TNX_SHAPE, "Sizes of tensors must match except in dimension %d. Expected size %lld but got size %lld for tensor number %d in the list.", dim,
                          (long long)sizes[j], (long long)tnx_b_size(b, xs[i], j), i);
    total = tnx_b_dim_add(b, total, tnx_b_size(b, xs[i], dim));
  }
  sizes[dim] = total;
  tnx_type type = {(uint8_t)tnx_b_dtype(b, xs[0]), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_CONCAT, xs, (uint32_t)n, &d, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_pad(tnx_builder *b, tnx_value x, tnx_value value, const tnx_dim *low, const tnx_dim *high) {
  if (b->status != TNX_OK || !x || !value) return 0;
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_rank(b, x);
  bool none = true;
  for (int i = 0; i < rank; i++) {
    sizes[i] = tnx_b_dim_add(b, tnx_b_size(b, x, i), tnx_b_dim_add(b, low[i], high[i]));
    none &= low[i] == 0 && high[i] == 0;
    if (!tnx_dim_is_symbolic(sizes[i]) && sizes[i] < 0) return tnx_b_fail(b, TNX_SHAPE, "padding makes dimension %d negative", i);
  }
  if (none) return x;
  tnx_value in[2] = {x, tnx_b_convert(b, value, tnx_b_dtype(b, x))};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_PAD, in, 2, low, (uint32_t)rank, NULL, 0, &type, 1);
}

/* base with something written over part of it: the result looks like base, the update has base's dtype. */
static tnx_value update(tnx_builder *b, tnx_op op, tnx_value base, tnx_value upd, const tnx_dim *ints, uint32_t n_ints) {
  if (b->status != TNX_OK || !base || !upd) return 0;
  tnx_value in[2] = {base, tnx_b_convert(b, upd, tnx_b_dtype(b, base))};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, base), (uint8_t)tnx_b_rank(b, base), tnx_b_sizes(b, base)};
  return tnx_b_node(b, op, in, 2, ints, n_ints, NULL, 0, &type, 1);
}

tnx_value tnx_b_update_slice(tnx_builder *b, tnx_value base, tnx_value upd, int dim, tnx_dim start, int64_t step) {
  if (b->status != TNX_OK || !base || !upd) return 0;
  tnx_dim ints[3] = {dim, start, step};
  if (tnx_b_rank(b, upd) != tnx_b_rank(b, base)) return tnx_b_fail(b, TNX_SHAPE, "an update of rank %d to rank %d", tnx_b_rank(b, upd), tnx_b_rank(b, base));
  for (int i = 0; i < tnx_b_rank(b, base); i++)
    if (i == dim ? !strip_fits(tnx_b_size(b, base, i), start, tnx_b_size(b, upd, i), step) : differ(tnx_b_size(b, upd, i), tnx_b_size(b, base, i)))
      return tnx_b_fail(b, TNX_SHAPE, "expected src to have a size equal to the slice of self at dimension %d", i);
  if (start == 0 && step == 1 && tnx_b_size(b, upd, dim) == tnx_b_size(b, base, dim)) return tnx_b_convert(b, upd, tnx_b_dtype(b, base));
  return update(b, TNX_OP_UPDATE_SLICE, base, upd, ints, 3);
}

tnx_value tnx_b_update_strided(tnx_builder *b, tnx_value base, tnx_value upd, const tnx_dim *strides, tnx_dim offset) {
  if (b->status != TNX_OK || !base || !upd) return 0;
  tnx_dim ints[TNX_MAX_RANK + 1] = {offset};
  int rank = tnx_b_rank(b, upd);
  if (!tnx_b_strided_fits(b, base, rank, tnx_b_sizes(b, upd), strides, offset)) return tnx_b_fail(b, TNX_SHAPE, "as_strided_scatter: strides reach outside the tensor");
  for (int i = 0; i < rank; i++) ints[i + 1] = strides[i];
  return update(b, TNX_OP_UPDATE_STRIDED, base, upd, ints, (uint32_t)rank + 1);
}

tnx_value tnx_b_update_diagonal(tnx_builder *b, tnx_value base, tnx_value upd, int64_t offset, int d1, int d2) {
  tnx_dim ints[3] = {offset, d1, d2};
  tnx_value part = tnx_b_diagonal(b, base, offset, d1, d2);
  if (!part || !upd) return 0;
  bool fits = tnx_b_rank(b, upd) == tnx_b_rank(b, part);
  for (int i = 0; fits && i < tnx_b_rank(b, part); i++) fits = !differ(tnx_b_size(b, upd, i), tnx_b_size(b, part, i));
  if (!fits) return tnx_b_fail(b, TNX_SHAPE, "expected src to have a size equal to the diagonal of self");
  return update(b, TNX_OP_UPDATE_DIAGONAL, base, upd, ints, 3);
}

/* ---- reductions and scans ---- */

tnx_value tnx_b_reduce(tnx_builder *b, tnx_op op, tnx_value x, const int *dims, int n, bool keepdim) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x), all[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) all[i] = i;
  if (n == 0) {
    dims = all;
    n = rank;
  }
  bool reduced[TNX_MAX_RANK] = {false};
  for (int i = 0; i < n; i++) reduced[dims[i]] = true;
  tnx_dim sizes[TNX_MAX_RANK], d[TNX_MAX_RANK], kept[TNX_MAX_RANK];
  int k = 0, m = 0;
  for (int i = 0; i < rank; i++) {
    sizes[i] = reduced[i] ? 1 : tnx_b_size(b, x, i);
    if (reduced[i]) d[k++] = i;
    else kept[m++] = sizes[i];
  }
  bool index = op == TNX_OP_ARGMAX || op == TNX_OP_ARGMIN;
  tnx_value r;
  bool trivial = true; /* nothing but dimensions of size 1 */
  for (int i = 0; i < k; i++) trivial &= tnx_b_size(b, x, (int)d[i]) == 1;
  if (trivial && !index) {
    r = x;
  } else {
    tnx_type type = {(uint8_t)(index ? TNX_I64 : tnx_b_dtype(b, x)), (uint8_t)rank, sizes};
    r = tnx_b_node(b, op, &x, 1, d, (uint32_t)k, NULL, 0, &type, 1);
  }
  return keepdim ? r : tnx_b_reshape(b, r, m, kept);
}

tnx_value tnx_b_scan(tnx_builder *b, tnx_op op, tnx_value x, int dim) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x);
  tnx_dim d = dim;
  uint8_t t = (uint8_t)tnx_b_dtype(b, x);
  tnx_type types[2] = {{t, (uint8_t)rank, tnx_b_sizes(b, x)}, {TNX_I64, (uint8_t)rank, tnx_b_sizes(b, x)}};
  return tnx_b_node(b, op, &x, 1, &d, 1, NULL, 0, types, op == TNX_OP_CUMMAX || op == TNX_OP_CUMMIN ? 2 : 1);
}

tnx_value tnx_b_topk(tnx_builder *b, tnx_value x, int dim, tnx_dim k, bool descending, bool stable) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x);
  tnx_dim ints[3] = {dim, descending, stable}, sizes[TNX_MAX_RANK];
  copy_sizes(b, x, sizes);
  sizes[dim] = k;
  tnx_type types[2] = {{(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes}, {TNX_I64, (uint8_t)rank, sizes}};
  return tnx_b_node(b, TNX_OP_TOPK, &x, 1, ints, 3, NULL, 0, types, 2);
}

/* ---- indexing ---- */

tnx_value tnx_b_nonzero(tnx_builder *b, tnx_value mask, tnx_dim n, int64_t fill) {
  if (b->status != TNX_OK || !mask) return 0;
  tnx_dim sizes[2] = {n, tnx_b_rank(b, mask)};
  tnx_type type = {TNX_I64, 2, sizes};
  return tnx_b_node(b, TNX_OP_NONZERO, &mask, 1, &fill, 1, NULL, 0, &type, 1);
}

static bool index_ok(tnx_builder *b, tnx_value index) {
  if (b->status != TNX_OK || !index) return false;
  tnx_dtype t = tnx_b_dtype(b, index);
  if (t == TNX_I64 || t == TNX_I32) return true;
  tnx_b_fail(b, TNX_DTYPE, "tensors used as indices must be int32 or int64, got %s", tnx_dtype_name(t));
  return false;
}

/* x's sizes with dims first..first+n-1 replaced by the index's. */
static int replaced(tnx_builder *b, tnx_value x, int first, int n, tnx_value index, tnx_dim *sizes) {
  int rank = tnx_b_rank(b, x), ri = tnx_b_rank(b, index), k = 0;
  if (rank - n + ri > TNX_MAX_RANK) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
    return -1;
  }
  for (int i = 0; i < first; i++) sizes[k++] = tnx_b_size(b, x, i);
  for (int i = 0; i < ri; i++) sizes[k++] = tnx_b_size(b, index, i);
  for (int i = first + n; i < rank; i++) sizes[k++] = tnx_b_size(b, x, i);
  return k;
}

tnx_value tnx_b_take(tnx_builder *b, tnx_value x, tnx_value index, int dim) {
  if (b->status != TNX_OK || !x || !index_ok(b, index)) return 0;
  tnx_dim sizes[TNX_MAX_RANK], d = dim;
  int rank = replaced(b, x, dim, 1, index, sizes);
  if (rank < 0) return 0;
  tnx_value in[2] = {x, index};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_TAKE, in, 2, &d, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_gather(tnx_builder *b, tnx_value x, tnx_value index, int dim) {
  if (b->status != TNX_OK || !x || !index_ok(b, index)) return 0;
  tnx_dim d = dim;
  if (tnx_b_rank(b, x) != tnx_b_rank(b, index)) return tnx_b_fail(b, TNX_SHAPE, "Index tensor must have the same number of dimensions as input tensor");
  for (int i = 0; i < tnx_b_rank(b, x); i++)
    if (i != dim && exceeds(tnx_b_size(b, index, i), tnx_b_size(b, x, i)))
      return tnx_b_fail(b, TNX_SHAPE, "Size does not match at dimension %d: expected index to be smaller than self apart from dimension %d", i, dim);
  tnx_value in[2] = {x, index};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)tnx_b_rank(b, x), tnx_b_sizes(b, index)};
  return tnx_b_node(b, TNX_OP_GATHER, in, 2, &d, 1, NULL, 0, &type, 1);
}

static bool one_shape(tnx_builder *b, const tnx_value *index, int n) {
  for (int i = 1; i < n; i++) {
    bool same = tnx_b_rank(b, index[i]) == tnx_b_rank(b, index[0]);
    for (int d = 0; same && d < tnx_b_rank(b, index[0]); d++) same = !differ(tnx_b_size(b, index[i], d), tnx_b_size(b, index[0], d));
    if (!same) {
      tnx_b_fail(b, TNX_SHAPE, "shape mismatch: indexing tensors could not be broadcast together");
      return false;
    }
  }
  return true;
}

tnx_value tnx_b_index(tnx_builder *b, tnx_value x, const tnx_value *index, const int *dims, int n) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_value in[TNX_MAX_RANK + 1] = {x};
  tnx_dim ints[TNX_MAX_RANK], sizes[TNX_MAX_RANK];
  for (int i = 0; i < n; i++) {
    if (!index_ok(b, index[i])) return 0;
    in[i + 1] = index[i];
    ints[i] = dims[i];
  }
  if (!one_shape(b, index, n)) return 0;
  int rank = replaced(b, x, dims[0], n, index[0], sizes);
  if (rank < 0) return 0;
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_INDEX, in, (uint32_t)n + 1, ints, (uint32_t)n, NULL, 0, &type, 1);
}

/* Sums and products of halves are kept in float32 and rounded once. rest: indices and, at `source`, what is written. */
static tnx_value indexed_update(tnx_builder *b, tnx_op op, tnx_value base, const tnx_value *rest, int n_rest, int source, int mode, const tnx_dim *ints, uint32_t n_ints) {
  tnx_dtype t = tnx_b_dtype(b, base), acc = mode == 1 || mode == 2 ? tnx_acc_of(t) : t;
  tnx_value in[TNX_MAX_RANK + 2] = {tnx_b_convert(b, base, acc)};
  for (int i = 0; i < n_rest; i++) in[i + 1] = i == source ? tnx_b_convert(b, rest[i], acc) : rest[i];
  tnx_type type = {(uint8_t)acc, (uint8_t)tnx_b_rank(b, base), tnx_b_sizes(b, base)};
  return b->status == TNX_OK ? tnx_b_convert(b, tnx_b_node(b, op, in, (uint32_t)n_rest + 1, ints, n_ints, NULL, 0, &type, 1), t) : 0;
}

tnx_value tnx_b_scatter(tnx_builder *b, tnx_value base, tnx_value index, tnx_value src, int dim, int mode) {
  if (b->status != TNX_OK || !base || !src || !index_ok(b, index)) return 0;
  tnx_dim ints[2] = {dim, mode};
  int rank = tnx_b_rank(b, base);
  if (tnx_b_rank(b, index) != rank || tnx_b_rank(b, src) != rank)
    return tnx_b_fail(b, TNX_SHAPE, "Index tensor must have the same number of dimensions as self and src tensors");
  for (int i = 0; i < rank; i++)
    if (exceeds(tnx_b_size(b, index, i), tnx_b_size(b, src, i)) || (i != dim && exceeds(tnx_b_size(b, index, i), tnx_b_size(b, base, i))))
      return tnx_b_fail(b, TNX_SHAPE, "Expected index to be smaller than self apart from dimension %d and to be smaller size than src (dimension %d)", dim, i);
  /* only the part of src that the index covers is read */
  for (int i = 0; i < rank; i++)
    if (tnx_b_size(b, src, i) != tnx_b_size(b, index, i)) src = tnx_b_slice(b, src, i, 0, tnx_b_size(b, index, i), 1);
  tnx_value rest[2] = {index, tnx_b_convert(b, src, tnx_b_dtype(b, base))};
  return indexed_update(b, TNX_OP_SCATTER, base, rest, 2, 1, mode, ints, 2);
}

tnx_value tnx_b_put(tnx_builder *b, tnx_value base, tnx_value index, tnx_value src, int dim, int mode) {
  if (b->status != TNX_OK || !base || !src || !index_ok(b, index)) return 0;
  tnx_dim ints[2] = {dim, mode};
  if (tnx_b_rank(b, index) != 1) return tnx_b_fail(b, TNX_SHAPE, "Index is supposed to be a vector");
  if (tnx_b_rank(b, src) != tnx_b_rank(b, base)) return tnx_b_fail(b, TNX_SHAPE, "source and destination must have the same number of dimensions");
  for (int i = 0; i < tnx_b_rank(b, base); i++)
    if (differ(tnx_b_size(b, src, i), i == dim ? tnx_b_size(b, index, 0) : tnx_b_size(b, base, i)))
      return tnx_b_fail(b, TNX_SHAPE, "source and destination sizes do not match at dimension %d", i);
  tnx_value rest[2] = {index, tnx_b_convert(b, src, tnx_b_dtype(b, base))};
  return indexed_update(b, TNX_OP_PUT, base, rest, 2, 1, mode, ints, 2);
}

tnx_value tnx_b_index_put(tnx_builder *b, tnx_value base, tnx_value src, const tnx_value *index, const int *dims, int n, int mode) {
  if (b->status != TNX_OK || !base || !src) return 0;
  tnx_value rest[TNX_MAX_RANK + 1];
  tnx_dim ints[TNX_MAX_RANK + 1] = {mode}, sizes[TNX_MAX_RANK];
  for (int i = 0; i < n; i++) {
    if (!index_ok(b, index[i])) return 0;
    rest[i + 1] = index[i];
    ints[i + 1] = dims[i];
  }
  if (!one_shape(b, index, n)) return 0;
  int rank = replaced(b, base, dims[0], n, index[0], sizes);
  if (rank < 0) return 0;
  rest[0] = tnx_b_broadcast_to(b, tnx_b_convert(b, src, tnx_b_dtype(b, base)), rank, sizes);
  return indexed_update(b, TNX_OP_INDEX_PUT, base, rest, n + 1, 0, mode, ints, (uint32_t)n + 1);
}

/* ---- products ---- */

static bool same_dtype(tnx_builder *b, tnx_value x, tnx_value y) {
  if (tnx_b_dtype(b, x) == tnx_b_dtype(b, y)) return true;
  tnx_b_fail(b, TNX_DTYPE, "expected m1 and m2 to have the same dtype, but got: %s != %s", tnx_dtype_name(tnx_b_dtype(b, x)), tnx_dtype_name(tnx_b_dtype(b, y)));
  return false;
}

/* A matrix converted from int8 is multiplied as it is stored: the product converts it in registers. Floats hold its numbers exactly, so that nothing else changes. */
static tnx_value stored_matrix(tnx_builder *b, tnx_value y) {
  tnx_dtype t = tnx_b_dtype(b, y);
  const tnx_node *n = tnx_graph_producer(b->g, y), *source = n->op == TNX_OP_TRANSPOSE ? tnx_graph_producer(b->g, n->inputs[0]) : n;
  if (tnx_b_rank(b, y) != 2 || (t != TNX_F32 && t != TNX_BF16 && t != TNX_F16) || source->op != TNX_OP_CONVERT || tnx_b_dtype(b, source->inputs[0]) != TNX_I8) return y;
  tnx_value x = source->inputs[0];
  return n == source ? x : tnx_b_transpose(b, x, (int[2]){1, 0});
}

tnx_value tnx_b_matmul(tnx_builder *b, tnx_value x, tnx_value y) {
  if (b->status != TNX_OK || !x || !y || !same_dtype(b, x, y)) return 0;
  y = stored_matrix(b, y);
  int rx = tnx_b_rank(b, x), ry = tnx_b_rank(b, y);
  if (rx < 2 || ry < 2) return tnx_b_fail(b, TNX_SHAPE, "matrices expected, got %dD and %dD tensors", rx, ry);
  tnx_dim m = tnx_b_size(b, x, -2), k = tnx_b_size(b, x, -1), n = tnx_b_size(b, y, -1), sizes[TNX_MAX_RANK];
  if (differ(k, tnx_b_size(b, y, -2)))
    return tnx_b_fail(b, TNX_SHAPE, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)", (long long)m, (long long)k, (long long)tnx_b_size(b, y, -2), (long long)n);
  int rb = tnx_b_broadcast_shape(b, rx - 2, tnx_b_sizes(b, x), ry - 2, tnx_b_sizes(b, y), sizes);
  if (rb < 0) return 0;
  sizes[rb] = m;
  sizes[rb + 1] = k;
  x = tnx_b_broadcast_to(b, x, rb + 2, sizes);
  sizes[rb] = tnx_b_size(b, y, -2);
  sizes[rb + 1] = n;
  y = tnx_b_broadcast_to(b, y, rb + 2, sizes);
  if (b->status != TNX_OK) return 0;
  sizes[rb] = m;
  tnx_value in[2] = {x, y};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)(rb + 2), sizes};
  return tnx_b_node(b, TNX_OP_MATMUL, in, 2, NULL, 0, NULL, 0, &type, 1);
}

tnx_value tnx_b_linear(tnx_builder *b, tnx_value x, tnx_value w, tnx_value bias) {
  if (b->status != TNX_OK || !x || !w || !same_dtype(b, x, w)) return 0;
  int rank = tnx_b_rank(b, x);
  if (rank < 1 || tnx_b_rank(b, w) != 2) return tnx_b_fail(b, TNX_SHAPE, "linear: input of rank %d, weight of rank %d", rank, tnx_b_rank(b, w));
  if (differ(tnx_b_size(b, x, -1), tnx_b_size(b, w, 1)))
    return tnx_b_fail(b, TNX_SHAPE, "mat1 and mat2 shapes cannot be multiplied (..x%lld and %lldx%lld)", (long long)tnx_b_size(b, x, -1), (long long)tnx_b_size(b, w, 1),
                      (long long)tnx_b_size(b, w, 0));
  if (bias && (tnx_b_rank(b, bias) != 1 || differ(tnx_b_size(b, bias, 0), tnx_b_size(b, w, 0)))) return tnx_b_fail(b, TNX_SHAPE, "linear: bias does not fit the weight");
  tnx_dim sizes[TNX_MAX_RANK], act = 0;
  copy_sizes(b, x, sizes);
  sizes[rank - 1] = tnx_b_size(b, w, 0);
  tnx_value in[3] = {x, stored_matrix(b, w), bias};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_LINEAR, in, bias ? 3 : 2, &act, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_addmm(tnx_builder *b, tnx_value add, tnx_value x, tnx_value y, double beta, double alpha) {
  if (b->status != TNX_OK || !add) return 0;
  tnx_value product = tnx_b_matmul(b, x, y);
  if (!product) return 0;
  if (!same_dtype(b, x, add)) return 0;
  const tnx_node *n = tnx_graph_producer(b->g, product);
  int rank = tnx_b_rank(b, product);
  tnx_value in[3] = {0, n->inputs[0], n->inputs[1]};
  double f[2] = {beta, alpha};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, product), (uint8_t)rank, tnx_b_sizes(b, product)};
  in[0] = tnx_b_broadcast_to(b, add, rank, type.sizes);
  return b->status == TNX_OK ? tnx_b_node(b, TNX_OP_ADDMM, in, 3, NULL, 0, f, 2, &type, 1) : 0;
}

tnx_value tnx_b_attention(tnx_builder *b, tnx_value q, tnx_value k, tnx_value v, tnx_value mask, bool causal, double scale) {
  if (b->status != TNX_OK || !q || !k || !v || !same_dtype(b, q, k) || !same_dtype(b, q, v)) return 0;
  if (tnx_b_rank(b, q) != 4 || tnx_b_rank(b, k) != 4 || tnx_b_rank(b, v) != 4) return tnx_b_fail(b, TNX_SHAPE, "attention: 4-d query, key and value expected");
  tnx_dim h = tnx_b_size(b, q, 1), g = tnx_b_size(b, k, 1);
  if (differ(tnx_b_size(b, q, 3), tnx_b_size(b, k, 3)) || differ(tnx_b_size(b, k, 2), tnx_b_size(b, v, 2)) || differ(g, tnx_b_size(b, v, 1)) ||
      differ(tnx_b_size(b, q, 0), tnx_b_size(b, k, 0)) || (!tnx_dim_is_symbolic(h) && !tnx_dim_is_symbolic(g) && g && h % g))
    return tnx_b_fail(b, TNX_SHAPE, "attention: query, key and value do not fit together");
  tnx_dim full[4] = {tnx_b_size(b, q, 0), h, tnx_b_size(b, q, 2), tnx_b_size(b, k, 2)};
  tnx_dim out[4] = {full[0], full[1], full[2], tnx_b_size(b, v, 3)};
  tnx_value in[4] = {q, k, v, mask ? tnx_b_broadcast_to(b, mask, 4, full) : 0};
  tnx_dim ints[2] = {causal, mask != 0};
  tnx_type types[2] = {{(uint8_t)tnx_b_dtype(b, q), 4, out}, {TNX_F32, 3, out}};
  return tnx_b_node(b, TNX_OP_ATTENTION, in, mask ? 4 : 3, ints, 2, &scale, 1, types, 2);
}

tnx_value tnx_b_attention_backward(tnx_builder *b, tnx_value dout, tnx_value q, tnx_value k, tnx_value v, tnx_value out, tnx_value lse, tnx_value mask, bool causal,
                                   double scale) {
  if (b->status != TNX_OK || !q || !k || !v) return 0;
  tnx_dim full[4] = {tnx_b_size(b, q, 0), tnx_b_size(b, q, 1), tnx_b_size(b, q, 2), tnx_b_size(b, k, 2)};
  const tnx_value like_out[2] = {dout, out};
  for (int j = 0; j < 2; j++) {
    bool fits = like_out[j] && tnx_b_rank(b, like_out[j]) == 4 && !differ(tnx_b_size(b, like_out[j], 3), tnx_b_size(b, v, 3));
    for (int i = 0; fits && i < 3; i++) fits = !differ(tnx_b_size(b, like_out[j], i), full[i]);
    if (!fits) return tnx_b_fail(b, TNX_SHAPE, "attention: the gradient or the result does not fit the query");
  }
  bool lse_fits = lse && tnx_b_rank(b, lse) == 3 && tnx_b_dtype(b, lse) == TNX_F32;
  for (int i = 0; lse_fits && i < 3; i++) lse_fits = !differ(tnx_b_size(b, lse, i), full[i]);
  if (!lse_fits) return tnx_b_fail(b, TNX_SHAPE, "attention: the log-sum-exp does not fit the query");
  tnx_value in[7] = {dout, q, k, v, out, lse, mask ? tnx_b_broadcast_to(b, mask, 4, full) : 0};
  tnx_dim ints[2] = {causal, mask != 0};
  uint8_t t = (uint8_t)tnx_b_dtype(b, q);
  tnx_type types[3] = {{t, 4, tnx_b_sizes(b, q)}, {t, 4, tnx_b_sizes(b, k)}, {t, 4, tnx_b_sizes(b, v)}};
  return tnx_b_node(b, TNX_OP_ATTENTION_BACKWARD, in, mask ? 7 : 6, ints, 2, &scale, 1, types, 3);
}
