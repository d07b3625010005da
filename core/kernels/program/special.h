/* Functions that libm does not have (special.c, gamma.c, bessel.c, polynomials.c), and PyTorch's definitions of integer and floor division. Called one lane at a time. */
#ifndef TNXK_PROGRAM_SPECIAL_H
#define TNXK_PROGRAM_SPECIAL_H
#include <math.h>
#include <stdint.h>

static inline int64_t prog_idiv(int64_t x, int64_t y) {
  return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y; /* INT64_MIN / -1 wraps */
}
static inline int64_t prog_ifmod(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
static inline int64_t prog_iremainder(int64_t x, int64_t y) {
  int64_t r = prog_ifmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline int64_t prog_ifloordiv(int64_t x, int64_t y) {
  int64_t q = prog_idiv(x, y);
  return prog_iremainder(x, y) != prog_ifmod(x, y) ? q - 1 : q;
}
static inline int64_t prog_ipow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = (uint64_t)x;
  for (; y; y >>= 1, b *= b)
    if (y & 1) r *= b;
  return (int64_t)r;
}
/* Never negative, but for the lowest number, which has no positive counterpart. */
static inline int64_t prog_igcd(int64_t x, int64_t y) {
  uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
  while (a) {
    uint64_t r = b % a;
    b = a;
    a = r;
  }
  return (int64_t)b;
}
static inline int64_t prog_ilcm(int64_t x, int64_t y) {
  int64_t g = prog_igcd(x, y);
  if (g == 0) return 0;
  uint64_t r = (uint64_t)prog_idiv(x, g) * (uint64_t)y;
  return (int64_t)((int64_t)r < 0 ? 0 - r : r);
}
/* frexp's two halves. */
static inline double prog_mantissa(double x) {
  int e;
  return frexp(x, &e);
}
static inline int prog_exponent(double x) {
  int e = 0;
  (void)frexp(x, &e);
  return isfinite(x) ? e : 0;
}
static inline double prog_remainder(double x, double y) {
  double r = fmod(x, y);
  return r != 0 && (y < 0) != (r < 0) ? r + y : r;
}
static inline float prog_remainderf(float x, float y) {
  float r = fmodf(x, y);
  return r != 0 && (y < 0) != (r < 0) ? r + y : r;
}
/* Python's float floor division: exact remainder first, so that the quotient is a rounded integer. */
static inline double prog_floordiv(double x, double y) {
  if (y == 0) return x / y;
  double r = fmod(x, y), q = (x - r) / y;
  if (r != 0 && (y < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign(0.0, x / y);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
static inline float prog_floordivf(float x, float y) {
  if (y == 0) return x / y;
  float r = fmodf(x, y), q = (x - r) / y;
  if (r != 0 && (y < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysignf(0.0f, x / y);
  float f = floorf(q);
  return q - f > 0.5f ? f + 1 : f;
}
double prog_lgamma(double x);
double prog_digamma(double x);
double prog_erfinv(double x);
double prog_i0(double x);
double prog_i0e(double x);
double prog_i1(double x);
double prog_i1e(double x);
double prog_k0(double x);
double prog_k0e(double x);
double prog_k1(double x);
double prog_k1e(double x);
double prog_y0(double x);
double prog_y1(double x);
double prog_airy_ai(double x);
double prog_erfcx(double x);
double prog_ndtri(double x);
double prog_log_ndtr(double x);
double prog_zeta(double s, double q);
double prog_igamma(double a, double x);
double prog_igammac(double a, double x);
/* sample.c: (shape or rate, uniform number), (shape, sample) */
double prog_sample_gamma(double shape, double u);
double prog_sample_poisson(double rate, double u);
double prog_sample_gamma_grad(double shape, double sample);
/* (argument, degree) */
double prog_chebyshev_t(double x, double n);
float prog_chebyshev_tf(float x, float n);
double prog_chebyshev_u(double x, double n);
float prog_chebyshev_uf(float x, float n);
double prog_chebyshev_v(double x, double n);
float prog_chebyshev_vf(float x, float n);
double prog_chebyshev_w(double x, double n);
float prog_chebyshev_wf(float x, float n);
double prog_hermite_h(double x, double n);
float prog_hermite_hf(float x, float n);
double prog_hermite_he(double x, double n);
float prog_hermite_hef(float x, float n);
double prog_laguerre(double x, double n);
float prog_laguerref(float x, float n);
double prog_legendre(double x, double n);
float prog_legendref(float x, float n);
#endif
