/* Losses and their gradients. reduction: 0 none, 1 mean, 2 sum. Halves are computed in float32 and rounded once. */
#include "aten/family.h"

enum { NONE, MEAN, SUM };

static tnx_value reduced(tnx_builder *b, tnx_value loss, int64_t reduction) {
  if (reduction == NONE || !loss) return loss;
  tnx_value total = reduce(b, TNX_OP_REDUCE_SUM, loss, NULL, 0, false);
  return reduction == MEAN ? divide(b, total, dim_number(b, tnx_b_numel(b, loss), tnx_b_dtype(b, loss))) : total;
}

/* The incoming gradient of each element: divided by the count for a mean. */
static tnx_value spread(tnx_builder *b, tnx_value dy, tnx_value like, int64_t reduction) {
  if (!dy || !like) return 0;
  return reduction == MEAN ? divide(b, dy, dim_number(b, tnx_b_numel(b, like), tnx_b_dtype(b, dy))) : dy;
}

typedef struct pair { tnx_value x, y; tnx_dtype t; } pair;

/* Input and target in the computation dtype. */
static bool operands(tnx_lower *l, const tnx_arg *x, const tnx_arg *y, pair *p) {
  tnx_builder *b = &l->b;
  tnx_value all[2] = {x->value, y->value};
  p->t = tnx_b_result_type(b, all, 2);
  p->x = tnx_b_convert(b, x->value, tnx_acc_of(p->t)), p->y = tnx_b_convert(b, y->value, tnx_acc_of(p->t));
  return tnx_dtype_is_float(p->t) && p->x && p->y;
}

#define PAIR(x, y)                                     \
  tnx_builder *b = &l->b;                              \
  pair p;                                              \
  if (!operands(l, x, y, &p)) return uncovered(l, "dtype")
#define RESULT(v) give(l, results, tnx_b_convert(b, (v), p.t))

tnx_status lower_mse_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a, a + 1);
  tnx_value d = sub(b, p.x, p.y);
  return RESULT(reduced(b, mul(b, d, d), a[2].dim));
}

tnx_status lower_mse_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a + 1, a + 2);
  tnx_value dy = spread(b, tnx_b_convert(b, a[0].value, tnx_acc_of(p.t)), p.x, a[3].dim);
  return RESULT(mul(b, mul_f(b, sub(b, p.x, p.y), 2), dy));
}

/* 0.5 d^2 / beta inside beta, |d| - 0.5 beta outside */
tnx_status lower_smooth_l1_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a, a + 1);
  double beta = arg_number(a + 3, 1);
  tnx_value d = tnx_b_unary(b, TNX_OP_ABS, sub(b, p.x, p.y));
  tnx_value loss = beta == 0 ? d : tnx_b_select(b, compare_f(b, TNX_OP_LT, d, beta), tnx_b_binary_f(b, TNX_OP_DIV, mul(b, mul_f(b, d, 0.5), d), beta), add_f(b, d, -0.5 * beta));
  return RESULT(reduced(b, loss, a[2].dim));
}

tnx_status lower_smooth_l1_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a + 1, a + 2);
  double beta = arg_number(a + 4, 1);
  tnx_value dy = spread(b, tnx_b_convert(b, a[0].value, tnx_acc_of(p.t)), p.x, a[3].dim), d = sub(b, p.x, p.y), sign = tnx_b_unary(b, TNX_OP_SIGN, d);
  if (beta != 0) sign = tnx_b_select(b, compare_f(b, TNX_OP_LT, tnx_b_unary(b, TNX_OP_ABS, d), beta), tnx_b_binary_f(b, TNX_OP_DIV, d, beta), sign);
  return RESULT(mul(b, sign, dy));
}

/* 0.5 d^2 inside delta, delta (|d| - 0.5 delta) outside */
tnx_status lower_huber_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a, a + 1);
  double delta = arg_number(a + 3, 1);
  tnx_value d = tnx_b_unary(b, TNX_OP_ABS, sub(b, p.x, p.y));
  tnx_value loss = tnx_b_select(b, compare_f(b, TNX_OP_LE, d, delta), mul(b, mul_f(b, d, 0.5), d), mul_f(b, add_f(b, d, -0.5 * delta), delta));
  return RESULT(reduced(b, loss, a[2].dim));
}

tnx_status lower_huber_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a + 1, a + 2);
  double delta = arg_number(a + 4, 1);
  tnx_value dy = spread(b, tnx_b_convert(b, a[0].value, tnx_acc_of(p.t)), p.x, a[3].dim), d = sub(b, p.x, p.y);
  return RESULT(mul(b, tnx_b_binary_f(b, TNX_OP_MIN, tnx_b_binary_f(b, TNX_OP_MAX, d, -delta), delta), dy));
}

/* x, which has to lie in [0, 1]. */
static tnx_value in_unit(tnx_builder *b, tnx_value x, tnx_fault fault) {
  return tnx_b_check(b, x, tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GE, x, 0), compare_f(b, TNX_OP_LE, x, 1)), fault);
}

/* -(y log x + (1 - y) log(1 - x)), logarithms not below -100 */
tnx_status lower_binary_cross_entropy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a, a + 1);
  tnx_value weight = arg_value(a + 2);
  p.x = in_unit(b, p.x, TNX_FAULT_UNIT_INPUT), p.y = in_unit(b, p.y, TNX_FAULT_UNIT_TARGET);
  tnx_value log_x = tnx_b_binary_f(b, TNX_OP_MAX, tnx_b_unary(b, TNX_OP_LOG, p.x), -100), log_1x = tnx_b_binary_f(b, TNX_OP_MAX, tnx_b_unary(b, TNX_OP_LOG1P, neg(b, p.x)), -100);
  tnx_value loss = sub(b, mul(b, add_f(b, p.y, -1), log_1x), mul(b, p.y, log_x));
  if (weight) loss = mul(b, loss, tnx_b_convert(b, weight, tnx_acc_of(p.t)));
  return RESULT(reduced(b, loss, a[3].dim));
}

tnx_status lower_binary_cross_entropy_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a + 1, a + 2);
  tnx_value weight = arg_value(a + 3), dy = spread(b, tnx_b_convert(b, a[0].value, tnx_acc_of(p.t)), p.x, a[4].dim);
  tnx_value g = divide(b, mul(b, dy, sub(b, p.x, p.y)), tnx_b_binary_f(b, TNX_OP_MAX, mul(b, rsub_f(b, 1, p.x), p.x), 1e-12));
  if (weight) g = mul(b, g, tnx_b_convert(b, weight, tnx_acc_of(p.t)));
  return RESULT(g);
}

/* (1 - y) x + (1 + (pos_weight - 1) y) softplus(-x) */
tnx_status lower_bce_with_logits(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  PAIR(a, a + 1);
  tnx_dtype acc = tnx_acc_of(p.t);
  tnx_value weight = arg_value(a + 2), pos = arg_value(a + 3);
  tnx_value soft = sub(b, tnx_b_unary(b, TNX_OP_LOG1P, tnx_b_unary(b, TNX_OP_EXP, neg(b, tnx_b_unary(b, TNX_OP_ABS, p.x)))), tnx_b_binary_f(b, TNX_OP_MIN, p.x, 0));
  if (pos) soft = mul(b, soft, add_f(b, mul(b, add_f(b, tnx_b_convert(b, pos, acc), -1), p.y), 1));
  tnx_value loss = add(b, mul(b, rsub_f(b, 1, p.y), p.x), soft);
  if (weight) loss = mul(b, loss, tnx_b_convert(b, weight, acc));
  return RESULT(reduced(b, loss, a[4].dim));
}

/* ---- negative log likelihood: classes on dimension 1, or 0 for one sample ---- */

typedef struct nll { tnx_value x, index, weight, valid; int dim; tnx_dtype t, acc; } nll;

/* index: the target with the class dimension, 0 where ignored. weight: of each sample, 0 where ignored. */
static bool nll_init(tnx_lower *l, const tnx_arg *x, const tnx_arg *target, const tnx_arg *weight, const tnx_arg *ignore, nll *n) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x->value);
  b->fault = TNX_FAULT_TARGET;
  n->t = tnx_b_dtype(b, x->value), n->acc = tnx_acc_of(n->t);
  tnx_dtype it = tnx_b_dtype(b, target->value);
  if (!tnx_dtype_is_float(n->t) || rank < 1 || (it != TNX_I64 && it != TNX_U8)) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "nll_loss: dtype or rank");
    return false;
  }
  n->dim = rank == 1 ? 0 : 1;
  if (tnx_b_rank(b, target->value) != (rank == 1 ? 0 : rank - 1) && !(rank == 1 && tnx_b_rank(b, target->value) == 1)) {
    tnx_b_fail(b, TNX_SHAPE, "nll_loss: input and target do not fit together");
    return false;
  }
  if (arg_value(weight) && (tnx_b_rank(b, weight->value) != 1 || tnx_b_size(b, weight->value, 0) != tnx_b_size(b, x->value, n->dim))) {
    tnx_b_fail(b, TNX_SHAPE, "weight tensor should be defined either for all classes or no classes");
    return false;
  }
  n->x = x->value;
  tnx_value y = tnx_b_convert(b, target->value, TNX_I64);
  n->index = rank == 1 && tnx_b_rank(b, y) == 1 ? y : tnx_b_unsqueeze(b, y, n->dim);
  n->valid = tnx_b_binary(b, TNX_OP_NE, n->index, tnx_b_scalar(b, ignore, TNX_I64));
  n->index = select_f(b, n->valid, n->index, 0);
  tnx_value w = tnx_b_const_f(b, n->acc, 1);
  if (arg_value(weight)) w = tnx_b_take(b, tnx_b_convert(b, weight->value, n->acc), n->index, 0);
  n->weight = tnx_b_select(b, n->valid, w, tnx_b_const_f(b, n->acc, 0));
  return b->status == TNX_OK;
}

/* (self, target, weight, reduction, ignore_index) -> loss, total weight */
tnx_status lower_nll_loss_forward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  nll n;
  if (!nll_init(l, a, a + 1, a + 2, a + 4, &n)) return b->status;
  tnx_value chosen = tnx_b_convert(b, tnx_b_gather(b, n.x, n.index, n.dim), n.acc);
  tnx_value loss = tnx_b_select(b, n.valid, neg(b, mul(b, chosen, n.weight)), tnx_b_const_f(b, n.acc, 0));
  tnx_value total = reduce(b, TNX_OP_REDUCE_SUM, expand_like(b, n.weight, n.valid), NULL, 0, false);
  if (a[3].dim == NONE && tnx_b_rank(b, n.x) == 1) {
    loss = tnx_b_reshape(b, loss, 0, NULL);
  } else if (a[3].dim == NONE) {
    loss = tnx_b_squeeze(b, loss, &n.dim, 1);
    total = tnx_b_const_f(b, n.acc, 0);
  } else {
    loss = reduce(b, TNX_OP_REDUCE_SUM, loss, NULL, 0, false);
    if (a[3].dim == MEAN) loss = divide(b, loss, total);
  }
  return give2(l, results, tnx_b_convert(b, loss, n.t), tnx_b_convert(b, total, n.t));
}

/* (grad, self, target, weight, reduction, ignore_index, total_weight): -weight * grad at the target's class, 0 elsewhere */
tnx_status lower_nll_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  nll n;
  if (!nll_init(l, a + 1, a + 2, a + 3, a + 5, &n)) return b->status;
  tnx_value dy = tnx_b_convert(b, a[0].value, n.acc);
  if (a[4].dim == NONE && tnx_b_rank(b, n.x) > 1) dy = tnx_b_unsqueeze(b, dy, n.dim);
  if (a[4].dim == MEAN) dy = divide(b, dy, tnx_b_convert(b, a[6].value, n.acc));
  tnx_value count = tnx_b_dimval(b, tnx_b_size(b, n.x, n.dim));
  n.index = tnx_b_check(b, n.index, tnx_b_binary(b, TNX_OP_AND, compare_f(b, TNX_OP_GE, n.index, 0), tnx_b_binary(b, TNX_OP_LT, n.index, count)), TNX_FAULT_TARGET);
  tnx_value classes = tnx_b_iota(b, tnx_b_rank(b, n.x), tnx_b_sizes(b, n.x), n.dim);
  tnx_value hit = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_EQ, classes, n.index), n.valid);
  return give(l, results, tnx_b_convert(b, select_f(b, hit, neg(b, mul(b, dy, n.weight)), 0), n.t));
}
