/* float32 functions without branches, so that the compiler vectorises the loops that call them. Included by body.h, once per
 * ISA. Polynomials are truncated Taylor series on ranges small enough for them; errors in the comments are the measured
 * maxima (test_program.c checks them). Without FMA hardware PROG_FMA rounds twice and the error grows by up to 1 ulp. */
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

/* exp(r) - 1 for |r| <= ln2 / 2. */
VM float vm_expm1_core(float r) {
  float p = 1.0f / 5040;
  p = PROG_FMA(p, r, 1.0f / 720);
  p = PROG_FMA(p, r, 1.0f / 120);
  p = PROG_FMA(p, r, 1.0f / 24);
  p = PROG_FMA(p, r, 1.0f / 6);
  p = PROG_FMA(p, r, 0.5f);
  return PROG_FMA(p * r, r, r);
}

#define VM_LN2_HI 0.693359375f
#define VM_LN2_LO (-2.12194440e-4f)

/* Out of range the steps below compute nonsense, which the last selections replace: clamping the argument first would
 * make the compiler split the loop into paths. */
VM float vm_exp(float x) {
  float k = vm_round(x * 1.44269504f);
  float r = PROG_FMA(k, -VM_LN2_LO, PROG_FMA(k, -VM_LN2_HI, x));
  int32_t n = (int32_t)k, h = n >> 1;
  float p = 1.0f + vm_expm1_core(r);
  p = p * vm_pow2(h) * vm_pow2(n - h); /* two steps: subnormal results round once, 2^128 overflows to infinity */
  p = x > 89.0f ? INFINITY : p;
  return x < -104.0f ? 0.0f : p;
}

VM float vm_expm1(float x) {
  float k = vm_round(x * 1.44269504f);
  float r = PROG_FMA(k, -VM_LN2_LO, PROG_FMA(k, -VM_LN2_HI, x));
  int32_t n = (int32_t)k, h = n >> 1;
  /* 2^n p + (2^n - 1), scaled by 2^-h so that 2^128 does not appear before the end. */
  float s = vm_pow2(n - h), t = vm_pow2(-h), p = vm_expm1_core(r);
  float v = PROG_FMA(s, p, s - t) * vm_pow2(h);
  v = n == 0 ? p : v;
  v = x > 89.0f ? INFINITY : v;
  v = x < -20.0f ? -1.0f : v;
  return x == 0 ? x : v;
}

VM float vm_sigmoid(float x) { return 1.0f / (1.0f + vm_exp(-x)); }

VM float vm_tanh(float x) {
  float a = __builtin_fabsf(x), e = vm_expm1(2 * a), v = e / (e + 2);
  v = a > 10.0f ? 1.0f : v;
  return __builtin_copysignf(v, x);
}

/* log of x * 2^-adjust, split as e * ln2 + log(m), m in [sqrt(1/2), sqrt(2)). */
VM float vm_log(float x) {
  float y = x < 0x1p-126f ? x * 0x1p25f : x;
  int32_t u = vm_i32(y), e = (u - 0x3f3504f3) >> 23;
  float m = vm_f32(u - (int32_t)((uint32_t)e << 23)), k = (float)(x < 0x1p-126f ? e - 25 : e);
  float f = m - 1, s = f / (2 + f), z = s * s, h = 0.5f * f * f;
  float r = 2.0f / 9;
  r = PROG_FMA(r, z, 2.0f / 7);
  r = PROG_FMA(r, z, 2.0f / 5);
  r = PROG_FMA(r, z, 2.0f / 3);
  r = r * z;
  /* log(1 + f) = f - h + s (h + r) */
  float v = PROG_FMA(k, VM_LN2_HI, f - (h - PROG_FMA(s, h + r, k * VM_LN2_LO)));
  v = x == 0 ? -INFINITY : v;
  v = x < 0 || x != x ? NAN : v;
  return x == INFINITY ? x : v;
}
#endif
