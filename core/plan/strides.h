/* The memory order of new results. */
#ifndef TNX_PLAN_STRIDES_H
#define TNX_PLAN_STRIDES_H
#include "plan/sharing.h"

/* Strides (in elements) of a pointwise operator's result of `rank` sizes, from its operands in their order: those whose shape broadcasts to the result's
 * are looked at. False: contiguous. Cost grows with operands times rank squared. */
bool tnx_pointwise_strides(const tnx_tensor *tensors, uint32_t n_tensors, int rank, const tnx_dim *sizes, tnx_dim *strides);
#endif
