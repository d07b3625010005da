/* libnrt on the host device: tensors and sets of tensors. Device memory is touched in the order of the core's stream. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "nrt_host/host.h"

static char *copy_name(const char *s) {
  size_t n = strlen(s) + 1;
  char *t = tnx_heap_alloc(n);
  if (t) memcpy(t, s, n);
  return t;
}

/* ---- making and freeing ---- */

static void storage_release(host_storage *s) {
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  if (s->owned && s->data) {
    if (s->vnc >= 0) tnx_mem_free(s->data);
    else tnx_host_free(s->data);
  }
  tnx_heap_free(s);
}

static NRT_STATUS tensor_new(host_storage *storage, size_t offset, size_t size, const char *name, nrt_tensor_t **out) {
  nrt_tensor_t *t = tnx_heap_zalloc(1, sizeof *t);
  if (t && name) t->name = copy_name(name);
  if (!t || (name && !t->name)) {
    tnx_heap_free(t);
    return NRT_RESOURCE;
  }
  t->mark = HOST_TENSOR;
  t->storage = storage;
  t->offset = offset;
  t->size = size;
  *out = t;
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_tensor_allocate(nrt_tensor_placement_t placement, int vnc, size_t size, const char *name, nrt_tensor_t **out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  bool device = placement == NRT_TENSOR_PLACEMENT_DEVICE;
  if (!out || (!device && placement != NRT_TENSOR_PLACEMENT_HOST)) return host_error(NRT_INVALID, "nrt_tensor_allocate: an unknown placement");
  if (device && !host_vnc_exists(vnc)) return host_error(NRT_INVALID, "nrt_tensor_allocate: no core %d", vnc);
  *out = NULL;
  if (host_fault_now(HOST_FAULT_ALLOC)) return host_error(NRT_RESOURCE, "nrt_tensor_allocate: %zu bytes could not be allocated (NRT_HOST_FAULT)", size);
  host_storage *s = tnx_heap_zalloc(1, sizeof *s);
  if (!s) return NRT_RESOURCE;
  s->refs = 1;
  s->bytes = size;
  s->placement = placement;
  s->vnc = device ? vnc : -1;
  s->owned = true;
  status = host_status(device ? tnx_mem_alloc(vnc, size, NULL, &s->data) : tnx_host_alloc(size ? size : 1, &s->data), false);
  if (status == NRT_SUCCESS) status = tensor_new(s, 0, size, name, out);
  if (status != NRT_SUCCESS) storage_release(s);
  return status;
}

NRT_API NRT_STATUS nrt_tensor_allocate_empty(const char *name, nrt_tensor_t **out) { return out ? tensor_new(NULL, 0, 0, name, out) : NRT_INVALID; }

NRT_API NRT_STATUS nrt_tensor_allocate_slice(const nrt_tensor_t *src, size_t offset, size_t size, const char *name, nrt_tensor_t **out) {
  if (!out) return NRT_INVALID;
  if (!host_is_tensor(src) || !src->storage) return NRT_INVALID_HANDLE;
  if (offset > src->size || size > src->size - offset) return host_error(NRT_INVALID, "nrt_tensor_allocate_slice: %zu bytes from %zu on of %zu", size, offset, src->size);
  NRT_STATUS status = tensor_new(src->storage, src->offset + offset, size, name, out);
  if (status == NRT_SUCCESS) atomic_fetch_add(&src->storage->refs, 1);
  return status;
}

NRT_API NRT_STATUS nrt_tensor_attach_buffer(nrt_tensor_t *t, void *buffer, size_t size) {
  if (!host_is_tensor(t)) return NRT_INVALID_HANDLE;
  if (!buffer && size) return NRT_INVALID;
  host_storage *s = tnx_heap_zalloc(1, sizeof *s);
  if (!s) return NRT_RESOURCE;
  *s = (host_storage){.refs = 1, .data = buffer, .bytes = size, .placement = NRT_TENSOR_PLACEMENT_HOST, .vnc = -1};
  storage_release(t->storage);
  t->storage = s;
  t->offset = 0;
  t->size = size;
  return NRT_SUCCESS;
}

NRT_API void nrt_tensor_free(nrt_tensor_t **tensor) {
  if (!tensor || !host_is_tensor(*tensor)) return;
  nrt_tensor_t *t = *tensor;
  t->mark = 0;
  storage_release(t->storage);
  tnx_heap_free(t->name);
  tnx_heap_free(t);
  *tensor = NULL;
}

/* ---- contents ---- */

static NRT_STATUS in_range(const nrt_tensor_t *t, uint64_t offset, uint64_t size) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_is_tensor(t) || !t->storage) return NRT_INVALID_HANDLE;
  return offset <= t->size && size <= t->size - offset ? NRT_SUCCESS : host_error(NRT_INVALID, "%zu bytes from %zu on of a tensor of %zu", (size_t)size, (size_t)offset, t->size);
}

static NRT_STATUS stream_of(const nrt_tensor_t *t, tnx_stream **out) {
  *out = NULL;
  return t->storage->vnc < 0 ? NRT_SUCCESS : host_stream(t->storage->vnc, out);
}

NRT_API NRT_STATUS nrt_tensor_read(const nrt_tensor_t *t, void *buf, size_t offset, size_t size) {
  tnx_stream *s;
  NRT_STATUS status = in_range(t, offset, size);
  if (status == NRT_SUCCESS) status = !buf && size ? NRT_INVALID : stream_of(t, &s);
  if (status != NRT_SUCCESS || size == 0) return status;
  if (s) return host_status(tnx_copy_to_host(buf, host_address(t) + offset, size, s), false);
  memcpy(buf, host_address(t) + offset, size);
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_tensor_write(nrt_tensor_t *t, const void *buf, size_t offset, size_t size) {
  tnx_stream *s;
  NRT_STATUS status = in_range(t, offset, size);
  if (status == NRT_SUCCESS) status = !buf && size ? NRT_INVALID : stream_of(t, &s);
  if (status != NRT_SUCCESS || size == 0) return status;
  if (s) return host_status(tnx_copy_to_device(host_address(t) + offset, buf, size, s, true), false);
  memcpy(host_address(t) + offset, buf, size);
  return NRT_SUCCESS;
}

static NRT_STATUS batch(const nrt_tensor_batch_t *batches, uint64_t n, bool write) {
  if (!batches && n) return NRT_INVALID;
  for (uint64_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < batches[i].num_ops; k++) {
      const nrt_tensor_batch_op_t *op = &batches[i].ops[k];
      NRT_STATUS status = write ? nrt_tensor_write((nrt_tensor_t *)batches[i].tensor, op->buffer, op->offset, op->size) : nrt_tensor_read(batches[i].tensor, op->buffer, op->offset, op->size);
      if (status != NRT_SUCCESS) return status;
    }
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_tensor_read_batch(const nrt_tensor_batch_t *batches, uint64_t n, bool unsafe) { return batch(batches, n, false); }
NRT_API NRT_STATUS nrt_tensor_write_batch(const nrt_tensor_batch_t *batches, uint64_t n, bool unsafe) { return batch(batches, n, true); }

typedef struct fill { char *to; const char *from; size_t bytes; int value; } fill;
static tnx_status run_fill(void *payload, tnx_pool *pool) {
  const fill *f = payload;
  if (f->from) memmove(f->to, f->from, f->bytes);
  else memset(f->to, f->value, f->bytes);
  return TNX_OK;
}
static NRT_STATUS do_fill(const nrt_tensor_t *at, fill f) {
  tnx_stream *s;
  NRT_STATUS status = stream_of(at, &s);
  if (status != NRT_SUCCESS || f.bytes == 0) return status;
  if (!s) return run_fill(&f, NULL), NRT_SUCCESS;
  tnx_status r = tnx_stream_enqueue(s, run_fill, NULL, &f, sizeof f);
  return host_status(r == TNX_OK ? tnx_stream_synchronize(s) : r, false);
}

NRT_API NRT_STATUS nrt_tensor_copy(const nrt_tensor_t *src, size_t src_offset, nrt_tensor_t *dst, size_t dst_offset, size_t size) {
  NRT_STATUS status = in_range(src, src_offset, size);
  if (status == NRT_SUCCESS) status = in_range(dst, dst_offset, size);
  if (status != NRT_SUCCESS) return status;
  if (src->storage->vnc >= 0 && dst->storage->vnc >= 0 && src->storage->vnc != dst->storage->vnc) return host_error(NRT_INVALID, "nrt_tensor_copy: tensors of two cores");
  return do_fill(src->storage->vnc >= 0 ? src : dst, (fill){host_address(dst) + dst_offset, host_address(src) + src_offset, size, 0});
}

NRT_API NRT_STATUS nrt_tensor_memset(nrt_tensor_t *t, uint64_t offset, int value, size_t size) {
  NRT_STATUS status = in_range(t, offset, size);
  return status == NRT_SUCCESS ? do_fill(t, (fill){host_address(t) + offset, NULL, size, value}) : status;
}

NRT_API NRT_STATUS nrt_memcpy_to_device(void *dst, const void *src, size_t size) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  int vnc = tnx_mem_device_of(dst);
  tnx_stream *s;
  if (!src || vnc < 0) return host_error(NRT_INVALID, "nrt_memcpy_to_device: not an address of device memory");
  status = host_stream(vnc, &s);
  return status == NRT_SUCCESS ? host_status(tnx_copy_to_device(dst, src, size, s, true), false) : status;
}

NRT_API size_t nrt_tensor_get_size(const nrt_tensor_t *t) { return host_is_tensor(t) ? t->size : 0; }
NRT_API void *nrt_tensor_get_va(const nrt_tensor_t *t) { return host_is_tensor(t) ? host_address(t) : NULL; }

NRT_API NRT_STATUS nrt_tensor_get_device_allocation_info(const nrt_tensor_t *t, nrt_tensor_device_allocation_info_t *out) {
  if (!host_is_tensor(t) || !t->storage) return NRT_INVALID_HANDLE;
  if (!out || t->storage->vnc < 0) return NRT_INVALID;
  *out = (nrt_tensor_device_allocation_info_t){(uint64_t)(uintptr_t)host_address(t), t->size, 0};
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_tensor_check_output_completion(const nrt_tensor_t *t, int64_t timeout_us, uint64_t expected_count) {
  if (!host_is_tensor(t)) return NRT_INVALID_HANDLE;
  struct timespec begin, now, nap = {0, 100000};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  while (atomic_load(&t->completions) < expected_count) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (timeout_us >= 0 && (now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 >= timeout_us) return NRT_TIMEOUT;
    nanosleep(&nap, NULL);
  }
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_tensor_reset_output_completion(nrt_tensor_t *t) {
  if (!host_is_tensor(t)) return NRT_INVALID_HANDLE;
  atomic_store(&t->completions, 0);
  return NRT_SUCCESS;
}

/* ---- sets ---- */

NRT_API NRT_STATUS nrt_allocate_tensor_set(nrt_tensor_set_t **out) {
  if (!out) return NRT_INVALID;
  host_set *s = tnx_heap_zalloc(1, sizeof *s);
  if (!s) return NRT_RESOURCE;
  s->mark = HOST_SET;
  *out = s;
  return NRT_SUCCESS;
}

NRT_API void nrt_destroy_tensor_set(nrt_tensor_set_t **set) {
  if (!set || !host_is_set(*set)) return;
  host_set *s = *set;
  s->mark = 0;
  for (uint32_t i = 0; i < s->n; i++) tnx_heap_free(s->entries[i].name);
  tnx_heap_free(s->entries);
  tnx_heap_free(s);
  *set = NULL;
}

static struct host_entry *find_entry(const host_set *s, const char *name, uint32_t hint) {
  if (hint < s->n && strcmp(s->entries[hint].name, name) == 0) return &s->entries[hint];
  for (uint32_t i = 0; i < s->n; i++)
    if (strcmp(s->entries[i].name, name) == 0) return &s->entries[i];
  return NULL;
}

nrt_tensor_t *host_set_find(const host_set *s, const char *name, uint32_t hint) {
  struct host_entry *e = find_entry(s, name, hint);
  return e ? e->tensor : NULL;
}

NRT_API NRT_STATUS nrt_add_tensor_to_tensor_set(nrt_tensor_set_t *set, const char *name, nrt_tensor_t *tensor) {
  if (!host_is_set(set) || !host_is_tensor(tensor)) return NRT_INVALID_HANDLE;
  if (!name || strlen(name) >= NRT_TENSOR_NAME_MAX) return NRT_INVALID;
  host_set *s = set;
  struct host_entry *e = find_entry(s, name, s->n);
  if (e) {
    e->tensor = tensor; /* a later tensor of a name replaces the earlier one */
    return NRT_SUCCESS;
  }
  if (s->n == s->cap) {
    uint32_t cap = s->cap ? s->cap * 2 : 16;
    e = tnx_heap_realloc(s->entries, cap * sizeof *e);
    if (!e) return NRT_RESOURCE;
    s->entries = e;
    s->cap = cap;
  }
  char *own = copy_name(name);
  if (!own) return NRT_RESOURCE;
  s->entries[s->n++] = (struct host_entry){own, tensor};
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_get_tensor_from_tensor_set(nrt_tensor_set_t *set, const char *name, nrt_tensor_t **out) {
  if (!host_is_set(set)) return NRT_INVALID_HANDLE;
  if (!name || !out) return NRT_INVALID;
  *out = host_set_find(set, name, UINT32_MAX);
  return *out ? NRT_SUCCESS : NRT_INVALID;
}
