/* StableHLO writer: the module, main's arguments and results, leaves, and the walk over the nodes.
 *
 * A mutated input is an argument with tf.aliasing_output: the result that takes its memory, as XLA's and Neuron's front ends read it. Undefined outputs are left out
 * of the results. Attention is a stablehlo.composite with its decomposition, so that a compiler that knows it may take it whole. */
#include "ir/stablehlo.h"

#include <string.h>

#include "base/alloc.h"

void hlo_set_result(hlo_writer *w, uint32_t i, hlo x) {
  if (w->status != TNX_OK) return;
  tnx_value v = w->node->first + i;
  w->values[v] = hlo_cast(w, x, (tnx_dtype)w->g->values.data[v].dtype);
}

static void leaf(hlo_writer *w) {
  const tnx_node *n = w->node;
  hlo r = hlo_result(w, 0);
  tnx_dtype t = (tnx_dtype)r.dtype;
  switch (n->op) {
    case TNX_OP_INPUT: break; /* an argument of main */
    case TNX_OP_CONST:
      if (n->n_ints) hlo_set_result(w, 0, hlo_const_i(w, t, n->ints[0]));
      else if (tnx_dtype_is_complex(t)) {
        hlo in[2] = {hlo_const_f(w, tnx_dtype_real(t), n->floats[0]), hlo_const_f(w, tnx_dtype_real(t), n->floats[1])};
        hlo_set_result(w, 0, hlo_op(w, "stablehlo.complex", in, 2, r));
      } else hlo_set_result(w, 0, hlo_const_f(w, t, n->floats[0]));
      break;
    case TNX_OP_IOTA: hlo_set_result(w, 0, hlo_iota(w, r, (int)hlo_int(w, 0))); break;
    case TNX_OP_DIMVAL: hlo_set_result(w, 0, hlo_const_i(w, t, hlo_int(w, 0))); break;
    default: hlo_fail(w, TNX_NOT_IMPLEMENTED, "an unknown leaf");
  }
}

static void write_node(hlo_writer *w) {
  for (uint32_t i = 0; i < w->node->n_results; i++) {
    hlo r = hlo_result(w, i);
    for (int d = 0; d < r.rank; d++)
      if (r.sizes[d] < 0) hlo_fail(w, TNX_SHAPE, "a size is negative");
    hlo_numel(w, r);
  }
  if (w->status != TNX_OK) return;
  switch (tnx_op_get_info((tnx_op)w->node->op)->klass) {
    case TNX_CLASS_LEAF: leaf(w); break;
    case TNX_CLASS_UNARY:
    case TNX_CLASS_BINARY:
    case TNX_CLASS_TERNARY:
    case TNX_CLASS_CONVERT: hlo_pointwise(w); break;
    case TNX_CLASS_VIEW: hlo_view(w); break;
    case TNX_CLASS_DATA: hlo_data(w); break;
    case TNX_CLASS_REDUCE: hlo_reduction(w); break;
    case TNX_CLASS_SCAN: hlo_scan(w); break;
    case TNX_CLASS_INDEX: hlo_index(w); break;
    case TNX_CLASS_PRODUCT: hlo_product(w); break;
    case TNX_CLASS_LINALG: hlo_linalg(w); break;
    case TNX_CLASS_FFT: hlo_fft(w); break;
    default: hlo_fail(w, TNX_NOT_IMPLEMENTED, "an unknown operator class");
  }
}

/* Symbol names of MLIR are letters, digits and _ here. */
static void add_module_name(tnx_text *t, const char *s) {
  tnx_text_add(t, "module @tnx_");
  for (; *s; s++) {
    bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
    tnx_text_add(t, "%c", plain ? *s : '_');
  }
  tnx_text_add(t, " {\n");
}

static void write_main(hlo_writer *w) {
  const tnx_graph *g = w->g;
  tnx_text_add(&w->text, "  func.func public @main(");
  for (uint32_t i = 0; i < g->inputs.len; i++) {
    tnx_value v = g->inputs.data[i].value;
    w->node = tnx_graph_producer(g, v);
    hlo x = hlo_result(w, 0);
    x.id = w->next++;
    w->values[v] = x;
    tnx_text_add(&w->text, "%s%%%u: ", i ? ", " : "", x.id);
    hlo_add_type(&w->text, x);
    uint32_t result = 0;
    for (uint32_t o = 0; o < g->outputs.len; o++) {
      if (!g->outputs.data[o].value) continue;
      if (g->outputs.data[o].into == i) {
        tnx_text_add(&w->text, " {tf.aliasing_output = %u : i32}", result);
        break;
      }
      result++;
    }
  }
  tnx_text_add(&w->text, ") -> (");
  uint32_t n = 0;
  for (uint32_t o = 0; o < g->outputs.len; o++) {
    tnx_value v = g->outputs.data[o].value;
    if (!v) continue;
    const tnx_value_data *d = &g->values.data[v];
    w->node = tnx_graph_producer(g, v);
    if (n++) tnx_text_add(&w->text, ", ");
    hlo_add_type(&w->text, hlo_result(w, d->result));
  }
  tnx_text_add(&w->text, ") {\n");
  for (uint32_t i = 1; i < g->nodes.len && w->status == TNX_OK && !w->text.failed; i++) {
    w->node = &g->nodes.data[i];
    write_node(w);
  }
  if (w->status != TNX_OK) return;
  tnx_text_add(&w->text, "    func.return");
  for (int types = 0; types < 2 && n; types++) {
    uint32_t k = 0;
    for (uint32_t o = 0; o < g->outputs.len; o++) {
      tnx_value v = g->outputs.data[o].value;
      if (!v) continue;
      tnx_text_add(&w->text, k++ ? ", " : types ? " : " : " ");
      if (types) hlo_add_type(&w->text, w->values[v]);
      else tnx_text_add(&w->text, "%%%u", w->values[v].id);
    }
  }
  tnx_text_add(&w->text, "\n  }\n");
}

tnx_status tnx_graph_stablehlo_for(const tnx_graph *g, const int64_t *symbols, uint32_t n_symbols, char **text_out) {
  if (g->symbols.len > n_symbols) {
    for (uint32_t i = 1; i < g->values.len; i++)
      for (int d = 0; d < g->values.data[i].rank; d++)
        if (tnx_dim_is_symbolic(g->values.data[i].sizes[d]))
          return tnx_fail(TNX_NOT_IMPLEMENTED, "StableHLO: node %u (%s) has a symbolic size that was given no value", g->values.data[i].node,
                          tnx_op_get_info((tnx_op)tnx_graph_producer(g, i)->op)->name);
    return tnx_fail(TNX_NOT_IMPLEMENTED, "StableHLO: the graph has %u symbols, %u were given values", g->symbols.len, n_symbols);
  }
  TNX_TRY(tnx_graph_verify(g)); /* what follows relies on the rules */
  tnx_status status = TNX_OK;
  hlo_writer w = {.g = g, .next = 1};
  int64_t *dims = tnx_heap_zalloc(g->exprs.len, sizeof *dims);
  w.values = tnx_heap_zalloc(g->values.len, sizeof *w.values);
  if (!dims || !w.values) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while writing StableHLO");
    goto done;
  }
  TNX_TRY_DONE(tnx_graph_eval(g->exprs.data, g->exprs.len, symbols, n_symbols, dims));
  w.dims = dims;
  add_module_name(&w.text, g->name);
  write_main(&w);
  TNX_TRY_DONE(w.status);
  if (w.functions.failed) w.text.failed = true;
  if (w.functions.data) tnx_text_add(&w.text, "%s", w.functions.data);
  tnx_text_add(&w.text, "}\n");
  status = tnx_text_take(&w.text, text_out);
done:
  tnx_text_fini(&w.text);
  tnx_text_fini(&w.functions);
  tnx_heap_free(w.values);
  tnx_heap_free(dims);
  return status;
}

tnx_status tnx_graph_stablehlo(const tnx_graph *g, char **text_out) { return tnx_graph_stablehlo_for(g, NULL, 0, text_out); }
