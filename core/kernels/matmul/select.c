/* Chooses the matmul kernel: the first row of kernels.def that fits the dtype, the CPU and the shape. */
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_internal.h"

static const struct {
  tnxk_matmul_prepare_fn prepare;
  tnx_isa isa;
  uint32_t dtypes;
} kernels[] = {
#define D(t) (1u << TNX_##t)
#define TNXK_MATMUL_KERNEL(op, suffix, isa, dtypes) {tnxk_matmul_##op##__##suffix##_prepare, TNX_ISA_##isa, dtypes},
#include "kernels/matmul/kernels.def"
#undef TNXK_MATMUL_KERNEL
#undef D
};

static bool is_float(uint8_t t) { return t == TNX_F32 || t == TNX_BF16 || t == TNX_F16 || t == TNX_F64; }

static tnx_status check(const tnxk_matmul *p) {
  if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch_rank < 0 || p->batch_rank > TNXK_MATMUL_MAX_BATCH_RANK)
    return tnx_fail(TNX_INVALID_ARGUMENT, "matmul: bad size m=%lld n=%lld k=%lld batch rank=%d", (long long)p->m,
                    (long long)p->n, (long long)p->k, (int)p->batch_rank);
  bool narrow = p->dtype == TNX_BF16 || p->dtype == TNX_F16;
  if (p->c_dtype != p->dtype && !(narrow && p->c_dtype == TNX_F32))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: output type %s for inputs of %s", tnx_dtype_name((tnx_dtype)p->c_dtype),
                    tnx_dtype_name((tnx_dtype)p->dtype));
  if (p->add && (is_float(p->dtype) ? !is_float(p->add_dtype) : p->add_dtype != p->dtype))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: added term of %s for inputs of %s",
                    tnx_dtype_name((tnx_dtype)p->add_dtype), tnx_dtype_name((tnx_dtype)p->dtype));
  if (!is_float(p->dtype) && (p->act != TNXK_ACT_NONE || p->gate))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: activation or gate with integers");
  if (p->b_int8 && (!is_float(p->dtype) || p->dtype == TNX_F64 || p->b_windows))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: int8 with %s", p->b_windows ? "windows" : tnx_dtype_name((tnx_dtype)p->dtype));
  if (p->b_windows && (p->gate || p->k == 0 || p->dtype == TNX_F64 || !is_float(p->dtype)))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: windows with a gate, an empty sum or %s", tnx_dtype_name((tnx_dtype)p->dtype));
  return TNX_OK;
}

tnx_status tnxk_matmul_select(const tnxk_matmul *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  (void)workers; /* the split into units is fixed by the problem, so results do not depend on the machine's load */
  TNX_TRY(check(p));
  tnxk_matmul q = mm_canonical(p);
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
    if (kernels[i].isa > isa || !(kernels[i].dtypes >> p->dtype & 1)) continue;
    *out = (tnxk_kernel){0};
    if (kernels[i].prepare(&q, out)) return TNX_OK;
  }
  return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul: no kernel for %s", tnx_dtype_name((tnx_dtype)p->dtype));
}
