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
    {TNXK_ASINH, asinh, 2}, {TNXK_ACOSH, acosh, 2}, {TNXK_ATANH, atanh, 2}, {TNXK_ERF, erf, 2}, {TNXK_ERFC, erfc, 3},
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


/* ---- random programs against an evaluator that runs one instruction at a time over the whole space ---- */

enum { MAX_SPACE = 6000, RANDOM_REGS = 6 };

typedef struct buffer {
  tnx_dtype dt;
  int64_t elements, first; /* element that operands point at: not 0 where a stride is negative */
  char *mem, *want;        /* what run() works on, what the evaluator works on */
} buffer;

typedef struct random_case {
  builder b;
  buffer bufs[12];
  int of[TNXK_PROGRAM_MAX_OPERANDS]; /* operand -> buffer */
  int n_bufs;
  int type[RANDOM_REGS]; /* tnxk_ctype of a live register, or -1 */
  int64_t kept_to, kept_from; /* dimensions [kept_from, kept_to) have strides in stores */
} random_case;

static int pick(uint64_t *seed, int n) { return (int)(test_rand(seed) % (uint64_t)n); }

static double peek(const buffer *f, const char *mem, int64_t at) {
  switch (f->dt) {
    case TNX_F32: return ((const float *)mem)[at];
    case TNX_F64: return ((const double *)mem)[at];
    case TNX_BF16: return tnx_bf16_to_f32(((const uint16_t *)mem)[at]);
    case TNX_I32: return ((const int32_t *)mem)[at];
    case TNX_I64: return (double)((const int64_t *)mem)[at];
    default: return ((const uint8_t *)mem)[at];
  }
}
static void poke(const buffer *f, char *mem, int64_t at, double v) {
  switch (f->dt) {
    case TNX_F32: ((float *)mem)[at] = (float)v; break;
    case TNX_F64: ((double *)mem)[at] = v; break;
    case TNX_BF16: ((uint16_t *)mem)[at] = tnx_f32_to_bf16((float)v); break;
    case TNX_I32: ((int32_t *)mem)[at] = (int32_t)(int64_t)v; break;
    case TNX_I64: ((int64_t *)mem)[at] = (int64_t)v; break;
    default: ((uint8_t *)mem)[at] = v != 0;
  }
}

/* A new buffer with a random order of dimensions, perhaps reversed or (loads) broadcast ones. [from, to) have strides. */
static int random_operand(random_case *r, uint64_t *seed, tnx_dtype dt, bool is_store, int from, int to) {
  builder *b = &r->b;
  int rank = b->a.rank, perm[TNXK_MAX_RANK], count = 0;
  int64_t strides[TNXK_MAX_RANK] = {0}, at = 1, first = 0;
  for (int d = from; d < to; d++) perm[count++] = d;
  if (pick(seed, 3) == 0)
    for (int i = count - 1; i > 0; i--) {
      int j = pick(seed, i + 1), t = perm[i];
      perm[i] = perm[j];
      perm[j] = t;
    }
  for (int i = count - 1; i >= 0; i--) {
    int d = perm[i];
    if (!is_store && pick(seed, 5) == 0) continue;
    strides[d] = at;
    at *= b->a.sizes[d];
    if (pick(seed, 8) == 0) {
      first += strides[d] * (b->a.sizes[d] - 1);
      strides[d] = -strides[d];
    }
  }
  buffer *f = &r->bufs[r->n_bufs];
  *f = (buffer){dt, at, first, malloc((size_t)at * 8), malloc((size_t)at * 8)};
  for (int64_t i = 0; i < at; i++) poke(f, f->mem, i, pick(seed, 2001) / 16.0 - 60);
  memcpy(f->want, f->mem, (size_t)at * tnx_dtype_size(dt));
  (void)rank;
  int o = operand(b, dt, is_store, f->mem + first * (int64_t)tnx_dtype_size(dt), strides);
  r->of[o] = r->n_bufs++;
  return o;
}

/* A register of type ct, or -1. */
static int live(random_case *r, uint64_t *seed, int ct) {
  for (int tries = 0; tries < 12; tries++) {
    int g = pick(seed, RANDOM_REGS);
    if (r->type[g] == ct) return g;
  }
  return -1;
}

static void random_instr(random_case *r, uint64_t *seed, int from, int to) {
  static const tnx_dtype dts[] = {TNX_F32, TNX_F32, TNX_F32, TNX_BF16, TNX_F64, TNX_I32, TNX_I64, TNX_BOOL};
  builder *b = &r->b;
  int dst = pick(seed, RANDOM_REGS), f = live(r, seed, TNXK_F32), f2 = live(r, seed, TNXK_F32), q = live(r, seed, TNXK_B8);
  int i64 = live(r, seed, TNXK_I64), d = live(r, seed, TNXK_F64), ct = TNXK_F32;
  switch (pick(seed, 13)) {
    case 0: case 1: {
      if (r->n_bufs > 7) return;
      tnx_dtype dt = dts[pick(seed, 8)];
      int o = random_operand(r, seed, dt, false, from, to);
      load(b, dst, o);
      ct = tnxk_ctype_of(dt);
      break;
    }
    case 2: emit(b, TNXK_CONST, TNXK_F32, dst, 0, 0, 0)->imm.f[0] = pick(seed, 100) / 8.0 - 5; break;
    case 3:
      if (pick(seed, 3)) return;
      emit(b, TNXK_IOTA, TNXK_I64, dst, 0, 0, 0)->imm.i = from + pick(seed, to - from);
      ct = TNXK_I64;
      break;
    case 4: case 5: case 6: {
      static const tnxk_op ops[] = {TNXK_ADD, TNXK_SUB, TNXK_MAX, TNXK_MIN, TNXK_MUL};
      if (f < 0) return;
      emit(b, ops[pick(seed, 5)], TNXK_F32, dst, f, f2 < 0 ? f : f2, 0);
      break;
    }
    case 7: {
      static const tnxk_op ops[] = {TNXK_NEG, TNXK_ABS};
      if (f < 0) return;
      emit(b, ops[pick(seed, 2)], TNXK_F32, dst, f, 0, 0);
      break;
    }
    case 8:
      if (f < 0 || f2 < 0) return;
      emit(b, TNXK_LT, TNXK_F32, dst, f, f2, 0);
      ct = TNXK_B8;
      break;
    case 9:
      if (q < 0 || f < 0 || f2 < 0) return;
      emit(b, TNXK_SELECT, TNXK_F32, dst, q, f, f2);
      break;
    case 10:
      if (f >= 0 && pick(seed, 2)) {
        emit(b, TNXK_CONVERT, TNXK_F32, dst, f, 0, 0)->dtype = pick(seed, 2) ? TNX_BF16 : TNX_F64;
        ct = tnxk_ctype_of((tnx_dtype)b->in[b->g.n_instrs - 1].dtype);
      } else if (q >= 0) {
        emit(b, TNXK_CONVERT, TNXK_B8, dst, q, 0, 0)->dtype = TNX_I64;
        ct = TNXK_I64;
      } else {
        return;
      }
      break;
    case 11:
      if (i64 < 0) return;
      emit(b, TNXK_CONVERT, TNXK_I64, dst, i64, 0, 0)->dtype = pick(seed, 2) ? TNX_F32 : TNX_I8;
      ct = tnxk_ctype_of((tnx_dtype)b->in[b->g.n_instrs - 1].dtype);
      break;
    default:
      if (d < 0) return;
      emit(b, TNXK_CONVERT, TNXK_F64, dst, d, 0, 0)->dtype = TNX_F32;
  }
  r->type[dst] = ct;
}

static void random_store(random_case *r, uint64_t *seed, int from, int to) {
  static const tnx_dtype dts[][2] = {{TNX_F32, TNX_BF16}, {TNX_F64, TNX_F64}, {TNX_I64, TNX_I32}, {TNX_BOOL, TNX_BOOL}};
  int g = pick(seed, RANDOM_REGS);
  if (r->type[g] < 0 || r->n_bufs > 10) return;
  tnx_dtype dt = dts[r->type[g]][pick(seed, 2)];
  int o = -1;
  if (pick(seed, 2)) /* in place: where a load reads the very same elements */
    for (int k = 0; k < r->b.g.n_operands && o < 0; k++) {
      bool whole = r->b.op[k].dtype == dt && !r->b.op[k].store;
      for (int d = 0; d < r->b.a.rank; d++) whole &= (r->b.a.operand[k].strides[d] != 0) == (d >= from && d < to);
      if (!whole) continue;
      o = r->b.g.n_operands++;
      r->b.op[o] = (tnxk_operand){(uint8_t)dt, true};
      r->b.a.operand[o] = r->b.a.operand[k];
      r->of[o] = r->of[k];
    }
  if (o < 0) o = random_operand(r, seed, dt, true, from, to);
  store(&r->b, o, g);
}

static void evaluate(random_case *r) {
  static double reg[RANDOM_REGS][MAX_SPACE], next[MAX_SPACE];
  const tnxk_program_args *a = &r->b.a;
  int mode = r->b.g.mode, rank = a->rank;
  int red_from = mode == TNXK_REDUCE_INNER ? rank - a->n_reduced : 0, red_to = mode == TNXK_REDUCE_INNER ? rank : mode == TNXK_REDUCE_OUTER ? a->n_reduced : 0;
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= a->sizes[d];
  for (int i = 0; i < r->b.g.n_instrs; i++) {
    const tnxk_instr *in = &r->b.in[i];
    bool epilogue = mode >= TNXK_REDUCE_INNER && i >= r->b.g.first_epilogue;
    for (int64_t e = 0; e < n; e++) {
      int64_t c[TNXK_MAX_RANK], rest = e, at = 0, pos = 0, group = 0;
      bool skip = false;
      for (int d = rank - 1; d >= 0; d--) {
        c[d] = rest % a->sizes[d];
        rest /= a->sizes[d];
      }
      for (int d = 0; d < rank; d++) {
        bool reduced = mode == TNXK_ROW ? d == rank - 1 : d >= red_from && d < red_to;
        if (reduced && mode != TNXK_ROW && epilogue && c[d]) skip = true; /* one element for each output */
        if (reduced) pos = pos * a->sizes[d] + c[d];
        group = group * a->sizes[d] + (reduced ? 0 : c[d]); /* the index of the group's first element */
      }
      if (skip) continue;
      if (in->op == TNXK_LOAD || in->op == TNXK_STORE)
        for (int d = 0; d < rank; d++) at += c[d] * a->operand[in->b].strides[d] / (int64_t)tnx_dtype_size((tnx_dtype)r->b.op[in->b].dtype);
      const buffer *f = in->op == TNXK_LOAD || in->op == TNXK_STORE ? &r->bufs[r->of[in->b]] : NULL;
      double x = in->a < RANDOM_REGS ? reg[in->a][e] : 0, y = in->b < RANDOM_REGS ? reg[in->b][e] : 0, z = in->c < RANDOM_REGS ? reg[in->c][e] : 0, v = 0;
      switch (in->op) {
        case TNXK_LOAD: v = peek(f, f->want, f->first + at); break;
        case TNXK_STORE: poke(f, f->want, f->first + at, x); continue;
        case TNXK_CONST: v = (float)in->imm.f[0]; break;
        case TNXK_IOTA: v = (double)c[in->imm.i]; break;
        case TNXK_ADD: v = (float)x + (float)y; break;
        case TNXK_SUB: v = (float)x - (float)y; break;
        case TNXK_MUL: v = (float)x * (float)y; break;
        case TNXK_MAX: v = b_max(x, y); break;
        case TNXK_MIN: v = b_min(x, y); break;
        case TNXK_NEG: v = -x; break;
        case TNXK_ABS: v = fabs(x); break;
        case TNXK_LT: v = x < y; break;
        case TNXK_SELECT: v = x != 0 ? y : z; break;
        case TNXK_CONVERT:
          v = in->dtype == TNX_BF16 ? tnx_bf16_to_f32(tnx_f32_to_bf16((float)x)) : in->dtype == TNX_F32 ? (float)x : in->dtype == TNX_I8 ? (int8_t)(int64_t)x : x;
          break;
        default: { /* maxima of groups: the first element of a group starts it */
          bool arg = in->op == TNXK_ACC_ARGMAX;
          if (pos == 0) {
            next[group] = arg ? 0 : x;
          } else if (arg) {
            int64_t best_at = 0, stride_ = 1, k = (int64_t)next[group]; /* element of the best position so far */
            best_at = group;
            for (int d = red_to - 1; d >= red_from; d--) {
              int64_t s = 1;
              for (int dd = d + 1; dd < rank; dd++) s *= a->sizes[dd];
              best_at += k % a->sizes[d] * s;
              k /= a->sizes[d];
            }
            (void)stride_;
            double best = reg[in->a][best_at];
            if (x > best || (x != x && best == best)) next[group] = (double)pos;
          } else {
            next[group] = b_max(next[group], x);
          }
          continue;
        }
      }
      next[e] = v;
    }
    if (in->op == TNXK_STORE) continue;
    if (in->op >= TNXK_REDUCE_SUM && in->op < TNXK_ACC_SUM)
      for (int64_t e = 0; e < n; e++) next[e] = next[e - e % a->sizes[rank - 1]];
    memcpy(reg[in->dst], next, sizeof(double) * (size_t)n);
  }
}

static void print_program(const builder *b) {
  static const char *const names[] = {
#define TNXK_OP(name, operands, types, doc) #name,
#include "kernels/program/ops.def"
#undef TNXK_OP
  };
  printf("  mode %d, sizes", b->g.mode);
  for (int d = 0; d < b->a.rank; d++) printf(" %lld", (long long)b->a.sizes[d]);
  printf(", %d reduced, epilogue at %d\n", b->a.n_reduced, b->g.first_epilogue);
  for (int i = 0; i < b->g.n_instrs; i++) {
    const tnxk_instr *in = &b->in[i];
    printf("    %2d r%d = %s.%d r%d r%d r%d, %s, %lld\n", i, in->dst, names[in->op], in->ctype, in->a, in->b, in->c,
           tnx_dtype_name((tnx_dtype)in->dtype), (long long)in->imm.i);
  }
  for (int o = 0; o < b->g.n_operands; o++) {
    printf("    operand %d %s %s %p", o, tnx_dtype_name((tnx_dtype)b->op[o].dtype), b->op[o].store ? "stored" : "read", b->a.operand[o].base);
    for (int d = 0; d < b->a.rank; d++) printf(" %lld", (long long)b->a.operand[o].strides[d]);
    printf("\n");
  }
}

static void random_program(uint64_t seed, uint64_t id) {
  static const int64_t side[] = {1, 2, 3, 5, 16, 17, 33, 64, 260, 700, 1100};
  random_case r;
  memset(&r, 0, sizeof r);
  int64_t sizes[4], n = 1;
  int rank = 1 + pick(&seed, 4), mode = pick(&seed, 4), nr = 0;
  for (int d = 0; d < rank; d++) {
    do sizes[d] = side[pick(&seed, 11)];
    while (n * sizes[d] > MAX_SPACE);
    n *= sizes[d];
  }
  if (mode >= TNXK_REDUCE_INNER) nr = 1 + pick(&seed, rank);
  start(&r.b, (tnxk_mode)mode, rank, sizes, nr);
  for (int g = 0; g < RANDOM_REGS; g++) r.type[g] = -1;
  int from = 0, to = rank;
  for (int i = 0; i < 4; i++) random_instr(&r, &seed, 0, rank);
  load(&r.b, 0, random_operand(&r, &seed, TNX_F32, false, 0, rank));
  r.type[0] = TNXK_F32;
  int body = 2 + pick(&seed, 18);
  for (int i = 0; i < body; i++) {
    int f = live(&r, &seed, TNXK_F32);
    if (mode == TNXK_ROW && pick(&seed, 5) == 0 && f >= 0) {
      int dst = pick(&seed, RANDOM_REGS);
      emit(&r.b, TNXK_REDUCE_MAX, TNXK_F32, dst, f, 0, 0);
      r.type[dst] = TNXK_F32;
      if (pick(&seed, 3) == 0 && r.n_bufs < 10 && rank > 1) store(&r.b, random_operand(&r, &seed, TNX_F32, true, 0, rank - 1), dst);
    } else if (mode < TNXK_REDUCE_INNER && pick(&seed, 6) == 0) {
      random_store(&r, &seed, 0, rank);
    } else {
      random_instr(&r, &seed, 0, rank);
    }
  }
  if (mode >= TNXK_REDUCE_INNER) {
    int f = live(&r, &seed, TNXK_F32), f2 = live(&r, &seed, TNXK_F32);
    if (f < 0) f = f2;
    if (f < 0) {
      emit(&r.b, TNXK_CONST, TNXK_F32, 0, 0, 0, 0)->imm.f[0] = 3;
      f = 0;
    }
    emit(&r.b, TNXK_ACC_MAX, TNXK_F32, RANDOM_REGS - 1, f, 0, 0);
    if (f != RANDOM_REGS - 1) emit(&r.b, TNXK_ACC_ARGMAX, TNXK_F32, RANDOM_REGS - 2, f, 0, 0);
    for (int g = 0; g < RANDOM_REGS - 1; g++) r.type[g] = -1;
    if (f != RANDOM_REGS - 1) r.type[RANDOM_REGS - 2] = TNXK_I64;
    r.type[RANDOM_REGS - 1] = TNXK_F32;
    r.b.g.first_epilogue = r.b.g.n_instrs;
    from = mode == TNXK_REDUCE_INNER ? 0 : nr;
    to = mode == TNXK_REDUCE_INNER ? rank - nr : rank;
    for (int i = pick(&seed, 6); i > 0 && to > from; i--) random_instr(&r, &seed, from, to);
  }
  for (int i = 0; i < 3; i++) random_store(&r, &seed, from, to);
  evaluate(&r);

  char *before[12];
  for (int i = 0; i < r.n_bufs; i++) {
    size_t bytes = (size_t)r.bufs[i].elements * tnx_dtype_size(r.bufs[i].dt);
    before[i] = malloc(bytes);
    memcpy(before[i], r.bufs[i].mem, bytes);
  }
  tnxk_program_args args = r.b.a;
  for (int k = 0; k < n_isas(); k++)
    for (int simple = 0; simple < 2; simple++)
      for (int64_t step = 0; step < 2; step++) {
        r.b.a = args;
        if (simple) tnxk_program_simplify(&r.b.a);
        void *mem = NULL;
        if (step) {
          mem = malloc(tnxk_program_prepared_bytes(&r.b.a));
          CHECK_OK(tnxk_program_prepare(&r.b.a, isas[k], mem));
        }
        run(&r.b, isas[k], step ? 1 + (int64_t)(id % 3) : 0);
        free(mem);
        for (int i = 0; i < r.n_bufs; i++) {
          buffer *f = &r.bufs[i];
          for (int64_t e = 0; e < f->elements; e++) {
            double got = peek(f, f->mem, e), want = peek(f, f->want, e);
            if (got != want && !(got != got && want != want)) {
              printf("  program %llu mode %d isa %d simple %d step %d: buffer %d (%s) at %lld: %g, not %g\n", (unsigned long long)id, mode, k, simple,
                     (int)step, i, tnx_dtype_name(f->dt), (long long)e, got, want);
              CHECK(!"random program");
              break;
            }
          }
          memcpy(f->mem, before[i], (size_t)f->elements * tnx_dtype_size(f->dt));
        }
      }
  if (test_bad) print_program(&r.b);
  for (int i = 0; i < r.n_bufs; i++) free(before[i]), free(r.bufs[i].mem), free(r.bufs[i].want);
}

TEST(random_programs) {
  for (uint64_t id = 0; id < 3000 && test_bad < 5; id++) random_program(id * 7919 + 13, id);
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
  RUN(random_programs);
  return TEST_END;
}
