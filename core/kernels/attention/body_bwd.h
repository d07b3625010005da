/* Internal to the attention family: the backward kernel, over the same vocabulary and helpers as body.h.
 *
 * With p = exp(score - lse), dp = dout . v and delta = dout . out:
 *   ds = p * (dp - delta) * scale,   dv = sum_i p dout,   dk = sum_i ds q,   dq = sum_j ds k.
 * Phase 0: delta of every query (shared scratch). Then one of two ways, with the same operations in the same order for every result:
 *   fused, where groups alone keep the threads busy: phase 1 has a unit for each group of a batch entry, whose dq is summed in shared
 *     scratch while its blocks of keys are walked;
 *   split: phase 1 gives dk and dv, a unit for each block of keys; phase 2 gives dq, units as in the forward kernel; p and ds are
 *     computed twice.
 * Every sum has one owner and a fixed order. Scores are kept [key][query] throughout. */
#ifndef TNXK_ATTENTION_BODY_BWD_H
#define TNXK_ATTENTION_BODY_BWD_H
#include "kernels/attention/body.h"

/* c[m][cols] += a[m][k] b[k][cols], cols a multiple of LANES. */
static __attribute__((noinline)) void product_add(int64_t m, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t cols,
                                                  float *c, int64_t ldc) {
  for (int64_t x = 0; x < cols; x += LANES) product_any(FROM_C, m, k, a, lda, 1, b + x, ldb, c + x, ldc, NULL);
}

static void delta_row(const tnxk_attention_bwd *p, int64_t row, float *delta) {
  const tnxk_attention *f = &p->fwd;
  int64_t i = row % f->q_len, h = row / f->q_len % f->heads, b = row / f->q_len / f->heads;
  int64_t at = b * f->out_st[0] + h * f->out_st[1] + i * f->out_st[2], dat = b * p->dout_st[0] + h * p->dout_st[1] + i * p->dout_st[2];
  float sum = 0;
  for (int64_t c = 0; c < f->v_dim; c++)
    sum += load_elem(f->dtype, f->out, at + c * f->out_st[3]) * load_elem(f->dtype, p->dout, dat + c * p->dout_st[3]);
  delta[row] = sum;
}

/* The weights p of one panel against n keys into s, and ds into ds (both [key][lane]). Returns false if nothing takes part.
 * qt and ot are the panel's transposed scaled queries and dout. */
static bool backward_panel(const tnxk_attention *f, const rowset *u, int64_t r0, int64_t lanes, int64_t j0, int64_t n, const float *k, int64_t ldk,
                           const float *v, int64_t ldv, const float *qt, const float *ot, const float *delta, float *add, float *s, float *ds) {
  bool shared = true;
  mask_effect effect = f->mask ? mask_panel(f, u, r0, lanes, j0, n, add, &shared) : MASK_NONE;
  if (effect == MASK_ALL) return false;
  product_rows(n, f->head_dim, k, ldk, qt, LANES, s, LANES);
  apply_masks(f, u, r0, lanes, j0, n, effect, shared, add, s);
  product_rows(n, f->v_dim, v, ldv, ot, LANES, ds, LANES);
  float lse[LANES], dl[LANES];
  for (int64_t r = 0; r < LANES; r++) {
    lse[r] = INFINITY, dl[r] = 0; /* p = 0 in unused lanes and in rows that are masked whole */
    if (r >= lanes) continue;
    int64_t at = (u->b * f->heads + u->head[r0 + r]) * f->q_len + u->pos[r0 + r];
    if (f->lse[at] != -INFINITY) lse[r] = f->lse[at];
    dl[r] = delta[at];
  }
  const vf scale = vf_set1((float)f->scale);
  for (int h = 0; h < LANES; h += VW) {
    vf top = vf_load(lse + h), d = vf_load(dl + h);
    for (int64_t j = 0; j < n; j++) {
      vf w = vf_exp(vf_sub(vf_load(s + j * LANES + h), top));
      vf_store(s + j * LANES + h, w);
      vf_store(ds + j * LANES + h, vf_mul(vf_mul(w, vf_sub(vf_load(ds + j * LANES + h), d)), scale));
    }
  }
  return true;
}

/* dk and dv of one block of keys; dq, if not NULL, holds the transposed dq of all of the group's panels and is added to. */
static void backward_keys(const tnxk_attention_bwd *p, const tnxk_attn_bwd_plan *x, int64_t unit, const float *delta, float *dq, float *w) {
  const tnxk_attention *f = &p->fwd;
  int64_t j0 = unit % x->kv_blocks * TNXK_ATTN_BLOCK, bg = unit / x->kv_blocks, g = bg % f->kv_heads, b = bg / f->kv_heads;
  int64_t n = f->kv_len - j0 < TNXK_ATTN_BLOCK ? f->kv_len - j0 : TNXK_ATTN_BLOCK, ldk, ldv, lk = x->f.ldk, lv = x->f.ldv;
  const float *k = load_block(f->dtype, f->k, b * f->k_st[0] + g * f->k_st[1] + j0 * f->k_st[2], f->k_st, n, f->head_dim, lk, w + x->k_at, &ldk);
  const float *v = load_block(f->dtype, f->v, b * f->v_st[0] + g * f->v_st[1] + j0 * f->v_st[2], f->v_st, n, f->v_dim, lv, w + x->v_at, &ldv);
  float *dk = w + x->dk_at, *dv = w + x->dv_at, *q = w + x->q_at, *o = w + x->o_at, *s = w + x->s_at, *ds = w + x->ds_at, one[LANES];
  for (int r = 0; r < LANES; r++) one[r] = 1;
  memset(dk, 0, sizeof(float) * (size_t)(n * lk));
  memset(dv, 0, sizeof(float) * (size_t)(n * lv));
  for (int64_t qb = 0; qb < x->f.q_blocks; qb++) {
    rowset u = make_rowset(f, &x->f, bg * x->f.q_blocks + qb, w + x->rows_at);
    for (int64_t r0 = 0; r0 < u.n; r0 += LANES) {
      int64_t lanes = u.n - r0 < LANES ? u.n - r0 : LANES, keys = visible_keys(f, &u, r0, lanes) - j0;
      if (keys <= 0) continue;
      if (keys > n) keys = n;
      load_transposed(f->dtype, f->q, f->q_st, &u, r0, lanes, f->head_dim, (float)f->scale, w + x->qt_at);
      load_transposed(f->dtype, p->dout, p->dout_st, &u, r0, lanes, f->v_dim, 1, w + x->ot_at);
      if (!backward_panel(f, &u, r0, lanes, j0, keys, k, ldk, v, ldv, w + x->qt_at, w + x->ot_at, delta, w + x->mask_at, s, ds)) continue;
      for (int64_t r = 0; r < lanes; r++) {
        load_row(f->dtype, f->q, row_at(&u, r0 + r, f->q_st), f->q_st[3], f->head_dim, lk, 1, q + r * lk);
        load_row(f->dtype, p->dout, row_at(&u, r0 + r, p->dout_st), p->dout_st[3], f->v_dim, lv, 1, o + r * lv);
      }
      product_add(keys, lanes, s, LANES, o, lv, lv, dv, lv);
      product_add(keys, lanes, ds, LANES, q, lk, lk, dk, lk);
      if (dq) product_columns(f->head_dim, keys, k, ldk, ds, LANES, dq + (qb * x->f.panels * LANES + r0) * f->head_dim, LANES, one);
    }
  }
  for (int64_t j = 0; j < n; j++) {
    int64_t at = b * p->dk_st[0] + g * p->dk_st[1] + (j0 + j) * p->dk_st[2];
    for (int64_t c = 0; c < f->head_dim; c++) store_elem(f->dtype, p->dk, at + c * p->dk_st[3], dk[j * lk + c]);
    at = b * p->dv_st[0] + g * p->dv_st[1] + (j0 + j) * p->dv_st[2];
    for (int64_t c = 0; c < f->v_dim; c++) store_elem(f->dtype, p->dv, at + c * p->dv_st[3], dv[j * lv + c]);
  }
}

static void store_dq(const tnxk_attention_bwd *p, const rowset *u, const float *dq) {
  for (int64_t r = 0; r < u->n; r++) {
    int64_t at = row_at(u, r, p->dq_st), d = p->fwd.head_dim;
    const float *from = dq + r / LANES * LANES * d + r % LANES;
    for (int64_t c = 0; c < d; c++) store_elem(p->fwd.dtype, p->dq, at + c * p->dq_st[3], from[c * LANES]);
  }
}

/* Everything of one group of one batch entry; dq has room for its panels. */
static void backward_group(const tnxk_attention_bwd *p, const tnxk_attn_bwd_plan *x, int64_t bg, const float *delta, float *dq, float *w) {
  memset(dq, 0, sizeof(float) * (size_t)x->group_dq);
  for (int64_t j = 0; j < x->kv_blocks; j++) backward_keys(p, x, bg * x->kv_blocks + j, delta, dq, w);
  for (int64_t qb = 0; qb < x->f.q_blocks; qb++) {
    rowset u = make_rowset(&p->fwd, &x->f, bg * x->f.q_blocks + qb, w + x->rows_at);
    store_dq(p, &u, dq + qb * x->f.panels * LANES * p->fwd.head_dim);
  }
}

/* dq of one unit of rows. */
static void backward_queries(const tnxk_attention_bwd *p, const tnxk_attn_bwd_plan *x, int64_t unit, const float *delta, float *w) {
  const tnxk_attention *f = &p->fwd;
  rowset u = make_rowset(f, &x->f, unit, w + x->rows_at);
  float *qt = w + x->qt_at, *ot = w + x->ot_at, *dq = w + x->dk_at, *s = w + x->s_at, *ds = w + x->ds_at, one[LANES];
  int64_t lk = x->f.ldk, lv = x->f.ldv, d = f->head_dim, limit = 0;
  for (int r = 0; r < LANES; r++) one[r] = 1;
  for (int64_t r0 = 0; r0 < u.n; r0 += LANES) {
    int64_t lanes = u.n - r0 < LANES ? u.n - r0 : LANES, visible = visible_keys(f, &u, r0, lanes);
    if (visible > limit) limit = visible;
    load_transposed(f->dtype, f->q, f->q_st, &u, r0, lanes, d, (float)f->scale, qt + r0 * lk);
    load_transposed(f->dtype, p->dout, p->dout_st, &u, r0, lanes, f->v_dim, 1, ot + r0 * lv);
    memset(dq + r0 * d, 0, sizeof(float) * (size_t)(d * LANES));
  }
  int64_t k_at = u.b * f->k_st[0] + u.g * f->k_st[1], v_at = u.b * f->v_st[0] + u.g * f->v_st[1];
  for (int64_t j0 = 0; j0 < limit; j0 += TNXK_ATTN_BLOCK) {
    int64_t n = limit - j0 < TNXK_ATTN_BLOCK ? limit - j0 : TNXK_ATTN_BLOCK, ldk, ldv;
    const float *k = load_block(f->dtype, f->k, k_at + j0 * f->k_st[2], f->k_st, n, d, lk, w + x->k_at, &ldk);
    const float *v = load_block(f->dtype, f->v, v_at + j0 * f->v_st[2], f->v_st, n, f->v_dim, lv, w + x->v_at, &ldv);
    for (int64_t r0 = 0; r0 < u.n; r0 += LANES) {
      int64_t lanes = u.n - r0 < LANES ? u.n - r0 : LANES, keys = visible_keys(f, &u, r0, lanes) - j0;
      if (keys <= 0) continue;
      if (keys > n) keys = n;
      if (!backward_panel(f, &u, r0, lanes, j0, keys, k, ldk, v, ldv, qt + r0 * lk, ot + r0 * lv, delta, w + x->mask_at, s, ds)) continue;
      product_columns(d, keys, k, ldk, ds, LANES, dq + r0 * d, LANES, one);
    }
  }
  store_dq(p, &u, dq);
}

static void backward_body(const tnxk_attention_bwd *p, const bool fused, uint32_t phase, int64_t begin, int64_t end, float *shared, float *worker) {
  tnxk_attn_bwd_plan x;
  tnxk_attn_bwd_plan_make(&p->fwd, LANES, &x);
  for (int64_t unit = begin; unit < end; unit++) {
    if (phase == 0) delta_row(p, unit, shared);
    else if (fused) backward_group(p, &x, unit, shared, shared + x.delta + unit * x.group_dq, worker);
    else if (phase == 1) backward_keys(p, &x, unit, shared, NULL, worker);
    else backward_queries(p, &x, unit, shared, worker);
  }
}
#endif
