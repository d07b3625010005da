/* Tensors from nothing: constants, ranges, identity matrices. Functional forms appear in graphs; eager PyTorch allocates and fills. Out forms do not
 * say their dtype, so they compute in a wide one and the result is converted when it is stored. */
#include "aten/family.h"

/* The rule of c10::overflows: negative numbers wrap around in unsigned dtypes as far as their absolute values fit; fractions count. */
static bool fits(double v, bool is_integer, tnx_dtype t) {
  if (t == TNX_BOOL) return true;
  if (tnx_dtype_is_float(t)) {
    double max = t == TNX_F8E4M3 ? 448 : t == TNX_F8E5M2 ? 57344 : t == TNX_F16 ? 65504 : t == TNX_BF16 ? 0x1.fep127 : t == TNX_F32 ? 0x1.fffffep127 : INFINITY;
    return isnan(v) || fabs(v) <= max || (isinf(v) && t != TNX_F8E4M3);
  }
  int bits = (int)tnx_dtype_size(t) * 8;
  bool is_signed = t == TNX_I8 || t == TNX_I16 || t == TNX_I32 || t == TNX_I64;
  if (is_integer && bits == 64) return true; /* numbers above the largest int64 arrive as negative ones */
  double max = ldexp(1, is_signed ? bits - 1 : bits) - (bits == 64 ? 0 : 1);
  return is_signed ? v >= -ldexp(1, bits - 1) && v <= max : fabs(v) <= max;
}

tnx_value lower_stored_number(tnx_builder *b, const tnx_arg *number, tnx_dtype t) {
  bool is_integer = number->kind == TNX_ARG_INT && !arg_symbolic(number), is_complex = number->kind == TNX_ARG_COMPLEX;
  if (is_integer || is_complex || number->kind == TNX_ARG_FLOAT) {
    bool ok = fits(arg_number(number, 0), is_integer, tnx_dtype_real(t));
    if (ok && is_complex && t != TNX_BOOL) ok = tnx_dtype_is_complex(t) ? fits(number->number[1], false, tnx_dtype_real(t)) : number->number[1] == 0;
    if (!ok) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "value cannot be converted to type %s without overflow", tnx_dtype_name(t));
  }
  return tnx_b_scalar(b, number, t);
}

static tnx_dtype number_dtype(tnx_builder *b, const tnx_arg *a) { return a->kind == TNX_ARG_FLOAT ? b->default_dtype : tnx_b_scalar_dtype(a); }

static tnx_status full(tnx_lower *l, const tnx_arg *sizes, const tnx_arg *number, tnx_dtype t, tnx_value *results) {
  tnx_dim s[TNX_MAX_RANK];
  int rank = arg_sizes(&l->b, sizes, s);
  return rank < 0 ? l->b.status : give(l, results, tnx_b_full(&l->b, lower_stored_number(&l->b, number, t), rank, s));
}

static const tnx_arg zero = {.kind = TNX_ARG_INT, .dim = 0}, one = {.kind = TNX_ARG_INT, .dim = 1};

tnx_status lower_full(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, a + 1, arg_dtype(a + 2, number_dtype(&l->b, a + 1)), results); }
tnx_status lower_full_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, a + 1, number_dtype(&l->b, a + 1), results); }
tnx_status lower_zeros(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, &zero, arg_dtype(a + 1, l->b.default_dtype), results); }
tnx_status lower_ones(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, &one, arg_dtype(a + 1, l->b.default_dtype), results); }
tnx_status lower_zeros_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, &zero, l->b.default_dtype, results); }
tnx_status lower_ones_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, &one, l->b.default_dtype, results); }
/* What an uninitialised tensor holds is not promised: zeros are the cheapest that is the same every time. */
tnx_status lower_empty_strided(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a, &zero, arg_dtype(a + 2, l->b.default_dtype), results); }

static tnx_status full_like(tnx_lower *l, const tnx_arg *like, const tnx_arg *number, const tnx_arg *dtype, tnx_value *results) {
  tnx_builder *b = &l->b;
  return give(l, results, expand_like(b, lower_stored_number(b, number, dtype ? arg_dtype(dtype, tnx_b_dtype(b, like->value)) : tnx_b_dtype(b, like->value)), like->value));
}
/* (self, value, dtype, layout, device, pin_memory, memory_format); the others have no value */
tnx_status lower_full_like(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  take_format(l, a + 6);
  return full_like(l, a, a + 1, a + 2, results);
}
tnx_status lower_zeros_like(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  take_format(l, a + 5);
  return full_like(l, a, &zero, a + 1, results);
}
tnx_status lower_ones_like(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  take_format(l, a + 5);
  return full_like(l, a, &one, a + 1, results);
}
tnx_status lower_zero(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full_like(l, a, &zero, NULL, results); }

tnx_status lower_fill(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_value v = arg_value(a + 1);
  if (v && tnx_b_rank(&l->b, v) != 0) return tnx_fail(TNX_SHAPE, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.", tnx_b_rank(&l->b, v));
  return full_like(l, a, a + 1, NULL, results);
}

tnx_status lower_new_full(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a + 1, a + 2, arg_dtype(a + 3, tnx_b_dtype(&l->b, a[0].value)), results); }
tnx_status lower_new_zeros(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a + 1, &zero, arg_dtype(a + 2, tnx_b_dtype(&l->b, a[0].value)), results); }
tnx_status lower_new_ones(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return full(l, a + 1, &one, arg_dtype(a + 2, tnx_b_dtype(&l->b, a[0].value)), results); }

tnx_status lower_scalar_tensor(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, lower_stored_number(&l->b, a, arg_dtype(a + 1, l->b.default_dtype)));
}

/* ---- ranges ---- */

/* The number as PyTorch stores it in an int64: without its fraction. */
static tnx_status whole_number(tnx_arg *a) {
  if (a->kind != TNX_ARG_FLOAT) return TNX_OK;
  double v = trunc(a->number[0]);
  if (!(v >= -0x1p63 && v < 0x1p63)) return tnx_fail(TNX_INVALID_ARGUMENT, "value cannot be converted to type int64_t without overflow");
  *a = (tnx_arg){.kind = TNX_ARG_INT, .dim = (int64_t)v};
  return TNX_OK;
}

/* start, start + step, ...: ceil((end - start) / step) elements. Symbolic ends only with integers and a constant step. An int64 range has whole ends and a whole step,
   whatever is given; one of another integer type too, but as many elements as the numbers given say: PyTorch's CPU kernel does so. */
static tnx_status arange(tnx_lower *l, const tnx_arg *start, const tnx_arg *end, const tnx_arg *step, tnx_dtype t, tnx_value *results) {
  tnx_builder *b = &l->b;
  bool integers = start->kind != TNX_ARG_FLOAT && end->kind != TNX_ARG_FLOAT && step->kind != TNX_ARG_FLOAT;
  if (t == TNX_DTYPE_NONE) t = integers ? TNX_I64 : b->default_dtype;
  tnx_arg whole[3] = {*start, *end, *step};
  if (!integers && tnx_dtype_is_integral(t)) {
    for (int i = 0; i < 3; i++) TNX_TRY(whole_number(whole + i));
    if (whole[2].dim == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "step must be nonzero");
  }
  if (!integers && t == TNX_I64) return arange(l, whole, whole + 1, whole + 2, t, results);
  tnx_dim n;
  if (integers) {
    if (arg_symbolic(step)) return uncovered(l, "symbolic step");
    int64_t by = step->dim;
    if (by == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "step must be nonzero");
    tnx_dim span = by > 0 ? tnx_b_dim_sub(b, end->dim, start->dim) : tnx_b_dim_sub(b, start->dim, end->dim);
    if (by < 0) by = -by;
    if (!tnx_dim_is_symbolic(span) && span < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "upper bound and lower bound inconsistent with step sign");
    n = by == 1 ? span : tnx_b_dim(b, TNX_DIM_FLOORDIV, tnx_b_dim_add(b, span, by - 1), by);
  } else {
    if (arg_symbolic(start) || arg_symbolic(end) || arg_symbolic(step)) return uncovered(l, "symbolic range of floats");
    double count = ceil((arg_number(end, 0) - arg_number(start, 0)) / arg_number(step, 1));
    if (!(count >= 0 && count < 0x1p53)) return tnx_fail(TNX_INVALID_ARGUMENT, "upper bound and lower bound inconsistent with step sign");
    n = (int64_t)count;
  }
  tnx_dtype acc = integers || tnx_dtype_is_integral(t) ? TNX_I64 : TNX_F64;
  tnx_value i = tnx_b_convert(b, tnx_b_iota(b, 1, &n, 0), acc);
  tnx_value v = add(b, mul(b, i, tnx_b_scalar(b, whole + 2, acc)), tnx_b_scalar(b, whole, acc));
  return give(l, results, tnx_b_convert(b, v, t));
}

tnx_status lower_arange(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return arange(l, &zero, a, &one, arg_dtype(a + 1, TNX_DTYPE_NONE), results); }
tnx_status lower_arange_start(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return arange(l, a, a + 1, &one, arg_dtype(a + 2, TNX_DTYPE_NONE), results); }
tnx_status lower_arange_start_step(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return arange(l, a, a + 1, a + 2, arg_dtype(a + 3, TNX_DTYPE_NONE), results); }
/* Counted from whichever end is nearer, so that both ends are exact. Integers have whole ends and a step of float64. */
static tnx_value line(tnx_builder *b, const tnx_arg *first, const tnx_arg *last, tnx_dim n, tnx_dtype ends, tnx_dtype acc) {
  tnx_value start = tnx_b_convert(b, tnx_b_scalar(b, first, ends), acc), end = tnx_b_convert(b, tnx_b_scalar(b, last, ends), acc), k = tnx_b_iota(b, 1, &n, 0);
  if (n == 1) return tnx_b_full(b, start, 1, &n);
  tnx_value step = tnx_b_binary_f(b, TNX_OP_DIV, sub(b, end, start), n > 1 ? (double)(n - 1) : 1);
  tnx_value up = add(b, start, mul(b, step, tnx_b_convert(b, k, acc)));
  tnx_value down = sub(b, end, mul(b, step, tnx_b_convert(b, rsub_f(b, (double)(n - 1), k), acc)));
  return tnx_b_select(b, compare_f(b, TNX_OP_LT, k, (double)(n / 2)), up, down);
}

static tnx_status range_check(tnx_lower *l, const tnx_arg *a, tnx_dtype t) {
  if (t == TNX_BOOL || arg_symbolic(a + 2)) return uncovered(l, "dtype or symbolic size");
  if (!tnx_dtype_is_complex(t) && (a[0].kind == TNX_ARG_COMPLEX || a[1].kind == TNX_ARG_COMPLEX)) return uncovered(l, "complex ends of a real range");
  return a[2].dim < 0 ? tnx_fail(TNX_INVALID_ARGUMENT, "number of steps must be non-negative") : TNX_OK;
}
static tnx_dtype complex_or(tnx_builder *b, const tnx_arg *a) {
  bool any = a[0].kind == TNX_ARG_COMPLEX || a[1].kind == TNX_ARG_COMPLEX;
  return !any ? b->default_dtype : b->default_dtype == TNX_F64 ? TNX_C128 : TNX_C64;
}

tnx_status lower_linspace(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = arg_dtype(a + 3, complex_or(b, a));
  TNX_TRY(range_check(l, a, t));
  bool integers = tnx_dtype_is_integral(t);
  tnx_dtype acc = integers ? TNX_F64 : tnx_acc_of(t);
  return give(l, results, tnx_b_convert(b, line(b, a, a + 1, a[2].dim, integers ? t : acc, acc), t));
}

/* base to the power of a linspace, in float64. */
tnx_status lower_logspace(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = arg_dtype(a + 4, complex_or(b, a)), acc = tnx_dtype_is_complex(t) ? TNX_C128 : TNX_F64;
  TNX_TRY(range_check(l, a, t));
  tnx_value v = line(b, a, a + 1, a[2].dim, tnx_dtype_is_integral(t) ? t : acc, acc);
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_POW, tnx_b_const_f(b, acc, arg_number(a + 3, 10)), v), t));
}

/* ---- identity matrices ---- */

static tnx_status eye(tnx_lower *l, tnx_dim rows, tnx_dim columns, tnx_dtype t, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dim sizes[2] = {rows, columns};
  return give(l, results, tnx_b_convert(b, tnx_b_binary(b, TNX_OP_EQ, tnx_b_iota(b, 2, sizes, 0), tnx_b_iota(b, 2, sizes, 1)), t));
}
tnx_status lower_eye(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return eye(l, a[0].dim, a[0].dim, arg_dtype(a + 1, l->b.default_dtype), results); }
tnx_status lower_eye_m(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return eye(l, a[0].dim, a[1].dim, arg_dtype(a + 2, l->b.default_dtype), results); }
tnx_status lower_eye_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return eye(l, a[0].dim, a[0].dim, l->b.default_dtype, results); }
tnx_status lower_eye_m_out(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return eye(l, a[0].dim, a[1].dim, l->b.default_dtype, results); }
