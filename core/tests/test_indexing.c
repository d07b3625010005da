/* Gather, scatter and strided copies against one-element-at-a-time loops, over random shapes, strides, dtypes and index layouts,
 * at every instruction set of this CPU and for several splits of the units. */
#include "kernels/indexing/indexing.h"

#include "base/half.h"
#include "kernel_split.h"

enum { POOL = 1 << 16, MASK = 9000 };

static int64_t below(uint64_t *s, int64_t n) { return (int64_t)(test_rand(s) % (uint64_t)n); }

static double load(const void *p, tnx_dtype t) {
  switch (t) {
    case TNX_BOOL: return *(const uint8_t *)p != 0;
    case TNX_U8: return *(const uint8_t *)p;
    case TNX_I8: return *(const int8_t *)p;
    case TNX_I16: return *(const int16_t *)p;
    case TNX_I32: return *(const int32_t *)p;
    case TNX_I64: return (double)*(const int64_t *)p;
    case TNX_U16: return *(const uint16_t *)p;
    case TNX_U32: return *(const uint32_t *)p;
    case TNX_U64: return (double)*(const uint64_t *)p;
    case TNX_F8E4M3: return tnx_f8e4m3_to_f32(*(const uint8_t *)p);
    case TNX_F8E5M2: return tnx_f8e5m2_to_f32(*(const uint8_t *)p);
    case TNX_F16: return tnx_f16_to_f32(*(const uint16_t *)p);
    case TNX_BF16: return tnx_bf16_to_f32(*(const uint16_t *)p);
    case TNX_F32: return *(const float *)p;
    default: return *(const double *)p;
  }
}
static void store(void *p, double v, tnx_dtype t) {
  switch (t) {
    case TNX_BOOL: *(uint8_t *)p = v != 0; break;
    case TNX_U8: *(uint8_t *)p = (uint8_t)(int64_t)v; break;
    case TNX_I8: *(int8_t *)p = (int8_t)(int64_t)v; break;
    case TNX_I16: *(int16_t *)p = (int16_t)(int64_t)v; break;
    case TNX_I32: *(int32_t *)p = (int32_t)(int64_t)v; break;
    case TNX_I64: *(int64_t *)p = (int64_t)v; break;
    case TNX_U16: *(uint16_t *)p = (uint16_t)(int64_t)v; break;
    case TNX_U32: *(uint32_t *)p = (uint32_t)(int64_t)v; break;
    case TNX_U64: *(uint64_t *)p = (uint64_t)(int64_t)v; break;
    case TNX_F8E4M3: *(uint8_t *)p = tnx_f32_to_f8e4m3((float)v); break;
    case TNX_F8E5M2: *(uint8_t *)p = tnx_f32_to_f8e5m2((float)v); break;
    case TNX_F16: *(uint16_t *)p = tnx_f32_to_f16((float)v); break;
    case TNX_BF16: *(uint16_t *)p = tnx_f32_to_bf16((float)v); break;
    case TNX_F32: *(float *)p = (float)v; break;
    default: *(double *)p = v;
  }
}

static void combine(char *out, const char *src, tnx_dtype t, int op) {
  size_t e = tnx_dtype_size(t);
  if (op == TNXK_SCATTER_SET) {
    memcpy(out, src, e);
    return;
  }
  if (tnx_dtype_is_complex(t)) { /* ADD only here */
    for (int part = 0; part < 2; part++) {
      if (t == TNX_C64) ((float *)out)[part] += ((const float *)src)[part];
      else ((double *)out)[part] += ((const double *)src)[part];
    }
    return;
  }
  double a = load(out, t), b = load(src, t);
  double r = op == TNXK_SCATTER_ADD ? a + b : op == TNXK_SCATTER_MUL ? a * b : op == TNXK_SCATTER_MIN ? (a < b ? a : b) : (a > b ? a : b);
  if (t == TNX_F16 || t == TNX_BF16 || t == TNX_F8E4M3 || t == TNX_F8E5M2) r = (float)r;
  store(out, r, t);
}

/* The contract's formula, one coordinate at a time. */
static int64_t naive(const tnxk_index *p, bool scatter) {
  int64_t total = 1, faults = 0;
  size_t e = tnx_dtype_size((tnx_dtype)p->dtype);
  for (int d = 0; d < p->rank; d++) total *= p->sizes[d];
  for (int64_t i = 0; i < total; i++) {
    int64_t rest = i, src = 0, out = 0, at[TNXK_INDEX_MAX] = {0}, offset = 0;
    for (int d = p->rank - 1; d >= 0; d--) {
      int64_t x = rest % p->sizes[d];
      rest /= p->sizes[d];
      src += x * p->src_st[d];
      out += x * p->out_st[d];
      for (int t = 0; t < p->n_index; t++) at[t] += x * p->index[t].st[d];
    }
    bool bad = false;
    for (int t = 0; t < p->n_index; t++) {
      const char *a = (const char *)p->index[t].data + at[t];
      int64_t v = p->index_dtype == TNX_I64 ? *(const int64_t *)a : *(const int32_t *)a;
      bad |= v < (p->wraps ? -p->index[t].limit : 0) || v >= p->index[t].limit;
      offset += (v < 0 ? v + p->index[t].limit : v) * p->index[t].step;
    }
    faults += bad;
    if (scatter) {
      if (!bad) combine((char *)p->out + out + offset, (const char *)p->src + src, (tnx_dtype)p->dtype, p->op);
    } else if (bad) memset((char *)p->out + out, 0, e);
    else memcpy((char *)p->out + out, (const char *)p->src + src + offset, e);
  }
  return faults;
}

static void fill(char *p, tnx_dtype t, int64_t bytes, uint64_t *s) {
  int64_t e = (int64_t)tnx_dtype_size(t), step = e;
  if (tnx_dtype_is_complex(t)) t = tnx_dtype_real(t), step = e / 2;
  for (int64_t i = 0; i + step <= bytes; i += step) store(p + i, tnx_dtype_is_float(t) ? (double)below(s, 64) / 8 - 3 : (double)below(s, 9), t);
}

/* Random case: an operand whose dimension `axis` is walked by an index, rank 1 to 4, maybe two index tensors. */
static void random_case(uint64_t seed, bool scatter) {
  uint64_t s = seed;
  static _Alignas(64) char src[POOL], out[POOL], want[POOL];
  static int64_t wide[2][POOL / 8];
  tnxk_fault fault;
  tnxk_index p = {.rank = 1 + (int)below(&s, 4), .n_index = 1 + (int)below(&s, 2), .fault = &fault};
  p.dtype = (uint8_t)below(&s, TNX_DTYPE_COUNT);
  p.op = (uint8_t)(scatter ? below(&s, 5) : 0);
  if (p.op > TNXK_SCATTER_ADD && tnx_dtype_is_complex((tnx_dtype)p.dtype)) p.op = TNXK_SCATTER_ADD;
  p.index_dtype = below(&s, 2) ? TNX_I64 : TNX_I32;
  int64_t e = (int64_t)tnx_dtype_size((tnx_dtype)p.dtype), ie = p.index_dtype == TNX_I64 ? 8 : 4;
  /* The plain side is contiguous over the space, maybe with its dimensions permuted; the indexed operand has one dimension for each
   * dimension of the space (walked by base or not) and one for each index. */
  int64_t plain[4], indexed[4], pstride = e, istride = e;
  bool by_base[4];
  for (int d = 0; d < p.rank; d++) {
    p.sizes[d] = below(&s, 20) == 0 ? 0 : 1 + below(&s, p.rank > 2 ? 5 : 40);
    by_base[d] = below(&s, 2);
  }
  if (below(&s, 2)) by_base[p.rank - 1] = true;
  int first = (int)below(&s, p.rank);
  for (int k = p.rank - 1; k >= 0; k--) {
    int d = (k + first) % p.rank;
    plain[d] = pstride;
    pstride *= p.sizes[d] ? p.sizes[d] : 1;
  }
  int64_t limit_a = 1 + below(&s, 9), limit_b = 1 + below(&s, 4);
  bool index_inside = below(&s, 2); /* the indexed dimensions are the innermost ones of the operand */
  for (int t = 0; index_inside && t < p.n_index; t++) p.index[t].step = istride, istride *= t ? limit_b : limit_a;
  for (int d = p.rank - 1; d >= 0; d--) {
    indexed[d] = by_base[d] ? istride : 0;
    if (by_base[d]) istride *= p.sizes[d] ? p.sizes[d] : 1;
  }
  for (int t = 0; !index_inside && t < p.n_index; t++) p.index[t].step = istride, istride *= t ? limit_b : limit_a;
  if (pstride > POOL || istride > POOL) return;
  bool bad_ones = below(&s, 3) == 0;
  p.wraps = below(&s, 2) != 0;
  for (int t = 0; t < p.n_index; t++) {
    p.index[t].limit = t ? limit_b : limit_a;
    int64_t n = ie;
    for (int d = p.rank - 1; d >= 0; d--) {
      bool varies = !by_base[d] || below(&s, 4) == 0;
      p.index[t].st[d] = varies ? n : 0;
      if (varies) n *= p.sizes[d] ? p.sizes[d] : 1;
    }
    if (n > POOL) return;
    for (int64_t i = 0; i < n / ie; i++) {
      int64_t v = p.wraps ? below(&s, 2 * p.index[t].limit) - p.index[t].limit : below(&s, p.index[t].limit);
      if (bad_ones && below(&s, 10) == 0) v = below(&s, 2) ? p.index[t].limit : -p.index[t].limit - 1;
      if (ie == 8) wide[t][i] = v;
      else ((int32_t *)wide[t])[i] = (int32_t)v;
    }
    p.index[t].data = wide[t];
  }
  for (int d = 0; d < p.rank; d++) {
    p.src_st[d] = scatter ? plain[d] : indexed[d];
    p.out_st[d] = scatter ? indexed[d] : plain[d];
  }
  fill(src, (tnx_dtype)p.dtype, POOL, &s);
  static char start[POOL];
  fill(start, (tnx_dtype)p.dtype, POOL, &s);
  memcpy(want, start, POOL);
  p.src = src;
  p.out = want;
  int64_t faults = naive(&p, scatter);
  p.out = out;
  for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
    tnxk_kernel k;
    CHECK_OK(scatter ? tnxk_scatter_select(&p, (tnx_isa)isa, 2, &k) : tnxk_gather_select(&p, (tnx_isa)isa, 2, &k));
    for (int64_t piece = 0; piece <= 7; piece += 7) {
      memcpy(out, start, POOL);
      memset(&fault, 0, sizeof fault);
      kernel_run_split(&k, &p, piece, seed);
      CHECK_EQ(fault.code != 0, faults != 0);
      if (memcmp(out, want, POOL) != 0) {
        printf("%s seed %llu dtype %s op %d rank %d\n", k.name, (unsigned long long)seed, tnx_dtype_name((tnx_dtype)p.dtype), p.op, p.rank);
        CHECK(false);
        return;
      }
    }
  }
}

TEST(gather_random) { for (uint64_t i = 1; i <= 1500; i++) random_case(i, false); }
TEST(scatter_random) { for (uint64_t i = 1; i <= 3000; i++) random_case(i, true); }

TEST(long_rows) { /* several parts of the indexed dimension, bf16 sums in order */
  enum { N = 40, D = 1000, V = 4 };
  static uint16_t src[N][D], out[V][D], want[V][D];
  static int64_t index[N];
  uint64_t s = 5;
  for (int i = 0; i < N; i++) index[i] = below(&s, 2 * V) - V;
  for (int i = 0; i < N; i++) for (int j = 0; j < D; j++) src[i][j] = tnx_f32_to_bf16(test_randf(&s));
  index[3] = index[5] = 1, src[3][17] = 0x7f80, src[5][17] = 0xff80; /* inf - inf */
  for (int i = 0; i < N; i++)
    for (int j = 0; j < D; j++) {
      uint16_t *w = &want[index[i] < 0 ? index[i] + V : index[i]][j];
      *w = tnx_f32_to_bf16(tnx_bf16_to_f32(*w) + tnx_bf16_to_f32(src[i][j]));
    }
  tnxk_index p = {.rank = 2, .n_index = 1, .sizes = {N, D}, .src = src, .out = out, .src_st = {2 * D, 2}, .out_st = {0, 2},
                  .dtype = TNX_BF16, .index_dtype = TNX_I64, .op = TNXK_SCATTER_ADD};
  p.wraps = true;
  p.index[0].data = index, p.index[0].st[0] = 8, p.index[0].limit = V, p.index[0].step = 2 * D;
  for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
    tnxk_kernel k;
    CHECK_OK(tnxk_scatter_select(&p, (tnx_isa)isa, 2, &k));
    CHECK(k.units[0] > 1); /* threads share the rows */
    memset(out, 0, sizeof out);
    kernel_run_split(&k, &p, 1, 9);
    CHECK(memcmp(out, want, sizeof out) == 0);
  }
}

TEST(copy_random) {
  static _Alignas(64) char src[1 << 20], out[1 << 20], want[1 << 20];
  for (uint64_t seed = 1; seed <= 800; seed++) {
    uint64_t s = seed;
    for (size_t i = 0; i < sizeof src; i += 8) { uint64_t v = test_rand(&s); memcpy(src + i, &v, 8); }
    tnxk_copy p = {.rank = (int)below(&s, 5), .src = src + (1 << 19), .out = out, .elem_size = 1 << below(&s, 5)};
    int64_t st = p.elem_size;
    int first = p.rank ? (int)below(&s, p.rank) : 0;
    for (int d = p.rank - 1; d >= 0; d--) {
      p.sizes[d] = below(&s, 25) == 0 ? 0 : 1 + below(&s, p.rank > 2 ? 9 : 120);
      p.out_st[d] = st;
      st *= p.sizes[d] ? p.sizes[d] : 1;
      if (below(&s, 6) == 0) st += p.elem_size;
    }
    int64_t ss = p.elem_size;
    for (int k = p.rank - 1; k >= 0; k--) {
      int d = (k + first) % p.rank;
      p.src_st[d] = below(&s, 8) == 0 ? 0 : below(&s, 8) == 0 ? -ss : ss;
      ss *= p.sizes[d] ? p.sizes[d] : 1;
    }
    if (st > (1 << 19) || ss > (1 << 18)) continue;
    int64_t total = 1;
    for (int d = 0; d < p.rank; d++) total *= p.sizes[d];
    memset(want, 7, sizeof want);
    for (int64_t i = 0; i < total; i++) {
      int64_t rest = i, so = 0, oo = 0;
      for (int d = p.rank - 1; d >= 0; d--) {
        so += rest % p.sizes[d] * p.src_st[d];
        oo += rest % p.sizes[d] * p.out_st[d];
        rest /= p.sizes[d];
      }
      memcpy(want + oo, (const char *)p.src + so, (size_t)p.elem_size);
    }
    for (int isa = 0; isa <= (int)tnx_cpu_isa(); isa++) {
      tnxk_kernel k;
      CHECK_OK(tnxk_copy_select(&p, (tnx_isa)isa, 2, &k));
      memset(out, 7, sizeof out);
      kernel_run_split(&k, &p, isa ? 3 : 0, seed);
      if (memcmp(out, want, sizeof want) != 0) {
        printf("copy seed %llu isa %d\n", (unsigned long long)seed, isa);
        CHECK(false);
        return;
      }
    }
  }
}

TEST(refusals) {
  tnxk_kernel k;
  tnxk_index p = {.rank = 1, .sizes = {3}, .dtype = TNX_F32, .index_dtype = TNX_F32};
  CHECK_EQ(tnxk_gather_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_DTYPE);
  p.index_dtype = TNX_I64, p.dtype = TNX_C64, p.op = TNXK_SCATTER_MAX;
  CHECK_EQ(tnxk_scatter_select(&p, TNX_ISA_SCALAR, 1, &k), TNX_NOT_IMPLEMENTED);
  tnxk_copy c = {.elem_size = 3};
  CHECK_EQ(tnxk_copy_select(&c, TNX_ISA_SCALAR, 1, &k), TNX_INVALID_ARGUMENT);
}

TEST(nonzero_random) {
  static uint8_t mask[3 * MASK];
  static int64_t out[3 * MASK * 2], want[3 * MASK * 2];
  for (uint64_t seed = 1; seed <= 300; seed++) {
    uint64_t s = seed;
    tnxk_nonzero p = {.rank = 1 + (int)below(&s, 3), .mask = mask, .out = out, .fill = -7};
    int64_t n = 1, rows = 0, room = below(&s, 3) == 0 ? below(&s, 200) : MASK;
    for (int d = 0; d < p.rank; d++) n *= p.sizes[d] = below(&s, 30) == 0 ? 0 : 1 + below(&s, p.rank == 1 ? 3 * MASK - 8 : p.rank == 2 ? 100 : 21);
    int64_t sparse = 1 + below(&s, 20);
    for (int64_t i = 0; i < n; i++) mask[i] = below(&s, sparse) ? 0 : (uint8_t)(1 + below(&s, 255));
    bool by_column = below(&s, 2);
    p.rows = room * 2 / p.rank;
    p.row_st = by_column ? 8 : 8 * p.rank, p.column_st = by_column ? 8 * p.rows : 8;
    for (int64_t i = 0; i < p.rows * p.rank; i++) want[i] = p.fill;
    for (int64_t i = 0; i < n && rows < p.rows; i++) {
      if (!mask[i]) continue;
      int64_t rest = i;
      for (int d = p.rank - 1; d >= 0; d--) want[(rows * p.row_st + d * p.column_st) / 8] = rest % p.sizes[d], rest /= p.sizes[d];
      rows++;
    }
    tnxk_kernel k;
    CHECK_OK(tnxk_nonzero_select(&p, TNX_ISA_SCALAR, 2, &k));
    kernel_run_split(&k, &p, seed % 2, seed);
    CHECK(memcmp(out, want, (size_t)(p.rows * p.rank * 8)) == 0);
  }
}

int main(void) {
  RUN(nonzero_random);
  RUN(gather_random);
  RUN(scatter_random);
  RUN(long_rows);
  RUN(copy_random);
  RUN(refusals);
  return TEST_END;
}
