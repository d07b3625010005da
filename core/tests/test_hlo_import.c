/* StableHLO read back: values of modules that are written by hand, messages with their places, and damaged texts, which must not do any harm.
 * That modules of the writer keep their meaning is tested against PyTorch and XLA in tests/test_nrt_host.py. */
#include "test.h"

#include "base/alloc.h"
#include "plan/routine.h"

/* ---- running ---- */

typedef struct array { const void *data; size_t bytes; } array;

/* Imports, plans and runs a text whose results lie one behind the other in out. */
static tnx_status run(const char *text, const array *in, uint32_t n_in, void *out) {
  tnx_routine *r = NULL;
  tnx_planned_routine *p = NULL;
  tnx_stream *s = NULL;
  void *inputs[8] = {0}, *outputs[8] = {0};
  TNX_TRY(tnx_routine_from_stablehlo("t.mlir", text, strlen(text), 0, &r));
  tnx_status status = tnx_routine_plan(r, &p);
  if (status != TNX_OK) {
    tnx_routine_destroy(r);
    return status;
  }
  CHECK_EQ(r->n_inputs, n_in);
  TNX_TRY_DONE(tnx_stream_default(0, &s));
  for (uint32_t i = 0; i < n_in; i++) {
    TNX_TRY_DONE(tnx_mem_alloc(0, in[i].bytes, s, &inputs[i]));
    if (in[i].bytes) TNX_TRY_DONE(tnx_copy_to_device(inputs[i], in[i].data, in[i].bytes, s, true));
  }
  for (uint32_t i = 0; i < r->outputs.len; i++) TNX_TRY_DONE(tnx_mem_alloc(0, tnx_type_bytes(&r->values.data[r->outputs.data[i]]), s, &outputs[i]));
  TNX_TRY_DONE(tnx_routine_run(p, inputs, outputs, s));
  for (uint32_t i = 0; i < r->outputs.len; i++) {
    size_t bytes = tnx_type_bytes(&r->values.data[r->outputs.data[i]]);
    if (bytes) TNX_TRY_DONE(tnx_copy_to_host(out, outputs[i], bytes, s));
    out = (char *)out + bytes;
  }
done:
  if (s && status == TNX_OK) status = tnx_stream_synchronize(s);
  for (int i = 0; i < 8; i++) {
    if (inputs[i]) tnx_mem_free(inputs[i]);
    if (outputs[i]) tnx_mem_free(outputs[i]);
  }
  tnx_planned_routine_destroy(p);
  return status;
}

static const char *const add_text =
    "module @t {\n"
    "  func.func public @main(%1: tensor<3xf32>, %2: tensor<3xf32>) -> (tensor<3xf32>) {\n"
    "    %3 = \"stablehlo.add\"(%1, %2) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n"
    "    func.return %3 : tensor<3xf32>\n"
    "  }\n"
    "}\n";

TEST(a_sum) {
  const float x[3] = {1, 2, 3}, y[3] = {10, 20, 30};
  float r[3] = {0};
  const array in[2] = {{x, sizeof x}, {y, sizeof y}};
  CHECK_OK(run(add_text, in, 2, r));
  for (int i = 0; i < 3; i++) CHECK(r[i] == x[i] + y[i]);
}

/* Collatz: steps until every element is 1. The length depends on the data, and the body reads a value from outside. */
static const char *const loop_text =
    "module @t {\n"
    "  func.func public @main(%1: tensor<4xi64>, %2: tensor<i64>) -> (tensor<4xi64>, tensor<i64>, tensor<4xi64>) {\n"
    "    %3 = \"stablehlo.constant\"() <{value = dense<0> : tensor<i64>}> : () -> tensor<i64>\n"
    "    %4 = \"stablehlo.constant\"() <{value = dense<1> : tensor<4xi64>}> : () -> tensor<4xi64>\n"
    "    %5 = \"stablehlo.broadcast_in_dim\"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<i64>) -> tensor<4xi64>\n"
    "    %6 = \"stablehlo.constant\"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>\n"
    "    %10, %11 = \"stablehlo.while\"(%1, %3) ({\n"
    "    ^bb0(%12: tensor<4xi64>, %13: tensor<i64>):\n"
    "      %14 = \"stablehlo.compare\"(%12, %4) <{comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>\n"
    "      %15 = \"stablehlo.reduce\"(%14, %6) <{dimensions = array<i64: 0>}> ({\n"
    "      ^bb0(%16: tensor<i1>, %17: tensor<i1>):\n"
    "        %18 = \"stablehlo.or\"(%16, %17) : (tensor<i1>, tensor<i1>) -> tensor<i1>\n"
    "        \"stablehlo.return\"(%18) : (tensor<i1>) -> ()\n"
    "      }) : (tensor<4xi1>, tensor<i1>) -> tensor<i1>\n"
    "      \"stablehlo.return\"(%15) : (tensor<i1>) -> ()\n"
    "    }, {\n"
    "    ^bb0(%20: tensor<4xi64>, %21: tensor<i64>):\n"
    "      %22 = \"stablehlo.and\"(%20, %4) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %23 = \"stablehlo.compare\"(%22, %4) <{comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>\n"
    "      %24 = \"stablehlo.multiply\"(%20, %5) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %25 = \"stablehlo.add\"(%24, %4) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %26 = \"stablehlo.shift_right_arithmetic\"(%20, %4) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %27 = \"stablehlo.select\"(%23, %25, %26) : (tensor<4xi1>, tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %28 = \"stablehlo.compare\"(%20, %4) <{comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>\n"
    "      %29 = \"stablehlo.select\"(%28, %20, %27) : (tensor<4xi1>, tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "      %30 = \"stablehlo.constant\"() <{value = dense<1> : tensor<i64>}> : () -> tensor<i64>\n"
    "      %31 = \"stablehlo.add\"(%21, %30) : (tensor<i64>, tensor<i64>) -> tensor<i64>\n"
    "      \"stablehlo.return\"(%29, %31) : (tensor<4xi64>, tensor<i64>) -> ()\n"
    "    }) : (tensor<4xi64>, tensor<i64>) -> (tensor<4xi64>, tensor<i64>)\n"
    "    %40 = \"stablehlo.add\"(%10, %1) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
    "    func.return %10, %11, %40 : tensor<4xi64>, tensor<i64>, tensor<4xi64>\n"
    "  }\n"
    "}\n";

static int64_t collatz(int64_t x) {
  int64_t n = 0;
  for (; x != 1; n++) x = x & 1 ? 3 * x + 1 : x / 2;
  return n;
}

TEST(a_loop_whose_length_depends_on_data) {
  const int64_t starts[2][4] = {{27, 1, 6, 97}, {1, 1, 1, 1}}, three = 3; /* the second one runs no round */
  for (int k = 0; k < 2; k++) {
    int64_t r[9] = {0}, longest = 0;
    const array in[2] = {{starts[k], sizeof starts[k]}, {&three, sizeof three}};
    CHECK_OK(run(loop_text, in, 2, r));
    for (int i = 0; i < 4; i++) {
      CHECK_EQ(r[i], 1);
      CHECK_EQ(r[5 + i], 1 + starts[k][i]);
      if (collatz(starts[k][i]) > longest) longest = collatz(starts[k][i]);
    }
    CHECK_EQ(r[4], longest);
  }
}

/* A comparison that is no plain order: absolute values, larger ones first, equal ones as they stand. Indices outside are clamped by gather and dropped by scatter. */
static const char *const data_text =
    "module @t {\n"
    "  func.func public @main(%1: tensor<6xf32>, %2: tensor<3xi64>) -> (tensor<6xf32>, tensor<6xi64>, tensor<3xf32>, tensor<6xf32>) {\n"
    "    %3 = \"stablehlo.iota\"() <{iota_dimension = 0 : i64}> : () -> tensor<6xi64>\n"
    "    %4, %5 = \"stablehlo.sort\"(%1, %3) <{dimension = 0 : i64, is_stable = true}> ({\n"
    "    ^bb0(%6: tensor<f32>, %7: tensor<f32>, %8: tensor<i64>, %9: tensor<i64>):\n"
    "      %10 = \"stablehlo.abs\"(%6) : (tensor<f32>) -> tensor<f32>\n"
    "      %11 = \"stablehlo.abs\"(%7) : (tensor<f32>) -> tensor<f32>\n"
    "      %12 = \"stablehlo.compare\"(%10, %11) <{comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
    "      \"stablehlo.return\"(%12) : (tensor<i1>) -> ()\n"
    "    }) : (tensor<6xf32>, tensor<6xi64>) -> (tensor<6xf32>, tensor<6xi64>)\n"
    "    %13 = \"stablehlo.gather\"(%1, %2) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<6xf32>, tensor<3xi64>) -> tensor<3xf32>\n"
    "    %14 = \"stablehlo.scatter\"(%1, %2, %13) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({\n"
    "    ^bb0(%15: tensor<f32>, %16: tensor<f32>):\n"
    "      %17 = \"stablehlo.add\"(%15, %16) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
    "      \"stablehlo.return\"(%17) : (tensor<f32>) -> ()\n"
    "    }) : (tensor<6xf32>, tensor<3xi64>, tensor<3xf32>) -> tensor<6xf32>\n"
    "    func.return %4, %5, %13, %14 : tensor<6xf32>, tensor<6xi64>, tensor<3xf32>, tensor<6xf32>\n"
    "  }\n"
    "}\n";

TEST(an_order_by_size_and_indices_outside) {
  const float x[6] = {1, -4, 2, 4, -2, 3};
  const int64_t at[3] = {-5, 2, 9};
  struct { float sorted[6]; int64_t from[6]; float gathered[3], scattered[6]; } __attribute__((packed)) r;
  const array in[2] = {{x, sizeof x}, {at, sizeof at}};
  CHECK_OK(run(data_text, in, 2, &r));
  const int order[6] = {1, 3, 5, 2, 4, 0};
  for (int i = 0; i < 6; i++) {
    CHECK(r.sorted[i] == x[order[i]]);
    CHECK_EQ(r.from[i], order[i]);
    CHECK(r.scattered[i] == (i == 2 ? 4 : x[i]));
  }
  CHECK(r.gathered[0] == 1 && r.gathered[1] == 2 && r.gathered[2] == 3);
}

/* 2^63 + 2 divided by 3, by 2^63 + 1 and by 1: quotients and rests, and the order of the two. */
static const char *const unsigned_text =
    "module @t {\n"
    "  func.func public @main(%1: tensor<3xui64>, %2: tensor<3xui64>) -> (tensor<3xui64>, tensor<3xui64>, tensor<3xui64>) {\n"
    "    %3 = \"stablehlo.divide\"(%1, %2) : (tensor<3xui64>, tensor<3xui64>) -> tensor<3xui64>\n"
    "    %4 = \"stablehlo.remainder\"(%1, %2) : (tensor<3xui64>, tensor<3xui64>) -> tensor<3xui64>\n"
    "    %5 = \"stablehlo.maximum\"(%1, %2) : (tensor<3xui64>, tensor<3xui64>) -> tensor<3xui64>\n"
    "    func.return %3, %4, %5 : tensor<3xui64>, tensor<3xui64>, tensor<3xui64>\n"
    "  }\n"
    "}\n";

TEST(unsigned_quotients) {
  const uint64_t high = UINT64_C(1) << 63, x[3] = {high + 2, high + 2, high + 2}, y[3] = {3, high + 1, 1};
  uint64_t r[9] = {0};
  const array in[2] = {{x, sizeof x}, {y, sizeof y}};
  CHECK_OK(run(unsigned_text, in, 2, r));
  for (int i = 0; i < 3; i++) {
    CHECK(r[i] == x[i] / y[i]);
    CHECK(r[3 + i] == x[i] % y[i]);
    CHECK(r[6 + i] == x[i]);
  }
}

/* ---- messages ---- */

static void fails(const char *from, const char *to, tnx_status want, const char *message) {
  char text[1024];
  const char *at = strstr(add_text, from);
  tnx_routine *r = NULL;
  CHECK(at != NULL);
  if (!at) return;
  snprintf(text, sizeof text, "%.*s%s%s", (int)(at - add_text), add_text, to, at + strlen(from));
  tnx_status s = tnx_routine_from_stablehlo("t.mlir", text, strlen(text), 0, &r);
  CHECK_EQ(s, want);
  if (s == want && !strstr(tnx_error_text(), message)) {
    printf("expected \"%s\" in \"%s\"\n", message, tnx_error_text());
    CHECK(false);
  }
  tnx_routine_destroy(r);
}

TEST(messages_have_places) {
  fails("%1, %2)", "%1, %9)", TNX_PARSE, "t.mlir:3:30: a value that is defined before expected");
  fails("stablehlo.add", "stablehlo.sum", TNX_NOT_IMPLEMENTED, "t.mlir:3:5: stablehlo.sum: an operation that has no form here");
  fails("(%1: tensor<3xf32>", "(%1: tensor<4xf32>", TNX_PARSE, "t.mlir:3:36: operand 0 has another type");
  fails("-> tensor<3xf32>\n", "-> tensor<2xf32>\n", TNX_PARSE, "another type");
  fails("3xf32", "3xf31", TNX_PARSE, "an element type that is supported expected");
  fails("%3 =", "%1 =", TNX_PARSE, "t.mlir:3:5: the value is defined twice");
  fails("@main", "@other", TNX_PARSE, "a function @main expected");
  fails("tensor<3xf32>", "tensor<?xf32>", TNX_PARSE, "static sizes expected");
  fails("tensor<3xf32>", "tensor<999999999999x999999999999xf32>", TNX_PARSE, "the tensor is too large");
  fails("  }\n}", "  }\n} module", TNX_PARSE, "the end of the text expected");
  fails("    func.return %3 : tensor<3xf32>\n", "", TNX_PARSE, "t.mlir:4:3: a return expected");
}

/* ---- damaged texts ---- */

/* Graphs whose StableHLO has most of the operations: composites, loops, sorts, gathers, transforms. */
static const char *const graphs[] = {
    "graph \"a\"\n%1: float32[1, 2, 3, 4] = INPUT {0} strides [24, 12, 4, 1]\n%2: float32[1, 2, 3, 4], %3: float32[1, 2, 3] = ATTENTION %1, %1, %1 {1, 0} {0.5}\noutput %2\n",
    "graph \"s\"\n%1: float32[2, 5] = INPUT {0} strides [5, 1]\n%2: float32[2, 3], %3: int64[2, 3] = TOPK %1 {1, 1, 1}\n%4: float32[2, 5] = CUMSUM %1 {1}\n%5: int64[2, 1] = ARGMAX %1 {1}\n"
    "output %2\noutput %3\noutput %4\noutput %5\n",
    "graph \"i\"\n%1: float32[4, 5] = INPUT {0} strides [5, 1]\n%2: int64[3] = INPUT {1} strides [1]\n%3: float32[3, 5] = TAKE %1, %2 {0}\n%4: float32[4, 5] = PUT %1, %2, %3 {0, 1}\n"
    "%5: float32[4] = DIAGONAL %1 {0, 0, 1}\noutput %3\noutput %4\noutput %5\n",
    "graph \"f\"\n%1: float32[2, 6] = INPUT {0} strides [6, 1]\n%2: complex64[2, 4] = RFFT %1 {1, 0, 0}\n%3: float32[2, 6] = BESSEL_K0 %1\n%4: float32[2, 6] = ERFCX %1\noutput %2\noutput %3\noutput %4\n",
    "graph \"m\"\n%1: bfloat16[3, 4] = INPUT {0} strides [4, 1]\n%2: bfloat16[5, 4] = INPUT {1} strides [4, 1]\n%3: bfloat16[3, 5] = LINEAR %1, %2 {4}\n%4: float32[3, 5] = CONVERT %3\n"
    "%5: float32[1, 5] = REDUCE_MAX %4 {0}\noutput %3\noutput %5\n",
};

/* Texts that must not be imported need not fail, but nothing may go wrong, and nothing may be left behind. */
static void import_damaged(const char *text, size_t len, uint64_t *accepted) {
  tnx_routine *r = NULL;
  int64_t live = tnx_heap_live();
  if (tnx_routine_from_stablehlo("t", text, len, 0, &r) == TNX_OK) ++*accepted;
  else CHECK(r == NULL && *tnx_error_text());
  tnx_routine_destroy(r);
  CHECK_EQ(tnx_heap_live(), live);
}

TEST(damaged_texts_do_no_harm) {
  enum { EACH = 4000 };
  uint64_t seed = 20240607, accepted = 0;
  char *texts[16];
  int n = 0;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
    tnx_graph g;
    CHECK_OK(tnx_graph_parse(&g, graphs[i]));
    CHECK_OK(tnx_graph_stablehlo(&g, &texts[n]));
    tnx_graph_fini(&g);
    tnx_routine *r = NULL;
    CHECK_OK(tnx_routine_from_stablehlo("t", texts[n], strlen(texts[n]), 0, &r));
    tnx_routine_destroy(r);
    CHECK_OK(tnx_routine_from_stablehlo("t", texts[n], strlen(texts[n]), TNX_HLO_DECOMPOSE, &r));
    tnx_routine_destroy(r);
    n++;
  }
  texts[n++] = strdup(loop_text);
  texts[n++] = strdup(data_text);
  for (int t = 0; t < n; t++) {
    size_t len = strlen(texts[t]), cap = 2 * len + 64;
    char *copy = malloc(cap);
    for (int k = 0; k < EACH; k++) {
      memcpy(copy, texts[t], len + 1);
      size_t now = len;
      int changes = 1 + (int)(test_rand(&seed) % 3);
      while (changes--) {
        size_t at = test_rand(&seed) % now, span = 1 + test_rand(&seed) % 12, to = test_rand(&seed) % now;
        if (at + span > now) span = now - at;
        if (to + span > now) to = now - span;
        switch (test_rand(&seed) % 6) {
          case 0: copy[at] = (char)test_rand(&seed); break;
          case 1: memmove(copy + at, copy + at + span, now - at - span); now -= span; break;
          case 2: memmove(copy + to, copy + at, span); break;
          case 3: copy[at] = "0123456789-%@<>[](){}\"=,:x#"[test_rand(&seed) % 27]; break;
          case 4: now = at + 1; break;
          default: /* another number */
            while (at < now && (copy[at] < '0' || copy[at] > '9')) at++;
            if (at < now) copy[at] = (char)('0' + test_rand(&seed) % 10);
        }
      }
      import_damaged(copy, now, &accepted);
    }
    free(copy);
    free(texts[t]);
  }
  CHECK(accepted > 0); /* the damage is small enough to reach the later stages */
}

TEST(shortage_of_memory) {
  bool done = false;
  int64_t live = tnx_heap_live();
  for (int k = 0; k < 4000 && !done; k++) {
    tnx_routine *r = NULL;
    tnx_planned_routine *p = NULL;
    tnx_heap_fail_after(k);
    tnx_status s = tnx_routine_from_stablehlo("t", loop_text, strlen(loop_text), 0, &r);
    if (s == TNX_OK && (s = tnx_routine_plan(r, &p)) == TNX_OK) r = NULL;
    tnx_heap_fail_after(-1);
    done = s == TNX_OK;
    if (!done) CHECK_EQ(s, TNX_OUT_OF_MEMORY);
    tnx_planned_routine_destroy(p);
    tnx_routine_destroy(r);
    CHECK_EQ(tnx_heap_live(), live);
  }
  CHECK(done);
}

int main(void) {
  RUN(messages_have_places);
  RUN(damaged_texts_do_no_harm);
  RUN(shortage_of_memory);
  if (tnx_runtime_open() != TNX_OK) printf("the runtime does not open: %s\n", tnx_error_text());
  RUN(a_sum);
  RUN(a_loop_whose_length_depends_on_data);
  RUN(an_order_by_size_and_indices_outside);
  RUN(unsigned_quotients);
  tnx_runtime_close();
  return TEST_END;
}
