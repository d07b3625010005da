/* Which tensors of a call share memory with one that is written, and whether PyTorch refuses that. */
#ifndef TNX_PLAN_SHARING_H
#define TNX_PLAN_SHARING_H
#include "ir/graph.h"

typedef enum tnx_overlap {
  TNX_OVERLAP_NONE,
  TNX_OVERLAP_FULL,    /* the same bytes in the same order, seen as another dtype */
  TNX_OVERLAP_UNKNOWN, /* the same range of addresses, with gaps: whether an element is shared is not looked into */
  TNX_OVERLAP_PARTLY   /* some elements are certainly shared, and not all of them at the same places */
} tnx_overlap;

/* Of one tensor of a call. */
typedef struct tnx_sharing {
  uint32_t alias;  /* the first tensor that is the very same memory (address, dtype, sizes, strides), one of them written; TNX_NO_TENSOR: none */
  uint8_t overlap; /* tnx_overlap with a written tensor (or, for a written one, with any other): the worst one */
} tnx_sharing;

/* Fills s[0 .. n_tensors). Reads addresses only where two tensors' storages meet. */
void tnx_sharing_find(const tnx_call *c, tnx_sharing *s);

/* Rows that apply another to each element of lists (TNX_ROW_EACH) run them as one graph, where PyTorch's loop lets an element see what an earlier one
 * wrote: written elements that share memory are NOT_IMPLEMENTED. */
tnx_status tnx_sharing_check_elements(const tnx_call *c, const tnx_sharing *s);

/* PyTorch's rules for what is written, for a call whose graph is complete (outputs added): elementwise operators refuse operands that partly overlap their
 * result, indexed writes (TNX_ROW_APART) refuse any overlap, and nothing is written that holds an element twice. */
tnx_status tnx_sharing_check(const tnx_call *c, const tnx_sharing *s, const tnx_graph *g);

/* Whether v is computed from operands element by element, as TensorIterator's operators are. */
bool tnx_value_is_elementwise(const tnx_graph *g, tnx_value v);

/* Memory without gaps or overlap, in some order of the dimensions. */
bool tnx_tensor_is_dense(const tnx_tensor *t);
#endif
