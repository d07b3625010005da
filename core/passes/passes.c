#include "passes/passes.h"

#include <string.h>

tnx_status tnx_passes_run(tnx_graph *g, bool fuse, tnx_analysis *a) {
  memset(a, 0, sizeof *a);
  tnx_arena_init(&a->arena);
  tnx_status status = TNX_OK;
#define TNX_PASS(name, doc) TNX_TRY_DONE(tnx_pass_##name(g, fuse, a));
#include "passes/passes.def"
#undef TNX_PASS
done:
  if (status != TNX_OK) tnx_analysis_fini(a);
  return status;
}

void tnx_analysis_fini(tnx_analysis *a) {
  tnx_vec_fini(&a->groups);
  tnx_arena_fini(&a->arena);
}
