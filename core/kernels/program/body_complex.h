/* The loops for complex compute types; part of body.h. Transcendental functions are libm's, a lane at a time. */
#include <complex.h>

typedef struct { float re, im; } __attribute__((may_alias, aligned(1))) cx_C64;
typedef struct { double re, im; } __attribute__((may_alias, aligned(1))) cx_C128;

static inline cx_C64 make_C64(float _Complex v) { return (cx_C64){crealf(v), cimagf(v)}; }
static inline cx_C128 make_C128(double _Complex v) { return (cx_C128){creal(v), cimag(v)}; }
static inline float _Complex std_C64(cx_C64 v) { return CMPLXF(v.re, v.im); }
static inline double _Complex std_C128(cx_C128 v) { return CMPLX(v.re, v.im); }

/* Single precision divides in double, where |y|^2 cannot overflow; double scales by the larger part of y (Smith). */
static inline cx_C64 div_C64(cx_C64 x, cx_C64 y) {
  double c = y.re, d = y.im, q = c * c + d * d;
  return (cx_C64){(float)((x.re * c + x.im * d) / q), (float)((x.im * c - x.re * d) / q)};
}
static inline cx_C128 div_C128(cx_C128 x, cx_C128 y) {
  bool swap = __builtin_fabs(y.re) < __builtin_fabs(y.im);
  double big = swap ? y.im : y.re, small = swap ? y.re : y.im, r = small / big, q = big + small * r;
  if (big == 0) return (cx_C128){x.re / __builtin_fabs(y.re), x.im / __builtin_fabs(y.im)};
  return swap ? (cx_C128){(x.re * r + x.im) / q, (x.im * r - x.re) / q} : (cx_C128){(x.re + x.im * r) / q, (x.im - x.re * r) / q};
}

/* exp(x) - 1 and log(1 + x) without the loss near 0 that the difference and the sum would have. */
#define COMPLEX_NEAR_ZERO(CT, R, S)                                                                     \
  static inline cx_##CT expm1_##CT(cx_##CT x) {                                                         \
    R half = sin##S(x.im / 2);                                                                          \
    return (cx_##CT){expm1##S(x.re) * cos##S(x.im) - 2 * half * half, exp##S(x.re) * sin##S(x.im)};     \
  }                                                                                                     \
  static inline cx_##CT log1p_##CT(cx_##CT x) {                                                         \
    R size = hypot##S(x.re, x.im), im = atan2##S(x.im, 1 + x.re);                                       \
    R re = size < 1 ? log1p##S(x.re * (2 + x.re) + x.im * x.im) / 2 : log##S(hypot##S(1 + x.re, x.im)); \
    return (cx_##CT){re, im};                                                                           \
  }
COMPLEX_NEAR_ZERO(C64, float, f)
COMPLEX_NEAR_ZERO(C128, double, )

#define COMPLEX_OPS(CT, R, RCT, S)                                                                      \
  OP1(NEG, CT, cx_##CT, cx_##CT, ((cx_##CT){-x.re, -x.im}))                                             \
  OP1(CONJ, CT, cx_##CT, cx_##CT, ((cx_##CT){x.re, -x.im}))                                             \
  OP1(REAL, CT, R, cx_##CT, x.re)                                                                       \
  OP1(IMAG, CT, R, cx_##CT, x.im)                                                                       \
  OP1(ABS, CT, R, cx_##CT, hypot##S(x.re, x.im))                                                        \
  OP1(SQRT, CT, cx_##CT, cx_##CT, make_##CT(csqrt##S(std_##CT(x))))                                     \
  OP1(EXP, CT, cx_##CT, cx_##CT, make_##CT(cexp##S(std_##CT(x))))                                       \
  OP1(LOG, CT, cx_##CT, cx_##CT, make_##CT(clog##S(std_##CT(x))))                                       \
  OP1(SIN, CT, cx_##CT, cx_##CT, make_##CT(csin##S(std_##CT(x))))                                       \
  OP1(COS, CT, cx_##CT, cx_##CT, make_##CT(ccos##S(std_##CT(x))))                                       \
  OP1(TANH, CT, cx_##CT, cx_##CT, make_##CT(ctanh##S(std_##CT(x))))                                     \
  OP1(TAN, CT, cx_##CT, cx_##CT, make_##CT(ctan##S(std_##CT(x))))                                       \
  OP1(ASIN, CT, cx_##CT, cx_##CT, make_##CT(casin##S(std_##CT(x))))                                     \
  OP1(ACOS, CT, cx_##CT, cx_##CT, make_##CT(cacos##S(std_##CT(x))))                                     \
  OP1(ATAN, CT, cx_##CT, cx_##CT, make_##CT(catan##S(std_##CT(x))))                                     \
  OP1(SINH, CT, cx_##CT, cx_##CT, make_##CT(csinh##S(std_##CT(x))))                                     \
  OP1(COSH, CT, cx_##CT, cx_##CT, make_##CT(ccosh##S(std_##CT(x))))                                     \
  OP1(ASINH, CT, cx_##CT, cx_##CT, make_##CT(casinh##S(std_##CT(x))))                                   \
  OP1(ACOSH, CT, cx_##CT, cx_##CT, make_##CT(cacosh##S(std_##CT(x))))                                   \
  OP1(ATANH, CT, cx_##CT, cx_##CT, make_##CT(catanh##S(std_##CT(x))))                                   \
  OP1(EXPM1, CT, cx_##CT, cx_##CT, expm1_##CT(x))                                                       \
  OP1(LOG1P, CT, cx_##CT, cx_##CT, log1p_##CT(x))                                                       \
  OP1(ISNAN, CT, uint8_t, cx_##CT, x.re != x.re || x.im != x.im)                                        \
  OP1(ISFINITE, CT, uint8_t, cx_##CT, __builtin_fabs(x.re) < INFINITY && __builtin_fabs(x.im) < INFINITY) \
  OP2(ADD, CT, cx_##CT, cx_##CT, ((cx_##CT){x.re + y.re, x.im + y.im}))                                 \
  OP2(SUB, CT, cx_##CT, cx_##CT, ((cx_##CT){x.re - y.re, x.im - y.im}))                                 \
  OP2(MUL, CT, cx_##CT, cx_##CT, ((cx_##CT){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}))     \
  OP2(DIV, CT, cx_##CT, cx_##CT, div_##CT(x, y))                                                        \
  OP2(POW, CT, cx_##CT, cx_##CT, make_##CT(cpow##S(std_##CT(x), std_##CT(y))))                          \
  OP2(EQ, CT, uint8_t, cx_##CT, x.re == y.re && x.im == y.im)                                           \
  OP2(NE, CT, uint8_t, cx_##CT, x.re != y.re || x.im != y.im)                                           \
  OP2(COMPLEX, RCT, cx_##CT, R, ((cx_##CT){x, y}))                                                      \
  OP_SELECT(CT, cx_##CT)                                                                                \
  static void op_CONST_##CT(OP_ARGS) {                                                                  \
    op_CONST_##CT##_fill(dp, (cx_##CT){(R)in->imm.f[0], (R)in->imm.f[1]}, n);                           \
  }                                                                                                     \
  MEMORY(CT, cx_##CT, cx_##CT, x, x)                                                                    \
  CVT(CT, cx_##CT, C64, cx_C64, ((cx_C64){(float)x.re, (float)x.im}))                                   \
  CVT(CT, cx_##CT, C128, cx_C128, ((cx_C128){x.re, x.im}))                                              \
  CVT(CT, cx_##CT, BOOL, uint8_t, x.re != 0 || x.im != 0)                                               \
  /* Sums are sums of twice as many reals: the number of lanes is even. */                              \
  static void tile_SUM_##CT(prog_acc *acc, const void *xp, int64_t n, int64_t pos) {                    \
    tile_SUM_##RCT(acc, xp, 2 * n, pos);                                                                \
  }                                                                                                     \
  static void lanes_SUM_##CT(void *vp, int64_t *index, const void *xp, int64_t n, int64_t pos) {        \
    lanes_SUM_##RCT(vp, index, xp, 2 * n, pos);                                                         \
  }                                                                                                     \
  static void rows_SUM_##CT(void *out, const void *xp, int64_t rows, int64_t len) {                      \
    cx_##CT *d = out;                                                                                   \
    const cx_##CT *p = xp;                                                                              \
    for (int64_t r = 0; r < rows; r++, p += len) {                                                      \
      cx_##CT v = {0, 0};                                                                               \
      for (int64_t i = 0; i < len; i++) v = (cx_##CT){v.re + p[i].re, v.im + p[i].im};                  \
      d[r] = v;                                                                                         \
    }                                                                                                   \
  }                                                                                                     \
  static void rows_PROD_##CT(void *out, const void *xp, int64_t rows, int64_t len) {                    \
    cx_##CT *d = out;                                                                                   \
    const cx_##CT *p = xp;                                                                              \
    for (int64_t r = 0; r < rows; r++, p += len) {                                                      \
      cx_##CT v = {1, 0};                                                                               \
      for (int64_t i = 0; i < len; i++) v = (cx_##CT){v.re * p[i].re - v.im * p[i].im, v.re * p[i].im + v.im * p[i].re}; \
      d[r] = v;                                                                                         \
    }                                                                                                   \
  }                                                                                                     \
  static void reset_SUM_##CT(prog_acc *acc) { reset_SUM_##RCT(acc); }                                   \
  static void fold_SUM_##CT(prog_acc *acc) {                                                            \
    R *lane = (R *)acc->lane;                                                                           \
    for (int w = PROG_LANES / 2; w > 1; w /= 2)                                                         \
      for (int j = 0; j < w; j++) lane[j] += lane[j + w];                                               \
    prog_acc_add(acc, 0, lane[0]);                                                                      \
    prog_acc_add(acc, 1, lane[1]);                                                                      \
    reset_SUM_##RCT(acc);                                                                               \
  }                                                                                                     \
  static void reset_PROD_##CT(prog_acc *acc) { ((cx_##CT *)acc->lane)[0] = (cx_##CT){1, 0}; }           \
  static void tile_PROD_##CT(prog_acc *acc, const void *xp, int64_t n, int64_t pos) {                   \
    const cx_##CT *p = xp;                                                                              \
    cx_##CT v = ((cx_##CT *)acc->lane)[0];                                                              \
    for (int64_t i = 0; i < n; i++) v = (cx_##CT){v.re * p[i].re - v.im * p[i].im, v.re * p[i].im + v.im * p[i].re}; \
    ((cx_##CT *)acc->lane)[0] = v;                                                                      \
  }                                                                                                     \
  static void lanes_PROD_##CT(void *vp, int64_t *index, const void *xp, int64_t n, int64_t pos) {       \
    op_MUL_##CT(vp, vp, xp, NULL, n, NULL);                                                             \
  }                                                                                                     \
  static void fold_PROD_##CT(prog_acc *acc) {                                                           \
    cx_##CT x = ((cx_##CT *)acc->lane)[0];                                                              \
    double re = acc->s[0] * x.re - acc->s[1] * x.im;                                                    \
    acc->s[1] = acc->s[0] * x.im + acc->s[1] * x.re;                                                    \
    acc->s[0] = re;                                                                                     \
    reset_PROD_##CT(acc);                                                                               \
  }
COMPLEX_OPS(C64, float, F32, f)
COMPLEX_OPS(C128, double, F64, )

#define CVT_TO_COMPLEX(CT, T)                           \
  CVT(CT, T, C64, cx_C64, ((cx_C64){(float)x, 0}))      \
  CVT(CT, T, C128, cx_C128, ((cx_C128){(double)x, 0}))
CVT_TO_COMPLEX(F32, float)
CVT_TO_COMPLEX(F64, double)
CVT_TO_COMPLEX(I64, int64_t)
CVT_TO_COMPLEX(B8, uint8_t)

/* To a real dtype: the real part, as PyTorch converts. */
#define CVT_REAL_PART(CT, T, RCT, DT, R)                                 \
  static void cvt_##CT##_##DT(OP_ARGS) {                                 \
    R *d = dp;                                                           \
    const cx_##CT *a = ap;                                               \
    T re[64];                                                            \
    for (int64_t i = 0; i < n; i += 64) {                                \
      int64_t m = n - i < 64 ? n - i : 64;                               \
      for (int64_t j = 0; j < m; j++) re[j] = a[i + j].re;               \
      cvt_##RCT##_##DT(d + i, re, NULL, NULL, m, in);                    \
    }                                                                    \
  }
#define CVT_REAL_PARTS(DT, R) CVT_REAL_PART(C64, float, F32, DT, R) CVT_REAL_PART(C128, double, F64, DT, R)
CVT_REAL_PARTS(U8, int64_t)
CVT_REAL_PARTS(I8, int64_t)
CVT_REAL_PARTS(I16, int64_t)
CVT_REAL_PARTS(I32, int64_t)
CVT_REAL_PARTS(I64, int64_t)
CVT_REAL_PARTS(U16, int64_t)
CVT_REAL_PARTS(U32, int64_t)
CVT_REAL_PARTS(U64, int64_t)
CVT_REAL_PARTS(F8E4M3, float)
CVT_REAL_PARTS(F8E5M2, float)
CVT_REAL_PARTS(F16, float)
CVT_REAL_PARTS(BF16, float)
CVT_REAL_PARTS(F32, float)
CVT_REAL_PARTS(F64, double)
