/* Matmul kernels on the compiler's vectors: what runs without AVX2 and on other processors. */
#define TNXK_VL 4
#define TNXK_MR 4
#define MM_SUFFIX portable
#define DOT_ROWS_1 4
#define DOT_ROWS_2 4
#define DOT_ROWS_3 3

#include "kernels/matmul/small_body.h"
#include "kernels/matmul/gemm_body.h"

#define PLAIN_FMA_F64(a, b, c) ((a) * (b) + (c))
#include "kernels/matmul/plain_types.h"
