/* Functions about the gamma and the error function, in double. */
#include "kernels/program/special.h"

/* ---- Hurwitz zeta ---- */

/* sum (q + k)^-s by Euler-Maclaurin: terms up to where q + k > 9, then the integral, half a term and B_2j / (2j)! (DLMF 25.11.28). */
double prog_zeta(double s, double q) {
  static const double b[] = {1.0 / 12,           -1.0 / 720,          1.0 / 30240,         -1.0 / 1209600,       1.0 / 47900160,
                             -691.0 / 1307674368000.0, 1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0};
  if (s == 1) return INFINITY;
  if (!(s > 1)) return NAN;
  if (isnan(q)) return q;
  if (q <= 0) {
    if (q == floor(q)) return INFINITY;
    if (s != floor(s)) return NAN; /* a power of a negative number */
  }
  double sum = pow(q, -s), a = q, term = 0;
  for (int i = 0; i < 9 || a <= 9; i++) {
    a += 1;
    term = pow(a, -s);
    sum += term;
    if (fabs(term) < 1e-17 * fabs(sum)) return sum;
  }
  sum += term * a / (s - 1) - 0.5 * term;
  double rising = s, power = term / a; /* s (s+1) .. (s+2j-2), a^(-s-2j+1) */
  for (int j = 0; j < 9; j++) {
    double t = rising * power * b[j];
    sum += t;
    if (fabs(t) < 1e-17 * fabs(sum)) break;
    rising *= (s + 2 * j + 1) * (s + 2 * j + 2);
    power /= a * a;
  }
  return sum;
}

/* ---- incomplete gamma functions ---- */

/* x^a e^-x / Gamma(a + 1); for large a through Stirling's series, where the powers alone would lose digits. */
static double gamma_prefix(double a, double x) {
  if (a < 20) return exp(a * log(x) - x - prog_lgamma(a + 1));
  double u = (x - a) / a, r = 1 / (a * a);
  double stirling = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / a;
  double exponent = fabs(u) < 0.5 ? a * (log1p(u) - u) : a * log(x / a) - (x - a);
  return exp(exponent - stirling) / sqrt(2 * M_PI * a);
}

/* P by its series (DLMF 8.11.4), Q by Legendre's continued fraction with Lentz's method (DLMF 8.9.2). Near x = a they need about
 * 9 sqrt(a) steps. */
static double gamma_series(double a, double x) {
  double term = 1, sum = 1;
  for (double n = a + 1; term > 1e-17 * sum; n += 1) sum += term *= x / n;
  return sum * gamma_prefix(a, x);
}
static double gamma_fraction(double a, double x) {
  const double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / (fabs(b) < tiny ? tiny : b), h = d;
  for (double i = 1; i < 1e7; i += 1) {
    double an = -i * (i - a);
    b += 2;
    d = an * d + b;
    c = b + an / c;
    d = 1 / (fabs(d) < tiny ? tiny : d);
    if (fabs(c) < tiny) c = tiny;
    double delta = d * c;
    h *= delta;
    if (fabs(delta - 1) < 1e-16) break;
  }
  return h * gamma_prefix(a, x) * a;
}
/* Q for small a and x without the difference 1 - P (DLMF 8.7.3): 1 - x^a / Gamma(1 + a) and an alternating series. */
static double gamma_small(double a, double x) {
  double power = 1, sum = 0;
  for (int n = 1; n < 200; n++) {
    power *= -x / n;
    double t = power / (a + n);
    sum += t;
    if (fabs(t) < 1e-17 * fabs(sum)) break;
  }
  double log_first = a * log(x) - prog_lgamma(1 + a);
  return -expm1(log_first) - exp(log_first) * a * sum;
}

static int gamma_edge(double a, double x, double *p) {
  if (isnan(a) || isnan(x) || x < 0 || a < 0) return *p = NAN, 1;
  if (a == 0) return *p = x > 0 ? 1 : NAN, 1;
  if (x == 0) return *p = 0, 1;
  if (isinf(a)) return *p = isinf(x) ? NAN : 0, 1;
  if (isinf(x)) return *p = 1, 1;
  return 0;
}
double prog_igamma(double a, double x) {
  double p;
  if (gamma_edge(a, x, &p)) return p;
  return x > 1 && x > a ? 1 - gamma_fraction(a, x) : gamma_series(a, x);
}
double prog_igammac(double a, double x) {
  double p;
  if (gamma_edge(a, x, &p)) return 1 - p;
  if (x > 1 && x > a) return gamma_fraction(a, x);
  return x <= 1.1 && a < 1 ? gamma_small(a, x) : 1 - gamma_series(a, x);
}

/* ---- the normal distribution and the scaled complementary error function ---- */

double prog_erfcx(double x) {
  if (isnan(x)) return x;
  if (x < -26.7) return INFINITY;
  if (x < 10) { /* exp(x^2) with the square's rounding error put back */
    double q = x * x, low = fma(x, x, -q);
    return exp(q) * erfc(x) * (1 + low);
  }
  double r = 1 / (2 * x * x), term = 1, sum = 1; /* A&S 7.1.23 */
  for (int n = 1; n < 40 && fabs(term) > 1e-17; n++) sum += term *= -(2 * n - 1) * r;
  return sum / (x * sqrt(M_PI));
}

double prog_log_ndtr(double x) {
  double t = x * M_SQRT1_2;
  return x < -1 ? log(prog_erfcx(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}

/* The quantile: erfinv in the middle; in the tails A&S 26.2.23 and Halley steps on the tail itself, which keeps its digits. */
double prog_ndtri(double p) {
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  if (!(p > 0 && p < 1)) return NAN;
  if (p > 0.1 && p < 0.9) return M_SQRT2 * prog_erfinv(2 * p - 1);
  double q = p < 0.5 ? p : 1 - p, t = sqrt(-2 * log(q));
  double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int i = 0; i < 3; i++) {
    double e = (0.5 * erfc(x * M_SQRT1_2) / q - 1) * q * sqrt(2 * M_PI) * exp(x * x / 2);
    x += 2 * e / (2 - e * x);
  }
  return p < 0.5 ? -x : x;
}
