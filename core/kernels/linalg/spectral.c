/* Singular values, eigenvalues, least squares. Queries are made with vectors and largest arrays wanted, as the real call. */
#include "kernels/linalg/internal.h"

/* ---- A -> U, S, Vh; flags: full, vectors ---- */

typedef void (*gesdd_fn)(arg jobz, arg m, arg n, void *a, arg lda, void *s, void *u, arg ldu, void *vt, arg ldvt, void *work, arg lwork, int *iwork, int *info);
typedef void (*gesdd_complex_fn)(arg jobz, arg m, arg n, void *a, arg lda, void *s, void *u, arg ldu, void *vt, arg ldvt, void *work, arg lwork, void *rwork, int *iwork,
                                 int *info);

static void gesdd(const job *j, const char *jobz, matrix *a, void *s, matrix *u, matrix *vt, void *work, int lwork, void *rwork, int *iwork, int *info) {
  tnxk_lapack_fn f = LAPACK_OF(j, GESDD);
  if (is_complex(j))
    ((gesdd_complex_fn)f)(jobz, &a->rows, &a->cols, a->data, &a->ld, s, u->data, &u->ld, vt->data, &vt->ld, work, &lwork, rwork, iwork, info);
  else
    ((gesdd_fn)f)(jobz, &a->rows, &a->cols, a->data, &a->ld, s, u->data, &u->ld, vt->data, &vt->ld, work, &lwork, iwork, info);
}

void tnxk_linalg_svd(job *j) {
  bool full = j->p->flags[0], vectors = j->p->flags[1];
  int m = rows_of(j, 0), n = cols_of(j, 0), least = smaller(m, n), most = larger(m, n), info = 0;
  const char *jobz = !vectors ? "N" : full ? "A" : "S";
  matrix a = tnxk_linalg_scratch(j, m, n), u = {NULL, 0, 0, 1}, vt = {NULL, 0, 0, 1};
  if (vectors) {
    u = tnxk_linalg_stage(j, 1, m, full ? m : least);
    vt = tnxk_linalg_stage(j, 3, full ? n : least, n);
  }
  void *s = tnxk_linalg_vector(j, 2, real_size(j));
  int *iwork = tnxk_linalg_take(j, 8 * (int64_t)least, sizeof *iwork);
  void *rwork = NULL;
  if (is_complex(j)) {
    int64_t l = least, more = 5 * l * l + 5 * l, other = 2 * most * l + 2 * l * l + l;
    rwork = tnxk_linalg_take(j, !vectors ? 7 * l : more > other ? more : other, real_size(j));
  }
  if (j->dry && least) {
    double unused[2] = {0}, work[2] = {0};
    matrix qa = a, qu = u, qvt = vt;
    qa.data = qu.data = qvt.data = unused;
    gesdd(j, jobz, &qa, unused, &qu, &qvt, work, -1, unused, (int *)unused, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &a);
  if (least) {
    gesdd(j, jobz, &a, s, &u, &vt, work, j->p->lwork, rwork, iwork, &info);
  } else if (vectors) {
    tnxk_linalg_identity(j, &u);
    tnxk_linalg_identity(j, &vt);
  }
  if (vectors) {
    tnxk_linalg_store(j, 1, &u);
    tnxk_linalg_store(j, 3, &vt);
  }
  tnxk_linalg_store_vector(j, 2, s, real_size(j));
  tnxk_linalg_complain(j, info);
}

/* ---- Hermitian A -> w, V; flags: upper, vectors ---- */

typedef void (*syevd_fn)(arg jobz, arg uplo, arg n, void *a, arg lda, void *w, void *work, arg lwork, int *iwork, arg liwork, int *info);
typedef void (*heevd_fn)(arg jobz, arg uplo, arg n, void *a, arg lda, void *w, void *work, arg lwork, void *rwork, arg lrwork, int *iwork, arg liwork, int *info);

void tnxk_linalg_eigh(job *j) {
  bool vectors = j->p->flags[1];
  const char *uplo = j->p->flags[0] ? "U" : "L", *jobz = vectors ? "V" : "N";
  int n = rows_of(j, 0), info = 0, query = -1;
  tnxk_lapack_fn f = LAPACK_OF(j, HEEVD);
  matrix a = vectors ? tnxk_linalg_stage(j, 2, n, n) : tnxk_linalg_scratch(j, n, n);
  void *w = tnxk_linalg_vector(j, 1, real_size(j));
  if (j->dry && n) {
    double work[2] = {0}, rwork[2] = {0}, unused[2] = {0};
    int iwork = 0;
    if (is_complex(j)) ((heevd_fn)f)(jobz, uplo, &n, unused, &a.ld, unused, work, &query, rwork, &query, &iwork, &query, &info);
    else ((syevd_fn)f)(jobz, uplo, &n, unused, &a.ld, unused, work, &query, &iwork, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
    j->p->lrwork = is_complex(j) ? tnxk_linalg_work_size(j, rwork) : 0;
    j->p->liwork = iwork;
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j)), *rwork = tnxk_linalg_take(j, j->p->lrwork, real_size(j));
  int *iwork = tnxk_linalg_take(j, j->p->liwork, sizeof *iwork);
  if (j->dry) return;
  tnxk_linalg_load(j, 0, &a);
  if (n) {
    if (is_complex(j)) ((heevd_fn)f)(jobz, uplo, &n, a.data, &a.ld, w, work, &j->p->lwork, rwork, &j->p->lrwork, iwork, &j->p->liwork, &info);
    else ((syevd_fn)f)(jobz, uplo, &n, a.data, &a.ld, w, work, &j->p->lwork, iwork, &j->p->liwork, &info);
  }
  if (vectors) tnxk_linalg_store(j, 2, &a);
  tnxk_linalg_store_vector(j, 1, w, real_size(j));
  tnxk_linalg_complain(j, info);
}

/* ---- A -> w, V, both complex; flags: vectors ---- */

typedef void (*geev_fn)(arg jobvl, arg jobvr, arg n, void *a, arg lda, void *wr, void *wi, void *vl, arg ldvl, void *vr, arg ldvr, void *work, arg lwork, int *info);
typedef void (*geev_complex_fn)(arg jobvl, arg jobvr, arg n, void *a, arg lda, void *w, void *vl, arg ldvl, void *vr, arg ldvr, void *work, arg lwork, void *rwork, int *info);

static bool all_finite(const job *j, const matrix *a) {
  int64_t per_column = (int64_t)a->rows * (is_complex(j) ? 2 : 1);
  for (int64_t c = 0; c < a->cols; c++)
    for (int64_t i = 0; i < per_column; i++) {
      double v = is_double(j) ? ((double *)a->data)[c * (int64_t)a->ld * (is_complex(j) ? 2 : 1) + i] : ((float *)a->data)[c * (int64_t)a->ld * (is_complex(j) ? 2 : 1) + i];
      if (!isfinite(v)) return false;
    }
  return true;
}

/* A real matrix's results: eigenvalues in two arrays; of a conjugate pair's vectors one column holds the real part, the next the imaginary part. */
#define JOIN(type)                                                                                                             \
  static void join_##type(int n, const type *wr, const type *wi, const type *v, type *w, int64_t w_step, type *out, int64_t rs, int64_t cs) { \
    for (int64_t i = 0; i < n; i++) w[2 * i * w_step] = wr[i], w[2 * i * w_step + 1] = wi[i];                                  \
    for (int64_t c = 0; v && c < n; c++) {                                                                                     \
      bool pair = wi[c] != 0 && c + 1 < n;                                                                                     \
      for (int64_t r = 0; r < n; r++) {                                                                                        \
        type re = v[r + c * n], im = pair ? v[r + (c + 1) * n] : 0;                                                            \
        type *first = out + 2 * (r * rs + c * cs), *second = first + 2 * cs;                                                   \
        first[0] = re, first[1] = im;                                                                                          \
        if (pair) second[0] = re, second[1] = -im;                                                                             \
      }                                                                                                                        \
      c += pair;                                                                                                               \
    }                                                                                                                          \
  }
JOIN(float)
JOIN(double)

static void eig_real(job *j) {
  bool vectors = j->p->flags[0];
  int n = rows_of(j, 0), info = 0, query = -1, one = 1;
  geev_fn f = (geev_fn)LAPACK_OF(j, GEEV);
  matrix a = tnxk_linalg_scratch(j, n, n), v = tnxk_linalg_scratch(j, vectors ? n : 0, vectors ? n : 0);
  char *wr = tnxk_linalg_take(j, n, elem_size(j)), *wi = tnxk_linalg_take(j, n, elem_size(j));
  if (j->dry && n) {
    double work[2] = {0}, unused[2] = {0};
    f("N", vectors ? "V" : "N", &n, unused, &a.ld, unused, unused, unused, &one, unused, &v.ld, work, &query, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry || n == 0) return;
  tnxk_linalg_load(j, 0, &a);
  if (!all_finite(j, &a)) {
    tnxk_linalg_complain(j, -1);
    return;
  }
  f("N", vectors ? "V" : "N", &n, a.data, &a.ld, wr, wi, NULL, &one, v.data, &v.ld, work, &j->p->lwork, &info);
  const tnxk_matrices *w = &j->p->x[1], *out = &j->p->x[2];
  if (is_double(j))
    join_double(n, (double *)wr, (double *)wi, vectors ? v.data : NULL, (double *)w->data + 2 * j->offset[1], w->rs, (double *)out->data + 2 * j->offset[2], out->rs, out->cs);
  else
    join_float(n, (float *)wr, (float *)wi, vectors ? v.data : NULL, (float *)w->data + 2 * j->offset[1], w->rs, (float *)out->data + 2 * j->offset[2], out->rs, out->cs);
  tnxk_linalg_complain(j, info);
}

void tnxk_linalg_eig(job *j) {
  if (!is_complex(j)) {
    eig_real(j);
    return;
  }
  bool vectors = j->p->flags[0];
  int n = rows_of(j, 0), info = 0, query = -1, one = 1;
  geev_complex_fn f = (geev_complex_fn)LAPACK_OF(j, GEEV);
  matrix a = tnxk_linalg_scratch(j, n, n), v = vectors ? tnxk_linalg_stage(j, 2, n, n) : (matrix){NULL, 0, 0, 1};
  void *w = tnxk_linalg_vector(j, 1, elem_size(j)), *rwork = tnxk_linalg_take(j, 2 * (int64_t)n, real_size(j));
  if (j->dry && n) {
    double work[2] = {0}, unused[2] = {0};
    f("N", vectors ? "V" : "N", &n, unused, &a.ld, unused, unused, &one, unused, &v.ld, work, &query, unused, &info);
    j->p->lwork = tnxk_linalg_work_size(j, work);
  }
  void *work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  if (j->dry || n == 0) return;
  tnxk_linalg_load(j, 0, &a);
  if (!all_finite(j, &a)) {
    tnxk_linalg_complain(j, -1);
    return;
  }
  f("N", vectors ? "V" : "N", &n, a.data, &a.ld, w, NULL, &one, v.data, &v.ld, work, &j->p->lwork, rwork, &info);
  if (vectors) tnxk_linalg_store(j, 2, &v);
  tnxk_linalg_store_vector(j, 1, w, elem_size(j));
  tnxk_linalg_complain(j, info);
}

/* ---- least squares: A [m, n], B [m, k] -> X [max(m, n), k], rank, singular values; flags: driver (0 gels, 1 gelsy, 2 gelsd, 3 gelss) ----
 * The rows of X below n hold what remains of B, whose squares are the residuals. */

typedef void (*gels_fn)(arg trans, arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, void *work, arg lwork, int *info);
typedef void (*gelsy_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, int *jpvt, arg rcond, int *rank, void *work, arg lwork, int *info);
typedef void (*gelsy_complex_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, int *jpvt, arg rcond, int *rank, void *work, arg lwork, void *rwork, int *info);
typedef void (*gelsd_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, void *s, arg rcond, int *rank, void *work, arg lwork, int *iwork, int *info);
typedef void (*gelsd_complex_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, void *s, arg rcond, int *rank, void *work, arg lwork, void *rwork, int *iwork,
                                 int *info);
typedef void (*gelss_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, void *s, arg rcond, int *rank, void *work, arg lwork, int *info);
typedef void (*gelss_complex_fn)(arg m, arg n, arg nrhs, void *a, arg lda, void *b, arg ldb, void *s, arg rcond, int *rank, void *work, arg lwork, void *rwork, int *info);

typedef struct lstsq_work { void *s, *work, *rwork; int *iwork, lwork, rank; } lstsq_work;

static int lstsq_call(const job *j, matrix *a, matrix *b, lstsq_work *w) {
  int info = 0;
  const int *m = &a->rows, *n = &a->cols, *k = &b->cols;
  double tolerance = j->p->number;
  float tolerance_f = (float)tolerance;
  arg rcond = is_double(j) ? (arg)&tolerance : (arg)&tolerance_f;
  bool cplx = is_complex(j);
  switch (j->p->flags[0]) {
    case 0: ((gels_fn)LAPACK_OF(j, GELS))("N", m, n, k, a->data, &a->ld, b->data, &b->ld, w->work, &w->lwork, &info); break;
    case 1:
      if (cplx) ((gelsy_complex_fn)LAPACK_OF(j, GELSY))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->iwork, rcond, &w->rank, w->work, &w->lwork, w->rwork, &info);
      else ((gelsy_fn)LAPACK_OF(j, GELSY))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->iwork, rcond, &w->rank, w->work, &w->lwork, &info);
      break;
    case 2:
      if (cplx) ((gelsd_complex_fn)LAPACK_OF(j, GELSD))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->s, rcond, &w->rank, w->work, &w->lwork, w->rwork, w->iwork, &info);
      else ((gelsd_fn)LAPACK_OF(j, GELSD))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->s, rcond, &w->rank, w->work, &w->lwork, w->iwork, &info);
      break;
    default:
      if (cplx) ((gelss_complex_fn)LAPACK_OF(j, GELSS))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->s, rcond, &w->rank, w->work, &w->lwork, w->rwork, &info);
      else ((gelss_fn)LAPACK_OF(j, GELSS))(m, n, k, a->data, &a->ld, b->data, &b->ld, w->s, rcond, &w->rank, w->work, &w->lwork, &info);
  }
  return info;
}

void tnxk_linalg_lstsq(job *j) {
  int64_t driver = j->p->flags[0];
  int m = rows_of(j, 0), n = cols_of(j, 0), k = cols_of(j, 1), least = smaller(m, n), info = 0;
  bool cplx = is_complex(j), values = driver >= 2;
  matrix a = tnxk_linalg_scratch(j, m, n), x = tnxk_linalg_stage(j, 2, larger(m, n), k);
  lstsq_work w = {.lwork = -1};
  w.s = values ? tnxk_linalg_vector(j, 4, real_size(j)) : NULL;
  if (j->dry && least) {
    double work[2] = {0}, rwork[2] = {0}, unused[2] = {0};
    int iwork[2] = {0};
    matrix qa = a, qx = x;
    qa.data = qx.data = unused;
    lstsq_work q = {unused, work, rwork, iwork, -1, 0};
    lstsq_call(j, &qa, &qx, &q);
    j->p->lwork = tnxk_linalg_work_size(j, work);
    if (driver == 1) {
      j->p->lrwork = 2 * n;
      j->p->liwork = n;
    } else if (driver == 2) {
      j->p->lrwork = cplx ? tnxk_linalg_work_size(j, rwork) : 0;
      j->p->liwork = larger(iwork[0], 1);
    } else if (driver == 3) {
      j->p->lrwork = 5 * least;
    }
  }
  w.work = tnxk_linalg_take(j, j->p->lwork, elem_size(j));
  w.rwork = tnxk_linalg_take(j, cplx ? j->p->lrwork : 0, real_size(j));
  w.iwork = tnxk_linalg_take(j, j->p->liwork, sizeof *w.iwork);
  w.lwork = j->p->lwork;
  if (j->dry) return;
  for (int c = 0; c < k; c++) memset((char *)x.data + (int64_t)c * x.ld * (int64_t)elem_size(j), 0, (size_t)x.rows * elem_size(j));
  tnxk_linalg_load(j, 0, &a);
  if (least) { /* of a matrix without elements PyTorch gives zeros, residuals too */
    tnxk_linalg_load(j, 1, &x);
    if (driver == 1) memset(w.iwork, 0, (size_t)n * sizeof *w.iwork); /* every column may be exchanged */
    info = lstsq_call(j, &a, &x, &w);
  }
  tnxk_linalg_store(j, 2, &x);
  tnxk_linalg_set_int(j, 3, w.rank);
  if (values) tnxk_linalg_store_vector(j, 4, w.s, real_size(j));
  tnxk_linalg_complain(j, info);
}
