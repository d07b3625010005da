/* Matmul kernels for AVX2 + FMA + F16C: sixteen registers, a 6 x 16 micro-kernel for float32 sums; float64 and integers by
 * the plain blocked product. */
#define TNXK_VL 8
#define TNXK_VEC_AVX2
#define TNXK_MR 6
#define MM_SUFFIX avx2
#define DOT_ROWS_1 4
#define DOT_ROWS_2 4
#define DOT_ROWS_3 3

#include "kernels/matmul/small_body.h"
#include "kernels/matmul/gemm_body.h"

#define PLAIN_FMA_F64(a, b, c) ((vec_f64)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#include "kernels/matmul/plain_types.h"
