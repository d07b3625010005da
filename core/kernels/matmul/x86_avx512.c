/* Matmul kernels for AVX-512: thirty-two registers, a 12 x 32 micro-kernel for float32 sums. With TNX_EMULATE_ISA the same
 * logic in plain C, for tests on other machines. */
#define TNXK_VL 16
#define TNXK_MR 12
#if defined(TNX_EMULATE_ISA)
#define MM_SUFFIX avx512_emulated
#else
#define TNXK_VEC_AVX512
#define MM_SUFFIX avx512
#endif
#define DOT_ROWS_1 4
#define DOT_ROWS_2 4
#define DOT_ROWS_3 6

#include "kernels/matmul/small_body.h"
#include "kernels/matmul/gemm_body.h"
