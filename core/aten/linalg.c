/* Dense linear algebra: PyTorch's operators in terms of a few factorisations and solvers. Results lie in memory as PyTorch's Meta kernels say, mostly column-major. */
#include "aten/family.h"
#include "ops/checks.h"

/* ---- shapes and forms ---- */

static bool is_matrix(tnx_lower *l, tnx_value x) {
  if (x && tnx_b_rank(&l->b, x) >= 2) return true;
  tnx_b_fail(&l->b, TNX_SHAPE, "The input tensor must have at least 2 dimensions.");
  return false;
}

static bool is_square(tnx_lower *l, tnx_value x) {
  if (!is_matrix(l, x)) return false;
  if (!differ(tnx_b_size(&l->b, x, -1), tnx_b_size(&l->b, x, -2))) return true;
  tnx_b_fail(&l->b, TNX_SHAPE, "A must be batches of square matrices");
  return false;
}

/* What LAPACK has no routines for is PyTorch's to refuse, in its words. */
static bool has_lapack(tnx_lower *l, tnx_value x) {
  tnx_dtype t = x ? tnx_b_dtype(&l->b, x) : TNX_F32;
  if (t == TNX_F32 || t == TNX_F64 || t == TNX_C64 || t == TNX_C128) return true;
  tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "linear algebra of %s", tnx_dtype_name(t));
  return false;
}

/* The last dimension but one is adjacent in new memory of result i. */
static void column_major(tnx_lower *l, int i, tnx_value v) {
  tnx_builder *b = &l->b;
  if (!v || b->status != TNX_OK) return;
  int rank = tnx_b_rank(b, v);
  if (rank < 2) return;
  tnx_dim *strides = TNX_ARENA_ARRAY(&b->g->arena, tnx_dim, TNX_MAX_RANK), step = 1;
  if (!strides) {
    tnx_b_fail(b, TNX_OUT_OF_MEMORY, "out of host memory");
    return;
  }
  for (int k = 0; k < rank; k++) {
    int d = k == 0 ? rank - 2 : k == 1 ? rank - 1 : rank - 1 - k;
    strides[d] = step;
    tnx_dim size = tnx_b_size(b, v, d);
    step = tnx_b_dim_mul(b, step, size == 0 ? 1 : size);
  }
  l->strides[i] = strides;
}

static tnx_value mT(tnx_builder *b, tnx_value x) { return tnx_b_swap_dims(b, x, -1, -2); }
static tnx_value conjugate(tnx_builder *b, tnx_value x) { return x && tnx_dtype_is_complex(tnx_b_dtype(b, x)) ? tnx_b_unary(b, TNX_OP_CONJ, x) : x; }
static tnx_value mH(tnx_builder *b, tnx_value x) { return conjugate(b, mT(b, x)); }

/* x with its batch brought to these sizes; `core` dimensions behind it stay. */
static tnx_value with_batch(tnx_builder *b, tnx_value x, int core, int batch, const tnx_dim *sizes) {
  if (!x || b->status != TNX_OK) return 0;
  tnx_dim all[TNX_MAX_RANK];
  if (batch + core > TNX_MAX_RANK) return tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  for (int i = 0; i < batch; i++) all[i] = sizes[i];
  for (int i = 0; i < core; i++) all[batch + i] = tnx_b_size(b, x, i - core);
  return tnx_b_broadcast_to(b, x, batch + core, all);
}

/* The common batch of two matrices; -1 on error. */
static int common_batch(tnx_builder *b, tnx_value x, tnx_value y, tnx_dim *sizes) {
  if (!x || !y || b->status != TNX_OK) return -1;
  return tnx_b_broadcast_shape(b, tnx_b_rank(b, x) - 2, tnx_b_sizes(b, x), tnx_b_rank(b, y) - 2, tnx_b_sizes(b, y), sizes);
}

static tnx_value first_columns(tnx_builder *b, tnx_value x, tnx_dim n) { return x ? tnx_b_slice(b, x, tnx_b_rank(b, x) - 1, 0, n, 1) : 0; }
static tnx_value first_rows(tnx_builder *b, tnx_value x, tnx_dim n) { return x ? tnx_b_slice(b, x, tnx_b_rank(b, x) - 2, 0, n, 1) : 0; }
static tnx_dim lesser(tnx_builder *b, tnx_value x) { return tnx_b_dim(b, TNX_DIM_MIN, tnx_b_size(b, x, -2), tnx_b_size(b, x, -1)); }

/* Where column - row compares with `edge`, x, else 0. */
static tnx_value banded(tnx_builder *b, tnx_value x, tnx_op compare, int64_t edge) {
  if (!x || b->status != TNX_OK) return 0;
  const tnx_dim *sizes = tnx_b_sizes(b, x) + tnx_b_rank(b, x) - 2;
  tnx_value row = tnx_b_iota(b, 2, sizes, 0), column = tnx_b_iota(b, 2, sizes, 1);
  return select_f(b, tnx_b_binary(b, compare, column, add(b, row, tnx_b_const_i(b, TNX_I64, edge))), x, 0);
}
static tnx_value upper_triangle(tnx_builder *b, tnx_value x) { return banded(b, x, TNX_OP_GE, 0); }

/* Identity matrices with x's batch and dtype. */
static tnx_value identity_like(tnx_builder *b, tnx_value x, tnx_dim n) {
  if (!x || b->status != TNX_OK) return 0;
  tnx_dim sizes[2] = {n, n};
  tnx_value one = tnx_b_convert(b, tnx_b_binary(b, TNX_OP_EQ, tnx_b_iota(b, 2, sizes, 0), tnx_b_iota(b, 2, sizes, 1)), tnx_b_dtype(b, x));
  return with_batch(b, one, 2, tnx_b_rank(b, x) - 2, tnx_b_sizes(b, x));
}

static tnx_value empty_of(tnx_builder *b, tnx_dtype t) {
  tnx_dim none = 0;
  return tnx_b_full(b, tnx_b_const_f(b, t, 0), 1, &none);
}

/* ---- the graph's operators with one, two or three operands ---- */

static tnx_value linalg1(tnx_builder *b, tnx_op op, tnx_value x, int check, int flag0, int flag1) { return tnx_b_linalg(b, op, &x, 1, check, flag0, flag1, 0); }
static tnx_value linalg2(tnx_builder *b, tnx_op op, tnx_value x, tnx_value y, int check, int flag0, int flag1) {
  tnx_value in[2] = {x, y};
  return tnx_b_linalg(b, op, in, 2, check, flag0, flag1, 0);
}
static tnx_value linalg3(tnx_builder *b, tnx_op op, tnx_value x, tnx_value y, tnx_value z, int check, int flag0, int flag1) {
  tnx_value in[3] = {x, y, z};
  return tnx_b_linalg(b, op, in, 3, check, flag0, flag1, 0);
}
static int check_if(const tnx_arg *a, int check) { return arg_bool(a) ? check : TNX_CHECK_NONE; }

/* ---- Cholesky ---- */

tnx_status lower_cholesky_ex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return l->b.status;
  tnx_value f = linalg1(&l->b, TNX_OP_CHOLESKY, a[0].value, check_if(a + 2, TNX_CHECK_CHOLESKY_EX), arg_bool(a + 1), 0);
  column_major(l, 0, f);
  return give2(l, results, f, f + 1);
}

tnx_status lower_cholesky(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return l->b.status;
  tnx_value f = linalg1(&l->b, TNX_OP_CHOLESKY, a[0].value, TNX_CHECK_CHOLESKY, arg_bool(a + 1), 0);
  column_major(l, 0, f);
  return give(l, results, f);
}

/* X with A X = B for A = L L^H, or U^H U. */
static tnx_value cholesky_solve(tnx_builder *b, tnx_value rhs, tnx_value factor, bool upper, int check) {
  tnx_value half = linalg2(b, TNX_OP_TRIANGULAR_SOLVE, factor, rhs, check, upper, upper ? 2 : 0);
  return linalg2(b, TNX_OP_TRIANGULAR_SOLVE, factor, half, TNX_CHECK_NONE, upper, upper ? 0 : 2);
}

tnx_status lower_cholesky_solve(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value) || !is_square(l, a[1].value)) return l->b.status;
  tnx_value x = cholesky_solve(&l->b, a[0].value, a[1].value, arg_bool(a + 2), TNX_CHECK_NONE);
  column_major(l, 0, x);
  return give(l, results, x);
}

tnx_status lower_cholesky_inverse(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return b->status;
  tnx_value x = cholesky_solve(b, identity_like(b, a[0].value, tnx_b_size(b, a[0].value, -1)), a[0].value, arg_bool(a + 1), TNX_CHECK_CHOLESKY_INVERSE);
  column_major(l, 0, x);
  return give(l, results, x);
}

/* ---- LU ---- */

tnx_status lower_lu_factor_ex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value)) return l->b.status;
  if (!arg_bool(a + 1)) return uncovered(l, "no pivoting");
  tnx_value f = linalg1(&l->b, TNX_OP_LU, a[0].value, check_if(a + 2, TNX_CHECK_LU_FACTOR), 0, 0);
  column_major(l, 0, f);
  return give3(l, results, f, f + 1, f + 2);
}

/* P, L and U of a factorisation, each where it is wanted, else empty. */
static tnx_status unpack_lu(tnx_lower *l, tnx_value lu, tnx_value pivots, bool data, bool permutation, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dtype t = tnx_b_dtype(b, lu);
  tnx_value p = empty_of(b, t), lower = p, upper = p;
  tnx_dim k = lesser(b, lu), m = tnx_b_size(b, lu, -2);
  if (permutation) {
    tnx_value order = tnx_b_lu_permutation(b, pivots, m);
    if (!order) return b->status;
    tnx_dim sizes[1] = {m};
    tnx_value row = tnx_b_unsqueeze(b, tnx_b_iota(b, 1, sizes, 0), 1);
    p = tnx_b_convert(b, tnx_b_binary(b, TNX_OP_EQ, row, tnx_b_unsqueeze(b, order, tnx_b_rank(b, order) - 1)), t);
  }
  if (data) {
    tnx_value left = first_columns(b, lu, k);
    lower = banded(b, left, TNX_OP_LT, 0);
    if (lower) {
      const tnx_dim *sizes = tnx_b_sizes(b, lower) + tnx_b_rank(b, lower) - 2;
      lower = tnx_b_select(b, tnx_b_binary(b, TNX_OP_EQ, tnx_b_iota(b, 2, sizes, 0), tnx_b_iota(b, 2, sizes, 1)), tnx_b_const_f(b, t, 1), lower);
    }
    upper = upper_triangle(b, first_rows(b, lu, k));
  }
  return give3(l, results, p, lower, upper);
}

tnx_status lower_lu(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value)) return l->b.status;
  if (!arg_bool(a + 1)) return uncovered(l, "no pivoting");
  tnx_value f = linalg1(&l->b, TNX_OP_LU, a[0].value, TNX_CHECK_NONE, 0, 0);
  return f ? unpack_lu(l, f, f + 1, true, true, results) : l->b.status;
}

tnx_status lower_lu_unpack(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!is_matrix(l, a[0].value)) return l->b.status;
  if (tnx_b_dtype(&l->b, a[1].value) != TNX_I32)
    return tnx_fail(TNX_DTYPE, "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is intended to be used with the "
                               "output produced by torch.linalg.lu_factor");
  return unpack_lu(l, a[0].value, a[1].value, arg_bool(a + 2), arg_bool(a + 3), results);
}

/* X with A X = B, or X A = B; adjoint: A^H. The factorisation solves from the left with A, A^T or A^H. */
static tnx_value solve_lu(tnx_builder *b, tnx_value lu, tnx_value pivots, tnx_value rhs, bool left, bool adjoint) {
  const int check = TNX_CHECK_SOLVE_PIVOTS;
  tnx_dim sizes[TNX_MAX_RANK];
  int batch = common_batch(b, lu, rhs, sizes);
  if (batch < 0) return 0;
  lu = with_batch(b, lu, 2, batch, sizes);
  pivots = with_batch(b, pivots, 1, batch, sizes);
  rhs = with_batch(b, rhs, 2, batch, sizes);
  if (left) return linalg3(b, TNX_OP_LU_SOLVE, lu, pivots, rhs, check, adjoint ? 2 : 0, 0);
  if (adjoint) return mH(b, linalg3(b, TNX_OP_LU_SOLVE, lu, pivots, mH(b, rhs), check, 0, 0)); /* X A^H = B: A X^H = B^H */
  return mT(b, linalg3(b, TNX_OP_LU_SOLVE, lu, pivots, mT(b, rhs), check, 1, 0));              /* X A = B: A^T X^T = B^T */
}

tnx_status lower_lu_solve(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value) || !is_matrix(l, a[2].value)) return l->b.status;
  bool left = arg_bool(a + 3);
  tnx_value x = solve_lu(&l->b, a[0].value, a[1].value, a[2].value, left, arg_bool(a + 4));
  if (left) column_major(l, 0, x);
  return give(l, results, x);
}

static bool is_vector_rhs(const tnx_builder *b, tnx_value a, tnx_value rhs) {
  int rank = tnx_b_rank(b, rhs);
  if (rank == 1) return true;
  if (rank != tnx_b_rank(b, a) - 1) return false;
  for (int i = 0; i < rank; i++)
    if (differ(tnx_b_size(b, rhs, i), tnx_b_size(b, a, i))) return false;
  return true;
}

tnx_status lower_solve_ex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, rhs = a[1].value;
  if (!has_lapack(l, x) || !is_square(l, x)) return b->status;
  bool left = arg_bool(a + 2), vector = is_vector_rhs(b, x, rhs);
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, rhs)) return tnx_fail(TNX_DTYPE, "linalg.solve: Expected A and B to have the same dtype");
  if (vector && !left) return tnx_fail(TNX_INVALID_ARGUMENT, "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False");
  if (vector) rhs = tnx_b_unsqueeze(b, rhs, tnx_b_rank(b, rhs));
  if (!is_matrix(l, rhs)) return b->status;
  if (differ(tnx_b_size(b, x, -1), tnx_b_size(b, rhs, left ? -2 : -1))) return tnx_fail(TNX_SHAPE, "linalg.solve: Incompatible shapes of A and B");
  tnx_value f = linalg1(b, TNX_OP_LU, x, check_if(a + 3, TNX_CHECK_SOLVE), 0, 0);
  if (!f) return b->status;
  tnx_value r = solve_lu(b, f, f + 1, rhs, left, false);
  int last = r ? tnx_b_rank(b, r) - 1 : 0;
  if (vector && r) r = tnx_b_squeeze(b, r, &last, 1);
  if (left) column_major(l, 0, r);
  column_major(l, 1, f);
  results[0] = r, results[1] = f, results[2] = f + 1, results[3] = f + 2;
  l->n_results = 4;
  return b->status;
}

tnx_status lower_inv_ex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value;
  if (!has_lapack(l, x) || !is_square(l, x)) return b->status;
  tnx_value f = linalg1(b, TNX_OP_LU, x, check_if(a + 1, TNX_CHECK_INVERSE), 0, 0);
  if (!f) return b->status;
  tnx_value r = solve_lu(b, f, f + 1, identity_like(b, x, tnx_b_size(b, x, -1)), true, false);
  column_major(l, 0, r);
  return give2(l, results, r, f + 2);
}

/* -1 for each row that LU exchanged with another, multiplied up. */
static tnx_value parity(tnx_builder *b, tnx_value pivots, tnx_dtype t) {
  if (!pivots || b->status != TNX_OK) return 0;
  int last = tnx_b_rank(b, pivots) - 1;
  tnx_value place = tnx_b_binary_f(b, TNX_OP_ADD, tnx_b_iota(b, last + 1, tnx_b_sizes(b, pivots), last), 1);
  tnx_value moved = tnx_b_binary(b, TNX_OP_NE, tnx_b_convert(b, pivots, TNX_I64), place);
  return reduce(b, TNX_OP_REDUCE_PROD, tnx_b_select(b, moved, tnx_b_const_f(b, t, -1), tnx_b_const_f(b, t, 1)), &last, 1, false);
}

static tnx_value product_of_rows(tnx_builder *b, tnx_value x) {
  int last = x ? tnx_b_rank(b, x) - 1 : 0;
  return reduce(b, TNX_OP_REDUCE_PROD, x, &last, 1, false);
}

/* For a determinant PyTorch factorises the transpose of a row-major real matrix, which to LAPACK is a column-major one, and the derivative's formula reads the factors
 * as such. It asks the tensor. What a graph computes has no order in memory yet: whoever builds the graph says what PyTorch takes it for, in an argument behind the
 * operator's own. */
enum { ORDER_UNKNOWN = -1 };
static int factors_transpose(tnx_lower *l, const tnx_arg *arg) {
  tnx_builder *b = &l->b;
  tnx_value a = arg->value;
  if (tnx_dtype_is_complex(tnx_b_dtype(b, a))) return false;
  if (l->n_args > 1) return arg_bool(arg + 1);
  const tnx_node *n = tnx_graph_producer(b->g, a);
  if (n->op != TNX_OP_INPUT) return ORDER_UNKNOWN;
  const tnx_dim *strides = b->g->inputs.data[n->ints[0]].strides;
  tnx_dim step = 1;
  for (int i = tnx_b_rank(b, a) - 1; strides && i >= 0; i--) {
    tnx_dim size = tnx_b_size(b, a, i);
    if (size == 0) return true;
    if (size != 1 && strides[i] != step) return false;
    step = tnx_b_dim_mul(b, step, size);
  }
  return true;
}

/* The factors that a determinant is made of. */
static tnx_value determinant_factors(tnx_lower *l, const tnx_arg *a) {
  tnx_value x = a->value;
  if (!has_lapack(l, x) || !is_square(l, x)) return 0;
  int transpose = factors_transpose(l, a);
  if (transpose == ORDER_UNKNOWN) return tnx_b_fail(&l->b, TNX_NOT_IMPLEMENTED, "a matrix whose order in memory the graph does not know");
  return linalg1(&l->b, TNX_OP_LU, transpose ? mT(&l->b, x) : x, TNX_CHECK_NONE, 0, 0);
}

tnx_status lower_det(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value f = determinant_factors(l, a);
  if (!f) return b->status;
  tnx_value d = product_of_rows(b, tnx_b_diagonal(b, f, 0, tnx_b_rank(b, f) - 2, tnx_b_rank(b, f) - 1));
  column_major(l, 1, f);
  return give3(l, results, mul(b, parity(b, f + 1, tnx_b_dtype(b, f)), d), f, f + 1);
}

tnx_status lower_slogdet(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value f = determinant_factors(l, a);
  if (!f) return b->status;
  tnx_dtype t = tnx_b_dtype(b, f);
  tnx_value d = tnx_b_diagonal(b, f, 0, tnx_b_rank(b, f) - 2, tnx_b_rank(b, f) - 1), size = tnx_b_unary(b, TNX_OP_ABS, d), sign;
  if (tnx_dtype_is_complex(t)) sign = tnx_b_select(b, compare_f(b, TNX_OP_EQ, size, 0), tnx_b_const_f(b, t, 0), divide(b, d, tnx_b_convert(b, size, t)));
  else sign = tnx_b_unary(b, TNX_OP_SIGN, d);
  int last = size ? tnx_b_rank(b, size) - 1 : 0;
  results[0] = mul(b, parity(b, f + 1, t), product_of_rows(b, sign));
  results[1] = reduce(b, TNX_OP_REDUCE_SUM, tnx_b_unary(b, TNX_OP_LOG, size), &last, 1, false);
  results[2] = f, results[3] = f + 1;
  column_major(l, 2, f);
  l->n_results = 4;
  return b->status;
}

/* ---- triangular ---- */

tnx_status lower_solve_triangular(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, rhs = a[1].value;
  tnx_dim sizes[TNX_MAX_RANK];
  if (!has_lapack(l, x) || !is_square(l, x) || !is_matrix(l, rhs)) return b->status;
  if (tnx_b_dtype(b, x) != tnx_b_dtype(b, rhs)) return tnx_fail(TNX_DTYPE, "linalg.solve_triangular: Expected A and B to have the same dtype");
  bool left = arg_bool(a + 3);
  int flags = arg_bool(a + 2) + 2 * arg_bool(a + 4), batch = common_batch(b, x, rhs, sizes);
  if (batch < 0) return b->status;
  x = with_batch(b, x, 2, batch, sizes);
  rhs = with_batch(b, rhs, 2, batch, sizes);
  tnx_value r = left ? linalg2(b, TNX_OP_TRIANGULAR_SOLVE, x, rhs, TNX_CHECK_NONE, flags, 0) : mT(b, linalg2(b, TNX_OP_TRIANGULAR_SOLVE, x, mT(b, rhs), TNX_CHECK_NONE, flags, 1));
  column_major(l, 0, r);
  return give(l, results, r);
}

tnx_status lower_triangular_solve(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value rhs = a[0].value, x = a[1].value;
  tnx_dim sizes[TNX_MAX_RANK];
  if (!has_lapack(l, x) || !is_matrix(l, rhs) || !is_square(l, x)) return b->status;
  int batch = common_batch(b, x, rhs, sizes);
  if (batch < 0) return b->status;
  x = with_batch(b, x, 2, batch, sizes);
  rhs = with_batch(b, rhs, 2, batch, sizes);
  tnx_value r = linalg2(b, TNX_OP_TRIANGULAR_SOLVE, x, rhs, TNX_CHECK_NONE, arg_bool(a + 2) + 2 * arg_bool(a + 4), arg_bool(a + 3));
  column_major(l, 0, r);
  column_major(l, 1, x);
  return give2(l, results, r, x);
}

/* ---- LDL ---- */

tnx_status lower_ldl_factor_ex(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return l->b.status;
  tnx_value f = linalg1(&l->b, TNX_OP_LDL, a[0].value, check_if(a + 2, TNX_CHECK_LDL), arg_bool(a + 1), 0);
  column_major(l, 0, f);
  return give3(l, results, f, f + 1, f + 2);
}

tnx_status lower_ldl_solve(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_dim sizes[TNX_MAX_RANK];
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value) || !is_matrix(l, a[2].value)) return b->status;
  int batch = common_batch(b, a[0].value, a[2].value, sizes);
  if (batch < 0) return b->status;
  tnx_value pivots = tnx_b_convert(b, a[1].value, TNX_I32);
  tnx_value x = linalg3(b, TNX_OP_LDL_SOLVE, with_batch(b, a[0].value, 2, batch, sizes), with_batch(b, pivots, 1, batch, sizes), with_batch(b, a[2].value, 2, batch, sizes),
                        TNX_CHECK_SOLVE_PIVOTS, arg_bool(a + 3), 0);
  column_major(l, 0, x);
  return give(l, results, x);
}

/* ---- QR ---- */

tnx_status lower_geqrf(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value)) return l->b.status;
  tnx_value f = linalg1(&l->b, TNX_OP_QR, a[0].value, 0, 0, 0);
  column_major(l, 0, f);
  return give2(l, results, f, f + 1);
}

tnx_status lower_linalg_qr(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  tnx_value x = a[0].value, q;
  bool complete = arg_is(a + 1, "complete");
  if (!has_lapack(l, x) || !is_matrix(l, x)) return b->status;
  if (!complete && !arg_is(a + 1, "reduced") && !arg_is(a + 1, "r")) return tnx_fail(TNX_INVALID_ARGUMENT, "qr received unrecognized mode");
  tnx_value f = linalg1(b, TNX_OP_QR, x, 0, 0, 0);
  if (!f) return b->status;
  tnx_dim m = tnx_b_size(b, x, -2), n = tnx_b_size(b, x, -1), k = lesser(b, x);
  tnx_value r = upper_triangle(b, complete ? f : first_rows(b, f, k));
  if (arg_is(a + 1, "r")) {
    q = empty_of(b, tnx_b_dtype(b, x));
  } else {
    tnx_value reflectors = f;
    if (complete) { /* as many columns as rows; those behind the reflectors are not read */
      tnx_dim low[TNX_MAX_RANK] = {0}, high[TNX_MAX_RANK] = {0};
      high[tnx_b_rank(b, f) - 1] = tnx_b_dim_sub(b, m, n);
      if (m != n) reflectors = tnx_b_pad(b, f, tnx_b_const_f(b, tnx_b_dtype(b, x), 0), low, high);
    } else if (k != n) {
      reflectors = first_columns(b, f, k);
    }
    q = linalg2(b, TNX_OP_QR_Q, reflectors, f + 1, TNX_CHECK_NONE, 0, 0);
    column_major(l, 0, q);
  }
  column_major(l, 1, r);
  return give2(l, results, q, r);
}

static bool exceeds(tnx_dim x, tnx_dim y) { return x > y && !tnx_dim_is_symbolic(x) && !tnx_dim_is_symbolic(y); }

tnx_status lower_householder_product(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value)) return l->b.status;
  tnx_dim columns = tnx_b_size(&l->b, a[0].value, -1), factors = tnx_b_rank(&l->b, a[1].value) ? tnx_b_size(&l->b, a[1].value, -1) : 0;
  if (exceeds(columns, tnx_b_size(&l->b, a[0].value, -2))) return tnx_fail(TNX_SHAPE, "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]");
  if (exceeds(factors, columns)) return tnx_fail(TNX_SHAPE, "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]");
  tnx_value q = linalg2(&l->b, TNX_OP_QR_Q, a[0].value, a[1].value, TNX_CHECK_NONE, 0, 0);
  column_major(l, 0, q);
  return give(l, results, q);
}

tnx_status lower_ormqr(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value) || !is_matrix(l, a[2].value)) return b->status;
  bool cplx = tnx_dtype_is_complex(tnx_b_dtype(b, a[0].value)), left = arg_bool(a + 3);
  tnx_dim order = tnx_b_size(b, a[2].value, left ? -2 : -1), factors = tnx_b_rank(b, a[1].value) ? tnx_b_size(b, a[1].value, -1) : 0;
  if (differ(tnx_b_size(b, a[0].value, -2), order) || exceeds(factors, order)) return tnx_fail(TNX_SHAPE, "torch.ormqr: other and input do not fit together");
  tnx_value r = linalg3(b, TNX_OP_QR_APPLY, a[0].value, a[1].value, a[2].value, TNX_CHECK_NONE, left, !arg_bool(a + 4) ? 0 : cplx ? 2 : 1);
  column_major(l, 0, r);
  return give(l, results, r);
}

/* ---- singular values and eigenvalues ---- */

tnx_status lower_linalg_svd(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!has_lapack(l, a[0].value) || !is_matrix(l, a[0].value)) return b->status;
  if (!arg_none(a + 3)) return uncovered(l, "a driver");
  bool vectors = arg_bool(a + 2);
  tnx_value f = linalg1(b, TNX_OP_SVD, a[0].value, TNX_CHECK_SVD, arg_bool(a + 1), vectors), none = empty_of(b, tnx_b_dtype(b, a[0].value));
  if (vectors) {
    column_major(l, 0, f);
    column_major(l, 2, f + 2);
  }
  return give3(l, results, vectors ? f : none, f + 1, vectors ? f + 2 : none);
}

tnx_status lower_eigh(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return b->status;
  bool vectors = arg_bool(a + 2), upper = arg_is(a + 1, "U") || arg_is(a + 1, "u");
  if (!upper && !arg_is(a + 1, "L") && !arg_is(a + 1, "l")) return tnx_fail(TNX_INVALID_ARGUMENT, "Expected UPLO argument to be 'L' or 'U'");
  tnx_value f = linalg1(b, TNX_OP_EIGH, a[0].value, TNX_CHECK_EIGH, upper, vectors), v = vectors ? f + 1 : empty_of(b, tnx_b_dtype(b, a[0].value));
  if (vectors) column_major(l, 1, v);
  return give2(l, results, f, v);
}

tnx_status lower_eig(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return l->b.status;
  tnx_value f = linalg1(&l->b, TNX_OP_EIG, a[0].value, TNX_CHECK_EIG, 1, 0);
  if (f) column_major(l, 1, f + 1);
  return give2(l, results, f, f + 1);
}

tnx_status lower_eigvals(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  if (!has_lapack(l, a[0].value) || !is_square(l, a[0].value)) return l->b.status;
  return give(l, results, linalg1(&l->b, TNX_OP_EIG, a[0].value, TNX_CHECK_EIG, 0, 0));
}

/* ---- least squares, the exponential ---- */

tnx_status lower_lstsq(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  static const char *const drivers[] = {"gels", "gelsy", "gelsd", "gelss"};
  tnx_value x = a[0].value, rhs = a[1].value;
  if (!has_lapack(l, x) || !is_matrix(l, x)) return b->status;
  int driver = arg_none(a + 3) ? 1 : -1;
  for (int i = 0; i < 4; i++)
    if (arg_is(a + 3, drivers[i])) driver = i;
  if (driver < 0) return uncovered(l, "driver");
  tnx_dtype t = tnx_b_dtype(b, x), real = tnx_dtype_real(t);
  tnx_dim m = tnx_b_size(b, x, -2), n = tnx_b_size(b, x, -1), sizes[TNX_MAX_RANK];
  if (tnx_dim_is_symbolic(m) || tnx_dim_is_symbolic(n)) return uncovered(l, "symbolic sizes");
  /* Whether gelsd and gelss give residuals depends on the rank that they find. A caller who can read it asks for them in an argument behind the operator's own. */
  bool residual = m > n && driver != 1, asked = l->n_args > 4 && arg_bool(a + 4);
  bool vector = is_vector_rhs(b, x, rhs);
  if (vector) rhs = tnx_b_unsqueeze(b, rhs, tnx_b_rank(b, rhs));
  if (!is_matrix(l, rhs) || t != tnx_b_dtype(b, rhs)) return b->status != TNX_OK ? b->status : tnx_fail(TNX_DTYPE, "torch.linalg.lstsq: Expected input and other to have the same dtype");
  int batch = common_batch(b, x, rhs, sizes);
  if (batch < 0) return b->status;
  double rcond = arg_number(a + 2, (real == TNX_F64 ? 0x1p-52 : 0x1p-23) * (double)(m > n ? m : n));
  tnx_value in[2] = {with_batch(b, x, 2, batch, sizes), with_batch(b, rhs, 2, batch, sizes)};
  tnx_value f = tnx_b_linalg(b, TNX_OP_LSTSQ, in, 2, TNX_CHECK_LSTSQ, driver, 0, rcond);
  if (!f) return b->status;
  if (residual && driver >= 2 && !asked) return uncovered(l, "a result whose size depends on the matrix's rank");
  tnx_value solution = first_rows(b, f, n), rest = empty_of(b, real);
  if (residual) {
    tnx_value below = tnx_b_unary(b, TNX_OP_ABS, tnx_b_slice(b, f, tnx_b_rank(b, f) - 2, n, m - n, 1));
    int rows = tnx_b_rank(b, f) - 2;
    rest = reduce(b, TNX_OP_REDUCE_SUM, mul(b, below, below), &rows, 1, false);
  }
  int last = tnx_b_rank(b, f) - 1;
  if (vector) solution = tnx_b_squeeze(b, solution, &last, 1);
  else column_major(l, 0, f); /* a view of what LAPACK wrote */
  results[0] = solution, results[1] = rest;
  results[2] = driver == 0 ? empty_of(b, TNX_I64) : f + 1;
  results[3] = driver < 2 ? empty_of(b, real) : f + 2;
  l->n_results = 4;
  return b->status;
}

tnx_status lower_matrix_exp(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  if (!is_square(l, a[0].value)) return b->status;
  tnx_dtype t = tnx_b_dtype(b, a[0].value);
  tnx_value x = tnx_dtype_is_float(t) ? to_acc(b, a[0].value) : a[0].value; /* halves in float32 */
  if (!has_lapack(l, x)) return b->status;
  return give(l, results, tnx_b_convert(b, linalg1(b, TNX_OP_MATRIX_EXP, x, 0, 0, 0), t));
}
