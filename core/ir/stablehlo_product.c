/* StableHLO writer: matrix products and attention. Halves accumulate in float32: the products have float32 results, rounded once at the end. */
#include <math.h>

#include "ir/stablehlo.h"

static tnx_dtype acc_of(uint8_t t) { return t == TNX_F16 || t == TNX_BF16 || t == TNX_F8E4M3 || t == TNX_F8E5M2 ? TNX_F32 : (tnx_dtype)t; }
static hlo times(hlo_writer *w, hlo x, double v) { return v == 1 ? x : hlo_bin(w, "stablehlo.multiply", x, hlo_full_f(w, x, v)); }
static hlo add(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.add", x, y); }
static hlo sub(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.subtract", x, y); }
static hlo mul(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.multiply", x, y); }

static hlo matmul(hlo_writer *w, hlo x, hlo y) { return hlo_dot(w, x, y, x.rank - 2, x.rank - 1, x.rank - 2, acc_of(x.dtype)); }

/* The second operand of a product: int8 is of the first one's type. */
static hlo factor(hlo_writer *w, int i, hlo x) { return hlo_cast(w, hlo_operand(w, i), (tnx_dtype)x.dtype); }

/* 0 none, 1 relu, 2 silu, 3 gelu (erf), 4 gelu (tanh) */
static hlo activation(hlo_writer *w, hlo x, int64_t act) {
  hlo inner;
  switch (act) {
    case 1: return hlo_bin(w, "stablehlo.maximum", x, hlo_full_f(w, x, 0));
    case 2: return mul(w, x, hlo_un(w, "stablehlo.logistic", x));
    case 3: inner = hlo_un(w, "chlo.erf", times(w, x, 0.70710678118654752440)); break;
    case 4: inner = hlo_un(w, "stablehlo.tanh", times(w, add(w, x, times(w, mul(w, mul(w, x, x), x), 0.044715)), 0.79788456080286535588)); break;
    default: return x;
  }
  return mul(w, times(w, x, 0.5), add(w, inner, hlo_full_f(w, x, 1)));
}

static hlo linear(hlo_writer *w) {
  hlo x = hlo_operand(w, 0), y = factor(w, 1, x), r = hlo_dot(w, x, y, 0, x.rank - 1, 1, acc_of(x.dtype));
  if (w->node->n_inputs > 2) {
    int64_t last = r.rank - 1;
    r = add(w, r, hlo_broadcast(w, hlo_cast(w, hlo_operand(w, 2), (tnx_dtype)r.dtype), &last, r));
  }
  return activation(w, r, hlo_int(w, 0));
}

/* beta 0 means that the added term is not read: its NaN do not matter. */
static hlo addmm(hlo_writer *w) {
  double beta = w->node->floats[0], alpha = w->node->floats[1];
  hlo x = hlo_operand(w, 1), r = times(w, matmul(w, x, factor(w, 2, x)), alpha);
  return beta == 0 ? r : add(w, times(w, hlo_cast(w, hlo_operand(w, 0), (tnx_dtype)r.dtype), beta), r);
}

/* ---- attention: the decomposition function of the composite ----
 * Query heads that share a key head are folded into its rows: [b, h, l, d] -> [b, g, h/g * l, d], which also sums their gradients. */

typedef struct attention {
  hlo q, k, v, mask; /* mask.id 0: none */
  bool causal;
  double scale;
  tnx_dtype acc;
} attention;

static hlo fold(hlo_writer *w, hlo x, int64_t groups) {
  int64_t sizes[4] = {x.sizes[0], groups, groups ? x.sizes[1] / groups * x.sizes[2] : 0, x.sizes[3]};
  return hlo_reshape(w, x, 4, sizes);
}

/* Masked scores [b, h, l, s] in the accumulation type; -inf where masked. */
static hlo scores(hlo_writer *w, const attention *a) {
  int64_t sizes[4] = {a->q.sizes[0], a->q.sizes[1], a->q.sizes[2], a->k.sizes[2]};
  hlo s = times(w, hlo_dot(w, fold(w, a->q, a->k.sizes[1]), a->k, 2, 3, 3, a->acc), a->scale), never;
  s = hlo_reshape(w, s, 4, sizes);
  never = hlo_splat(w, hlo_lowest(w, a->acc, false), s);
  if (a->mask.id) {
    if (a->mask.dtype == TNX_BOOL) s = hlo_select(w, a->mask, s, never);
    else s = add(w, s, hlo_cast(w, a->mask, a->acc));
  }
  if (a->causal) {
    hlo at = hlo_retype(s, TNX_I64);
    s = hlo_select(w, hlo_compare(w, "GE", hlo_iota(w, at, 2), hlo_iota(w, at, 3)), s, never);
  }
  return s;
}

static hlo along_rows(hlo_writer *w, hlo x, hlo like) {
  static const int64_t dims[3] = {0, 1, 2};
  return hlo_broadcast(w, x, dims, like);
}

static void forward(hlo_writer *w, const attention *a, hlo *out) {
  static const int64_t last[1] = {3};
  hlo s = scores(w, a), zero = hlo_const_f(w, a->acc, 0);
  hlo m = hlo_reduce(w, "stablehlo.maximum", s, hlo_lowest(w, a->acc, false), last, 1);
  /* a row without any position has no maximum */
  m = hlo_select(w, hlo_compare(w, "EQ", m, hlo_full_f(w, m, -INFINITY)), hlo_full_f(w, m, 0), m);
  hlo p = hlo_un(w, "stablehlo.exponential", sub(w, s, along_rows(w, m, s))), sum = hlo_reduce(w, "stablehlo.add", p, zero, last, 1);
  hlo o = hlo_dot(w, fold(w, p, a->k.sizes[1]), hlo_cast(w, a->v, a->acc), 2, 3, 2, a->acc);
  int64_t sizes[4] = {s.sizes[0], s.sizes[1], s.sizes[2], a->v.sizes[3]};
  o = hlo_reshape(w, o, 4, sizes);
  hlo empty = hlo_compare(w, "EQ", sum, hlo_full_f(w, sum, 0)), one = hlo_full_f(w, sum, 1);
  o = hlo_bin(w, "stablehlo.divide", o, along_rows(w, hlo_select(w, empty, one, sum), o));
  out[0] = hlo_cast(w, o, (tnx_dtype)a->q.dtype);
  out[1] = hlo_cast(w, add(w, m, hlo_un(w, "stablehlo.log", sum)), TNX_F32);
}

static void backward(hlo_writer *w, const attention *a, hlo dout, hlo o, hlo lse, hlo *out) {
  static const int64_t last[1] = {3};
  int64_t groups = a->k.sizes[1];
  hlo s = scores(w, a), zero = hlo_const_f(w, a->acc, 0);
  hlo l = along_rows(w, hlo_cast(w, lse, a->acc), s), none = hlo_compare(w, "EQ", l, hlo_full_f(w, l, -INFINITY));
  hlo p = hlo_select(w, none, hlo_full_f(w, s, 0), hlo_un(w, "stablehlo.exponential", sub(w, s, l)));
  dout = hlo_cast(w, dout, a->acc);
  hlo delta = hlo_reduce(w, "stablehlo.add", mul(w, dout, hlo_cast(w, o, a->acc)), zero, last, 1);
  hlo fd = fold(w, dout, groups), fp = fold(w, p, groups), q = hlo_cast(w, a->q, a->acc), k = hlo_cast(w, a->k, a->acc), v = hlo_cast(w, a->v, a->acc);
  hlo dp = hlo_reshape(w, hlo_dot(w, fd, v, 2, 3, 3, a->acc), 4, s.sizes);
  hlo ds = fold(w, times(w, mul(w, p, sub(w, dp, along_rows(w, delta, s))), a->scale), groups);
  out[0] = hlo_cast(w, hlo_reshape(w, hlo_dot(w, ds, k, 2, 3, 2, a->acc), 4, a->q.sizes), (tnx_dtype)a->q.dtype);
  out[1] = hlo_cast(w, hlo_dot(w, ds, fold(w, q, groups), 2, 2, 2, a->acc), (tnx_dtype)a->k.dtype);
  out[2] = hlo_cast(w, hlo_dot(w, fp, fd, 2, 2, 2, a->acc), (tnx_dtype)a->v.dtype);
}

/* Writes the node as a call of a composite, and its decomposition behind main. */
static void composite(hlo_writer *w, bool is_backward) {
  const tnx_node *n = w->node;
  int n_in = (int)n->n_inputs, n_out = (int)n->n_results;
  hlo in[8], args[8], results[3], out[3];
  uint32_t number = w->n_functions++;
  const char *name = is_backward ? "tnx.attention_backward" : "tnx.attention";
  for (int i = 0; i < n_in; i++) in[i] = args[i] = hlo_operand(w, (uint32_t)i);
  for (int i = 0; i < n_out; i++) results[i] = hlo_result(w, (uint32_t)i);
  hlo_begin_many(w, "stablehlo.composite", in, n_in, results, n_out);
  tnx_text_add(&w->text, " <{name = \"%s\", composite_attributes = {causal = %s, has_mask = %s, scale = ", name, n->ints[0] ? "true" : "false", n->ints[1] ? "true" : "false");
  uint64_t bits;
  __builtin_memcpy(&bits, &n->floats[0], sizeof bits);
  tnx_text_add(&w->text, "0x%016llX : f64}, decomposition = @%s_%u, version = 1 : i32}>", (unsigned long long)bits, name, number);
  hlo_end(w, in, n_in, results, n_out);
  for (int i = 0; i < n_out; i++) hlo_set_result(w, (uint32_t)i, results[i]);

  tnx_text main_text = w->text;
  w->text = w->functions;
  tnx_text_add(&w->text, "  func.func private @%s_%u(", name, number);
  for (int i = 0; i < n_in; i++) {
    args[i].id = w->next++;
    tnx_text_add(&w->text, "%s%%%u: ", i ? ", " : "", args[i].id);
    hlo_add_type(&w->text, args[i]);
  }
  for (int i = 0; i < n_out; i++) {
    tnx_text_add(&w->text, i ? ", " : ") -> (");
    hlo_add_type(&w->text, results[i]);
  }
  tnx_text_add(&w->text, ") {\n");
  const hlo *first = args + is_backward;
  attention a = {.q = first[0], .k = first[1], .v = first[2], .causal = n->ints[0] != 0, .scale = n->floats[0], .acc = acc_of(first[0].dtype)};
  if (n->ints[1]) a.mask = args[n_in - 1];
  if (is_backward) backward(w, &a, args[0], args[4], args[5], out);
  else forward(w, &a, out);
  tnx_text_add(&w->text, "    func.return");
  for (int i = 0; i < n_out; i++) tnx_text_add(&w->text, "%s%%%u", i ? ", " : " ", out[i].id);
  for (int i = 0; i < n_out; i++) {
    tnx_text_add(&w->text, i ? ", " : " : ");
    hlo_add_type(&w->text, out[i]);
  }
  tnx_text_add(&w->text, "\n  }\n");
  w->functions = w->text;
  w->text = main_text;
}

void hlo_product(hlo_writer *w) {
  switch (w->node->op) {
    case TNX_OP_MATMUL: hlo_set_result(w, 0, matmul(w, hlo_operand(w, 0), factor(w, 1, hlo_operand(w, 0)))); break;
    case TNX_OP_LINEAR: hlo_set_result(w, 0, linear(w)); break;
    case TNX_OP_ADDMM: hlo_set_result(w, 0, addmm(w)); break;
    default: composite(w, w->node->op == TNX_OP_ATTENTION_BACKWARD);
  }
}
