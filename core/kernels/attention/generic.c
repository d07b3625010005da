/* Attention for any CPU, over the compiler's portable vectors: float32, bfloat16 and float16. */
#define VW 4
#include "kernels/attention/body_bwd.h"

void tnxk_attention__generic(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  forward_body(params, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd__generic(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, false, phase, begin, end, shared, worker);
}
void tnxk_attention_bwd_fused__generic(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  backward_body(params, true, phase, begin, end, shared, worker);
}
