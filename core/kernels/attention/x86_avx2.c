/* Attention for AVX2 and FMA: panels of 16 queries, float32, bfloat16 and float16. */
#define VW 8
#define TNXK_VEC_AVX2
#include "kernels/attention/body_bwd.h"

void tnxk_attention__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  forward_body(params, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, false, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd_fused__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, true, phase, begin, end, shared, worker);
}
