/* Sums, means and maxima over bags of embedding rows, and their gradients. Bag b holds the indices from its offset
 * to the next bag's; entries that are the padding index count for nothing. */
#include "aten/family.h"

enum { BAG_SUM, BAG_MEAN, BAG_MAX };

static tnx_value vector(tnx_builder *b, tnx_dtype t, double v, tnx_dim n) { return tnx_b_full(b, tnx_b_const_f(b, t, v), 1, &n); }
static tnx_value column(tnx_builder *b, tnx_value v) { return v ? tnx_b_unsqueeze(b, v, 1) : 0; }
static tnx_value is_entry(tnx_builder *b, tnx_value indices, const tnx_arg *padding) { return compare_f(b, TNX_OP_NE, indices, (double)arg_int(padding, -1)); }

/* (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
 * -> output, offset2bag, bag_size, max_indices */
tnx_status lower_embedding_bag(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value weight = a[0].value, indices = a[1].value, offsets = a[2].value, factors = arg_value(a + 6);
  tnx_dtype t = tnx_b_dtype(b, weight), acc = tnx_acc_of(t), it = tnx_b_dtype(b, indices);
  int64_t mode = a[4].dim;
  if (!tnx_dtype_is_float(t) || tnx_b_rank(b, weight) != 2 || tnx_b_rank(b, indices) != 1 || tnx_b_rank(b, offsets) != 1 || it != tnx_b_dtype(b, offsets) || (it != TNX_I64 && it != TNX_I32))
    return uncovered(l, "ranks or dtypes");
  tnx_dim n = tnx_b_size(b, indices, 0), given = tnx_b_size(b, offsets, 0), bags = arg_bool(a + 7) ? tnx_b_dim_sub(b, given, 1) : given, width = tnx_b_size(b, weight, 1);
  if (tnx_dim_is_symbolic(n) || tnx_dim_is_symbolic(given) || n == 0 || bags <= 0) return uncovered(l, "empty or symbolic bags");
  /* the bag of each entry: how many bags have begun, less one */
  tnx_value begins = tnx_b_convert(b, tnx_b_slice(b, offsets, 0, 0, bags, 1), TNX_I64);
  tnx_value marks = tnx_b_put(b, vector(b, TNX_I64, 0, n + 1), begins, vector(b, TNX_I64, 1, bags), 0, ADD);
  tnx_value bag = add_f(b, tnx_b_slice(b, tnx_b_scan(b, TNX_OP_CUMSUM, marks, 0), 0, 0, n, 1), -1), valid = is_entry(b, indices, a + 8);
  tnx_value size = tnx_b_put(b, vector(b, TNX_I64, 0, given), bag, tnx_b_convert(b, valid, TNX_I64), 0, ADD);
  tnx_value rows = tnx_b_convert(b, tnx_b_take(b, weight, indices, 0), acc), out, max = vector(b, it, 0, 0);
  tnx_dim sizes[2] = {bags, width}, entries[2] = {n, width};
  tnx_value full = column(b, compare_f(b, TNX_OP_GT, tnx_b_slice(b, size, 0, 0, bags, 1), 0));
  if (factors) rows = mul(b, rows, column(b, tnx_b_convert(b, factors, acc)));
  if (mode == BAG_MAX) {
    rows = select_f(b, column(b, valid), rows, -INFINITY);
    out = tnx_b_put(b, tnx_b_full(b, tnx_b_const_f(b, acc, -INFINITY), 2, sizes), bag, rows, 0, MAX);
    /* the first entry that has the maximum */
    tnx_value hit = tnx_b_binary(b, TNX_OP_AND, tnx_b_binary(b, TNX_OP_EQ, rows, tnx_b_take(b, out, bag, 0)), column(b, valid));
    tnx_value place = tnx_b_select(b, hit, tnx_b_iota(b, 2, entries, 0), tnx_b_const_i(b, TNX_I64, n - 1));
    tnx_value first = tnx_b_put(b, tnx_b_full(b, tnx_b_const_i(b, TNX_I64, n - 1), 2, sizes), bag, place, 0, MIN);
    max = select_f(b, full, tnx_b_take(b, indices, first, 0), 0);
    out = select_f(b, full, out, 0);
  } else {
    rows = select_f(b, column(b, valid), rows, 0);
    out = tnx_b_put(b, tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, sizes), bag, rows, 0, ADD);
    if (mode == BAG_MEAN) out = divide(b, out, column(b, tnx_b_convert(b, tnx_b_binary_f(b, TNX_OP_MAX, tnx_b_slice(b, size, 0, 0, bags, 1), 1), acc)));
  }
  results[0] = tnx_b_convert(b, out, t), results[1] = tnx_b_convert(b, bag, it), results[2] = tnx_b_convert(b, size, it), results[3] = max;
  l->n_results = 4;
  return b->status;
}

/* indices, offset2bag, bag_size, maximum_indices from `a` on; then num_weights, scale_grad_by_freq, mode */
static tnx_status dense_backward(tnx_lower *l, tnx_value grad, const tnx_arg *a, const tnx_arg *factors, const tnx_arg *padding, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value indices = a[0].value, bag = a[1].value, size = a[2].value;
  tnx_dtype t = tnx_b_dtype(b, grad), acc = tnx_acc_of(t);
  int64_t mode = a[6].dim;
  if (tnx_b_rank(b, bag) != 1 || !same_sizes(b, bag, indices)) return uncovered(l, "bags of each index are missing");
  tnx_dim sizes[2] = {a[4].dim, tnx_b_size(b, grad, 1)}, bags = tnx_b_size(b, grad, 0);
  tnx_value zeros = tnx_b_full(b, tnx_b_const_f(b, acc, 0), 2, sizes), g = tnx_b_convert(b, grad, acc);
  tnx_value count = tnx_b_slice(b, size, 0, 0, bags, 1);
  if (mode == BAG_MAX) {
    g = select_f(b, column(b, compare_f(b, TNX_OP_GT, count, 0)), g, 0);
    return give(l, results, tnx_b_convert(b, tnx_b_scatter(b, zeros, a[3].value, g, 0, ADD), t));
  }
  if (mode == BAG_MEAN) g = divide(b, g, column(b, tnx_b_convert(b, tnx_b_binary_f(b, TNX_OP_MAX, count, 1), acc)));
  tnx_value rows = tnx_b_take(b, g, bag, 0);
  if (arg_value(factors)) rows = mul(b, rows, column(b, tnx_b_convert(b, factors->value, acc)));
  if (arg_bool(a + 5)) {
    tnx_value uses = tnx_b_put(b, vector(b, acc, 0, a[4].dim), indices, vector(b, acc, 1, tnx_b_size(b, indices, 0)), 0, ADD);
    rows = divide(b, rows, column(b, tnx_b_take(b, uses, indices, 0)));
  }
  rows = select_f(b, column(b, is_entry(b, indices, padding)), rows, 0);
  return give(l, results, tnx_b_convert(b, tnx_b_put(b, zeros, indices, rows, 0, ADD), t));
}

/* (grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx) */
tnx_status lower_embedding_bag_dense_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return dense_backward(l, a[0].value, a + 1, a + 8, a + 9, results); }

/* (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx) */
tnx_status lower_embedding_bag_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (arg_bool(a + 9)) return uncovered(l, "sparse gradients");
  const tnx_arg rest[7] = {a[1], a[3], a[4], a[5], a[6], a[7], a[8]};
  return dense_backward(l, a[0].value, rest, a + 10, a + 11, results);
}

/* (grad, weight, indices, offsets, offset2bag, mode, padding_idx) */
tnx_status lower_embedding_bag_weights_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, a[0].value), acc = tnx_acc_of(t);
  if (a[5].dim != BAG_SUM || !same_sizes(b, a[4].value, a[2].value)) return uncovered(l, "mode");
  int last = 1;
  tnx_value g = tnx_b_convert(b, tnx_b_take(b, a[0].value, a[4].value, 0), acc), w = tnx_b_convert(b, tnx_b_take(b, a[1].value, a[2].value, 0), acc);
  tnx_value d = reduce(b, TNX_OP_REDUCE_SUM, mul(b, g, w), &last, 1, false);
  return give(l, results, tnx_b_convert(b, select_f(b, is_entry(b, a[2].value, a + 6), d, 0), t));
}
