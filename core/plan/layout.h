/* Layouts: where a value's elements lie, with sizes, strides and offset that may be symbolic. Views are layouts of their operand's memory. */
#ifndef TNX_PLAN_LAYOUT_H
#define TNX_PLAN_LAYOUT_H
#include "ir/graph.h"

typedef struct tnx_layout {
  uint32_t buffer; /* of the plan; 0: the value has no memory */
  uint8_t rank, dtype;
  tnx_dim offset; /* elements */
  tnx_dim sizes[TNX_MAX_RANK], strides[TNX_MAX_RANK]; /* elements */
} tnx_layout;

/* Row-major strides of the sizes. */
tnx_status tnx_layout_contiguous(tnx_graph *g, const tnx_value_data *v, uint32_t buffer, tnx_layout *out);
bool tnx_layout_is_contiguous(tnx_graph *g, const tnx_layout *l);
bool tnx_layout_equal(const tnx_layout *a, const tnx_layout *b);
/* The layout of view node n over its operand's layout. *ok_out false: this view of these strides needs a copy of the operand first. */
tnx_status tnx_layout_view(tnx_graph *g, const tnx_node *n, const tnx_layout *x, tnx_layout *out, bool *ok_out);
/* The other way round: the layout the operand of view node n must have so that the view has layout `l`; *ok_out false where there is none. */
tnx_status tnx_layout_unview(tnx_graph *g, const tnx_node *n, const tnx_layout *l, tnx_layout *out, bool *ok_out);
/* x's memory seen with other sizes; *ok_out false where its strides do not allow that. */
tnx_status tnx_layout_reshape(tnx_graph *g, const tnx_layout *x, int rank, const tnx_dim *sizes, tnx_layout *out, bool *ok_out);
/* x with dimension `dim` cut to [start, start + len*step) by step. */
tnx_status tnx_layout_slice(tnx_graph *g, tnx_layout *x, int dim, tnx_dim start, tnx_dim len, int64_t step);
/* Dimension `dim` removed. */
void tnx_layout_drop(tnx_layout *x, int dim);
#endif
