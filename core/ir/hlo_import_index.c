/* StableHLO importer: gather and scatter. Both are told apart by what the indices walk: neighbouring dimensions from which single elements are taken, which is TAKE,
 * INDEX and PUT; anything else goes through places in the flattened operand. Gather clamps its indices, scatter drops updates outside the operand, as StableHLO has it. */
#include <string.h>

#include "ir/hlo_import.h"

typedef struct indices {
  tnx_value at[TNX_MAX_RANK]; /* int64, of the batch's shape: one for each dimension that is walked */
  const int64_t *map;         /* which dimension of the operand that is */
  uint32_t n;
  int batch_rank;
  tnx_dim batch[TNX_MAX_RANK];
} indices;

static int64_t product(const tnx_dim *sizes, int n) {
  int64_t r = 1;
  for (int i = 0; i < n; i++) r *= sizes[i];
  return r;
}

/* The columns of the index operand, whose vectors lie along index_vector_dim. */
static bool read_indices(hlo_import *m, const tnx_hlo_attr *numbers, const char *map, int rank, indices *x) {
  tnx_builder *b = &m->b;
  const tnx_type *t = hlo_in_type(m, 1);
  const tnx_hlo_attr *v = tnx_hlo_attr_find(numbers->items, numbers->n, "index_vector_dim");
  int64_t dim = v ? v->i : 0;
  x->map = hlo_ints(m, numbers->items, numbers->n, map, &x->n);
  x->batch_rank = 0;
  if (dim < 0 || dim > t->rank || x->n > TNX_MAX_RANK || !hlo_are_dims(x->map, x->n, rank) || !tnx_dtype_is_integral((tnx_dtype)t->dtype))
    return hlo_refuse(m, "indices and the dimensions they walk expected"), false;
  if ((dim < t->rank ? t->sizes[dim] : 1) != x->n) return hlo_refuse(m, "an index for each dimension that is walked expected"), false;
  for (int d = 0; d < t->rank; d++)
    if (d != dim) x->batch[x->batch_rank++] = t->sizes[d];
  tnx_value all = tnx_b_convert(b, hlo_in(m, 1), TNX_I64);
  for (uint32_t k = 0; k < x->n; k++)
    x->at[k] = dim < t->rank ? tnx_b_reshape(b, tnx_b_slice(b, all, (int)dim, k, 1, 1), x->batch_rank, x->batch) : all;
  return b->status == TNX_OK;
}

/* Dimensions first .. first + n - 1 in order, and nothing else. */
static bool neighbours(const int64_t *v, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    if (v[i] != v[0] + i) return false;
  return n > 0;
}
static bool same_list(const int64_t *a, uint32_t n, const int64_t *b, uint32_t k) { return n == k && (n == 0 || memcmp(a, b, n * sizeof *a) == 0); }
/* All dimensions below rank but first .. first + batch - 1. */
static bool around(const int64_t *v, uint32_t n, int rank, int64_t first, int batch) {
  uint32_t k = 0;
  for (int d = 0; d < rank; d++)
    if (d < first || d >= first + batch) {
      if (k >= n || v[k] != d) return false;
      k++;
    }
  return k == n;
}
static bool has(const int64_t *v, uint32_t n, int64_t d) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i] == d) return true;
  return false;
}
static bool ascending(const int64_t *v, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    if (v[i] <= v[i - 1]) return false;
  return true;
}

/* Spreads an index over a shape whose dimensions not in `windows` are its own. */
static tnx_value spread(hlo_import *m, tnx_value index, const tnx_type *over, const int64_t *windows, uint32_t n) {
  tnx_dim sizes[TNX_MAX_RANK];
  for (int d = 0; d < over->rank; d++) sizes[d] = has(windows, n, d) ? 1 : over->sizes[d];
  return tnx_b_broadcast_to(&m->b, tnx_b_reshape(&m->b, index, over->rank, sizes), over->rank, over->sizes);
}

static tnx_value clamped(hlo_import *m, tnx_value i, int64_t last) {
  tnx_builder *b = &m->b;
  return tnx_b_binary(b, TNX_OP_MAX, tnx_b_binary(b, TNX_OP_MIN, i, tnx_b_const_i(b, TNX_I64, last)), tnx_b_const_i(b, TNX_I64, 0));
}

/* Places in the flattened operand for each element of `over`. windows: its dimensions that walk slices; kept: the operand's dimensions they walk. *ok: those within. */
static tnx_value flat_places(hlo_import *m, const indices *x, const tnx_type *operand, const tnx_type *over, const int64_t *windows, const int64_t *kept, uint32_t n_windows,
                             const int64_t *slices, tnx_value *ok) {
  tnx_builder *b = &m->b;
  tnx_value sum = 0;
  *ok = 0;
  int64_t stride[TNX_MAX_RANK], s = 1;
  for (int d = operand->rank - 1; d >= 0; d--) {
    stride[d] = s;
    s *= operand->sizes[d];
  }
  for (int d = 0; d < operand->rank; d++) {
    tnx_value at = 0;
    for (uint32_t k = 0; k < x->n; k++)
      if (x->map[k] == d) at = spread(m, slices ? clamped(m, x->at[k], operand->sizes[d] - slices[d]) : x->at[k], over, windows, n_windows);
    for (uint32_t k = 0; k < n_windows; k++)
      if (kept[k] == d) {
        tnx_value offset = tnx_b_iota(b, over->rank, over->sizes, (int)windows[k]);
        at = at ? tnx_b_binary(b, TNX_OP_ADD, at, offset) : offset;
      }
    if (!at) continue;
    if (!slices) {
      tnx_value within = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, at, tnx_b_const_i(b, TNX_I64, 0)), tnx_b_binary(b, TNX_OP_LT, at, tnx_b_const_i(b, TNX_I64, operand->sizes[d])));
      *ok = *ok ? tnx_b_binary(b, TNX_OP_AND, *ok, within) : within;
    }
    tnx_value term = tnx_b_binary(b, TNX_OP_MUL, at, tnx_b_const_i(b, TNX_I64, stride[d]));
    sum = sum ? tnx_b_binary(b, TNX_OP_ADD, sum, term) : term;
  }
  if (!sum) sum = tnx_b_full(b, tnx_b_const_i(b, TNX_I64, 0), over->rank, over->sizes);
  return sum;
}

/* The operand's dimensions that are not in the list, ascending. */
static uint32_t others(const int64_t *v, uint32_t n, int rank, int64_t *out) {
  uint32_t k = 0;
  for (int d = 0; d < rank; d++)
    if (!has(v, n, d)) out[k++] = d;
  return k;
}

static const tnx_hlo_attr *dimension_numbers(hlo_import *m, const char *name) {
  const tnx_hlo_attr *a = hlo_attr(m, name);
  if (!a || a->kind != TNX_HLO_DICT) return hlo_refuse(m, "dimension numbers expected"), NULL;
  for (uint32_t i = 0; i < a->n; i++)
    if (strstr(a->items[i].name, "batching_dims") && a->items[i].n) return hlo_unsupported(m, "gather and scatter without batching dimensions expected"), NULL;
  return a;
}

static tnx_value gather(hlo_import *m) {
  tnx_builder *b = &m->b;
  const tnx_type *t = hlo_in_type(m, 0), *r = hlo_out_type(m, 0);
  const tnx_hlo_attr *numbers = dimension_numbers(m, "dimension_numbers");
  indices x;
  uint32_t n_offset, n_collapsed, n_slices, n_kept;
  int64_t kept[TNX_MAX_RANK];
  if (!numbers || !read_indices(m, numbers, "start_index_map", t->rank, &x)) return 0;
  const int64_t *offset = hlo_ints(m, numbers->items, numbers->n, "offset_dims", &n_offset), *collapsed = hlo_ints(m, numbers->items, numbers->n, "collapsed_slice_dims", &n_collapsed);
  const int64_t *slices = hlo_ints(m, m->op->attrs, m->op->n_attrs, "slice_sizes", &n_slices);
  bool fits = n_slices == t->rank && hlo_are_dims(collapsed, n_collapsed, t->rank) && ascending(collapsed, n_collapsed) && hlo_are_dims(offset, n_offset, r->rank) && ascending(offset, n_offset);
  for (int d = 0; fits && d < t->rank; d++) fits = slices[d] >= 0 && slices[d] <= t->sizes[d] && (!has(collapsed, n_collapsed, d) || slices[d] == 1);
  if (!fits) return hlo_refuse(m, "slices within the operand expected");
  n_kept = others(collapsed, n_collapsed, t->rank, kept);
  fits = n_kept == n_offset && r->rank == (int)n_offset + x.batch_rank;
  for (uint32_t k = 0; fits && k < n_kept; k++) fits = r->sizes[offset[k]] == slices[kept[k]];
  for (int d = 0, k = 0; fits && d < r->rank; d++)
    if (!has(offset, n_offset, d)) fits = r->sizes[d] == x.batch[k++];
  if (!fits) return hlo_refuse(m, "a result of the slices' and the indices' sizes expected");
  tnx_value operand = hlo_in(m, 0), ok;
  if (product(r->sizes, r->rank) == 0) return tnx_b_full(b, tnx_b_const_i(b, (tnx_dtype)t->dtype, 0), r->rank, r->sizes);
  bool whole = same_list(x.map, x.n, collapsed, n_collapsed) && neighbours(x.map, x.n) && around(offset, n_offset, r->rank, x.map[0], x.batch_rank);
  for (uint32_t k = 0; whole && k < n_kept; k++) whole = slices[kept[k]] == t->sizes[kept[k]];
  if (whole) {
    int dims[TNX_MAX_RANK];
    tnx_value at[TNX_MAX_RANK];
    for (uint32_t k = 0; k < x.n; k++) {
      dims[k] = (int)x.map[k];
      at[k] = clamped(m, x.at[k], t->sizes[x.map[k]] - 1);
    }
    return x.n == 1 ? tnx_b_take(b, operand, at[0], dims[0]) : tnx_b_index(b, operand, at, dims, (int)x.n);
  }
  tnx_dim all = product(t->sizes, t->rank);
  tnx_value places = flat_places(m, &x, t, r, offset, kept, n_offset, slices, &ok);
  return tnx_b_take(b, tnx_b_reshape(b, operand, 1, &all), places, 0);
}

/* ---- scatter ---- */

/* What the region makes of an element and an update, as the graph's mode; -1: something else. */
static int scatter_mode(hlo_import *m, uint8_t dtype) {
  static const char *const formulas[] = {"a1", "add(a0,a1)", "multiply(a0,a1)", "minimum(a0,a1)", "maximum(a0,a1)"};
  char text[64];
  const tnx_hlo_block *region = m->op->regions;
  if (m->op->n_regions != 1 || region->n_args != 2 || region->n_results != 1 || !hlo_region_formula(region, 0, text, sizeof text)) return -1;
  for (int i = 0; i < 5; i++)
    if (strcmp(formulas[i], text) == 0) return i;
  if (dtype == TNX_BOOL && strcmp(text, "or(a0,a1)") == 0) return 4;
  if (dtype == TNX_BOOL && strcmp(text, "and(a0,a1)") == 0) return 3;
  return -1;
}

/* base [.., n, ..] with updates at 1-d places along dim, where ok holds. A place behind the end receives what is dropped. */
static tnx_value put_where(hlo_import *m, tnx_value base, tnx_value places, tnx_value ok, tnx_value update, int dim, int mode) {
  tnx_builder *b = &m->b;
  if (b->status != TNX_OK) return 0;
  tnx_dim n = tnx_b_size(b, base, dim), low[TNX_MAX_RANK] = {0}, high[TNX_MAX_RANK] = {0};
  high[dim] = 1;
  tnx_value at = tnx_b_select(b, ok, places, tnx_b_const_i(b, TNX_I64, n)), more = tnx_b_pad(b, base, tnx_b_const_i(b, tnx_b_dtype(b, base), 0), low, high);
  return tnx_b_slice(b, tnx_b_put(b, more, at, update, dim, mode), dim, 0, n, 1);
}

static tnx_value scatter(hlo_import *m) {
  tnx_builder *b = &m->b;
  if (m->op->n_in != 3 || m->op->n_out != 1) return hlo_unsupported(m, "one operand, its indices and its updates expected");
  const tnx_type *t = hlo_in_type(m, 0), *u = hlo_in_type(m, 2);
  const tnx_hlo_attr *numbers = dimension_numbers(m, "scatter_dimension_numbers");
  indices x;
  uint32_t n_window, n_inserted, n_kept;
  int64_t kept[TNX_MAX_RANK];
  if (!numbers || !read_indices(m, numbers, "scatter_dims_to_operand_dims", t->rank, &x)) return 0;
  const int64_t *window = hlo_ints(m, numbers->items, numbers->n, "update_window_dims", &n_window), *inserted = hlo_ints(m, numbers->items, numbers->n, "inserted_window_dims", &n_inserted);
  int mode = scatter_mode(m, t->dtype);
  if (mode < 0) return hlo_unsupported(m, "a region that sets, adds, multiplies or takes the extreme expected");
  bool fits = hlo_are_dims(inserted, n_inserted, t->rank) && ascending(inserted, n_inserted) && hlo_are_dims(window, n_window, u->rank) && ascending(window, n_window) && u->dtype == t->dtype;
  if (!fits) return hlo_refuse(m, "dimensions of the operand and of the updates expected");
  n_kept = others(inserted, n_inserted, t->rank, kept);
  fits = n_kept == n_window && u->rank == (int)n_window + x.batch_rank;
  for (uint32_t k = 0; fits && k < n_kept; k++) fits = u->sizes[window[k]] <= t->sizes[kept[k]];
  for (int d = 0, k = 0; fits && d < u->rank; d++)
    if (!has(window, n_window, d)) fits = u->sizes[d] == x.batch[k++];
  if (!fits) return hlo_refuse(m, "updates of the windows' and the indices' sizes expected");
  tnx_value base = hlo_in(m, 0), update = hlo_in(m, 2), ok = 0, places = 0;
  if (product(u->sizes, u->rank) == 0 || product(t->sizes, t->rank) == 0) return base;
  tnx_dim count = product(x.batch, x.batch_rank), all = product(t->sizes, t->rank), elements = product(u->sizes, u->rank);
  bool whole = same_list(x.map, x.n, inserted, n_inserted) && neighbours(x.map, x.n) && around(window, n_window, u->rank, x.map[0], x.batch_rank);
  for (uint32_t k = 0; whole && k < n_kept; k++) whole = u->sizes[window[k]] == t->sizes[kept[k]];
  if (!whole) {
    places = flat_places(m, &x, t, u, window, kept, n_window, NULL, &ok);
    if (!ok) ok = tnx_b_full(b, tnx_b_const_i(b, TNX_BOOL, 1), u->rank, u->sizes);
    tnx_value r = put_where(m, tnx_b_reshape(b, base, 1, &all), tnx_b_reshape(b, places, 1, &elements), tnx_b_reshape(b, ok, 1, &elements), tnx_b_reshape(b, update, 1, &elements), 0, mode);
    return tnx_b_reshape(b, r, t->rank, t->sizes);
  }
  /* the dimensions that are walked as one */
  int first = (int)x.map[0], rank = 0;
  tnx_dim merged[TNX_MAX_RANK], rows[TNX_MAX_RANK];
  for (int d = 0; d < t->rank; d++) {
    if (d > first && d < first + (int)x.n) continue;
    rows[rank] = d == first ? count : t->sizes[d];
    merged[rank++] = d == first ? product(t->sizes + first, (int)x.n) : t->sizes[d];
  }
  for (uint32_t k = 0; k < x.n; k++) {
    int64_t size = t->sizes[first + (int)k];
    tnx_value i = tnx_b_reshape(b, x.at[k], 1, &count);
    tnx_value within = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_GE, i, tnx_b_const_i(b, TNX_I64, 0)), tnx_b_binary(b, TNX_OP_LT, i, tnx_b_const_i(b, TNX_I64, size)));
    ok = ok ? tnx_b_binary(b, TNX_OP_AND, ok, within) : within;
    places = places ? tnx_b_binary(b, TNX_OP_ADD, tnx_b_binary(b, TNX_OP_MUL, places, tnx_b_const_i(b, TNX_I64, size)), i) : i;
  }
  tnx_value r = put_where(m, tnx_b_reshape(b, base, rank, merged), places, ok, tnx_b_reshape(b, update, rank, rows), first, mode);
  return tnx_b_reshape(b, r, t->rank, t->sizes);
}

bool hlo_import_index(hlo_import *m) {
  if (strcmp(m->op->name, "stablehlo.gather") == 0) {
    if (m->op->n_in != 2 || m->op->n_out != 1) hlo_refuse(m, "an operand and its indices expected");
    else hlo_give(m, gather(m));
  } else if (strcmp(m->op->name, "stablehlo.scatter") == 0) {
    hlo_give(m, scatter(m));
  } else {
    return false;
  }
  return true;
}
