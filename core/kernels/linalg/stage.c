/* Operands as LAPACK wants them: column-major, in memory that may be overwritten. */
#include "kernels/linalg/internal.h"

void *tnxk_linalg_take(job *j, int64_t n, size_t size) {
  size_t bytes, at = (j->used + 63) & ~(size_t)63;
  if (n < 0 || __builtin_mul_overflow((size_t)n, size, &bytes) || __builtin_add_overflow(at, bytes, &j->used) || j->used > SIZE_MAX / 4) {
    j->overflow = true;
    return NULL;
  }
  return j->dry ? NULL : j->scratch + at;
}

static char *place(const job *j, int k, size_t size) { return (char *)j->p->x[k].data + j->offset[k] * (int64_t)size; }

/* Bytes of one element of result k of `p`, and of operand k. */
static bool is_column_major(const tnxk_matrices *x) {
  return (x->rs == 1 || x->rows == 1) && (x->cols == 1 || x->cs >= larger((int)x->rows, 1)) && x->cs <= INT_MAX;
}
static int leading(const tnxk_matrices *x) { return x->cols == 1 ? larger((int)x->rows, 1) : (int)x->cs; }

matrix tnxk_linalg_scratch(job *j, int rows, int cols) {
  matrix m = {NULL, rows, cols, larger(rows, 1)};
  m.data = tnxk_linalg_take(j, (int64_t)rows * cols, elem_size(j));
  return m;
}

matrix tnxk_linalg_stage(job *j, int k, int rows, int cols) {
  const tnxk_matrices *x = &j->p->x[k];
  if (!is_column_major(x) || x->rows != rows || x->cols != cols) return tnxk_linalg_scratch(j, rows, cols);
  return (matrix){j->dry ? NULL : place(j, k, elem_size(j)), rows, cols, leading(x)};
}

/* Tiles keep both sides in the cache where one is walked along rows and the other along columns. */
enum { TILE = 32 };
#define COPY(type)                                                                                                               \
  for (int64_t c0 = 0; c0 < cols; c0 += TILE)                                                                                   \
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)                                                                                 \
      for (int64_t c = c0; c < cols && c < c0 + TILE; c++)                                                                      \
        for (int64_t r = r0; r < rows && r < r0 + TILE; r++) ((type *)to)[r * trs + c * tcs] = ((const type *)from)[r * frs + c * fcs];
typedef struct wide { double part[2]; } wide;
static void copy(void *to, int64_t trs, int64_t tcs, const void *from, int64_t frs, int64_t fcs, int64_t rows, int64_t cols, size_t size) {
  if (to == from) return;
  if (size == 4) COPY(uint32_t)
  else if (size == 8) COPY(uint64_t)
  else COPY(wide)
}

void tnxk_linalg_load(const job *j, int k, const matrix *m) {
  const tnxk_matrices *x = &j->p->x[k];
  copy(m->data, 1, m->ld, place(j, k, elem_size(j)), x->rs, x->cs, x->rows, x->cols, elem_size(j));
}

void tnxk_linalg_store(const job *j, int k, const matrix *m) {
  const tnxk_matrices *x = &j->p->x[k];
  copy(place(j, k, elem_size(j)), x->rs, x->cs, m->data, 1, m->ld, x->rows, x->cols, elem_size(j));
}

matrix tnxk_linalg_borrow(job *j, int k) {
  matrix m = tnxk_linalg_stage(j, k, rows_of(j, k), cols_of(j, k));
  if (!j->dry) tnxk_linalg_load(j, k, &m);
  return m;
}

void *tnxk_linalg_vector(job *j, int k, size_t size) {
  const tnxk_matrices *x = &j->p->x[k];
  if (x->rs == 1 || x->rows <= 1) return j->dry ? NULL : place(j, k, size);
  return tnxk_linalg_take(j, x->rows, size);
}

void tnxk_linalg_store_vector(const job *j, int k, const void *from, size_t size) {
  const tnxk_matrices *x = &j->p->x[k];
  copy(place(j, k, size), x->rs, 1, from, 1, 1, x->rows, x->cols, size);
}

int32_t *tnxk_linalg_ints(job *j, int k) {
  const tnxk_matrices *x = &j->p->x[k];
  int32_t *v = tnxk_linalg_vector(j, k, sizeof *v);
  if (v) copy(v, 1, 1, place(j, k, sizeof *v), x->rs, 1, x->rows, x->cols, sizeof *v);
  return v;
}

void tnxk_linalg_store_ints(const job *j, int k, const int32_t *from) { tnxk_linalg_store_vector(j, k, from, sizeof *from); }

void tnxk_linalg_set_int(const job *j, int k, int64_t v) {
  if (j->p->op == TNXK_LINALG_LSTSQ) {
    memcpy(place(j, k, sizeof v), &v, sizeof v);
  } else {
    int32_t narrow = (int32_t)v;
    memcpy(place(j, k, sizeof narrow), &narrow, sizeof narrow);
  }
}

/* ---- element by element ---- */

static void set(const job *j, const matrix *m, int64_t r, int64_t c, double v) {
  int64_t at = r + c * m->ld;
  switch (j->p->dtype) {
    case TNX_F32: ((float *)m->data)[at] = (float)v; break;
    case TNX_F64: ((double *)m->data)[at] = v; break;
    case TNX_C64: ((float *)m->data)[2 * at] = (float)v, ((float *)m->data)[2 * at + 1] = 0; break;
    default: ((double *)m->data)[2 * at] = v, ((double *)m->data)[2 * at + 1] = 0;
  }
}

void tnxk_linalg_identity(const job *j, const matrix *m) {
  for (int64_t c = 0; c < m->cols; c++)
    for (int64_t r = 0; r < m->rows; r++) set(j, m, r, c, r == c);
}

void tnxk_linalg_clear_triangle(const job *j, const matrix *m, bool upper) {
  for (int64_t c = 0; c < m->cols; c++) {
    int64_t first = upper ? 0 : c + 1, end = upper ? c : m->rows;
    if (end > m->rows) end = m->rows;
    if (first < end) memset((char *)m->data + (first + c * m->ld) * (int64_t)elem_size(j), 0, (size_t)(end - first) * elem_size(j));
  }
}

int tnxk_linalg_work_size(const job *j, const void *work) {
  /* large float32 sizes may have been rounded down */
  double n = is_double(j) ? *(const double *)work : (double)nextafterf(*(const float *)work, INFINITY);
  return n < INT_MAX ? (int)ceil(n) : INT_MAX;
}

void tnxk_linalg_complain(const job *j, int info) {
  if (info == 0 || !j->p->check || !j->p->fault) return;
  j->p->fault->limit = j->p->batch_rank > 0;
  /* of several the first in the batch, as PyTorch says it: the smallest code wins */
  int64_t place = j->unit < INT32_MAX - 1 ? j->unit : INT32_MAX - 1, mine = (place + 1) << 32 | (uint32_t)info, seen = 0;
  while (!atomic_compare_exchange_weak(&j->p->fault->code, &seen, mine) && (seen == 0 || seen > mine)) {}
}
