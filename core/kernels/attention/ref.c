/* Attention one query at a time in float64: the kernel for float64 on every CPU, and the plainest statement of the formulas.
 * Forward units are queries. Backward: phase 0 finds each query's maximum, sum and delta (the caller's float32 lse would be too
 * coarse for float64), phase 1 each key's dk and dv, phase 2 each query's dq. */
#include <math.h>

#include "base/half.h"
#include "kernels/attention/plan.h"

static double load(uint8_t dtype, const void *base, int64_t at) {
  switch (dtype) {
    case TNX_BOOL: return ((const uint8_t *)base)[at] ? 0 : -INFINITY; /* as a mask */
    case TNX_F32: return ((const float *)base)[at];
    case TNX_BF16: return tnx_bf16_to_f32(((const uint16_t *)base)[at]);
    case TNX_F16: return tnx_f16_to_f32(((const uint16_t *)base)[at]);
    default: return ((const double *)base)[at];
  }
}
static void store(uint8_t dtype, void *base, int64_t at, double v) {
  switch (dtype) {
    case TNX_F32: ((float *)base)[at] = (float)v; break;
    case TNX_BF16: ((uint16_t *)base)[at] = tnx_f32_to_bf16((float)v); break;
    case TNX_F16: ((uint16_t *)base)[at] = tnx_f32_to_f16((float)v); break;
    default: ((double *)base)[at] = v;
  }
}
static double dot(uint8_t dtype, const void *a, int64_t a_at, int64_t a_st, const void *b, int64_t b_at, int64_t b_st, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; c++) sum += load(dtype, a, a_at + c * a_st) * load(dtype, b, b_at + c * b_st);
  return sum;
}

typedef struct query { int64_t b, h, g, i; } query;
static query make_query(const tnxk_attention *p, int64_t unit) {
  query q = {.i = unit % p->q_len, .h = unit / p->q_len % p->heads, .b = unit / p->q_len / p->heads};
  q.g = q.h / (p->heads / p->kv_heads);
  return q;
}
static int64_t at4(const int64_t *st, int64_t b, int64_t h, int64_t i) { return b * st[0] + h * st[1] + i * st[2]; }

static double score(const tnxk_attention *p, const query *q, int64_t j) {
  if (p->is_causal && j > q->i) return -INFINITY;
  double s = p->scale * dot(p->dtype, p->q, at4(p->q_st, q->b, q->h, q->i), p->q_st[3], p->k, at4(p->k_st, q->b, q->g, j), p->k_st[3], p->head_dim);
  return p->mask ? s + load(p->mask_dtype, p->mask, at4(p->mask_st, q->b, q->h, q->i) + j * p->mask_st[3]) : s;
}

void tnxk_attention__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_attention *p = params;
  double *o = worker;
  for (int64_t unit = begin; unit < end; unit++) {
    query q = make_query(p, unit);
    double m = -INFINITY, l = 0;
    for (int64_t c = 0; c < p->v_dim; c++) o[c] = 0;
    for (int64_t j = 0; j < p->kv_len; j++) {
      double s = score(p, &q, j);
      if (s == -INFINITY) continue;
      double top = m > s ? m : s, rescale = exp(m - top), w = exp(s - top);
      int64_t v_at = at4(p->v_st, q.b, q.g, j);
      l = l * rescale + w;
      for (int64_t c = 0; c < p->v_dim; c++) o[c] = o[c] * rescale + w * load(p->dtype, p->v, v_at + c * p->v_st[3]);
      m = top;
    }
    int64_t out_at = at4(p->out_st, q.b, q.h, q.i);
    for (int64_t c = 0; c < p->v_dim; c++) store(p->dtype, p->out, out_at + c * p->out_st[3], l == 0 ? 0 : o[c] / l);
    if (p->lse) p->lse[unit] = l == 0 ? -INFINITY : (float)(m + log(l));
  }
}

typedef struct row_state { double top, sum, delta; } row_state;

/* The weight of key j for a query, and the gradient of its score. */
static double weight(const tnxk_attention_bwd *p, const query *q, int64_t j, const row_state *r, double *ds) {
  const tnxk_attention *f = &p->fwd;
  double s = score(f, q, j);
  if (s == -INFINITY || r->sum == 0) return *ds = 0;
  double w = exp(s - r->top) / r->sum;
  double dp = dot(f->dtype, p->dout, at4(p->dout_st, q->b, q->h, q->i), p->dout_st[3], f->v, at4(f->v_st, q->b, q->g, j), f->v_st[3], f->v_dim);
  *ds = w * (dp - r->delta) * f->scale;
  return w;
}

void tnxk_attention_bwd__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  const tnxk_attention_bwd *p = params;
  const tnxk_attention *f = &p->fwd;
  row_state *rows = shared;
  double *dk = worker, *dv = dk + f->head_dim, ds;
  int64_t group = f->kv_heads ? f->heads / f->kv_heads : 0;
  for (int64_t unit = begin; unit < end; unit++) {
    if (phase == 0) {
      query q = make_query(f, unit);
      row_state r = {.top = -INFINITY};
      for (int64_t j = 0; j < f->kv_len; j++) {
        double s = score(f, &q, j);
        if (s == -INFINITY) continue;
        double top = r.top > s ? r.top : s;
        r.sum = r.sum * exp(r.top - top) + exp(s - top);
        r.top = top;
      }
      r.delta = dot(f->dtype, p->dout, at4(p->dout_st, q.b, q.h, q.i), p->dout_st[3], f->out, at4(f->out_st, q.b, q.h, q.i), f->out_st[3], f->v_dim);
      rows[unit] = r;
    } else if (phase == 1) {
      int64_t j = unit % f->kv_len, g = unit / f->kv_len % f->kv_heads, b = unit / f->kv_len / f->kv_heads;
      for (int64_t c = 0; c < f->head_dim; c++) dk[c] = 0;
      for (int64_t c = 0; c < f->v_dim; c++) dv[c] = 0;
      for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = 0; i < f->q_len; i++) {
          query q = {b, h, g, i};
          double w = weight(p, &q, j, &rows[(b * f->heads + h) * f->q_len + i], &ds);
          int64_t q_at = at4(f->q_st, b, h, i), o_at = at4(p->dout_st, b, h, i);
          for (int64_t c = 0; c < f->head_dim; c++) dk[c] += ds * load(f->dtype, f->q, q_at + c * f->q_st[3]);
          for (int64_t c = 0; c < f->v_dim; c++) dv[c] += w * load(f->dtype, p->dout, o_at + c * p->dout_st[3]);
        }
      for (int64_t c = 0; c < f->head_dim; c++) store(f->dtype, p->dk, at4(p->dk_st, b, g, j) + c * p->dk_st[3], dk[c]);
      for (int64_t c = 0; c < f->v_dim; c++) store(f->dtype, p->dv, at4(p->dv_st, b, g, j) + c * p->dv_st[3], dv[c]);
    } else {
      query q = make_query(f, unit);
      double *dq = dk;
      for (int64_t c = 0; c < f->head_dim; c++) dq[c] = 0;
      for (int64_t j = 0; j < f->kv_len; j++) {
        weight(p, &q, j, &rows[unit], &ds);
        int64_t k_at = at4(f->k_st, q.b, q.g, j);
        for (int64_t c = 0; c < f->head_dim; c++) dq[c] += ds * load(f->dtype, f->k, k_at + c * f->k_st[3]);
      }
      for (int64_t c = 0; c < f->head_dim; c++) store(f->dtype, p->dq, at4(p->dq_st, q.b, q.h, q.i) + c * p->dq_st[3], dq[c]);
    }
  }
}

/* float64 has one way only. */
void tnxk_attention_bwd_fused__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  tnxk_attention_bwd__scalar(params, phase, begin, end, shared, worker);
}
