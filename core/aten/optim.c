/* Steps of optimizers over lists of parameters, and what gradient scaling does to lists of gradients.
 *
 * For each parameter one pass over its memory: gradient, parameter and state are read once and written once. Computed in float32 for halves; the
 * factors that depend on the number of steps in float64. Where a gradient was not finite (found_inf is 1) everything stays as it is. */
#include "aten/family.h"

typedef struct step {
  tnx_builder *b;
  tnx_dtype acc;
  tnx_value skip, scale; /* none: 0 */
} step;

static tnx_value element(const tnx_arg *list, uint32_t i) { return list->kind == TNX_ARG_TENSORS && i < list->count && list->values[i] != TNX_NO_TENSOR ? list->values[i] : 0; }

/* A tensor of one element as a 0-dim value. */
static tnx_value single(tnx_builder *b, tnx_value v) { return v ? tnx_b_reshape(b, v, 0, NULL) : 0; }

static bool is_zero(const tnx_arg *a) { return arg_none(a) || arg_equals(a, 0); }

static step step_init(tnx_builder *b, tnx_value param, const tnx_arg *grad_scale, const tnx_arg *found_inf) {
  step s = {.b = b, .acc = tnx_acc_of(tnx_b_dtype(b, param))};
  tnx_value found = single(b, arg_value(found_inf)), scale = single(b, arg_value(grad_scale));
  if (found) s.skip = compare_f(b, TNX_OP_EQ, found, 1);
  if (scale) s.scale = tnx_b_convert(b, scale, s.acc);
  return s;
}

static tnx_value number(const step *s, const tnx_arg *a) { return single(s->b, tnx_b_scalar(s->b, a, s->acc)); }
static tnx_value wide(const step *s, const tnx_arg *a) { return single(s->b, tnx_b_scalar(s->b, a, TNX_F64)); }

/* The new contents of `old`: rounded to its dtype, unless the step is skipped. */
static tnx_value store(const step *s, tnx_value old, tnx_value v) {
  if (!v || !old) return 0;
  v = tnx_b_convert(s->b, v, tnx_b_dtype(s->b, old));
  return s->skip ? tnx_b_select(s->b, s->skip, old, v) : v;
}

/* The gradient in the computation dtype, the scale divided out; *kept is what the gradient's memory holds afterwards. */
static tnx_value gradient(const step *s, tnx_value grad, const tnx_arg *maximize, tnx_value *kept) {
  tnx_value g = tnx_b_convert(s->b, grad, s->acc);
  *kept = grad;
  if (s->scale) {
    g = divide(s->b, g, s->scale);
    *kept = store(s, grad, g);
  }
  return arg_bool(maximize) ? neg(s->b, g) : g;
}

/* Lists of the same length as the first, or empty where that means something. */
static bool lists_fit(tnx_lower *l, const tnx_arg *a, int n, int optional) {
  for (int i = 0; i < n; i++) {
    bool given = a[i].kind == TNX_ARG_TENSORS && (a[i].count == a[0].count || (i == optional && a[i].count == 0));
    for (uint32_t j = 0; given && j < a[i].count; j++) given = a[i].values[j] != TNX_NO_TENSOR;
    if (!given) return tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "lists of different lengths"), false;
  }
  for (uint32_t j = 0; j < a[0].count; j++) {
    if (tnx_dtype_is_float(tnx_b_dtype(&l->b, a[0].values[j])) && same_sizes(&l->b, a[0].values[j], a[1].values[j])) continue;
    return tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "parameters and gradients of other dtypes or sizes"), false;
  }
  return true;
}

/* 1 - beta^step */
static tnx_value correction(const step *s, const tnx_arg *beta, tnx_value steps) {
  return rsub_f(s->b, 1, tnx_b_binary(s->b, TNX_OP_POW, wide(s, beta), steps));
}

/* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf) */
static tnx_status adam(tnx_lower *l, const tnx_arg *a, bool decoupled, tnx_value *results) {
  tnx_builder *b = &l->b;
  bool amsgrad = arg_bool(a + 11);
  uint32_t n = a[0].kind == TNX_ARG_TENSORS ? a[0].count : 0;
  if (!lists_fit(l, a, 6, amsgrad ? -1 : 4)) return b->status;
  uint32_t n_max = a[4].count;
  for (uint32_t i = 0; i < n; i++) {
    tnx_value param = element(a, i), avg = element(a + 2, i), sq = element(a + 3, i), max = element(a + 4, i);
    step s = step_init(b, param, a + 13, a + 14);
    tnx_value steps = tnx_b_convert(b, single(b, element(a + 5, i)), TNX_F64);
    tnx_value p = tnx_b_convert(b, param, s.acc), g = gradient(&s, element(a + 1, i), a + 12, &results[n + i]);
    if (!is_zero(a + 9)) {
      if (decoupled) p = sub(b, p, mul(b, p, tnx_b_convert(b, mul(b, wide(&s, a + 6), wide(&s, a + 9)), s.acc)));
      else g = add(b, g, mul(b, p, number(&s, a + 9)));
    }
    tnx_value m = add(b, mul(b, tnx_b_convert(b, avg, s.acc), number(&s, a + 7)), mul(b, g, tnx_b_convert(b, rsub_f(b, 1, wide(&s, a + 7)), s.acc)));
    tnx_value v = add(b, mul(b, tnx_b_convert(b, sq, s.acc), number(&s, a + 8)), mul(b, mul(b, g, g), tnx_b_convert(b, rsub_f(b, 1, wide(&s, a + 8)), s.acc)));
    tnx_value bound = v;
    if (amsgrad) bound = tnx_b_binary(b, TNX_OP_MAX, tnx_b_convert(b, max, s.acc), v);
    tnx_value root = tnx_b_convert(b, tnx_b_unary(b, TNX_OP_SQRT, correction(&s, a + 8, steps)), s.acc);
    tnx_value size = tnx_b_convert(b, divide(b, wide(&s, a + 6), correction(&s, a + 7, steps)), s.acc);
    tnx_value denominator = add(b, divide(b, tnx_b_unary(b, TNX_OP_SQRT, bound), root), number(&s, a + 10));
    results[i] = store(&s, param, sub(b, p, divide(b, mul(b, size, m), denominator)));
    results[2 * n + i] = store(&s, avg, m);
    results[3 * n + i] = store(&s, sq, v);
    if (n_max) results[4 * n + i] = amsgrad ? store(&s, max, bound) : max;
  }
  l->n_results = 4 * n + n_max;
  return b->status;
}
tnx_status lower_fused_adam(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adam(l, a, false, results); }
tnx_status lower_fused_adamw(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adam(l, a, true, results); }

/* (self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale, found_inf) */
tnx_status lower_fused_sgd(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  bool momentum = !is_zero(a + 4);
  uint32_t n = a[0].kind == TNX_ARG_TENSORS ? a[0].count : 0;
  if (!lists_fit(l, a, 3, momentum ? -1 : 2)) return b->status;
  uint32_t n_buffers = a[2].count;
  for (uint32_t i = 0; i < n; i++) {
    tnx_value param = element(a, i), buffer = element(a + 2, i);
    step s = step_init(b, param, a + 10, a + 11);
    tnx_value p = tnx_b_convert(b, param, s.acc), g = gradient(&s, element(a + 1, i), a + 8, &results[n + i]);
    if (!is_zero(a + 3)) g = add(b, g, mul(b, p, number(&s, a + 3)));
    if (momentum) {
      tnx_value m = g;
      if (!arg_bool(a + 9)) {
        tnx_value share = is_zero(a + 6) ? g : mul(b, g, tnx_b_convert(b, rsub_f(b, 1, wide(&s, a + 6)), s.acc));
        m = add(b, mul(b, tnx_b_convert(b, buffer, s.acc), number(&s, a + 4)), share);
      }
      results[2 * n + i] = store(&s, buffer, m);
      g = arg_bool(a + 7) ? add(b, g, mul(b, m, number(&s, a + 4))) : m;
    } else if (n_buffers) {
      results[2 * n + i] = buffer;
    }
    results[i] = store(&s, param, sub(b, p, mul(b, g, number(&s, a + 5))));
  }
  l->n_results = 2 * n + n_buffers;
  return b->status;
}

/* (self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf) */
static tnx_status adagrad(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  uint32_t n = a[0].kind == TNX_ARG_TENSORS ? a[0].count : 0;
  if (!lists_fit(l, a, 4, -1)) return b->status;
  for (uint32_t i = 0; i < n; i++) {
    tnx_value param = element(a, i), sum = element(a + 2, i);
    step s = step_init(b, param, a + 9, a + 10);
    tnx_value p = tnx_b_convert(b, param, s.acc), g = gradient(&s, element(a + 1, i), a + 8, &results[n + i]);
    if (!is_zero(a + 6)) g = add(b, g, mul(b, p, number(&s, a + 6)));
    tnx_value rate = wide(&s, a + 4);
    if (!is_zero(a + 5)) {
      tnx_value before = add_f(b, tnx_b_convert(b, single(b, element(a + 3, i)), TNX_F64), -1);
      rate = divide(b, rate, add_f(b, mul(b, before, wide(&s, a + 5)), 1));
    }
    tnx_value total = add(b, tnx_b_convert(b, sum, s.acc), mul(b, g, g));
    tnx_value denominator = add(b, tnx_b_unary(b, TNX_OP_SQRT, total), number(&s, a + 7));
    results[i] = store(&s, param, sub(b, p, divide(b, mul(b, g, tnx_b_convert(b, rate, s.acc)), denominator)));
    results[2 * n + i] = store(&s, sum, total);
  }
  l->n_results = 3 * n;
  return b->status;
}
tnx_status lower_fused_adagrad_tensor_lr(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return adagrad(l, a, results); }

/* This overload says that it writes the numbers of steps, which it does not. */
tnx_status lower_fused_adagrad(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  TNX_TRY(adagrad(l, a, results));
  for (uint32_t i = 0; i < a[3].count; i++) results[l->n_results++] = a[3].values[i];
  return l->b.status;
}

/* ---- gradient scaling ---- */

/* (self, found_inf, inv_scale): the gradients times inv_scale; found_inf becomes 1 where one of them is not finite */
tnx_status lower_amp_unscale(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  uint32_t n = a[0].count;
  tnx_value found = arg_value(a + 1), inverse = single(b, arg_value(a + 2)), bad = 0;
  if (a[0].kind != TNX_ARG_TENSORS || !found || !inverse) return uncovered(l, "arguments");
  tnx_value *parts = TNX_ARENA_ARRAY(&b->g->arena, tnx_value, n + 1);
  tnx_dim one = 1;
  if (!parts) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  for (uint32_t i = 0; i < n; i++) {
    tnx_value g = element(a, i);
    if (!g || !tnx_dtype_is_float(tnx_b_dtype(b, g))) return uncovered(l, "dtype");
    tnx_dtype t = tnx_b_dtype(b, g);
    tnx_value finite = reduce(b, TNX_OP_REDUCE_MIN, tnx_b_unary(b, TNX_OP_ISFINITE, g), NULL, 0, false);
    parts[i] = tnx_b_reshape(b, finite, 1, &one);
    results[i] = tnx_b_convert(b, mul(b, to_acc(b, g), tnx_b_convert(b, inverse, tnx_acc_of(t))), t);
  }
  if (n) bad = tnx_b_unary(b, TNX_OP_NOT, reduce(b, TNX_OP_REDUCE_MIN, tnx_b_concat(b, parts, (int)n, 0), NULL, 0, false));
  results[n] = bad ? tnx_b_select(b, bad, tnx_b_const_f(b, tnx_b_dtype(b, found), 1), found) : found;
  l->n_results = n + 1;
  return b->status;
}

/* (self, growth_tracker, found_inf, growth, backoff, interval): the scale grows after `interval` good steps, unless it would overflow, and shrinks after a bad one */
tnx_status lower_amp_update_scale(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value scale = a[0].value, tracker = a[1].value, found = single(b, a[2].value);
  tnx_dtype t = tnx_b_dtype(b, scale), count = tnx_b_dtype(b, tracker);
  if (!tnx_dtype_is_float(t) || !tnx_dtype_is_integral(count)) return uncovered(l, "dtype");
  tnx_value bad = compare_f(b, TNX_OP_NE, found, 0), next = add_f(b, tracker, 1);
  tnx_value due = tnx_b_binary(b, TNX_OP_EQ, next, tnx_b_scalar(b, a + 5, count));
  tnx_value grown = mul(b, scale, tnx_b_scalar(b, a + 3, t)), shrunk = mul(b, scale, tnx_b_scalar(b, a + 4, t));
  tnx_value fits = tnx_b_unary(b, TNX_OP_ISFINITE, grown);
  due = tnx_b_reshape(b, due, tnx_b_rank(b, scale), tnx_b_sizes(b, scale));
  tnx_value good = tnx_b_select(b, tnx_b_binary(b, TNX_OP_AND, due, fits), grown, scale);
  tnx_value reset = tnx_b_binary(b, TNX_OP_OR, bad, tnx_b_reshape(b, due, tnx_b_rank(b, tracker), tnx_b_sizes(b, tracker)));
  return give2(l, results, tnx_b_select(b, bad, shrunk, good), tnx_b_select(b, reset, tnx_b_const_i(b, count, 0), next));
}
