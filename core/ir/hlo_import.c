/* StableHLO importer: functions, calls, loops, and where values come from. Operations are in hlo_import_<subject>.c. */
#include "ir/hlo_import.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CALLS = 32, MAX_INLINED = 1 << 22 };

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while importing StableHLO"); }

/* ---- messages ---- */

static tnx_value stop(hlo_import *m, tnx_status status, const char *what) {
  if (m->b.status != TNX_OK) return 0;
  const tnx_hlo_op *op = m->op;
  return tnx_b_fail(&m->b, status, "%s:%u:%u: %s: %s", m->module->file, op ? op->place.line : 0, op ? op->place.column : 0, op ? op->name : "module", what);
}
tnx_value hlo_refuse(hlo_import *m, const char *what) { return stop(m, TNX_PARSE, what); }
tnx_value hlo_unsupported(hlo_import *m, const char *what) { return stop(m, TNX_NOT_IMPLEMENTED, what); }
static void out_of_memory(hlo_import *m) {
  if (m->b.status == TNX_OK) m->b.status = no_memory();
}

/* ---- attributes ---- */

const tnx_hlo_attr *hlo_attr(hlo_import *m, const char *name) { return tnx_hlo_attr_find(m->op->attrs, m->op->n_attrs, name); }

const int64_t *hlo_ints(hlo_import *m, const tnx_hlo_attr *attrs, uint32_t n_attrs, const char *name, uint32_t *n) {
  const tnx_hlo_attr *a = tnx_hlo_attr_find(attrs, n_attrs, name);
  *n = 0;
  if (!a) return NULL;
  if (a->kind != TNX_HLO_INTS) {
    hlo_refuse(m, "a list of numbers expected");
    return NULL;
  }
  *n = a->n;
  return a->ints;
}

int64_t hlo_int_attr(hlo_import *m, const char *name, int64_t otherwise) {
  const tnx_hlo_attr *a = hlo_attr(m, name);
  if (!a) return otherwise;
  if (a->kind != TNX_HLO_INT) hlo_refuse(m, "a number expected");
  return a->i;
}

const char *hlo_word_attr(hlo_import *m, const char *name) {
  const tnx_hlo_attr *a = hlo_attr(m, name);
  return a && a->kind == TNX_HLO_STRING ? a->s : "";
}

bool hlo_are_dims(const int64_t *v, uint32_t n, int rank) {
  uint32_t seen = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (v[i] < 0 || v[i] >= rank || (seen >> v[i] & 1)) return false;
    seen |= 1u << v[i];
  }
  return true;
}

/* ---- routines ---- */

void tnx_routine_destroy(tnx_routine *r) {
  if (!r) return;
  for (uint32_t i = 0; i < r->steps.len; i++) {
    tnx_routine_step *s = &r->steps.data[i];
    if (s->graph) {
      tnx_graph_fini(s->graph);
      tnx_heap_free(s->graph);
    }
    tnx_routine_destroy(s->cond);
    tnx_routine_destroy(s->body);
    tnx_vec_fini(&s->in);
    tnx_vec_fini(&s->out);
    tnx_vec_fini(&s->cond_in);
    tnx_vec_fini(&s->body_in);
  }
  tnx_vec_fini(&r->steps);
  tnx_vec_fini(&r->values);
  tnx_vec_fini(&r->outputs);
  tnx_vec_fini(&r->into);
  tnx_arena_fini(&r->arena);
  tnx_heap_free(r);
}

static tnx_routine *routine_new(const char *name) {
  tnx_routine *r = tnx_heap_zalloc(1, sizeof *r);
  if (!r) return NULL;
  tnx_arena_init(&r->arena);
  r->name = tnx_arena_strdup(&r->arena, name);
  if (r->name) return r;
  tnx_routine_destroy(r);
  return NULL;
}

/* A new value; its number + 1, 0 when memory is short. */
static uint32_t routine_value(tnx_routine *r, const tnx_type *type) {
  tnx_type t = *type;
  t.sizes = tnx_arena_copy(&r->arena, type->sizes, type->rank * sizeof *type->sizes);
  return t.sizes && tnx_vec_push(&r->values, t) ? r->values.len : 0;
}

/* Opens a graph as the routine's next step; the builder writes there. */
static void begin_step(hlo_import *m) {
  hlo_scope *s = m->scope;
  tnx_routine_step step = {0};
  if (m->b.status != TNX_OK) return;
  step.graph = tnx_heap_zalloc(1, sizeof *step.graph);
  if (!step.graph || tnx_graph_init(step.graph, s->routine->name) != TNX_OK) {
    tnx_heap_free(step.graph);
    out_of_memory(m);
    return;
  }
  if (!tnx_vec_push(&s->routine->steps, step)) {
    tnx_graph_fini(step.graph);
    tnx_heap_free(step.graph);
    out_of_memory(m);
    return;
  }
  s->step = s->routine->steps.len - 1;
  m->b.g = step.graph;
}

/* Goes back to writing into scope s. */
static void enter(hlo_import *m, hlo_scope *s) {
  m->scope = s;
  m->b.g = s->routine->steps.data[s->step].graph;
}

/* ---- values ---- */

/* The graph's value for a value of the routine, as an input of the current step. */
static tnx_value step_input(hlo_import *m, uint32_t number) {
  hlo_scope *s = m->scope;
  tnx_routine_step *step = &s->routine->steps.data[s->step];
  if (m->b.status != TNX_OK) return 0;
  for (uint32_t i = 0; i < step->in.len; i++)
    if (step->in.data[i] == number) return step->graph->inputs.data[i].value;
  tnx_dim place = step->in.len, strides[TNX_MAX_RANK], at = 1;
  const tnx_type *type = &s->routine->values.data[number];
  for (int i = type->rank - 1; i >= 0; i--) {
    strides[i] = at;
    at *= type->sizes[i] ? type->sizes[i] : 1;
  }
  tnx_value v = 0;
  tnx_status status = tnx_graph_add(step->graph, TNX_OP_INPUT, NULL, 0, &place, 1, NULL, 0, type, 1, &v);
  if (status != TNX_OK) return m->b.status = status, 0;
  tnx_input in = {v, tnx_arena_copy(&step->graph->arena, strides, type->rank * sizeof *strides), TNX_NO_TENSOR, false};
  if (!in.strides || !tnx_vec_push(&step->graph->inputs, in) || !tnx_vec_push(&step->in, number)) return out_of_memory(m), 0;
  return v;
}

/* The number + 1 of the routine's value that the definition is; its step gives it as an output from now on. */
static uint32_t routine_number(hlo_import *m, hlo_definition *d) {
  if (d->routine || m->b.status != TNX_OK) return d->routine;
  tnx_routine *r = d->scope->routine;
  tnx_routine_step *step = &r->steps.data[d->step];
  const tnx_value_data *v = &step->graph->values.data[d->value];
  tnx_type type = {v->dtype, v->rank, v->sizes};
  tnx_output o = {.value = d->value, .into = TNX_NO_TENSOR};
  uint32_t number = routine_value(r, &type);
  if (!number || !tnx_vec_push(&step->out, number - 1) || !tnx_vec_push(&step->graph->outputs, o)) return out_of_memory(m), 0;
  return d->routine = number;
}

/* Constants and coordinates are made anew in each step. */
static tnx_value made_anew(hlo_import *m, const tnx_graph *g, tnx_value v) {
  const tnx_node *n = tnx_graph_producer(g, v);
  const tnx_value_data *d = &g->values.data[v];
  if (n->op == TNX_OP_CONST) {
    if (n->n_ints) return tnx_b_const_i(&m->b, (tnx_dtype)d->dtype, n->ints[0]);
    return tnx_b_const_c(&m->b, (tnx_dtype)d->dtype, n->floats[0], n->floats[1]);
  }
  if (n->op == TNX_OP_IOTA) return tnx_b_iota(&m->b, d->rank, d->sizes, (int)n->ints[0]);
  if (n->op == TNX_OP_BROADCAST && g->values.data[n->inputs[0]].rank == 0) {
    tnx_value scalar = made_anew(m, g, n->inputs[0]);
    return scalar ? tnx_b_full(&m->b, scalar, d->rank, d->sizes) : 0;
  }
  return 0;
}

static uint32_t captured_number(hlo_import *m, hlo_scope *s, uint32_t id) {
  hlo_definition *d = &m->values[id];
  if (d->scope == s) return routine_number(m, d);
  if (!s->parent) return hlo_refuse(m, "a value is not visible here"), 0;
  for (uint32_t i = 0; i < s->captured.len; i++)
    if (s->captured.data[i] == id) return s->capture.data[i] + 1;
  uint32_t outer = captured_number(m, s->parent, id);
  if (!outer) return 0;
  uint32_t number = routine_value(s->routine, &s->parent->routine->values.data[outer - 1]);
  if (!number || !tnx_vec_push(&s->captured, id) || !tnx_vec_push(&s->capture, number - 1)) return out_of_memory(m), 0;
  return number;
}

static tnx_value lookup(hlo_import *m, uint32_t id) {
  hlo_definition *d = &m->values[id];
  if (m->b.status != TNX_OK) return 0;
  if (!d->scope) return hlo_refuse(m, "a value is not visible here");
  if (d->value) {
    if (d->scope == m->scope && d->step == m->scope->step) return d->value;
    tnx_value again = made_anew(m, d->scope->routine->steps.data[d->step].graph, d->value);
    if (again || m->b.status != TNX_OK) return again;
  }
  uint32_t number = captured_number(m, m->scope, id);
  return number ? step_input(m, number - 1) : 0;
}

tnx_value hlo_in(hlo_import *m, uint32_t i) { return lookup(m, m->op->in[i].id); }

static void define(hlo_import *m, uint32_t id, tnx_value v) { m->values[id] = (hlo_definition){m->scope, m->scope->step, v, 0}; }

/* ---- operations ---- */

static void import_op(hlo_import *m, const tnx_hlo_op *op);

static void import_body(hlo_import *m, const tnx_hlo_block *b) {
  for (uint32_t i = 0; i < b->n_ops && m->b.status == TNX_OK; i++) import_op(m, b->ops[i]);
}

/* What a block defines is not visible behind it. */
static void forget(hlo_import *m, const tnx_hlo_block *b) {
  for (uint32_t i = 0; i < b->n_args; i++) m->values[b->args[i].id].scope = NULL;
  for (uint32_t i = 0; i < b->n_ops; i++)
    for (uint32_t k = 0; k < b->ops[i]->n_out; k++) m->values[b->ops[i]->out[k].id].scope = NULL;
}

static bool same_type(const tnx_type *a, const tnx_type *b) {
  return a->dtype == b->dtype && a->rank == b->rank && (a->rank == 0 || memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) == 0);
}

static void inline_call(hlo_import *m, const char *name) {
  const tnx_hlo_function *f = tnx_hlo_function_find(m->module, name);
  const tnx_hlo_op *op = m->op;
  if (!f) return (void)hlo_refuse(m, "a function of the module expected");
  if (f->body->n_args != op->n_in || f->n_results != op->n_out || op->n_out > HLO_IMPORT_RESULTS) return (void)hlo_refuse(m, "a function with these operands and results expected");
  if (++m->depth > MAX_CALLS) return (void)hlo_refuse(m, "calls are nested too deeply");
  for (uint32_t i = 0; i < op->n_in; i++) {
    if (!same_type(&f->body->args[i].type, &op->in[i].type)) return (void)hlo_refuse(m, "an argument has another type");
    tnx_value v = hlo_in(m, i);
    if (!v) return;
    define(m, f->body->args[i].id, v);
  }
  import_body(m, f->body);
  for (uint32_t i = 0; i < op->n_out && m->b.status == TNX_OK; i++) m->results[i] = lookup(m, f->body->results[i]);
  forget(m, f->body);
  m->op = op;
  m->depth--;
}

static void composite(hlo_import *m) {
  const tnx_hlo_op *op = m->op;
  const char *name = hlo_word_attr(m, "name");
  const tnx_hlo_attr *attrs = hlo_attr(m, "composite_attributes"), *causal = NULL, *masked = NULL, *scale = NULL;
  if (attrs && attrs->kind == TNX_HLO_DICT) {
    causal = tnx_hlo_attr_find(attrs->items, attrs->n, "causal");
    masked = tnx_hlo_attr_find(attrs->items, attrs->n, "has_mask");
    scale = tnx_hlo_attr_find(attrs->items, attrs->n, "scale");
  }
  bool known = causal && masked && scale && scale->kind == TNX_HLO_FLOAT && hlo_int_attr(m, "version", 0) == 1 && !(m->flags & TNX_HLO_DECOMPOSE);
  uint32_t mask = known && masked->i != 0;
  if (known && strcmp(name, "tnx.attention") == 0 && op->n_in == 3 + mask && op->n_out == 2) {
    tnx_value r = tnx_b_attention(&m->b, hlo_in(m, 0), hlo_in(m, 1), hlo_in(m, 2), mask ? hlo_in(m, 3) : 0, causal->i != 0, scale->f);
    for (uint32_t i = 0; i < 2 && r; i++) m->results[i] = r + i;
  } else if (known && strcmp(name, "tnx.attention_backward") == 0 && op->n_in == 6 + mask && op->n_out == 3) {
    tnx_value x[7] = {0};
    for (uint32_t i = 0; i < op->n_in; i++) x[i] = hlo_in(m, i);
    tnx_value r = tnx_b_attention_backward(&m->b, x[0], x[1], x[2], x[3], x[4], x[5], x[6], causal->i != 0, scale->f);
    for (uint32_t i = 0; i < 3 && r; i++) m->results[i] = r + i;
  } else {
    inline_call(m, hlo_word_attr(m, "decomposition"));
  }
}

/* A region as a routine whose inputs are the block's arguments and then what it captures. */
static tnx_routine *region_routine(hlo_import *m, const tnx_hlo_block *block, hlo_scope *scope, const char *name) {
  hlo_scope *outer = m->scope;
  tnx_routine *r = scope->routine = routine_new(name);
  if (!r) return out_of_memory(m), NULL;
  scope->parent = outer;
  m->scope = scope;
  begin_step(m);
  for (uint32_t i = 0; i < block->n_args && m->b.status == TNX_OK; i++) {
    uint32_t number = routine_value(r, &block->args[i].type);
    if (!number) out_of_memory(m);
    m->values[block->args[i].id] = (hlo_definition){scope, UINT32_MAX, 0, number};
  }
  import_body(m, block);
  for (uint32_t i = 0; i < block->n_results && m->b.status == TNX_OK; i++) {
    /* a constant, or a value of an outer scope, becomes one of this routine */
    tnx_value v = 0;
    hlo_definition *d = &m->values[block->results[i]], here;
    if (!(d->scope == scope && (d->routine || d->step != UINT32_MAX))) {
      if (!(v = lookup(m, block->results[i]))) break;
      here = (hlo_definition){scope, scope->step, v, 0};
      d = &here;
    }
    uint32_t number = routine_number(m, d);
    if (!number || !tnx_vec_push(&r->outputs, number - 1) || !tnx_vec_push(&r->into, TNX_NO_TENSOR)) out_of_memory(m);
  }
  forget(m, block);
  enter(m, outer);
  return r;
}

/* The captured values stand behind the arguments: moved there. Values that the region made in between are renumbered. */
static bool order_inputs(hlo_scope *s, uint32_t n_args) {
  tnx_routine *r = s->routine;
  uint32_t n = r->values.len, next = n_args, *to = tnx_heap_alloc((n + 1) * sizeof *to);
  tnx_type *types = tnx_heap_alloc((n + 1) * sizeof *types);
  if (!to || !types) {
    tnx_heap_free(to);
    tnx_heap_free(types);
    return false;
  }
  for (uint32_t i = 0; i < n; i++) to[i] = UINT32_MAX;
  for (uint32_t i = 0; i < n_args; i++) to[i] = i;
  for (uint32_t i = 0; i < s->capture.len; i++) to[s->capture.data[i]] = next++;
  r->n_inputs = next;
  for (uint32_t i = 0; i < n; i++)
    if (to[i] == UINT32_MAX) to[i] = next++;
  for (uint32_t i = 0; i < n; i++) types[to[i]] = r->values.data[i];
  memcpy(r->values.data, types, n * sizeof *types);
  for (uint32_t i = 0; i < r->outputs.len; i++) r->outputs.data[i] = to[r->outputs.data[i]];
  for (uint32_t i = 0; i < r->steps.len; i++) {
    tnx_routine_step *p = &r->steps.data[i];
    for (uint32_t k = 0; k < p->in.len; k++) p->in.data[k] = to[p->in.data[k]];
    for (uint32_t k = 0; k < p->out.len; k++) p->out.data[k] = to[p->out.data[k]];
    for (uint32_t k = 0; k < p->cond_in.len; k++) p->cond_in.data[k] = to[p->cond_in.data[k]];
    for (uint32_t k = 0; k < p->body_in.len; k++) p->body_in.data[k] = to[p->body_in.data[k]];
  }
  tnx_heap_free(to);
  tnx_heap_free(types);
  return true;
}

static void loop(hlo_import *m) {
  const tnx_hlo_op *op = m->op;
  uint32_t n = op->n_in;
  bool fits = op->n_regions == 2 && op->n_out == n && !m->elementwise;
  for (int k = 0; fits && k < 2; k++) fits = op->regions[k].n_args == n && op->regions[k].n_results == (k ? n : 1);
  for (uint32_t i = 0; fits && i < n; i++)
    fits = same_type(&op->in[i].type, &op->out[i].type) && same_type(&op->in[i].type, &op->regions[0].args[i].type) && same_type(&op->in[i].type, &op->regions[1].args[i].type);
  if (!fits) return (void)hlo_refuse(m, "a condition and a body over the operands' types expected");
  if (++m->depth > MAX_CALLS) return (void)hlo_refuse(m, "loops are nested too deeply");
  tnx_routine_step step = {0};
  hlo_scope scopes[2] = {{0}, {0}};
  tnx_routine *r = m->scope->routine;
  for (uint32_t i = 0; i < n && m->b.status == TNX_OK; i++) {
    uint32_t number = captured_number(m, m->scope, op->in[i].id);
    if (!number) {
      if (m->b.status == TNX_OK) out_of_memory(m);
    } else if (!tnx_vec_push(&step.in, number - 1)) {
      out_of_memory(m);
    }
  }
  if (m->b.status == TNX_OK) step.cond = region_routine(m, &op->regions[0], &scopes[0], "while.cond");
  if (m->b.status == TNX_OK) step.body = region_routine(m, &op->regions[1], &scopes[1], "while.body");
  m->op = op;
  if (m->b.status == TNX_OK) {
    const tnx_type *more = &step.cond->values.data[step.cond->outputs.data[0]];
    if (more->dtype != TNX_BOOL || more->rank) hlo_refuse(m, "a condition of type tensor<i1> expected");
    for (uint32_t i = 0; i < n; i++)
      if (!same_type(&op->in[i].type, &step.body->values.data[step.body->outputs.data[i]])) hlo_refuse(m, "a body that gives the operands' types expected");
  }
  for (int k = 0; k < 2 && m->b.status == TNX_OK; k++) {
    if (!order_inputs(&scopes[k], n)) out_of_memory(m);
    for (uint32_t i = 0; i < scopes[k].captured.len && m->b.status == TNX_OK; i++) {
      uint32_t number = captured_number(m, m->scope, scopes[k].captured.data[i]);
      if (!number) continue;
      bool ok = k ? tnx_vec_push(&step.body_in, number - 1) : tnx_vec_push(&step.cond_in, number - 1);
      if (!ok) out_of_memory(m);
    }
  }
  for (int k = 0; k < 2; k++) {
    if (m->b.status != TNX_OK && !(k ? step.body : step.cond)) tnx_routine_destroy(scopes[k].routine);
    tnx_vec_fini(&scopes[k].captured);
    tnx_vec_fini(&scopes[k].capture);
  }
  uint32_t first = r->values.len;
  for (uint32_t i = 0; i < n && m->b.status == TNX_OK; i++) {
    uint32_t number = routine_value(r, &op->out[i].type);
    if (!number || !tnx_vec_push(&step.out, number - 1)) out_of_memory(m);
  }
  if (!tnx_vec_push(&r->steps, step)) {
    out_of_memory(m);
    tnx_routine_destroy(step.cond);
    tnx_routine_destroy(step.body);
    tnx_vec_fini(&step.in), tnx_vec_fini(&step.out), tnx_vec_fini(&step.cond_in), tnx_vec_fini(&step.body_in);
  }
  begin_step(m);
  for (uint32_t i = 0; i < n && m->b.status == TNX_OK; i++) m->values[op->out[i].id] = (hlo_definition){m->scope, UINT32_MAX, 0, first + i + 1};
  m->depth--;
}

static void import_op(hlo_import *m, const tnx_hlo_op *op) {
  m->op = op;
  if (++m->inlined > MAX_INLINED) return (void)hlo_refuse(m, "the module is too large");
  if (op->n_out > HLO_IMPORT_RESULTS) return (void)hlo_refuse(m, "too many results");
  if (strcmp(op->name, "stablehlo.while") == 0) return loop(m); /* defines its results itself */
  memset(m->results, 0, op->n_out * sizeof *m->results);
  if (strcmp(op->name, "stablehlo.composite") == 0 || strcmp(op->name, "func.call") == 0) {
    if (m->elementwise) return (void)hlo_unsupported(m, "no pointwise operation");
    if (op->name[0] == 's') composite(m);
    else inline_call(m, hlo_word_attr(m, "callee"));
  } else {
    bool known = hlo_import_pointwise(m) || (!m->elementwise && (hlo_import_data(m) || hlo_import_index(m) || hlo_import_reduction(m)));
    if (!known) return (void)hlo_unsupported(m, m->elementwise ? "no pointwise operation" : "an operation that has no form here");
  }
  if (m->b.status != TNX_OK) {
    /* what the builder says lacks the place */
    if (strncmp(tnx_error_text(), m->module->file, strlen(m->module->file)) != 0) {
      tnx_error_prefix("%s:%u:%u: %s", m->module->file, op->place.line, op->place.column, op->name);
      if (m->b.status != TNX_OUT_OF_MEMORY && m->b.status != TNX_NOT_IMPLEMENTED) m->b.status = TNX_PARSE;
    }
    return;
  }
  for (uint32_t i = 0; i < op->n_out; i++) {
    if (!m->results[i]) return (void)hlo_refuse(m, "fewer results than the operation names");
    const tnx_value_data *v = &m->b.g->values.data[m->results[i]];
    tnx_type type = {v->dtype, v->rank, v->sizes};
    if (v->dtype != op->out[i].type.dtype || (!m->elementwise && !same_type(&type, &op->out[i].type))) return (void)hlo_refuse(m, "the result has another type");
    define(m, op->out[i].id, m->results[i]);
  }
}

bool hlo_apply_region(hlo_import *m, const tnx_hlo_block *region, const tnx_value *args, tnx_value *results) {
  const tnx_hlo_op *op = m->op;
  bool outer = m->elementwise;
  m->elementwise = true;
  for (uint32_t i = 0; i < region->n_args && m->b.status == TNX_OK; i++) {
    if (!args[i]) break;
    define(m, region->args[i].id, args[i]);
  }
  import_body(m, region);
  for (uint32_t i = 0; i < region->n_results && m->b.status == TNX_OK; i++) results[i] = lookup(m, region->results[i]);
  forget(m, region);
  m->elementwise = outer;
  m->op = op;
  return m->b.status == TNX_OK;
}

static bool formula(const tnx_hlo_block *region, uint32_t id, char *buf, size_t cap, size_t *at) {
  for (uint32_t i = 0; i < region->n_args; i++)
    if (region->args[i].id == id) {
      *at += (size_t)snprintf(buf + *at, cap - *at, "a%u", i);
      return *at < cap;
    }
  for (uint32_t i = 0; i < region->n_ops; i++) {
    const tnx_hlo_op *op = region->ops[i];
    if (op->n_out != 1 || op->out[0].id != id) continue;
    const char *name = strchr(op->name, '.');
    const tnx_hlo_attr *direction = tnx_hlo_attr_find(op->attrs, op->n_attrs, "comparison_direction");
    if (strcmp(op->name, "stablehlo.constant") == 0) {
      const tnx_hlo_attr *a = tnx_hlo_attr_find(op->attrs, op->n_attrs, "value");
      if (!a || a->kind != TNX_HLO_DENSE || !tnx_dtype_is_integral((tnx_dtype)a->type.dtype)) return false;
      *at += (size_t)snprintf(buf + *at, cap - *at, "%lld", (long long)a->i);
      return *at < cap;
    }
    if (!name || op->n_regions || (op->n_attrs && (!direction || direction->kind != TNX_HLO_STRING))) return false;
    *at += (size_t)snprintf(buf + *at, cap - *at, "%s(", direction ? direction->s : name + 1);
    for (uint32_t k = 0; k < op->n_in; k++) {
      if (*at + 2 >= cap) return false;
      if (k) buf[(*at)++] = ',';
      if (!formula(region, op->in[k].id, buf, cap, at)) return false;
    }
    if (*at + 2 >= cap) return false;
    buf[(*at)++] = ')';
    buf[*at] = 0;
    return true;
  }
  return false;
}

bool hlo_region_formula(const tnx_hlo_block *region, uint32_t result, char *buf, size_t cap) {
  size_t at = 0;
  return result < region->n_results && formula(region, region->results[result], buf, cap, &at);
}

/* ---- the module ---- */

/* Steps that give nothing are dropped; the others' graphs are verified. */
static tnx_status finish(tnx_routine *r) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->steps.len; i++) {
    tnx_routine_step *s = &r->steps.data[i];
    if (s->graph && s->graph->outputs.len == 0) {
      tnx_graph_fini(s->graph);
      tnx_heap_free(s->graph);
      tnx_vec_fini(&s->in);
      tnx_vec_fini(&s->out);
      continue;
    }
    tnx_routine_step moved = *s;
    r->steps.data[kept++] = moved;
  }
  r->steps.len = kept;
  for (uint32_t i = 0; i < kept; i++) {
    tnx_routine_step *s = &r->steps.data[i];
    if (s->graph) TNX_TRY(tnx_graph_verify(s->graph));
    else {
      TNX_TRY(finish(s->cond));
      TNX_TRY(finish(s->body));
    }
  }
  return TNX_OK;
}

static tnx_status import_main(hlo_import *m, tnx_routine *r, const tnx_hlo_function *f) {
  hlo_scope scope = {.routine = r};
  const tnx_hlo_block *body = f->body;
  m->scope = &scope;
  begin_step(m);
  r->n_inputs = body->n_args;
  for (uint32_t i = 0; i < body->n_args && m->b.status == TNX_OK; i++) {
    uint32_t number = routine_value(r, &body->args[i].type);
    if (!number) return no_memory();
    m->values[body->args[i].id] = (hlo_definition){&scope, UINT32_MAX, 0, number};
  }
  import_body(m, body);
  TNX_TRY(m->b.status);
  for (uint32_t i = 0; i < body->n_results; i++) {
    uint32_t number = routine_number(m, &m->values[body->results[i]]), into = TNX_NO_TENSOR;
    for (uint32_t k = 0; k < body->n_args; k++)
      if (f->aliases[k] == (int64_t)i) into = k;
    if (!number || !tnx_vec_push(&r->outputs, number - 1) || !tnx_vec_push(&r->into, into)) return no_memory();
  }
  return finish(r);
}

tnx_status tnx_routine_from_stablehlo(const char *file, const char *text, size_t len, int flags, tnx_routine **out) {
  tnx_hlo_module module;
  *out = NULL;
  TNX_TRY(tnx_hlo_module_read(&module, file, text, len));
  hlo_import m = {.module = &module, .flags = flags, .b = {NULL, TNX_OK, TNX_F32, TNX_FAULT_NONE}};
  tnx_routine *r = routine_new(module.name);
  m.values = tnx_heap_zalloc(module.n_values + 1, sizeof *m.values);
  tnx_status status = r && m.values ? import_main(&m, r, tnx_hlo_function_find(&module, "main")) : no_memory();
  tnx_heap_free(m.values);
  tnx_hlo_module_fini(&module);
  if (status != TNX_OK) tnx_routine_destroy(r);
  else *out = r;
  return status;
}

const char *tnx_hlo_operation_name(uint32_t i) {
  static const char *const others[] = {
      "stablehlo.constant", "stablehlo.convert", "stablehlo.bitcast_convert", "stablehlo.compare", "stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical",
      "stablehlo.select", "stablehlo.clamp", "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.reverse", "stablehlo.iota", "stablehlo.slice",
      "stablehlo.pad", "stablehlo.concatenate", "stablehlo.dynamic_update_slice", "stablehlo.dynamic_slice", "stablehlo.dot_general", "stablehlo.cholesky",
      "stablehlo.triangular_solve", "stablehlo.fft", "stablehlo.optimization_barrier", "stablehlo.gather", "stablehlo.scatter", "stablehlo.reduce", "stablehlo.sort",
      "stablehlo.while", "stablehlo.composite", "func.call", "chlo.next_after"};
  enum { OTHERS = sizeof others / sizeof *others };
  return i < OTHERS ? others[i] : hlo_pointwise_name(i - OTHERS);
}
