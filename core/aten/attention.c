/* Scaled dot product attention: grouped heads, boolean or additive masks, causal, any head size. */
#include "aten/family.h"

static tnx_value bcast_batch(tnx_builder *b, tnx_value x) { return x && tnx_b_rank(b, x) == 3 ? tnx_b_unsqueeze(b, x, 0) : x; }

static double default_scale(tnx_builder *b, tnx_value q) { return 1 / sqrt((double)tnx_b_size(b, q, -1)); }

typedef struct operands { tnx_value q, k, v, mask; double scale; } operands;

/* The operands with four dimensions. A mask is brought to [b, h, l, s] by broadcasting, so that it may have any shape that does. */
static bool prepare(tnx_lower *l, const tnx_arg *q, const tnx_arg *k, const tnx_arg *v, const tnx_arg *mask, const tnx_arg *scale, operands *o) {
  tnx_builder *b = &l->b;
  int rank = tnx_b_rank(b, q->value);
  tnx_dtype t = tnx_b_dtype(b, q->value);
  if ((rank != 3 && rank != 4) || !tnx_dtype_is_float(t) || t != tnx_b_dtype(b, k->value) || t != tnx_b_dtype(b, v->value) || tnx_b_rank(b, k->value) != rank ||
      tnx_b_rank(b, v->value) != rank || tnx_dim_is_symbolic(tnx_b_size(b, q->value, -1))) {
    tnx_b_fail(b, TNX_NOT_IMPLEMENTED, "attention: ranks or dtypes");
    return false;
  }
  *o = (operands){bcast_batch(b, q->value), bcast_batch(b, k->value), bcast_batch(b, v->value), arg_value(mask), 0};
  o->scale = arg_number(scale, default_scale(b, q->value));
  if (o->mask) {
    tnx_dim sizes[4] = {tnx_b_size(b, o->q, 0), tnx_b_size(b, o->q, 1), tnx_b_size(b, o->q, 2), tnx_b_size(b, o->k, 2)};
    o->mask = tnx_b_broadcast_to(b, o->mask, 4, sizes);
  }
  return b->status == TNX_OK;
}

static tnx_value unbatch(tnx_builder *b, tnx_value x, int rank) {
  int first = 0;
  return x && rank == 3 ? tnx_b_squeeze(b, x, &first, 1) : x;
}

/* (output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset, debug_attn_mask). max_q and max_k are integers, the query's
 * and the key's size -2, which the caller fills in; the others are undefined without dropout. */
tnx_status lower_attention_overrideable(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  operands o;
  if (arg_number(a + 4, 0) != 0) return uncovered(l, "dropout");
  if (!prepare(l, a, a + 1, a + 2, a + 3, a + 7, &o)) return b->status;
  tnx_value out = tnx_b_attention(b, o.q, o.k, o.v, o.mask, arg_bool(a + 5), o.scale);
  if (!out) return b->status;
  memset(results, 0, 9 * sizeof *results);
  l->n_results = 9;
  results[0] = unbatch(b, out, tnx_b_rank(b, a[0].value));
  results[1] = out + 1;
  return b->status;
}

tnx_status lower_attention(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  operands o;
  if (arg_number(a + 4, 0) != 0) return uncovered(l, "dropout");
  if (!prepare(l, a, a + 1, a + 2, a + 3, a + 6, &o)) return l->b.status;
  return give(l, results, unbatch(&l->b, tnx_b_attention(&l->b, o.q, o.k, o.v, o.mask, arg_bool(a + 5), o.scale), tnx_b_rank(&l->b, a[0].value)));
}

/* The mask's gradient is not computed: masks that want one are not covered. */
tnx_status lower_attention_overrideable_backward(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_builder *b = &l->b;
  operands o;
  if (arg_number(a + 12, 0) != 0) return uncovered(l, "dropout");
  if (a[5].dims[3] && arg_value(a + 4)) return uncovered(l, "gradient of the mask");
  if (!prepare(l, a + 1, a + 2, a + 3, a + 4, a + 16, &o)) return b->status;
  int rank = tnx_b_rank(b, a[1].value);
  tnx_value d = tnx_b_attention_backward(b, bcast_batch(b, a[0].value), o.q, o.k, o.v, bcast_batch(b, a[6].value), a[7].value, o.mask, arg_bool(a + 13), o.scale);
  if (!d) return b->status;
  l->n_results = 4;
  for (int i = 0; i < 3; i++) results[i] = a[5].dims[i] ? unbatch(b, d + (tnx_value)i, rank) : 0;
  results[3] = 0;
  return b->status;
}
