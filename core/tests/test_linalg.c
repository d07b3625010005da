/* The staging of operands around LAPACK, with a LAPACK of one routine that the test provides: memory orders, batches, splits, failures; and what happens without one. */
#include "kernels/linalg/linalg.h"

#include "kernel_split.h"
#include "tnx/lapack.h"

/* Cholesky by its definition. */
static void potrf(const char *uplo, const int *n, double *a, const int *lda, int *info) {
  bool upper = *uplo == 'U';
#define A(i, j) a[upper ? (j) + (int64_t)(i) * *lda : (i) + (int64_t)(j) * *lda]
  for (int j = 0; j < *n; j++) {
    double d = A(j, j);
    for (int k = 0; k < j; k++) d -= A(j, k) * A(j, k);
    if (!(d > 0)) {
      *info = j + 1;
      return;
    }
    A(j, j) = sqrt(d);
    for (int i = j + 1; i < *n; i++) {
      double s = A(i, j);
      for (int k = 0; k < j; k++) s -= A(i, k) * A(j, k);
      A(i, j) = s / A(j, j);
    }
  }
#undef A
}

static void *find(void *ctx, const char *name) {
  void (*f)(const char *, const int *, double *, const int *, int *) = potrf;
  void *address = NULL;
  if (strcmp(name, "dpotrf_") == 0) memcpy(&address, &f, sizeof address);
  return address;
}

enum { BATCH = 5, N = 7 };

/* A = B B^T + the identity, with element (r, c) of matrix m at m * bs + r * rs + c * cs. */
static void fill(double *a, int64_t bs, int64_t rs, int64_t cs) {
  uint64_t seed = 3;
  for (int m = 0; m < BATCH; m++) {
    double b[N][N];
    for (int i = 0; i < N * N; i++) b[i / N][i % N] = (double)(test_rand(&seed) % 1000) / 1000;
    for (int r = 0; r < N; r++)
      for (int c = 0; c < N; c++) {
        double s = r == c;
        for (int k = 0; k < N; k++) s += b[r][k] * b[c][k];
        a[m * bs + r * rs + c * cs] = s;
      }
  }
}

static tnxk_linalg step(double *a, bool a_row_major, double *l, bool l_row_major, int32_t *info, bool upper, tnxk_fault *fault) {
  tnxk_linalg p = {.op = TNXK_LINALG_CHOLESKY, .dtype = TNX_F64, .check = true, .batch_rank = 1, .batch = {BATCH}, .flags = {upper}, .fault = fault};
  p.x[0] = (tnxk_matrices){a, N, N, a_row_major ? N : 1, a_row_major ? 1 : N, {N * N}};
  p.x[1] = (tnxk_matrices){l, N, N, l_row_major ? N : 1, l_row_major ? 1 : N, {N * N}};
  p.x[2] = (tnxk_matrices){info, 1, 1, 1, 1, {1}};
  return p;
}

TEST(orders_and_splits) {
  tnx_lapack_provide(find, NULL);
  double a[BATCH * N * N], l[BATCH * N * N];
  int32_t info[BATCH];
  for (int form = 0; form < 8; form++)
    for (int64_t piece = 0; piece < 3; piece++) {
      bool rows_in = form & 1, rows_out = form & 2, upper = form & 4;
      tnxk_fault fault = {0};
      tnxk_kernel k;
      fill(a, N * N, rows_in ? N : 1, rows_in ? 1 : N);
      memset(info, 0xff, sizeof info);
      tnxk_linalg p = step(a, rows_in, l, rows_out, info, upper, &fault);
      CHECK_OK(tnxk_linalg_select(&p, &k));
      CHECK_EQ(k.units[0], BATCH);
      CHECK_EQ(k.worker_bytes > 0, rows_out); /* a column-major result is computed where it lies */
      kernel_run_split(&k, &p, piece, 11);
      for (int m = 0; m < BATCH; m++) {
        CHECK_EQ(info[m], 0);
        for (int r = 0; r < N; r++)
          for (int c = 0; c < N; c++) {
            double s = 0;
#define L(i, j) l[m * N * N + (rows_out ? (i) * N + (j) : (i) + (j) * N)]
            for (int t = 0; t < N; t++) s += upper ? L(t, r) * L(t, c) : L(r, t) * L(c, t);
            CHECK(fabs(s - a[m * N * N + r * N + c]) < 1e-12); /* symmetric: either order */
            if (upper ? r > c : r < c) CHECK(L(r, c) == 0);
#undef L
          }
      }
      CHECK_EQ(fault.code, 0);
    }
}

TEST(failures) {
  tnx_lapack_provide(find, NULL);
  double a[BATCH * N * N], l[BATCH * N * N];
  int32_t info[BATCH];
  tnxk_fault fault = {0};
  tnxk_kernel k;
  fill(a, N * N, N, 1);
  a[3 * N * N + 2 * N + 2] = -1;
  tnxk_linalg p = step(a, true, l, true, info, false, &fault);
  CHECK_OK(tnxk_linalg_select(&p, &k));
  kernel_run_split(&k, &p, 1, 5);
  for (int m = 0; m < BATCH; m++) CHECK_EQ(info[m], m == 3 ? 3 : 0);
  CHECK_EQ(fault.code, INT64_C(4) << 32 | 3);
  CHECK_EQ(fault.limit, 1);
  /* the first of the batch is reported, whichever fails first */
  a[1 * N * N + 5 * N + 5] = -1;
  for (uint64_t seed = 0; seed < 8; seed++) {
    fault = (tnxk_fault){0};
    kernel_run_split(&k, &p, 1, seed);
    CHECK_EQ(fault.code, INT64_C(2) << 32 | 6);
  }
}

TEST(what_was_not_provided) {
  tnx_lapack_provide(find, NULL);
  double a[BATCH * N * N];
  int32_t info[BATCH];
  tnxk_fault fault = {0};
  tnxk_kernel k;
  tnxk_linalg p = step(a, true, a, true, info, false, &fault);
  p.dtype = TNX_F32;
  CHECK_EQ(tnxk_linalg_select(&p, &k), TNX_NOT_IMPLEMENTED);
  p.dtype = TNX_BF16;
  CHECK_EQ(tnxk_linalg_select(&p, &k), TNX_NOT_IMPLEMENTED);
  tnx_lapack_provide(NULL, NULL);
  p.dtype = TNX_F64;
  CHECK_EQ(tnxk_linalg_select(&p, &k), TNX_NOT_IMPLEMENTED);
  CHECK(strstr(tnx_error_text(), "potrf") != NULL);
}

TEST(permutation) {
  int32_t pivots[3] = {3, 3, 4};
  int64_t out[5], want[5] = {2, 0, 3, 1, 4};
  tnxk_linalg p = {.op = TNXK_LINALG_LU_PERMUTATION, .dtype = TNX_I32};
  p.x[0] = (tnxk_matrices){pivots, 3, 1, 1, 3, {0}};
  p.x[1] = (tnxk_matrices){out, 5, 1, 1, 5, {0}};
  tnxk_kernel k;
  CHECK_OK(tnxk_linalg_select(&p, &k));
  kernel_run_split(&k, &p, 0, 1);
  CHECK(memcmp(out, want, sizeof out) == 0);
}

int main(void) {
  RUN(orders_and_splits);
  RUN(failures);
  RUN(what_was_not_provided);
  RUN(permutation);
  return TEST_END;
}
