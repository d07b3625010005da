/* Eager calls: what the plan cache keeps and forgets, and memory that a call's tensors share. Values are tested through PyTorch. */
#include "test.h"

#include "plan/sharing.h"

typedef struct tensors { tnx_tensor t[3]; int64_t sizes[3][2], strides[3][2]; float memory[16]; } tensors;

/* Tensor i: a vector of n elements from element `at` of the memory, `step` apart. */
static void vector(tensors *x, int i, int64_t at, int64_t n, int64_t step) {
  x->sizes[i][0] = n;
  x->strides[i][0] = step;
  x->t[i] = (tnx_tensor){.data = x->memory + at, .sizes = x->sizes[i], .strides = x->strides[i], .storage_begin = (uint64_t)(uintptr_t)x->memory,
                         .storage_end = (uint64_t)(uintptr_t)(x->memory + 16), .rank = 1, .dtype = TNX_F32};
}

typedef struct call { tnx_call c; tnx_arg args[3]; uint32_t into[1]; } call;

/* add(t[0], t[1], alpha=alpha), into t[0] or a new tensor. */
static tnx_status prepare(tensors *x, const char *name, bool in_place, int64_t alpha, call *c, tnx_plan **plan, bool *fresh) {
  memset(c, 0, sizeof *c);
  c->args[0] = (tnx_arg){.kind = TNX_ARG_TENSOR, .value = 0};
  c->args[1] = (tnx_arg){.kind = TNX_ARG_TENSOR, .value = 1};
  c->args[2] = (tnx_arg){.kind = TNX_ARG_INT, .dim = alpha};
  c->c = (tnx_call){.row = tnx_row_find(name), .args = c->args, .n_args = 3, .tensors = x->t, .n_tensors = 2, .into = c->into, .n_into = in_place, .default_dtype = TNX_F32};
  return tnx_call_prepare(&c->c, plan, fresh);
}

static uint64_t entries(void) {
  tnx_cache_stats s;
  tnx_cache_get_stats(&s);
  return s.entries;
}

TEST(a_call_that_is_not_accepted_leaves_no_trace) {
  tensors x;
  call c;
  tnx_plan *plan = NULL;
  bool fresh = false;
  tnx_cache_clear();
  vector(&x, 0, 0, 4, 1);
  vector(&x, 1, 8, 4, 1);
  CHECK_OK(prepare(&x, "add.Tensor", false, 1, &c, &plan, &fresh));
  CHECK(fresh);
  CHECK_EQ(entries(), 0);
  tnx_plan_release(plan);
  CHECK_OK(prepare(&x, "add.Tensor", false, 1, &c, &plan, &fresh)); /* the first one was rejected */
  CHECK(fresh);
  tnx_call_accept(&c.c, plan);
  tnx_call_accept(&c.c, plan); /* two threads may both have found it fresh */
  CHECK_EQ(entries(), 1);
  tnx_plan_release(plan);
  CHECK_OK(prepare(&x, "add.Tensor", false, 1, &c, &plan, &fresh));
  CHECK(!fresh);
  tnx_plan_release(plan);
  vector(&x, 0, 0, 3, 1); /* other sizes, the same kind of call */
  vector(&x, 1, 8, 3, 1);
  CHECK_OK(prepare(&x, "add.Tensor", false, 1, &c, &plan, &fresh));
  CHECK(!fresh);
  CHECK_EQ(entries(), 2);
  tnx_plan_release(plan);
  CHECK_OK(prepare(&x, "sub.Tensor", false, 1, &c, &plan, &fresh)); /* a fresh call that is dropped takes nothing with it */
  CHECK(fresh);
  tnx_plan_release(plan);
  CHECK_EQ(entries(), 2);
  tnx_cache_clear();
  CHECK_EQ(entries(), 0);
}

static int overlap(tensors *x, uint32_t *alias) {
  tnx_sharing s[3];
  uint32_t into = 0;
  tnx_call c = {.tensors = x->t, .n_tensors = 2, .into = &into, .n_into = 1};
  tnx_sharing_find(&c, s);
  CHECK(s[0].overlap == s[1].overlap);
  *alias = s[1].alias;
  return s[0].overlap;
}

TEST(overlaps_are_told_apart) {
  tensors x;
  uint32_t alias;
  vector(&x, 0, 0, 4, 1);
  vector(&x, 1, 4, 4, 1);
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_NONE);
  vector(&x, 1, 1, 4, 1);
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_PARTLY);
  CHECK(alias == TNX_NO_TENSOR);
  vector(&x, 1, 0, 4, 1);
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_NONE);
  CHECK_EQ(alias, 0);
  x.t[1].dtype = TNX_I32;
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_FULL);
  vector(&x, 0, 0, 4, 2); /* the even ones and the odd ones: too hard */
  vector(&x, 1, 1, 4, 2);
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_UNKNOWN);
  vector(&x, 0, 0, 0, 1);
  vector(&x, 1, 0, 4, 1);
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_NONE);
  vector(&x, 0, 0, 4, 1);
  x.t[1].storage_begin += 1024, x.t[1].storage_end += 1024; /* another storage: addresses are not looked at */
  CHECK_EQ(overlap(&x, &alias), TNX_OVERLAP_NONE);
}

TEST(writing_through_an_overlap_is_refused) {
  tensors x;
  call c;
  tnx_plan *plan = NULL;
  bool fresh;
  vector(&x, 0, 1, 4, 1);
  vector(&x, 1, 0, 4, 1);
  CHECK_EQ(prepare(&x, "add.Tensor", true, 1, &c, &plan, &fresh), TNX_INVALID_ARGUMENT);
  CHECK(strstr(tnx_error_text(), "some elements of the input tensor and the written-to tensor refer to a single memory location"));
  CHECK(plan == NULL);
  vector(&x, 1, 1, 4, 1); /* the same memory */
  CHECK_OK(prepare(&x, "add.Tensor", true, 1, &c, &plan, &fresh));
  tnx_plan_release(plan);
  vector(&x, 0, 0, 4, 0); /* one element four times */
  vector(&x, 1, 8, 4, 1);
  CHECK_EQ(prepare(&x, "add.Tensor", true, 1, &c, &plan, &fresh), TNX_INVALID_ARGUMENT);
  CHECK(strstr(tnx_error_text(), "more than one element of the written-to tensor refers to a single memory location"));
}

int main(void) {
  RUN(a_call_that_is_not_accepted_leaves_no_trace);
  RUN(overlaps_are_told_apart);
  RUN(writing_through_an_overlap_is_refused);
  return TEST_END;
}
