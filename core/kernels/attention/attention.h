/* Scaled dot product attention that never writes the score matrix.
 *
 *   out[b,h,i,:] = softmax_j(scale * q[b,h,i,:] . k[b,g,j,:] + mask[b,h,i,j]) @ v[b,g,:,:],   g = h / (heads / kv_heads)
 *
 * With is_causal, j > i is masked (top-left aligned, as torch's scaled_dot_product_attention). Rows whose every position is masked give
 * 0 in out (and -inf in lse), as PyTorch's fused kernels and _safe_softmax do. Float32 accumulation. */
#ifndef TNXK_ATTENTION_H
#define TNXK_ATTENTION_H
#include "kernels/kernel.h"

typedef struct tnxk_attention {
  int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, v_dim; /* heads % kv_heads == 0 */
  const void *q, *k, *v, *mask; /* mask may be NULL */
  void *out;                    /* same dtype as q */
  float *lse;                   /* log-sum-exp [batch, heads, q_len], contiguous; NULL: not wanted */
  /* element strides over (batch, head, position, channel) */
  int64_t q_st[4], k_st[4], v_st[4], out_st[4];
  int64_t mask_st[4]; /* over (batch, head, query, key); 0 = broadcast */
  uint8_t dtype;      /* of q, k, v, out: F32, BF16, F16, F64 */
  uint8_t mask_dtype; /* BOOL (true = takes part), or a float type (added) */
  bool is_causal;
  double scale;
} tnxk_attention;

tnx_status tnxk_attention_select(const tnxk_attention *p, tnx_isa isa, int workers, tnxk_kernel *out);

/* Backward: dq, dk, dv from dout, with the forward's out and lse. dk and dv are summed over a group's heads. Same shapes and
 * strides convention; deterministic. */
typedef struct tnxk_attention_bwd {
  tnxk_attention fwd; /* its out and lse hold the forward's results */
  const void *dout;
  void *dq, *dk, *dv;
  int64_t dout_st[4], dq_st[4], dk_st[4], dv_st[4];
} tnxk_attention_bwd;

tnx_status tnxk_attention_bwd_select(const tnxk_attention_bwd *p, tnx_isa isa, int workers, tnxk_kernel *out);
#endif
