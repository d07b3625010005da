/* The AMX matmul kernel's logic, emulated in plain C. */
#define TNX_EMULATE_ISA
#include "kernels/matmul/x86_amx.c"

#include "matmul_cases.h"

static tnx_status select_tiles(const tnxk_matmul *p, tnxk_kernel *out) {
  static const tnxk_matmul_prepare_fn list[] = {tnxk_matmul_tiles__amx_emulated_prepare};
  return mc_first(p, list, 1, out);
}

TEST(small) { mc_many(select_tiles, TNX_BF16, 500, 80); }
TEST(large) { mc_many(select_tiles, TNX_BF16, 12, 500); }

/* k beyond one step, for each way of reading the left side. */
TEST(deep) {
  for (int layout = 0; layout < 4; layout++) {
    uint64_t s = 5 + (uint64_t)layout;
    mcase t;
    memset(&t, 0, sizeof t);
    tnxk_matmul *p = &t.p;
    p->m = 37, p->n = 45, p->k = 2100, p->alpha = 1, p->dtype = p->c_dtype = TNX_BF16;
    p->a_rs = layout & 1 ? p->k : 1, p->a_cs = layout & 1 ? 1 : p->m;
    p->b_rs = layout & 2 ? 1 : p->n, p->b_cs = layout & 2 ? p->k : 1;
    p->c_rs = p->n, p->c_cs = 1;
    p->a = t.a = mc_fill(&s, p->m * p->k, p->dtype);
    p->b = t.b = mc_fill(&s, p->n * p->k, p->dtype);
    t.c_elems = p->m * p->n;
    p->c = t.c = malloc((size_t)t.c_elems * 2);
    tnxk_kernel k;
    CHECK_OK(select_tiles(p, &k));
    mc_run(p, &k, 3);
    CHECK(mc_check(&t));
    mc_free(&t);
  }
}

int main(void) {
  RUN(small);
  RUN(large);
  RUN(deep);
  return TEST_END;
}
