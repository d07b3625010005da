/* Attention for AVX-512: panels of 32 queries, float32, bfloat16 and float16. */
#define VW 16
#define TNXK_VEC_AVX512
#include "kernels/attention/body_bwd.h"

void tnxk_attention__avx512(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  forward_body(params, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd__avx512(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, false, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd_fused__avx512(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, true, phase, begin, end, shared, worker);
}
