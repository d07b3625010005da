/* Passes: analyses and decisions over a finished graph. The graph itself stays as it is: folding and common subexpressions are done while
 * it is built (core/ir/builder*.c), and passes annotate nodes with what the planner needs. The order is passes.def. */
#ifndef TNX_PASSES_H
#define TNX_PASSES_H
#include "ir/graph.h"

typedef enum tnx_group_mode { TNX_GROUP_MAP, TNX_GROUP_ROW, TNX_GROUP_REDUCE } tnx_group_mode;

/* Pointwise nodes, and the reductions among them, that run as one program. */
typedef struct tnx_group {
  uint8_t mode, rank;     /* rank of the iteration space */
  const tnx_dim *space;   /* MAP, ROW: its sizes. REDUCE: the reduction's operand's sizes */
  const tnx_dim *kept;    /* REDUCE: sizes of the result (reduced ones are 1) */
  tnx_node_id reduce;     /* REDUCE: the reduction */
  tnx_node_id last;       /* its member of highest number: the group runs in that node's place */
  uint32_t n_members;
  uint32_t n_operands;    /* upper bound of what its program loads and stores */
} tnx_group;

enum { TNX_NO_GROUP = 0 };

typedef struct tnx_analysis {
  tnx_arena arena;
  bool *live;               /* node: reached from an output */
  /* users of each value, live ones only: users[user_begin[v] .. user_begin[v + 1]) */
  uint32_t *user_begin;
  tnx_node_id *users;
  bool *is_output;          /* value */
  uint32_t *group;          /* node -> group number, TNX_NO_GROUP: runs alone, or is a view or a leaf */
  TNX_VEC(tnx_group) groups; /* [0] unused */
} tnx_analysis;

/* Runs all passes. `fuse` false: every pointwise node is a group of its own. */
tnx_status tnx_passes_run(tnx_graph *g, bool fuse, tnx_analysis *out);
void tnx_analysis_fini(tnx_analysis *a);

#define TNX_PASS(name, doc) tnx_status tnx_pass_##name(tnx_graph *g, bool fuse, tnx_analysis *a);
#include "passes/passes.def"
#undef TNX_PASS
#endif
