/* Device memory: a segment of the allocator is one tensor of the runtime, known by a range of addresses that is reserved for it and can be neither read nor written.
 * Code that takes device memory for host memory therefore faults where it does so. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "drivers/trn/trn.h"

typedef struct segment { uintptr_t address; size_t bytes; nrt_tensor_t *tensor; int device; } segment;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* segments */
static TNX_VEC(segment) segments;                           /* by address */
static _Atomic uint64_t generation;

uint64_t trn_memory_generation(void) { return atomic_load_explicit(&generation, memory_order_acquire); }

/* The first segment that ends behind the address. */
static uint32_t find(uintptr_t address) {
  uint32_t low = 0, high = segments.len;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (segments.data[mid].address + segments.data[mid].bytes > address) high = mid;
    else low = mid + 1;
  }
  return low;
}

tnx_status trn_segment_alloc(int device, size_t bytes, bool large, void **out) {
  TNX_TRY(trn_alive());
  void *at;
  if (tnx_segment_map(bytes, PROT_NONE, &at) != TNX_OK) return tnx_fail(TNX_OUT_OF_MEMORY, "no addresses for a segment of %zu bytes", bytes);
  segment s = {(uintptr_t)at, bytes, NULL, device};
  tnx_status status = trn_check(trn_nrt.nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, device, bytes, NULL, &s.tensor), "nrt_tensor_allocate");
  if (status == TNX_OK) {
    pthread_rwlock_wrlock(&lock);
    uint32_t i = find(s.address);
    if (tnx_vec_push(&segments, s)) {
      memmove(segments.data + i + 1, segments.data + i, (segments.len - 1 - i) * sizeof s);
      segments.data[i] = s;
    } else {
      status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to note a segment");
    }
    pthread_rwlock_unlock(&lock);
    if (status != TNX_OK) trn_nrt.nrt_tensor_free(&s.tensor);
  }
  if (status != TNX_OK) munmap(at, bytes);
  else *out = at;
  return status;
}

void trn_segment_free(int device, void *at, size_t bytes) {
  nrt_tensor_t *tensor = NULL;
  pthread_rwlock_wrlock(&lock);
  uint32_t i = find((uintptr_t)at);
  if (i < segments.len && segments.data[i].address == (uintptr_t)at) {
    tensor = segments.data[i].tensor;
    memmove(segments.data + i, segments.data + i + 1, (segments.len - 1 - i) * sizeof *segments.data);
    segments.len--;
  }
  pthread_rwlock_unlock(&lock);
  atomic_fetch_add_explicit(&generation, 1, memory_order_release);
  if (tensor) trn_nrt.nrt_tensor_free(&tensor);
  munmap(at, bytes);
}

tnx_status trn_place_of(const void *address, size_t bytes, trn_place *out) {
  uintptr_t a = (uintptr_t)address;
  pthread_rwlock_rdlock(&lock);
  uint32_t i = find(a);
  bool inside = i < segments.len && a >= segments.data[i].address && bytes <= segments.data[i].bytes - (a - segments.data[i].address);
  if (inside) *out = (trn_place){segments.data[i].tensor, a - segments.data[i].address};
  pthread_rwlock_unlock(&lock);
  return inside ? TNX_OK : tnx_fail(TNX_INTERNAL, "%zu bytes at %p are not inside one segment of device memory", bytes, address);
}

tnx_status trn_copy_to_device(int device, void *dst, const void *src, size_t bytes) {
  trn_place p;
  TNX_TRY(trn_alive());
  TNX_TRY(trn_place_of(dst, bytes, &p));
  return trn_check(trn_nrt.nrt_tensor_write(p.tensor, src, p.offset, bytes), "nrt_tensor_write");
}

tnx_status trn_copy_to_host(int device, void *dst, const void *src, size_t bytes) {
  trn_place p;
  TNX_TRY(trn_alive());
  TNX_TRY(trn_place_of(src, bytes, &p));
  return trn_check(trn_nrt.nrt_tensor_read(p.tensor, dst, p.offset, bytes), "nrt_tensor_read");
}

/* Through host memory, by pieces: what a runtime without the device's own copy or fill can do. */
enum { PIECE = 1 << 20 };

static tnx_status copy_by_pieces(int device, char *dst, const char *src, size_t bytes) {
  void *piece = tnx_heap_alloc(bytes < PIECE ? bytes : PIECE);
  if (!piece) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to copy through");
  tnx_status status = TNX_OK;
  for (size_t at = 0, n; at < bytes && status == TNX_OK; at += n) {
    n = bytes - at < PIECE ? bytes - at : PIECE;
    status = trn_copy_to_host(device, piece, src + at, n);
    if (status == TNX_OK) status = trn_copy_to_device(device, dst + at, piece, n);
  }
  tnx_heap_free(piece);
  return status;
}

tnx_status trn_copy(int device, void *dst, const void *src, size_t bytes) {
  trn_place to, from;
  TNX_TRY(trn_alive());
  TNX_TRY(trn_place_of(dst, bytes, &to));
  TNX_TRY(trn_place_of(src, bytes, &from));
  if (!trn_nrt.nrt_tensor_copy) return copy_by_pieces(device, dst, src, bytes);
  return trn_check(trn_nrt.nrt_tensor_copy(from.tensor, from.offset, to.tensor, to.offset, bytes), "nrt_tensor_copy");
}

tnx_status trn_fill(int device, void *dst, uint8_t value, size_t bytes) {
  trn_place p;
  TNX_TRY(trn_alive());
  TNX_TRY(trn_place_of(dst, bytes, &p));
  if (trn_nrt.nrt_tensor_memset) return trn_check(trn_nrt.nrt_tensor_memset(p.tensor, p.offset, value, bytes), "nrt_tensor_memset");
  size_t n = bytes < PIECE ? bytes : PIECE;
  void *piece = tnx_heap_alloc(n);
  if (!piece) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to fill from");
  memset(piece, value, n);
  tnx_status status = TNX_OK;
  for (size_t at = 0; at < bytes && status == TNX_OK; at += n)
    status = trn_check(trn_nrt.nrt_tensor_write(p.tensor, piece, p.offset + at, bytes - at < n ? bytes - at : n), "nrt_tensor_write");
  tnx_heap_free(piece);
  return status;
}
