/* The matmul kernels of this machine, at every instruction-set level it has. */
#include "matmul_cases.h"

static tnx_isa level;
static tnx_status select_level(const tnxk_matmul *p, tnxk_kernel *out) { return tnxk_matmul_select(p, level, 2, out); }

static const uint8_t dtypes[] = {TNX_F32, TNX_BF16, TNX_F16, TNX_F64, TNX_I64, TNX_I32, TNX_I16, TNX_I8, TNX_U8};

static void every_dtype(tnx_isa isa, int count, int64_t big) {
  if (isa > tnx_cpu_isa()) return;
  level = isa;
  for (size_t i = 0; i < sizeof dtypes; i++) mc_many(select_level, dtypes[i], count, big);
}

TEST(scalar) { every_dtype(TNX_ISA_SCALAR, 150, 40); }
TEST(avx2_small) { every_dtype(TNX_ISA_AVX2, 400, 40); }
TEST(avx2_large) { every_dtype(TNX_ISA_AVX2, 40, 300); }
TEST(avx512) { every_dtype(TNX_ISA_AVX512, 200, 80); }
TEST(avx512_bf16) { every_dtype(TNX_ISA_AVX512_BF16, 200, 80); }
TEST(amx) { every_dtype(TNX_ISA_AMX, 200, 80); }

/* Shapes that cross every block limit. */
TEST(blocks) {
  static const struct { int64_t m, n, k; bool weight; uint8_t dtype; } shapes[] = {
      {1, 1000, 9000, true, TNX_BF16}, {4, 700, 5000, true, TNX_F32},   {13, 100, 7000, true, TNX_BF16},
      {1, 3000, 700, false, TNX_F32},  {3, 1111, 500, false, TNX_BF16}, {210, 530, 660, true, TNX_BF16},
      {400, 100, 1000, false, TNX_F32}, {2000, 70, 90, true, TNX_F32},  {7, 50, 20000, false, TNX_F32}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    uint64_t s = 7 + i;
    mcase t;
    memset(&t, 0, sizeof t);
    tnxk_matmul *p = &t.p;
    p->m = shapes[i].m, p->n = shapes[i].n, p->k = shapes[i].k, p->alpha = 1;
    p->dtype = shapes[i].dtype, p->c_dtype = TNX_F32;
    p->a_rs = p->k, p->a_cs = 1, p->c_rs = p->n, p->c_cs = 1;
    p->b_rs = shapes[i].weight ? 1 : p->n, p->b_cs = shapes[i].weight ? p->k : 1;
    p->a = t.a = mc_fill(&s, p->m * p->k, p->dtype);
    p->b = t.b = mc_fill(&s, p->n * p->k, p->dtype);
    t.c_elems = p->m * p->n;
    p->c = t.c = malloc((size_t)t.c_elems * 4);
    tnxk_kernel k;
    CHECK_OK(tnxk_matmul_select(p, tnx_cpu_isa(), 2, &k));
    mc_run(p, &k, 99 + i);
    CHECK(mc_check(&t));
    mc_free(&t);
  }
}

TEST(refusals) {
  tnxk_matmul p = {.m = 2, .n = 2, .k = 2, .a_rs = 2, .a_cs = 1, .b_rs = 2, .b_cs = 1, .c_rs = 2, .c_cs = 1, .alpha = 1};
  tnxk_kernel k;
  p.dtype = p.c_dtype = TNX_C64;
  CHECK(tnxk_matmul_select(&p, TNX_ISA_AVX2, 1, &k) == TNX_NOT_IMPLEMENTED);
  p.dtype = TNX_F32, p.c_dtype = TNX_BF16;
  CHECK(tnxk_matmul_select(&p, TNX_ISA_AVX2, 1, &k) == TNX_NOT_IMPLEMENTED);
  p.dtype = p.c_dtype = TNX_I32, p.act = TNXK_ACT_RELU;
  CHECK(tnxk_matmul_select(&p, TNX_ISA_AVX2, 1, &k) == TNX_NOT_IMPLEMENTED);
  p.act = 0, p.m = -1;
  CHECK(tnxk_matmul_select(&p, TNX_ISA_AVX2, 1, &k) == TNX_INVALID_ARGUMENT);
}

int main(void) {
  RUN(scalar);
  RUN(avx2_small);
  RUN(avx2_large);
  RUN(avx512);
  RUN(avx512_bf16);
  RUN(amx);
  RUN(blocks);
  RUN(refusals);
  return TEST_END;
}
