/* Trainium through the Neuron runtime's C API (libnrt.so.1) and the neuronx-cc compiler: the driver's table, opening, and what devices there are.
 *
 * A device is a logical NeuronCore that the process may use, as the runtime counts them under NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES; its number is the
 * runtime's index. Plans are not kernels here but programs (program.c). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "drivers/trn/trn.h"

static struct {
  pthread_mutex_t lock; /* opened, closed */
  bool opened, closed;
  nrt_instance_info_t instance;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *family_name(uint32_t family) {
  switch (family) {
    case NRT_INSTANCE_INF2:
    case NRT_INSTANCE_INF2E: return "inf2";
    case NRT_INSTANCE_TRN1: return "trn1";
    case NRT_INSTANCE_TRN1N: return "trn1n";
    case NRT_INSTANCE_TRN2: return "trn2";
    case NRT_INSTANCE_TRN2N: return "trn2n";
    case NRT_INSTANCE_TRN2P: return "trn2p";
    case NRT_INSTANCE_TRN2U: return "trn2u";
    case NRT_INSTANCE_TRN2E:
    case NRT_INSTANCE_TRN2EU: return "trn2e";
    case NRT_INSTANCE_TRN2AC:
    case NRT_INSTANCE_TRN2UAC: return "trn2ac";
    case NRT_INSTANCE_TRN3:
    case NRT_INSTANCE_TRN3PDS98: return "trn3";
    default: return "neuron";
  }
}

static tnx_status trn_count(int *out) {
  uint32_t n = 0;
  const trn_library *nrt;
  TNX_TRY(trn_library_get(&nrt));
  TNX_TRY(trn_check(nrt->nrt_get_visible_vnc_count(&n), "nrt_get_visible_vnc_count"));
  *out = n > INT32_MAX ? INT32_MAX : (int)n;
  return TNX_OK;
}

tnx_status tnx_driver_trn_probe(void) {
  int n;
  TNX_TRY(trn_count(&n));
  if (n == 0)
    return tnx_fail(TNX_DEVICE, "TORCH_NEURONX_DRIVER=trn: %.300s was loaded but shows no NeuronCore (is the kernel module of aws-neuronx-dkms loaded, /dev/neuron0 there, "
                                "and NEURON_RT_VISIBLE_CORES right?)", trn_nrt.path);
  return TNX_OK;
}

static tnx_status init(void) {
  const trn_library *nrt;
  const trn_settings *settings;
  TNX_TRY(tnx_driver_trn_probe());
  TNX_TRY(trn_library_get(&nrt));
  TNX_TRY(trn_check(nrt->nrt_init(NRT_FRAMEWORK_TYPE_PYTORCH, "2.0", "1.0"), "nrt_init"));
  if (nrt->nrt_get_instance_info && nrt->nrt_get_instance_info(&state.instance, sizeof state.instance) != NRT_SUCCESS) memset(&state.instance, 0, sizeof state.instance);
  TNX_TRY(trn_settings_get((int)state.instance.family, &settings));
  trn_family_set((int)state.instance.family);
  nrt_version_t v = {0};
  if (nrt->nrt_get_version && nrt->nrt_get_version(&v, sizeof v) == NRT_SUCCESS)
    TNX_LOG(STREAM, "Neuron runtime %llu.%llu.%llu on %s", (unsigned long long)v.rt_major, (unsigned long long)v.rt_minor, (unsigned long long)v.rt_patch, family_name(state.instance.family));
  return TNX_OK;
}

static tnx_status trn_open(int devices) {
  pthread_mutex_lock(&state.lock);
  tnx_status status = state.opened ? TNX_OK : init();
  state.opened = status == TNX_OK;
  pthread_mutex_unlock(&state.lock);
  return status;
}

static void trn_close(void) {
  pthread_mutex_lock(&state.lock);
  if (state.opened && !state.closed && trn_nrt.nrt_close) trn_nrt.nrt_close();
  state.closed = true;
  pthread_mutex_unlock(&state.lock);
}

/* What a logical core can use where the runtime does not say: 16 GiB; TORCH_NEURONX_MEMORY_LIMIT lowers it. */
static const uint64_t UNKNOWN_MEMORY = (uint64_t)16 << 30;

static nrt_vnc_memory_stats_t memory_stats(int device) {
  nrt_vnc_memory_stats_t m = {0};
  size_t got = 0;
  if (!trn_nrt.nrt_get_vnc_memory_stats || trn_nrt.nrt_get_vnc_memory_stats((uint32_t)device, &m, sizeof m, &got) != NRT_SUCCESS) memset(&m, 0, sizeof m);
  return m;
}

static tnx_status trn_get_props(int device, int devices, tnx_device_props *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "%s", family_name(state.instance.family));
  snprintf(out->chip, sizeof out->chip, "%.16s %.8s", state.instance.arch_name, state.instance.device_revision);
  snprintf(out->driver, sizeof out->driver, "trn");
  out->total_memory = memory_stats(device).bytes_limit;
  if (!out->total_memory) out->total_memory = UNKNOWN_MEMORY;
  return TNX_OK;
}

static uint64_t trn_available(int device) {
  nrt_vnc_memory_stats_t m = memory_stats(device);
  return m.bytes_limit ? m.bytes_limit - (m.bytes_used < m.bytes_limit ? m.bytes_used : m.bytes_limit) : UINT64_MAX;
}

const tnx_driver tnx_driver_trn = {
    .name = "trn",
    .open = trn_open,
    .close = trn_close,
    .count = trn_count,
    .get_props = trn_get_props,
    .segment_alloc = trn_segment_alloc,
    .segment_free = trn_segment_free,
    .available = trn_available,
    .copy_to_device = trn_copy_to_device,
    .copy_to_host = trn_copy_to_host,
    .copy = trn_copy,
    .fill = trn_fill,
    .copy_piece = 0,
    .programs = &trn_programs,
};
