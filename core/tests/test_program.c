/* Programs: every operation against libm in double or plain C, every mode over odd strides, and the same bits however the
 * units are handed out. */
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
  RUN(map_strides);
  RUN(row_softmax_and_norm);
  RUN(reduce_modes);
  return TEST_END;
}
