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

static tnx_status offline_segment_alloc(int device, size_t bytes, bool large, void **out) { return tnx_segment_map(bytes, PROT_READ | PROT_WRITE, out); }
static void offline_segment_free(int device, void *segment, size_t bytes) { munmap(segment, bytes); }
static uint64_t offline_available(int device) { return UINT64_MAX; }

static tnx_status offline_create(const tnx_program_source *source, tnx_program **out) {
  const trn_settings *s;
  TNX_TRY(trn_settings_get(-1, &s));
  if (!s->cache[0]) return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_COMPILE_ONLY=1 needs a folder to keep programs in: TORCH_NEURONX_NEFF_CACHE_DIR");
  trn_key key;
  char path[TRN_PATH_BYTES];
  trn_key_make(s, source->text, source->text_bytes, &key);
  TNX_TRY(trn_cache_make_folder(s, &key));
  trn_cache_path(s, &key, ".mlir", path);
  TNX_TRY(trn_file_write(path, source->text, source->text_bytes));
  return trn_programs.create(source, out);
}

/* What the compiler refuses is kept, and the next program goes on: the report is about all of them. */
static tnx_status offline_run(tnx_program *p, int device, const tnx_operand *inputs, const tnx_operand *outputs) {
  const trn_settings *s;
  trn_key key;
  char path[TRN_PATH_BYTES];
  TNX_TRY(trn_settings_get(-1, &s));
  tnx_status status = trn_program_wait(p, &key);
  trn_cache_path(s, &key, ".txt", path);
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
    .copy_to_device = tnx_memory_copy,
    .copy_to_host = tnx_memory_copy,
    .copy = tnx_memory_copy,
    .fill = tnx_memory_fill,
    .programs = &offline_programs,
};
