/* StableHLO writer: views, data movement and indexed access.
 *
 * DIAGONAL, STRIDED and UNFOLD, and their updates, are gathers and scatters over the flattened operand at places computed from iotas. Negative indices
 * are wrapped here; indices out of range are the caller's error in both languages. */
#include "ir/stablehlo.h"

/* ---- places in a flattened value ---- */

static hlo flatten(hlo_writer *w, hlo x) {
  int64_t n = hlo_numel(w, x);
  return hlo_reshape(w, x, 1, &n);
}

/* offset + sum of coordinate * stride over a space of the given sizes: int64. Dimension `but` is left out (-1: none). */
static hlo places(hlo_writer *w, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset, int but) {
  hlo type = hlo_type(TNX_I64, rank, sizes), sum = hlo_full_i(w, type, offset);
  for (int d = 0; d < rank; d++) {
    if (d == but || strides[d] == 0) continue;
    hlo term = hlo_iota(w, type, d);
    if (strides[d] != 1) term = hlo_bin(w, "stablehlo.multiply", term, hlo_full_i(w, term, strides[d]));
    sum = hlo_bin(w, "stablehlo.add", sum, term);
  }
  return sum;
}

/* result[c] = flat[at[c]] */
static hlo gather_flat(hlo_writer *w, hlo flat, hlo at) {
  hlo in[2] = {flat, at}, type = hlo_retype(at, (tnx_dtype)flat.dtype);
  if (hlo_is_empty(type)) return hlo_full_i(w, type, 0);
  hlo r = hlo_begin(w, "stablehlo.gather", in, 2, type);
  tnx_text_add(&w->text,
               " <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = %d>, "
               "indices_are_sorted = false, slice_sizes = array<i64: 1>}>",
               at.rank);
  hlo_end(w, in, 2, &r, 1);
  return r;
}

/* The region of a scatter: what becomes of an element and an update (mode as in ops.def). */
static void combine_region(hlo_writer *w, hlo base, int64_t mode) {
  static const char *const names[] = {NULL, "stablehlo.add", "stablehlo.multiply", "stablehlo.minimum", "stablehlo.maximum"};
  hlo args[2] = {base, base};
  hlo_region_begin(w, args, 2);
  const char *name = base.dtype != TNX_BOOL ? names[mode] : mode == 1 || mode == 4 ? "stablehlo.or" : "stablehlo.and";
  hlo r = mode == 0 ? args[1] : hlo_bin(w, name, args[0], args[1]);
  hlo_region_end(w, &r, 1);
}

static hlo scatter_flat(hlo_writer *w, hlo base, hlo at, hlo update, int64_t mode) {
  if (hlo_is_empty(update) || hlo_is_empty(base)) return base;
  hlo flat = flatten(w, base), in[3] = {flat, flatten(w, at), flatten(w, update)};
  hlo r = hlo_begin(w, "stablehlo.scatter", in, 3, flat);
  tnx_text_add(&w->text, " <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
                         "indices_are_sorted = false, unique_indices = false}>");
  combine_region(w, flat, mode);
  hlo_end(w, in, 3, &r, 1);
  return hlo_reshape(w, r, base.rank, base.sizes);
}

/* Places of torch.diagonal within x, for a result of the given type. */
static hlo diagonal_places(hlo_writer *w, hlo x, hlo diagonal) {
  int64_t full[HLO_MAX_RANK], strides[HLO_MAX_RANK], offset = hlo_int(w, 0);
  int d1 = (int)hlo_int(w, 1), d2 = (int)hlo_int(w, 2), k = 0;
  hlo_row_major(x, full);
  for (int i = 0; i < x.rank; i++)
    if (i != d1 && i != d2) strides[k++] = full[i];
  strides[k] = full[d1] + full[d2];
  int64_t start = hlo_is_empty(diagonal) ? 0 : offset >= 0 ? offset * full[d2] : -offset * full[d1];
  return places(w, diagonal.rank, diagonal.sizes, strides, start, -1);
}

static hlo strided_places(hlo_writer *w, hlo part) {
  int64_t strides[HLO_MAX_RANK];
  for (int i = 0; i < part.rank; i++) strides[i] = hlo_int(w, (uint32_t)i + 1);
  return places(w, part.rank, part.sizes, strides, hlo_int(w, 0), -1);
}

/* ---- views ---- */

void hlo_view(hlo_writer *w) {
  int64_t a[HLO_MAX_RANK], strides[HLO_MAX_RANK];
  hlo x = hlo_operand(w, 0), want = hlo_result(w, 0), r;
  for (uint32_t i = 0; i < w->node->n_ints && i < HLO_MAX_RANK; i++) a[i] = hlo_int(w, i);
  switch (w->node->op) {
    case TNX_OP_BROADCAST: r = hlo_broadcast(w, x, a, want); break;
    case TNX_OP_RESHAPE: r = hlo_reshape(w, x, want.rank, want.sizes); break;
    case TNX_OP_TRANSPOSE:
    case TNX_OP_REVERSE: {
      bool transpose = w->node->op == TNX_OP_TRANSPOSE;
      r = hlo_begin(w, transpose ? "stablehlo.transpose" : "stablehlo.reverse", &x, 1, want);
      tnx_text_add(&w->text, " <{");
      hlo_add_array(w, transpose ? "permutation" : "dimensions", a, (int)w->node->n_ints);
      tnx_text_add(&w->text, "}>");
      hlo_end(w, &x, 1, &r, 1);
      break;
    }
    case TNX_OP_SLICE: r = hlo_slice(w, x, (int)a[0], a[1], want.sizes[a[0]], a[2]); break;
    case TNX_OP_DIAGONAL: r = gather_flat(w, flatten(w, x), diagonal_places(w, x, want)); break;
    case TNX_OP_STRIDED: r = gather_flat(w, flatten(w, x), strided_places(w, want)); break;
    default: /* UNFOLD */
      hlo_row_major(x, strides);
      strides[x.rank] = strides[a[0]];
      strides[a[0]] = hlo_is_empty(want) ? 0 : strides[a[0]] * a[2];
      r = gather_flat(w, flatten(w, x), places(w, want.rank, want.sizes, strides, 0, -1));
  }
  hlo_set_result(w, 0, r);
}

/* ---- data movement ---- */

static hlo concat(hlo_writer *w) {
  const tnx_node *n = w->node;
  hlo want = hlo_result(w, 0);
  /* The only operation with any number of operands, so it is written here word by word. */
  want.id = w->next++;
  tnx_text_add(&w->text, "    %%%u = \"stablehlo.concatenate\"(", want.id);
  for (uint32_t i = 0; i < n->n_inputs; i++) tnx_text_add(&w->text, "%s%%%u", i ? ", " : "", hlo_operand(w, i).id);
  tnx_text_add(&w->text, ") <{dimension = %lld : i64}> : (", (long long)hlo_int(w, 0));
  for (uint32_t i = 0; i < n->n_inputs; i++) {
    if (i) tnx_text_add(&w->text, ", ");
    hlo_add_type(&w->text, hlo_operand(w, i));
  }
  tnx_text_add(&w->text, ") -> ");
  hlo_add_type(&w->text, want);
  tnx_text_add(&w->text, "\n");
  return want;
}

static hlo update_slice(hlo_writer *w, hlo base, hlo update) {
  int dim = (int)hlo_int(w, 0);
  int64_t start = hlo_int(w, 1), step = hlo_int(w, 2);
  if (hlo_is_empty(update)) return base;
  if (step == 1) {
    hlo in[2 + HLO_MAX_RANK] = {base, update}, zero = hlo_const_i(w, TNX_I64, 0), at = hlo_const_i(w, TNX_I64, start);
    for (int i = 0; i < base.rank; i++) in[2 + i] = i == dim ? at : zero;
    return hlo_op(w, "stablehlo.dynamic_update_slice", in, 2 + base.rank, base);
  }
  /* Spread out over the base's shape, with a mask of the places it covers. */
  int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0}, between[HLO_MAX_RANK] = {0};
  low[dim] = start;
  between[dim] = step - 1;
  high[dim] = base.sizes[dim] - start - ((update.sizes[dim] - 1) * step + 1);
  hlo wide = hlo_pad(w, update, hlo_const_i(w, (tnx_dtype)base.dtype, 0), low, high, between);
  hlo mask = hlo_pad(w, hlo_full_i(w, hlo_retype(update, TNX_BOOL), 1), hlo_const_i(w, TNX_BOOL, 0), low, high, between);
  return hlo_select(w, mask, wide, base);
}

void hlo_data(hlo_writer *w) {
  hlo x = hlo_operand(w, 0), want = hlo_result(w, 0), r;
  switch (w->node->op) {
    case TNX_OP_CONCAT: r = concat(w); break;
    case TNX_OP_PAD: {
      int64_t low[HLO_MAX_RANK], high[HLO_MAX_RANK];
      for (int i = 0; i < x.rank; i++) {
        low[i] = hlo_int(w, (uint32_t)i);
        high[i] = (int64_t)((uint64_t)want.sizes[i] - (uint64_t)x.sizes[i] - (uint64_t)low[i]);
      }
      r = hlo_pad(w, x, hlo_operand(w, 1), low, high, NULL);
      break;
    }
    case TNX_OP_UPDATE_SLICE: r = update_slice(w, x, hlo_operand(w, 1)); break;
    case TNX_OP_UPDATE_STRIDED: r = scatter_flat(w, x, strided_places(w, hlo_operand(w, 1)), hlo_operand(w, 1), 0); break;
    default: r = scatter_flat(w, x, diagonal_places(w, x, hlo_operand(w, 1)), hlo_operand(w, 1), 0); /* UPDATE_DIAGONAL */
  }
  hlo_set_result(w, 0, r);
}

/* ---- indexed access ---- */

/* An index as int64, negative ones counted from the end. */
static hlo wrapped(hlo_writer *w, hlo index, int64_t size) {
  hlo i = hlo_convert(w, index, TNX_I64);
  return hlo_select(w, hlo_compare(w, "LT", i, hlo_full_i(w, i, 0)), hlo_bin(w, "stablehlo.add", i, hlo_full_i(w, i, size)), i);
}

/* Places of torch.gather's and torch.scatter's elements: the coordinates of the index, but for the indexed dimension. */
static hlo element_places(hlo_writer *w, hlo x, hlo index, int dim) {
  int64_t strides[HLO_MAX_RANK];
  hlo_row_major(x, strides);
  hlo i = wrapped(w, index, x.sizes[dim]), rest = places(w, index.rank, index.sizes, strides, 0, dim);
  return hlo_bin(w, "stablehlo.add", rest, hlo_bin(w, "stablehlo.multiply", i, hlo_full_i(w, i, strides[dim])));
}

/* The node's indices from operand `from` on, wrapped and side by side in a last dimension. ints[at..]: the dimension each walks. */
static hlo index_vectors(hlo_writer *w, hlo x, uint32_t from, uint32_t at, int n) {
  hlo parts[HLO_MAX_RANK], shape = hlo_operand(w, from), r = hlo_retype(shape, TNX_I64);
  shape.sizes[shape.rank++] = 1;
  for (int k = 0; k < n; k++) {
    hlo i = wrapped(w, hlo_operand(w, from + (uint32_t)k), x.sizes[hlo_int(w, at + (uint32_t)k)]);
    parts[k] = hlo_reshape(w, i, shape.rank, shape.sizes);
  }
  r.sizes[r.rank++] = n;
  if (n == 1) return parts[0];
  r = hlo_begin(w, "stablehlo.concatenate", parts, n, r);
  tnx_text_add(&w->text, " <{dimension = %d : i64}>", r.rank - 1);
  hlo_end(w, parts, n, &r, 1);
  return r;
}

/* Slices of x at index vectors for dims first .. first + n - 1 (TAKE, INDEX). */
static hlo gather_slices(hlo_writer *w, hlo x, hlo vectors, int first, int n) {
  hlo in[2] = {x, vectors}, want = hlo_result(w, 0);
  if (hlo_is_empty(want)) return hlo_full_i(w, want, 0);
  int64_t offset[HLO_MAX_RANK], dims[HLO_MAX_RANK], slices[HLO_MAX_RANK];
  int k = 0, batch = vectors.rank - 1;
  for (int i = 0; i < want.rank; i++)
    if (i < first || i >= first + batch) offset[k++] = i;
  for (int i = 0; i < n; i++) dims[i] = first + i;
  for (int i = 0; i < x.rank; i++) slices[i] = i >= first && i < first + n ? 1 : x.sizes[i];
  hlo r = hlo_begin(w, "stablehlo.gather", in, 2, want);
  tnx_text_add(&w->text, " <{dimension_numbers = #stablehlo.gather<");
  hlo_add_list(w, "offset_dims", offset, k);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "collapsed_slice_dims", dims, n);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "start_index_map", dims, n);
  tnx_text_add(&w->text, ", index_vector_dim = %d>, indices_are_sorted = false, ", batch);
  hlo_add_array(w, "slice_sizes", slices, x.rank);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, in, 2, &r, 1);
  return r;
}

static hlo scatter_slices(hlo_writer *w, hlo base, hlo vectors, hlo update, int first, int n, int64_t mode) {
  if (hlo_is_empty(update) || hlo_is_empty(base)) return base;
  hlo in[3] = {base, vectors, update};
  int64_t window[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int k = 0, batch = vectors.rank - 1;
  for (int i = 0; i < update.rank; i++)
    if (i < first || i >= first + batch) window[k++] = i;
  for (int i = 0; i < n; i++) dims[i] = first + i;
  hlo r = hlo_begin(w, "stablehlo.scatter", in, 3, base);
  tnx_text_add(&w->text, " <{scatter_dimension_numbers = #stablehlo.scatter<");
  hlo_add_list(w, "update_window_dims", window, k);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "inserted_window_dims", dims, n);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "scatter_dims_to_operand_dims", dims, n);
  tnx_text_add(&w->text, ", index_vector_dim = %d>, indices_are_sorted = false, unique_indices = false}>", batch);
  combine_region(w, base, mode);
  hlo_end(w, in, 3, &r, 1);
  return r;
}

/* Each coordinate goes to the row that the running count of true elements says; those of other elements behind the end, where scatter drops them. */
static hlo nonzero(hlo_writer *w, hlo mask, hlo want) {
  hlo chosen = flatten(w, mask), order = hlo_running(w, TNX_OP_CUMSUM, hlo_convert(w, chosen, TNX_I64), 0), r = hlo_full_i(w, want, hlo_int(w, 0));
  hlo row = hlo_select(w, chosen, hlo_bin(w, "stablehlo.subtract", order, hlo_full_i(w, order, 1)), hlo_full_i(w, order, want.sizes[0]));
  hlo first = hlo_bin(w, "stablehlo.multiply", row, hlo_full_i(w, row, mask.rank));
  for (int d = 0; d < mask.rank; d++)
    r = scatter_flat(w, r, hlo_bin(w, "stablehlo.add", first, hlo_full_i(w, row, d)), hlo_iota(w, hlo_retype(mask, TNX_I64), d), 0);
  return r;
}

void hlo_index(hlo_writer *w) {
  const tnx_node *n = w->node;
  hlo x = hlo_operand(w, 0), r;
  int first = (int)hlo_int(w, 0), n_index = (int)n->n_ints;
  switch (n->op) {
    case TNX_OP_TAKE: r = gather_slices(w, x, index_vectors(w, x, 1, 0, 1), first, 1); break;
    case TNX_OP_GATHER: r = gather_flat(w, flatten(w, x), element_places(w, x, hlo_operand(w, 1), first)); break;
    case TNX_OP_INDEX: r = gather_slices(w, x, index_vectors(w, x, 1, 0, n_index), first, n_index); break;
    case TNX_OP_SCATTER: r = scatter_flat(w, x, element_places(w, x, hlo_operand(w, 1), first), hlo_operand(w, 2), hlo_int(w, 1)); break;
    case TNX_OP_NONZERO: r = nonzero(w, x, hlo_result(w, 0)); break;
    case TNX_OP_PUT: r = scatter_slices(w, x, index_vectors(w, x, 1, 0, 1), hlo_operand(w, 2), first, 1, hlo_int(w, 1)); break;
    default: /* INDEX_PUT */
      first = (int)hlo_int(w, 1);
      r = scatter_slices(w, x, index_vectors(w, x, 2, 1, n_index - 1), hlo_operand(w, 1), first, n_index - 1, hlo_int(w, 0));
  }
  hlo_set_result(w, 0, r);
}
