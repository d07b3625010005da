/* Products with weights of four bits, and of eight-bit floats with scales.
 *
 * Weights of four bits lie as `_convert_weight_to_int4pack` lays them out on GPUs: [n / 8, k / (16 * inner), 32, inner / 2] of int32. Entry (i, j, 4 * r + t, h) is of
 * row 8 * i + r and holds eight numbers of the columns 16 * (inner * j + 2 * h) + 16 * tile + 8 * half + 2 * t + odd, from bit 4 * (4 * odd + 2 * tile + half) on. */
#include "aten/family.h"

enum { ROWS = 8, LANES = 32, PER_WORD = 8 };

/* 0, 4, .., 28 along the last dimension of rank 5 */
static tnx_value bit_places(tnx_builder *b, tnx_dtype t) { return mul_f(b, tnx_b_convert(b, axis_iota(b, 5, 4, PER_WORD), t), 4); }

/* (bytes [n, k / 2]: the even column in the high half; innerKTiles) */
tnx_status lower_convert_weight_to_int4pack(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (tnx_b_rank(b, x) != 2 || tnx_b_dtype(b, x) != TNX_U8) return uncovered(l, "dtype or rank");
  tnx_dim n = tnx_b_size(b, x, 0), pairs = tnx_b_size(b, x, 1);
  int64_t inner = arg_int(a + 1, 0);
  if (tnx_dim_is_symbolic(n) || tnx_dim_is_symbolic(pairs)) return uncovered(l, "symbolic sizes");
  if (inner != 2 && inner != 4 && inner != 8) return tnx_fail(TNX_INVALID_ARGUMENT, "innerKTiles need to be 2, 4, or 8");
  if (n % ROWS || pairs % (8 * inner)) return tnx_fail(TNX_SHAPE, "n has to be a multiple of 8 and k one of innerKTiles * 16");
  x = tnx_b_unsqueeze(b, tnx_b_convert(b, x, TNX_I64), 2);
  tnx_value halves[2] = {tnx_b_binary_f(b, TNX_OP_SHR, x, 4), tnx_b_binary_f(b, TNX_OP_AND, x, 15)};
  tnx_dim parts[8] = {n / ROWS, ROWS, pairs / (8 * inner), inner / 2, 2, 2, 4, 2}, words[5] = {n / ROWS, parts[2], LANES, inner / 2, PER_WORD};
  tnx_value q = tnx_b_transpose(b, tnx_b_reshape(b, tnx_b_concat(b, halves, 2, 2), 8, parts), (int[8]){0, 2, 1, 6, 3, 7, 4, 5});
  q = tnx_b_binary(b, TNX_OP_SHL, tnx_b_reshape(b, q, 5, words), bit_places(b, TNX_I64));
  int last = 4;
  return give(l, results, tnx_b_convert(b, reduce(b, TNX_OP_REDUCE_SUM, q, &last, 1, false), TNX_I32));
}

/* (self [m, k], packed, group size, [k / group, n, 2]: scales and zeros). A weight is (number - 8) * scale + zero, rounded to self's dtype. */
tnx_status lower_weight_int4pack_mm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, packed = a[1].value, scales = a[3].value;
  tnx_dtype t = tnx_b_dtype(b, x), acc = tnx_acc_of(t);
  if (tnx_b_rank(b, x) != 2 || tnx_b_rank(b, packed) != 4 || tnx_b_rank(b, scales) != 3) return tnx_fail(TNX_SHAPE, "matrices, a packed weight and scales are expected");
  if (!tnx_dtype_is_float(t) || tnx_b_dtype(b, packed) != TNX_I32 || !tnx_dtype_is_float(tnx_b_dtype(b, scales))) return uncovered(l, "dtype");
  const tnx_dim *p = tnx_b_sizes(b, packed);
  int64_t group = arg_int(a + 2, 0);
  for (int i = 0; i < 4; i++)
    if (tnx_dim_is_symbolic(p[i])) return uncovered(l, "symbolic sizes");
  tnx_dim n = p[0] * ROWS, k = p[1] * p[3] * 32, groups = group > 0 ? k / group : 0;
  if (p[2] != LANES || differ(tnx_b_size(b, x, 1), k) || groups * group != k || differ(tnx_b_size(b, scales, 0), groups) || differ(tnx_b_size(b, scales, 1), n))
    return tnx_fail(TNX_SHAPE, "sizes of the packed weight, its scales and the other operand do not agree");
  tnx_dim parts[8] = {p[0], p[1], ROWS, 4, p[3], 2, 2, 2}, grouped[3] = {n, groups, group}, whole[2] = {n, k};
  tnx_value q = tnx_b_binary(b, TNX_OP_SHR, tnx_b_unsqueeze(b, packed, 4), bit_places(b, TNX_I32));
  q = tnx_b_reshape(b, tnx_b_binary_f(b, TNX_OP_AND, q, 15), 8, parts);
  q = tnx_b_reshape(b, tnx_b_transpose(b, q, (int[8]){0, 2, 1, 4, 6, 7, 3, 5}), 3, grouped);
  scales = tnx_b_swap_dims(b, tnx_b_convert(b, scales, acc), 0, 1); /* [n, groups, 2] */
  tnx_value w = add(b, mul(b, add_f(b, tnx_b_convert(b, q, acc), -8), tnx_b_slice(b, scales, 2, 0, 1, 1)), tnx_b_slice(b, scales, 2, 1, 1, 1));
  return give(l, results, tnx_b_linear(b, x, tnx_b_reshape(b, tnx_b_convert(b, w, t), 2, whole), 0));
}

/* (self [m, k], mat2 [k, n], their scales, bias, scale of the result, dtype, fast accumulation). Scales are one number, or one for each row of self and column of mat2. */
tnx_status lower_scaled_mm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, y = a[1].value, bias = arg_value(a + 4), both = 0;
  if (tnx_b_rank(b, x) != 2 || tnx_b_rank(b, y) != 2) return tnx_fail(TNX_SHAPE, "matrices are expected");
  if (!tnx_dtype_is_float(tnx_b_dtype(b, x)) || !tnx_dtype_is_float(tnx_b_dtype(b, y)) || arg_value(a + 5)) return uncovered(l, "dtype or a scale of the result");
  for (int i = 0; i < 2; i++) {
    tnx_value scale = a[2 + i].value;
    bool one = tnx_b_numel(b, scale) == 1;
    if (tnx_b_dtype(b, scale) != TNX_F32 || (!one && (tnx_b_rank(b, scale) != 2 || differ(tnx_b_size(b, scale, i), tnx_b_size(b, i ? y : x, i)) || tnx_b_size(b, scale, 1 - i) != 1)))
      return uncovered(l, "scales of blocks");
    tnx_dim square[2] = {1, 1};
    if (one) scale = tnx_b_reshape(b, scale, 2, square);
    both = both ? mul(b, both, scale) : scale;
  }
  tnx_value r = mul(b, lower_product_of(b, tnx_b_convert(b, x, TNX_F32), tnx_b_convert(b, y, TNX_F32)), both);
  if (bias) r = add(b, r, tnx_b_convert(b, bias, TNX_F32));
  return give(l, results, tnx_b_convert(b, r, arg_dtype(a + 6, tnx_b_dtype(b, x))));
}
