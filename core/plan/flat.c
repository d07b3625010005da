/* Layouts as graph operations.
 *
 * The dimensions that matter (more than one element, stride above 0) are put in order of falling strides. Where each stride is a multiple of the next one and leaves
 * room for that dimension, the row of elements is a nest of boxes: [n0, s0/s1, .., s_last], of which the tensor is the first part along each dimension. */
#include "plan/flat.h"

#include <string.h>

int64_t tnx_view_numel(const tnx_view *v) {
  int64_t n = 1;
  for (int d = 0; d < v->rank; d++) n *= v->sizes[d];
  return n;
}

int64_t tnx_view_span(const tnx_view *v) {
  int64_t last = 0;
  for (int d = 0; d < v->rank; d++) {
    if (v->sizes[d] == 0) return 0;
    last += (v->sizes[d] - 1) * v->strides[d];
  }
  return last + 1;
}

/* The dimensions that matter, by falling stride; ties keep their order. */
static int walk_order(const tnx_view *v, int *order) {
  int n = 0;
  for (int d = 0; d < v->rank; d++) {
    if (v->sizes[d] <= 1 || v->strides[d] == 0) continue;
    int at = n++;
    for (; at > 0 && v->strides[order[at - 1]] < v->strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}

bool tnx_view_is_dense(const tnx_view *v) {
  int order[TNX_MAX_RANK], n = walk_order(v, order);
  int64_t want = 1;
  for (int d = 0; d < v->rank; d++)
    if (v->sizes[d] > 1 && v->strides[d] == 0) return false;
  for (int i = n; i-- > 0;) {
    if (v->strides[order[i]] != want) return false;
    want *= v->sizes[order[i]];
  }
  return true;
}

/* From the sizes in walking order to the view's dimensions: transposed, sizes of one put back, strides of 0 repeated. */
static tnx_value to_view(tnx_builder *b, tnx_value x, const tnx_view *v, const int *order, int n) {
  int perm[TNX_MAX_RANK], k = 0;
  tnx_dim plain[TNX_MAX_RANK];
  for (int d = 0; d < v->rank; d++) {
    bool walked = v->sizes[d] > 1 && v->strides[d] != 0;
    plain[d] = walked ? v->sizes[d] : 1;
    for (int i = 0; walked && i < n; i++)
      if (order[i] == d) perm[k++] = i;
  }
  bool moved = false;
  for (int i = 0; i < n; i++) moved |= perm[i] != i;
  if (moved) x = tnx_b_transpose(b, x, perm);
  x = tnx_b_reshape(b, x, v->rank, plain);
  return tnx_b_broadcast_to(b, x, v->rank, v->sizes);
}

/* The sizes of the nest of boxes; false where the strides do not nest. *elements_out: of the whole nest. */
static bool nest(const tnx_view *v, const int *order, int n, tnx_dim *boxes, int64_t *elements_out) {
  for (int i = 0; i < n; i++) {
    int64_t inner = i + 1 < n ? v->strides[order[i + 1]] : 1;
    if (v->strides[order[i]] % inner) return false;
    boxes[i + 1] = v->strides[order[i]] / inner;
    if (i + 1 < n && v->sizes[order[i + 1]] > boxes[i + 1]) return false;
  }
  boxes[0] = n ? v->sizes[order[0]] : 1;
  return n == 0 || !__builtin_mul_overflow(v->sizes[order[0]], v->strides[order[0]], elements_out);
}

tnx_value tnx_flat_load(tnx_builder *b, tnx_value flat, const tnx_view *v) {
  int order[TNX_MAX_RANK], n = walk_order(v, order);
  int64_t total = tnx_b_size(b, flat, 0), span = tnx_view_span(v), elements = 1;
  if (span == 0) return tnx_b_full(b, tnx_b_const_i(b, (tnx_dtype)v->dtype, 0), v->rank, v->sizes);
  tnx_dim boxes[TNX_MAX_RANK + 1], sizes[TNX_MAX_RANK];
  if (n >= TNX_MAX_RANK || !nest(v, order, n, boxes, &elements)) return tnx_b_strided(b, flat, v->rank, v->sizes, v->strides, v->offset);
  if (v->offset || span < total) flat = tnx_b_slice(b, flat, 0, v->offset, span, 1);
  for (int i = 0; i < n; i++) sizes[i] = v->sizes[order[i]];
  if (elements != span) { /* the last box ends with its last element */
    tnx_dim none = 0, rest = elements - span;
    flat = tnx_b_pad(b, flat, tnx_b_const_i(b, (tnx_dtype)v->dtype, 0), &none, &rest);
  }
  tnx_value x = tnx_b_reshape(b, flat, boxes[n] == 1 || n == 0 ? n : n + 1, boxes);
  for (int i = 1; i <= n && n; i++)
    if (i < n ? boxes[i] != sizes[i] : boxes[i] != 1) x = tnx_b_slice(b, x, i, 0, i < n ? sizes[i] : 1, 1);
  x = tnx_b_reshape(b, x, n, sizes);
  return to_view(b, x, v, order, n);
}

tnx_value tnx_flat_store(tnx_builder *b, tnx_value flat, const tnx_view *v, tnx_value x) {
  int64_t n = tnx_view_numel(v);
  if (n == 0) return flat;
  if (!tnx_view_is_dense(v)) return tnx_b_update_strided(b, flat, x, v->strides, v->offset);
  int order[TNX_MAX_RANK], n_order = walk_order(v, order), rest = n_order;
  bool moved = false;
  for (int d = 0; d < v->rank; d++)
    if (v->sizes[d] <= 1) order[rest++] = d;
  for (int i = 1; i < n_order; i++) moved |= order[i] < order[i - 1];
  if (moved) x = tnx_b_transpose(b, x, order);
  x = tnx_b_reshape(b, x, 1, &n);
  return !flat || (v->offset == 0 && tnx_b_size(b, flat, 0) == n) ? x : tnx_b_update_slice(b, flat, x, 0, v->offset, 1);
}
