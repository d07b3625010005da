/* Matrix multiplication: c = act(alpha * a @ b + beta * add), batched, any strides, with float32 accumulation for
 * float32, bfloat16, float16 (and float64 for float64, int64 for integers).
 *
 *   a [batch.., m, k]   b [batch.., k, n]   add (broadcast: any stride may be 0)   c [batch.., m, n]
 *
 * A weight in PyTorch's layout [n, k] is b with b_rs = 1, b_cs = k: it is read in place, never repacked whole. */
#ifndef TNXK_MATMUL_H
#define TNXK_MATMUL_H
#include "kernels/kernel.h"

typedef enum tnxk_act { TNXK_ACT_NONE, TNXK_ACT_RELU, TNXK_ACT_SILU, TNXK_ACT_GELU_ERF, TNXK_ACT_GELU_TANH } tnxk_act;

enum { TNXK_MATMUL_MAX_BATCH_RANK = 4, TNXK_MATMUL_WINDOW_RANK = 4 };

typedef struct tnxk_matmul {
  int64_t m, n, k; /* any may be 0: k == 0 leaves beta * add (or zeros) */
  const void *a, *b, *add;
  void *c; /* add == NULL: no term */
  /* strides in elements */
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs, c_cs, add_rs, add_cs;
  int32_t batch_rank;
  int64_t batch[TNXK_MATMUL_MAX_BATCH_RANK];
  int64_t a_bs[TNXK_MATMUL_MAX_BATCH_RANK], b_bs[TNXK_MATMUL_MAX_BATCH_RANK], c_bs[TNXK_MATMUL_MAX_BATCH_RANK],
      add_bs[TNXK_MATMUL_MAX_BATCH_RANK];
  uint8_t dtype;     /* of a and b: F32, BF16, F16, F64, or an integer type (I64 I32 I16 I8 U8) */
  uint8_t c_dtype;   /* of c: dtype, or F32 for BF16/F16 inputs */
  uint8_t add_dtype; /* of add: any float type for float inputs */
  uint8_t act;       /* tnxk_act, float types only */
  bool b_int8;       /* b and gate are int8, whose numbers float32, bfloat16 and float16 hold exactly: read in place, converted in registers */
  double alpha, beta; /* integers: both are whole numbers; beta == 0 ignores add, whatever it holds */
  /* a second product fused behind the first: c = act(a @ b) * (a @ gate), where gate has b's shape and strides; NULL: none.
   * (the gated MLP of Llama-like models) */
  const void *gate;
  /* b as the windows of an image, read where it lies: its rows (k) and its columns (n) are each walked by several dimensions, the last one
   * fastest, sizes 1 where there are fewer; b_rs and b_cs say nothing. float32, bfloat16 and float16, k > 0, no gate. */
  bool b_windows;
  int64_t bk[TNXK_MATMUL_WINDOW_RANK], bk_st[TNXK_MATMUL_WINDOW_RANK], bn[TNXK_MATMUL_WINDOW_RANK], bn_st[TNXK_MATMUL_WINDOW_RANK];
} tnxk_matmul;

/* Fills *out with the best kernel for this CPU at most at level `isa`. NOT_IMPLEMENTED for a dtype not listed. */
tnx_status tnxk_matmul_select(const tnxk_matmul *p, tnx_isa isa, int workers, tnxk_kernel *out);
#endif
