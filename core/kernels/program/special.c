/* lgamma, digamma and the inverse error function in double. */
#include "kernels/program/special.h"

double prog_lgamma(double x) {
  int sign; /* lgamma_r: lgamma writes a global */
  return lgamma_r(x, &sign);
}

double prog_digamma(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  double y = 0;
  if (x < 0) {
    double whole, frac = modf(x, &whole);
    if (frac == 0 || x == -INFINITY) return NAN;
    y = -M_PI / tan(M_PI * frac); /* psi(x) = psi(1 - x) - pi / tan(pi x) */
    x = 1 - x;
  }
  for (; x < 10; x += 1) y -= 1 / x; /* psi(x) = psi(x + 1) - 1/x */
  if (x == 10) return y + 2.25175258906672110764;
  if (x >= 1e17) return y + log(x);
  /* Asymptotic series with Bernoulli numbers: psi(x) = ln x - 1/(2x) - sum B_2k / (2k x^2k). */
  static const double b[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
  double z = 1 / (x * x), s = 0;
  for (int i = 6; i >= 0; i--) s = s * z + b[i];
  return y + (log(x) - 0.5 / x - s * z);
}

/* Winitzki's approximation (relative error 2e-3), then Halley steps on erf, each of which triples the digits; near 1 the
 * residual is taken from erfc, which keeps the digits that erf loses. */
double prog_erfinv(double x) {
  double a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
  if (a < 1e-9) return x * 0.88622692545275801365;
  double c = 1 - a, l = log1p(-a * a), t = 2 / (M_PI * 0.147) + 0.5 * l, y = sqrt(sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 3; i++) {
    double r = a < 0.5 ? erf(y) - a : c - erfc(y);
    double step = r / (M_2_SQRTPI * exp(-y * y));
    y -= step / (1 + y * step);
  }
  return copysign(y, x);
}
