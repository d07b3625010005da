/* The operator table's integrity, and lowerings run on graphs: dtypes, shapes and refusals. Values are tested through PyTorch. */
#include "test.h"

#include "aten/lower.h"

TEST(rows_are_in_place) {
  uint32_t n = tnx_row_count();
  CHECK(n > 400);
  for (uint32_t i = 0; i < n; i++) {
    const tnx_row *r = tnx_row_at(i);
    CHECK(r && r->id == i && tnx_row_lowering(i));
    CHECK(r->functional[0] || r->inplace[0] || r->out[0]);
    if (r->flags & TNX_ROW_VIEW) CHECK(!r->inplace[0] && !r->out[0]);
  }
  CHECK(tnx_row_at(n) == NULL && tnx_row_lowering(n) == NULL);
}

TEST(names_are_unique_and_found) {
  for (uint32_t i = 0; i < tnx_row_count(); i++) {
    const tnx_row *r = tnx_row_at(i);
    const char *names[3] = {r->functional, r->inplace, r->out};
    for (int k = 0; k < 3; k++) {
      if (!names[k][0]) continue;
      if (tnx_row_find(names[k]) != r) printf("%s is found elsewhere\n", names[k]);
      CHECK(tnx_row_find(names[k]) == r);
    }
  }
  CHECK(tnx_row_find("") == NULL && tnx_row_find(NULL) == NULL && tnx_row_find("no_such_operator") == NULL && tnx_row_find("add") == NULL);
}

/* ---- lowerings on a graph ---- */

typedef struct call { tnx_graph g; tnx_lower l; tnx_value out[TNX_MAX_RESULTS]; } call;

static void open_call(call *c) {
  memset(c, 0, sizeof *c);
  CHECK_OK(tnx_graph_init(&c->g, "test"));
  c->l.b = tnx_builder_on(&c->g);
}

static tnx_value input(call *c, tnx_dtype t, int rank, const tnx_dim *sizes) {
  tnx_dim number = (tnx_dim)c->g.inputs.len;
  tnx_type type = {(uint8_t)t, (uint8_t)rank, sizes};
  tnx_value v = 0;
  CHECK_OK(tnx_graph_add(&c->g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, &v));
  static const tnx_dim strides[TNX_MAX_RANK] = {0};
  tnx_input in = {.value = v, .strides = strides, .alias = TNX_NO_TENSOR};
  CHECK(tnx_vec_push(&c->g.inputs, in));
  return v;
}

static tnx_status lower(call *c, const char *name, const tnx_arg *args, uint32_t n) {
  const tnx_row *r = tnx_row_find(name);
  CHECK(r != NULL);
  if (!r) return TNX_INTERNAL;
  c->l.row = r;
  c->l.n_args = n;
  c->l.n_results = 1;
  c->l.b.status = TNX_OK;
  return tnx_row_lowering(r->id)(&c->l, args, c->out);
}

static bool is(const call *c, int i, tnx_dtype t, int rank, const tnx_dim *sizes) {
  const tnx_value_data *v = tnx_graph_value(&c->g, c->out[i]);
  return c->out[i] && v->dtype == t && v->rank == rank && (rank == 0 || memcmp(v->sizes, sizes, sizeof *sizes * (size_t)rank) == 0);
}

#define T(v) {.kind = TNX_ARG_TENSOR, .value = (v)}
#define I(v) {.kind = TNX_ARG_INT, .dim = (v)}
#define F(v) {.kind = TNX_ARG_FLOAT, .number = {(v), 0}}
#define B(v) {.kind = TNX_ARG_BOOL, .dim = (v)}
#define NONE {.kind = TNX_ARG_NONE}

TEST(promotion) {
  call c;
  open_call(&c);
  tnx_dim s[2] = {2, 3};
  tnx_value i32 = input(&c, TNX_I32, 2, s), bf = input(&c, TNX_BF16, 2, s), bits = input(&c, TNX_BOOL, 2, s);
  tnx_arg a1[] = {T(i32), F(1.5), I(1)}, a2[] = {T(bf), F(1.5), I(1)}, a3[] = {T(bits), I(2), I(1)}, a4[] = {T(i32), T(bf)}, a5[] = {T(i32), T(i32)}, a6[] = {T(i32), F(2.5)};
  CHECK_OK(lower(&c, "add.Scalar", a1, 3));
  CHECK(is(&c, 0, TNX_F32, 2, s));
  CHECK_OK(lower(&c, "add.Scalar", a2, 3));
  CHECK(is(&c, 0, TNX_BF16, 2, s));
  CHECK_OK(lower(&c, "add.Scalar", a3, 3));
  CHECK(is(&c, 0, TNX_I64, 2, s));
  CHECK_OK(lower(&c, "mul.Tensor", a4, 2));
  CHECK(is(&c, 0, TNX_BF16, 2, s));
  CHECK_OK(lower(&c, "div.Tensor", a5, 2));
  CHECK(is(&c, 0, TNX_F32, 2, s));
  CHECK_OK(lower(&c, "lt.Scalar", a6, 2));
  CHECK(is(&c, 0, TNX_BOOL, 2, s));
  tnx_arg e[] = {T(bits)};
  CHECK_OK(lower(&c, "exp", e, 1));
  CHECK(is(&c, 0, TNX_F32, 2, s));
  CHECK_EQ(lower(&c, "neg", e, 1), TNX_INVALID_ARGUMENT);
  tnx_graph_fini(&c.g);
}

TEST(reductions_and_views) {
  call c;
  open_call(&c);
  tnx_dim s[3] = {2, 3, 4}, d1 = 1, last[1] = {-1};
  tnx_value x = input(&c, TNX_F32, 3, s), i = input(&c, TNX_I32, 3, s);
  tnx_arg sum_int[] = {T(i), {.kind = TNX_ARG_INTS, .count = 1, .dims = last}, B(0), NONE};
  CHECK_OK(lower(&c, "sum.dim_IntList", sum_int, 4));
  CHECK(is(&c, 0, TNX_I64, 2, s));
  tnx_arg mean_int[] = {T(i), NONE, B(0), NONE};
  CHECK_EQ(lower(&c, "mean.dim", mean_int, 4), TNX_DTYPE);
  tnx_arg max_dim[] = {T(x), I(-2), B(1)};
  tnx_dim kept[3] = {2, 1, 4};
  CHECK_OK(lower(&c, "max.dim", max_dim, 3));
  CHECK(c.l.n_results == 2 && is(&c, 0, TNX_F32, 3, kept) && is(&c, 1, TNX_I64, 3, kept));
  tnx_arg out_of_range[] = {T(x), I(3), B(0)};
  CHECK_EQ(lower(&c, "max.dim", out_of_range, 3), TNX_INDEX);
  tnx_arg split[] = {T(x), I(3), I(2)};
  tnx_dim first[3] = {2, 3, 3}, second[3] = {2, 3, 1};
  CHECK_OK(lower(&c, "split.Tensor", split, 3));
  CHECK(c.l.n_results == 2 && is(&c, 0, TNX_F32, 3, first) && is(&c, 1, TNX_F32, 3, second));
  tnx_arg slice[] = {T(x), I(1), I(-2), I(INT64_MAX), I(1)};
  tnx_dim two[3] = {2, 2, 4};
  CHECK_OK(lower(&c, "slice.Tensor", slice, 5));
  CHECK(is(&c, 0, TNX_F32, 3, two));
  tnx_arg any[] = {T(x), {.kind = TNX_ARG_INTS, .count = 0, .dims = &d1}, B(0)};
  CHECK_OK(lower(&c, "any.dims", any, 3)); /* an empty list reduces nothing */
  CHECK(is(&c, 0, TNX_BOOL, 3, s));
  tnx_graph_fini(&c.g);
}

TEST(advanced_indexing) {
  call c;
  open_call(&c);
  tnx_dim s[3] = {5, 6, 7}, n = 4;
  tnx_value x = input(&c, TNX_F32, 3, s), index = input(&c, TNX_I64, 1, &n), mask = input(&c, TNX_BOOL, 3, s), value = input(&c, TNX_F32, 0, NULL);
  uint32_t apart[3] = {index, TNX_NO_TENSOR, index}, beside[3] = {TNX_NO_TENSOR, index, index}, masked[1] = {mask};
  tnx_arg a[] = {T(x), {.kind = TNX_ARG_TENSORS, .count = 3, .values = apart}};
  tnx_dim front[2] = {4, 6}, inner[2] = {5, 4};
  CHECK_OK(lower(&c, "index.Tensor", a, 2));
  CHECK(is(&c, 0, TNX_F32, 2, front));
  a[1].values = beside;
  CHECK_OK(lower(&c, "index.Tensor", a, 2));
  CHECK(is(&c, 0, TNX_F32, 2, inner));
  a[1].values = masked, a[1].count = 1;
  CHECK_EQ(lower(&c, "index.Tensor", a, 2), TNX_NOT_IMPLEMENTED);
  tnx_arg put[] = {T(x), {.kind = TNX_ARG_TENSORS, .count = 1, .values = masked}, T(value), B(0)};
  CHECK_OK(lower(&c, "index_put", put, 4));
  CHECK(is(&c, 0, TNX_F32, 3, s));
  tnx_graph_fini(&c.g);
}

TEST(symbolic_sizes) {
  call c;
  open_call(&c);
  tnx_dim n;
  CHECK_OK(tnx_graph_symbol(&c.g, "n", 2, &n));
  tnx_dim s[2] = {n, 8}, flat = -1;
  tnx_value x = input(&c, TNX_BF16, 2, s);
  tnx_arg mean[] = {T(x), {.kind = TNX_ARG_INTS, .count = 1, .dims = (tnx_dim[]){0}}, B(1), NONE};
  tnx_dim reduced[2] = {1, 8};
  CHECK_OK(lower(&c, "mean.dim", mean, 4));
  CHECK(is(&c, 0, TNX_BF16, 2, reduced));
  tnx_arg slice[] = {T(x), I(0), I(0), I(INT64_MAX), I(1)};
  CHECK_OK(lower(&c, "slice.Tensor", slice, 5));
  CHECK(c.out[0] == x);
  tnx_arg view[] = {T(x), {.kind = TNX_ARG_INTS, .count = 1, .dims = &flat}};
  CHECK_OK(lower(&c, "view", view, 2));
  CHECK(tnx_graph_value(&c.g, c.out[0])->rank == 1);
  tnx_arg range[] = {I(n), NONE, NONE, NONE, NONE};
  CHECK_OK(lower(&c, "arange", range, 5));
  CHECK(is(&c, 0, TNX_I64, 1, &n));
  CHECK_OK(tnx_graph_verify(&c.g));
  tnx_graph_fini(&c.g);
}

int main(void) {
  RUN(rows_are_in_place);
  RUN(names_are_unique_and_found);
  RUN(promotion);
  RUN(reductions_and_views);
  RUN(advanced_indexing);
  RUN(symbolic_sizes);
  return TEST_END;
}
