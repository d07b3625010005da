/* Connectionist temporal classification: the loss over all alignments of a target with the frames of log_probs [T, N, C], and its gradient.
 *
 * States of a sample are the labels with a blank before, between and after them (2 S + 1). The recursions over frames are written out, one after the
 * other, so the number of frames is bounded; longer ones are not covered. alpha and beta hold log-probabilities of the paths up to a state and from it
 * on; what a state does not exist for has -inf. After a sample's last frame alpha goes on and means nothing: beta is -inf there. */
#include "aten/family.h"

enum { MAX_FRAMES = 256, MAX_SAMPLES = 1024 };

typedef struct ctc {
  tnx_builder *b;
  tnx_dtype t;
  int64_t frames, samples, classes, states;
  tnx_value x, labels; /* [T, N, C]; int64 [N, L] */
  tnx_value emission;  /* log_probs of the states' labels [T, N, L] */
  tnx_value exists;    /* bool [N, L] */
  tnx_value skip;      /* [N, L]: 0 where a path may come from two states before, else -inf */
  tnx_value frames_of, last; /* int64 [N, 1]: of frames; the last state, a blank */
} ctc;

/* One number for each sample, [N, 1]. */
static tnx_value for_samples(tnx_builder *b, const int64_t *numbers, int64_t n) {
  tnx_value each[MAX_SAMPLES];
  tnx_dim sizes[2] = {n, 1}, one[2] = {1, 1};
  bool same = true;
  for (int64_t i = 1; i < n; i++) same &= numbers[i] == numbers[0];
  if (same) return tnx_b_full(b, tnx_b_const_i(b, TNX_I64, numbers[0]), 2, sizes);
  for (int64_t i = 0; i < n; i++) each[i] = tnx_b_full(b, tnx_b_const_i(b, TNX_I64, numbers[i]), 2, one);
  return tnx_b_concat(b, each, (int)n, 0);
}

/* The element `by` states before (by > 0) or after, -inf beyond the ends. x: [N, L]. */
static tnx_value shifted(const ctc *c, tnx_value x, int64_t by) {
  tnx_dim low[2] = {0, by}, high[2] = {0, -by};
  if (by >= c->states || -by >= c->states) return full_like_f(c->b, x, c->t, -INFINITY);
  return tnx_b_pad(c->b, x, tnx_b_const_f(c->b, c->t, -INFINITY), low, high);
}

static tnx_value at_frame(const ctc *c, tnx_value x, int64_t t) {
  int first = 0;
  return tnx_b_squeeze(c->b, tnx_b_slice(c->b, x, 0, t, 1, 1), &first, 1);
}

/* log of the sum of exponentials, -inf where all are. */
static tnx_value log_sum(const ctc *c, const tnx_value *x, int n) {
  tnx_builder *b = c->b;
  tnx_value max = x[0], sum = 0;
  for (int i = 1; i < n; i++) max = tnx_b_binary(b, TNX_OP_MAX, max, x[i]);
  max = select_f(b, compare_f(b, TNX_OP_NE, max, -INFINITY), max, 0);
  for (int i = 0; i < n; i++) {
    tnx_value e = tnx_b_unary(b, TNX_OP_EXP, sub(b, x[i], max));
    sum = sum ? add(b, sum, e) : e;
  }
  return add(b, tnx_b_unary(b, TNX_OP_LOG, sum), max);
}

/* (log_probs, targets, input_lengths, target_lengths), blank */
static tnx_status ctc_init(tnx_lower *l, const tnx_arg *a, const tnx_arg *blank, ctc *c) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, targets = a[1].value;
  *c = (ctc){.b = b, .t = tnx_b_dtype(b, x), .x = x};
  tnx_dtype it = tnx_b_dtype(b, targets);
  if ((c->t != TNX_F32 && c->t != TNX_F64) || (it != TNX_I64 && it != TNX_I32) || tnx_b_rank(b, x) != 3) return uncovered(l, "dtypes or rank");
  for (int i = 0; i < 3; i++)
    if (tnx_dim_is_symbolic(tnx_b_size(b, x, i))) return uncovered(l, "symbolic sizes");
  c->frames = tnx_b_size(b, x, 0), c->samples = tnx_b_size(b, x, 1), c->classes = tnx_b_size(b, x, 2);
  int64_t longest = 0, total = 0, start[MAX_SAMPLES];
  if (c->frames < 1 || c->frames > MAX_FRAMES || c->samples < 1 || c->samples > MAX_SAMPLES) return uncovered(l, "number of frames or samples");
  if (a[2].kind != TNX_ARG_INTS || a[3].kind != TNX_ARG_INTS || a[2].count != c->samples || a[3].count != c->samples || arg_symbolic(blank)) return uncovered(l, "lengths");
  int64_t last[MAX_SAMPLES];
  for (int64_t i = 0; i < c->samples; i++) {
    int64_t n = a[3].dims[i];
    if (tnx_dim_is_symbolic(a[2].dims[i]) || tnx_dim_is_symbolic(n)) return uncovered(l, "symbolic lengths");
    if (a[2].dims[i] < 0 || a[2].dims[i] > c->frames) return tnx_fail(TNX_INVALID_ARGUMENT, "Expected input_lengths to have value at most %lld, but got value %lld (while checking arguments for ctc_loss_cpu)", (long long)c->frames, (long long)a[2].dims[i]);
    if (n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "Expected target_lengths to have value at least 0, but got value %lld (while checking arguments for ctc_loss_cpu)", (long long)n);
    start[i] = total, total += n, last[i] = 2 * n;
    if (n > longest) longest = n;
  }
  if (blank->dim < 0 || blank->dim >= c->classes) return tnx_fail(TNX_INVALID_ARGUMENT, "blank must be in label range");
  c->states = 2 * longest + 1;
  c->frames_of = for_samples(b, a[2].dims, c->samples), c->last = for_samples(b, last, c->samples);
  /* labels: blank, target 0, blank, target 1, .., blank */
  tnx_dim pairs[3] = {c->samples, longest, 1}, flat[2] = {c->samples, 2 * longest}, end[2] = {c->samples, 1};
  tnx_value none = tnx_b_const_i(b, TNX_I64, blank->dim);
  c->labels = tnx_b_full(b, none, 2, end);
  if (longest) {
    if (tnx_b_rank(b, targets) == 2) {
      if (differ(tnx_b_size(b, targets, 0), c->samples) || tnx_b_size(b, targets, 1) < longest) return uncovered(l, "size of targets");
      targets = tnx_b_slice(b, targets, 1, 0, longest, 1);
    } else {
      if (tnx_b_rank(b, targets) != 1 || differ(tnx_b_size(b, targets, 0), total)) return uncovered(l, "size of targets");
      tnx_value at = add(b, for_samples(b, start, c->samples), axis_iota(b, 2, 1, longest));
      targets = tnx_b_take(b, targets, tnx_b_binary_f(b, TNX_OP_MIN, at, (double)(total - 1)), 0);
    }
    tnx_value used = tnx_b_binary(b, TNX_OP_LT, mul_f(b, axis_iota(b, 2, 1, longest), 2), c->last);
    tnx_value two[2] = {tnx_b_full(b, none, 3, pairs), tnx_b_unsqueeze(b, tnx_b_select(b, used, tnx_b_convert(b, targets, TNX_I64), none), 2)};
    two[0] = tnx_b_reshape(b, tnx_b_concat(b, two, 2, 2), 2, flat), two[1] = c->labels;
    c->labels = tnx_b_concat(b, two, 2, 1);
  }
  tnx_value state = axis_iota(b, 2, 1, c->states);
  c->exists = tnx_b_binary(b, TNX_OP_LE, state, c->last);
  c->skip = full_like_f(b, c->labels, c->t, -INFINITY);
  if (longest) {
    tnx_value other = tnx_b_binary(b, TNX_OP_NE, tnx_b_slice(b, c->labels, 1, 2, c->states - 2, 1), tnx_b_slice(b, c->labels, 1, 0, c->states - 2, 1));
    tnx_dim low[2] = {0, 2}, high[2] = {0};
    tnx_value least = tnx_b_const_f(b, c->t, -INFINITY);
    c->skip = tnx_b_pad(b, tnx_b_select(b, other, tnx_b_const_f(b, c->t, 0), least), least, low, high);
  }
  tnx_dim all[3] = {c->frames, c->samples, c->states};
  c->emission = select_f(b, c->exists, tnx_b_gather(b, x, tnx_b_broadcast_to(b, c->labels, 3, all), 2), -INFINITY);
  return b->status;
}

/* One step from the frame before (by = 1) or after it (by = -1). */
static tnx_value step(const ctc *c, tnx_value v, tnx_value skip, int by) {
  const tnx_value from[3] = {v, shifted(c, v, by), add(c->b, shifted(c, v, 2 * by), skip)};
  return log_sum(c, from, 3);
}

/* -> negative log likelihood [N], log alpha [N, T, L] */
tnx_status lower_ctc_loss(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ctc c;
  TNX_TRY(ctc_init(l, a, a + 4, &c));
  tnx_builder *b = c.b;
  tnx_value each[MAX_FRAMES];
  tnx_value v = select_f(b, compare_f(b, TNX_OP_LE, axis_iota(b, 2, 1, c.states), 1), at_frame(&c, c.emission, 0), -INFINITY);
  for (int64_t t = 0; t < c.frames && b->status == TNX_OK; t++) {
    if (t) v = add(b, step(&c, v, c.skip, 1), at_frame(&c, c.emission, t));
    each[t] = tnx_b_unsqueeze(b, v, 1);
  }
  if (b->status != TNX_OK) return b->status;
  tnx_value alpha = tnx_b_concat(b, each, (int)c.frames, 1);
  tnx_dim row[3] = {c.samples, 1, c.states};
  tnx_value at = tnx_b_unsqueeze(b, tnx_b_binary_f(b, TNX_OP_MAX, add_f(b, c.frames_of, -1), 0), 2);
  int mid = 1;
  tnx_value end = tnx_b_squeeze(b, tnx_b_gather(b, alpha, tnx_b_broadcast_to(b, at, 3, row), 1), &mid, 1);
  tnx_value label = add_f(b, c.last, -1), has_label = compare_f(b, TNX_OP_GE, label, 0);
  const tnx_value ends[2] = {tnx_b_gather(b, end, c.last, 1), select_f(b, has_label, tnx_b_gather(b, end, tnx_b_binary_f(b, TNX_OP_MAX, label, 0), 1), -INFINITY)};
  tnx_value loss = neg(b, log_sum(&c, ends, 2));
  /* without frames: certain for an empty target, else impossible */
  tnx_value nothing = tnx_b_select(b, has_label, tnx_b_const_f(b, c.t, INFINITY), tnx_b_const_f(b, c.t, 0));
  loss = tnx_b_select(b, compare_f(b, TNX_OP_EQ, c.frames_of, 0), nothing, loss);
  return give2(l, results, tnx_b_squeeze(b, loss, &mid, 1), alpha);
}

/* (grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity): the softmax minus the probability
 * that an alignment passes through a class at a frame, times the incoming gradient */
tnx_status lower_ctc_loss_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  ctc c;
  TNX_TRY(ctc_init(l, a + 1, a + 7, &c));
  tnx_builder *b = c.b;
  tnx_value state = axis_iota(b, 2, 1, c.states), each[MAX_FRAMES], skip = shifted(&c, c.skip, -2), v = full_like_f(b, c.skip, c.t, -INFINITY);
  tnx_value ends = tnx_b_binary(b, TNX_OP_AND, c.exists, tnx_b_binary(b, TNX_OP_GE, state, add_f(b, c.last, -1)));
  for (int64_t t = c.frames - 1; t >= 0 && b->status == TNX_OK; t--) {
    tnx_value e = at_frame(&c, c.emission, t), on = add(b, step(&c, v, skip, -1), e);
    v = tnx_b_select(b, compare_f(b, TNX_OP_EQ, c.frames_of, (double)(t + 1)), select_f(b, ends, e, -INFINITY), on);
    each[t] = tnx_b_unsqueeze(b, v, 0);
  }
  if (b->status != TNX_OK) return b->status;
  tnx_dim sizes[3] = {c.frames, c.samples, c.classes}, all[3] = {c.frames, c.samples, c.states}, column[3] = {1, c.samples, 1};
  tnx_value beta = tnx_b_concat(b, each, (int)c.frames, 0), alpha = tnx_b_swap_dims(b, a[6].value, 0, 1);
  tnx_value loss = tnx_b_reshape(b, a[5].value, 3, column), dy = tnx_b_reshape(b, a[0].value, 3, column);
  /* alpha and beta have the emission both */
  tnx_value through = tnx_b_unary(b, TNX_OP_EXP, sub(b, add(b, add(b, alpha, beta), loss), c.emission));
  through = select_f(b, c.exists, through, 0);
  tnx_value sum = tnx_b_scatter(b, tnx_b_full(b, tnx_b_const_f(b, c.t, 0), 3, sizes), tnx_b_broadcast_to(b, c.labels, 3, all), through, 2, ADD);
  tnx_value g = mul(b, sub(b, tnx_b_unary(b, TNX_OP_EXP, c.x), sum), dy);
  tnx_value live = tnx_b_binary(b, TNX_OP_LT, axis_iota(b, 3, 0, c.frames), tnx_b_reshape(b, c.frames_of, 3, column));
  /* an impossible target has no gradient */
  tnx_value possible = compare_f(b, TNX_OP_NE, loss, INFINITY);
  g = arg_bool(a + 8) ? select_f(b, possible, g, 0) : select_f(b, possible, g, NAN);
  return give(l, results, select_f(b, live, g, 0));
}
