/* Sort and top-k compiled for AVX2: the key and threshold loops of topk_body.h become 8-lane code. */
#include "kernels/scan/topk_body.h"

void tnxk_topk__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  topk_body(params, begin, end, worker);
}
