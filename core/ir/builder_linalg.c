/* Builder: dense linear algebra and Fourier transforms. */
#include <string.h>

#include "ir/builder_internal.h"
#include "ir/linalg_shapes.h"
#include "ops/checks.h"

static bool differ(tnx_dim x, tnx_dim y) { return x != y && !tnx_dim_is_symbolic(x) && !tnx_dim_is_symbolic(y); }

static tnx_dim letter_size(tnx_builder *b, char letter, const tnx_dim *bound, bool full) {
  tnx_dim m = bound['m'], n = bound['n'];
  switch (letter) {
    case 'l': return tnx_b_dim(b, TNX_DIM_MIN, m, n);
    case 'x': return tnx_b_dim(b, TNX_DIM_MAX, m, n);
    case 'p': return full ? m : tnx_b_dim(b, TNX_DIM_MIN, m, n);
    case 'q': return full ? n : tnx_b_dim(b, TNX_DIM_MIN, m, n);
    default: return bound[(int)letter];
  }
}

static tnx_value linalg_node(tnx_builder *b, tnx_op op, const tnx_value *xs, int n, const tnx_dim *ints, double number, tnx_dim m) {
  for (int i = 0; i < n; i++)
    if (b->status != TNX_OK || !xs[i]) return 0;
  const tnx_linalg_shape *shape = tnx_linalg_shape_of(op);
  const char *name = tnx_op_get_info(op)->name;
  tnx_dtype t = tnx_b_dtype(b, xs[0]);
  int batch = tnx_b_rank(b, xs[0]) - 2;
  const tnx_dim *first = tnx_b_sizes(b, xs[0]);
  tnx_dim bound[128];
  for (int i = 0; i < 128; i++) bound[i] = -1;
  bound['1'] = 1;
  if (m >= 0 || tnx_dim_is_symbolic(m)) bound['m'] = m;
  if (batch < 0) return tnx_b_fail(b, TNX_SHAPE, "%s: matrices are expected", name);
  for (int i = 0; i < n; i++) {
    int rank = batch + (int)strlen(shape->in[i]);
    bool fits = tnx_b_rank(b, xs[i]) == rank && tnx_b_dtype(b, xs[i]) == tnx_linalg_dtype(shape->in_types[i], t);
    for (int d = 0; fits && d < rank; d++) {
      tnx_dim size = tnx_b_size(b, xs[i], d), *want = d < batch ? (tnx_dim *)&first[d] : &bound[(int)shape->in[i][d - batch]];
      if (d >= batch && *want == -1) *want = size;
      fits = !differ(size, *want);
    }
    if (!fits) return tnx_b_fail(b, TNX_SHAPE, "%s: operand %d does not fit", name, i);
  }
  tnx_type types[3];
  tnx_dim sizes[3][TNX_MAX_RANK];
  int results = tnx_op_get_info(op)->results;
  for (int i = 0; i < results; i++) {
    int core = (int)strlen(shape->out[i]);
    bool none = core == 2 && shape->vectors >= 0 && !ints[1 + shape->vectors];
    for (int d = 0; d < batch; d++) sizes[i][d] = first[d];
    for (int d = 0; d < core; d++) sizes[i][batch + d] = none ? 0 : letter_size(b, shape->out[i][d], bound, ints[1] != 0);
    types[i] = (tnx_type){(uint8_t)tnx_linalg_dtype(shape->out_types[i], t), (uint8_t)(batch + core), sizes[i]};
  }
  return tnx_b_node(b, op, xs, (uint32_t)n, ints, 3, op == TNX_OP_LSTSQ ? &number : NULL, op == TNX_OP_LSTSQ, types, (uint32_t)results);
}

tnx_value tnx_b_linalg(tnx_builder *b, tnx_op op, const tnx_value *xs, int n, int check, int flag0, int flag1, double number) {
  tnx_dim ints[3] = {check, flag0, flag1};
  return linalg_node(b, op, xs, n, ints, number, -1);
}

tnx_value tnx_b_lu_permutation(tnx_builder *b, tnx_value pivots, tnx_dim m) {
  tnx_dim ints[3] = {TNX_CHECK_PIVOTS, 0, 0};
  tnx_value column = pivots ? tnx_b_unsqueeze(b, pivots, tnx_b_rank(b, pivots)) : 0, p = linalg_node(b, TNX_OP_LU_PERMUTATION, &column, 1, ints, 0, m);
  return p ? tnx_b_reshape(b, p, tnx_b_rank(b, p) - 1, tnx_b_sizes(b, p)) : 0;
}

tnx_value tnx_b_fft(tnx_builder *b, tnx_op op, tnx_value x, int dim, bool inverse, int norm, tnx_dim size) {
  if (b->status != TNX_OK || !x) return 0;
  tnx_dtype t = tnx_b_dtype(b, x);
  int rank = tnx_b_rank(b, x);
  tnx_dim ints[3] = {dim, inverse, norm}, sizes[TNX_MAX_RANK];
  memcpy(sizes, tnx_b_sizes(b, x), sizeof *sizes * (size_t)rank);
  bool real_in = op == TNX_OP_RFFT;
  if (real_in ? t != TNX_F32 && t != TNX_F64 : t != TNX_C64 && t != TNX_C128) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "Fourier transform of %s", tnx_dtype_name(t));
  if (op == TNX_OP_RFFT) sizes[dim] = tnx_b_dim_add(b, tnx_b_dim(b, TNX_DIM_FLOORDIV, sizes[dim], 2), 1);
  if (op == TNX_OP_IRFFT) {
    tnx_dim half = tnx_b_dim_add(b, tnx_b_dim(b, TNX_DIM_FLOORDIV, size, 2), 1);
    if (!tnx_dim_is_symbolic(size) && size < 1) return tnx_b_fail(b, TNX_SHAPE, "Invalid number of data points (%lld) specified", (long long)size);
    if (differ(half, sizes[dim])) {
      if (!tnx_dim_is_symbolic(half) && !tnx_dim_is_symbolic(sizes[dim]) && half > sizes[dim]) return tnx_b_fail(b, TNX_SHAPE, "half a spectrum of another length");
      x = tnx_b_slice(b, x, dim, 0, half, 1); /* what lies behind is not part of it */
    }
    sizes[dim] = size;
  }
  tnx_dtype out = op == TNX_OP_RFFT ? (t == TNX_F64 ? TNX_C128 : TNX_C64) : op == TNX_OP_IRFFT ? tnx_dtype_real(t) : t;
  tnx_type type = {(uint8_t)out, (uint8_t)rank, sizes};
  return tnx_b_node(b, op, &x, 1, ints, 3, NULL, 0, &type, 1);
}
