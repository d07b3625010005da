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
  KN_MAX_M = 8,
  AXPY_DEPTH = 8,      /* rows of b added in one pass over the sums */
  NK_QUANTUM = 12,     /* a multiple of every DOT_ROWS value */
  NK_MAX_X = 96 << 10, /* activations of more than four rows stay within the L2 cache */
  LOCAL_X = 16 << 10,  /* activations up to this many floats are converted by every range, not in a phase of their own */
  UNIT_BYTES = 64 << 10, /* of b that one unit reads, about, with k contiguous */
  RUN_BYTES = 1024       /* of one row of b that a unit reads, with n contiguous */
};

typedef struct small_plan {
  int64_t batches, blocks, width; /* n in blocks of `width` */
  int64_t x_stride;               /* floats (with TNXK_PAIRS words of two bfloat16) of one converted row of a */
  size_t x_bytes, tile_bytes;
  bool x_local;
} small_plan;

static small_plan plan_small(const tnxk_matmul *q, bool kn) {
  small_plan s;
  const int es = mm_dtype_bytes(mm_b_dtype(q));
  const int64_t quantum = kn ? STEP : NK_QUANTUM, pad = quantum;
  s.batches = mm_batches(q);
  int64_t width;
  if (kn) width = mm_max(mm_min(RUN_BYTES / es, q->n * s.batches / 16), RUN_BYTES / 4 / es);
  else width = mm_min(mm_max(UNIT_BYTES / es / q->k, 1), 40 * quantum);
  s.width = mm_round_up(mm_min(width, q->n), quantum);
  s.blocks = mm_ceil(q->n, s.width);
  s.x_stride = mm_round_up(q->k, STEP) / KSTEP;
  s.x_bytes = mm_align64((size_t)(q->m * s.x_stride) * 4);
  s.tile_bytes = mm_align64((size_t)(q->m * mm_round_up(s.width + pad, VL)) * 4);
  s.x_local = q->m * s.x_stride <= LOCAL_X;
  return s;
}

static void fill_small(const tnxk_matmul *q, const small_plan *s, tnxk_kernel *out) {
  double macs = (double)q->m * (double)s->width * (double)q->k * (q->gate ? 2 : 1);
  double bytes = (double)s->width * (double)q->k * mm_dtype_bytes(mm_b_dtype(q)) * (q->gate ? 2 : 1);
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

/* STEP elements of a row at x: float32 in pair or memory order, or with TNXK_PAIRS as they are. */
INL void convert_step(const void *p, float *x, bool paired, const int dt) {
  V lo = v_load_lo(p, dt), hi = v_load_hi(p, dt);
  if (PAIRS) {
    v_store(x, v_load((const float *)p));
  } else if (paired) {
    v_store(x, lo);
    v_store(x + VL, hi);
  } else {
    v_store_pair(x, lo, hi, dt);
  }
}

/* One row of a, zeros up to the stride. */
INL void convert_row_dt(const char *a, int64_t cs, int64_t k, float *x, bool paired, const int dt) {
  const int es = v_bytes(dt);
  int64_t i = 0;
  if (cs == 1)
    for (; i + STEP <= k; i += STEP) convert_step(a + i * es, x + i / KSTEP, paired, dt);
  for (; i < k; i += STEP) {
    char buf[STEP * 4] = {0};
    for (int64_t j = 0; j < mm_min(STEP, k - i); j++) memcpy(buf + j * es, a + (i + j) * cs * es, (size_t)es);
    convert_step(buf, x + i / KSTEP, paired, dt);
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
  const int es = v_bytes(dt), two = mr * nr <= 4;
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
    V y[8];
    if (PAIRS) {
#pragma GCC unroll 8
      for (int j = 0; j < nr; j++) {
        y[j] = v_load((const float *)(w[j] + kk * es));
        __builtin_prefetch(w[j] + kk * es + ahead);
      }
#pragma GCC unroll 4
      for (int i = 0; i < mr; i++) {
        V xi = v_load(x + i * xs + kk / KSTEP);
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++) acc[0][i][j] = v_mac(y[j], xi, acc[0][i][j]);
      }
      continue;
    }
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) {
      y[j] = v_load_lo(w[j] + kk * es, dt);
      if (STEP * es > 16 || kk % 64 == 0) __builtin_prefetch(w[j] + kk * es + ahead);
      if (STEP * es > 64) __builtin_prefetch(w[j] + kk * es + ahead + 64);
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
      V xl = v_load(x + i * xs + kk);
#pragma GCC unroll 8
      for (int j = 0; j < nr; j++) acc[0][i][j] = v_fma(y[j], xl, acc[0][i][j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) {
      /* With many sums there is no register left to keep the raw words: make the compiler read them again. */
      if (mr * nr > 8) __asm__("" : "+r"(w[j]));
      y[j] = v_load_hi(w[j] + kk * es, dt);
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
      V xh = v_load(x + i * xs + kk + VL);
#pragma GCC unroll 8
      for (int j = 0; j < nr; j++) acc[two][i][j] = v_fma(y[j], xh, acc[two][i][j]);
    }
  }
  if (kk < k) {
#pragma GCC unroll 8
    for (int j = 0; j < nr; j++) {
      char buf[STEP * 4] = {0};
      memcpy(buf, w[j] + kk * es, (size_t)((k - kk) * es));
      V lo = v_load_lo(buf, dt), hi = v_load_hi(buf, dt);
#pragma GCC unroll 4
      for (int i = 0; i < mr; i++) {
        if (PAIRS) {
          acc[0][i][j] = v_mac(v_load((const float *)buf), v_load(x + i * xs + kk / KSTEP), acc[0][i][j]);
          continue;
        }
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
  const int es = v_bytes(dt);
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

/* t[mr x n] (+)= mr rows of x times `depth` rows of b, n a multiple of STEP; t is in pair order. Runs along b's rows:
 * long contiguous reads, whatever the row stride. */
INL void axpy_rows(const char *b, int64_t b_stride, const float *x, int64_t xs, int64_t n, float *t, int64_t ts,
                   bool accumulate, const int mr, const int depth, const int dt) {
  const int es = v_bytes(dt);
  V x0[AXPY_DEPTH];
#pragma GCC unroll 8
  for (int d = 0; d < depth; d++) x0[d] = v_bcast(x + d);
  for (int64_t j = 0; j < n; j += STEP) {
    V acc[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
      for (int v = 0; v < 2; v++) acc[i][v] = accumulate ? v_load(t + i * ts + j + v * VL) : v_zero();
#pragma GCC unroll 8
    for (int d = 0; d < depth; d++) {
      const char *p = b + d * b_stride + j * es;
      V lo = v_load_lo(p, dt), hi = v_load_hi(p, dt);
      __builtin_prefetch(p + AXPY_DEPTH * b_stride);
      if (STEP * es > 64) __builtin_prefetch(p + AXPY_DEPTH * b_stride + 64);
#pragma GCC unroll 4
      for (int i = 0; i < mr; i++) {
        V xi = mr == 1 ? x0[d] : v_bcast(x + i * xs + d);
        acc[i][0] = v_fma(lo, xi, acc[i][0]);
        acc[i][1] = v_fma(hi, xi, acc[i][1]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
      for (int v = 0; v < 2; v++) v_store(t + i * ts + j + v * VL, acc[i][v]);
  }
}

/* All m rows times b's columns [0, n), n a multiple of STEP; a few rows of b stay in the L1 cache for all of a's rows. */
INL void axpy_cols(const tnxk_matmul *q, const char *b, int64_t n, const float *x, int64_t xs, float *t, int64_t ts,
                   const int dt) {
  const int es = v_bytes(dt);
  const int64_t bs = q->b_rs * es, k = q->k, whole = k - k % AXPY_DEPTH;
  const int64_t groups = mm_ceil(q->m, 4), base = q->m / groups, extra = q->m % groups;
  for (int64_t kk = 0; kk < k; kk += kk < whole ? AXPY_DEPTH : 1)
    for (int64_t g = 0, i = 0; g < groups; g++) {
      const int mr = (int)(base + (g < extra));
      const char *p = b + kk * bs;
      const float *xi = x + i * xs + kk;
      float *ti = t + i * ts;
      const bool more = kk > 0;
#define ROWS(r)                                                                     \
  if (kk < whole) axpy_rows(p, bs, xi, xs, n, ti, ts, more, r, AXPY_DEPTH, dt);     \
  else axpy_rows(p, bs, xi, xs, n, ti, ts, more, r, 1, dt);
      switch (mr) {
        case 1: ROWS(1) break;
        case 2: ROWS(2) break;
        case 3: ROWS(3) break;
        default: ROWS(4) break;
      }
#undef ROWS
      i += mr;
    }
  if (dt == TNX_BF16)
    for (int64_t i = 0; i < q->m; i++)
      for (int64_t j = 0; j < n; j += STEP) {
        float *p = t + i * ts + j;
        v_store_pair(p, v_load(p), v_load(p + VL), dt);
      }
}

INL void product_dt(const tnxk_matmul *q, const char *b, int64_t j, int64_t n, const float *x, int64_t xs, float *t,
                    int64_t ts, bool kn, const int dt) {
  const int es = v_bytes(dt);
  if (!kn) {
    dot_rows(q, b + j * q->b_cs * es, n, x, xs, t, ts, dt);
    return;
  }
  /* Whole steps, then the rest as the end of one step within the row: it writes columns before it again, same sums. */
  int64_t from = 0, span = n - n % STEP;
  for (int pass = 0; pass < 2; pass++) {
    if (span) axpy_cols(q, b + (j + from) * es, span, x, xs, t + from, ts, dt);
    if (n % STEP == 0) break;
    from = n - STEP, span = STEP;
  }
}

/* Sums of columns [j, j + n) into t; with kn, t has room for STEP floats before each row. */
static void product(const tnxk_matmul *q, const char *b, int64_t j, int64_t n, const float *x, int64_t xs, float *t,
                    int64_t ts, bool kn) {
#if !defined(TNXK_PAIRS)
  if (q->b_int8) {
    product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_I8);
    return;
  }
#endif
  if (q->dtype == TNX_F32) product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_F32);
  else if (q->dtype == TNX_BF16) product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_BF16);
  else product_dt(q, b, j, n, x, xs, t, ts, kn, TNX_F16);
}

INL void run_small(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker,
                   const bool kn) {
  const tnxk_matmul q = mm_canonical(params);
  const small_plan s = plan_small(&q, kn);
  const bool paired = !kn && !q.b_int8; /* int8 is loaded in memory order */
  if (!s.x_local && phase == 0) {
    for (int64_t u = begin; u < end; u++) {
      mm_item it = mm_get_item(&q, u / q.m);
      char *x = (char *)shared + (size_t)(u / q.m) * s.x_bytes;
      convert_row(&q, &it, u % q.m, (float *)x + (u % q.m) * s.x_stride, paired);
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
        for (int64_t i = 0; i < q.m; i++) convert_row(&q, &it, i, local + i * s.x_stride, paired);
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
#if !defined(TNXK_PAIRS)
static void run_small_kn(const void *p, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  run_small(p, phase, begin, end, shared, worker, true);
}
#endif

bool MM_PREPARE(small_nk)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (!mm_regular(q) || q->m > NK_MAX_M || q->b_rs != 1 || (PAIRS && q->b_int8)) return false;
  if (q->m > 4 && q->m * q->k > NK_MAX_X) return false;
  small_plan s = plan_small(q, false);
  out->name = MM_NAME(small_nk);
  out->run = run_small_nk;
  fill_small(q, &s, out);
  return true;
}

#if !defined(TNXK_PAIRS)
bool MM_PREPARE(small_kn)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (!mm_regular(q) || q->n < STEP || q->m > KN_MAX_M || q->b_cs != 1 || q->b_int8) return false;
  small_plan s = plan_small(q, true);
  out->name = MM_NAME(small_kn);
  out->run = run_small_kn;
  fill_small(q, &s, out);
  return true;
}
#endif
#endif
