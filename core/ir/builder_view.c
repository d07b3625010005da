/* Builder: views, and how they fold into each other. */
#include <string.h>

#include "ir/builder_internal.h"

/* A size on one side of a broadcast: 1 yields, a constant beats a symbol, different symbols are equal (Dynamo guards it). */
int tnx_b_broadcast_shape(tnx_builder *b, int rx, const tnx_dim *sx, int ry, const tnx_dim *sy, tnx_dim *sizes) {
  int rank = rx > ry ? rx : ry;
  if (rank > TNX_MAX_RANK) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
    return -1;
  }
  for (int i = 0; i < rank; i++) {
    int ix = i - (rank - rx), iy = i - (rank - ry);
    tnx_dim x = ix >= 0 ? sx[ix] : 1, y = iy >= 0 ? sy[iy] : 1;
    if (x == y || y == 1) sizes[i] = x;
    else if (x == 1 || tnx_dim_is_symbolic(x)) sizes[i] = y;
    else if (tnx_dim_is_symbolic(y)) sizes[i] = x;
    else {
      tnx_b_fail(b, TNX_SHAPE, "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d", (long long)x, (long long)y, i);
      return -1;
    }
  }
  return rank;
}

tnx_value tnx_b_broadcast_to(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes) {
  if (b->status != TNX_OK || !x) return 0;
  const tnx_value_data *v = tnx_graph_value(b->g, x);
  int lead = rank - v->rank;
  if (lead < 0 || rank > TNX_MAX_RANK) return tnx_b_fail(b, TNX_SHAPE, "a tensor of rank %d can't be expanded to rank %d", v->rank, rank);
  bool same = lead == 0;
  tnx_dim map[TNX_MAX_RANK] = {0}; /* gcc: zeroed, though each entry read is set */
  for (int i = 0; i < v->rank; i++) {
    tnx_dim have = v->sizes[i], want = sizes[i + lead];
    if (have != want) {
      same = false;
      if (have != 1 && !tnx_dim_is_symbolic(have) && !tnx_dim_is_symbolic(want))
        return tnx_b_fail(b, TNX_SHAPE, "The expanded size of the tensor (%lld) must match the existing size (%lld) at non-singleton dimension %d", (long long)want,
                          (long long)have, i + lead);
    }
    map[i] = i + lead;
  }
  if (same) return x;
  const tnx_node *n = tnx_graph_producer(b->g, x);
  tnx_value src = x;
  uint32_t n_map = v->rank;
  if (n->op == TNX_OP_BROADCAST) { /* of a broadcast: one broadcast of its source */
    src = n->inputs[0];
    n_map = n->n_ints;
    for (uint32_t i = 0; i < n_map; i++) map[i] = n->ints[i] + lead;
  }
  tnx_type type = {b->g->values.data[src].dtype, (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_BROADCAST, &src, 1, map, n_map, NULL, 0, &type, 1);
}

/* A broadcast 0-dim value has no shape of its own: any view of it is another broadcast of it. */
static tnx_value scalar_source(const tnx_builder *b, tnx_value x) {
  const tnx_node *n = tnx_graph_producer(b->g, x);
  return n->op == TNX_OP_BROADCAST && b->g->values.data[n->inputs[0]].rank == 0 ? n->inputs[0] : 0;
}

static tnx_value view(tnx_builder *b, tnx_op op, tnx_value x, const tnx_dim *ints, uint32_t n_ints, int rank, const tnx_dim *sizes) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_value s = scalar_source(b, x);
  if (s) return tnx_b_broadcast_to(b, s, rank, sizes);
  tnx_type type = {b->g->values.data[x].dtype, (uint8_t)rank, sizes};
  return tnx_b_node(b, op, &x, 1, ints, n_ints, NULL, 0, &type, 1);
}

tnx_value tnx_b_reshape(tnx_builder *b, tnx_value x, int rank, const tnx_dim *wanted) {
  if (b->status != TNX_OK || !x) return 0;
  if (rank > TNX_MAX_RANK) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  tnx_dim sizes[TNX_MAX_RANK];
  int open = -1;
  tnx_dim known = 1, total = tnx_b_numel(b, x);
  for (int i = 0; i < rank; i++) {
    sizes[i] = wanted[i];
    if (wanted[i] == -1) {
      if (open >= 0) return tnx_b_fail(b, TNX_SHAPE, "only one dimension can be inferred");
      open = i;
    } else if (!tnx_dim_is_symbolic(wanted[i]) && wanted[i] < 0) {
      return tnx_b_fail(b, TNX_SHAPE, "invalid shape dimension %lld", (long long)wanted[i]);
    } else {
      known = tnx_b_dim_mul(b, known, wanted[i]);
    }
  }
  bool fixed = !tnx_dim_is_symbolic(known) && !tnx_dim_is_symbolic(total);
  if (open >= 0) {
    if (known == 0) return tnx_b_fail(b, TNX_SHAPE, "cannot reshape tensor of 0 elements into a shape with an unspecified dimension");
    if (fixed && total % known) return tnx_b_fail(b, TNX_SHAPE, "shape is invalid for input of size %lld", (long long)total);
    sizes[open] = tnx_b_dim(b, TNX_DIM_FLOORDIV, total, known);
  } else if (fixed && total != known) {
    return tnx_b_fail(b, TNX_SHAPE, "shape is invalid for input of size %lld", (long long)total);
  }
  if (b->status != TNX_OK) return 0;
  const tnx_value_data *v = tnx_graph_value(b->g, x);
  if (v->rank == rank && (rank == 0 || memcmp(v->sizes, sizes, (size_t)rank * sizeof *sizes) == 0)) return x;
  const tnx_node *n = tnx_graph_producer(b->g, x);
  if (n->op == TNX_OP_RESHAPE) return tnx_b_reshape(b, n->inputs[0], rank, sizes);
  return view(b, TNX_OP_RESHAPE, x, NULL, 0, rank, sizes);
}

tnx_value tnx_b_transpose(tnx_builder *b, tnx_value x, const int *perm) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x);
  tnx_dim p[TNX_MAX_RANK], sizes[TNX_MAX_RANK];
  const tnx_node *n = tnx_graph_producer(b->g, x);
  bool inner = n->op == TNX_OP_TRANSPOSE, same = true;
  for (int i = 0; i < rank; i++) {
    p[i] = inner ? n->ints[perm[i]] : perm[i];
    sizes[i] = tnx_b_size(b, x, perm[i]);
    same &= p[i] == i;
  }
  tnx_value src = inner ? n->inputs[0] : x;
  return same ? src : view(b, TNX_OP_TRANSPOSE, src, p, (uint32_t)rank, rank, sizes);
}

tnx_value tnx_b_swap_dims(tnx_builder *b, tnx_value x, int d0, int d1) {
  if (b->status != TNX_OK || !x) return 0;
  int perm[TNX_MAX_RANK], rank = tnx_b_rank(b, x);
  d0 = tnx_b_wrap_dim(b, d0, rank);
  d1 = tnx_b_wrap_dim(b, d1, rank);
  if (b->status != TNX_OK || rank == 0) return b->status == TNX_OK ? x : 0;
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[d0] = d1;
  perm[d1] = d0;
  return tnx_b_transpose(b, x, perm);
}

tnx_value tnx_b_slice(tnx_builder *b, tnx_value x, int dim, tnx_dim start, tnx_dim len, int64_t step) {
  if (b->status != TNX_OK || !x) return 0;
  if (step < 1) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "slice step must be positive");
  tnx_dim size = tnx_b_size(b, x, dim);
  if (start == 0 && step == 1 && len == size) return x;
  bool known = !tnx_dim_is_symbolic(size) && !tnx_dim_is_symbolic(start) && !tnx_dim_is_symbolic(len);
  if (known && (start < 0 || len < 0 || (len > 0 && (start >= size || len - 1 > (size - 1 - start) / step))))
    return tnx_b_fail(b, TNX_SHAPE, "a slice of %lld elements from %lld on does not lie within dimension %d of size %lld", (long long)len, (long long)start, dim, (long long)size);
  tnx_dim sizes[TNX_MAX_RANK], ints[3] = {dim, start, step};
  int rank = tnx_b_rank(b, x);
  memcpy(sizes, tnx_b_sizes(b, x), (size_t)rank * sizeof *sizes);
  sizes[dim] = len;
  return view(b, TNX_OP_SLICE, x, ints, 3, rank, sizes);
}

tnx_value tnx_b_reverse(tnx_builder *b, tnx_value x, const int *dims, int n) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_dim d[TNX_MAX_RANK];
  int k = 0;
  for (int i = 0; i < n; i++)
    if (tnx_b_size(b, x, dims[i]) != 1) d[k++] = dims[i];
  return k ? view(b, TNX_OP_REVERSE, x, d, (uint32_t)k, tnx_b_rank(b, x), tnx_b_sizes(b, x)) : x;
}

tnx_value tnx_b_unsqueeze(tnx_builder *b, tnx_value x, int dim) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x);
  if (rank + 1 > TNX_MAX_RANK) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  dim = tnx_b_wrap_dim(b, dim, rank + 1);
  tnx_dim sizes[TNX_MAX_RANK];
  for (int i = 0, j = 0; i <= rank; i++) sizes[i] = i == dim ? 1 : tnx_b_sizes(b, x)[j++];
  return tnx_b_reshape(b, x, rank + 1, sizes);
}

tnx_value tnx_b_squeeze(tnx_builder *b, tnx_value x, const int *dims, int n) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = tnx_b_rank(b, x), k = 0;
  for (int i = 0; i < rank; i++) {
    bool named = false;
    for (int j = 0; j < n; j++) named |= dims[j] == i;
    if (!(named && tnx_b_size(b, x, i) == 1)) sizes[k++] = tnx_b_size(b, x, i);
  }
  return tnx_b_reshape(b, x, k, sizes);
}

tnx_value tnx_b_diagonal(tnx_builder *b, tnx_value x, int64_t offset, int d1, int d2) {
  if (b->status != TNX_OK || !x) return 0;
  if (d1 == d2) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "diagonal dimensions cannot be identical %d, %d", d1, d2);
  tnx_dim sizes[TNX_MAX_RANK], rows = tnx_b_size(b, x, d1), cols = tnx_b_size(b, x, d2), len;
  int k = 0, rank = tnx_b_rank(b, x);
  for (int i = 0; i < rank; i++)
    if (i != d1 && i != d2) sizes[k++] = tnx_b_size(b, x, i);
  if (offset >= 0) len = tnx_b_dim(b, TNX_DIM_MIN, rows, tnx_b_dim_sub(b, cols, offset));
  else len = tnx_b_dim(b, TNX_DIM_MIN, tnx_b_dim_add(b, rows, offset), cols);
  sizes[k++] = tnx_b_dim(b, TNX_DIM_MAX, len, 0);
  tnx_dim ints[3] = {offset, d1, d2};
  return view(b, TNX_OP_DIAGONAL, x, ints, 3, k, sizes);
}

bool tnx_b_strided_fits(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes, const tnx_dim *strides, tnx_dim offset) {
  tnx_dim total = tnx_b_numel(b, x);
  if (b->status != TNX_OK) return false;
  bool known = !tnx_dim_is_symbolic(total) && !tnx_dim_is_symbolic(offset);
  for (int i = 0; i < rank; i++) {
    if (sizes[i] == 0) return true;
    known &= !tnx_dim_is_symbolic(sizes[i]) && !tnx_dim_is_symbolic(strides[i]);
  }
  if (!known) return true;
  int64_t last = offset, span;
  for (int i = 0; i < rank; i++)
    if (strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &span) || __builtin_add_overflow(last, span, &last)) return false;
  return offset >= 0 && last < total;
}

tnx_value tnx_b_strided(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes, const tnx_dim *strides, tnx_dim offset) {
  tnx_dim ints[TNX_MAX_RANK + 1] = {offset};
  if (b->status == TNX_OK && rank > TNX_MAX_RANK) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  if (b->status != TNX_OK || !x) return 0;
  if (!tnx_b_strided_fits(b, x, rank, sizes, strides, offset)) return tnx_b_fail(b, TNX_SHAPE, "as_strided: strides reach outside the tensor");
  for (int i = 0; i < rank; i++) ints[i + 1] = strides[i];
  return view(b, TNX_OP_STRIDED, x, ints, (uint32_t)rank + 1, rank, sizes);
}

tnx_value tnx_b_unfold(tnx_builder *b, tnx_value x, int dim, int64_t size, int64_t step) {
  if (b->status != TNX_OK || !x) return 0;
  int rank = tnx_b_rank(b, x);
  if (size < 0 || step < 1) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "unfold: size %lld and step %lld", (long long)size, (long long)step);
  if (rank + 1 > TNX_MAX_RANK) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  if (rank == 0) return size == 1 || size == 0 ? tnx_b_slice(b, tnx_b_unsqueeze(b, x, 0), 0, 0, size, 1) : tnx_b_fail(b, TNX_SHAPE, "unfold of a 0-dim tensor");
  tnx_dim have = tnx_b_size(b, x, dim), sizes[TNX_MAX_RANK], ints[3] = {dim, size, step};
  if (!tnx_dim_is_symbolic(have) && size > have)
    return tnx_b_fail(b, TNX_SHAPE, "maximum size for tensor at dimension %d is %lld but size is %lld", dim, (long long)have, (long long)size);
  memcpy(sizes, tnx_b_sizes(b, x), (size_t)rank * sizeof *sizes);
  sizes[dim] = tnx_b_dim_add(b, tnx_b_dim(b, TNX_DIM_FLOORDIV, tnx_b_dim_sub(b, have, size), step), 1);
  sizes[rank] = size;
  return view(b, TNX_OP_UNFOLD, x, ints, 3, rank + 1, sizes);
}
