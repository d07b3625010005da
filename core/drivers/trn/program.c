/* Programs: compiled by a few threads that each run one compiler at a time, loaded into a device when it first runs them there, executed with tensor sets.
 *
 * Equal texts are one program. A program's operands are slices of segments; the sets of the last execution are kept, because a loop gives the same addresses again. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "drivers/trn/trn.h"
#include "runtime/state.h"

enum { DEVICES = 64, BUCKETS = 256, NAME = NRT_TENSOR_NAME_MAX };

/* A program on a device; used by one thread at a time, under its device's lock. */
typedef struct loaded {
  nrt_model_t *model;
  char (*names)[NAME]; /* inputs, then outputs */
  uint64_t *sizes;     /* bytes by the model, 0: it does not say */
  nrt_tensor_set_t *in, *out;
  nrt_tensor_t **slices;
  tnx_operand *bound; /* what the sets hold */
  uint64_t generation;
} loaded;

struct tnx_program {
  _Atomic uint32_t refs; /* one of them is the table's */
  trn_key key;
  char *name, *text;
  size_t text_bytes;
  uint32_t n_inputs, n_outputs;
  tnx_program *next, *next_job;
  /* until `done`, the compile thread's; afterwards constant */
  _Atomic bool done;
  tnx_status status;
  char *why;
  void *neff;
  size_t neff_bytes;
  loaded *on[DEVICES];
};

static struct {
  pthread_mutex_t lock; /* everything here, and the programs' `next`s */
  pthread_cond_t work, done;
  tnx_program *buckets[BUCKETS], *first, **last;
  unsigned threads, idle;
  int family;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .last = &pool.first, .family = -1};

static struct { pthread_mutex_t lock; nrta_error_tracker_t *errors; } cores[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct { _Atomic uint64_t programs, compiled, cached, loaded, executed; } counters;

static void program_stats(tnx_program_stats *out) {
  *out = (tnx_program_stats){atomic_load(&counters.programs), atomic_load(&counters.compiled), atomic_load(&counters.cached), atomic_load(&counters.loaded), atomic_load(&counters.executed)};
}

void trn_family_set(int family) { pool.family = family; }

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory for a program"); }

static char *copy_text(const char *s, size_t n) {
  char *p = tnx_heap_alloc(n + 1);
  if (!p) return NULL;
  memcpy(p, s, n);
  p[n] = 0;
  return p;
}

/* ---- compiling ---- */

static void compile(const trn_settings *s, tnx_program *p) {
  bool compiled = false;
  p->status = trn_compile(s, &p->key, p->name, p->text, p->text_bytes, &p->neff, &p->neff_bytes, &compiled);
  if (p->status != TNX_OK) p->why = copy_text(tnx_error_text(), strlen(tnx_error_text()));
  tnx_heap_free(p->text);
  p->text = NULL;
  atomic_fetch_add(compiled ? &counters.compiled : &counters.cached, p->status == TNX_OK);
}

static void *compile_main(void *arg) {
  const trn_settings *s = arg;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (!pool.first) {
      pool.idle++;
      pthread_cond_wait(&pool.work, &pool.lock);
      pool.idle--;
    }
    tnx_program *p = pool.first;
    pool.first = p->next_job;
    if (!pool.first) pool.last = &pool.first;
    pthread_mutex_unlock(&pool.lock);
    compile(s, p);
    pthread_mutex_lock(&pool.lock);
    atomic_store_explicit(&p->done, true, memory_order_release);
    pthread_cond_broadcast(&pool.done);
  }
  return NULL;
}

static bool start_thread(const trn_settings *s) {
  pthread_t thread;
  if (tnx_thread_start(&thread, "tnx-compile", compile_main, (void *)s) != TNX_OK) return false;
  pthread_detach(thread);
  return true;
}

/* Under pool.lock. False: nobody will compile it. */
static bool queue(const trn_settings *s, tnx_program *p) {
  if (pool.idle == 0 && pool.threads < s->workers) {
    if (start_thread(s)) pool.threads++;
    else if (pool.threads == 0) return false;
  }
  p->next_job = NULL;
  *pool.last = p;
  pool.last = &p->next_job;
  pthread_cond_signal(&pool.work);
  return true;
}

/* ---- the table ---- */

static void unload(loaded *l, uint32_t n) {
  if (!l) return;
  if (l->in) trn_nrt.nrt_destroy_tensor_set(&l->in);
  if (l->out) trn_nrt.nrt_destroy_tensor_set(&l->out);
  for (uint32_t i = 0; l->slices && i < n; i++)
    if (l->slices[i]) trn_nrt.nrt_tensor_free(&l->slices[i]);
  if (l->model) trn_nrt.nrt_unload(l->model);
  tnx_heap_free(l->names);
  tnx_heap_free(l->sizes);
  tnx_heap_free(l->slices);
  tnx_heap_free(l->bound);
  tnx_heap_free(l);
}

static void destroy(tnx_program *p) {
  for (int d = 0; d < DEVICES; d++) unload(p->on[d], p->n_inputs + p->n_outputs);
  tnx_heap_free(p->neff);
  tnx_heap_free(p->why);
  tnx_heap_free(p->text);
  tnx_heap_free(p->name);
  tnx_heap_free(p);
}

static void program_release(tnx_program *p) {
  if (p && atomic_fetch_sub(&p->refs, 1) == 1) destroy(p);
}

/* Under pool.lock. */
static tnx_program *find(const trn_key *k, uint32_t bucket) {
  for (tnx_program *p = pool.buckets[bucket]; p; p = p->next)
    if (strcmp(p->key.text, k->text) == 0 && p->key.check == k->check && p->key.length == k->length) return p;
  return NULL;
}

static tnx_status program_create(const tnx_program_source *source, tnx_program **out) {
  const trn_settings *s;
  TNX_TRY(trn_settings_get(pool.family, &s));
  trn_key key;
  trn_key_make(s, source->text, source->text_bytes, &key);
  uint32_t bucket = (uint32_t)key.check % BUCKETS;
  tnx_program *p = tnx_heap_zalloc(1, sizeof *p);
  if (!p) return no_memory();
  p->key = key;
  p->name = copy_text(source->name, strlen(source->name));
  p->text = copy_text(source->text, source->text_bytes);
  p->text_bytes = source->text_bytes;
  p->n_inputs = source->n_inputs;
  p->n_outputs = source->n_outputs;
  atomic_store(&p->refs, 2);
  if (!p->name || !p->text) {
    destroy(p);
    return no_memory();
  }
  pthread_mutex_lock(&pool.lock);
  tnx_program *same = find(&key, bucket);
  /* What failed is tried again: a full disk or a time-out may be over. */
  bool usable = same && !(atomic_load(&same->done) && same->status != TNX_OK);
  if (usable) {
    atomic_fetch_add(&same->refs, 1);
  } else {
    for (tnx_program **at = &pool.buckets[bucket]; same && *at; at = &(*at)->next)
      if (*at == same) {
        *at = same->next;
        break;
      }
    p->next = pool.buckets[bucket];
    pool.buckets[bucket] = p;
    atomic_fetch_add(&counters.programs, 1);
    if (!queue(s, p)) {
      p->status = tnx_fail(TNX_INTERNAL, "no thread to compile on could be started");
      atomic_store(&p->done, true);
    }
  }
  pthread_mutex_unlock(&pool.lock);
  if (usable) destroy(p);
  else if (same) program_release(same);
  *out = usable ? same : p;
  return TNX_OK;
}

static tnx_status wait_compiled(tnx_program *p) {
  if (!atomic_load_explicit(&p->done, memory_order_acquire)) {
    pthread_mutex_lock(&pool.lock);
    while (!atomic_load(&p->done)) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
  }
  return p->status == TNX_OK ? TNX_OK : tnx_fail(p->status, "%s", p->why ? p->why : "the program could not be compiled");
}

tnx_status trn_program_wait(tnx_program *p, trn_key *key_out) {
  *key_out = p->key;
  return wait_compiled(p);
}

/* ---- loading ---- */

/* "input12" -> 12; false: not such a name. */
static bool positional(const char *name, const char *prefix, uint32_t *out) {
  size_t n = strlen(prefix);
  if (strncmp(name, prefix, n) || name[n] < '0' || name[n] > '9') return false;
  char *end;
  unsigned long v = strtoul(name + n, &end, 10);
  *out = (uint32_t)v;
  return *end == 0 && v < UINT32_MAX;
}

/* The names of the model's tensors by their place in the program: those with a number by it, others in the order the model lists them. */
static tnx_status take_names(const tnx_program *p, loaded *l, const nrt_tensor_info_array_t *info) {
  uint32_t n[2] = {0, 0};
  bool numbered = true;
  uint32_t at;
  for (uint64_t i = 0; i < info->tensor_count; i++) {
    const nrt_tensor_info_t *t = &info->tensor_array[i];
    bool output = t->usage == NRT_TENSOR_USAGE_OUTPUT;
    n[output]++;
    numbered &= positional(t->name, output ? "output" : "input", &at) && at < (output ? p->n_outputs : p->n_inputs);
  }
  if (n[0] != p->n_inputs || n[1] != p->n_outputs)
    return tnx_fail(TNX_DEVICE, "the compiled program has %u inputs and %u outputs, its source %u and %u", n[0], n[1], p->n_inputs, p->n_outputs);
  n[0] = n[1] = 0;
  for (uint64_t i = 0; i < info->tensor_count; i++) {
    const nrt_tensor_info_t *t = &info->tensor_array[i];
    bool output = t->usage == NRT_TENSOR_USAGE_OUTPUT;
    if (!numbered) at = n[output]++;
    else positional(t->name, output ? "output" : "input", &at);
    if (output) at += p->n_inputs;
    snprintf(l->names[at], NAME, "%s", t->name);
    l->sizes[at] = t->size;
  }
  return TNX_OK;
}

static tnx_status load(tnx_program *p, int device, loaded **out) {
  uint32_t n = p->n_inputs + p->n_outputs;
  loaded *l = tnx_heap_zalloc(1, sizeof *l);
  if (!l) return no_memory();
  tnx_status status;
  l->names = tnx_heap_zalloc(n + 1, sizeof *l->names);
  l->sizes = tnx_heap_zalloc(n + 1, sizeof *l->sizes);
  l->slices = tnx_heap_zalloc(n + 1, sizeof *l->slices);
  l->bound = tnx_heap_zalloc(n + 1, sizeof *l->bound);
  if (!l->names || !l->sizes || !l->slices || !l->bound) {
    status = no_memory();
    goto done;
  }
  TNX_TRY_DONE(trn_check(trn_nrt.nrt_load(p->neff, p->neff_bytes, device, -1, &l->model), "nrt_load"));
  for (uint32_t i = 0; i < n; i++) snprintf(l->names[i], NAME, i < p->n_inputs ? "input%u" : "output%u", i < p->n_inputs ? i : i - p->n_inputs);
  nrt_tensor_info_array_t *info = NULL;
  if (trn_nrt.nrt_get_model_tensor_info && trn_nrt.nrt_get_model_tensor_info(l->model, &info) == NRT_SUCCESS && info) {
    status = take_names(p, l, info);
    if (trn_nrt.nrt_free_model_tensor_info) trn_nrt.nrt_free_model_tensor_info(info);
    if (status != TNX_OK) goto done;
  }
  atomic_fetch_add(&counters.loaded, 1);
  *out = l;
  return TNX_OK;
done:
  unload(l, n);
  return status;
}

/* ---- executing ---- */

/* Fills the sets with slices of the operands' segments, unless they hold them already. */
static tnx_status bind(const tnx_program *p, loaded *l, const tnx_operand *inputs, const tnx_operand *outputs) {
  uint32_t n = p->n_inputs + p->n_outputs;
  uint64_t generation = trn_memory_generation();
  if (l->in && l->generation == generation && memcmp(l->bound, inputs, p->n_inputs * sizeof *inputs) == 0 &&
      memcmp(l->bound + p->n_inputs, outputs, p->n_outputs * sizeof *outputs) == 0)
    return TNX_OK;
  if (l->in) trn_nrt.nrt_destroy_tensor_set(&l->in);
  if (l->out) trn_nrt.nrt_destroy_tensor_set(&l->out);
  l->in = l->out = NULL;
  TNX_TRY(trn_check(trn_nrt.nrt_allocate_tensor_set(&l->in), "nrt_allocate_tensor_set"));
  tnx_status status = trn_check(trn_nrt.nrt_allocate_tensor_set(&l->out), "nrt_allocate_tensor_set");
  for (uint32_t i = 0; i < n && status == TNX_OK; i++) {
    const tnx_operand *o = i < p->n_inputs ? &inputs[i] : &outputs[i - p->n_inputs];
    trn_place at;
    if (l->slices[i]) trn_nrt.nrt_tensor_free(&l->slices[i]);
    l->slices[i] = NULL;
    if (l->sizes[i] && l->sizes[i] != o->bytes)
      status = tnx_fail(TNX_DEVICE, "the compiled program takes %llu bytes for %s, its source %zu", (unsigned long long)l->sizes[i], l->names[i], o->bytes);
    if (status == TNX_OK) status = trn_place_of(o->address, o->bytes, &at);
    if (status == TNX_OK) status = trn_check(trn_nrt.nrt_tensor_allocate_slice(at.tensor, at.offset, o->bytes, l->names[i], &l->slices[i]), "nrt_tensor_allocate_slice");
    if (status == TNX_OK) status = trn_check(trn_nrt.nrt_add_tensor_to_tensor_set(i < p->n_inputs ? l->in : l->out, l->names[i], l->slices[i]), "nrt_add_tensor_to_tensor_set");
    l->bound[i] = *o;
  }
  if (status != TNX_OK) { /* half a binding is none */
    trn_nrt.nrt_destroy_tensor_set(&l->in);
    l->in = NULL;
  }
  l->generation = generation;
  return status;
}

static bool can_schedule(void) {
  return trn_nrt.nrta_execute_schedule && trn_nrt.nrta_is_completed && trn_nrt.nrta_error_tracker_create && trn_nrt.nrta_error_tracker_destroy && trn_nrt.nrta_error_tracker_get_list;
}

/* The runtime has its own time limit; this one is for a runtime that does not come back. */
static tnx_status wait_completed(nrta_seq_t seq, unsigned seconds) {
  uint64_t begin = tnx_now_ns();
  for (unsigned round = 0;; round++) {
    bool completed = false;
    TNX_TRY(trn_check(trn_nrt.nrta_is_completed(seq, &completed), "nrta_is_completed"));
    if (completed) return TNX_OK;
    if (round < 2000) tnx_cpu_pause();
    else nanosleep(&(struct timespec){0, round < 4000 ? 20000 : 200000}, NULL);
    if (round % 256 == 255 && (tnx_now_ns() - begin) / 1000000000u > seconds)
      return tnx_fail(TNX_TIMEOUT, "NRT error: an execution has not ended after %u s (NEURON_RT_EXEC_TIMEOUT)", seconds);
  }
}

static tnx_status schedule(loaded *l, int device, unsigned seconds) {
  nrta_seq_t seq;
  if (!cores[device].errors) TNX_TRY(trn_check(trn_nrt.nrta_error_tracker_create((uint32_t)device, &cores[device].errors), "nrta_error_tracker_create"));
  TNX_TRY(trn_check(trn_nrt.nrta_execute_schedule(l->model, l->in, l->out, 0, cores[device].errors, &seq), "nrta_execute_schedule"));
  TNX_TRY(wait_completed(seq, seconds));
  const nrta_error_t *list = NULL;
  size_t n = 0;
  TNX_TRY(trn_check(trn_nrt.nrta_error_tracker_get_list(cores[device].errors, &list, &n), "nrta_error_tracker_get_list"));
  NRT_STATUS status = NRT_SUCCESS;
  for (size_t i = 0; i < n; i++)
    if (list[i].seq_id == seq) status = (NRT_STATUS)list[i].error_code;
  if (n) { /* the tracker has no way to forget */
    trn_nrt.nrta_error_tracker_destroy(cores[device].errors);
    cores[device].errors = NULL;
  }
  return trn_check(status, "execution");
}

static tnx_status execute(tnx_program *p, int device, const trn_settings *s, const tnx_operand *inputs, const tnx_operand *outputs) {
  if (!p->on[device]) TNX_TRY(load(p, device, &p->on[device]));
  loaded *l = p->on[device];
  TNX_TRY(bind(p, l, inputs, outputs));
  atomic_fetch_add_explicit(&counters.executed, 1, memory_order_relaxed);
  if (s->async && can_schedule()) return schedule(l, device, s->exec_timeout + 5);
  return trn_check(trn_nrt.nrt_execute(l->model, l->in, l->out), "nrt_execute");
}

static tnx_status program_run(tnx_program *p, int device, const tnx_operand *inputs, const tnx_operand *outputs) {
  const trn_settings *s;
  TNX_TRY(trn_settings_get(pool.family, &s));
  TNX_TRY(trn_alive());
  TNX_TRY(wait_compiled(p));
  if (device < 0 || device >= DEVICES) return tnx_fail(TNX_DEVICE, "device %d", device);
  pthread_mutex_lock(&cores[device].lock);
  tnx_status status = execute(p, device, s, inputs, outputs);
  pthread_mutex_unlock(&cores[device].lock);
  return status;
}

const tnx_program_driver trn_programs = {.create = program_create, .run = program_run, .release = program_release, .stats = program_stats};
