/* Internal to the scan family: sort and top-k of rows, compiled once per instruction set (its loops are left to the compiler).
 *
 * An element becomes an unsigned key whose order is the wanted order: equal values (0 and -0, any two NaN) get equal keys, NaN the
 * largest. A (key, position) pair is then unique, and sorting pairs is the stable order. Keys of up to 4 bytes and the position
 * share one 64-bit word. Full sorts are least-significant-digit radix sorts over the bytes that differ; top-k with small k keeps
 * the k least pairs in a heap and skips chunks whose least key cannot enter. Where the order of equals is to be the CPU's (order.h),
 * only keys are compared.
 * Worker scratch: the pairs (twice for a sort) and the digit counts. */
#ifndef TNXK_SCAN_TOPK_BODY_H
#define TNXK_SCAN_TOPK_BODY_H
#include <stdlib.h>

#include "kernels/scan/order.h"
#include "kernels/scan/rows.h"

/* Sign-magnitude floats of `bits` width: u is the pattern, inf that of +infinity (or one below the first NaN). */
#define FLOAT_KEY(name, type, signed_type, sign, inf)                                        \
  static inline type name(type u) {                                                          \
    type magnitude = (type)(u & (type)~(sign));                                              \
    type key = (u & (sign)) ? (type)((sign) - magnitude) : (type)((sign) + magnitude);       \
    return magnitude > (inf) ? (type) ~(type)0 : key;                                        \
  }
FLOAT_KEY(key_e4m3, uint8_t, int8_t, 0x80u, 0x7eu)
FLOAT_KEY(key_e5m2, uint8_t, int8_t, 0x80u, 0x7cu)
FLOAT_KEY(key_f16, uint16_t, int16_t, 0x8000u, 0x7c00u)
FLOAT_KEY(key_bf16, uint16_t, int16_t, 0x8000u, 0x7f80u)
FLOAT_KEY(key_f32, uint32_t, int32_t, 0x80000000u, 0x7f800000u)
FLOAT_KEY(key_f64, uint64_t, int64_t, 0x8000000000000000u, 0x7ff0000000000000u)

/* Keys of elements [first, first + n), n <= TNXK_TOPK_CHUNK; flip is all ones for a descending order. */
#define KEYS(type, word, expr)                                                                 \
  {                                                                                            \
    type raw[TNXK_TOPK_CHUNK];                                                                 \
    if (step == (int64_t)sizeof(type)) memcpy(raw, in, (size_t)n * sizeof(type));              \
    else                                                                                       \
      for (int64_t i = 0; i < n; i++) memcpy(&raw[i], in + i * step, sizeof(type));            \
    for (int64_t i = 0; i < n; i++) {                                                          \
      type u = raw[i];                                                                         \
      keys[i] = (word)(type)(expr) ^ flip;                                                     \
    }                                                                                          \
    break;                                                                                     \
  }
static inline void keys_narrow(tnx_dtype dtype, const char *in, int64_t step, int64_t n, uint32_t flip, uint32_t *keys) {
  switch (dtype) {
    case TNX_BOOL: KEYS(uint8_t, uint32_t, u != 0)
    case TNX_U8: KEYS(uint8_t, uint32_t, u)
    case TNX_I8: KEYS(uint8_t, uint32_t, u ^ 0x80u)
    case TNX_F8E4M3: KEYS(uint8_t, uint32_t, key_e4m3(u))
    case TNX_F8E5M2: KEYS(uint8_t, uint32_t, key_e5m2(u))
    case TNX_U16: KEYS(uint16_t, uint32_t, u)
    case TNX_I16: KEYS(uint16_t, uint32_t, u ^ 0x8000u)
    case TNX_F16: KEYS(uint16_t, uint32_t, key_f16(u))
    case TNX_BF16: KEYS(uint16_t, uint32_t, key_bf16(u))
    case TNX_U32: KEYS(uint32_t, uint32_t, u)
    case TNX_I32: KEYS(uint32_t, uint32_t, u ^ 0x80000000u)
    default: KEYS(uint32_t, uint32_t, key_f32(u))
  }
}
static inline void keys_wide(tnx_dtype dtype, const char *in, int64_t step, int64_t n, uint64_t flip, uint64_t *keys) {
  switch (dtype) {
    case TNX_U64: KEYS(uint64_t, uint64_t, u)
    case TNX_I64: KEYS(uint64_t, uint64_t, u ^ 0x8000000000000000u)
    case TNX_F64: KEYS(uint64_t, uint64_t, key_f64(u))
    default: { /* a row of 2^32 or more narrow elements */
      uint32_t narrow[TNXK_TOPK_CHUNK];
      keys_narrow(dtype, in, step, n, (uint32_t)flip, narrow);
      for (int64_t i = 0; i < n; i++) keys[i] = narrow[i];
    }
  }
}

typedef struct pair {
  uint64_t key;
  int64_t at;
} pair;

/* The two entry types share their algorithms through macros: E the entry, KEY its key as uint64_t. Pairs are ordered by key and position, or loosely, by the key alone. */
#define NARROW_KEY(x) ((x) >> 32)
#define WIDE_KEY(x) ((x).key)
#define NARROW_BEFORE(x, y) ((x) < (y))
#define WIDE_BEFORE(x, y) ((x).key < (y).key || ((x).key == (y).key && (x).at < (y).at))
#define NARROW_LOOSE(x, y) (NARROW_KEY(x) < NARROW_KEY(y))
#define WIDE_LOOSE(x, y) (WIDE_KEY(x) < WIDE_KEY(y))
ORDER(narrow, uint64_t, NARROW_BEFORE)
ORDER(wide, pair, WIDE_BEFORE)
ORDER(narrow_loose, uint64_t, NARROW_LOOSE)
ORDER(wide_loose, pair, WIDE_LOOSE)

#define RADIX(name, E, KEY)                                                                                   \
  /* Sorts a into a or b and returns which. */                                                                \
  static E *name##_radix(E *a, E *b, int64_t n, size_t *counts, int digits) {                                 \
    if (n <= 48) {                                                                                            \
      name##_insertion_sort(a, n);                                                                            \
      return a;                                                                                               \
    }                                                                                                         \
    memset(counts, 0, sizeof *counts * 256 * (size_t)digits);                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                         \
      uint64_t key = KEY(a[i]);                                                                               \
      for (int d = 0; d < digits; d++) counts[256 * d + (key >> 8 * d & 255)]++;                              \
    }                                                                                                         \
    for (int d = 0; d < digits; d++) {                                                                        \
      size_t *count = counts + 256 * d, sum = 0;                                                              \
      if (count[KEY(a[0]) >> 8 * d & 255] == (size_t)n) continue; /* all alike */                             \
      for (int v = 0; v < 256; v++) {                                                                         \
        size_t c = count[v];                                                                                  \
        count[v] = sum;                                                                                       \
        sum += c;                                                                                             \
      }                                                                                                       \
      for (int64_t i = 0; i < n; i++) b[count[KEY(a[i]) >> 8 * d & 255]++] = a[i];                            \
      E *t = a;                                                                                               \
      a = b;                                                                                                  \
      b = t;                                                                                                  \
    }                                                                                                         \
    return a;                                                                                                 \
  }
RADIX(narrow, uint64_t, NARROW_KEY)
RADIX(wide, pair, WIDE_KEY)

/* The k least entries of a row, sorted; MAKE builds an entry, WORD is the key type, order one of the orders of the entries. */
#define TOP(name, order, E, WORD, MAKE, KEY)                                                                    \
  static const E *order##_top(const tnxk_topk *p, const char *in, void *worker) {                                \
    size_t *counts = worker;                                                                                    \
    E *a = (E *)(counts + TNXK_TOPK_COUNTS);                                                                    \
    WORD keys[TNXK_TOPK_CHUNK], flip = p->descending ? (WORD) ~(WORD)0 : 0;                                     \
    bool by_heap = tnxk_topk_by_heap(p);                                                                        \
    int64_t size = 0;                                                                                           \
    for (int64_t first = 0; first < p->n; first += TNXK_TOPK_CHUNK) {                                           \
      int64_t n = p->n - first < TNXK_TOPK_CHUNK ? p->n - first : TNXK_TOPK_CHUNK, i = 0;                       \
      keys_##name((tnx_dtype)p->dtype, in + first * p->in_step, p->in_step, n, flip, keys);                     \
      if (!by_heap) {                                                                                           \
        for (; i < n; i++) a[first + i] = MAKE(keys[i], first + i);                                             \
        continue;                                                                                               \
      }                                                                                                         \
      for (; size < p->k && i < n; i++) {                                                                       \
        a[size++] = MAKE(keys[i], first + i);                                                                   \
        if (size == p->k) order##_heap_make(a, size);                                                           \
      }                                                                                                         \
      if (i == n) continue;                                                                                     \
      WORD least = (WORD) ~(WORD)0;                                                                             \
      for (int64_t j = i; j < n; j++) least = keys[j] < least ? keys[j] : least;                                \
      if (least >= KEY(a[0])) continue; /* equal keys at later positions stay out */                            \
      for (; i < n; i++) {                                                                                      \
        if (keys[i] >= KEY(a[0])) continue;                                                                     \
        order##_heap_put(a, size, 0, MAKE(keys[i], first + i));                                                 \
      }                                                                                                         \
    }                                                                                                           \
    if (!by_heap && !p->stable) {                                                                               \
      order##_nth(a, p->k - 1, p->n);                                                                           \
      order##_sort(a, p->k - 1);                                                                                 \
      return a;                                                                                                 \
    }                                                                                                           \
    if (!by_heap) {                                                                                             \
      size_t bytes = tnx_dtype_size((tnx_dtype)p->dtype);                                                       \
      return name##_radix(a, a + p->n, p->n, counts, (int)bytes);                                               \
    }                                                                                                           \
    order##_heap_unmake(a, size);                                                                               \
    return a;                                                                                                   \
  }
#define NARROW_MAKE(key, at) ((uint64_t)(key) << 32 | (uint64_t)(at))
#define WIDE_MAKE(key, at) ((pair){(key), (at)})
TOP(narrow, narrow, uint64_t, uint32_t, NARROW_MAKE, NARROW_KEY)
TOP(wide, wide, pair, uint64_t, WIDE_MAKE, WIDE_KEY)
TOP(narrow, narrow_loose, uint64_t, uint32_t, NARROW_MAKE, NARROW_KEY)
TOP(wide, wide_loose, pair, uint64_t, WIDE_MAKE, WIDE_KEY)

/* Units: rows. */
static inline void topk_body(const tnxk_topk *p, int64_t begin, int64_t end, void *worker) {
  size_t elem = tnx_dtype_size((tnx_dtype)p->dtype);
  bool narrow = tnxk_topk_narrow(p);
  for (int64_t u = begin; u < end; u++) {
    const char *in = p->in;
    char *values = p->values, *index = (char *)p->index;
    int64_t rest = u;
    for (int d = p->rank - 1; d >= 0; d--) {
      int64_t x = rest % p->sizes[d];
      rest /= p->sizes[d];
      in += x * p->in_st[d];
      if (values) values += x * p->values_st[d];
      if (index) index += x * p->index_st[d];
    }
    const void *top = p->stable ? (narrow ? (const void *)narrow_top(p, in, worker) : (const void *)wide_top(p, in, worker))
                                : (narrow ? (const void *)narrow_loose_top(p, in, worker) : (const void *)wide_loose_top(p, in, worker));
    for (int64_t i = 0; i < p->k; i++) {
      int64_t at = narrow ? (int64_t)(((const uint64_t *)top)[i] & UINT32_MAX) : ((const pair *)top)[i].at;
      if (index) memcpy(index + i * p->index_step, &at, sizeof at);
      if (!values) continue;
      const char *from = in + at * p->in_step;
      char *to = values + i * p->values_step;
      switch (elem) {
        case 1: *to = *from; break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8);
      }
    }
  }
}
#endif
