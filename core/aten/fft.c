/* Fourier transforms: one transform along each dimension, the real one where the signal or the result is real. */
#include "aten/family.h"

/* The strides of an operand that is given from outside; what a graph computes is taken for contiguous. */
static const tnx_dim *known_strides(const tnx_builder *b, tnx_value x) {
  const tnx_node *producer = tnx_graph_producer(b->g, x);
  return producer->op == TNX_OP_INPUT ? b->g->inputs.data[producer->ints[0]].strides : NULL;
}

/* Results lie in memory as PyTorch's kernels leave them: the other dimensions first, in the order the operand (of strides `given`) has them, then the transformed ones,
 * in their order too; but the last one stays last unless `sort_last`. */
static void result_strides(tnx_lower *l, const tnx_dim *given, const int *dims, int n, bool sort_last, tnx_value result) {
  tnx_builder *b = &l->b;
  if (!result || b->status != TNX_OK) return;
  int rank = tnx_b_rank(b, result), order[TNX_MAX_RANK], k = 0;
  uint32_t transformed = 0;
  for (int i = 0; i < n; i++) transformed |= 1u << dims[i];
  for (int i = 0; i < rank; i++)
    if (!(transformed >> i & 1)) order[k++] = i;
  for (int i = 0; i < n; i++) order[k++] = dims[i];
  int part[3] = {0, rank - n, sort_last ? rank : rank - 1};
  for (int p = 0; given && p < 2; p++) /* stable, larger strides first */
    for (int i = part[p] + 1; i < part[p + 1]; i++)
      for (int j = i; j > part[p] && given[order[j]] > given[order[j - 1]]; j--) {
        int swap = order[j];
        order[j] = order[j - 1];
        order[j - 1] = swap;
      }
  tnx_dim *strides = TNX_ARENA_ARRAY(&b->g->arena, tnx_dim, TNX_MAX_RANK), step = 1;
  if (!strides) {
    tnx_b_fail(b, TNX_OUT_OF_MEMORY, "out of host memory");
    return;
  }
  for (int i = rank - 1; i >= 0; i--) {
    tnx_dim size = tnx_b_size(b, result, order[i]);
    strides[order[i]] = step;
    step = tnx_b_dim_mul(b, step, size == 0 ? 1 : size);
  }
  l->strides[0] = strides;
}

static bool arguments(tnx_lower *l, const tnx_arg *a, int *dims, int *n) {
  *n = arg_dims(&l->b, a + 1, tnx_b_rank(&l->b, a[0].value), dims);
  int64_t norm = arg_int(a + 2, 0);
  if (*n && tnx_b_rank(&l->b, a[0].value) == 0) tnx_b_fail(&l->b, TNX_INDEX, "Dimension specified as %d but tensor has no dimensions", dims[0]);
  if (norm < 0 || norm > 2) tnx_b_fail(&l->b, TNX_INVALID_ARGUMENT, "Invalid fft_norm_mode");
  return l->b.status == TNX_OK;
}

static tnx_value along(tnx_builder *b, tnx_value x, const int *dims, int n, bool inverse, int norm) {
  for (int i = n - 1; i >= 0; i--) x = tnx_b_fft(b, TNX_OP_FFT, x, dims[i], inverse, norm, 0);
  return x;
}

tnx_status lower_fft_c2c(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  int dims[TNX_MAX_RANK], n;
  if (!arguments(l, a, dims, &n)) return l->b.status;
  tnx_value r = along(&l->b, a[0].value, dims, n, !arg_bool(a + 3), (int)arg_int(a + 2, 0));
  if (n) result_strides(l, known_strides(&l->b, a[0].value), dims, n, true, r);
  return give(l, results, r);
}

tnx_status lower_fft_r2c(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n, norm = (int)arg_int(a + 2, 0);
  if (!arguments(l, a, dims, &n)) return b->status;
  if (n == 0) return uncovered(l, "no dimensions");
  tnx_value x = a[0].value, r;
  tnx_dtype t = tnx_b_dtype(b, x);
  if (t != TNX_F32 && t != TNX_F64) return uncovered(l, "dtype");
  if (arg_bool(a + 3)) r = tnx_b_fft(b, TNX_OP_RFFT, x, dims[n - 1], false, norm, 0);
  else r = tnx_b_fft(b, TNX_OP_FFT, tnx_b_convert(b, x, t == TNX_F64 ? TNX_C128 : TNX_C64), dims[n - 1], false, norm, 0);
  r = along(b, r, dims, n - 1, false, norm);
  result_strides(l, known_strides(b, x), dims, n, false, r);
  return give(l, results, r);
}

tnx_status lower_fft_c2r(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  int dims[TNX_MAX_RANK], n, norm = (int)arg_int(a + 2, 0);
  if (!arguments(l, a, dims, &n)) return b->status;
  if (n == 0) return uncovered(l, "no dimensions");
  tnx_value half = along(b, a[0].value, dims, n - 1, true, norm), r = tnx_b_fft(b, TNX_OP_IRFFT, half, dims[n - 1], true, norm, a[3].dim);
  const tnx_dim *given = known_strides(b, a[0].value);
  if (n > 1) {
    result_strides(l, given, dims, n - 1, true, half);
    given = l->strides[0];
  }
  result_strides(l, given, dims + n - 1, 1, true, r);
  return give(l, results, r);
}
