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

typedef double vec_f64 __attribute__((vector_size(32)));
typedef uint32_t vec_u32 __attribute__((vector_size(32)));
typedef uint64_t vec_u64 __attribute__((vector_size(32)));

#define PT double
#define PT_V vec_f64
#define PT_FLOAT 1
#define PT_FMA(a, b, c) ((vec_f64)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define PT_NAME f64
#include "kernels/matmul/plain_body.h"

#define PT uint32_t
#define PT_V vec_u32
#define PT_FLOAT 0
#define PT_FMA(a, b, c) ((a) * (b) + (c))
#define PT_NAME u32
#include "kernels/matmul/plain_body.h"

#define PT uint64_t
#define PT_V vec_u64
#define PT_FLOAT 0
#define PT_FMA(a, b, c) ((a) * (b) + (c))
#define PT_NAME u64
#include "kernels/matmul/plain_body.h"

bool MM_PREPARE(plain)(const tnxk_matmul *q, tnxk_kernel *out) {
  if (q->m == 0 || q->n == 0 || q->k == 0) return false;
  if (q->dtype == TNX_F64) fill_plain(q, MM_NAME(plain) "_f64", run_f64, sizeof(double), out);
  else if (q->dtype == TNX_I64) fill_plain(q, MM_NAME(plain) "_i64", run_u64, sizeof(uint64_t), out);
  else fill_plain(q, MM_NAME(plain) "_i32", run_u32, sizeof(uint32_t), out);
  return true;
}
