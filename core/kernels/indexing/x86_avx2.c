/* AVX2: resolution of indices, accumulation of contiguous float runs (embedding gradients, index_add) and transposition of 2- and 4-byte tiles.
 * Everything else is the portable code of ref.c. Sums are the same bits as there: one addition and one rounding per element. */
#include <immintrin.h>

#include "base/half.h"
#include "kernels/indexing/body.h"

static void add_f32(char *out, const char *src, int64_t n, int64_t out_step, int64_t src_step, const int64_t *offset) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps((float *)out + i, _mm256_add_ps(_mm256_loadu_ps((const float *)out + i), _mm256_loadu_ps((const float *)src + i)));
  for (; i < n; i++) ((float *)out)[i] += ((const float *)src)[i];
}

static inline __m256 widen_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

static void add_bf16(char *out, const char *src, int64_t n, int64_t out_step, int64_t src_step, const int64_t *offset) {
  uint16_t *o = (uint16_t *)out;
  const uint16_t *s = (const uint16_t *)src;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 sum = _mm256_add_ps(widen_bf16(o + i), widen_bf16(s + i));
    __m256i u = _mm256_castps_si256(sum);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc0), nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)(o + i), _mm256_castsi256_si128(packed));
  }
  for (; i < n; i++) o[i] = tnx_f32_to_bf16(tnx_bf16_to_f32(o[i]) + tnx_bf16_to_f32(s[i]));
}

static void add_f16(char *out, const char *src, int64_t n, int64_t out_step, int64_t src_step, const int64_t *offset) {
  uint16_t *o = (uint16_t *)out;
  const uint16_t *s = (const uint16_t *)src;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 sum = _mm256_add_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(o + i))),
                               _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
    __m256 nan = _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q); /* one NaN, as the scalar code gives */
    sum = _mm256_blendv_ps(sum, _mm256_or_ps(_mm256_and_ps(sum, _mm256_set1_ps(-0.0f)), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000))), nan);
    _mm_storeu_si128((__m128i *)(o + i), _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; i++) o[i] = tnx_f32_to_f16(tnx_f16_to_f32(o[i]) + tnx_f16_to_f32(s[i]));
}

void tnxk_gather__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  gather_body(params, begin, end);
}

void tnxk_scatter__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_index *p = params;
  tnxk_accumulate_fn f = NULL;
  if (p->op == TNXK_SCATTER_ADD) f = p->dtype == TNX_F32 ? add_f32 : p->dtype == TNX_BF16 ? add_bf16 : p->dtype == TNX_F16 ? add_f16 : NULL;
  scatter_body(p, begin, end, f);
}

static inline void transpose_8x8_4(char *out, const char *src, int64_t out_row, int64_t src_row) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps((const float *)(src + i * src_row));
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps((float *)(out + i * out_row), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps((float *)(out + (i + 4) * out_row), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

static inline void transpose_8x8_2(char *out, const char *src, int64_t out_row, int64_t src_row) {
  __m128i r[8], t[8];
  for (int i = 0; i < 8; i++) r[i] = _mm_loadu_si128((const __m128i *)(src + i * src_row));
  for (int i = 0; i < 4; i++) {
    t[i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    t[i + 4] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int h = 0; h < 2; h++) {
    const __m128i *s = t + 4 * h;
    __m128i a = _mm_unpacklo_epi32(s[0], s[1]), b = _mm_unpackhi_epi32(s[0], s[1]);
    __m128i c = _mm_unpacklo_epi32(s[2], s[3]), d = _mm_unpackhi_epi32(s[2], s[3]);
    char *o = out + 4 * h * out_row;
    _mm_storeu_si128((__m128i *)o, _mm_unpacklo_epi64(a, c));
    _mm_storeu_si128((__m128i *)(o + out_row), _mm_unpackhi_epi64(a, c));
    _mm_storeu_si128((__m128i *)(o + 2 * out_row), _mm_unpacklo_epi64(b, d));
    _mm_storeu_si128((__m128i *)(o + 3 * out_row), _mm_unpackhi_epi64(b, d));
  }
}

static void transpose_tile(char *out, const char *src, int64_t rows, int64_t cols, int64_t out_row, int64_t src_row, int64_t elem) {
  if (elem != 2 && elem != 4) {
    transpose_plain(out, src, rows, cols, out_row, src_row, elem);
    return;
  }
  int64_t r8 = rows & ~7, c8 = cols & ~7;
  for (int64_t i = 0; i < r8; i += 8)
    for (int64_t j = 0; j < c8; j += 8) {
      char *o = out + i * out_row + j * elem;
      const char *s = src + j * src_row + i * elem;
      if (elem == 4) transpose_8x8_4(o, s, out_row, src_row);
      else transpose_8x8_2(o, s, out_row, src_row);
    }
  if (c8 < cols) transpose_plain(out + c8 * elem, src + c8 * src_row, rows, cols - c8, out_row, src_row, elem);
  if (r8 < rows) transpose_plain(out + r8 * out_row, src + r8 * elem, rows - r8, c8, out_row, src_row, elem);
}

void tnxk_copy__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  copy_body(params, begin, end, transpose_tile);
}
