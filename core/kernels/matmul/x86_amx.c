/* Matmul of bfloat16 on AMX tiles. With TNX_EMULATE_ISA the same logic on tiles in memory, for tests on other machines.
 *
 * The product is D[l][r] = sum over k of left[l][k] * right[r][k]. `left` is read in place as the A tiles (16 rows of 32
 * k), so its k must be contiguous, else a unit copies its rows into that form; `right` is packed once in phase 0 as the B
 * tiles (pairs of k interleaved). With a weight in PyTorch's layout left is the weight and D the transposed output; with
 * b row-major left is a and D the output. Both sides take 2 x 2 tiles at a time; k is cut into steps that keep a unit's
 * operands in the L2 cache, sums wait in float32 scratch. */
#define TNXK_VL 16
#define TNXK_PAIRS
#if defined(TNX_EMULATE_ISA)
#define MM_SUFFIX amx_emulated
#else
#define TNXK_VEC_AVX512
#define MM_SUFFIX amx
#endif

#include "kernels/matmul/epilogue.h"
#include "kernels/matmul/pack.h"

enum {
  T = 16,             /* rows of a tile, columns of a result tile */
  TK = 32,            /* k of a tile */
  TILE_BYTES = 1024,
  K_STEP = 1024,      /* k of one step */
  R_MAX = 256,        /* right rows of a unit */
  L_MAX = 256,        /* left rows of a unit */
  TILES_MIN = 5,      /* rows of a below which reading b is all that counts */
  TILES_UNIT_MACS = 8 << 20
};
#define RIGHT_MAX ((int64_t)512 << 20)

#if defined(TNX_EMULATE_ISA)
static _Thread_local unsigned char tile_mem[8][TILE_BYTES];
static void tile_config(void) { memset(tile_mem, 0xff, sizeof tile_mem); }
static void tile_release(void) {}
static void tile_zero_(int t) { memset(tile_mem[t], 0, TILE_BYTES); }
static void tile_load_(int t, const void *p, int64_t stride) {
  for (int i = 0; i < T; i++) memcpy(tile_mem[t] + i * 64, (const char *)p + i * stride, 64);
}
static void tile_store_(int t, void *p, int64_t stride) {
  for (int i = 0; i < T; i++) memcpy((char *)p + i * stride, tile_mem[t] + i * 64, 64);
}
static void tile_dot_(int c, int a, int b) {
  float d[T][T];
  uint16_t x[T][TK], y[T][TK];
  memcpy(d, tile_mem[c], TILE_BYTES);
  memcpy(x, tile_mem[a], TILE_BYTES);
  memcpy(y, tile_mem[b], TILE_BYTES);
  for (int l = 0; l < T; l++)
    for (int p = 0; p < T; p++)
      for (int r = 0; r < T; r++)
        for (int h = 0; h < 2; h++)
          d[l][r] += tnx_bf16_to_f32(x[l][2 * p + h]) * tnx_bf16_to_f32(y[p][2 * r + h]);
  memcpy(tile_mem[c], d, TILE_BYTES);
}
#define TILE_ZERO(t) tile_zero_(t)
#define TILE_LOAD(t, p, stride) tile_load_(t, p, stride)
#define TILE_STORE(t, p, stride) tile_store_(t, p, stride)
#define TILE_DOT(c, a, b) tile_dot_(c, a, b)
#else
/* The 64-byte operand of LDTILECFG (Intel SDM): palette 1, then bytes per row and rows of each tile. */
static void tile_config(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = T;
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}
static void tile_release(void) { _tile_release(); }
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

typedef struct side {
  int64_t rows, rs, ks; /* strides in elements */
} side;

typedef struct tiles_plan {
  bool left_is_a, left_direct;
  side left, right;
  int64_t batches, kb;           /* tiles along k */
  int64_t lb, rb, lblocks, rblocks, rpanels;
  size_t panel_bytes;            /* one packed panel of 16 right rows */
  size_t left_bytes, sums_bytes, turn_bytes;
} tiles_plan;

static tiles_plan plan_tiles(const tnxk_matmul *q) {
  tiles_plan p;
  p.left_is_a = q->b_rs != 1 && q->a_cs == 1 && q->gate == NULL;
  const side a = {q->m, q->a_rs, q->a_cs}, b = {q->n, q->b_cs, q->b_rs};
  p.left = p.left_is_a ? a : b;
  p.right = p.left_is_a ? b : a;
  p.left_direct = p.left.ks == 1;
  p.batches = mm_batches(q);
  p.kb = mm_ceil(q->k, TK);
  const int64_t rblocks = mm_ceil(p.right.rows, R_MAX);
  p.rb = mm_round_up(mm_ceil(p.right.rows, rblocks), T);
  p.rblocks = mm_ceil(p.right.rows, p.rb);
  p.rpanels = mm_ceil(p.right.rows, T);
  /* Left rows: enough work for a unit, but at least a few dozen units where the problem has them. */
  int64_t lb = mm_min(TILES_UNIT_MACS / (p.rb * q->k) + 1, L_MAX);
  lb = mm_min(lb, mm_max(p.left.rows * p.rblocks * p.batches / 32, 1));
  p.lb = mm_min(mm_round_up(lb, 2 * T), mm_round_up(p.left.rows, T));
  p.lblocks = mm_ceil(p.left.rows, p.lb);
  p.panel_bytes = (size_t)p.kb * TILE_BYTES;
  p.left_bytes = p.left_direct ? 0 : (size_t)(p.lb / T * (K_STEP / TK)) * TILE_BYTES;
  p.sums_bytes = (size_t)(p.lb * p.rb) * 4;
  p.turn_bytes = p.left_is_a ? 0 : (size_t)(T * p.lb) * 4;
  return p;
}

/* 16 rows of bfloat16 x `k` of them at any strides, as [row][32 k] tiles, zero-padded. */
static void copy_left(const char *src, const side *s, int64_t rows, int64_t k, char *out) {
  for (int64_t x = 0; x < k; x += TK, out += TILE_BYTES) {
    const int64_t n = mm_min(TK, k - x);
    const char *p = src + x * s->ks * 2;
    if (s->ks == 1) {
      memset(out, 0, TILE_BYTES);
      for (int64_t i = 0; i < mm_min(T, rows); i++) memcpy(out + i * 64, p + i * s->rs * 2, (size_t)n * 2);
      continue;
    }
    /* Panel order [pair of k][row], then turned. */
    float words[T * VL] = {0};
    V r[VL];
    pack_panel(p, s->rs, s->ks, rows, n, words, T, TNX_BF16);
    for (int i = 0; i < T; i++) r[i] = v_load(words + i * VL);
    v_transpose(r);
    for (int i = 0; i < T; i++) v_store((float *)(out + i * 64), r[i]);
  }
}

/* sums[lt*16 x rt*16] (+)= left tiles times right tiles over `steps` tiles of k. Left tile s of row group i lies at
 * l + i * l_group + s * l_step, its rows l_row bytes apart. */
INL void tiles_micro(const char *l, int64_t l_group, int64_t l_step, int64_t l_row, const char *r, int64_t r_group,
                     int64_t steps, float *sums, int64_t ss, bool accumulate, const int lt, const int rt) {
  const int64_t row = ss * 4;
  /* The tile instructions do not tell the compiler which memory they use. */
  __asm__ volatile("" ::: "memory");
  if (accumulate) {
    TILE_LOAD(0, sums, row);
    if (rt > 1) TILE_LOAD(1, sums + T, row);
    if (lt > 1) TILE_LOAD(2, sums + T * ss, row);
    if (lt > 1 && rt > 1) TILE_LOAD(3, sums + T * ss + T, row);
  } else {
    TILE_ZERO(0);
    if (rt > 1) TILE_ZERO(1);
    if (lt > 1) TILE_ZERO(2);
    if (lt > 1 && rt > 1) TILE_ZERO(3);
  }
  for (int64_t s = 0; s < steps; s++) {
    const char *ls = l + s * l_step, *rs = r + s * TILE_BYTES;
    TILE_LOAD(4, ls, l_row);
    TILE_LOAD(6, rs, 64);
    TILE_DOT(0, 4, 6);
    if (rt > 1) {
      TILE_LOAD(7, rs + r_group, 64);
      TILE_DOT(1, 4, 7);
    }
    if (lt > 1) {
      TILE_LOAD(5, ls + l_group, l_row);
      TILE_DOT(2, 5, 6);
      if (rt > 1) TILE_DOT(3, 5, 7);
    }
  }
  TILE_STORE(0, sums, row);
  if (rt > 1) TILE_STORE(1, sums + T, row);
  if (lt > 1) TILE_STORE(2, sums + T * ss, row);
  if (lt > 1 && rt > 1) TILE_STORE(3, sums + T * ss + T, row);
  __asm__ volatile("" ::: "memory");
}

static void tiles_pairs(const char *l, int64_t l_group, int64_t l_step, int64_t l_row, const char *r, int64_t r_group,
                        int64_t steps, float *sums, int64_t ss, bool accumulate, bool two_l, bool two_r) {
  if (two_l && two_r) tiles_micro(l, l_group, l_step, l_row, r, r_group, steps, sums, ss, accumulate, 2, 2);
  else if (two_l) tiles_micro(l, l_group, l_step, l_row, r, r_group, steps, sums, ss, accumulate, 2, 1);
  else if (two_r) tiles_micro(l, l_group, l_step, l_row, r, r_group, steps, sums, ss, accumulate, 1, 2);
  else tiles_micro(l, l_group, l_step, l_row, r, r_group, steps, sums, ss, accumulate, 1, 1);
}

/* sums[lb x rb] = left rows [0, lrows) times right rows [0, rrows) of packed `right` panels. */
static void tiles_block(const tiles_plan *p, int64_t k, const char *left, int64_t lrows, const char *right, int64_t rrows,
                        char *left_copy, float *sums) {
  char edge[2 * TILE_BYTES];
  for (int64_t x = 0; x < k; x += K_STEP) {
    const int64_t depth = mm_min(K_STEP, k - x), steps = mm_ceil(depth, TK);
    const char *lx = left + x * p->left.ks * 2;
    if (!p->left_direct)
      for (int64_t l = 0; l < lrows; l += T)
        copy_left(lx + l * p->left.rs * 2, &p->left, lrows - l, depth, left_copy + l / T * steps * TILE_BYTES);
    for (int64_t l = 0; l < lrows; l += 2 * T) {
      const bool two_l = lrows - l > T;
      for (int64_t r = 0; r < rrows; r += 2 * T) {
        const bool two_r = rrows - r > T;
        const char *rx = right + (size_t)(r / T) * p->panel_bytes + x / TK * TILE_BYTES;
        float *d = sums + l * p->rb + r;
        if (!p->left_direct) {
          const char *lc = left_copy + l / T * steps * TILE_BYTES;
          tiles_pairs(lc, steps * TILE_BYTES, TILE_BYTES, 64, rx, (int64_t)p->panel_bytes, steps, d, p->rb, x > 0, two_l, two_r);
          continue;
        }
        /* In place while all rows and all of a tile's k exist; the last tile and the last rows through a copy. */
        const char *lp = lx + l * p->left.rs * 2;
        const bool rows_exist = lrows - l >= 2 * T || lrows - l == T;
        const int64_t whole = rows_exist ? depth / TK : 0;
        if (whole)
          tiles_pairs(lp, T * p->left.rs * 2, 64, p->left.rs * 2, rx, (int64_t)p->panel_bytes, whole, d, p->rb, x > 0,
                      two_l, two_r);
        for (int64_t s = whole; s < steps; s++) {
          const int64_t n = mm_min(TK, depth - s * TK);
          copy_left(lp + s * 64, &p->left, lrows - l, n, edge);
          if (two_l) copy_left(lp + T * p->left.rs * 2 + s * 64, &p->left, lrows - l - T, n, edge + TILE_BYTES);
          tiles_pairs(edge, TILE_BYTES, 0, 64, rx + s * TILE_BYTES, (int64_t)p->panel_bytes, 1, d, p->rb, x > 0 || s > 0,
                      two_l, two_r);
        }
      }
    }
  }
}

static void run_tiles(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_matmul q = mm_canonical(params);
  const tiles_plan p = plan_tiles(&q);
  if (phase == 0) {
    for (int64_t u = begin; u < end; u++) {
      const mm_item it = mm_get_item(&q, u / p.rpanels);
      const int64_t i = u % p.rpanels * T;
      const char *src = (p.left_is_a ? it.b : it.a) + i * p.right.rs * 2;
      char *out = (char *)shared + (size_t)u * p.panel_bytes;
      const int64_t used = KCOLS(q.k) * 64;
      pack_panel(src, p.right.rs, p.right.ks, p.right.rows - i, q.k, (float *)out, T, TNX_BF16);
      memset(out + used, 0, p.panel_bytes - (size_t)used);
    }
    return;
  }
  char *left_copy = worker;
  float *sums = (float *)((char *)worker + p.left_bytes);
  float *sums2 = (float *)((char *)sums + (q.gate ? p.sums_bytes : 0));
  float *turn = (float *)((char *)sums2 + p.sums_bytes);
  float *turn2 = (float *)((char *)turn + (q.gate ? p.turn_bytes : 0));
  tile_config();
  for (int64_t u = begin; u < end; u++) {
    const int64_t l0 = u % p.lblocks * p.lb, r0 = u / p.lblocks % p.rblocks * p.rb, item = u / (p.lblocks * p.rblocks);
    const int64_t lrows = mm_min(p.lb, p.left.rows - l0), rrows = mm_min(p.rb, p.right.rows - r0);
    const mm_item it = mm_get_item(&q, item);
    const char *right = (const char *)shared + (size_t)(item * p.rpanels + r0 / T) * p.panel_bytes;
    tiles_block(&p, q.k, (p.left_is_a ? it.a : it.b) + l0 * p.left.rs * 2, lrows, right, rrows, left_copy, sums);
    if (it.gate) tiles_block(&p, q.k, it.gate + l0 * p.left.rs * 2, lrows, right, rrows, left_copy, sums2);
    if (p.left_is_a) {
      for (int64_t l = 0; l < lrows; l++) store_row(&q, &it, l0 + l, r0, rrows, sums + l * p.rb, NULL);
      continue;
    }
    for (int64_t r = 0; r < rrows; r += T) {
      for (int second = 0; second <= (it.gate != NULL); second++)
        for (int64_t l = 0; l < lrows; l += T) {
          const float *s = (second ? sums2 : sums) + l * p.rb + r;
          float *o = (second ? turn2 : turn) + l;
          V v[VL];
          for (int i = 0; i < T; i++) v[i] = v_load(s + i * p.rb);
          v_transpose(v);
          for (int i = 0; i < T; i++) v_store(o + i * p.lb, v[i]);
        }
      for (int64_t i = 0; i < mm_min(T, rrows - r); i++)
        store_row(&q, &it, r0 + r + i, l0, lrows, turn + i * p.lb, turn2 + i * p.lb);
    }
  }
  tile_release();
}

bool MM_PREPARE(tiles)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (!mm_regular(q) || q->m < TILES_MIN || q->n < TILES_MIN || q->b_int8) return false;
  const tiles_plan p = plan_tiles(q);
  if ((double)p.batches * (double)p.rpanels * (double)p.panel_bytes > (double)RIGHT_MAX) return false;
  const double us = (double)p.lb * (double)p.rb * (double)q->k * (q->gate ? 2 : 1) / 400e3 + 0.5;
  out->name = MM_NAME(tiles);
  out->run = run_tiles;
  out->phases = 2;
  out->units[0] = p.batches * p.rpanels;
  out->grain[0] = mm_max(1, 100000 / (T * q->k));
  out->units[1] = p.batches * p.lblocks * p.rblocks;
  out->grain[1] = us >= 30 ? 1 : (int64_t)(30 / us);
  out->shared_bytes = (size_t)out->units[0] * p.panel_bytes;
  out->worker_bytes = p.left_bytes + (q->gate ? 2 : 1) * (p.sums_bytes + p.turn_bytes);
  return true;
}
