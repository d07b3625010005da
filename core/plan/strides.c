/* How the results of a pointwise operator lie in memory: as TensorIterator lays them out, which follows its operands. Not exactly its strides: of no elements, and along dimensions
 * of one, whose strides mean nothing. */
#include "plan/strides.h"

#include <string.h>

enum { MANY_OPERANDS = 64 }; /* those after them are not looked at */

typedef struct operands {
  const tnx_tensor *t[MANY_OPERANDS];
  int n, rank;
  const tnx_dim *sizes; /* of the result */
} operands;

/* Does t take part? Operands are those whose shape broadcasts to the result's. */
static bool broadcasts(const tnx_tensor *t, int rank, const tnx_dim *sizes) {
  if (t->rank > rank) return false;
  for (int i = 0; i < t->rank; i++)
    if (t->sizes[i] != 1 && t->sizes[i] != sizes[rank - t->rank + i]) return false;
  return true;
}

/* The operand's stride along dimension d of the result: 0 where it is repeated. */
static tnx_dim stride_along(const operands *o, int k, int d) {
  const tnx_tensor *t = o->t[k];
  int own = d - (o->rank - t->rank);
  return own < 0 || (t->sizes[own] == 1 && o->sizes[d] != 1) ? 0 : t->strides[own];
}

/* Do all operands, of the result's shape, have these strides? */
static bool all_have(const operands *o, const tnx_dim *strides) {
  for (int k = 0; k < o->n; k++)
    for (int d = 0; d < o->rank; d++)
      if (o->t[k]->sizes[d] != 1 && o->t[k]->strides[d] != strides[d]) return false;
  return true;
}

/* Contiguous strides with the dimensions in the order given, innermost first. */
static void fill(const operands *o, const int *order, tnx_dim *strides) {
  tnx_dim next = 1;
  for (int i = 0; i < o->rank; i++) {
    strides[order[i]] = next;
    next *= o->sizes[order[i]] > 1 ? o->sizes[order[i]] : 1;
  }
}

/* Above 0: dimension a, which lies inside b so far, has to lie outside. The first operand that tells decides. */
static int compare(const operands *o, int a, int b) {
  for (int k = 0; k < o->n; k++) {
    tnx_dim x = stride_along(o, k, a), y = stride_along(o, k, b);
    if (x == 0 || y == 0) continue;
    if (x != y) return x < y ? -1 : 1;
    if (o->sizes[a] > o->sizes[b]) return 1;
  }
  return 0;
}

bool tnx_pointwise_strides(const tnx_tensor *tensors, uint32_t n_tensors, int rank, const tnx_dim *sizes, tnx_dim *strides) {
  static const int channels_last[4] = {1, 3, 2, 0};
  operands o = {.rank = rank, .sizes = sizes};
  bool same_shape = true;
  for (uint32_t i = 0; i < n_tensors && o.n < MANY_OPERANDS; i++) {
    const tnx_tensor *t = &tensors[i];
    if (!broadcasts(t, rank, sizes)) continue;
    same_shape &= t->rank == rank && !memcmp(t->sizes, sizes, (size_t)rank * sizeof *sizes);
    o.t[o.n++] = t;
  }
  if (rank < 2 || o.n == 0) return false;
  int order[TNX_MAX_RANK];
  for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
  if (same_shape) {
    /* TensorIterator's short ways, in its order: contiguous, channels last, one dense layout for all. */
    fill(&o, order, strides);
    if (all_have(&o, strides)) return false;
    if (rank == 4) {
      fill(&o, channels_last, strides);
      if (all_have(&o, strides)) return true;
    }
    bool one = tnx_tensor_is_dense(o.t[0]);
    for (int k = 1; k < o.n && one; k++) one = !memcmp(o.t[k]->strides, o.t[0]->strides, (size_t)rank * sizeof *strides);
    if (one) {
      memcpy(strides, o.t[0]->strides, (size_t)rank * sizeof *strides);
      return true;
    }
  }
  for (int i = 1; i < rank; i++) /* an insertion sort that stops where the order is told and goes on where it is not */
    for (int at = i, k = i - 1; k >= 0; k--) {
      int told = compare(&o, order[k], order[at]);
      if (told < 0) break;
      if (told == 0) continue;
      int moved = order[k];
      order[k] = order[at];
      order[at] = moved;
      at = k;
    }
  bool outside_in = true;
  for (int i = 0; i < rank; i++) outside_in &= order[i] == rank - 1 - i;
  if (outside_in) return false;
  fill(&o, order, strides);
  return true;
}
