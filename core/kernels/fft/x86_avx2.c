/* Fourier transforms for AVX2. */
#include "kernels/fft/internal.h"

#define REAL float
#define FN(name) f32_##name
#include "kernels/fft/body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) f64_##name
#include "kernels/fft/body.h"

void tnxk_fft_f32__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  f32_run(params, phase, begin, end, shared, worker);
}
void tnxk_fft_f64__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  f64_run(params, phase, begin, end, shared, worker);
}
