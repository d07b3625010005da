/* Internal to the linalg family: the table of LAPACK routines, and the staging of operands as column-major matrices. */
#ifndef TNXK_LINALG_INTERNAL_H
#define TNXK_LINALG_INTERNAL_H
#include <complex.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/linalg/linalg.h"

/* ---- LAPACK ---- */

typedef enum tnxk_lapack_routine {
#define TNXK_LAPACK(routine, real, cplx) TNXK_LAPACK_##routine,
#include "kernels/linalg/lapack.def"
#undef TNXK_LAPACK
  TNXK_LAPACK_COUNT
} tnxk_lapack_routine;

typedef void (*tnxk_lapack_fn)(void);
tnxk_lapack_fn tnxk_lapack_get(tnxk_lapack_routine routine, tnx_dtype dtype); /* NULL: not provided, or no such dtype */
/* Keeps LAPACK on the calling thread; returns what it was allowed before, which tnxk_lapack_restore takes. */
int tnxk_lapack_single(void);
void tnxk_lapack_restore(int threads);

/* Every argument of a Fortran routine is an address. CALL(j, GETRF, args...) calls the routine of the job's dtype. */
typedef const void *arg;
#define LAPACK_OF(j, routine) tnxk_lapack_get(TNXK_LAPACK_##routine, (tnx_dtype)(j)->p->dtype)

/* ---- one matrix of the batch ---- */

typedef struct matrix { /* column-major */
  void *data;
  int rows, cols, ld;
} matrix;

/* With `dry` set an operation only reserves scratch and asks LAPACK for the sizes of its work arrays, which it keeps in p. */
typedef struct job {
  tnxk_linalg *p;
  int64_t offset[TNXK_LINALG_OPERANDS]; /* of the matrix at hand, in elements */
  int64_t unit;
  char *scratch;
  size_t used;
  bool dry, overflow;
} job;

#define TNXK_LINALG(operation, n_in, n_out, function, needs) void function(job *j);
#include "kernels/linalg/kernels.def"
#undef TNXK_LINALG

static inline size_t elem_size(const job *j) { return tnx_dtype_size((tnx_dtype)j->p->dtype); }
static inline size_t real_size(const job *j) { return tnx_dtype_size(tnx_dtype_real((tnx_dtype)j->p->dtype)); }
static inline bool is_complex(const job *j) { return tnx_dtype_is_complex((tnx_dtype)j->p->dtype); }
static inline bool is_double(const job *j) { return j->p->dtype == TNX_F64 || j->p->dtype == TNX_C128; }
static inline int rows_of(const job *j, int k) { return (int)j->p->x[k].rows; }
static inline int cols_of(const job *j, int k) { return (int)j->p->x[k].cols; }
static inline int smaller(int a, int b) { return a < b ? a : b; }
static inline int larger(int a, int b) { return a > b ? a : b; }

/* n elements of scratch; NULL in a dry run. */
void *tnxk_linalg_take(job *j, int64_t n, size_t size);
/* Memory to compute result k in: its own if that is column-major and has `rows` rows, else scratch. */
matrix tnxk_linalg_stage(job *j, int k, int rows, int cols);
matrix tnxk_linalg_scratch(job *j, int rows, int cols);
/* Copies operand k into m (its upper left part, if m is larger), and m's upper left part into result k. */
void tnxk_linalg_load(const job *j, int k, const matrix *m);
void tnxk_linalg_store(const job *j, int k, const matrix *m);
/* Operand k as it is where it is column-major, else a copy in scratch. */
matrix tnxk_linalg_borrow(job *j, int k);
/* Integer vectors of int32 (pivots): operand k without gaps, and the way back. */
int32_t *tnxk_linalg_ints(job *j, int k);
void tnxk_linalg_store_ints(const job *j, int k, const int32_t *from);
/* A vector result of the real or the matrices' own dtype: its own memory where it has no gaps. */
void *tnxk_linalg_vector(job *j, int k, size_t size);
void tnxk_linalg_store_vector(const job *j, int k, const void *from, size_t size);
void tnxk_linalg_set_int(const job *j, int k, int64_t v); /* info: int32; rank: int64 */
void tnxk_linalg_identity(const job *j, const matrix *m);
void tnxk_linalg_clear_triangle(const job *j, const matrix *m, bool upper); /* what lies above (below) the diagonal becomes 0 */
/* Reports a failure under the operation's name, if it has one. */
void tnxk_linalg_complain(const job *j, int info);
/* The work array's length that a query left in its first element. */
int tnxk_linalg_work_size(const job *j, const void *work);
#endif
