/* The loops of every instruction, in plain C; each ISA file defines PROG_ISA, includes this once and exports the table.
 * A loop handles one operation for one compute type over n lanes. Destination and operand may be the same address, hence
 * IVDEP and no restrict. */
#include "base/half.h"
#include "kernels/program/internal.h"
#include "kernels/program/special.h"
#include "kernels/program/vmath.h"

#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define PROG_CAT_(a, b) a##b
#define PROG_CAT(a, b) PROG_CAT_(a, b)
#define IVDEP _Pragma("GCC ivdep")
#define OP_ARGS void *dp, const void *ap, const void *bp, const void *cp, int64_t n, const tnxk_instr *in

/* op_NAME_CT: d[i] = EXPR of x = a[i], y = b[i], z = c[i]. */
#define OP1(NAME, CT, R, T, EXPR)                     \
  static void op_##NAME##_##CT(OP_ARGS) {             \
    R *d = dp;                                        \
    const T *a = ap;                                  \
    IVDEP for (int64_t i = 0; i < n; i++) {           \
      T x = a[i];                                     \
      d[i] = EXPR;                                    \
    }                                                 \
  }
#define OP2(NAME, CT, R, T, EXPR)                     \
  static void op_##NAME##_##CT(OP_ARGS) {             \
    R *d = dp;                                        \
    const T *a = ap, *b = bp;                         \
    IVDEP for (int64_t i = 0; i < n; i++) {           \
      T x = a[i], y = b[i];                           \
      d[i] = EXPR;                                    \
    }                                                 \
  }
#define OP1_FD(NAME, F, D) OP1(NAME, F32, float, float, F) OP1(NAME, F64, double, double, D)
#define OP2_FD(NAME, F, D) OP2(NAME, F32, float, float, F) OP2(NAME, F64, double, double, D)
#define OP2_FDI(NAME, F, D, I) OP2_FD(NAME, F, D) OP2(NAME, I64, int64_t, int64_t, I)

/* A tile of usual arguments (NEAR) takes one loop, any other tile the other. */
#define TILES1(FN, R, T, NEAR, ALL_NEAR, ANY)                             \
  static void FN(OP_ARGS) {                                               \
    R *d = dp;                                                            \
    const T *a = ap;                                                      \
    int all = 1;                                                          \
    for (int64_t i = 0; i < n; i++) {                                     \
      T x = a[i];                                                         \
      all &= NEAR;                                                        \
    }                                                                     \
    if (all) {                                                            \
      IVDEP for (int64_t i = 0; i < n; i++) {                             \
        T x = a[i];                                                       \
        d[i] = ALL_NEAR;                                                  \
      }                                                                   \
    } else {                                                              \
      IVDEP for (int64_t i = 0; i < n; i++) {                             \
        T x = a[i];                                                       \
        d[i] = ANY;                                                       \
      }                                                                   \
    }                                                                     \
  }
/* Functions with a shorter form for the usual arguments that gives the same bits. */
#define OP1_SHORT(NAME, NEAR, SHORT, FULL) TILES1(op_##NAME##_F32, float, float, NEAR, SHORT, FULL)
/* Functions with a vector form for the usual arguments. The choice is made lane by lane, so that a lane's result does
 * not depend on its neighbours; a tile of usual arguments needs no choices. */
#define SPLIT1(FN, R, T, NEAR, FAST, SLOW) TILES1(FN, R, T, NEAR, FAST, (NEAR) ? FAST : SLOW)
#define OP1_SPLIT(NAME, NEAR, FAST, SLOW) SPLIT1(op_##NAME##_F32, float, float, NEAR, FAST, SLOW)
#define OP2_SPLIT(NAME, CT, T, NEAR, FAST, SLOW)                          \
  static void op_##NAME##_##CT(OP_ARGS) {                                 \
    T *d = dp;                                                            \
    const T *a = ap, *b = bp;                                             \
    int all = 1;                                                          \
    for (int64_t i = 0; i < n; i++) {                                     \
      T x = a[i], y = b[i];                                               \
      all &= NEAR;                                                        \
    }                                                                     \
    if (all) {                                                            \
      IVDEP for (int64_t i = 0; i < n; i++) {                             \
        T x = a[i], y = b[i];                                             \
        d[i] = FAST;                                                      \
      }                                                                   \
    } else {                                                              \
      for (int64_t i = 0; i < n; i++) {                                   \
        T x = a[i], y = b[i];                                             \
        d[i] = (NEAR) ? FAST : SLOW;                                      \
      }                                                                   \
    }                                                                     \
  }

/* Integers wrap: arithmetic through uint64. */
#define WRAP2(x, op, y) (int64_t)((uint64_t)(x) op (uint64_t)(y))

OP1_FD(NEG, -x, -x)
OP1(NEG, I64, int64_t, int64_t, WRAP2(0, -, x))
OP1_FD(ABS, __builtin_fabsf(x), __builtin_fabs(x))
OP1(ABS, I64, int64_t, int64_t, x < 0 ? WRAP2(0, -, x) : x)
OP1_FD(SIGN, (x > 0 ? 1.0f : 0.0f) - (x < 0 ? 1.0f : 0.0f), (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0))
OP1(SIGN, I64, int64_t, int64_t, (x > 0) - (x < 0))
OP1_FD(CEIL, __builtin_ceilf(x), __builtin_ceil(x))
OP1_FD(FLOOR, __builtin_floorf(x), __builtin_floor(x))
OP1_FD(TRUNC, __builtin_truncf(x), __builtin_trunc(x))
OP1_FD(ROUND, __builtin_rintf(x), __builtin_rint(x))
OP1_FD(SQRT, __builtin_sqrtf(x), __builtin_sqrt(x))
OP1_FD(RSQRT, 1.0f / __builtin_sqrtf(x), 1.0 / __builtin_sqrt(x))
OP1_SHORT(EXP, vm_exp_is_near(x), vm_exp_near(x), vm_exp(x))
OP1(EXP, F64, double, double, exp(x))
OP1_FD(EXP2, vm_exp2(x), exp2(x))
OP1_FD(EXPM1, vm_expm1(x), expm1(x))
OP1_SHORT(LOG, vm_log_is_near(x), vm_log_near(x), vm_log(x))
OP1(LOG, F64, double, double, log(x))
OP1_FD(LOG2, vm_log_scaled(x, 1.4426950408889634), log2(x))
OP1_FD(LOG10, vm_log_scaled(x, 0.43429448190325183), log10(x))
OP1_FD(LOG1P, vm_log1p(x), log1p(x))
OP1_SPLIT(SIN, vm_trig_near(x), vm_sin(x), sinf(x))
OP1(SIN, F64, double, double, sin(x))
OP1_SPLIT(COS, vm_trig_near(x), vm_cos(x), cosf(x))
OP1(COS, F64, double, double, cos(x))
OP1_SPLIT(TAN, vm_trig_near(x), vm_tan(x), tanf(x))
OP1(TAN, F64, double, double, tan(x))
OP1_FD(ASIN, vm_asin(x), asin(x))
OP1_FD(ACOS, vm_acos(x), acos(x))
OP1_FD(ATAN, vm_atan(x), atan(x))
OP1_FD(SINH, vm_sinh(x), sinh(x))
OP1_FD(COSH, vm_cosh(x), cosh(x))
OP1_FD(TANH, vm_tanh(x), tanh(x))
OP1_FD(ASINH, vm_asinh(x), asinh(x))
OP1_FD(ACOSH, vm_acosh(x), acosh(x))
OP1_FD(ATANH, vm_atanh(x), atanh(x))
OP1_FD(ERF, vm_erf(x), erf(x))
OP1_FD(ERFC, erfcf(x), erfc(x))
OP1_FD(ERFINV, vm_erfinv(x), prog_erfinv(x))
OP1_FD(LGAMMA, prog_lgamma(x), prog_lgamma(x))
OP1_FD(DIGAMMA, prog_digamma(x), prog_digamma(x))
OP1_FD(BESSEL_I0, prog_i0(x), prog_i0(x))
OP1_FD(BESSEL_I0E, prog_i0e(x), prog_i0e(x))
OP1_FD(BESSEL_I1, prog_i1(x), prog_i1(x))
OP1_FD(BESSEL_I1E, prog_i1e(x), prog_i1e(x))
OP1_FD(BESSEL_K0, prog_k0(x), prog_k0(x))
OP1_FD(BESSEL_K0E, prog_k0e(x), prog_k0e(x))
OP1_FD(BESSEL_K1, prog_k1(x), prog_k1(x))
OP1_FD(BESSEL_K1E, prog_k1e(x), prog_k1e(x))
OP1_FD(BESSEL_Y0, prog_y0(x), prog_y0(x))
OP1_FD(BESSEL_Y1, prog_y1(x), prog_y1(x))
OP1_FD(AIRY_AI, prog_airy_ai(x), prog_airy_ai(x))
OP1_FD(ERFCX, prog_erfcx(x), prog_erfcx(x))
OP1_FD(NDTRI, prog_ndtri(x), prog_ndtri(x))
OP1_FD(LOG_NDTR, prog_log_ndtr(x), prog_log_ndtr(x))
OP1_FD(BESSEL_J0, j0(x), j0(x))
OP1_FD(BESSEL_J1, j1(x), j1(x))
OP1_FD(MANTISSA, prog_mantissa(x), prog_mantissa(x))
OP1_FD(EXPONENT, prog_exponent(x), prog_exponent(x))
OP1_SHORT(SIGMOID, vm_exp_is_near(x), vm_sigmoid_near(x), vm_sigmoid(x))
OP1(SIGMOID, F64, double, double, 1.0 / (1.0 + exp(-x)))
OP1(NOT, I64, int64_t, int64_t, ~x)
OP1(NOT, B8, uint8_t, uint8_t, x ^ 1)
OP1(ISNAN, F32, uint8_t, float, x != x)
OP1(ISNAN, F64, uint8_t, double, x != x)
OP1(ISFINITE, F32, uint8_t, float, __builtin_fabsf(x) < INFINITY)
OP1(ISFINITE, F64, uint8_t, double, __builtin_fabs(x) < INFINITY)

OP2_FDI(ADD, x + y, x + y, WRAP2(x, +, y))
OP2_FDI(SUB, x - y, x - y, WRAP2(x, -, y))
OP2_FDI(MUL, x * y, x * y, WRAP2(x, *, y))
OP2_FD(DIV, x / y, x / y)
OP2_SPLIT(DIV, I64, int64_t, vm_idiv_near(x, y), vm_idiv(x, y), prog_idiv(x, y))
OP2_SPLIT(FMOD, F32, float, vm_fmod_near(x, y), vm_fmod(x, y), fmodf(x, y))
OP2(FMOD, F64, double, double, fmod(x, y))
OP2_SPLIT(FMOD, I64, int64_t, vm_idiv_near(x, y), vm_ifmod(x, y), prog_ifmod(x, y))
OP2_SPLIT(REMAINDER, F32, float, vm_fmod_near(x, y), vm_remainder(x, y), prog_remainderf(x, y))
OP2(REMAINDER, F64, double, double, prog_remainder(x, y))
OP2_SPLIT(REMAINDER, I64, int64_t, vm_idiv_near(x, y), vm_iremainder(x, y), prog_iremainder(x, y))
OP2_SPLIT(FLOORDIV, F32, float, vm_fmod_near(x, y), vm_floordiv(x, y), prog_floordivf(x, y))
OP2(FLOORDIV, F64, double, double, prog_floordiv(x, y))
OP2_SPLIT(FLOORDIV, I64, int64_t, vm_idiv_near(x, y), vm_ifloordiv(x, y), prog_ifloordiv(x, y))
OP2_SPLIT(POW, F32, float, vm_pow_near(x, y), vm_pow(x, y), powf(x, y))
OP2(POW, F64, double, double, pow(x, y))
OP2(POW, I64, int64_t, int64_t, prog_ipow(x, y))
OP2_FD(ATAN2, vm_atan2(x, y), atan2(x, y))
OP2_FD(HYPOT, vm_hypot(x, y), hypot(x, y))
OP2_FD(ZETA, prog_zeta(x, y), prog_zeta(x, y))
OP2_FD(IGAMMA, prog_igamma(x, y), prog_igamma(x, y))
OP2_FD(IGAMMAC, prog_igammac(x, y), prog_igammac(x, y))
OP2_FD(CHEBYSHEV_T, prog_chebyshev_tf(x, y), prog_chebyshev_t(x, y))
OP2_FD(CHEBYSHEV_U, prog_chebyshev_uf(x, y), prog_chebyshev_u(x, y))
OP2_FD(CHEBYSHEV_V, prog_chebyshev_vf(x, y), prog_chebyshev_v(x, y))
OP2_FD(CHEBYSHEV_W, prog_chebyshev_wf(x, y), prog_chebyshev_w(x, y))
OP2_FD(HERMITE_H, prog_hermite_hf(x, y), prog_hermite_h(x, y))
OP2_FD(HERMITE_HE, prog_hermite_hef(x, y), prog_hermite_he(x, y))
OP2_FD(LAGUERRE, prog_laguerref(x, y), prog_laguerre(x, y))
OP2_FD(LEGENDRE, prog_legendref(x, y), prog_legendre(x, y))
OP2(SAMPLE_GAMMA, F64, double, double, prog_sample_gamma(x, y))
OP2(SAMPLE_POISSON, F64, double, double, prog_sample_poisson(x, y))
OP2(SAMPLE_GAMMA_GRAD, F64, double, double, prog_sample_gamma_grad(x, y))
OP2(GCD, I64, int64_t, int64_t, prog_igcd(x, y))
OP2(LCM, I64, int64_t, int64_t, prog_ilcm(x, y))
OP2_FD(NEXTAFTER, nextafterf(x, y), nextafter(x, y))
OP2_FD(COPYSIGN, __builtin_copysignf(x, y), __builtin_copysign(x, y))
/* A NaN in x stays because neither comparison replaces it; one in y is not equal to itself. */
#define MAXN(x, y) ((y) > (x) || (y) != (y) ? (y) : (x))
#define MINN(x, y) ((y) < (x) || (y) != (y) ? (y) : (x))
OP2_FDI(MAX, MAXN(x, y), MAXN(x, y), x > y ? x : y)
OP2_FDI(MIN, MINN(x, y), MINN(x, y), x < y ? x : y)
/* Pairs: op_pair_FIRST_SECOND. The first result is rounded before the second operation, as if it went through a register. */
#define PAIR(FIRST, SECOND, V, W)                                         \
  static void op_pair_##FIRST##_##SECOND(OP_ARGS) {                       \
    float *d = dp;                                                        \
    const float *a = ap, *b = bp, *c = cp;                                \
    IVDEP for (int64_t i = 0; i < n; i++) {                               \
      float x = a[i], y = b[i], z = c[i], v = V;                          \
      d[i] = W;                                                           \
    }                                                                     \
  }
#define PAIRS(FIRST, V)                                                                                               \
  PAIR(FIRST, ADD, V, v + z) PAIR(FIRST, SUB, V, v - z) PAIR(FIRST, RSUB, V, z - v) PAIR(FIRST, MUL, V, v * z)        \
  PAIR(FIRST, DIV, V, v / z) PAIR(FIRST, MAX, V, MAXN(v, z)) PAIR(FIRST, MIN, V, MINN(v, z))
PAIRS(ADD, x + y)
PAIRS(SUB, x - y)
PAIRS(MUL, x * y)
PAIRS(DIV, x / y)
PAIRS(MAX, MAXN(x, y))
PAIRS(MIN, MINN(x, y))
OP2(MAX, B8, uint8_t, uint8_t, x | y)
OP2(MIN, B8, uint8_t, uint8_t, x & y)
OP2_FD(FMAX, y > x || x != x ? y : x, y > x || x != x ? y : x)
OP2_FD(FMIN, y < x || x != x ? y : x, y < x || x != x ? y : x)
OP2(AND, I64, int64_t, int64_t, x & y)
OP2(OR, I64, int64_t, int64_t, x | y)
OP2(XOR, I64, int64_t, int64_t, x ^ y)
OP2(AND, B8, uint8_t, uint8_t, x & y)
OP2(OR, B8, uint8_t, uint8_t, x | y)
OP2(XOR, B8, uint8_t, uint8_t, x ^ y)
/* Shifts: by one number as a rule, which vectors have an instruction for. */
#define OP_SHIFT(NAME, ONE, EXPR)                                         \
  static void op_##NAME##_I64(OP_ARGS) {                                  \
    int64_t *d = dp, by = *(const int64_t *)bp;                           \
    const int64_t *a = ap, *b = bp;                                       \
    int same = (uint64_t)by < 64;                                         \
    for (int64_t i = 0; i < n; i++) same &= b[i] == by;                   \
    if (same) {                                                           \
      IVDEP for (int64_t i = 0; i < n; i++) {                             \
        uint64_t x = (uint64_t)a[i];                                      \
        d[i] = (int64_t)(ONE);                                            \
      }                                                                   \
    } else {                                                              \
      for (int64_t i = 0; i < n; i++) {                                   \
        int64_t x = a[i], y = b[i];                                       \
        d[i] = EXPR;                                                      \
      }                                                                   \
    }                                                                     \
  }
OP_SHIFT(SHL, x << by, (uint64_t)y < 64 ? WRAP2(x, <<, y) : 0)
OP_SHIFT(SHR, ((x ^ (0 - (x >> 63))) >> by) ^ (0 - (x >> 63)), x >> ((uint64_t)y < 64 ? y : 63))
#define OP_CMP(NAME, OP)                               \
  OP2(NAME, F32, uint8_t, float, x OP y)               \
  OP2(NAME, F64, uint8_t, double, x OP y)              \
  OP2(NAME, I64, uint8_t, int64_t, x OP y)             \
  OP2(NAME, B8, uint8_t, uint8_t, x OP y)
OP_CMP(EQ, ==)
OP_CMP(NE, !=)
OP_CMP(LT, <)
OP_CMP(LE, <=)
OP_CMP(GT, >)
OP_CMP(GE, >=)

#define OP_SELECT(CT, T)                                                    \
  static void op_SELECT_##CT(OP_ARGS) {                                     \
    T *d = dp;                                                              \
    const uint8_t *a = ap;                                                  \
    const T *b = bp, *c = cp;                                               \
    IVDEP for (int64_t i = 0; i < n; i++) {                                 \
      T y = b[i], z = c[i];                                                 \
      d[i] = a[i] ? y : z;                                                  \
    }                                                                       \
  }                                                                         \
  static void op_CONST_##CT##_fill(T *d, T v, int64_t n) {                  \
    for (int64_t i = 0; i < n; i++) d[i] = v;                               \
  }                                                                         \
  static void splat_##CT(void *dp, int64_t n) {                             \
    T *d = dp;                                                              \
    op_CONST_##CT##_fill(d, d[0], n);                                       \
  }
OP_SELECT(F32, float)
OP_SELECT(F64, double)
OP_SELECT(I64, int64_t)
OP_SELECT(B8, uint8_t)
static void op_CONST_F32(OP_ARGS) { op_CONST_F32_fill(dp, (float)in->imm.f[0], n); }
static void op_CONST_F64(OP_ARGS) { op_CONST_F64_fill(dp, in->imm.f[0], n); }
static void op_CONST_I64(OP_ARGS) { op_CONST_I64_fill(dp, in->imm.i, n); }
static void op_CONST_B8(OP_ARGS) { op_CONST_B8_fill(dp, in->imm.i != 0, n); }

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_K0 0x9E3779B9u
#define PHILOX_K1 0xBB67AE85u

/* The four words of n counters from `first` on; writes up to 3 counters more. */
static void philox_words(uint64_t key, uint64_t first, int64_t n, uint32_t *word) {
#ifdef __AVX2__
  /* A 32-bit value in the low half of each 64-bit lane: the product reads no more, and what the upper halves hold is dropped at the end. */
  const __m256i m0 = _mm256_set1_epi64x(PHILOX_M0), m1 = _mm256_set1_epi64x(PHILOX_M1), low = _mm256_set1_epi64x(UINT32_MAX);
  for (int64_t at = 0; at < n; at += 4) {
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)(first + (uint64_t)at)), _mm256_setr_epi64x(0, 1, 2, 3));
    __m256i c1 = _mm256_srli_epi64(c0, 32), c2 = _mm256_setzero_si256(), c3 = c2;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < 10; r++, k0 += PHILOX_K0, k1 += PHILOX_K1) {
      __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
      c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
      c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
      c1 = p1;
      c3 = p0;
    }
    __m256i c01 = _mm256_or_si256(_mm256_and_si256(c0, low), _mm256_slli_epi64(c1, 32));
    __m256i c23 = _mm256_or_si256(_mm256_and_si256(c2, low), _mm256_slli_epi64(c3, 32));
    __m256i even = _mm256_unpacklo_epi64(c01, c23), odd = _mm256_unpackhi_epi64(c01, c23);
    _mm256_storeu_si256((__m256i *)(word + 4 * at), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(word + 4 * at + 8), _mm256_permute2x128_si256(even, odd, 0x31));
  }
#else
  for (int64_t at = 0; at < n; at++) {
    uint64_t ctr = first + (uint64_t)at;
    uint32_t c0 = (uint32_t)ctr, c1 = (uint32_t)(ctr >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < 10; r++, k0 += PHILOX_K0, k1 += PHILOX_K1) {
      uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
      c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
      c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
      c1 = (uint32_t)p1;
      c3 = (uint32_t)p0;
    }
    uint32_t *w = word + 4 * at;
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
  }
#endif
}

/* Lanes mostly ask for words in rising order, few words apart: those of all counters that a tile touches are computed side by side, then picked. Seed and
 * offset are numbers of the call as a rule; lanes that differ in them, or are further apart, are computed one by one. W is the word as an int64. */
#define PHILOX(NAME, R, W)                                                                                                        \
  static void NAME(OP_ARGS) {                                                                                                     \
    R *d = dp;                                                                                                                    \
    const int64_t *a = ap, *b = bp, *c = cp;                                                                                      \
    if (n <= 0) return;                                                                                                           \
    uint32_t word[4 * (PROG_TILE * 2 + 8)];                                                                                       \
    uint64_t other = 0, apart = 0, gap = 0;                                                                                       \
    for (int64_t i = 0; i < n; i++) other |= (uint64_t)((a[i] ^ a[0]) | (b[i] ^ b[0]));                                           \
    for (int64_t i = 1; i < n; i++) {                                                                                             \
      uint64_t step = (uint64_t)c[i] - (uint64_t)c[i - 1];                                                                        \
      apart |= step & ~(uint64_t)7;                                                                                               \
      gap |= step ^ 1;                                                                                                            \
    }                                                                                                                             \
    uint64_t first = (uint64_t)c[0] >> 2, last = (uint64_t)c[n - 1] >> 2;                                                         \
    if (!(other | apart)) philox_words((uint64_t)a[0], (uint64_t)b[0] + first, (int64_t)(last - first) + 1, word);                \
    if (!(other | apart | gap)) {                                                                                                 \
      const uint32_t *w = word + (c[0] & 3);                                                                                      \
      IVDEP for (int64_t i = 0; i < n; i++) d[i] = (R)(W(w[i]));                                                                  \
    } else if (!(other | apart)) {                                                                                                \
      IVDEP for (int64_t i = 0; i < n; i++) d[i] = (R)(W(word[(uint64_t)c[i] - first * 4]));                                      \
    } else {                                                                                                                      \
      for (int64_t i = 0; i < n; i++) {                                                                                           \
        philox_words((uint64_t)a[i], (uint64_t)b[i] + ((uint64_t)c[i] >> 2), 1, word);                                            \
        d[i] = (R)(W(word[c[i] & 3]));                                                                                            \
      }                                                                                                                           \
    }                                                                                                                             \
  }
#define WORD(w) w
#define WORD_24(w) ((int32_t)((w) >> 8))
PHILOX(op_PHILOX_I64, int64_t, WORD)
PHILOX(philox_24_F32, float, WORD_24) /* CONVERT(SHR(PHILOX, 8)) to float32: exact */

/* CONVERT from a real compute type: FX converts x to the register of `dtype`, with its rounding. Integers narrower than
 * 64 bits come from float through int32, as PyTorch's CPU kernels do; out of range gives INT_MIN, then wraps. */
#define CVT(CT, T, DT, R, EXPR)                                                     \
  static void cvt_##CT##_##DT(OP_ARGS) {                                            \
    R *d = dp;                                                                      \
    const T *a = ap;                                                                \
    IVDEP for (int64_t i = 0; i < n; i++) {                                         \
      T x = a[i];                                                                   \
      d[i] = (EXPR);                                                                \
    }                                                                               \
  }
#define CVT_FLOATS(CT, T)                                                           \
  CVT(CT, T, F8E4M3, float, tnx_f8e4m3_to_f32(tnx_f32_to_f8e4m3((float)x)))         \
  CVT(CT, T, F8E5M2, float, tnx_f8e5m2_to_f32(tnx_f32_to_f8e5m2((float)x)))         \
  CVT(CT, T, F16, float, tnx_f16_to_f32(tnx_f32_to_f16((float)x)))                  \
  CVT(CT, T, BF16, float, tnx_bf16_to_f32(tnx_f32_to_bf16((float)x)))               \
  CVT(CT, T, BOOL, uint8_t, x != 0)
#define CVT_INTS(CT, T, NARROW)                                                     \
  CVT(CT, T, U8, int64_t, (uint8_t)(NARROW)x)                                       \
  CVT(CT, T, I8, int64_t, (int8_t)(NARROW)x)                                        \
  CVT(CT, T, I16, int64_t, (int16_t)(NARROW)x)                                      \
  CVT(CT, T, I32, int64_t, (int32_t)x)                                              \
  CVT(CT, T, U16, int64_t, (uint16_t)(NARROW)x)                                     \
  CVT(CT, T, U32, int64_t, (uint32_t)(int64_t)x)                                    \
  CVT(CT, T, I64, int64_t, (int64_t)x)                                              \
  CVT(CT, T, U64, int64_t, (int64_t)x)
#define CVT_WIDE(CT, T) CVT(CT, T, F32, float, (float)x) CVT(CT, T, F64, double, (double)x)
CVT_WIDE(F32, float)
CVT_WIDE(F64, double)
CVT_WIDE(B8, uint8_t)
CVT_FLOATS(F32, float)
CVT_FLOATS(F64, double)
CVT_FLOATS(I64, int64_t)
/* By way of double, which has vector instructions for it where 64-bit integers have none. */
SPLIT1(cvt_I64_F32, float, int64_t, vm_whole_near(x), (float)vm_whole_f64(x), (float)x)
SPLIT1(cvt_I64_F64, double, int64_t, vm_whole_near(x), vm_whole_f64(x), (double)x)
CVT_FLOATS(B8, uint8_t)
CVT_INTS(F32, float, int32_t)
CVT_INTS(F64, double, int32_t)
CVT_INTS(I64, int64_t, int64_t)
CVT_INTS(B8, uint8_t, int64_t)

/* Memory: unaligned and possibly aliased, so through may_alias types. */
typedef float mem_f32 __attribute__((may_alias, aligned(1)));
typedef double mem_f64 __attribute__((may_alias, aligned(1)));
typedef uint16_t mem_u16 __attribute__((may_alias, aligned(1)));
typedef uint32_t mem_u32 __attribute__((may_alias, aligned(1)));
typedef int16_t mem_i16 __attribute__((may_alias, aligned(1)));
typedef int32_t mem_i32 __attribute__((may_alias, aligned(1)));
typedef int64_t mem_i64 __attribute__((may_alias, aligned(1)));

#define LOADER(DT, M, R, EXPR)                                                       \
  static void load_##DT(void *dp, const char *src, int64_t stride, int64_t n) {      \
    R *d = dp;                                                                       \
    if (stride == (int64_t)sizeof(M)) {                                              \
      const M *s = (const M *)src;                                                   \
      IVDEP for (int64_t i = 0; i < n; i++) {                                        \
        M x = s[i];                                                                  \
        d[i] = (EXPR);                                                               \
      }                                                                              \
    } else if (stride == 0) {                                                        \
      M x = *(const M *)src;                                                         \
      R v = (EXPR);                                                                  \
      for (int64_t i = 0; i < n; i++) d[i] = v;                                      \
    } else {                                                                         \
      IVDEP for (int64_t i = 0; i < n; i++) {                                        \
        M x = *(const M *)(src + i * stride);                                        \
        d[i] = (EXPR);                                                               \
      }                                                                              \
    }                                                                                \
  }
#define STORER(DT, M, R, EXPR)                                                       \
  static void store_##DT(char *dst, int64_t stride, const void *sp, int64_t n) {     \
    const R *s = sp;                                                                 \
    if (stride == (int64_t)sizeof(M)) {                                              \
      M *d = (M *)dst;                                                               \
      IVDEP for (int64_t i = 0; i < n; i++) {                                        \
        R x = s[i];                                                                  \
        d[i] = EXPR;                                                                 \
      }                                                                              \
    } else {                                                                         \
      for (int64_t i = 0; i < n; i++) {                                              \
        R x = s[i];                                                                  \
        *(M *)(dst + i * stride) = EXPR;                                             \
      }                                                                              \
    }                                                                                \
  }
#define MEMORY(DT, M, R, IN, OUT) LOADER(DT, M, R, IN) STORER(DT, M, R, OUT)
MEMORY(BOOL, uint8_t, uint8_t, x != 0, x)
MEMORY(U8, uint8_t, int64_t, x, x)
MEMORY(I8, int8_t, int64_t, x, x)
MEMORY(I16, mem_i16, int64_t, x, x)
MEMORY(I32, mem_i32, int64_t, x, x)
MEMORY(I64, mem_i64, int64_t, x, x)
MEMORY(U16, mem_u16, int64_t, x, x)
MEMORY(U32, mem_u32, int64_t, x, x)
MEMORY(U64, mem_i64, int64_t, x, x)
MEMORY(F8E4M3, uint8_t, float, tnx_f8e4m3_to_f32(x), tnx_f32_to_f8e4m3(x))
MEMORY(F8E5M2, uint8_t, float, tnx_f8e5m2_to_f32(x), tnx_f32_to_f8e5m2(x))
MEMORY(BF16, mem_u16, float, tnx_bf16_to_f32(x), tnx_f32_to_bf16(x))
MEMORY(F32, mem_f32, float, x, x)
MEMORY(F64, mem_f64, double, x, x)
MEMORY(F16, mem_u16, float, tnx_f16_to_f32(x), tnx_f32_to_f16(x))

#ifdef __F16C__
static void load_F16_simd(void *dp, const char *src, int64_t stride, int64_t n) {
  float *d = dp;
  int64_t i = 0;
  if (stride == 2)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + 2 * i))));
  load_F16(d + i, src + i * stride, stride, n - i);
}
static void store_F16_simd(char *dst, int64_t stride, const void *sp, int64_t n) {
  const float *s = sp;
  int64_t i = 0;
  if (stride == 2)
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128((__m128i *)(dst + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  store_F16(dst + i * stride, stride, s + i, n - i);
}
static void cvt_F32_F16_simd(OP_ARGS) {
  float *d = dp;
  const float *a = ap;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
  cvt_F32_F16(d + i, a + i, NULL, NULL, n - i, in);
}
#else
#define load_F16_simd load_F16
#define store_F16_simd store_F16
#define cvt_F32_F16_simd cvt_F32_F16
#endif

/* Reductions. v, x: the running value and the new one. A tile may be a whole chunk: it goes into the lanes by PROG_TILE, so that
 * how it is cut does not show in the bits. */
#define ACC_LOOPS(OP, CT, T, INIT, EXPR)                                                         \
  static void tile_##OP##_##CT(prog_acc *acc, const void *xp, int64_t n, int64_t pos) {          \
    const T *p = xp;                                                                             \
    T s[PROG_LANES], *lane = (T *)acc->lane;                                                     \
    for (; n > 0; n -= PROG_TILE, p += PROG_TILE) {                                              \
      const int64_t m = n < PROG_TILE ? n : PROG_TILE;                                           \
      for (int j = 0; j < PROG_LANES; j++) s[j] = INIT;                                          \
      int64_t i = 0;                                                                             \
      for (; i + PROG_LANES <= m; i += PROG_LANES)                                               \
        for (int j = 0; j < PROG_LANES; j++) {                                                   \
          T v = s[j], x = p[i + j];                                                              \
          s[j] = EXPR;                                                                           \
        }                                                                                        \
      for (int j = 0; j < m - i; j++) {                                                          \
        T v = s[j], x = p[i + j];                                                                \
        s[j] = EXPR;                                                                             \
      }                                                                                          \
      for (int j = 0; j < PROG_LANES; j++) {                                                     \
        T v = lane[j], x = s[j];                                                                 \
        lane[j] = EXPR;                                                                          \
      }                                                                                          \
    }                                                                                            \
  }                                                                                              \
  static void lanes_##OP##_##CT(void *vp, int64_t *index, const void *xp, int64_t n, int64_t pos) { \
    T *a = vp;                                                                                   \
    const T *p = xp;                                                                             \
    IVDEP for (int64_t i = 0; i < n; i++) {                                                      \
      T v = a[i], x = p[i];                                                                      \
      a[i] = EXPR;                                                                               \
    }                                                                                            \
  }                                                                                              \
  static void rows_##OP##_##CT(void *out, const void *xp, int64_t rows, int64_t len) {           \
    T *d = out;                                                                                  \
    const T *p = xp;                                                                             \
    for (int64_t r = 0; r < rows; r++, p += len) {                                               \
      T s[8];                                                                                    \
      for (int j = 0; j < 8; j++) s[j] = INIT;                                                   \
      int64_t i = 0;                                                                             \
      for (; i + 8 <= len; i += 8)                                                               \
        for (int j = 0; j < 8; j++) {                                                            \
          T v = s[j], x = p[i + j];                                                              \
          s[j] = EXPR;                                                                           \
        }                                                                                        \
      for (int w = 4; w; w /= 2)                                                                 \
        for (int j = 0; j < w; j++) {                                                            \
          T v = s[j], x = s[j + w];                                                              \
          s[j] = EXPR;                                                                           \
        }                                                                                        \
      T v = s[0];                                                                                \
      for (; i < len; i++) {                                                                     \
        T x = p[i];                                                                              \
        v = EXPR;                                                                                \
      }                                                                                          \
      d[r] = v;                                                                                  \
    }                                                                                            \
  }                                                                                              \
  static void reset_##OP##_##CT(prog_acc *acc) {                                                 \
    T *lane = (T *)acc->lane;                                                                    \
    for (int j = 0; j < PROG_LANES; j++) lane[j] = INIT;                                         \
  }                                                                                              \
  static T fold_lanes_##OP##_##CT(const prog_acc *acc) {                                         \
    T s[PROG_LANES];                                                                             \
    memcpy(s, acc->lane, sizeof s);                                                              \
    for (int w = PROG_LANES / 2; w; w /= 2)                                                      \
      for (int j = 0; j < w; j++) {                                                              \
        T v = s[j], x = s[j + w];                                                                \
        s[j] = EXPR;                                                                             \
      }                                                                                          \
    return s[0];                                                                                 \
  }
#define ACC_FLOAT(OP, CT, T, INIT, EXPR)                                                         \
  ACC_LOOPS(OP, CT, T, INIT, EXPR)                                                               \
  static void fold_##OP##_##CT(prog_acc *acc) {                                                  \
    double v = acc->s[0], x = fold_lanes_##OP##_##CT(acc);                                       \
    acc->s[0] = EXPR;                                                                            \
    reset_##OP##_##CT(acc);                                                                      \
  }
#define ACC_INT(OP, CT, T, INIT, EXPR)                                                           \
  ACC_LOOPS(OP, CT, T, INIT, EXPR)                                                               \
  static void fold_##OP##_##CT(prog_acc *acc) {                                                  \
    int64_t v = acc->i, x = fold_lanes_##OP##_##CT(acc);                                         \
    acc->i = EXPR;                                                                               \
    reset_##OP##_##CT(acc);                                                                      \
  }
ACC_LOOPS(SUM, F32, float, 0, v + x)
ACC_LOOPS(SUM, F64, double, 0, v + x)
/* Sums of products, which are rounded before they are added, as if they went through a register. */
#define DOT_LOOPS(CT, T)                                                                         \
  static void tile_dot_##CT(prog_acc *acc, const void *xp, const void *yp, int64_t n) {          \
    const T *p = xp, *q = yp;                                                                    \
    T s[PROG_LANES], *lane = (T *)acc->lane;                                                     \
    for (; n > 0; n -= PROG_TILE, p += PROG_TILE, q += PROG_TILE) {                              \
      const int64_t m = n < PROG_TILE ? n : PROG_TILE;                                           \
      for (int j = 0; j < PROG_LANES; j++) s[j] = 0;                                             \
      int64_t i = 0;                                                                             \
      for (; i + PROG_LANES <= m; i += PROG_LANES)                                               \
        for (int j = 0; j < PROG_LANES; j++) s[j] += p[i + j] * q[i + j];                        \
      for (int j = 0; j < m - i; j++) s[j] += p[i + j] * q[i + j];                               \
      for (int j = 0; j < PROG_LANES; j++) lane[j] += s[j];                                      \
    }                                                                                            \
  }                                                                                              \
  static void lanes_dot_##CT(void *vp, const void *xp, const void *yp, int64_t n) {              \
    T *a = vp;                                                                                   \
    const T *p = xp, *q = yp;                                                                    \
    IVDEP for (int64_t i = 0; i < n; i++) a[i] += p[i] * q[i];                                   \
  }
DOT_LOOPS(F32, float)
DOT_LOOPS(F64, double)
static void fold_SUM_F32(prog_acc *acc) {
  acc->s[0] += fold_lanes_SUM_F32(acc);
  reset_SUM_F32(acc);
}
static void fold_SUM_F64(prog_acc *acc) {
  prog_acc_add(acc, 0, fold_lanes_SUM_F64(acc));
  reset_SUM_F64(acc);
}
ACC_FLOAT(PROD, F32, float, 1, v * x)
ACC_FLOAT(PROD, F64, double, 1, v * x)
ACC_FLOAT(MAX, F32, float, -INFINITY, MAXN(v, x))
ACC_FLOAT(MAX, F64, double, -INFINITY, MAXN(v, x))
ACC_FLOAT(MIN, F32, float, INFINITY, MINN(v, x))
ACC_FLOAT(MIN, F64, double, INFINITY, MINN(v, x))
ACC_INT(SUM, I64, int64_t, 0, WRAP2(v, +, x))
ACC_INT(PROD, I64, int64_t, 1, WRAP2(v, *, x))
ACC_INT(MAX, I64, int64_t, INT64_MIN, v > x ? v : x)
ACC_INT(MIN, I64, int64_t, INT64_MAX, v < x ? v : x)
ACC_INT(MAX, B8, uint8_t, 0, v | x)
ACC_INT(MIN, B8, uint8_t, 1, v & x)

/* The position of the first extreme: most tiles do not beat the value so far, which the vector pass tells quickly. */
#define ACC_ARG(OP, BASE, CT, T, TOTAL, WINS)                                                    \
  static void rows_##OP##_##CT(void *out, const void *xp, int64_t rows, int64_t len) {           \
    int64_t *d = out;                                                                            \
    const T *p = xp;                                                                             \
    for (int64_t r = 0; r < rows; r++, p += len) {                                               \
      T v = p[0];                                                                                \
      d[r] = 0;                                                                                  \
      for (int64_t i = 1; i < len; i++) {                                                        \
        T x = p[i];                                                                              \
        if (WINS) v = x, d[r] = i;                                                               \
      }                                                                                          \
    }                                                                                            \
  }                                                                                              \
  static void tile_##OP##_##CT(prog_acc *acc, const void *xp, int64_t n, int64_t pos) {          \
    const T *p = xp;                                                                             \
    reset_##BASE##_##CT(acc);                                                                    \
    tile_##BASE##_##CT(acc, xp, n, pos);                                                         \
    T x = fold_lanes_##BASE##_##CT(acc), v = (T)TOTAL;                                           \
    if (!(WINS)) return;                                                                         \
    TOTAL = x;                                                                                   \
    for (int64_t i = 0; i < n; i++)                                                              \
      if (p[i] == x || (x != x && p[i] != p[i])) {                                               \
        acc->index = pos + i;                                                                    \
        return;                                                                                  \
      }                                                                                          \
  }                                                                                              \
  static void lanes_##OP##_##CT(void *vp, int64_t *index, const void *xp, int64_t n, int64_t pos) { \
    T *a = vp;                                                                                   \
    const T *p = xp;                                                                             \
    IVDEP for (int64_t i = 0; i < n; i++) {                                                      \
      T v = a[i], x = p[i];                                                                      \
      int64_t old = index[i];                                                                    \
      int win = WINS;                                                                            \
      a[i] = win ? x : v;                                                                        \
      index[i] = win ? pos : old;                                                                \
    }                                                                                            \
  }
#define WIN_MAXN (x > v || (x != x && v == v))
#define WIN_MINN (x < v || (x != x && v == v))
ACC_ARG(ARGMAX, MAX, F32, float, acc->s[0], WIN_MAXN)
ACC_ARG(ARGMAX, MAX, F64, double, acc->s[0], WIN_MAXN)
ACC_ARG(ARGMIN, MIN, F32, float, acc->s[0], WIN_MINN)
ACC_ARG(ARGMIN, MIN, F64, double, acc->s[0], WIN_MINN)
ACC_ARG(ARGMAX, MAX, I64, int64_t, acc->i, x > v)
ACC_ARG(ARGMIN, MIN, I64, int64_t, acc->i, x < v)
ACC_ARG(ARGMAX, MAX, B8, uint8_t, acc->i, x > v)
ACC_ARG(ARGMIN, MIN, B8, uint8_t, acc->i, x < v)

#include "kernels/program/body_complex.h"

#define ROW(NAME, CT) [TNXK_##NAME][TNXK_##CT] = op_##NAME##_##CT
#define ROW_FD(NAME) ROW(NAME, F32), ROW(NAME, F64)
#define ROW_FDI(NAME) ROW_FD(NAME), ROW(NAME, I64)
#define ROW_FDIB(NAME) ROW_FDI(NAME), ROW(NAME, B8)
#define ROW_CZ(NAME) ROW(NAME, C64), ROW(NAME, C128)
#define ROW_IB(NAME) ROW(NAME, I64), ROW(NAME, B8)
#define PAIR_ROW(FIRST)                                                                                               \
  [PROG_PAIR_##FIRST] = {[PROG_PAIR_ADD] = op_pair_##FIRST##_ADD, [PROG_PAIR_SUB] = op_pair_##FIRST##_SUB,            \
                         [PROG_PAIR_RSUB] = op_pair_##FIRST##_RSUB, [PROG_PAIR_MUL] = op_pair_##FIRST##_MUL,          \
                         [PROG_PAIR_DIV] = op_pair_##FIRST##_DIV, [PROG_PAIR_MAX] = op_pair_##FIRST##_MAX,            \
                         [PROG_PAIR_MIN] = op_pair_##FIRST##_MIN}
#define CVT_ROW(CT, DT) [TNXK_##CT][TNX_##DT] = cvt_##CT##_##DT
#define CVT_ROWS(CT)                                                                                                  \
  CVT_ROW(CT, BOOL), CVT_ROW(CT, U8), CVT_ROW(CT, I8), CVT_ROW(CT, I16), CVT_ROW(CT, I32), CVT_ROW(CT, I64),          \
      CVT_ROW(CT, U16), CVT_ROW(CT, U32), CVT_ROW(CT, U64), CVT_ROW(CT, F8E4M3), CVT_ROW(CT, F8E5M2),                 \
      CVT_ROW(CT, BF16), CVT_ROW(CT, F32), CVT_ROW(CT, F64), CVT_ROW(CT, C64), CVT_ROW(CT, C128)
#define MEM_ROWS(KIND)                                                                                                \
  [TNX_BOOL] = KIND##_BOOL, [TNX_U8] = KIND##_U8, [TNX_I8] = KIND##_I8, [TNX_I16] = KIND##_I16, [TNX_I32] = KIND##_I32, \
  [TNX_I64] = KIND##_I64, [TNX_U16] = KIND##_U16, [TNX_U32] = KIND##_U32, [TNX_U64] = KIND##_U64,                      \
  [TNX_F8E4M3] = KIND##_F8E4M3, [TNX_F8E5M2] = KIND##_F8E5M2, [TNX_F16] = KIND##_F16_simd, [TNX_BF16] = KIND##_BF16,   \
  [TNX_F32] = KIND##_F32, [TNX_F64] = KIND##_F64, [TNX_C64] = KIND##_C64, [TNX_C128] = KIND##_C128
#define ACC_ROWS(KIND)                                                                                                 \
  [PROG_SUM] = {[TNXK_F32] = KIND##_SUM_F32, [TNXK_F64] = KIND##_SUM_F64, [TNXK_I64] = KIND##_SUM_I64,              \
                [TNXK_C64] = KIND##_SUM_C64, [TNXK_C128] = KIND##_SUM_C128},                \
  [PROG_PROD] = {[TNXK_F32] = KIND##_PROD_F32, [TNXK_F64] = KIND##_PROD_F64, [TNXK_I64] = KIND##_PROD_I64,           \
                 [TNXK_C64] = KIND##_PROD_C64, [TNXK_C128] = KIND##_PROD_C128},            \
  [PROG_MAX] = {[TNXK_F32] = KIND##_MAX_F32, [TNXK_F64] = KIND##_MAX_F64, [TNXK_I64] = KIND##_MAX_I64,                 \
                [TNXK_B8] = KIND##_MAX_B8},                                                                            \
  [PROG_MIN] = {[TNXK_F32] = KIND##_MIN_F32, [TNXK_F64] = KIND##_MIN_F64, [TNXK_I64] = KIND##_MIN_I64,                 \
                [TNXK_B8] = KIND##_MIN_B8}
#define ARG_ROWS(KIND)                                                                                                 \
  [PROG_ARGMAX] = {[TNXK_F32] = KIND##_ARGMAX_F32, [TNXK_F64] = KIND##_ARGMAX_F64, [TNXK_I64] = KIND##_ARGMAX_I64,     \
                   [TNXK_B8] = KIND##_ARGMAX_B8},                                                                      \
  [PROG_ARGMIN] = {[TNXK_F32] = KIND##_ARGMIN_F32, [TNXK_F64] = KIND##_ARGMIN_F64, [TNXK_I64] = KIND##_ARGMIN_I64,     \
                   [TNXK_B8] = KIND##_ARGMIN_B8}

const prog_isa PROG_CAT(prog_isa__, PROG_ISA) = {
    .op = {
        ROW_FDI(NEG), ROW_FDI(ABS), ROW_FDI(SIGN), ROW_FD(CEIL), ROW_FD(FLOOR), ROW_FD(TRUNC), ROW_FD(ROUND), ROW_FD(SQRT),
        ROW_FD(RSQRT), ROW_FD(EXP), ROW_FD(EXP2), ROW_FD(EXPM1), ROW_FD(LOG), ROW_FD(LOG2), ROW_FD(LOG10), ROW_FD(LOG1P),
        ROW_FD(SIN), ROW_FD(COS), ROW_FD(TAN), ROW_FD(ASIN), ROW_FD(ACOS), ROW_FD(ATAN), ROW_FD(SINH), ROW_FD(COSH),
        ROW_FD(TANH), ROW_FD(ASINH), ROW_FD(ACOSH), ROW_FD(ATANH), ROW_FD(ERF), ROW_FD(ERFC), ROW_FD(ERFINV),
        ROW_FD(BESSEL_I0), ROW_FD(BESSEL_I0E), ROW_FD(BESSEL_I1), ROW_FD(BESSEL_I1E), ROW_FD(BESSEL_K0), ROW_FD(BESSEL_K0E),
        ROW_FD(BESSEL_K1), ROW_FD(BESSEL_K1E), ROW_FD(BESSEL_Y0), ROW_FD(BESSEL_Y1), ROW_FD(AIRY_AI), ROW_FD(ERFCX),
        ROW_FD(NDTRI), ROW_FD(LOG_NDTR), ROW_FD(BESSEL_J0), ROW_FD(BESSEL_J1), ROW_FD(MANTISSA), ROW_FD(EXPONENT),
        ROW_FD(ZETA), ROW_FD(IGAMMA), ROW_FD(IGAMMAC), ROW_FD(CHEBYSHEV_T), ROW_FD(CHEBYSHEV_U), ROW_FD(CHEBYSHEV_V),
        ROW_FD(CHEBYSHEV_W), ROW_FD(HERMITE_H), ROW_FD(HERMITE_HE), ROW_FD(LAGUERRE), ROW_FD(LEGENDRE), ROW(GCD, I64),
        ROW(LCM, I64), ROW(SAMPLE_GAMMA, F64), ROW(SAMPLE_POISSON, F64), ROW(SAMPLE_GAMMA_GRAD, F64),
        ROW_FD(LGAMMA), ROW_FD(DIGAMMA), ROW_FD(SIGMOID), ROW_IB(NOT), ROW_FD(ISNAN), ROW_FD(ISFINITE),
        ROW_FDI(ADD), ROW_FDI(SUB), ROW_FDI(MUL), ROW_FDI(DIV), ROW_FDI(FMOD), ROW_FDI(REMAINDER), ROW_FDI(FLOORDIV),
        ROW_FDI(POW), ROW_FD(ATAN2), ROW_FD(HYPOT), ROW_FD(NEXTAFTER), ROW_FD(COPYSIGN), ROW_FDIB(MAX), ROW_FDIB(MIN),
        ROW_FD(FMAX), ROW_FD(FMIN), ROW_IB(AND), ROW_IB(OR), ROW_IB(XOR), ROW(SHL, I64), ROW(SHR, I64), ROW_FDIB(EQ),
        ROW_FDIB(NE), ROW_FDIB(LT), ROW_FDIB(LE), ROW_FDIB(GT), ROW_FDIB(GE), ROW(PHILOX, I64), ROW_FDIB(SELECT),
        ROW_FDIB(CONST), ROW_CZ(NEG), ROW_CZ(ABS), ROW_CZ(SQRT), ROW_CZ(EXP), ROW_CZ(LOG), ROW_CZ(SIN), ROW_CZ(COS), ROW_CZ(TANH),
        ROW_CZ(TAN), ROW_CZ(ASIN), ROW_CZ(ACOS), ROW_CZ(ATAN), ROW_CZ(SINH), ROW_CZ(COSH), ROW_CZ(ASINH), ROW_CZ(ACOSH), ROW_CZ(ATANH), ROW_CZ(EXPM1), ROW_CZ(LOG1P),
        ROW_CZ(ISNAN), ROW_CZ(ISFINITE), ROW_CZ(REAL), ROW_CZ(IMAG), ROW_CZ(CONJ), ROW_FD(COMPLEX), ROW_CZ(ADD), ROW_CZ(SUB),
        ROW_CZ(MUL), ROW_CZ(DIV), ROW_CZ(POW), ROW_CZ(EQ), ROW_CZ(NE), ROW_CZ(SELECT), ROW_CZ(CONST),
    },
    .random24 = philox_24_F32,
    .pair = {PAIR_ROW(ADD), PAIR_ROW(SUB), PAIR_ROW(MUL), PAIR_ROW(DIV), PAIR_ROW(MAX), PAIR_ROW(MIN)},
    .convert = {CVT_ROWS(F32), CVT_ROWS(F64), CVT_ROWS(I64), CVT_ROWS(B8), [TNXK_F32][TNX_F16] = cvt_F32_F16_simd,
                CVT_ROW(F64, F16), CVT_ROW(I64, F16), CVT_ROW(B8, F16), CVT_ROWS(C64), CVT_ROWS(C128), CVT_ROW(C64, F16),
                CVT_ROW(C128, F16)},
    .splat = {splat_F32, splat_F64, splat_I64, splat_B8, splat_C64, splat_C128},
    .load = {MEM_ROWS(load)},
    .store = {MEM_ROWS(store)},
    .tile = {ACC_ROWS(tile), ARG_ROWS(tile)},
    .rows = {ACC_ROWS(rows), ARG_ROWS(rows)},
    .lanes = {ACC_ROWS(lanes), ARG_ROWS(lanes)},
    .tile_dot = {[TNXK_F32] = tile_dot_F32, [TNXK_F64] = tile_dot_F64},
    .lanes_dot = {[TNXK_F32] = lanes_dot_F32, [TNXK_F64] = lanes_dot_F64},
    .reset = {ACC_ROWS(reset)},
    .fold = {ACC_ROWS(fold)},
};

void PROG_CAT(tnxk_program__, PROG_ISA)(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared,
                                        void *worker) {
  prog_run(params, phase, begin, end, shared, worker, &PROG_CAT(prog_isa__, PROG_ISA));
}
