/* Chooses what runs, reserves its scratch, and walks over the batch. */
#include "kernels/linalg/internal.h"

#define NEEDS(routine) (UINT32_C(1) << TNXK_LAPACK_##routine)
static const struct {
  const char *name;
  void (*run)(job *j);
  uint8_t n_in, n_out;
  uint32_t needs;
} operations[TNXK_LINALG_COUNT] = {
#define TNXK_LINALG(operation, n_in, n_out, function, needs) {#function, function, n_in, n_out, needs},
#include "kernels/linalg/kernels.def"
#undef TNXK_LINALG
};
static const char *const routine_names[TNXK_LAPACK_COUNT] = {
#define TNXK_LAPACK(routine, real, cplx) real,
#include "kernels/linalg/lapack.def"
#undef TNXK_LAPACK
};

static void run(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  (void)phase, (void)shared;
  const tnxk_linalg *p = params;
  int operands = operations[p->op].n_in + operations[p->op].n_out, threads = tnxk_lapack_single();
  for (int64_t unit = begin; unit < end; unit++) {
    job j = {.p = (tnxk_linalg *)p, .unit = unit, .scratch = worker};
    int64_t rest = unit;
    for (int d = p->batch_rank - 1; d >= 0; d--) {
      for (int k = 0; k < operands; k++) j.offset[k] += rest % p->batch[d] * p->x[k].bs[d];
      rest /= p->batch[d];
    }
    operations[p->op].run(&j);
  }
  tnxk_lapack_restore(threads);
}

tnx_status tnxk_linalg_select(tnxk_linalg *p, tnxk_kernel *out) {
  if (p->op >= TNXK_LINALG_COUNT || p->batch_rank < 0 || p->batch_rank > TNXK_MAX_RANK) return tnx_fail(TNX_INVALID_ARGUMENT, "not a linear algebra step");
  int64_t units = 1, work = 1;
  for (int d = 0; d < p->batch_rank; d++)
    if (p->batch[d] < 0 || __builtin_mul_overflow(units, p->batch[d], &units)) return tnx_fail(TNX_OVERFLOW, "the batch is too large");
  int operands = operations[p->op].n_in + operations[p->op].n_out;
  for (int k = 0; k < operands; k++) {
    const tnxk_matrices *x = &p->x[k];
    if (x->rows < 0 || x->cols < 0 || x->rows > INT_MAX / 2 || x->cols > INT_MAX / 2) return tnx_fail(TNX_NOT_IMPLEMENTED, "matrices of more than 2^30 rows or columns");
  }
  if (p->op == TNXK_LINALG_LU_PERMUTATION ? p->dtype != TNX_I32 : p->dtype != TNX_F32 && p->dtype != TNX_F64 && p->dtype != TNX_C64 && p->dtype != TNX_C128)
    return tnx_fail(TNX_NOT_IMPLEMENTED, "linear algebra of %s", tnx_dtype_name((tnx_dtype)p->dtype));
  for (int r = 0; r < TNXK_LAPACK_COUNT; r++)
    if ((operations[p->op].needs >> r & 1) && !tnxk_lapack_get((tnxk_lapack_routine)r, (tnx_dtype)p->dtype))
      return tnx_fail(TNX_NOT_IMPLEMENTED, "no LAPACK with the routine %s was provided", routine_names[r]);
  job j = {.p = p, .dry = true};
  int threads = tnxk_lapack_single();
  operations[p->op].run(&j);
  tnxk_lapack_restore(threads);
  if (j.overflow) return tnx_fail(TNX_OVERFLOW, "the matrices are too large");
  /* a third power of the size, in nanoseconds, is what one matrix takes at most */
  for (int i = 0; i < 2; i++) work = work < 100000 ? work * (p->x[0].rows + 4) : work;
  work = work < 100000 ? work * (p->x[0].cols + 4) : work;
  int64_t grain = 30000 / (work + 1);
  *out = (tnxk_kernel){.name = operations[p->op].name, .run = run, .phases = 1, .units = {units}, .grain = {grain ? grain : 1}, .worker_bytes = (j.used + 63) & ~(size_t)63};
  return TNX_OK;
}
