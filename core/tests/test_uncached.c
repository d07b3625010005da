/* Results larger than the caches are stored past them: every alignment and length of the copy, and programs, copies and gathers whose results are
 * that large, against the same work in pieces that are not. */
#include "kernels/indexing/indexing.h"
#include "kernels/program/program.h"
#include "kernels/uncached.h"
#include "kernel_split.h"

static int64_t large(int64_t size) {
  int64_t bytes = (int64_t)tnx_cpu_cache_bytes(3);
  if (bytes < (4 << 20)) bytes = 4 << 20;
  return bytes / size + 1777;
}

TEST(copies) {
  _Alignas(64) char src[512], out[640];
  uint64_t seed = 3;
  for (size_t i = 0; i < sizeof src; i++) src[i] = (char)test_rand(&seed);
  for (size_t at = 0; at < 64; at++)
    for (size_t bytes = 0; bytes <= 300; bytes += bytes < 140 ? 1 : 7) {
      memset(out, 0x5a, sizeof out);
      tnxk_uncached_copy(out + at, src + at % 5, bytes);
      tnxk_uncached_fence();
      CHECK(memcmp(out + at, src + at % 5, bytes) == 0);
      for (size_t i = 0; i < sizeof out; i++)
        if (i < at || i >= at + bytes) CHECK(out[i] == 0x5a);
    }
}

/* out = -x over [n] from element `from` on, in place where out is x. */
static void negate(tnx_isa isa, tnx_dtype dt, char *x, char *out, int64_t from, int64_t n, int64_t piece) {
  const tnxk_ctype ct = tnxk_ctype_of(dt);
  const int64_t size = (int64_t)tnx_dtype_size(dt);
  const tnxk_instr in[] = {{.op = TNXK_LOAD, .ctype = (uint8_t)ct, .dst = 0, .b = 0},
                           {.op = ct == TNXK_B8 ? TNXK_NOT : TNXK_NEG, .ctype = (uint8_t)ct, .dst = 1, .a = 0},
                           {.op = TNXK_STORE, .ctype = (uint8_t)ct, .a = 1, .b = 1}};
  const tnxk_operand op[] = {{(uint8_t)dt, false}, {(uint8_t)dt, true}};
  const tnxk_program g = {.instrs = in, .operands = op, .n_instrs = 3, .n_operands = 2, .n_regs = 2, .mode = TNXK_MAP};
  tnxk_program_args a = {.program = &g, .rank = 1, .sizes = {n}, .operand = {{x + from * size, {size}}, {out + from * size, {size}}}};
  tnxk_kernel k;
  CHECK_OK(tnxk_program_select(&a, isa, &k));
  kernel_run_split(&k, &a, piece, 11);
}

TEST(programs) {
  static const tnx_dtype dtypes[] = {TNX_F32, TNX_BF16, TNX_F16, TNX_F64, TNX_I32, TNX_I64, TNX_I8, TNX_BOOL, TNX_C64, TNX_C128};
  const tnx_isa best = tnx_cpu_isa() > TNX_ISA_AVX512 ? TNX_ISA_AVX512 : tnx_cpu_isa();
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
    const int64_t size = (int64_t)tnx_dtype_size(dtypes[t]), n = large(size);
    char *x = malloc((size_t)(n * size) + 64), *whole = malloc((size_t)(n * size) + 64), *pieces = malloc((size_t)(n * size) + 64);
    uint64_t seed = t;
    for (int64_t i = 0; i < n * size; i++) x[i] = (char)(dtypes[t] == TNX_BOOL ? test_rand(&seed) & 1 : test_rand(&seed) & 0x3f);
    const int64_t skew = t % 2 ? 0 : size; /* with and without an address that begins a cache line */
    memset(whole, 0x77, (size_t)(n * size) + 64);
    for (int64_t at = 0; at < n; at += 100003) negate(best, dtypes[t], x, pieces, at, n - at < 100003 ? n - at : 100003, 0);
    negate(best, dtypes[t], x, whole + skew, 0, n, 97);
    CHECK(memcmp(whole + skew, pieces, (size_t)(n * size)) == 0);
    CHECK(whole[skew + n * size] == 0x77);
    negate(best, dtypes[t], x, x, 0, n, 0); /* in place */
    CHECK(memcmp(x, pieces, (size_t)(n * size)) == 0);
    free(x);
    free(whole);
    free(pieces);
  }
}

static void copy(int64_t rows, int64_t cols, const char *src, int64_t src_row, int64_t src_col, char *out, int64_t out_row) {
  const tnxk_copy p = {.rank = 2, .sizes = {rows, cols}, .src = src, .out = out, .src_st = {src_row, src_col}, .out_st = {out_row, 4}, .elem_size = 4};
  tnxk_kernel k;
  CHECK_OK(tnxk_copy_select(&p, tnx_cpu_isa(), 2, &k));
  kernel_run_split(&k, &p, rows > 1 ? 13 : 0, 5);
}

static void gather(int64_t rows, int64_t cols, const int32_t *src, const int64_t *index, bool of_rows, int32_t *out) {
  tnxk_index p = {.rank = 2, .n_index = 1, .sizes = {rows, cols}, .src = src, .out = out, .src_st = {of_rows ? 0 : cols * 4, of_rows ? 4 : 0},
                  .out_st = {cols * 4, 4}, .dtype = TNX_I32, .index_dtype = TNX_I64, .wraps = true};
  p.index[0].data = index;
  p.index[0].st[of_rows ? 0 : 1] = 8;
  p.index[0].limit = of_rows ? rows : cols;
  p.index[0].step = of_rows ? cols * 4 : 4;
  tnxk_kernel k;
  CHECK_OK(tnxk_gather_select(&p, tnx_cpu_isa(), 2, &k));
  kernel_run_split(&k, &p, 13, 5);
}

TEST(moves) {
  const int64_t cols = 1003, rows = large(4) / cols + 1, n = rows * cols;
  int32_t *x = malloc((size_t)n * 4), *out = malloc((size_t)n * 4 + 64);
  int64_t *index = malloc((size_t)(rows > cols ? rows : cols) * 8);
  for (int64_t i = 0; i < n; i++) x[i] = (int32_t)i;
  out[n] = 77;
  copy(rows, cols, (char *)x, cols * 4, 4, (char *)out, cols * 4);
  CHECK(memcmp(x, out, (size_t)n * 4) == 0);
  copy(rows, cols, (char *)(x + cols - 1), cols * 4, -4, (char *)out, cols * 4); /* each row backwards */
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) wrong += out[i] != i / cols * cols + cols - 1 - i % cols;
  CHECK_EQ(wrong, 0);
  copy(rows, cols, (char *)x, 0, 4, (char *)out, cols * 4); /* one row for all */
  wrong = 0;
  for (int64_t i = 0; i < n; i++) wrong += out[i] != i % cols;
  CHECK_EQ(wrong, 0);
  for (int of_rows = 0; of_rows < 2; of_rows++) {
    int64_t limit = of_rows ? rows : cols;
    for (int64_t i = 0; i < limit; i++) index[i] = i % 3 ? limit - 1 - i : -1 - i;
    gather(rows, cols, x, index, of_rows, out);
    wrong = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t r = i / cols, c = i % cols, *at = of_rows ? &r : &c;
      *at = limit - 1 - *at;
      wrong += out[i] != r * cols + c;
    }
    CHECK_EQ(wrong, 0);
  }
  CHECK_EQ(out[n], 77);
  free(x);
  free(out);
  free(index);
}

int main(void) {
  RUN(copies);
  RUN(programs);
  RUN(moves);
  return TEST_END;
}
