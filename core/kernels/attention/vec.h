/* Internal to the attention family: the vector vocabulary of body.h, one `vf` of VW floats.
 * The including file defines VW (4, 8 or 16) and, for intrinsics, TNXK_VEC_AVX2 or TNXK_VEC_AVX512; without them, or with
 * TNX_EMULATE_ISA, the vocabulary is GCC's portable vector types, which the compiler lowers to whatever the machine has.
 * vf_bf16_even and vf_bf16_odd read elements 0, 2, 4.. and 1, 3, 5.. of 2 * VW bfloat16: a shift or a mask each, no shuffle.
 * vf_max(a, b) gives b where either is NaN. */
#ifndef TNXK_ATTENTION_VEC_H
#define TNXK_ATTENTION_VEC_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#if defined(TNXK_VEC_AVX512) && !defined(TNX_EMULATE_ISA)
#include <immintrin.h>
typedef __m512 vf;
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_select_lt(vf a, vf b, vf yes, vf no) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes); }
static inline vf vf_pow2_biased(vf t) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23)); }
static inline vf vf_load_bf16(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16)); }
static inline vf vf_bf16_even(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
static inline vf vf_bf16_odd(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000))); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out) {
  vf ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  vf cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  vf u = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(u), _mm512_extractf32x8_ps(u, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}
#elif defined(TNXK_VEC_AVX2) && !defined(TNX_EMULATE_ISA)
#include <immintrin.h>
typedef __m256 vf;
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_select_lt(vf a, vf b, vf yes, vf no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
static inline vf vf_pow2_biased(vf t) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23)); }
static inline vf vf_load_bf16(const uint16_t *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16)); }
static inline vf vf_bf16_even(const uint16_t *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 16)); }
static inline vf vf_bf16_odd(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi32((int)0xffff0000)));
}
static inline vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out) {
  vf ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  vf cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  vf u = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(u), _mm256_extractf128_ps(u, 1)));
}
static inline float vf_sum(vf v) {
  __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  h = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(h, _mm_shuffle_ps(h, h, 1)));
}
#else
#pragma GCC diagnostic ignored "-Wpsabi" /* the functions are inlined: no vector crosses a call */
typedef float vf __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VW * 4), aligned(4)));
typedef uint16_t vh __attribute__((vector_size(VW * 2), aligned(2), may_alias));
static inline vf vf_load(const float *p) { return *(const vf *)p; }
static inline void vf_store(float *p, vf v) { *(vf *)p = v; }
static inline vf vf_set1(float x) { return x - (vf){0}; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
#define VF_SELECT(m, yes, no) (vf)(((vi)(yes) & (m)) | ((vi)(no) & ~(m)))
static inline vf vf_max(vf a, vf b) { return VF_SELECT(a > b, a, b); }
static inline vf vf_select_lt(vf a, vf b, vf yes, vf no) { return VF_SELECT(a < b, yes, no); }
static inline vf vf_pow2_biased(vf t) { return (vf)(((vi)t + 127) << 23); }
static inline vf vf_load_bf16(const uint16_t *p) { return (vf)(__builtin_convertvector(*(const vh *)p, vi) << 16); }
static inline vf vf_bf16_even(const uint16_t *p) {
  vf v = {0};
  for (int i = 0; i < VW; i++) v[i] = tnx_bf16_to_f32(p[2 * i]);
  return v;
}
static inline vf vf_bf16_odd(const uint16_t *p) { return vf_bf16_even(p + 1); }
static inline vf vf_load_f16(const uint16_t *p) {
  vf v = {0};
  for (int i = 0; i < VW; i++) v[i] = tnx_f16_to_f32(p[i]);
  return v;
}
static inline float vf_sum(vf v) {
  float s = 0;
  for (int i = 0; i < VW; i++) s += v[i];
  return s;
}
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out) { out[0] = vf_sum(a), out[1] = vf_sum(b), out[2] = vf_sum(c), out[3] = vf_sum(d); }
#endif

/* exp for x <= 88, 0 below -87.3 (so exp(-inf) is 0), NaN kept. x = n ln 2 + f, |f| <= ln(2)/2; exp(f) by its Taylor series to
 * degree 6 (relative error 1.2e-7 at the ends), 2^n through the exponent field. Adding 1.5 * 2^23 rounds to an integer. */
static inline vf vf_exp(vf x) {
  const vf lowest = vf_set1(-87.3f), magic = vf_set1(0x1.8p23f);
  vf xc = vf_max(lowest, x);
  vf t = vf_fma(xc, vf_set1(0x1.715476p+0f), magic), n = vf_sub(t, magic);
  vf f = vf_fma(n, vf_set1(-0x1.62e4p-1f), xc); /* ln 2 in two parts; n times the first is exact */
  f = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), f);
  vf y = vf_set1(1.0f / 720);
  y = vf_fma(y, f, vf_set1(1.0f / 120));
  y = vf_fma(y, f, vf_set1(1.0f / 24));
  y = vf_fma(y, f, vf_set1(1.0f / 6));
  y = vf_fma(y, f, vf_set1(0.5f));
  y = vf_fma(y, f, vf_set1(1));
  y = vf_fma(y, f, vf_set1(1));
  return vf_select_lt(x, lowest, vf_set1(0), vf_mul(y, vf_pow2_biased(t)));
}
#endif
