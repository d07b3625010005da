/* The pointwise part of LSTM and GRU cells, whose matrix products PyTorch makes outside. Computed in float32 for halves.
 *
 * The workspace holds what the backward needs: for LSTM the gates after their functions, for GRU the gates, the old state and the hidden part of
 * the new one. */
#include "aten/family.h"

/* Piece i of size h of the last dimension, in the computation dtype. */
static tnx_value piece(tnx_builder *b, tnx_value x, int i, tnx_dim h) { return x ? to_acc(b, tnx_b_slice(b, x, tnx_b_rank(b, x) - 1, tnx_b_dim_mul(b, i, h), h, 1)) : 0; }

static tnx_value joined(tnx_builder *b, const tnx_value *parts, int n, tnx_dtype t) {
  tnx_value rounded[5];
  for (int i = 0; i < n; i++) rounded[i] = tnx_b_convert(b, parts[i], t);
  return rounded[0] ? tnx_b_concat(b, rounded, n, tnx_b_rank(b, rounded[0]) - 1) : 0;
}

/* Gate i before its function: its parts of both products and both biases. */
static tnx_value gate(tnx_builder *b, const tnx_arg *in, const tnx_arg *hidden, const tnx_arg *in_bias, const tnx_arg *hidden_bias, int i, tnx_dim h) {
  tnx_value v = piece(b, arg_value(in), i, h), w = hidden ? piece(b, arg_value(hidden), i, h) : 0;
  if (w) v = add(b, v, w);
  if (arg_value(in_bias)) v = add(b, v, piece(b, in_bias->value, i, h));
  if (hidden && arg_value(hidden_bias)) v = add(b, v, piece(b, hidden_bias->value, i, h));
  return v;
}

static tnx_value sigmoid(tnx_builder *b, tnx_value x) { return tnx_b_unary(b, TNX_OP_SIGMOID, x); }
static tnx_value tanh_of(tnx_builder *b, tnx_value x) { return tnx_b_unary(b, TNX_OP_TANH, x); }
/* Derivatives, from the functions' results. */
static tnx_value sigmoid_slope(tnx_builder *b, tnx_value y) { return mul(b, y, rsub_f(b, 1, y)); }
static tnx_value tanh_slope(tnx_builder *b, tnx_value y) { return rsub_f(b, 1, mul(b, y, y)); }

static bool covers(tnx_lower *l, tnx_value gates, tnx_value state, int n) {
  tnx_builder *b = &l->b;
  bool ok = tnx_b_rank(b, gates) == 2 && tnx_b_rank(b, state) == 2 && tnx_dtype_is_float(tnx_b_dtype(b, gates));
  if (ok && !differ(tnx_b_size(b, gates, 1), tnx_b_dim_mul(b, n, tnx_b_size(b, state, 1)))) return true;
  tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "cell: ranks, sizes or dtypes");
  return false;
}

/* (input_gates, hidden_gates, cx, input_bias, hidden_bias) -> hy, cy, workspace; gates i, f, g, o */
tnx_status lower_lstm_cell(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!covers(l, a[0].value, a[2].value, 4)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), state = tnx_b_dtype(b, a[2].value);
  tnx_dim h = tnx_b_size(b, a[2].value, 1);
  tnx_value g[4];
  for (int i = 0; i < 4; i++) {
    g[i] = gate(b, a, a + 1, a + 3, a + 4, i, h);
    g[i] = i == 2 ? tanh_of(b, g[i]) : sigmoid(b, g[i]);
  }
  tnx_value cy = add(b, mul(b, g[1], to_acc(b, a[2].value)), mul(b, g[0], g[2]));
  return give3(l, results, tnx_b_convert(b, mul(b, g[3], tanh_of(b, cy)), t), tnx_b_convert(b, cy, state), joined(b, g, 4, t));
}

/* Sums over the batch. */
static tnx_value over_batch(tnx_builder *b, tnx_value x) {
  int first = 0;
  return x ? tnx_b_convert(b, reduce(b, TNX_OP_REDUCE_SUM, to_acc(b, x), &first, 1, false), tnx_b_dtype(b, x)) : 0;
}

/* (grad_hy, grad_cy, cx, cy, workspace, has_bias) -> grad_gates, grad_cx, grad_bias */
tnx_status lower_lstm_cell_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value dh = to_acc(b, arg_value(a)), dc = to_acc(b, arg_value(a + 1)), g[4], d[4];
  if (!dh && !dc) return b->status != TNX_OK ? b->status : give3(l, results, 0, 0, 0);
  if (!covers(l, a[4].value, a[2].value, 4)) return b->status;
  tnx_dim h = tnx_b_size(b, a[2].value, 1);
  tnx_dtype t = tnx_b_dtype(b, a[4].value);
  for (int i = 0; i < 4; i++) g[i] = piece(b, a[4].value, i, h);
  tnx_value y = tanh_of(b, to_acc(b, a[3].value)), through = dh ? mul(b, mul(b, dh, g[3]), tanh_slope(b, y)) : dc;
  if (dh && dc) through = add(b, through, dc);
  d[0] = mul(b, mul(b, through, g[2]), sigmoid_slope(b, g[0]));
  d[1] = mul(b, mul(b, through, to_acc(b, a[2].value)), sigmoid_slope(b, g[1]));
  d[2] = mul(b, mul(b, through, g[0]), tanh_slope(b, g[2]));
  d[3] = dh ? mul(b, mul(b, dh, y), sigmoid_slope(b, g[3])) : full_like_f(b, g[3], tnx_b_dtype(b, g[3]), 0);
  tnx_value gates = joined(b, d, 4, t);
  return give3(l, results, gates, tnx_b_convert(b, mul(b, through, g[1]), tnx_b_dtype(b, a[2].value)), arg_bool(a + 5) ? over_batch(b, gates) : 0);
}

/* (input_gates, hidden_gates, hx, input_bias, hidden_bias) -> hy, workspace (r, z, n, hx, hidden part of n) */
tnx_status lower_gru_cell(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!covers(l, a[0].value, a[2].value, 3)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  tnx_dim h = tnx_b_size(b, a[2].value, 1);
  tnx_value r = sigmoid(b, gate(b, a, a + 1, a + 3, a + 4, 0, h)), z = sigmoid(b, gate(b, a, a + 1, a + 3, a + 4, 1, h));
  tnx_value hidden = gate(b, a + 1, NULL, a + 4, NULL, 2, h), hx = to_acc(b, a[2].value);
  tnx_value n = tanh_of(b, add(b, gate(b, a, NULL, a + 3, NULL, 2, h), mul(b, r, hidden)));
  const tnx_value kept[5] = {r, z, n, hx, hidden};
  return give2(l, results, tnx_b_convert(b, add(b, n, mul(b, z, sub(b, hx, n))), t), joined(b, kept, 5, t));
}

/* (grad_hy, workspace, has_bias) -> gradients of input_gates, hidden_gates, hx and both biases */
tnx_status lower_gru_cell_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!covers(l, a[1].value, a[0].value, 5)) return b->status;
  tnx_dim h = tnx_b_size(b, a[0].value, 1);
  tnx_dtype t = tnx_b_dtype(b, a[1].value);
  tnx_value w[5], dh = to_acc(b, a[0].value);
  for (int i = 0; i < 5; i++) w[i] = piece(b, a[1].value, i, h);
  tnx_value dn = mul(b, mul(b, dh, rsub_f(b, 1, w[1])), tanh_slope(b, w[2]));
  tnx_value dz = mul(b, mul(b, dh, sub(b, w[3], w[2])), sigmoid_slope(b, w[1])), dr = mul(b, mul(b, dn, w[4]), sigmoid_slope(b, w[0]));
  const tnx_value in[3] = {dr, dz, dn}, hidden[3] = {dr, dz, mul(b, dn, w[0])};
  results[0] = joined(b, in, 3, t), results[1] = joined(b, hidden, 3, t), results[2] = tnx_b_convert(b, mul(b, dh, w[1]), t);
  results[3] = arg_bool(a + 2) ? over_batch(b, results[0]) : 0, results[4] = arg_bool(a + 2) ? over_batch(b, results[1]) : 0;
  l->n_results = 5;
  return b->status;
}
