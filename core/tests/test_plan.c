/* Plans end to end: graphs from the builder, through passes and planner, run on a stream, against values worked out here. */
#include "ir/builder.h"
#include "plan/run.h"
#include "test.h"

typedef struct rig {
  tnx_graph g;
  tnx_builder b;
} rig;

static void open_rig(rig *r) {
  CHECK_OK(tnx_graph_init(&r->g, "test"));
  r->b = tnx_builder_on(&r->g);
}

static tnx_value input(rig *r, tnx_dtype t, int rank, const tnx_dim *sizes, const tnx_dim *strides) {
  tnx_value v;
  tnx_dim number = r->g.inputs.len;
  tnx_type type = {(uint8_t)t, (uint8_t)rank, sizes};
  CHECK_OK(tnx_graph_add(&r->g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, &v));
  tnx_dim row_major[TNX_MAX_RANK], step = 1;
  for (int i = rank; i-- > 0; step *= strides ? 1 : sizes[i]) row_major[i] = step;
  tnx_input in = {v, tnx_arena_copy(&r->g.arena, strides ? strides : row_major, (size_t)rank * sizeof *strides), TNX_NO_TENSOR, false};
  CHECK(tnx_vec_push(&r->g.inputs, in));
  return v;
}

static void output(rig *r, tnx_value v, uint32_t into) {
  tnx_output o = {v, into, NULL};
  CHECK(v != 0);
  CHECK(tnx_vec_push(&r->g.outputs, o));
}

/* Builds, runs once with host pointers (the host device's memory is host memory), synchronises; the number of steps. */
static uint32_t run(rig *r, const int64_t *symbols, void **inputs, void **results) {
  CHECK_OK(r->b.status);
  CHECK_OK(tnx_graph_verify(&r->g));
  tnx_plan *p = NULL;
  tnx_instance *inst = NULL;
  tnx_stream *s;
  uint32_t steps = 0;
  CHECK_OK(tnx_plan_build(&r->g, &p));
  CHECK_OK(tnx_stream_default(0, &s));
  if (p) {
    CHECK_OK(tnx_instance_get(p, symbols, p->n_symbols, &inst));
    if (inst) {
      CHECK_OK(tnx_plan_launch(p, inst, inputs, results, s));
      CHECK_OK(tnx_stream_synchronize(s));
      tnx_instance_release(inst);
    }
    steps = p->steps.len;
    tnx_plan_release(p);
  }
  tnx_graph_fini(&r->g);
  return steps;
}

TEST(pointwise_chain_is_one_step) {
  rig r;
  open_rig(&r);
  tnx_dim n[2] = {3, 5}, row[1] = {5};
  tnx_value a = input(&r, TNX_F32, 2, n, NULL), c = input(&r, TNX_F32, 1, row, NULL);
  tnx_value x = tnx_b_binary(&r.b, TNX_OP_ADD, a, c);
  tnx_value y = tnx_b_binary_f(&r.b, TNX_OP_MUL, tnx_b_unary(&r.b, TNX_OP_NEG, x), 2);
  output(&r, y, TNX_NO_TENSOR);
  output(&r, x, TNX_NO_TENSOR);
  float av[15], cv[5], yv[15], xv[15];
  for (int i = 0; i < 15; i++) av[i] = (float)i;
  for (int i = 0; i < 5; i++) cv[i] = (float)(10 * i);
  CHECK_EQ(run(&r, NULL, (void *[]){av, cv}, (void *[]){yv, xv}), 1);
  for (int i = 0; i < 15; i++) {
    CHECK(xv[i] == av[i] + cv[i % 5]);
    CHECK(yv[i] == -2 * (av[i] + cv[i % 5]));
  }
}

TEST(softmax_is_one_row_program) {
  rig r;
  open_rig(&r);
  tnx_dim n[2] = {4, 7};
  int last = 1;
  tnx_value x = input(&r, TNX_F32, 2, n, NULL);
  tnx_value m = tnx_b_reduce(&r.b, TNX_OP_REDUCE_MAX, x, &last, 1, true);
  tnx_value e = tnx_b_unary(&r.b, TNX_OP_EXP, tnx_b_binary(&r.b, TNX_OP_SUB, x, m));
  tnx_value s = tnx_b_reduce(&r.b, TNX_OP_REDUCE_SUM, e, &last, 1, true);
  output(&r, tnx_b_binary(&r.b, TNX_OP_DIV, e, s), TNX_NO_TENSOR);
  float xv[28], yv[28];
  uint64_t seed = 1;
  for (int i = 0; i < 28; i++) xv[i] = 5 * test_randf(&seed);
  CHECK_EQ(run(&r, NULL, (void *[]){xv}, (void *[]){yv}), 1);
  for (int i = 0; i < 4; i++) {
    double sum = 0;
    for (int j = 0; j < 7; j++) sum += exp(xv[i * 7 + j]);
    for (int j = 0; j < 7; j++) CHECK(fabs(yv[i * 7 + j] - exp(xv[i * 7 + j]) / sum) < 1e-6);
  }
}

TEST(reductions_take_prologue_and_epilogue) {
  for (int dim = 0; dim < 3; dim++) {
    rig r;
    open_rig(&r);
    tnx_dim n[3] = {3, 4, 5};
    tnx_value x = input(&r, TNX_F32, 3, n, NULL);
    tnx_value sum = tnx_b_reduce(&r.b, TNX_OP_REDUCE_SUM, tnx_b_binary(&r.b, TNX_OP_MUL, x, x), &dim, 1, false);
    output(&r, tnx_b_unary(&r.b, TNX_OP_SQRT, sum), TNX_NO_TENSOR);
    float xv[60], yv[20];
    for (int i = 0; i < 60; i++) xv[i] = (float)(i % 11) - 5;
    run(&r, NULL, (void *[]){xv}, (void *[]){yv});
    int inner = dim == 2 ? 1 : dim == 1 ? 5 : 20, outer = 60 / inner / (int)n[dim];
    for (int o = 0; o < outer; o++)
      for (int i = 0; i < inner; i++) {
        double s = 0;
        for (int k = 0; k < n[dim]; k++) s += pow(xv[(o * n[dim] + k) * inner + i], 2);
        CHECK(fabs(yv[o * inner + i] - sqrt(s)) < 1e-5);
      }
  }
}

TEST(views_cost_nothing_and_copies_follow_strides) {
  rig r;
  open_rig(&r);
  tnx_dim n[2] = {4, 6}, flat[1] = {12};
  tnx_value x = input(&r, TNX_I32, 2, n, NULL);
  tnx_value t = tnx_b_swap_dims(&r.b, x, 0, 1);              /* [6, 4] */
  tnx_value s = tnx_b_slice(&r.b, t, 0, 1, 3, 2);            /* rows 1, 3, 5 */
  output(&r, tnx_b_reshape(&r.b, s, 1, flat), TNX_NO_TENSOR);
  int32_t xv[24], yv[12];
  for (int i = 0; i < 24; i++) xv[i] = i;
  CHECK_EQ(run(&r, NULL, (void *[]){xv}, (void *[]){yv}), 1);
  for (int i = 0; i < 12; i++) CHECK_EQ(yv[i], (i % 4) * 6 + 1 + 2 * (i / 4));
}

TEST(cache_update_is_in_place) {
  rig r;
  open_rig(&r);
  tnx_dim cache[2] = {8, 3}, one[2] = {1, 3}, idx[1] = {1};
  tnx_value c = input(&r, TNX_F32, 2, cache, NULL), row = input(&r, TNX_F32, 2, one, NULL), i = input(&r, TNX_I64, 1, idx, NULL);
  tnx_value updated = tnx_b_put(&r.b, c, i, row, 0, 0);
  output(&r, tnx_b_reduce(&r.b, TNX_OP_REDUCE_SUM, updated, NULL, 0, false), TNX_NO_TENSOR);
  output(&r, updated, 0);
  float cv[24] = {0}, rv[3] = {1, 2, 3}, sum = 0;
  int64_t at = 5;
  CHECK_EQ(run(&r, NULL, (void *[]){cv, rv, &at}, (void *[]){&sum, NULL}), 2); /* a scatter and a sum: no copy of the cache */
  CHECK(sum == 6);
  CHECK(cv[15] == 1 && cv[17] == 3 && cv[0] == 0);
}

TEST(mutation_waits_for_readers) {
  rig r;
  open_rig(&r);
  tnx_dim n[1] = {6};
  int zero = 0;
  tnx_value x = input(&r, TNX_F32, 1, n, NULL);
  tnx_value twice = tnx_b_binary_f(&r.b, TNX_OP_MUL, x, 2);
  tnx_value flipped = tnx_b_reverse(&r.b, x, &zero, 1); /* read after `twice` is computed */
  output(&r, twice, 0);
  output(&r, flipped, TNX_NO_TENSOR);
  float xv[6] = {1, 2, 3, 4, 5, 6}, fv[6];
  run(&r, NULL, (void *[]){xv}, (void *[]){NULL, fv});
  for (int i = 0; i < 6; i++) {
    CHECK(xv[i] == 2 * (i + 1));
    CHECK(fv[i] == 6 - i);
  }
}

TEST(concat_is_written_by_its_producers) {
  rig r;
  open_rig(&r);
  tnx_dim n[2] = {2, 4};
  tnx_value x = input(&r, TNX_F32, 2, n, NULL);
  tnx_value parts[2] = {tnx_b_unary(&r.b, TNX_OP_NEG, tnx_b_slice(&r.b, x, 1, 2, 2, 1)), tnx_b_slice(&r.b, x, 1, 0, 2, 1)};
  output(&r, tnx_b_concat(&r.b, parts, 2, 1), TNX_NO_TENSOR);
  float xv[8] = {1, 2, 3, 4, 5, 6, 7, 8}, yv[8];
  CHECK_EQ(run(&r, NULL, (void *[]){xv}, (void *[]){yv}), 2);
  float want[8] = {-3, -4, 1, 2, -7, -8, 5, 6};
  for (int i = 0; i < 8; i++) CHECK(yv[i] == want[i]);
}

TEST(linear_uses_the_weight_as_it_is) {
  rig r;
  open_rig(&r);
  tnx_dim xs[3] = {2, 3, 16}, ws[2] = {5, 16}, bs[1] = {5};
  tnx_value x = input(&r, TNX_F32, 3, xs, NULL), w = input(&r, TNX_F32, 2, ws, NULL), bias = input(&r, TNX_F32, 1, bs, NULL);
  output(&r, tnx_b_linear(&r.b, x, w, bias), TNX_NO_TENSOR);
  float xv[96], wv[80], bv[5], yv[30];
  uint64_t seed = 3;
  for (int i = 0; i < 96; i++) xv[i] = test_randf(&seed);
  for (int i = 0; i < 80; i++) wv[i] = test_randf(&seed);
  for (int i = 0; i < 5; i++) bv[i] = test_randf(&seed);
  CHECK_EQ(run(&r, NULL, (void *[]){xv, wv, bv}, (void *[]){yv}), 1);
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 5; j++) {
      double s = bv[j];
      for (int k = 0; k < 16; k++) s += (double)xv[i * 16 + k] * wv[j * 16 + k];
      CHECK(fabs(yv[i * 5 + j] - s) < 1e-5);
    }
}

TEST(symbolic_sizes_need_no_new_plan) {
  rig r;
  open_rig(&r);
  tnx_dim s, sizes[2], strides[2] = {4, 1};
  CHECK_OK(tnx_graph_symbol(&r.g, "s0", 2, &s));
  sizes[0] = s;
  sizes[1] = 4;
  tnx_value x = input(&r, TNX_F32, 2, sizes, strides);
  tnx_dim flat[1] = {-1};
  int zero = 0;
  tnx_value mean = tnx_b_binary(&r.b, TNX_OP_DIV, tnx_b_reduce(&r.b, TNX_OP_REDUCE_SUM, x, &zero, 1, true),
                                tnx_b_convert(&r.b, tnx_b_dimval(&r.b, s), TNX_F32));
  output(&r, tnx_b_reshape(&r.b, tnx_b_binary(&r.b, TNX_OP_SUB, x, mean), 1, flat), TNX_NO_TENSOR);
  CHECK_OK(r.b.status);
  tnx_plan *p;
  CHECK_OK(tnx_plan_build(&r.g, &p));
  tnx_stream *stream;
  CHECK_OK(tnx_stream_default(0, &stream));
  for (int64_t n = 2; n < 9; n++) {
    float xv[40], yv[40];
    tnx_result res;
    for (int i = 0; i < n * 4; i++) xv[i] = (float)(i * i % 13);
    CHECK_OK(tnx_plan_infer(p, &n, 1, &res));
    CHECK_EQ(res.sizes[0], n * 4);
    CHECK_OK(tnx_plan_run(p, &n, 1, (void *[]){xv}, 1, (void *[]){yv}, 1, stream));
    CHECK_OK(tnx_stream_synchronize(stream));
    for (int j = 0; j < 4; j++) {
      double m = 0;
      for (int i = 0; i < n; i++) m += xv[i * 4 + j];
      m /= (double)n;
      for (int i = 0; i < n; i++) CHECK(fabs(yv[i * 4 + j] - (xv[i * 4 + j] - m)) < 1e-5);
    }
  }
  tnx_plan_release(p);
  tnx_graph_fini(&r.g);
}

/* What an update writes over, others still want to read: as it was, under another view, or as a part. */
TEST(a_base_that_others_read_is_not_overwritten) {
  for (int form = 0; form < 3; form++) {
    rig r;
    open_rig(&r);
    tnx_dim n[1] = {6}, m[2] = {2, 3}, one[2] = {2, 1};
    tnx_value x = input(&r, TNX_F32, 1, n, NULL), z = input(&r, TNX_F32, 2, one, NULL);
    tnx_value y = tnx_b_unary(&r.b, TNX_OP_NEG, x), part = tnx_b_unary(&r.b, TNX_OP_NEG, tnx_b_slice(&r.b, x, 0, 0, 3, 1));
    if (form == 2) y = tnx_b_concat(&r.b, (tnx_value[]){part, tnx_b_slice(&r.b, x, 0, 3, 3, 1)}, 2, 0);
    int dim = 0;
    tnx_value u = tnx_b_update_slice(&r.b, tnx_b_reshape(&r.b, y, 2, m), z, 1, 0, 1);
    output(&r, u, TNX_NO_TENSOR);
    output(&r, form == 0 ? y : form == 1 ? tnx_b_reverse(&r.b, y, &dim, 1) : tnx_b_reverse(&r.b, part, &dim, 1), TNX_NO_TENSOR);
    float xv[6] = {1, 2, 3, 4, 5, 6}, zv[2] = {0, 0}, uv[6], yv[6];
    run(&r, NULL, (void *[]){xv, zv}, (void *[]){uv, yv});
    CHECK(uv[0] == 0 && uv[1] == -2 && uv[3] == 0);
    if (form == 0) CHECK(yv[0] == -1 && yv[3] == -4);
    if (form == 1) CHECK(yv[5] == -1 && yv[2] == -4);
    if (form == 2) CHECK(yv[2] == -1 && yv[0] == -3);
  }
}

/* A reshape that has to copy copies straight into what is updated, but is not looked for there afterwards. */
TEST(a_copied_base_is_still_itself) {
  rig r;
  open_rig(&r);
  tnx_dim n[2] = {2, 3}, swapped[1] = {6}, one[1] = {1};
  tnx_value x = input(&r, TNX_F32, 2, n, NULL), z = input(&r, TNX_F32, 1, one, NULL);
  tnx_value y = tnx_b_reshape(&r.b, tnx_b_swap_dims(&r.b, x, 0, 1), 1, swapped);
  output(&r, y, TNX_NO_TENSOR);
  output(&r, tnx_b_update_slice(&r.b, y, z, 0, 1, 1), TNX_NO_TENSOR);
  float xv[6] = {1, 2, 3, 4, 5, 6}, zv[1] = {9}, yv[6], uv[6];
  run(&r, NULL, (void *[]){xv, zv}, (void *[]){yv, uv});
  CHECK(yv[0] == 1 && yv[1] == 4 && yv[2] == 2);
  CHECK(uv[0] == 1 && uv[1] == 9 && uv[2] == 2);
}

TEST(bad_index_is_an_error_and_the_device_goes_on) {
  for (int64_t at = -5; at < 7; at += 11) { /* -5 and 6: both out of [-4, 4) */
    rig r;
    open_rig(&r);
    tnx_dim n[2] = {4, 2}, one[1] = {1};
    tnx_value x = input(&r, TNX_F32, 2, n, NULL), i = input(&r, TNX_I64, 1, one, NULL);
    output(&r, tnx_b_take(&r.b, x, i, 0), TNX_NO_TENSOR);
    float xv[8] = {0}, yv[2];
    tnx_plan *p;
    tnx_stream *s;
    CHECK_OK(tnx_plan_build(&r.g, &p));
    CHECK_OK(tnx_stream_default(0, &s));
    CHECK_OK(tnx_plan_run(p, NULL, 0, (void *[]){xv, &at}, 2, (void *[]){yv}, 1, s));
    CHECK_EQ(tnx_stream_synchronize(s), TNX_INDEX);
    CHECK(strstr(tnx_error_text(), at < 0 ? "index -5 is out of bounds for dimension 0 with size 4" : "index 6 is out of bounds for dimension 0 with size 4") != NULL);
    int64_t good = 3;
    CHECK_OK(tnx_plan_run(p, NULL, 0, (void *[]){xv, &good}, 2, (void *[]){yv}, 1, s));
    CHECK_OK(tnx_stream_synchronize(s));
    tnx_plan_release(p);
    tnx_graph_fini(&r.g);
  }
}

TEST(failed_checks_are_faults_of_the_step) {
  for (int shape = 0; shape < 3; shape++) { /* each element; one number for all; one for each row */
    rig r;
    open_rig(&r);
    enum { ROWS = 40, COLS = 30 };
    tnx_dim n[2] = {ROWS, COLS}, m[2] = {shape == 1 ? 1 : ROWS, shape ? 1 : COLS};
    tnx_value x = input(&r, TNX_I64, 2, n, NULL), y = input(&r, TNX_I64, 2, m, NULL);
    tnx_value ok = tnx_b_binary_f(&r.b, TNX_OP_GE, y, 0);
    tnx_value sum = tnx_b_binary(&r.b, TNX_OP_ADD, x, tnx_b_check(&r.b, y, ok, TNX_FAULT_TARGET));
    int last = 1;
    output(&r, sum, TNX_NO_TENSOR);
    output(&r, tnx_b_reduce(&r.b, TNX_OP_REDUCE_SUM, sum, &last, 1, false), TNX_NO_TENSOR);
    CHECK_OK(r.b.status);
    int64_t xv[ROWS * COLS] = {0}, yv[ROWS * COLS] = {0}, sv[ROWS * COLS], tv[ROWS];
    int count = (int)(m[0] * m[1]);
    tnx_plan *p;
    tnx_stream *s;
    CHECK_OK(tnx_plan_build(&r.g, &p));
    CHECK_OK(tnx_stream_default(0, &s));
    for (int bad = 0; bad < 2; bad++) {
      yv[count - 1] = bad ? -9 : 9;
      CHECK_OK(tnx_plan_run(p, NULL, 0, (void *[]){xv, yv}, 2, (void *[]){sv, tv}, 2, s));
      tnx_status status = tnx_stream_synchronize(s);
      CHECK_EQ(status, bad ? TNX_INDEX : TNX_OK);
      if (bad) CHECK(strstr(tnx_error_text(), "Target -9 is out of bounds.") != NULL);
      else CHECK_EQ(sv[ROWS * COLS - 1], 9);
    }
    tnx_plan_release(p);
    tnx_graph_fini(&r.g);
  }
}

TEST(checks_of_constants_are_folded) {
  rig r;
  open_rig(&r);
  tnx_dim n[1] = {4};
  tnx_value x = input(&r, TNX_I64, 1, n, NULL), two = tnx_b_const_i(&r.b, TNX_I64, 2), zero = tnx_b_const_i(&r.b, TNX_I64, 0);
  CHECK(tnx_b_check(&r.b, two, tnx_b_binary_f(&r.b, TNX_OP_NE, two, 0), TNX_FAULT_ZERO_DIVISION) == two);
  CHECK(tnx_b_check(&r.b, zero, tnx_b_binary_f(&r.b, TNX_OP_NE, zero, 0), TNX_FAULT_ZERO_DIVISION) != zero);
  CHECK(x && r.b.status == TNX_OK);
  tnx_graph_fini(&r.g);
}

int main(void) {
  RUN(pointwise_chain_is_one_step);
  RUN(softmax_is_one_row_program);
  RUN(reductions_take_prologue_and_epilogue);
  RUN(views_cost_nothing_and_copies_follow_strides);
  RUN(cache_update_is_in_place);
  RUN(mutation_waits_for_readers);
  RUN(concat_is_written_by_its_producers);
  RUN(linear_uses_the_weight_as_it_is);
  RUN(symbolic_sizes_need_no_new_plan);
  RUN(a_base_that_others_read_is_not_overwritten);
  RUN(a_copied_base_is_still_itself);
  RUN(bad_index_is_an_error_and_the_device_goes_on);
  RUN(failed_checks_are_faults_of_the_step);
  RUN(checks_of_constants_are_folded);
  tnx_runtime_close();
  return TEST_END;
}
