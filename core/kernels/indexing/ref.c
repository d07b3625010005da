/* Indexed reads and writes and strided copies in portable C, and the accumulations of every dtype that the other
 * instruction sets fall back on. Halves and float8 accumulate in float32 and round at each step, as PyTorch's CPU kernels do. */
#include <complex.h>
#include <math.h>

#include "base/half.h"
#include "kernels/indexing/body.h"

void tnxk_gather__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  gather_body(params, begin, end);
}

void tnxk_scatter__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  scatter_body(params, begin, end, NULL);
}

void tnxk_copy__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  copy_body(params, begin, end, transpose_plain);
}

/* ---- positions of true elements ---- */

/* The mask's elements [at, end), at most 8: the high bit of byte i says whether the i-th one is true. */
static inline uint64_t truths(const uint8_t *mask, int64_t at, int64_t end) {
  uint64_t word = 0, low = UINT64_C(0x7f7f7f7f7f7f7f7f);
  memcpy(&word, mask + at, end - at < 8 ? (size_t)(end - at) : 8);
  return (((word & low) + low) | word) & ~low;
}

static int64_t count_block(const uint8_t *mask, int64_t at, int64_t end) {
  int64_t total = 0;
  while (at < end) {
    uint64_t counts = 0; /* one in each byte: up to 31 words until their sum fills a byte */
    for (int i = 0; i < 31 && at < end; i++, at += 8) counts += truths(mask, at, end) >> 7;
    total += (int64_t)(counts * UINT64_C(0x0101010101010101) >> 56);
  }
  return total;
}

static inline void put_row(const tnxk_nonzero *p, int64_t row, const int64_t *x, int64_t last) {
  char *out = (char *)p->out + row * p->row_st;
  for (int d = 0; d + 1 < p->rank; d++, out += p->column_st) memcpy(out, &x[d], sizeof *x);
  memcpy(out, &last, sizeof last);
}

static void write_block(const tnxk_nonzero *p, int64_t at, int64_t end, int64_t row) {
  const uint8_t *mask = p->mask;
  int64_t x[TNXK_MAX_RANK], rest = at, width = p->sizes[p->rank - 1];
  for (int d = p->rank - 1; d >= 0; d--) x[d] = rest % p->sizes[d], rest /= p->sizes[d];
  while (at < end && row < p->rows) {
    int64_t line = at - x[p->rank - 1], stop = line + width < end ? line + width : end; /* where this row of the mask begins and ends */
    for (; at < stop; at += 8)
      for (uint64_t bits = truths(mask, at, stop); bits && row < p->rows; bits &= bits - 1)
        put_row(p, row++, x, at - line + __builtin_ctzll(bits) / 8);
    at = stop;
    x[p->rank - 1] = 0;
    for (int d = p->rank - 2; d >= 0 && ++x[d] == p->sizes[d]; d--) x[d] = 0;
  }
}

/* shared: for each block how many elements are true, then the row where its first one goes. */
void tnxk_nonzero__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_nonzero *p = params;
  int64_t *rows = shared, n = 1;
  for (int d = 0; d < p->rank; d++) n *= p->sizes[d];
  if (phase == 1) {
    int64_t total = 0;
    for (int64_t i = 0; i < tnxk_ceil_div(n, TNXK_NONZERO_BLOCK); i++) {
      int64_t count = rows[i];
      rows[i] = total;
      total += count;
    }
    for (; total < p->rows; total++)
      for (int d = 0; d < p->rank; d++) memcpy((char *)p->out + total * p->row_st + d * p->column_st, &p->fill, sizeof p->fill);
    return;
  }
  for (int64_t u = begin; u < end; u++) {
    int64_t at = u * TNXK_NONZERO_BLOCK, stop = n - at < TNXK_NONZERO_BLOCK ? n : at + TNXK_NONZERO_BLOCK;
    if (phase == 0) rows[u] = count_block(p->mask, at, stop);
    else write_block(p, at, stop, rows[u]);
  }
}

/* ---- accumulations ---- */

/* One accumulation: storage type, compute type, conversions both ways, and the result of combining a (out) with b (src). */
#define ACCUMULATE(name, store, load, unload, compute, expr)                                                                        \
  static inline void name##_one(char *out, const char *src) {                                                                       \
    store s, o;                                                                                                                     \
    memcpy(&s, src, sizeof s);                                                                                                      \
    memcpy(&o, out, sizeof o);                                                                                                      \
    compute a = load(o), b = load(s);                                                                                               \
    o = (store)unload(expr);                                                                                                        \
    memcpy(out, &o, sizeof o);                                                                                                      \
  }                                                                                                                                 \
  static void name(char *out, const char *src, int64_t n, int64_t out_step, int64_t src_step, const int64_t *offset) {              \
    if (offset)                                                                                                                     \
      for (int64_t i = 0; i < n; i++) name##_one(out + i * out_step + offset[i], src + i * src_step);                               \
    else                                                                                                                            \
      for (int64_t i = 0; i < n; i++) name##_one(out + i * out_step, src + i * src_step);                                           \
  }
#define SAME(x) (x)
#define TRUTH(x) ((x) != 0)
/* NaN wins, as in scatter_reduce's amin and amax. */
#define LEAST(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define GREATEST(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define REAL(name, store, load, unload, compute)                             \
  ACCUMULATE(name##_add, store, load, unload, compute, a + b)                \
  ACCUMULATE(name##_mul, store, load, unload, compute, a * b)                \
  ACCUMULATE(name##_min, store, load, unload, compute, LEAST(a, b))          \
  ACCUMULATE(name##_max, store, load, unload, compute, GREATEST(a, b))

ACCUMULATE(bool_or, uint8_t, TRUTH, SAME, uint8_t, a | b)
ACCUMULATE(bool_and, uint8_t, TRUTH, SAME, uint8_t, a & b)
/* Wide enough unsigned arithmetic for wrap-around; the order of minimum and maximum needs the type itself. */
#define INTEGER(name, store, wrap)                                           \
  ACCUMULATE(name##_add, store, SAME, SAME, wrap, a + b)                     \
  ACCUMULATE(name##_mul, store, SAME, SAME, wrap, a * b)                     \
  ACCUMULATE(name##_min, store, SAME, SAME, store, (a < b ? a : b))          \
  ACCUMULATE(name##_max, store, SAME, SAME, store, (a > b ? a : b))
INTEGER(u8, uint8_t, uint32_t)
INTEGER(i8, int8_t, uint32_t)
INTEGER(i16, int16_t, uint32_t)
INTEGER(i32, int32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
INTEGER(u16, uint16_t, uint32_t)
INTEGER(u32, uint32_t, uint32_t)
INTEGER(u64, uint64_t, uint64_t)
REAL(f8e4m3, uint8_t, tnx_f8e4m3_to_f32, tnx_f32_to_f8e4m3, float)
REAL(f8e5m2, uint8_t, tnx_f8e5m2_to_f32, tnx_f32_to_f8e5m2, float)
REAL(f16, uint16_t, tnx_f16_to_f32, tnx_f32_to_f16, float)
REAL(bf16, uint16_t, tnx_bf16_to_f32, tnx_f32_to_bf16, float)
REAL(f32, float, SAME, SAME, float)
REAL(f64, double, SAME, SAME, double)
ACCUMULATE(c64_add, float complex, SAME, SAME, float complex, a + b)
ACCUMULATE(c64_mul, float complex, SAME, SAME, float complex, a * b)
ACCUMULATE(c128_add, double complex, SAME, SAME, double complex, a + b)
ACCUMULATE(c128_mul, double complex, SAME, SAME, double complex, a * b)

tnxk_accumulate_fn tnxk_accumulate_get(tnx_dtype dtype, tnxk_scatter_op op) {
#define ROW(name) {name##_add, name##_mul, name##_min, name##_max}
  static const tnxk_accumulate_fn table[TNX_DTYPE_COUNT][4] = {
      [TNX_BOOL] = {bool_or, bool_and, bool_and, bool_or},
      [TNX_U8] = ROW(u8), [TNX_I8] = ROW(i8), [TNX_I16] = ROW(i16), [TNX_I32] = ROW(i32), [TNX_I64] = ROW(i64),
      [TNX_U16] = ROW(u16), [TNX_U32] = ROW(u32), [TNX_U64] = ROW(u64),
      [TNX_F8E4M3] = ROW(f8e4m3), [TNX_F8E5M2] = ROW(f8e5m2), [TNX_F16] = ROW(f16), [TNX_BF16] = ROW(bf16),
      [TNX_F32] = ROW(f32), [TNX_F64] = ROW(f64),
      [TNX_C64] = {c64_add, c64_mul, NULL, NULL}, [TNX_C128] = {c128_add, c128_mul, NULL, NULL}};
  if ((unsigned)dtype >= TNX_DTYPE_COUNT || op < TNXK_SCATTER_ADD || op > TNXK_SCATTER_MAX) return NULL;
  return table[dtype][op - TNXK_SCATTER_ADD];
}
