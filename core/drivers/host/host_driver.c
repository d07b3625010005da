/* This machine's CPU as a device: segments are anonymous mappings, copies are memcpy.
 *
 * TNX_PROTECT=1 makes all segments of a device inaccessible while no task runs on it, so that code that touches device memory from the
 * host side faults at once instead of racing with a kernel. Invariant: a segment is accessible exactly while its device's
 * count of running tasks is above zero. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/vec.h"
#include "drivers/driver.h"
#include "runtime/sync.h"

typedef struct span { void *at; size_t bytes; } span;

/* State of the protection aid; unused without TNX_PROTECT=1. */
static struct {
  bool on;
  tnx_mutex lock; /* rank 80: spans, running */
  struct { TNX_VEC(span) spans; int running; } device[64];
} protect;

static uint64_t read_number(const char *path) {
  FILE *f = fopen(path, "re");
  if (!f) return UINT64_MAX;
  unsigned long long v = 0;
  bool ok = fscanf(f, "%llu", &v) == 1; /* "max" does not parse: no limit */
  fclose(f);
  return ok ? v : UINT64_MAX;
}

/* The tightest memory limit of the control groups this process is in (cgroup v2, every level up to the root; then v1). */
static uint64_t cgroup_limit(void) {
  uint64_t limit = UINT64_MAX;
  FILE *f = fopen("/proc/self/cgroup", "re");
  char line[1024], path[1200];
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "0::", 3)) continue;
    line[strcspn(line, "\n")] = 0;
    for (char *group = line + 3;;) {
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", strcmp(group, "/") ? group : "");
      uint64_t v = read_number(path);
      if (v < limit) limit = v;
      char *slash = strrchr(group, '/');
      if (!slash || group[1] == 0) break;
      slash[slash == group] = 0;
    }
  }
  if (f) fclose(f);
  uint64_t v1 = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  return v1 < limit ? v1 : limit;
}

static uint64_t physical_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : (uint64_t)1 << 32;
  uint64_t limit = cgroup_limit();
  return limit < bytes ? limit : bytes;
}

static void chip_name(char *out, size_t size) {
  snprintf(out, size, "CPU");
  FILE *f = fopen("/proc/cpuinfo", "re");
  char line[512];
  while (f && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (!colon || strncmp(line, "model name", 10)) continue;
    colon++;
    colon += strspn(colon, " \t");
    colon[strcspn(colon, "\n")] = 0;
    snprintf(out, size, "%.*s", (int)size - 1, colon);
    break;
  }
  if (f) fclose(f);
}

static tnx_status host_open(int devices) {
  const char *p = getenv("TNX_PROTECT");
  protect.on = p && strcmp(p, "1") == 0;
  return TNX_OK;
}

static tnx_status host_get_props(int device, int devices, tnx_device_props *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "host");
  chip_name(out->chip, sizeof out->chip);
  snprintf(out->driver, sizeof out->driver, "host");
  snprintf(out->isa, sizeof out->isa, "%s", tnx_isa_name(tnx_cpu_isa()));
  out->total_memory = physical_memory() / (uint64_t)devices / TNX_SEGMENT_ALIGN * TNX_SEGMENT_ALIGN;
  return TNX_OK;
}

static tnx_status host_segment_alloc(int device, size_t bytes, bool large, void **out) {
  void *p;
  TNX_TRY(tnx_segment_map(bytes, PROT_READ | PROT_WRITE, &p));
  if (large) madvise(p, bytes, MADV_HUGEPAGE);
  if (protect.on) {
    tnx_mutex_lock(&protect.lock);
    bool ok = tnx_vec_push(&protect.device[device].spans, ((span){p, bytes}));
    if (ok && protect.device[device].running == 0) mprotect(p, bytes, PROT_NONE);
    tnx_mutex_unlock(&protect.lock);
    if (!ok) {
      munmap(p, bytes);
      return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory to note a segment");
    }
  }
  *out = p;
  return TNX_OK;
}

static void host_segment_free(int device, void *segment, size_t bytes) {
  if (protect.on) {
    tnx_mutex_lock(&protect.lock);
    for (uint32_t i = 0; i < protect.device[device].spans.len; i++)
      if (protect.device[device].spans.data[i].at == segment) {
        protect.device[device].spans.data[i] = protect.device[device].spans.data[--protect.device[device].spans.len];
        break;
      }
    tnx_mutex_unlock(&protect.lock);
  }
  munmap(segment, bytes);
}

static uint64_t host_available(int device) {
  FILE *f = fopen("/proc/meminfo", "re");
  char line[256];
  unsigned long long kib;
  uint64_t bytes = UINT64_MAX;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = (uint64_t)kib << 10;
  if (f) fclose(f);
  return bytes;
}

static void set_access(int device, int access) {
  for (uint32_t i = 0; i < protect.device[device].spans.len; i++) mprotect(protect.device[device].spans.data[i].at, protect.device[device].spans.data[i].bytes, access);
}

static void host_work_begin(int device) {
  if (!protect.on) return;
  tnx_mutex_lock(&protect.lock);
  if (protect.device[device].running++ == 0) set_access(device, PROT_READ | PROT_WRITE);
  tnx_mutex_unlock(&protect.lock);
}

static void host_work_end(int device) {
  if (!protect.on) return;
  tnx_mutex_lock(&protect.lock);
  if (--protect.device[device].running == 0) set_access(device, PROT_NONE);
  tnx_mutex_unlock(&protect.lock);
}

const tnx_driver tnx_driver_host = {
    .name = "host",
    .open = host_open,
    .get_props = host_get_props,
    .segment_alloc = host_segment_alloc,
    .segment_free = host_segment_free,
    .available = host_available,
    .work_begin = host_work_begin,
    .work_end = host_work_end,
    .copy_to_device = tnx_memory_copy,
    .copy_to_host = tnx_memory_copy,
    .copy = tnx_memory_copy,
    .fill = tnx_memory_fill,
    .copy_piece = (size_t)512 << 10,
};
