/* Strided tensors as values over memory seen as one row of elements: how a compiled program, whose inputs and outputs are ranges of memory, reads and writes any layout. */
#ifndef TNX_PLAN_FLAT_H
#define TNX_PLAN_FLAT_H
#include "ir/builder.h"

/* A tensor's layout in numbers, within a range of memory. */
typedef struct tnx_view {
  int32_t rank;
  uint8_t dtype;
  int64_t offset; /* elements */
  int64_t sizes[TNX_MAX_RANK], strides[TNX_MAX_RANK];
} tnx_view;

int64_t tnx_view_numel(const tnx_view *v);
/* Elements from the first to the last one, both included; 0 for an empty tensor. */
int64_t tnx_view_span(const tnx_view *v);
/* Each element of the span once: the dimensions in some order are row-major. */
bool tnx_view_is_dense(const tnx_view *v);

/* The tensor within flat, a value of one dimension. Slices, reshapes and transposes where the strides nest; a gather where they do not. */
tnx_value tnx_flat_load(tnx_builder *b, tnx_value flat, const tnx_view *v);
/* flat with x, of v's sizes, written into the tensor. flat 0: the tensor is dense and is all there is. */
tnx_value tnx_flat_store(tnx_builder *b, tnx_value flat, const tnx_view *v, tnx_value x);
#endif
