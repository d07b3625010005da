/* Lowerings: ATen semantics on the builder. A lowering gets the arguments in schema order, tensors as graph values, and fills
 * out[0..n_results-1] (0 where a result is undefined). It returns b->status at its end, or NOT_IMPLEMENTED for a case it does not cover.
 * In-place and out forms use the same lowering: the result is converted and stored by the planner. */
#ifndef TNX_ATEN_LOWER_H
#define TNX_ATEN_LOWER_H
#include "ir/builder.h"

/* c10::MemoryFormat's numbers. */
enum { TNX_FORMAT_CONTIGUOUS, TNX_FORMAT_PRESERVE, TNX_FORMAT_CHANNELS_LAST, TNX_FORMAT_CHANNELS_LAST_3D };

typedef struct tnx_lower {
  tnx_builder b;
  const tnx_row *row;
  uint32_t n_args;
  uint32_t n_results; /* set by lowerings whose count is not 1 */
  const tnx_dim *strides[4]; /* of new results, where the operator decides them whatever the memory format; NULL: it does not */
  int memory_format;  /* of new results; set by lowerings with such an argument. PRESERVE: pointwise results keep their operand's order of dimensions */
} tnx_lower;

typedef tnx_status (*tnx_lower_fn)(tnx_lower *l, const tnx_arg *a, tnx_value *out);

/* Row id -> lowering. */
tnx_lower_fn tnx_row_lowering(uint32_t id);
#endif
