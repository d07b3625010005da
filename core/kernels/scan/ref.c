/* Cumulative scans in portable C, for every dtype. Accumulators are those of PyTorch's CPU kernels: float64 for float32,
 * float32 for the narrower floats, the type itself (wrapping) for integers. Units: rows of the outer dimensions x tiles of
 * TNXK_SCAN_TILE rows. Sort and top-k are in topk_body.h. */
#include <complex.h>
#include <math.h>

#include "base/half.h"
#include "kernels/scan/topk_body.h"

typedef struct rows {
  const char *in;
  char *out, *index;
  int64_t count, in_row, out_row, index_row; /* rows and the distances between them */
} rows;
typedef void (*scan_fn)(const tnxk_scan *p, const rows *t);

#define SAME(x) (x)
#define IS_NAN(x) ((x) != (x))

static bool along_rows(const tnxk_scan *p, const rows *t) { return llabs(p->in_step) <= llabs(t->in_row) || t->count == 1; }

/* Walks a tile along the row (one row after the other) or across it, whichever steps are shorter.
 * The argument is a block that handles element i of row r. */
#define WALK(...)                                                     \
  if (along_rows(p, t)) {                                             \
    for (int64_t r = 0; r < t->count; r++)                            \
      for (int64_t i = 0; i < p->n; i++) __VA_ARGS__                  \
  } else {                                                            \
    for (int64_t i = 0; i < p->n; i++)                                \
      for (int64_t r = 0; r < t->count; r++) __VA_ARGS__              \
  }

/* Running totals. Each waits for the one before it, so ABREAST rows go side by side, their totals in registers: more would
 * not fit the ways of an L1 cache, where rows of a power of two of bytes all begin in one set. */
enum { ABREAST = 4 };
#define CUMULATE(name, store, load, unload, acc, init, expr)                                        \
  static inline void name##_one(const char *in, char *out, acc *sum) {                              \
    store v;                                                                                        \
    memcpy(&v, in, sizeof v);                                                                       \
    acc a = *sum, x = (acc)load(v);                                                                 \
    *sum = a = (expr);                                                                              \
    v = (store)unload(a);                                                                           \
    memcpy(out, &v, sizeof v);                                                                      \
  }                                                                                                 \
  static inline __attribute__((always_inline)) void name##_rows(const char *in, char *out, int64_t n, const tnxk_scan *p, const rows *t, const int count) { \
    const int64_t in_step = p->in_step, out_step = p->out_step, in_row = t->in_row, out_row = t->out_row; \
    acc sum[ABREAST];                                                                               \
    for (int r = 0; r < count; r++) sum[r] = (init);                                                \
    for (int64_t i = 0; i < n; i++, in += in_step, out += out_step) {                               \
      _Pragma("GCC unroll 4") for (int r = 0; r < count; r++) name##_one(in + r * in_row, out + r * out_row, &sum[r]); \
    }                                                                                               \
  }                                                                                                 \
  static void name(const tnxk_scan *p, const rows *t) {                                             \
    acc sum[TNXK_SCAN_TILE];                                                                        \
    if (along_rows(p, t)) {                                                                         \
      int64_t r = 0;                                                                                \
      for (; r + ABREAST <= t->count; r += ABREAST)                                                 \
        name##_rows(t->in + r * t->in_row, t->out + r * t->out_row, p->n, p, t, ABREAST);           \
      for (; r < t->count; r++) name##_rows(t->in + r * t->in_row, t->out + r * t->out_row, p->n, p, t, 1); \
      return;                                                                                       \
    }                                                                                               \
    for (int64_t r = 0; r < t->count; r++) sum[r] = (init);                                         \
    for (int64_t i = 0; i < p->n; i++)                                                              \
      for (int64_t r = 0; r < t->count; r++)                                                        \
        name##_one(t->in + r * t->in_row + i * p->in_step, t->out + r * t->out_row + i * p->out_step, &sum[r]); \
  }

#define EXTREME(name, store, load, unload, value, wins)                                             \
  static void name(const tnxk_scan *p, const rows *t) {                                             \
    store kept[TNXK_SCAN_TILE];                                                                     \
    value best[TNXK_SCAN_TILE];                                                                     \
    int64_t at[TNXK_SCAN_TILE];                                                                     \
    WALK({                                                                                          \
      store v;                                                                                      \
      memcpy(&v, t->in + r * t->in_row + i * p->in_step, sizeof v);                                 \
      value x = load(v), b = best[r];                                                               \
      if (i == 0 || IS_NAN(x) || (!IS_NAN(b) && (wins))) kept[r] = v, best[r] = x, at[r] = i;       \
      memcpy(t->out + r * t->out_row + i * p->out_step, &kept[r], sizeof v);                        \
      if (t->index) memcpy(t->index + r * t->index_row + i * p->index_step, &at[r], sizeof at[r]);  \
    })                                                                                              \
  }

/* log(exp(x) + exp(a)) without overflow, equal infinities kept. */
static double log_add_exp(double x, double a) {
  double lo = isnan(a) || a < x ? a : x, hi = isnan(a) || a > x ? a : x;
  return lo != hi || isfinite(lo) ? log1p(exp(lo - hi)) + hi : x;
}
static float log_add_exp_f(float x, float a) {
  float lo = isnan(a) || a < x ? a : x, hi = isnan(a) || a > x ? a : x;
  return lo != hi || isfinite(lo) ? log1pf(expf(lo - hi)) + hi : x;
}

#define SUMS(name, store, load, unload, acc)                                     \
  CUMULATE(name##_sum, store, load, unload, acc, 0, a + x)                       \
  CUMULATE(name##_prod, store, load, unload, acc, 1, a * x)
#define EXTREMES(name, store, load, unload, value)                               \
  EXTREME(name##_max, store, load, unload, value, x >= b)                        \
  EXTREME(name##_min, store, load, unload, value, x <= b)
#define INTEGER(name, store, wrap) SUMS(name, store, SAME, SAME, wrap) EXTREMES(name, store, SAME, SAME, store)
#define FLOAT(name, store, load, unload, acc, value, lae)                        \
  SUMS(name, store, load, unload, acc)                                           \
  EXTREMES(name, store, load, unload, value)                                     \
  CUMULATE(name##_lse, store, load, unload, acc, -INFINITY, lae(x, a))

EXTREMES(b8, uint8_t, SAME, SAME, uint8_t)
INTEGER(u8, uint8_t, uint32_t)
INTEGER(i8, int8_t, uint32_t)
INTEGER(i16, int16_t, uint32_t)
INTEGER(i32, int32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
INTEGER(u16, uint16_t, uint32_t)
INTEGER(u32, uint32_t, uint32_t)
INTEGER(u64, uint64_t, uint64_t)
FLOAT(f8e4m3, uint8_t, tnx_f8e4m3_to_f32, tnx_f32_to_f8e4m3, float, float, log_add_exp_f)
FLOAT(f8e5m2, uint8_t, tnx_f8e5m2_to_f32, tnx_f32_to_f8e5m2, float, float, log_add_exp_f)
FLOAT(f16, uint16_t, tnx_f16_to_f32, tnx_f32_to_f16, float, float, log_add_exp_f)
FLOAT(bf16, uint16_t, tnx_bf16_to_f32, tnx_f32_to_bf16, float, float, log_add_exp_f)
FLOAT(f32, float, SAME, SAME, double, float, log_add_exp)
FLOAT(f64, double, SAME, SAME, double, double, log_add_exp)
SUMS(c64, float complex, SAME, SAME, double complex)
SUMS(c128, double complex, SAME, SAME, double complex)

static scan_fn get(tnx_dtype dtype, tnxk_scan_op op) {
#define REAL(name) {name##_sum, name##_prod, name##_max, name##_min, NULL}
#define LOGS(name) {name##_sum, name##_prod, name##_max, name##_min, name##_lse}
  static const scan_fn table[TNX_DTYPE_COUNT][5] = {
      [TNX_BOOL] = {NULL, NULL, b8_max, b8_min, NULL},
      [TNX_U8] = REAL(u8), [TNX_I8] = REAL(i8), [TNX_I16] = REAL(i16), [TNX_I32] = REAL(i32), [TNX_I64] = REAL(i64),
      [TNX_U16] = REAL(u16), [TNX_U32] = REAL(u32), [TNX_U64] = REAL(u64),
      [TNX_F8E4M3] = LOGS(f8e4m3), [TNX_F8E5M2] = LOGS(f8e5m2), [TNX_F16] = LOGS(f16), [TNX_BF16] = LOGS(bf16),
      [TNX_F32] = LOGS(f32), [TNX_F64] = LOGS(f64),
      [TNX_C64] = {c64_sum, c64_prod, NULL, NULL, NULL}, [TNX_C128] = {c128_sum, c128_prod, NULL, NULL, NULL}};
  if ((unsigned)dtype >= TNX_DTYPE_COUNT || (unsigned)op > TNXK_LOGCUMSUMEXP) return NULL;
  return table[dtype][op];
}

bool tnxk_scan_has(tnx_dtype dtype, tnxk_scan_op op) { return get(dtype, op) != NULL; }

void tnxk_scan__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_scan *p = params;
  scan_fn f = get((tnx_dtype)p->dtype, (tnxk_scan_op)p->op);
  int tile = tnxk_scan_tile_dim(p);
  int64_t across = tile >= 0 ? p->sizes[tile] : 1, tiles = (across + TNXK_SCAN_TILE - 1) / TNXK_SCAN_TILE;
  for (int64_t u = begin; u < end; u++) {
    int64_t first = u % tiles * TNXK_SCAN_TILE, rest = u / tiles;
    rows t = {.in = p->in, .out = p->out, .index = (char *)p->index};
    t.count = across - first < TNXK_SCAN_TILE ? across - first : TNXK_SCAN_TILE;
    for (int d = p->rank - 1; d >= 0; d--) {
      int64_t x = first;
      if (d == tile) t.in_row = p->in_st[d], t.out_row = p->out_st[d], t.index_row = p->index_st[d];
      else x = rest % p->sizes[d], rest /= p->sizes[d];
      t.in += x * p->in_st[d];
      t.out += x * p->out_st[d];
      if (t.index) t.index += x * p->index_st[d];
    }
    f(p, &t);
  }
}

void tnxk_topk__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  topk_body(params, begin, end, worker);
}
