/* Text form of a graph. One definition a line, in order:
 *
 *   graph "name"
 *   $1 = symbol "s0" min 2
 *   $2 = mul $1, 4
 *   %1: float32[$1, 8] = INPUT {0} strides [8, 1]
 *   %2: float32[$1, 1] = REDUCE_SUM %1 {1}
 *   %3: float32[] = CONST {} {0.5, 0}
 *   output %2
 *   output %3 into 0
 *
 * The first braces hold a node's ints, the second its floats; either may be left out when nothing follows. After them: what an input has (strides, alias N,
 * overlaps) and the flags of the node's first result (host, wrapped). Doubles are exact. tnx_graph_parse reads this back to an equal graph. */
#include "ir/text.h"

static void add_dim(tnx_text *t, tnx_dim d) {
  if (tnx_dim_is_symbolic(d)) tnx_text_add(t, "$%u", (unsigned)(uint32_t)(d - TNX_DIM_SYMBOLIC));
  else tnx_text_add(t, "%lld", (long long)d);
}

static void add_ints(tnx_text *t, const tnx_node *n) {
  tnx_text_add(t, "{");
  for (uint32_t i = 0; i < n->n_ints; i++) {
    if (i) tnx_text_add(t, ", ");
    /* A constant's number is not a size: its lowest values are not symbols. */
    if (n->op == TNX_OP_CONST) tnx_text_add(t, "%lld", (long long)n->ints[i]);
    else add_dim(t, n->ints[i]);
  }
  tnx_text_add(t, "}");
}

static void add_dims(tnx_text *t, char open, const tnx_dim *dims, uint32_t n, char close) {
  tnx_text_add(t, "%c", open);
  for (uint32_t i = 0; i < n; i++) {
    if (i) tnx_text_add(t, ", ");
    add_dim(t, dims[i]);
  }
  tnx_text_add(t, "%c", close);
}

/* A quoted name: quotes, backslashes and bytes outside printable ASCII as \xx. */
static void add_name(tnx_text *t, const char *s) {
  tnx_text_add(t, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') tnx_text_add(t, "\\%02x", c);
    else tnx_text_add(t, "%c", c);
  }
  tnx_text_add(t, "\"");
}

static void add_expr(tnx_text *t, const tnx_graph *g, uint32_t id) {
  static const char *const names[] = {"add", "sub", "mul", "floordiv", "mod", "min", "max"};
  const tnx_expr *e = &g->exprs.data[id];
  tnx_text_add(t, "$%u = ", id);
  if (e->op == TNX_EXPR_SYMBOL) {
    tnx_text_add(t, "symbol ");
    add_name(t, g->symbols.data[e->a].name);
    tnx_text_add(t, " min %lld\n", (long long)g->symbols.data[e->a].min);
    return;
  }
  tnx_text_add(t, "%s ", e->op <= TNX_DIM_MAX ? names[e->op] : "unknown");
  add_dim(t, e->a);
  tnx_text_add(t, ", ");
  add_dim(t, e->b);
  tnx_text_add(t, "\n");
}

void tnx_text_add_node(tnx_text *t, const tnx_graph *g, const tnx_node *n) {
  for (uint32_t i = 0; i < n->n_results; i++) {
    const tnx_value_data *v = &g->values.data[n->first + i];
    tnx_text_add(t, "%s%%%u: %s", i ? ", " : "", n->first + i, tnx_dtype_name((tnx_dtype)v->dtype));
    add_dims(t, '[', v->sizes, v->rank, ']');
  }
  tnx_text_add(t, " = %s", tnx_op_get_info((tnx_op)n->op)->name);
  for (uint32_t i = 0; i < n->n_inputs; i++) tnx_text_add(t, "%s%%%u", i ? ", " : " ", n->inputs[i]);
  if (n->n_ints || n->n_floats) {
    tnx_text_add(t, " ");
    add_ints(t, n);
  }
  if (n->n_floats) {
    tnx_text_add(t, " {");
    for (uint32_t i = 0; i < n->n_floats; i++) {
      if (i) tnx_text_add(t, ", ");
      tnx_text_add_double(t, n->floats[i]);
    }
    tnx_text_add(t, "}");
  }
  if (!n->n_results) return;
  const tnx_value_data *v = &g->values.data[n->first];
  if (n->op == TNX_OP_INPUT && n->n_ints == 1 && n->ints[0] >= 0 && n->ints[0] < (int64_t)g->inputs.len) {
    const tnx_input *in = &g->inputs.data[n->ints[0]];
    tnx_text_add(t, " strides ");
    add_dims(t, '[', in->strides, v->rank, ']');
    if (in->alias != TNX_NO_TENSOR) tnx_text_add(t, " alias %u", in->alias);
    if (in->overlaps) tnx_text_add(t, " overlaps");
  }
  if (v->flags & TNX_VALUE_HOST) tnx_text_add(t, " host");
  if (v->flags & TNX_VALUE_WRAPPED) tnx_text_add(t, " wrapped");
}

tnx_status tnx_graph_print(const tnx_graph *g, char **text_out) {
  tnx_text t = {0};
  tnx_text_add(&t, "graph ");
  add_name(&t, g->name);
  tnx_text_add(&t, "\n");
  for (uint32_t i = 1; i < g->exprs.len; i++) add_expr(&t, g, i);
  for (uint32_t i = 1; i < g->nodes.len; i++) {
    tnx_text_add_node(&t, g, &g->nodes.data[i]);
    tnx_text_add(&t, "\n");
  }
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (o->value) tnx_text_add(&t, "output %%%u", o->value);
    else tnx_text_add(&t, "output none");
    if (o->into != TNX_NO_TENSOR) tnx_text_add(&t, " into %u", o->into);
    if (o->strides) {
      tnx_text_add(&t, " strides ");
      add_dims(&t, '[', o->strides, g->values.data[o->value].rank, ']');
    }
    tnx_text_add(&t, "\n");
  }
  return tnx_text_take(&t, text_out);
}
