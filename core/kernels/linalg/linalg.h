/* Dense linear algebra on batches of matrices, by the LAPACK that was provided (tnx/lapack.h). One matrix of the batch is one unit.
 *
 * LAPACK wants column-major matrices and overwrites them: results whose memory is column-major are computed where they lie, everything else in worker
 * scratch. A call of LAPACK is kept on its thread, so that results do not depend on the number of threads. */
#ifndef TNXK_LINALG_H
#define TNXK_LINALG_H
#include "kernels/kernel.h"

typedef enum tnxk_linalg_op {
#define TNXK_LINALG(operation, n_in, n_out, function, needs) TNXK_LINALG_##operation,
#include "kernels/linalg/kernels.def"
#undef TNXK_LINALG
  TNXK_LINALG_COUNT
} tnxk_linalg_op;

enum { TNXK_LINALG_OPERANDS = 5 };

/* A batch of matrices; vectors have one column, numbers one row and one column. Strides in elements. */
typedef struct tnxk_matrices {
  void *data;
  int64_t rows, cols, rs, cs;
  int64_t bs[TNXK_MAX_RANK]; /* along the batch's dimensions */
} tnxk_matrices;

/* x: operands read, then written, as ops/ops.def lists them; all of `dtype` but for pivots and info (int32), ranks (int64), singular values and the
 * eigenvalues of EIGH (the real dtype) and EIG's results (complex). */
typedef struct tnxk_linalg {
  uint8_t op, dtype; /* tnxk_linalg_op, tnx_dtype */
  bool check;        /* a failure is a fault */
  int32_t batch_rank;
  int64_t batch[TNXK_MAX_RANK];
  int64_t flags[2]; /* the operator's ints after the check */
  double number;    /* LSTSQ: rcond */
  tnxk_matrices x[TNXK_LINALG_OPERANDS];
  int32_t lwork, lrwork, liwork; /* filled in by select */
  tnxk_fault *fault;
} tnxk_linalg;
tnx_status tnxk_linalg_select(tnxk_linalg *p, tnxk_kernel *out);
#endif
