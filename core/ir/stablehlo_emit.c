/* StableHLO writer: types, constants and the operations the others are made of. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "ir/stablehlo.h"

/* ---- types ---- */

hlo hlo_type(tnx_dtype t, int rank, const int64_t *sizes) {
  hlo x = {.dtype = (uint8_t)t, .rank = (uint8_t)rank};
  if (rank) memcpy(x.sizes, sizes, (size_t)rank * sizeof *sizes);
  return x;
}

hlo hlo_retype(hlo x, tnx_dtype t) {
  x.dtype = (uint8_t)t;
  return x;
}

hlo hlo_result(hlo_writer *w, uint32_t i) {
  const tnx_value_data *v = &w->g->values.data[w->node->first + i];
  hlo x = {.dtype = v->dtype, .rank = v->rank};
  for (int d = 0; d < v->rank; d++) x.sizes[d] = tnx_dim_value(v->sizes[d], w->dims);
  return x;
}

hlo hlo_fail(hlo_writer *w, tnx_status status, const char *what) {
  if (w->status == TNX_OK)
    w->status = tnx_fail(status, "StableHLO: node %u (%s): %s", w->node ? (unsigned)(w->node - w->g->nodes.data) : 0u,
                         w->node ? tnx_op_get_info((tnx_op)w->node->op)->name : "graph", what);
  return (hlo){0};
}

int64_t hlo_numel(hlo_writer *w, hlo x) {
  int64_t n = 1;
  if (hlo_is_empty(x)) return 0;
  for (int i = 0; i < x.rank; i++)
    if (__builtin_mul_overflow(n, x.sizes[i], &n)) {
      hlo_fail(w, TNX_OVERFLOW, "the number of elements overflows 64 bits");
      return 0;
    }
  return n;
}

bool hlo_is_empty(hlo x) {
  for (int i = 0; i < x.rank; i++)
    if (x.sizes[i] == 0) return true;
  return false;
}

void hlo_row_major(hlo x, int64_t *strides) {
  uint64_t s = 1; /* hlo_numel has checked, or the value is empty and the strides do not matter */
  for (int i = x.rank - 1; i >= 0; i--) {
    strides[i] = (int64_t)s;
    s *= (uint64_t)x.sizes[i];
  }
}

void hlo_add_type(tnx_text *t, hlo x) {
  tnx_text_add(t, "tensor<");
  for (int i = 0; i < x.rank; i++) tnx_text_add(t, "%lldx", (long long)x.sizes[i]);
  tnx_text_add(t, "%s>", tnx_dtype_hlo((tnx_dtype)x.dtype));
}

void hlo_add_array(hlo_writer *w, const char *name, const int64_t *v, int n) {
  tnx_text_add(&w->text, n ? "%s = array<i64: " : "%s = array<i64>", name);
  for (int i = 0; i < n; i++) tnx_text_add(&w->text, "%s%lld", i ? ", " : "", (long long)v[i]);
  if (n) tnx_text_add(&w->text, ">");
}

void hlo_add_list(hlo_writer *w, const char *name, const int64_t *v, int n) {
  tnx_text_add(&w->text, "%s = [", name);
  for (int i = 0; i < n; i++) tnx_text_add(&w->text, "%s%lld", i ? ", " : "", (long long)v[i]);
  tnx_text_add(&w->text, "]");
}

/* ---- one operation ---- */

void hlo_begin_many(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo *results, int n_results) {
  for (int i = 0; i < n_in; i++)
    if (in[i].id == 0) hlo_fail(w, TNX_INTERNAL, "an operand is missing");
  tnx_text_add(&w->text, "    ");
  for (int i = 0; i < n_results; i++) {
    results[i].id = w->next++;
    tnx_text_add(&w->text, "%s%%%u", i ? ", " : "", results[i].id);
  }
  tnx_text_add(&w->text, " = \"%s\"(", name);
  for (int i = 0; i < n_in; i++) tnx_text_add(&w->text, "%s%%%u", i ? ", " : "", in[i].id);
  tnx_text_add(&w->text, ")");
}

hlo hlo_begin(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo type) {
  hlo_begin_many(w, name, in, n_in, &type, 1);
  return type;
}

static void add_types(tnx_text *t, const hlo *x, int n) {
  for (int i = 0; i < n; i++) {
    if (i) tnx_text_add(t, ", ");
    hlo_add_type(t, x[i]);
  }
}

void hlo_end(hlo_writer *w, const hlo *in, int n_in, const hlo *results, int n_results) {
  tnx_text_add(&w->text, " : (");
  add_types(&w->text, in, n_in);
  tnx_text_add(&w->text, n_results == 1 ? ") -> " : ") -> (");
  add_types(&w->text, results, n_results);
  tnx_text_add(&w->text, n_results == 1 ? "\n" : ")\n");
}

/* A region's one block: its arguments get their numbers. */
static void block_begin(hlo_writer *w, hlo *args, int n) {
  tnx_text_add(&w->text, "{\n    ^bb0(");
  for (int i = 0; i < n; i++) {
    args[i].id = w->next++;
    tnx_text_add(&w->text, "%s%%%u: ", i ? ", " : "", args[i].id);
    hlo_add_type(&w->text, args[i]);
  }
  tnx_text_add(&w->text, "):\n");
}

static void block_end(hlo_writer *w, const hlo *results, int n) {
  tnx_text_add(&w->text, "    \"stablehlo.return\"(");
  for (int i = 0; i < n; i++) tnx_text_add(&w->text, "%s%%%u", i ? ", " : "", results[i].id);
  tnx_text_add(&w->text, ") : (");
  add_types(&w->text, results, n);
  tnx_text_add(&w->text, ") -> ()\n    }");
}

void hlo_region_begin(hlo_writer *w, hlo *args, int n) {
  for (int i = 0; i < n; i++) args[i].rank = 0;
  tnx_text_add(&w->text, " (");
  block_begin(w, args, n);
}

void hlo_region_end(hlo_writer *w, const hlo *results, int n) {
  block_end(w, results, n);
  tnx_text_add(&w->text, ")");
}

void hlo_loop_begin(hlo_writer *w, hlo_loop *l, hlo *state, int n) {
  l->n = n;
  for (int i = 0; i < n; i++) l->init[i] = l->results[i] = state[i];
  hlo_begin_many(w, "stablehlo.while", l->init, n, l->results, n);
  tnx_text_add(&w->text, " (");
  block_begin(w, state, n);
}

void hlo_loop_body(hlo_writer *w, hlo_loop *l, hlo *state, hlo more) {
  block_end(w, &more, 1);
  tnx_text_add(&w->text, ", ");
  block_begin(w, state, l->n);
}

void hlo_loop_end(hlo_writer *w, hlo_loop *l, hlo *state) {
  block_end(w, state, l->n);
  tnx_text_add(&w->text, ")");
  hlo_end(w, l->init, l->n, l->results, l->n);
  for (int i = 0; i < l->n; i++) state[i] = l->results[i];
}

hlo hlo_op(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo type) {
  hlo r = hlo_begin(w, name, in, n_in, type);
  hlo_end(w, in, n_in, &r, 1);
  return r;
}
hlo hlo_un(hlo_writer *w, const char *name, hlo x) { return hlo_op(w, name, &x, 1, x); }
hlo hlo_bin(hlo_writer *w, const char *name, hlo x, hlo y) {
  hlo in[2] = {x, y};
  return hlo_op(w, name, in, 2, x);
}
hlo hlo_compare(hlo_writer *w, const char *direction, hlo x, hlo y) {
  hlo in[2] = {x, y}, r = hlo_begin(w, "stablehlo.compare", in, 2, hlo_retype(x, TNX_BOOL));
  tnx_text_add(&w->text, " <{comparison_direction = #stablehlo<comparison_direction %s>}>", direction);
  hlo_end(w, in, 2, &r, 1);
  return r;
}
hlo hlo_select(hlo_writer *w, hlo p, hlo x, hlo y) {
  hlo in[3] = {p, x, y};
  return hlo_op(w, "stablehlo.select", in, 3, x);
}
hlo hlo_convert(hlo_writer *w, hlo x, tnx_dtype t) {
  if (x.dtype == t) return x;
  return hlo_op(w, "stablehlo.convert", &x, 1, hlo_retype(x, t));
}

/* ---- constants ---- */

/* The bits of v rounded to a float type; *digits_out: of their hexadecimal form. */
static uint64_t float_bits(tnx_dtype t, double v, int *digits_out) {
  uint64_t bits;
  switch (t) {
    case TNX_F64: *digits_out = 16; memcpy(&bits, &v, sizeof bits); return bits;
    case TNX_F16: *digits_out = 4; return tnx_f32_to_f16((float)v);
    case TNX_BF16: *digits_out = 4; return tnx_f32_to_bf16((float)v);
    case TNX_F8E4M3: *digits_out = 2; return tnx_f32_to_f8e4m3((float)v);
    case TNX_F8E5M2: *digits_out = 2; return tnx_f32_to_f8e5m2((float)v);
    default: *digits_out = 8; return tnx_f32_bits((float)v);
  }
}

static hlo constant(hlo_writer *w, tnx_dtype t, const char *literal) {
  hlo r = hlo_begin(w, "stablehlo.constant", NULL, 0, hlo_type(t, 0, NULL));
  tnx_text_add(&w->text, " <{value = dense<%s> : ", literal);
  hlo_add_type(&w->text, r);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, NULL, 0, &r, 1);
  return r;
}

hlo hlo_const_f(hlo_writer *w, tnx_dtype t, double v) {
  if (tnx_dtype_is_complex(t)) {
    tnx_dtype part = tnx_dtype_real(t);
    hlo in[2] = {hlo_const_f(w, part, v), hlo_const_f(w, part, 0)};
    return hlo_op(w, "stablehlo.complex", in, 2, hlo_type(t, 0, NULL));
  }
  if (tnx_dtype_is_integral(t)) return hlo_const_i(w, t, (int64_t)v);
  char literal[40];
  int digits;
  uint64_t bits = float_bits(t, v, &digits);
  /* Small whole numbers and halves are written as such, everything else by its bits. */
  if (fabs(v) <= 1024 && v * 2 == nearbyint(v * 2) && t != TNX_F8E4M3 && t != TNX_F8E5M2 && !(v == 0 && signbit(v)))
    snprintf(literal, sizeof literal, "%s%d.%d", v < 0 ? "-" : "", (int)fabs(v), v == nearbyint(v) ? 0 : 5);
  else
    snprintf(literal, sizeof literal, "0x%0*llX", digits, (unsigned long long)bits);
  return constant(w, t, literal);
}

hlo hlo_const_i(hlo_writer *w, tnx_dtype t, int64_t v) {
  if (!tnx_dtype_is_integral(t)) return hlo_const_f(w, t, (double)v);
  char literal[40];
  if (t == TNX_BOOL) snprintf(literal, sizeof literal, "%s", v ? "true" : "false");
  else if (tnx_dtype_get_kind(t) == TNX_KIND_UINT) snprintf(literal, sizeof literal, "%llu", (unsigned long long)v);
  else snprintf(literal, sizeof literal, "%lld", (long long)v);
  return constant(w, t, literal);
}

hlo hlo_splat(hlo_writer *w, hlo scalar, hlo like) { return like.rank ? hlo_broadcast(w, scalar, NULL, like) : scalar; }
hlo hlo_full_f(hlo_writer *w, hlo like, double v) { return hlo_splat(w, hlo_const_f(w, (tnx_dtype)like.dtype, v), like); }
hlo hlo_full_i(hlo_writer *w, hlo like, int64_t v) { return hlo_splat(w, hlo_const_i(w, (tnx_dtype)like.dtype, v), like); }

hlo hlo_lowest(hlo_writer *w, tnx_dtype t, bool highest) {
  static const struct { int64_t low, high; } ranges[TNX_DTYPE_COUNT] = {
      [TNX_BOOL] = {0, 1},           [TNX_U8] = {0, UINT8_MAX},         [TNX_I8] = {INT8_MIN, INT8_MAX},    [TNX_I16] = {INT16_MIN, INT16_MAX}, [TNX_I32] = {INT32_MIN, INT32_MAX},
      [TNX_I64] = {INT64_MIN, INT64_MAX}, [TNX_U16] = {0, UINT16_MAX}, [TNX_U32] = {0, UINT32_MAX}, [TNX_U64] = {0, -1}};
  if (t == TNX_F8E4M3) return hlo_const_f(w, t, highest ? 448 : -448); /* it has no infinity */
  if (!tnx_dtype_is_integral(t)) return hlo_const_f(w, t, highest ? INFINITY : -INFINITY);
  return hlo_const_i(w, t, highest ? ranges[t].high : ranges[t].low);
}

/* ---- shapes ---- */

hlo hlo_broadcast(hlo_writer *w, hlo x, const int64_t *dims, hlo type) {
  hlo r = hlo_begin(w, "stablehlo.broadcast_in_dim", &x, 1, hlo_retype(type, (tnx_dtype)x.dtype));
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "broadcast_dimensions", dims, x.rank);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, &x, 1, &r, 1);
  return r;
}

hlo hlo_reshape(hlo_writer *w, hlo x, int rank, const int64_t *sizes) {
  if (x.rank == rank && (rank == 0 || memcmp(x.sizes, sizes, (size_t)rank * sizeof *sizes) == 0)) return x;
  return hlo_op(w, "stablehlo.reshape", &x, 1, hlo_type((tnx_dtype)x.dtype, rank, sizes));
}

hlo hlo_iota(hlo_writer *w, hlo type, int dim) {
  hlo r = hlo_begin(w, "stablehlo.iota", NULL, 0, type);
  tnx_text_add(&w->text, " <{iota_dimension = %d : i64}>", dim);
  hlo_end(w, NULL, 0, &r, 1);
  return r;
}

hlo hlo_pad(hlo_writer *w, hlo x, hlo value, const int64_t *low, const int64_t *high, const int64_t *interior) {
  static const int64_t zero[HLO_MAX_RANK];
  hlo in[2] = {x, value}, type = x;
  if (!interior) interior = zero;
  for (int i = 0; i < x.rank; i++) {
    uint64_t n = (uint64_t)x.sizes[i], gaps = n ? (n - 1) * (uint64_t)interior[i] : 0;
    type.sizes[i] = (int64_t)(n + gaps + (uint64_t)low[i] + (uint64_t)high[i]);
  }
  hlo r = hlo_begin(w, "stablehlo.pad", in, 2, type);
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "edge_padding_low", low, x.rank);
  tnx_text_add(&w->text, ", ");
  hlo_add_array(w, "edge_padding_high", high, x.rank);
  tnx_text_add(&w->text, ", ");
  hlo_add_array(w, "interior_padding", interior, x.rank);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, in, 2, &r, 1);
  return r;
}

hlo hlo_slice(hlo_writer *w, hlo x, int dim, int64_t start, int64_t len, int64_t step) {
  int64_t from[HLO_MAX_RANK] = {0}, to[HLO_MAX_RANK], by[HLO_MAX_RANK];
  hlo type = x;
  for (int i = 0; i < x.rank; i++) {
    to[i] = x.sizes[i];
    by[i] = 1;
  }
  from[dim] = start;
  to[dim] = (int64_t)((uint64_t)start + (len ? (uint64_t)(len - 1) * (uint64_t)step + 1 : 0));
  by[dim] = step;
  type.sizes[dim] = len;
  hlo r = hlo_begin(w, "stablehlo.slice", &x, 1, type);
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "start_indices", from, x.rank);
  tnx_text_add(&w->text, ", ");
  hlo_add_array(w, "limit_indices", to, x.rank);
  tnx_text_add(&w->text, ", ");
  hlo_add_array(w, "strides", by, x.rank);
  tnx_text_add(&w->text, "}>");
  hlo_end(w, &x, 1, &r, 1);
  return r;
}

/* ---- reductions and products ---- */

hlo hlo_isnan(hlo_writer *w, hlo x) {
  if (tnx_dtype_is_integral((tnx_dtype)x.dtype)) return hlo_full_i(w, hlo_retype(x, TNX_BOOL), 0);
  return hlo_compare(w, "NE", x, x);
}

hlo hlo_reduce(hlo_writer *w, const char *op, hlo x, hlo init, const int64_t *dims, int n) {
  hlo in[2] = {x, init}, args[2] = {init, init}, type = {.dtype = x.dtype};
  for (int i = 0; i < x.rank; i++) {
    bool reduced = false;
    for (int k = 0; k < n; k++) reduced |= dims[k] == i;
    if (!reduced) type.sizes[type.rank++] = x.sizes[i];
  }
  if (n == 0) return x;
  hlo r = hlo_begin(w, "stablehlo.reduce", in, 2, type);
  tnx_text_add(&w->text, " <{");
  hlo_add_array(w, "dimensions", dims, n);
  tnx_text_add(&w->text, "}>");
  hlo_region_begin(w, args, 2);
  hlo acc = hlo_bin(w, op, args[0], args[1]);
  hlo_region_end(w, &acc, 1);
  hlo_end(w, in, 2, &r, 1);
  return r;
}

hlo hlo_dot(hlo_writer *w, hlo x, hlo y, int n_batch, int x_contract, int y_contract, tnx_dtype result) {
  int64_t batch[HLO_MAX_RANK], xc = x_contract, yc = y_contract;
  hlo in[2] = {x, y}, type = {.dtype = (uint8_t)result};
  for (int i = 0; i < n_batch; i++) {
    batch[i] = i;
    type.sizes[type.rank++] = x.sizes[i];
  }
  for (int i = n_batch; i < x.rank; i++)
    if (i != x_contract) type.sizes[type.rank++] = x.sizes[i];
  for (int i = n_batch; i < y.rank; i++)
    if (i != y_contract) type.sizes[type.rank++] = y.sizes[i];
  hlo r = hlo_begin(w, "stablehlo.dot_general", in, 2, type);
  tnx_text_add(&w->text, " <{dot_dimension_numbers = #stablehlo.dot<");
  hlo_add_list(w, "lhs_batching_dimensions", batch, n_batch);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "rhs_batching_dimensions", batch, n_batch);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "lhs_contracting_dimensions", &xc, 1);
  tnx_text_add(&w->text, ", ");
  hlo_add_list(w, "rhs_contracting_dimensions", &yc, 1);
  tnx_text_add(&w->text, ">, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}>");
  hlo_end(w, in, 2, &r, 1);
  return r;
}
