/* Margin losses over classes. Computed in float32 for halves; one sample may come without its batch dimension. */
#include "aten/family.h"

enum { NONE, MEAN, SUM };

typedef struct sample { tnx_value x, target; tnx_dtype t, acc; tnx_dim n, classes; bool batched; } sample;

/* self [n, c], [c] or none; target [n] or none (one class each), or [n, c] or [c] (`lists`). */
static bool sample_init(tnx_lower *l, const tnx_arg *x, const tnx_arg *target, bool lists, sample *s) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, x->value), rt = tnx_b_rank(b, target->value);
  *s = (sample){.t = tnx_b_dtype(b, x->value), .batched = rank == 2};
  s->acc = tnx_acc_of(s->t);
  if (rank > 2 || !tnx_dtype_is_float(s->t) || tnx_b_dtype(b, target->value) != TNX_I64) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "margin loss: rank or dtype");
    return false;
  }
  s->n = rank == 2 ? tnx_b_size(b, x->value, 0) : 1;
  s->classes = rank ? tnx_b_size(b, x->value, -1) : 1;
  bool fits = lists ? same_sizes(b, x->value, target->value) : rt <= 1 && (rt == 0 ? !differ(s->n, 1) : !differ(s->n, tnx_b_size(b, target->value, 0)));
  if (!fits || tnx_dim_is_symbolic(s->classes) || s->classes == 0) {
    tnx_b_fail(b, fits ? TNX_NOT_IMPLEMENTED : TNX_SHAPE, "margin loss: inconsistent target size");
    return false;
  }
  tnx_dim sizes[2] = {s->n, s->classes}, one[2] = {s->n, lists ? s->classes : 1};
  s->x = tnx_b_convert(b, tnx_b_reshape(b, x->value, 2, sizes), s->acc);
  s->target = tnx_b_reshape(b, target->value, 2, one);
  return s->x && s->target;
}

/* The losses [n] as the result: each, or their mean or sum. `flat`: one sample without reduction is 0-dim. */
static tnx_value finish(tnx_builder *b, const sample *s, tnx_value losses, int64_t reduction, bool flat) {
  if (reduction == NONE) return tnx_b_convert(b, flat ? tnx_b_reshape(b, losses, 0, NULL) : losses, s->t);
  tnx_value total = reduce(b, TNX_OP_REDUCE_SUM, losses, NULL, 0, false);
  return tnx_b_convert(b, reduction == MEAN ? divide(b, total, dim_number(b, s->n, s->acc)) : total, s->t);
}

/* The gradient of each sample's loss, [n, 1]. */
static tnx_value incoming(tnx_builder *b, const sample *s, tnx_value dy, int64_t reduction) {
  tnx_dim column[2] = {reduction == NONE ? s->n : 1, 1};
  tnx_value g = tnx_b_reshape(b, tnx_b_convert(b, dy, s->acc), 2, column);
  return reduction == MEAN ? divide(b, g, dim_number(b, s->n, s->acc)) : g;
}

static tnx_value class_axis(tnx_builder *b, const sample *s) {
  tnx_dim sizes[2] = {1, s->classes};
  return tnx_b_iota(b, 2, sizes, 1);
}

/* ---- one class for each sample: sum over the others of max(0, margin - x[y] + x[i])^p / c ---- */

typedef struct multi { sample s; tnx_value gap, hit, weight; int64_t p; } multi;

static bool multi_init(tnx_lower *l, const tnx_arg *x, const tnx_arg *target, const tnx_arg *p, const tnx_arg *margin, const tnx_arg *weight, multi *m) {
  tnx_builder *b = &l->b;
  if (!sample_init(l, x, target, false, &m->s)) return false;
  m->p = arg_int(p, 1);
  if (m->p != 1 && m->p != 2) return tnx_b_fail(b, TNX_INVALID_ARGUMENT, "multi_margin_loss: only p == 1 and p == 2 supported"), false;
  tnx_value chosen = tnx_b_gather(b, m->s.x, m->s.target, 1);
  m->hit = tnx_b_binary(b, TNX_OP_EQ, class_axis(b, &m->s), m->s.target);
  m->gap = tnx_b_binary_f(b, TNX_OP_MAX, add(b, sub(b, m->s.x, chosen), tnx_b_scalar(b, margin, m->s.acc)), 0);
  m->gap = select_f(b, tnx_b_unary(b, TNX_OP_NOT, m->hit), m->gap, 0);
  m->weight = arg_value(weight) ? tnx_b_convert(b, tnx_b_take(b, weight->value, m->s.target, 0), m->s.acc) : 0;
  return m->gap != 0;
}

/* (self, target, p, margin, weight, reduction) */
tnx_status lower_multi_margin_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  multi m;
  int last = 1;
  if (!multi_init(l, a, a + 1, a + 2, a + 3, a + 4, &m)) return b->status;
  tnx_value v = m.p == 2 ? mul(b, m.gap, m.gap) : m.gap;
  if (m.weight) v = mul(b, v, m.weight);
  tnx_value losses = divide(b, reduce(b, TNX_OP_REDUCE_SUM, v, &last, 1, false), dim_number(b, m.s.classes, m.s.acc));
  return give(l, results, finish(b, &m.s, losses, a[5].dim, tnx_b_rank(b, a[1].value) == 0));
}

/* (grad, self, target, p, margin, weight, reduction) */
tnx_status lower_multi_margin_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  multi m;
  int last = 1;
  if (!multi_init(l, a + 1, a + 2, a + 3, a + 4, a + 5, &m)) return b->status;
  tnx_value slope = m.p == 2 ? mul_f(b, m.gap, 2) : tnx_b_convert(b, compare_f(b, TNX_OP_GT, m.gap, 0), m.s.acc);
  slope = divide(b, mul(b, slope, incoming(b, &m.s, a[0].value, a[6].dim)), dim_number(b, m.s.classes, m.s.acc));
  if (m.weight) slope = mul(b, slope, m.weight);
  tnx_value dx = tnx_b_select(b, m.hit, neg(b, reduce(b, TNX_OP_REDUCE_SUM, slope, &last, 1, true)), slope);
  return give(l, results, tnx_b_reshape(b, tnx_b_convert(b, dx, m.s.t), tnx_b_rank(b, a[1].value), tnx_b_sizes(b, a[1].value)));
}

/* ---- a list of classes for each sample, ended by -1: sum over pairs of one in it and one not in it of max(0, 1 - x[y] + x[i]) / c ---- */

typedef struct multilabel { sample s; tnx_value index, match, member, gap; } multilabel;

/* match [n, j, c]: entry j of the list is class c. member [n, c]. gap [n, j, c]: the terms. */
static bool multilabel_init(tnx_lower *l, const tnx_arg *x, const tnx_arg *target, multilabel *m) {
  tnx_builder *b = &l->b;
  if (!sample_init(l, x, target, true, &m->s)) return false;
  tnx_value given = tnx_b_convert(b, compare_f(b, TNX_OP_GE, m->s.target, 0), TNX_I64);
  tnx_value valid = compare_f(b, TNX_OP_NE, tnx_b_scan(b, TNX_OP_CUMPROD, given, 1), 0);
  m->index = select_f(b, valid, m->s.target, 0);
  tnx_value entry = tnx_b_unsqueeze(b, valid, 2), classes = tnx_b_unsqueeze(b, class_axis(b, &m->s), 0);
  m->match = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_EQ, tnx_b_unsqueeze(b, m->index, 2), classes), entry);
  int list = 1;
  m->member = reduce(b, TNX_OP_REDUCE_MAX, m->match, &list, 1, false);
  tnx_value chosen = tnx_b_unsqueeze(b, tnx_b_gather(b, m->s.x, m->index, 1), 2), counts = tnx_b_binary(b, TNX_OP_AND, entry, tnx_b_unsqueeze(b, tnx_b_unary(b, TNX_OP_NOT, m->member), 1));
  m->gap = select_f(b, counts, tnx_b_binary_f(b, TNX_OP_MAX, add_f(b, sub(b, tnx_b_unsqueeze(b, m->s.x, 1), chosen), 1), 0), 0);
  return m->gap != 0;
}

/* (self, target, reduction) -> loss, is_target */
tnx_status lower_multilabel_margin_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  multilabel m;
  const int pairs[2] = {1, 2};
  if (!multilabel_init(l, a, a + 1, &m)) return b->status;
  tnx_value losses = divide(b, reduce(b, TNX_OP_REDUCE_SUM, m.gap, pairs, 2, false), dim_number(b, m.s.classes, m.s.acc));
  tnx_value member = tnx_b_reshape(b, tnx_b_convert(b, m.member, m.s.t), tnx_b_rank(b, a[1].value), tnx_b_sizes(b, a[1].value));
  return give2(l, results, finish(b, &m.s, losses, a[2].dim, !m.s.batched), member);
}

/* (grad, self, target, reduction, is_target) */
tnx_status lower_multilabel_margin_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  multilabel m;
  int list = 1, last = 2;
  if (!multilabel_init(l, a + 1, a + 2, &m)) return b->status;
  tnx_value hit = tnx_b_convert(b, compare_f(b, TNX_OP_GT, m.gap, 0), m.s.acc);
  tnx_value up = reduce(b, TNX_OP_REDUCE_SUM, hit, &list, 1, false), each = reduce(b, TNX_OP_REDUCE_SUM, hit, &last, 1, true);
  tnx_value down = reduce(b, TNX_OP_REDUCE_SUM, mul(b, tnx_b_convert(b, m.match, m.s.acc), each), &list, 1, false);
  tnx_value dx = mul(b, sub(b, up, down), divide(b, incoming(b, &m.s, a[0].value, a[3].dim), dim_number(b, m.s.classes, m.s.acc)));
  return give(l, results, tnx_b_reshape(b, tnx_b_convert(b, dx, m.s.t), tnx_b_rank(b, a[1].value), tnx_b_sizes(b, a[1].value)));
}
