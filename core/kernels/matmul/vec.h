/* The vector vocabulary of the matmul kernels: V is VL floats. The including file sets TNXK_VL and may define
 * TNXK_VEC_AVX2 or TNXK_VEC_AVX512; without them every operation is plain C on compiler vectors, which serves other
 * processors and lets the wide variants be tested on narrow machines. Included by one kernel file at a time. */
#ifndef TNXK_MATMUL_VEC_H
#define TNXK_MATMUL_VEC_H
#include <string.h>

#include "base/half.h"
#include "tnx/dtype.h"

#if defined(TNXK_VEC_AVX2) || defined(TNXK_VEC_AVX512)
#include <immintrin.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* wide vectors never cross a call here: everything is inlined */
#endif

#define VL TNXK_VL
#define INL static inline __attribute__((always_inline, unused))

typedef float V __attribute__((vector_size(4 * VL)));
typedef uint32_t VU __attribute__((vector_size(4 * VL)));
typedef int32_t VI __attribute__((vector_size(4 * VL)));

INL V v_load(const float *p) { V v; memcpy(&v, p, sizeof v); return v; }
INL void v_store(float *p, V v) { memcpy(p, &v, sizeof v); }
INL V v_zero(void) { return (V){0}; }
INL V v_set1(float x) { return x - (V){0}; }
INL V v_select(VI mask, V yes, V no) { return (V)((mask & (VI)yes) | (~mask & (VI)no)); }
INL V v_max(V a, V b) { return v_select(a > b, a, b); }
INL V v_min(V a, V b) { return v_select(a < b, a, b); }

/* Of 2 VL consecutive bfloat16, the VL of even and of odd position: one operation each, no shuffle. */
INL V v_load_bf16_even(const void *p) { VU u; memcpy(&u, p, sizeof u); return (V)(u << 16); }
INL V v_load_bf16_odd(const void *p) { VU u; memcpy(&u, p, sizeof u); return (V)(u & 0xffff0000u); }

INL VU v_bf16_bits(V v) {
  VU u = (VU)v;
  VU r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  VU nan = (VU)(v != v);
  return (r & ~nan) | (nan & 0x7fc0u);
}

#if defined(TNXK_VEC_AVX2)
INL V v_fma(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INL V v_bcast(const float *p) { return (V)_mm256_broadcast_ss(p); }
INL V v_load_bf16(const uint16_t *p) {
  __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  return (V)_mm256_slli_epi32(w, 16);
}
INL V v_load_f16(const uint16_t *p) { return (V)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INL V v_load_i8(const int8_t *p) { return (V)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
INL void v_store_bf16(uint16_t *p, V v) {
  __m256i u = (__m256i)v_bf16_bits(v);
  _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1)));
}
INL void v_store_f16(uint16_t *p, V v) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INL float v_sum(V v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INL void v_transpose(V r[VL]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
  }
  for (int h = 0; h < 2; h++) {
    __m256 a = t[h], b = t[2 + h], c = t[4 + h], d = t[6 + h];
    __m256 ab0 = _mm256_shuffle_ps(a, b, 0x44), ab1 = _mm256_shuffle_ps(a, b, 0xee);
    __m256 cd0 = _mm256_shuffle_ps(c, d, 0x44), cd1 = _mm256_shuffle_ps(c, d, 0xee);
    r[2 * h] = (V)_mm256_permute2f128_ps(ab0, cd0, 0x20);
    r[2 * h + 1] = (V)_mm256_permute2f128_ps(ab1, cd1, 0x20);
    r[4 + 2 * h] = (V)_mm256_permute2f128_ps(ab0, cd0, 0x31);
    r[4 + 2 * h + 1] = (V)_mm256_permute2f128_ps(ab1, cd1, 0x31);
  }
}
#else
#if defined(TNXK_VEC_AVX512)
INL V v_fma(V a, V b, V c) { return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INL V v_load_bf16(const uint16_t *p) {
  __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
  return (V)_mm512_slli_epi32(w, 16);
}
INL V v_load_f16(const uint16_t *p) { return (V)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INL V v_load_i8(const int8_t *p) { return (V)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INL void v_store_bf16(uint16_t *p, V v) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v_bf16_bits(v)));
}
INL void v_store_f16(uint16_t *p, V v) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INL float v_sum(V v) { return _mm512_reduce_add_ps((__m512)v); }
#else
INL V v_fma(V a, V b, V c) {
#if defined(__FP_FAST_FMAF) && !defined(TNX_EMULATE_ISA)
  for (int i = 0; i < VL; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}
INL V v_load_bf16(const uint16_t *p) {
  VU u = {0};
  for (int i = 0; i < VL; i++) u[i] = (uint32_t)p[i] << 16;
  return (V)u;
}
/* Called, not inlined: long, and rare where it is used. */
static __attribute__((noinline, unused)) void f16_to_f32_row(const uint16_t *p, float *out) {
  for (int i = 0; i < VL; i++) out[i] = tnx_f16_to_f32(p[i]);
}
INL V v_load_f16(const uint16_t *p) {
  float x[VL];
  f16_to_f32_row(p, x);
  return v_load(x);
}
INL V v_load_i8(const int8_t *p) {
  V v;
  for (int i = 0; i < VL; i++) v[i] = p[i];
  return v;
}
INL void v_store_bf16(uint16_t *p, V v) { for (int i = 0; i < VL; i++) p[i] = tnx_f32_to_bf16(v[i]); }
INL void v_store_f16(uint16_t *p, V v) { for (int i = 0; i < VL; i++) p[i] = tnx_f32_to_f16(v[i]); }
INL float v_sum(V v) {
  float s[VL];
  v_store(s, v);
  for (int h = VL / 2; h > 0; h /= 2)
    for (int i = 0; i < h; i++) s[i] += s[i + h];
  return s[0];
}
#endif
INL V v_bcast(const float *p) { int32_t i; memcpy(&i, p, 4); return (V)(i - (VI){0}); }
/* log2(VL) perfect shuffles of the rows transpose a VL x VL block. */
INL void v_transpose(V r[VL]) {
  VI lo, hi;
  for (int i = 0; i < VL; i++) lo[i] = i / 2 + (i % 2) * VL, hi[i] = lo[i] + VL / 2;
  for (int s = 1; s < VL; s *= 2) {
    V t[VL];
    for (int i = 0; i < VL / 2; i++) {
      t[2 * i] = __builtin_shuffle(r[i], r[i + VL / 2], lo);
      t[2 * i + 1] = __builtin_shuffle(r[i], r[i + VL / 2], hi);
    }
    for (int i = 0; i < VL; i++) r[i] = t[i];
  }
}
#endif

/* The multiply-add of the kernels. With TNXK_PAIRS its operands are 32-bit words of two bfloat16 (VDPBF16PS):
 * c + a.even * b.even + a.odd * b.odd. KSTEP is the elements of k in one word. */
#if defined(TNXK_PAIRS)
enum { KSTEP = 2, PAIRS = 1 };
INL V v_mac(V a, V b, V c) {
#if defined(TNXK_VEC_AVX512)
  return (V)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#else
  c = v_fma(v_load_bf16_even(&a), v_load_bf16_even(&b), c);
  return v_fma(v_load_bf16_odd(&a), v_load_bf16_odd(&b), c);
#endif
}
#else
enum { KSTEP = 1, PAIRS = 0 };
INL V v_mac(V a, V b, V c) { return v_fma(a, b, c); }
#endif

/* Bytes of an element of the types that v_load_dt reads. */
INL int v_bytes(int dt) { return dt == TNX_F32 ? 4 : dt == TNX_I8 ? 1 : 2; }

INL V v_load_dt(const void *p, int dt) {
  if (dt == TNX_F32) return v_load((const float *)p);
  if (dt == TNX_I8) return v_load_i8((const int8_t *)p);
  return dt == TNX_BF16 ? v_load_bf16((const uint16_t *)p) : v_load_f16((const uint16_t *)p);
}

/* The elements in the first `bytes` bytes, zeros after them; nothing is read past those. */
INL V v_load_dt_part(const void *p, int64_t bytes, int dt) {
  char buf[4 * VL] = {0};
  memcpy(buf, p, (size_t)bytes);
  return v_load_dt(buf, dt);
}

/* 2 VL elements as two vectors, in the order that is cheapest for the type: the "pair order". */
INL V v_load_lo(const void *p, int dt) { return dt == TNX_BF16 ? v_load_bf16_even(p) : v_load_dt(p, dt); }
INL V v_load_hi(const void *p, int dt) {
  return dt == TNX_BF16 ? v_load_bf16_odd(p) : v_load_dt((const char *)p + VL * v_bytes(dt), dt);
}

/* Two vectors in pair order, written in memory order. */
INL void v_store_pair(float *p, V lo, V hi, int dt) {
  if (dt == TNX_BF16) {
    float x[2 * VL];
    v_store(x, lo);
    v_store(x + VL, hi);
    for (int i = 0; i < VL; i++) p[2 * i] = x[i], p[2 * i + 1] = x[VL + i];
  } else {
    v_store(p, lo);
    v_store(p + VL, hi);
  }
}

/* e^x for the activations: x clamped to where the result is finite and normal; about 2 ulp.
 * Range reduction by ln 2 in two parts, polynomial of degree 6 in the remainder. */
INL V v_exp(V x) {
  x = v_max(v_min(x, v_set1(88.37f)), v_set1(-87.3f));
  V shift = v_set1(12582912.0f);
  V n = x * v_set1(1.44269504088896341f) + shift - shift;
  V r = v_fma(n, v_set1(-0.693145751953125f), x);
  r = v_fma(n, v_set1(-1.42860682030941723212e-6f), r);
  V p = v_set1(1.0f / 720);
  p = v_fma(p, r, v_set1(1.0f / 120));
  p = v_fma(p, r, v_set1(1.0f / 24));
  p = v_fma(p, r, v_set1(1.0f / 6));
  p = v_fma(p, r, v_set1(0.5f));
  p = v_fma(p, r, v_set1(1.0f));
  p = v_fma(p, r, v_set1(1.0f));
  VI e = (__builtin_convertvector(n, VI) + 127) << 23;
  return p * (V)e;
}

/* erf, Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7. */
INL V v_erf(V x) {
  VU sign = (VU)x & 0x80000000u;
  V z = (V)((VU)x & 0x7fffffffu);
  V t = v_set1(1.0f) / v_fma(z, v_set1(0.3275911f), v_set1(1.0f));
  V p = v_set1(1.061405429f);
  p = v_fma(p, t, v_set1(-1.453152027f));
  p = v_fma(p, t, v_set1(1.421413741f));
  p = v_fma(p, t, v_set1(-0.284496736f));
  p = v_fma(p, t, v_set1(0.254829592f));
  V r = v_set1(1.0f) - p * t * v_exp(-(z * z));
  return (V)((VU)r | sign);
}
#endif
