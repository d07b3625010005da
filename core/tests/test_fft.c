/* Fourier transforms against the definition, for every length up to 70 and some larger ones, at every instruction set of this processor and for several splits of the
 * units; and that a line's bits do not depend on its neighbours. */
#include "kernels/fft/fft.h"

#include "kernel_split.h"

enum { LARGEST = 5003 };

static void by_definition(const double *in, int64_t n, bool inverse, double *out) {
  static long double root[LARGEST][2]; /* e^(-+2 pi i k / n) */
  const long double turn = (inverse ? 6.283185307179586476925286766559L : -6.283185307179586476925286766559L) / (long double)n;
  for (int64_t k = 0; k < n; k++) root[k][0] = cosl(turn * (long double)k), root[k][1] = sinl(turn * (long double)k);
  for (int64_t k = 0; k < n; k++) {
    long double re = 0, im = 0;
    for (int64_t j = 0, at = 0; j < n; j++, at = at + k < n ? at + k : at + k - n) {
      re += in[2 * j] * root[at][0] - in[2 * j + 1] * root[at][1];
      im += in[2 * j] * root[at][1] + in[2 * j + 1] * root[at][0];
    }
    out[2 * k] = (double)re, out[2 * k + 1] = (double)im;
  }
}

static double get(const void *p, int64_t i, bool is_double) { return is_double ? ((const double *)p)[i] : ((const float *)p)[i]; }
static void put(void *p, int64_t i, bool is_double, double v) {
  if (is_double) ((double *)p)[i] = v;
  else ((float *)p)[i] = (float)v;
}

/* rows lines side by side or one after the other (`across`); returns the error relative to the root mean square of the result. */
static double transform(int64_t n, int rows, bool is_double, tnxk_fft_kind kind, bool inverse, bool across, tnx_isa isa, int64_t piece, void *result) {
  size_t elem = is_double ? 8 : 4;
  int64_t half = n / 2 + 1, in_n = kind == TNXK_FFT_TO_REAL ? half : n, out_n = kind == TNXK_FFT_FROM_REAL ? half : n;
  int in_parts = kind == TNXK_FFT_FROM_REAL ? 1 : 2, out_parts = kind == TNXK_FFT_TO_REAL ? 1 : 2;
  char *in = calloc((size_t)(in_n * rows * in_parts), elem), *out = result;
  double *line = calloc((size_t)n, 2 * sizeof *line), *want = calloc((size_t)n, 2 * sizeof *want), error = 0, size = 0;
  tnxk_fft p = {.in = in, .out = out, .n = n, .scale = 0.5, .rank = 1, .kind = (uint8_t)kind, .inverse = inverse, .is_double = is_double, .sizes = {rows}};
  int64_t in_elem = (int64_t)elem * in_parts, out_elem = (int64_t)elem * out_parts;
  p.in_step = across ? rows * in_elem : in_elem;
  p.in_st[0] = across ? in_elem : in_n * in_elem;
  p.out_step = across ? rows * out_elem : out_elem;
  p.out_st[0] = across ? out_elem : out_n * out_elem;
  for (int r = 0; r < rows; r++) {
    uint64_t seed = (uint64_t)(n * 100 + r);
    for (int64_t i = 0; i < in_n; i++)
      for (int c = 0; c < in_parts; c++) put(in + r * p.in_st[0] + i * p.in_step, c, is_double, (double)(int64_t)(test_rand(&seed) % 2001) / 1000 - 1);
  }
  tnxk_kernel k;
  CHECK_OK(tnxk_fft_select(&p, isa, 3, &k));
  void *table = malloc(tnxk_fft_table_bytes(&p) + 1);
  tnxk_fft_prepare(&p, table);
  kernel_run_split(&k, &p, piece, 7);
  for (int r = 0; r < rows; r++) {
    for (int64_t i = 0; i < in_n; i++) {
      const char *at = in + r * p.in_st[0] + i * p.in_step;
      line[2 * i] = get(at, 0, is_double);
      line[2 * i + 1] = in_parts == 2 ? get(at, 1, is_double) : 0;
    }
    if (kind == TNXK_FFT_TO_REAL)
      for (int64_t i = 0; i < half; i++) {
        int64_t other = i ? n - i : 0;
        if (other == i) line[2 * i + 1] = 0;
        else line[2 * other] = line[2 * i], line[2 * other + 1] = -line[2 * i + 1];
      }
    by_definition(line, n, inverse, want);
    for (int64_t i = 0; i < out_n; i++)
      for (int c = 0; c < out_parts; c++) {
        double w = want[2 * i + c] / 2, d = get(out + r * p.out_st[0] + i * p.out_step, c, is_double) - w;
        error += d * d;
        size += w * w;
      }
  }
  free(table), free(in), free(line), free(want);
  return size > 0 ? sqrt(error / size) : sqrt(error);
}

static void lengths(bool is_double) {
  static const int64_t more[] = {74, 97, 128, 210, 243, 625, 961, 1009, 1024};
  double bound = is_double ? 2e-15 : 1e-6;
  void *result = calloc(LARGEST * 6, 16);
  for (int64_t i = 1; i <= 70 + (int64_t)(sizeof more / sizeof *more); i++) {
    int64_t n = i <= 70 ? i : more[i - 71];
    for (int kind = 0; kind < 3; kind++) {
      double e = transform(n, 5, is_double, (tnxk_fft_kind)kind, kind == TNXK_FFT_TO_REAL || (kind == 0 && n % 2), n % 3 == 0, tnx_cpu_isa(), 1, result);
      if (!(e < bound)) printf("length %lld, kind %d: error %g\n", (long long)n, kind, e);
      CHECK(e < bound);
    }
  }
  free(result);
}
TEST(lengths_of_float32) { lengths(false); }
TEST(lengths_of_float64) { lengths(true); }

/* The same bits at every instruction set, for every split, and whatever lies beside a line. */
TEST(bits) {
  static const int64_t ns[] = {1, 8, 30, 97, 121, 360, 1009};
  char *first = calloc(LARGEST * 20, 16), *again = calloc(LARGEST * 20, 16), *alone = calloc(LARGEST, 16);
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (int is_double = 0; is_double < 2; is_double++) {
      size_t line = (size_t)ns[i] * (is_double ? 16 : 8);
      transform(ns[i], 19, is_double, TNXK_FFT_COMPLEX, false, false, TNX_ISA_SCALAR, 0, first);
      for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
        transform(ns[i], 19, is_double, TNXK_FFT_COMPLEX, false, false, (tnx_isa)isa, 1, again);
        CHECK(memcmp(first, again, 19 * line) == 0);
        transform(ns[i], 1, is_double, TNXK_FFT_COMPLEX, false, false, (tnx_isa)isa, 1, alone);
        CHECK(memcmp(first, alone, line) == 0);
      }
    }
  free(first), free(again), free(alone);
}

int main(void) {
  RUN(lengths_of_float32);
  RUN(lengths_of_float64);
  RUN(bits);
  return TEST_END;
}
