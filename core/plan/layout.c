/* Layouts: where a value lies, and what views make of it. A view that strides cannot express says so, and its operand is copied. */
#include "plan/layout.h"

#include <string.h>

tnx_status tnx_layout_contiguous(tnx_graph *g, const tnx_value_data *v, uint32_t buffer, tnx_layout *out) {
  *out = (tnx_layout){.buffer = buffer, .rank = v->rank, .dtype = v->dtype};
  tnx_dim stride = 1;
  for (int i = v->rank; i-- > 0;) {
    out->sizes[i] = v->sizes[i];
    out->strides[i] = stride;
    if (i) TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, stride, v->sizes[i] == 0 ? 1 : v->sizes[i], &stride));
  }
  return TNX_OK;
}

bool tnx_layout_is_contiguous(tnx_graph *g, const tnx_layout *l) {
  tnx_dim stride = 1;
  for (int i = l->rank; i-- > 0;) {
    if (l->sizes[i] == 0) return true;
    if (l->sizes[i] == 1) continue;
    if (l->strides[i] != stride) return false;
    if (tnx_graph_dim(g, TNX_DIM_MUL, stride, l->sizes[i], &stride) != TNX_OK) return false;
  }
  return true;
}

bool tnx_layout_equal(const tnx_layout *a, const tnx_layout *b) {
  if (a->buffer != b->buffer || a->rank != b->rank || a->dtype != b->dtype || a->offset != b->offset) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->sizes[i] != b->sizes[i] || (a->strides[i] != b->strides[i] && a->sizes[i] != 1)) return false;
  return true;
}

void tnx_layout_drop(tnx_layout *x, int dim) {
  for (int i = dim; i + 1 < x->rank; i++) {
    x->sizes[i] = x->sizes[i + 1];
    x->strides[i] = x->strides[i + 1];
  }
  x->rank--;
}

static tnx_status advance(tnx_graph *g, tnx_layout *x, tnx_dim count, tnx_dim stride) {
  tnx_dim d;
  TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, count, stride, &d));
  return tnx_graph_dim(g, TNX_DIM_ADD, x->offset, d, &x->offset);
}

tnx_status tnx_layout_slice(tnx_graph *g, tnx_layout *x, int dim, tnx_dim start, tnx_dim len, int64_t step) {
  TNX_TRY(advance(g, x, start, x->strides[dim]));
  x->sizes[dim] = len;
  return tnx_graph_dim(g, TNX_DIM_MUL, x->strides[dim], step, &x->strides[dim]);
}

/* Strides of x seen with other sizes, if every new dimension lies within one run of dimensions of x that are walked as one. Runs are matched
 * from the innermost: a run of old dimensions and a run of new ones whose products are equal. */
tnx_status tnx_layout_reshape(tnx_graph *g, const tnx_layout *x, int rank, const tnx_dim *sizes, tnx_layout *out, bool *ok) {
  *out = *x;
  out->rank = (uint8_t)rank;
  if (rank) memcpy(out->sizes, sizes, (size_t)rank * sizeof *sizes);
  *ok = true;
  bool empty = false;
  for (int i = 0; i < rank; i++) empty |= sizes[i] == 0;
  if (empty || tnx_layout_is_contiguous(g, x)) {
    tnx_dim stride = 1;
    for (int i = rank; i-- > 0;) {
      out->strides[i] = stride;
      if (i) TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, stride, sizes[i] == 0 ? 1 : sizes[i], &stride));
    }
    return TNX_OK;
  }
  int i = x->rank - 1, j = rank - 1;
  while (i >= 0 || j >= 0) {
    while (i >= 0 && x->sizes[i] == 1) i--;
    while (j >= 0 && sizes[j] == 1) out->strides[j--] = 1;
    if (i < 0 || j < 0) break;
    tnx_dim old_size = x->sizes[i], new_size = sizes[j], stride = x->strides[i], next;
    int i0 = i, j0 = j;
    while (old_size != new_size) {
      /* grow the smaller side; with symbols: whichever side can still be matched, the old one first */
      bool grow_old;
      if (!tnx_dim_is_symbolic(old_size) && !tnx_dim_is_symbolic(new_size)) grow_old = old_size < new_size;
      else grow_old = !tnx_dim_is_symbolic(old_size) || (tnx_dim_is_symbolic(new_size) && i0 > 0);
      if (grow_old) {
        int p = i0 - 1;
        while (p >= 0 && x->sizes[p] == 1) p--;
        if (p < 0) { *ok = false; return TNX_OK; }
        TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, x->strides[i0], x->sizes[i0], &next));
        if (x->strides[p] != next) { *ok = false; return TNX_OK; }
        TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, old_size, x->sizes[p], &old_size));
        i0 = p;
      } else {
        if (--j0 < 0) { *ok = false; return TNX_OK; }
        TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, new_size, sizes[j0], &new_size));
      }
    }
    for (; j >= j0; j--) {
      out->strides[j] = stride;
      TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, stride, sizes[j], &stride));
    }
    i = i0 - 1;
  }
  *ok = i < 0 && j < 0;
  return TNX_OK;
}

static void without(const tnx_layout *x, int d1, int d2, tnx_layout *out) {
  int k = 0;
  for (int i = 0; i < x->rank; i++) {
    if (i == d1 || i == d2) continue;
    out->sizes[k] = x->sizes[i];
    out->strides[k++] = x->strides[i];
  }
  out->rank = (uint8_t)k;
}

tnx_status tnx_layout_view(tnx_graph *g, const tnx_node *n, const tnx_layout *x, tnx_layout *out, bool *ok) {
  const tnx_value_data *v = &g->values.data[n->first];
  *ok = true;
  *out = *x;
  switch (n->op) {
    case TNX_OP_BROADCAST:
      out->rank = v->rank;
      for (int i = 0; i < v->rank; i++) {
        out->sizes[i] = v->sizes[i];
        out->strides[i] = 0;
      }
      for (uint32_t i = 0; i < n->n_ints; i++)
        if (x->sizes[i] != 1 || v->sizes[n->ints[i]] == 1) out->strides[n->ints[i]] = x->strides[i];
      return TNX_OK;
    case TNX_OP_RESHAPE: return tnx_layout_reshape(g, x, v->rank, v->sizes, out, ok);
    case TNX_OP_TRANSPOSE:
      for (int i = 0; i < v->rank; i++) {
        out->sizes[i] = x->sizes[n->ints[i]];
        out->strides[i] = x->strides[n->ints[i]];
      }
      return TNX_OK;
    case TNX_OP_SLICE: return tnx_layout_slice(g, out, (int)n->ints[0], n->ints[1], v->sizes[n->ints[0]], n->ints[2]);
    case TNX_OP_REVERSE:
      for (uint32_t i = 0; i < n->n_ints; i++) {
        int d = (int)n->ints[i];
        tnx_dim last;
        TNX_TRY(tnx_graph_dim(g, TNX_DIM_SUB, x->sizes[d], 1, &last));
        TNX_TRY(advance(g, out, last, x->strides[d]));
        TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, x->strides[d], -1, &out->strides[d]));
      }
      return TNX_OK;
    case TNX_OP_DIAGONAL: {
      int d1 = (int)n->ints[1], d2 = (int)n->ints[2];
      without(x, d1, d2, out);
      tnx_dim stride;
      TNX_TRY(tnx_graph_dim(g, TNX_DIM_ADD, x->strides[d1], x->strides[d2], &stride));
      out->sizes[out->rank] = v->sizes[v->rank - 1];
      out->strides[out->rank++] = stride;
      return n->ints[0] >= 0 ? advance(g, out, n->ints[0], x->strides[d2]) : advance(g, out, -n->ints[0], x->strides[d1]);
    }
    case TNX_OP_UNFOLD: {
      int d = (int)n->ints[0];
      out->rank = v->rank;
      out->sizes[d] = v->sizes[d];
      out->sizes[v->rank - 1] = v->sizes[v->rank - 1];
      out->strides[v->rank - 1] = x->strides[d];
      return tnx_graph_dim(g, TNX_DIM_MUL, x->strides[d], n->ints[2], &out->strides[d]);
    }
    case TNX_OP_STRIDED:
      if (!tnx_layout_is_contiguous(g, x)) {
        *ok = false;
        return TNX_OK;
      }
      out->rank = v->rank;
      for (int i = 0; i < v->rank; i++) {
        out->sizes[i] = v->sizes[i];
        out->strides[i] = n->ints[i + 1];
      }
      return tnx_graph_dim(g, TNX_DIM_ADD, x->offset, n->ints[0], &out->offset);
    default: return tnx_fail(TNX_INTERNAL, "%s is not a view", tnx_op_get_info((tnx_op)n->op)->name);
  }
}

tnx_status tnx_layout_unview(tnx_graph *g, const tnx_node *n, const tnx_layout *l, tnx_layout *out, bool *ok) {
  const tnx_value_data *x = &g->values.data[n->inputs[0]];
  *out = *l;
  *ok = true;
  switch (n->op) {
    case TNX_OP_RESHAPE: return tnx_layout_reshape(g, l, x->rank, x->sizes, out, ok);
    case TNX_OP_TRANSPOSE:
      for (int i = 0; i < x->rank; i++) {
        out->sizes[n->ints[i]] = l->sizes[i];
        out->strides[n->ints[i]] = l->strides[i];
      }
      return TNX_OK;
    default: *ok = false; return TNX_OK;
  }
}
