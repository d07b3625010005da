/* Lengths into factors, tables of roots, and the choice of the kernel. */
#include <math.h>

#include "kernels/fft/internal.h"

static const struct {
  tnx_isa isa;
  int is_double;
  const char *name;
  tnxk_run_fn run;
} kernels[] = {
#define TNXK_FFT(isa, is_double, function) {TNX_ISA_##isa, is_double, #function, function},
#include "kernels/fft/kernels.def"
#undef TNXK_FFT
};

/* Larger prime factors are left to the convolution. */
enum { LARGEST_FACTOR = 31, MAX_LANES = 16, CACHED = 1 << 19 };

static bool factorise(int64_t n, tnxk_fft_length *out) {
  static const uint8_t primes[] = {4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, LARGEST_FACTOR};
  *out = (tnxk_fft_length){.n = n};
  for (size_t i = 0; i < sizeof primes; i++)
    for (; n % primes[i] == 0 && out->n_factors < TNXK_FFT_FACTORS; n /= primes[i]) out->factors[out->n_factors++] = primes[i];
  return n == 1;
}

static int table_shift(int64_t n) {
  int shift = 0;
  for (; (INT64_C(1) << shift) < n && (shift < 10 || (INT64_C(1) << 2 * shift) < n); shift++) {}
  return shift;
}
static int64_t table_entries(int64_t n) { return n ? (INT64_C(1) << table_shift(n)) + ((n - 1) >> table_shift(n)) + 1 : 0; }

/* exp(-2 pi i k / n), by the sine and cosine of at most an eighth of a turn. */
static void exact_root(int64_t k, int64_t n, double *out) {
  const double pi = 3.14159265358979323846;
  int64_t at = 8 * k, octant = at / n, rest = at - octant * n; /* (octant + rest / n) eighths */
  double angle = (octant & 1 ? (double)(n - rest) : (double)rest) / (double)n * (pi / 4), c = cos(angle), s = sin(angle);
  switch (octant) {
    case 0: out[0] = c, out[1] = -s; break;
    case 1: out[0] = s, out[1] = -c; break;
    case 2: out[0] = -s, out[1] = -c; break;
    case 3: out[0] = -c, out[1] = -s; break;
    case 4: out[0] = -c, out[1] = s; break;
    case 5: out[0] = -s, out[1] = c; break;
    case 6: out[0] = s, out[1] = c; break;
    default: out[0] = c, out[1] = s; break;
  }
}

static double *fill_roots(tnxk_fft_roots *t, int64_t n, double *memory) {
  int64_t low = INT64_C(1) << table_shift(n), high = ((n - 1) >> table_shift(n)) + 1;
  *t = (tnxk_fft_roots){n, table_shift(n), memory, memory + 2 * low};
  for (int64_t k = 0; k < low; k++) exact_root(k % n, n, memory + 2 * k);
  for (int64_t k = 0; k < high; k++) exact_root(k * low, n, memory + 2 * (low + k));
  return memory + 2 * (low + high);
}

size_t tnxk_fft_table_bytes(const tnxk_fft *p) {
  return 2 * sizeof(double) * (size_t)(table_entries(p->length.n) + (p->convolves ? table_entries(2 * p->n) : 0));
}

void tnxk_fft_prepare(tnxk_fft *p, void *memory) {
  if (p->length.n == 0) return;
  double *next = fill_roots(&p->length.roots, p->length.n, memory);
  if (p->convolves) fill_roots(&p->chirp, 2 * p->n, next);
}

tnx_status tnxk_fft_select(tnxk_fft *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  (void)workers;
  if (p->rank < 0 || p->rank > TNXK_MAX_RANK || p->n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "not a Fourier transform");
  if (p->n > INT64_C(1) << 40) return tnx_fail(TNX_NOT_IMPLEMENTED, "Fourier transforms of more than 2^40 elements");
  p->rows = 1;
  for (int d = 0; d < p->rank; d++)
    if (p->sizes[d] < 0 || __builtin_mul_overflow(p->rows, p->sizes[d], &p->rows)) return tnx_fail(TNX_OVERFLOW, "the batch is too large");
  p->convolves = p->n > 0 && !factorise(p->n, &p->length);
  if (p->n == 0) p->length = (tnxk_fft_length){0};
  if (p->convolves) {
    int64_t m = 1;
    while (m < 2 * p->n - 1) m *= 2;
    factorise(m, &p->length);
  }
  size_t elem = p->is_double ? 8 : 4, line = 4 * elem * (size_t)p->length.n; /* two buffers of real and imaginary parts */
  p->lanes = MAX_LANES;
  while (p->lanes > 1 && (p->lanes * line > CACHED || p->lanes / 2 >= p->rows)) p->lanes /= 2;
  int64_t units = p->n ? (p->rows + p->lanes - 1) / p->lanes : 0, ns = 1 + (int64_t)(line * (size_t)p->lanes / elem) * 2;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (kernels[i].isa > isa || kernels[i].is_double != p->is_double) continue;
    *out = (tnxk_kernel){.name = kernels[i].name, .run = kernels[i].run, .phases = 1, .units = {units}, .grain = {ns < 30000 ? 30000 / ns : 1}, .worker_bytes = line * (size_t)p->lanes};
    if (p->convolves) { /* the chirp's spectrum first */
      out->phases = 2;
      out->units[1] = units, out->grain[1] = out->grain[0];
      out->units[0] = units > 0, out->grain[0] = 1;
      out->shared_bytes = 2 * elem * (size_t)p->length.n;
    }
    return TNX_OK;
  }
  return tnx_fail(TNX_INTERNAL, "no kernel for Fourier transforms");
}
