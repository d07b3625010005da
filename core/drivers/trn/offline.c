/* TORCH_NEURONX_COMPILE_ONLY=1: programs are compiled and kept, and nothing is executed. Needs neither the hardware nor libnrt.so.1.
 *
 * Device memory is this machine's, untouched but by copies, so a model's weights can be loaded; what programs would write is whatever was there, zeros at first. Every
 * program goes to the cache folder as StableHLO (<key>.mlir), and as a NEFF where the compiler is installed and takes it; what it says otherwise is <key>.txt. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/trn/trn.h"

static tnx_status offline_open(int devices) {
  const trn_settings *s;
  return trn_settings_get(-1, &s);
}

static tnx_status offline_get_props(int device, int devices, tnx_device_props *out) {
  const trn_settings *s;
  TNX_TRY(trn_settings_get(-1, &s));
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "%s", s->target);
  snprintf(out->chip, sizeof out->chip, "none: programs are only compiled");
  snprintf(out->driver, sizeof out->driver, "trn");
  out->total_memory = (uint64_t)1 << 40; /* addresses; memory is taken when it is written */
  return TNX_OK;
}

static tnx_status offline_segment_alloc(int device, size_t bytes, bool large, void **out) {
  size_t mapped = bytes + TNX_SEGMENT_ALIGN;
  unsigned char *raw = mapped < bytes ? MAP_FAILED : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return tnx_fail(TNX_OUT_OF_MEMORY, "the system gave no mapping of %zu bytes", mapped);
  unsigned char *p = (unsigned char *)(((uintptr_t)raw + TNX_SEGMENT_ALIGN - 1) & ~(uintptr_t)(TNX_SEGMENT_ALIGN - 1));
  if (p > raw) munmap(raw, (size_t)(p - raw));
  if (p + bytes < raw + mapped) munmap(p + bytes, (size_t)(raw + mapped - (p + bytes)));
  *out = p;
  return TNX_OK;
}

static void offline_segment_free(int device, void *segment, size_t bytes) { munmap(segment, bytes); }
static uint64_t offline_available(int device) { return UINT64_MAX; }

static tnx_status offline_copy(int device, void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
  return TNX_OK;
}

static tnx_status offline_fill(int device, void *dst, uint8_t value, size_t bytes) {
  memset(dst, value, bytes);
  return TNX_OK;
}

static void path_in_cache(const trn_settings *s, const trn_key *k, const char *suffix, char *out, size_t size) {
  snprintf(out, size, "%s/%.2s/%s%s", s->cache, k->text, k->text, suffix);
}

static tnx_status offline_create(const tnx_program_source *source, tnx_program **out) {
  const trn_settings *s;
  TNX_TRY(trn_settings_get(-1, &s));
  if (!s->cache[0]) return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_COMPILE_ONLY=1 needs a folder to keep programs in: TORCH_NEURONX_NEFF_CACHE_DIR");
  trn_key key;
  char path[1100];
  trn_key_make(s, source->text, source->text_bytes, &key);
  snprintf(path, sizeof path, "%s/%.2s", s->cache, key.text);
  TNX_TRY(trn_folder_make(path));
  path_in_cache(s, &key, ".mlir", path, sizeof path);
  TNX_TRY(trn_file_write(path, source->text, source->text_bytes));
  return trn_programs.create(source, out);
}

/* What the compiler refuses is kept, and the next program goes on: the report is about all of them. */
static tnx_status offline_run(tnx_program *p, int device, const tnx_operand *inputs, const tnx_operand *outputs) {
  const trn_settings *s;
  trn_key key;
  char path[1100];
  TNX_TRY(trn_settings_get(-1, &s));
  tnx_status status = trn_program_wait(p, &key);
  path_in_cache(s, &key, ".txt", path, sizeof path);
  if (status != TNX_OK) return trn_file_write(path, tnx_error_text(), strlen(tnx_error_text()));
  unlink(path);
  return TNX_OK;
}

static void offline_release(tnx_program *p) { trn_programs.release(p); }
static void offline_stats(tnx_program_stats *out) { trn_programs.stats(out); }

static const tnx_program_driver offline_programs = {.create = offline_create, .run = offline_run, .release = offline_release, .stats = offline_stats};

const tnx_driver tnx_driver_trn_offline = {
    .name = "trn",
    .open = offline_open,
    .get_props = offline_get_props,
    .segment_alloc = offline_segment_alloc,
    .segment_free = offline_segment_free,
    .available = offline_available,
    .copy_to_device = offline_copy,
    .copy_to_host = offline_copy,
    .copy = offline_copy,
    .fill = offline_fill,
    .programs = &offline_programs,
};
