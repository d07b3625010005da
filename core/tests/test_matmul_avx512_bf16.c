/* The AVX512_BF16 matmul kernels' logic, emulated in plain C. */
#define TNX_EMULATE_ISA
#include "kernels/matmul/x86_avx512_bf16.c"

#include "matmul_cases.h"

static tnx_status select_small(const tnxk_matmul *p, tnxk_kernel *out) {
  static const tnxk_matmul_prepare_fn list[] = {tnxk_matmul_small_nk__avx512_bf16_emulated_prepare,
                                                tnxk_matmul_gemm__avx512_bf16_emulated_prepare};
  return mc_first(p, list, 2, out);
}
static tnx_status select_gemm(const tnxk_matmul *p, tnxk_kernel *out) {
  static const tnxk_matmul_prepare_fn list[] = {tnxk_matmul_gemm__avx512_bf16_emulated_prepare};
  return mc_first(p, list, 1, out);
}

TEST(small) { mc_many(select_small, TNX_BF16, 400, 80); }
TEST(gemm) { mc_many(select_gemm, TNX_BF16, 300, 80); }
TEST(large) { mc_many(select_gemm, TNX_BF16, 12, 700); }

int main(void) {
  RUN(small);
  RUN(gemm);
  RUN(large);
  return TEST_END;
}
