/* Memory that the tensors of a call share. The rules and words are those of ATen's MemoryOverlap, which looks at dense tensors only and calls the rest too
 * hard: such overlaps are computed as if the operands had been read before anything is written. */
#include "plan/sharing.h"

#include <stdlib.h>

typedef struct extent { uintptr_t begin, end; } extent;

static extent extent_of(const tnx_tensor *t) {
  int64_t low = 0, high = 0, elem = (int64_t)tnx_dtype_size((tnx_dtype)t->dtype);
  uintptr_t at = (uintptr_t)t->data;
  for (int i = 0; i < t->rank; i++) {
    if (t->sizes[i] == 0) return (extent){at, at};
    int64_t span = (t->sizes[i] - 1) * t->strides[i];
    if (span > 0) high += span;
    else low += span;
  }
  return (extent){at + (uintptr_t)(low * elem), at + (uintptr_t)((high + 1) * elem)};
}

bool tnx_tensor_is_dense(const tnx_tensor *t) {
  bool done[TNX_MAX_RANK] = {false};
  int64_t want = 1;
  for (int n = 0; n < t->rank; n++) {
    int found = -1;
    for (int i = 0; i < t->rank && found < 0; i++)
      if (!done[i] && (t->sizes[i] == 1 || t->strides[i] == want)) found = i;
    if (found < 0) return false;
    done[found] = true;
    if (t->sizes[found] != 1) want *= t->sizes[found];
  }
  return true;
}

static bool same_strides(const tnx_tensor *a, const tnx_tensor *b, bool sizes_too) {
  bool same = a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++)
    same = (a->strides[i] == b->strides[i] || (a->sizes[i] == 1 && b->sizes[i] == 1)) && (!sizes_too || a->sizes[i] == b->sizes[i]);
  return same;
}

/* *exact: the very same memory, seen the same way. */
static tnx_overlap overlap_of(const tnx_tensor *a, const tnx_tensor *b, bool *exact) {
  *exact = false;
  if (a->storage_end <= b->storage_begin || b->storage_end <= a->storage_begin) return TNX_OVERLAP_NONE;
  extent x = extent_of(a), y = extent_of(b);
  if (x.begin == x.end || y.begin == y.end || x.end <= y.begin || y.end <= x.begin) return TNX_OVERLAP_NONE;
  *exact = a->data == b->data && a->dtype == b->dtype && same_strides(a, b, true);
  if (*exact) return TNX_OVERLAP_NONE;
  if (!tnx_tensor_is_dense(a) || !tnx_tensor_is_dense(b)) return TNX_OVERLAP_UNKNOWN;
  return x.begin == y.begin && x.end == y.end && same_strides(a, b, false) ? TNX_OVERLAP_FULL : TNX_OVERLAP_PARTLY;
}

static void look_at(const tnx_call *c, uint32_t t, uint32_t j, tnx_sharing *s) {
  if (j == t || (c->tensors[j].flags & TNX_TENSOR_HOST)) return;
  bool exact;
  tnx_overlap o = overlap_of(&c->tensors[t], &c->tensors[j], &exact);
  if (exact) { /* one representative for all that are the same memory */
    uint32_t first = s[t].alias != TNX_NO_TENSOR ? s[t].alias : s[j].alias != TNX_NO_TENSOR ? s[j].alias : t < j ? t : j;
    s[t].alias = s[j].alias = first;
  }
  if (o > s[t].overlap) s[t].overlap = (uint8_t)o;
  if (o > s[j].overlap) s[j].overlap = (uint8_t)o;
}

enum { FEW_PAIRS = 256 };

typedef struct span { extent at; uint32_t tensor; bool written; } span;

static int by_begin(const void *x, const void *y) {
  uintptr_t a = ((const span *)x)->at.begin, b = ((const span *)y)->at.begin;
  return a < b ? -1 : a > b;
}

/* Lists of hundreds of tensors are sorted by address, and only those whose memory meets are looked at in pairs. False: no memory for it. */
static bool find_sorted(const tnx_call *c, tnx_sharing *s) {
  span *spans = tnx_heap_alloc(c->n_tensors * sizeof *spans);
  bool *written = tnx_heap_zalloc(c->n_tensors, sizeof *written);
  bool ok = spans && written;
  uint32_t n = 0;
  for (uint32_t k = 0; ok && k < c->n_into; k++)
    if (c->into[k] != TNX_NO_TENSOR) written[c->into[k]] = true;
  for (uint32_t i = 0; ok && i < c->n_tensors; i++) {
    span at = {.at = extent_of(&c->tensors[i]), .tensor = i, .written = written[i]};
    if (!(c->tensors[i].flags & TNX_TENSOR_HOST) && at.at.begin != at.at.end) spans[n++] = at;
  }
  if (n) qsort(spans, n, sizeof *spans, by_begin);
  for (uint32_t i = 0, j; i < n; i = j) {
    uintptr_t end = spans[i].at.end;
    for (j = i + 1; j < n && spans[j].at.begin < end; j++)
      if (spans[j].at.end > end) end = spans[j].at.end;
    for (uint32_t x = i; x < j && j - i > 1; x++)
      for (uint32_t y = i; y < j && spans[x].written; y++) look_at(c, spans[x].tensor, spans[y].tensor, s);
  }
  tnx_heap_free(spans);
  tnx_heap_free(written);
  return ok;
}

void tnx_sharing_find(const tnx_call *c, tnx_sharing *s) {
  for (uint32_t i = 0; i < c->n_tensors; i++) s[i] = (tnx_sharing){TNX_NO_TENSOR, TNX_OVERLAP_NONE};
  if ((uint64_t)c->n_into * c->n_tensors > FEW_PAIRS && find_sorted(c, s)) return;
  for (uint32_t k = 0; k < c->n_into; k++)
    for (uint32_t j = 0; c->into[k] != TNX_NO_TENSOR && j < c->n_tensors; j++) look_at(c, c->into[k], j, s);
}

tnx_status tnx_sharing_check_elements(const tnx_call *c, const tnx_sharing *s) {
  for (uint32_t i = 0; (c->row->flags & TNX_ROW_EACH) && i < c->n_into; i++) {
    uint32_t t = c->into[i];
    if (t == TNX_NO_TENSOR) continue;
    bool shared = s[t].overlap != TNX_OVERLAP_NONE;
    for (uint32_t j = 0; s[t].alias != TNX_NO_TENSOR && j < i && !shared; j++)
      shared = c->into[j] == t || (c->into[j] != TNX_NO_TENSOR && s[c->into[j]].alias == s[t].alias);
    if (shared) return tnx_fail(TNX_NOT_IMPLEMENTED, "elements of a list that share memory");
  }
  return TNX_OK;
}

/* ---- what PyTorch refuses ---- */

static tnx_status refuse_overlap(void) {
  return tnx_fail(TNX_INVALID_ARGUMENT, "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
                                        "Please clone() the tensor before performing the operation.");
}

/* An expanded tensor: which of the writes to an element wins would be chance. */
static bool repeats(const tnx_tensor *t) {
  bool empty = false, twice = false;
  for (int d = 0; d < t->rank; d++) {
    empty |= t->sizes[d] == 0;
    twice |= t->sizes[d] > 1 && t->strides[d] == 0;
  }
  return twice && !empty;
}

/* What a result is computed by. */
typedef enum manner { ONE_VALUE, ELEMENTWISE, OTHERWISE } manner;

enum { DEPTH = 12 };

/* Coordinates (tril, triu) are no operator of TensorIterator's, which is where PyTorch checks elementwise operators. The depth limit ends the walk of large
 * expressions, none of which are one operator of ATen's that is checked. */
static manner manner_of(const tnx_graph *g, tnx_value v, bool scans, int depth) {
  const tnx_node *n = tnx_graph_producer(g, v);
  bool scan = scans && (n->op == TNX_OP_CUMSUM || n->op == TNX_OP_CUMPROD || n->op == TNX_OP_LOGCUMSUMEXP || n->op == TNX_OP_TOPK);
  if (n->op == TNX_OP_CONST || n->op == TNX_OP_DIMVAL) return ONE_VALUE;
  if (n->op == TNX_OP_INPUT) return g->values.data[v].flags & TNX_VALUE_HOST ? ONE_VALUE : ELEMENTWISE;
  if (depth == 0 || !(tnx_op_is_pointwise((tnx_op)n->op) || n->op == TNX_OP_BROADCAST || scan)) return OTHERWISE;
  manner worst = ONE_VALUE;
  for (uint32_t i = 0; i < n->n_inputs && worst != OTHERWISE; i++) {
    manner m = manner_of(g, n->inputs[i], scans, depth - 1);
    if (m > worst) worst = m;
  }
  return worst;
}

bool tnx_value_is_elementwise(const tnx_graph *g, tnx_value v) { return manner_of(g, v, false, DEPTH) == ELEMENTWISE; }

tnx_status tnx_sharing_check(const tnx_call *c, const tnx_sharing *s, const tnx_graph *g) {
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    uint32_t t = g->outputs.data[i].into;
    if (!g->outputs.data[i].value || t == TNX_NO_TENSOR) continue;
    if (repeats(&c->tensors[t]) && manner_of(g, g->outputs.data[i].value, true, DEPTH) != ONE_VALUE)
      return tnx_fail(TNX_INVALID_ARGUMENT, "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                                            "Please clone() the tensor before performing the operation.");
    if (s[t].overlap == TNX_OVERLAP_PARTLY && ((c->row->flags & TNX_ROW_APART) || manner_of(g, g->outputs.data[i].value, true, DEPTH) == ELEMENTWISE)) return refuse_overlap();
    if (!(c->row->flags & TNX_ROW_APART)) continue;
    /* The first argument of an operator with an in-place form is what it writes to. */
    bool in_place = *c->row->inplace != 0;
    for (uint32_t j = in_place; j < c->n_args; j++) {
      const uint32_t *list = c->args[j].kind == TNX_ARG_TENSORS ? c->args[j].values : &c->args[j].value;
      uint32_t n = c->args[j].kind == TNX_ARG_TENSORS ? c->args[j].count : c->args[j].kind == TNX_ARG_TENSOR;
      for (uint32_t k = 0; k < n; k++) {
        uint32_t x = list[k];
        if (x == TNX_NO_TENSOR || (c->tensors[x].flags & TNX_TENSOR_HOST)) continue;
        bool same = x == t || (s[x].alias != TNX_NO_TENSOR && s[x].alias == s[t].alias);
        if (same && tnx_tensor_is_dense(&c->tensors[x])) return refuse_overlap();
      }
    }
  }
  return TNX_OK;
}
