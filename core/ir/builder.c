/* Builder: facts, leaves, pointwise operators and type promotion. */
#include "ir/builder.h"

#include <math.h>
#include <string.h>

#include "ir/builder_internal.h"

tnx_value tnx_b_fail(tnx_builder *b, tnx_status status, const char *fmt, ...) {
  if (b->status != TNX_OK) return 0;
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  b->status = tnx_fail(status, "%s", text);
  return 0;
}

tnx_value tnx_b_node(tnx_builder *b, tnx_op op, const tnx_value *in, uint32_t n_in, const tnx_dim *ints, uint32_t n_ints, const double *floats, uint32_t n_floats,
                     const tnx_type *types, uint32_t n_types) {
  if (b->status != TNX_OK) return 0;
  for (uint32_t i = 0; i < n_in; i++)
    if (in[i] == 0) return tnx_b_fail(b, TNX_INTERNAL, "%s: operand %u is missing", tnx_op_get_info(op)->name, i);
  tnx_value first = 0;
  b->status = tnx_graph_add(b->g, op, in, n_in, ints, n_ints, floats, n_floats, types, n_types, &first);
  if (b->status != TNX_OK) return 0;
  if (b->fault && tnx_op_get_info(op)->klass == TNX_CLASS_INDEX) b->g->nodes.data[b->g->values.data[first].node].fault = (uint8_t)b->fault;
  return first;
}

int tnx_b_wrap_dim(tnx_builder *b, int64_t dim, int rank) {
  int64_t n = rank ? rank : 1;
  if (dim < -n || dim >= n) {
    tnx_b_fail(b, TNX_INDEX, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)", (long long)-n, (long long)n - 1, (long long)dim);
    return 0;
  }
  return (int)(dim < 0 ? dim + n : dim);
}

tnx_dim tnx_b_dim(tnx_builder *b, tnx_dim_op op, tnx_dim x, tnx_dim y) {
  tnx_dim r = 0;
  if (b->status == TNX_OK) b->status = tnx_graph_dim(b->g, op, x, y, &r);
  return r;
}

tnx_dim tnx_b_numel(tnx_builder *b, tnx_value v) {
  tnx_dim n = 1;
  if (b->status != TNX_OK) return n;
  for (int i = 0; i < tnx_b_rank(b, v); i++) n = tnx_b_dim_mul(b, n, tnx_b_size(b, v, i));
  return n;
}

/* ---- leaves ---- */

static int64_t wrap_int(tnx_dtype t, int64_t v) {
  switch (t) {
    case TNX_BOOL: return v != 0;
    case TNX_U8: return (uint8_t)v;
    case TNX_I8: return (int8_t)v;
    case TNX_I16: return (int16_t)v;
    case TNX_U16: return (uint16_t)v;
    case TNX_I32: return (int32_t)v;
    case TNX_U32: return (uint32_t)v;
    default: return v;
  }
}

tnx_value tnx_b_const_i(tnx_builder *b, tnx_dtype t, int64_t v) {
  if (!tnx_dtype_is_integral(t)) return tnx_b_const_c(b, t, (double)v, 0);
  tnx_dim i = wrap_int(t, v);
  tnx_type type = {(uint8_t)t, 0, NULL};
  return tnx_b_node(b, TNX_OP_CONST, NULL, 0, &i, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_const_c(tnx_builder *b, tnx_dtype t, double re, double im) {
  if (tnx_dtype_is_integral(t)) return tnx_b_const_f(b, t, re);
  double f[2] = {re, im};
  tnx_type type = {(uint8_t)t, 0, NULL};
  return tnx_b_node(b, TNX_OP_CONST, NULL, 0, NULL, 0, f, 2, &type, 1);
}

tnx_value tnx_b_const_f(tnx_builder *b, tnx_dtype t, double v) {
  if (!tnx_dtype_is_integral(t)) return tnx_b_const_c(b, t, v, 0);
  if (t == TNX_BOOL) return tnx_b_const_i(b, t, v != 0);
  /* Out-of-range conversions give the lowest number, as the hardware's instruction does. */
  int64_t i = v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
  return tnx_b_const_i(b, t, i);
}

/* The C++ type that PyTorch's messages about numbers name. */
static const char *c_name(tnx_dtype t) {
  switch (t) {
    case TNX_F32: return "float";
    case TNX_F64: return "double";
    case TNX_F16: return "c10::Half";
    case TNX_BF16: return "c10::BFloat16";
    case TNX_I64: return "int64_t";
    case TNX_I32: return "int";
    case TNX_I16: return "int16_t";
    case TNX_I8: return "int8_t";
    case TNX_U8: return "uint8_t";
    default: return tnx_dtype_name(t);
  }
}

tnx_value tnx_b_scalar(tnx_builder *b, const tnx_arg *a, tnx_dtype t) {
  switch (a->kind) {
    case TNX_ARG_INT:
      if (tnx_dim_is_symbolic(a->dim)) return tnx_b_convert(b, tnx_b_dimval(b, a->dim), t);
      return tnx_b_const_i(b, t, a->dim);
    case TNX_ARG_BOOL: return tnx_b_const_i(b, t, a->dim);
    case TNX_ARG_FLOAT: return tnx_b_const_f(b, t, a->number[0]);
    case TNX_ARG_COMPLEX:
      if (a->number[1] != 0 && t != TNX_BOOL && !tnx_dtype_is_complex(t)) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "value cannot be converted to type %s without overflow", c_name(t));
      return tnx_b_const_c(b, t, a->number[0], a->number[1]);
    case TNX_ARG_TENSOR: return tnx_b_convert(b, a->value, t);
    default: return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "a number is expected");
  }
}

tnx_dtype tnx_b_scalar_dtype(const tnx_arg *a) {
  switch (a->kind) {
    case TNX_ARG_BOOL: return TNX_BOOL;
    case TNX_ARG_INT: return TNX_I64;
    case TNX_ARG_COMPLEX: return TNX_C64;
    default: return TNX_F32;
  }
}

tnx_value tnx_b_full(tnx_builder *b, tnx_value scalar, int rank, const tnx_dim *sizes) { return tnx_b_broadcast_to(b, scalar, rank, sizes); }

tnx_value tnx_b_iota(tnx_builder *b, int rank, const tnx_dim *sizes, int dim) {
  tnx_dim d = dim;
  tnx_type type = {TNX_I64, (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_IOTA, NULL, 0, &d, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_dimval(tnx_builder *b, tnx_dim d) {
  if (!tnx_dim_is_symbolic(d)) return tnx_b_const_i(b, TNX_I64, d);
  tnx_type type = {TNX_I64, 0, NULL};
  return tnx_b_node(b, TNX_OP_DIMVAL, NULL, 0, &d, 1, NULL, 0, &type, 1);
}

/* ---- constant folding ---- */

bool tnx_b_is_const(const tnx_builder *b, tnx_value v) { return v && tnx_graph_producer(b->g, v)->op == TNX_OP_CONST; }

/* The number of a real constant, or of a broadcast one. */
bool tnx_b_const_value(const tnx_builder *b, tnx_value v, double *out) {
  if (!v) return false;
  const tnx_node *n = tnx_graph_producer(b->g, v);
  if (n->op == TNX_OP_BROADCAST) n = tnx_graph_producer(b->g, n->inputs[0]);
  if (n->op != TNX_OP_CONST) return false;
  if (n->n_ints) {
    if (n->ints[0] > (INT64_C(1) << 53) || n->ints[0] < -(INT64_C(1) << 53)) return false;
    *out = (double)n->ints[0];
    return true;
  }
  *out = n->floats[0];
  return n->floats[1] == 0;
}

/* ---- pointwise ---- */

static tnx_value broadcast_source(tnx_builder *b, tnx_value x) {
  const tnx_node *n = tnx_graph_producer(b->g, x);
  return n->op == TNX_OP_BROADCAST ? n->inputs[0] : 0;
}

static tnx_value rebroadcast(tnx_builder *b, tnx_value inner, tnx_value like) {
  if (b->status != TNX_OK || !inner) return 0;
  const tnx_node *n = tnx_graph_producer(b->g, like);
  tnx_type type = {b->g->values.data[inner].dtype, (uint8_t)tnx_b_rank(b, like), tnx_b_sizes(b, like)};
  return tnx_b_node(b, TNX_OP_BROADCAST, &inner, 1, n->ints, n->n_ints, NULL, 0, &type, 1);
}

/* Does every value of `from` survive a trip through `to`? */
static bool holds(tnx_dtype to, tnx_dtype from) {
  if (to == from || from == TNX_BOOL) return true;
  if (tnx_dtype_is_float(from)) return (to == TNX_F64 || to == TNX_C128) ? true : (to == TNX_F32 || to == TNX_C64) ? from != TNX_F64 : false;
  if (tnx_dtype_is_integral(from) && tnx_dtype_is_integral(to)) {
    size_t f = tnx_dtype_size(from), t = tnx_dtype_size(to);
    bool uf = tnx_dtype_get_kind(from) == TNX_KIND_UINT, ut = tnx_dtype_get_kind(to) == TNX_KIND_UINT;
    return uf == ut ? t >= f && to != TNX_BOOL : uf && t > f;
  }
  return false;
}

tnx_value tnx_b_convert(tnx_builder *b, tnx_value x, tnx_dtype t) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_dtype from = tnx_b_dtype(b, x);
  if (from == t) return x;
  const tnx_node *n = tnx_graph_producer(b->g, x);
  if (n->op == TNX_OP_CONST) {
    if (n->n_ints) return tnx_b_const_i(b, t, n->ints[0]);
    if (!(tnx_dtype_is_integral(t) && !isfinite(n->floats[0]))) {
      if (t == TNX_BOOL) return tnx_b_const_i(b, t, n->floats[0] != 0 || n->floats[1] != 0);
      return tnx_b_const_c(b, t, n->floats[0], n->floats[1]);
    }
  }
  if (n->op == TNX_OP_BROADCAST) return rebroadcast(b, tnx_b_convert(b, n->inputs[0], t), x);
  /* a widening conversion in between changes nothing */
  if (n->op == TNX_OP_CONVERT && holds(from, tnx_b_dtype(b, n->inputs[0]))) return tnx_b_convert(b, n->inputs[0], t);
  tnx_type type = {(uint8_t)t, (uint8_t)tnx_b_rank(b, x), tnx_b_sizes(b, x)};
  return tnx_b_node(b, TNX_OP_CONVERT, &x, 1, NULL, 0, NULL, 0, &type, 1);
}

static tnx_dtype unary_dtype(tnx_op op, tnx_dtype t) {
  switch (op) {
    case TNX_OP_ISNAN:
    case TNX_OP_ISFINITE: return TNX_BOOL;
    case TNX_OP_ABS:
    case TNX_OP_REAL:
    case TNX_OP_IMAG: return tnx_dtype_real(t);
    default: return t;
  }
}

tnx_value tnx_b_unary(tnx_builder *b, tnx_op op, tnx_value x) {
  if (b->status != TNX_OK || !x) return 0;
  if (broadcast_source(b, x)) return rebroadcast(b, tnx_b_unary(b, op, broadcast_source(b, x)), x);
  const tnx_node *n = tnx_graph_producer(b->g, x);
  if (op == TNX_OP_NEG && n->op == TNX_OP_CONST) {
    if (n->n_ints) return tnx_b_const_i(b, tnx_b_dtype(b, x), (int64_t)(0 - (uint64_t)n->ints[0]));
    return tnx_b_const_c(b, tnx_b_dtype(b, x), -n->floats[0], -n->floats[1]);
  }
  tnx_dtype t = tnx_b_dtype(b, x);
  /* identities */
  if (tnx_dtype_is_integral(t) && (op == TNX_OP_CEIL || op == TNX_OP_FLOOR || op == TNX_OP_TRUNC || op == TNX_OP_ROUND)) return x;
  if ((op == TNX_OP_CONJ || op == TNX_OP_REAL) && !tnx_dtype_is_complex(t)) return x;
  if (tnx_dtype_is_integral(t) && op == TNX_OP_ISNAN) return tnx_b_full(b, tnx_b_const_i(b, TNX_BOOL, 0), tnx_b_rank(b, x), tnx_b_sizes(b, x));
  if (tnx_dtype_is_integral(t) && op == TNX_OP_ISFINITE) return tnx_b_full(b, tnx_b_const_i(b, TNX_BOOL, 1), tnx_b_rank(b, x), tnx_b_sizes(b, x));
  tnx_type type = {(uint8_t)unary_dtype(op, t), (uint8_t)tnx_b_rank(b, x), tnx_b_sizes(b, x)};
  return tnx_b_node(b, op, &x, 1, NULL, 0, NULL, 0, &type, 1);
}

static tnx_dtype binary_dtype(tnx_op op, tnx_dtype t) {
  switch (op) {
    case TNX_OP_EQ: case TNX_OP_NE: case TNX_OP_LT: case TNX_OP_LE: case TNX_OP_GT: case TNX_OP_GE: return TNX_BOOL;
    case TNX_OP_COMPLEX: return t == TNX_F64 ? TNX_C128 : TNX_C64;
    default: return t;
  }
}

/* The broadcast common shape; both operands brought to it. */
static int common_shape(tnx_builder *b, tnx_value *x, tnx_value *y, tnx_dim *sizes) {
  int rank = tnx_b_broadcast_shape(b, tnx_b_rank(b, *x), tnx_b_sizes(b, *x), tnx_b_rank(b, *y), tnx_b_sizes(b, *y), sizes);
  if (rank < 0) return -1;
  *x = tnx_b_broadcast_to(b, *x, rank, sizes);
  *y = tnx_b_broadcast_to(b, *y, rank, sizes);
  return b->status == TNX_OK ? rank : -1;
}

static bool same_shape(const tnx_builder *b, tnx_value x, tnx_value y) {
  int r = tnx_b_rank(b, x);
  return r == tnx_b_rank(b, y) && (r == 0 || memcmp(tnx_b_sizes(b, x), tnx_b_sizes(b, y), (size_t)r * sizeof(tnx_dim)) == 0);
}

/* An integer constant that a double holds exactly. */
static bool exact_const(const tnx_builder *b, tnx_value v, double *out) {
  return tnx_dtype_is_integral(tnx_b_dtype(b, v)) && tnx_b_const_value(b, v, out) && fabs(*out) < 0x1p53;
}

static bool compared(tnx_op op, double x, double y) {
  switch (op) {
    case TNX_OP_EQ: return x == y;
    case TNX_OP_NE: return x != y;
    case TNX_OP_LT: return x < y;
    case TNX_OP_LE: return x <= y;
    case TNX_OP_GT: return x > y;
    default: return x >= y;
  }
}

tnx_value tnx_b_binary(tnx_builder *b, tnx_op op, tnx_value x, tnx_value y) {
  if (b->status != TNX_OK || !x || !y) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (t != tnx_b_dtype(b, y)) return tnx_b_fail(b, TNX_DTYPE, "%s of %s and %s", tnx_op_get_info(op)->name, tnx_dtype_name(t), tnx_dtype_name(tnx_b_dtype(b, y)));
  double c;
  if (!tnx_dtype_is_complex(t) && tnx_b_const_value(b, y, &c)) {
    /* x + 0 is not x for x = -0, so only the exact identities */
    bool identity = (op == TNX_OP_MUL && c == 1) || (op == TNX_OP_DIV && c == 1) || (op == TNX_OP_SUB && c == 0 && !signbit(c)) ||
                    (op == TNX_OP_ADD && c == 0 && (signbit(c) || tnx_dtype_is_integral(t)));
    tnx_dim sizes[TNX_MAX_RANK];
    if (identity) {
      int rank = tnx_b_broadcast_shape(b, tnx_b_rank(b, x), tnx_b_sizes(b, x), tnx_b_rank(b, y), tnx_b_sizes(b, y), sizes);
      return rank < 0 ? 0 : tnx_b_broadcast_to(b, x, rank, sizes);
    }
  }
  tnx_dim sizes[TNX_MAX_RANK];
  /* both constant along everything: compute once, then broadcast */
  tnx_value bx = broadcast_source(b, x), by = broadcast_source(b, y);
  if (bx && by && tnx_b_rank(b, bx) == 0 && tnx_b_rank(b, by) == 0 && same_shape(b, x, y)) return rebroadcast(b, tnx_b_binary(b, op, bx, by), x);
  double cx, cy;
  if (op >= TNX_OP_EQ && op <= TNX_OP_GE && tnx_b_rank(b, x) == 0 && tnx_b_rank(b, y) == 0 && exact_const(b, x, &cx) && exact_const(b, y, &cy)) return tnx_b_const_i(b, TNX_BOOL, compared(op, cx, cy));
  int rank = common_shape(b, &x, &y, sizes);
  if (rank < 0) return 0;
  tnx_value in[2] = {x, y};
  tnx_type type = {(uint8_t)binary_dtype(op, t), (uint8_t)rank, sizes};
  return tnx_b_node(b, op, in, 2, NULL, 0, NULL, 0, &type, 1);
}

tnx_value tnx_b_binary_f(tnx_builder *b, tnx_op op, tnx_value x, double y) {
  if (b->status != TNX_OK || !x) return 0;
  return tnx_b_binary(b, op, x, tnx_b_const_f(b, tnx_b_dtype(b, x), y));
}

tnx_value tnx_b_select(tnx_builder *b, tnx_value pred, tnx_value x, tnx_value y) {
  if (b->status != TNX_OK || !pred || !x || !y) return 0;
  if (tnx_b_dtype(b, pred) != TNX_BOOL) return tnx_b_fail(b, TNX_DTYPE, "a condition of dtype %s", tnx_dtype_name(tnx_b_dtype(b, pred)));
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, y)) return tnx_b_fail(b, TNX_DTYPE, "select of %s and %s", tnx_dtype_name(tnx_b_dtype(b, x)), tnx_dtype_name(tnx_b_dtype(b, y)));
  tnx_dim sizes[TNX_MAX_RANK];
  if (common_shape(b, &x, &y, sizes) < 0 || common_shape(b, &pred, &x, sizes) < 0) return 0;
  int rank = common_shape(b, &pred, &y, sizes);
  if (rank < 0) return 0;
  double c;
  if (tnx_b_const_value(b, pred, &c)) return c != 0 ? x : y;
  if (x == y) return x;
  tnx_value in[3] = {pred, x, y};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_SELECT, in, 3, NULL, 0, NULL, 0, &type, 1);
}

tnx_value tnx_b_check(tnx_builder *b, tnx_value x, tnx_value ok, tnx_fault fault) {
  if (b->status != TNX_OK || !x || !ok) return 0;
  double c;
  if (tnx_b_const_value(b, ok, &c) && c != 0) return x;
  tnx_dim number = fault;
  tnx_value in[2] = {x, tnx_b_broadcast_to(b, ok, tnx_b_rank(b, x), tnx_b_sizes(b, x))};
  tnx_type type = {(uint8_t)tnx_b_dtype(b, x), (uint8_t)tnx_b_rank(b, x), tnx_b_sizes(b, x)};
  return tnx_b_node(b, TNX_OP_CHECK, in, 2, &number, 1, NULL, 0, &type, 1);
}

tnx_value tnx_b_philox(tnx_builder *b, tnx_value seed, tnx_value offset, tnx_value index) {
  if (b->status != TNX_OK || !seed || !offset || !index) return 0;
  int rank = tnx_b_rank(b, index);
  const tnx_dim *sizes = tnx_b_sizes(b, index);
  tnx_value in[3] = {tnx_b_broadcast_to(b, seed, rank, sizes), tnx_b_broadcast_to(b, offset, rank, sizes), index};
  tnx_type type = {TNX_I64, (uint8_t)rank, sizes};
  return tnx_b_node(b, TNX_OP_PHILOX, in, 3, NULL, 0, NULL, 0, &type, 1);
}

/* ---- promotion ---- */

static tnx_dtype merge(tnx_dtype a, tnx_dtype t) { return a == TNX_DTYPE_NONE ? t : t == TNX_DTYPE_NONE ? a : tnx_dtype_promote(a, t); }

/* A category of higher rank decides, unless the lower one is of a higher kind (torch's documented promotion rules). */
static tnx_dtype prefer(tnx_dtype high, tnx_dtype low) {
  if (high == TNX_DTYPE_NONE) return low;
  if (low == TNX_DTYPE_NONE || tnx_dtype_is_complex(high)) return high;
  if (tnx_dtype_is_float(high)) return tnx_dtype_is_complex(low) ? (high == TNX_F64 ? TNX_C128 : TNX_C64) : high;
  if (high == TNX_BOOL || tnx_dtype_is_float(low) || tnx_dtype_is_complex(low)) return tnx_dtype_promote(high, low);
  return high;
}

tnx_dtype tnx_b_result_type(tnx_builder *b, const tnx_value *xs, int n) {
  tnx_dtype dim = TNX_DTYPE_NONE, zero = TNX_DTYPE_NONE, number = TNX_DTYPE_NONE;
  for (int i = 0; i < n; i++) {
    if (!xs[i]) continue;
    const tnx_value_data *v = tnx_graph_value(b->g, xs[i]);
    tnx_dtype t = (tnx_dtype)v->dtype;
    if (v->flags & TNX_VALUE_WRAPPED) {
      if (tnx_dtype_is_complex(t)) t = b->default_dtype == TNX_F64 ? TNX_C128 : TNX_C64;
      else if (tnx_dtype_is_float(t)) t = b->default_dtype;
      number = merge(number, t);
    } else if (v->rank == 0) {
      zero = merge(zero, t);
    } else {
      dim = merge(dim, t);
    }
  }
  tnx_dtype r = prefer(dim, prefer(zero, number));
  return r == TNX_DTYPE_NONE ? b->default_dtype : r;
}
