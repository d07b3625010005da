/* Eager calls: one-operator graphs, and the cache of their plans.
 *
 * The key of a plan is everything it depends on: the row, the arguments, each tensor's dtype, flags, sizes and strides, and which tensors share
 * memory with one that is written. Values of host scalars and addresses are not part of it. A hit costs one hash of some hundred bytes, one probe
 * and one comparison, under one mutex. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aten/lower.h"
#include "base/hash.h"
#include "base/log.h"
#include "plan/run.h"

/* ---- keys ---- */

typedef struct key {
  unsigned char *data;
  size_t len, cap;
  unsigned char small[1536];
  bool failed;
} key;

static void key_grow(key *k, size_t n) {
  size_t cap = k->cap * 2 > k->len + n ? k->cap * 2 : k->len + n;
  unsigned char *p = tnx_heap_alloc(cap);
  if (!p) {
    k->failed = true;
    return;
  }
  memcpy(p, k->data, k->len);
  if (k->data != k->small) tnx_heap_free(k->data);
  k->data = p;
  k->cap = cap;
}

static inline void put(key *k, const void *src, size_t n) {
  if (k->len + n > k->cap) key_grow(k, n);
  if (k->failed || n == 0) return;
  memcpy(k->data + k->len, src, n);
  k->len += n;
}

static inline void put64(key *k, uint64_t v) { put(k, &v, sizeof v); }

static void put_arg(key *k, const tnx_arg *a) {
  put64(k, (uint64_t)a->kind << 32 | a->count);
  switch (a->kind) {
    case TNX_ARG_NONE: break;
    case TNX_ARG_TENSOR: put64(k, a->value); break;
    case TNX_ARG_TENSORS: put(k, a->values, a->count * sizeof *a->values); break;
    case TNX_ARG_INT:
    case TNX_ARG_BOOL: put64(k, (uint64_t)a->dim); break;
    case TNX_ARG_FLOAT:
    case TNX_ARG_COMPLEX: put(k, a->number, sizeof a->number); break;
    case TNX_ARG_INTS:
    case TNX_ARG_BOOLS: put(k, a->dims, a->count * sizeof *a->dims); break;
    case TNX_ARG_FLOATS: put(k, a->numbers, a->count * sizeof *a->numbers); break;
    case TNX_ARG_SCALARS:
      for (uint32_t i = 0; i < a->count; i++) put_arg(k, &a->args[i]);
      break;
    case TNX_ARG_DTYPE: put64(k, a->dtype); break;
    case TNX_ARG_STRING: put(k, a->string, strlen(a->string) + 1); break;
  }
}

/* ---- who shares memory ---- */

enum { SHARE_NONE, SHARE_EXACT, SHARE_PARTLY };

static void extent(const tnx_tensor *t, uintptr_t *begin, uintptr_t *end) {
  int64_t low = 0, high = 0, elem = (int64_t)tnx_dtype_size((tnx_dtype)t->dtype);
  *begin = *end = (uintptr_t)t->data;
  for (int i = 0; i < t->rank; i++) {
    if (t->sizes[i] == 0) return;
    int64_t span = (t->sizes[i] - 1) * t->strides[i];
    if (span > 0) high += span;
    else low += span;
  }
  *begin += (uintptr_t)(low * elem);
  *end += (uintptr_t)((high + 1) * elem);
}

static int share(const tnx_tensor *a, const tnx_tensor *b) {
  if (a->storage_end <= b->storage_begin || b->storage_end <= a->storage_begin) return SHARE_NONE;
  uintptr_t ab, ae, bb, be;
  extent(a, &ab, &ae);
  extent(b, &bb, &be);
  if (ae <= bb || be <= ab) return SHARE_NONE;
  bool same = a->data == b->data && a->dtype == b->dtype && a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++) same = a->sizes[i] == b->sizes[i] && (a->strides[i] == b->strides[i] || a->sizes[i] == 1);
  return same ? SHARE_EXACT : SHARE_PARTLY;
}

static void see_sharing(const tnx_call *c, uint32_t t, uint32_t j, uint32_t *alias, bool *overlaps) {
  if (j == t || (c->tensors[j].flags & TNX_TENSOR_HOST)) return;
  int s = share(&c->tensors[t], &c->tensors[j]);
  if (s == SHARE_EXACT) { /* one representative for all that are the same memory */
    uint32_t first = alias[t] != TNX_NO_TENSOR ? alias[t] : alias[j] != TNX_NO_TENSOR ? alias[j] : t < j ? t : j;
    alias[t] = alias[j] = first;
  } else if (s == SHARE_PARTLY) {
    overlaps[t] = overlaps[j] = true;
  }
}

enum { MANY_TENSORS = 64, FEW_PAIRS = 256 };

typedef struct span { uintptr_t begin, end; uint32_t tensor; } span;

static int by_begin(const void *x, const void *y) {
  uintptr_t a = ((const span *)x)->begin, b = ((const span *)y)->begin;
  return a < b ? -1 : a > b;
}

/* Lists of hundreds of tensors are sorted by address, and only those whose memory meets are looked at in pairs. */
static bool find_sharing_sorted(const tnx_call *c, uint32_t *alias, bool *overlaps) {
  span *spans = tnx_heap_alloc(c->n_tensors * sizeof *spans);
  bool *written = tnx_heap_zalloc(c->n_tensors, sizeof *written);
  uint32_t n = 0;
  for (uint32_t i = 0; spans && written && i < c->n_tensors; i++) {
    span s = {.tensor = i};
    if (c->tensors[i].flags & TNX_TENSOR_HOST) continue;
    extent(&c->tensors[i], &s.begin, &s.end);
    if (s.begin != s.end) spans[n++] = s;
  }
  if (spans && written) {
    for (uint32_t k = 0; k < c->n_into; k++)
      if (c->into[k] != TNX_NO_TENSOR) written[c->into[k]] = true;
    qsort(spans, n, sizeof *spans, by_begin);
    for (uint32_t i = 0, j; i < n; i = j) {
      uintptr_t end = spans[i].end;
      for (j = i + 1; j < n && spans[j].begin < end; j++)
        if (spans[j].end > end) end = spans[j].end;
      for (uint32_t x = i; x < j && j - i > 1; x++)
        for (uint32_t y = i; y < j && written[spans[x].tensor]; y++) see_sharing(c, spans[x].tensor, spans[y].tensor, alias, overlaps);
    }
  }
  bool ok = spans && written;
  tnx_heap_free(spans);
  tnx_heap_free(written);
  return ok;
}

/* For each tensor: TNX_NO_TENSOR, or the written tensor it is the very same memory as; and whether a written one overlaps another. */
static void find_sharing(const tnx_call *c, uint32_t *alias, bool *overlaps) {
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    alias[i] = TNX_NO_TENSOR;
    overlaps[i] = false;
  }
  if ((uint64_t)c->n_into * c->n_tensors > FEW_PAIRS && find_sharing_sorted(c, alias, overlaps)) return;
  for (uint32_t k = 0; k < c->n_into; k++)
    for (uint32_t j = 0; c->into[k] != TNX_NO_TENSOR && j < c->n_tensors; j++) see_sharing(c, c->into[k], j, alias, overlaps);
}

static void make_key(const tnx_call *c, const uint32_t *alias, const bool *overlaps, key *k) {
  k->data = k->small;
  k->len = 0;
  k->cap = sizeof k->small;
  k->failed = false;
  put64(k, (uint64_t)c->row->id << 32 | (uint64_t)c->n_args << 16 | c->default_dtype);
  put64(k, (uint64_t)c->n_tensors << 32 | c->n_into);
  for (uint32_t i = 0; i < c->n_args; i++) put_arg(k, &c->args[i]);
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    const tnx_tensor *t = &c->tensors[i];
    put64(k, (uint64_t)t->dtype | (uint64_t)t->flags << 8 | (uint64_t)t->rank << 16 | (uint64_t)(c->n_into && overlaps[i]) << 24 |
                 (uint64_t)(c->n_into ? alias[i] : 0) << 32);
    put(k, t->sizes, (size_t)t->rank * sizeof *t->sizes);
    put(k, t->strides, (size_t)t->rank * sizeof *t->strides);
  }
  put(k, c->into, c->n_into * sizeof *c->into);
}

/* What Meta kernels check dtypes and arguments by: the call without its sizes. */
static uint64_t class_hash(const tnx_call *c) {
  uint64_t h = tnx_hash_mix(c->row->id, (uint64_t)c->n_into << 32 | c->n_tensors);
  for (uint32_t i = 0; i < c->n_args; i++) {
    const tnx_arg *a = &c->args[i];
    h = tnx_hash_mix(h, (uint64_t)a->kind << 32 | (a->kind == TNX_ARG_TENSORS || a->kind == TNX_ARG_INTS ? a->count : 0));
    if (a->kind == TNX_ARG_BOOL) h = tnx_hash_mix(h, (uint64_t)a->dim);
    if (a->kind == TNX_ARG_DTYPE) h = tnx_hash_mix(h, a->dtype);
    if (a->kind == TNX_ARG_STRING) h = tnx_hash_bytes(a->string, strlen(a->string), h);
  }
  for (uint32_t i = 0; i < c->n_tensors; i++) h = tnx_hash_mix(h, (uint64_t)c->tensors[i].dtype | (uint64_t)c->tensors[i].flags << 8 | (uint64_t)c->tensors[i].rank << 16);
  return h | 1;
}

/* ---- the cache ---- */

typedef struct entry {
  struct entry *next; /* in its bucket */
  uint64_t hash;
  tnx_plan *plan;
  bool used; /* since the clock hand passed */
  uint32_t len;
  unsigned char key[];
} entry;

enum { BUCKETS = 1 << 13, MAX_ENTRIES = 8192, CLASSES = 1 << 14 };

/* The process's plan cache. The mutex guards all of it; rank: above the plans' own. */
static struct {
  pthread_mutex_t mutex;
  entry *bucket[BUCKETS];
  uint64_t classes[CLASSES];
  uint32_t n_classes, hand;
  tnx_cache_stats stats;
} cache = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void evict_one(void) {
  for (uint32_t tries = 0; tries < 2 * BUCKETS; tries++) {
    entry **link = &cache.bucket[cache.hand++ & (BUCKETS - 1)];
    while (*link) {
      entry *e = *link;
      if (!e->used) {
        *link = e->next;
        tnx_plan_release(e->plan);
        cache.stats.bytes -= e->len;
        tnx_heap_free(e);
        cache.stats.entries--;
        cache.stats.evictions++;
        return;
      }
      e->used = false;
      link = &e->next;
    }
  }
}

static tnx_plan *lookup(const key *k, uint64_t hash) {
  tnx_plan *found = NULL;
  pthread_mutex_lock(&cache.mutex);
  for (entry *e = cache.bucket[hash & (BUCKETS - 1)]; e; e = e->next)
    if (e->hash == hash && e->len == k->len && memcmp(e->key, k->data, k->len) == 0) {
      e->used = true;
      found = e->plan;
      tnx_plan_retain(found);
      cache.stats.hits++;
      break;
    }
  if (!found) cache.stats.misses++;
  pthread_mutex_unlock(&cache.mutex);
  return found;
}

static void insert(const key *k, uint64_t hash, tnx_plan *plan, uint64_t ns) {
  entry *e = tnx_heap_alloc(sizeof *e + k->len);
  if (!e) return; /* not cached: slower, not wrong */
  *e = (entry){.hash = hash, .plan = plan, .used = true, .len = (uint32_t)k->len};
  memcpy(e->key, k->data, k->len);
  tnx_plan_retain(plan);
  pthread_mutex_lock(&cache.mutex);
  if (cache.stats.entries >= MAX_ENTRIES) evict_one();
  e->next = cache.bucket[hash & (BUCKETS - 1)];
  cache.bucket[hash & (BUCKETS - 1)] = e;
  cache.stats.entries++;
  cache.stats.bytes += e->len;
  cache.stats.build_ns += ns;
  pthread_mutex_unlock(&cache.mutex);
}

/* True the first time a class of calls is seen. */
static bool note_class(uint64_t hash) {
  bool fresh = true;
  pthread_mutex_lock(&cache.mutex);
  if (cache.n_classes * 2 >= CLASSES) { /* forget: the check is repeated, no harm */
    memset(cache.classes, 0, sizeof cache.classes);
    cache.n_classes = 0;
  }
  uint32_t i = (uint32_t)(hash >> 20) & (CLASSES - 1);
  for (; cache.classes[i]; i = (i + 1) & (CLASSES - 1))
    if (cache.classes[i] == hash) {
      fresh = false;
      break;
    }
  if (fresh) {
    cache.classes[i] = hash;
    cache.n_classes++;
  }
  pthread_mutex_unlock(&cache.mutex);
  return fresh;
}

void tnx_cache_get_stats(tnx_cache_stats *out) {
  pthread_mutex_lock(&cache.mutex);
  *out = cache.stats;
  pthread_mutex_unlock(&cache.mutex);
}

void tnx_cache_clear(void) {
  pthread_mutex_lock(&cache.mutex);
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (entry *e = cache.bucket[i], *next; e; e = next) {
      next = e->next;
      tnx_plan_release(e->plan);
      tnx_heap_free(e);
    }
  memset(cache.bucket, 0, sizeof cache.bucket);
  memset(cache.classes, 0, sizeof cache.classes);
  memset(&cache.stats, 0, sizeof cache.stats);
  cache.n_classes = 0;
  pthread_mutex_unlock(&cache.mutex);
}

/* ---- building ---- */

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

/* A tensor that is written must not hold an element twice (an expanded one does): which write wins would be chance. */
static tnx_status check_targets(const tnx_call *c) {
  for (uint32_t i = 0; i < c->n_into; i++) {
    if (c->into[i] == TNX_NO_TENSOR) continue;
    const tnx_tensor *t = &c->tensors[c->into[i]];
    bool empty = false, repeats = false;
    for (int d = 0; d < t->rank; d++) {
      empty |= t->sizes[d] == 0;
      repeats |= t->sizes[d] > 1 && t->strides[d] == 0;
    }
    if (repeats && !empty)
      return tnx_fail(TNX_INVALID_ARGUMENT, "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                                            "Please clone() the tensor before performing the operation.");
  }
  return TNX_OK;
}

static tnx_status add_inputs(tnx_graph *g, const tnx_call *c, const uint32_t *alias, const bool *overlaps, tnx_value *values) {
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    const tnx_tensor *t = &c->tensors[i];
    if (t->rank > TNX_MAX_RANK) return tnx_fail(TNX_NOT_IMPLEMENTED, "tensors of more than %d dimensions", TNX_MAX_RANK);
    tnx_dim number = i;
    tnx_type type = {t->dtype, (uint8_t)t->rank, t->sizes};
    TNX_TRY(tnx_graph_add(g, TNX_OP_INPUT, NULL, 0, &number, 1, NULL, 0, &type, 1, &values[i]));
    if (t->flags & TNX_TENSOR_WRAPPED) g->values.data[values[i]].flags |= TNX_VALUE_WRAPPED;
    if (t->flags & TNX_TENSOR_HOST) g->values.data[values[i]].flags |= TNX_VALUE_HOST;
    tnx_input in = {values[i], tnx_arena_copy(&g->arena, t->strides, (size_t)t->rank * sizeof *t->strides), c->n_into ? alias[i] : TNX_NO_TENSOR, c->n_into && overlaps[i]};
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

/* Memory without gaps or overlap, in some order of the dimensions. */
static bool is_dense(const tnx_tensor *t) {
  bool done[TNX_MAX_RANK] = {false};
  int64_t want = 1;
  for (int n = 0; n < t->rank; n++) {
    int found = -1;
    for (int i = 0; i < t->rank && found < 0; i++)
      if (!done[i] && (t->sizes[i] == 1 || t->strides[i] == want)) found = i;
    if (found < 0) return false;
    done[found] = true;
    if (t->sizes[found] != 1) want *= t->sizes[found];
  }
  return true;
}

/* Pointwise results keep the order of dimensions that the first operand of their shape has in memory (as TensorIterator does). */
static const tnx_dim *kept_strides(const tnx_graph *g, const tnx_call *c, tnx_value v) {
  const tnx_node *n = tnx_graph_producer(g, v);
  const tnx_value_data *d = &g->values.data[v];
  if (d->rank < 2 || !(n->op == TNX_OP_INPUT || tnx_op_is_pointwise((tnx_op)n->op))) return NULL;
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    const tnx_tensor *t = &c->tensors[i];
    if (t->rank != d->rank || memcmp(t->sizes, d->sizes, (size_t)d->rank * sizeof *d->sizes)) continue;
    return is_dense(t) ? t->strides : NULL;
  }
  return NULL;
}

/* *out NULL: contiguous. */
static tnx_status wanted_strides(tnx_lower *l, const tnx_call *c, tnx_value v, const tnx_dim **out) {
  tnx_graph *g = l->b.g;
  const tnx_value_data *d = &g->values.data[v];
  *out = NULL;
  if (l->memory_format == TNX_FORMAT_CONTIGUOUS) return TNX_OK;
  if (l->memory_format == TNX_FORMAT_CHANNELS_LAST || l->memory_format == TNX_FORMAT_CHANNELS_LAST_3D) {
    tnx_dim *s = TNX_ARENA_ARRAY(&g->arena, tnx_dim, TNX_MAX_RANK);
    if (!s) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
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
  *out = kept_strides(g, c, v);
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

static tnx_status add_outputs(tnx_lower *l, const tnx_call *c, const tnx_value *values, const tnx_value *results) {
  tnx_graph *g = l->b.g;
  for (uint32_t i = 0; i < l->n_results; i++) {
    tnx_output o = {results[i], TNX_NO_TENSOR, NULL};
    uint32_t t = i < c->n_into ? c->into[i] : TNX_NO_TENSOR;
    if (o.value && t != TNX_NO_TENSOR) {
      const tnx_value_data *d = &g->values.data[o.value], *target = &g->values.data[values[t]];
      bool same = d->rank == target->rank && (d->rank == 0 || memcmp(d->sizes, target->sizes, d->rank * sizeof *d->sizes) == 0);
      if (!same) return shape_mismatch(target, d);
      o.value = tnx_b_convert(&l->b, o.value, (tnx_dtype)target->dtype);
      if (l->b.status != TNX_OK) return l->b.status;
      o.into = t;
    } else if (o.value) {
      TNX_TRY(wanted_strides(l, c, o.value, &o.strides));
    }
    if (!tnx_vec_push(&g->outputs, o)) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  return TNX_OK;
}

/* PyTorch's loop over the elements of lists lets an element see what an earlier one wrote: not so here, where all run as one graph. */
static tnx_status check_elements(const tnx_call *c, const uint32_t *alias, const bool *overlaps) {
  for (uint32_t i = 0; c->row->flags & TNX_ROW_EACH && i < c->n_into; i++) {
    uint32_t t = c->into[i];
    if (t == TNX_NO_TENSOR) continue;
    bool shared = overlaps[t];
    for (uint32_t j = 0; alias[t] != TNX_NO_TENSOR && j < i && !shared; j++) shared = c->into[j] == t || (c->into[j] != TNX_NO_TENSOR && alias[c->into[j]] == alias[t]);
    if (shared) return tnx_fail(TNX_NOT_IMPLEMENTED, "elements of a list that share memory");
  }
  return TNX_OK;
}

static tnx_status build(const tnx_call *c, const uint32_t *alias, const bool *overlaps, tnx_plan **out) {
  char name[512];
  tnx_graph g;
  TNX_TRY(check_targets(c));
  TNX_TRY(check_elements(c, alias, overlaps));
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
  TNX_TRY_DONE(add_inputs(&g, c, alias, overlaps, values));
  args = map_args(&g, c, values);
  if (!args) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
    goto done;
  }
  status = tnx_row_lowering(c->row->id)(&l, args, results);
  if (status == TNX_OK) status = l.b.status;
  if (status == TNX_OK) status = add_outputs(&l, c, values, results);
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
  if (status != TNX_OK) tnx_error_prefix("%s", name);
  tnx_graph_fini(&g);
  *out = p;
  return status;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

tnx_status tnx_call_prepare(const tnx_call *c, tnx_plan **plan_out, bool *fresh_out) {
  uint32_t few_alias[MANY_TENSORS], *alias = few_alias;
  bool few_overlaps[MANY_TENSORS], *overlaps = few_overlaps;
  tnx_status status = TNX_OK;
  *plan_out = NULL;
  *fresh_out = false;
  if (c->n_tensors > MANY_TENSORS) {
    alias = tnx_heap_alloc(c->n_tensors * sizeof *alias);
    overlaps = tnx_heap_alloc(c->n_tensors * sizeof *overlaps);
    if (!alias || !overlaps) {
      tnx_heap_free(alias);
      tnx_heap_free(overlaps);
      return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
    }
  }
  key k;
  if (c->n_into) find_sharing(c, alias, overlaps);
  make_key(c, alias, overlaps, &k);
  if (k.failed) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  } else {
    uint64_t hash = tnx_hash_bytes(k.data, k.len, 0);
    *plan_out = lookup(&k, hash);
    if (!*plan_out) {
      uint64_t begin = now_ns();
      status = build(c, alias, overlaps, plan_out);
      if (status == TNX_OK) {
        uint64_t ns = now_ns() - begin;
        *fresh_out = note_class(class_hash(c));
        TNX_LOG(PLAN, "%s: planned in %.1f us", (*plan_out)->name, (double)ns * 1e-3);
        insert(&k, hash, *plan_out, ns);
      }
    }
  }
  if (k.data != k.small) tnx_heap_free(k.data);
  if (alias != few_alias) {
    tnx_heap_free(alias);
    tnx_heap_free(overlaps);
  }
  return status;
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
