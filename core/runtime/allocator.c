/* The caching allocator: one for each device.
 *
 * Segments come from the driver; each belongs to one stream and one pool (small, large) and is cut into blocks that tile it. `segment->starts` maps
 * each unit of a segment (256 bytes, 64 KiB) to the block that starts there, so freeing and interior addresses need no search tree. Free blocks
 * wait in size-ordered bins of their stream: exact bins for small sizes, then 32 bins an octave, each sorted, with a bitmap over
 * them: the first block that fits in the first non-empty bin is the best fit. Two free neighbours never exist.
 *
 * A freed block goes back to its stream at once (stream order keeps that safe). A block that other streams were recorded on waits in
 * `pending` until they have done what was queued when it was freed. A segment is returned to the driver only when its own stream
 * has done what was queued at the last free in it.
 *
 * Addresses are found through a two-level table over 2 MiB granules, readable without a lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/vec.h"
#include "runtime/programs.h"
#include "runtime/state.h"

enum {
  SMALL_SHIFT = 8,  /* 256 bytes */
  LARGE_SHIFT = 16, /* 64 KiB */
  SMALL_LIMIT = 1 << 20,
  SMALL_SEGMENT = 2 << 20,
  LARGE_SEGMENT = 32 << 20, /* shared by requests up to DEDICATED */
  DEDICATED = 16 << 20,     /* above: a segment of its own size */
  EXACT_BINS = 256,
  OCTAVE_BINS = 32,
  BINS = EXACT_BINS + 33 * OCTAVE_BINS,
  BIN_WORDS = BINS / 64 + 1,
  LEAF_BITS = 13,
  ROOT_BITS = 13,
  BLOCKS_AT_ONCE = 128
};

typedef struct segment segment;
typedef struct block block;
typedef struct use { tnx_stream *stream; uint64_t ticket; } use;

struct block {
  block *before, *after;   /* neighbours in the segment */
  block *previous, *next;  /* in a bin, in pending, or (next only) among unused descriptors */
  segment *segment;
  uintptr_t address;
  size_t size, requested;
  uint64_t serial;         /* of the allocation that lives here */
  uint32_t bin;
  bool allocated, pending;
  TNX_VEC(use) uses;       /* other streams recorded on the live or pending block */
};

struct segment {
  uintptr_t address;
  size_t size;
  tnx_device *device;
  tnx_stream *stream;
  uint64_t free_ticket;    /* tasks of stream that may use freed blocks of this segment */
  block *first;
  block **starts;
  segment *previous, *next; /* the allocator's segments, in no order */
  uint8_t shift, pool;
};

typedef struct bins { uint64_t bits[BIN_WORDS]; block *first[BINS]; } bins;
struct tnx_free_lists { bins pool[TNX_POOL_COUNT]; }; /* TNX_POOL_ALL unused */

struct tnx_allocator {
  tnx_mutex lock; /* rank 30: everything here, and the blocks and segments of the device */
  tnx_device *device;
  segment *segments, *unused_segments;
  block *unused_blocks, *pending;
  uint64_t limit, reserved, serials;
  tnx_mem_stats stats;
};

/* ---- addresses ---- */

typedef struct leaf { _Atomic(segment *) at[1 << LEAF_BITS]; } leaf;
static _Atomic(leaf *) root[1 << ROOT_BITS]; /* part of the runtime object; entries are set once and kept */

static segment *find_segment(uintptr_t a) {
  uintptr_t granule = a >> TNX_SEGMENT_ALIGN_SHIFT;
  if (granule >> (LEAF_BITS + ROOT_BITS)) return NULL;
  leaf *l = atomic_load_explicit(&root[granule >> LEAF_BITS], memory_order_acquire);
  return l ? atomic_load_explicit(&l->at[granule & ((1 << LEAF_BITS) - 1)], memory_order_acquire) : NULL;
}

static void set_granules(uintptr_t a, size_t size, segment *s) {
  for (uintptr_t g = a >> TNX_SEGMENT_ALIGN_SHIFT, end = (a + size) >> TNX_SEGMENT_ALIGN_SHIFT; g < end; g++)
    atomic_store_explicit(&atomic_load_explicit(&root[g >> LEAF_BITS], memory_order_relaxed)->at[g & ((1 << LEAF_BITS) - 1)], s, memory_order_release);
}

static bool make_leaves(uintptr_t a, size_t size) {
  uintptr_t last = (a + size - 1) >> (TNX_SEGMENT_ALIGN_SHIFT + LEAF_BITS);
  if (last >> ROOT_BITS) return false;
  for (uintptr_t i = a >> (TNX_SEGMENT_ALIGN_SHIFT + LEAF_BITS); i <= last; i++) {
    if (atomic_load_explicit(&root[i], memory_order_acquire)) continue;
    leaf *l = tnx_heap_zalloc(1, sizeof *l), *none = NULL;
    if (!l) return false;
    if (!atomic_compare_exchange_strong(&root[i], &none, l)) tnx_heap_free(l); /* another device's allocator was first */
  }
  return true;
}

/* ---- statistics ---- */

static inline void stat_add(tnx_mem_stat *s, int64_t by) {
  s->current += by;
  if (s->current > s->peak) s->peak = s->current;
  s->allocated += by;
}
static inline void stat_sub(tnx_mem_stat *s, int64_t by) {
  s->current -= by;
  s->freed += by;
}
#define STAT_ADD(a, field, pool, by) (stat_add(&(a)->stats.field[TNX_POOL_ALL], (int64_t)(by)), stat_add(&(a)->stats.field[pool], (int64_t)(by)))
#define STAT_SUB(a, field, pool, by) (stat_sub(&(a)->stats.field[TNX_POOL_ALL], (int64_t)(by)), stat_sub(&(a)->stats.field[pool], (int64_t)(by)))

static inline bool is_split(const block *b) { return b->before || b->after; }

/* ---- bins ---- */

static inline uint32_t bin_of(size_t size) {
  uint64_t units = size >> SMALL_SHIFT;
  if (units < EXACT_BINS) return (uint32_t)units;
  unsigned octave = 63u - (unsigned)__builtin_clzll(units); /* at least 8 */
  uint64_t bin = EXACT_BINS + (uint64_t)(octave - 8) * OCTAVE_BINS + ((units >> (octave - 5)) & (OCTAVE_BINS - 1));
  return bin < BINS ? (uint32_t)bin : BINS - 1;
}

/* Puts a free block into its bin. */
static void bin_add(tnx_allocator *a, block *b) {
  segment *s = b->segment;
  bins *l = &s->stream->free_lists->pool[s->pool];
  uint32_t bin = b->bin = bin_of(b->size);
  block *previous = NULL, *next = l->first[bin];
  if (bin >= EXACT_BINS)
    while (next && next->size < b->size) previous = next, next = next->next;
  b->previous = previous;
  b->next = next;
  if (next) next->previous = b;
  if (previous) previous->next = b;
  else l->first[bin] = b;
  l->bits[bin / 64] |= 1ull << (bin % 64);
  if (is_split(b)) {
    STAT_ADD(a, inactive_split, s->pool, 1);
    STAT_ADD(a, inactive_split_bytes, s->pool, b->size);
  }
}

/* Takes a free block out of its bin; before its neighbours change. */
static void bin_remove(tnx_allocator *a, block *b) {
  segment *s = b->segment;
  bins *l = &s->stream->free_lists->pool[s->pool];
  if (b->next) b->next->previous = b->previous;
  if (b->previous) b->previous->next = b->next;
  else if (!(l->first[b->bin] = b->next)) l->bits[b->bin / 64] &= ~(1ull << (b->bin % 64));
  if (is_split(b)) {
    STAT_SUB(a, inactive_split, s->pool, 1);
    STAT_SUB(a, inactive_split_bytes, s->pool, b->size);
  }
}

static block *best_fit(bins *l, size_t size) {
  uint32_t bin = bin_of(size), word = bin / 64;
  for (block *b = l->first[bin]; b; b = b->next)
    if (b->size >= size) return b;
  uint64_t bits = bin % 64 == 63 ? 0 : l->bits[word] & (~0ull << (bin % 64 + 1));
  while (!bits)
    if (++word == BIN_WORDS) return NULL;
    else bits = l->bits[word];
  return l->first[word * 64 + (uint32_t)__builtin_ctzll(bits)];
}

/* ---- blocks ---- */

static bool more_blocks(tnx_allocator *a) {
  block *b = tnx_heap_zalloc(BLOCKS_AT_ONCE, sizeof *b);
  if (!b) return false;
  for (int i = 0; i < BLOCKS_AT_ONCE; i++) {
    b[i].next = a->unused_blocks;
    a->unused_blocks = &b[i];
  }
  return true;
}

static void block_unuse(tnx_allocator *a, block *b) {
  tnx_vec_fini(&b->uses);
  b->next = a->unused_blocks;
  a->unused_blocks = b;
}

static inline block **start_slot(segment *s, uintptr_t address) { return &s->starts[(address - s->address) >> s->shift]; }

/* Takes `b` (free, out of its bin) for a request of `size` bytes, giving the rest back to the bins. A spare descriptor exists. */
static void split(tnx_allocator *a, block *b, size_t size) {
  segment *s = b->segment;
  if (b->size - size < (size_t)1 << s->shift) return;
  block *rest = a->unused_blocks;
  a->unused_blocks = rest->next;
  rest->segment = s;
  rest->address = b->address + size;
  rest->size = b->size - size;
  rest->requested = 0;
  rest->allocated = rest->pending = false;
  rest->before = b;
  rest->after = b->after;
  if (rest->after) rest->after->before = rest;
  b->after = rest;
  b->size = size;
  *start_slot(s, rest->address) = rest;
  bin_add(a, rest);
}

/* A block nobody uses any more goes into the bins, joined with free neighbours. */
static void release_block(tnx_allocator *a, block *b) {
  segment *s = b->segment;
  STAT_SUB(a, active, s->pool, 1);
  STAT_SUB(a, active_bytes, s->pool, b->size);
  s->free_ticket = tnx_stream_pushed(s->stream);
  block *n = b->after;
  if (n && !n->allocated && !n->pending) {
    bin_remove(a, n);
    *start_slot(s, n->address) = NULL;
    b->size += n->size;
    b->after = n->after;
    if (b->after) b->after->before = b;
    block_unuse(a, n);
  }
  n = b->before;
  if (n && !n->allocated && !n->pending) {
    bin_remove(a, n);
    *start_slot(s, b->address) = NULL;
    n->size += b->size;
    n->after = b->after;
    if (n->after) n->after->before = n;
    block_unuse(a, b);
    b = n;
  }
  bin_add(a, b);
}

/* Releases the pending blocks whose other streams are done. */
static void settle_pending(tnx_allocator *a) {
  for (block *b = a->pending, *next; b; b = next) {
    next = b->next;
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < b->uses.len; i++)
      if (tnx_stream_done(b->uses.data[i].stream) < b->uses.data[i].ticket) b->uses.data[waiting++] = b->uses.data[i];
    b->uses.len = waiting;
    if (waiting) continue;
    if (b->next) b->next->previous = b->previous;
    if (b->previous) b->previous->next = b->next;
    else a->pending = b->next;
    b->pending = false;
    release_block(a, b);
  }
}

/* ---- segments ---- */

static size_t segment_size_for(size_t size, int pool) {
  if (pool == TNX_POOL_SMALL) return SMALL_SEGMENT;
  if (size <= DEDICATED) return LARGE_SEGMENT;
  return (size + TNX_SEGMENT_ALIGN - 1) & ~(size_t)(TNX_SEGMENT_ALIGN - 1);
}

static tnx_status segment_create(tnx_allocator *a, tnx_stream *stream, size_t bytes, int pool, block **out) {
  tnx_device *d = a->device;
  if (bytes > a->limit || a->reserved > a->limit - bytes) return tnx_fail(TNX_OUT_OF_MEMORY, "the memory limit is reached");
  segment *s = a->unused_segments;
  if (s) a->unused_segments = s->next;
  else if (!(s = tnx_heap_zalloc(1, sizeof *s))) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a segment's descriptor");
  uint8_t shift = pool == TNX_POOL_SMALL ? SMALL_SHIFT : LARGE_SHIFT;
  tnx_status status = TNX_OK;
  void *p = NULL;
  block **starts = tnx_heap_zalloc(bytes >> shift, sizeof *starts);
  if (!starts || (!a->unused_blocks && !more_blocks(a))) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a segment's block table");
    goto done;
  }
  TNX_TRY_DONE(d->driver->segment_alloc(d->index, bytes, pool == TNX_POOL_LARGE, &p));
  if (!make_leaves((uintptr_t)p, bytes)) {
    d->driver->segment_free(d->index, p, bytes);
    status = tnx_fail(TNX_OUT_OF_MEMORY, "a segment's address could not be noted");
    goto done;
  }
  block *b = a->unused_blocks;
  a->unused_blocks = b->next;
  *s = (segment){.address = (uintptr_t)p, .size = bytes, .device = d, .stream = stream, .first = b, .starts = starts, .next = a->segments, .shift = shift, .pool = (uint8_t)pool};
  if (s->next) s->next->previous = s;
  a->segments = s;
  b->segment = s;
  b->address = s->address;
  b->size = bytes;
  b->requested = 0;
  b->before = b->after = NULL;
  b->allocated = b->pending = false;
  starts[0] = b;
  set_granules(s->address, bytes, s);
  a->reserved += bytes;
  STAT_ADD(a, segment, pool, 1);
  STAT_ADD(a, reserved_bytes, pool, bytes);
  bin_add(a, b);
  TNX_LOG(ALLOC, "segment of %zu bytes at %p for stream %llu of device %d; %llu reserved", bytes, p, (unsigned long long)tnx_stream_id(stream), d->index, (unsigned long long)a->reserved);
  *out = b;
  return TNX_OK;
done:
  tnx_heap_free(starts);
  s->next = a->unused_segments;
  a->unused_segments = s;
  return status;
}

static void segment_destroy(tnx_allocator *a, segment *s) {
  TNX_LOG(ALLOC, "segment of %zu bytes at %p returned to device %d", s->size, (void *)s->address, a->device->index);
  bin_remove(a, s->first);
  block_unuse(a, s->first);
  set_granules(s->address, s->size, NULL);
  a->device->driver->segment_free(a->device->index, (void *)s->address, s->size);
  a->reserved -= s->size;
  STAT_SUB(a, segment, s->pool, 1);
  STAT_SUB(a, reserved_bytes, s->pool, s->size);
  if (s->next) s->next->previous = s->previous;
  if (s->previous) s->previous->next = s->next;
  else a->segments = s->next;
  tnx_heap_free(s->starts);
  s->next = a->unused_segments;
  a->unused_segments = s;
}

/* Returns every segment that is wholly free and whose stream is through with it. */
static void release_segments(tnx_allocator *a) {
  for (segment *s = a->segments, *next; s; s = next) {
    next = s->next;
    block *b = s->first;
    if (!b->allocated && !b->pending && !b->after && tnx_stream_done(s->stream) >= s->free_ticket) segment_destroy(a, s);
  }
}

static _Thread_local bool never_wait; /* see tnx_mem_alloc_now */

/* Empties the cache: waits for the device's streams, which still may use freed blocks. Called and left with the lock held, not held while waiting. */
static void empty_cache_locked(tnx_allocator *a) {
  tnx_device *d = a->device;
  int n = atomic_load(&d->stream_count);
  bool in_task = never_wait; /* others may wait for this very task: only what is ready now can be returned */
  for (int i = 0; i < n; i++) in_task |= tnx_stream_is_mine(atomic_load(&d->streams[i]));
  if (!in_task) {
    tnx_mutex_unlock(&a->lock);
    for (int i = 0; i < n; i++) tnx_stream_wait(atomic_load(&d->streams[i]), tnx_stream_pushed(atomic_load(&d->streams[i])));
    tnx_mutex_lock(&a->lock);
  }
  settle_pending(a);
  release_segments(a);
}

/* ---- the public functions ---- */

tnx_status tnx_allocator_create(tnx_device *device, tnx_allocator **out) {
  tnx_allocator *a = tnx_heap_zalloc(1, sizeof *a);
  if (!a) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for an allocator");
  a->device = device;
  a->limit = device->props.total_memory;
  const char *text = getenv("TORCH_NEURONX_MEMORY_LIMIT");
  if (text && *text) {
    char *end;
    unsigned long long v = strtoull(text, &end, 10);
    int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : *end == 'g' || *end == 'G' ? 30 : 0;
    if (*text < '0' || *text > '9' || end[shift > 0] || v == 0 || v > UINT64_MAX >> shift) {
      tnx_heap_free(a);
      return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_MEMORY_LIMIT is \"%.100s\", expected a number of bytes, or of KiB, MiB, GiB with the suffix k, m, g", text);
    }
    a->limit = (uint64_t)v << shift;
  }
  *out = a;
  return TNX_OK;
}

static const char *human(char out[32], uint64_t bytes) {
  if (bytes < 1024) snprintf(out, 32, "%llu bytes", (unsigned long long)bytes);
  else if (bytes < 1024 * 1024) snprintf(out, 32, "%.2f KiB", (double)bytes / 1024);
  else if (bytes < (uint64_t)1 << 30) snprintf(out, 32, "%.2f MiB", (double)bytes / (1 << 20));
  else snprintf(out, 32, "%.2f GiB", (double)bytes / (1 << 30));
  return out;
}

static tnx_status out_of_memory(tnx_allocator *a, size_t bytes) {
  tnx_device *d = a->device;
  uint64_t total = d->props.total_memory, free_bytes = total > a->reserved ? total - a->reserved : 0, available = d->driver->available(d->index);
  int64_t allocated = a->stats.allocated_bytes[TNX_POOL_ALL].current;
  char t[7][32], limit[96] = "";
  if (available < free_bytes) free_bytes = available;
  if (a->limit < total) snprintf(limit, sizeof limit, " %s allowed;", human(t[0], a->limit));
  return tnx_fail(TNX_OUT_OF_MEMORY,
                  "Neuron out of memory. Tried to allocate %s. Device %d has a total capacity of %s of which %s is free.%s this process has %s memory in use. "
                  "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated.",
                  human(t[1], bytes), d->index, human(t[2], total), human(t[3], free_bytes), limit[0] ? limit : " Including non-PyTorch memory,", human(t[4], a->reserved), human(t[5], (uint64_t)allocated),
                  human(t[6], a->reserved - (uint64_t)allocated));
}

static tnx_status find_stream(int device, tnx_device *d, tnx_stream **stream) {
  if (!*stream) *stream = atomic_load_explicit(&d->streams[0], memory_order_relaxed);
  if ((*stream)->device != d) return tnx_fail(TNX_INVALID_ARGUMENT, "the stream belongs to device %d, the memory was asked of device %d", (*stream)->device->index, device);
  return TNX_OK;
}

tnx_status tnx_mem_alloc(int device, size_t bytes, tnx_stream *stream, void **out) {
  *out = NULL;
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  if (bytes == 0) return TNX_OK;
  TNX_TRY(find_stream(device, d, &stream));
  tnx_allocator *a = d->allocator;
  if (bytes > SIZE_MAX / 4) {
    tnx_mutex_lock(&a->lock);
    a->stats.num_ooms++;
    tnx_status status = out_of_memory(a, bytes);
    tnx_mutex_unlock(&a->lock);
    return status;
  }
  int shift = bytes < SMALL_LIMIT ? SMALL_SHIFT : LARGE_SHIFT;
  size_t size = (bytes + ((size_t)1 << shift) - 1) >> shift << shift;
  int pool = size < SMALL_LIMIT ? TNX_POOL_SMALL : TNX_POOL_LARGE;

  tnx_mutex_lock(&a->lock);
  a->stats.allocation_requests++;
  tnx_status status = TNX_OK;
  if (__builtin_expect(!stream->free_lists, 0)) {
    stream->free_lists = tnx_heap_zalloc(1, sizeof *stream->free_lists);
    if (!stream->free_lists) {
      tnx_mutex_unlock(&a->lock);
      return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a stream's free lists");
    }
  }
  if (a->pending) settle_pending(a);
  block *b = best_fit(&stream->free_lists->pool[pool], size);
  if (!b) {
    size_t segment_bytes = segment_size_for(size, pool);
    status = segment_create(a, stream, segment_bytes, pool, &b);
    if (status == TNX_OUT_OF_MEMORY) {
      a->stats.num_alloc_retries++;
      TNX_LOG(ALLOC, "device %d is short of memory for %zu bytes: %s; emptying the cache", d->index, size, tnx_error_text());
      empty_cache_locked(a);
      b = best_fit(&stream->free_lists->pool[pool], size); /* waiting may have released a block that fits */
      if (!b) status = segment_create(a, stream, segment_bytes, pool, &b);
      else status = TNX_OK;
      /* A segment that is shared by many requests may not fit where the request itself does. */
      size_t least = (size + TNX_SEGMENT_ALIGN - 1) & ~(size_t)(TNX_SEGMENT_ALIGN - 1);
      if (status == TNX_OUT_OF_MEMORY && least < segment_bytes) status = segment_create(a, stream, least, pool, &b);
    }
  }
  if (status == TNX_OK && !a->unused_blocks && !more_blocks(a)) status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for block descriptors");
  if (status != TNX_OK) {
    if (status == TNX_OUT_OF_MEMORY) {
      a->stats.num_ooms++;
      status = out_of_memory(a, bytes);
    }
    tnx_mutex_unlock(&a->lock);
    return status;
  }
  bin_remove(a, b);
  split(a, b, size);
  b->allocated = true;
  b->serial = ++a->serials;
  b->requested = bytes;
  STAT_ADD(a, allocation, pool, 1);
  STAT_ADD(a, allocated_bytes, pool, b->size);
  STAT_ADD(a, active, pool, 1);
  STAT_ADD(a, active_bytes, pool, b->size);
  STAT_ADD(a, requested_bytes, pool, bytes);
  *out = (void *)b->address;
  tnx_mutex_unlock(&a->lock);
  return TNX_OK;
}

tnx_status tnx_mem_alloc_now(int device, size_t bytes, tnx_stream *stream, void **out) {
  never_wait = true;
  tnx_status status = tnx_mem_alloc(device, bytes, stream, out);
  never_wait = false;
  return status;
}

void tnx_mem_free(void *ptr) {
  if (!ptr || atomic_load_explicit(&tnx_rt.state, memory_order_relaxed) != TNX_RUNTIME_OPEN) return; /* after fork: the parent's memory */
  segment *s = find_segment((uintptr_t)ptr);
  if (!s) {
    TNX_LOG(ALLOC, "free of %p, which is not device memory", ptr);
    return;
  }
  tnx_allocator *a = s->device->allocator;
  tnx_mutex_lock(&a->lock);
  block *b = *start_slot(s, (uintptr_t)ptr);
  if (!b || !b->allocated || b->address != (uintptr_t)ptr) {
    tnx_mutex_unlock(&a->lock);
    TNX_LOG(ALLOC, "free of %p, which is not the start of a live block", ptr);
    return;
  }
  b->allocated = false;
  a->stats.num_tensor_frees++;
  STAT_SUB(a, allocation, s->pool, 1);
  STAT_SUB(a, allocated_bytes, s->pool, b->size);
  STAT_SUB(a, requested_bytes, s->pool, b->requested);
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < b->uses.len; i++) {
    use u = {b->uses.data[i].stream, tnx_stream_pushed(b->uses.data[i].stream)};
    if (tnx_stream_done(u.stream) < u.ticket) b->uses.data[waiting++] = u;
  }
  b->uses.len = waiting;
  if (waiting) {
    b->pending = true;
    b->previous = NULL;
    b->next = a->pending;
    if (b->next) b->next->previous = b;
    a->pending = b;
  } else {
    release_block(a, b);
  }
  tnx_mutex_unlock(&a->lock);
}

/* The block that holds an address of a segment; the lock is held. */
static block *block_of(segment *s, uintptr_t address) {
  block **slot = start_slot(s, address);
  while (!*slot) slot--; /* starts[0] is always set */
  return *slot;
}

tnx_status tnx_mem_record_stream(void *ptr, tnx_stream *stream) {
  TNX_TRY(tnx_runtime_ensure());
  if (!ptr) return TNX_OK;
  segment *s = find_segment((uintptr_t)ptr);
  if (!s) return tnx_fail(TNX_INVALID_ARGUMENT, "%p is not device memory", ptr);
  tnx_status status = TNX_OK;
  tnx_allocator *a = s->device->allocator;
  tnx_mutex_lock(&a->lock);
  block *b = block_of(s, (uintptr_t)ptr);
  if (!b->allocated) {
    status = tnx_fail(TNX_INVALID_ARGUMENT, "%p is not inside a live block", ptr);
  } else if (stream != s->stream) {
    bool known = false;
    for (uint32_t i = 0; i < b->uses.len; i++) known |= b->uses.data[i].stream == stream;
    if (!known && !tnx_vec_push(&b->uses, ((use){stream, 0}))) status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to note a stream");
  }
  tnx_mutex_unlock(&a->lock);
  return status;
}

uint64_t tnx_mem_serial(const void *ptr) {
  segment *s = find_segment((uintptr_t)ptr);
  if (!s) return 0;
  tnx_mutex_lock(&s->device->allocator->lock);
  block *b = block_of(s, (uintptr_t)ptr);
  uint64_t serial = b->allocated ? b->serial : 0;
  tnx_mutex_unlock(&s->device->allocator->lock);
  return serial;
}

int tnx_mem_device_of(const void *ptr) {
  segment *s = find_segment((uintptr_t)ptr);
  return s ? s->device->index : -1;
}

tnx_status tnx_mem_empty_cache(int device) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_mutex_lock(&d->allocator->lock);
  empty_cache_locked(d->allocator);
  tnx_mutex_unlock(&d->allocator->lock);
  return TNX_OK;
}

tnx_status tnx_mem_get_info(int device, uint64_t *free_out, uint64_t *total_out) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  uint64_t available = d->driver->available(device);
  tnx_mutex_lock(&d->allocator->lock);
  uint64_t room = d->allocator->limit > d->allocator->reserved ? d->allocator->limit - d->allocator->reserved : 0;
  tnx_mutex_unlock(&d->allocator->lock);
  *free_out = room < available ? room : available;
  *total_out = d->props.total_memory;
  return TNX_OK;
}

tnx_status tnx_mem_set_limit(int device, uint64_t bytes) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_mutex_lock(&d->allocator->lock);
  d->allocator->limit = bytes ? bytes : d->props.total_memory;
  tnx_mutex_unlock(&d->allocator->lock);
  return TNX_OK;
}

tnx_status tnx_mem_get_stats(int device, tnx_mem_stats *out) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_mutex_lock(&d->allocator->lock);
  settle_pending(d->allocator);
  *out = d->allocator->stats;
  tnx_mutex_unlock(&d->allocator->lock);
  return TNX_OK;
}

/* Applies `change` to every tnx_mem_stat: they fill the structure's front. */
static tnx_status for_stats(int device, void (*change)(tnx_mem_stat *), bool counters) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_mutex_lock(&d->allocator->lock);
  tnx_mem_stats *s = &d->allocator->stats;
  tnx_mem_stat *all[] = {s->allocation, s->segment, s->active, s->inactive_split, s->allocated_bytes, s->reserved_bytes, s->active_bytes, s->inactive_split_bytes, s->requested_bytes};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    for (int p = 0; p < TNX_POOL_COUNT; p++) change(&all[i][p]);
  if (counters) s->num_alloc_retries = s->num_ooms = s->num_tensor_frees = s->allocation_requests = 0;
  tnx_mutex_unlock(&d->allocator->lock);
  return TNX_OK;
}
static void peak_to_current(tnx_mem_stat *s) { s->peak = s->current; }
static void forget_sums(tnx_mem_stat *s) { s->allocated = s->freed = 0; }

tnx_status tnx_mem_reset_peak(int device) { return for_stats(device, peak_to_current, false); }
tnx_status tnx_mem_reset_accumulated(int device) { return for_stats(device, forget_sums, true); }

static int by_address(const void *x, const void *y) {
  const segment *a = *(segment *const *)x, *b = *(segment *const *)y;
  return a->address < b->address ? -1 : a->address > b->address;
}

tnx_status tnx_mem_walk(int device, void (*fn)(void *ctx, const tnx_mem_block *block), void *ctx) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  tnx_allocator *a = d->allocator;
  tnx_status status = TNX_OK;
  TNX_VEC(segment *) order = {0};
  tnx_mutex_lock(&a->lock);
  for (segment *s = a->segments; s; s = s->next)
    if (!tnx_vec_push(&order, s)) {
      status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to list the segments");
      goto done;
    }
  if (order.len) qsort(order.data, order.len, sizeof *order.data, by_address);
  for (uint32_t i = 0; i < order.len; i++)
    for (block *b = order.data[i]->first; b; b = b->after) {
      segment *s = b->segment;
      tnx_mem_block view = {s->address, s->size, b->address, b->size, b->allocated ? b->requested : 0, tnx_stream_id(s->stream), b->allocated || b->pending, s->pool == TNX_POOL_SMALL};
      fn(ctx, &view);
    }
done:
  tnx_mutex_unlock(&a->lock);
  tnx_vec_fini(&order);
  return status;
}
