/* Page-aligned ("pinned") host memory and the table that recognises it. On the host driver pinning needs no registration. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/vec.h"
#include "runtime/state.h"

typedef struct range { uintptr_t at; size_t bytes; } range;

static struct {
  tnx_mutex lock; /* rank 70 */
  TNX_VEC(range) ranges; /* sorted by address */
} table; /* part of the runtime object */

/* Index of the first range that ends behind `a`. */
static uint32_t position(uintptr_t a) {
  uint32_t low = 0, high = table.ranges.len;
  while (low < high) {
    uint32_t mid = low + (high - low) / 2;
    if (table.ranges.data[mid].at + table.ranges.data[mid].bytes <= a) low = mid + 1;
    else high = mid;
  }
  return low;
}

tnx_status tnx_host_alloc(size_t bytes, void **out) {
  *out = NULL;
  if (tnx_runtime_in_bad_fork()) return tnx_runtime_open(); /* reports it */
  if (bytes == 0) return TNX_OK;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
  if (size < bytes) return tnx_fail(TNX_OUT_OF_MEMORY, "%zu bytes of pinned host memory do not fit the address space", bytes);
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return tnx_fail(TNX_OUT_OF_MEMORY, "the system gave no %zu bytes of pinned host memory", bytes);
  tnx_mutex_lock(&table.lock);
  bool ok = tnx_vec_reserve(&table.ranges, table.ranges.len + 1);
  if (ok) {
    uint32_t i = position((uintptr_t)p);
    memmove(table.ranges.data + i + 1, table.ranges.data + i, (table.ranges.len - i) * sizeof(range));
    table.ranges.data[i] = (range){(uintptr_t)p, size};
    table.ranges.len++;
  }
  tnx_mutex_unlock(&table.lock);
  if (!ok) {
    munmap(p, size);
    return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to note a pinned range");
  }
  *out = p;
  return TNX_OK;
}

void tnx_host_free(void *ptr) {
  if (!ptr || tnx_runtime_in_bad_fork()) return;
  size_t bytes = 0;
  tnx_mutex_lock(&table.lock);
  uint32_t i = position((uintptr_t)ptr);
  if (i < table.ranges.len && table.ranges.data[i].at == (uintptr_t)ptr) {
    bytes = table.ranges.data[i].bytes;
    memmove(table.ranges.data + i, table.ranges.data + i + 1, (table.ranges.len - i - 1) * sizeof(range));
    table.ranges.len--;
  }
  tnx_mutex_unlock(&table.lock);
  if (bytes) munmap(ptr, bytes);
}

bool tnx_host_is_pinned(const void *ptr) {
  if (tnx_runtime_in_bad_fork()) return false;
  tnx_mutex_lock(&table.lock);
  uint32_t i = position((uintptr_t)ptr);
  bool found = i < table.ranges.len && table.ranges.data[i].at <= (uintptr_t)ptr;
  tnx_mutex_unlock(&table.lock);
  return found;
}
