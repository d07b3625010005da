/* Programs: every operation against libm in double or plain C, every mode over odd strides, and the same bits however the
 * units are handed out. */
#include <complex.h>
#include <float.h>

#include "base/cpu.h"
#include "base/half.h"
#include "kernels/program/program.h"
#include "test.h"

/* ---- building and running ---- */

typedef struct builder {
  tnxk_instr in[96];
  tnxk_operand op[TNXK_PROGRAM_MAX_OPERANDS];
  tnxk_program g;
  tnxk_program_args a;
} builder;

static void start(builder *b, tnxk_mode mode, int rank, const int64_t *sizes, int n_reduced) {
  memset(b, 0, sizeof *b);
  b->g.instrs = b->in;
  b->g.operands = b->op;
  b->g.mode = (uint8_t)mode;
  b->a.program = &b->g;
  b->a.rank = rank;
  b->a.n_reduced = n_reduced;
  for (int d = 0; d < rank; d++) b->a.sizes[d] = sizes[d];
}

/* An operand; strides in elements, NULL for row-major over the sizes. */
static int operand(builder *b, tnx_dtype dt, bool store, void *base, const int64_t *strides) {
  int o = b->g.n_operands++;
  int64_t size = (int64_t)tnx_dtype_size(dt), st = size;
  b->op[o] = (tnxk_operand){(uint8_t)dt, store};
  b->a.operand[o].base = base;
  for (int d = b->a.rank - 1; d >= 0; d--) {
    b->a.operand[o].strides[d] = strides ? strides[d] * size : st;
    st *= b->a.sizes[d];
  }
  return o;
}

static tnxk_instr *emit(builder *b, tnxk_op op, tnxk_ctype ct, int dst, int a, int x, int c) {
  tnxk_instr *in = &b->in[b->g.n_instrs++];
  *in = (tnxk_instr){.op = (uint16_t)op, .ctype = (uint8_t)ct, .dtype = TNX_DTYPE_NONE,
                     .dst = (uint16_t)dst, .a = (uint16_t)a, .b = (uint16_t)x, .c = (uint16_t)c};
  if (op != TNXK_STORE && dst >= b->g.n_regs) b->g.n_regs = (uint16_t)(dst + 1);
  return in;
}
static void load(builder *b, int reg, int o) { emit(b, TNXK_LOAD, tnxk_ctype_of((tnx_dtype)b->op[o].dtype), reg, 0, o, 0); }
static void store(builder *b, int o, int reg) { emit(b, TNXK_STORE, tnxk_ctype_of((tnx_dtype)b->op[o].dtype), 0, reg, o, 0); }

/* Runs the program, handing out `step` units at a time from the last to the first (0: all at once). */
static void run(builder *b, tnx_isa isa, int64_t step) {
  tnxk_kernel k;
  tnx_status s = tnxk_program_select(&b->a, isa, &k);
  CHECK_OK(s);
  if (s != TNX_OK) return;
  char *worker = aligned_alloc(64, (k.worker_bytes + 127) / 64 * 64), *shared = aligned_alloc(64, (k.shared_bytes + 127) / 64 * 64);
  memset(worker, 0xa5, k.worker_bytes);
  memset(shared, 0xa5, k.shared_bytes);
  for (uint32_t ph = 0; ph < k.phases; ph++) {
    CHECK(k.grain[ph] >= 1);
    int64_t n = k.units[ph], each = step ? step : n ? n : 1;
    for (int64_t at = n; at > 0; at -= each) k.run(&b->a, ph, at > each ? at - each : 0, at, shared, worker);
  }
  free(worker);
  free(shared);
}

static const tnx_isa isas[] = {TNX_ISA_SCALAR, TNX_ISA_AVX2, TNX_ISA_AVX512};
static int n_isas(void) { return tnx_cpu_isa() >= TNX_ISA_AVX512 ? 3 : tnx_cpu_isa() >= TNX_ISA_AVX2 ? 2 : 1; }

/* ---- operations ---- */

/* Distance of got from the exact value in units of the last place of a float of `digits` bits. */
static double ulps(double got, double want, int digits, int min_exp) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  if (got == want) return 0;
  if (digits == 24) { /* overflow to infinity counts as 2^128 */
    if (fabs(got) > 0x1p128) got = copysign(0x1p128, got);
    if (fabs(want) > 0x1p128) want = copysign(0x1p128, want);
    if (got == want) return 0;
  }
  if (isinf(got) || isinf(want)) return INFINITY;
  int e;
  frexp(want, &e);
  if (e < min_exp) e = min_exp;
  return fabs(got - want) / ldexp(1.0, e - digits);
}

typedef struct unary_case {
  tnxk_op op;
  double (*exact)(double);
  double max_ulp;
} unary_case;

static double f_neg(double x) { return -x; }
static double f_sign(double x) { return (x > 0) - (x < 0); }
static double f_rsqrt(double x) { return 1 / sqrt(x); }
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_lgamma(double x) { int s; return lgamma_r(x, &s); }

static const unary_case unary[] = {
    {TNXK_NEG, f_neg, 0}, {TNXK_ABS, fabs, 0}, {TNXK_SIGN, f_sign, 0}, {TNXK_CEIL, ceil, 0}, {TNXK_FLOOR, floor, 0},
    {TNXK_TRUNC, trunc, 0}, {TNXK_ROUND, rint, 0}, {TNXK_SQRT, sqrt, 0.5}, {TNXK_RSQRT, f_rsqrt, 1.5}, {TNXK_EXP, exp, 1.5},
    {TNXK_EXP2, exp2, 1.5}, {TNXK_EXPM1, expm1, 2}, {TNXK_LOG, log, 1.5}, {TNXK_LOG2, log2, 1.5}, {TNXK_LOG10, log10, 2},
    {TNXK_LOG1P, log1p, 2}, {TNXK_SIN, sin, 1.5}, {TNXK_COS, cos, 1.5}, {TNXK_TAN, tan, 1.5}, {TNXK_ASIN, asin, 2},
    {TNXK_ACOS, acos, 2}, {TNXK_ATAN, atan, 2}, {TNXK_SINH, sinh, 2}, {TNXK_COSH, cosh, 2}, {TNXK_TANH, tanh, 2.5},
    {TNXK_ASINH, asinh, 2}, {TNXK_ACOSH, acosh, 2}, {TNXK_ATANH, atanh, 2}, {TNXK_ERF, erf, 1.5}, {TNXK_ERFC, erfc, 3},
    {TNXK_LGAMMA, f_lgamma, 4}, {TNXK_SIGMOID, f_sigmoid, 2.5},
};

enum { N_UN = 60000 };
static const float specials[] = {0.0f, -0.0f, 1, -1, 2, -2, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, INFINITY, -INFINITY, NAN, FLT_MIN, -FLT_MIN,
                                 FLT_MAX, -FLT_MAX, 0x1p-149f, -0x1p-149f, 0x1p-130f, 88.72f, 88.73f, -87.3f, -103.9f, -104.1f, 89.5f,
                                 9.0f, 16777216.0f, 8388609.0f, 1e10f, -1e10f, 1e30f, 3.1415927f, 1.5707964f, 0.70710677f, 0.99999994f,
                                 1.0000001f, 127.9f, 128.0f, -149.5f, -126.5f, 1e-3f, 1e-5f, 1e-9f, -1e-9f};
static void fill_floats(float *x, int n, uint64_t seed) {
  for (int i = 0; i < n; i++) {
    uint64_t r = test_rand(&seed);
    int kind = (int)(r & 3);
    if (i < (int)(sizeof specials / sizeof *specials)) x[i] = specials[i];
    else if (kind == 0) x[i] = tnx_f32_from_bits((uint32_t)(r >> 32)); /* every exponent */
    else if (kind == 1) x[i] = test_randf(&seed) * 110;
    else if (kind == 2) x[i] = test_randf(&seed) * 2;
    else x[i] = test_randf(&seed) * 12;
  }
}

TEST(unary_ops) {
  static float x[N_UN], y[N_UN];
  static double xd[N_UN], yd[N_UN];
  fill_floats(x, N_UN, 1);
  for (int i = 0; i < N_UN; i++) xd[i] = x[i];
  for (size_t c = 0; c < sizeof unary / sizeof *unary; c++)
    for (int k = 0; k < n_isas(); k++) {
      const unary_case *u = &unary[c];
      int64_t n = N_UN;
      builder b;
      start(&b, TNXK_MAP, 1, &n, 0);
      load(&b, 0, operand(&b, TNX_F32, false, x, NULL));
      emit(&b, u->op, TNXK_F32, 1, 0, 0, 0);
      store(&b, operand(&b, TNX_F32, true, y, NULL), 1);
      run(&b, isas[k], 0);
      double worst = 0;
      int at = 0;
      for (int i = 0; i < N_UN; i++) {
        double e = ulps(y[i], u->exact((double)x[i]), 24, -125);
        if (u->exact(0.0) == 0 && x[i] == 0) CHECK_EQ(signbit(y[i]), signbit((float)u->exact((double)x[i])));
        if (u->op == TNXK_SIGMOID && x[i] < -88.7f) e = y[i] < FLT_MIN ? 0 : INFINITY; /* 1/(1 + infinity) */
        if (e > worst) worst = e, at = i;
      }
      /* Without FMA one more rounding. */
      double limit = u->max_ulp + (isas[k] == TNX_ISA_SCALAR && u->max_ulp > 0.5 ? 1.0 : 0);
      if (worst > limit) printf("  op %d isa %d: %.3f ulp at %a: got %a\n", u->op, isas[k], worst, x[at], y[at]);
      if (getenv("TNX_TEST_VERBOSE")) printf("  op %d isa %d: %.3f ulp\n", u->op, isas[k], worst);
      CHECK(worst <= limit);

      start(&b, TNXK_MAP, 1, &n, 0);
      load(&b, 0, operand(&b, TNX_F64, false, xd, NULL));
      emit(&b, u->op, TNXK_F64, 1, 0, 0, 0);
      store(&b, operand(&b, TNX_F64, true, yd, NULL), 1);
      run(&b, isas[k], 0);
      for (int i = 0; i < N_UN; i++) {
        double w = u->exact(xd[i]);
        CHECK(ulps(yd[i], w, 53, -1021) <= (u->op == TNXK_RSQRT || u->op == TNXK_SIGMOID ? 1 : 0));
      }
    }
}


typedef struct binary_case {
  tnxk_op op;
  double (*exact)(double, double); /* exact when rounded; the float32 operations of PyTorch where that differs: f32 */
  float (*f32)(float, float);
  int64_t (*i64)(int64_t, int64_t);
  double max_ulp;
  tnxk_ctype result; /* TNXK_B8: a predicate */
} binary_case;

static double b_add(double x, double y) { return x + y; }
static double b_sub(double x, double y) { return x - y; }
static double b_mul(double x, double y) { return x * y; }
static double b_div(double x, double y) { return x / y; }
static double b_max(double x, double y) { return x != x || y != y ? NAN : x > y ? x : y; }
static double b_min(double x, double y) { return x != x || y != y ? NAN : x < y ? x : y; }
static double b_rem(double x, double y) { double r = fmod(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }
static float b_remf(float x, float y) { float r = fmodf(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }
static float b_addf(float x, float y) { return x + y; }
static float b_subf(float x, float y) { return x - y; }
static float b_mulf(float x, float y) { return x * y; }
static float b_divf(float x, float y) { return x / y; }
static double b_eq(double x, double y) { return x == y; }
static double b_ne(double x, double y) { return x != y; }
static double b_lt(double x, double y) { return x < y; }
static double b_le(double x, double y) { return x <= y; }
static double b_gt(double x, double y) { return x > y; }
static double b_ge(double x, double y) { return x >= y; }
static int64_t i_add(int64_t x, int64_t y) { return (int64_t)((uint64_t)x + (uint64_t)y); }
static int64_t i_sub(int64_t x, int64_t y) { return (int64_t)((uint64_t)x - (uint64_t)y); }
static int64_t i_mul(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }
static int64_t i_div(int64_t x, int64_t y) { return y == 0 ? 0 : (int64_t)((__int128)x / y); }
static int64_t i_mod(int64_t x, int64_t y) { return y == 0 ? 0 : (int64_t)((__int128)x % y); }
static int64_t i_rem(int64_t x, int64_t y) { return y == 0 ? 0 : (int64_t)(((__int128)x % y + y) % y); }
static int64_t i_fdiv(int64_t x, int64_t y) { return y == 0 ? 0 : (int64_t)(((__int128)x - i_rem(x, y)) / y); }
static int64_t i_max(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t i_min(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t i_eq(int64_t x, int64_t y) { return x == y; }
static int64_t i_ne(int64_t x, int64_t y) { return x != y; }
static int64_t i_lt(int64_t x, int64_t y) { return x < y; }
static int64_t i_le(int64_t x, int64_t y) { return x <= y; }
static int64_t i_gt(int64_t x, int64_t y) { return x > y; }
static int64_t i_ge(int64_t x, int64_t y) { return x >= y; }

static const binary_case binary[] = {
    {TNXK_ADD, b_add, b_addf, i_add, 0, 0}, {TNXK_SUB, b_sub, b_subf, i_sub, 0, 0}, {TNXK_MUL, b_mul, b_mulf, i_mul, 0, 0},
    {TNXK_DIV, b_div, b_divf, i_div, 0, 0}, {TNXK_FMOD, fmod, fmodf, i_mod, 0, 0}, {TNXK_REMAINDER, b_rem, b_remf, i_rem, 0, 0},
    {TNXK_POW, pow, NULL, NULL, 1.5, 0}, {TNXK_ATAN2, atan2, NULL, NULL, 2, 0}, {TNXK_HYPOT, hypot, NULL, NULL, 1.5, 0},
    {TNXK_NEXTAFTER, nextafter, nextafterf, NULL, 0, 0}, {TNXK_COPYSIGN, copysign, copysignf, NULL, 0, 0},
    {TNXK_MAX, b_max, NULL, i_max, 0, 0}, {TNXK_MIN, b_min, NULL, i_min, 0, 0}, {TNXK_FMAX, fmax, NULL, NULL, 0, 0},
    {TNXK_FMIN, fmin, NULL, NULL, 0, 0}, {TNXK_FLOORDIV, NULL, NULL, i_fdiv, 0, 0},
    {TNXK_EQ, b_eq, NULL, i_eq, 0, TNXK_B8}, {TNXK_NE, b_ne, NULL, i_ne, 0, TNXK_B8}, {TNXK_LT, b_lt, NULL, i_lt, 0, TNXK_B8},
    {TNXK_LE, b_le, NULL, i_le, 0, TNXK_B8}, {TNXK_GT, b_gt, NULL, i_gt, 0, TNXK_B8}, {TNXK_GE, b_ge, NULL, i_ge, 0, TNXK_B8},
};

static void run_binary(const binary_case *u, tnx_isa isa, tnx_dtype dt, int64_t n, void *x, void *y, void *out) {
  builder b;
  start(&b, TNXK_MAP, 1, &n, 0);
  load(&b, 0, operand(&b, dt, false, x, NULL));
  load(&b, 1, operand(&b, dt, false, y, NULL));
  emit(&b, u->op, tnxk_ctype_of(dt), 2, 0, 1, 0);
  store(&b, operand(&b, u->result == TNXK_B8 ? TNX_BOOL : dt, true, out, NULL), 2);
  run(&b, isa, 0);
}

TEST(binary_ops) {
  enum { N = 20000 };
  static float x[N], y[N], z[N];
  static double xd[N], yd[N], zd[N];
  static int64_t xi[N], yi[N], zi[N];
  static const int64_t ints[] = {0, 1, -1, 2, -2, 3, 7, -7, 63, 64, INT64_MAX, INT64_MIN, INT64_MIN + 1, 1 << 20, -100};
  fill_floats(x, N, 3);
  fill_floats(y, N, 4);
  uint64_t seed = 5;
  for (int i = 0; i < N; i++) {
    if (i < 2000) x[i] = specials[i / 45 % 45], y[i] = specials[i % 45];
    if (i > 15000 && i % 3 == 0) y[i] = x[i];
    xd[i] = x[i], yd[i] = y[i];
    uint64_t r = test_rand(&seed);
    xi[i] = i < 225 ? ints[i / 15] : (int64_t)test_rand(&seed) >> (r & 63);
    yi[i] = i < 225 ? ints[i % 15] : (int64_t)test_rand(&seed) >> ((r >> 8) & 63);
  }
  for (size_t c = 0; c < sizeof binary / sizeof *binary; c++)
    for (int k = 0; k < n_isas(); k++) {
      const binary_case *u = &binary[c];
      uint8_t pred[N];
      if (u->exact) {
        bool p = u->result == TNXK_B8;
        double worst = 0, worst_d = 0;
        int at = 0;
        run_binary(u, isas[k], TNX_F32, N, x, y, p ? (void *)pred : z);
        for (int i = 0; i < N; i++) {
          double want = u->f32 ? u->f32(x[i], y[i]) : u->exact(x[i], y[i]), e = ulps(p ? pred[i] : z[i], want, 24, -125);
          if (e > worst) worst = e, at = i;
        }
        if (worst > u->max_ulp) printf("  op %d isa %d: %.3f ulp at %a %a: got %a\n", u->op, isas[k], worst, x[at], y[at], z[at]);
        CHECK(worst <= u->max_ulp);
        run_binary(u, isas[k], TNX_F64, N, xd, yd, p ? (void *)pred : zd);
        for (int i = 0; i < N; i++) worst_d = fmax(worst_d, ulps(p ? pred[i] : zd[i], u->exact(xd[i], yd[i]), 53, -1021));
        CHECK(worst_d == 0);
      }
      if (u->i64) {
        bool p = u->result == TNXK_B8;
        run_binary(u, isas[k], TNX_I64, N, xi, yi, p ? (void *)pred : zi);
        for (int i = 0; i < N; i++)
          if ((p ? pred[i] : zi[i]) != u->i64(xi[i], yi[i])) {
            printf("  op %d isa %d: %lld, %lld gives %lld\n", u->op, isas[k], (long long)xi[i], (long long)yi[i], (long long)zi[i]);
            CHECK(!"integer operation");
            break;
          }
      }
    }
}

/* Results that torch 2.13 gives on the CPU. */
TEST(torch_semantics) {
  static int64_t px[] = {2, 3, -1, -1, 1, 0, 2, -2, -1, 0, 5, INT64_MIN}, py[] = {-1, -2, -1, -2, -5, -1, 63, 63, -3, 0, 40, -1};
  static const int64_t pow_want[] = {0, 0, -1, 1, 1, 0, INT64_MIN, INT64_MIN, -1, 1, -4369436395329424031, 0};
  static int64_t sx[] = {1, 1, 1, -8, -8, -8, 8, -8}, sy[] = {63, 64, -1, 1, 64, -1, -1, 63};
  static const int64_t shl_want[] = {INT64_MIN, 0, 0, -16, 0, 0, 0, 0}, shr_want[] = {0, 0, 0, -4, -1, -1, 0, -1};
  static float fx[] = {5, -5, 5, -5, INFINITY, 1, -1, 0, 1, NAN, 0.3f, -0.0f, 0}, fy[] = {3, 3, -3, -3, 2, INFINITY, INFINITY, 0, 0, 1, 0.1f, 1, -1};
  static const float fd_want[] = {1, -2, -2, 1, NAN, 0, -1, NAN, INFINITY, NAN, 3, -0.0f, -0.0f};
  static const float rem_want[] = {2, 1, -1, -2, NAN, 1, INFINITY, NAN, NAN, NAN, 7.4505806e-9f, -0.0f, 0};
  int64_t out[16];
  float f[16];
  for (int k = 0; k < n_isas(); k++) {
    run_binary(&(binary_case){.op = TNXK_POW}, isas[k], TNX_I64, 12, px, py, out);
    for (int i = 0; i < 12; i++) CHECK_EQ(out[i], pow_want[i]);
    run_binary(&(binary_case){.op = TNXK_SHL}, isas[k], TNX_I64, 8, sx, sy, out);
    for (int i = 0; i < 8; i++) CHECK_EQ(out[i], shl_want[i]);
    run_binary(&(binary_case){.op = TNXK_SHR}, isas[k], TNX_I64, 8, sx, sy, out);
    for (int i = 0; i < 8; i++) CHECK_EQ(out[i], shr_want[i]);
    run_binary(&(binary_case){.op = TNXK_FLOORDIV}, isas[k], TNX_F32, 13, fx, fy, f);
    for (int i = 0; i < 13; i++) CHECK(ulps(f[i], fd_want[i], 24, -125) == 0 && (fd_want[i] != 0 || signbit(f[i]) == signbit(fd_want[i])));
    run_binary(&(binary_case){.op = TNXK_REMAINDER}, isas[k], TNX_F32, 13, fx, fy, f);
    for (int i = 0; i < 13; i++) CHECK(ulps(f[i], rem_want[i], 24, -125) == 0);
  }
}

/* Reads dtype `from`, converts, stores as dtype `to`. */
static void convert(tnx_isa isa, tnx_dtype from, tnx_dtype to, int64_t n, void *in, void *out) {
  builder b;
  start(&b, TNXK_MAP, 1, &n, 0);
  load(&b, 0, operand(&b, from, false, in, NULL));
  emit(&b, TNXK_CONVERT, tnxk_ctype_of(from), 1, 0, 0, 0)->dtype = (uint8_t)to;
  store(&b, operand(&b, to, true, out, NULL), 1);
  run(&b, isa, 0);
}

TEST(conversions) {
  enum { N = 4000 };
  static float x[N];
  static int64_t xi[N];
  static char got[N * 8];
  static const float edge[] = {NAN, INFINITY, -INFINITY, 1e20f, -1e20f, 3.7f, -3.7f, 300, -129};
  static const int32_t to_i32[] = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 3, -3, 300, -129};
  static const uint8_t to_u8[] = {0, 0, 0, 0, 0, 3, 253, 44, 127};
  fill_floats(x, N, 8);
  uint64_t seed = 6;
  for (int i = 0; i < N; i++) xi[i] = (int64_t)test_rand(&seed) >> (i % 60);
  memcpy(x, edge, sizeof edge);
  for (int k = 0; k < n_isas(); k++) {
    convert(isas[k], TNX_F32, TNX_I32, N, x, got);
    for (int i = 0; i < 9; i++) CHECK_EQ(((int32_t *)got)[i], to_i32[i]);
    convert(isas[k], TNX_F32, TNX_U8, N, x, got);
    for (int i = 0; i < 9; i++) CHECK_EQ(((uint8_t *)got)[i], to_u8[i]);
    convert(isas[k], TNX_F32, TNX_BOOL, N, x, got);
    for (int i = 0; i < N; i++) CHECK_EQ(got[i], x[i] != 0);
    convert(isas[k], TNX_I64, TNX_I8, N, xi, got);
    for (int i = 0; i < N; i++) CHECK_EQ(((int8_t *)got)[i], (int8_t)xi[i]);
    convert(isas[k], TNX_I64, TNX_F32, N, xi, got);
    for (int i = 0; i < N; i++) CHECK(((float *)got)[i] == (float)xi[i]);
    convert(isas[k], TNX_I64, TNX_F64, N, xi, got);
    for (int i = 0; i < N; i++) CHECK(((double *)got)[i] == (double)xi[i]);
    convert(isas[k], TNX_F32, TNX_BF16, N, x, got);
    for (int i = 0; i < N; i++) CHECK_EQ(((uint16_t *)got)[i], tnx_f32_to_bf16(x[i]));
    convert(isas[k], TNX_F32, TNX_F8E4M3, N, x, got);
    for (int i = 0; i < N; i++) CHECK_EQ(((uint8_t *)got)[i], tnx_f32_to_f8e4m3(x[i]));
    convert(isas[k], TNX_F32, TNX_F8E5M2, N, x, got);
    for (int i = 0; i < N; i++) CHECK_EQ(((uint8_t *)got)[i], tnx_f32_to_f8e5m2(x[i]));
    convert(isas[k], TNX_F32, TNX_F16, N, x, got);
    for (int i = 0; i < N; i++) {
      uint16_t h = tnx_f32_to_f16(x[i]), g = ((uint16_t *)got)[i];
      CHECK(g == h || (isnan(x[i]) && (g & 0x7fff) > 0x7c00));
    }
    /* Every narrow value survives a round trip through its register. */
    static uint16_t all[65536], back[65536];
    static uint8_t all8[256], back8[256];
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int i = 0; i < 256; i++) all8[i] = (uint8_t)i;
    convert(isas[k], TNX_BF16, TNX_BF16, 65536, all, back);
    for (int i = 0; i < 65536; i++) CHECK(back[i] == i || ((i & 0x7f80) == 0x7f80 && (back[i] & 0x7f80) == 0x7f80 && (back[i] & 0x7f)));
    convert(isas[k], TNX_F16, TNX_F16, 65536, all, back);
    for (int i = 0; i < 65536; i++) CHECK(back[i] == i || ((i & 0x7fff) > 0x7c00 && (back[i] & 0x7fff) > 0x7c00));
    for (int dt = TNX_F8E4M3; dt <= TNX_F8E5M2; dt++) {
      convert(isas[k], (tnx_dtype)dt, (tnx_dtype)dt, 256, all8, back8);
      for (int i = 0; i < 256; i++) CHECK(back8[i] == i || (i & 0x7f) > 0x7c);
    }
  }
}

/* The known answer of Philox4x32-10 for key 0 and counter 0. */
TEST(philox) {
  static int64_t seed[] = {0, 0, 0, 0}, offset[] = {0, 0, 0, 0}, lane[] = {0, 1, 2, 3};
  static const uint32_t want[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  int64_t out[4], n = 4;
  for (int k = 0; k < n_isas(); k++) {
    builder b;
    start(&b, TNXK_MAP, 1, &n, 0);
    load(&b, 0, operand(&b, TNX_I64, false, seed, NULL));
    load(&b, 1, operand(&b, TNX_I64, false, offset, NULL));
    load(&b, 2, operand(&b, TNX_I64, false, lane, NULL));
    emit(&b, TNXK_PHILOX, TNXK_I64, 3, 0, 1, 2);
    store(&b, operand(&b, TNX_I64, true, out, NULL), 3);
    run(&b, isas[k], 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(out[i], want[i]);
  }
}

typedef double _Complex (*complex_fn)(double _Complex, double _Complex);
static double _Complex z_add(double _Complex x, double _Complex y) { return x + y; }
static double _Complex z_sub(double _Complex x, double _Complex y) { return x - y; }
static double _Complex z_mul(double _Complex x, double _Complex y) { return x * y; }
static double _Complex z_div(double _Complex x, double _Complex y) { return x / y; }
static double _Complex z_neg(double _Complex x, double _Complex y) { return -x; }
static double _Complex z_conj(double _Complex x, double _Complex y) { return conj(x); }
static double _Complex z_exp(double _Complex x, double _Complex y) { return cexp(x); }
static double _Complex z_log(double _Complex x, double _Complex y) { return clog(x); }
static double _Complex z_sqrt(double _Complex x, double _Complex y) { return csqrt(x); }
static double _Complex z_sin(double _Complex x, double _Complex y) { return csin(x); }
static double _Complex z_cos(double _Complex x, double _Complex y) { return ccos(x); }
static double _Complex z_tanh(double _Complex x, double _Complex y) { return ctanh(x); }
static double _Complex z_pow(double _Complex x, double _Complex y) { return cpow(x, y); }
static double _Complex z_abs(double _Complex x, double _Complex y) { return cabs(x); }
static double _Complex z_real(double _Complex x, double _Complex y) { return creal(x); }
static double _Complex z_imag(double _Complex x, double _Complex y) { return cimag(x); }

TEST(complex_ops) {
  static const struct { tnxk_op op; complex_fn f; bool real; } cases[] = {
      {TNXK_ADD, z_add, 0}, {TNXK_SUB, z_sub, 0}, {TNXK_MUL, z_mul, 0}, {TNXK_DIV, z_div, 0}, {TNXK_NEG, z_neg, 0}, {TNXK_CONJ, z_conj, 0},
      {TNXK_EXP, z_exp, 0}, {TNXK_LOG, z_log, 0}, {TNXK_SQRT, z_sqrt, 0}, {TNXK_SIN, z_sin, 0}, {TNXK_COS, z_cos, 0}, {TNXK_TANH, z_tanh, 0},
      {TNXK_POW, z_pow, 0}, {TNXK_ABS, z_abs, 1}, {TNXK_REAL, z_real, 1}, {TNXK_IMAG, z_imag, 1},
  };
  enum { N = 1500 };
  static float _Complex x[N], y[N], z[N];
  static double _Complex xd[N], yd[N], zd[N];
  static float re[N];
  static double red[N];
  uint64_t seed = 12;
  for (int i = 0; i < N; i++) {
    x[i] = CMPLXF(test_randf(&seed) * 3, test_randf(&seed) * 3), xd[i] = x[i];
    y[i] = CMPLXF(test_randf(&seed) * 3, test_randf(&seed) * 3), yd[i] = y[i];
  }
  int64_t n = N;
  for (int k = 0; k < n_isas(); k++) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
      for (int wide = 0; wide < 2; wide++) {
        builder b;
        start(&b, TNXK_MAP, 1, &n, 0);
        tnx_dtype dt = wide ? TNX_C128 : TNX_C64, out = !cases[c].real ? dt : wide ? TNX_F64 : TNX_F32;
        void *o = cases[c].real ? wide ? (void *)red : re : wide ? (void *)zd : z;
        CHECK(tnxk_op_supported(cases[c].op, wide ? TNXK_C128 : TNXK_C64));
        load(&b, 0, operand(&b, dt, false, wide ? (void *)xd : x, NULL));
        load(&b, 1, operand(&b, dt, false, wide ? (void *)yd : y, NULL));
        emit(&b, cases[c].op, tnxk_ctype_of(dt), 0, 0, 1, 0);
        store(&b, operand(&b, out, true, o, NULL), 0);
        run(&b, isas[k], 1);
        for (int i = 0; i < N; i++) {
          double _Complex want = cases[c].f(xd[i], yd[i]), got = cases[c].real ? wide ? red[i] : re[i] : wide ? zd[i] : z[i];
          if (cabs(got - want) > (wide ? 1e-13 : 2e-6) * (cabs(want) + 1e-3)) {
            printf("  op %d wide %d: %g%+gi, not %g%+gi\n", cases[c].op, wide, creal(got), cimag(got), creal(want), cimag(want));
            CHECK(!"complex operation");
            break;
          }
        }
      }
    /* Sums and products over both directions; conversions drop or add the imaginary part. */
    for (int mode = TNXK_REDUCE_INNER; mode <= TNXK_REDUCE_OUTER; mode++) {
      builder b;
      int64_t sizes[] = {30, 50};
      start(&b, (tnxk_mode)mode, 2, sizes, 1);
      float _Complex sum[50], prod[50];
      double _Complex unit[N];
      for (int i = 0; i < N; i++) unit[i] = yd[i] / cabs(yd[i]);
      int64_t inner[] = {1, 0}, outer[] = {0, 1};
      load(&b, 0, operand(&b, TNX_C64, false, x, NULL));
      load(&b, 1, operand(&b, TNX_C128, false, unit, NULL));
      emit(&b, TNXK_ACC_SUM, TNXK_C64, 2, 0, 0, 0);
      emit(&b, TNXK_ACC_PROD, TNXK_C128, 3, 1, 0, 0);
      b.g.first_epilogue = b.g.n_instrs;
      emit(&b, TNXK_CONVERT, TNXK_C128, 3, 3, 0, 0)->dtype = TNX_C64;
      int64_t *st = mode == TNXK_REDUCE_INNER ? inner : outer;
      store(&b, operand(&b, TNX_C64, true, sum, st), 2);
      store(&b, operand(&b, TNX_C64, true, prod, st), 3);
      run(&b, isas[k], 1);
      int kept = mode == TNXK_REDUCE_INNER ? 30 : 50;
      for (int o = 0; o < kept; o++) {
        double _Complex s = 0, p = 1;
        for (int r = 0; r < N / kept; r++) {
          int i = mode == TNXK_REDUCE_INNER ? o * 50 + r : r * 50 + o;
          s += xd[i], p *= unit[i];
        }
        CHECK(cabs(s - sum[o]) < 1e-4 && cabs(p - prod[o]) < 1e-5);
      }
    }
    convert(isas[k], TNX_C64, TNX_F32, N, x, re);
    for (int i = 0; i < N; i++) CHECK(re[i] == crealf(x[i]));
    convert(isas[k], TNX_F32, TNX_C128, N, re, zd);
    for (int i = 0; i < N; i++) CHECK(creal(zd[i]) == re[i] && cimag(zd[i]) == 0);
  }
}

/* ---- modes ---- */

/* x * y + z over three dimensions with a transposed, a reversed and a broadcast operand. */
TEST(map_strides) {
  static const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {64, 3, 33}, {2, 1, 1030}, {1, 700, 3}, {0, 4, 5}, {5, 4, 0}};
  for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
    for (int k = 0; k < n_isas(); k++)
      for (int simple = 0; simple < 2; simple++)
        for (int64_t step = 0; step < 3; step++) {
          const int64_t *s = sizes[c], n = s[0] * s[1] * s[2];
          float *x = malloc(4 * (size_t)(n + 1)), *y = malloc(4 * (size_t)(n + 1)), *z = malloc(4 * (size_t)(s[1] + 1)),
                *out = malloc(4 * (size_t)(n + 1));
          uint64_t seed = 5 + c;
          for (int64_t i = 0; i < n; i++) x[i] = test_randf(&seed), y[i] = test_randf(&seed), out[i] = 99;
          for (int64_t i = 0; i < s[1]; i++) z[i] = test_randf(&seed);
          builder b;
          start(&b, TNXK_MAP, 3, s, 0);
          load(&b, 0, operand(&b, TNX_F32, false, x, (int64_t[]){s[1], 1, s[0] * s[1]}));                 /* transposed */
          load(&b, 1, operand(&b, TNX_F32, false, y + (n ? n - 1 : 0), (int64_t[]){-s[1] * s[2], -s[2], -1})); /* reversed */
          load(&b, 2, operand(&b, TNX_F32, false, z, (int64_t[]){0, 1, 0}));
          emit(&b, TNXK_MUL, TNXK_F32, 3, 0, 1, 0);
          emit(&b, TNXK_ADD, TNXK_F32, 3, 3, 2, 0);
          store(&b, operand(&b, TNX_F32, true, out, NULL), 3);
          if (simple) tnxk_program_simplify(&b.a);
          run(&b, isas[k], step);
          for (int64_t i = 0; i < n; i++) {
            int64_t i2 = i % s[2], i1 = i / s[2] % s[1], i0 = i / s[2] / s[1];
            float want = x[i0 * s[1] + i1 + i2 * s[0] * s[1]] * y[n - 1 - i] + z[i1];
            if (out[i] != want) {
              CHECK(out[i] == want);
              break;
            }
          }
          free(x), free(y), free(z), free(out);
        }
}

static void softmax(builder *b, tnx_dtype dt, int64_t rows, int64_t n, const void *in, void *out) {
  start(b, TNXK_ROW, 2, (int64_t[]){rows, n}, 0);
  load(b, 0, operand(b, dt, false, (void *)in, NULL));
  emit(b, TNXK_REDUCE_MAX, TNXK_F32, 1, 0, 0, 0);
  emit(b, TNXK_SUB, TNXK_F32, 0, 0, 1, 0);
  emit(b, TNXK_EXP, TNXK_F32, 0, 0, 0, 0);
  emit(b, TNXK_REDUCE_SUM, TNXK_F32, 1, 0, 0, 0);
  emit(b, TNXK_DIV, TNXK_F32, 0, 0, 1, 0);
  store(b, operand(b, dt, true, out, NULL), 0);
}

static void rms_norm(builder *b, tnx_dtype dt, int64_t rows, int64_t n, const void *in, const void *w, void *out) {
  start(b, TNXK_ROW, 2, (int64_t[]){rows, n}, 0);
  load(b, 0, operand(b, dt, false, (void *)in, NULL));
  load(b, 1, operand(b, dt, false, (void *)w, (int64_t[]){0, 1}));
  emit(b, TNXK_CONST, TNXK_F32, 2, 0, 0, 0)->imm.f[0] = 1.0 / (double)n;
  emit(b, TNXK_CONST, TNXK_F32, 3, 0, 0, 0)->imm.f[0] = 1e-5;
  emit(b, TNXK_MUL, TNXK_F32, 4, 0, 0, 0);
  emit(b, TNXK_REDUCE_SUM, TNXK_F32, 4, 4, 0, 0);
  emit(b, TNXK_MUL, TNXK_F32, 4, 4, 2, 0);
  emit(b, TNXK_ADD, TNXK_F32, 4, 4, 3, 0);
  emit(b, TNXK_RSQRT, TNXK_F32, 4, 4, 0, 0);
  emit(b, TNXK_MUL, TNXK_F32, 0, 0, 4, 0);
  emit(b, TNXK_MUL, TNXK_F32, 0, 0, 1, 0);
  store(b, operand(b, dt, true, out, NULL), 0);
}

TEST(row_softmax_and_norm) {
  static const int64_t lengths[] = {1, 3, 64, 511, 512, 513, 1024, 5000, 40000};
  for (size_t c = 0; c < sizeof lengths / sizeof *lengths; c++)
    for (int k = 0; k < n_isas(); k++)
      for (int bf = 0; bf < 2; bf++) {
        const int64_t n = lengths[c], rows = 3;
        float *x = malloc(4 * (size_t)(rows * n)), *w = malloc(4 * (size_t)n);
        float *got = malloc(4 * (size_t)(rows * n)), *again = malloc(4 * (size_t)(rows * n));
        uint16_t *xh = malloc(2 * (size_t)(rows * n)), *wh = malloc(2 * (size_t)n), *oh = malloc(2 * (size_t)(rows * n));
        uint64_t seed = 77 + c;
        for (int64_t i = 0; i < rows * n; i++) x[i] = tnx_bf16_to_f32(xh[i] = tnx_f32_to_bf16(test_randf(&seed) * 8));
        for (int64_t i = 0; i < n; i++) w[i] = tnx_bf16_to_f32(wh[i] = tnx_f32_to_bf16(test_randf(&seed)));
        for (int norm = 0; norm < 2; norm++) {
          tnx_dtype dt = bf ? TNX_BF16 : TNX_F32;
          const void *in = bf ? (void *)xh : x, *wp = bf ? (void *)wh : w;
          void *o = bf ? (void *)oh : got;
          builder b;
          for (int pass = 0; pass < 2; pass++) {
            if (norm) rms_norm(&b, dt, rows, n, in, wp, o);
            else softmax(&b, dt, rows, n, in, o);
            if (pass) tnxk_program_simplify(&b.a);
            run(&b, isas[k], pass);
            for (int64_t i = 0; i < rows * n && bf; i++) got[i] = tnx_bf16_to_f32(oh[i]);
            if (pass) CHECK(memcmp(got, again, 4 * (size_t)(rows * n)) == 0);
            memcpy(again, got, 4 * (size_t)(rows * n));
          }
          for (int64_t r = 0; r < rows; r++) {
            double max = -INFINITY, sum = 0, sq = 0;
            for (int64_t i = 0; i < n; i++) max = fmax(max, x[r * n + i]);
            for (int64_t i = 0; i < n; i++) sum += exp((double)x[r * n + i] - max), sq += (double)x[r * n + i] * x[r * n + i];
            for (int64_t i = 0; i < n; i++) {
              double want = norm ? x[r * n + i] / sqrt(sq / (double)n + 1e-5) * w[i] : exp((double)x[r * n + i] - max) / sum;
              if (fabs(got[r * n + i] - want) > (bf ? 0x1p-8 : 2e-6) * fabs(want)) {
                printf("  n %lld row %lld at %lld: %g, not %g\n", (long long)n, (long long)r, (long long)i, got[r * n + i], want);
                CHECK(!"close");
                break;
              }
            }
          }
        }
        free(x), free(w), free(got), free(again), free(xh), free(wh), free(oh);
      }
}

/* Sum, maximum and position of the maximum over the last or the first of three dimensions. */
TEST(reduce_modes) {
  static const int64_t shapes[][3] = {{1, 1, 1}, {3, 4, 5}, {7, 1, 513}, {2, 3, 70000}, {1, 1, 200000}, {700, 5, 3}, {3000, 2, 600},
                                      {600, 600, 1}, {0, 3, 4}, {3, 4, 0}, {5000, 7, 1}};
  for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
    for (int k = 0; k < n_isas(); k++)
      for (int outer = 0; outer < 2; outer++)
        for (int nr = 1; nr <= 3; nr++) {
          const int64_t *s = shapes[c], n = s[0] * s[1] * s[2];
          int64_t reduced = 1, kept = 1;
          bool red[3];
          for (int d = 0; d < 3; d++) {
            red[d] = outer ? d < nr : d >= 3 - nr;
            if (red[d]) reduced *= s[d];
            else kept *= s[d];
          }
          float *x = malloc(4 * (size_t)(n + 1)), *sum = malloc(4 * (size_t)(kept + 1)), *max = malloc(4 * (size_t)(kept + 1));
          int32_t *arg = malloc(4 * (size_t)(kept + 1));
          float *sum1 = malloc(4 * (size_t)(kept + 1));
          uint64_t seed = 9 + c;
          for (int64_t i = 0; i < n; i++) x[i] = (float)((int)(test_rand(&seed) % 2001) - 1000) / 16;
          int64_t st[3], run_ = 1;
          for (int d = 2; d >= 0; d--) {
            st[d] = red[d] ? 0 : run_;
            if (!red[d]) run_ *= s[d];
          }
          for (int pass = 0; pass < 3; pass++) {
            builder b;
            start(&b, outer ? TNXK_REDUCE_OUTER : TNXK_REDUCE_INNER, 3, s, nr);
            int xi = operand(&b, TNX_F32, false, x, NULL), so = operand(&b, TNX_F32, true, pass ? sum : sum1, st);
            int mo = operand(&b, TNX_F32, true, max, st), ao = operand(&b, TNX_I32, true, arg, st);
            load(&b, 0, xi);
            emit(&b, TNXK_ACC_SUM, TNXK_F32, 1, 0, 0, 0);
            emit(&b, TNXK_ACC_MAX, TNXK_F32, 2, 0, 0, 0);
            emit(&b, TNXK_ACC_ARGMAX, TNXK_F32, 3, 0, 0, 0);
            b.g.first_epilogue = b.g.n_instrs;
            emit(&b, TNXK_CONST, TNXK_F32, 4, 0, 0, 0)->imm.f[0] = 2;
            emit(&b, TNXK_MUL, TNXK_F32, 1, 1, 4, 0);
            store(&b, so, 1);
            store(&b, mo, 2);
            store(&b, ao, 3);
            if (pass == 2) tnxk_program_simplify(&b.a);
            run(&b, isas[k], pass);
            if (pass == 1) CHECK(memcmp(sum, sum1, 4 * (size_t)kept) == 0);
          }
          double *want = calloc((size_t)kept + 1, 8), *wmax = malloc(8 * ((size_t)kept + 1));
          int64_t *warg = calloc((size_t)kept + 1, 8);
          for (int64_t i = 0; i < kept; i++) wmax[i] = -INFINITY;
          for (int64_t i = 0; i < n; i++) {
            int64_t at[3] = {i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]}, o = 0, pos = 0;
            for (int d = 0; d < 3; d++) {
              o += at[d] * st[d];
              if (red[d]) pos = pos * s[d] + at[d];
            }
            want[o] += x[i];
            if (x[i] > wmax[o]) wmax[o] = x[i], warg[o] = pos;
          }
          for (int64_t i = 0; i < kept; i++)
            if (fabs(sum[i] - 2 * want[i]) > 1e-6 * fabs(want[i]) + 2e-4 || max[i] != (float)wmax[i] || arg[i] != warg[i]) {
              printf("  shape %d outer %d reduced %d isa %d at %lld: %g %g %d, not %g %g %d\n", (int)c, outer, nr, k, (long long)i, sum[i],
                     max[i], arg[i], 2 * want[i], wmax[i], (int)warg[i]);
              CHECK(!"reduction");
              break;
            }
          free(x), free(sum), free(sum1), free(max), free(arg), free(want), free(wmax), free(warg);
        }
}

int main(void) {
  RUN(unary_ops);
  RUN(binary_ops);
  RUN(torch_semantics);
  RUN(conversions);
  RUN(philox);
  RUN(complex_ops);
  RUN(map_strides);
  RUN(row_softmax_and_norm);
  RUN(reduce_modes);
  return TEST_END;
}
