/* Matmul kernels for AVX2 + FMA + F16C: sixteen registers, a 6 x 16 micro-kernel. */
#define TNXK_VL 8
#define TNXK_VEC_AVX2
#define TNXK_MR 6
#define MM_SUFFIX avx2
#define DOT_ROWS_1 4
#define DOT_ROWS_2 4
#define DOT_ROWS_3 3

#include "kernels/matmul/small_body.h"
#include "kernels/matmul/gemm_body.h"
