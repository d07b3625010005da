/* Launching an instance of a plan on a stream. */
#ifndef TNX_PLAN_RUN_H
#define TNX_PLAN_RUN_H
#include "plan/plan.h"

/* Queues the plan. inputs: an address for each input (host scalars: of the value, which is copied); results: an address for each output, ignored for
 * those that go into inputs. Temporaries come from the stream's device and are given back in stream order. */
tnx_status tnx_plan_launch(tnx_plan *p, tnx_instance *inst, void *const *inputs, void *const *results, tnx_stream *stream);
#endif
