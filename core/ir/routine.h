/* Routines: what a StableHLO module becomes. A list of steps over values; a step is a graph, which the planner plans, or a loop of two more routines, whose length
 * depends on data. A module without loops is a routine of one graph. */
#ifndef TNX_IR_ROUTINE_H
#define TNX_IR_ROUTINE_H
#include "ir/graph.h"

typedef struct tnx_routine tnx_routine;

/* in: the routine's values that are the graph's inputs; out: those that its outputs define.
 * A loop: in are the values its state starts from, out its last ones (as many). Both routines take the state and then their own `cond_in`, `body_in`;
 * cond gives one bool, body the next state. */
typedef struct tnx_routine_step {
  tnx_graph *graph; /* NULL: a loop */
  tnx_routine *cond, *body;
  TNX_VEC(uint32_t) in, out, cond_in, body_in;
} tnx_routine_step;

struct tnx_routine {
  tnx_arena arena; /* sizes */
  const char *name;
  TNX_VEC(tnx_type) values;
  uint32_t n_inputs; /* the first values */
  TNX_VEC(tnx_routine_step) steps;
  TNX_VEC(uint32_t) outputs;
  TNX_VEC(uint32_t) into; /* for each output: the input whose memory receives it, or TNX_NO_TENSOR */
};

void tnx_routine_destroy(tnx_routine *r);

/* From StableHLO. file: for messages. PARSE with file:line:column for whatever is wrong with the text, NOT_IMPLEMENTED likewise for an operation without a form
 * in graphs. */
enum { TNX_HLO_DECOMPOSE = 1 /* composites that have an operator of their own are decomposed nevertheless */ };
tnx_status tnx_routine_from_stablehlo(const char *file, const char *text, size_t len, int flags, tnx_routine **out);
/* The operations that can be imported, by number; NULL behind the last. */
const char *tnx_hlo_operation_name(uint32_t i);
#endif
