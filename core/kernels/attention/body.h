/* Internal to the attention family: the forward kernel, written over the vocabulary of vec.h and compiled once per instruction set.
 * Also the pieces it shares with the backward kernel (body_bwd.h): loads, masks, the panel product.
 *
 * Online softmax: for each block of keys, scores, new maximum m, p = exp(score - m), sum and weighted values rescaled by
 * exp(old m - m). A masked score is -inf; while a whole row is masked m is -inf and 0 stands in for it. */
#ifndef TNXK_ATTENTION_BODY_H
#define TNXK_ATTENTION_BODY_H
#include "kernels/attention/plan.h"
#include "kernels/attention/vec.h"

#define LANES (2 * VW)
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS float load_elem(uint8_t dtype, const void *base, int64_t at) {
  switch (dtype) {
    case TNX_F32: return ((const float *)base)[at];
    case TNX_BF16: return tnx_bf16_to_f32(((const uint16_t *)base)[at]);
    case TNX_F16: return tnx_f16_to_f32(((const uint16_t *)base)[at]);
    default: return (float)((const double *)base)[at];
  }
}
ALWAYS void store_elem(uint8_t dtype, void *base, int64_t at, float v) {
  if (dtype == TNX_F32) ((float *)base)[at] = v;
  else ((uint16_t *)base)[at] = dtype == TNX_BF16 ? tnx_f32_to_bf16(v) : tnx_f32_to_f16(v);
}
ALWAYS vf load_vec(uint8_t dtype, const void *base, int64_t at) {
  if (dtype == TNX_F32) return vf_load((const float *)base + at);
  return dtype == TNX_BF16 ? vf_load_bf16((const uint16_t *)base + at) : vf_load_f16((const uint16_t *)base + at);
}

/* One row of n channels to float32, times scale; zeros up to `padded`. */
static void load_row(uint8_t dtype, const void *base, int64_t at, int64_t stride, int64_t n, int64_t padded, float scale, float *out) {
  int64_t i = 0;
  if (stride == 1) {
    vf s = vf_set1(scale);
    if (dtype == TNX_F32) for (; i + VW <= n; i += VW) vf_store(out + i, vf_mul(load_vec(TNX_F32, base, at + i), s));
    else if (dtype == TNX_BF16) for (; i + VW <= n; i += VW) vf_store(out + i, vf_mul(load_vec(TNX_BF16, base, at + i), s));
    else if (dtype == TNX_F16) for (; i + VW <= n; i += VW) vf_store(out + i, vf_mul(load_vec(TNX_F16, base, at + i), s));
  }
  for (; i < n; i++) out[i] = load_elem(dtype, base, at + i * stride) * scale;
  for (; i < padded; i++) out[i] = 0;
}

/* A block of keys or values as float32 rows: in place if it already is, else converted into `room`. */
static const float *load_block(uint8_t dtype, const void *base, int64_t at, const int64_t *st, int64_t rows, int64_t n, int64_t ld, float *room,
                               int64_t *ld_out) {
  if (dtype == TNX_F32 && st[3] == 1 && st[2] >= n) {
    *ld_out = st[2];
    return (const float *)base + at;
  }
  for (int64_t j = 0; j < rows; j++) load_row(dtype, base, at + j * st[2], st[3], n, ld, 1, room + j * ld);
  *ld_out = ld;
  return room;
}

/* c[m][LANES] = (c scaled, c, or 0) + a[m][k] b[k][LANES], for one tile of at most TILE_M rows. */
enum { TILE_M = VW == 8 ? 6 : VW == 16 ? 8 : 4 };
enum { FROM_ZERO, FROM_SCALED, FROM_C };
ALWAYS void product_tile(const int m, const int from, int64_t k, const float *a, int64_t am, int64_t ak, const float *b, int64_t bk, float *c,
                         int64_t cm, vf s0, vf s1) {
  vf acc[TILE_M][2];
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
    if (from == FROM_ZERO) acc[i][0] = acc[i][1] = vf_set1(0);
    else {
      acc[i][0] = vf_load(c + i * cm), acc[i][1] = vf_load(c + i * cm + VW);
      if (from == FROM_SCALED) acc[i][0] = vf_mul(acc[i][0], s0), acc[i][1] = vf_mul(acc[i][1], s1);
    }
  }
  for (int64_t x = 0; x < k; x++) {
    vf b0 = vf_load(b + x * bk), b1 = vf_load(b + x * bk + VW);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
      vf v = vf_set1(a[i * am + x * ak]);
      acc[i][0] = vf_fma(v, b0, acc[i][0]);
      acc[i][1] = vf_fma(v, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) vf_store(c + i * cm, acc[i][0]), vf_store(c + i * cm + VW, acc[i][1]);
}
ALWAYS void product_any(const int from, int64_t m, int64_t k, const float *a, int64_t am, int64_t ak, const float *b, int64_t bk, float *c,
                        int64_t cm, const float *scale) {
  vf s0 = scale ? vf_load(scale) : vf_set1(1), s1 = scale ? vf_load(scale + VW) : vf_set1(1);
  int64_t i = 0;
  for (; i + TILE_M <= m; i += TILE_M) product_tile(TILE_M, from, k, a + i * am, am, ak, b, bk, c + i * cm, cm, s0, s1);
  a += i * am;
  c += i * cm;
#define REST(n) case n: product_tile(n < TILE_M ? n : TILE_M, from, k, a, am, ak, b, bk, c, cm, s0, s1); break
  switch (m - i) {
    REST(1); REST(2); REST(3); REST(4); REST(5); REST(6); REST(7);
    default: break;
  }
#undef REST
}
/* The two layouts of a that occur: rows along m (dot products of rows), and rows along k (weighted sums of rows). */
static __attribute__((noinline)) void product_rows(int64_t m, int64_t k, const float *a, int64_t ld, const float *b, int64_t bk, float *c, int64_t cm) {
  product_any(FROM_ZERO, m, k, a, ld, 1, b, bk, c, cm, NULL);
}
static __attribute__((noinline)) void product_columns(int64_t m, int64_t k, const float *a, int64_t ld, const float *b, int64_t bk, float *c,
                                                      int64_t cm, const float *scale) {
  product_any(FROM_SCALED, m, k, a, 1, ld, b, bk, c, cm, scale);
}

/* The queries of a unit: row r is query pos[r] of head[r]. */
typedef struct rowset {
  int64_t b, g, n; /* batch entry, group, rows */
  int64_t *head, *pos;
} rowset;

static rowset make_rowset(const tnxk_attention *p, const tnxk_attn_plan *x, int64_t unit, float *room) {
  rowset u;
  int64_t i0 = unit % x->q_blocks * x->q_block, nq = p->q_len - i0 < x->q_block ? p->q_len - i0 : x->q_block;
  unit /= x->q_blocks;
  u.g = unit % p->kv_heads;
  u.b = unit / p->kv_heads;
  u.n = nq * x->group;
  u.head = (int64_t *)room;
  u.pos = u.head + u.n;
  for (int64_t h = 0, r = 0; h < x->group; h++)
    for (int64_t i = 0; i < nq; i++, r++) u.head[r] = u.g * x->group + h, u.pos[r] = i0 + i;
  return u;
}
/* Element offset of row r in a tensor with these strides. */
ALWAYS int64_t row_at(const rowset *u, int64_t r, const int64_t *st) { return u->b * st[0] + u->head[r] * st[1] + u->pos[r] * st[2]; }

/* What a piece of a mask does: nothing, something, or masks everything. */
typedef enum mask_effect { MASK_NONE, MASK_SOME, MASK_ALL } mask_effect;

/* Mask elements as numbers to add to scores. */
static mask_effect mask_row(const tnxk_attention *p, int64_t at, int64_t n, float *add) {
  int64_t st = p->mask_st[3];
  if (p->mask_dtype == TNX_BOOL) {
    const uint8_t *m = (const uint8_t *)p->mask + at;
    int32_t open = 0; /* n is at most a block */
    if (st == 1) /* a loop the compiler can vectorise */
      for (int64_t j = 0; j < n; j++) open += m[j] != 0, add[j] = m[j] ? 0.0f : -INFINITY;
    else
      for (int64_t j = 0; j < n; j++) open += m[j * st] != 0, add[j] = m[j * st] ? 0.0f : -INFINITY;
    return open == n ? MASK_NONE : open ? MASK_SOME : MASK_ALL;
  }
  bool zeros = true, closed = true;
  load_row(p->mask_dtype, p->mask, at, st, n, 0, 1, add);
  for (int64_t j = 0; j < n; j++) {
    zeros &= add[j] == 0;
    closed &= add[j] == -INFINITY;
  }
  return zeros ? MASK_NONE : closed ? MASK_ALL : MASK_SOME;
}
ALWAYS int64_t mask_at(const tnxk_attention *p, const rowset *u, int64_t r, int64_t j) {
  return row_at(u, r, p->mask_st) + j * p->mask_st[3];
}

/* The mask of one panel (rows r0.. of the unit, keys j0..). If its rows share one mask row, `add` gets n numbers and *shared is true,
 * else add[j][lane]. add has room for (1 + LANES) * TNXK_ATTN_BLOCK. */
static mask_effect mask_panel(const tnxk_attention *p, const rowset *u, int64_t r0, int64_t lanes, int64_t j0, int64_t n, float *add, bool *shared) {
  *shared = true;
  int64_t first = mask_at(p, u, r0, j0);
  for (int64_t r = 1; *shared && r < lanes; r++) *shared = mask_at(p, u, r0 + r, j0) == first;
  if (*shared) return mask_row(p, first, n, add);
  float *row = add + LANES * TNXK_ATTN_BLOCK;
  bool none = true, all = true;
  for (int64_t r = 0; r < lanes; r++) {
    mask_effect e = mask_row(p, mask_at(p, u, r0 + r, j0), n, row);
    none &= e == MASK_NONE;
    all &= e == MASK_ALL;
    for (int64_t j = 0; j < n; j++) add[j * LANES + r] = row[j];
  }
  if (none || all) return none ? MASK_NONE : MASK_ALL;
  for (int64_t r = lanes; r < LANES; r++)
    for (int64_t j = 0; j < n; j++) add[j * LANES + r] = 0;
  return MASK_SOME;
}

/* Masks the scores s[n][LANES] of one panel, by the mask's numbers and by causality. */
static void apply_masks(const tnxk_attention *p, const rowset *u, int64_t r0, int64_t lanes, int64_t j0, int64_t n, mask_effect effect,
                        bool shared, const float *add, float *s) {
  if (effect == MASK_SOME) {
    for (int64_t j = 0; j < n; j++) {
      vf a0 = shared ? vf_set1(add[j]) : vf_load(add + j * LANES), a1 = shared ? a0 : vf_load(add + j * LANES + VW);
      vf_store(s + j * LANES, vf_add(vf_load(s + j * LANES), a0));
      vf_store(s + j * LANES + VW, vf_add(vf_load(s + j * LANES + VW), a1));
    }
  }
  if (!p->is_causal) return;
  float last[LANES]; /* the last key of each lane, from j0; at most a block matters, so it is exact */
  int64_t least = n;
  for (int64_t r = 0; r < LANES; r++) {
    int64_t v = r < lanes ? u->pos[r0 + r] - j0 : n;
    v = v < -1 ? -1 : v > n ? n : v;
    if (v < least) least = v;
    last[r] = (float)v;
  }
  const vf closed = vf_set1(-INFINITY), l0 = vf_load(last), l1 = vf_load(last + VW);
  for (int64_t j = least + 1; j < n; j++) {
    vf x = vf_set1((float)j);
    vf_store(s + j * LANES, vf_select_lt(l0, x, closed, vf_load(s + j * LANES)));
    vf_store(s + j * LANES + VW, vf_select_lt(l1, x, closed, vf_load(s + j * LANES + VW)));
  }
}

/* Keys [0, limit) that a panel's rows can see. */
static int64_t visible_keys(const tnxk_attention *p, const rowset *u, int64_t r0, int64_t lanes) {
  if (!p->is_causal) return p->kv_len;
  int64_t last = 0;
  for (int64_t r = 0; r < lanes; r++) last = u->pos[r0 + r] > last ? u->pos[r0 + r] : last;
  return last + 1 < p->kv_len ? last + 1 : p->kv_len;
}

/* Queries r0.. of a unit, transposed: out[channel][lane], times scale; unused lanes are 0. */
static void load_transposed(uint8_t dtype, const void *base, const int64_t *st, const rowset *u, int64_t r0, int64_t lanes, int64_t n, float scale,
                            float *out) {
  for (int64_t r = 0; r < LANES; r++) {
    if (r >= lanes) {
      for (int64_t c = 0; c < n; c++) out[c * LANES + r] = 0;
      continue;
    }
    int64_t at = row_at(u, r0 + r, st);
    for (int64_t c = 0; c < n; c++) out[c * LANES + r] = load_elem(dtype, base, at + c * st[3]) * scale;
  }
}

/* One step of the online softmax for the scores s[n][LANES]: they become weights; m and l are brought up to date and alpha is what
 * earlier results must be multiplied by. */
static void softmax_panel(float *s, int64_t n, float *m, float *l, float *alpha) {
  const vf zero = vf_set1(0);
  for (int h = 0; h < LANES; h += VW) {
    vf old = vf_load(m + h), top = old;
    for (int64_t j = 0; j < n; j++) top = vf_max(top, vf_load(s + j * LANES + h));
    vf base = vf_select_lt(vf_set1(-INFINITY), top, top, zero);
    vf sum = zero;
    for (int64_t j = 0; j < n; j++) {
      vf e = vf_exp(vf_sub(vf_load(s + j * LANES + h), base));
      sum = vf_add(sum, e);
      vf_store(s + j * LANES + h, e);
    }
    vf a = vf_exp(vf_sub(old, base));
    vf_store(alpha + h, a);
    vf_store(l + h, vf_fma(vf_load(l + h), a, sum));
    vf_store(m + h, top);
  }
}

/* Writes row r of a unit: its weighted values (element c at o[c * step]) over the sum, and its log-sum-exp. */
static void finish_row(const tnxk_attention *p, const rowset *u, int64_t r, float m, float l, const float *o, int64_t step) {
  int64_t at = row_at(u, r, p->out_st);
  float inv = l == 0 ? 0 : 1 / l;
  for (int64_t c = 0; c < p->v_dim; c++) store_elem(p->dtype, p->out, at + c * p->out_st[3], o[c * step] * inv);
  if (p->lse) p->lse[(u->b * p->heads + u->head[r]) * p->q_len + u->pos[r]] = l == 0 ? -INFINITY : m + logf(l);
}

static void write_rows(const tnxk_attention *p, const tnxk_attn_plan *x, const rowset *u, int64_t r, float m, float l, const float *o, int64_t step,
                       float *partial) {
  if (!partial) {
    finish_row(p, u, r, m, l, o, step);
    return;
  }
  partial += r * x->partial;
  partial[0] = m;
  partial[1] = l;
  for (int64_t c = 0; c < p->v_dim; c++) partial[2 + c] = o[c * step];
}

/* Keys [j_begin, j_end) for every row of a unit, queries along the lanes. */
static void forward_panels(const tnxk_attention *p, const tnxk_attn_plan *x, const rowset *u, int64_t j_begin, int64_t j_end, float *partial,
                           float *w) {
  int64_t panels = (u->n + LANES - 1) / LANES, slots = x->panels * LANES, limit = 0;
  float *m = w + x->m_at, *l = m + slots, *alpha = l + slots;
  for (int64_t i = 0; i < panels; i++) {
    int64_t lanes = u->n - i * LANES < LANES ? u->n - i * LANES : LANES, visible = visible_keys(p, u, i * LANES, lanes);
    if (visible > limit) limit = visible;
    load_transposed(p->dtype, p->q, p->q_st, u, i * LANES, lanes, p->head_dim, (float)p->scale, w + x->q_at + i * LANES * x->ldk);
    for (int64_t c = 0; c < p->v_dim * LANES; c++) w[x->o_at + i * LANES * x->ldv + c] = 0;
    for (int r = 0; r < LANES; r++) m[i * LANES + r] = -INFINITY, l[i * LANES + r] = 0;
  }
  if (limit < j_end) j_end = limit;
  int64_t k_at = u->b * p->k_st[0] + u->g * p->k_st[1], v_at = u->b * p->v_st[0] + u->g * p->v_st[1];
  for (int64_t j0 = j_begin; j0 < j_end; j0 += TNXK_ATTN_BLOCK) {
    int64_t n = j_end - j0 < TNXK_ATTN_BLOCK ? j_end - j0 : TNXK_ATTN_BLOCK, ldk = 0, ldv = 0;
    const float *k = NULL, *v = NULL;
    for (int64_t i = 0; i < panels; i++) {
      int64_t r0 = i * LANES, lanes = u->n - r0 < LANES ? u->n - r0 : LANES;
      int64_t keys = visible_keys(p, u, r0, lanes) - j0;
      if (keys <= 0) continue;
      if (keys > n) keys = n;
      bool shared = true;
      mask_effect effect = p->mask ? mask_panel(p, u, r0, lanes, j0, keys, w + x->mask_at, &shared) : MASK_NONE;
      if (effect == MASK_ALL) continue;
      if (!k) { /* the first panel that needs the block */
        k = load_block(p->dtype, p->k, k_at + j0 * p->k_st[2], p->k_st, n, p->head_dim, x->ldk, w + x->k_at, &ldk);
        v = load_block(p->dtype, p->v, v_at + j0 * p->v_st[2], p->v_st, n, p->v_dim, x->ldv, w + x->v_at, &ldv);
      }
      float *s = w + x->s_at;
      product_rows(keys, p->head_dim, k, ldk, w + x->q_at + r0 * x->ldk, LANES, s, LANES);
      apply_masks(p, u, r0, lanes, j0, keys, effect, shared, w + x->mask_at, s);
      softmax_panel(s, keys, m + r0, l + r0, alpha + r0);
      product_columns(p->v_dim, keys, v, ldv, s, LANES, w + x->o_at + r0 * x->ldv, LANES, alpha + r0);
    }
  }
  for (int64_t r = 0; r < u->n; r++)
    write_rows(p, x, u, r, m[r], l[r], w + x->o_at + r / LANES * LANES * x->ldv + r % LANES, LANES, partial);
}

/* A block of keys or values for the few-rows kernels: first element, distance of rows in bytes, dtype; and the memory that is needed
 * after it (rows of the same kind), fetched meanwhile so that reading overlaps with arithmetic. */
typedef struct block {
  const char *data;
  int64_t row;
  const char *ahead;
  int64_t ahead_row, ahead_bytes;
  uint8_t dtype;
} block;
ALWAYS void fetch_ahead(block b, int64_t j, int64_t n) {
  if (!b.ahead) return;
  for (int64_t i = j; i < j + n; i++)
    for (int64_t c = 0; c < b.ahead_bytes; c += 64) __builtin_prefetch(b.ahead + i * b.ahead_row + c);
}

/* The few-rows kernels read keys and values in their own dtype, whole vectors of channels. bfloat16 is read in pairs of vectors, the even
 * and the odd channels of 2 * VW (vec.h says why); the queries and the sums are kept in that order meanwhile. */
/* Makes the compiler read what p points to again: keeping a pair's bits in a register between its two halves costs the accumulators one. */
#define RELOAD(p) __asm__ volatile("" : "+r"(p))
/* Scores of nr rows against nk keys: s[r * TNXK_ATTN_BLOCK + j]. d is a multiple of VW (2 * VW for bfloat16). */
ALWAYS void few_scores(const uint8_t dtype, const int nr, const int nk, const char *k, int64_t row, int64_t d, const float *q, int64_t ldq, float *s) {
  vf acc[4][8];
#pragma GCC unroll 4
  for (int r = 0; r < nr; r++)
#pragma GCC unroll 8
    for (int j = 0; j < nk; j++) acc[r][j] = vf_set1(0);
  const int step = dtype == TNX_BF16 ? 2 : 1;
  for (int64_t c = 0; c < d; c += step * VW) {
#pragma GCC unroll 2
    for (int half = 0; half < step; half++) {
      vf qv[4];
#pragma GCC unroll 4
      for (int r = 0; r < nr; r++) qv[r] = vf_load(q + r * ldq + c + half * VW);
      const char *at = k;
      RELOAD(at);
#pragma GCC unroll 8
      for (int j = 0; j < nk; j++) {
        const uint16_t *pair = (const uint16_t *)(at + j * row) + c;
        vf kv = dtype != TNX_BF16 ? load_vec(dtype, at + j * row, c) : half ? vf_bf16_odd(pair) : vf_bf16_even(pair);
#pragma GCC unroll 4
        for (int r = 0; r < nr; r++) acc[r][j] = vf_fma(qv[r], kv, acc[r][j]);
      }
    }
  }
  float sums[4];
  if (nk == 2 && nr == 4) {
#pragma GCC unroll 2
    for (int r = 0; r < nr; r += 2) {
      vf_sum4(acc[r][0], acc[r][1], acc[r + 1][0], acc[r + 1][1], sums);
      memcpy(s + r * TNXK_ATTN_BLOCK, sums, 8);
      memcpy(s + (r + 1) * TNXK_ATTN_BLOCK, sums + 2, 8);
    }
    return;
  }
#pragma GCC unroll 4
  for (int r = 0; r < nr; r++) {
    if (nk == 1) s[r * TNXK_ATTN_BLOCK] = vf_sum(acc[r][0]);
#pragma GCC unroll 2
    for (int j = 0; j + 4 <= nk; j += 4) vf_sum4(acc[r][j], acc[r][j + 1], acc[r][j + 2], acc[r][j + 3], s + r * TNXK_ATTN_BLOCK + j);
  }
}
/* o[r][c..] = o * alpha[r] + sum over keys of s[r][j] v[j][c..], for nt vectors of channels (an even number for bfloat16). */
ALWAYS void few_values(const uint8_t dtype, const int nr, const int nt, int64_t n, block b, int64_t c, const float *s, const float *alpha, float *o,
                       int64_t ldo) {
  vf acc[4][8];
#pragma GCC unroll 4
  for (int r = 0; r < nr; r++)
#pragma GCC unroll 8
    for (int t = 0; t < nt; t++) acc[r][t] = vf_mul(vf_load(o + r * ldo + c + t * VW), vf_set1(alpha[r]));
  const char *v = b.data;
  for (int64_t j = 0; j < n; j++, v += b.row) {
    if (c == 0) fetch_ahead(b, j, 1);
    vf w[4];
#pragma GCC unroll 4
    for (int r = 0; r < nr; r++) w[r] = vf_set1(s[r * TNXK_ATTN_BLOCK + j]);
    const int step = dtype == TNX_BF16 ? 2 : 1;
#pragma GCC unroll 2
    for (int half = 0; half < step; half++) {
      const char *at = v;
      RELOAD(at);
#pragma GCC unroll 8
      for (int t = half; t < nt; t += step) {
        const uint16_t *pair = (const uint16_t *)at + c + (t - half) * VW;
        vf x = dtype != TNX_BF16 ? load_vec(dtype, at, c + t * VW) : half ? vf_bf16_odd(pair) : vf_bf16_even(pair);
#pragma GCC unroll 4
        for (int r = 0; r < nr; r++) acc[r][t] = vf_fma(w[r], x, acc[r][t]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < nr; r++)
#pragma GCC unroll 8
    for (int t = 0; t < nt; t++) vf_store(o + r * ldo + c + t * VW, acc[r][t]);
}

/* As many keys and channels at once as the accumulators have registers for, and enough of them to hide the latency of additions. */
ALWAYS void few_scores_block(const uint8_t dtype, const int nr, block k, int64_t n, int64_t d, const float *q, int64_t ldq, float *s) {
  const int nk = nr == 1 ? 8 : nr == 4 && VW < 16 ? 2 : 4;
  int64_t j = 0;
  for (; j + nk <= n; j += nk) fetch_ahead(k, j, nk), few_scores(dtype, nr, nk, k.data + j * k.row, k.row, d, q, ldq, s + j);
  for (; j < n; j++) few_scores(dtype, nr, 1, k.data + j * k.row, k.row, d, q, ldq, s + j);
}
ALWAYS void few_values_block(const uint8_t dtype, const int nr, block v, int64_t n, int64_t d, const float *s, const float *alpha, float *o,
                             int64_t ldo) {
  const int nt = nr == 1 ? 8 : nr == 2 || VW == 16 ? 4 : 2;
  int64_t c = 0;
  for (; c + nt * VW <= d; c += nt * VW) few_values(dtype, nr, nt, n, v, c, s, alpha, o, ldo);
  for (; c + 2 * VW <= d; c += 2 * VW) few_values(dtype, nr, 2, n, v, c, s, alpha, o, ldo);
  if (dtype != TNX_BF16 && c < d) few_values(dtype, nr, 1, n, v, c, s, alpha, o, ldo);
}
#define FEW(name, args, call)                                     \
  static __attribute__((noinline)) void name args {               \
    switch (nr + 4 * (dtype == TNX_BF16) + 8 * (dtype == TNX_F16)) { \
      case 1: { enum { NR = 1, T = TNX_F32 }; call; break; }      \
      case 2: { enum { NR = 2, T = TNX_F32 }; call; break; }      \
      case 3: { enum { NR = 3, T = TNX_F32 }; call; break; }      \
      case 4: { enum { NR = 4, T = TNX_F32 }; call; break; }      \
      case 5: { enum { NR = 1, T = TNX_BF16 }; call; break; }     \
      case 6: { enum { NR = 2, T = TNX_BF16 }; call; break; }     \
      case 7: { enum { NR = 3, T = TNX_BF16 }; call; break; }     \
      case 8: { enum { NR = 4, T = TNX_BF16 }; call; break; }     \
      case 9: { enum { NR = 1, T = TNX_F16 }; call; break; }      \
      case 10: { enum { NR = 2, T = TNX_F16 }; call; break; }     \
      case 11: { enum { NR = 3, T = TNX_F16 }; call; break; }     \
      default: { enum { NR = 4, T = TNX_F16 }; call; break; }     \
    }                                                             \
  }
FEW(run_scores, (uint8_t dtype, int nr, block k, int64_t n, int64_t d, const float *q, int64_t ldq, float *s),
    few_scores_block(T, NR, k, n, d, q, ldq, s))
FEW(run_values, (uint8_t dtype, int nr, block v, int64_t n, int64_t d, const float *s, const float *alpha, float *o, int64_t ldo),
    few_values_block(T, NR, v, n, d, s, alpha, o, ldo))

/* Can rows of n channels be read in place? */
ALWAYS bool few_in_place(uint8_t dtype, const int64_t *st, int64_t n) { return st[3] == 1 && n % (dtype == TNX_BF16 ? 2 * VW : VW) == 0; }
/* In place, or converted and padded with zeros. */
static block few_block(uint8_t dtype, const void *base, int64_t at, const int64_t *st, int64_t rows, int64_t n, int64_t ld, float *room) {
  int64_t size = dtype == TNX_F32 ? 4 : 2;
  if (few_in_place(dtype, st, n)) return (block){.data = (const char *)base + at * size, .row = st[2] * size, .dtype = dtype};
  for (int64_t j = 0; j < rows; j++) load_row(dtype, base, at + j * st[2], st[3], n, ld, 1, room + j * ld);
  return (block){.data = (const char *)room, .row = ld * 4, .dtype = TNX_F32};
}
/* Between channels in order and even and odd channels of each 2 * VW apart. */
static void few_reorder(float *row, int64_t n, bool apart) {
  float t[2 * VW];
  for (int64_t c = 0; c < n; c += 2 * VW) {
    for (int i = 0; i < VW; i++) {
      if (apart) t[i] = row[c + 2 * i], t[VW + i] = row[c + 2 * i + 1];
      else t[2 * i] = row[c + i], t[2 * i + 1] = row[c + VW + i];
    }
    memcpy(row + c, t, sizeof t);
  }
}

/* The same step for one row of n scores. */
static void softmax_row(float *s, int64_t n, float *m, float *l, float *alpha) {
  for (int64_t j = n; j % VW; j++) s[j] = -INFINITY;
  vf tops = vf_set1(*m);
  for (int64_t j = 0; j < n; j += VW) tops = vf_max(tops, vf_load(s + j));
  float a[VW], top = *m;
  vf_store(a, tops);
  for (int i = 0; i < VW; i++) top = top > a[i] ? top : a[i];
  float base = top == -INFINITY ? 0 : top;
  vf sum = vf_set1(0), b = vf_set1(base);
  for (int64_t j = 0; j < n; j += VW) {
    vf e = vf_exp(vf_sub(vf_load(s + j), b));
    sum = vf_add(sum, e);
    vf_store(s + j, e);
  }
  vf_store(a, vf_exp(vf_set1(*m - base)));
  *alpha = a[0];
  *l = *l * a[0] + vf_sum(sum);
  *m = top;
}

/* Keys [j_begin, j_end) for every row of a unit, channels along the lanes. */
static void forward_few(const tnxk_attention *p, const tnxk_attn_plan *x, const rowset *u, int64_t j_begin, int64_t j_end, float *partial, float *w) {
  float *m = w + x->m_at, *l = m + x->rows, *alpha = l + x->rows, *q = w + x->q_at, *o = w + x->o_at, *s = w + x->s_at, *add = w + x->mask_at;
  int64_t d = tnxk_attn_round_up(p->head_dim, VW), dv = tnxk_attn_round_up(p->v_dim, VW);
  for (int64_t r = 0; r < u->n; r++) {
    int64_t at = row_at(u, r, p->q_st);
    load_row(p->dtype, p->q, at, p->q_st[3], p->head_dim, x->ldk, (float)p->scale, q + r * x->ldk);
    if (p->dtype == TNX_BF16 && few_in_place(p->dtype, p->k_st, p->head_dim)) few_reorder(q + r * x->ldk, d, true);
    for (int64_t c = 0; c < x->ldv; c++) o[r * x->ldv + c] = 0;
    m[r] = -INFINITY, l[r] = 0;
  }
  int64_t visible = visible_keys(p, u, 0, u->n);
  if (visible < j_end) j_end = visible;
  int64_t k_at = u->b * p->k_st[0] + u->g * p->k_st[1], v_at = u->b * p->v_st[0] + u->g * p->v_st[1];
  for (int64_t j0 = j_begin; j0 < j_end; j0 += TNXK_ATTN_BLOCK) {
    int64_t n = j_end - j0 < TNXK_ATTN_BLOCK ? j_end - j0 : TNXK_ATTN_BLOCK;
    bool none = true, all = p->mask != NULL;
    const float *add_of[LANES]; /* each row's mask; heads mostly share one */
    for (int64_t r = 0; p->mask && r < u->n; r++) {
      if (r > 0 && mask_at(p, u, r, j0) == mask_at(p, u, r - 1, j0)) {
        add_of[r] = add_of[r - 1];
        continue;
      }
      float *row = add + r * TNXK_ATTN_BLOCK;
      mask_effect e = mask_row(p, mask_at(p, u, r, j0), n, row);
      none &= e == MASK_NONE;
      all &= e == MASK_ALL;
      add_of[r] = row;
    }
    if (all) continue;
    block k = few_block(p->dtype, p->k, k_at + j0 * p->k_st[2], p->k_st, n, p->head_dim, x->ldk, w + x->k_at);
    block v = few_block(p->dtype, p->v, v_at + j0 * p->v_st[2], p->v_st, n, p->v_dim, x->ldv, w + x->v_at);
    if (v.data != (const char *)(w + x->v_at)) k.ahead = v.data, k.ahead_row = v.row, k.ahead_bytes = p->v_dim * (v.dtype == TNX_F32 ? 4 : 2);
    if (k.data != (const char *)(w + x->k_at) && j0 + TNXK_ATTN_BLOCK < j_end)
      v.ahead = k.data + TNXK_ATTN_BLOCK * k.row, v.ahead_row = k.row, v.ahead_bytes = p->head_dim * (k.dtype == TNX_F32 ? 4 : 2);
    for (int64_t r = 0; r < u->n; r += 4) {
      int nr = (int)(u->n - r < 4 ? u->n - r : 4);
      run_scores(k.dtype, nr, k, n, d, q + r * x->ldk, x->ldk, s + r * TNXK_ATTN_BLOCK);
      for (int64_t i = r; i < r + nr; i++) {
        float *row = s + i * TNXK_ATTN_BLOCK;
        if (!none)
          for (int64_t j = 0; j < n; j++) row[j] += add_of[i][j];
        int64_t last = p->is_causal ? u->pos[i] - j0 : n;
        for (int64_t j = last < 0 ? 0 : last + 1; j < n; j++) row[j] = -INFINITY;
        softmax_row(row, n, m + i, l + i, alpha + i);
      }
      k.ahead = NULL;
      run_values(v.dtype, nr, v, n, dv, s + r * TNXK_ATTN_BLOCK, alpha + r, o + r * x->ldv, x->ldv);
      v.ahead = NULL;
    }
  }
  for (int64_t r = 0; r < u->n; r++) {
    if (p->dtype == TNX_BF16 && few_in_place(p->dtype, p->v_st, p->v_dim)) few_reorder(o + r * x->ldv, dv, false);
    write_rows(p, x, u, r, m[r], l[r], o + r * x->ldv, 1, partial);
  }
}

/* Phase 1 of a split call, for one row: the partial results of all splits, in their order. */
static void combine_row(const tnxk_attention *p, const tnxk_attn_plan *x, int64_t row, const float *shared, float *w) {
  rowset u = make_rowset(p, x, row / x->rows, w + x->rows_at); /* splits come only with one block of queries */
  int64_t r = row % x->rows;
  const float *first = shared + (row / x->rows * x->splits * x->rows + r) * x->partial;
  float m = -INFINITY, l = 0, *o = w + x->o_at;
  for (int64_t s = 0; s < x->splits; s++) {
    float v = first[s * x->rows * x->partial];
    m = m > v ? m : v;
  }
  float base = m == -INFINITY ? 0 : m;
  for (int64_t c = 0; c < p->v_dim; c++) o[c] = 0;
  for (int64_t s = 0; s < x->splits; s++) {
    const float *part = first + s * x->rows * x->partial;
    float f = expf(part[0] - base);
    l += part[1] * f;
    for (int64_t c = 0; c < p->v_dim; c++) o[c] += part[2 + c] * f;
  }
  finish_row(p, &u, r, m, l, o, 1);
}

/* Phase 0, units: (batch entry, group, block of queries) x splits of the keys; phase 1, with splits: rows. */
static void forward_body(const tnxk_attention *p, uint32_t phase, int64_t begin, int64_t end, float *shared, float *worker) {
  tnxk_attn_plan x;
  tnxk_attn_plan_make(p, LANES, &x);
  for (int64_t unit = begin; unit < end; unit++) {
    if (phase == 1) {
      combine_row(p, &x, unit, shared, worker);
      continue;
    }
    rowset u = make_rowset(p, &x, unit / x.splits, worker + x.rows_at);
    int64_t s = unit % x.splits;
    int64_t j_begin = s * TNXK_ATTN_SPLIT, j_end = x.splits == 1 ? p->kv_len : j_begin + TNXK_ATTN_SPLIT;
    if (j_end > p->kv_len) j_end = p->kv_len;
    float *partial = x.splits == 1 ? NULL : shared + unit * x.rows * x.partial;
    if (x.decode) forward_few(p, &x, &u, j_begin, j_end, partial, worker);
    else forward_panels(p, &x, &u, j_begin, j_end, partial, worker);
  }
}
#endif
