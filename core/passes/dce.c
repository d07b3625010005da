/* Dead code: what no output needs is not marked live, and does not count as a user. */
#include "passes/passes.h"

tnx_status tnx_pass_dce(tnx_graph *g, bool fuse, tnx_analysis *a) {
  (void)fuse;
  uint32_t n_nodes = g->nodes.len, n_values = g->values.len, n_uses = 0;
  a->live = TNX_ARENA_ARRAY(&a->arena, bool, n_nodes);
  a->is_output = TNX_ARENA_ARRAY(&a->arena, bool, n_values);
  a->group = TNX_ARENA_ARRAY(&a->arena, uint32_t, n_nodes);
  a->user_begin = TNX_ARENA_ARRAY(&a->arena, uint32_t, n_values + 2);
  if (!a->live || !a->is_output || !a->group || !a->user_begin) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    tnx_value v = g->outputs.data[i].value;
    if (!v) continue;
    a->is_output[v] = true;
  }
  tnx_graph_needed(g, a->live);
  for (uint32_t i = 1; i < n_nodes; i++) {
    if (!a->live[i]) continue;
    const tnx_node *n = &g->nodes.data[i];
    for (uint32_t j = 0; j < n->n_inputs; j++) {
      a->user_begin[n->inputs[j] + 2]++;
      n_uses++;
    }
  }
  for (uint32_t v = 2; v < n_values + 2; v++) a->user_begin[v] += a->user_begin[v - 1];
  a->users = TNX_ARENA_ARRAY(&a->arena, tnx_node_id, n_uses);
  if (!a->users) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  /* user_begin[v + 1] is the fill position of v now, and its end (the next one's begin) when all are in */
  for (uint32_t i = 1; i < n_nodes; i++) {
    if (!a->live[i]) continue;
    const tnx_node *n = &g->nodes.data[i];
    for (uint32_t j = 0; j < n->n_inputs; j++) a->users[a->user_begin[n->inputs[j] + 1]++] = i;
  }
  return TNX_OK;
}
