/* The loops of the reductions over ranks; the including file names its table with TABLE(name) and may define TNXK_F16C.
 *
 * A block of results is combined in a buffer that stays in the L1 cache and stored when all ranks are in it: `out` may be an input, and no rank's buffer is
 * read twice. Types whose arithmetic is not their own are widened block by block. */
#include <string.h>

#include "base/half.h"
#include "kernels/collective/collective.h"
#if defined(TNXK_F16C)
#include <immintrin.h>
#endif

enum { BLOCK = 1024 };
#define EACH(n) for (int64_t i = 0; i < (n); i++)

static inline void load_bf16(float *restrict to, const uint16_t *restrict from, int64_t n) { EACH(n) to[i] = tnx_bf16_to_f32(from[i]); }
static inline void store_bf16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  EACH(n) {
    uint32_t u = tnx_f32_bits(from[i]), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    to[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
  }
}
static inline void load_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
  int64_t i = 0;
#if defined(TNXK_F16C)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
  for (; i < n; i++) to[i] = tnx_f16_to_f32(from[i]);
}
static inline void store_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  int64_t i = 0;
#if defined(TNXK_F16C)
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(from + i), nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    v = _mm256_blendv_ps(v, _mm256_set1_ps(__builtin_nanf("")), nan); /* the one NaN that the scalar conversion gives */
    v = _mm256_or_ps(v, _mm256_and_ps(nan, _mm256_and_ps(_mm256_loadu_ps(from + i), _mm256_set1_ps(-0.0f)))); /* with its sign */
    _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; i < n; i++) to[i] = tnx_f32_to_f16(from[i]);
}
static inline void load_f8e4m3(float *restrict to, const uint8_t *restrict from, int64_t n) { EACH(n) to[i] = tnx_f8e4m3_to_f32(from[i]); }
static inline void store_f8e4m3(uint8_t *restrict to, const float *restrict from, int64_t n) { EACH(n) to[i] = tnx_f32_to_f8e4m3(from[i]); }
static inline void load_f8e5m2(float *restrict to, const uint8_t *restrict from, int64_t n) { EACH(n) to[i] = tnx_f8e5m2_to_f32(from[i]); }
static inline void store_f8e5m2(uint8_t *restrict to, const float *restrict from, int64_t n) { EACH(n) to[i] = tnx_f32_to_f8e5m2(from[i]); }

/* Signed sums wrap, as PyTorch's do: computed without sign. */
#undef MIN
#undef MAX
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b)) /* NaN wins */
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))

/* A type that is combined as it is stored: U is the type of its arithmetic. */
#define REDUCE_PLAIN(name, T, U, OP)                                                                      \
  static void reduce_##name(void *out, const void *const *in, int n, int64_t count, bool average) {       \
    T acc[BLOCK];                                                                                         \
    for (int64_t at = 0; at < count; at += BLOCK) {                                                       \
      int64_t m = count - at < BLOCK ? count - at : BLOCK;                                                \
      const T *restrict a = (const T *)in[0] + at, *restrict b = (const T *)in[n > 1 ? 1 : 0] + at;       \
      if (n > 1) EACH(m) acc[i] = (T)OP((U)a[i], (U)b[i]);                                                \
      else memcpy(acc, a, (size_t)m * sizeof(T));                                                         \
      for (int k = 2; k < n; k++) {                                                                       \
        const T *restrict c = (const T *)in[k] + at;                                                      \
        EACH(m) acc[i] = (T)OP((U)acc[i], (U)c[i]);                                                       \
      }                                                                                                   \
      if (average) EACH(m) acc[i] = (T)(acc[i] / n);                                                   \
      memcpy((T *)out + at, acc, (size_t)m * sizeof(T));                                                  \
    }                                                                                                     \
  }
/* A type that is combined in float32. */
#define REDUCE_WIDE(name, T, format, OP)                                                                  \
  static void reduce_##name(void *out, const void *const *in, int n, int64_t count, bool average) {       \
    float acc[BLOCK], next[BLOCK];                                                                        \
    for (int64_t at = 0; at < count; at += BLOCK) {                                                       \
      int64_t m = count - at < BLOCK ? count - at : BLOCK;                                                \
      load_##format(acc, (const T *)in[0] + at, m);                                                       \
      for (int k = 1; k < n; k++) {                                                                       \
        load_##format(next, (const T *)in[k] + at, m);                                                    \
        EACH(m) acc[i] = OP(acc[i], next[i]);                                                             \
      }                                                                                                   \
      if (average) EACH(m) acc[i] = acc[i] / (float)n;                                                    \
      store_##format((T *)out + at, acc, m);                                                              \
    }                                                                                                     \
  }
#define REDUCE_COMPLEX(name, T)                                                                           \
  static void reduce_##name(void *out, const void *const *in, int n, int64_t count, bool average) {       \
    T acc[2 * BLOCK];                                                                                     \
    for (int64_t at = 0; at < count; at += BLOCK) {                                                       \
      int64_t m = count - at < BLOCK ? count - at : BLOCK;                                                \
      memcpy(acc, (const T *)in[0] + 2 * at, (size_t)m * 2 * sizeof(T));                                  \
      for (int k = 1; k < n; k++) {                                                                       \
        const T *restrict b = (const T *)in[k] + 2 * at;                                                  \
        EACH(m) {                                                                                         \
          T re = acc[2 * i] * b[2 * i] - acc[2 * i + 1] * b[2 * i + 1];                                   \
          acc[2 * i + 1] = acc[2 * i] * b[2 * i + 1] + acc[2 * i + 1] * b[2 * i];                         \
          acc[2 * i] = re;                                                                                \
        }                                                                                                 \
      }                                                                                                   \
      memcpy((T *)out + 2 * at, acc, (size_t)m * 2 * sizeof(T));                                          \
    }                                                                                                     \
  }
#define REDUCE_FLOATS(name, T) REDUCE_PLAIN(name##_add, T, T, ADD) REDUCE_PLAIN(name##_mul, T, T, MUL) REDUCE_PLAIN(name##_min, T, T, MIN) REDUCE_PLAIN(name##_max, T, T, MAX)
#define REDUCE_INTS(name, T, U)                                                                                               \
  REDUCE_PLAIN(name##_add, T, U, ADD) REDUCE_PLAIN(name##_mul, T, U, MUL) REDUCE_PLAIN(name##_min, T, T, MIN)                 \
  REDUCE_PLAIN(name##_max, T, T, MAX) REDUCE_PLAIN(name##_and, T, U, AND) REDUCE_PLAIN(name##_or, T, U, OR) REDUCE_PLAIN(name##_xor, T, U, XOR)
#define REDUCE_WIDES(format, T)                                                                                               \
  REDUCE_WIDE(format##_add, T, format, ADD) REDUCE_WIDE(format##_mul, T, format, MUL) REDUCE_WIDE(format##_min, T, format, MIN) REDUCE_WIDE(format##_max, T, format, MAX)

REDUCE_INTS(u8, uint8_t, uint32_t)
REDUCE_INTS(i8, int8_t, uint32_t)
REDUCE_INTS(i16, int16_t, uint32_t)
REDUCE_INTS(i32, int32_t, uint32_t)
REDUCE_INTS(i64, int64_t, uint64_t)
REDUCE_INTS(u16, uint16_t, uint32_t)
REDUCE_INTS(u32, uint32_t, uint32_t)
REDUCE_INTS(u64, uint64_t, uint64_t)
REDUCE_WIDES(f8e4m3, uint8_t)
REDUCE_WIDES(f8e5m2, uint8_t)
REDUCE_WIDES(f16, uint16_t)
REDUCE_WIDES(bf16, uint16_t)
REDUCE_FLOATS(f32, float)
REDUCE_FLOATS(f64, double)
REDUCE_COMPLEX(c64_mul, float)
REDUCE_COMPLEX(c128_mul, double)

/* Sums of complex numbers are sums of twice as many real ones. */
static void reduce_c64_add(void *out, const void *const *in, int n, int64_t count, bool average) { reduce_f32_add(out, in, n, 2 * count, average); }
static void reduce_c128_add(void *out, const void *const *in, int n, int64_t count, bool average) { reduce_f64_add(out, in, n, 2 * count, average); }

tnxk_reduce_fn TABLE(tnxk_collective_reduce)(tnx_dtype dtype, tnx_reduce op) {
#define FLOATS(t) {t##_add, t##_add, t##_mul, t##_min, t##_max, NULL, NULL, NULL}
#define INTS(t) {t##_add, t##_add, t##_mul, t##_min, t##_max, t##_and, t##_or, t##_xor}
  static const tnxk_reduce_fn table[TNX_DTYPE_COUNT][TNX_REDUCE_COUNT] = {
      /* Of 0 and 1: the sum is "or" and the product "and". */
      [TNX_BOOL] = {reduce_u8_or, NULL, reduce_u8_and, reduce_u8_and, reduce_u8_or, reduce_u8_and, reduce_u8_or, reduce_u8_xor},
      [TNX_U8] = INTS(reduce_u8),         [TNX_I8] = INTS(reduce_i8),           [TNX_I16] = INTS(reduce_i16),       [TNX_I32] = INTS(reduce_i32),
      [TNX_I64] = INTS(reduce_i64),       [TNX_U16] = INTS(reduce_u16),         [TNX_U32] = INTS(reduce_u32),       [TNX_U64] = INTS(reduce_u64),
      [TNX_F8E4M3] = FLOATS(reduce_f8e4m3), [TNX_F8E5M2] = FLOATS(reduce_f8e5m2), [TNX_F16] = FLOATS(reduce_f16),     [TNX_BF16] = FLOATS(reduce_bf16),
      [TNX_F32] = FLOATS(reduce_f32),     [TNX_F64] = FLOATS(reduce_f64),
      [TNX_C64] = {reduce_c64_add, reduce_c64_add, reduce_c64_mul},
      [TNX_C128] = {reduce_c128_add, reduce_c128_add, reduce_c128_mul},
  };
  return (unsigned)dtype < TNX_DTYPE_COUNT && (unsigned)op < TNX_REDUCE_COUNT ? table[dtype][op] : NULL;
}

#define SCALE_PLAIN(name, T, F) \
  static void scale_##name(void *out, const void *in, int64_t count, double factor) { EACH(count)((T *)out)[i] = (T)((F)((const T *)in)[i] * (F)factor); }
#define SCALE_WIDE(format, T)                                                                             \
  static void scale_##format(void *out, const void *in, int64_t count, double factor) {                   \
    float block[BLOCK];                                                                                   \
    for (int64_t at = 0; at < count; at += BLOCK) {                                                       \
      int64_t m = count - at < BLOCK ? count - at : BLOCK;                                                \
      load_##format(block, (const T *)in + at, m);                                                        \
      EACH(m) block[i] *= (float)factor;                                                                  \
      store_##format((T *)out + at, block, m);                                                            \
    }                                                                                                     \
  }
SCALE_PLAIN(u8, uint8_t, double)
SCALE_PLAIN(i8, int8_t, double)
SCALE_PLAIN(i16, int16_t, double)
SCALE_PLAIN(i32, int32_t, double)
SCALE_PLAIN(i64, int64_t, double)
SCALE_PLAIN(u16, uint16_t, double)
SCALE_PLAIN(u32, uint32_t, double)
SCALE_PLAIN(u64, uint64_t, double)
SCALE_WIDE(f8e4m3, uint8_t)
SCALE_WIDE(f8e5m2, uint8_t)
SCALE_WIDE(f16, uint16_t)
SCALE_WIDE(bf16, uint16_t)
SCALE_PLAIN(f32, float, float)
SCALE_PLAIN(f64, double, double)
static void scale_c64(void *out, const void *in, int64_t count, double factor) { scale_f32(out, in, 2 * count, factor); }
static void scale_c128(void *out, const void *in, int64_t count, double factor) { scale_f64(out, in, 2 * count, factor); }

tnxk_scale_fn TABLE(tnxk_collective_scale)(tnx_dtype dtype) {
  static const tnxk_scale_fn table[TNX_DTYPE_COUNT] = {
      [TNX_U8] = scale_u8,         [TNX_I8] = scale_i8,         [TNX_I16] = scale_i16, [TNX_I32] = scale_i32,   [TNX_I64] = scale_i64, [TNX_U16] = scale_u16,
      [TNX_U32] = scale_u32,       [TNX_U64] = scale_u64,       [TNX_F16] = scale_f16, [TNX_BF16] = scale_bf16, [TNX_F32] = scale_f32, [TNX_F64] = scale_f64,
      [TNX_F8E4M3] = scale_f8e4m3, [TNX_F8E5M2] = scale_f8e5m2, [TNX_C64] = scale_c64, [TNX_C128] = scale_c128,
  };
  return (unsigned)dtype < TNX_DTYPE_COUNT ? table[dtype] : NULL;
}
