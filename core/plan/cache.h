/* The cache of eager calls' plans.
 *
 * The key of a plan is everything it depends on: the row, the arguments, each tensor's dtype, flags, sizes and strides, and which tensors share memory with one
 * that is written. Values of host scalars and addresses are not part of it. A call's class is its key without sizes and numbers: what PyTorch's Meta kernels
 * check dtypes and arguments by. A hit costs one hash of some hundred bytes, one probe and one comparison, under one mutex. */
#ifndef TNX_PLAN_CACHE_H
#define TNX_PLAN_CACHE_H
#include "plan/plan.h"
#include "plan/sharing.h"

typedef struct tnx_cache_key {
  unsigned char *data;
  uint64_t hash;
  size_t len, cap;
  unsigned char small[1536];
  bool failed;
} tnx_cache_key;

/* OUT_OF_MEMORY is possible for calls with many arguments. fini in any case. */
tnx_status tnx_cache_key_init(tnx_cache_key *k, const tnx_call *c, const tnx_sharing *s);
void tnx_cache_key_fini(tnx_cache_key *k);
uint64_t tnx_cache_class_of(const tnx_call *c);

/* The plan, retained; NULL: none. */
tnx_plan *tnx_cache_find(const tnx_cache_key *k);
/* Keeps the plan, which took so long to build, and retains it. A plan of that key that is there already stays in its place. */
void tnx_cache_keep(const tnx_cache_key *k, tnx_plan *plan, uint64_t build_ns);
bool tnx_cache_knows_class(uint64_t hash);
void tnx_cache_note_class(uint64_t hash);
#endif
