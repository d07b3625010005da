/* Planning and running routines. Each graph has its plan; a value between two steps is a block of the device's allocator, given back in stream order. */
#include "plan/routine.h"

#include <string.h>

#include "plan/plan.h"

typedef struct planned_step {
  tnx_plan *plan;
  tnx_planned_routine *cond, *body;
} planned_step;

struct tnx_planned_routine {
  tnx_routine *routine;
  planned_step *steps;
};

size_t tnx_type_bytes(const tnx_type *t) {
  size_t n = tnx_dtype_size((tnx_dtype)t->dtype);
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->sizes[i];
  return n;
}

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory"); }

/* All but the routine itself. */
static void destroy_plans(tnx_planned_routine *p) {
  for (uint32_t i = 0; i < p->routine->steps.len; i++) {
    if (p->steps[i].plan) tnx_plan_release(p->steps[i].plan);
    tnx_planned_routine_destroy(p->steps[i].cond);
    tnx_planned_routine_destroy(p->steps[i].body);
  }
  tnx_heap_free(p->steps);
  tnx_heap_free(p);
}

tnx_status tnx_routine_plan(tnx_routine *r, tnx_planned_routine **out) {
  *out = NULL;
  tnx_status status = TNX_OK;
  tnx_planned_routine *p = tnx_heap_zalloc(1, sizeof *p);
  if (!p) return no_memory();
  p->steps = tnx_heap_zalloc(r->steps.len + 1, sizeof *p->steps);
  if (!p->steps) {
    tnx_heap_free(p);
    return no_memory();
  }
  p->routine = r;
  for (uint32_t i = 0; i < r->steps.len && status == TNX_OK; i++) {
    tnx_routine_step *s = &r->steps.data[i];
    if (s->graph) status = tnx_plan_build(s->graph, &p->steps[i].plan);
    else {
      if ((status = tnx_routine_plan(s->cond, &p->steps[i].cond)) == TNX_OK) s->cond = NULL; /* handed over */
      if (status == TNX_OK && (status = tnx_routine_plan(s->body, &p->steps[i].body)) == TNX_OK) s->body = NULL;
    }
  }
  if (status != TNX_OK) destroy_plans(p);
  else *out = p;
  return status;
}

void tnx_planned_routine_destroy(tnx_planned_routine *p) {
  if (!p) return;
  tnx_routine *r = p->routine;
  destroy_plans(p);
  tnx_routine_destroy(r);
}

const tnx_routine *tnx_planned_routine_get(const tnx_planned_routine *p) { return p->routine; }

/* ---- running ---- */

typedef struct frame {
  const tnx_planned_routine *p;
  tnx_stream *stream;
  void **at;    /* where each value is; NULL: nowhere yet, or empty */
  bool *owned;  /* a block of this run's */
} frame;

static tnx_status copy(frame *f, void *to, const void *from, size_t bytes) {
  return to != from ? tnx_copy_on_device(to, from, bytes, f->stream) : TNX_OK;
}

static tnx_status place(frame *f, uint32_t value) {
  if (f->at[value]) return TNX_OK; /* the caller's memory */
  f->owned[value] = true;
  return tnx_mem_alloc(tnx_stream_device(f->stream), tnx_type_bytes(&f->p->routine->values.data[value]), f->stream, &f->at[value]);
}

static tnx_status run_graph(frame *f, const tnx_routine_step *s, tnx_plan *plan, void **addresses) {
  void **in = addresses, **out = addresses + s->in.len;
  for (uint32_t i = 0; i < s->in.len; i++) in[i] = f->at[s->in.data[i]];
  for (uint32_t i = 0; i < s->out.len; i++) {
    TNX_TRY(place(f, s->out.data[i]));
    out[i] = f->at[s->out.data[i]];
  }
  return tnx_plan_run(plan, NULL, 0, in, s->in.len, out, s->out.len, f->stream);
}

/* The state goes back and forth between two sets of blocks; the first one is the results' own. */
static tnx_status run_loop(frame *f, const tnx_routine_step *s, const planned_step *planned, void **addresses) {
  const tnx_routine *r = f->p->routine;
  uint32_t n = s->in.len;
  int device = tnx_stream_device(f->stream);
  void **args = addresses, **next = args + n + s->cond_in.len + s->body_in.len, **spare = next + n, *more = NULL;
  tnx_status status = TNX_OK;
  memset(spare, 0, n * sizeof *spare);
  TNX_TRY(tnx_mem_alloc(device, 1, f->stream, &more));
  for (uint32_t i = 0; i < n && status == TNX_OK; i++) {
    status = place(f, s->out.data[i]);
    args[i] = f->at[s->in.data[i]];
    next[i] = f->at[s->out.data[i]];
    if (status == TNX_OK) status = tnx_mem_alloc(device, tnx_type_bytes(&r->values.data[s->out.data[i]]), f->stream, &spare[i]);
  }
  if (status != TNX_OK) goto done;
  while (true) {
    bool again = false;
    for (uint32_t i = 0; i < s->cond_in.len; i++) args[n + i] = f->at[s->cond_in.data[i]];
    TNX_TRY_DONE(tnx_routine_run(planned->cond, args, &more, f->stream));
    TNX_TRY_DONE(tnx_copy_to_host(&again, more, 1, f->stream));
    TNX_TRY_DONE(tnx_stream_synchronize(f->stream)); /* what failed on the stream ends the loop */
    if (!again) break;
    for (uint32_t i = 0; i < s->body_in.len; i++) args[n + i] = f->at[s->body_in.data[i]];
    TNX_TRY_DONE(tnx_routine_run(planned->body, args, next, f->stream));
    for (uint32_t i = 0; i < n; i++) {
      args[i] = next[i];
      next[i] = next[i] == spare[i] ? f->at[s->out.data[i]] : spare[i];
    }
  }
  for (uint32_t i = 0; i < n; i++) TNX_TRY_DONE(copy(f, f->at[s->out.data[i]], args[i], tnx_type_bytes(&r->values.data[s->out.data[i]])));
done:
  for (uint32_t i = 0; i < n; i++)
    if (spare[i]) tnx_mem_free(spare[i]);
  if (more) tnx_mem_free(more);
  return status;
}

tnx_status tnx_routine_run(const tnx_planned_routine *p, void *const *inputs, void *const *outputs, tnx_stream *stream) {
  const tnx_routine *r = p->routine;
  size_t most = 1;
  for (uint32_t i = 0; i < r->steps.len; i++) {
    const tnx_routine_step *s = &r->steps.data[i];
    size_t n = 3 * (size_t)s->in.len + s->out.len + s->cond_in.len + s->body_in.len;
    if (n > most) most = n;
  }
  tnx_status status = TNX_OK;
  frame f = {.p = p, .stream = stream, .at = tnx_heap_zalloc(r->values.len + 1, sizeof(void *)), .owned = tnx_heap_zalloc(r->values.len + 1, sizeof(bool))};
  void **addresses = tnx_heap_zalloc(most, sizeof *addresses);
  if (!f.at || !f.owned || !addresses) {
    status = no_memory();
    goto done;
  }
  for (uint32_t i = 0; i < r->n_inputs; i++) f.at[i] = inputs[i];
  for (uint32_t i = 0; i < r->outputs.len; i++) { /* written where they belong at once */
    uint32_t v = r->outputs.data[i];
    if (v >= r->n_inputs && !f.at[v]) f.at[v] = outputs[i];
  }
  for (uint32_t i = 0; i < r->steps.len; i++) {
    const tnx_routine_step *s = &r->steps.data[i];
    if (s->graph) TNX_TRY_DONE(run_graph(&f, s, p->steps[i].plan, addresses));
    else TNX_TRY_DONE(run_loop(&f, s, &p->steps[i], addresses));
  }
  for (uint32_t i = 0; i < r->outputs.len; i++)
    TNX_TRY_DONE(copy(&f, outputs[i], f.at[r->outputs.data[i]], tnx_type_bytes(&r->values.data[r->outputs.data[i]])));
done:
  if (f.at && f.owned)
    for (uint32_t i = 0; i < r->values.len; i++)
      if (f.owned[i] && f.at[i]) tnx_mem_free(f.at[i]);
  tnx_heap_free(f.at);
  tnx_heap_free(f.owned);
  tnx_heap_free(addresses);
  return status;
}
