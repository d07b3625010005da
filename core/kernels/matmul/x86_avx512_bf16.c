/* Matmul kernels for AVX512_BF16: bfloat16 stays packed in pairs, VDPBF16PS multiplies and adds them into float32. The
 * instruction rounds to nearest even and takes subnormals as zero. With TNX_EMULATE_ISA the same logic in plain C. */
#define TNXK_VL 16
#define TNXK_MR 12
#define TNXK_PAIRS
#if defined(TNX_EMULATE_ISA)
#define MM_SUFFIX avx512_bf16_emulated
#else
#define TNXK_VEC_AVX512
#define MM_SUFFIX avx512_bf16
#endif
#define DOT_ROWS_1 4
#define DOT_ROWS_2 4
#define DOT_ROWS_3 6

#include "kernels/matmul/small_body.h"
#include "kernels/matmul/gemm_body.h"
