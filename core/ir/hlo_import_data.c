/* StableHLO importer: shapes, slices, products, factorisations and Fourier transforms. */
#include <string.h>

#include "ir/hlo_import.h"

/* ---- shapes ---- */

/* broadcast_in_dim: x's dimension i is dimension dims[i] of the result. */
static tnx_value broadcast(hlo_import *m) {
  tnx_builder *b = &m->b;
  uint32_t n;
  const int64_t *dims = hlo_ints(m, m->op->attrs, m->op->n_attrs, "broadcast_dimensions", &n);
  tnx_value x = hlo_in(m, 0);
  const tnx_type *from = hlo_in_type(m, 0), *to = hlo_out_type(m, 0);
  if (!x) return 0;
  if (n != from->rank || !hlo_are_dims(dims, n, to->rank)) return hlo_refuse(m, "broadcast_dimensions: a dimension of the result for each of the operand expected");
  for (uint32_t i = 0; i < n; i++)
    if (from->sizes[i] != 1 && from->sizes[i] != to->sizes[dims[i]]) return hlo_refuse(m, "broadcast_dimensions: a size does not fit");
  int perm[TNX_MAX_RANK];
  tnx_dim spread[TNX_MAX_RANK];
  for (int i = 0; i < to->rank; i++) spread[i] = 1;
  for (uint32_t i = 0; i < n; i++) spread[dims[i]] = from->sizes[i];
  int k = 0;
  for (int d = 0; d < to->rank; d++)
    for (uint32_t i = 0; i < n; i++)
      if (dims[i] == d) perm[k++] = (int)i;
  if (n) x = tnx_b_reshape(b, tnx_b_transpose(b, x, perm), to->rank, spread);
  return tnx_b_broadcast_to(b, x, to->rank, to->sizes);
}

static tnx_value transpose(hlo_import *m) {
  uint32_t n;
  const int64_t *v = hlo_ints(m, m->op->attrs, m->op->n_attrs, "permutation", &n);
  int perm[TNX_MAX_RANK];
  if (n != hlo_in_type(m, 0)->rank || !hlo_are_dims(v, n, (int)n)) return hlo_refuse(m, "permutation: each dimension once expected");
  for (uint32_t i = 0; i < n; i++) perm[i] = (int)v[i];
  return tnx_b_transpose(&m->b, hlo_in(m, 0), perm);
}

static tnx_value reverse(hlo_import *m) {
  uint32_t n;
  const int64_t *v = hlo_ints(m, m->op->attrs, m->op->n_attrs, "dimensions", &n);
  int dims[TNX_MAX_RANK];
  if (!hlo_are_dims(v, n, hlo_in_type(m, 0)->rank)) return hlo_refuse(m, "dimensions: dimensions of the operand expected");
  for (uint32_t i = 0; i < n; i++) dims[i] = (int)v[i];
  return tnx_b_reverse(&m->b, hlo_in(m, 0), dims, (int)n);
}

static tnx_value iota(hlo_import *m) {
  const tnx_type *t = hlo_out_type(m, 0);
  int64_t dim = hlo_int_attr(m, "iota_dimension", -1);
  if (dim < 0 || dim >= t->rank) return hlo_refuse(m, "iota_dimension: a dimension of the result expected");
  return tnx_b_convert(&m->b, tnx_b_iota(&m->b, t->rank, t->sizes, (int)dim), (tnx_dtype)t->dtype);
}

static tnx_value slice(hlo_import *m) {
  uint32_t n[3];
  const tnx_hlo_op *op = m->op;
  const int64_t *from = hlo_ints(m, op->attrs, op->n_attrs, "start_indices", &n[0]), *to = hlo_ints(m, op->attrs, op->n_attrs, "limit_indices", &n[1]);
  const int64_t *by = hlo_ints(m, op->attrs, op->n_attrs, "strides", &n[2]);
  const tnx_type *t = hlo_in_type(m, 0);
  tnx_value x = hlo_in(m, 0);
  if (n[0] != t->rank || n[1] != t->rank || n[2] != t->rank) return hlo_refuse(m, "a start, a limit and a stride for each dimension expected");
  for (int d = 0; d < t->rank; d++) {
    if (from[d] < 0 || to[d] < from[d] || to[d] > t->sizes[d] || by[d] < 1) return hlo_refuse(m, "a range within the operand expected");
    x = tnx_b_slice(&m->b, x, d, from[d], (to[d] - from[d] + by[d] - 1) / by[d], by[d]);
  }
  return x;
}

static tnx_value pad(hlo_import *m) {
  tnx_builder *b = &m->b;
  uint32_t n[3];
  const tnx_hlo_op *op = m->op;
  const int64_t *low = hlo_ints(m, op->attrs, op->n_attrs, "edge_padding_low", &n[0]), *high = hlo_ints(m, op->attrs, op->n_attrs, "edge_padding_high", &n[1]);
  const int64_t *between = hlo_ints(m, op->attrs, op->n_attrs, "interior_padding", &n[2]);
  const tnx_type *t = hlo_in_type(m, 0);
  tnx_value x = hlo_in(m, 0), value = hlo_in(m, 1);
  if (n[0] != t->rank || n[1] != t->rank || n[2] != t->rank) return hlo_refuse(m, "three paddings for each dimension expected");
  if (hlo_in_type(m, 1)->rank) return hlo_refuse(m, "a 0-dim padding value expected");
  for (int d = 0; d < t->rank && x; d++) {
    tnx_dim sizes[TNX_MAX_RANK], have = tnx_b_size(b, x, d), wide;
    if (between[d] < 0 || low[d] < INT32_MIN * INT64_C(4096) || high[d] < INT32_MIN * INT64_C(4096)) return hlo_refuse(m, "a padding in range expected");
    if (between[d] == 0 || have < 2) continue;
    if (__builtin_mul_overflow(have - 1, between[d] + 1, &wide) || wide > (INT64_C(1) << 46)) return hlo_refuse(m, "a padding in range expected");
    memcpy(sizes, tnx_b_sizes(b, x), (size_t)t->rank * sizeof *sizes);
    sizes[d] = wide + 1;
    x = tnx_b_update_slice(b, tnx_b_full(b, value, t->rank, sizes), x, d, 0, between[d] + 1);
  }
  return x ? tnx_b_pad(b, x, value, low, high) : 0;
}

static tnx_value concatenate(hlo_import *m) {
  int64_t dim = hlo_int_attr(m, "dimension", -1);
  uint32_t n = m->op->n_in, k = 0;
  if (n == 0 || dim < 0 || dim >= hlo_in_type(m, 0)->rank) return hlo_refuse(m, "dimension: a dimension of the operands expected");
  tnx_value *xs = tnx_heap_alloc(n * sizeof *xs), r = 0;
  if (!xs) return tnx_b_fail(&m->b, TNX_OUT_OF_MEMORY, "out of host memory while importing StableHLO");
  for (uint32_t i = 0; i < n; i++) xs[k++] = hlo_in(m, i);
  if (m->b.status == TNX_OK) r = tnx_b_concat(&m->b, xs, (int)n, (int)dim);
  tnx_heap_free(xs);
  return r;
}

/* ---- slices at places that are data: starts are clamped, so that the slice lies within ---- */

static tnx_value start_of(hlo_import *m, uint32_t operand, int64_t size, int64_t len) {
  tnx_builder *b = &m->b;
  tnx_value i = hlo_in(m, operand);
  if (!i) return 0;
  if (tnx_b_rank(b, i) || !tnx_dtype_is_integral(tnx_b_dtype(b, i))) return hlo_refuse(m, "0-dim integers as starts expected");
  i = tnx_b_convert(b, i, TNX_I64);
  const tnx_node *n = tnx_graph_producer(b->g, i);
  if (n->op == TNX_OP_CONST) return tnx_b_const_i(b, TNX_I64, n->ints[0] < 0 ? 0 : n->ints[0] > size - len ? size - len : n->ints[0]);
  return tnx_b_binary(b, TNX_OP_MAX, tnx_b_binary(b, TNX_OP_MIN, i, tnx_b_const_i(b, TNX_I64, size - len)), tnx_b_const_i(b, TNX_I64, 0));
}

/* Numbers start .. start + len - 1; *fixed: start where it is known. */
static tnx_value range_from(hlo_import *m, tnx_value start, int64_t len, int64_t *fixed) {
  tnx_builder *b = &m->b;
  *fixed = -1;
  if (!start) return 0;
  const tnx_node *n = tnx_graph_producer(b->g, start);
  if (n->op == TNX_OP_CONST) return *fixed = n->ints[0], start;
  return tnx_b_binary(b, TNX_OP_ADD, tnx_b_iota(b, 1, &len, 0), start);
}

/* base with the update at the starts of dimensions from `dim` on; those before are whole. */
static tnx_value update_from(hlo_import *m, tnx_value base, tnx_value update, int dim) {
  tnx_builder *b = &m->b;
  if (b->status != TNX_OK) return 0;
  int rank = tnx_b_rank(b, base);
  while (dim < rank && tnx_b_size(b, base, dim) == tnx_b_size(b, update, dim)) dim++;
  if (dim == rank) return update;
  int64_t size = tnx_b_size(b, base, dim), len = tnx_b_size(b, update, dim), fixed;
  tnx_value index = range_from(m, start_of(m, 2 + (uint32_t)dim, size, len), len, &fixed), part;
  if (!index) return 0;
  bool last = true;
  for (int d = dim + 1; d < rank; d++) last &= tnx_b_size(b, base, d) == tnx_b_size(b, update, d);
  if (!last) {
    part = fixed >= 0 ? tnx_b_slice(b, base, dim, fixed, len, 1) : tnx_b_take(b, base, index, dim);
    update = update_from(m, part, update, dim + 1);
  }
  return fixed >= 0 ? tnx_b_update_slice(b, base, update, dim, fixed, 1) : tnx_b_put(b, base, index, update, dim, 0);
}

static tnx_value dynamic_update_slice(hlo_import *m) {
  const tnx_type *t = hlo_in_type(m, 0), *u = hlo_in_type(m, 1);
  if (m->op->n_in != 2u + t->rank || u->rank != t->rank || u->dtype != t->dtype) return hlo_refuse(m, "an update of the operand's rank and a start for each dimension expected");
  bool empty = false;
  for (int d = 0; d < t->rank; d++) {
    if (u->sizes[d] > t->sizes[d]) return hlo_refuse(m, "an update that fits the operand expected");
    empty |= u->sizes[d] == 0;
  }
  return empty ? hlo_in(m, 0) : update_from(m, hlo_in(m, 0), hlo_in(m, 1), 0);
}

static tnx_value dynamic_slice(hlo_import *m) {
  uint32_t n;
  const int64_t *sizes = hlo_ints(m, m->op->attrs, m->op->n_attrs, "slice_sizes", &n);
  const tnx_type *t = hlo_in_type(m, 0);
  if (n != t->rank || m->op->n_in != 1u + t->rank) return hlo_refuse(m, "a size and a start for each dimension expected");
  tnx_value x = hlo_in(m, 0);
  for (int d = 0; d < t->rank; d++) {
    int64_t fixed;
    if (sizes[d] < 0 || sizes[d] > t->sizes[d]) return hlo_refuse(m, "slice_sizes: sizes within the operand expected");
    if (sizes[d] == t->sizes[d]) continue;
    tnx_value index = range_from(m, start_of(m, 1 + (uint32_t)d, t->sizes[d], sizes[d]), sizes[d], &fixed);
    if (!index) return 0;
    x = fixed >= 0 ? tnx_b_slice(&m->b, x, d, fixed, sizes[d], 1) : tnx_b_take(&m->b, x, index, d);
  }
  return x;
}

/* ---- products ---- */

/* The operand as [batch, free, contracted] or, the second one, [batch, contracted, free]; its free sizes are added to those of the result. */
static tnx_value factor(hlo_import *m, uint32_t i, const int64_t *batch, uint32_t n_batch, const int64_t *contract, uint32_t n_contract, tnx_dim *sizes, int *rank) {
  const tnx_type *t = hlo_in_type(m, i);
  int perm[TNX_MAX_RANK], k = 0, n_free = 0;
  tnx_dim shape[3] = {1, 1, 1};
  bool taken[TNX_MAX_RANK] = {false};
  for (uint32_t j = 0; j < n_batch; j++) taken[batch[j]] = true;
  for (uint32_t j = 0; j < n_contract; j++) taken[contract[j]] = true;
  for (uint32_t j = 0; j < n_batch; j++) shape[0] *= t->sizes[perm[k++] = (int)batch[j]];
  for (int second = 0; second < 2; second++) {
    bool contracted = second != (int)i;
    if (contracted) {
      for (uint32_t j = 0; j < n_contract; j++) shape[1 + second] *= t->sizes[perm[k++] = (int)contract[j]];
    } else {
      for (int d = 0; d < t->rank; d++)
        if (!taken[d]) {
          if (*rank + n_free >= TNX_MAX_RANK) return hlo_unsupported(m, "a result of at most 12 dimensions expected");
          sizes[*rank + n_free++] = t->sizes[d];
          shape[1 + second] *= t->sizes[perm[k++] = d];
        }
    }
  }
  *rank += n_free;
  tnx_value x = tnx_b_transpose(&m->b, hlo_in(m, i), perm);
  return n_batch ? tnx_b_reshape(&m->b, x, 3, shape) : tnx_b_reshape(&m->b, x, 2, shape + 1);
}

static tnx_value product_of_halves(hlo_import *m, tnx_value x, tnx_value y) {
  tnx_builder *b = &m->b;
  int rank = tnx_b_rank(b, x);
  tnx_dim sizes[3] = {tnx_b_size(b, x, 0)};
  sizes[rank - 2] = tnx_b_size(b, x, rank - 2);
  sizes[rank - 1] = tnx_b_size(b, y, rank - 1);
  tnx_value in[2] = {x, y};
  tnx_type type = {TNX_F32, (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_MATMUL, in, 2, NULL, 0, NULL, 0, &type, 1);
}

/* Complex matrices by four products of their parts, as there are kernels for real ones. */
static tnx_value product(hlo_import *m, tnx_value x, tnx_value y) {
  tnx_builder *b = &m->b;
  if (!tnx_dtype_is_complex(tnx_b_dtype(b, x))) return tnx_b_matmul(b, x, y);
  tnx_value a = tnx_b_unary(b, TNX_OP_REAL, x), c = tnx_b_unary(b, TNX_OP_IMAG, x), d = tnx_b_unary(b, TNX_OP_REAL, y), e = tnx_b_unary(b, TNX_OP_IMAG, y);
  tnx_value re = tnx_b_binary(b, TNX_OP_SUB, tnx_b_matmul(b, a, d), tnx_b_matmul(b, c, e)), im = tnx_b_binary(b, TNX_OP_ADD, tnx_b_matmul(b, a, e), tnx_b_matmul(b, c, d));
  return tnx_b_binary(b, TNX_OP_COMPLEX, re, im);
}

static tnx_value dot_general(hlo_import *m) {
  tnx_builder *b = &m->b;
  const tnx_hlo_attr *a = hlo_attr(m, "dot_dimension_numbers");
  if (!a || a->kind != TNX_HLO_DICT) return hlo_refuse(m, "dot_dimension_numbers expected");
  uint32_t n[4];
  static const char *const names[4] = {"lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions"};
  const int64_t *dims[4];
  const tnx_type *x = hlo_in_type(m, 0), *y = hlo_in_type(m, 1);
  for (int i = 0; i < 4; i++) {
    dims[i] = hlo_ints(m, a->items, a->n, names[i], &n[i]);
    if (!hlo_are_dims(dims[i], n[i], i & 1 ? y->rank : x->rank)) return hlo_refuse(m, "dimensions of the operands expected");
  }
  if (n[0] != n[1] || n[2] != n[3] || x->dtype != y->dtype) return hlo_refuse(m, "as many dimensions of one operand as of the other, and one dtype, expected");
  for (int i = 0; i < 4; i += 2)
    for (uint32_t k = 0; k < n[i]; k++)
      if (x->sizes[dims[i][k]] != y->sizes[dims[i + 1][k]]) return hlo_refuse(m, "dimensions of equal sizes expected");
  for (uint32_t k = 0; k < n[0]; k++)
    for (uint32_t j = 0; j < n[2]; j++)
      if (dims[0][k] == dims[2][j] || dims[1][k] == dims[3][j]) return hlo_refuse(m, "dimensions of one use expected");
  tnx_dim sizes[TNX_MAX_RANK];
  int rank = 0;
  for (uint32_t k = 0; k < n[0]; k++) sizes[rank++] = x->sizes[dims[0][k]];
  tnx_value u = factor(m, 0, dims[0], n[0], dims[2], n[2], sizes, &rank), v = factor(m, 1, dims[1], n[1], dims[3], n[3], sizes, &rank);
  tnx_dtype t = (tnx_dtype)x->dtype, want = (tnx_dtype)hlo_out_type(m, 0)->dtype;
  if (!u || !v) return 0;
  /* halves with a float32 result are multiplied as they are; any other result type is that of the operands first */
  bool halves = (t == TNX_BF16 || t == TNX_F16) && want == TNX_F32;
  if (t != want && !halves) {
    u = tnx_b_convert(b, u, want);
    v = tnx_b_convert(b, v, want);
  }
  return tnx_b_reshape(b, halves ? product_of_halves(m, u, v) : product(m, u, v), rank, sizes);
}

/* ---- factorisations and transforms ---- */

/* StableHLO leaves the other triangle open; here it is what LAPACK leaves, zeros. A matrix that is not positive definite has a factor of NaN. */
static tnx_value cholesky(hlo_import *m) {
  tnx_builder *b = &m->b;
  tnx_value a = hlo_in(m, 0);
  const tnx_type *t = hlo_in_type(m, 0);
  if (t->rank < 2 || t->sizes[t->rank - 1] != t->sizes[t->rank - 2] || !a) return hlo_refuse(m, "square matrices expected");
  tnx_value l = tnx_b_linalg(b, TNX_OP_CHOLESKY, &a, 1, 0, !hlo_int_attr(m, "lower", 0), 0, 0);
  if (!l) return 0;
  tnx_dim sizes[TNX_MAX_RANK];
  memcpy(sizes, t->sizes, t->rank * sizeof *sizes);
  sizes[t->rank - 1] = sizes[t->rank - 2] = 1;
  tnx_value ok = tnx_b_reshape(b, tnx_b_binary(b, TNX_OP_EQ, l + 1, tnx_b_const_i(b, TNX_I32, 0)), t->rank, sizes);
  return tnx_b_select(b, ok, l, tnx_b_const_f(b, (tnx_dtype)t->dtype, __builtin_nan("")));
}

static tnx_value triangular_solve(hlo_import *m) {
  static const char *const forms[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  const char *form = hlo_word_attr(m, "transpose_a");
  int transposed = 0;
  while (transposed < 3 && strcmp(forms[transposed], form) != 0) transposed++;
  if (transposed == 3 || !hlo_int_attr(m, "left_side", 0)) return hlo_unsupported(m, "left_side and a form of transpose_a expected");
  tnx_value in[2] = {hlo_in(m, 0), hlo_in(m, 1)};
  int flags = (hlo_int_attr(m, "lower", 0) ? 0 : 1) + (hlo_int_attr(m, "unit_diagonal", 0) ? 2 : 0);
  return tnx_b_linalg(&m->b, TNX_OP_TRIANGULAR_SOLVE, in, 2, 0, flags, transposed, 0);
}

static tnx_value fft(hlo_import *m) {
  uint32_t n;
  const int64_t *length = hlo_ints(m, m->op->attrs, m->op->n_attrs, "fft_length", &n);
  const char *type = hlo_word_attr(m, "fft_type");
  const tnx_type *t = hlo_in_type(m, 0), *r = hlo_out_type(m, 0);
  if (n != 1 || t->rank == 0) return hlo_unsupported(m, "a transform along one dimension expected");
  int dim = t->rank - 1;
  if (length[0] < 1 || (strcmp(type, "IRFFT") == 0 ? r->rank != t->rank || r->sizes[dim] != length[0] : t->sizes[dim] != length[0])) return hlo_refuse(m, "fft_length: the length of the signal expected");
  if (strcmp(type, "FFT") == 0) return tnx_b_fft(&m->b, TNX_OP_FFT, hlo_in(m, 0), dim, false, 0, 0);
  if (strcmp(type, "IFFT") == 0) return tnx_b_fft(&m->b, TNX_OP_FFT, hlo_in(m, 0), dim, true, 2, 0);
  if (strcmp(type, "RFFT") == 0) return tnx_b_fft(&m->b, TNX_OP_RFFT, hlo_in(m, 0), dim, false, 0, 0);
  if (strcmp(type, "IRFFT") == 0) return tnx_b_fft(&m->b, TNX_OP_IRFFT, hlo_in(m, 0), dim, true, 2, length[0]);
  return hlo_refuse(m, "fft_type expected");
}

static tnx_value reshape(hlo_import *m) {
  const tnx_type *t = hlo_out_type(m, 0);
  return tnx_b_reshape(&m->b, hlo_in(m, 0), t->rank, t->sizes);
}

bool hlo_import_data(hlo_import *m) {
  static const struct { const char *name; tnx_value (*fn)(hlo_import *); int8_t operands; } table[] = {
      {"stablehlo.broadcast_in_dim", broadcast, 1}, {"stablehlo.reshape", reshape, 1},       {"stablehlo.transpose", transpose, 1},
      {"stablehlo.reverse", reverse, 1},            {"stablehlo.iota", iota, 0},             {"stablehlo.slice", slice, 1},
      {"stablehlo.pad", pad, 2},                    {"stablehlo.concatenate", concatenate, -1}, {"stablehlo.dynamic_update_slice", dynamic_update_slice, -1},
      {"stablehlo.dynamic_slice", dynamic_slice, -1}, {"stablehlo.dot_general", dot_general, 2}, {"stablehlo.cholesky", cholesky, 1},
      {"stablehlo.triangular_solve", triangular_solve, 2}, {"stablehlo.fft", fft, 1}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, m->op->name) != 0) continue;
    bool few = table[i].operands < 0 ? m->op->n_in < 1 || (table[i].fn == dynamic_update_slice && m->op->n_in < 2) : m->op->n_in != (uint32_t)table[i].operands;
    if (few || m->op->n_out != 1) hlo_refuse(m, "another number of operands or results expected");
    else hlo_give(m, table[i].fn(m));
    return true;
  }
  if (strcmp(m->op->name, "stablehlo.optimization_barrier") == 0) {
    if (m->op->n_in != m->op->n_out) return hlo_refuse(m, "as many results as operands expected"), true;
    for (uint32_t i = 0; i < m->op->n_in; i++) m->results[i] = hlo_in(m, i);
    return true;
  }
  return false;
}
