/* Blocked product of one element type by compiler vectors: float64 and the integers (which wrap, so unsigned arithmetic of
 * the type's width, at least 32 bits, gives the right bits). The including file defines, before each inclusion:
 *   PT         the type of sums            PT_FLOAT   1 for float64, 0 for integers
 *   PT_FMA(a, b, c)  on PT_V vectors       PT_NAME    a suffix for this inclusion's functions
 * A unit is a block of PLAIN_MB x PLAIN_NB outputs. */
#include "kernels/matmul/matmul_internal.h"

#include <math.h>
#include <string.h>

#ifndef TNXK_MATMUL_PLAIN_ONCE
#define TNXK_MATMUL_PLAIN_ONCE
enum { PLAIN_ROWS = 6, PLAIN_MB = 48, PLAIN_NB = 64, PLAIN_KC = 128 };

static double plain_activate(double x, int act) {
  switch (act) {
    case TNXK_ACT_RELU: return x < 0 ? 0 : x;
    case TNXK_ACT_SILU: return x / (1 + exp(-x));
    case TNXK_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case TNXK_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default: return x;
  }
}

static void fill_plain(const tnxk_matmul *q, const char *name, tnxk_run_fn run, size_t bytes, tnxk_kernel *out) {
  const double us = (double)mm_min(q->m, PLAIN_MB) * (double)mm_min(q->n, PLAIN_NB) * (double)q->k / 6000;
  out->name = name;
  out->run = run;
  out->phases = 1;
  out->units[0] = mm_batches(q) * mm_ceil(q->m, PLAIN_MB) * mm_ceil(q->n, PLAIN_NB);
  out->grain[0] = us >= 30 ? 1 : (int64_t)(30 / us) ;
  out->worker_bytes = bytes * (PLAIN_MB * PLAIN_KC + PLAIN_NB * PLAIN_KC + (q->gate ? 2 : 1) * PLAIN_MB * PLAIN_NB);
}
#endif

#define P_CAT2(a, b) a##_##b
#define P_CAT(a, b) P_CAT2(a, b)
#define P_(x) P_CAT(x, PT_NAME)
#define PW ((int)(32 / sizeof(PT)))
#define PN (2 * PW)

static inline PT P_(load)(const char *p, int dt) {
  switch (dt) {
#if PT_FLOAT
    case TNX_F32: { float v; memcpy(&v, p, 4); return v; }
    case TNX_BF16: { uint16_t v; memcpy(&v, p, 2); return tnx_bf16_to_f32(v); }
    case TNX_F16: { uint16_t v; memcpy(&v, p, 2); return tnx_f16_to_f32(v); }
    default: { double v; memcpy(&v, p, 8); return v; }
#else
    case TNX_I64: { int64_t v; memcpy(&v, p, 8); return (PT)v; }
    case TNX_I32: { int32_t v; memcpy(&v, p, 4); return (PT)v; }
    case TNX_I16: { int16_t v; memcpy(&v, p, 2); return (PT)v; }
    case TNX_I8: { int8_t v; memcpy(&v, p, 1); return (PT)v; }
    default: return (PT)(uint8_t)*p;
#endif
  }
}

static inline void P_(store)(char *p, PT v, int dt) {
  (void)dt;
#if PT_FLOAT
  memcpy(p, &v, sizeof v);
#else
  memcpy(p, &v, (size_t)mm_dtype_bytes(dt)); /* the low bytes: x86 is little-endian */
#endif
}

/* out[x * width + row] for rows at distance rs, k at distance cs (bytes), zeros up to a multiple of `width`, panel by panel. */
static void P_(pack)(const char *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, PT *out, const int width, int dt) {
  for (int64_t r0 = 0; r0 < rows; r0 += width, out += k * width) {
    const int64_t live = mm_min(width, rows - r0);
    for (int64_t r = 0; r < width; r++) {
      const char *s = p + (r0 + r) * rs;
      if (r < live)
        for (int64_t x = 0; x < k; x++) out[x * width + r] = P_(load)(s + x * cs, dt);
      else
        for (int64_t x = 0; x < k; x++) out[x * width + r] = 0;
    }
  }
}

static void P_(micro)(const PT *a, const PT *b, int64_t k, PT *c, bool accumulate) {
  PT_V acc[PLAIN_ROWS][2];
#pragma GCC unroll 6
  for (int i = 0; i < PLAIN_ROWS; i++)
    for (int v = 0; v < 2; v++) {
      if (accumulate) memcpy(&acc[i][v], c + i * PLAIN_NB + v * PW, sizeof(PT_V));
      else acc[i][v] = (PT_V){0};
    }
  for (int64_t x = 0; x < k; x++) {
    PT_V b0, b1;
    memcpy(&b0, b + x * PN, sizeof b0);
    memcpy(&b1, b + x * PN + PW, sizeof b1);
#pragma GCC unroll 6
    for (int i = 0; i < PLAIN_ROWS; i++) {
      PT_V ai = a[x * PLAIN_ROWS + i] - (PT_V){0};
      acc[i][0] = PT_FMA(ai, b0, acc[i][0]);
      acc[i][1] = PT_FMA(ai, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < PLAIN_ROWS; i++)
    for (int v = 0; v < 2; v++) memcpy(c + i * PLAIN_NB + v * PW, &acc[i][v], sizeof(PT_V));
}

static void P_(block)(const tnxk_matmul *q, const char *a, const char *b, int64_t rows, int64_t cols, PT *ap, PT *bp, PT *tile) {
  const int es = mm_dtype_bytes(q->dtype);
  for (int64_t x = 0; x < q->k; x += PLAIN_KC) {
    const int64_t kc = mm_min(PLAIN_KC, q->k - x);
    P_(pack)(a + x * q->a_cs * es, q->a_rs * es, q->a_cs * es, rows, kc, ap, PLAIN_ROWS, q->dtype);
    P_(pack)(b + x * q->b_rs * es, q->b_cs * es, q->b_rs * es, cols, kc, bp, PN, q->dtype);
    for (int64_t j = 0; j < cols; j += PN)
      for (int64_t i = 0; i < rows; i += PLAIN_ROWS)
        P_(micro)(ap + i * kc, bp + j * kc, kc, tile + i * PLAIN_NB + j, x > 0);
  }
}

static void P_(finish)(const tnxk_matmul *q, const mm_item *it, int64_t i, int64_t j, PT sum, PT gate) {
  const int as = mm_dtype_bytes(q->add_dtype);
  char *c = it->c + (i * q->c_rs + j * q->c_cs) * mm_dtype_bytes(q->c_dtype);
#if PT_FLOAT
  PT v = q->alpha == 1 ? sum : q->alpha * sum;
  if (it->add) v += q->beta * P_(load)(it->add + (i * q->add_rs + j * q->add_cs) * as, q->add_dtype);
  v = plain_activate(v, q->act);
  if (it->gate) v *= gate;
#else
  PT v = sum * (PT)(int64_t)q->alpha;
  (void)gate;
  if (it->add) v += (PT)(int64_t)q->beta * P_(load)(it->add + (i * q->add_rs + j * q->add_cs) * as, q->add_dtype);
#endif
  P_(store)(c, v, q->c_dtype);
}

static void P_(run)(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  (void)phase, (void)shared;
  const tnxk_matmul q = mm_canonical(params);
  const int es = mm_dtype_bytes(q.dtype);
  const int64_t mblocks = mm_ceil(q.m, PLAIN_MB), nblocks = mm_ceil(q.n, PLAIN_NB);
  PT *ap = worker, *bp = ap + PLAIN_MB * PLAIN_KC, *tile = bp + PLAIN_NB * PLAIN_KC;
  PT *tile2 = q.gate ? tile + PLAIN_MB * PLAIN_NB : tile;
  for (int64_t u = begin; u < end; u++) {
    const int64_t i0 = u % mblocks * PLAIN_MB, j0 = u / mblocks % nblocks * PLAIN_NB;
    const int64_t rows = mm_min(PLAIN_MB, q.m - i0), cols = mm_min(PLAIN_NB, q.n - j0);
    const mm_item it = mm_get_item(&q, u / (mblocks * nblocks));
    const char *a = it.a + i0 * q.a_rs * es;
    P_(block)(&q, a, it.b + j0 * q.b_cs * es, rows, cols, ap, bp, tile);
    if (it.gate) P_(block)(&q, a, it.gate + j0 * q.b_cs * es, rows, cols, ap, bp, tile2);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++)
        P_(finish)(&q, &it, i0 + i, j0 + j, tile[i * PLAIN_NB + j], tile2[i * PLAIN_NB + j]);
  }
}

#undef P_CAT2
#undef P_CAT
#undef P_
#undef PW
#undef PN
#undef PT
#undef PT_V
#undef PT_FLOAT
#undef PT_FMA
#undef PT_NAME
