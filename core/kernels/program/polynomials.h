/* Orthogonal polynomials of one real type: TYPE and F(name) (the name in that type; fn(f) is libm's function f for it) are the including file's.
 * Degrees are truncated to integers and negative ones give 0. Values come from the three-term recurrence in TYPE itself, so that it overflows where PyTorch's
 * does, and inside (-1, 1) from the trigonometric forms once the degree makes those the more exact ones. */

/* r = STEP of p (degree k - 1) and q (degree k), until degree n or NaN. */
#define RECURRENCE(FIRST, SECOND, STEP)                        \
  if (n == 0) return (TYPE)(FIRST);                            \
  TYPE p = (TYPE)(FIRST), q = (TYPE)(SECOND);                  \
  for (int64_t k = 1; k < n && q == q; k++) {                  \
    TYPE kk = (TYPE)k, r = (STEP);                             \
    (void)kk;                                                  \
    p = q, q = r;                                              \
  }                                                            \
  return q;

TYPE F(chebyshev_t)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (fn(fabs)(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
  if (n > 6 && fn(fabs)(x) < 1) return fn(cos)((TYPE)n * fn(acos)(x));
  RECURRENCE(1, x, (x + x) * q - p)
}

TYPE F(chebyshev_u)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (fn(fabs)(x) == 1) return x > 0 || n % 2 == 0 ? (TYPE)(n + 1) : (TYPE)(-(n + 1));
  if (n > 8 && fn(fabs)(x) < 1) {
    TYPE a = fn(acos)(x), s = fn(sin)(a);
    return s != 0 ? fn(sin)((TYPE)(n + 1) * a) / s : (TYPE)(n + 1) * fn(cos)((TYPE)(n + 1) * a) / x;
  }
  RECURRENCE(1, x + x, (x + x) * q - p)
}

TYPE F(chebyshev_v)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  TYPE at_minus_one = n % 2 == 0 ? (TYPE)(n + n + 1) : (TYPE)(-(n + n + 1));
  if (fn(fabs)(x) == 1) return x > 0 ? 1 : at_minus_one;
  if (n > 8 && fn(fabs)(x) < 1) {
    TYPE a = fn(acos)(x);
    return fn(sin)(a / 2) != 1 ? fn(cos)(((TYPE)n + (TYPE)0.5) * a) / fn(cos)(a / 2) : at_minus_one;
  }
  RECURRENCE(1, x + x - 1, (x + x) * q - p)
}

TYPE F(chebyshev_w)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  TYPE at_end = x > 0 ? (TYPE)(n + n + 1) : n % 2 == 0 ? 1 : -1;
  if (fn(fabs)(x) == 1) return at_end;
  if (n > 8 && fn(fabs)(x) < 1) {
    TYPE a = fn(acos)(x);
    return fn(cos)(a / 2) != 1 ? fn(sin)(((TYPE)n + (TYPE)0.5) * a) / fn(sin)(a / 2) : at_end;
  }
  RECURRENCE(1, x + x + 1, (x + x) * q - p)
}

TYPE F(hermite_h)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (n > HERMITE_LIMIT) return (TYPE)NAN;
  RECURRENCE(1, x + x, (x + x) * q - (kk + kk) * p)
}

TYPE F(hermite_he)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (n > HERMITE_LIMIT) return (TYPE)NAN;
  RECURRENCE(1, x, x * q - kk * p)
}

TYPE F(laguerre)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (x == 0) return 1;
  RECURRENCE(1, 1 - x, ((kk + kk + 1 - x) * q - kk * p) / (kk + 1))
}

TYPE F(legendre)(TYPE x, TYPE degree) {
  int64_t n = F(degree)(degree);
  if (n < 0) return 0;
  if (fn(fabs)(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
  RECURRENCE(1, x, ((kk + kk + 1) * x * q - kk * p) / (kk + 1))
}
#undef RECURRENCE
