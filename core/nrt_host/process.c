/* libnrt on the host device: initialisation, cores, status, faults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "drivers/driver.h"
#include "nrt_host/host.h"

enum { MAX_CORES = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards opening and closing; rank: above all of libtnx's */
static _Atomic int state;                                /* 0 never initialised, 1 open, 2 closed */
static _Atomic bool dead[MAX_CORES];
static _Atomic int models[MAX_CORES];

/* The copy of libtnx in this library runs on the host, whatever TORCH_NEURONX_DRIVER says about the one outside: its definition here is linked instead of drivers/driver.c. */
tnx_status tnx_driver_select(const tnx_driver **out) {
  *out = &tnx_driver_host;
  return TNX_OK;
}

/* ---- messages ---- */

NRT_STATUS host_error(NRT_STATUS status, const char *fmt, ...) {
  const char *level = getenv("NEURON_RT_LOG_LEVEL");
  if (level && (strcasecmp(level, "FATAL") == 0 || strcasecmp(level, "CRITICAL") == 0)) return status;
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fprintf(stderr, "ERROR  NRT: %s: %s\n", nrt_get_status_as_str(status), text);
  return status;
}

NRT_STATUS host_status(tnx_status s, bool executing) {
  NRT_STATUS status;
  switch (s) {
    case TNX_OK: return NRT_SUCCESS;
    case TNX_OUT_OF_MEMORY: status = NRT_RESOURCE; break;
    case TNX_TIMEOUT: status = NRT_TIMEOUT; break;
    case TNX_INDEX: status = executing ? NRT_EXEC_OOB : NRT_INVALID; break;
    case TNX_INVALID_ARGUMENT:
    case TNX_SHAPE:
    case TNX_DTYPE:
    case TNX_OVERFLOW:
    case TNX_PARSE: status = executing ? NRT_EXEC_BAD_INPUT : NRT_INVALID; break;
    case TNX_NOT_IMPLEMENTED: status = executing ? NRT_FAILURE : NRT_UNSUPPORTED_NEFF_VERSION; break;
    default: status = executing ? NRT_EXEC_COMPLETED_WITH_ERR : NRT_FAILURE;
  }
  return host_error(status, "%s", tnx_error_text());
}

NRT_API const char *nrt_get_status_as_str(NRT_STATUS status) {
  switch (status) {
#define NRT_X(name, value, meaning) case name: return #name;
    NRT_STATUS_LIST(NRT_X)
#undef NRT_X
  }
  return "NRT_UNKNOWN_STATUS";
}

/* ---- faults ---- */

static struct { _Atomic uint64_t calls; uint64_t at; bool later; } faults[HOST_FAULT_COUNT];

NRT_STATUS host_faults_read(void) {
  static const char *const names[HOST_FAULT_COUNT] = {"alloc", "load", "execute", "timeout", "terminal"};
  const char *s = getenv("NRT_HOST_FAULT");
  for (int k = 0; k < HOST_FAULT_COUNT; k++) {
    faults[k].calls = 0;
    faults[k].at = 0;
    faults[k].later = false;
  }
  while (s && *s) {
    int k = 0;
    while (k < HOST_FAULT_COUNT && !(strncmp(s, names[k], strlen(names[k])) == 0 && s[strlen(names[k])] == ':')) k++;
    if (k == HOST_FAULT_COUNT) return host_error(NRT_INVALID, "NRT_HOST_FAULT: alloc, load, execute, timeout or terminal, a colon and a number expected at '%s'", s);
    char *end;
    s += strlen(names[k]) + 1;
    faults[k].at = strtoull(s, &end, 10);
    if (end == s || !faults[k].at) return host_error(NRT_INVALID, "NRT_HOST_FAULT: a number from 1 on expected at '%s'", s);
    faults[k].later = *end == '+';
    s = end + (*end == '+');
    if (*s == ',') s++;
    else if (*s) return host_error(NRT_INVALID, "NRT_HOST_FAULT: a comma expected at '%s'", s);
  }
  return NRT_SUCCESS;
}

bool host_fault_now(host_fault kind) {
  uint64_t n = atomic_fetch_add(&faults[kind].calls, 1) + 1;
  return faults[kind].at && (n == faults[kind].at || (faults[kind].later && n > faults[kind].at));
}

/* ---- process ---- */

NRT_STATUS host_ready(void) {
  int s = atomic_load(&state);
  if (s == 1) return NRT_SUCCESS;
  return s ? host_error(NRT_CLOSED, "the runtime is closed") : host_error(NRT_UNINITIALIZED, "nrt_init was not called");
}

NRT_API NRT_STATUS nrt_init(nrt_framework_type_t framework, const char *fw_version, const char *fal_version) {
  if (framework <= NRT_FRAMEWORK_TYPE_INVALID || framework > NRT_FRAMEWORK_TYPE_PRECHECK) return host_error(NRT_INVALID, "nrt_init: an unknown framework");
  pthread_mutex_lock(&lock);
  NRT_STATUS status = NRT_SUCCESS;
  if (atomic_load(&state) != 1) {
    status = host_faults_read();
    if (status == NRT_SUCCESS) status = host_status(tnx_runtime_open(), false);
    if (status == NRT_SUCCESS) {
      for (int i = 0; i < MAX_CORES; i++) dead[i] = false;
      host_lapack_provide();
      atomic_store(&state, 1);
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}

NRT_API void nrt_close(void) {
  pthread_mutex_lock(&lock);
  if (atomic_load(&state) == 1) {
    host_async_close();
    tnx_runtime_close();
    atomic_store(&state, 2);
  }
  pthread_mutex_unlock(&lock);
}

NRT_API NRT_STATUS nrt_get_version(nrt_version_t *out, size_t size) {
  if (!out || size < sizeof *out) return NRT_INVALID;
  *out = (nrt_version_t){.rt_major = NRT_MAJOR_VERSION, .rt_minor = NRT_MINOR_VERSION, .rt_detail = "host device"};
  return NRT_SUCCESS;
}

/* Programs are those of the family they were compiled for: NRT_HOST_FAMILY, trn2 where it is not set. */
NRT_API NRT_STATUS nrt_get_instance_info(nrt_instance_info_t *out, size_t size) {
  static const struct { const char *name; uint32_t family; } families[] = {
      {"trn2", NRT_INSTANCE_TRN2}, {"trn1", NRT_INSTANCE_TRN1}, {"trn1n", NRT_INSTANCE_TRN1N}, {"inf2", NRT_INSTANCE_INF2}, {"trn2u", NRT_INSTANCE_TRN2U}, {"trn3", NRT_INSTANCE_TRN3}};
  if (!out || size < sizeof *out) return NRT_INVALID;
  const char *want = getenv("NRT_HOST_FAMILY");
  size_t k = 0;
  while (want && k < sizeof families / sizeof *families && strcmp(families[k].name, want) != 0) k++;
  if (k == sizeof families / sizeof *families) return host_error(NRT_INVALID, "NRT_HOST_FAMILY: '%s' is not an instance family", want);
  *out = (nrt_instance_info_t){.family = families[k].family, .size = NRT_INSTANCE_SIZE_UNKNOWN, .arch_name = "host", .device_revision = "0"};
  return NRT_SUCCESS;
}

/* ---- cores ---- */

static NRT_STATUS core_count(uint32_t *out) {
  if (!out) return NRT_INVALID;
  int n = tnx_device_count();
  if (n <= 0) return host_error(NRT_INVALID, "the variables NEURON_RT_* name no cores");
  *out = (uint32_t)n;
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_get_total_vnc_count(uint32_t *out) { return core_count(out); }
NRT_API NRT_STATUS nrt_get_visible_vnc_count(uint32_t *out) { return core_count(out); }
NRT_API NRT_STATUS nrt_get_total_nc_count(uint32_t *out) { return core_count(out); }
NRT_API NRT_STATUS nrt_get_visible_nc_count(uint32_t *out) { return core_count(out); }

bool host_vnc_exists(int64_t vnc) { return vnc >= 0 && vnc < tnx_device_count() && vnc < MAX_CORES; }

NRT_STATUS host_stream(int vnc, tnx_stream **out) { return host_status(tnx_stream_default(vnc, out), false); }

NRT_STATUS host_core_status(int vnc) { return dead[vnc] ? host_error(NRT_EXEC_UNIT_UNRECOVERABLE, "core %d does not run until the runtime is initialised anew", vnc) : NRT_SUCCESS; }
void host_core_fail(int vnc) { dead[vnc] = true; }
void host_model_loaded(int vnc, int change) { models[vnc] += change; }
int host_free_core(void) {
  int best = 0, n = tnx_device_count();
  for (int i = 1; i < n && i < MAX_CORES; i++)
    if (models[i] < models[best]) best = i;
  return best;
}

NRT_API NRT_STATUS nrt_get_vnc_memory_stats(uint32_t vnc, nrt_vnc_memory_stats_t *out, size_t size_in, size_t *size_out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!out || size_in < sizeof *out || !host_vnc_exists(vnc)) return NRT_INVALID;
  tnx_mem_stats stats;
  tnx_device_props props;
  tnx_status s = tnx_mem_get_stats((int)vnc, &stats);
  if (s == TNX_OK) s = tnx_device_get_props((int)vnc, &props);
  if (s != TNX_OK) return host_status(s, false);
  *out = (nrt_vnc_memory_stats_t){(size_t)stats.allocated_bytes[TNX_POOL_ALL].current, (size_t)props.total_memory};
  if (size_out) *size_out = sizeof *out;
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_host_device_id_get(int neuron_dev, uint32_t *out) {
  if (!out || neuron_dev != 0) return NRT_INVALID; /* all cores are one device's */
  *out = 0;
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_host_device_id_rid_map_get(uint32_t *count, uint32_t *map) {
  if (!count || (*count && !map)) return NRT_INVALID;
  if (*count) map[0] = 0;
  *count = 1;
  return NRT_SUCCESS;
}

/* ---- what the host has not ---- */

static NRT_STATUS none(const char *name) { return host_error(NRT_FAILURE, "%s: not supported by the host device", name); }
NRT_API NRT_STATUS nrt_get_hbm_mmap_va(int device_id, int hbm_idx, void **addr, size_t *size) { return none(__func__); }
NRT_API NRT_STATUS nrt_get_attached_efa_bdf(const void *va, char *bdf, size_t *len) { return none(__func__); }
NRT_API NRT_STATUS nrt_get_dmabuf_fd(uint64_t va, uint64_t size, int *fd) { return none(__func__); }
NRT_API NRT_STATUS nrt_trace_start(bool trace_mem) { return none(__func__); }
NRT_API NRT_STATUS nrt_trace_stop(const char *filename) { return none(__func__); }
NRT_API NRT_STATUS nrt_profile_start(nrt_model_t *model, const char *filename) { return none(__func__); }
NRT_API NRT_STATUS nrt_profile_stop(const char *filename) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_begin(void) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_stop(void) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_begin_with_options(nrt_inspect_config_t *config) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_config_allocate(nrt_inspect_config_t **out) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_config_set_defaults(nrt_inspect_config_t *config) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_config_free(nrt_inspect_config_t *config) { return none(__func__); }
NRT_API NRT_STATUS nrt_inspect_config_set_output_dir(nrt_inspect_config_t *config, const char *folder) { return none(__func__); }

/* ---- collectives: one process is a group of one; larger groups have no transport here ---- */

static NRT_STATUS alone(const char *name, uint32_t id, uint32_t count) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (count == 0 || id >= count) return host_error(NRT_INVALID, "%s: number %u of %u", name, id, count);
  return count == 1 ? NRT_SUCCESS : none(name);
}
NRT_API NRT_STATUS nrt_barrier(int32_t vnc, uint32_t id, uint32_t count) { return alone(__func__, id, count); }
NRT_API NRT_STATUS nrt_build_global_comm(int32_t vnc, uint32_t g_device_id, uint32_t g_device_count) { return alone(__func__, g_device_id, g_device_count); }
NRT_API NRT_STATUS nrt_cc_global_comm_init(uint32_t vnc, uint32_t g_device_id, uint32_t g_device_count) { return alone(__func__, g_device_id, g_device_count); }
NRT_API NRT_STATUS nrt_all_gather(int32_t vnc, uint32_t id, uint32_t count, uint32_t rank_input_size, void *in, void *out) {
  NRT_STATUS status = alone(__func__, id, count);
  if (status != NRT_SUCCESS) return status;
  if (rank_input_size && (!in || !out)) return NRT_INVALID;
  if (rank_input_size) memmove(out, in, rank_input_size);
  return NRT_SUCCESS;
}
