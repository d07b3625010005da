/* From a batch of calls to one graph: regions and host scalars become inputs, ranges are values of one dimension that calls replace. */
#include <stdio.h>
#include <string.h>

#include "plan/batch.h"

typedef struct maker {
  const tnx_batch *b;
  tnx_graph g; /* with everything; what nobody needs is left out of the final one */
  tnx_builder to;
  tnx_value *region, *host, *range;
  const tnx_view **seen; /* by region: how it was first looked at */
} maker;

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while writing a program"); }

/* The shape a region has as an argument: that of the first tensor seen there, in memory order, if it fills the region; otherwise one dimension. */
static int region_shape(const tnx_region *r, const tnx_view *v, tnx_dim *sizes) {
  sizes[0] = r->elements;
  if (!v || !tnx_view_is_dense(v) || tnx_view_numel(v) != r->elements) return 1;
  int rank = 0;
  int64_t stride[TNX_MAX_RANK];
  for (int d = 0; d < v->rank; d++) {
    if (v->sizes[d] == 1) continue;
    int at = rank++;
    for (; at > 0 && stride[at - 1] < v->strides[d]; at--) {
      stride[at] = stride[at - 1];
      sizes[at] = sizes[at - 1];
    }
    stride[at] = v->strides[d];
    sizes[at] = v->sizes[d];
  }
  if (rank == 0) sizes[rank++] = 1;
  return rank;
}

static tnx_status add_input(tnx_graph *g, uint8_t dtype, int rank, const tnx_dim *sizes, tnx_value *out) {
  tnx_dim number = g->inputs.len;
  tnx_type type = {dtype, (uint8_t)rank, sizes};
  TNX_TRY(tnx_graph_add(g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, out));
  tnx_dim *strides = TNX_ARENA_ARRAY(&g->arena, tnx_dim, rank), run = 1;
  if (!strides) return no_memory();
  for (int d = rank; d-- > 0; run *= sizes[d]) strides[d] = run;
  tnx_input in = {*out, strides, TNX_NO_TENSOR, false};
  return tnx_vec_push(&g->inputs, in) ? TNX_OK : no_memory();
}

static tnx_value flat(tnx_builder *b, tnx_value x, int64_t elements) { return tnx_b_reshape(b, x, 1, &elements); }

static tnx_value load(maker *m, const tnx_ref *r, const tnx_view *v) {
  tnx_view at = *v;
  switch (r->kind) {
    case TNX_REF_HOST: return tnx_b_reshape(&m->to, m->host[r->index], v->rank, v->sizes);
    case TNX_REF_MEMORY: return tnx_flat_load(&m->to, flat(&m->to, m->region[r->index], m->b->regions.data[r->index].elements), &at);
    case TNX_REF_RANGE: at.offset = r->offset; return tnx_flat_load(&m->to, m->range[r->index], &at);
    default: return tnx_b_full(&m->to, tnx_b_const_i(&m->to, (tnx_dtype)v->dtype, 0), v->rank, v->sizes);
  }
}

static void store(maker *m, const tnx_ref *r, const tnx_view *v, tnx_value x) {
  tnx_view at = *v;
  switch (r->kind) {
    case TNX_REF_NEW: m->range[r->index] = tnx_flat_store(&m->to, 0, &at, x); break;
    case TNX_REF_SPAN: m->range[r->index] = tnx_flat_store(&m->to, flat(&m->to, m->region[r->base], m->b->regions.data[r->base].elements), &at, x); break;
    case TNX_REF_RANGE:
      at.offset = r->offset;
      m->range[r->index] = tnx_flat_store(&m->to, m->range[r->index], &at, x);
      break;
    default: break;
  }
}

static tnx_status add_call(maker *m, const tnx_batch_call *c) {
  const tnx_plan *p = c->plan;
  const tnx_ref *refs = &m->b->refs.data[c->refs];
  tnx_value *in = TNX_ARENA_ARRAY(&m->g.arena, tnx_value, p->inputs.len), *out = TNX_ARENA_ARRAY(&m->g.arena, tnx_value, p->outputs.len);
  if (!in || !out) return no_memory();
  for (uint32_t i = 0; i < p->inputs.len; i++)
    if (p->program->needed[i]) in[i] = load(m, &refs[i], &c->inst->inputs[i]);
  TNX_TRY(m->to.status);
  TNX_TRY(tnx_graph_inline(&p->program->graph, c->inst->dims, &m->g, in, out));
  for (uint32_t i = 0; i < p->outputs.len; i++) store(m, &refs[p->inputs.len + i], &c->inst->outputs[i], out[i]);
  return m->to.status;
}

static void see_regions(maker *m) {
  for (uint32_t c = 0; c < m->b->calls.len; c++) {
    const tnx_batch_call *call = &m->b->calls.data[c];
    for (uint32_t i = 0; i < call->plan->inputs.len; i++) {
      const tnx_ref *r = &m->b->refs.data[call->refs + i];
      if (r->kind == TNX_REF_MEMORY && !m->seen[r->index]) m->seen[r->index] = &call->inst->inputs[i];
    }
  }
}

static tnx_status add_inputs(maker *m) {
  const tnx_batch *b = m->b;
  tnx_dim sizes[TNX_MAX_RANK];
  see_regions(m);
  for (uint32_t i = 0; i < b->regions.len; i++) {
    const tnx_region *r = &b->regions.data[i];
    int rank = region_shape(r, m->seen[i], sizes);
    TNX_TRY(add_input(&m->g, (uint8_t)r->dtype, rank, sizes, &m->region[i]));
  }
  for (uint32_t i = 0; i < b->host_dtypes.len; i++) TNX_TRY(add_input(&m->g, b->host_dtypes.data[i], 0, NULL, &m->host[i]));
  return TNX_OK;
}

/* Outputs of the full graph: the values of the ranges that are to be in memory, in the shape of the region whose memory they take. */
static tnx_status add_outputs(maker *m, const bool *written, uint32_t *outputs) {
  for (uint32_t i = 0; i < m->b->ranges.len; i++) {
    const tnx_range *r = &m->b->ranges.data[i];
    if (!written[i]) continue;
    tnx_output o = {m->range[i], TNX_NO_TENSOR, NULL};
    if (!o.value) return tnx_fail(TNX_INTERNAL, "a range of a batch has no value");
    if (r->region != TNX_NO_TENSOR) {
      const tnx_value_data *in = &m->g.values.data[m->region[r->region]];
      o.value = tnx_b_reshape(&m->to, o.value, in->rank, in->sizes);
      o.into = r->region;
      TNX_TRY(m->to.status);
    }
    outputs[m->g.outputs.len] = i;
    if (!tnx_vec_push(&m->g.outputs, o)) return no_memory();
  }
  return TNX_OK;
}

/* The same graph without what no output needs; an output whose region is not read any more takes fresh memory as far as the program is concerned. */
static tnx_status prune(maker *m, tnx_graph *out, uint32_t *inputs) {
  tnx_graph *g = &m->g;
  bool *needed = TNX_ARENA_ARRAY(&g->arena, bool, g->nodes.len);
  tnx_value *in = TNX_ARENA_ARRAY(&g->arena, tnx_value, g->inputs.len), *values = TNX_ARENA_ARRAY(&g->arena, tnx_value, g->outputs.len);
  uint32_t *number = TNX_ARENA_ARRAY(&g->arena, uint32_t, g->inputs.len), n = 0;
  if (!needed || !in || !values || !number) return no_memory();
  tnx_graph_needed(g, needed);
  for (uint32_t i = 0; i < g->inputs.len; i++) {
    const tnx_value_data *v = &g->values.data[g->inputs.data[i].value];
    number[i] = TNX_NO_TENSOR;
    if (!needed[v->node]) continue;
    number[i] = n;
    inputs[n++] = i < m->b->regions.len ? i : (i - m->b->regions.len) | TNX_BATCH_HOST;
    TNX_TRY(add_input(out, v->dtype, v->rank, v->sizes, &in[i]));
  }
  TNX_TRY(tnx_graph_inline(g, NULL, out, in, values));
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    uint32_t into = g->outputs.data[i].into;
    tnx_output o = {values[i], into == TNX_NO_TENSOR ? TNX_NO_TENSOR : number[into], NULL};
    if (!tnx_vec_push(&out->outputs, o)) return no_memory();
  }
  return TNX_OK;
}

tnx_status tnx_batch_graph(const tnx_batch *b, const bool *written, tnx_graph *out, uint32_t **inputs_out, uint32_t **outputs_out) {
  maker m = {.b = b};
  char name[300];
  if (b->calls.len == 1) snprintf(name, sizeof name, "%.290s", b->calls.data[0].plan->name);
  else snprintf(name, sizeof name, "eager_%u", b->calls.len);
  *inputs_out = *outputs_out = NULL;
  TNX_TRY(tnx_graph_init(&m.g, name));
  tnx_status status = tnx_graph_init(out, name);
  if (status != TNX_OK) {
    tnx_graph_fini(&m.g);
    return status;
  }
  m.to = tnx_builder_on(&m.g);
  m.region = TNX_ARENA_ARRAY(&m.g.arena, tnx_value, b->regions.len);
  m.host = TNX_ARENA_ARRAY(&m.g.arena, tnx_value, b->host_dtypes.len);
  m.range = TNX_ARENA_ARRAY(&m.g.arena, tnx_value, b->ranges.len);
  m.seen = TNX_ARENA_ARRAY(&m.g.arena, const tnx_view *, b->regions.len);
  *inputs_out = tnx_heap_zalloc(b->regions.len + b->host_dtypes.len + 1, sizeof **inputs_out);
  *outputs_out = tnx_heap_zalloc(b->ranges.len + 1, sizeof **outputs_out);
  if (!m.region || !m.host || !m.range || !m.seen || !*inputs_out || !*outputs_out) {
    status = no_memory();
    goto done;
  }
  TNX_TRY_DONE(add_inputs(&m));
  for (uint32_t i = 0; i < b->calls.len && status == TNX_OK; i++) status = add_call(&m, &b->calls.data[i]);
  if (status != TNX_OK) goto done;
  TNX_TRY_DONE(add_outputs(&m, written, *outputs_out));
  TNX_TRY_DONE(prune(&m, out, *inputs_out));
done:
  tnx_graph_fini(&m.g);
  if (status != TNX_OK) {
    tnx_graph_fini(out);
    tnx_heap_free(*inputs_out);
    tnx_heap_free(*outputs_out);
    *inputs_out = *outputs_out = NULL;
  }
  return status;
}
