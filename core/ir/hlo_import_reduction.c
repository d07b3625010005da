/* StableHLO importer: reductions and sorts. A region that is one operator of the graph's reductions becomes that; any other is applied to halves of the data, log2(n)
 * times, in the order of the elements. */
#include <math.h>
#include <string.h>

#include "ir/hlo_import.h"

enum { MAX_PARTS = 8, MAX_RANKED = 4096 };

/* x combined with init where init is not what the reduction starts from anyway. */
static tnx_value with_init(hlo_import *m, tnx_op op, tnx_value r, tnx_value init) {
  tnx_builder *b = &m->b;
  if (!r || !init) return 0;
  tnx_dtype t = tnx_b_dtype(b, init);
  const tnx_node *n = tnx_graph_producer(b->g, init);
  bool truth = t == TNX_BOOL;
  if (n->op == TNX_OP_CONST) {
    bool integral = n->n_ints != 0;
    int64_t i = integral ? n->ints[0] : 0;
    double f = integral ? (double)i : n->floats[0];
    bool real = integral || n->floats[1] == 0;
    int bits = (int)(8 * tnx_dtype_size(t));
    bool is_unsigned = tnx_dtype_get_kind(t) == TNX_KIND_UINT;
    int64_t lowest = is_unsigned || truth ? 0 : bits == 64 ? INT64_MIN : -(INT64_C(1) << (bits - 1));
    int64_t highest = truth ? 1 : is_unsigned ? (bits == 64 ? -1 : (INT64_C(1) << bits) - 1) : bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - 1)) - 1;
    if ((op == TNX_OP_REDUCE_SUM && real && f == 0) || (op == TNX_OP_REDUCE_PROD && real && f == 1)) return r;
    if (op == TNX_OP_REDUCE_MAX && (integral ? i == lowest : f == -INFINITY)) return r;
    if (op == TNX_OP_REDUCE_MIN && (integral ? i == highest : f == INFINITY)) return r;
  }
  tnx_op combine = op == TNX_OP_REDUCE_SUM ? TNX_OP_ADD : op == TNX_OP_REDUCE_PROD ? TNX_OP_MUL : op == TNX_OP_REDUCE_MAX ? TNX_OP_MAX : TNX_OP_MIN;
  return tnx_b_binary(b, combine, r, init);
}

static tnx_op reduction_of(const char *formula, bool truth) {
  static const struct { const char *formula; tnx_op op; } table[] = {
      {"add(a0,a1)", TNX_OP_REDUCE_SUM}, {"multiply(a0,a1)", TNX_OP_REDUCE_PROD}, {"maximum(a0,a1)", TNX_OP_REDUCE_MAX}, {"minimum(a0,a1)", TNX_OP_REDUCE_MIN}};
  for (int i = 0; i < 4; i++)
    if (strcmp(table[i].formula, formula) == 0) {
      if (truth && i < 2) return i ? TNX_OP_REDUCE_MIN : TNX_OP_REDUCE_MAX;
      return table[i].op;
    }
  if (truth && strcmp(formula, "or(a0,a1)") == 0) return TNX_OP_REDUCE_MAX;
  if (truth && strcmp(formula, "and(a0,a1)") == 0) return TNX_OP_REDUCE_MIN;
  return TNX_OP_NONE;
}

/* Pairs of neighbours are combined until one element is left along the last dimension; then it is combined with the initial values. */
static void fold(hlo_import *m, tnx_value *parts, uint32_t n, const int64_t *dims, uint32_t n_dims) {
  tnx_builder *b = &m->b;
  const tnx_hlo_block *region = m->op->regions;
  const tnx_type *t = hlo_in_type(m, 0);
  int perm[TNX_MAX_RANK], k = 0;
  tnx_dim sizes[TNX_MAX_RANK + 1], len = 1;
  for (int d = 0; d < t->rank; d++) {
    bool reduced = false;
    for (uint32_t i = 0; i < n_dims; i++) reduced |= dims[i] == d;
    if (!reduced) {
      sizes[k] = t->sizes[d];
      perm[k++] = d;
    }
  }
  int kept = k;
  for (uint32_t i = 0; i < n_dims; i++) {
    int64_t lowest = -1; /* the reduced ones in ascending order */
    for (uint32_t j = 0; j < n_dims; j++)
      if ((k == kept || dims[j] > perm[k - 1]) && (lowest < 0 || dims[j] < lowest)) lowest = dims[j];
    len *= t->sizes[lowest];
    perm[k++] = (int)lowest;
  }
  if (kept + 1 > TNX_MAX_RANK) return (void)hlo_unsupported(m, "at most 11 kept dimensions expected");
  sizes[kept] = len;
  for (uint32_t i = 0; i < n; i++) parts[i] = tnx_b_reshape(b, tnx_b_transpose(b, parts[i], perm), kept + 1, sizes);
  for (; len > 1 && b->status == TNX_OK; len = (len + 1) / 2) {
    tnx_value args[2 * MAX_PARTS], next[MAX_PARTS];
    for (uint32_t i = 0; i < n; i++) {
      args[i] = tnx_b_slice(b, parts[i], kept, 0, len / 2, 2);
      args[n + i] = tnx_b_slice(b, parts[i], kept, 1, len / 2, 2);
    }
    if (!hlo_apply_region(m, region, args, next)) return;
    for (uint32_t i = 0; i < n; i++) {
      if (len & 1) {
        tnx_value both[2] = {tnx_b_broadcast_to(b, next[i], kept + 1, (sizes[kept] = len / 2, sizes)), tnx_b_slice(b, parts[i], kept, len - 1, 1, 1)};
        parts[i] = tnx_b_concat(b, both, 2, kept);
      } else {
        parts[i] = next[i];
      }
    }
  }
  tnx_value args[2 * MAX_PARTS], out[MAX_PARTS];
  for (uint32_t i = 0; i < n; i++) {
    tnx_value init = tnx_b_full(b, hlo_in(m, n + i), kept, sizes);
    args[i] = init;
    args[n + i] = len ? tnx_b_reshape(b, parts[i], kept, sizes) : init;
    out[i] = init;
  }
  if (len && !hlo_apply_region(m, region, args, out)) return;
  for (uint32_t i = 0; i < n; i++) m->results[i] = tnx_b_broadcast_to(b, out[i], kept, sizes);
}

static void reduce(hlo_import *m) {
  const tnx_hlo_op *op = m->op;
  uint32_t n = op->n_out, n_dims;
  const int64_t *dims = hlo_ints(m, op->attrs, op->n_attrs, "dimensions", &n_dims);
  bool fits = n >= 1 && n <= MAX_PARTS && op->n_in == 2 * n && op->n_regions == 1 && op->regions->n_args == 2 * n && op->regions->n_results == n;
  for (uint32_t i = 0; fits && i < n; i++) {
    const tnx_type *a = hlo_in_type(m, 0), *t = hlo_in_type(m, i), *init = hlo_in_type(m, n + i);
    fits = a->rank == t->rank && (a->rank == 0 || memcmp(a->sizes, t->sizes, a->rank * sizeof *a->sizes) == 0) && init->rank == 0 && init->dtype == t->dtype;
  }
  if (!fits || !hlo_are_dims(dims, n_dims, hlo_in_type(m, 0)->rank)) return (void)hlo_refuse(m, "operands of one shape, their initial values and dimensions expected");
  tnx_value parts[MAX_PARTS];
  for (uint32_t i = 0; i < n; i++) parts[i] = hlo_in(m, i);
  if (m->b.status != TNX_OK) return;
  char text[128];
  const tnx_type *t = hlo_in_type(m, 0);
  tnx_op one = n == 1 && n_dims && hlo_region_formula(op->regions, 0, text, sizeof text) ? reduction_of(text, t->dtype == TNX_BOOL) : TNX_OP_NONE;
  bool empty = false;
  for (int d = 0; d < t->rank; d++) empty |= t->sizes[d] == 0;
  if (one == TNX_OP_NONE || (empty && (one == TNX_OP_REDUCE_MAX || one == TNX_OP_REDUCE_MIN))) return fold(m, parts, n, dims, n_dims);
  int d[TNX_MAX_RANK];
  for (uint32_t i = 0; i < n_dims; i++) d[i] = (int)dims[i];
  hlo_give(m, with_init(m, one, tnx_b_reduce(&m->b, one, parts[0], d, (int)n_dims, false), hlo_in(m, 1)));
}

/* ---- sort ---- */

/* 1 descending, 0 ascending, NaN the largest: the order of TOPK; -1: another one. */
static int known_order(const tnx_hlo_block *region, uint8_t dtype) {
  char text[256];
  if (!hlo_region_formula(region, 0, text, sizeof text)) return -1;
  if (tnx_dtype_is_float((tnx_dtype)dtype)) {
    if (strcmp(text, "or(and(NE(a0,a0),not(NE(a1,a1))),GT(a0,a1))") == 0) return 1;
    return strcmp(text, "or(and(NE(a1,a1),not(NE(a0,a0))),LT(a0,a1))") == 0 ? 0 : -1;
  }
  if (strcmp(text, "or(and(0,not(0)),GT(a0,a1))") == 0 || strcmp(text, "GT(a0,a1)") == 0) return 1;
  return strcmp(text, "or(and(0,not(0)),LT(a0,a1))") == 0 || strcmp(text, "LT(a0,a1)") == 0 ? 0 : -1;
}

/* The place of each element: how many come before it. Every pair is compared. */
static tnx_value ranked(hlo_import *m, const tnx_value *parts, uint32_t n, int dim) {
  tnx_builder *b = &m->b;
  const tnx_type *t = hlo_in_type(m, 0);
  tnx_dim sizes[TNX_MAX_RANK];
  tnx_value args[2 * MAX_PARTS], less, more;
  int rank = t->rank, last = rank;
  if (rank + 1 > TNX_MAX_RANK || t->sizes[dim] > MAX_RANKED) return hlo_unsupported(m, "an order that is another than ascending or descending is for at most 4096 elements");
  memcpy(sizes, t->sizes, (size_t)rank * sizeof *sizes);
  sizes[rank] = t->sizes[dim];
  for (uint32_t i = 0; i < n; i++) {
    tnx_value mine = tnx_b_broadcast_to(b, tnx_b_unsqueeze(b, parts[i], rank), rank + 1, sizes), theirs = tnx_b_swap_dims(b, mine, dim, rank);
    args[2 * i] = theirs; /* theirs before mine? */
    args[2 * i + 1] = mine;
  }
  if (!hlo_apply_region(m, m->op->regions, args, &less)) return 0;
  for (uint32_t i = 0; i < n; i++) {
    tnx_value first = args[2 * i];
    args[2 * i] = args[2 * i + 1];
    args[2 * i + 1] = first;
  }
  if (!hlo_apply_region(m, m->op->regions, args, &more)) return 0;
  tnx_value earlier = tnx_b_binary(b, TNX_OP_LT, tnx_b_iota(b, rank + 1, sizes, rank), tnx_b_iota(b, rank + 1, sizes, dim));
  tnx_value before = tnx_b_binary(b, TNX_OP_OR, less, tnx_b_binary(b, TNX_OP_AND, earlier, tnx_b_unary(b, TNX_OP_NOT, more)));
  return tnx_b_reduce(b, TNX_OP_REDUCE_SUM, tnx_b_convert(b, tnx_b_broadcast_to(b, before, rank + 1, sizes), TNX_I64), &last, 1, false);
}

static void sort(hlo_import *m) {
  tnx_builder *b = &m->b;
  const tnx_hlo_op *op = m->op;
  uint32_t n = op->n_in;
  int64_t dim = hlo_int_attr(m, "dimension", -1);
  bool fits = n >= 1 && n <= MAX_PARTS && op->n_out == n && op->n_regions == 1 && op->regions->n_args == 2 * n && op->regions->n_results == 1;
  const tnx_type *t = n ? hlo_in_type(m, 0) : NULL;
  if (fits && dim == -1) dim = t->rank - 1;
  for (uint32_t i = 0; fits && i < n; i++) {
    const tnx_type *u = hlo_in_type(m, i);
    fits = u->rank == t->rank && (t->rank == 0 || memcmp(u->sizes, t->sizes, t->rank * sizeof *t->sizes) == 0);
  }
  if (!fits || dim < 0 || dim >= t->rank) return (void)hlo_refuse(m, "operands of one shape, a dimension and a comparison expected");
  tnx_value parts[MAX_PARTS];
  for (uint32_t i = 0; i < n; i++) parts[i] = hlo_in(m, i);
  if (m->b.status != TNX_OK) return;
  int order = known_order(op->regions, t->dtype);
  bool empty = false;
  for (int d = 0; d < t->rank; d++) empty |= t->sizes[d] == 0;
  if (empty || t->sizes[dim] == 1) {
    for (uint32_t i = 0; i < n; i++) m->results[i] = parts[i];
  } else if (order >= 0) {
    tnx_value r = tnx_b_topk(b, parts[0], (int)dim, t->sizes[dim], order, true), places = tnx_b_iota(b, t->rank, t->sizes, (int)dim);
    for (uint32_t i = 0; i < n && r; i++) m->results[i] = i == 0 ? r : parts[i] == places ? r + 1 : tnx_b_gather(b, parts[i], r + 1, (int)dim);
  } else {
    tnx_value at = ranked(m, parts, n, (int)dim);
    for (uint32_t i = 0; i < n && at; i++) m->results[i] = tnx_b_scatter(b, parts[i], at, parts[i], (int)dim, 0);
  }
}

bool hlo_import_reduction(hlo_import *m) {
  if (strcmp(m->op->name, "stablehlo.reduce") == 0) reduce(m);
  else if (strcmp(m->op->name, "stablehlo.sort") == 0) sort(m);
  else return false;
  return true;
}
