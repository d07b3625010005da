/* Matrix products. Halves accumulate in float32; integers and complex numbers are products and sums. */
#include "aten/family.h"

tnx_value lower_product_of(tnx_builder *b, tnx_value x, tnx_value y) {
  if (!x || !y) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (tnx_dtype_is_float(t)) return tnx_b_matmul(b, x, y);
  if (t != tnx_b_dtype(b, y)) return tnx_b_fail(b, TNX_DTYPE, "expected m1 and m2 to have the same dtype");
  if (differ(tnx_b_size(b, x, -1), tnx_b_size(b, y, -2))) return tnx_b_fail(b, TNX_SHAPE, "mat1 and mat2 shapes cannot be multiplied");
  tnx_dtype acc = tnx_dtype_is_integral(t) ? TNX_I64 : t;
  /* [.., m, 1, k] * [.., 1, n, k] summed over k */
  tnx_value left = tnx_b_unsqueeze(b, tnx_b_convert(b, x, acc), tnx_b_rank(b, x) - 1);
  tnx_value right = tnx_b_unsqueeze(b, tnx_b_swap_dims(b, tnx_b_convert(b, y, acc), -1, -2), tnx_b_rank(b, y) - 2);
  tnx_value terms = mul(b, left, right);
  int last = terms ? tnx_b_rank(b, terms) - 1 : 0;
  return tnx_b_convert(b, reduce(b, TNX_OP_REDUCE_SUM, terms, &last, 1, false), t);
}

static bool ranks(tnx_lower *l, const tnx_arg *x, int rx, const tnx_arg *y, int ry) {
  if (tnx_b_rank(&l->b, x->value) == rx && tnx_b_rank(&l->b, y->value) == ry) return true;
  tnx_b_fail(&l->b, TNX_SHAPE, "operands of %d and %d dimensions are expected", rx, ry);
  return false;
}

/* bool has no product in PyTorch's CPU kernels, and dtypes have to be equal. */
static bool dtypes(tnx_lower *l, const tnx_arg *x, const tnx_arg *y) {
  tnx_dtype t = tnx_b_dtype(&l->b, x->value);
  if (t != tnx_b_dtype(&l->b, y->value)) {
    tnx_b_fail(&l->b, TNX_DTYPE, "expected m1 and m2 to have the same dtype");
    return false;
  }
  if (t == TNX_BOOL) tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "product of bools");
  return t != TNX_BOOL;
}

tnx_status lower_mm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!ranks(l, a, 2, a + 1, 2) || !dtypes(l, a, a + 1)) return l->b.status;
  return give(l, results, lower_product_of(&l->b, a[0].value, a[1].value));
}

tnx_status lower_bmm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!ranks(l, a, 3, a + 1, 3) || !dtypes(l, a, a + 1)) return l->b.status;
  if (differ(tnx_b_size(&l->b, a[0].value, 0), tnx_b_size(&l->b, a[1].value, 0))) return tnx_fail(TNX_SHAPE, "batch sizes differ");
  return give(l, results, lower_product_of(&l->b, a[0].value, a[1].value));
}

/* beta * add + alpha * x @ y. beta = 0 ignores what add holds. */
static tnx_value scaled_product(tnx_lower *l, const tnx_arg *base, const tnx_arg *x, const tnx_arg *y, const tnx_arg *beta, const tnx_arg *alpha) {
  tnx_builder *b = &l->b;
  if (!dtypes(l, x, y)) return 0;
  tnx_dtype t = tnx_b_dtype(b, x->value);
  if (t != tnx_b_dtype(b, base->value)) return tnx_b_fail(b, TNX_DTYPE, "self and the matrices have different dtypes");
  if (tnx_dtype_is_float(t) && beta->kind != TNX_ARG_COMPLEX && alpha->kind != TNX_ARG_COMPLEX)
    return tnx_b_addmm(b, base->value, x->value, y->value, arg_number(beta, 1), arg_number(alpha, 1));
  tnx_value p = lower_product_of(b, x->value, y->value);
  if (!arg_equals(alpha, 1)) p = mul(b, p, tnx_b_scalar(b, alpha, t));
  tnx_value c = expand_like(b, base->value, p);
  if (arg_equals(beta, 0)) return p;
  if (!arg_equals(beta, 1)) c = mul(b, c, tnx_b_scalar(b, beta, t));
  return add(b, c, p);
}

tnx_status lower_addmm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!ranks(l, a + 1, 2, a + 2, 2)) return l->b.status;
  return give(l, results, scaled_product(l, a, a + 1, a + 2, a + 3, a + 4));
}

tnx_status lower_addmm_activation(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a + 1, 2, a + 2, 2)) return b->status;
  if (arg_bool(a + 5)) return uncovered(l, "gelu");
  return give(l, results, tnx_b_binary_f(b, TNX_OP_MAX, scaled_product(l, a, a + 1, a + 2, a + 3, a + 4), 0));
}

tnx_status lower_baddbmm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!ranks(l, a + 1, 3, a + 2, 3)) return l->b.status;
  return give(l, results, scaled_product(l, a, a + 1, a + 2, a + 3, a + 4));
}

/* The sum over the batch is a product over batch and inner dimension. */
tnx_status lower_addbmm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a + 1, 3, a + 2, 3)) return b->status;
  const tnx_dim *sx = tnx_b_sizes(b, a[1].value), *sy = tnx_b_sizes(b, a[2].value);
  if (differ(sx[0], sy[0]) || differ(sx[2], sy[1])) return tnx_fail(TNX_SHAPE, "Incompatible matrix sizes for bmm");
  tnx_dim inner = tnx_b_dim_mul(b, sx[0], sx[2]), left[2] = {sx[1], inner}, right[2] = {inner, sy[2]};
  tnx_arg x = a[1], y = a[2];
  x.value = tnx_b_reshape(b, tnx_b_swap_dims(b, x.value, 0, 1), 2, left);
  y.value = tnx_b_reshape(b, y.value, 2, right);
  if (b->status != TNX_OK) return b->status;
  return give(l, results, scaled_product(l, a, &x, &y, a + 3, a + 4));
}

static tnx_value column(tnx_builder *b, tnx_value v) { return tnx_b_unsqueeze(b, v, 1); }
static tnx_value uncolumn(tnx_builder *b, tnx_value v) {
  int last = 1;
  return tnx_b_squeeze(b, v, &last, 1);
}

tnx_status lower_mv(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!ranks(l, a, 2, a + 1, 1) || !dtypes(l, a, a + 1)) return l->b.status;
  return give(l, results, uncolumn(&l->b, lower_product_of(&l->b, a[0].value, column(&l->b, a[1].value))));
}

tnx_status lower_addmv(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a + 1, 2, a + 2, 1)) return b->status;
  tnx_arg base = a[0], v = a[2];
  if (tnx_b_rank(b, base.value) == 1) base.value = column(b, base.value);
  v.value = column(b, v.value);
  return b->status != TNX_OK ? b->status : give(l, results, uncolumn(b, scaled_product(l, &base, a + 1, &v, a + 3, a + 4)));
}

/* beta * self + alpha * outer(x, y) */
tnx_status lower_addr(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a + 1, 1, a + 2, 1)) return b->status;
  tnx_value all[3] = {a[0].value, a[1].value, a[2].value};
  tnx_dtype t = tnx_b_result_type(b, all, 3), acc = tnx_acc_of(t);
  if (t == TNX_BOOL) { /* or of ands */
    tnx_value both = tnx_b_binary(b, TNX_OP_AND, column(b, all[1]), all[2]), off = tnx_b_const_f(b, TNX_BOOL, 0);
    if (!both) return b->status;
    if (arg_number(a + 4, 1) == 0) both = expand_like(b, off, both);
    return give(l, results, tnx_b_binary(b, TNX_OP_OR, arg_number(a + 3, 1) == 0 ? off : all[0], both));
  }
  tnx_value outer = mul(b, column(b, tnx_b_convert(b, all[1], acc)), tnx_b_convert(b, all[2], acc));
  if (!arg_equals(a + 4, 1)) outer = mul(b, outer, tnx_b_scalar(b, a + 4, acc));
  if (arg_equals(a + 3, 0)) return give(l, results, tnx_b_convert(b, outer, t));
  tnx_value base = expand_like(b, tnx_b_convert(b, all[0], acc), outer);
  if (!arg_equals(a + 3, 1)) base = mul(b, base, tnx_b_scalar(b, a + 3, acc));
  return give(l, results, tnx_b_convert(b, add(b, base, outer), t));
}

tnx_status lower_outer(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a, 1, a + 1, 1)) return b->status;
  tnx_value both[2] = {a[0].value, a[1].value};
  tnx_dtype t = tnx_b_result_type(b, both, 2);
  tnx_value x = column(b, tnx_b_convert(b, both[0], t)), y = tnx_b_convert(b, both[1], t);
  return give(l, results, tnx_b_binary(b, t == TNX_BOOL ? TNX_OP_AND : TNX_OP_MUL, x, y));
}

static tnx_status dot(tnx_lower *l, const tnx_arg *a, bool conjugate, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a, 1, a + 1, 1) || !dtypes(l, a, a + 1)) return b->status;
  if (differ(tnx_b_size(b, a[0].value, 0), tnx_b_size(b, a[1].value, 0))) return tnx_fail(TNX_SHAPE, "inconsistent tensor size");
  tnx_value x = a[0].value;
  if (conjugate && tnx_dtype_is_complex(tnx_b_dtype(b, x))) x = tnx_b_unary(b, TNX_OP_CONJ, x);
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  if (tnx_dtype_is_float(t)) { /* a reduction like any other, shared among threads */
    int dim = 0;
    tnx_value products = mul(b, tnx_b_convert(b, x, acc), tnx_b_convert(b, a[1].value, acc));
    return give(l, results, tnx_b_convert(b, reduce(b, TNX_OP_REDUCE_SUM, products, &dim, 1, false), t));
  }
  int both[2] = {0, 1};
  return give(l, results, tnx_b_squeeze(b, lower_product_of(b, tnx_b_unsqueeze(b, x, 0), column(b, a[1].value)), both, 2));
}
tnx_status lower_dot(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return dot(l, a, false, results); }
tnx_status lower_vdot(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return dot(l, a, true, results); }

/* torch.matmul: vectors get a dimension that is dropped again; batch dimensions broadcast. */
tnx_status lower_matmul(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, y = a[1].value;
  int rx = tnx_b_rank(b, x), ry = tnx_b_rank(b, y), drop[2], n = 0;
  if (rx == 0 || ry == 0) return tnx_fail(TNX_SHAPE, "both arguments to matmul need to be at least 1D");
  if (!dtypes(l, a, a + 1)) return b->status;
  if (rx == 1) x = tnx_b_unsqueeze(b, x, 0);
  if (ry == 1) y = column(b, y);
  tnx_value r = lower_product_of(b, x, y);
  if (!r) return b->status;
  if (rx == 1) drop[n++] = tnx_b_rank(b, r) - 2;
  if (ry == 1) drop[n++] = tnx_b_rank(b, r) - 1;
  return give(l, results, n ? tnx_b_squeeze(b, r, drop, n) : r);
}

tnx_status lower_linear(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, w = a[1].value, bias = arg_value(a + 2);
  if (!dtypes(l, a, a + 1)) return b->status;
  if (tnx_dtype_is_float(tnx_b_dtype(b, x)) && tnx_b_rank(b, w) == 2 && tnx_b_rank(b, x) >= 1 && (!bias || tnx_b_rank(b, bias) == 1))
    return give(l, results, tnx_b_linear(b, x, w, bias));
  if (tnx_b_rank(b, w) != 2 || tnx_b_rank(b, x) < 1) return uncovered(l, "vectors");
  int rank = tnx_b_rank(b, x), first = 0;
  if (rank == 1) x = tnx_b_unsqueeze(b, x, 0);
  tnx_value r = lower_product_of(b, x, tnx_b_swap_dims(b, w, 0, 1));
  if (rank == 1 && r) r = tnx_b_squeeze(b, r, &first, 1);
  return give(l, results, bias ? add(b, r, bias) : r);
}

/* Gradients of linear: input, weight, bias, each where its flag is set. */
tnx_status lower_linear_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, dy = a[1].value, w = a[2].value;
  if (tnx_b_rank(b, w) != 2 || tnx_b_rank(b, x) < 1) return uncovered(l, "shape");
  tnx_dim fx[2] = {-1, tnx_b_size(b, x, -1)}, fy[2] = {-1, tnx_b_size(b, dy, -1)};
  tnx_value flat_x = tnx_b_reshape(b, x, 2, fx), flat_dy = tnx_b_reshape(b, dy, 2, fy), dx = 0, dw = 0, dbias = 0;
  int rows = 0;
  if (a[3].dims[0]) dx = tnx_b_reshape(b, lower_product_of(b, flat_dy, w), tnx_b_rank(b, x), tnx_b_sizes(b, x));
  if (a[3].dims[1]) dw = lower_product_of(b, tnx_b_swap_dims(b, flat_dy, 0, 1), flat_x);
  if (a[3].dims[2]) dbias = reduce(b, TNX_OP_REDUCE_SUM, flat_dy, &rows, 1, false);
  return give3(l, results, dx, dw, dbias);
}

/* int8 matrices, whose product is int32 */
tnx_status lower_int_mm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!ranks(l, a, 2, a + 1, 2) || !dtypes(l, a, a + 1)) return b->status;
  if (tnx_b_dtype(b, a[0].value) != TNX_I8) return uncovered(l, "dtype");
  return give(l, results, lower_product_of(b, tnx_b_convert(b, a[0].value, TNX_I32), tnx_b_convert(b, a[1].value, TNX_I32)));
}

/* (self [m, k], mat2 [n, k] of int8, scales [n]) */
tnx_status lower_weight_int8pack_mm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  if (!ranks(l, a, 2, a + 1, 2)) return b->status;
  if (!tnx_dtype_is_float(t) || tnx_b_dtype(b, a[1].value) != TNX_I8 || tnx_b_rank(b, a[2].value) != 1) return uncovered(l, "dtype");
  tnx_value y = tnx_b_linear(b, to_acc(b, a[0].value), tnx_b_convert(b, a[1].value, tnx_acc_of(t)), 0);
  return give(l, results, tnx_b_convert(b, mul(b, y, to_acc(b, a[2].value)), t));
}
