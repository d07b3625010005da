/* The cells of LSTM and GRU after their matrix products: what nn.LSTM, nn.GRU and their cells call for each time step on devices other than the CPU.
 *
 * Gates lie side by side in the last dimension: input, forget, cell, output (LSTM); reset, update, new (GRU). The workspace, which only the backward
 * operator reads, holds them activated. Computed in float32 for halves. */
#include "aten/family.h"

/* Part i of the n equal ones along dimension 1. */
static tnx_value part(tnx_builder *b, tnx_value x, int i, int n) {
  if (!x || b->status != TNX_OK) return 0;
  tnx_dim width = tnx_b_dim(b, TNX_DIM_FLOORDIV, tnx_b_size(b, x, 1), n);
  return tnx_b_slice(b, x, 1, tnx_b_dim_mul(b, width, i), width, 1);
}

static tnx_value sigmoid(tnx_builder *b, tnx_value x) { return tnx_b_unary(b, TNX_OP_SIGMOID, x); }
static tnx_value hyperbolic(tnx_builder *b, tnx_value x) { return tnx_b_unary(b, TNX_OP_TANH, x); }
/* The derivatives, from the function's value. */
static tnx_value sigmoid_slope(tnx_builder *b, tnx_value y) { return mul(b, rsub_f(b, 1, y), y); }
static tnx_value tanh_slope(tnx_builder *b, tnx_value y) { return rsub_f(b, 1, mul(b, y, y)); }

static tnx_value with_bias(tnx_builder *b, tnx_value x, const tnx_arg *bias) { return arg_value(bias) ? add(b, x, to_acc(b, arg_value(bias))) : x; }
static tnx_value bias_gradient(tnx_builder *b, tnx_value gates) { return reduce(b, TNX_OP_REDUCE_SUM, gates, &(int){0}, 1, false); }

/* Matrices of one batch size whose widths are `gates` and 1 times the hidden size. */
static bool fits(tnx_lower *l, tnx_value x, int wide, tnx_value y, int narrow) {
  tnx_builder *b = &l->b;
  if (tnx_b_rank(b, x) != 2 || tnx_b_rank(b, y) != 2) tnx_b_fail(b, TNX_SHAPE, "gates and states are matrices");
  else if (differ(tnx_b_size(b, x, 0), tnx_b_size(b, y, 0)) || differ(tnx_b_dim_mul(b, tnx_b_size(b, x, 1), narrow), tnx_b_dim_mul(b, tnx_b_size(b, y, 1), wide)))
    tnx_b_fail(b, TNX_SHAPE, "gates and states do not fit together");
  else if (!tnx_dtype_is_float(tnx_b_dtype(b, x))) return false;
  return b->status == TNX_OK;
}

/* (input_gates, hidden_gates, cx, input_bias, hidden_bias) -> (hy, cy, workspace) */
tnx_status lower_lstm_cell(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!fits(l, a[0].value, 4, a[2].value, 1) || !fits(l, a[1].value, 4, a[2].value, 1)) return uncovered(l, "dtype");
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  tnx_value gates = with_bias(b, with_bias(b, add(b, to_acc(b, a[0].value), to_acc(b, a[1].value)), a + 3), a + 4);
  tnx_value in = sigmoid(b, part(b, gates, 0, 4)), forget = sigmoid(b, part(b, gates, 1, 4)), cell = hyperbolic(b, part(b, gates, 2, 4)), out = sigmoid(b, part(b, gates, 3, 4));
  tnx_value cy = add(b, mul(b, forget, to_acc(b, a[2].value)), mul(b, in, cell)), hy = mul(b, out, hyperbolic(b, cy)), parts[4] = {in, forget, cell, out};
  if (b->status != TNX_OK) return b->status;
  return give3(l, results, tnx_b_convert(b, hy, t), tnx_b_convert(b, cy, t), tnx_b_convert(b, tnx_b_concat(b, parts, 4, 1), t));
}

/* (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> gradients of (gates, cx, bias) */
tnx_status lower_lstm_cell_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!fits(l, a[4].value, 4, a[2].value, 1)) return uncovered(l, "dtype");
  tnx_dtype t = tnx_b_dtype(b, a[4].value);
  tnx_value w = to_acc(b, a[4].value), in = part(b, w, 0, 4), forget = part(b, w, 1, 4), cell = part(b, w, 2, 4), out = part(b, w, 3, 4);
  tnx_value cx = to_acc(b, a[2].value), shown = hyperbolic(b, to_acc(b, a[3].value));
  tnx_value zero = full_like_f(b, cx, tnx_b_dtype(b, w), 0);
  tnx_value dh = arg_value(a) ? to_acc(b, a[0].value) : zero, dc = arg_value(a + 1) ? to_acc(b, a[1].value) : zero;
  dc = add(b, dc, mul(b, mul(b, dh, out), tanh_slope(b, shown)));
  tnx_value parts[4] = {
      mul(b, mul(b, dc, cell), sigmoid_slope(b, in)),
      mul(b, mul(b, dc, cx), sigmoid_slope(b, forget)),
      mul(b, mul(b, dc, in), tanh_slope(b, cell)),
      mul(b, mul(b, dh, shown), sigmoid_slope(b, out)),
  };
  if (b->status != TNX_OK) return b->status;
  tnx_value gates = tnx_b_concat(b, parts, 4, 1);
  return give3(l, results, tnx_b_convert(b, gates, t), tnx_b_convert(b, mul(b, dc, forget), t), arg_bool(a + 5) ? tnx_b_convert(b, bias_gradient(b, gates), t) : 0);
}

/* (input_gates, hidden_gates, hx, input_bias, hidden_bias) -> (hy, workspace); the workspace is (reset, update, new, hx, hidden part of new). */
tnx_status lower_gru_cell(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!fits(l, a[0].value, 3, a[2].value, 1) || !fits(l, a[1].value, 3, a[2].value, 1)) return uncovered(l, "dtype");
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  tnx_value x = with_bias(b, to_acc(b, a[0].value), a + 3), h = with_bias(b, to_acc(b, a[1].value), a + 4), hx = to_acc(b, a[2].value);
  tnx_value reset = sigmoid(b, add(b, part(b, x, 0, 3), part(b, h, 0, 3))), update = sigmoid(b, add(b, part(b, x, 1, 3), part(b, h, 1, 3)));
  tnx_value hidden = part(b, h, 2, 3), new = hyperbolic(b, add(b, part(b, x, 2, 3), mul(b, reset, hidden)));
  tnx_value hy = add(b, new, mul(b, update, sub(b, hx, new))), parts[5] = {reset, update, new, hx, hidden};
  if (b->status != TNX_OK) return b->status;
  return give2(l, results, tnx_b_convert(b, hy, t), tnx_b_convert(b, tnx_b_concat(b, parts, 5, 1), t));
}

/* (grad_hy, workspace, has_bias) -> gradients of (input_gates, hidden_gates, hx, input_bias, hidden_bias) */
tnx_status lower_gru_cell_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!fits(l, a[1].value, 5, a[0].value, 1)) return uncovered(l, "dtype");
  tnx_dtype t = tnx_b_dtype(b, a[1].value);
  tnx_value w = to_acc(b, a[1].value), reset = part(b, w, 0, 5), update = part(b, w, 1, 5), new = part(b, w, 2, 5), hx = part(b, w, 3, 5), hidden = part(b, w, 4, 5);
  tnx_value dy = to_acc(b, a[0].value), dnew = mul(b, mul(b, dy, rsub_f(b, 1, update)), tanh_slope(b, new));
  tnx_value dreset = mul(b, mul(b, dnew, hidden), sigmoid_slope(b, reset)), dupdate = mul(b, mul(b, dy, sub(b, hx, new)), sigmoid_slope(b, update));
  tnx_value of_input[3] = {dreset, dupdate, dnew}, of_hidden[3] = {dreset, dupdate, mul(b, dnew, reset)};
  if (b->status != TNX_OK) return b->status;
  tnx_value dx = tnx_b_concat(b, of_input, 3, 1), dh = tnx_b_concat(b, of_hidden, 3, 1);
  give3(l, results, tnx_b_convert(b, dx, t), tnx_b_convert(b, dh, t), tnx_b_convert(b, mul(b, dy, update), t));
  results[3] = arg_bool(a + 2) ? tnx_b_convert(b, bias_gradient(b, dx), t) : 0;
  results[4] = arg_bool(a + 2) ? tnx_b_convert(b, bias_gradient(b, dh), t) : 0;
  l->n_results = 5;
  return b->status;
}
