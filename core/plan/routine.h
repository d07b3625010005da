/* Routines that are planned and can run (ir/routine.h). A planned routine is immutable: any number of runs may be under way. */
#ifndef TNX_PLAN_ROUTINE_H
#define TNX_PLAN_ROUTINE_H
#include "ir/routine.h"
#include "tnx/runtime.h"

typedef struct tnx_planned_routine tnx_planned_routine;

/* Takes over the routine, unless it fails. */
tnx_status tnx_routine_plan(tnx_routine *r, tnx_planned_routine **out);
void tnx_planned_routine_destroy(tnx_planned_routine *p);
const tnx_routine *tnx_planned_routine_get(const tnx_planned_routine *p);
/* inputs and outputs: device memory, contiguous. The outputs overlap neither each other nor an input. Returns when all work is queued; loops wait for their
 * conditions. Not from inside a task. */
tnx_status tnx_routine_run(const tnx_planned_routine *p, void *const *inputs, void *const *outputs, tnx_stream *stream);
/* Bytes of a value of this type. */
size_t tnx_type_bytes(const tnx_type *t);
#endif
