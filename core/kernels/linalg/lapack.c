/* The table of LAPACK's routines: filled once by tnx_lapack_provide, read by every kernel of the family. */
#include "tnx/lapack.h"

#include <stdio.h>

#include "kernels/linalg/internal.h"

static const char *const names[TNXK_LAPACK_COUNT][2] = {
#define TNXK_LAPACK(routine, real, cplx) {real, cplx},
#include "kernels/linalg/lapack.def"
#undef TNXK_LAPACK
};

/* Written before work is queued and read by the threads that run it; the queue orders the two. */
static struct {
  tnxk_lapack_fn routine[TNXK_LAPACK_COUNT][4]; /* s, d, c, z */
  int (*set_threads)(int);
} lapack;

static tnxk_lapack_fn to_function(void *address) {
  tnxk_lapack_fn f;
  memcpy(&f, &address, sizeof f); /* what dlsym gives is a function's address in an object pointer */
  return f;
}

void tnx_lapack_provide(tnx_lapack_find_fn find, void *ctx) {
  memset(&lapack, 0, sizeof lapack);
  if (!find) return;
  for (int r = 0; r < TNXK_LAPACK_COUNT; r++)
    for (int t = 0; t < 4; t++) {
      char name[16];
      snprintf(name, sizeof name, "%c%s_", "sdcz"[t], names[r][t >= 2]);
      lapack.routine[r][t] = to_function(find(ctx, name));
    }
  /* per-thread settings of the libraries that start threads of their own */
  static const char *const setters[] = {"MKL_Set_Num_Threads_Local", "openblas_set_num_threads_local"};
  for (size_t i = 0; i < sizeof setters / sizeof *setters && !lapack.set_threads; i++) {
    tnxk_lapack_fn f = to_function(find(ctx, setters[i]));
    lapack.set_threads = (int (*)(int))f;
  }
}

tnxk_lapack_fn tnxk_lapack_get(tnxk_lapack_routine routine, tnx_dtype dtype) {
  switch (dtype) {
    case TNX_F32: return lapack.routine[routine][0];
    case TNX_F64: return lapack.routine[routine][1];
    case TNX_C64: return lapack.routine[routine][2];
    case TNX_C128: return lapack.routine[routine][3];
    default: return NULL;
  }
}

int tnxk_lapack_single(void) { return lapack.set_threads ? lapack.set_threads(1) : 0; }
void tnxk_lapack_restore(int threads) {
  if (lapack.set_threads) lapack.set_threads(threads);
}
