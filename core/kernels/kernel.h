/* What every kernel family has in common.
 *
 * A kernel computes one step of a plan. It knows pointers, sizes and strides only: no graphs, no allocation, no threads.
 * A family's select function looks at a parameter struct and the CPU and fills a tnxk_kernel: the function, the work
 * split into phases of independent units, and the scratch it wants. The caller then runs, phase by phase,
 *
 *     run(params, phase, begin, end, shared, worker)
 *
 * over ranges that cover [0, units[phase]) exactly once, from any number of threads at once; all units of a phase are
 * done before the next phase starts. `shared` is one block for the step, `worker` one block for each thread; both are
 * 64-byte aligned and uninitialised. Results never depend on how units were split between threads (same input, same
 * bits). Parameter structs are plain data: the caller may copy one and replace its pointers between runs; what select
 * decided depends on sizes, strides, dtypes and alignment class only, never on pointer values. */
#ifndef TNXK_KERNEL_H
#define TNXK_KERNEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "tnx/dtype.h"
#include "tnx/status.h"

enum { TNXK_MAX_RANK = 12, TNXK_MAX_PHASES = 4 };

typedef void (*tnxk_run_fn)(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);

typedef struct tnxk_kernel {
  const char *name; /* the function's name, for logs: "tnxk_matmul_bf16__avx2" */
  tnxk_run_fn run;
  uint32_t phases;
  int64_t units[TNXK_MAX_PHASES];
  int64_t grain[TNXK_MAX_PHASES]; /* units worth one hand-out to a thread: about 20 to 50 microseconds of work */
  size_t shared_bytes, worker_bytes;
} tnxk_kernel;

/* Kernels report a data-dependent fault (an index out of range, a failed CHECK) by storing a code here, if the pointer is not NULL; the
 * first one wins is not promised, any one does. The caller zeroes it before and reads it after the step. */
typedef struct tnxk_fault {
  _Atomic int64_t code; /* 0: none; indexing: 1 + which index; programs: the CHECK's imm.i; linear algebra: 1 + the place in the batch, << 32 | LAPACK's info: of the first */
  _Atomic int64_t value, limit; /* the index or integer seen, and the size an index had to be below; linear algebra: limit says whether there is a batch */
} tnxk_fault;
#endif
