/* The matrix exponential: Pade approximants with scaling and squaring, degrees and bounds of N. Higham, "The scaling and squaring method for the matrix
 * exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005). The degree depends on the matrix's 1-norm; matrices of norm 0 give the identity. */
#include "kernels/linalg/internal.h"

typedef void (*gemm_fn)(arg ta, arg tb, arg m, arg n, arg k, arg alpha, arg a, arg lda, arg b, arg ldb, arg beta, void *c, arg ldc);
typedef void (*getrf_fn)(arg m, arg n, void *a, arg lda, int32_t *pivots, int *info);
typedef void (*getrs_fn)(arg trans, arg n, arg nrhs, arg a, arg lda, const int32_t *pivots, void *b, arg ldb, int *info);

static void multiply(const job *j, const matrix *a, const matrix *b, const matrix *c) {
  static const double one[2] = {1, 0}, zero[2] = {0, 0};
  static const float one_f[2] = {1, 0}, zero_f[2] = {0, 0};
  bool d = is_double(j);
  ((gemm_fn)LAPACK_OF(j, GEMM))("N", "N", &a->rows, &b->cols, &a->cols, d ? (arg)one : (arg)one_f, a->data, &a->ld, b->data, &b->ld, d ? (arg)zero : (arg)zero_f, c->data, &c->ld);
}

/* All matrices here but the result's are without gaps, so that sums run over n * n numbers, or twice as many for complex ones. */
static int64_t numbers(const job *j, const matrix *a) { return (int64_t)a->rows * a->cols * (is_complex(j) ? 2 : 1); }

/* to = s * to + v * from */
static void accumulate(const job *j, const matrix *to, double s, double v, const matrix *from) {
  int64_t n = numbers(j, to);
  if (is_double(j)) {
    double *t = to->data;
    const double *f = from->data;
    for (int64_t i = 0; i < n; i++) t[i] = (s == 0 ? 0 : s * t[i]) + v * f[i];
  } else {
    float *t = to->data;
    const float *f = from->data, sf = (float)s, vf = (float)v;
    for (int64_t i = 0; i < n; i++) t[i] = (s == 0 ? 0 : sf * t[i]) + vf * f[i];
  }
}

static void add_diagonal(const job *j, const matrix *a, double v) {
  int64_t step = ((int64_t)a->ld + 1) * (is_complex(j) ? 2 : 1);
  for (int64_t i = 0; i < a->rows; i++) {
    if (is_double(j)) ((double *)a->data)[i * step] += v;
    else ((float *)a->data)[i * step] += (float)v;
  }
}

static double norm1(const job *j, const matrix *a) {
  double most = 0;
  int parts = is_complex(j) ? 2 : 1;
  for (int64_t c = 0; c < a->cols; c++) {
    double sum = 0;
    for (int64_t r = 0; r < a->rows; r++) {
      int64_t i = (r + c * a->rows) * parts;
      double re = is_double(j) ? ((double *)a->data)[i] : ((float *)a->data)[i];
      double im = parts == 1 ? 0 : is_double(j) ? ((double *)a->data)[i + 1] : ((float *)a->data)[i + 1];
      sum += parts == 1 ? fabs(re) : hypot(re, im);
    }
    if (!(sum <= most)) most = sum; /* NaN stays */
  }
  return most;
}

/* Coefficients of the numerator, which is p(A) where the denominator is p(-A). */
static const double pade3[] = {120, 60, 12, 1};
static const double pade5[] = {30240, 15120, 3360, 420, 30, 1};
static const double pade7[] = {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1};
static const double pade9[] = {17643225600., 8821612800., 2075673600., 302702400., 30270240., 2162160., 110880., 3960., 90., 1.};
static const double pade13[] = {64764752532480000., 32382376266240000., 7771770303897600., 1187353796428800., 129060195264000., 10559470521600., 670442572800.,
                                33522128640.,       1323241920.,         40840800.,         960960.,           16380.,           182.,            1.};
static const struct degree { int m; const double *b; double bound, bound_f; } degrees[] = {
    {3, pade3, 1.495585217958292e-2, 4.258730016922831e-1}, {5, pade5, 2.539398330063230e-1, 1.880152677804762},
    {7, pade7, 9.504178996162932e-1, 3.925724783138660},    {9, pade9, 2.097847961257068, 0},
    {13, pade13, 5.371920351148152, 0},
};

/* odd = sum of b[2i+1] powers[i], even = sum of b[2i] powers[i], where powers[i] = A^(2i); powers[0] is the identity. */
static void sums(const job *j, const double *b, const matrix *powers, int n, const matrix *odd, const matrix *even) {
  for (int i = 1; i <= n; i++) {
    accumulate(j, odd, i > 1, b[2 * i + 1], &powers[i]);
    accumulate(j, even, i > 1, b[2 * i], &powers[i]);
  }
}

void tnxk_linalg_matrix_exp(job *j) {
  int n = rows_of(j, 0), info = 0;
  matrix a = tnxk_linalg_scratch(j, n, n), odd = tnxk_linalg_scratch(j, n, n), even = tnxk_linalg_scratch(j, n, n), t = tnxk_linalg_scratch(j, n, n), powers[5];
  for (int i = 1; i < 5; i++) powers[i] = tnxk_linalg_scratch(j, n, n);
  int32_t *pivots = tnxk_linalg_take(j, n, sizeof *pivots);
  if (j->dry || n == 0) return;
  tnxk_linalg_load(j, 0, &a);
  double norm = norm1(j, &a);
  if (norm == 0 || !isfinite(norm)) {
    if (norm == 0) tnxk_linalg_identity(j, &a);
    else accumulate(j, &a, 0, NAN, &a);
    tnxk_linalg_store(j, 1, &a);
    return;
  }
  int count = is_double(j) ? 5 : 3, which = 0, squarings = 0;
#define BOUND(i) (is_double(j) ? degrees[i].bound : degrees[i].bound_f)
  while (which + 1 < count && norm > BOUND(which)) which++;
  if (norm > BOUND(which)) {
    frexp(norm / BOUND(which), &squarings);
    if (squarings < 0) squarings = 0;
    accumulate(j, &a, ldexp(1, -squarings), 0, &a);
  }
#undef BOUND
  const double *b = degrees[which].b;
  int m = degrees[which].m, top = m == 13 ? 3 : (m - 1) / 2;
  multiply(j, &a, &a, &powers[1]);
  for (int i = 2; i <= top; i++) multiply(j, &powers[1], &powers[i - 1], &powers[i]);
  if (m == 13) { /* A^6 times the sums with the upper coefficients, plus those with the lower ones */
    sums(j, b + 6, powers, 3, &odd, &even);
    multiply(j, &powers[3], &odd, &t);
    multiply(j, &powers[3], &even, &powers[4]);
    sums(j, b, powers, 3, &odd, &even);
    accumulate(j, &odd, 1, 1, &t);
    accumulate(j, &even, 1, 1, &powers[4]);
  } else {
    sums(j, b, powers, top, &odd, &even);
  }
  add_diagonal(j, &odd, b[1]);
  add_diagonal(j, &even, b[0]);
  multiply(j, &a, &odd, &t); /* U; the approximant is (V - U)^-1 (V + U) */
  memcpy(odd.data, even.data, (size_t)n * (size_t)n * elem_size(j));
  accumulate(j, &odd, 1, -1, &t);
  accumulate(j, &even, 1, 1, &t);
  ((getrf_fn)LAPACK_OF(j, GETRF))(&n, &n, odd.data, &odd.ld, pivots, &info);
  ((getrs_fn)LAPACK_OF(j, GETRS))("N", &n, &n, odd.data, &odd.ld, pivots, even.data, &even.ld, &info);
  for (int i = 0; i < squarings; i++) {
    multiply(j, &even, &even, &t);
    matrix swap = even;
    even = t;
    t = swap;
  }
  tnxk_linalg_store(j, 1, &even);
}
