/* Gathering calls into batches, and launching the program that a batch is.
 *
 * What a call's operands are to the batch (tnx_ref) is decided when it is launched; a call that does not fit, because it reads memory that only partly was written by the
 * batch or is seen as another dtype, begins the next one. References, layouts and what is written at the end identify a batch: the second time its program is there. */
#include "plan/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "runtime/sync.h"

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while gathering operators"); }

/* A stream's batch. */
typedef struct holder {
  pthread_mutex_t lock; /* everything here; comes before all locks of the runtime */
  tnx_stream *stream;
  tnx_batch batch;
  tnx_status broken; /* a call could be added in part only: the batch fails as a whole */
} holder;

enum { DEFAULT_LIMIT = 2048 };

static struct {
  pthread_once_t once;
  uint32_t limit; /* calls in a batch */
} settings = {.once = PTHREAD_ONCE_INIT};

static tnx_status release(tnx_stream *s);
static bool take_upload(tnx_stream *s, void *to, const void *from, size_t bytes);

static void read_settings(void) {
  const char *text = getenv("TORCH_NEURONX_BATCH_OPERATORS");
  long n = text && *text ? strtol(text, NULL, 10) : DEFAULT_LIMIT;
  settings.limit = n < 1 ? 1 : n > 1 << 16 ? 1 << 16 : (uint32_t)n;
  tnx_runtime_set_holder(release, take_upload);
}

static bool meets(uintptr_t a, uint64_t n, uintptr_t b, uint64_t m) { return a < b + m && b < a + n; }
static bool holds(uintptr_t a, uint64_t n, uintptr_t b, uint64_t m) { return b >= a && b + m <= a + n; }
static uint64_t elem(uint32_t dtype) { return tnx_dtype_size((tnx_dtype)dtype); }

/* ---- plans with a program ---- */

static _Atomic uint64_t instances;

static tnx_status view_of(const tnx_value_data *v, const tnx_dim *strides, const int64_t *dims, tnx_view *out) {
  out->rank = v->rank;
  out->dtype = v->dtype;
  out->offset = 0;
  int64_t run = 1, span = 0, step;
  for (int d = v->rank; d-- > 0;) {
    out->sizes[d] = tnx_dim_value(v->sizes[d], dims);
    out->strides[d] = strides ? tnx_dim_value(strides[d], dims) : run;
    if (__builtin_mul_overflow(run, out->sizes[d] > 0 ? out->sizes[d] : 1, &run) || __builtin_mul_overflow(out->sizes[d] > 0 ? out->sizes[d] - 1 : 0, out->strides[d], &step) ||
        __builtin_add_overflow(span, step, &span) || span > INT64_MAX / 64)
      return tnx_fail(TNX_OVERFLOW, "the size of a tensor overflows 64 bits");
  }
  return TNX_OK;
}

tnx_status tnx_program_bind(const tnx_plan *p, tnx_instance *inst, const int64_t *dims) {
  const tnx_graph *g = &p->program->graph;
  inst->number = atomic_fetch_add(&instances, 1) + 1;
  inst->dims = tnx_arena_copy(&inst->arena, dims, p->n_exprs * sizeof *dims);
  inst->inputs = TNX_ARENA_ARRAY(&inst->arena, tnx_view, g->inputs.len);
  inst->outputs = TNX_ARENA_ARRAY(&inst->arena, tnx_view, g->outputs.len);
  if (!inst->dims || !inst->inputs || !inst->outputs) return no_memory();
  for (uint32_t i = 0; i < g->inputs.len; i++) TNX_TRY(view_of(&g->values.data[g->inputs.data[i].value], g->inputs.data[i].strides, dims, &inst->inputs[i]));
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (!o->value) continue;
    if (o->into != TNX_NO_TENSOR) inst->outputs[i] = inst->inputs[o->into];
    else TNX_TRY(view_of(&g->values.data[o->value], o->strides, dims, &inst->outputs[i]));
  }
  return TNX_OK;
}

/* ---- one call ---- */

typedef struct call { tnx_plan *plan; tnx_instance *inst; void *const *inputs, *const *results; } call;

static bool reads(const call *c, uint32_t i) { return c->plan->program->needed[i] && tnx_view_numel(&c->inst->inputs[i]) > 0; }
static bool is_host(const call *c, uint32_t i) { return c->plan->inputs.data[i].host != TNX_NO_TENSOR; }
static bool writes(const call *c, uint32_t i) { return !c->plan->outputs.data[i].none && tnx_view_numel(&c->inst->outputs[i]) > 0; }
static uintptr_t written_at(const call *c, uint32_t i) {
  uint32_t into = c->plan->outputs.data[i].into;
  return (uintptr_t)(into == TNX_NO_TENSOR ? c->results[i] : c->inputs[into]);
}
static uint64_t span_bytes(const tnx_view *v) { return (uint64_t)tnx_view_span(v) * elem(v->dtype); }

/* A live range whose memory was given to somebody else since is nobody's any more. */
static bool is_current(tnx_range *r) {
  if (r->live && tnx_mem_serial((void *)r->address) != r->serial) r->live = false;
  return r->live;
}

/* The live range that memory lies in. *fits_out false: it lies across several, or partly in one, or is of another dtype. */
static uint32_t range_of(tnx_batch *b, uintptr_t address, uint64_t bytes, uint32_t dtype, bool *fits_out) {
  *fits_out = true;
  for (uint32_t i = 0; i < b->ranges.len; i++) {
    tnx_range *r = &b->ranges.data[i];
    if (!r->live || !meets(r->address, r->bytes, address, bytes) || !is_current(r)) continue;
    *fits_out = holds(r->address, r->bytes, address, bytes) && r->dtype == dtype && (address - r->address) % elem(dtype) == 0;
    return i;
  }
  return TNX_NO_TENSOR;
}

/* Do new contents of this memory go with what the batch has written? */
static bool may_write(tnx_batch *b, const tnx_view *v, uintptr_t address) {
  uint64_t bytes = span_bytes(v);
  bool fits, dense = tnx_view_is_dense(v);
  for (uint32_t i = 0; i < b->ranges.len; i++) {
    tnx_range *r = &b->ranges.data[i];
    if (!r->live || !meets(r->address, r->bytes, address, bytes) || !is_current(r)) continue;
    if (dense && holds(address, bytes, r->address, r->bytes)) continue;
    range_of(b, address, bytes, v->dtype, &fits);
    if (!fits) return false;
  }
  return true;
}

static bool fits(tnx_batch *b, const call *c) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < c->plan->inputs.len; i++)
    if (reads(c, i) && !is_host(c, i)) range_of(b, (uintptr_t)c->inputs[i], span_bytes(&c->inst->inputs[i]), c->inst->inputs[i].dtype, &ok);
  for (uint32_t i = 0; ok && i < c->plan->outputs.len; i++) {
    if (!writes(c, i)) continue;
    ok = may_write(b, &c->inst->outputs[i], written_at(c, i));
  }
  return ok;
}

static tnx_status region_at(tnx_batch *b, uintptr_t address, const tnx_view *v, uint32_t *out) {
  uint64_t bytes = span_bytes(v);
  for (uint32_t i = 0; i < b->regions.len; i++)
    if (b->regions.data[i].address == address && b->regions.data[i].bytes == bytes && b->regions.data[i].dtype == v->dtype) {
      *out = i;
      return TNX_OK;
    }
  *out = b->regions.len;
  tnx_region r = {address, bytes, tnx_view_span(v), v->dtype};
  return tnx_vec_push(&b->regions, r) ? TNX_OK : no_memory();
}

static tnx_status add_host(tnx_batch *b, const call *c, uint32_t i, tnx_ref *r) {
  uint8_t dtype = c->inst->inputs[i].dtype;
  *r = (tnx_ref){.kind = TNX_REF_HOST, .index = b->host_dtypes.len};
  if (!tnx_vec_push(&b->host_dtypes, dtype) || !tnx_vec_reserve(&b->hosts, b->hosts.len + TNX_HOST_SLOT)) return no_memory();
  memset(b->hosts.data + b->hosts.len, 0, TNX_HOST_SLOT);
  memcpy(b->hosts.data + b->hosts.len, c->inputs[i], elem(dtype));
  b->hosts.len += TNX_HOST_SLOT;
  return TNX_OK;
}

static tnx_status add_read(tnx_batch *b, const call *c, uint32_t i, tnx_ref *r) {
  *r = (tnx_ref){.kind = TNX_REF_NONE};
  if (!reads(c, i)) return TNX_OK;
  if (is_host(c, i)) return add_host(b, c, i, r);
  const tnx_view *v = &c->inst->inputs[i];
  uintptr_t at = (uintptr_t)c->inputs[i];
  bool ok;
  uint32_t range = range_of(b, at, span_bytes(v), v->dtype, &ok);
  if (range != TNX_NO_TENSOR) {
    *r = (tnx_ref){.kind = TNX_REF_RANGE, .index = range, .offset = (int64_t)((at - b->ranges.data[range].address) / elem(v->dtype))};
    return TNX_OK;
  }
  r->kind = TNX_REF_MEMORY;
  return region_at(b, at, v, &r->index);
}

static tnx_status add_write(tnx_batch *b, const call *c, uint32_t i, tnx_ref *ref) {
  *ref = (tnx_ref){.kind = TNX_REF_NONE};
  if (!writes(c, i)) return TNX_OK;
  const tnx_view *v = &c->inst->outputs[i];
  uintptr_t at = written_at(c, i);
  uint64_t bytes = span_bytes(v);
  bool dense = tnx_view_is_dense(v), inside;
  if (!may_write(b, v, at)) return tnx_fail(TNX_NOT_IMPLEMENTED, "results whose memory overlaps");
  for (uint32_t k = 0; dense && k < b->ranges.len; k++) {
    tnx_range *r = &b->ranges.data[k];
    if (r->live && holds(at, bytes, r->address, r->bytes)) r->live = false;
  }
  uint32_t range = range_of(b, at, bytes, v->dtype, &inside);
  if (range != TNX_NO_TENSOR) {
    *ref = (tnx_ref){.kind = TNX_REF_RANGE, .index = range, .offset = (int64_t)((at - b->ranges.data[range].address) / elem(v->dtype))};
    return TNX_OK;
  }
  tnx_range r = {.address = at, .bytes = bytes, .serial = tnx_mem_serial((void *)at), .elements = tnx_view_span(v), .dtype = v->dtype, .region = TNX_NO_TENSOR, .live = true,
                 .in_place = c->plan->outputs.data[i].into != TNX_NO_TENSOR};
  *ref = (tnx_ref){.kind = dense ? TNX_REF_NEW : TNX_REF_SPAN, .index = b->ranges.len};
  if (!dense) TNX_TRY(region_at(b, at, v, &ref->base));
  return tnx_vec_push(&b->ranges, r) ? TNX_OK : no_memory();
}

/* Two results in one place are written in order; ones that overlap otherwise have no place in a program. */
static tnx_status check_results(const call *c) {
  for (uint32_t i = 1; i < c->plan->outputs.len; i++) {
    uint32_t into = c->plan->outputs.data[i].into;
    for (uint32_t j = 0; into != TNX_NO_TENSOR && writes(c, i) && j < i; j++) {
      if (!writes(c, j) || !meets(written_at(c, i), span_bytes(&c->inst->outputs[i]), written_at(c, j), span_bytes(&c->inst->outputs[j]))) continue;
      bool same = written_at(c, i) == written_at(c, j) && span_bytes(&c->inst->outputs[i]) == span_bytes(&c->inst->outputs[j]);
      if (!same) return tnx_fail(TNX_NOT_IMPLEMENTED, "%s: results that overlap in memory", c->plan->name);
    }
  }
  return TNX_OK;
}

static void batch_empty(tnx_batch *b) {
  for (uint32_t i = 0; i < b->calls.len; i++) {
    tnx_instance_release(b->calls.data[i].inst);
    tnx_plan_release(b->calls.data[i].plan);
  }
  for (uint32_t i = 0; i < b->scratch.len; i++) tnx_mem_free(b->scratch.data[i]);
  b->calls.len = b->refs.len = b->regions.len = b->ranges.len = b->host_dtypes.len = b->hosts.len = b->scratch.len = b->uploads.len = 0;
}

static tnx_status add_call(tnx_batch *b, const call *c) {
  uint32_t n_in = c->plan->inputs.len, n_out = c->plan->outputs.len, first = b->refs.len;
  if (!tnx_vec_reserve(&b->refs, first + n_in + n_out) || !tnx_vec_reserve(&b->calls, b->calls.len + 1)) return no_memory();
  b->refs.len += n_in + n_out;
  for (uint32_t i = 0; i < n_in; i++) TNX_TRY(add_read(b, c, i, &b->refs.data[first + i]));
  for (uint32_t i = 0; i < n_out; i++) TNX_TRY(add_write(b, c, i, &b->refs.data[first + n_in + i]));
  tnx_plan_retain(c->plan);
  atomic_fetch_add_explicit(&c->inst->refs, 1, memory_order_relaxed);
  b->calls.data[b->calls.len++] = (tnx_batch_call){c->plan, c->inst, first};
  return TNX_OK;
}

/* ---- programs of batches ---- */

typedef struct entry { uint64_t hash; uint64_t *key; uint32_t words; tnx_batch_program *program; } entry;
static struct {
  pthread_mutex_t lock; /* the table; nothing else is locked under it */
  TNX_VEC(entry) entries;
  uint32_t *slots, cap;
} programs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void program_release(tnx_batch_program *p) {
  if (atomic_fetch_sub(&p->refs, 1) != 1) return;
  if (p->program) p->driver->release(p->program);
  tnx_heap_free(p->inputs);
  tnx_heap_free(p->outputs);
  tnx_heap_free(p->name);
  tnx_heap_free(p);
}

static tnx_status program_create(const tnx_batch *b, const bool *written, const tnx_driver *driver, tnx_batch_program **out) {
  tnx_batch_program *p = tnx_heap_zalloc(1, sizeof *p);
  char name[400], *text = NULL;
  if (!p) return no_memory();
  p->refs = 1;
  p->driver = driver->programs;
  const char *first = b->calls.data[0].plan->name;
  if (b->calls.len == 1) snprintf(name, sizeof name, "%.380s", first);
  else snprintf(name, sizeof name, "%.320s and %u more operators", first, b->calls.len - 1);
  p->name = tnx_heap_alloc(strlen(name) + 1);
  tnx_graph g;
  tnx_status status = p->name ? tnx_batch_graph(b, written, &g, &p->inputs, &p->outputs) : no_memory();
  if (status == TNX_OK) {
    strcpy(p->name, name);
    p->n_inputs = g.inputs.len;
    p->n_outputs = g.outputs.len;
    status = tnx_graph_stablehlo(&g, &text);
    tnx_graph_fini(&g);
  }
  if (status == TNX_OK) {
    tnx_program_source source = {p->name, text, strlen(text), p->n_inputs, p->n_outputs};
    status = driver->programs->create(&source, &p->program);
  }
  tnx_text_free(text);
  if (status != TNX_OK) {
    program_release(p);
    return status;
  }
  TNX_LOG(PLAN, "%s: one program of %u inputs and %u outputs", p->name, p->n_inputs, p->n_outputs);
  *out = p;
  return TNX_OK;
}

/* The batch's identity as words: calls, references, what is written and where. The instances of the calls say what lies in regions and host scalars. */
static uint64_t *make_key(const tnx_batch *b, const bool *written, uint32_t *words_out) {
  uint32_t refs = b->refs.len * (uint32_t)(sizeof(tnx_ref) / sizeof(uint64_t));
  uint64_t *key = tnx_heap_alloc((1u + b->calls.len + refs + b->ranges.len) * sizeof *key), *at = key;
  if (!key) return NULL;
  *at++ = b->calls.len;
  for (uint32_t i = 0; i < b->calls.len; i++) *at++ = b->calls.data[i].inst->number;
  if (refs) memcpy(at, b->refs.data, b->refs.len * sizeof *b->refs.data);
  at += refs;
  for (uint32_t i = 0; i < b->ranges.len; i++) *at++ = written[i] ? 2 + (b->ranges.data[i].crosses ? 1 : b->ranges.data[i].region == TNX_NO_TENSOR ? 0 : 2 + (uint64_t)b->ranges.data[i].region) : 1;
  *words_out = (uint32_t)(at - key);
  return key;
}

/* Under programs.lock. */
static entry *find(uint64_t hash, const uint64_t *key, uint32_t words) {
  for (uint32_t s = (uint32_t)hash & (programs.cap - 1); programs.cap && programs.slots[s]; s = (s + 1) & (programs.cap - 1)) {
    entry *e = &programs.entries.data[programs.slots[s] - 1];
    if (e->hash == hash && e->words == words && memcmp(e->key, key, words * sizeof *key) == 0) return e;
  }
  return NULL;
}

static bool insert(entry e) {
  if ((programs.entries.len + 1) * 2 > programs.cap) {
    uint32_t cap = programs.cap ? programs.cap * 2 : 64, *slots = tnx_heap_zalloc(cap, sizeof *slots);
    if (!slots) return false;
    for (uint32_t i = 0; i < programs.entries.len; i++) {
      uint32_t s = (uint32_t)programs.entries.data[i].hash & (cap - 1);
      while (slots[s]) s = (s + 1) & (cap - 1);
      slots[s] = i + 1;
    }
    tnx_heap_free(programs.slots);
    programs.slots = slots;
    programs.cap = cap;
  }
  if (!tnx_vec_push(&programs.entries, e)) return false;
  uint32_t s = (uint32_t)e.hash & (programs.cap - 1);
  while (programs.slots[s]) s = (s + 1) & (programs.cap - 1);
  programs.slots[s] = programs.entries.len;
  return true;
}

static tnx_status program_of(const tnx_batch *b, const bool *written, const tnx_driver *driver, tnx_batch_program **out) {
  uint32_t words;
  uint64_t *key = make_key(b, written, &words);
  if (!key) return no_memory();
  uint64_t hash = tnx_hash_bytes(key, words * sizeof *key, 0);
  pthread_mutex_lock(&programs.lock);
  entry *e = find(hash, key, words);
  *out = e ? e->program : NULL;
  if (*out) atomic_fetch_add(&(*out)->refs, 1);
  pthread_mutex_unlock(&programs.lock);
  tnx_status status = *out ? TNX_OK : program_create(b, written, driver, out);
  if (status == TNX_OK && !e) {
    pthread_mutex_lock(&programs.lock);
    if (!find(hash, key, words) && insert((entry){hash, key, words, *out})) {
      atomic_fetch_add(&(*out)->refs, 1);
      key = NULL;
    }
    pthread_mutex_unlock(&programs.lock);
  }
  tnx_heap_free(key);
  return status;
}

/* ---- launching ---- */

typedef struct copy_back { void *from, *to; size_t bytes; } copy_back;
/* The task's payload; then: operands (inputs, outputs), copies, host scalars. */
typedef struct launch {
  tnx_batch_program *program; /* NULL with status OK: nothing to do */
  const tnx_driver *driver;
  tnx_status status;          /* why there is no program */
  int device;
  uint32_t n_copies;
  uint32_t host_bytes; /* of the host scalars, one slot each */
  void *scratch;       /* where they go */
  char *why;
  unsigned char *uploads;
  size_t upload_bytes;
  tnx_operand operands[];
} launch;

static copy_back *copies_of(launch *l) { return (copy_back *)(void *)&l->operands[l->program ? l->program->n_inputs + l->program->n_outputs : 0]; }

static tnx_status run_uploads(const launch *l) {
  for (size_t at = 0; at < l->upload_bytes;) {
    const tnx_upload *u = (const tnx_upload *)(const void *)(l->uploads + at);
    TNX_TRY(l->driver->copy_to_device(l->device, u->to, u + 1, u->bytes));
    at += sizeof *u + ((u->bytes + 7) & ~(uint64_t)7);
  }
  return TNX_OK;
}

static tnx_status run(void *payload, tnx_pool *pool) {
  launch *l = payload;
  TNX_TRY(run_uploads(l));
  if (l->status != TNX_OK) return tnx_fail(l->status, "%s", l->why ? l->why : "a program could not be made");
  if (!l->program) return TNX_OK;
  copy_back *copies = copies_of(l);
  tnx_status status = l->host_bytes ? l->driver->copy_to_device(l->device, l->scratch, copies + l->n_copies, l->host_bytes) : TNX_OK;
  const tnx_batch_program *p = l->program;
  if (status == TNX_OK) status = p->driver->run(p->program, l->device, l->operands, l->operands + p->n_inputs);
  for (uint32_t i = 0; i < l->n_copies && status == TNX_OK; i++) status = l->driver->copy(l->device, copies[i].to, copies[i].from, copies[i].bytes);
  if (status != TNX_OK) tnx_error_prefix("%s", p->name);
  return status;
}

static void drop(void *payload) {
  launch *l = payload;
  if (l->program) program_release(l->program);
  tnx_heap_free(l->uploads);
  tnx_heap_free(l->why);
}

static size_t launch_bytes(const tnx_batch *b, const tnx_batch_program *p, uint32_t n_copies) {
  size_t operands = p ? p->n_inputs + p->n_outputs : 0;
  return sizeof(launch) + operands * sizeof(tnx_operand) + n_copies * sizeof(copy_back) + b->hosts.len;
}

static void fill_launch(launch *l, const tnx_batch *b) {
  const tnx_batch_program *p = l->program;
  if (!p) return;
  copy_back *copies = copies_of(l);
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    uint32_t at = p->inputs[i] & ~(uint32_t)TNX_BATCH_HOST;
    if (p->inputs[i] & TNX_BATCH_HOST) l->operands[i] = (tnx_operand){(char *)l->scratch + (size_t)TNX_HOST_SLOT * at, elem(b->host_dtypes.data[at])};
    else l->operands[i] = (tnx_operand){(void *)b->regions.data[at].address, b->regions.data[at].bytes};
  }
  for (uint32_t i = 0, n = 0; i < p->n_outputs; i++) {
    const tnx_range *r = &b->ranges.data[p->outputs[i]];
    l->operands[p->n_inputs + i] = (tnx_operand){r->apart ? r->apart : (void *)r->address, r->bytes};
    if (r->apart) copies[n++] = (copy_back){r->apart, (void *)r->address, r->bytes};
  }
  if (b->hosts.len) memcpy(copies + l->n_copies, b->hosts.data, b->hosts.len);
}

/* Device memory for the program's own use. Memory that was freed since the batch began may be what the program reads, and would be taken again: such blocks are put
 * aside until one is found that is not. */
static tnx_status take_scratch(holder *h, uint64_t bytes, char **out) {
  tnx_batch *b = &h->batch;
  for (;;) {
    void *block;
    TNX_TRY(tnx_mem_alloc_now(tnx_stream_device(h->stream), bytes, h->stream, &block));
    if (!tnx_vec_push(&b->scratch, block)) {
      tnx_mem_free(block);
      return no_memory();
    }
    bool read = false;
    for (uint32_t k = 0; k < b->regions.len && !read; k++) read = meets(b->regions.data[k].address, b->regions.data[k].bytes, (uintptr_t)block, bytes);
    *out = block;
    if (!read) return TNX_OK;
  }
}

static uint64_t slots(uint64_t bytes) { return (bytes + TNX_HOST_SLOT - 1) / TNX_HOST_SLOT * TNX_HOST_SLOT; }

/* Which ranges are in memory at the end, and how: in the memory of a region that is the very same, or, because a program may write before it reads, apart from regions
 * that it merely overlaps, to be copied afterwards. *scratch_out: host scalars, then results apart. */
static tnx_status place_results(holder *h, bool *written, uint32_t *n_copies, char **scratch_out) {
  tnx_batch *b = &h->batch;
  uint64_t bytes = b->hosts.len;
  *n_copies = 0;
  *scratch_out = NULL;
  for (uint32_t i = 0; i < b->ranges.len; i++) {
    tnx_range *r = &b->ranges.data[i];
    written[i] = is_current(r);
    for (uint32_t k = 0; written[i] && k < b->regions.len; k++) {
      const tnx_region *m = &b->regions.data[k];
      if (!meets(m->address, m->bytes, r->address, r->bytes)) continue;
      /* Memory that was freed and taken again since is a chance, which must not make another program. */
      if (r->in_place && m->address == r->address && m->bytes == r->bytes && m->dtype == r->dtype) r->region = k;
      else r->crosses = true;
    }
    if (!r->crosses) continue;
    r->region = TNX_NO_TENSOR;
    bytes += slots(r->bytes);
    ++*n_copies;
  }
  if (!bytes) return TNX_OK;
  TNX_TRY(take_scratch(h, bytes, scratch_out));
  char *at = *scratch_out + b->hosts.len;
  for (uint32_t i = 0; i < b->ranges.len; i++) {
    if (!b->ranges.data[i].crosses) continue;
    b->ranges.data[i].apart = at;
    at += slots(b->ranges.data[i].bytes);
  }
  return TNX_OK;
}

/* Queues the batch as one task, or one that fails as making the program did. The holder's lock is held. */
static tnx_status release_locked(holder *h) {
  tnx_batch *b = &h->batch;
  if (b->calls.len == 0) return TNX_OK;
  tnx_batch_program *p = NULL;
  const tnx_driver *driver;
  tnx_status status = tnx_runtime_get_driver(&driver);
  if (status == TNX_OK && h->broken != TNX_OK) status = tnx_fail(h->broken, "an operator of this program could not be added to it");
  h->broken = TNX_OK;
  bool *written = tnx_heap_zalloc(b->ranges.len + 1, sizeof *written), any = false;
  uint32_t n_copies = 0;
  char *scratch = NULL;
  if (!written && status == TNX_OK) status = no_memory();
  if (status == TNX_OK) status = place_results(h, written, &n_copies, &scratch);
  for (uint32_t i = 0; status == TNX_OK && i < b->ranges.len; i++) any |= written[i];
  if (status == TNX_OK && any) status = program_of(b, written, driver, &p);
  if (!p) n_copies = 0;
  size_t bytes = launch_bytes(b, p, n_copies);
  _Alignas(16) unsigned char least[sizeof(launch)];
  launch *l = tnx_heap_alloc(bytes);
  bool own = l != NULL, queued = false;
  if (!l) { /* the stream's counters expect a task, whatever comes of it */
    l = (launch *)(void *)least;
    if (p) program_release(p);
    p = NULL;
    bytes = sizeof least;
    status = no_memory();
  }
  *l = (launch){.program = p, .driver = driver, .status = status, .device = tnx_stream_device(h->stream), .n_copies = n_copies, .host_bytes = own ? b->hosts.len : 0, .scratch = scratch};
  if (status != TNX_OK) {
    l->why = tnx_heap_alloc(strlen(tnx_error_text()) + 1);
    if (l->why) strcpy(l->why, tnx_error_text());
  }
  if (own) {
    fill_launch(l, b);
    l->uploads = b->uploads.data;
    l->upload_bytes = b->uploads.len;
    b->uploads.data = NULL;
    b->uploads.len = b->uploads.cap = 0;
  }
  status = tnx_stream_enqueue_held(h->stream, run, drop, l, bytes, &queued);
  if (!queued) drop(l);
  if (own) tnx_heap_free(l);
  tnx_heap_free(written);
  batch_empty(b);
  return status;
}

static tnx_status release(tnx_stream *s) {
  holder *h = tnx_stream_get_holder(s);
  if (!h) return TNX_OK;
  pthread_mutex_lock(&h->lock);
  tnx_status status = release_locked(h);
  pthread_mutex_unlock(&h->lock);
  return status;
}

/* A model sends many a small tensor to the device on its way; none of them shall end a batch. */
static bool take_upload(tnx_stream *s, void *to, const void *from, size_t bytes) {
  holder *h = tnx_stream_get_holder(s);
  if (!h) return false;
  pthread_mutex_lock(&h->lock);
  tnx_batch *b = &h->batch;
  bool free_of_it = b->calls.len > 0 && h->broken == TNX_OK;
  for (uint32_t i = 0; free_of_it && i < b->regions.len; i++) free_of_it = !meets(b->regions.data[i].address, b->regions.data[i].bytes, (uintptr_t)to, bytes);
  for (uint32_t i = 0; free_of_it && i < b->ranges.len; i++) {
    tnx_range *r = &b->ranges.data[i];
    free_of_it = !meets(r->address, r->bytes, (uintptr_t)to, bytes) || !is_current(r);
  }
  size_t padded = (bytes + 7) & ~(size_t)7;
  uint32_t at = b->uploads.len;
  if (free_of_it && tnx_vec_reserve(&b->uploads, at + (uint32_t)(sizeof(tnx_upload) + padded))) {
    tnx_upload u = {to, bytes};
    memcpy(b->uploads.data + at, &u, sizeof u);
    memcpy(b->uploads.data + at + sizeof u, from, bytes);
    b->uploads.len += (uint32_t)(sizeof u + padded);
  } else {
    free_of_it = false;
  }
  pthread_mutex_unlock(&h->lock);
  return free_of_it;
}

static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;

static tnx_status holder_of(tnx_stream *s, holder **out) {
  if ((*out = tnx_stream_get_holder(s))) return TNX_OK;
  pthread_mutex_lock(&holders_lock);
  *out = tnx_stream_get_holder(s);
  if (!*out && (*out = tnx_heap_zalloc(1, sizeof **out))) {
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->stream = s;
    tnx_stream_set_holder(s, *out);
  }
  pthread_mutex_unlock(&holders_lock);
  return *out ? TNX_OK : no_memory();
}

tnx_status tnx_batch_launch(tnx_plan *p, tnx_instance *inst, void *const *inputs, void *const *results, tnx_stream *stream) {
  pthread_once(&settings.once, read_settings);
  call c = {.plan = p, .inst = inst, .inputs = inputs, .results = results};
  holder *h;
  TNX_TRY(check_results(&c));
  TNX_TRY(holder_of(stream, &h));
  pthread_mutex_lock(&h->lock);
  tnx_batch *b = &h->batch;
  bool next = b->calls.len && !fits(b, &c);
  if (next) TNX_LOG(PLAN, "%s begins the next program: memory it shares with the last one is seen in another way", p->name);
  tnx_status status = next ? release_locked(h) : TNX_OK;
  if (status == TNX_OK && b->calls.len == 0) status = tnx_stream_follow(stream);
  if (status == TNX_OK) {
    uint32_t before = b->calls.len;
    status = add_call(b, &c);
    if (status == TNX_OK && before == 0) tnx_stream_hold(stream);
    /* A call that was added in part may have taken the place of earlier results. */
    if (status != TNX_OK && before == 0) batch_empty(b);
    else if (status != TNX_OK) h->broken = status;
  }
  bool full = b->calls.len >= settings.limit || tnx_stream_id(stream) != 0 || tnx_runtime_get_blocking();
  if (status == TNX_OK && full) status = release_locked(h);
  pthread_mutex_unlock(&h->lock);
  return status;
}
