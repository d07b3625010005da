/* Scalar conversions of the narrow float formats, round to nearest even, NaN kept quiet. Reference for the SIMD paths.
 * Formats: bfloat16 and IEEE binary16; float8 e4m3fn and e5m2 after "FP8 Formats for Deep Learning" (arXiv 2209.05433). */
#ifndef TNX_BASE_HALF_H
#define TNX_BASE_HALF_H
#include <stdint.h>
#include <string.h>

static inline float tnx_f32_from_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t tnx_f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

static inline float tnx_bf16_to_f32(uint16_t h) { return tnx_f32_from_bits((uint32_t)h << 16); }
static inline uint16_t tnx_f32_to_bf16(float f) {
  uint32_t u = tnx_f32_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float tnx_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, em = h & 0x7fffu;
  if (em >= 0x7c00u) return tnx_f32_from_bits(sign | 0x7f800000u | ((em & 0x3ffu) << 13) | ((em & 0x3ffu) ? 0x400000u : 0));
  if (em < 0x400u) { /* zero or subnormal: em * 2^-24 is exact in float32 */
    float f = (float)em * 0x1p-24f;
    return tnx_f32_from_bits(tnx_f32_bits(f) | sign);
  }
  return tnx_f32_from_bits(sign | ((em << 13) + (112u << 23)));
}
static inline uint16_t tnx_f32_to_f16(float f) {
  uint32_t u = tnx_f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65520 or more */
  if (a < 0x38800000u) {                                   /* subnormal result: let the adder round */
    float r = tnx_f32_from_bits(a) + 0.5f;
    return (uint16_t)(sign | (tnx_f32_bits(r) - 0x3f000000u));
  }
  return (uint16_t)(sign | ((a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13));
}

static inline float tnx_f8e5m2_to_f32(uint8_t v) { return tnx_f16_to_f32((uint16_t)(v << 8)); }
static inline uint8_t tnx_f32_to_f8e5m2(float f) {
  uint32_t u = tnx_f32_bits(f), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (a >= 0x47700000u) return (uint8_t)(sign | 0x7cu); /* 61440 and above: infinity */
  if (a < 0x38800000u) { /* below 2^-14: multiples of 2^-16 */
    float r = tnx_f32_from_bits(a) + 128.0f;
    return (uint8_t)(sign | (tnx_f32_bits(r) - 0x43000000u));
  }
  return (uint8_t)(sign | ((a + 0xfffffu + ((a >> 21) & 1u) - (112u << 23)) >> 21));
}
static inline float tnx_f8e4m3_to_f32(uint8_t v) {
  uint32_t sign = (uint32_t)(v & 0x80u) << 24, em = v & 0x7fu;
  if (em == 0x7fu) return tnx_f32_from_bits(sign | 0x7fc00000u);
  if (em < 8) return tnx_f32_from_bits(tnx_f32_bits((float)em * 0x1p-9f) | sign);
  return tnx_f32_from_bits(sign | ((em << 20) + (120u << 23)));
}
static inline uint8_t tnx_f32_to_f8e4m3(float f) {
  uint32_t u = tnx_f32_bits(f), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (a >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* no infinity in this format: 448 and above stay at 448, as in PyTorch */
  if (a < 0x3c800000u) { /* below 2^-6: multiples of 2^-9 */
    float r = tnx_f32_from_bits(a) + 16384.0f;
    return (uint8_t)(sign | (tnx_f32_bits(r) - 0x46800000u));
  }
  return (uint8_t)(sign | ((a + 0x7ffffu + ((a >> 20) & 1u) - (120u << 23)) >> 20));
}
#endif
