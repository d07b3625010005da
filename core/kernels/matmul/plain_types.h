/* The plain product of each of its element types, and their prepare function. The including file defines MM_SUFFIX and
 * PLAIN_FMA_F64(a, b, c) on vectors of four float64. */
typedef double vec_f64 __attribute__((vector_size(32)));
typedef uint32_t vec_u32 __attribute__((vector_size(32)));
typedef uint64_t vec_u64 __attribute__((vector_size(32)));

#define PT double
#define PT_V vec_f64
#define PT_FLOAT 1
#define PT_FMA PLAIN_FMA_F64
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
  if (!mm_regular(q)) return false;
  if (q->dtype == TNX_F64) fill_plain(q, MM_NAME(plain) "_f64", run_f64, sizeof(double), out);
  else if (q->dtype == TNX_I64) fill_plain(q, MM_NAME(plain) "_i64", run_u64, sizeof(uint64_t), out);
  else fill_plain(q, MM_NAME(plain) "_i32", run_u32, sizeof(uint32_t), out);
  return true;
}
