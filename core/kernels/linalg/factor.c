/* Factorisations and what solves with them. Arrays that LAPACK declares by a leading dimension need one of at least 1, also where they are empty. */
#include "kernels/linalg/internal.h"

/* ---- Cholesky: A -> L, info ---- */

typedef void (*potrf_fn)(arg uplo, arg n, void *a, arg lda, int *info);

void tnxk_linalg_cholesky(job *j) {
  bool upper = j->p->flags[0];
  int n = rows_of(j, 0), info = 0;
  matrix l = tnxk_linalg_stage(j, 1, n, n);
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &l);
  if (n) ((potrf_fn)LAPACK_OF(j, POTRF))(upper ? "U" : "L", &n, l.data, &l.ld, &info);
  tnxk_linalg_clear_triangle(j, &l, !upper);
  tnxk_linalg_store(j, 1, &l);
  tnxk_linalg_set_int(j, 2, info);
  tnxk_linalg_complain(j, info);
}

/* ---- LU: A -> LU, pivots, info; LU, pivots, B -> X ---- */

typedef void (*getrf_fn)(arg m, arg n, void *a, arg lda, int32_t *pivots, int *info);
typedef void (*getrs_fn)(arg trans, arg n, arg nrhs, arg a, arg lda, const int32_t *pivots, void *b, arg ldb, int *info);

void tnxk_linalg_lu(job *j) {
  int m = rows_of(j, 0), n = cols_of(j, 0), info = 0;
  matrix a = tnxk_linalg_stage(j, 1, m, n);
  int32_t *pivots = tnxk_linalg_vector(j, 2, sizeof *pivots);
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &a);
  if (m && n) ((getrf_fn)LAPACK_OF(j, GETRF))(&m, &n, a.data, &a.ld, pivots, &info);
  tnxk_linalg_store(j, 1, &a);
  tnxk_linalg_store_ints(j, 2, pivots);
  tnxk_linalg_set_int(j, 3, info);
  tnxk_linalg_complain(j, info);
}

static const char *transposition(int64_t flag) { return flag == 0 ? "N" : flag == 1 ? "T" : "C"; }

/* Pivots may come from anywhere, and LAPACK takes them for places in memory. */
static bool are_lu_pivots(const int32_t *pivots, int n) {
  for (int i = 0; i < n; i++)
    if (pivots[i] < 1 || pivots[i] > n) return false;
  return true;
}

void tnxk_linalg_lu_solve(job *j) {
  int n = rows_of(j, 2), nrhs = cols_of(j, 2), info = 0;
  matrix lu = tnxk_linalg_borrow(j, 0), x = tnxk_linalg_stage(j, 3, n, nrhs);
  const int32_t *pivots = tnxk_linalg_ints(j, 1);
  if (j->dry) return;
  tnxk_linalg_load(j, 2, &x);
  if (!are_lu_pivots(pivots, n)) tnxk_linalg_complain(j, 1);
  else if (n && nrhs) ((getrs_fn)LAPACK_OF(j, GETRS))(transposition(j->p->flags[0]), &n, &nrhs, lu.data, &lu.ld, pivots, x.data, &x.ld, &info);
  tnxk_linalg_store(j, 3, &x);
}

/* pivots -> the permutation that the swaps of rows amount to: row i of the permuted matrix is row p[i]. */
void tnxk_linalg_lu_permutation(job *j) {
  const tnxk_matrices *x = &j->p->x[0], *p = &j->p->x[1];
  if (j->dry) return;
  const int32_t *pivots = (const int32_t *)x->data + j->offset[0];
  int64_t *out = (int64_t *)p->data + j->offset[1];
  for (int64_t i = 0; i < p->rows; i++) out[i * p->rs] = i;
  for (int64_t i = 0; i < x->rows; i++) {
    int64_t with = (int64_t)pivots[i * x->rs] - 1, swap;
    if (with < 0 || with >= p->rows || i >= p->rows) {
      tnxk_linalg_complain(j, 1);
      return;
    }
    swap = out[i * p->rs];
    out[i * p->rs] = out[with * p->rs];
    out[with * p->rs] = swap;
  }
}

/* ---- triangular: A, B -> X with op(A) X = B; flags: upper | 2 * unit, transposition ---- */

/* The first zero on the diagonal, from 1; 0 if there is none. */
static int zero_on_diagonal(const job *j, const matrix *a, int n) {
  int parts = is_complex(j) ? 2 : 1;
  for (int i = 0; i < n; i++) {
    int64_t at = ((int64_t)i * a->ld + i) * parts;
    bool nonzero = false;
    for (int k = 0; k < parts; k++) nonzero |= is_double(j) ? ((double *)a->data)[at + k] != 0 : ((float *)a->data)[at + k] != 0;
    if (!nonzero) return i + 1;
  }
  return 0;
}

typedef void (*trsm_fn)(arg side, arg uplo, arg trans, arg diag, arg m, arg n, arg alpha, arg a, arg lda, void *b, arg ldb);

void tnxk_linalg_triangular_solve(job *j) {
  static const double one[2] = {1, 0};
  static const float one_f[2] = {1, 0};
  bool upper = j->p->flags[0] & 1, unit = j->p->flags[0] & 2;
  int64_t trans = j->p->flags[1];
  int n = rows_of(j, 1), nrhs = cols_of(j, 1);
  tnxk_matrices *x = &j->p->x[0];
  matrix a;
  if (x->cs == 1 && x->rs != 1 && trans != 2 && x->rs >= larger(n, 1) && x->rs <= INT_MAX) {
    /* row-major is column-major of the transpose */
    a = (matrix){j->dry ? NULL : (char *)x->data + j->offset[0] * (int64_t)elem_size(j), n, n, (int)x->rs};
    upper = !upper;
    trans = 1 - trans;
  } else {
    a = tnxk_linalg_borrow(j, 0);
  }
  matrix b = tnxk_linalg_stage(j, 2, n, nrhs);
  if (j->dry) return;
  tnxk_linalg_load(j, 1, &b);
  if (j->p->check) tnxk_linalg_complain(j, zero_on_diagonal(j, &a, n)); /* a plain solve divides by zeros */
  if (n && nrhs)
    ((trsm_fn)LAPACK_OF(j, TRSM))("L", upper ? "U" : "L", transposition(trans), unit ? "U" : "N", &n, &nrhs, is_double(j) ? (arg)one : (arg)one_f, a.data, &a.ld, b.data,
                                  &b.ld);
  tnxk_linalg_store(j, 2, &b);
}

/* ---- LDL: A -> LD, pivots, info; LD, pivots, B -> X; the lower triangle ---- */

typedef void (*sytrf_fn)(arg uplo, arg n, void *a, arg lda, int32_t *pivots, void *work, arg lwork, int *info);
typedef void (*sytrs_fn)(arg uplo, arg n, arg nrhs, arg a, arg lda, const int32_t *pivots, void *b, arg ldb, int *info);

void tnxk_linalg_ldl(job *j) {
  int n = rows_of(j, 0), info = 0, query = -1;
  sytrf_fn factor = (sytrf_fn)(j->p->flags[0] ? LAPACK_OF(j, HETRF) : LAPACK_OF(j, SYTRF));
  matrix a = tnxk_linalg_stage(j, 1, n, n);
  int32_t *pivots = tnxk_linalg_vector(j, 2, sizeof *pivots);
  if (j->dry && n) {
    double work[2] = {0};
    int32_t none[1];
    factor("L", &n, work, &a.ld, none, work, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &a);
  tnxk_linalg_clear_triangle(j, &a, true);
  if (n) factor("L", &n, a.data, &a.ld, pivots, work, &j->p->lwork, &info);
  tnxk_linalg_store(j, 1, &a);
  tnxk_linalg_store_ints(j, 2, pivots);
  tnxk_linalg_set_int(j, 3, info);
  tnxk_linalg_complain(j, info);
}

/* Blocks of two rows have the same negative pivot twice. */
static bool are_ldl_pivots(const int32_t *pivots, int n) {
  for (int i = 0; i < n; i++) {
    int64_t p = pivots[i];
    if (p == 0 || p > n || p < -n) return false;
    if (p < 0 && (++i >= n || pivots[i] != p)) return false;
  }
  return true;
}

void tnxk_linalg_ldl_solve(job *j) {
  int n = rows_of(j, 2), nrhs = cols_of(j, 2), info = 0;
  matrix ld = tnxk_linalg_borrow(j, 0), x = tnxk_linalg_stage(j, 3, n, nrhs);
  const int32_t *pivots = tnxk_linalg_ints(j, 1);
  if (j->dry) return;
  tnxk_linalg_load(j, 2, &x);
  sytrs_fn solve = (sytrs_fn)(j->p->flags[0] ? LAPACK_OF(j, HETRS) : LAPACK_OF(j, SYTRS));
  if (!are_ldl_pivots(pivots, n)) tnxk_linalg_complain(j, 1);
  else if (n && nrhs) solve("L", &n, &nrhs, ld.data, &ld.ld, pivots, x.data, &x.ld, &info);
  tnxk_linalg_store(j, 3, &x);
}

/* ---- QR: A -> reflectors and R, tau; reflectors, tau -> Q; reflectors, tau, C -> Q C ---- */

typedef void (*geqrf_fn)(arg m, arg n, void *a, arg lda, void *tau, void *work, arg lwork, int *info);
typedef void (*orgqr_fn)(arg m, arg n, arg k, void *a, arg lda, arg tau, void *work, arg lwork, int *info);
typedef void (*ormqr_fn)(arg side, arg trans, arg m, arg n, arg k, arg a, arg lda, arg tau, void *c, arg ldc, void *work, arg lwork, int *info);

void tnxk_linalg_qr(job *j) {
  int m = rows_of(j, 0), n = cols_of(j, 0), info = 0, query = -1;
  geqrf_fn factor = (geqrf_fn)LAPACK_OF(j, GEQRF);
  matrix a = tnxk_linalg_stage(j, 1, m, n);
  void *tau = tnxk_linalg_vector(j, 2, elem_size(j));
  if (j->dry && m && n) {
    double work[2] = {0};
    factor(&m, &n, work, &a.ld, work, work, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &a);
  if (m && n) factor(&m, &n, a.data, &a.ld, tau, work, &j->p->lwork, &info);
  tnxk_linalg_store(j, 1, &a);
  tnxk_linalg_store_vector(j, 2, tau, elem_size(j));
}

void tnxk_linalg_qr_q(job *j) {
  int m = rows_of(j, 0), n = cols_of(j, 0), k = rows_of(j, 1), info = 0, query = -1;
  orgqr_fn form = (orgqr_fn)LAPACK_OF(j, ORGQR);
  matrix q = tnxk_linalg_stage(j, 2, m, n), tau = tnxk_linalg_borrow(j, 1);
  if (j->dry && m && n) {
    double work[2] = {0};
    form(&m, &n, &k, work, &q.ld, work, work, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &q);
  if (m && n) form(&m, &n, &k, q.data, &q.ld, tau.data, work, &j->p->lwork, &info);
  tnxk_linalg_store(j, 2, &q);
}

/* flags: from the left, transposition */
void tnxk_linalg_qr_apply(job *j) {
  int m = rows_of(j, 2), n = cols_of(j, 2), k = rows_of(j, 1), info = 0, query = -1;
  ormqr_fn apply = (ormqr_fn)LAPACK_OF(j, ORMQR);
  const char *side = j->p->flags[0] ? "L" : "R", *trans = transposition(j->p->flags[1]);
  /* LAPACK writes into the reflectors and puts them back: not into an operand that others may be reading. It reads a column for each factor, also where there are fewer. */
  matrix a = tnxk_linalg_scratch(j, rows_of(j, 0), larger(cols_of(j, 0), k)), tau = tnxk_linalg_borrow(j, 1), c = tnxk_linalg_stage(j, 3, m, n);
  if (j->dry && m && n && k) {
    double work[2] = {0};
    apply(side, trans, &m, &n, &k, work, &a.ld, work, work, &c.ld, work, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry) return;
  if (k > cols_of(j, 0)) memset(a.data, 0, (size_t)a.ld * (size_t)a.cols * elem_size(j));
  tnxk_linalg_load(j, 0, &a);
  tnxk_linalg_load(j, 2, &c);
  if (m && n && k) apply(side, trans, &m, &n, &k, a.data, &a.ld, tau.data, c.data, &c.ld, work, &j->p->lwork, &info);
  tnxk_linalg_store(j, 3, &c);
}
