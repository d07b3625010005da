/* StableHLO writer: special functions, in float64 whatever the operands' type (orthogonal polynomials: in their own type).
 *
 * Series and recurrences whose number of terms is known are counted loops; those whose length depends on the data run until no element needs more. An element
 * that a branch does not concern gets an argument for which that branch is finite and short, and its value is dropped by a select. Formulas are those of Abramowitz
 * & Stegun (A&S) and of the Digital Library of Mathematical Functions (DLMF). */
#include <math.h>

#include "ir/stablehlo_arith.h"

static const double euler = 0.57721566490153286061, pi = 3.14159265358979323846;

static hlo num(hlo_writer *w, hlo like, double v) { return hlo_full_f(w, like, v); }
static hlo plus(hlo_writer *w, hlo x, double v) { return add(w, x, num(w, x, v)); }
static hlo times(hlo_writer *w, hlo x, double v) { return mul(w, x, num(w, x, v)); }
static hlo at_most(hlo_writer *w, hlo x, double v) { return hlo_bin(w, "stablehlo.minimum", x, num(w, x, v)); }
static hlo at_least(hlo_writer *w, hlo x, double v) { return hlo_bin(w, "stablehlo.maximum", x, num(w, x, v)); }
static hlo is(hlo_writer *w, hlo x, const char *direction, double v) { return hlo_compare(w, direction, x, num(w, x, v)); }
static hlo either(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.or", x, y); }
static hlo not(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.not", x); }
static hlo size_of(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.abs", x); }
static hlo negated(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.negate", x); }
static hlo exp_of(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.exponential", x); }
static hlo log_of(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.log", x); }
static hlo root(hlo_writer *w, hlo x) { return hlo_un(w, "stablehlo.sqrt", x); }
static hlo where(hlo_writer *w, hlo p, hlo x, double v) { return hlo_select(w, p, num(w, x, v), x); } /* v where p holds, else x */

static hlo any_of(hlo_writer *w, hlo p) {
  int64_t dims[HLO_MAX_RANK];
  for (int i = 0; i < p.rank; i++) dims[i] = i;
  return hlo_reduce(w, "stablehlo.or", p, hlo_const_i(w, TNX_BOOL, 0), dims, p.rank);
}

/* A loop whose first state value counts from 1 to steps; *k: the count in the state's shape. Opened here, closed by counted_end. */
static void counted_begin(hlo_writer *w, hlo_loop *l, hlo *state, int n, int steps, hlo *k) {
  state[0] = hlo_const_f(w, TNX_F64, 1);
  hlo_loop_begin(w, l, state, n);
  hlo_loop_body(w, l, state, is(w, state[0], "LE", steps));
  *k = hlo_splat(w, state[0], state[1]);
}
static void counted_end(hlo_writer *w, hlo_loop *l, hlo *state) {
  state[0] = plus(w, state[0], 1);
  hlo_loop_end(w, l, state);
}

/* ---- Bessel and Airy functions ---- */

/* Arguments below `near` are summed as power series, those from `far` on with Hankel's expansions, whose smallest term is about exp(-2x). */
static const double far = 20;
enum { HANKEL_TERMS = 34 };

/* sum of s^k a_k / x^k, a_k = prod (mu - (2j-1)^2) / (k! 8^k) (A&S 9.7.1, 9.7.2) */
static hlo hankel_sum(hlo_writer *w, double mu, hlo x, double s) {
  hlo_loop l;
  hlo k, v[3] = {{0}, num(w, x, 1), num(w, x, 1)}; /* count, term, sum */
  counted_begin(w, &l, v, 3, HANKEL_TERMS, &k);
  hlo odd = plus(w, times(w, k, 2), -1), step = quot(w, sub(w, num(w, x, mu), mul(w, odd, odd)), mul(w, times(w, k, 8), x));
  v[1] = times(w, mul(w, v[1], step), s);
  v[2] = add(w, v[2], v[1]);
  counted_end(w, &l, v);
  return v[2];
}

/* P and Q of the oscillating expansions (A&S 9.2.9, 9.2.10). */
static void hankel_pq(hlo_writer *w, double mu, hlo x, hlo *p, hlo *q) {
  hlo_loop l;
  hlo i, v[5] = {{0}, num(w, x, 1), num(w, x, 1), num(w, x, 0), num(w, x, 1)}; /* count, term, even, odd, sign */
  counted_begin(w, &l, v, 5, HANKEL_TERMS / 2, &i);
  for (int half = 0; half < 2; half++) {
    hlo k = plus(w, times(w, i, 2), half - 1), odd = plus(w, times(w, k, 2), -1);
    v[1] = mul(w, v[1], quot(w, sub(w, num(w, x, mu), mul(w, odd, odd)), mul(w, times(w, k, 8), x)));
    if (half) v[4] = negated(w, v[4]);
    v[half ? 2 : 3] = add(w, v[half ? 2 : 3], mul(w, v[4], v[1]));
  }
  counted_end(w, &l, v);
  *p = v[2], *q = v[3];
}

/* I_n(x) exp(-x) for x >= 0 (A&S 9.6.10, 9.7.1). */
static hlo scaled_i(hlo_writer *w, int n, hlo x) {
  hlo m = at_most(w, x, far), big = at_least(w, x, far), q = times(w, mul(w, m, m), 0.25), k;
  hlo_loop l;
  hlo v[3] = {{0}, n ? times(w, m, 0.5) : num(w, m, 1), {0}};
  v[2] = v[1];
  counted_begin(w, &l, v, 3, 60, &k);
  v[1] = mul(w, v[1], quot(w, q, mul(w, k, plus(w, k, n))));
  v[2] = add(w, v[2], v[1]);
  counted_end(w, &l, v);
  hlo near = mul(w, v[2], exp_of(w, negated(w, m))), away = quot(w, hankel_sum(w, n ? 4 : 0, big, -1), root(w, times(w, big, 2 * pi)));
  return hlo_select(w, is(w, x, "GE", far), away, near);
}

static hlo bessel_i(hlo_writer *w, int n, hlo x, bool scaled) {
  hlo a = size_of(w, x), r = scaled_i(w, n, a);
  if (!scaled) { /* exp in two factors: the product overflows only where the result does */
    hlo half = exp_of(w, times(w, a, 0.5));
    r = where(w, is(w, a, "EQ", INFINITY), mul(w, mul(w, r, half), half), INFINITY);
  }
  return n ? hlo_copysign(w, r, x) : r;
}

/* K_nu(x) exp(x) for x >= 2: the integral of exp(-x (cosh t - 1)) cosh(nu t) by the trapezoidal rule (DLMF 10.32.9); the multiples' cosh by recurrence. */
static hlo scaled_k_far(hlo_writer *w, double nu, hlo x) {
  hlo m = at_least(w, at_most(w, x, far), 2), big = at_least(w, x, far), step = quot(w, num(w, m, 0.4), root(w, m)), one = num(w, m, 1), k;
  hlo a = hlo_un(w, "chlo.cosh", step), b = hlo_un(w, "chlo.cosh", times(w, step, nu));
  hlo_loop l;
  hlo v[6] = {{0}, num(w, m, 0.5), one, a, one, b}; /* count, sum, two of each cosh */
  counted_begin(w, &l, v, 6, 30, &k);
  v[1] = add(w, v[1], mul(w, exp_of(w, sub(w, m, mul(w, m, v[3]))), v[5]));
  hlo a2 = sub(w, times(w, mul(w, a, v[3]), 2), v[2]), b2 = sub(w, times(w, mul(w, b, v[5]), 2), v[4]);
  v[2] = v[3], v[3] = a2, v[4] = v[5], v[5] = b2;
  counted_end(w, &l, v);
  hlo away = mul(w, hankel_sum(w, 4 * nu * nu, big, 1), root(w, quot(w, num(w, big, pi / 2), big)));
  return hlo_select(w, is(w, x, "GE", far), away, mul(w, v[1], step));
}

/* sum of q^k / (k! (k + n)!), and the same sum with psi(k + 1) + psi(k + 2), or for n = 0 the harmonic numbers, as factors of its terms. */
static void ascending_series(hlo_writer *w, int n, hlo q, int terms, hlo *sum, hlo *with_psi) {
  hlo one = num(w, q, 1), psi = n ? num(w, q, 1 - 2 * euler) : num(w, q, 0), k;
  hlo_loop l;
  hlo v[5] = {{0}, one, one, psi, psi}; /* count, term, sum, psi, sum with psi */
  counted_begin(w, &l, v, 5, terms, &k);
  v[1] = mul(w, v[1], quot(w, q, mul(w, k, plus(w, k, n))));
  v[2] = add(w, v[2], v[1]);
  v[3] = add(w, v[3], quot(w, num(w, k, 1), k));
  if (n) v[3] = add(w, v[3], quot(w, num(w, k, 1), plus(w, k, 1)));
  v[4] = add(w, v[4], mul(w, v[1], v[3]));
  counted_end(w, &l, v);
  *sum = v[2], *with_psi = v[4];
}

/* K_n(x) for 0 < x <= 2 (A&S 9.6.13, 9.6.11). */
static hlo k_near(hlo_writer *w, int n, hlo x) {
  hlo m = at_most(w, x, 2), i, psi;
  ascending_series(w, n, times(w, mul(w, m, m), 0.25), 24, &i, &psi);
  hlo log = log_of(w, times(w, m, 0.5));
  if (n == 0) return sub(w, psi, mul(w, plus(w, log, euler), i));
  return add(w, quot(w, num(w, m, 1), m), mul(w, times(w, m, 0.5), sub(w, mul(w, log, i), times(w, psi, 0.5))));
}

static hlo bessel_k(hlo_writer *w, int n, hlo x, bool scaled) {
  hlo near = k_near(w, n, x), away = scaled_k_far(w, n, x);
  if (scaled) near = mul(w, near, exp_of(w, at_most(w, x, 2)));
  else away = mul(w, away, exp_of(w, negated(w, x)));
  hlo r = hlo_select(w, is(w, x, "LE", 2), near, away);
  return where(w, is(w, x, "LT", 0), where(w, is(w, x, "EQ", 0), r, INFINITY), NAN);
}

/* J and Y of order n for 0 < x <= 2 (A&S 9.1.10, 9.1.13, 9.1.11). */
static void jy_near(hlo_writer *w, int n, hlo x, hlo *j, hlo *y) {
  hlo m = at_most(w, x, 2), sum, psi;
  ascending_series(w, n, times(w, mul(w, m, m), -0.25), 20, &sum, &psi);
  hlo half = times(w, m, 0.5), log = log_of(w, half);
  if (n == 0) {
    *j = sum;
    *y = times(w, sub(w, mul(w, plus(w, log, euler), sum), psi), 2 / pi);
  } else {
    *j = mul(w, half, sum);
    *y = sub(w, times(w, sub(w, mul(w, log, *j), quot(w, num(w, m, 1), m)), 2 / pi), times(w, mul(w, half, psi), 1 / pi));
  }
}

/* For 2 <= x <= 25: Miller's recurrence from J_70 down, and Neumann's series for Y (DLMF 10.23.15). */
static void jy_middle(hlo_writer *w, int n, hlo x, hlo *j, hlo *y) {
  enum { PAIRS = 35 };
  hlo m = at_least(w, at_most(w, x, 25), 2), zero = num(w, m, 0), two = num(w, m, 2), step = quot(w, two, m), i;
  hlo_loop l;
  hlo v[6] = {{0}, num(w, m, 1e-150), zero, zero, zero, num(w, m, PAIRS & 1 ? -1 : 1)}; /* count, J_2k, J_2k+1, their norm, the series, (-1)^k */
  counted_begin(w, &l, v, 6, PAIRS, &i);
  hlo k = sub(w, num(w, i, PAIRS + 1), i), before = plus(w, k, -1), order = times(w, k, 2);
  v[3] = add(w, v[3], times(w, v[1], 2));
  if (n == 0) v[4] = add(w, v[4], quot(w, times(w, mul(w, v[5], v[1]), 2), k));
  v[2] = sub(w, mul(w, mul(w, order, step), v[1]), v[2]);
  v[5] = negated(w, v[5]);
  if (n == 1) {
    hlo product = mul(w, before, k), factor = quot(w, mul(w, v[5], plus(w, order, -1)), where(w, is(w, product, "EQ", 0), product, INFINITY));
    v[4] = add(w, v[4], mul(w, factor, v[2]));
  }
  v[1] = sub(w, mul(w, mul(w, plus(w, order, -1), step), v[2]), v[1]);
  counted_end(w, &l, v);
  hlo norm = add(w, v[3], v[1]), j0 = quot(w, v[1], norm), j1 = quot(w, v[2], norm), log = log_of(w, times(w, m, 0.5));
  *j = n ? j1 : j0;
  hlo r = sub(w, mul(w, plus(w, log, n ? euler - 1 : euler), *j), quot(w, v[4], norm));
  if (n) r = sub(w, r, quot(w, j0, m));
  *y = times(w, r, 2 / pi);
}

/* A&S 9.2.5, 9.2.6 */
static void jy_far(hlo_writer *w, int n, hlo x, hlo *j, hlo *y) {
  hlo m = at_least(w, x, 25), p, q, s = hlo_un(w, "stablehlo.sine", m), c = hlo_un(w, "stablehlo.cosine", m);
  hankel_pq(w, 4 * n, m, &p, &q);
  hlo sum = add(w, s, c), difference = sub(w, s, c), cosine = n ? difference : sum, sine = n ? negated(w, sum) : difference; /* of x - (2n + 1) pi/4, times sqrt(2) */
  hlo scale = root(w, quot(w, num(w, m, 1 / pi), m));
  *j = mul(w, scale, sub(w, mul(w, p, cosine), mul(w, q, sine)));
  *y = mul(w, scale, add(w, mul(w, p, sine), mul(w, q, cosine)));
}

static hlo bessel_jy(hlo_writer *w, int n, hlo x, bool second) {
  hlo a = second ? x : size_of(w, x), r[3], other[3];
  jy_near(w, n, a, second ? &other[0] : &r[0], second ? &r[0] : &other[0]);
  jy_middle(w, n, a, second ? &other[1] : &r[1], second ? &r[1] : &other[1]);
  jy_far(w, n, a, second ? &other[2] : &r[2], second ? &r[2] : &other[2]);
  hlo v = hlo_select(w, is(w, a, "LE", 2), r[0], hlo_select(w, is(w, a, "LT", 25), r[1], r[2]));
  v = where(w, is(w, a, "EQ", INFINITY), v, 0);
  if (second) return where(w, is(w, x, "LT", 0), where(w, is(w, x, "EQ", 0), v, -INFINITY), NAN);
  return n ? hlo_select(w, is(w, x, "LT", 0), negated(w, v), v) : v;
}

/* Between the asymptotic ranges along y'' = x y from 0, in ten steps of a Taylor series each. */
static hlo airy_middle(hlo_writer *w, hlo x) {
  hlo m = at_least(w, at_most(w, x, 2.2), -9.8), h = times(w, m, 0.1), zero = num(w, m, 0), k, n;
  hlo_loop outer, inner;
  hlo v[4] = {{0}, num(w, m, 0.35502805388781723926), num(w, m, -0.25881940379280679840), zero}; /* count, y, y', place */
  counted_begin(w, &outer, v, 4, 10, &k);
  hlo u[7] = {{0}, v[1], v[2], zero, v[1], v[2], h}; /* count, y, y', the last three coefficients, power of h */
  hlo at = v[3];
  counted_begin(w, &inner, u, 7, 30, &n);
  hlo next = quot(w, add(w, mul(w, at, u[4]), u[3]), mul(w, n, plus(w, n, 1)));
  u[1] = add(w, u[1], mul(w, u[5], u[6]));
  u[2] = add(w, u[2], mul(w, mul(w, plus(w, n, 1), next), u[6]));
  u[3] = u[4], u[4] = u[5], u[5] = next;
  u[6] = mul(w, u[6], h);
  counted_end(w, &inner, u);
  v[1] = u[1], v[2] = u[2];
  v[3] = add(w, v[3], h);
  counted_end(w, &outer, v);
  return v[1];
}

/* A&S 10.4.14 and 10.4.60 */
static hlo airy_ai(hlo_writer *w, hlo x) {
  hlo a = size_of(w, x), z = times(w, mul(w, a, root(w, a)), 2.0 / 3), p, q;
  hlo positive = mul(w, mul(w, times(w, root(w, times(w, a, 1.0 / 3)), 1 / pi), scaled_k_far(w, 1.0 / 3, z)), exp_of(w, negated(w, z)));
  hlo big = at_least(w, z, far);
  hankel_pq(w, 4.0 / 9, big, &p, &q);
  hlo s = hlo_un(w, "stablehlo.sine", big), c = hlo_un(w, "stablehlo.cosine", big);
  hlo wave = add(w, mul(w, add(w, s, c), p), mul(w, sub(w, c, s), q));
  hlo negative = quot(w, times(w, wave, sqrt(0.5 / pi)), root(w, root(w, a)));
  hlo r = hlo_select(w, both(w, is(w, z, "GE", far), is(w, x, "LT", 0)), negative, airy_middle(w, x));
  r = hlo_select(w, is(w, x, "GT", 2.1), positive, r);
  return where(w, is(w, x, "EQ", INFINITY), r, 0);
}

/* ---- the error function's relatives ---- */

/* exp(x^2) of x's upper half, whose square is exact, and of the rest; from 10 on A&S 7.1.23. */
static hlo erfcx(hlo_writer *w, hlo x) {
  hlo m = at_most(w, x, 10), high = hlo_convert(w, hlo_convert(w, m, TNX_F32), TNX_F64), k;
  hlo near = mul(w, mul(w, exp_of(w, mul(w, high, high)), exp_of(w, mul(w, sub(w, m, high), add(w, m, high)))), hlo_un(w, "chlo.erfc", m));
  hlo big = at_least(w, x, 10), r = quot(w, num(w, big, -0.5), mul(w, big, big)), one = num(w, big, 1);
  hlo_loop l;
  hlo v[3] = {{0}, one, one};
  counted_begin(w, &l, v, 3, 20, &k);
  v[1] = mul(w, v[1], mul(w, r, plus(w, times(w, k, 2), -1)));
  v[2] = add(w, v[2], v[1]);
  counted_end(w, &l, v);
  hlo away = quot(w, v[2], times(w, big, sqrt(pi)));
  return where(w, is(w, x, "LT", -26.7), hlo_select(w, is(w, x, "GE", 10), away, near), INFINITY);
}

static hlo log_ndtr(hlo_writer *w, hlo x) {
  hlo t = times(w, x, M_SQRT1_2), low = at_most(w, t, 0);
  hlo tail = sub(w, log_of(w, times(w, erfcx(w, negated(w, low)), 0.5)), mul(w, low, low));
  return hlo_select(w, is(w, x, "LT", -1), tail, hlo_un(w, "stablehlo.log_plus_one", times(w, hlo_un(w, "chlo.erfc", t), -0.5)));
}

/* The quantile: erf_inv in the middle; in the tails A&S 26.2.23 and three Halley steps. */
static hlo ndtri(hlo_writer *w, hlo p) {
  hlo middle = times(w, hlo_un(w, "chlo.erf_inv", plus(w, times(w, p, 2), -1)), M_SQRT2);
  hlo low = is(w, p, "LT", 0.5), q = hlo_select(w, low, p, sub(w, num(w, p, 1), p));
  hlo t = root(w, times(w, log_of(w, q), -2));
  hlo top = plus(w, mul(w, t, plus(w, times(w, t, 0.010328), 0.802853)), 2.515517);
  hlo bottom = plus(w, mul(w, t, plus(w, mul(w, t, plus(w, times(w, t, 0.001308), 0.189269)), 1.432788)), 1);
  hlo x = sub(w, t, quot(w, top, bottom));
  for (int i = 0; i < 3; i++) {
    hlo off = plus(w, quot(w, times(w, hlo_un(w, "chlo.erfc", times(w, x, M_SQRT1_2)), 0.5), q), -1);
    hlo e = mul(w, mul(w, off, times(w, q, sqrt(2 * pi))), exp_of(w, times(w, mul(w, x, x), 0.5)));
    x = add(w, x, quot(w, times(w, e, 2), sub(w, num(w, x, 2), mul(w, e, x))));
  }
  x = hlo_select(w, low, negated(w, x), x);
  hlo r = hlo_select(w, both(w, is(w, p, "GT", 0.1), is(w, p, "LT", 0.9)), middle, x);
  r = where(w, not(w, both(w, is(w, p, "GE", 0), is(w, p, "LE", 1))), r, NAN);
  return where(w, is(w, p, "EQ", 1), where(w, is(w, p, "EQ", 0), r, -INFINITY), INFINITY);
}

/* ---- zeta and the incomplete gamma functions ---- */

/* Euler-Maclaurin (DLMF 25.11.28): terms until q + k > 9, at least nine of them, then the integral, half a term and the Bernoulli numbers. */
static hlo zeta(hlo_writer *w, hlo s, hlo q) {
  static const double b[] = {1.0 / 12,           -1.0 / 720,          1.0 / 30240,         -1.0 / 1209600,       1.0 / 47900160,
                             -691.0 / 1307674368000.0, 1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0};
  hlo whole = hlo_compare(w, "EQ", q, hlo_un(w, "stablehlo.floor", q)), below = is(w, q, "LE", 0), pole = both(w, below, whole);
  hlo broken = both(w, below, hlo_compare(w, "NE", s, hlo_un(w, "stablehlo.floor", s))); /* a power of a negative number */
  hlo minus_s = negated(w, s), start = where(w, either(w, pole, broken), q, 1), first = hlo_bin(w, "stablehlo.power", start, minus_s);
  hlo none = hlo_full_i(w, hlo_retype(q, TNX_BOOL), 0), all = not(w, none), tiny = num(w, q, 1e-17);
  hlo_loop l;
  hlo v[6] = {hlo_const_f(w, TNX_F64, 0), first, start, num(w, q, 0), all, none}; /* count, sum, q + k, term, going on, exact already */
  hlo_loop_begin(w, &l, v, 6);
  hlo_loop_body(w, &l, v, any_of(w, v[4]));
  hlo active = v[4], a = plus(w, v[2], 1), term = hlo_bin(w, "stablehlo.power", a, minus_s), sum = add(w, v[1], term);
  hlo exact = hlo_compare(w, "LT", size_of(w, term), mul(w, tiny, size_of(w, sum)));
  v[0] = plus(w, v[0], 1);
  v[1] = hlo_select(w, active, sum, v[1]);
  v[2] = hlo_select(w, active, a, v[2]);
  v[3] = hlo_select(w, active, term, v[3]);
  v[5] = either(w, v[5], both(w, active, exact));
  v[4] = both(w, active, both(w, not(w, exact), either(w, hlo_splat(w, is(w, v[0], "LT", 9), active), is(w, a, "LE", 9))));
  hlo_loop_end(w, &l, v);
  a = v[2], term = v[3];
  hlo rest = sub(w, quot(w, mul(w, term, a), plus(w, s, -1)), times(w, term, 0.5)), rising = s, power = quot(w, term, a);
  for (int j = 0; j < 9; j++) {
    rest = add(w, rest, times(w, mul(w, rising, power), b[j]));
    rising = mul(w, rising, mul(w, plus(w, s, 2 * j + 1), plus(w, s, 2 * j + 2)));
    power = quot(w, power, mul(w, a, a));
  }
  hlo r = hlo_select(w, v[5], v[1], add(w, v[1], rest));
  r = where(w, broken, r, NAN);
  r = where(w, pole, r, INFINITY);
  r = hlo_select(w, hlo_isnan(w, q), q, r);
  return where(w, is(w, s, "EQ", 1), where(w, not(w, is(w, s, "GE", 1)), r, NAN), INFINITY);
}

/* x^a e^-x / Gamma(a + 1), by Stirling's series for large a. */
static hlo gamma_prefix(hlo_writer *w, hlo a, hlo x) {
  hlo plain = exp_of(w, sub(w, sub(w, mul(w, a, log_of(w, x)), x), hlo_un(w, "chlo.lgamma", plus(w, a, 1))));
  hlo b = at_least(w, a, 20), d = sub(w, x, b), u = quot(w, d, b), r = quot(w, num(w, b, 1), mul(w, b, b)), s = num(w, b, 1.0 / 1188);
  static const double c[] = {1.0 / 1680, 1.0 / 1260, 1.0 / 360, 1.0 / 12};
  for (int i = 0; i < 4; i++) s = sub(w, num(w, b, c[i]), mul(w, r, s));
  hlo close = mul(w, b, sub(w, hlo_un(w, "stablehlo.log_plus_one", u), u)), other = sub(w, mul(w, b, log_of(w, quot(w, x, b))), d);
  hlo exponent = hlo_select(w, is(w, size_of(w, u), "LT", 0.5), close, other);
  hlo large = quot(w, exp_of(w, sub(w, exponent, quot(w, s, b))), root(w, times(w, b, 2 * pi)));
  return hlo_select(w, is(w, a, "LT", 20), plain, large);
}

/* P by its series (DLMF 8.11.4) where `use` holds. */
static hlo gamma_series(hlo_writer *w, hlo a, hlo x, hlo use) {
  hlo one = num(w, a, 1), short_x = hlo_select(w, use, x, num(w, x, 0)), tiny = num(w, a, 1e-17);
  hlo_loop l;
  hlo v[3] = {plus(w, a, 1), one, one};
  hlo_loop_begin(w, &l, v, 3);
  hlo_loop_body(w, &l, v, any_of(w, hlo_compare(w, "GT", v[1], mul(w, tiny, v[2]))));
  v[1] = mul(w, v[1], quot(w, short_x, v[0]));
  v[2] = add(w, v[2], v[1]);
  v[0] = plus(w, v[0], 1);
  hlo_loop_end(w, &l, v);
  return mul(w, v[2], gamma_prefix(w, a, x));
}

/* Q by Legendre's continued fraction (DLMF 8.9.2) with Lentz's method, where `use` holds. */
static hlo gamma_fraction(hlo_writer *w, hlo a, hlo x, hlo use) {
  const double tiny = 1e-300;
  hlo one = num(w, a, 1), order = hlo_select(w, use, a, one), b = sub(w, plus(w, hlo_select(w, use, x, num(w, x, 2)), 1), order);
  hlo h = quot(w, one, where(w, is(w, size_of(w, b), "LT", tiny), b, tiny));
  hlo_loop l;
  hlo v[6] = {hlo_const_f(w, TNX_F64, 1), b, num(w, a, 1 / tiny), h, h, not(w, hlo_full_i(w, hlo_retype(a, TNX_BOOL), 0))}; /* count, b, c, d, h, going on */
  hlo_loop_begin(w, &l, v, 6);
  hlo_loop_body(w, &l, v, both(w, is(w, v[0], "LT", 1e7), any_of(w, v[5])));
  hlo i = hlo_splat(w, v[0], a), an = negated(w, mul(w, i, sub(w, i, order))), active = v[5];
  b = plus(w, v[1], 2);
  hlo d = add(w, mul(w, an, v[3]), b), c = add(w, b, quot(w, an, v[2]));
  d = quot(w, one, where(w, is(w, size_of(w, d), "LT", tiny), d, tiny));
  c = where(w, is(w, size_of(w, c), "LT", tiny), c, tiny);
  hlo delta = mul(w, d, c);
  v[0] = plus(w, v[0], 1);
  v[1] = b, v[2] = c, v[3] = d;
  v[4] = hlo_select(w, active, mul(w, v[4], delta), v[4]);
  v[5] = both(w, active, is(w, size_of(w, plus(w, delta, -1)), "GE", 3e-16));
  hlo_loop_end(w, &l, v);
  return mul(w, mul(w, v[4], gamma_prefix(w, a, x)), a);
}

/* Q for small a and x without the difference 1 - P (DLMF 8.7.3). */
static hlo gamma_small(hlo_writer *w, hlo a, hlo x) {
  hlo m = at_most(w, x, 1.1), n;
  hlo_loop l;
  hlo v[3] = {{0}, num(w, a, 1), num(w, a, 0)};
  counted_begin(w, &l, v, 3, 40, &n);
  v[1] = negated(w, mul(w, v[1], quot(w, m, n)));
  v[2] = add(w, v[2], quot(w, v[1], add(w, a, n)));
  counted_end(w, &l, v);
  hlo first = sub(w, mul(w, a, log_of(w, m)), hlo_un(w, "chlo.lgamma", plus(w, a, 1)));
  return negated(w, add(w, hlo_un(w, "stablehlo.exponential_minus_one", first), mul(w, mul(w, exp_of(w, first), a), v[2])));
}

static hlo incomplete_gamma(hlo_writer *w, hlo a, hlo x, bool upper) {
  hlo use = both(w, is(w, x, "GT", 1), hlo_compare(w, "GT", x, a)), one = num(w, a, 1), edge = num(w, a, INFINITY);
  hlo infinite_a = hlo_compare(w, "EQ", a, edge), infinite_x = hlo_compare(w, "EQ", x, edge);
  use = both(w, use, not(w, infinite_x));
  hlo small = upper ? both(w, is(w, x, "LE", 1.1), is(w, a, "LT", 1)) : hlo_full_i(w, hlo_retype(a, TNX_BOOL), 0);
  hlo series = gamma_series(w, a, x, not(w, either(w, either(w, use, small), infinite_x))), fraction = gamma_fraction(w, a, x, use), r;
  if (upper) r = hlo_select(w, use, fraction, hlo_select(w, small, gamma_small(w, a, x), sub(w, one, series)));
  else r = hlo_select(w, use, sub(w, one, fraction), series);
  double full = upper ? 0 : 1; /* where all of the distribution is below x */
  r = where(w, infinite_x, r, full);
  r = hlo_select(w, infinite_a, where(w, infinite_x, num(w, r, 1 - full), NAN), r);
  r = where(w, is(w, x, "EQ", 0), r, 1 - full);
  r = hlo_select(w, is(w, a, "EQ", 0), where(w, not(w, is(w, x, "GT", 0)), num(w, r, full), NAN), r);
  hlo wrong = either(w, either(w, is(w, x, "LT", 0), is(w, a, "LT", 0)), either(w, hlo_isnan(w, a), hlo_isnan(w, x)));
  return where(w, wrong, r, NAN);
}

/* ---- orthogonal polynomials ---- */

/* (-1)^n as +1 or -1 */
static hlo parity(hlo_writer *w, hlo x, hlo n) {
  hlo odd = is(w, hlo_bin(w, "stablehlo.and", n, hlo_full_i(w, n, 1)), "NE", 0);
  return where(w, odd, num(w, x, 1), -1);
}

/* Three-term recurrences, in (-1, 1) trigonometric forms once the degree makes those the more exact ones; negative degrees give 0. */
static hlo polynomial(hlo_writer *w, tnx_op op, hlo x, hlo degree) {
  hlo type = hlo_retype(x, TNX_I64), one = num(w, x, 1), none = hlo_full_i(w, type, 0), n;
  n = hlo_select(w, is(w, size_of(w, degree), "LT", 0x1p62), hlo_convert(w, degree, TNX_I64), hlo_full_i(w, type, -1));
  bool chebyshev = op == TNX_OP_CHEBYSHEV_T || op == TNX_OP_CHEBYSHEV_U || op == TNX_OP_CHEBYSHEV_V || op == TNX_OP_CHEBYSHEV_W;
  bool hermite = op == TNX_OP_HERMITE_H || op == TNX_OP_HERMITE_HE;
  double limit = !hermite ? 0x1p62 : x.dtype == TNX_F64 ? 512 : 128; /* PyTorch's bound on the degree */
  hlo inside = is(w, size_of(w, x), "LT", 1), end = is(w, size_of(w, x), "EQ", 1), steps = n;
  hlo trig = both(w, inside, hlo_compare(w, "GT", n, hlo_full_i(w, n, op == TNX_OP_CHEBYSHEV_T ? 6 : 8)));
  if (chebyshev) steps = hlo_select(w, either(w, trig, end), none, n);
  if (op == TNX_OP_LEGENDRE) steps = hlo_select(w, end, none, n);
  if (hermite) steps = hlo_select(w, hlo_compare(w, "GT", n, hlo_full_i(w, n, (int64_t)limit)), none, n);

  hlo twice = add(w, x, x), second;
  switch (op) {
    case TNX_OP_CHEBYSHEV_U: case TNX_OP_HERMITE_H: second = twice; break;
    case TNX_OP_CHEBYSHEV_V: second = plus(w, twice, -1); break;
    case TNX_OP_CHEBYSHEV_W: second = plus(w, twice, 1); break;
    case TNX_OP_LAGUERRE: second = sub(w, one, x); break;
    default: second = x;
  }
  int64_t dims[HLO_MAX_RANK];
  for (int i = 0; i < x.rank; i++) dims[i] = i;
  hlo longest = hlo_reduce(w, "stablehlo.maximum", steps, hlo_const_i(w, TNX_I64, 0), dims, x.rank);
  hlo_loop l;
  hlo v[3] = {hlo_const_i(w, TNX_I64, 1), one, second};
  hlo_loop_begin(w, &l, v, 3);
  hlo_loop_body(w, &l, v, hlo_compare(w, "LT", v[0], longest));
  hlo k = hlo_splat(w, hlo_convert(w, v[0], (tnx_dtype)x.dtype), x), p = v[1], q = v[2], next, odd = plus(w, add(w, k, k), 1);
  switch (op) {
    case TNX_OP_HERMITE_H: next = sub(w, mul(w, twice, q), mul(w, add(w, k, k), p)); break;
    case TNX_OP_HERMITE_HE: next = sub(w, mul(w, x, q), mul(w, k, p)); break;
    case TNX_OP_LAGUERRE: next = quot(w, sub(w, mul(w, sub(w, odd, x), q), mul(w, k, p)), plus(w, k, 1)); break;
    case TNX_OP_LEGENDRE: next = quot(w, sub(w, mul(w, mul(w, odd, x), q), mul(w, k, p)), plus(w, k, 1)); break;
    default: next = sub(w, mul(w, twice, q), p);
  }
  hlo active = hlo_compare(w, "LT", hlo_splat(w, v[0], steps), steps);
  v[1] = hlo_select(w, active, q, p);
  v[2] = hlo_select(w, active, next, q);
  v[0] = plus(w, v[0], 1);
  hlo_loop_end(w, &l, v);
  hlo r = where(w, hlo_compare(w, "EQ", n, none), v[2], 1);

  if (chebyshev) {
    hlo real_n = hlo_convert(w, n, (tnx_dtype)x.dtype), angle = hlo_un(w, "chlo.acos", hlo_select(w, inside, x, num(w, x, 0))), half = times(w, angle, 0.5);
    hlo sign = parity(w, x, n), right = is(w, x, "GT", 0), wide = plus(w, add(w, real_n, real_n), 1), last, wave;
    switch (op) {
      case TNX_OP_CHEBYSHEV_T:
        wave = hlo_un(w, "stablehlo.cosine", mul(w, real_n, angle));
        last = hlo_select(w, right, one, sign);
        break;
      case TNX_OP_CHEBYSHEV_U: {
        hlo up = plus(w, real_n, 1);
        wave = quot(w, hlo_un(w, "stablehlo.sine", mul(w, up, angle)), hlo_un(w, "stablehlo.sine", angle));
        last = mul(w, up, hlo_select(w, right, one, sign));
        break;
      }
      case TNX_OP_CHEBYSHEV_V:
        wave = quot(w, hlo_un(w, "stablehlo.cosine", mul(w, plus(w, real_n, 0.5), angle)), hlo_un(w, "stablehlo.cosine", half));
        last = hlo_select(w, right, one, mul(w, wide, sign));
        break;
      default:
        wave = quot(w, hlo_un(w, "stablehlo.sine", mul(w, plus(w, real_n, 0.5), angle)), hlo_un(w, "stablehlo.sine", half));
        last = hlo_select(w, right, wide, sign);
    }
    r = hlo_select(w, trig, wave, r);
    r = hlo_select(w, end, last, r);
  }
  if (op == TNX_OP_LEGENDRE) r = hlo_select(w, end, hlo_select(w, is(w, x, "GT", 0), one, parity(w, x, n)), r);
  if (op == TNX_OP_LAGUERRE) r = where(w, is(w, x, "EQ", 0), r, 1);
  if (hermite) r = where(w, hlo_compare(w, "GT", n, hlo_full_i(w, n, (int64_t)limit)), r, NAN);
  return where(w, hlo_compare(w, "LT", n, none), r, 0);
}

/* ---- integers and bits ---- */

static hlo gcd(hlo_writer *w, hlo x, hlo y) {
  hlo u = hlo_retype(x, TNX_U64), zero = hlo_full_i(w, u, 0), one = hlo_full_i(w, u, 1), in[2] = {size_of(w, x), size_of(w, y)};
  hlo_loop l;
  hlo v[2] = {hlo_op(w, "stablehlo.bitcast_convert", &in[0], 1, u), hlo_op(w, "stablehlo.bitcast_convert", &in[1], 1, u)};
  hlo_loop_begin(w, &l, v, 2);
  hlo_loop_body(w, &l, v, any_of(w, hlo_compare(w, "NE", v[0], zero)));
  hlo ended = hlo_compare(w, "EQ", v[0], zero), rest = hlo_bin(w, "stablehlo.remainder", v[1], hlo_select(w, ended, one, v[0]));
  v[1] = hlo_select(w, ended, v[1], v[0]);
  v[0] = hlo_select(w, ended, zero, rest);
  hlo_loop_end(w, &l, v);
  return hlo_op(w, "stablehlo.bitcast_convert", &v[1], 1, x);
}

static hlo lcm(hlo_writer *w, hlo x, hlo y) {
  hlo g = gcd(w, x, y), zero = hlo_compare(w, "EQ", g, hlo_full_i(w, g, 0));
  hlo r = mul(w, quot(w, x, hlo_select(w, zero, hlo_full_i(w, g, 1), g)), y);
  return hlo_select(w, zero, hlo_full_i(w, r, 0), size_of(w, r));
}

/* frexp's two halves, by the bits of float64. */
static hlo frexp_half(hlo_writer *w, hlo x, bool exponent) {
  hlo small = is(w, size_of(w, x), "LT", 0x1p-1022), y = hlo_select(w, small, times(w, x, 0x1p54), x), type = hlo_retype(x, TNX_I64);
  hlo finite = hlo_op(w, "stablehlo.is_finite", &x, 1, hlo_retype(x, TNX_BOOL)), plain = both(w, finite, is(w, x, "NE", 0));
  hlo bits = hlo_op(w, "stablehlo.bitcast_convert", &y, 1, type);
  if (exponent) {
    hlo e = hlo_bin(w, "stablehlo.and", hlo_bin(w, "stablehlo.shift_right_logical", bits, hlo_full_i(w, bits, 52)), hlo_full_i(w, bits, 0x7ff));
    e = sub(w, e, hlo_select(w, small, hlo_full_i(w, e, 1022 + 54), hlo_full_i(w, e, 1022)));
    return hlo_convert(w, hlo_select(w, plain, e, hlo_full_i(w, e, 0)), TNX_F64);
  }
  bits = hlo_bin(w, "stablehlo.or", hlo_bin(w, "stablehlo.and", bits, hlo_full_i(w, bits, (int64_t)0x800fffffffffffffULL)), hlo_full_i(w, bits, (int64_t)1022 << 52));
  return hlo_select(w, plain, hlo_op(w, "stablehlo.bitcast_convert", &bits, 1, y), x);
}

/* ---- the operators ---- */

hlo hlo_special(hlo_writer *w, tnx_op op, hlo x, hlo y) {
  switch (op) {
    case TNX_OP_GCD: return gcd(w, hlo_convert(w, x, TNX_I64), hlo_convert(w, y, TNX_I64));
    case TNX_OP_LCM: return lcm(w, hlo_convert(w, x, TNX_I64), hlo_convert(w, y, TNX_I64));
    case TNX_OP_CHEBYSHEV_T: case TNX_OP_CHEBYSHEV_U: case TNX_OP_CHEBYSHEV_V: case TNX_OP_CHEBYSHEV_W: case TNX_OP_HERMITE_H: case TNX_OP_HERMITE_HE:
    case TNX_OP_LAGUERRE: case TNX_OP_LEGENDRE: return polynomial(w, op, x, y);
    default: break;
  }
  x = hlo_convert(w, x, TNX_F64);
  if (y.id) y = hlo_convert(w, y, TNX_F64);
  switch (op) {
    case TNX_OP_BESSEL_I0: return bessel_i(w, 0, x, false);
    case TNX_OP_BESSEL_I0E: return bessel_i(w, 0, x, true);
    case TNX_OP_BESSEL_I1: return bessel_i(w, 1, x, false);
    case TNX_OP_BESSEL_I1E: return bessel_i(w, 1, x, true);
    case TNX_OP_BESSEL_K0: return bessel_k(w, 0, x, false);
    case TNX_OP_BESSEL_K0E: return bessel_k(w, 0, x, true);
    case TNX_OP_BESSEL_K1: return bessel_k(w, 1, x, false);
    case TNX_OP_BESSEL_K1E: return bessel_k(w, 1, x, true);
    case TNX_OP_BESSEL_J0: return bessel_jy(w, 0, x, false);
    case TNX_OP_BESSEL_J1: return bessel_jy(w, 1, x, false);
    case TNX_OP_BESSEL_Y0: return bessel_jy(w, 0, x, true);
    case TNX_OP_BESSEL_Y1: return bessel_jy(w, 1, x, true);
    case TNX_OP_AIRY_AI: return airy_ai(w, x);
    case TNX_OP_ERFCX: return erfcx(w, x);
    case TNX_OP_LOG_NDTR: return log_ndtr(w, x);
    case TNX_OP_NDTRI: return ndtri(w, x);
    case TNX_OP_MANTISSA: return frexp_half(w, x, false);
    case TNX_OP_EXPONENT: return frexp_half(w, x, true);
    case TNX_OP_ZETA: return zeta(w, x, y);
    case TNX_OP_IGAMMA: return incomplete_gamma(w, x, y, false);
    case TNX_OP_IGAMMAC: return incomplete_gamma(w, x, y, true);
    default: return hlo_fail(w, TNX_NOT_IMPLEMENTED, "no form in StableHLO");
  }
}
