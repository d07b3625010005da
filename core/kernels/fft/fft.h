/* Fourier transforms of lines: complex to complex, real to the first half of the spectrum and back. Rows are the other dimensions. Strides are in bytes.
 *
 * out[k] = scale * sum_j in[j] exp(-+ 2 pi i jk / n), + where inverse. Lengths whose prime factors are small are done by mixed radices (Stockham's form, which needs no
 * reordering), others as a convolution (Bluestein). Several lines run side by side, one in each lane; a line's result does not depend on its neighbours. */
#ifndef TNXK_FFT_H
#define TNXK_FFT_H
#include "kernels/kernel.h"

typedef enum tnxk_fft_kind { TNXK_FFT_COMPLEX, TNXK_FFT_FROM_REAL, TNXK_FFT_TO_REAL } tnxk_fft_kind;

/* exp(-2 pi i k / n) for k < n, as the product of an entry of each table (high[0] is 1). In double precision, interleaved. */
typedef struct tnxk_fft_roots { int64_t n; int32_t shift; const double *low, *high; } tnxk_fft_roots;
enum { TNXK_FFT_FACTORS = 48 };
typedef struct tnxk_fft_length { int64_t n; int32_t n_factors; uint8_t factors[TNXK_FFT_FACTORS]; tnxk_fft_roots roots; } tnxk_fft_length;

typedef struct tnxk_fft {
  const void *in;
  void *out;
  int64_t n; /* of the signal; half a spectrum has n / 2 + 1 elements */
  double scale;
  int32_t rank;
  uint8_t kind, inverse, is_double;
  int64_t sizes[TNXK_MAX_RANK], in_st[TNXK_MAX_RANK], out_st[TNXK_MAX_RANK];
  int64_t in_step, out_step;
  /* filled in by select and prepare */
  int32_t lanes;
  bool convolves;
  int64_t rows;
  tnxk_fft_length length; /* of the transforms that run: n, or that of the convolution */
  tnxk_fft_roots chirp;   /* convolution: of 2n */
} tnxk_fft;
tnx_status tnxk_fft_select(tnxk_fft *p, tnx_isa isa, int workers, tnxk_kernel *out);
/* Writes the tables into `memory`, of table_bytes, which has to live as long as p is used. */
size_t tnxk_fft_table_bytes(const tnxk_fft *p);
void tnxk_fft_prepare(tnxk_fft *p, void *memory);
#endif
