/* The program form: symbolic sizes, verifier, text form (round trip, malformed texts, failing allocations), the StableHLO writer's reach. */
#include "base/alloc.h"
#include "ops/checks.h"
#include "ir/builder.h"
#include "test.h"

/* ---- a graph with every operator ---- */

static tnx_value input(tnx_builder *b, tnx_dtype t, int rank, const tnx_dim *sizes) {
  tnx_dim strides[TNX_MAX_RANK], number = b->g->inputs.len, s = 1;
  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = s;
    s = tnx_b_dim_mul(b, s, sizes[i]);
  }
  tnx_type type = {(uint8_t)t, (uint8_t)rank, sizes};
  tnx_input in = {.alias = TNX_NO_TENSOR, .strides = tnx_arena_copy(&b->g->arena, strides, (size_t)rank * sizeof *strides)};
  b->status = tnx_graph_add(b->g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, &in.value);
  if (!tnx_vec_push(&b->g->inputs, in)) b->status = TNX_OUT_OF_MEMORY;
  return in.value;
}
static void output(tnx_builder *b, tnx_value v) {
  tnx_output o = {.value = v, .into = TNX_NO_TENSOR};
  if (!tnx_vec_push(&b->g->outputs, o)) b->status = TNX_OUT_OF_MEMORY;
}

static void pointwise(tnx_builder *b) {
  tnx_dim s[2] = {2, 3};
  tnx_value f = input(b, TNX_F32, 2, s), h = input(b, TNX_BF16, 2, s), i = input(b, TNX_I64, 2, s), p = input(b, TNX_BOOL, 2, s), c = input(b, TNX_C64, 2, s);
  for (int op = TNX_OP_NEG; op <= TNX_OP_SIGMOID; op++) {
    output(b, tnx_b_unary(b, (tnx_op)op, f));
    output(b, tnx_b_unary(b, (tnx_op)op, h));
  }
  output(b, tnx_b_unary(b, TNX_OP_NOT, i));
  output(b, tnx_b_unary(b, TNX_OP_NOT, p));
  output(b, tnx_b_unary(b, TNX_OP_ISNAN, f));
  output(b, tnx_b_unary(b, TNX_OP_ISFINITE, h));
  output(b, tnx_b_unary(b, TNX_OP_REAL, c));
  output(b, tnx_b_unary(b, TNX_OP_IMAG, c));
  output(b, tnx_b_unary(b, TNX_OP_CONJ, c));
  output(b, tnx_b_unary(b, TNX_OP_ABS, c));
  for (int op = TNX_OP_ADD; op <= TNX_OP_FMIN; op++) output(b, tnx_b_binary(b, (tnx_op)op, f, tnx_b_unary(b, TNX_OP_EXP, f)));
  for (int op = TNX_OP_AND; op <= TNX_OP_SHR; op++) output(b, tnx_b_binary(b, (tnx_op)op, i, tnx_b_unary(b, TNX_OP_NOT, i)));
  for (int op = TNX_OP_EQ; op <= TNX_OP_GE; op++) output(b, tnx_b_binary(b, (tnx_op)op, i, tnx_b_unary(b, TNX_OP_NEG, i)));
  output(b, tnx_b_binary(b, TNX_OP_COMPLEX, f, tnx_b_unary(b, TNX_OP_EXP, f)));
  output(b, tnx_b_select(b, p, f, tnx_b_unary(b, TNX_OP_EXP, f)));
  output(b, tnx_b_check(b, i, p, TNX_FAULT_ZERO_DIVISION));
  output(b, tnx_b_check(b, f, tnx_b_unary(b, TNX_OP_NOT, p), TNX_FAULT_STD));
  output(b, tnx_b_philox(b, tnx_b_const_i(b, TNX_I64, 42), tnx_b_const_i(b, TNX_I64, 7), tnx_b_iota(b, 2, s, 1)));
  for (int t = 0; t < TNX_DTYPE_COUNT; t++) output(b, tnx_b_convert(b, f, (tnx_dtype)t));
}

static void movement(tnx_builder *b) {
  tnx_dim s[3] = {2, 3, 4}, row[1] = {4}, flat[2] = {6, 4}, low[3] = {1, -1, 0}, high[3] = {0, 2, -1}, st[2] = {1, 5}, win[2] = {3, 4};
  tnx_value x = input(b, TNX_F32, 3, s), y = input(b, TNX_F32, 1, row);
  int perm[3] = {2, 0, 1}, dims[2] = {0, 2};
  output(b, tnx_b_broadcast_to(b, y, 3, s));
  output(b, tnx_b_reshape(b, x, 2, flat));
  output(b, tnx_b_transpose(b, x, perm));
  output(b, tnx_b_slice(b, x, 2, 1, 2, 2));
  output(b, tnx_b_reverse(b, x, dims, 2));
  output(b, tnx_b_diagonal(b, x, -1, 0, 2));
  output(b, tnx_b_strided(b, x, 2, win, st, 2));
  output(b, tnx_b_unfold(b, x, 2, 2, 1));
  tnx_value two[2] = {x, tnx_b_unary(b, TNX_OP_NEG, x)};
  output(b, tnx_b_concat(b, two, 2, 1));
  output(b, tnx_b_pad(b, x, tnx_b_const_f(b, TNX_F32, -0.0), low, high));
  output(b, tnx_b_update_slice(b, x, tnx_b_slice(b, two[1], 1, 0, 1, 1), 1, 2, 1));
  output(b, tnx_b_update_strided(b, x, tnx_b_strided(b, two[1], 2, win, st, 0), st, 2));
  output(b, tnx_b_update_diagonal(b, x, tnx_b_diagonal(b, two[1], 0, 1, 2), 0, 1, 2));
}

static void collective(tnx_builder *b) {
  tnx_dim s[3] = {2, 3, 4}, is[1] = {5}, is3[3] = {2, 3, 4}, put[3] = {2, 5, 4};
  tnx_value x = input(b, TNX_F32, 3, s), p = input(b, TNX_BOOL, 3, s), i = input(b, TNX_I64, 1, is), j = input(b, TNX_I32, 3, is3), src = input(b, TNX_F32, 3, put);
  int one[1] = {1}, dims[2] = {0, 1};
  for (int op = TNX_OP_REDUCE_SUM; op <= TNX_OP_ARGMIN; op++) {
    output(b, tnx_b_reduce(b, (tnx_op)op, x, NULL, 0, true));
    output(b, tnx_b_reduce(b, (tnx_op)op, x, one, 1, false));
  }
  output(b, tnx_b_reduce(b, TNX_OP_REDUCE_MAX, p, one, 1, true));
  for (int op = TNX_OP_CUMSUM; op <= TNX_OP_LOGCUMSUMEXP; op++) output(b, tnx_b_scan(b, (tnx_op)op, x, 1));
  output(b, tnx_b_topk(b, x, 2, 3, true, true) + 1);
  output(b, tnx_b_take(b, x, i, 1));
  output(b, tnx_b_nonzero(b, p, 6, -1));
  output(b, tnx_b_gather(b, x, j, 2));
  tnx_value two[2] = {i, tnx_b_unary(b, TNX_OP_NEG, i)};
  output(b, tnx_b_index(b, x, two, dims, 2));
  for (int mode = 0; mode <= 4; mode++) {
    output(b, tnx_b_scatter(b, x, j, tnx_b_unary(b, TNX_OP_NEG, x), 0, mode));
    output(b, tnx_b_put(b, x, i, src, 1, mode));
    output(b, tnx_b_index_put(b, x, tnx_b_reduce(b, TNX_OP_REDUCE_SUM, src, dims, 1, false), two, dims, 2, mode));
  }
}

static void products(tnx_builder *b) {
  tnx_dim m[3] = {2, 3, 4}, n[3] = {2, 4, 5}, w[2] = {5, 4}, bias[1] = {5}, q[4] = {1, 4, 3, 8}, k[4] = {1, 2, 6, 8}, mask[2] = {3, 6};
  tnx_value x = input(b, TNX_BF16, 3, m), y = input(b, TNX_BF16, 3, n), wv = input(b, TNX_BF16, 2, w), bv = input(b, TNX_BF16, 1, bias);
  output(b, tnx_b_matmul(b, x, y));
  output(b, tnx_b_linear(b, x, wv, bv));
  output(b, tnx_b_addmm(b, bv, x, y, 0.5, 2));
  tnx_value qv = input(b, TNX_F32, 4, q), kv = input(b, TNX_F32, 4, k), vv = input(b, TNX_F32, 4, k), mv = input(b, TNX_F32, 2, mask), d = input(b, TNX_F32, 4, q);
  tnx_value o = tnx_b_attention(b, qv, kv, vv, mv, false, 0.35355339059327379);
  output(b, o);
  output(b, tnx_b_attention(b, qv, kv, vv, 0, true, 0.25) + 1);
  tnx_value g = tnx_b_attention_backward(b, d, qv, kv, vv, o, o + 1, mv, false, 0.35355339059327379);
  for (tnx_value i = 0; i < 3; i++) output(b, g + i);
}

static void symbolic(tnx_builder *b) {
  tnx_dim s0, s1, sizes[2];
  b->status = tnx_graph_symbol(b->g, "batch \"a\"\\\n", 2, &s0);
  b->status = tnx_graph_symbol(b->g, "s1", 0, &s1);
  sizes[0] = tnx_b_dim_add(b, tnx_b_dim_mul(b, s1, 2), tnx_b_dim(b, TNX_DIM_MAX, s0, tnx_b_dim(b, TNX_DIM_MOD, s1, 7)));
  sizes[1] = s0;
  tnx_value x = input(b, TNX_F32, 2, sizes), y = tnx_b_unary(b, TNX_OP_EXP, x);
  tnx_dim keep[1] = {-1};
  output(b, tnx_b_reshape(b, y, 1, keep));
  tnx_value two[2] = {x, y};
  output(b, tnx_b_concat(b, two, 2, 0));
  output(b, tnx_b_slice(b, x, 0, s0, s1, 1));
  output(b, tnx_b_dimval(b, sizes[0]));
  output(b, x);
  b->g->outputs.data[4].into = 0;
  output(b, 0);
  output(b, y);
  b->g->outputs.data[6].strides = b->g->inputs.data[0].strides;
  b->g->inputs.data[0].overlaps = true;
  b->g->values.data[x].flags |= 0;
  tnx_value h = input(b, TNX_F64, 0, NULL), h2 = input(b, TNX_F64, 0, NULL);
  b->g->values.data[h].flags |= TNX_VALUE_HOST;
  b->g->inputs.data[1].alias = 0;
  b->g->inputs.data[2].alias = 0;
  output(b, tnx_b_binary(b, TNX_OP_ADD, h, h2));
}

static double from_bits(uint64_t bits) {
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
static void constants(tnx_builder *b) {
  const double values[] = {0.0, -0.0, 0.1, 1.0 / 3, 1e300, -1e-320, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, from_bits(0x7ff8000000000000u), from_bits(0xfff8000000000123u), 123456789.0};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) output(b, tnx_b_const_f(b, TNX_F64, values[i]));
  output(b, tnx_b_const_c(b, TNX_C128, 0.1, -0.2));
  const int64_t ints[] = {0, -1, INT64_MIN, INT64_MAX, INT64_MIN + 5};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) output(b, tnx_b_const_i(b, TNX_I64, ints[i]));
  output(b, tnx_b_const_i(b, TNX_BOOL, 1));
  tnx_value w = tnx_b_const_i(b, TNX_U8, 255);
  b->g->values.data[w].flags |= TNX_VALUE_WRAPPED;
  output(b, w);
}

/* Special functions: series and iterations, which StableHLO has no operations for. */
static void special(tnx_builder *b) {
  tnx_dim s[2] = {2, 3};
  tnx_value f = input(b, TNX_F32, 2, s), i = input(b, TNX_I64, 2, s);
  for (int op = TNX_OP_BESSEL_I0; op <= TNX_OP_EXPONENT; op++) output(b, tnx_b_unary(b, (tnx_op)op, f));
  for (int op = TNX_OP_ZETA; op <= TNX_OP_LEGENDRE; op++) output(b, tnx_b_binary(b, (tnx_op)op, f, tnx_b_unary(b, TNX_OP_EXP, f)));
  for (int op = TNX_OP_GCD; op <= TNX_OP_LCM; op++) output(b, tnx_b_binary(b, (tnx_op)op, i, tnx_b_unary(b, TNX_OP_NOT, i)));
  for (int op = TNX_OP_SAMPLE_GAMMA; op <= TNX_OP_SAMPLE_GAMMA_GRAD; op++) output(b, tnx_b_binary(b, (tnx_op)op, f, tnx_b_unary(b, TNX_OP_EXP, f)));
}

static void transforms(tnx_builder *b) {
  tnx_dim sizes[3] = {2, 3, 3}, signal[2] = {4, 6};
  tnx_value a = input(b, TNX_F64, 3, sizes), x = input(b, TNX_C64, 2, signal), both[2] = {a, a};
  tnx_value l = tnx_b_linalg(b, TNX_OP_CHOLESKY, &a, 1, TNX_CHECK_NONE, 1, 0, 0);
  output(b, l);
  output(b, l + 1);
  output(b, tnx_b_linalg(b, TNX_OP_TRIANGULAR_SOLVE, both, 2, TNX_CHECK_NONE, 3, 2, 0));
  output(b, tnx_b_fft(b, TNX_OP_FFT, x, 0, true, 1, 0));
  output(b, tnx_b_fft(b, TNX_OP_RFFT, tnx_b_unary(b, TNX_OP_REAL, x), 1, false, 2, 0));
  output(b, tnx_b_fft(b, TNX_OP_IRFFT, x, 1, true, 0, 10));
}

/* What StableHLO has no operation for. */
static void factorisations(tnx_builder *b) {
  tnx_dim square[3] = {2, 3, 3}, tall[3] = {2, 5, 3};
  tnx_value a = input(b, TNX_C128, 3, square), r = input(b, TNX_F32, 3, tall), both[2] = {r, r};
  tnx_value lu = tnx_b_linalg(b, TNX_OP_LU, &a, 1, TNX_CHECK_SOLVE, 0, 0, 0), ldl = tnx_b_linalg(b, TNX_OP_LDL, &a, 1, TNX_CHECK_NONE, 1, 0, 0);
  tnx_value qr = tnx_b_linalg(b, TNX_OP_QR, &r, 1, TNX_CHECK_NONE, 0, 0, 0), s[3] = {lu, lu + 1, a}, d[3] = {ldl, ldl + 1, a}, q[3] = {qr, qr + 1, r};
  output(b, tnx_b_linalg(b, TNX_OP_LU_SOLVE, s, 3, TNX_CHECK_NONE, 2, 0, 0));
  output(b, tnx_b_linalg(b, TNX_OP_LDL_SOLVE, d, 3, TNX_CHECK_NONE, 1, 0, 0));
  output(b, tnx_b_lu_permutation(b, lu + 1, 4));
  output(b, tnx_b_linalg(b, TNX_OP_QR_Q, q, 2, TNX_CHECK_NONE, 0, 0, 0));
  output(b, tnx_b_linalg(b, TNX_OP_QR_APPLY, q, 3, TNX_CHECK_NONE, 1, 1, 0));
  tnx_value svd = tnx_b_linalg(b, TNX_OP_SVD, &r, 1, TNX_CHECK_SVD, 1, 1, 0);
  for (tnx_value i = 0; i < 3; i++) output(b, svd + i);
  output(b, tnx_b_linalg(b, TNX_OP_SVD, &r, 1, TNX_CHECK_SVD, 0, 0, 0) + 1);
  output(b, tnx_b_linalg(b, TNX_OP_EIGH, &a, 1, TNX_CHECK_EIGH, 0, 1, 0));
  output(b, tnx_b_linalg(b, TNX_OP_EIG, &a, 1, TNX_CHECK_EIG, 1, 0, 0));
  output(b, tnx_b_linalg(b, TNX_OP_LSTSQ, both, 2, TNX_CHECK_LSTSQ, 2, 0, 1e-6));
  output(b, tnx_b_linalg(b, TNX_OP_MATRIX_EXP, &a, 1, TNX_CHECK_NONE, 0, 0, 0));
}

/* special and factorisations are the last ones: they have no StableHLO. */
static void (*const builders[])(tnx_builder *) = {pointwise, movement, collective, products, symbolic, constants, transforms, special, factorisations};
enum { BUILDERS = sizeof builders / sizeof *builders, HLO_BUILDERS = BUILDERS - 2 };

static bool make(tnx_graph *g, int which) {
  if (tnx_graph_init(g, "all") != TNX_OK) return false;
  tnx_builder b = {.g = g, .default_dtype = TNX_F32};
  builders[which](&b);
  if (b.status != TNX_OK) printf("builder %d: %s: %s\n", which, tnx_status_name(b.status), tnx_error_text());
  return b.status == TNX_OK;
}

TEST(round_trip) {
  uint8_t seen[TNX_OP_COUNT] = {0};
  for (int i = 0; i < BUILDERS; i++) {
    tnx_graph g, h;
    CHECK(make(&g, i));
    CHECK_OK(tnx_graph_verify(&g));
    for (uint32_t n = 1; n < g.nodes.len; n++) seen[g.nodes.data[n].op] = 1;
    char *first = NULL, *second = NULL;
    CHECK_OK(tnx_graph_print(&g, &first));
    tnx_status parsed = tnx_graph_parse(&h, first);
    CHECK_OK(parsed);
    if (parsed == TNX_OK) {
      CHECK_OK(tnx_graph_print(&h, &second));
      CHECK(second && strcmp(first, second) == 0);
      CHECK_EQ(g.nodes.len, h.nodes.len);
      CHECK_EQ(g.values.len, h.values.len);
      CHECK_EQ(g.exprs.len, h.exprs.len);
      for (uint32_t v = 1; v < g.values.len && v < h.values.len; v++) CHECK_EQ(g.values.data[v].flags, h.values.data[v].flags);
      /* constants by their bits */
      for (uint32_t n = 1; n < g.nodes.len && n < h.nodes.len; n++)
        CHECK(memcmp(g.nodes.data[n].floats, h.nodes.data[n].floats, g.nodes.data[n].n_floats * sizeof(double)) == 0);
      tnx_graph_fini(&h);
    }
    tnx_heap_free(first);
    tnx_heap_free(second);
    tnx_graph_fini(&g);
  }
  for (int op = 1; op < TNX_OP_COUNT; op++)
    if (!seen[op]) {
      printf("no graph of the test has %s\n", tnx_op_get_info((tnx_op)op)->name);
      test_bad++;
    }
}

/* ---- symbolic sizes ---- */

TEST(symbolic_folding) {
  tnx_graph g;
  CHECK_OK(tnx_graph_init(&g, "s"));
  tnx_dim a, b, r, r2;
  CHECK_OK(tnx_graph_symbol(&g, "a", 2, &a));
  CHECK_OK(tnx_graph_symbol(&g, "b", 2, &b));
  CHECK(tnx_dim_is_symbolic(a) && tnx_dim_is_symbolic(b) && a != b);
  const struct { tnx_dim_op op; tnx_dim x, y, want; } rows[] = {
      {TNX_DIM_ADD, 3, 4, 7},   {TNX_DIM_ADD, a, 0, a},      {TNX_DIM_ADD, 0, a, a},       {TNX_DIM_SUB, a, 0, a},        {TNX_DIM_SUB, a, a, 0},      {TNX_DIM_MUL, a, 1, a},
      {TNX_DIM_MUL, 0, a, 0},   {TNX_DIM_FLOORDIV, a, 1, a}, {TNX_DIM_FLOORDIV, -7, 2, -4}, {TNX_DIM_FLOORDIV, 7, -2, -4}, {TNX_DIM_MOD, -7, 2, 1},     {TNX_DIM_MOD, 7, -2, -1},
      {TNX_DIM_MOD, a, 1, 0},   {TNX_DIM_MIN, a, a, a},      {TNX_DIM_MAX, 3, 9, 9},       {TNX_DIM_MIN, 3, 9, 3},        {TNX_DIM_FLOORDIV, 5, -1, -5}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CHECK_OK(tnx_graph_dim(&g, rows[i].op, rows[i].x, rows[i].y, &r));
    CHECK_EQ(r, rows[i].want);
  }
  /* one expression however it is written */
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_ADD, a, b, &r));
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_ADD, b, a, &r2));
  CHECK(r == r2);
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_ADD, a, 3, &r));
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_SUB, r, 3, &r));
  CHECK(r == a);
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_MUL, a, 6, &r));
  CHECK_OK(tnx_graph_dim(&g, TNX_DIM_FLOORDIV, r, 6, &r));
  CHECK(r == a);
  tnx_graph_fini(&g);
}

TEST(symbolic_evaluation) {
  tnx_graph g;
  CHECK_OK(tnx_graph_init(&g, "s"));
  tnx_dim a, b, e[7];
  CHECK_OK(tnx_graph_symbol(&g, "a", 2, &a));
  CHECK_OK(tnx_graph_symbol(&g, "b", 2, &b));
  for (int op = 0; op < 7; op++) CHECK_OK(tnx_graph_dim(&g, (tnx_dim_op)op, a, b, &e[op]));
  int64_t vals[16], symbols[2] = {17, 5};
  CHECK(g.exprs.len <= 16);
  CHECK_OK(tnx_graph_eval(g.exprs.data, g.exprs.len, symbols, 2, vals));
  const int64_t want[7] = {22, 12, 85, 3, 2, 5, 17};
  for (int op = 0; op < 7; op++) CHECK_EQ(tnx_dim_value(e[op], vals), want[op]);
  CHECK_EQ(tnx_dim_value(99, vals), 99);
  symbols[0] = INT64_MAX;
  CHECK_EQ(tnx_graph_eval(g.exprs.data, g.exprs.len, symbols, 2, vals), TNX_OVERFLOW);
  symbols[0] = 4;
  symbols[1] = 0;
  CHECK_EQ(tnx_graph_eval(g.exprs.data, g.exprs.len, symbols, 2, vals), TNX_INVALID_ARGUMENT);
  CHECK_EQ(tnx_graph_eval(g.exprs.data, g.exprs.len, symbols, 1, vals), TNX_INVALID_ARGUMENT);
  tnx_dim r;
  CHECK_EQ(tnx_graph_dim(&g, TNX_DIM_MUL, INT64_MAX, 2, &r), TNX_OVERFLOW);
  CHECK_EQ(tnx_graph_dim(&g, TNX_DIM_ADD, INT64_MAX, 1, &r), TNX_OVERFLOW);
  CHECK_EQ(tnx_graph_dim(&g, TNX_DIM_SUB, INT64_MIN + (INT64_C(1) << 32), 1, &r), TNX_OVERFLOW);
  CHECK_EQ(tnx_graph_dim(&g, TNX_DIM_MOD, 1, 0, &r), TNX_INVALID_ARGUMENT);
  tnx_graph_fini(&g);
}

/* ---- texts that must be refused ---- */

#define X23 "graph \"t\"\n%1: float32[2, 3] = INPUT {0} strides [3, 1]\n"
static const struct { const char *text, *words; } refused[] = {
    {"", "'graph' expected"},
    {"graph", "'\"' expected"},
    {"graph \"a", "not closed"},
    {"graph \"\\0g\"", "bad escape"},
    {"graph \"a\" x", "end of line"},
    {"graph \"a\"\nfoo", "definition expected"},
    {X23 "%1: float32[] = CONST {} {0, 0}\n", "defined twice"},
    {X23 "%2: float33[] = CONST {} {0, 0}\n", "unknown dtype"},
    {X23 "%2: float32[] = CONSTANT {} {0, 0}\n", "unknown operator"},
    {X23 "%2: float32[] = CONST {} {0, zero}\n", "number expected"},
    {X23 "%2: float32[2, 3] = NEG %7\n", "unknown value"},
    {X23 "%2: float32[2, $1] = NEG %1\n", "unknown size"},
    {X23 "%2: float32[2, 99999999999999999999] = NEG %1\n", "too large"},
    {X23 "%2: float32[2, -9223372036854775807] = NEG %1\n", "out of range"},
    {X23 "%99999999999: float32[] = NEG %1\n", "out of range"},
    {X23 "%2: float32[1,1,1,1,1,1,1,1,1,1,1,1,1] = NEG %1\n", "too many dimensions"},
    {X23 "%2: float32[2, 3] = INPUT {4} strides [3, 1]\n", "out of order"},
    {X23 "$1 = power 2, 3\n", "unknown size operation"},
    {X23 "$1 = add 9223372036854775807, 1\n", "overflows"},
    {X23 "$1 = floordiv 1, 0\n", "divided by zero"},
    {X23 "output %1 strides [1]\n", "one stride for each"},
    /* rules of the verifier */
    {X23 "%2: float32[2, 4] = NEG %1\n", "one shape"},
    {X23 "%2: float64[2, 3] = NEG %1\n", "another dtype"},
    {X23 "%2: float32[-1] = NEG %1\n", "invalid size"},
    {X23 "%2: float32[2, 3] = NOT %1\n", "not defined for the dtype"},
    {X23 "%2: bool[2, 3] = ADD %1, %1\n", "another dtype"},
    {X23 "%2: float32[2, 3] = ADD %1\n", "number of operands"},
    {X23 "%2: float32[2, 3] = NEG %1 {3}\n", "no attributes"},
    {X23 "%2: float32[2, 3] = SELECT %1, %1, %1\n", "predicate is bool"},
    {X23 "%2: uint8[] = CONST {256}\n", "does not fit"},
    {X23 "%2: float32[2] = CONST {} {0, 0}\n", "no dimensions"},
    {X23 "%2: float32[] = CONST {1}\n", "two floats"},
    {X23 "%2: float32[2, 3] = IOTA {0}\n", "int64"},
    {X23 "%2: float32[4, 2, 5] = BROADCAST %1 {1, 2}\n", "sizes 1"},
    {X23 "%2: float32[3, 2] = BROADCAST %1 {1, 0}\n", "rise"},
    {X23 "%2: float32[7] = RESHAPE %1\n", "number of elements"},
    {X23 "%2: float32[3, 2] = TRANSPOSE %1 {1, 1}\n", "permutation"},
    {X23 "%2: float32[2, 3] = TRANSPOSE %1 {1, 0}\n", "dimension i"},
    {X23 "%2: float32[2, 2] = SLICE %1 {1, 2, 1}\n", "leaves its operand"},
    {X23 "%2: float32[2, 2] = SLICE %1 {1, 0, 0}\n", "step is positive"},
    {X23 "%2: float32[2, 3] = REVERSE %1 {2}\n", "distinct dimensions"},
    {X23 "%2: float32[3] = DIAGONAL %1 {0, 0, 1}\n", "diagonal"},
    {X23 "%2: float32[3, 3] = STRIDED %1 {0, 2, 1}\n", "leave the operand"},
    {X23 "%2: float32[2, 3, 2] = UNFOLD %1 {1, 2, 1}\n", "number of windows"},
    {X23 "%2: float32[4, 4] = CONCAT %1, %1 {0}\n", "one dimension only"},
    {X23 "%2: float32[5, 3] = CONCAT %1, %1 {0}\n", "sum"},
    {X23 "%2: float32[2, 5] = PAD %1, %1 {0, 1}\n", "a number"},
    {X23 "%2: float32[2, 3] = UPDATE_SLICE %1, %1 {1, 1, 1}\n", "leaves its base"},
    {X23 "%2: float32[3] = REDUCE_SUM %1 {0}\n", "kept with size 1"},
    {X23 "%2: float32[2, 3] = REDUCE_SUM %1 {0}\n", "size 1"},
    {X23 "%2: float32[1, 3] = ARGMAX %1 {0}\n", "int64"},
    {X23 "%2: float32[2, 3], %3: int32[2, 3] = CUMMAX %1 {0}\n", "int64"},
    {X23 "%2: float32[2, 4], %3: int64[2, 4] = TOPK %1 {1, 1, 1}\n", "more elements"},
    {X23 "%2: float32[2, 3] = TAKE %1, %1 {0}\n", "integer index"},
    {X23 "%2: int64[] = CONST {0}\n%3: float32[2] = TAKE %1, %2 {0}\n", "replace the dimension"},
    {X23 "%2: int64[4, 2] = NONZERO %1 {0}\n", "a mask"},
    {X23 "%2: int64[4] = IOTA {0}\n%3: float32[4] = INDEX %1, %2 {0}\n", "replaces"},
    {X23 "%2: float32[2, 2] = MATMUL %1, %1\n", "[b, m, k]"},
    {X23 "%2: float32[2, 2] = LINEAR %1, %1 {9}\n", "activation"},
    {X23 "%2: float32[2, 3], %3: float32[2] = ATTENTION %1, %1, %1 {0, 0} {1}\n", "four dimensions"},
    {X23 "output %1 into 1\n", "does not exist"},
    {X23 "%2: float32[2, 2] = LINEAR %1, %1 {0}\noutput %2 into 0\n", "does not fit"},
    {"graph \"t\"\n$1 = symbol \"s\" min 2\n%1: float32[$1] = INPUT {0} strides [1]\n%2: float32[1] = NEG %1\n", "one shape"},
};

TEST(malformed_texts) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    tnx_graph g;
    tnx_status s = tnx_graph_parse(&g, refused[i].text);
    CHECK_EQ(s, TNX_PARSE);
    if (s == TNX_OK) tnx_graph_fini(&g);
    if (!strstr(tnx_error_text(), refused[i].words)) {
      printf("text %zu: '%s' does not say '%s'\n", i, tnx_error_text(), refused[i].words);
      test_bad++;
    }
  }
}

/* Damaged texts: each parse either fails with PARSE or gives a graph that survives its own round trip. */
TEST(mutated_texts) {
  uint64_t seed = 20240229;
  int64_t live = tnx_heap_live();
  int good = 0;
  for (int which = 0; which < BUILDERS; which++) {
    tnx_graph g;
    char *text = NULL;
    CHECK(make(&g, which));
    CHECK_OK(tnx_graph_print(&g, &text));
    tnx_graph_fini(&g);
    size_t len = strlen(text);
    char *copy = malloc(2 * len + 64);
    for (int round = 0; round < 400; round++) {
      memcpy(copy, text, len + 1);
      size_t n = len;
      for (int edits = 1 + (int)(test_rand(&seed) % 3); edits > 0; edits--) {
        static const char letters[] = "0123456789,-%$[]{}:= \n\"\\abefinostx.";
        size_t at = test_rand(&seed) % n, span;
        switch (test_rand(&seed) % 5) {
          case 0: copy[at] = letters[test_rand(&seed) % (sizeof letters - 1)]; break;
          case 1: copy[at] = (char)(1 + test_rand(&seed) % 255); break;
          case 2: /* cut a piece */
            span = 1 + test_rand(&seed) % 12;
            if (at + span < n) {
              memmove(copy + at, copy + at + span, n - at - span + 1);
              n -= span;
            }
            break;
          case 3: /* double a piece */
            span = 1 + test_rand(&seed) % 12;
            if (at + span < n && n + span < 2 * len) {
              memmove(copy + at + span, copy + at, n - at + 1);
              n += span;
            }
            break;
          default: /* end early */
            if (test_rand(&seed) % 8 == 0) {
              copy[at] = 0;
              n = at ? at : 1;
            } else copy[at] = '1';
        }
      }
      tnx_graph h;
      tnx_status s = tnx_graph_parse(&h, copy);
      CHECK(s == TNX_OK || s == TNX_PARSE);
      if (s != TNX_OK) continue;
      good++;
      char *again = NULL, *hlo = NULL;
      CHECK_OK(tnx_graph_print(&h, &again));
      if (tnx_graph_stablehlo(&h, &hlo) == TNX_OK) tnx_heap_free(hlo);
      tnx_graph_fini(&h);
      s = tnx_graph_parse(&h, again);
      CHECK_OK(s);
      if (s == TNX_OK) tnx_graph_fini(&h);
      tnx_heap_free(again);
    }
    free(copy);
    tnx_heap_free(text);
  }
  CHECK(good > 0);
  CHECK_EQ(tnx_heap_live(), live);
}

/* Every allocation of a round trip fails once: no crash, no leak, OUT_OF_MEMORY said. */
TEST(failing_allocations) {
  for (int which = 0; which < BUILDERS; which++) {
    tnx_graph g;
    char *text = NULL;
    CHECK(make(&g, which));
    CHECK_OK(tnx_graph_print(&g, &text));
    int64_t live = tnx_heap_live();
    bool done = false;
    for (int n = 0; n < 2000 && !done && !test_bad; n++) {
      tnx_graph h;
      char *again = NULL, *hlo = NULL;
      tnx_heap_fail_after(n);
      tnx_status s = tnx_graph_parse(&h, text);
      if (s == TNX_OK) {
        s = tnx_graph_print(&h, &again);
        tnx_status t = tnx_graph_stablehlo(&h, &hlo);
        CHECK(t == TNX_OK || t == TNX_OUT_OF_MEMORY || t == TNX_NOT_IMPLEMENTED);
        done = s == TNX_OK && t != TNX_OUT_OF_MEMORY;
        tnx_heap_fail_after(-1);
        tnx_graph_fini(&h);
      } else {
        CHECK_EQ(s, TNX_OUT_OF_MEMORY);
      }
      tnx_heap_fail_after(-1);
      tnx_heap_free(again);
      tnx_heap_free(hlo);
      CHECK_EQ(tnx_heap_live(), live);
    }
    CHECK(done);
    tnx_heap_free(text);
    tnx_graph_fini(&g);
  }
}

TEST(stablehlo_of_every_operator) {
  for (int i = 0; i < HLO_BUILDERS; i++) {
    tnx_graph g;
    char *text = NULL;
    int64_t symbols[2] = {5, 3};
    CHECK(make(&g, i));
    CHECK_OK(tnx_graph_stablehlo_for(&g, symbols, g.symbols.len, &text));
    CHECK(text && strstr(text, "func.func public @main(") != NULL);
    tnx_heap_free(text);
    text = NULL;
    tnx_status s = tnx_graph_stablehlo(&g, &text);
    CHECK_EQ(s, g.symbols.len ? TNX_NOT_IMPLEMENTED : TNX_OK);
    if (g.symbols.len) CHECK(strstr(tnx_error_text(), "INPUT") != NULL);
    tnx_heap_free(text);
    tnx_graph_fini(&g);
  }
}

/* Damage that no text can express. */
TEST(broken_graphs) {
  tnx_graph g;
  CHECK(make(&g, 1));
  CHECK_OK(tnx_graph_verify(&g));
  tnx_node *n = &g.nodes.data[g.nodes.len - 1];
  tnx_value operand = n->inputs[0], later = n->first;
  ((tnx_value *)n->inputs)[0] = later;
  CHECK_EQ(tnx_graph_verify(&g), TNX_INTERNAL);
  CHECK(strstr(tnx_error_text(), "after its use") != NULL);
  ((tnx_value *)n->inputs)[0] = 0;
  CHECK_EQ(tnx_graph_verify(&g), TNX_INTERNAL);
  ((tnx_value *)n->inputs)[0] = operand;
  CHECK_OK(tnx_graph_verify(&g));
  g.values.data[n->first].node = 1;
  CHECK_EQ(tnx_graph_verify(&g), TNX_INTERNAL);
  g.values.data[n->first].node = g.nodes.len - 1;
  n->op = TNX_OP_COUNT;
  CHECK_EQ(tnx_graph_verify(&g), TNX_INTERNAL);
  n->op = TNX_OP_UPDATE_DIAGONAL;
  g.inputs.data[0].value = n->first;
  CHECK_EQ(tnx_graph_verify(&g), TNX_INTERNAL);
  tnx_graph_fini(&g);
}

/* test_ir --stablehlo [value of each symbol..]: the StableHLO of the graph whose text comes on standard input, for the referee's tests. */
static int write_stablehlo(int n_symbols, char **values) {
  enum { MAX_SYMBOLS = 8, MAX_TEXT = 1 << 20 };
  int64_t symbols[MAX_SYMBOLS];
  char *text = malloc(MAX_TEXT), *hlo = NULL;
  if (!text || n_symbols > MAX_SYMBOLS) return 2;
  text[fread(text, 1, MAX_TEXT - 1, stdin)] = 0;
  for (int i = 0; i < n_symbols; i++) symbols[i] = atoll(values[i]);
  tnx_graph g;
  tnx_status s = tnx_graph_parse(&g, text);
  free(text);
  if (s == TNX_OK) {
    s = tnx_graph_stablehlo_for(&g, symbols, (uint32_t)n_symbols, &hlo);
    tnx_graph_fini(&g);
  }
  if (s == TNX_OK) fputs(hlo, stdout);
  else fprintf(stderr, "%s: %s\n", tnx_status_name(s), tnx_error_text());
  tnx_heap_free(hlo);
  return s != TNX_OK;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--stablehlo") == 0) return write_stablehlo(argc - 2, argv + 2);
  RUN(round_trip);
  RUN(symbolic_folding);
  RUN(symbolic_evaluation);
  RUN(malformed_texts);
  RUN(mutated_texts);
  RUN(failing_allocations);
  RUN(stablehlo_of_every_operator);
  RUN(broken_graphs);
  return TEST_END;
}
