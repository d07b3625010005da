/* Chooses the reduction over ranks for a dtype and an operator. */
#include "kernels/collective/collective.h"

#define TNXK_COLLECTIVE(isa, reduce, scale)            \
  tnxk_reduce_fn reduce(tnx_dtype dtype, tnx_reduce op); \
  tnxk_scale_fn scale(tnx_dtype dtype);
#include "kernels/collective/kernels.def"
#undef TNXK_COLLECTIVE

static const struct {
  tnx_isa isa;
  tnxk_reduce_fn (*reduce)(tnx_dtype, tnx_reduce);
  tnxk_scale_fn (*scale)(tnx_dtype);
} kernels[] = {
#define TNXK_COLLECTIVE(isa, reduce, scale) {TNX_ISA_##isa, reduce, scale},
#include "kernels/collective/kernels.def"
#undef TNXK_COLLECTIVE
};

static const char *op_name(tnx_reduce op) {
  static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return (unsigned)op < sizeof names / sizeof *names ? names[op] : "unknown operator";
}

tnx_status tnxk_reduce_select(tnx_dtype dtype, tnx_reduce op, tnx_isa isa, tnxk_reduce_fn *out) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (kernels[i].isa > isa) continue;
    *out = kernels[i].reduce(dtype, op);
    if (*out) return TNX_OK;
  }
  if (dtype == TNX_BOOL && op == TNX_REDUCE_AVERAGE) return tnx_fail(TNX_DTYPE, "Cannot use ReduceOp.AVG with Boolean inputs");
  if (op >= TNX_REDUCE_AND && op <= TNX_REDUCE_XOR) return tnx_fail(TNX_DTYPE, "Cannot use ReduceOp.%s with non-integral dtype", op_name(op));
  return tnx_fail(TNX_DTYPE, "Cannot use ReduceOp.%s with %s", op_name(op), dtype < TNX_DTYPE_COUNT ? tnx_dtype_name(dtype) : "this dtype");
}

tnx_status tnxk_scale_select(tnx_dtype dtype, tnx_isa isa, tnxk_scale_fn *out) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (kernels[i].isa > isa) continue;
    *out = kernels[i].scale(dtype);
    if (*out) return TNX_OK;
  }
  return tnx_fail(TNX_DTYPE, "Cannot use ReduceOp.PREMUL_SUM with %s", dtype < TNX_DTYPE_COUNT ? tnx_dtype_name(dtype) : "this dtype");
}
