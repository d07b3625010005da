/* Bessel functions of integer order and the Airy function, in double.
 *
 * Where a power series has terms of one sign it is summed (small arguments); from 20 on Hankel's expansions (Abramowitz & Stegun 9.2.5, 9.7.1, 9.7.2) are
 * exact to the last digit, because their smallest term is about exp(-2x); between the two K is its integral, which the trapezoidal rule
 * evaluates to full precision (DLMF 10.32.9), and Ai is carried along its differential equation. */
#include "kernels/program/special.h"

static const double euler = 0.57721566490153286061, far = 20;

/* sum of s^k a_k(nu) / x^k with a_k(nu) = prod (4 nu^2 - (2j-1)^2) / (k! 8^k): K has s = 1, I has s = -1. Stops at the smallest term. */
static double hankel_sum(double mu, double x, double s) {
  double term = 1, sum = 1, last = INFINITY;
  for (int k = 1; k < 60; k++) {
    double odd = 2 * k - 1;
    term *= s * (mu - odd * odd) / (8 * k * x);
    if (fabs(term) >= last || fabs(term) < 1e-17 * fabs(sum)) break;
    sum += term;
    last = fabs(term);
  }
  return sum;
}

/* I_n(x) exp(-x) for x >= 0, n 0 or 1. */
static double scaled_i(int n, double x) {
  if (x >= far) return hankel_sum(n ? 4 : 0, x, -1) / sqrt(2 * M_PI * x);
  double q = x * x / 4, term = n ? x / 2 : 1, sum = term;
  for (int k = 1; term > 1e-17 * sum; k++) sum += term *= q / ((double)k * (k + n));
  return sum * exp(-x);
}

/* exp(x) in two factors, so that the product overflows only where the result does. */
static double unscaled(double scaled, double x) {
  double half = exp(x / 2);
  return scaled * half * half;
}

double prog_i0e(double x) { return isnan(x) ? x : isinf(x) ? 0 : scaled_i(0, fabs(x)); }
double prog_i1e(double x) { return isnan(x) ? x : isinf(x) ? copysign(0, x) : copysign(scaled_i(1, fabs(x)), x); }
double prog_i0(double x) { return isinf(x) ? INFINITY : unscaled(prog_i0e(x), fabs(x)); }
double prog_i1(double x) { return isinf(x) ? x : unscaled(prog_i1e(x), fabs(x)); }

/* K_nu(x) exp(x) for x >= 2: the integral of exp(-x (cosh t - 1)) cosh(nu t). The integrand is analytic and falls off doubly exponentially, which makes
 * the error about exp(-pi^2 / step), times exp(x) where the step is not made finer with x. */
static double scaled_k_integral(double nu, double x) {
  if (x >= far) return hankel_sum(4 * nu * nu, x, 1) * sqrt(M_PI / (2 * x));
  /* cosh of the multiples of a step by its three-term recurrence */
  double step = 0.4 / sqrt(x), a = cosh(step), b = cosh(nu * step), a0 = 1, a1 = a, b0 = 1, b1 = b, sum = 0.5;
  for (;;) {
    double term = exp(x - x * a1) * b1, a2 = 2 * a * a1 - a0, b2 = 2 * b * b1 - b0;
    sum += term;
    if (term < 1e-18 * sum) return sum * step;
    a0 = a1, a1 = a2, b0 = b1, b1 = b2;
  }
}

/* Below 2, A&S 9.6.13 and 9.6.11. */
static double k0_near(double x) {
  double q = x * x / 4, term = 1, i0 = 1, harmonic = 0, sum = 0;
  for (int k = 1; k < 30 && term > 1e-18; k++) {
    term *= q / ((double)k * k);
    harmonic += 1.0 / k;
    i0 += term;
    sum += term * harmonic;
  }
  return sum - (log(x / 2) + euler) * i0;
}
static double k1_near(double x) {
  double q = x * x / 4, term = 1, i1 = 1, psi = 1 - 2 * euler, sum = psi; /* psi(k+1) + psi(k+2) */
  for (int k = 1; k < 30 && term > 1e-18; k++) {
    term *= q / ((double)k * (k + 1));
    psi += 1.0 / k + 1.0 / (k + 1);
    i1 += term;
    sum += term * psi;
  }
  return 1 / x + x / 2 * (log(x / 2) * i1 - sum / 2);
}

static double k(int n, double x, int scaled) {
  if (x == 0) return INFINITY;
  if (!(x > 0)) return NAN;
  if (isinf(x)) return 0;
  if (x <= 2) return (n ? k1_near(x) : k0_near(x)) * (scaled ? exp(x) : 1);
  double v = scaled_k_integral(n, x);
  return scaled ? v : v * exp(-x);
}
double prog_k0(double x) { return k(0, x, 0); }
double prog_k0e(double x) { return k(0, x, 1); }
double prog_k1(double x) { return k(1, x, 0); }
double prog_k1e(double x) { return k(1, x, 1); }

/* J and Y are POSIX's; the second kind ends at 0. */
double prog_y0(double x) { return x > 0 ? y0(x) : x == 0 ? -INFINITY : NAN; }
double prog_y1(double x) { return x > 0 ? y1(x) : x == 0 ? -INFINITY : NAN; }

/* P and Q of the oscillating expansions (A&S 9.2.9, 9.2.10), order nu. */
static void hankel_pq(double mu, double x, double *p, double *q) {
  double term = 1, last = INFINITY, even = 1, odd = 0;
  for (int i = 1; i < 60; i++) {
    double o = 2 * i - 1;
    term *= (mu - o * o) / (8 * i * x);
    if (fabs(term) >= last || fabs(term) < 1e-18) break;
    double signed_term = i & 2 ? -term : term;
    if (i & 1) odd += signed_term;
    else even += signed_term;
    last = fabs(term);
  }
  *p = even, *q = odd;
}

double prog_airy_ai(double x) {
  if (isnan(x)) return x;
  if (isinf(x)) return x > 0 ? 0 : NAN;
  double z = 2.0 / 3 * fabs(x) * sqrt(fabs(x));
  if (x > 2.1) return sqrt(x / 3) / M_PI * scaled_k_integral(1.0 / 3, z) * exp(-z); /* A&S 10.4.14 */
  if (z >= far) { /* negative: A&S 10.4.60, whose odd coefficients have the other sign */
    double p, q;
    hankel_pq(4.0 / 9, z, &p, &q);
    double s = (sin(z) + cos(z)) * M_SQRT1_2, c = (cos(z) - sin(z)) * M_SQRT1_2; /* of z + pi/4 */
    return (s * p + c * q) / (sqrt(M_PI) * sqrt(sqrt(-x)));
  }
  /* y'' = x y by Taylor series from 0, in steps of at most 1; both solutions stay bounded on the negative side. */
  double y = 0.35502805388781723926, dy = -0.25881940379280679840, at = 0;
  int steps = (int)ceil(fabs(x));
  for (int i = 0; i < steps; i++) {
    double h = x / steps, c0 = 0, c1 = y, c2 = dy, power = 1, sum = y, slope = dy; /* c0, c1, c2: coefficients n - 1, n, n + 1 */
    for (int n = 0; n < 40; n++) {
      double c3 = (at * c1 + c0) / ((n + 1.0) * (n + 2.0)), rise = (n + 2.0) * c3 * power * h;
      sum += c2 * power * h;
      slope += rise;
      if (n > 4 && fabs(rise) < 1e-18 && fabs(c2 * power) < 1e-18) break;
      power *= h;
      c0 = c1, c1 = c2, c2 = c3;
    }
    y = sum, dy = slope;
    at += h;
  }
  return y;
}
