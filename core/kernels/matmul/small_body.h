/* Products with few rows of a: each element of b is read once, converted in registers, used for every row.
 * Memory-bound for one to three rows, close to the FMA limit above. Two variants: b contiguous along k (dot products)
 * and along n. The including file provides vec.h's settings, MM_SUFFIX, and DOT_ROWS_1, _2, _3 (rows of b
 * that a dot block of one, two, more rows of a takes). */
#ifndef TNXK_MATMUL_SMALL_BODY_H
#define TNXK_MATMUL_SMALL_BODY_H
#include "kernels/matmul/epilogue.h"
#include "kernels/matmul/vec.h"

enum {
  STEP = 2 * VL,       /* elements of k (or n) a pair load takes */
  NK_MAX_M = 16,       /* above, packing b pays */
  KN_MAX_M = 6,
  NK_QUANTUM = 12,     /* a multiple of every DOT_ROWS value */
  NK_MAX_X = 96 << 10, /* activations of more than four rows stay within the L2 cache */
  LOCAL_X = 16 << 10,  /* activations up to this many floats are converted by every range, not in a phase of their own */
  UNIT_BYTES = 64 << 10 /* of b that one unit reads, about */
};

typedef struct small_plan {
  int64_t batches, blocks, width; /* n in blocks of `width` */
  int64_t x_stride;               /* floats of one converted row of a */
  size_t x_bytes, tile_bytes;
  bool x_local;
} small_plan;

static small_plan plan_small(const tnxk_matmul *q, int64_t quantum, int64_t pad) {
  small_plan s;
  int es = mm_dtype_bytes(q->dtype);
  s.batches = mm_batches(q);
  int64_t width = mm_min(q->n, mm_max(UNIT_BYTES / es / q->k, 1));
  s.width = mm_round_up(mm_min(width, 40 * quantum), quantum);
  s.blocks = mm_ceil(q->n, s.width);
  s.x_stride = mm_round_up(q->k, STEP);
  s.x_bytes = mm_align64((size_t)(q->m * s.x_stride) * 4);
  s.tile_bytes = mm_align64((size_t)(q->m * mm_round_up(s.width + pad, VL)) * 4);
  s.x_local = q->m * s.x_stride <= LOCAL_X;
  return s;
}

static void fill_small(const tnxk_matmul *q, const small_plan *s, tnxk_kernel *out) {
  double macs = (double)q->m * (double)s->width * (double)q->k * (q->gate ? 2 : 1);
  double bytes = (double)s->width * (double)q->k * mm_dtype_bytes(q->dtype) * (q->gate ? 2 : 1);
  double us = macs / (2000.0 * VL) + bytes / 12000.0;
  int64_t grain = us >= 30 ? 1 : (int64_t)(30 / us);
  int last = s->x_local ? 0 : 1;
  out->phases = last + 1;
  out->units[last] = s->batches * s->blocks;
  out->grain[last] = grain;
  out->worker_bytes = (q->gate ? 2 : 1) * s->tile_bytes;
  if (s->x_local) {
    out->worker_bytes += s->x_bytes;
  } else {
    out->units[0] = s->batches * q->m;
    out->grain[0] = mm_max(1, 20000 / q->k);
    out->shared_bytes = (size_t)s->batches * s->x_bytes;
  }
}

/* One row of a as float32, zeros up to the stride. `paired`: in the order of v_load_pair. */
INL void convert_row_dt(const char *a, int64_t cs, int64_t k, float *x, bool paired, const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2;
  int64_t i = 0;
  if (cs == 1)
    for (; i + STEP <= k; i += STEP) {
      V lo, hi;
      v_load_pair(a + i * es, &lo, &hi, dt);
      if (paired) v_store(x + i, lo), v_store(x + i + VL, hi);
      else v_store_pair(x + i, lo, hi, dt);
    }
  for (; i < k; i += STEP) {
    char buf[STEP * 4] = {0};
    for (int64_t j = 0; j < mm_min(STEP, k - i); j++) memcpy(buf + j * es, a + (i + j) * cs * es, (size_t)es);
    V lo, hi;
    v_load_pair(buf, &lo, &hi, dt);
    if (paired) v_store(x + i, lo), v_store(x + i + VL, hi);
    else v_store_pair(x + i, lo, hi, dt);
  }
}

static void convert_row(const tnxk_matmul *q, const mm_item *it, int64_t row, float *x, bool paired) {
  const char *a = it->a + row * q->a_rs * mm_dtype_bytes(q->dtype);
  if (q->dtype == TNX_F32) convert_row_dt(a, q->a_cs, q->k, x, paired, TNX_F32);
  else if (q->dtype == TNX_BF16) convert_row_dt(a, q->a_cs, q->k, x, paired, TNX_BF16);
  else convert_row_dt(a, q->a_cs, q->k, x, paired, TNX_F16);
}

/* mr rows of x times nr rows of b. A block of few products keeps two sums of each, to cover the FMA's latency. */
INL void dot_block(const char *b, int64_t b_stride, int64_t valid, const float *x, int64_t xs, int64_t k, float *t,
                   int64_t ts, int64_t ahead, const int mr, const int nr, const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2, two = mr * nr <= 4;
  const char *w[8];
  V acc[2][4][8];
#pragma GCC unroll 8
  for (int j = 0; j < nr; j++) {
    w[j] = b + (j < valid ? j : 0) * b_stride;
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) acc[0][i][j] = acc[1][i][j] = v_zero();
  }
  int64_t kk = 0;
  for (; kk + STEP <= k; kk += STEP) {
    V lo[8], hi[8];
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) {
      v_load_pair(w[j] + kk * es, &lo[j], &hi[j], dt);
      __builtin_prefetch(w[j] + kk * es + ahead);
      if (STEP * es > 64) __builtin_prefetch(w[j] + kk * es + ahead + 64);
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
      V xl = v_load(x + i * xs + kk);
#pragma GCC unroll 8
      for (int j = 0; j < nr; j++) acc[0][i][j] = v_fma(lo[j], xl, acc[0][i][j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
      V xh = v_load(x + i * xs + kk + VL);
#pragma GCC unroll 8
      for (int j = 0; j < nr; j++) acc[two][i][j] = v_fma(hi[j], xh, acc[two][i][j]);
    }
  }
  if (kk < k) {
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) {
      char buf[STEP * 4] = {0};
      memcpy(buf, w[j] + kk * es, (size_t)((k - kk) * es));
      V lo, hi;
      v_load_pair(buf, &lo, &hi, dt);
#pragma GCC unroll 4
      for (int i = 0; i < mr; i++) {
        acc[0][i][j] = v_fma(lo, v_load(x + i * xs + kk), acc[0][i][j]);
        acc[two][i][j] = v_fma(hi, v_load(x + i * xs + kk + VL), acc[two][i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) t[i * ts + j] = v_sum(two ? acc[0][i][j] + acc[1][i][j] : acc[0][i][j]);
}

/* All m rows times b's rows [0, n). */
INL void dot_rows(const tnxk_matmul *q, const char *b, int64_t n, const float *x, int64_t xs, float *t, int64_t ts,
                  const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2;
  const int64_t bs = q->b_cs * es, k = q->k;
  const int64_t groups = mm_ceil(q->m, 4), base = q->m / groups, extra = q->m % groups;
  const int mr_max = (int)(base + (extra > 0));
  const int nr = mr_max == 1 ? DOT_ROWS_1 : mr_max == 2 ? DOT_ROWS_2 : DOT_ROWS_3;
  /* Short rows lie close together: fetch the rows of the next block; long ones: run ahead in the row itself. */
  const int64_t ahead = k * es <= 2048 && bs <= 4096 ? nr * bs : 768;
  for (int64_t j = 0; j < n; j += nr)
    for (int64_t g = 0, i = 0; g < groups; g++) {
      int mr = (int)(base + (g < extra));
      const char *bj = b + j * bs;
      const float *xi = x + i * xs;
      float *tij = t + i * ts + j;
      if (mr == 1) dot_block(bj, bs, n - j, xi, xs, k, tij, ts, ahead, 1, DOT_ROWS_1, dt);
      else if (mr_max == 2) dot_block(bj, bs, n - j, xi, xs, k, tij, ts, ahead, 2, DOT_ROWS_2, dt);
      else if (mr == 2) dot_block(bj, bs, n - j, xi, xs, k, tij, ts, ahead, 2, DOT_ROWS_3, dt);
      else if (mr == 3) dot_block(bj, bs, n - j, xi, xs, k, tij, ts, ahead, 3, DOT_ROWS_3, dt);
      else dot_block(bj, bs, n - j, xi, xs, k, tij, ts, ahead, 4, DOT_ROWS_3, dt);
      i += mr;
    }
}

/* mr rows of x times `pairs` pairs of vectors of b's columns. */
INL void axpy_block(const char *b, int64_t b_stride, const float *x, int64_t xs, int64_t k, float *t, int64_t ts,
                    const int mr, const int pairs, const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2;
  V acc[6][8];
#pragma GCC unroll 6
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
    for (int v = 0; v < 2 * pairs; v++) acc[i][v] = v_zero();
  for (int64_t kk = 0; kk < k; kk++) {
    const char *row = b + kk * b_stride;
    V w[8];
#pragma GCC unroll 4
    for (int v = 0; v < pairs; v++) {
      v_load_pair(row + v * STEP * es, &w[2 * v], &w[2 * v + 1], dt);
      if (mr <= 4 && v * STEP * es % 64 == 0) __builtin_prefetch(row + v * STEP * es + 8 * b_stride);
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++) {
      V xi = v_bcast(x + i * xs + kk);
#pragma GCC unroll 8
      for (int v = 0; v < 2 * pairs; v++) acc[i][v] = v_fma(w[v], xi, acc[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
    for (int v = 0; v < pairs; v++) v_store_pair(t + i * ts + v * STEP, acc[i][2 * v], acc[i][2 * v + 1], dt);
}

/* All m rows times b's columns [0, n), n a multiple of STEP. */
INL void axpy_cols(const tnxk_matmul *q, const char *b, int64_t n, const float *x, int64_t xs, float *t, int64_t ts,
                   const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2;
  const int64_t bs = q->b_rs * es, k = q->k;
  int64_t j = 0;
  if (q->m == 1)
    for (; j + 4 * STEP <= n; j += 4 * STEP) axpy_block(b + j * es, bs, x, xs, k, t + j, ts, 1, 4, dt);
  if (q->m == 2)
    for (; j + 2 * STEP <= n; j += 2 * STEP) axpy_block(b + j * es, bs, x, xs, k, t + j, ts, 2, 2, dt);
  for (; j < n; j += STEP) {
    const char *bj = b + j * es;
    switch (q->m) {
      case 1: axpy_block(bj, bs, x, xs, k, t + j, ts, 1, 1, dt); break;
      case 2: axpy_block(bj, bs, x, xs, k, t + j, ts, 2, 1, dt); break;
      case 3: axpy_block(bj, bs, x, xs, k, t + j, ts, 3, 1, dt); break;
      case 4: axpy_block(bj, bs, x, xs, k, t + j, ts, 4, 1, dt); break;
      case 5: axpy_block(bj, bs, x, xs, k, t + j, ts, 5, 1, dt); break;
      default: axpy_block(bj, bs, x, xs, k, t + j, ts, 6, 1, dt); break;
    }
  }
}

INL void product_dt(const tnxk_matmul *q, const char *b, int64_t j, int64_t n, const float *x, int64_t xs, float *t,
                    int64_t ts, bool kn, const int dt) {
  const int es = dt == TNX_F32 ? 4 : 2;
  if (!kn) {
    dot_rows(q, b + j * q->b_cs * es, n, x, xs, t, ts, dt);
    return;
  }
  axpy_cols(q, b + j * es, n - n % STEP, x, xs, t, ts, dt);
  /* The rest is the end of one step that lies within the row; it writes columns before it again with the same sums. */
  if (n % STEP) axpy_cols(q, b + (j + n - STEP) * es, STEP, x, xs, t + n - STEP, ts, dt);
}

/* Sums of columns [j, j + n) into t; with kn, t has room for STEP floats before each row. */
static void product(const tnxk_matmul *q, const char *b, int64_t j, int64_t n, const float *x, int64_t xs, float *t,
                    int64_t ts, bool kn) {
  if (q->dtype == TNX_F32) product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_F32);
  else if (q->dtype == TNX_BF16) product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_BF16);
  else product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_F16);
}

INL void run_small(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker,
                   const bool kn) {
  const tnxk_matmul q = mm_canonical(params);
  const small_plan s = kn ? plan_small(&q, STEP, STEP) : plan_small(&q, NK_QUANTUM, NK_QUANTUM);
  if (!s.x_local && phase == 0) {
    for (int64_t u = begin; u < end; u++) {
      mm_item it = mm_get_item(&q, u / q.m);
      char *x = (char *)shared + (size_t)(u / q.m) * s.x_bytes;
      convert_row(&q, &it, u % q.m, (float *)x + (u % q.m) * s.x_stride, !kn);
    }
    return;
  }
  const size_t lead = kn ? STEP * sizeof(float) : 0;
  float *tile = (float *)((char *)worker + lead);
  float *tile2 = (float *)((char *)worker + (q.gate ? s.tile_bytes : 0) + lead);
  float *local = (float *)((char *)worker + (q.gate ? 2 : 1) * s.tile_bytes);
  const int64_t ts = mm_round_up(s.width + (kn ? STEP : NK_QUANTUM), VL);
  int64_t item = -1;
  mm_item it = {0};
  const float *x = NULL;
  for (int64_t u = begin; u < end; u++) {
    if (u / s.blocks != item) {
      item = u / s.blocks;
      it = mm_get_item(&q, item);
      x = s.x_local ? local : (const float *)((const char *)shared + (size_t)item * s.x_bytes);
      if (s.x_local)
        for (int64_t i = 0; i < q.m; i++) convert_row(&q, &it, i, local + i * s.x_stride, !kn);
    }
    const int64_t j = u % s.blocks * s.width, n = mm_min(s.width, q.n - j);
    product(&q, it.b, j, n, x, s.x_stride, tile, ts, kn);
    if (it.gate) product(&q, it.gate, j, n, x, s.x_stride, tile2, ts, kn);
    for (int64_t i = 0; i < q.m; i++) store_row(&q, &it, i, j, n, tile + i * ts, tile2 + i * ts);
  }
}

static void run_small_nk(const void *p, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  run_small(p, phase, begin, end, shared, worker, false);
}
static void run_small_kn(const void *p, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  run_small(p, phase, begin, end, shared, worker, true);
}

bool MM_PREPARE(small_nk)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (q->m == 0 || q->n == 0 || q->k == 0 || q->m > NK_MAX_M || q->b_rs != 1) return false;
  if (q->m > 4 && q->m * q->k > NK_MAX_X) return false;
  small_plan s = plan_small(q, NK_QUANTUM, NK_QUANTUM);
  out->name = MM_NAME(small_nk);
  out->run = run_small_nk;
  fill_small(q, &s, out);
  return true;
}

bool MM_PREPARE(small_kn)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (q->m == 0 || q->n < STEP || q->k == 0 || q->m > KN_MAX_M || q->b_cs != 1) return false;
  small_plan s = plan_small(q, STEP, STEP);
  out->name = MM_NAME(small_kn);
  out->run = run_small_kn;
  fill_small(q, &s, out);
  return true;
}
#endif
