/* Cumulative scans, sort and top-k against plain loops and a stable insertion of indices, over random shapes, strides and dtypes,
 * at every instruction set of this CPU and for several splits of the units. */
#include "kernels/scan/scan.h"

#include "base/half.h"
#include "kernel_split.h"

enum { POOL = 1 << 18 };

static int64_t below(uint64_t *s, int64_t n) { return (int64_t)(test_rand(s) % (uint64_t)n); }

/* long double holds every 64-bit integer. */
static long double load(const void *p, tnx_dtype t) {
  switch (t) {
    case TNX_BOOL: return *(const uint8_t *)p != 0;
    case TNX_U8: return *(const uint8_t *)p;
    case TNX_I8: return *(const int8_t *)p;
    case TNX_I16: return *(const int16_t *)p;
    case TNX_I32: return *(const int32_t *)p;
    case TNX_I64: return *(const int64_t *)p;
    case TNX_U16: return *(const uint16_t *)p;
    case TNX_U32: return *(const uint32_t *)p;
    case TNX_U64: return *(const uint64_t *)p;
    case TNX_F8E4M3: return tnx_f8e4m3_to_f32(*(const uint8_t *)p);
    case TNX_F8E5M2: return tnx_f8e5m2_to_f32(*(const uint8_t *)p);
    case TNX_F16: return tnx_f16_to_f32(*(const uint16_t *)p);
    case TNX_BF16: return tnx_bf16_to_f32(*(const uint16_t *)p);
    case TNX_F32: return *(const float *)p;
    default: return *(const double *)p;
  }
}

static double round_to(double v, tnx_dtype t) {
  switch (t) {
    case TNX_F8E4M3: return tnx_f8e4m3_to_f32(tnx_f32_to_f8e4m3((float)v));
    case TNX_F8E5M2: return tnx_f8e5m2_to_f32(tnx_f32_to_f8e5m2((float)v));
    case TNX_F16: return tnx_f16_to_f32(tnx_f32_to_f16((float)v));
    case TNX_BF16: return tnx_bf16_to_f32(tnx_f32_to_bf16((float)v));
    case TNX_F32: return (float)v;
    default: return v;
  }
}

/* Small values with repeats; now and then the special values of the float types. */
static void fill(char *p, tnx_dtype t, int64_t count, bool special, uint64_t *s) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
  for (int64_t i = 0; i < count; i++) {
    double v = (double)below(s, 9) - 4;
    if (tnx_dtype_is_float(t)) v = special && below(s, 12) == 0 ? odd[below(s, 5)] : v / 4;
    switch (t) {
      case TNX_BOOL: p[i] = v > 0; break;
      case TNX_U8: case TNX_I8: p[i] = (char)v; break;
      case TNX_I16: case TNX_U16: ((int16_t *)p)[i] = (int16_t)v; break;
      case TNX_I32: case TNX_U32: ((int32_t *)p)[i] = (int32_t)v; break;
      case TNX_I64: case TNX_U64: ((int64_t *)p)[i] = (int64_t)v; break;
      case TNX_F8E4M3: ((uint8_t *)p)[i] = tnx_f32_to_f8e4m3((float)v); break;
      case TNX_F8E5M2: ((uint8_t *)p)[i] = tnx_f32_to_f8e5m2((float)v); break;
      case TNX_F16: ((uint16_t *)p)[i] = tnx_f32_to_f16((float)v); break;
      case TNX_BF16: ((uint16_t *)p)[i] = tnx_f32_to_bf16((float)v); break;
      case TNX_F32: ((float *)p)[i] = (float)v; break;
      default: ((double *)p)[i] = v;
    }
  }
}

/* A random layout of the rows' space and the row: strides of a contiguous tensor with the scanned dimension anywhere. */
static int64_t layout(int rank, const int64_t *sizes, int64_t n, int64_t elem, int place, int64_t *st, int64_t *step) {
  int64_t at = elem;
  for (int d = rank; d >= 0; d--) {
    if (d == place) *step = at, at *= n ? n : 1;
    if (d > 0) st[d - 1] = at, at *= sizes[d - 1] ? sizes[d - 1] : 1;
  }
  return at;
}

static int64_t row_offset(int rank, const int64_t *sizes, const int64_t *st, int64_t row) {
  int64_t at = 0;
  for (int d = rank - 1; d >= 0; d--) at += row % sizes[d] * st[d], row /= sizes[d];
  return at;
}

static _Alignas(64) char in[POOL], out[POOL], again[POOL];
static int64_t index_out[POOL / 8], index_again[POOL / 8];

static bool close_to(long double got, long double want, double tolerance) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
  return got == want || fabsl(got - want) <= tolerance * (1 + fabsl(want));
}

static void scan_case(uint64_t seed) {
  uint64_t s = seed;
  tnxk_scan p = {.rank = (int)below(&s, 4), .n = below(&s, 15) == 0 ? 0 : 1 + below(&s, 40), .in = in};
  p.op = (uint8_t)below(&s, 5);
  p.dtype = (uint8_t)below(&s, TNX_C64);
  tnx_dtype t = (tnx_dtype)p.dtype;
  int64_t rows = 1, e = (int64_t)tnx_dtype_size(t);
  for (int d = 0; d < p.rank; d++) p.sizes[d] = below(&s, 20) == 0 ? 0 : 1 + below(&s, p.rank == 1 ? 80 : 6), rows *= p.sizes[d];
  int place = (int)below(&s, p.rank + 1);
  bool positions = p.op == TNXK_CUMMAX || p.op == TNXK_CUMMIN;
  int64_t span = layout(p.rank, p.sizes, p.n, e, place, p.in_st, &p.in_step);
  layout(p.rank, p.sizes, p.n, e, (int)below(&s, p.rank + 1), p.out_st, &p.out_step);
  layout(p.rank, p.sizes, p.n, 8, place, p.index_st, &p.index_step);
  CHECK(span <= POOL);
  fill(in, t, span / e, positions || below(&s, 4) == 0, &s);
  bool supported = t == TNX_BOOL ? positions : p.op != TNXK_LOGCUMSUMEXP || tnx_dtype_is_float(t);
  p.out = out;
  p.index = positions ? index_out : NULL;
  tnxk_kernel k;
  if (!supported) {
    CHECK_EQ(tnxk_scan_select(&p, TNX_ISA_SCALAR, 2, &k), TNX_NOT_IMPLEMENTED);
    return;
  }
  CHECK_OK(tnxk_scan_select(&p, tnx_cpu_isa(), 2, &k));
  memset(out, 0, POOL), memset(again, 0, POOL);
  kernel_run_split(&k, &p, 0, seed);
  p.out = again;
  p.index = positions ? index_again : NULL;
  kernel_run_split(&k, &p, 1, seed);
  CHECK(memcmp(out, again, POOL) == 0);
  double tolerance = t == TNX_BF16 ? 0x1p-7 : t == TNX_F8E4M3 || t == TNX_F8E5M2 ? 0.3 : t == TNX_F16 ? 0x1p-10 : 1e-6;
  for (int64_t r = 0; r < rows && !test_bad; r++) {
    const char *row = in + row_offset(p.rank, p.sizes, p.in_st, r);
    const char *res = out + row_offset(p.rank, p.sizes, p.out_st, r);
    long double a = p.op == TNXK_CUMPROD ? 1 : p.op == TNXK_LOGCUMSUMEXP ? -INFINITY : 0;
    int64_t at = 0;
    for (int64_t i = 0; i < p.n; i++) {
      long double x = load(row + i * p.in_step, t), got = load(res + i * p.out_step, t);
      if (positions) {
        if (i == 0 || isnan(x) || (!isnan(a) && (p.op == TNXK_CUMMAX ? x >= a : x <= a))) a = x, at = i;
        CHECK_EQ(*(int64_t *)((char *)index_out + row_offset(p.rank, p.sizes, p.index_st, r) + i * p.index_step), at);
        CHECK(close_to(got, a, 0));
        continue;
      }
      if (p.op == TNXK_CUMSUM) a += x;
      else if (p.op == TNXK_CUMPROD) a *= x;
      else if (x == INFINITY || a == INFINITY) a = isnan(x) || isnan(a) ? NAN : INFINITY;
      else a = logl(expl(a) + expl(x));
      if (!tnx_dtype_is_float(t)) { /* wrap as the type does */
        if (fabsl(a) > 9e15L) break;
        int bits = (int)e * 8;
        long double modulus = ldexpl(1, bits), w = fmodl(a, modulus);
        if (tnx_dtype_get_kind(t) == TNX_KIND_INT) w = w >= modulus / 2 ? w - modulus : w < -modulus / 2 ? w + modulus : w;
        else w = w < 0 ? w + modulus : w;
        CHECK(got == w);
        continue;
      }
      CHECK(close_to(got, round_to((double)a, t), tolerance));
    }
  }
  if (test_bad) printf("scan seed %llu dtype %s op %d\n", (unsigned long long)seed, tnx_dtype_name(t), p.op);
}

TEST(scan_random) { for (uint64_t i = 1; i <= 3000 && !test_bad; i++) scan_case(i); }

TEST(scan_float32_accumulates_in_float64) {
  enum { N = 4000 };
  static float a[N], b[N];
  double sum = 0;
  uint64_t s = 3;
  for (int i = 0; i < N; i++) a[i] = test_randf(&s) + 100;
  tnxk_scan p = {.n = N, .in = a, .out = b, .in_step = 4, .out_step = 4, .dtype = TNX_F32, .op = TNXK_CUMSUM};
  tnxk_kernel k;
  CHECK_OK(tnxk_scan_select(&p, tnx_cpu_isa(), 1, &k));
  kernel_run_split(&k, &p, 0, 1);
  for (int i = 0; i < N; i++) CHECK(b[i] == (float)(sum += a[i]));
}

static bool before(long double a, long double b, bool descending) { /* strictly; NaN is the largest */
  if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : !isnan(a) && isnan(b);
  return descending ? a > b : a < b;
}

static void topk_case(uint64_t seed) {
  uint64_t s = seed;
  tnxk_topk p = {.rank = (int)below(&s, 3), .in = in, .values = out, .index = index_out, .descending = below(&s, 2)};
  p.n = below(&s, 15) == 0 ? 0 : below(&s, 2) ? 1 + below(&s, 40) : 1 + below(&s, 700);
  p.k = below(&s, 2) ? p.n : below(&s, 2) ? below(&s, p.n / (below(&s, 2) ? 16 : 64) + 1) : below(&s, p.n + 1);
  p.dtype = (uint8_t)below(&s, TNX_C64);
  p.stable = seed % 3 != 0;
  tnx_dtype t = (tnx_dtype)p.dtype;
  int64_t rows = 1, e = (int64_t)tnx_dtype_size(t);
  for (int d = 0; d < p.rank; d++) p.sizes[d] = below(&s, 20) == 0 ? 0 : 1 + below(&s, 4), rows *= p.sizes[d];
  int place = (int)below(&s, p.rank + 1);
  int64_t span = layout(p.rank, p.sizes, p.n, e, place, p.in_st, &p.in_step);
  layout(p.rank, p.sizes, p.k, e, place, p.values_st, &p.values_step);
  layout(p.rank, p.sizes, p.k, 8, (int)below(&s, p.rank + 1), p.index_st, &p.index_step);
  CHECK(span <= POOL);
  if (below(&s, 3) == 0 && !tnx_dtype_is_float(t)) for (int64_t i = 0; i < span; i++) in[i] = (char)(t == TNX_BOOL ? below(&s, 2) : below(&s, 256));
  else fill(in, t, span / e, true, &s);
  if (t == TNX_F32 && below(&s, 2)) for (int64_t i = 0; i < span / e; i++) ((float *)in)[i] = test_randf(&s);
  for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
    tnxk_kernel k;
    CHECK_OK(tnxk_topk_select(&p, (tnx_isa)isa, 2, &k));
    memset(out, 0, POOL);
    kernel_run_split(&k, &p, isa ? 1 : 0, seed);
    for (int64_t r = 0; r < rows && !test_bad; r++) {
      static long double v[1024];
      static int64_t order[1024];
      const char *row = in + row_offset(p.rank, p.sizes, p.in_st, r);
      for (int64_t i = 0; i < p.n; i++) {
        v[i] = load(row + i * p.in_step, t);
        int64_t j = i;
        for (; j > 0 && before(v[i], v[order[j - 1]], p.descending); j--) order[j] = order[j - 1];
        order[j] = i;
      }
      bool taken[1024] = {false};
      for (int64_t i = 0; i < p.k; i++) {
        int64_t got = *(int64_t *)((char *)index_out + row_offset(p.rank, p.sizes, p.index_st, r) + i * p.index_step);
        if (p.stable) CHECK_EQ(got, order[i]);
        CHECK(got >= 0 && got < p.n && !taken[got]);
        if (test_bad) return;
        taken[got] = true;
        CHECK(!before(v[got], v[order[i]], p.descending) && !before(v[order[i]], v[got], p.descending));
        CHECK(memcmp(out + row_offset(p.rank, p.sizes, p.values_st, r) + i * p.values_step, row + got * p.in_step, (size_t)e) == 0);
      }
    }
  }
  if (test_bad) printf("topk seed %llu dtype %s n %lld k %lld\n", (unsigned long long)seed, tnx_dtype_name(t), (long long)p.n, (long long)p.k);
}

TEST(topk_random) { for (uint64_t i = 1; i <= 3000 && !test_bad; i++) topk_case(i); }

TEST(topk_optional_outputs) {
  float v[4] = {1, 3, 2, 3}, best[2];
  int64_t at[2];
  tnxk_topk p = {.n = 4, .k = 2, .in = v, .in_step = 4, .values = best, .values_step = 4, .index_step = 8, .dtype = TNX_F32, .descending = true, .stable = true};
  tnxk_kernel k;
  CHECK_OK(tnxk_topk_select(&p, tnx_cpu_isa(), 1, &k));
  kernel_run_split(&k, &p, 0, 1);
  CHECK(best[0] == 3 && best[1] == 3);
  p.values = NULL, p.index = at;
  kernel_run_split(&k, &p, 0, 1);
  CHECK(at[0] == 1 && at[1] == 3);
  p.k = 5;
  CHECK_EQ(tnxk_topk_select(&p, tnx_cpu_isa(), 1, &k), TNX_INVALID_ARGUMENT);
  p.k = 1, p.dtype = TNX_C64;
  CHECK_EQ(tnxk_topk_select(&p, tnx_cpu_isa(), 1, &k), TNX_NOT_IMPLEMENTED);
}

int main(void) {
  RUN(scan_random);
  RUN(scan_float32_accumulates_in_float64);
  RUN(topk_random);
  RUN(topk_optional_outputs);
  return TEST_END;
}
