/* Fusion: which pointwise nodes and reductions run as one program.
 *
 * Nodes are visited from the last to the first, so that a node's users have their groups already. A node joins the group of its users where
 * all of them are in it; where some are not, it joins the group of its nearest user and its value is stored as well, but only if the others come
 * after the whole group (node order then stays a valid schedule: a group runs in the place of its last member). Broadcasts are looked through.
 *
 *   MAP     one shape.
 *   ROW     reductions along a last dimension of known size, together with what uses their results broadcast back: norms, softmax.
 *   REDUCE  one reduction of any dimensions, what computes its operand, and what is computed from its result.
 *
 * Cost: each node looks at its users once; linear in the number of uses. */
#include <string.h>

#include "passes/passes.h"

enum {
  MAX_MEMBERS = 40,          /* registers and operands of a program are limited (kernels/program/program.h) */
  MAX_OPERANDS = 30,
  MAX_ROW = 16384,           /* elements of a row that is kept in registers */
};

static bool same_sizes(int ra, const tnx_dim *a, int rb, const tnx_dim *b) { return ra == rb && (ra == 0 || memcmp(a, b, (size_t)ra * sizeof *a) == 0); }

static bool is_reduce(const tnx_node *n) { return tnx_op_get_info((tnx_op)n->op)->klass == TNX_CLASS_REDUCE; }

/* A reduction along the last dimension only, of a size that a row may have. */
static bool is_row_reduce(const tnx_graph *g, const tnx_node *n) {
  if (n->op < TNX_OP_REDUCE_SUM || n->op > TNX_OP_REDUCE_MIN || n->n_ints != 1) return false;
  const tnx_value_data *x = &g->values.data[n->inputs[0]];
  tnx_dim row = x->rank ? x->sizes[x->rank - 1] : 1;
  return n->ints[0] == x->rank - 1 && !tnx_dim_is_symbolic(row) && row >= 2 && row <= MAX_ROW && x->dtype != TNX_BOOL;
}

/* The shape of `space` with 1 for the last dimension. */
static bool is_row_scalar(const tnx_value_data *v, int rank, const tnx_dim *space) {
  return rank > 0 && v->rank == rank && v->sizes[rank - 1] == 1 && space[rank - 1] != 1 && memcmp(v->sizes, space, (size_t)(rank - 1) * sizeof *space) == 0;
}

/* Is the row scalar v computed, through row scalars, from a reduction of rows of this space? */
static bool from_row_reduce(const tnx_graph *g, tnx_value v, int rank, const tnx_dim *space, int depth) {
  const tnx_node *n = tnx_graph_producer(g, v);
  if (depth > 8) return false;
  if (is_row_reduce(g, n)) {
    const tnx_value_data *x = &g->values.data[n->inputs[0]];
    return same_sizes(x->rank, x->sizes, rank, space);
  }
  if (!tnx_op_is_pointwise((tnx_op)n->op)) return false;
  for (uint32_t i = 0; i < n->n_inputs; i++)
    if (is_row_scalar(&g->values.data[n->inputs[i]], rank, space) && from_row_reduce(g, n->inputs[i], rank, space, depth + 1)) return true;
  return false;
}

typedef struct uses {
  uint32_t group;      /* the group of the nearest fused user */
  tnx_node_id nearest; /* that user */
  bool outside;        /* some user is not in it */
  tnx_node_id first_outside; /* lowest number of those */
  bool broadcast;      /* some use in the group goes through a broadcast */
} uses;

static void see_user(const tnx_graph *g, const tnx_analysis *a, tnx_value v, bool through, uses *u, int pass) {
  for (uint32_t i = a->user_begin[v]; i < a->user_begin[v + 1]; i++) {
    tnx_node_id id = a->users[i];
    const tnx_node *n = &g->nodes.data[id];
    if (n->op == TNX_OP_BROADCAST && !a->is_output[n->first]) {
      see_user(g, a, n->first, true, u, pass);
      continue;
    }
    uint32_t grp = a->group[id];
    if (pass == 0) { /* find the nearest fused user */
      if (grp && (!u->nearest || id < u->nearest)) {
        u->nearest = id;
        u->group = grp;
      }
    } else if (grp == u->group && grp) {
      u->broadcast |= through;
    } else {
      u->outside = true;
      if (!u->first_outside || id < u->first_outside) u->first_outside = id;
    }
  }
}

static uses look(const tnx_graph *g, const tnx_analysis *a, const tnx_node *n) {
  uses u = {0};
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t r = 0; r < n->n_results; r++) see_user(g, a, n->first + r, false, &u, pass);
  return u;
}

static tnx_status start(tnx_graph *g, tnx_analysis *a, tnx_node_id id, uint8_t mode) {
  const tnx_node *n = &g->nodes.data[id];
  const tnx_value_data *v = &g->values.data[n->first];
  tnx_group grp = {.mode = mode, .rank = v->rank, .space = v->sizes, .last = id, .n_members = 1, .n_operands = n->n_inputs + 1};
  if (mode == TNX_GROUP_REDUCE) {
    grp.kept = v->sizes;
    grp.space = g->values.data[n->inputs[0]].sizes;
    grp.reduce = id;
  }
  if (!tnx_vec_push(&a->groups, grp)) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  a->group[id] = a->groups.len - 1;
  return TNX_OK;
}

/* The operands a group has at most once this node is in: its own, less the load of its result, and a store if others want it. */
static uint32_t operands_with(const tnx_group *grp, const tnx_node *n, bool stored) { return grp->n_operands + n->n_inputs - 1 + stored; }

static bool has_room(const tnx_group *grp, const tnx_node *n, bool stored) {
  return grp->n_members < MAX_MEMBERS && operands_with(grp, n, stored) <= MAX_OPERANDS;
}

static void join(tnx_analysis *a, tnx_node_id id, const tnx_node *n, bool stored, uint32_t group) {
  tnx_group *grp = &a->groups.data[group];
  a->group[id] = group;
  grp->n_operands = operands_with(grp, n, stored);
  grp->n_members++;
}

/* Cheap enough to compute again for every element of a larger shape. */
static bool is_cheap(const tnx_value_data *v, const tnx_node *n) { return v->rank == 0 || n->op == TNX_OP_CONVERT; }

static tnx_status visit_pointwise(tnx_graph *g, bool fuse, tnx_analysis *a, tnx_node_id id) {
  const tnx_node *n = &g->nodes.data[id];
  const tnx_value_data *v = &g->values.data[n->first];
  uses u = look(g, a, n);
  bool stored = u.outside || a->is_output[n->first];
  if (!fuse || !u.group || (u.outside && u.first_outside < a->groups.data[u.group].last)) return start(g, a, id, TNX_GROUP_MAP);
  tnx_group *grp = &a->groups.data[u.group];
  if (!has_room(grp, n, stored)) return start(g, a, id, TNX_GROUP_MAP);
  bool ok;
  if (grp->mode == TNX_GROUP_REDUCE) {
    /* part of the operand (never stored), or of what follows the reduction */
    bool prologue = same_sizes(v->rank, v->sizes, grp->rank, grp->space) && id < grp->reduce;
    bool epilogue = same_sizes(v->rank, v->sizes, grp->rank, grp->kept) && !u.broadcast && !prologue;
    ok = (prologue && !stored) || epilogue || (v->rank == 0 && !stored);
  } else if (same_sizes(v->rank, v->sizes, grp->rank, grp->space)) {
    ok = true;
  } else if (is_row_scalar(v, grp->rank, grp->space) && from_row_reduce(g, n->first, grp->rank, grp->space, 0)) {
    ok = true;
    grp->mode = TNX_GROUP_ROW;
  } else {
    ok = !stored && is_cheap(v, n);
  }
  if (!ok) return start(g, a, id, TNX_GROUP_MAP);
  join(a, id, n, stored, u.group);
  return TNX_OK;
}

static tnx_status visit_reduce(tnx_graph *g, bool fuse, tnx_analysis *a, tnx_node_id id) {
  const tnx_node *n = &g->nodes.data[id];
  const tnx_value_data *v = &g->values.data[n->first], *x = &g->values.data[n->inputs[0]];
  uses u = look(g, a, n);
  if (!fuse || !u.group || (u.outside && u.first_outside < a->groups.data[u.group].last)) return start(g, a, id, TNX_GROUP_REDUCE);
  tnx_group *grp = &a->groups.data[u.group];
  bool stored = u.outside || a->is_output[n->first];
  if (!has_room(grp, n, stored) || grp->mode == TNX_GROUP_REDUCE) return start(g, a, id, TNX_GROUP_REDUCE);
  if (is_row_reduce(g, n) && same_sizes(x->rank, x->sizes, grp->rank, grp->space)) {
    grp->mode = TNX_GROUP_ROW;
    join(a, id, n, stored, u.group);
  } else if (grp->mode == TNX_GROUP_MAP && same_sizes(v->rank, v->sizes, grp->rank, grp->space) && !u.broadcast) {
    grp->mode = TNX_GROUP_REDUCE;
    grp->reduce = id;
    grp->kept = v->sizes;
    grp->space = x->sizes;
    join(a, id, n, stored, u.group);
  } else {
    return start(g, a, id, TNX_GROUP_REDUCE);
  }
  return TNX_OK;
}

tnx_status tnx_pass_fuse(tnx_graph *g, bool fuse, tnx_analysis *a) {
  if (!tnx_vec_push(&a->groups, (tnx_group){0})) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  for (tnx_node_id id = g->nodes.len; id-- > 1;) {
    if (!a->live[id]) continue;
    const tnx_node *n = &g->nodes.data[id];
    if (tnx_op_is_pointwise((tnx_op)n->op)) TNX_TRY(visit_pointwise(g, fuse, a, id));
    else if (is_reduce(n)) TNX_TRY(visit_reduce(g, fuse, a, id));
  }
  return TNX_OK;
}
