/* Attention, forward and backward, against the formula in float64 with the whole score matrix, over random shapes, layouts, dtypes
 * and masks, at every instruction set of this CPU, and the AVX-512 source through its emulation; splits must not change a bit. */
#define TNX_EMULATE_ISA
#define tnxk_attention__avx512 emulated_attention_avx512
#define tnxk_attention_bwd__avx512 emulated_attention_bwd_avx512
#define tnxk_attention_bwd_fused__avx512 emulated_attention_bwd_fused_avx512
#include "kernels/attention/x86_avx512.c"
#undef tnxk_attention__avx512
#undef tnxk_attention_bwd__avx512
#undef tnxk_attention_bwd_fused__avx512

#include "kernel_split.h"

static int64_t below(uint64_t *s, int64_t n) { return (int64_t)(test_rand(s) % (uint64_t)n); }

static double get(uint8_t dtype, const void *base, int64_t at) { return dtype == TNX_F64 ? ((const double *)base)[at] : load_elem(dtype, base, at); }
static void put(uint8_t dtype, void *base, int64_t at, double v) {
  if (dtype == TNX_F64) ((double *)base)[at] = v;
  else store_elem(dtype, base, at, (float)v);
}

enum { ROOM = 1 << 16 }; /* elements of each tensor */
enum { Q, K, V, OUT, DOUT, DQ, DK, DV, MASK, TENSORS };
static _Alignas(64) char data[TENSORS][ROOM * 8], again[TENSORS][ROOM * 8];
static float lse[ROOM], lse_again[ROOM];

/* Strides of a [a, b, c, d] tensor stored in one of several layouts, maybe with gaps. False if it does not fit. */
static bool layout(uint64_t *s, int64_t a, int64_t b, int64_t c, int64_t d, int64_t *st) {
  int64_t size[4] = {a, b, c, d}, at = 1;
  static const int orders[4][4] = {{3, 2, 1, 0}, {3, 1, 2, 0}, {3, 2, 1, 0}, {2, 3, 1, 0}};
  const int *order = orders[below(s, 4)];
  bool gap = below(s, 4) == 0;
  for (int k = 0; k < 4; k++) {
    st[order[k]] = at;
    at *= size[order[k]] ? size[order[k]] : 1;
    if (gap && k == 0) at += 3;
  }
  return at <= ROOM;
}
static int64_t at4(const int64_t *st, int64_t b, int64_t h, int64_t i, int64_t c) { return b * st[0] + h * st[1] + i * st[2] + c * st[3]; }

static double naive_score(const tnxk_attention *p, int64_t b, int64_t h, int64_t i, int64_t j) {
  int64_t g = h / (p->heads / p->kv_heads);
  if (p->is_causal && j > i) return -INFINITY;
  double s = 0;
  for (int64_t c = 0; c < p->head_dim; c++) s += get(p->dtype, p->q, at4(p->q_st, b, h, i, c)) * get(p->dtype, p->k, at4(p->k_st, b, g, j, c));
  s *= p->scale;
  if (!p->mask) return s;
  int64_t m = at4(p->mask_st, b, h, i, j);
  if (p->mask_dtype == TNX_BOOL) return ((const uint8_t *)p->mask)[m] ? s : -INFINITY;
  return s + get(p->mask_dtype, p->mask, m);
}

static double weights[ROOM]; /* [batch, heads, q, kv] of the last naive pass */
static void naive_weights(const tnxk_attention *p, double *lse_out) {
  for (int64_t r = 0; r < p->batch * p->heads * p->q_len; r++) {
    double *w = weights + r * p->kv_len, top = -INFINITY, sum = 0;
    int64_t i = r % p->q_len, h = r / p->q_len % p->heads, b = r / p->q_len / p->heads;
    for (int64_t j = 0; j < p->kv_len; j++) {
      w[j] = naive_score(p, b, h, i, j);
      if (w[j] > top) top = w[j];
    }
    for (int64_t j = 0; j < p->kv_len; j++) sum += w[j] = top == -INFINITY ? 0 : exp(w[j] - top);
    for (int64_t j = 0; j < p->kv_len; j++) w[j] = sum ? w[j] / sum : 0;
    lse_out[r] = sum ? top + log(sum) : -INFINITY;
  }
}

static double tolerance(uint8_t dtype) { return dtype == TNX_F64 ? 1e-12 : dtype == TNX_F32 ? 2e-5 : dtype == TNX_F16 ? 3e-3 : 2e-2; }
static bool near(double got, double want, double tol) { return fabs(got - want) <= tol * (1 + fabs(want)); }

static bool random_problem(uint64_t *s, tnxk_attention *p) {
  static const uint8_t types[] = {TNX_F32, TNX_BF16, TNX_F16, TNX_F64};
  static const int64_t dims[] = {8, 16, 32, 64, 20, 5, 80, 1}, queries[] = {1, 1, 2, 3, 5, 17, 33, 70}, keys[] = {1, 7, 64, 65, 130, 300, 600};
  *p = (tnxk_attention){.batch = 1 + below(s, 2), .kv_heads = 1 + below(s, 3)};
  p->heads = p->kv_heads * (1 + below(s, 4));
  p->q_len = queries[below(s, 8)];
  p->kv_len = below(s, 30) == 0 ? 0 : below(s, 3) ? keys[below(s, 7)] : p->q_len;
  p->head_dim = dims[below(s, 8)];
  p->v_dim = below(s, 4) ? p->head_dim : dims[below(s, 8)];
  p->dtype = types[below(s, 8) % 4];
  p->is_causal = below(s, 3) == 0;
  p->scale = below(s, 2) ? 1 / sqrt((double)p->head_dim) : 0.7;
  if (p->batch * p->heads * p->q_len * p->kv_len > ROOM) return false;
  bool fits = layout(s, p->batch, p->heads, p->q_len, p->head_dim, p->q_st) && layout(s, p->batch, p->kv_heads, p->kv_len, p->head_dim, p->k_st) &&
              layout(s, p->batch, p->kv_heads, p->kv_len, p->v_dim, p->v_st) && layout(s, p->batch, p->heads, p->q_len, p->v_dim, p->out_st);
  if (!fits) return false;
  p->q = data[Q], p->k = data[K], p->v = data[V], p->out = data[OUT], p->lse = lse;
  for (int t = Q; t <= DOUT; t++) /* gaps hold NaN, so that a stray read shows */
    for (int64_t i = 0; i < ROOM; i++) put(p->dtype, data[t], i, t == OUT ? NAN : 2 * test_randf(s));
  int kind = (int)below(s, 6);
  if (kind < 3) {
    static const uint8_t mask_types[] = {TNX_BOOL, TNX_F32, TNX_BF16, TNX_F64, TNX_F16};
    p->mask = data[MASK];
    p->mask_dtype = mask_types[below(s, 5)];
    if (!layout(s, p->batch, p->heads, p->q_len, p->kv_len, p->mask_st)) return false;
    for (int d = 0; d < 3; d++) if (below(s, 2)) p->mask_st[d] = 0;
    int64_t closed_from = below(s, 3) ? p->kv_len : below(s, p->kv_len + 1), n = at4(p->mask_st, p->batch - 1, p->heads - 1, p->q_len - 1, p->kv_len);
    for (int64_t i = 0; i < n + 1 && i < ROOM; i++) {
      bool in = below(s, 4) != 0;
      if (p->mask_st[3] == 1 && p->kv_len && i % p->kv_len >= closed_from) in = false;
      if (p->mask_dtype == TNX_BOOL) data[MASK][i] = in;
      else put(p->mask_dtype, data[MASK], i, in ? test_randf(s) : kind == 0 ? -INFINITY : -50);
    }
  }
  return true;
}

static void forward_case(uint64_t seed) {
  uint64_t s = seed;
  tnxk_attention p;
  if (!random_problem(&s, &p)) return;
  static double want_lse[ROOM];
  naive_weights(&p, want_lse);
  for (int isa = 0; isa <= TNX_ISA_AVX512; isa++) {
    if (isa > (int)tnx_cpu_isa() && (isa != TNX_ISA_AVX512 || p.dtype == TNX_F64)) continue;
    tnxk_kernel k;
    CHECK_OK(tnxk_attention_select(&p, (tnx_isa)isa, 2, &k));
    if (isa == TNX_ISA_AVX512 && p.dtype != TNX_F64) k.run = emulated_attention_avx512;
    kernel_run_split(&k, &p, 0, seed);
    tnxk_attention q = p;
    q.out = again[OUT];
    q.lse = lse_again;
    memset(again[OUT], 0, sizeof again[OUT]);
    kernel_run_split(&k, &q, 1, seed);
    for (int64_t r = 0; r < p.batch * p.heads * p.q_len && !test_bad; r++) {
      int64_t i = r % p.q_len, h = r / p.q_len % p.heads, b = r / p.q_len / p.heads, g = h / (p.heads / p.kv_heads);
      CHECK(lse[r] == want_lse[r] || near(lse[r], want_lse[r], 2e-5));
      CHECK(memcmp(&lse[r], &lse_again[r], 4) == 0);
      for (int64_t c = 0; c < p.v_dim; c++) {
        double want = 0, got = get(p.dtype, p.out, at4(p.out_st, b, h, i, c));
        for (int64_t j = 0; j < p.kv_len; j++) want += weights[r * p.kv_len + j] * get(p.dtype, p.v, at4(p.v_st, b, g, j, c));
        CHECK(near(got, want, tolerance(p.dtype)));
        CHECK(got == get(p.dtype, q.out, at4(p.out_st, b, h, i, c)));
        if (test_bad) { printf("got %g want %g row %lld channel %lld\n", got, want, (long long)r, (long long)c); break; }
      }
    }
    if (test_bad) {
      printf("%s isa %d seed %llu: b %lld h %lld/%lld q %lld kv %lld d %lld %lld mask %d\n", k.name, isa, (unsigned long long)seed, (long long)p.batch,
             (long long)p.heads, (long long)p.kv_heads, (long long)p.q_len, (long long)p.kv_len, (long long)p.head_dim, (long long)p.v_dim, p.mask ? p.mask_dtype : -1);
      return;
    }
  }
}
TEST(forward_random) { for (uint64_t i = 1; i <= 600 && !test_bad; i++) forward_case(i); }

static void backward_case(uint64_t seed) {
  uint64_t s = seed;
  tnxk_attention_bwd p = {0};
  tnxk_attention *f = &p.fwd;
  if (!random_problem(&s, f)) return;
  if (!layout(&s, f->batch, f->heads, f->q_len, f->v_dim, p.dout_st) || !layout(&s, f->batch, f->heads, f->q_len, f->head_dim, p.dq_st) ||
      !layout(&s, f->batch, f->kv_heads, f->kv_len, f->head_dim, p.dk_st) || !layout(&s, f->batch, f->kv_heads, f->kv_len, f->v_dim, p.dv_st))
    return;
  p.dout = data[DOUT], p.dq = data[DQ], p.dk = data[DK], p.dv = data[DV];
  static double want[3][ROOM], unused[ROOM], dp[ROOM];
  memset(want, 0, sizeof want);
  naive_weights(f, unused);
  int64_t group = f->heads / f->kv_heads;
  for (int64_t r = 0; r < f->batch * f->heads * f->q_len; r++) {
    int64_t i = r % f->q_len, h = r / f->q_len % f->heads, b = r / f->q_len / f->heads, g = h / group;
    const double *w = weights + r * f->kv_len;
    double delta = 0;
    for (int64_t j = 0; j < f->kv_len; j++) {
      dp[j] = 0;
      for (int64_t c = 0; c < f->v_dim; c++) {
        double d = get(f->dtype, p.dout, at4(p.dout_st, b, h, i, c));
        dp[j] += d * get(f->dtype, f->v, at4(f->v_st, b, g, j, c));
        want[2][((b * f->kv_heads + g) * f->kv_len + j) * f->v_dim + c] += w[j] * d;
      }
      delta += w[j] * dp[j];
    }
    for (int64_t j = 0; j < f->kv_len; j++) {
      double ds = w[j] * (dp[j] - delta) * f->scale;
      for (int64_t c = 0; c < f->head_dim; c++) {
        want[0][r * f->head_dim + c] += ds * get(f->dtype, f->k, at4(f->k_st, b, g, j, c));
        want[1][((b * f->kv_heads + g) * f->kv_len + j) * f->head_dim + c] += ds * get(f->dtype, f->q, at4(f->q_st, b, h, i, c));
      }
    }
  }
  for (int isa = 0; isa <= TNX_ISA_AVX512; isa++) {
    if (isa > (int)tnx_cpu_isa() && (isa != TNX_ISA_AVX512 || f->dtype == TNX_F64)) continue;
    tnxk_kernel k;
    CHECK_OK(tnxk_attention_select(f, (tnx_isa)isa, 2, &k));
    if (isa == TNX_ISA_AVX512 && f->dtype != TNX_F64) k.run = emulated_attention_avx512;
    kernel_run_split(&k, f, 0, seed);
    bool emulated = isa == TNX_ISA_AVX512 && f->dtype != TNX_F64;
    CHECK_OK(tnxk_attention_bwd_select(&p, (tnx_isa)isa, 1, &k)); /* one worker: fused */
    CHECK_EQ(k.phases, f->dtype == TNX_F64 ? 3 : f->batch * f->kv_heads >= 2 ? 2 : k.phases);
    if (emulated) k.run = k.phases == 2 ? emulated_attention_bwd_fused_avx512 : emulated_attention_bwd_avx512;
    kernel_run_split(&k, &p, 0, seed);
    tnxk_attention_bwd q = p;
    q.dq = again[DQ], q.dk = again[DK], q.dv = again[DV];
    CHECK_OK(tnxk_attention_bwd_select(&p, (tnx_isa)isa, 64, &k)); /* many: the other way, to the same bits */
    if (emulated) k.run = k.phases == 2 ? emulated_attention_bwd_fused_avx512 : emulated_attention_bwd_avx512;
    kernel_run_split(&k, &q, 1, seed);
    const struct { const void *got, *same; const int64_t *st; int64_t heads, len, dim; } t[3] = {
        {p.dq, q.dq, p.dq_st, f->heads, f->q_len, f->head_dim},
        {p.dk, q.dk, p.dk_st, f->kv_heads, f->kv_len, f->head_dim},
        {p.dv, q.dv, p.dv_st, f->kv_heads, f->kv_len, f->v_dim}};
    for (int n = 0; n < 3 && !test_bad; n++) {
      double largest = 0;
      for (int64_t e = 0; e < f->batch * t[n].heads * t[n].len * t[n].dim; e++) largest = fabs(want[n][e]) > largest ? fabs(want[n][e]) : largest;
      for (int64_t e = 0; e < f->batch * t[n].heads * t[n].len * t[n].dim && !test_bad; e++) {
        int64_t c = e % t[n].dim, i = e / t[n].dim % t[n].len, h = e / t[n].dim / t[n].len % t[n].heads, b = e / t[n].dim / t[n].len / t[n].heads;
        double got = get(f->dtype, t[n].got, at4(t[n].st, b, h, i, c));
        CHECK(fabs(got - want[n][e]) <= 2 * tolerance(f->dtype) * (1 + largest));
        CHECK(got == get(f->dtype, t[n].same, at4(t[n].st, b, h, i, c)));
        if (test_bad) printf("gradient %d: got %g want %g\n", n, got, want[n][e]);
      }
    }
    if (test_bad) {
      printf("%s isa %d seed %llu: b %lld h %lld/%lld q %lld kv %lld d %lld %lld mask %d causal %d\n", k.name, isa, (unsigned long long)seed, (long long)f->batch,
             (long long)f->heads, (long long)f->kv_heads, (long long)f->q_len, (long long)f->kv_len, (long long)f->head_dim, (long long)f->v_dim, f->mask ? f->mask_dtype : -1, f->is_causal);
      return;
    }
  }
}
TEST(backward_random) { for (uint64_t i = 1; i <= 400 && !test_bad; i++) backward_case(i); }

/* A row masked with the lowest number everywhere is an average, as in torch; NaN in one query stays in its row. */
TEST(extremes) {
  for (int64_t len = 2; len <= 40; len += 38) {
    static float q[40 * 8], k[70 * 8], v[70 * 8], out[40 * 8], mask[70];
    uint64_t s = 1;
    double mean = 0;
    for (int i = 0; i < 40 * 8; i++) q[i] = test_randf(&s);
    for (int i = 0; i < 70 * 8; i++) k[i] = test_randf(&s), v[i] = test_randf(&s);
    for (int j = 0; j < 70; j++) mask[j] = -3.4028234663852886e38f, mean += v[j * 8] / 70.0;
    q[8 + 3] = NAN;
    tnxk_attention p = {.batch = 1, .heads = 1, .kv_heads = 1, .q_len = len, .kv_len = 70, .head_dim = 8, .v_dim = 8, .q = q, .k = k, .v = v, .mask = mask,
                        .out = out, .q_st = {0, 0, 8, 1}, .k_st = {0, 0, 8, 1}, .v_st = {0, 0, 8, 1}, .out_st = {0, 0, 8, 1}, .mask_st = {0, 0, 0, 1},
                        .dtype = TNX_F32, .mask_dtype = TNX_F32, .scale = 1};
    for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
      tnxk_kernel kernel;
      CHECK_OK(tnxk_attention_select(&p, (tnx_isa)isa, 1, &kernel));
      kernel_run_split(&kernel, &p, 0, 1);
      CHECK(near(out[0], mean, 1e-5));
      for (int c = 0; c < 8; c++) CHECK(isnan(out[8 + c]));
      for (int64_t i = 16; i < len * 8; i++) CHECK(!isnan(out[i]));
    }
  }
}

TEST(refusals) {
  tnxk_kernel k;
  tnxk_attention p = {.batch = 1, .heads = 3, .kv_heads = 2, .q_len = 1, .kv_len = 1, .head_dim = 1, .v_dim = 1, .dtype = TNX_F32};
  CHECK_EQ(tnxk_attention_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_SHAPE);
  p.dtype = TNX_I32;
  CHECK_EQ(tnxk_attention_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_NOT_IMPLEMENTED);
  p.dtype = TNX_F32, p.kv_heads = 3, p.kv_len = INT64_MAX / 2;
  CHECK_EQ(tnxk_attention_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_OVERFLOW);
  p.kv_len = 1, p.mask = &p, p.mask_dtype = TNX_I32;
  CHECK_EQ(tnxk_attention_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_DTYPE);
  p.mask = NULL, p.batch = 0;
  CHECK_OK(tnxk_attention_select(&p, TNX_ISA_SCALAR, 1, &k));
  CHECK_EQ(k.units[0], 0);
}

int main(void) {
  RUN(forward_random);
  RUN(backward_random);
  RUN(extremes);
  RUN(refusals);
  return TEST_END;
}
