/* The rules a graph keeps, one function per operator class: the executable form of ops/ops.def.
 *
 * Sizes are compared as far as they are known: two constants must be equal; a symbol is never equal to a constant below its minimum; whether two
 * different expressions have the same value is decided by the guards of whoever built the graph, and is not checked here. Values carry no
 * pointers to follow, so a graph read from a text may be checked before anything else looks at it. */
#include <string.h>

#include "ir/linalg_shapes.h"
#include "ir/text.h"
#include "ops/checks.h"
#include "ops/faults.h"

typedef struct check {
  const tnx_graph *g;
  const tnx_node *n;
  uint32_t id;
  const char *why; /* the first broken rule */
} check;

#define REQUIRE(cond, text)         \
  do {                              \
    if (!(cond)) {                  \
      c->why = (text);              \
      return;                       \
    }                               \
  } while (0)

static const tnx_value_data *in(const check *c, uint32_t i) { return &c->g->values.data[c->n->inputs[i]]; }
static const tnx_value_data *out(const check *c, uint32_t i) { return &c->g->values.data[c->n->first + i]; }

static bool is_float(uint8_t t) { return tnx_dtype_is_float((tnx_dtype)t); }
static bool is_index(uint8_t t) { return t == TNX_I64 || t == TNX_I32; }
static bool constant(tnx_dim d) { return !tnx_dim_is_symbolic(d); }

static bool may_equal(const tnx_graph *g, tnx_dim a, tnx_dim b) {
  if (a == b) return true;
  bool ca = constant(a), cb = constant(b);
  if (ca && cb) return false;
  if (!ca && !cb) return true;
  const tnx_expr *e = &g->exprs.data[(uint32_t)((ca ? b : a) - TNX_DIM_SYMBOLIC)];
  return e->op != TNX_EXPR_SYMBOL || (ca ? a : b) >= g->symbols.data[e->a].min;
}
static bool same(const check *c, tnx_dim a, tnx_dim b) { return may_equal(c->g, a, b); }
static bool same_shape(const check *c, const tnx_value_data *a, const tnx_value_data *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (!same(c, a->sizes[i], b->sizes[i])) return false;
  return true;
}
/* Equal but for one dimension. */
static bool same_but(const check *c, const tnx_value_data *a, const tnx_value_data *b, int64_t dim) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (i != dim && !same(c, a->sizes[i], b->sizes[i])) return false;
  return true;
}
static bool is_dim(tnx_dim d, int rank) { return d >= 0 && d < rank; }
/* n distinct dimensions of a value of this rank. */
static bool are_dims(const tnx_dim *d, uint32_t n, int rank) {
  uint32_t seen = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!is_dim(d[i], rank) || (seen >> d[i] & 1)) return false;
    seen |= 1u << d[i];
  }
  return true;
}
/* The product of the sizes; false where it is symbolic or overflows. */
static bool numel(const tnx_value_data *v, int64_t *out_n) {
  *out_n = 1;
  bool known = true;
  for (int i = 0; i < v->rank; i++) {
    if (v->sizes[i] == 0) {
      *out_n = 0;
      return true;
    }
    known = known && constant(v->sizes[i]) && !__builtin_mul_overflow(*out_n, v->sizes[i], out_n);
  }
  return known;
}
static bool valid_size(const tnx_graph *g, tnx_dim d) { return constant(d) ? d >= 0 : (uint64_t)(d - TNX_DIM_SYMBOLIC) < g->exprs.len && d != TNX_DIM_SYMBOLIC; }
static bool valid_dim(const tnx_graph *g, tnx_dim d) { return constant(d) || valid_size(g, d); }

/* ---- leaves ---- */

static bool fits_int(uint8_t t, int64_t v) {
  switch (t) {
    case TNX_BOOL: return v == 0 || v == 1;
    case TNX_U8: return v >= 0 && v <= UINT8_MAX;
    case TNX_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case TNX_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case TNX_U16: return v >= 0 && v <= UINT16_MAX;
    case TNX_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case TNX_U32: return v >= 0 && v <= UINT32_MAX;
    default: return true; /* uint64 by its bits */
  }
}

static void check_leaf(check *c) {
  const tnx_node *n = c->n;
  const tnx_value_data *r = out(c, 0);
  switch (n->op) {
    case TNX_OP_INPUT:
      REQUIRE(n->n_ints == 1 && n->n_floats == 0 && n->ints[0] >= 0 && n->ints[0] < (int64_t)c->g->inputs.len, "an input needs its number");
      REQUIRE(c->g->inputs.data[n->ints[0]].value == n->first, "the table of inputs names another value");
      REQUIRE(!(r->flags & TNX_VALUE_HOST) || r->rank == 0, "a host input has no dimensions");
      break;
    case TNX_OP_CONST:
      REQUIRE(r->rank == 0, "a constant has no dimensions");
      if (tnx_dtype_is_integral((tnx_dtype)r->dtype)) {
        REQUIRE(n->n_ints == 1 && n->n_floats == 0, "an integer constant has one int");
        REQUIRE(fits_int(r->dtype, n->ints[0]), "the constant does not fit its dtype");
      } else {
        REQUIRE(n->n_ints == 0 && n->n_floats == 2, "a constant has two floats");
        REQUIRE(tnx_dtype_is_complex((tnx_dtype)r->dtype) || n->floats[1] == 0, "a real constant has an imaginary part");
      }
      break;
    case TNX_OP_IOTA:
      REQUIRE(n->n_ints == 1 && is_dim(n->ints[0], r->rank), "iota needs a dimension of its result");
      REQUIRE(r->dtype == TNX_I64, "iota gives int64");
      break;
    case TNX_OP_DIMVAL:
      REQUIRE(n->n_ints == 1 && valid_dim(c->g, n->ints[0]), "DIMVAL needs a size");
      REQUIRE(r->dtype == TNX_I64 && r->rank == 0, "DIMVAL gives an int64 number");
      break;
    default: c->why = "an unknown leaf";
  }
}

/* ---- pointwise ---- */

/* operand dtypes (f floats, i integers, b bool, c complex) and the result's dtype (s the operand's, b bool, r the real one, c the complex one) */
static const struct { const char *types; char result; } pointwise[TNX_OP_COUNT] = {
    [TNX_OP_CONVERT] = {"fibc", '*'},
    [TNX_OP_NEG] = {"fic", 's'},    [TNX_OP_ABS] = {"fic", 'r'},     [TNX_OP_SIGN] = {"fi", 's'},    [TNX_OP_CEIL] = {"f", 's'},
    [TNX_OP_FLOOR] = {"f", 's'},    [TNX_OP_TRUNC] = {"f", 's'},     [TNX_OP_ROUND] = {"f", 's'},    [TNX_OP_SQRT] = {"fc", 's'},
    [TNX_OP_RSQRT] = {"f", 's'},    [TNX_OP_EXP] = {"fc", 's'},      [TNX_OP_EXP2] = {"f", 's'},     [TNX_OP_EXPM1] = {"fc", 's'},
    [TNX_OP_LOG] = {"fc", 's'},     [TNX_OP_LOG2] = {"f", 's'},      [TNX_OP_LOG10] = {"f", 's'},    [TNX_OP_LOG1P] = {"fc", 's'},
    [TNX_OP_SIN] = {"fc", 's'},     [TNX_OP_COS] = {"fc", 's'},      [TNX_OP_TAN] = {"fc", 's'},      [TNX_OP_ASIN] = {"fc", 's'},
    [TNX_OP_ACOS] = {"fc", 's'},     [TNX_OP_ATAN] = {"fc", 's'},      [TNX_OP_SINH] = {"fc", 's'},     [TNX_OP_COSH] = {"fc", 's'},
    [TNX_OP_TANH] = {"fc", 's'},    [TNX_OP_ASINH] = {"fc", 's'},     [TNX_OP_ACOSH] = {"fc", 's'},    [TNX_OP_ATANH] = {"fc", 's'},
    [TNX_OP_ERF] = {"f", 's'},      [TNX_OP_ERFC] = {"f", 's'},      [TNX_OP_ERFINV] = {"f", 's'},   [TNX_OP_LGAMMA] = {"f", 's'},
    [TNX_OP_DIGAMMA] = {"f", 's'},  [TNX_OP_SIGMOID] = {"f", 's'},   [TNX_OP_NOT] = {"ib", 's'},     [TNX_OP_ISNAN] = {"fc", 'b'},
    [TNX_OP_ISFINITE] = {"fc", 'b'}, [TNX_OP_REAL] = {"c", 'r'},     [TNX_OP_IMAG] = {"c", 'r'},     [TNX_OP_CONJ] = {"c", 's'},
    [TNX_OP_ADD] = {"fic", 's'},    [TNX_OP_SUB] = {"fic", 's'},     [TNX_OP_MUL] = {"fic", 's'},    [TNX_OP_DIV] = {"fic", 's'},
    [TNX_OP_FMOD] = {"fi", 's'},    [TNX_OP_REMAINDER] = {"fi", 's'}, [TNX_OP_FLOORDIV] = {"fi", 's'}, [TNX_OP_POW] = {"fic", 's'},
    [TNX_OP_ATAN2] = {"f", 's'},    [TNX_OP_HYPOT] = {"f", 's'},     [TNX_OP_NEXTAFTER] = {"f", 's'}, [TNX_OP_COPYSIGN] = {"f", 's'},
    [TNX_OP_MAX] = {"fib", 's'},    [TNX_OP_MIN] = {"fib", 's'},     [TNX_OP_FMAX] = {"f", 's'},     [TNX_OP_FMIN] = {"f", 's'},
    [TNX_OP_AND] = {"ib", 's'},     [TNX_OP_OR] = {"ib", 's'},       [TNX_OP_XOR] = {"ib", 's'},     [TNX_OP_SHL] = {"i", 's'},
    [TNX_OP_SHR] = {"i", 's'},      [TNX_OP_EQ] = {"fibc", 'b'},     [TNX_OP_NE] = {"fibc", 'b'},    [TNX_OP_LT] = {"fib", 'b'},
    [TNX_OP_LE] = {"fib", 'b'},     [TNX_OP_GT] = {"fib", 'b'},      [TNX_OP_GE] = {"fib", 'b'},     [TNX_OP_COMPLEX] = {"f", 'c'},
    [TNX_OP_BESSEL_I0] = {"f", 's'}, [TNX_OP_BESSEL_I0E] = {"f", 's'}, [TNX_OP_BESSEL_I1] = {"f", 's'}, [TNX_OP_BESSEL_I1E] = {"f", 's'},
    [TNX_OP_BESSEL_K0] = {"f", 's'}, [TNX_OP_BESSEL_K0E] = {"f", 's'}, [TNX_OP_BESSEL_K1] = {"f", 's'}, [TNX_OP_BESSEL_K1E] = {"f", 's'},
    [TNX_OP_BESSEL_Y0] = {"f", 's'}, [TNX_OP_BESSEL_Y1] = {"f", 's'}, [TNX_OP_AIRY_AI] = {"f", 's'}, [TNX_OP_ERFCX] = {"f", 's'},
    [TNX_OP_NDTRI] = {"f", 's'}, [TNX_OP_LOG_NDTR] = {"f", 's'}, [TNX_OP_BESSEL_J0] = {"f", 's'}, [TNX_OP_BESSEL_J1] = {"f", 's'},
    [TNX_OP_MANTISSA] = {"f", 's'}, [TNX_OP_EXPONENT] = {"f", 's'}, [TNX_OP_ZETA] = {"f", 's'}, [TNX_OP_IGAMMA] = {"f", 's'},
    [TNX_OP_IGAMMAC] = {"f", 's'}, [TNX_OP_CHEBYSHEV_T] = {"f", 's'}, [TNX_OP_CHEBYSHEV_U] = {"f", 's'}, [TNX_OP_CHEBYSHEV_V] = {"f", 's'},
    [TNX_OP_CHEBYSHEV_W] = {"f", 's'}, [TNX_OP_HERMITE_H] = {"f", 's'}, [TNX_OP_HERMITE_HE] = {"f", 's'}, [TNX_OP_LAGUERRE] = {"f", 's'},
    [TNX_OP_LEGENDRE] = {"f", 's'}, [TNX_OP_GCD] = {"i", 's'}, [TNX_OP_LCM] = {"i", 's'},
    [TNX_OP_SAMPLE_GAMMA] = {"f", 's'}, [TNX_OP_SAMPLE_POISSON] = {"f", 's'}, [TNX_OP_SAMPLE_GAMMA_GRAD] = {"f", 's'},
    [TNX_OP_SELECT] = {"fibc", 's'}, [TNX_OP_CHECK] = {"fibc", 's'}, [TNX_OP_PHILOX] = {"i", 's'},
};

static char kind_letter(uint8_t t) {
  switch (tnx_dtype_get_kind((tnx_dtype)t)) {
    case TNX_KIND_BOOL: return 'b';
    case TNX_KIND_UINT:
    case TNX_KIND_INT: return 'i';
    case TNX_KIND_FLOAT: return 'f';
    default: return 'c';
  }
}

static void check_pointwise(check *c) {
  const tnx_node *n = c->n;
  const tnx_value_data *r = out(c, 0);
  bool checks = n->op == TNX_OP_CHECK;
  REQUIRE(n->n_ints == checks && n->n_floats == 0, "a pointwise operator has no attributes but the fault of CHECK");
  if (checks) REQUIRE(in(c, 1)->dtype == TNX_BOOL && n->ints[0] > TNX_FAULT_NONE && n->ints[0] < TNX_FAULT_COUNT, "a condition and a fault");
  for (uint32_t i = 0; i < n->n_inputs; i++) REQUIRE(same_shape(c, in(c, i), r), "operands and result have one shape");
  uint32_t first = n->op == TNX_OP_SELECT;
  if (first) REQUIRE(in(c, 0)->dtype == TNX_BOOL, "the predicate is bool");
  uint8_t t = in(c, first)->dtype;
  for (uint32_t i = first + 1; i < n->n_inputs && !checks; i++) REQUIRE(in(c, i)->dtype == t, "operands have one dtype");
  REQUIRE(pointwise[n->op].types && strchr(pointwise[n->op].types, kind_letter(t)), "the operator is not defined for the dtype");
  if (n->op == TNX_OP_PHILOX) REQUIRE(t == TNX_I64, "PHILOX works on int64");
  if (n->op == TNX_OP_COMPLEX) REQUIRE(t == TNX_F32 || t == TNX_F64, "complex numbers have float32 or float64 parts");
  uint8_t want = t;
  switch (pointwise[n->op].result) {
    case 'b': want = TNX_BOOL; break;
    case 'r': want = (uint8_t)tnx_dtype_real((tnx_dtype)t); break;
    case 'c': want = t == TNX_F64 ? TNX_C128 : TNX_C64; break;
    case '*': want = r->dtype; break;
    default: break;
  }
  REQUIRE(r->dtype == want, "the result has another dtype");
}

/* ---- views and data movement ---- */

/* start + (len - 1) * step lies inside a dimension of this size, as far as all of them are known. */
static bool range_fits(tnx_dim start, tnx_dim len, tnx_dim step, tnx_dim size) {
  if (!constant(start) || !constant(len) || !constant(size)) return true;
  int64_t last;
  if (len == 0) return start <= size;
  return !__builtin_mul_overflow(len - 1, step, &last) && !__builtin_add_overflow(last, start, &last) && last < size;
}

static bool diagonal_shape(const check *c, const tnx_value_data *x, const tnx_value_data *r) {
  const tnx_dim *a = c->n->ints;
  if (c->n->n_ints != 3 || !constant(a[0]) || !are_dims(a + 1, 2, x->rank) || r->rank != x->rank - 1) return false;
  int k = 0;
  for (int i = 0; i < x->rank; i++)
    if (i != a[1] && i != a[2] && !same(c, r->sizes[k++], x->sizes[i])) return false;
  tnx_dim rows = x->sizes[a[1]], cols = x->sizes[a[2]], len = r->sizes[k];
  if (!constant(rows) || !constant(cols) || !constant(len)) return true;
  int64_t m;
  if (a[0] >= 0) m = __builtin_sub_overflow(cols, a[0], &m) ? 0 : rows < m ? rows : m;
  else m = __builtin_add_overflow(rows, a[0], &m) ? 0 : cols < m ? cols : m;
  return len == (m > 0 ? m : 0);
}

/* Known sizes of the index stay within x's, apart from dimension dim. */
static bool covers(const tnx_value_data *x, const tnx_value_data *index, tnx_dim dim) {
  for (int d = 0; d < x->rank; d++)
    if (d != dim && !tnx_dim_is_symbolic(index->sizes[d]) && !tnx_dim_is_symbolic(x->sizes[d]) && index->sizes[d] > x->sizes[d]) return false;
  return true;
}

/* Every element as_strided(v's sizes, strides, offset) touches lies inside `total` elements. */
static bool strided_fits(const check *c, const tnx_value_data *v, const tnx_value_data *whole) {
  const tnx_dim *a = c->n->ints;
  int64_t total, low, high;
  if (c->n->n_ints != (uint32_t)v->rank + 1) return false;
  if (!numel(whole, &total)) return true;
  if (!constant(a[0])) return true;
  low = high = a[0];
  for (int i = 0; i < v->rank; i++) {
    int64_t span;
    if (!constant(v->sizes[i]) || !constant(a[i + 1])) return true;
    if (v->sizes[i] == 0) return true;
    if (__builtin_mul_overflow(v->sizes[i] - 1, a[i + 1], &span)) return false;
    if (span < 0 ? __builtin_add_overflow(low, span, &low) : __builtin_add_overflow(high, span, &high)) return false;
  }
  return low >= 0 && high < total;
}

static void check_view(check *c) {
  const tnx_node *n = c->n;
  const tnx_dim *a = n->ints;
  const tnx_value_data *x = in(c, 0), *r = out(c, 0);
  int64_t nx, nr;
  REQUIRE(n->n_floats == 0, "a view has no floats");
  REQUIRE(r->dtype == x->dtype, "a view keeps the dtype");
  switch (n->op) {
    case TNX_OP_BROADCAST:
      REQUIRE(n->n_ints == x->rank, "one result dimension for each operand dimension");
      for (int i = 0; i < x->rank; i++) {
        REQUIRE(is_dim(a[i], r->rank) && (i == 0 || a[i] > a[i - 1]), "the dimensions rise");
        REQUIRE(x->sizes[i] == 1 || same(c, x->sizes[i], r->sizes[a[i]]), "only sizes 1 are repeated");
      }
      break;
    case TNX_OP_RESHAPE:
      REQUIRE(n->n_ints == 0, "reshape has no attributes");
      REQUIRE(!numel(x, &nx) || !numel(r, &nr) || nx == nr, "a reshape keeps the number of elements");
      break;
    case TNX_OP_TRANSPOSE:
      REQUIRE(n->n_ints == x->rank && r->rank == x->rank && are_dims(a, n->n_ints, x->rank), "a permutation of the dimensions");
      for (int i = 0; i < x->rank; i++) REQUIRE(same(c, r->sizes[i], x->sizes[a[i]]), "result dimension i is operand dimension ints[i]");
      break;
    case TNX_OP_SLICE:
      REQUIRE(n->n_ints == 3 && is_dim(a[0], x->rank), "dimension, start and step");
      REQUIRE(constant(a[2]) && a[2] >= 1 && (!constant(a[1]) || a[1] >= 0), "start is not negative, step is positive");
      REQUIRE(same_but(c, x, r, a[0]), "a slice changes one dimension");
      REQUIRE(range_fits(a[1], r->sizes[a[0]], a[2], x->sizes[a[0]]), "the slice leaves its operand");
      break;
    case TNX_OP_REVERSE:
      REQUIRE(are_dims(a, n->n_ints, x->rank), "distinct dimensions");
      REQUIRE(same_shape(c, x, r), "the shape stays");
      break;
    case TNX_OP_DIAGONAL: REQUIRE(diagonal_shape(c, x, r), "not the shape of this diagonal"); break;
    case TNX_OP_STRIDED: REQUIRE(strided_fits(c, r, x), "the strides leave the operand, or their number is wrong"); break;
    case TNX_OP_UNFOLD: {
      REQUIRE(n->n_ints == 3 && is_dim(a[0], x->rank) && constant(a[1]) && constant(a[2]) && a[1] >= 0 && a[2] >= 1, "dimension, size and step");
      REQUIRE(r->rank == x->rank + 1 && r->sizes[x->rank] == a[1], "the windows become the last dimension");
      for (int i = 0; i < x->rank; i++) REQUIRE(i == a[0] || same(c, r->sizes[i], x->sizes[i]), "other dimensions stay");
      tnx_dim size = x->sizes[a[0]];
      if (constant(size)) {
        REQUIRE(a[1] <= size, "the window is larger than its dimension");
        REQUIRE(same(c, r->sizes[a[0]], (size - a[1]) / a[2] + 1), "another number of windows");
      }
      break;
    }
    default: c->why = "an unknown view";
  }
}

static void check_data(check *c) {
  const tnx_node *n = c->n;
  const tnx_dim *a = n->ints;
  const tnx_value_data *r = out(c, 0);
  REQUIRE(n->n_floats == 0, "no floats here");
  REQUIRE(n->n_inputs >= 1, "an operand is needed");
  for (uint32_t i = 0; i < n->n_inputs; i++) REQUIRE(in(c, i)->dtype == r->dtype, "operands and result have one dtype");
  switch (n->op) {
    case TNX_OP_CONCAT: {
      REQUIRE(n->n_ints == 1 && is_dim(a[0], r->rank), "concat needs a dimension");
      int64_t total = 0;
      for (uint32_t i = 0; i < n->n_inputs; i++) {
        REQUIRE(same_but(c, in(c, i), r, a[0]), "operands differ in one dimension only");
        tnx_dim d = in(c, i)->sizes[a[0]];
        if (total >= 0 && (!constant(d) || __builtin_add_overflow(total, d, &total))) total = -1;
      }
      REQUIRE(total < 0 || same(c, total, r->sizes[a[0]]), "the result's size is the sum of the operands'");
      break;
    }
    case TNX_OP_PAD:
      REQUIRE(n->n_ints == r->rank && in(c, 0)->rank == r->rank, "one low padding for each dimension");
      REQUIRE(in(c, 1)->rank == 0, "the padding value is a number");
      break;
    case TNX_OP_UPDATE_SLICE:
      REQUIRE(n->n_ints == 3 && is_dim(a[0], r->rank), "dimension, start and step");
      REQUIRE(constant(a[2]) && a[2] >= 1 && (!constant(a[1]) || a[1] >= 0), "start is not negative, step is positive");
      REQUIRE(same_shape(c, in(c, 0), r), "the result has the base's shape");
      REQUIRE(same_but(c, in(c, 1), r, a[0]), "the update differs from its base in one dimension only");
      REQUIRE(range_fits(a[1], in(c, 1)->sizes[a[0]], a[2], r->sizes[a[0]]), "the update leaves its base");
      break;
    case TNX_OP_UPDATE_STRIDED:
      REQUIRE(same_shape(c, in(c, 0), r), "the result has the base's shape");
      REQUIRE(strided_fits(c, in(c, 1), r), "the strides leave the base, or their number is wrong");
      break;
    case TNX_OP_UPDATE_DIAGONAL:
      REQUIRE(same_shape(c, in(c, 0), r), "the result has the base's shape");
      REQUIRE(diagonal_shape(c, r, in(c, 1)), "the update does not have the diagonal's shape");
      break;
    default: c->why = "an unknown operator that moves data";
  }
}

/* ---- reductions and scans ---- */

static void check_reduce(check *c) {
  const tnx_node *n = c->n;
  const tnx_value_data *x = in(c, 0), *r = out(c, 0);
  bool index = n->op == TNX_OP_ARGMAX || n->op == TNX_OP_ARGMIN, order = index || n->op == TNX_OP_REDUCE_MAX || n->op == TNX_OP_REDUCE_MIN;
  REQUIRE(n->n_floats == 0 && are_dims(n->ints, n->n_ints, x->rank), "distinct dimensions of the operand");
  REQUIRE(r->dtype == (index ? TNX_I64 : x->dtype), index ? "positions are int64" : "a reduction keeps the dtype");
  REQUIRE(order ? !tnx_dtype_is_complex((tnx_dtype)x->dtype) : x->dtype != TNX_BOOL, "the reduction is not defined for the dtype");
  REQUIRE(r->rank == x->rank, "reduced dimensions are kept with size 1");
  for (int i = 0; i < x->rank; i++) {
    bool reduced = false;
    for (uint32_t k = 0; k < n->n_ints; k++) reduced |= n->ints[k] == i;
    REQUIRE(reduced ? r->sizes[i] == 1 : same(c, r->sizes[i], x->sizes[i]), "reduced dimensions have size 1, the others stay");
    REQUIRE(!(reduced && order) || x->dtype == TNX_BOOL || x->sizes[i] != 0, "an empty dimension has no largest element");
  }
}

static void check_scan(check *c) {
  const tnx_node *n = c->n;
  const tnx_dim *a = n->ints;
  const tnx_value_data *x = in(c, 0), *r = out(c, 0);
  bool topk = n->op == TNX_OP_TOPK, two = topk || n->op == TNX_OP_CUMMAX || n->op == TNX_OP_CUMMIN;
  REQUIRE(n->n_floats == 0 && n->n_ints == (topk ? 3u : 1u), topk ? "dimension, direction and order of equals" : "a dimension");
  REQUIRE(is_dim(a[0], x->rank), "a dimension of the operand");
  REQUIRE(r->dtype == x->dtype, "values keep the dtype");
  REQUIRE(two ? !tnx_dtype_is_complex((tnx_dtype)x->dtype) : n->op == TNX_OP_LOGCUMSUMEXP ? is_float(x->dtype) : x->dtype != TNX_BOOL, "not defined for the dtype");
  if (two) REQUIRE(out(c, 1)->dtype == TNX_I64 && same_shape(c, r, out(c, 1)), "positions are int64 and have the values' shape");
  if (!topk) {
    REQUIRE(same_shape(c, x, r), "a scan keeps the shape");
    return;
  }
  REQUIRE((a[1] == 0 || a[1] == 1) && (a[2] == 0 || a[2] == 1), "direction and order of equals are 0 or 1");
  REQUIRE(same_but(c, x, r, a[0]), "only the sorted dimension changes");
  REQUIRE(!constant(r->sizes[a[0]]) || !constant(x->sizes[a[0]]) || r->sizes[a[0]] <= x->sizes[a[0]], "more elements wanted than there are");
}

/* ---- indexed access ---- */

/* x's dimensions first .. first + n - 1 replaced by the index's. */
static bool replaced(const check *c, const tnx_value_data *x, tnx_dim first, uint32_t n, const tnx_value_data *index, const tnx_value_data *r) {
  int k = 0;
  if (r->rank != x->rank - (int)n + index->rank) return false;
  for (int i = 0; i < first; i++)
    if (!same(c, r->sizes[k++], x->sizes[i])) return false;
  for (int i = 0; i < index->rank; i++)
    if (!same(c, r->sizes[k++], index->sizes[i])) return false;
  for (int i = (int)(first + n); i < x->rank; i++)
    if (!same(c, r->sizes[k++], x->sizes[i])) return false;
  return true;
}

/* Indices from operand `from` on, for the dimensions of x in dims. */
static bool indices_ok(const check *c, uint32_t from, const tnx_dim *dims, uint32_t n, const tnx_value_data *x) {
  if (n == 0 || c->n->n_inputs != from + n || !are_dims(dims, n, x->rank)) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!is_index(in(c, from + i)->dtype) || !same_shape(c, in(c, from), in(c, from + i))) return false;
    if (dims[i] != dims[0] + i) return false;
  }
  return true;
}

/* Of bools the sum is "or" and the product "and"; complex numbers have no order. */
static bool mode_ok(tnx_dim mode, uint8_t dtype) {
  if (mode >= 0 && mode <= 2) return true;
  return (mode == 3 || mode == 4) && !tnx_dtype_is_complex((tnx_dtype)dtype);
}

static void check_index(check *c) {
  const tnx_node *n = c->n;
  const tnx_dim *a = n->ints;
  const tnx_value_data *x = in(c, 0), *r = out(c, 0);
  REQUIRE(n->n_floats == 0, "no floats here");
  if (n->op == TNX_OP_NONZERO) {
    REQUIRE(n->n_ints == 1 && x->dtype == TNX_BOOL && x->rank > 0, "a mask and what to fill with");
    REQUIRE(r->dtype == TNX_I64 && r->rank == 2 && r->sizes[1] == x->rank, "a row of coordinates for each element");
    return;
  }
  REQUIRE(n->n_inputs >= 2, "an operand and an index are needed");
  REQUIRE(r->dtype == x->dtype, "the dtype stays");
  bool put = n->op == TNX_OP_SCATTER || n->op == TNX_OP_PUT || n->op == TNX_OP_INDEX_PUT;
  if (put) REQUIRE(same_shape(c, x, r), "the result has the base's shape");
  switch (n->op) {
    case TNX_OP_TAKE:
      REQUIRE(n->n_ints == 1 && is_dim(a[0], x->rank) && is_index(in(c, 1)->dtype), "a dimension of the operand and an integer index");
      REQUIRE(replaced(c, x, a[0], 1, in(c, 1), r), "the index's dimensions replace the dimension");
      break;
    case TNX_OP_GATHER:
      REQUIRE(n->n_ints == 1 && is_dim(a[0], x->rank) && is_index(in(c, 1)->dtype), "a dimension of the operand and an integer index");
      REQUIRE(in(c, 1)->rank == x->rank && same_shape(c, in(c, 1), r), "the result has the index's shape");
      REQUIRE(covers(x, in(c, 1), a[0]), "the index is no larger than the operand apart from the dimension");
      break;
    case TNX_OP_INDEX:
      REQUIRE(indices_ok(c, 1, a, n->n_ints, x), "integer indices of one shape, on adjacent dimensions");
      REQUIRE(replaced(c, x, a[0], n->n_ints, in(c, 1), r), "the indices' shape replaces their dimensions");
      break;
    case TNX_OP_SCATTER:
      REQUIRE(n->n_ints == 2 && is_dim(a[0], x->rank) && mode_ok(a[1], x->dtype), "a dimension of the base and a mode");
      REQUIRE(is_index(in(c, 1)->dtype) && in(c, 2)->dtype == x->dtype, "an integer index, a source of the base's dtype");
      REQUIRE(in(c, 1)->rank == x->rank && same_shape(c, in(c, 1), in(c, 2)), "index and source have one shape of the base's rank");
      REQUIRE(covers(x, in(c, 1), a[0]), "the index is no larger than the base apart from the dimension");
      break;
    case TNX_OP_PUT:
      REQUIRE(n->n_ints == 2 && is_dim(a[0], x->rank) && mode_ok(a[1], x->dtype), "a dimension of the base and a mode");
      REQUIRE(is_index(in(c, 1)->dtype) && in(c, 2)->dtype == x->dtype && in(c, 1)->rank == 1, "a 1-d integer index, a source of the base's dtype");
      REQUIRE(replaced(c, x, a[0], 1, in(c, 1), in(c, 2)), "the source has one slice for each index");
      break;
    case TNX_OP_INDEX_PUT:
      REQUIRE(n->n_ints >= 2 && n->n_inputs >= 3 && mode_ok(a[0], x->dtype), "a mode and dimensions");
      REQUIRE(in(c, 1)->dtype == x->dtype, "a source of the base's dtype");
      REQUIRE(indices_ok(c, 2, a + 1, n->n_ints - 1, x), "integer indices of one shape, on adjacent dimensions");
      REQUIRE(replaced(c, x, a[1], n->n_ints - 1, in(c, 2), in(c, 1)), "the source has INDEX's result shape");
      break;
    default: c->why = "an unknown indexed access";
  }
}

/* ---- products ---- */

static bool product_shape(const check *c, const tnx_value_data *x, const tnx_value_data *y, const tnx_value_data *r) {
  int k = x->rank;
  if (k < 2 || y->rank != k || r->rank != k) return false;
  for (int i = 0; i < k - 2; i++)
    if (!same(c, x->sizes[i], y->sizes[i]) || !same(c, x->sizes[i], r->sizes[i])) return false;
  return same(c, x->sizes[k - 1], y->sizes[k - 2]) && same(c, r->sizes[k - 2], x->sizes[k - 2]) && same(c, r->sizes[k - 1], y->sizes[k - 1]);
}

static bool has_sizes(const check *c, const tnx_value_data *v, int rank, const tnx_dim *sizes) {
  if (v->rank != rank) return false;
  for (int i = 0; i < rank; i++)
    if (!same(c, v->sizes[i], sizes[i])) return false;
  return true;
}

/* q [b,h,l,d], k [b,g,s,d], v [b,g,s,e] from operand `first` on; o, lse and mask with their shapes where given. */
static const char *attention(const check *c, const tnx_value_data *q, const tnx_value_data *k, const tnx_value_data *v, const tnx_value_data *o,
                             const tnx_value_data *lse, const tnx_value_data *mask) {
  if (q->rank != 4 || k->rank != 4 || v->rank != 4) return "query, key and value have four dimensions";
  if (!is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype || o->dtype != q->dtype) return "query, key, value and result have one float dtype";
  tnx_dim b = q->sizes[0], h = q->sizes[1], l = q->sizes[2], g = k->sizes[1], s = k->sizes[2];
  tnx_dim ks[4] = {b, g, s, q->sizes[3]}, vs[4] = {b, g, s, v->sizes[3]}, os[4] = {b, h, l, v->sizes[3]}, ms[4] = {b, h, l, s};
  if (!has_sizes(c, k, 4, ks) || !has_sizes(c, v, 4, vs)) return "query, key and value do not fit together";
  if (constant(h) && constant(g) && g != 0 && h % g != 0) return "query heads are a multiple of key heads";
  if (!has_sizes(c, o, 4, os)) return "the result's shape is wrong";
  if (lse->dtype != TNX_F32 || !has_sizes(c, lse, 3, os)) return "the log-sum-exp is float32 [b, h, l]";
  if (mask && !has_sizes(c, mask, 4, ms)) return "the mask is broadcast to [b, h, l, s]";
  if (mask && mask->dtype != TNX_BOOL && !is_float(mask->dtype)) return "the mask is bool or a float";
  return NULL;
}

static bool product_dtypes(const tnx_value_data *x, const tnx_value_data *y) {
  bool holds_int8 = x->dtype == TNX_F32 || x->dtype == TNX_BF16 || x->dtype == TNX_F16;
  return x->dtype != TNX_BOOL && (y->dtype == x->dtype || (y->dtype == TNX_I8 && holds_int8));
}

static void check_product(check *c) {
  const tnx_node *n = c->n;
  const tnx_dim *a = n->ints;
  const tnx_value_data *r = out(c, 0);
  REQUIRE(n->n_inputs >= 2, "operands are missing");
  const tnx_value_data *x = in(c, 0), *y = in(c, 1);
  switch (n->op) {
    case TNX_OP_MATMUL:
      REQUIRE(n->n_ints == 0 && n->n_floats == 0, "matmul has no attributes");
      REQUIRE(product_dtypes(x, y), "operands have one dtype, or the second is int8");
      REQUIRE(r->dtype == x->dtype || ((x->dtype == TNX_BF16 || x->dtype == TNX_F16) && r->dtype == TNX_F32), "the result has the operands' dtype, or float32 for halves");
      REQUIRE(product_shape(c, x, y, r), "[b, m, k] @ [b, k, n] -> [b, m, n]");
      break;
    case TNX_OP_LINEAR:
      REQUIRE(n->n_ints == 1 && n->n_floats == 0 && a[0] >= 0 && a[0] <= 4, "linear has an activation");
      REQUIRE(n->n_inputs == 2 || n->n_inputs == 3, "input, weight and perhaps a bias");
      REQUIRE(product_dtypes(x, y) && r->dtype == x->dtype, "operands and result have one dtype, or the weight is int8");
      REQUIRE(a[0] == 0 || is_float(r->dtype), "activations are for floats");
      REQUIRE(x->rank >= 1 && y->rank == 2 && r->rank == x->rank, "[.., k] @ [n, k]^T -> [.., n]");
      REQUIRE(same(c, x->sizes[x->rank - 1], y->sizes[1]) && same(c, r->sizes[r->rank - 1], y->sizes[0]) && same_but(c, x, r, x->rank - 1), "[.., k] @ [n, k]^T -> [.., n]");
      REQUIRE(n->n_inputs == 2 || (in(c, 2)->rank == 1 && is_float(in(c, 2)->dtype) == is_float(r->dtype) && same(c, in(c, 2)->sizes[0], y->sizes[0])), "the bias is [n]");
      break;
    case TNX_OP_ADDMM:
      REQUIRE(n->n_inputs == 3 && n->n_ints == 0 && n->n_floats == 2, "three operands, beta and alpha");
      REQUIRE(y->dtype == x->dtype && product_dtypes(x, in(c, 2)) && r->dtype == x->dtype, "operands and result have one dtype, or the last operand is int8");
      REQUIRE(same_shape(c, x, r), "the added term has the result's shape");
      REQUIRE(product_shape(c, y, in(c, 2), r), "[b, m, k] @ [b, k, n] -> [b, m, n]");
      break;
    case TNX_OP_ATTENTION:
    case TNX_OP_ATTENTION_BACKWARD: {
      bool backward = n->op == TNX_OP_ATTENTION_BACKWARD;
      uint32_t operands = backward ? 6 : 3;
      REQUIRE(n->n_ints == 2 && n->n_floats == 1 && (a[0] == 0 || a[0] == 1) && (a[1] == 0 || a[1] == 1), "causal, has mask, scale");
      REQUIRE(n->n_inputs == operands + (uint32_t)a[1], "the number of operands is wrong");
      const tnx_value_data *mask = a[1] ? in(c, operands) : NULL;
      if (!backward) {
        c->why = attention(c, x, y, in(c, 2), r, out(c, 1), mask);
        return;
      }
      c->why = attention(c, in(c, 1), in(c, 2), in(c, 3), in(c, 4), in(c, 5), mask);
      if (c->why) return;
      REQUIRE(x->dtype == in(c, 4)->dtype && same_shape(c, x, in(c, 4)), "the gradient has the result's shape and dtype");
      for (uint32_t i = 0; i < 3; i++)
        REQUIRE(out(c, i)->dtype == in(c, i + 1)->dtype && same_shape(c, out(c, i), in(c, i + 1)), "dq, dk and dv look like q, k and v");
      break;
    }
    default: c->why = "an unknown product";
  }
}

/* ---- dense linear algebra, Fourier transforms ---- */

/* Binds the letters of a shape's dimensions behind the batch; letters that stand for what other sizes give are compared where they are known. */
static bool linalg_value(const check *c, const tnx_value_data *v, const char *letters, const tnx_value_data *first, tnx_dim *bound, bool none) {
  int batch = first->rank - 2, core = (int)strlen(letters);
  if (v->rank != batch + core) return false;
  for (int d = 0; d < batch; d++)
    if (!same(c, v->sizes[d], first->sizes[d])) return false;
  for (int d = 0; d < core; d++) {
    tnx_dim size = v->sizes[batch + d], m = bound['m'], n = bound['n'], want = bound[(int)letters[d]];
    bool known = constant(m) && constant(n);
    switch (letters[d]) {
      case 'l': want = known ? m < n ? m : n : size; break;
      case 'x': want = known ? m < n ? n : m : size; break;
      case 'p': want = c->n->ints[1] ? m : known ? m < n ? m : n : size; break;
      case 'q': want = c->n->ints[1] ? n : known ? m < n ? m : n : size; break;
      default: break;
    }
    if (none) want = 0;
    if (want == -1) want = bound[(int)letters[d]] = size;
    if (!same(c, size, want)) return false;
  }
  return true;
}

static void check_linalg(check *c) {
  const tnx_node *n = c->n;
  const tnx_linalg_shape *s = tnx_linalg_shape_of((tnx_op)n->op);
  const tnx_value_data *first = in(c, 0);
  tnx_dtype t = (tnx_dtype)first->dtype;
  tnx_dim bound[128];
  for (int i = 0; i < 128; i++) bound[i] = -1;
  bound['1'] = 1;
  REQUIRE(n->n_ints == 3 && n->n_floats == (n->op == TNX_OP_LSTSQ), "check and two flags; LSTSQ has a tolerance");
  static const tnx_dim limits[3] = {TNX_CHECK_COUNT, 4, 3};
  for (int i = 0; i < 3; i++) REQUIRE(constant(n->ints[i]) && n->ints[i] >= 0 && n->ints[i] < limits[i], "the check or a flag is not one");
  REQUIRE(first->rank >= 2, "matrices have two dimensions");
  REQUIRE(n->op == TNX_OP_LU_PERMUTATION ? t == TNX_I32 : t == TNX_F32 || t == TNX_F64 || t == TNX_C64 || t == TNX_C128, "not defined for the dtype");
  for (uint32_t i = 0; i < n->n_inputs; i++) {
    REQUIRE(in(c, i)->dtype == tnx_linalg_dtype(s->in_types[i], t), "an operand has another dtype");
    REQUIRE(linalg_value(c, in(c, i), s->in[i], first, bound, false), "the operands' shapes do not fit together");
  }
  for (uint32_t i = 0; i < n->n_results; i++) {
    bool none = s->vectors >= 0 && strlen(s->out[i]) == 2 && !n->ints[1 + s->vectors];
    REQUIRE(out(c, i)->dtype == tnx_linalg_dtype(s->out_types[i], t), "a result has another dtype");
    REQUIRE(linalg_value(c, out(c, i), s->out[i], first, bound, none), "a result has another shape");
  }
}

static void check_fft(check *c) {
  const tnx_node *n = c->n;
  const tnx_value_data *x = in(c, 0), *r = out(c, 0), *real = n->op == TNX_OP_IRFFT ? r : x, *cplx = n->op == TNX_OP_RFFT ? r : x;
  REQUIRE(n->n_ints == 3 && n->n_floats == 0 && is_dim(n->ints[0], x->rank), "a dimension, the direction and the norm");
  REQUIRE(n->ints[1] == (n->op == TNX_OP_FFT ? n->ints[1] != 0 : n->op == TNX_OP_IRFFT) && n->ints[2] >= 0 && n->ints[2] <= 2, "direction and norm");
  REQUIRE(cplx->dtype == TNX_C64 || cplx->dtype == TNX_C128, "spectra are complex");
  REQUIRE(same_but(c, x, r, n->op == TNX_OP_FFT ? -1 : n->ints[0]), "other dimensions stay");
  if (n->op == TNX_OP_FFT) {
    REQUIRE(x->dtype == r->dtype, "the dtype stays");
  } else {
    tnx_dim length = real->sizes[n->ints[0]];
    REQUIRE(real->dtype == tnx_dtype_real((tnx_dtype)cplx->dtype), "the signal has the spectrum's real dtype");
    REQUIRE(!constant(length) || same(c, cplx->sizes[n->ints[0]], length / 2 + 1), "half a spectrum has n / 2 + 1 elements");
  }
}

/* ---- the graph as a whole ---- */

static tnx_status check_exprs(const tnx_graph *g) {
  for (uint32_t i = 1; i < g->exprs.len; i++) {
    const tnx_expr *e = &g->exprs.data[i];
    if (e->op == TNX_EXPR_SYMBOL) {
      if (e->a < 0 || e->a >= (int64_t)g->symbols.len) return tnx_fail(TNX_INTERNAL, "size $%u names a symbol that does not exist", i);
      continue;
    }
    if (e->op > TNX_DIM_MAX) return tnx_fail(TNX_INTERNAL, "size $%u has an unknown operation", i);
    const tnx_dim operands[2] = {e->a, e->b};
    for (int k = 0; k < 2; k++)
      if (!constant(operands[k]) && ((uint32_t)(operands[k] - TNX_DIM_SYMBOLIC) >= i || operands[k] == TNX_DIM_SYMBOLIC))
        return tnx_fail(TNX_INTERNAL, "size $%u uses one that comes after it", i);
  }
  return TNX_OK;
}

static void check_node(check *c) {
  const tnx_node *n = c->n;
  const tnx_graph *g = c->g;
  REQUIRE(n->op > TNX_OP_NONE && n->op < TNX_OP_COUNT, "an unknown operator");
  const tnx_op_info *info = tnx_op_get_info((tnx_op)n->op);
  REQUIRE(n->n_results == info->results, "the number of results is wrong");
  REQUIRE(info->inputs < 0 || n->n_inputs == (uint32_t)info->inputs, "the number of operands is wrong");
  REQUIRE(n->first != 0 && n->first < g->values.len && n->n_results <= g->values.len - n->first, "results outside the table of values");
  for (uint32_t i = 0; i < n->n_results; i++) {
    const tnx_value_data *v = out(c, i);
    REQUIRE(v->node == c->id && v->result == i, "a result belongs to another node");
    REQUIRE(v->dtype < TNX_DTYPE_COUNT && v->rank <= TNX_MAX_RANK, "a result has no valid type");
    for (int d = 0; d < v->rank; d++) REQUIRE(valid_size(g, v->sizes[d]), "a result has an invalid size");
  }
  for (uint32_t i = 0; i < n->n_inputs; i++) {
    REQUIRE(n->inputs[i] != 0 && n->inputs[i] < g->values.len, "an operand is missing");
    REQUIRE(in(c, i)->node != 0 && in(c, i)->node < c->id, "an operand comes after its use");
  }
  if (n->op != TNX_OP_CONST)
    for (uint32_t i = 0; i < n->n_ints; i++) REQUIRE(valid_dim(g, n->ints[i]), "an attribute names an unknown size");
  switch (info->klass) {
    case TNX_CLASS_LEAF: check_leaf(c); break;
    case TNX_CLASS_UNARY:
    case TNX_CLASS_BINARY:
    case TNX_CLASS_TERNARY:
    case TNX_CLASS_CONVERT: check_pointwise(c); break;
    case TNX_CLASS_VIEW: check_view(c); break;
    case TNX_CLASS_DATA: check_data(c); break;
    case TNX_CLASS_REDUCE: check_reduce(c); break;
    case TNX_CLASS_SCAN: check_scan(c); break;
    case TNX_CLASS_INDEX: check_index(c); break;
    case TNX_CLASS_PRODUCT: check_product(c); break;
    case TNX_CLASS_LINALG: check_linalg(c); break;
    case TNX_CLASS_FFT: check_fft(c); break;
    default: c->why = "an unknown operator class";
  }
}

static tnx_status check_ends(const tnx_graph *g) {
  for (uint32_t i = 0; i < g->inputs.len; i++) {
    const tnx_input *x = &g->inputs.data[i];
    if (x->value == 0 || x->value >= g->values.len || tnx_graph_producer(g, x->value)->op != TNX_OP_INPUT) return tnx_fail(TNX_INTERNAL, "input %u has no value", i);
    for (int d = 0; d < g->values.data[x->value].rank; d++)
      if (!valid_dim(g, x->strides[d])) return tnx_fail(TNX_INTERNAL, "input %u has an invalid stride", i);
    if (tnx_graph_producer(g, x->value)->ints[0] != (int64_t)i) return tnx_fail(TNX_INTERNAL, "input %u has the value of another input", i);
  }
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (o->value >= g->values.len) return tnx_fail(TNX_INTERNAL, "output %u has no value", i);
    const tnx_value_data *v = &g->values.data[o->value];
    if (o->value == 0 && (o->strides || o->into != TNX_NO_TENSOR)) return tnx_fail(TNX_INTERNAL, "output %u is undefined and goes somewhere", i);
    for (int d = 0; o->strides && d < v->rank; d++)
      if (!valid_dim(g, o->strides[d])) return tnx_fail(TNX_INTERNAL, "output %u has an invalid stride", i);
    if (o->into == TNX_NO_TENSOR) continue;
    if (o->into >= g->inputs.len) return tnx_fail(TNX_INTERNAL, "output %u goes into an input that does not exist", i);
    const tnx_value_data *x = &g->values.data[g->inputs.data[o->into].value];
    bool fits = x->dtype == v->dtype && x->rank == v->rank;
    for (int d = 0; fits && d < v->rank; d++) fits = may_equal(g, x->sizes[d], v->sizes[d]);
    if (!fits) return tnx_fail(TNX_INTERNAL, "output %u does not fit the input it goes into", i);
  }
  return TNX_OK;
}

tnx_status tnx_graph_verify(const tnx_graph *g) {
  if (g->nodes.len == 0 || g->values.len == 0 || g->exprs.len == 0) return tnx_fail(TNX_INTERNAL, "the graph was not initialised");
  TNX_TRY(check_exprs(g));
  for (uint32_t i = 1; i < g->nodes.len; i++) {
    check c = {g, &g->nodes.data[i], i, NULL};
    check_node(&c);
    if (!c.why) continue;
    tnx_status status = tnx_fail(TNX_INTERNAL, "node %u (%s): %s", i, tnx_op_get_info((tnx_op)c.n->op)->name, c.why);
    /* The node's text may be printed only where its tables can be trusted. */
    bool readable = c.n->first != 0 && c.n->first < g->values.len && c.n->n_results <= g->values.len - c.n->first;
    for (uint32_t k = 0; readable && k < c.n->n_results; k++) readable = g->values.data[c.n->first + k].rank <= TNX_MAX_RANK;
    tnx_text text = {0};
    if (readable) tnx_text_add_node(&text, g, c.n);
    if (readable && text.data) status = tnx_fail(TNX_INTERNAL, "node %u: %s: %s", i, c.why, text.data);
    tnx_text_fini(&text);
    return status;
  }
  return check_ends(g);
}
