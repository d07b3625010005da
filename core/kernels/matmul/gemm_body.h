/* The packed, cache-blocked product for every layout: float32 panels of a and b, a register-blocked FMA micro-kernel,
 * float32 sums in a tile of worker scratch, one epilogue for each tile.
 *
 * Panels hold MR rows of a (NR columns of b) for consecutive k, zero-padded. A unit is a block of mb x nb outputs; k is cut
 * into steps of kc so that one panel of b stays in the L1 cache and the block of a in L2. Either a is packed once for all
 * units (phase 0, shared scratch), or, where each part of a is used by one unit or a packed copy would be too large, by the
 * unit itself. The including file provides vec.h's settings, MM_SUFFIX and MR (NR is two vectors). */
#ifndef TNXK_MATMUL_GEMM_BODY_H
#define TNXK_MATMUL_GEMM_BODY_H
#include "kernels/matmul/epilogue.h"
#include "kernels/matmul/pack.h"

enum {
  MR = TNXK_MR,
  NR = 2 * VL,
  KC_MAX = 320, /* packed columns */
  MB_MAX = 192 / MR * MR,
  MB_MIN = 4 * MR,
  NB_MIN = 32,
  NB_MAX = 256,
  UNIT_MACS = 1 << 20, /* what a unit aims at */
  UNITS = 64,          /* more would pack b more often than threads need */
  NB_WIDE = 96,        /* a packed b that leaves room in L2 for the panels of a, which every panel of b reads again */
  WINDOW_ROWS = 16     /* rows of windows that are laid out before they are packed */
};
#define SHARED_A_MAX ((int64_t)128 << 20)

typedef struct gemm_plan {
  int64_t batches, mblocks, nblocks, mb, nb, kc; /* kc: in packed columns */
  int64_t panels; /* of a, in one batch item */
  bool a_local;
  size_t panel_bytes, a_bytes, b_bytes, tile_bytes, window_bytes; /* one whole panel of a; worker scratch parts */
} gemm_plan;

static gemm_plan plan_gemm(const tnxk_matmul *q) {
  gemm_plan g;
  g.batches = mm_batches(q);
  const int64_t columns = KCOLS(q->k), steps = mm_ceil(columns, KC_MAX);
  g.kc = steps == 1 ? columns : mm_round_up(mm_ceil(columns, steps), VL);
  /* Few outputs and a long k: smaller blocks, so that several threads find work. */
  int64_t mblocks = mm_ceil(q->m, MB_MAX);
  const int64_t wanted = mm_ceil(16, g.batches * mm_ceil(q->n, NB_MIN));
  if (mblocks < wanted && q->k > KC_MAX) mblocks = mm_max(1, mm_min(wanted, q->m / MB_MIN));
  g.mb = mm_round_up(mm_ceil(q->m, mblocks), MR);
  g.mblocks = mm_ceil(q->m, g.mb);
  g.panels = mm_ceil(q->m, MR);
  double packed = (double)g.batches * (double)(g.panels * MR) * (double)columns * 4;
  g.a_local = packed > (double)SHARED_A_MAX || (q->n <= NB_MAX && g.batches * g.mblocks >= 8);
  int64_t nb = NB_MAX;
  /* Few rows and row-major b: reading b counts, so wide blocks for long reads. */
  const int64_t nb_min = q->b_rs != 1 && g.mb < 64 ? 4 * NB_MIN : NB_MIN;
  if (!g.a_local) nb = mm_min(NB_MAX, mm_max(mm_max(UNIT_MACS / (g.mb * q->k), mm_min(g.batches * g.mblocks * q->n / UNITS, NB_WIDE)), nb_min));
  int64_t nblocks = mm_ceil(q->n, mm_round_up(nb, NR));
  g.nb = mm_round_up(mm_ceil(q->n, nblocks), NR);
  g.nblocks = mm_ceil(q->n, g.nb);
  g.panel_bytes = mm_align64((size_t)(MR * columns + VL) * 4);
  g.a_bytes = g.a_local ? mm_align64((size_t)(g.mb * g.kc + VL) * 4) : 0;
  g.b_bytes = mm_align64((size_t)(g.nb * g.kc) * 4);
  g.tile_bytes = mm_align64((size_t)(g.mb * g.nb) * 4);
  g.window_bytes = q->b_windows ? mm_align64((size_t)(WINDOW_ROWS * g.nb + VL) * 4) : 0;
  return g;
}

static void pack_a(const char *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, float *out, int dt) {
  pack_panel(p, rs, cs, rows, k, out, MR, dt);
}
/* All panels of cols columns of b (rows of its transpose), `depth` elements of k; each panel holds kc packed columns. */
static void pack_b(const tnxk_matmul *q, const char *b, int64_t cols, int64_t depth, int64_t kc, float *out) {
  const int dt = mm_b_dtype(q), es = mm_dtype_bytes(dt);
  /* Where b's rows are contiguous, a few rows at a time through all panels: long reads instead of a stride per k. */
  const int64_t chunk = q->b_rs == 1 ? depth : 16;
  for (int64_t x = 0; x < depth; x += chunk)
    for (int64_t j = 0; j < cols; j += NR)
      pack_panel(b + (j * q->b_cs + x * q->b_rs) * es, q->b_cs, q->b_rs, cols - j, mm_min(chunk, depth - x),
                 out + j * kc + x / KSTEP * NR, NR, dt);
}

/* Rows [x, x + rows) of columns [j, j + cols) of windows, side by side in `out`, a row `pitch` bytes from the next. */
static void lay_out_windows(const tnxk_matmul *q, const char *b, int64_t x, int64_t rows, int64_t j, int64_t cols, char *out, int64_t pitch) {
  enum { LAST = TNXK_MATMUL_WINDOW_RANK - 1 };
  const int es = mm_dtype_bytes(q->dtype);
  int64_t first[LAST + 1]; /* coordinates of column j */
  for (int d = LAST; d >= 0; d--) first[d] = j % q->bn[d], j /= q->bn[d];
  for (int64_t r = 0; r < rows; r++, out += pitch) {
    int64_t c[LAST + 1], rest = x + r, at = 0, step = q->bn_st[LAST];
    for (int d = LAST; d >= 0; d--) {
      at += rest % q->bk[d] * q->bk_st[d] + first[d] * q->bn_st[d];
      rest /= q->bk[d];
      c[d] = first[d];
    }
    char *o = out;
    for (int64_t left = cols; left > 0;) {
      const int64_t run = mm_min(left, q->bn[LAST] - c[LAST]);
      const char *p = b + at * es;
      if (step == 1) memcpy(o, p, (size_t)(run * es));
      else if (es == 4) for (int64_t i = 0; i < run; i++) memcpy(o + i * 4, p + i * step * 4, 4);
      else for (int64_t i = 0; i < run; i++) memcpy(o + i * 2, p + i * step * 2, 2);
      o += run * es;
      left -= run;
      at -= c[LAST] * step;
      c[LAST] = 0;
      for (int d = LAST - 1; d >= 0; d--) {
        at += q->bn_st[d];
        if (++c[d] < q->bn[d]) break;
        at -= c[d] * q->bn_st[d];
        c[d] = 0;
      }
    }
  }
}

static void pack_windows(const tnxk_matmul *q, const char *b, int64_t x, int64_t depth, int64_t j, int64_t cols, int64_t kc, int64_t nb, float *out, char *room) {
  const int es = mm_dtype_bytes(q->dtype);
  for (int64_t y = 0; y < depth; y += WINDOW_ROWS) {
    const int64_t rows = mm_min(WINDOW_ROWS, depth - y);
    lay_out_windows(q, b, x + y, rows, j, cols, room, nb * es);
    for (int64_t i = 0; i < cols; i += NR) {
      const char *p = room + i * es;
      float *o = out + i * kc + y / KSTEP * NR;
      if (q->dtype == TNX_F32) pack_r_dt(p, nb * es, cols - i, rows, o, NR, TNX_F32, 0);
      else if (q->dtype == TNX_BF16) pack_r_dt(p, nb * es, cols - i, rows, o, NR, TNX_BF16, 0);
      else pack_r_dt(p, nb * es, cols - i, rows, o, NR, TNX_F16, 0);
    }
  }
}

/* c[mr x NR] (+)= panel a times panel b, k packed columns. */
INL void micro_rows(const float *a, const float *b, int64_t k, float *c, int64_t cs, bool accumulate, const int mr) {
  V acc[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++) acc[i][0] = acc[i][1] = v_zero();
#pragma GCC unroll 4
  for (int64_t x = 0; x < k; x++) {
    V b0 = v_load(b + x * NR), b1 = v_load(b + x * NR + VL);
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
      V ai = v_bcast(a + x * MR + i);
      acc[i][0] = v_mac(ai, b0, acc[i][0]);
      acc[i][1] = v_mac(ai, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++) {
    float *ci = c + i * cs;
    if (accumulate) acc[i][0] += v_load(ci), acc[i][1] += v_load(ci + VL);
    v_store(ci, acc[i][0]);
    v_store(ci + VL, acc[i][1]);
  }
}

static void micro(const float *a, const float *b, int64_t k, float *c, int64_t cs, bool accumulate, int64_t rows) {
  if (rows >= MR) micro_rows(a, b, k, c, cs, accumulate, MR);
  else if (rows > MR * 2 / 3) micro_rows(a, b, k, c, cs, accumulate, MR - 1);
  else if (rows > MR / 3) micro_rows(a, b, k, c, cs, accumulate, MR * 2 / 3);
  else micro_rows(a, b, k, c, cs, accumulate, MR / 3);
}

static void run_gemm(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_matmul q = mm_canonical(params);
  const gemm_plan g = plan_gemm(&q);
  const int dt = q.dtype, es = mm_dtype_bytes(dt), bs = mm_dtype_bytes(mm_b_dtype(&q));
  if (!g.a_local && phase == 0) {
    for (int64_t u = begin; u < end; u++) {
      const mm_item it = mm_get_item(&q, u / g.panels);
      const int64_t i = u % g.panels * MR;
      pack_a(it.a + i * q.a_rs * es, q.a_rs, q.a_cs, q.m - i, q.k, (float *)((char *)shared + (size_t)u * g.panel_bytes), dt);
    }
    return;
  }
  float *bp = worker;
  float *ap = (float *)((char *)worker + g.b_bytes);
  float *const tiles = (float *)((char *)ap + g.a_bytes);
  float *const tile2 = (float *)((char *)tiles + (q.gate ? g.tile_bytes : 0));
  char *const room = (char *)tile2 + g.tile_bytes;
  for (int64_t u = begin; u < end; u++) {
    const int64_t i0 = u % g.mblocks * g.mb, j0 = u / g.mblocks % g.nblocks * g.nb, item = u / (g.mblocks * g.nblocks);
    const mm_item it = mm_get_item(&q, item);
    const int64_t rows = mm_min(g.mb, q.m - i0), cols = mm_min(g.nb, q.n - j0);
    for (int second = 0; second <= (q.gate != NULL); second++) {
      const char *b = (second ? it.gate : it.b) + j0 * q.b_cs * bs;
      float *tile = second ? tile2 : tiles;
      for (int64_t x = 0; x < q.k; x += g.kc * KSTEP) {
        const int64_t depth = mm_min(g.kc * KSTEP, q.k - x), kc = KCOLS(depth);
        if (q.b_windows) pack_windows(&q, it.b, x, depth, j0, cols, kc, g.nb, bp, room);
        else pack_b(&q, b + x * q.b_rs * bs, cols, depth, kc, bp);
        if (g.a_local)
          for (int64_t i = 0; i < rows; i += MR)
            pack_a(it.a + ((i0 + i) * q.a_rs + x * q.a_cs) * es, q.a_rs, q.a_cs, rows - i, depth, ap + i * kc, dt);
        for (int64_t j = 0; j < cols; j += NR)
          for (int64_t i = 0; i < rows; i += MR) {
            const float *a = g.a_local ? ap + i * kc
                                       : (const float *)((const char *)shared +
                                                         (size_t)(item * g.panels + (i0 + i) / MR) * g.panel_bytes) +
                                         x / KSTEP * MR;
            micro(a, bp + j * kc, kc, tile + i * g.nb + j, g.nb, x > 0, rows - i);
          }
      }
    }
    for (int64_t i = 0; i < rows; i++) store_row(&q, &it, i0 + i, j0, cols, tiles + i * g.nb, tile2 + i * g.nb);
  }
}

bool MM_PREPARE(gemm)(const tnxk_matmul *q, tnxk_kernel *out) {
  if ((!mm_regular(q) && !q->b_windows) || (PAIRS && q->b_int8)) return false;
  out->name = MM_NAME(gemm);
  out->run = run_gemm;
  out->phases = 1;
  if (mm_empty(q)) return true;
  const gemm_plan g = plan_gemm(q);
  const int last = g.a_local ? 0 : 1;
  const double us = (double)g.mb * (double)g.nb * (double)q->k * (q->gate ? 2 : 1) / (2000.0 * VL);
  out->phases = (uint32_t)last + 1;
  out->units[last] = g.batches * g.mblocks * g.nblocks;
  out->grain[last] = us >= 30 ? 1 : (int64_t)(30 / us);
  if (last) {
    out->units[0] = g.batches * g.panels;
    out->grain[0] = mm_max(1, 30000 / (MR * q->k));
    out->shared_bytes = (size_t)out->units[0] * g.panel_bytes;
  }
  out->worker_bytes = g.a_bytes + g.b_bytes + (q->gate ? 2 : 1) * g.tile_bytes + g.window_bytes;
  return true;
}
#endif
