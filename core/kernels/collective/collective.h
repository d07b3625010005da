/* Element-wise reductions over the buffers of several ranks, and scaling: what a communicator computes on the data it moves.
 *
 * The ranks' values are combined in the order in which the buffers are given, so the result's bits do not depend on which rank computes it or when. Halves and float8 are
 * combined in float32 and rounded once. Buffers need the alignment of their elements only; `out` may be one of the inputs. */
#ifndef TNXK_COLLECTIVE_H
#define TNXK_COLLECTIVE_H
#include "base/cpu.h"
#include "tnx/comm.h"
#include "tnx/dtype.h"

/* out[i] = in[0][i] op ... op in[n - 1][i]. AVERAGE divides the sum by n, towards zero for integers. */
typedef void (*tnxk_reduce_fn)(void *out, const void *const *in, int n, int64_t count, bool average);
/* out[i] = in[i] * factor, in float32 for halves and rounded once; integers in double, towards zero. */
typedef void (*tnxk_scale_fn)(void *out, const void *in, int64_t count, double factor);

/* Complex numbers: SUM, AVERAGE and PRODUCT. Bitwise operators: integers and bool. NOT_IMPLEMENTED otherwise. */
tnx_status tnxk_reduce_select(tnx_dtype dtype, tnx_reduce op, tnx_isa isa, tnxk_reduce_fn *out);
tnx_status tnxk_scale_select(tnx_dtype dtype, tnx_isa isa, tnxk_scale_fn *out);
#endif
