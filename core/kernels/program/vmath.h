/* float32 functions without branches, so that the compiler vectorises the loops that call them. Included by body.h, once
 * per ISA. Polynomials are truncated Taylor series on ranges small enough for them, or fits where the comment says so;
 * test_program.c bounds their errors. Without FMA hardware PROG_FMA rounds twice and the error grows by up to 1 ulp. */
#ifndef TNXK_PROGRAM_VMATH_H
#define TNXK_PROGRAM_VMATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __FMA__
#define PROG_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define PROG_FMAD(a, b, c) __builtin_fma(a, b, c)
#else
#define PROG_FMA(a, b, c) ((a) * (b) + (c))
#define PROG_FMAD(a, b, c) ((a) * (b) + (c))
#endif
#define VM static inline __attribute__((always_inline))

VM float vm_f32(int32_t u) { union { int32_t i; float f; } v = {.i = u}; return v.f; }
VM int32_t vm_i32(float f) { union { float f; int32_t i; } v = {.f = f}; return v.i; }
VM double vm_f64(int64_t u) { union { int64_t i; double f; } v = {.i = u}; return v.f; }
VM int64_t vm_i64(double f) { union { double f; int64_t i; } v = {.f = f}; return v.i; }

/* 2^n for n in -126..127. */
VM float vm_pow2(int32_t n) { return vm_f32((int32_t)((uint32_t)(n + 127) << 23)); }

/* Nearest integer of |x| < 2^22 (2^51 for the double): adding 1.5 * 2^23 leaves it in the low bits. */
VM float vm_round(float x) { return (x + 12582912.0f) - 12582912.0f; }

/* Polynomials are added up by pairs and pairs of pairs (Estrin): the loops wait for results rather than for units. */

/* exp(r) - 1 for |r| <= ln2 / 2: minimax, relative error below 4e-9. */
VM float vm_expm1_core(float r) {
  float z = r * r, low = PROG_FMA(0.16666517f, r, 0.50000001f), high = PROG_FMA(0.00836907f, r, 0.0416662f);
  return PROG_FMA(PROG_FMA(PROG_FMA(0.00139508f, z, high), z, low), z, r);
}

#define VM_LN2_HI 0.693359375f
#define VM_LN2_LO (-2.12194440e-4f)
#define VM_BIASED 12583039.0f /* 1.5 * 2^23 + 127: adding it leaves the nearest whole number in the low bits, as the exponent of a float */

/* exp(x) is (1 + p) 2^k; the low bits of what is returned are k + 127: vm_biased_whole gives k, vm_biased_pow2 gives 2^k for k in -126..127. */
VM int32_t vm_biased_whole(int32_t u) { return (int32_t)((uint32_t)u - (uint32_t)vm_i32(VM_BIASED)); }
VM float vm_biased_pow2(int32_t u) { return vm_f32((int32_t)((uint32_t)u << 23)); }
VM int32_t vm_exp_parts(float x, float *p) {
  float y = PROG_FMA(x, 1.44269504f, VM_BIASED), k = y - VM_BIASED;
  *p = vm_expm1_core(PROG_FMA(k, -VM_LN2_LO, PROG_FMA(k, -VM_LN2_HI, x)));
  return vm_i32(y);
}

/* Arguments whose result is a normal number, and their exp: the bits that vm_exp gives too. */
VM int vm_exp_is_near(float x) { return __builtin_fabsf(x) <= 87.0f; }
VM float vm_exp_near(float x) {
  float p, s = vm_biased_pow2(vm_exp_parts(x, &p));
  return PROG_FMA(p, s, s);
}

/* Out of range the steps below compute nonsense, which the last selections replace: clamping the argument first would
 * make the compiler split the loop into paths. */
VM float vm_exp(float x) {
  float p;
  int32_t n = vm_biased_whole(vm_exp_parts(x, &p)), h = n >> 1;
  p = (1.0f + p) * vm_pow2(h) * vm_pow2(n - h); /* two steps: subnormal results round once, 2^128 overflows to infinity */
  p = x > 89.0f ? INFINITY : p;
  return x < -104.0f ? 0.0f : p;
}

VM float vm_expm1(float x) {
  float p;
  int32_t n = vm_biased_whole(vm_exp_parts(x, &p)), h = n >> 1;
  /* 2^n p + (2^n - 1), scaled by 2^-h so that 2^128 does not appear before the end. */
  float s = vm_pow2(n - h), t = vm_pow2(-h), v = PROG_FMA(s, p, s - t) * vm_pow2(h);
  v = n == 0 ? p : v;
  v = x > 89.0f ? INFINITY : v;
  v = x < -20.0f ? -1.0f : v;
  return x == 0 ? x : v;
}

VM float vm_sigmoid(float x) { return 1.0f / (1.0f + vm_exp(-x)); }
VM float vm_sigmoid_near(float x) { return 1.0f / (1.0f + vm_exp_near(-x)); }

VM float vm_tanh(float x) {
  float a = __builtin_fabsf(x), e = vm_expm1(2 * a), v = e / (e + 2);
  v = a > 10.0f ? 1.0f : v;
  return __builtin_copysignf(v, x);
}

/* log of y * 2^-less, split as e * ln2 + log(m), m in [sqrt(1/2), sqrt(2)). */
VM float vm_log_core(float y, int32_t less) {
  int32_t u = vm_i32(y), e = (int32_t)((uint32_t)u - 0x3f3504f3u) >> 23; /* wraps for negative y, which has no use */
  float m = vm_f32((int32_t)((uint32_t)u - ((uint32_t)e << 23))), k = (float)(e - less);
  float f = m - 1, s = f / (2 + f), z = s * s, h = 0.5f * f * f;
  float r = 2.0f / 9;
  r = PROG_FMA(r, z, 2.0f / 7);
  r = PROG_FMA(r, z, 2.0f / 5);
  r = PROG_FMA(r, z, 2.0f / 3);
  r = r * z;
  /* log(1 + f) = f - h + s (h + r) */
  return PROG_FMA(k, VM_LN2_HI, f - (h - PROG_FMA(s, h + r, k * VM_LN2_LO)));
}
VM int vm_log_is_near(float x) { return (x >= 0x1p-126f) & (x < INFINITY); }
VM float vm_log_near(float x) { return vm_log_core(x, 0); }
VM float vm_log(float x) {
  float v = vm_log_core(x < 0x1p-126f ? x * 0x1p25f : x, x < 0x1p-126f ? 25 : 0);
  v = x == 0 ? -INFINITY : v;
  v = x < 0 || x != x ? NAN : v;
  return x == INFINITY ? x : v;
}

VM float vm_exp2(float x) {
  float k = vm_round(x);
  int32_t n = (int32_t)k, h = n >> 1;
  float p = 1.0f + vm_expm1_core((x - k) * 0.693147181f);
  p = p * vm_pow2(h) * vm_pow2(n - h);
  p = x > 129.0f ? INFINITY : p;
  return x < -151.0f ? 0.0f : p;
}

/* erfinv(x) = x times a function of w = -log(1 - x^2), smooth in w up to 5 and in its root beyond: a fit for each, relative error below 9e-8. */
VM float vm_erfinv(float x) {
  float rest = (1 - x) * (1 + x), w = -vm_log_near(rest), a = w - 2.5f, b = __builtin_sqrtf(__builtin_fabsf(w)) - 3.16803399f;
  float p = PROG_FMA(-8.79102924e-09f, a, 2.32326318e-08f), q = PROG_FMA(-0.000159776057f, b, -0.00013226438f);
  p = PROG_FMA(p, a, 4.66170292e-07f);
  p = PROG_FMA(p, a, -3.46270463e-06f);
  p = PROG_FMA(p, a, -4.96334633e-06f);
  p = PROG_FMA(p, a, 0.000218344445f);
  p = PROG_FMA(p, a, -0.0012527419f);
  p = PROG_FMA(p, a, -0.00417738687f);
  p = PROG_FMA(p, a, 0.24664028f);
  p = PROG_FMA(p, a, 1.50140941f);
  q = PROG_FMA(q, b, 0.00126298575f);
  q = PROG_FMA(q, b, -0.00234721997f);
  q = PROG_FMA(q, b, 0.00324551901f);
  q = PROG_FMA(q, b, -0.00465972954f);
  q = PROG_FMA(q, b, 0.00640948815f);
  q = PROG_FMA(q, b, 1.00429499f);
  q = PROG_FMA(q, b, 3.00152659f);
  float v = x * (w < 5 ? p : q);
  v = rest > 0 ? v : NAN;
  return __builtin_fabsf(x) == 1 ? x * INFINITY : v;
}

/* erf(a) = -expm1(-q(a)) with q = -log(erfc(a)), which is smooth: a fit of q(a) / a up to 4, where erf is 1; relative error of the result below 5e-9. */
VM float vm_erf(float x) {
  float a = __builtin_fabsf(x);
  a = a > 4.0f ? 4.0f : a;
  float q = PROG_FMA(-9.256281298941627e-06f, a, 0.00011764141655432048f), z = a * a;
  float p = PROG_FMA(PROG_FMA(q, a, -0.0006328373789411257f), z, PROG_FMA(0.0016670284354912968f, a, -0.0001603970680210398f));
  q = PROG_FMA(PROG_FMA(-0.01915306333682265f, a, 0.1027778303443454f), z, PROG_FMA(0.6366193819866639f, a, 0.1283791716106282f));
  q = PROG_FMA(PROG_FMA(p, z * z, q), a, a);
  float s = vm_biased_pow2(vm_exp_parts(-q, &p));
  return __builtin_copysignf(PROG_FMA(s, p, s - 1), x);
}

/* ---- functions of float that are computed in double, where a short series is exact enough ---- */

/* log of a positive finite normal double; relative error below 1e-10. */
VM double vm_log_wide(double x) {
  const int64_t root = 0x3fe6a09e667f3bcd; /* sqrt(1/2) */
  uint64_t u = (uint64_t)vm_i64(x) - (uint64_t)root + ((uint64_t)1023 << 52);
  double k = vm_f64((int64_t)(u >> 52 | 0x4330000000000000u)) - (0x1p52 + 1023); /* integer to double by its bits */
  double f = vm_f64((int64_t)((u & 0xfffffffffffffu) + (uint64_t)root)) - 1, s = f / (2 + f), z = s * s;
  double p = 2.0 / 11;
  p = PROG_FMAD(p, z, 2.0 / 9);
  p = PROG_FMAD(p, z, 2.0 / 7);
  p = PROG_FMAD(p, z, 2.0 / 5);
  p = PROG_FMAD(p, z, 2.0 / 3);
  p = PROG_FMAD(p, z, 2.0);
  return PROG_FMAD(p, s, k * 0.69314718055994531);
}

/* log(x) * scale for every float x. */
VM float vm_log_scaled(float x, double scale) {
  float v = (float)(vm_log_wide(x) * scale);
  v = x == 0 ? -INFINITY : v;
  v = x < 0 || x != x ? NAN : v;
  return x == INFINITY ? x : v;
}

VM float vm_log1p(float x) {
  float v = (float)vm_log_wide(1.0 + (double)x);
  v = __builtin_fabsf(x) < 0x1p-20f ? x - 0.5f * x * x : v;
  v = x == -1 ? -INFINITY : v;
  v = x < -1 || x != x ? NAN : v;
  return x == INFINITY ? x : v;
}

/* Arguments that vm_sin and the like handle: the reduction by parts of pi/2 is exact for quotients below 2^20. */
VM int vm_trig_near(float x) { return __builtin_fabsf(x) <= 1e6f; }

VM void vm_sincos(float xf, double *sin_out, double *cos_out) {
  double x = xf, m = x * 0.63661977236758134 + 0x1.8p52, k = m - 0x1.8p52;
  uint64_t n = (uint64_t)vm_i64(m);
  double r = PROG_FMAD(k, -0x1.921fb544p+0, x); /* pi/2 in parts of 33, 33 and 53 bits */
  r = PROG_FMAD(k, -0x1.0b4611a6p-34, r);
  r = PROG_FMAD(k, -0x1.3198a2e037073p-69, r);
  double z = r * r, s = -1.0 / 39916800, c = -1.0 / 3628800;
  s = PROG_FMAD(s, z, 1.0 / 362880);
  s = PROG_FMAD(s, z, -1.0 / 5040);
  s = PROG_FMAD(s, z, 1.0 / 120);
  s = PROG_FMAD(s, z, -1.0 / 6);
  s = PROG_FMAD(s * z, r, r);
  c = PROG_FMAD(c, z, 1.0 / 40320);
  c = PROG_FMAD(c, z, -1.0 / 720);
  c = PROG_FMAD(c, z, 1.0 / 24);
  c = PROG_FMAD(c, z, -0.5);
  c = PROG_FMAD(c, z, 1.0);
  uint64_t swap = 0 - (n & 1); /* odd quarters exchange sine and cosine */
  uint64_t sb = (uint64_t)vm_i64(s), cb = (uint64_t)vm_i64(c);
  *sin_out = vm_f64((int64_t)(((sb & ~swap) | (cb & swap)) ^ (n & 2) << 62));
  *cos_out = vm_f64((int64_t)(((cb & ~swap) | (sb & swap)) ^ ((n + 1) & 2) << 62));
}
#ifdef __FMA__
/* With fused products float is enough: the first difference is exact (multiples of 2^-23 below 1), the others round relative to the result. The series are
 * minimax fits up to |r| = 0.86, relative errors below 8e-9. Quarter `q` is added: 1 makes a cosine of the sine. */
VM float vm_sin_quarter(float x, int32_t q) {
  float y = PROG_FMA(x, 0.636619772f, 12582912.0f), k = y - 12582912.0f;
  float r = PROG_FMA(k, -0x1.921fb6p+0f, x);
  r = PROG_FMA(k, 0x1.777a5cp-25f, r);
  r = PROG_FMA(k, 0x1.ee59dap-50f, r);
  float z = r * r;
  float s = PROG_FMA(PROG_FMA(-0.00019453f, z, 0.00833167f), z, -0.16666646f);
  float c = PROG_FMA(PROG_FMA(2.4358745e-05f, z, -0.00138866126f), z, 0.04166663f);
  s = PROG_FMA(s, z * r, r);
  c = PROG_FMA(c, z * z, PROG_FMA(z, -0.5f, 1.0f));
  uint32_t n = (uint32_t)vm_i32(y) + (uint32_t)q;
  float v = n & 1 ? c : s;
  return vm_f32((int32_t)((uint32_t)vm_i32(v) ^ (n & 2) << 30));
}
VM float vm_sin(float x) {
  float v = vm_sin_quarter(x, 0);
  return x == 0 ? x : v;
}
VM float vm_cos(float x) { return vm_sin_quarter(x, 1); }
#else
VM float vm_sin(float x) {
  double s, c;
  vm_sincos(x, &s, &c);
  float v = (float)s;
  return x == 0 ? x : v;
}
VM float vm_cos(float x) {
  double s, c;
  vm_sincos(x, &s, &c);
  return (float)c;
}
#endif
VM float vm_tan(float x) {
  double s, c;
  vm_sincos(x, &s, &c);
  float v = (float)(s / c);
  return x == 0 ? x : v;
}

/* exp of |t| < 700; relative error below 1e-11. */
VM double vm_exp_wide(double t) {
  double m = t * 1.4426950408889634 + 0x1.8p52, k = m - 0x1.8p52;
  double r = PROG_FMAD(k, -0.69314718055994531, t), p = 1.0 / 362880;
  p = PROG_FMAD(p, r, 1.0 / 40320);
  p = PROG_FMAD(p, r, 1.0 / 5040);
  p = PROG_FMAD(p, r, 1.0 / 720);
  p = PROG_FMAD(p, r, 1.0 / 120);
  p = PROG_FMAD(p, r, 1.0 / 24);
  p = PROG_FMAD(p, r, 1.0 / 6);
  p = PROG_FMAD(p, r, 0.5);
  p = PROG_FMAD(p, r, 1.0);
  p = PROG_FMAD(p, r, 1.0);
  return vm_f64((int64_t)((uint64_t)vm_i64(p) + ((uint64_t)vm_i64(m) << 52))); /* p * 2^k: the low bits of m hold k */
}

/* x^y of a positive finite normal x and a finite y; others are libm's. */
VM int vm_pow_near(float x, float y) { return x >= 0x1p-126f && x < INFINITY && __builtin_fabsf(y) < INFINITY; }
VM float vm_pow(float x, float y) {
  double t = (double)y * vm_log_wide(x);
  float v = (float)vm_exp_wide(t);
  v = t > 89 ? INFINITY : v;
  return t < -104 ? 0.0f : v;
}

/* sinh and cosh: exp in double; below 1/2, where the difference of two exponentials loses digits, a series. */
VM float vm_sinh(float x) {
  double a = __builtin_fabs((double)x), e = vm_exp_wide(a > 100 ? 100.0 : a), z = a * a, p = 1.0 / 39916800;
  p = PROG_FMAD(p, z, 1.0 / 362880);
  p = PROG_FMAD(p, z, 1.0 / 5040);
  p = PROG_FMAD(p, z, 1.0 / 120);
  p = PROG_FMAD(p, z, 1.0 / 6);
  p = PROG_FMAD(p * z, a, a);
  float v = (float)(a < 0.5 ? p : 0.5 * (e - 1.0 / e));
  v = __builtin_copysignf(v, x);
  return x != x ? x : v;
}
VM float vm_cosh(float x) {
  double a = __builtin_fabs((double)x), e = vm_exp_wide(a > 100 ? 100.0 : a);
  float v = (float)(0.5 * (e + 1.0 / e));
  return x != x ? x : v;
}

/* The inverse hyperbolic functions: logarithms in double; of tiny arguments, where 1 + u loses digits, the first terms. */
VM float vm_asinh(float x) {
  double a = __builtin_fabs((double)x), u = a + a * a / (1 + __builtin_sqrt(a * a + 1));
  double w = a < 0x1p-10 ? a - a * a * a * (1.0 / 6) : vm_log_wide(1 + u);
  float v = __builtin_copysignf((float)w, x);
  return __builtin_fabsf(x) < INFINITY ? v : x;
}
VM float vm_acosh(float x) {
  double t = (double)x - 1;
  float v = (float)vm_log_wide(1 + (t + __builtin_sqrt(t * (t + 2))));
  v = x < 1 || x != x ? NAN : v;
  v = x == 1 ? 0.0f : v;
  return x == INFINITY ? x : v;
}
VM float vm_atanh(float x) {
  double a = __builtin_fabs((double)x), w = a < 0x1p-10 ? a + a * a * a * (1.0 / 3) : 0.5 * vm_log_wide((1 + a) / (1 - a));
  float v = (float)w;
  v = a == 1 ? INFINITY : v;
  v = a <= 1 ? v : NAN;
  return __builtin_copysignf(v, x);
}

/* The angle of (x, y): a series on the quotient of the smaller by the larger, above tan(pi/8) turned by pi/4. */
VM double vm_angle(double y, double x) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y), most = a > b ? a : b, least = a > b ? b : a;
  int turned = (least > most * 0.41421356237309503) | (least == INFINITY);
  double above = turned ? least - most : least, below = turned ? least + most : most;
  double q = above / below;
  q = above == 0 || least == INFINITY ? 0.0 : q; /* 0 / 0, inf / inf */
  double z = q * q, p = 1.0 / 25;
  p = PROG_FMAD(p, z, -1.0 / 23);
  p = PROG_FMAD(p, z, 1.0 / 21);
  p = PROG_FMAD(p, z, -1.0 / 19);
  p = PROG_FMAD(p, z, 1.0 / 17);
  p = PROG_FMAD(p, z, -1.0 / 15);
  p = PROG_FMAD(p, z, 1.0 / 13);
  p = PROG_FMAD(p, z, -1.0 / 11);
  p = PROG_FMAD(p, z, 1.0 / 9);
  p = PROG_FMAD(p, z, -1.0 / 7);
  p = PROG_FMAD(p, z, 1.0 / 5);
  p = PROG_FMAD(p, z, -1.0 / 3);
  p = PROG_FMAD(p * z, q, q);
  p = turned ? p + 0.78539816339744831 : p;
  p = b > a ? 1.5707963267948966 - p : p;
  p = __builtin_copysign(1.0, x) < 0 ? 3.1415926535897931 - p : p;
  p = x != x || y != y ? (double)NAN : p;
  return __builtin_copysign(p, y);
}
VM float vm_atan2(float y, float x) { return (float)vm_angle(y, x); }
VM float vm_atan(float x) { return (float)vm_angle(x, 1); }
VM float vm_asin(float x) { return (float)vm_angle(x, __builtin_sqrt((1 - (double)x) * (1 + (double)x))); }
VM float vm_acos(float x) { return (float)vm_angle(__builtin_sqrt((1 - (double)x) * (1 + (double)x)), x); }

VM float vm_hypot(float x, float y) {
  float v = (float)__builtin_sqrt((double)x * x + (double)y * y);
  return __builtin_fabsf(x) == INFINITY || __builtin_fabsf(y) == INFINITY ? INFINITY : v;
}

/* fmod where the quotient has at most 28 bits: its product with y has 52, so that nothing is rounded, and the quotient of doubles
 * does not reach the next whole number. */
VM int vm_fmod_near(float x, float y) { return __builtin_fabsf(x) < __builtin_fabsf(y) * 0x1p28f && __builtin_fabsf(y) < INFINITY; }
VM float vm_fmod(float x, float y) {
  double q = __builtin_trunc((double)x / (double)y);
  return __builtin_copysignf((float)((double)x - q * (double)y), x);
}
VM float vm_remainder(float x, float y) {
  float r = vm_fmod(x, y), other = r + y;
  int turn = (r != 0) & ((y < 0) != (r < 0));
  return turn ? other : r;
}
VM float vm_floordiv(float x, float y) {
  float r = vm_fmod(x, y), q = (x - r) / y, less = q - 1;
  int turn = (r != 0) & ((y < 0) != (r < 0));
  q = turn ? less : q;
  float f = __builtin_floorf(q), up = f + 1, zero = __builtin_copysignf(0.0f, x / y);
  f = q - f > 0.5f ? up : f;
  return q == 0 ? zero : f;
}

/* ---- 64-bit integers of at most 50 bits, by way of double: 1.5 * 2^52 as a bit pattern and as a number are the same place ---- */

VM int vm_whole_near(int64_t x) { return (uint64_t)x + ((uint64_t)1 << 50) < (uint64_t)1 << 51; }
VM double vm_whole_f64(int64_t x) { return vm_f64((int64_t)((uint64_t)x + 0x4338000000000000u)) - 0x1.8p52; }
VM int64_t vm_f64_whole(double x) { return (int64_t)((uint64_t)vm_i64(x + 0x1.8p52) - 0x4338000000000000u); }

/* The quotients have a relative distance of at least 2^-50 from the whole numbers they are not. */
VM int vm_idiv_near(int64_t x, int64_t y) { return vm_whole_near(x) & vm_whole_near(y) & (y != 0); }
VM int64_t vm_idiv(int64_t x, int64_t y) { return vm_f64_whole(__builtin_trunc(vm_whole_f64(x) / vm_whole_f64(y))); }
VM int64_t vm_ifloordiv(int64_t x, int64_t y) { return vm_f64_whole(__builtin_floor(vm_whole_f64(x) / vm_whole_f64(y))); }
VM int64_t vm_ifmod(int64_t x, int64_t y) {
  double a = vm_whole_f64(x), b = vm_whole_f64(y);
  return vm_f64_whole(a - __builtin_trunc(a / b) * b);
}
VM int64_t vm_iremainder(int64_t x, int64_t y) {
  double a = vm_whole_f64(x), b = vm_whole_f64(y);
  return vm_f64_whole(a - __builtin_floor(a / b) * b);
}
#endif
