/* Internal to the fft family. */
#ifndef TNXK_FFT_INTERNAL_H
#define TNXK_FFT_INTERNAL_H
#include <string.h>

#include "kernels/fft/fft.h"

typedef struct root { double re, im; } root;
static inline root tnxk_fft_root(const tnxk_fft_roots *t, int64_t k) {
  const double *a = t->low + 2 * (k & ((INT64_C(1) << t->shift) - 1)), *b = t->high + 2 * (k >> t->shift);
  if (k >> t->shift == 0) return (root){a[0], a[1]};
  return (root){a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]};
}

#define TNXK_FFT(isa, is_double, function) void function(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
#include "kernels/fft/kernels.def"
#undef TNXK_FFT
#endif
