/* Modules: graphs built call by call for torch.compile, and the plans they become. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "aten/lower.h"
#include "base/log.h"
#include "plan/run.h"
#include "runtime/programs.h"

struct tnx_module {
  tnx_graph g;
  tnx_dtype default_dtype;
};

tnx_status tnx_module_create(const char *name, tnx_module **out) {
  tnx_module *m = tnx_heap_zalloc(1, sizeof *m);
  if (!m) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  tnx_status status = tnx_graph_init(&m->g, name);
  if (status != TNX_OK) {
    tnx_heap_free(m);
    return status;
  }
  m->default_dtype = TNX_F32;
  *out = m;
  return TNX_OK;
}

void tnx_module_destroy(tnx_module *m) {
  if (!m) return;
  tnx_graph_fini(&m->g);
  tnx_heap_free(m);
}

void tnx_module_set_default_dtype(tnx_module *m, tnx_dtype t) { m->default_dtype = t; }

tnx_status tnx_module_symbol(tnx_module *m, const char *name, int64_t min, tnx_dim *out) { return tnx_graph_symbol(&m->g, name, min, out); }

static bool known_dim(const tnx_module *m, tnx_dim d) { return !tnx_dim_is_symbolic(d) || (uint64_t)(d - TNX_DIM_SYMBOLIC) < m->g.exprs.len; }
static bool known_value(const tnx_module *m, tnx_value v) { return v && v < m->g.values.len; }

tnx_status tnx_module_dim(tnx_module *m, tnx_dim_op op, tnx_dim a, tnx_dim b, tnx_dim *out) {
  if (!known_dim(m, a) || !known_dim(m, b)) return tnx_fail(TNX_INVALID_ARGUMENT, "a size of another graph");
  return tnx_graph_dim(&m->g, op, a, b, out);
}

tnx_status tnx_module_input(tnx_module *m, tnx_dtype dtype, int32_t rank, const tnx_dim *sizes, const tnx_dim *strides, uint32_t flags, tnx_value *out) {
  tnx_graph *g = &m->g;
  if (rank < 0 || rank > TNX_MAX_RANK) return tnx_fail(TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
  for (int i = 0; i < rank; i++)
    if (!known_dim(m, sizes[i]) || !known_dim(m, strides[i])) return tnx_fail(TNX_INVALID_ARGUMENT, "a size of another graph");
  tnx_dim number = g->inputs.len;
  tnx_type type = {(uint8_t)dtype, (uint8_t)rank, sizes};
  TNX_TRY(tnx_graph_add(g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, out));
  if (flags & TNX_TENSOR_HOST) g->values.data[*out].flags |= TNX_VALUE_HOST;
  if (flags & TNX_TENSOR_WRAPPED) g->values.data[*out].flags |= TNX_VALUE_WRAPPED;
  tnx_input in = {*out, tnx_arena_copy(&g->arena, strides, (size_t)rank * sizeof *strides), TNX_NO_TENSOR, false};
  if (!in.strides || !tnx_vec_push(&g->inputs, in)) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  return TNX_OK;
}

tnx_status tnx_module_call(tnx_module *m, const tnx_row *row, const tnx_arg *args, uint32_t n_args, tnx_value *results, uint32_t *n_results_out) {
  for (uint32_t i = 0; i < n_args; i++) {
    bool ok = args[i].kind != TNX_ARG_TENSOR || known_value(m, args[i].value);
    for (uint32_t j = 0; args[i].kind == TNX_ARG_TENSORS && j < args[i].count; j++) ok &= args[i].values[j] == TNX_NO_TENSOR || known_value(m, args[i].values[j]);
    if (args[i].kind == TNX_ARG_INT) ok &= known_dim(m, args[i].dim);
    for (uint32_t j = 0; args[i].kind == TNX_ARG_INTS && j < args[i].count; j++) ok &= known_dim(m, args[i].dims[j]);
    if (!ok) return tnx_fail(TNX_INVALID_ARGUMENT, "aten::%s: argument %u is not of this graph", row->functional, i);
  }
  tnx_lower l = {.b = tnx_builder_on(&m->g), .row = row, .n_args = n_args, .n_results = 1, .memory_format = TNX_FORMAT_PRESERVE};
  l.b.default_dtype = m->default_dtype;
  memset(results, 0, tnx_max_results(args, n_args) * sizeof *results);
  tnx_status status = tnx_row_lowering(row->id)(&l, args, results);
  if (status == TNX_OK) status = l.b.status;
  if (status != TNX_OK) tnx_error_prefix("aten::%s", row->functional[0] ? row->functional : row->inplace);
  *n_results_out = l.n_results;
  return status;
}

tnx_status tnx_module_value_info(const tnx_module *m, tnx_value v, tnx_dtype *dtype, int32_t *rank, tnx_dim *sizes) {
  if (!known_value(m, v)) return tnx_fail(TNX_INVALID_ARGUMENT, "no such value");
  const tnx_value_data *d = &m->g.values.data[v];
  *dtype = (tnx_dtype)d->dtype;
  *rank = d->rank;
  for (int i = 0; i < d->rank; i++) sizes[i] = d->sizes[i];
  return TNX_OK;
}

tnx_status tnx_module_output(tnx_module *m, tnx_value v, uint32_t into, const tnx_dim *strides) {
  tnx_graph *g = &m->g;
  if (v && !known_value(m, v)) return tnx_fail(TNX_INVALID_ARGUMENT, "no such value");
  tnx_output o = {v, into, NULL};
  if (v && into != TNX_NO_TENSOR) {
    if (into >= g->inputs.len) return tnx_fail(TNX_INVALID_ARGUMENT, "no input %u", into);
    tnx_builder b = tnx_builder_on(g);
    const tnx_value_data *target = &g->values.data[g->inputs.data[into].value];
    v = tnx_b_broadcast_to(&b, v, target->rank, target->sizes);
    o.value = tnx_b_convert(&b, v, (tnx_dtype)g->values.data[g->inputs.data[into].value].dtype);
    if (b.status != TNX_OK) return b.status;
  } else if (v && strides) {
    int rank = g->values.data[v].rank;
    o.strides = tnx_arena_copy(&g->arena, strides, (size_t)rank * sizeof *strides);
    if (!o.strides) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  return tnx_vec_push(&g->outputs, o) ? TNX_OK : tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
}

tnx_status tnx_module_compile(tnx_module *m, tnx_plan **plan_out, uint64_t *compile_ns_out) {
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  tnx_status status = tnx_plan_build(&m->g, plan_out);
  clock_gettime(CLOCK_MONOTONIC, &t1);
  uint64_t ns = (uint64_t)((t1.tv_sec - t0.tv_sec) * 1000000000 + (t1.tv_nsec - t0.tv_nsec));
  if (compile_ns_out) *compile_ns_out = ns;
  if (status == TNX_OK) TNX_LOG(PLAN, "%s: %u nodes planned as %u steps in %.1f us", m->g.name, m->g.nodes.len - 1, (*plan_out)->steps.len, (double)ns * 1e-3);
  else tnx_error_prefix("%s", m->g.name);
  return status;
}

tnx_status tnx_module_text(tnx_module *m, const char *format, char **text_out) {
  if (strcmp(format, "tnx") == 0) return tnx_graph_print(&m->g, text_out);
  if (strcmp(format, "stablehlo") == 0) return tnx_graph_stablehlo(&m->g, text_out);
  return tnx_fail(TNX_INVALID_ARGUMENT, "unknown format '%s': 'tnx' and 'stablehlo' are known", format);
}

void tnx_text_free(char *text) { tnx_heap_free(text); }

tnx_status tnx_plan_run(tnx_plan *p, const int64_t *symbols, uint32_t n_symbols, void *const *inputs, uint32_t n_inputs, void *const *results, uint32_t n_results,
                        tnx_stream *stream) {
  if (n_inputs != p->inputs.len || n_results != p->outputs.len)
    return tnx_fail(TNX_INVALID_ARGUMENT, "%s: %u inputs and %u results given, %u and %u wanted", p->name, n_inputs, n_results, p->inputs.len, p->outputs.len);
  tnx_instance *inst;
  tnx_status status = tnx_instance_get(p, symbols, n_symbols, &inst);
  if (status == TNX_OK) {
    /* A compiled graph is a program of its own, whatever was called before and after it. */
    status = p->program ? tnx_stream_release(stream) : TNX_OK;
    if (status == TNX_OK) status = tnx_plan_launch(p, inst, inputs, results, stream);
    if (status == TNX_OK && p->program) status = tnx_stream_release(stream);
    tnx_instance_release(inst);
  }
  return status;
}

tnx_status tnx_plan_infer(tnx_plan *p, const int64_t *symbols, uint32_t n_symbols, tnx_result *out) {
  tnx_instance *inst;
  TNX_TRY(tnx_instance_get(p, symbols, n_symbols, &inst));
  memcpy(out, inst->results, p->outputs.len * sizeof *out);
  tnx_instance_release(inst);
  return TNX_OK;
}
