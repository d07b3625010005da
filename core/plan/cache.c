/* The plan cache: keys, the table of plans with its clock hand, the table of classes. */
#include "plan/cache.h"

#include <string.h>

#include "base/hash.h"

/* ---- keys ---- */

typedef tnx_cache_key key;

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

tnx_status tnx_cache_key_init(tnx_cache_key *k, const tnx_call *c, const tnx_sharing *s) {
  k->data = k->small;
  k->len = 0;
  k->cap = sizeof k->small;
  k->failed = false;
  put64(k, (uint64_t)c->row->id << 32 | (uint64_t)c->n_args << 16 | c->default_dtype);
  put64(k, (uint64_t)c->n_tensors << 32 | c->n_into);
  for (uint32_t i = 0; i < c->n_args; i++) put_arg(k, &c->args[i]);
  for (uint32_t i = 0; i < c->n_tensors; i++) {
    const tnx_tensor *t = &c->tensors[i];
    put64(k, (uint64_t)t->dtype | (uint64_t)t->flags << 8 | (uint64_t)t->rank << 16 | (uint64_t)(c->n_into ? s[i].overlap : 0) << 24 | (uint64_t)(c->n_into ? s[i].alias : 0) << 32);
    put(k, t->sizes, (size_t)t->rank * sizeof *t->sizes);
    put(k, t->strides, (size_t)t->rank * sizeof *t->strides);
  }
  put(k, c->into, c->n_into * sizeof *c->into);
  if (k->failed) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  k->hash = tnx_hash_bytes(k->data, k->len, 0);
  return TNX_OK;
}

void tnx_cache_key_fini(tnx_cache_key *k) {
  if (k->data != k->small) tnx_heap_free(k->data);
}

uint64_t tnx_cache_class_of(const tnx_call *c) {
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

static entry *find(const key *k) {
  entry *e = cache.bucket[k->hash & (BUCKETS - 1)];
  while (e && !(e->hash == k->hash && e->len == k->len && memcmp(e->key, k->data, k->len) == 0)) e = e->next;
  return e;
}

tnx_plan *tnx_cache_find(const tnx_cache_key *k) {
  tnx_plan *found = NULL;
  pthread_mutex_lock(&cache.mutex);
  entry *e = find(k);
  if (e) {
    e->used = true;
    found = e->plan;
    tnx_plan_retain(found);
    cache.stats.hits++;
  } else {
    cache.stats.misses++;
  }
  pthread_mutex_unlock(&cache.mutex);
  return found;
}

void tnx_cache_keep(const tnx_cache_key *k, tnx_plan *plan, uint64_t ns) {
  entry *e = tnx_heap_alloc(sizeof *e + k->len);
  if (!e) return; /* not cached: slower, not wrong */
  *e = (entry){.hash = k->hash, .plan = plan, .used = true, .len = (uint32_t)k->len};
  memcpy(e->key, k->data, k->len);
  pthread_mutex_lock(&cache.mutex);
  bool there = find(k) != NULL; /* another thread was faster */
  if (!there) {
    tnx_plan_retain(plan);
    if (cache.stats.entries >= MAX_ENTRIES) evict_one();
    e->next = cache.bucket[k->hash & (BUCKETS - 1)];
    cache.bucket[k->hash & (BUCKETS - 1)] = e;
    cache.stats.entries++;
    cache.stats.bytes += e->len;
  }
  cache.stats.build_ns += ns;
  pthread_mutex_unlock(&cache.mutex);
  if (there) tnx_heap_free(e);
}

/* The place of a class in the table, or the free one where it belongs. */
static uint64_t *class_place(uint64_t hash) {
  uint32_t i = (uint32_t)(hash >> 20) & (CLASSES - 1);
  while (cache.classes[i] && cache.classes[i] != hash) i = (i + 1) & (CLASSES - 1);
  return &cache.classes[i];
}

bool tnx_cache_knows_class(uint64_t hash) {
  pthread_mutex_lock(&cache.mutex);
  bool known = *class_place(hash) == hash;
  pthread_mutex_unlock(&cache.mutex);
  return known;
}

void tnx_cache_note_class(uint64_t hash) {
  pthread_mutex_lock(&cache.mutex);
  if (cache.n_classes * 2 >= CLASSES) { /* forget: the check is repeated, no harm */
    memset(cache.classes, 0, sizeof cache.classes);
    cache.n_classes = 0;
  }
  uint64_t *place = class_place(hash);
  if (*place != hash) {
    *place = hash;
    cache.n_classes++;
  }
  pthread_mutex_unlock(&cache.mutex);
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
