/* The base layer: status texts, dtypes and promotion, narrow floats, arena, vec, hash, heap, logging. */
#include <pthread.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/vec.h"
#include "test.h"
#include "tnx/dtype.h"
#include "tnx/status.h"

/* ---- status ---- */

static tnx_status forwards(tnx_status s) {
  TNX_TRY(s);
  return TNX_OK;
}
static tnx_status forwards_done(tnx_status s, int *cleaned) {
  tnx_status status = TNX_OK;
  TNX_TRY_DONE(s);
done:
  (*cleaned)++;
  return status;
}
static void *other_thread(void *arg) {
  CHECK(tnx_error_text()[0] == 0);
  tnx_fail(TNX_IO, "other thread");
  return NULL;
}

TEST(status) {
  CHECK(strcmp(tnx_status_name(TNX_OK), "OK") == 0);
  CHECK(strcmp(tnx_status_name(TNX_BAD_FORK), "BAD_FORK") == 0);
  CHECK(strcmp(tnx_status_text(TNX_OK), "success") == 0);
  CHECK(strcmp(tnx_status_name((tnx_status)999), "UNKNOWN") == 0);
  for (int i = 0; i < TNX_STATUS_COUNT; i++) CHECK(tnx_status_name((tnx_status)i)[0] && tnx_status_text((tnx_status)i)[0]);
  CHECK(tnx_error_text()[0] == 0);
  CHECK_EQ(tnx_fail(TNX_SHAPE, "%d by %s", 3, "four"), TNX_SHAPE);
  CHECK(strcmp(tnx_error_text(), "3 by four") == 0);
  tnx_error_prefix("operator %s", "add");
  CHECK(strcmp(tnx_error_text(), "operator add: 3 by four") == 0);
  pthread_t t;
  CHECK_EQ(pthread_create(&t, NULL, other_thread, NULL), 0);
  pthread_join(t, NULL);
  CHECK(strcmp(tnx_error_text(), "operator add: 3 by four") == 0);
  /* A text that is too long is cut, not overrun. */
  char *big = malloc(10000);
  memset(big, 'x', 9999);
  big[9999] = 0;
  tnx_fail(TNX_SHAPE, "%s", big);
  CHECK(strlen(tnx_error_text()) == 2047);
  tnx_error_prefix("p");
  CHECK(strncmp(tnx_error_text(), "p: xxx", 6) == 0 && strlen(tnx_error_text()) == 2047);
  free(big);
  int cleaned = 0;
  CHECK_EQ(forwards(TNX_OK), TNX_OK);
  CHECK_EQ(forwards(TNX_INDEX), TNX_INDEX);
  CHECK_EQ(forwards_done(TNX_INDEX, &cleaned), TNX_INDEX);
  CHECK_EQ(forwards_done(TNX_OK, &cleaned), TNX_OK);
  CHECK_EQ(cleaned, 2);
}

/* ---- dtypes ---- */

/* torch.promote_types of PyTorch 2.13 in the order of dtypes.def; "-": PyTorch refuses the pair. */
static const char *const promotion[] = {
    "BOOL U8 I8 I16 I32 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "U8 U8 I16 I16 I32 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "I8 I16 I8 I16 I32 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "I16 I16 I16 I16 I32 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "I32 I32 I32 I32 I32 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "I64 I64 I64 I64 I64 I64 - - - - - F16 BF16 F32 F64 C64 C128",
    "- - - - - - U16 - - - - F16 BF16 F32 F64 - -",
    "- - - - - - - U32 - - - F16 BF16 F32 F64 - -",
    "- - - - - - - - U64 - - F16 BF16 F32 F64 - -",
    "- - - - - - - - - F8E4M3 - - - - - - -",
    "- - - - - - - - - - F8E5M2 - - - - - -",
    "F16 F16 F16 F16 F16 F16 F16 F16 F16 - - F16 F32 F32 F64 C64 C128",
    "BF16 BF16 BF16 BF16 BF16 BF16 BF16 BF16 BF16 - - F32 BF16 F32 F64 C64 C128",
    "F32 F32 F32 F32 F32 F32 F32 F32 F32 - - F32 F32 F32 F64 C64 C128",
    "F64 F64 F64 F64 F64 F64 F64 F64 F64 - - F64 F64 F64 F64 C128 C128",
    "C64 C64 C64 C64 C64 C64 - - - - - C64 C64 C64 C128 C64 C128",
    "C128 C128 C128 C128 C128 C128 - - - - - C128 C128 C128 C128 C128 C128",
};
static const char *const enumerators[] = {
#define TNX_DTYPE(name, torch, bytes, kind, hlo) #name,
#include "tnx/dtypes.def"
#undef TNX_DTYPE
};

TEST(dtype_promotion) {
  CHECK_EQ(sizeof promotion / sizeof promotion[0], TNX_DTYPE_COUNT);
  for (int a = 0; a < TNX_DTYPE_COUNT; a++) {
    char row[256];
    snprintf(row, sizeof row, "%s", promotion[a]);
    char *save = NULL, *word = strtok_r(row, " ", &save);
    for (int b = 0; b < TNX_DTYPE_COUNT; b++, word = strtok_r(NULL, " ", &save)) {
      if (!word) {
        CHECK(!"the table's row is complete");
        break;
      }
      tnx_dtype got = tnx_dtype_promote((tnx_dtype)a, (tnx_dtype)b);
      CHECK_EQ(got, tnx_dtype_promote((tnx_dtype)b, (tnx_dtype)a));
      CHECK((unsigned)got < TNX_DTYPE_COUNT);
      if (strcmp(word, "-") && strcmp(word, enumerators[got])) {
        printf("%s with %s gives %s, not %s\n", enumerators[a], enumerators[b], enumerators[got], word);
        test_bad++;
      }
    }
  }
}

TEST(dtype_properties) {
  for (int i = 0; i < TNX_DTYPE_COUNT; i++) {
    tnx_dtype t = (tnx_dtype)i;
    CHECK(tnx_dtype_parse(tnx_dtype_name(t)) == t);
    CHECK(tnx_dtype_size(t) >= 1 && tnx_dtype_size(t) <= 16);
    CHECK(tnx_dtype_hlo(t)[0] != 0);
    CHECK(tnx_dtype_is_float(t) + tnx_dtype_is_complex(t) + tnx_dtype_is_integral(t) == 1);
    CHECK(tnx_dtype_is_complex(t) ? tnx_dtype_size(tnx_dtype_real(t)) * 2 == tnx_dtype_size(t) : tnx_dtype_real(t) == t);
  }
  CHECK(tnx_dtype_parse("float31") == TNX_DTYPE_NONE);
  CHECK_EQ(tnx_dtype_size(TNX_DTYPE_NONE), 0);
  CHECK(strcmp(tnx_dtype_name(TNX_BF16), "bfloat16") == 0 && strcmp(tnx_dtype_hlo(TNX_U8), "ui8") == 0);
  CHECK(tnx_dtype_is_integral(TNX_BOOL) && !tnx_dtype_is_integral(TNX_F16));
}

/* ---- narrow floats ---- */

/* A format by its parameters: an independent, slow definition. */
typedef struct format {
  const char *name;
  int bits, mantissa, bias;
  bool infinity; /* e4m3fn has none: only the all-ones pattern is NaN */
  float (*decode)(uint32_t);
  uint32_t (*encode)(float);
} format;
static float bf16_decode(uint32_t v) { return tnx_bf16_to_f32((uint16_t)v); }
static uint32_t bf16_encode(float f) { return tnx_f32_to_bf16(f); }
static float f16_decode(uint32_t v) { return tnx_f16_to_f32((uint16_t)v); }
static uint32_t f16_encode(float f) { return tnx_f32_to_f16(f); }
static float e5m2_decode(uint32_t v) { return tnx_f8e5m2_to_f32((uint8_t)v); }
static uint32_t e5m2_encode(float f) { return tnx_f32_to_f8e5m2(f); }
static float e4m3_decode(uint32_t v) { return tnx_f8e4m3_to_f32((uint8_t)v); }
static uint32_t e4m3_encode(float f) { return tnx_f32_to_f8e4m3(f); }
static const format formats[] = {
    {"bfloat16", 16, 7, 127, true, bf16_decode, bf16_encode},
    {"float16", 16, 10, 15, true, f16_decode, f16_encode},
    {"float8_e5m2", 8, 2, 15, true, e5m2_decode, e5m2_encode},
    {"float8_e4m3fn", 8, 3, 7, false, e4m3_decode, e4m3_encode},
};

/* The magnitude of pattern `p` (no sign); the pattern after the largest finite one gets the value it would have. */
static double magnitude(const format *f, uint32_t p) {
  int exponent = (int)(p >> f->mantissa);
  double fraction = (double)(p & ((1u << f->mantissa) - 1)) / (double)(1u << f->mantissa);
  return exponent == 0 ? ldexp(fraction, 1 - f->bias) : ldexp(1 + fraction, exponent - f->bias);
}

TEST(narrow_float_decoding) {
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    const format *f = &formats[i];
    uint32_t sign = 1u << (f->bits - 1), top = ((sign - 1) >> f->mantissa) << f->mantissa;
    int wrong = 0;
    for (uint32_t p = 0; p < 2 * sign; p++) {
      float got = f->decode(p);
      uint32_t m = p & (sign - 1);
      bool nan = f->infinity ? m > top : m == sign - 1, infinite = f->infinity && m == top;
      if (nan) wrong += !isnan(got);
      else if (infinite) wrong += !isinf(got) || !signbit(got) != !(p & sign);
      else wrong += (double)fabsf(got) != magnitude(f, m) || !signbit(got) != !(p & sign);
      if (!nan) wrong += f->encode(got) != p; /* what is representable comes back */
      else wrong += !isnan(f->decode(f->encode(got)));
    }
    if (wrong) printf("%s: %d patterns wrong\n", f->name, wrong);
    CHECK_EQ(wrong, 0);
  }
}

TEST(narrow_float_rounding) {
  /* Between two neighbouring values rounding is a step at the midpoint (ties to the even pattern), so checking both sides of each
   * midpoint checks every float. Midpoints are exact in float32 but for bfloat16's lowest bits, which they fill. */
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    const format *f = &formats[i];
    uint32_t sign = 1u << (f->bits - 1), top = f->infinity ? ((sign - 1) >> f->mantissa) << f->mantissa : sign - 1;
    int wrong = 0;
    for (uint32_t p = 0; p < top; p++) { /* between p and p + 1; the last p + 1 is infinity; e4m3fn stays at p, its largest */
      double middle = (magnitude(f, p) + magnitude(f, p + 1)) / 2;
      float mid = (float)middle;
      if ((double)mid != middle) { /* above the float32 range: bfloat16's overflow threshold is there */
        wrong += !isinf(mid) && mid != 3.40282347e38f;
        continue;
      }
      float below = nextafterf(mid, 0), above = nextafterf(mid, INFINITY);
      for (int s = 0; s < 2; s++) {
        uint32_t b = s ? sign : 0;
        float g = s ? -1.0f : 1.0f;
        wrong += f->encode(g * below) != (p | b);
        wrong += f->encode(g * mid) != ((p + (p & 1)) | b);
        wrong += f->encode(g * above) != ((f->infinity || p + 1 < top ? p + 1 : p) | b);
      }
    }
    wrong += f->infinity ? !isinf(f->decode(f->encode(INFINITY))) : f->encode(INFINITY) != top - 1;
    wrong += !isnan(f->decode(f->encode(NAN))) + !isnan(f->decode(f->encode(-NAN)));
    wrong += f->encode(-0.0f) != sign;
    /* A NaN whose payload sits in the low bits only must stay a NaN. */
    wrong += !isnan(f->decode(f->encode(tnx_f32_from_bits(0x7f800001u))));
    if (wrong) printf("%s: %d roundings wrong\n", f->name, wrong);
    CHECK_EQ(wrong, 0);
  }
}

/* ---- memory ---- */

TEST(arena) {
  tnx_arena a;
  tnx_arena_init(&a);
  int64_t live = tnx_heap_live();
  uint64_t seed = 5;
  struct { unsigned char *p; size_t n; } kept[500];
  for (int i = 0; i < 500; i++) {
    kept[i].n = test_rand(&seed) % (i % 50 ? 300 : 100000);
    kept[i].p = tnx_arena_alloc(&a, kept[i].n);
    CHECK(kept[i].p && (uintptr_t)kept[i].p % 16 == 0);
    int dirty = 0;
    for (size_t k = 0; k < kept[i].n; k++) dirty += kept[i].p[k];
    CHECK_EQ(dirty, 0);
    memset(kept[i].p, i, kept[i].n);
  }
  int wrong = 0;
  for (int i = 0; i < 500; i++)
    for (size_t k = 0; k < kept[i].n; k++) wrong += kept[i].p[k] != (unsigned char)i;
  CHECK_EQ(wrong, 0);
  CHECK(tnx_arena_alloc(&a, 0) != tnx_arena_alloc(&a, 0));
  CHECK(strcmp(tnx_arena_strdup(&a, "text"), "text") == 0);
  CHECK(tnx_arena_alloc(&a, SIZE_MAX) == NULL);
  CHECK(tnx_arena_alloc(&a, SIZE_MAX / 2 + 1) == NULL);
  tnx_arena_reset(&a);
  CHECK_EQ(tnx_heap_live(), live + 1);
  int *zero = TNX_ARENA_ARRAY(&a, int, 100);
  for (int i = 0; i < 100; i++) CHECK_EQ(zero[i], 0);
  tnx_arena_fini(&a);
  CHECK_EQ(tnx_heap_live(), live);
  tnx_heap_fail_after(0);
  CHECK(tnx_arena_alloc(&a, 10) == NULL);
  CHECK(tnx_arena_alloc(&a, 10) != NULL);
  tnx_arena_fini(&a);
}

TEST(vec) {
  TNX_VEC(int) v = {0};
  int64_t live = tnx_heap_live();
  for (int i = 0; i < 1000; i++) CHECK(tnx_vec_push(&v, i * i));
  CHECK_EQ(v.len, 1000);
  for (int i = 0; i < 1000; i++) CHECK_EQ(v.data[i], i * i);
  v.len = v.cap;
  tnx_heap_fail_after(0);
  CHECK(!tnx_vec_push(&v, 1)); /* the old contents stay */
  CHECK_EQ(v.data[999], 999 * 999);
  CHECK(tnx_vec_push(&v, 1));
  tnx_vec_fini(&v);
  CHECK_EQ(tnx_heap_live(), live);
  CHECK(v.data == NULL && v.len == 0 && v.cap == 0);
}

TEST(heap) {
  int64_t live = tnx_heap_live();
  void *p[3];
  tnx_heap_fail_after(1);
  p[0] = tnx_heap_alloc(10);
  p[1] = tnx_heap_alloc(10);
  p[2] = tnx_heap_zalloc(3, 5);
  CHECK(p[0] && !p[1] && p[2]);
  for (int i = 0; i < 15; i++) CHECK_EQ(((char *)p[2])[i], 0);
  CHECK_EQ(tnx_heap_live(), live + 2);
  p[0] = tnx_heap_realloc(p[0], 1000);
  CHECK(p[0] != NULL);
  CHECK(tnx_heap_zalloc(SIZE_MAX / 2, 3) == NULL);
  tnx_heap_free(p[0]);
  tnx_heap_free(p[2]);
  tnx_heap_free(NULL);
  CHECK_EQ(tnx_heap_live(), live);
}

TEST(hash) {
  /* Every single-bit change of inputs of every short length changes the hash, and the buckets are even. */
  unsigned char data[64];
  uint64_t seed = 9;
  for (int i = 0; i < 64; i++) data[i] = (unsigned char)test_rand(&seed);
  for (size_t n = 0; n <= 40; n++) {
    uint64_t h = tnx_hash_bytes(data, n, 1);
    CHECK(h == tnx_hash_bytes(data, n, 1));
    CHECK(h != tnx_hash_bytes(data, n, 2));
    if (n) CHECK(h != tnx_hash_bytes(data, n - 1, 1));
    for (size_t bit = 0; bit < 8 * n; bit++) {
      data[bit / 8] ^= (unsigned char)(1 << bit % 8);
      CHECK(tnx_hash_bytes(data, n, 1) != h);
      data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
  }
  int buckets[256] = {0}, most = 0;
  for (uint64_t i = 0; i < 256 * 100; i++) {
    int *b = &buckets[tnx_hash_bytes(&i, sizeof i, 0) & 255];
    if (++*b > most) most = *b;
  }
  CHECK(most < 160);
}

TEST(cpu) {
  CHECK(tnx_cpu_count() >= 1);
  CHECK((unsigned)tnx_cpu_isa() < TNX_ISA_COUNT);
  CHECK(strcmp(tnx_isa_name(TNX_ISA_SCALAR), "scalar") == 0 && strcmp(tnx_isa_name(TNX_ISA_COUNT), "unknown") == 0);
  CHECK(tnx_cpu_cache_bytes(1) >= 4096 && tnx_cpu_cache_bytes(2) >= tnx_cpu_cache_bytes(1));
  CHECK_EQ(tnx_cpu_cache_bytes(0), 0);
}

int main(void) {
  RUN(status);
  RUN(dtype_promotion);
  RUN(dtype_properties);
  RUN(narrow_float_decoding);
  RUN(narrow_float_rounding);
  RUN(arena);
  RUN(vec);
  RUN(heap);
  RUN(hash);
  RUN(cpu);
  return TEST_END;
}
