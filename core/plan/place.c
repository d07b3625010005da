/* Placement: who writes straight into an output, into a mutated input, or into a part of a larger result.
 *
 * A value gets at most one place. Outputs are placed first, then concatenations and updates hand parts of their own place down to their operands:
 * an update (index_copy into a cache, ...) whose base is the very memory it is placed in costs no copy of the base. A mutated input's memory is
 * written directly only if everything that still reads its old contents runs before, or reads each element in the step that overwrites it. */
#include <string.h>

#include "plan/plan.h"

enum { AT_END = UINT32_MAX };

typedef struct reads {
  tnx_node_id any;    /* last position that reads the memory in any way */
  tnx_node_id direct; /* last position that reads it element by element, in a MAP or ROW program, unviewed */
} reads;

static bool is_update(uint16_t op) {
  return op == TNX_OP_UPDATE_SLICE || op == TNX_OP_UPDATE_STRIDED || op == TNX_OP_UPDATE_DIAGONAL || op == TNX_OP_SCATTER || op == TNX_OP_PUT || op == TNX_OP_INDEX_PUT;
}

static void later(tnx_node_id *a, tnx_node_id b) {
  if (b > *a) *a = b;
}

/* The last reads of v's memory, through views; `skip` is a node whose use of v as base does not count. */
static void see_reads(const tnx_planner *pl, tnx_value v, bool viewed, tnx_node_id skip, reads *r) {
  const tnx_analysis *a = &pl->a;
  if (a->is_output[v]) later(&r->any, AT_END);
  for (uint32_t i = a->user_begin[v]; i < a->user_begin[v + 1]; i++) {
    tnx_node_id id = a->users[i];
    const tnx_node *n = &pl->g->nodes.data[id];
    if (tnx_op_get_info((tnx_op)n->op)->klass == TNX_CLASS_VIEW) {
      see_reads(pl, n->first, true, skip, r);
      continue;
    }
    uint32_t grp = a->group[id];
    if (id == skip && n->inputs[0] == v) {
      /* as another operand too? */
      for (uint32_t j = 1; j < n->n_inputs; j++)
        if (n->inputs[j] == v) later(&r->any, id);
    } else if (grp && !viewed && a->groups.data[grp].mode != TNX_GROUP_REDUCE) {
      later(&r->direct, a->groups.data[grp].last);
    } else {
      later(&r->any, tnx_planner_position(pl, id));
    }
  }
}

/* The node that really computes v, looking through views. */
static tnx_node_id origin(const tnx_planner *pl, tnx_value v) {
  const tnx_node *n = tnx_graph_producer(pl->g, v);
  while (tnx_op_get_info((tnx_op)n->op)->klass == TNX_CLASS_VIEW) n = tnx_graph_producer(pl->g, n->inputs[0]);
  return pl->g->values.data[n->first].node;
}

/* May the node that computes v write into input k's memory? `whole`: v has the input's own layout, so a step that reads each element where it writes it may do both. */
static bool may_overwrite(const tnx_planner *pl, tnx_value v, uint32_t k, bool whole) {
  const tnx_graph *g = pl->g;
  tnx_node_id writer = origin(pl, v);
  const tnx_node *w = &g->nodes.data[writer];
  if (g->inputs.data[k].overlaps) return false;
  bool in_place_base = is_update(w->op) && tnx_graph_producer(g, w->inputs[0])->op == TNX_OP_INPUT;
  reads r = {0, 0};
  for (uint32_t i = 0; i < g->inputs.len; i++)
    if (i == k || (g->inputs.data[i].alias != TNX_NO_TENSOR && g->inputs.data[i].alias == g->inputs.data[k].alias))
      see_reads(pl, g->inputs.data[i].value, false, in_place_base && i == k ? writer : 0, &r);
  tnx_node_id pos = tnx_planner_position(pl, writer);
  uint32_t grp = pl->a.group[writer];
  bool elementwise = whole && grp && pl->a.groups.data[grp].mode != TNX_GROUP_REDUCE && g->values.data[v].node == writer;
  return r.any < pos && (elementwise ? r.direct <= pos : r.direct < pos);
}

/* Does nobody but `user` read v's memory, under any view of it? Its `which`th operand is v. */
static bool only_user(const tnx_planner *pl, tnx_value v, tnx_node_id user, uint32_t which) {
  const tnx_analysis *a = &pl->a;
  const tnx_node *u = &pl->g->nodes.data[user];
  for (uint32_t j = 0; j < u->n_inputs; j++)
    if (j != which && origin(pl, u->inputs[j]) == origin(pl, v)) return false;
  for (;;) { /* from v to what computes it: each has one user, the next one */
    if (a->is_output[v] || a->user_begin[v + 1] - a->user_begin[v] != 1) return false;
    const tnx_node *n = tnx_graph_producer(pl->g, v);
    if (tnx_op_get_info((tnx_op)n->op)->klass != TNX_CLASS_VIEW) return true;
    v = n->inputs[0];
  }
}

static tnx_status set_place(tnx_planner *pl, tnx_value v, const tnx_layout *l, bool overwritten, bool *done);

/* Hands `place` down to the operand of a node, which runs earlier than what the place was found for: a mutated input has to be free that early too. */
static tnx_status offer(tnx_planner *pl, tnx_value v, const tnx_layout *place, bool overwritten) {
  const tnx_buffer *b = &pl->p->buffers.data[place->buffer];
  bool done;
  if (b->kind == TNX_BUFFER_INPUT && !may_overwrite(pl, v, b->index, false)) return TNX_OK;
  return set_place(pl, v, place, overwritten, &done);
}

/* v has a place: hands parts of it down. What is `overwritten` there later (the base of an update) goes only to operands that nobody else reads. */
static tnx_status hand_down(tnx_planner *pl, tnx_value v, bool overwritten) {
  tnx_graph *g = pl->g;
  tnx_node_id id = g->values.data[v].node;
  const tnx_node *n = tnx_graph_producer(g, v);
  if (n->op == TNX_OP_CONCAT) {
    tnx_dim start = 0;
    int dim = (int)n->ints[0];
    for (uint32_t i = 0; i < n->n_inputs; i++) {
      tnx_layout part = pl->place[v];
      tnx_dim len = g->values.data[n->inputs[i]].sizes[dim];
      TNX_TRY(tnx_layout_slice(g, &part, dim, start, len, 1));
      if (!overwritten || only_user(pl, n->inputs[i], id, i)) TNX_TRY(offer(pl, n->inputs[i], &part, overwritten));
      TNX_TRY(tnx_graph_dim(g, TNX_DIM_ADD, start, len, &start));
    }
  } else if (is_update(n->op)) {
    /* the base is computed right where it is updated, if nobody else wants it as it was */
    if (only_user(pl, n->inputs[0], id, 0)) TNX_TRY(offer(pl, n->inputs[0], &pl->place[v], true));
  }
  return TNX_OK;
}

static tnx_status set_place(tnx_planner *pl, tnx_value v, const tnx_layout *l, bool overwritten, bool *done) {
  tnx_graph *g = pl->g;
  const tnx_node *n = tnx_graph_producer(g, v);
  *done = false;
  uint8_t klass = tnx_op_get_info((tnx_op)n->op)->klass;
  if (pl->place[v].buffer || klass == TNX_CLASS_LEAF) return TNX_OK;
  if (klass == TNX_CLASS_VIEW) {
    tnx_layout inner;
    bool ok;
    TNX_TRY(tnx_layout_unview(g, n, l, &inner, &ok));
    return ok ? set_place(pl, n->inputs[0], &inner, overwritten, done) : TNX_OK;
  }
  pl->place[v] = *l;
  *done = true;
  return hand_down(pl, v, overwritten);
}

tnx_status tnx_planner_place(tnx_planner *pl) {
  tnx_graph *g = pl->g;
  bool ok;
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (!o->value) continue;
    if (o->into == TNX_NO_TENSOR) TNX_TRY(set_place(pl, o->value, &pl->p->outputs.data[i].layout, false, &ok));
    else if (may_overwrite(pl, o->value, o->into, true)) TNX_TRY(set_place(pl, o->value, &pl->loc[g->inputs.data[o->into].value], false, &ok));
  }
  for (tnx_node_id id = g->nodes.len; id-- > 1;) {
    const tnx_node *n = &g->nodes.data[id];
    if (!pl->a.live[id] || pl->place[n->first].buffer || !(n->op == TNX_OP_CONCAT || is_update(n->op))) continue;
    const tnx_value_data *v = &g->values.data[n->first];
    tnx_dim elements = 1;
    for (int i = 0; i < v->rank; i++) TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, elements, v->sizes[i], &elements));
    uint32_t buffer;
    TNX_TRY(tnx_planner_buffer(pl, TNX_BUFFER_TEMP, pl->p->n_temps++, v->dtype, elements, &buffer));
    TNX_TRY(tnx_layout_contiguous(g, v, buffer, &pl->place[n->first]));
    TNX_TRY(hand_down(pl, n->first, false));
  }
  return TNX_OK;
}
