/* What drivers share whose device memory is this process's. */
#include <string.h>
#include <sys/mman.h>

#include "drivers/driver.h"

tnx_status tnx_segment_map(size_t bytes, int protection, void **out) {
  /* More than asked for, and both ends given back: the kernel aligns to pages only. */
  size_t mapped = bytes + TNX_SEGMENT_ALIGN;
  if (mapped < bytes) return tnx_fail(TNX_OUT_OF_MEMORY, "a segment of %zu bytes does not fit the address space", bytes);
  unsigned char *raw = mmap(NULL, mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return tnx_fail(TNX_OUT_OF_MEMORY, "the system gave no mapping of %zu bytes", mapped);
  unsigned char *p = (unsigned char *)(((uintptr_t)raw + TNX_SEGMENT_ALIGN - 1) & ~(uintptr_t)(TNX_SEGMENT_ALIGN - 1));
  if (p > raw) munmap(raw, (size_t)(p - raw));
  if (p + bytes < raw + mapped) munmap(p + bytes, (size_t)(raw + mapped - (p + bytes)));
  *out = p;
  return TNX_OK;
}

tnx_status tnx_memory_copy(int device, void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
  return TNX_OK;
}

tnx_status tnx_memory_fill(int device, void *dst, uint8_t value, size_t bytes) {
  memset(dst, value, bytes);
  return TNX_OK;
}
