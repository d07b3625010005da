/* Graphs as parts: a copy of a graph, and a graph's nodes added to another one with its symbolic sizes replaced by numbers. */
#include <string.h>

#include "ir/graph.h"

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while copying a graph"); }

static void *copied(tnx_graph *g, const void *data, size_t bytes, bool *ok) {
  void *p = data || bytes == 0 ? tnx_arena_copy(&g->arena, data, bytes) : NULL;
  *ok &= p != NULL;
  return p;
}

tnx_status tnx_graph_copy(const tnx_graph *src, tnx_graph *out) {
  TNX_TRY(tnx_graph_init(out, src->name));
  bool ok = tnx_vec_reserve(&out->nodes, src->nodes.len) && tnx_vec_reserve(&out->values, src->values.len) && tnx_vec_reserve(&out->exprs, src->exprs.len);
  for (uint32_t i = 1; ok && i < src->nodes.len; i++) {
    tnx_node n = src->nodes.data[i];
    n.inputs = copied(out, n.inputs, n.n_inputs * sizeof *n.inputs, &ok);
    n.ints = copied(out, n.ints, n.n_ints * sizeof *n.ints, &ok);
    n.floats = copied(out, n.floats, n.n_floats * sizeof *n.floats, &ok);
    out->nodes.data[out->nodes.len++] = n;
  }
  for (uint32_t i = 1; ok && i < src->values.len; i++) {
    tnx_value_data v = src->values.data[i];
    v.sizes = copied(out, v.sizes, v.rank * sizeof *v.sizes, &ok);
    out->values.data[out->values.len++] = v;
  }
  for (uint32_t i = 1; ok && i < src->exprs.len; i++) out->exprs.data[out->exprs.len++] = src->exprs.data[i];
  for (uint32_t i = 0; ok && i < src->symbols.len; i++) {
    tnx_symbol s = src->symbols.data[i];
    s.name = tnx_arena_strdup(&out->arena, s.name);
    ok = s.name && tnx_vec_push(&out->symbols, s);
  }
  for (uint32_t i = 0; ok && i < src->inputs.len; i++) {
    tnx_input in = src->inputs.data[i];
    if (in.strides) in.strides = copied(out, in.strides, src->values.data[in.value].rank * sizeof *in.strides, &ok);
    ok = ok && tnx_vec_push(&out->inputs, in);
  }
  for (uint32_t i = 0; ok && i < src->outputs.len; i++) {
    tnx_output o = src->outputs.data[i];
    if (o.strides) o.strides = copied(out, o.strides, src->values.data[o.value].rank * sizeof *o.strides, &ok);
    ok = ok && tnx_vec_push(&out->outputs, o);
  }
  if (ok) return TNX_OK;
  tnx_graph_fini(out);
  return no_memory();
}

void tnx_graph_needed(const tnx_graph *g, bool *needed) {
  memset(needed, 0, g->nodes.len * sizeof *needed);
  for (uint32_t i = 0; i < g->outputs.len; i++)
    if (g->outputs.data[i].value) needed[g->values.data[g->outputs.data[i].value].node] = true;
  for (tnx_node_id id = g->nodes.len; id-- > 1;)
    for (uint32_t i = 0; needed[id] && i < g->nodes.data[id].n_inputs; i++)
      if (g->nodes.data[id].inputs[i]) needed[g->values.data[g->nodes.data[id].inputs[i]].node] = true;
}

static tnx_status add_node(const tnx_graph *src, const tnx_node *n, const int64_t *dims, tnx_graph *dst, tnx_value *map) {
  tnx_arena *scratch = &dst->arena; /* dies with the graph that is being made */
  tnx_value *in = TNX_ARENA_ARRAY(scratch, tnx_value, n->n_inputs);
  tnx_dim *ints = TNX_ARENA_ARRAY(scratch, tnx_dim, n->n_ints);
  if (!in || !ints) return no_memory();
  tnx_type types[4];
  if (n->n_results > sizeof types / sizeof *types) return tnx_fail(TNX_INTERNAL, "an operator of %d results", n->n_results);
  for (uint32_t i = 0; i < n->n_inputs; i++) in[i] = map[n->inputs[i]];
  /* A constant's number is no size, whatever its bits; the value of a size is a constant from here on. */
  for (uint32_t i = 0; i < n->n_ints; i++) ints[i] = n->op == TNX_OP_CONST ? n->ints[i] : tnx_dim_value(n->ints[i], dims);
  for (uint32_t r = 0; r < n->n_results; r++) {
    const tnx_value_data *v = &src->values.data[n->first + r];
    tnx_dim *sizes = TNX_ARENA_ARRAY(scratch, tnx_dim, v->rank);
    if (!sizes) return no_memory();
    for (int d = 0; d < v->rank; d++) sizes[d] = tnx_dim_value(v->sizes[d], dims);
    types[r] = (tnx_type){v->dtype, v->rank, sizes};
  }
  tnx_value first;
  tnx_op op = n->op == TNX_OP_DIMVAL ? TNX_OP_CONST : (tnx_op)n->op;
  TNX_TRY(tnx_graph_add(dst, op, in, n->n_inputs, ints, n->n_ints, n->floats, n->n_floats, types, n->n_results, &first));
  for (uint32_t r = 0; r < n->n_results; r++) map[n->first + r] = first + r;
  return TNX_OK;
}

tnx_status tnx_graph_inline(const tnx_graph *src, const int64_t *dims, tnx_graph *dst, const tnx_value *inputs, tnx_value *outputs) {
  tnx_value *map = tnx_heap_zalloc(src->values.len, sizeof *map);
  bool *needed = tnx_heap_alloc(src->nodes.len * sizeof *needed);
  tnx_status status = map && needed ? TNX_OK : no_memory();
  if (status == TNX_OK) tnx_graph_needed(src, needed);
  for (uint32_t i = 0; status == TNX_OK && i < src->inputs.len; i++) map[src->inputs.data[i].value] = inputs[i];
  for (tnx_node_id id = 1; status == TNX_OK && id < src->nodes.len; id++) {
    const tnx_node *n = &src->nodes.data[id];
    if (needed[id] && n->op != TNX_OP_INPUT) status = add_node(src, n, dims, dst, map);
  }
  for (uint32_t i = 0; status == TNX_OK && i < src->outputs.len; i++) outputs[i] = map[src->outputs.data[i].value];
  tnx_heap_free(needed);
  tnx_heap_free(map);
  return status;
}
