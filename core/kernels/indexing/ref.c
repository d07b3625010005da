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
