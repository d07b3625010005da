/* Random numbers by rejection: how many draws one takes depends on them. Each has a generator of its own, seeded by the bits of a uniform number, so that it depends
 * on nothing but its seed. */
#include <stdbool.h>
#include <string.h>

#include "kernels/program/special.h"

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
/* In (0, 1). */
static double uniform(uint64_t *state) { return ((double)(next(state) >> 12) + 0.5) * 0x1p-52; }
static double normal(uint64_t *state) { return M_SQRT2 * prog_erfinv(2 * uniform(state) - 1); }

static uint64_t seeded(double u) {
  uint64_t state;
  memcpy(&state, &u, sizeof state);
  return state;
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); a shape below 1 by way of the next one. */
double prog_sample_gamma(double shape, double u) {
  if (!(shape > 0)) return shape == 0 ? 0 : NAN;
  if (shape == INFINITY) return shape;
  uint64_t state = seeded(u);
  double scale = 1;
  if (shape < 1) {
    scale = pow(uniform(&state), 1 / shape);
    shape += 1;
  }
  double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    double x = normal(&state), v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    if (log(uniform(&state)) < 0.5 * x * x + d * (1 - v + log(v))) return scale * d * v;
  }
}

/* Small rates: products of uniform numbers (Knuth). Larger ones: Hoermann's PTRS, "The transformed rejection method for generating Poisson random variables" (1993). */
double prog_sample_poisson(double rate, double u) {
  if (!(rate > 0) || rate == INFINITY) return rate == 0 ? 0 : NAN;
  uint64_t state = seeded(u);
  if (rate < 10) {
    double limit = exp(-rate), product = uniform(&state), k = 0;
    for (; product > limit; k += 1) product *= uniform(&state);
    return k;
  }
  double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double x = uniform(&state) - 0.5, v = uniform(&state), us = 0.5 - fabs(x), k = floor((2 * a / us + b) * x + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v * inverse / (a / (us * us) + b)) <= k * log(rate) - rate - prog_lgamma(k + 1)) return k;
  }
}

/* The derivative of the sample by the shape at a fixed place in the distribution: -(dF/dshape) / density, F being the smaller tail, differentiated by five points. */
double prog_sample_gamma_grad(double shape, double sample) {
  if (!(shape > 0) || !(sample >= 0)) return NAN;
  if (sample == 0) return 0;
  double density = exp((shape - 1) * log(sample) - sample - prog_lgamma(shape)), h = 1e-3 * fmin(shape, sqrt(shape));
  bool lower = sample < shape;
  double f[4];
  for (int i = 0; i < 4; i++) {
    double at = shape + h * (i < 2 ? i - 2 : i - 1); /* -2, -1, 1, 2 */
    f[i] = lower ? prog_igamma(at, sample) : -prog_igammac(at, sample);
  }
  double slope = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
  if (density > 1e-200 && slope != 0) return -slope / density;
  return lower ? sample / shape : 1; /* far out in a tail, where both vanish */
}
