/* Eager calls: graphs of one operator, their plans, and their launches. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "aten/lower.h"
#include "base/log.h"
#include "plan/cache.h"
#include "plan/run.h"
#include "plan/strides.h"

enum { MANY_TENSORS = 64 };

/* ---- from call to graph ---- */

static void describe(const tnx_call *c, char *text, size_t size) {
  size_t n = (size_t)snprintf(text, size, "aten::%s(", c->row->functional[0] ? c->row->functional : c->row->inplace);
  for (uint32_t i = 0; i < c->n_tensors && n + 64 < size; i++) {
    const tnx_tensor *t = &c->tensors[i];
    n += (size_t)snprintf(text + n, size - n, "%s%s[", i ? ", " : "", tnx_dtype_name((tnx_dtype)t->dtype));
    for (int d = 0; d < t->rank && n + 32 < size; d++) n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)t->sizes[d]);
    n += (size_t)snprintf(text + n, size - n, "]");
  }
  if (n + 2 < size) snprintf(text + n, size - n, ")");
}

static tnx_status add_inputs(tnx_graph *g, const tnx_call *c, const tnx_sharing *s, tnx_value *values) {
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    const tnx_tensor *t = &c->tensors[i];
    if (t->rank > TNX_MAX_RANK) return tnx_fail(TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
    tnx_dim number = i;
    tnx_type type = {t->dtype, (uint8_t)t->rank, t->sizes};
    TNX_TRY(tnx_graph_add(g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, &values[i]));
    if (t->flags & TNX_TENSOR_WRAPPED) g->values.data[values[i]].flags |= TNX_VALUE_WRAPPED;
    if (t->flags & TNX_TENSOR_HOST) g->values.data[values[i]].flags |= TNX_VALUE_HOST;
    tnx_input in = {values[i], tnx_arena_copy(&g->arena, t->strides, (size_t)t->rank * sizeof *t->strides), c->n_into ? s[i].alias : TNX_NO_TENSOR, c->n_into && s[i].overlap != TNX_OVERLAP_NONE};
    if (!in.strides || !tnx_vec_push(&g->inputs, in)) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  return TNX_OK;
}

/* The arguments with tensor numbers turned into graph values. */
static tnx_arg *map_args(tnx_graph *g, const tnx_call *c, const tnx_value *values) {
  tnx_arg *args = tnx_arena_copy(&g->arena, c->args, c->n_args * sizeof *c->args);
  for (uint32_t i = 0; args && i < c->n_args; i++) {
    if (args[i].kind == TNX_ARG_TENSOR) {
      args[i].value = values[args[i].value];
    } else if (args[i].kind == TNX_ARG_TENSORS) {
      tnx_value *list = TNX_ARENA_ARRAY(&g->arena, tnx_value, args[i].count);
      if (!list) return NULL;
      for (uint32_t j = 0; j < args[i].count; j++) list[j] = args[i].values[j] == TNX_NO_TENSOR ? TNX_NO_TENSOR : values[args[i].values[j]];
      args[i].values = list;
    }
  }
  return args;
}

/* Results that lie as the operands do: those of pointwise operators, and what is only put into another order. */
static bool follows_operands(const tnx_graph *g, tnx_value v) {
  const tnx_node *n = tnx_graph_producer(g, v);
  return n->op == TNX_OP_INPUT || n->op == TNX_OP_REVERSE || tnx_op_is_pointwise((tnx_op)n->op) || (n->op == TNX_OP_TOPK && n->ints[2]);
}

/* *out NULL: contiguous. */
static tnx_status wanted_strides(tnx_lower *l, const tnx_call *c, tnx_value v, const tnx_dim **out) {
  tnx_graph *g = l->b.g;
  const tnx_value_data *d = &g->values.data[v];
  *out = NULL;
  if (l->memory_format == TNX_FORMAT_CONTIGUOUS) return TNX_OK;
  bool channels_last = l->memory_format == TNX_FORMAT_CHANNELS_LAST || l->memory_format == TNX_FORMAT_CHANNELS_LAST_3D;
  if (!channels_last && (d->rank < 2 || !follows_operands(g, v))) return TNX_OK;
  tnx_dim *s = TNX_ARENA_ARRAY(&g->arena, tnx_dim, TNX_MAX_RANK);
  if (!s) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  if (channels_last) {
    if (d->rank != (l->memory_format == TNX_FORMAT_CHANNELS_LAST ? 4 : 5)) return TNX_OK; /* PyTorch's Meta kernel words the error */
    tnx_dim stride = 1;
    s[1] = 1;
    stride = d->sizes[1];
    for (int i = d->rank - 1; i >= 2; i--) {
      s[i] = stride;
      stride *= d->sizes[i];
    }
    s[0] = stride;
    *out = s;
    return TNX_OK;
  }
  if (tnx_pointwise_strides(c->tensors, c->n_tensors, d->rank, d->sizes, s)) *out = s;
  return TNX_OK;
}

static void shape_text(const tnx_value_data *v, char *text, size_t size) {
  size_t n = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < v->rank && n + 24 < size; d++) n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)v->sizes[d]);
  snprintf(text + n, size - n, "]");
}

static tnx_status shape_mismatch(const tnx_value_data *target, const tnx_value_data *result) {
  char have[320], want[320];
  shape_text(target, have, sizeof have);
  shape_text(result, want, sizeof want);
  return tnx_fail(TNX_SHAPE, "output with shape %s doesn't match the broadcast shape %s", have, want);
}

/* PyTorch's name of a dtype in messages. */
static const char *torch_name(tnx_dtype t) {
  switch (t) {
    case TNX_BOOL: return "Bool";
    case TNX_U8: return "Byte";
    case TNX_I8: return "Char";
    case TNX_I16: return "Short";
    case TNX_I32: return "Int";
    case TNX_I64: return "Long";
    case TNX_F16: return "Half";
    case TNX_BF16: return "BFloat16";
    case TNX_F32: return "Float";
    case TNX_F64: return "Double";
    case TNX_C64: return "ComplexFloat";
    case TNX_C128: return "ComplexDouble";
    default: return tnx_dtype_name(t);
  }
}

/* c10::canCast: what the result of an elementwise operator may be converted to on its way into a given tensor. */
static bool can_cast(tnx_dtype from, tnx_dtype to) {
  if (tnx_dtype_is_complex(from)) return tnx_dtype_is_complex(to);
  if (tnx_dtype_is_float(from)) return !tnx_dtype_is_integral(to);
  return from == TNX_BOOL || to != TNX_BOOL;
}

static tnx_status add_outputs(tnx_lower *l, const tnx_call *c, const tnx_value *values, const tnx_value *results) {
  tnx_graph *g = l->b.g;
  for (uint32_t i = 0; i < l->n_results; i++) {
    tnx_output o = {results[i], TNX_NO_TENSOR, NULL};
    uint32_t t = i < c->n_into ? c->into[i] : TNX_NO_TENSOR;
    if (o.value && t != TNX_NO_TENSOR) {
      const tnx_value_data *d = &g->values.data[o.value], *target = &g->values.data[values[t]];
      bool same = d->rank == target->rank && (d->rank == 0 || memcmp(d->sizes, target->sizes, d->rank * sizeof *d->sizes) == 0);
      if (!same) return shape_mismatch(target, d);
      if (!can_cast((tnx_dtype)d->dtype, (tnx_dtype)target->dtype) && tnx_value_is_elementwise(g, o.value))
        return tnx_fail(TNX_DTYPE, "result type %s can't be cast to the desired output type %s", torch_name((tnx_dtype)d->dtype), torch_name((tnx_dtype)target->dtype));
      o.value = tnx_b_convert(&l->b, o.value, (tnx_dtype)target->dtype);
      if (l->b.status != TNX_OK) return l->b.status;
      o.into = t;
    } else if (o.value) {
      if (i < sizeof l->strides / sizeof *l->strides && l->strides[i]) o.strides = l->strides[i];
      else TNX_TRY(wanted_strides(l, c, o.value, &o.strides));
    }
    if (!tnx_vec_push(&g->outputs, o)) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  return TNX_OK;
}

/* Whose text is PyTorch's for a wrong call, as it stands. */
static bool is_callers_fault(tnx_status s) { return s == TNX_INVALID_ARGUMENT || s == TNX_INDEX || s == TNX_SHAPE || s == TNX_DTYPE; }

static tnx_status build(const tnx_call *c, const tnx_sharing *s, tnx_plan **out) {
  char name[512];
  tnx_graph g;
  TNX_TRY(tnx_sharing_check_elements(c, s));
  describe(c, name, sizeof name);
  TNX_TRY(tnx_graph_init(&g, name));
  tnx_status status;
  tnx_plan *p = NULL;
  tnx_instance *inst = NULL;
  tnx_value few[MANY_TENSORS], *values = c->n_tensors <= MANY_TENSORS ? few : TNX_ARENA_ARRAY(&g.arena, tnx_value, c->n_tensors);
  tnx_value few_results[TNX_MAX_RESULTS] = {0}, *results = few_results;
  uint32_t n_results = tnx_max_results(c->args, c->n_args);
  tnx_lower l = {.b = tnx_builder_on(&g), .row = c->row, .n_args = c->n_args, .n_results = 1, .memory_format = TNX_FORMAT_PRESERVE};
  l.b.default_dtype = (tnx_dtype)c->default_dtype;
  tnx_arg *args = NULL;
  if (n_results > TNX_MAX_RESULTS) results = TNX_ARENA_ARRAY(&g.arena, tnx_value, n_results); /* zeroed */
  if (!values || !results) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
    goto done;
  }
  TNX_TRY_DONE(add_inputs(&g, c, s, values));
  args = map_args(&g, c, values);
  if (!args) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
    goto done;
  }
  status = tnx_row_lowering(c->row->id)(&l, args, results);
  if (status == TNX_OK) status = l.b.status;
  if (status == TNX_OK) status = add_outputs(&l, c, values, results);
  if (status == TNX_OK && c->n_into) status = tnx_sharing_check(c, s, &g);
  if (status == TNX_OK) status = tnx_plan_build(&g, &p);
  if (status == TNX_OK) status = tnx_instance_get(p, NULL, 0, &inst);
  if (status == TNX_OK) {
    p->results = inst->results;
    tnx_instance_release(inst); /* the plan keeps it */
  } else if (p) {
    tnx_plan_release(p);
    p = NULL;
  }
done:
  if (status != TNX_OK && !is_callers_fault(status)) tnx_error_prefix("%s", name);
  tnx_graph_fini(&g);
  *out = p;
  return status;
}

/* ---- calls ---- */

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What identifies a call; `few` serves for all but the longest lists of tensors. */
typedef struct identity {
  tnx_sharing few[MANY_TENSORS], *sharing;
  tnx_cache_key key;
} identity;

static tnx_status identity_init(identity *id, const tnx_call *c) {
  id->key.data = id->key.small;
  id->sharing = c->n_tensors <= MANY_TENSORS ? id->few : tnx_heap_alloc(c->n_tensors * sizeof *id->sharing);
  if (!id->sharing) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  if (c->n_into) tnx_sharing_find(c, id->sharing);
  return tnx_cache_key_init(&id->key, c, id->sharing);
}

static void identity_fini(identity *id) {
  tnx_cache_key_fini(&id->key);
  if (id->sharing != id->few) tnx_heap_free(id->sharing);
}

tnx_status tnx_call_prepare(const tnx_call *c, tnx_plan **plan_out, bool *fresh_out) {
  identity id;
  *plan_out = NULL;
  *fresh_out = false;
  tnx_status status = identity_init(&id, c);
  if (status == TNX_OK) *plan_out = tnx_cache_find(&id.key);
  if (status == TNX_OK && !*plan_out) {
    uint64_t begin = now_ns();
    status = build(c, id.sharing, plan_out);
    if (status == TNX_OK) {
      (*plan_out)->build_ns = now_ns() - begin;
      TNX_LOG(PLAN, "%s: planned in %.1f us", (*plan_out)->name, (double)(*plan_out)->build_ns * 1e-3);
      *fresh_out = !tnx_cache_knows_class(tnx_cache_class_of(c));
      if (!*fresh_out) tnx_cache_keep(&id.key, *plan_out, (*plan_out)->build_ns);
    }
  }
  identity_fini(&id);
  return status;
}

void tnx_call_accept(const tnx_call *c, tnx_plan *plan) {
  identity id;
  if (identity_init(&id, c) == TNX_OK) {
    tnx_cache_note_class(tnx_cache_class_of(c));
    tnx_cache_keep(&id.key, plan, plan->build_ns);
  }
  identity_fini(&id);
}

uint32_t tnx_plan_result_count(const tnx_plan *p) { return p->outputs.len; }

const tnx_result *tnx_plan_result(const tnx_plan *p, uint32_t i) { return p->results && i < p->outputs.len ? &p->results[i] : NULL; }

tnx_status tnx_call_launch(tnx_plan *p, const tnx_call *c, void *const *results, tnx_stream *stream) {
  void *few[MANY_TENSORS] = {NULL}, **inputs = c->n_tensors <= MANY_TENSORS ? few : tnx_heap_alloc(c->n_tensors * sizeof *inputs);
  if (!inputs) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  for (uint32_t i = 0; i < c->n_tensors; i++) inputs[i] = c->tensors[i].data;
  tnx_status status = tnx_plan_launch(p, p->instances[0], inputs, results, stream);
  if (inputs != few) tnx_heap_free(inputs);
  return status;
}
