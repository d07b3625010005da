/* Internal to the attention family: how a call is cut into units and how scratch is laid out, a function of sizes, strides and dtypes
 * only; the kernels' declarations.
 *
 * A unit is the queries of one batch entry and one group of heads (those that share keys and values): `q_block` positions of every
 * head of the group, flattened to rows: row r is head r / nq of the group, position r % nq of the block. Rows go in panels of
 * `lanes`, one query per vector lane, so that scores are kept transposed, [key][query], and softmax needs no horizontal sums.
 * With few rows (decoding) lanes would idle; then the channels lie along the lanes instead, and the keys are cut into `splits`
 * of fixed length whose partial results a second phase combines. */
#ifndef TNXK_ATTENTION_PLAN_H
#define TNXK_ATTENTION_PLAN_H
#include "kernels/attention/attention.h"

enum {
  TNXK_ATTN_BLOCK = 64,   /* keys handled at once */
  TNXK_ATTN_ROWS = 96,    /* rows wanted in a unit: enough to pay for converting a block of keys and values */
  TNXK_ATTN_SPLIT = 256,  /* keys of a split */
  TNXK_ATTN_ENOUGH = 32   /* with this many units there is no need to split the keys */
};

typedef struct tnxk_attn_plan {
  int64_t group, lanes;
  int64_t q_block, q_blocks, rows, panels; /* rows and panels of a full unit */
  int64_t splits;
  int64_t ldk, ldv; /* padded row lengths of converted blocks, multiples of 32 */
  bool decode;      /* channels along the lanes */
  /* float offsets in the worker's scratch */
  int64_t rows_at, k_at, v_at, q_at, o_at, s_at, m_at, mask_at, floats;
  int64_t partial; /* floats of one row's partial result in shared scratch: maximum, sum, weighted values */
} tnxk_attn_plan;

static inline int64_t tnxk_attn_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static inline void tnxk_attn_plan_make(const tnxk_attention *p, int64_t lanes, tnxk_attn_plan *x) {
  x->lanes = lanes;
  x->group = p->kv_heads ? p->heads / p->kv_heads : 1;
  int64_t per_head = tnxk_attn_round_up((TNXK_ATTN_ROWS + x->group - 1) / x->group, lanes);
  x->q_block = p->q_len <= per_head ? p->q_len : per_head;
  x->q_blocks = x->q_block ? (p->q_len + x->q_block - 1) / x->q_block : 0;
  x->rows = x->group * x->q_block;
  x->panels = (x->rows + lanes - 1) / lanes;
  x->decode = x->rows * 2 <= lanes;
  x->splits = 1;
  if (x->q_blocks == 1 && p->batch * p->kv_heads < TNXK_ATTN_ENOUGH && p->kv_len > TNXK_ATTN_SPLIT)
    x->splits = (p->kv_len + TNXK_ATTN_SPLIT - 1) / TNXK_ATTN_SPLIT;
  x->ldk = tnxk_attn_round_up(p->head_dim, 32);
  x->ldv = tnxk_attn_round_up(p->v_dim, 32);
  int64_t row_slots = x->decode ? x->rows : x->panels * lanes, at = 0;
  x->rows_at = at, at += tnxk_attn_round_up(4 * row_slots, 32); /* heads and positions of the rows, int64 */
  x->k_at = at, at += TNXK_ATTN_BLOCK * x->ldk;
  x->v_at = at, at += TNXK_ATTN_BLOCK * x->ldv;
  x->q_at = at, at += row_slots * x->ldk;
  x->o_at = at, at += row_slots * x->ldv;
  x->s_at = at, at += TNXK_ATTN_BLOCK * (x->decode ? x->rows : lanes);
  x->m_at = at, at += 3 * tnxk_attn_round_up(row_slots, 32); /* maximum, sum, rescaling factor */
  x->mask_at = at, at += TNXK_ATTN_BLOCK * (1 + (x->decode ? x->rows : lanes));
  x->floats = at;
  x->partial = p->v_dim + 2;
}

/* Backward: blocks of keys (for dk and dv) and units of rows as above (for dq). */
typedef struct tnxk_attn_bwd_plan {
  tnxk_attn_plan f; /* never decode or split */
  int64_t kv_blocks;
  int64_t delta, group_dq; /* shared scratch, in floats: all deltas, one group's dq */
  int64_t rows_at, k_at, v_at, qt_at, ot_at, q_at, o_at, dk_at, dv_at, s_at, ds_at, mask_at, floats;
} tnxk_attn_bwd_plan;

static inline void tnxk_attn_bwd_plan_make(const tnxk_attention *p, int64_t lanes, tnxk_attn_bwd_plan *x) {
  tnxk_attn_plan_make(p, lanes, &x->f);
  x->f.decode = false;
  x->f.splits = 1;
  x->kv_blocks = (p->kv_len + TNXK_ATTN_BLOCK - 1) / TNXK_ATTN_BLOCK;
  int64_t at = 0, slots = x->f.panels * lanes;
  x->delta = tnxk_attn_round_up(p->batch * p->heads * p->q_len, 16);
  x->group_dq = x->f.q_blocks * slots * p->head_dim;
  x->rows_at = at, at += tnxk_attn_round_up(4 * slots, 32);
  x->k_at = at, at += TNXK_ATTN_BLOCK * x->f.ldk;
  x->v_at = at, at += TNXK_ATTN_BLOCK * x->f.ldv;
  x->qt_at = at, at += slots * x->f.ldk;       /* transposed, scaled queries */
  x->ot_at = at, at += slots * x->f.ldv;       /* transposed dout */
  x->q_at = at, at += lanes * x->f.ldk;        /* one panel's queries and dout, a row each */
  x->o_at = at, at += lanes * x->f.ldv;
  x->dk_at = at, at += (slots > TNXK_ATTN_BLOCK ? slots : TNXK_ATTN_BLOCK) * x->f.ldk; /* dk, or dq transposed */
  x->dv_at = at, at += TNXK_ATTN_BLOCK * x->f.ldv;
  x->s_at = at, at += TNXK_ATTN_BLOCK * lanes;
  x->ds_at = at, at += TNXK_ATTN_BLOCK * lanes;
  x->mask_at = at, at += TNXK_ATTN_BLOCK * (1 + lanes);
  x->floats = at;
}

#define TNXK_ATTENTION(isa, lanes, all, suffix)                                                                                          \
  void tnxk_attention__##suffix(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);             \
  void tnxk_attention_bwd__##suffix(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);         \
  void tnxk_attention_bwd_fused__##suffix(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
#include "kernels/attention/kernels.def"
#undef TNXK_ATTENTION
#endif
