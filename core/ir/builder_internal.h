/* What the builder's files share. */
#ifndef TNX_IR_BUILDER_INTERNAL_H
#define TNX_IR_BUILDER_INTERNAL_H
#include <stdio.h>

#include "ir/builder.h"

/* Adds a node with sticky errors; operands must not be 0. */
tnx_value tnx_b_node(tnx_builder *b, tnx_op op, const tnx_value *in, uint32_t n_in, const tnx_dim *ints, uint32_t n_ints, const double *floats, uint32_t n_floats,
                     const tnx_type *types, uint32_t n_types);
/* Do as_strided's places lie within x's row-major elements? Unknown (symbolic) counts as yes. */
bool tnx_b_strided_fits(tnx_builder *b, tnx_value x, int rank, const tnx_dim *sizes, const tnx_dim *strides, tnx_dim offset);
bool tnx_b_is_const(const tnx_builder *b, tnx_value v);
bool tnx_b_const_value(const tnx_builder *b, tnx_value v, double *out);
#endif
