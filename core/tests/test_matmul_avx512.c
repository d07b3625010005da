/* The AVX-512 matmul kernels' logic, emulated in plain C. */
#define TNX_EMULATE_ISA
#include "kernels/matmul/x86_avx512.c"

#include "matmul_cases.h"

static tnx_status select_small(const tnxk_matmul *p, tnxk_kernel *out) {
  static const tnxk_matmul_prepare_fn list[] = {tnxk_matmul_small_nk__avx512_emulated_prepare,
                                                tnxk_matmul_small_kn__avx512_emulated_prepare,
                                                tnxk_matmul_gemm__avx512_emulated_prepare};
  return mc_first(p, list, 3, out);
}
static tnx_status select_gemm(const tnxk_matmul *p, tnxk_kernel *out) {
  static const tnxk_matmul_prepare_fn list[] = {tnxk_matmul_gemm__avx512_emulated_prepare};
  return mc_first(p, list, 1, out);
}

static void all(matmul_select_fn select, int count, int64_t big) {
  mc_many(select, TNX_F32, count, big);
  mc_many(select, TNX_BF16, count, big);
  mc_many(select, TNX_F16, count, big);
}

TEST(small) { all(select_small, 200, 80); }
TEST(gemm) { all(select_gemm, 150, 80); }
TEST(large) { all(select_gemm, 10, 400); }

int main(void) {
  RUN(small);
  RUN(gemm);
  RUN(large);
  return TEST_END;
}
