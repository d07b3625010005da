/* libnrt on the host device: loading and executing programs. */
#include <string.h>

#include "base/alloc.h"
#include "nrt_host/host.h"

/* ---- loading ---- */

static void destroy(nrt_model_t *m) {
  m->mark = 0;
  tnx_planned_routine_destroy(m->planned);
  tnx_neff_fini(&m->neff);
  tnx_heap_free(m->data);
  tnx_heap_free(m);
}

static tnx_status load(nrt_model_t *m, const void *neff, size_t size) {
  if (!(m->data = tnx_heap_alloc(size ? size : 1))) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  if (size) memcpy(m->data, neff, size);
  TNX_TRY(tnx_neff_read(&m->neff, m->data, size));
  tnx_routine *r;
  TNX_TRY(tnx_routine_from_stablehlo("neff", m->neff.module, m->neff.module_bytes, 0, &r));
  bool same = r->n_inputs == m->neff.n_inputs && r->n_inputs + r->outputs.len == m->neff.n_tensors;
  for (uint32_t i = 0; same && i < m->neff.n_tensors; i++)
    same = tnx_type_bytes(&r->values.data[i < r->n_inputs ? i : r->outputs.data[i - r->n_inputs]]) == m->neff.tensors[i].bytes;
  tnx_status status = same ? tnx_routine_plan(r, &m->planned) : tnx_fail(TNX_PARSE, "the NEFF's tensors are not those of its module");
  if (status != TNX_OK) tnx_routine_destroy(r);
  return status;
}

NRT_API NRT_STATUS nrt_load(const void *neff, size_t size, int32_t vnc, int32_t vnc_count, nrt_model_t **out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!out || !neff || (vnc != -1 && !host_vnc_exists(vnc))) return host_error(NRT_INVALID, "nrt_load: no core %d, or no program", vnc);
  if (vnc_count != -1 && vnc_count != 1) return host_error(NRT_LOAD_NOT_ENOUGH_NC, "nrt_load: a program runs on one core, %d were asked for", vnc_count);
  *out = NULL;
  if (host_fault_now(HOST_FAULT_LOAD)) return host_error(NRT_RESOURCE, "nrt_load: the program could not be loaded (NRT_HOST_FAULT)");
  nrt_model_t *m = tnx_heap_zalloc(1, sizeof *m);
  if (!m) return NRT_RESOURCE;
  tnx_status s = load(m, neff, size);
  if (s != TNX_OK) {
    destroy(m);
    return host_status(s, false);
  }
  m->mark = HOST_MODEL;
  m->vnc = vnc == -1 ? host_free_core() : vnc;
  host_model_loaded(m->vnc, 1);
  *out = m;
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrt_load_collectives(const void *neff, size_t size, int32_t vnc, int32_t vnc_count, uint32_t ctx_device_id, uint32_t ctx_device_count, nrt_model_t **out) {
  if (ctx_device_count == 0 || ctx_device_id >= ctx_device_count) return host_error(NRT_INVALID, "nrt_load_collectives: number %u of %u", ctx_device_id, ctx_device_count);
  return nrt_load(neff, size, vnc, vnc_count, out);
}

NRT_API NRT_STATUS nrt_unload(nrt_model_t *m) {
  if (!host_is_model(m)) return NRT_INVALID_HANDLE;
  host_model_loaded(m->vnc, -1);
  destroy(m);
  return NRT_SUCCESS;
}

/* ---- what a model is ---- */

static NRT_STATUS one(const nrt_model_t *m, uint32_t *out) {
  if (!host_is_model(m)) return NRT_INVALID_HANDLE;
  if (!out) return NRT_INVALID;
  *out = 1;
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_get_model_nc_count(const nrt_model_t *m, uint32_t *out) { return one(m, out); }
NRT_API NRT_STATUS nrt_get_model_vnc_count(const nrt_model_t *m, uint32_t *out) { return one(m, out); }
NRT_API NRT_STATUS nrt_get_model_instance_count(nrt_model_t *m, uint32_t *out) { return one(m, out); }

NRT_API NRT_STATUS nrt_get_model_info(const nrt_model_t *m, nrt_model_info_t *out, size_t size_in, size_t *size_out) {
  if (!host_is_model(m)) return NRT_INVALID_HANDLE;
  if (!out || size_in < sizeof *out) return NRT_INVALID;
  out->vnc = (uint32_t)m->vnc;
  if (size_out) *size_out = sizeof *out;
  return NRT_SUCCESS;
}

/* bool is a byte; float64 and complex numbers have no name there. */
static nrt_dtype_t dtype_of(uint8_t t) {
  static const uint8_t table[TNX_DTYPE_COUNT] = {
      [TNX_BOOL] = NRT_DTYPE_UINT8,   [TNX_U8] = NRT_DTYPE_UINT8,     [TNX_I8] = NRT_DTYPE_INT8,    [TNX_I16] = NRT_DTYPE_INT16,      [TNX_I32] = NRT_DTYPE_INT32,
      [TNX_I64] = NRT_DTYPE_INT64,    [TNX_U16] = NRT_DTYPE_UINT16,   [TNX_U32] = NRT_DTYPE_UINT32, [TNX_U64] = NRT_DTYPE_UINT64,     [TNX_F8E4M3] = NRT_DTYPE_FP8_E4,
      [TNX_F8E5M2] = NRT_DTYPE_FP8_E5, [TNX_F16] = NRT_DTYPE_FLOAT16, [TNX_BF16] = NRT_DTYPE_BFLOAT16, [TNX_F32] = NRT_DTYPE_FLOAT32};
  return (nrt_dtype_t)table[t];
}

NRT_API NRT_STATUS nrt_get_model_tensor_info(nrt_model_t *m, nrt_tensor_info_array_t **out) {
  if (!host_is_model(m)) return NRT_INVALID_HANDLE;
  if (!out) return NRT_INVALID;
  uint32_t n = m->neff.n_tensors;
  nrt_tensor_info_array_t *a = tnx_heap_zalloc(1, sizeof *a + n * (sizeof *a->tensor_array + TNX_MAX_RANK * sizeof(uint32_t)));
  if (!a) return NRT_RESOURCE;
  uint32_t *shapes = (uint32_t *)(void *)&a->tensor_array[n];
  a->tensor_count = n;
  for (uint32_t i = 0; i < n; i++) {
    const tnx_neff_tensor *t = &m->neff.tensors[i];
    nrt_tensor_info_t *to = &a->tensor_array[i];
    strcpy(to->name, t->name);
    to->usage = t->output ? NRT_TENSOR_USAGE_OUTPUT : NRT_TENSOR_USAGE_INPUT;
    to->size = t->bytes;
    to->dtype = dtype_of(t->type.dtype);
    to->ndim = t->type.rank;
    to->shape = shapes + (size_t)i * TNX_MAX_RANK;
    for (int d = 0; d < t->type.rank; d++) to->shape[d] = (uint32_t)t->type.sizes[d];
  }
  *out = a;
  return NRT_SUCCESS;
}
NRT_API NRT_STATUS nrt_free_model_tensor_info(nrt_tensor_info_array_t *info) {
  tnx_heap_free(info);
  return NRT_SUCCESS;
}

/* ---- execution ---- */

static bool overlap(const char *a, size_t n, const char *b, size_t k) { return n && k && a < b + k && b < a + n; }

/* An output that shares memory with an input, as donated tensors do, or with another output is written beside and copied at the end. */
static tnx_status run(nrt_model_t *m, void **at, uint32_t n_in, uint32_t n, tnx_stream *stream) {
  const tnx_neff_tensor *t = m->neff.tensors;
  tnx_status status = TNX_OK;
  void **beside = tnx_heap_zalloc(n + 1, sizeof *beside), **out = tnx_heap_zalloc(n + 1, sizeof *out);
  if (!beside || !out) {
    tnx_heap_free(beside);
    tnx_heap_free(out);
    return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  for (uint32_t i = n_in; i < n; i++) {
    bool shared = false;
    for (uint32_t k = 0; k < i && !shared; k++) shared = overlap(at[i], t[i].bytes, at[k], t[k].bytes);
    if (shared) TNX_TRY_DONE(tnx_mem_alloc(m->vnc, t[i].bytes, stream, &beside[i]));
    out[i] = shared ? beside[i] : at[i];
  }
  TNX_TRY_DONE(tnx_routine_run(m->planned, at, out + n_in, stream));
  for (uint32_t i = n_in; i < n; i++) {
    if (beside[i]) TNX_TRY_DONE(tnx_copy_on_device(at[i], beside[i], t[i].bytes, stream));
  }
done:
  for (uint32_t i = n_in; i < n; i++)
    if (beside[i]) tnx_mem_free(beside[i]);
  tnx_heap_free(beside);
  tnx_heap_free(out);
  tnx_status waited = tnx_stream_synchronize(stream);
  return status == TNX_OK ? waited : status;
}

NRT_STATUS host_execute(nrt_model_t *m, const host_set *in, const host_set *out) {
  NRT_STATUS status = host_core_status(m->vnc);
  if (status != NRT_SUCCESS) return status;
  if (host_fault_now(HOST_FAULT_TERMINAL)) {
    host_core_fail(m->vnc);
    return host_error(NRT_EXEC_UNIT_UNRECOVERABLE, "the execution failed for good (NRT_HOST_FAULT)");
  }
  if (host_fault_now(HOST_FAULT_EXECUTE)) return host_error(NRT_EXEC_COMPLETED_WITH_ERR, "the execution failed (NRT_HOST_FAULT)");
  if (host_fault_now(HOST_FAULT_TIMEOUT)) return host_error(NRT_TIMEOUT, "the execution took too long (NRT_HOST_FAULT)");
  uint32_t n = m->neff.n_tensors, n_in = m->neff.n_inputs;
  tnx_stream *stream;
  status = host_stream(m->vnc, &stream);
  if (status != NRT_SUCCESS) return status;
  void **at = tnx_heap_zalloc(n + 1, sizeof *at);
  if (!at) return NRT_RESOURCE;
  for (uint32_t i = 0; i < n && status == NRT_SUCCESS; i++) {
    const tnx_neff_tensor *want = &m->neff.tensors[i];
    nrt_tensor_t *t = host_set_find(i < n_in ? in : out, want->name, i < n_in ? i : i - n_in);
    if (!t || !host_is_tensor(t)) status = host_error(NRT_EXEC_BAD_INPUT, "no tensor %s in the set", want->name);
    else if (t->size < want->bytes) status = host_error(NRT_EXEC_BAD_INPUT, "%s has %zu bytes, %zu expected", want->name, t->size, want->bytes);
    else if (t->storage && t->storage->vnc >= 0 && t->storage->vnc != m->vnc) status = host_error(NRT_EXEC_BAD_INPUT, "%s lies on core %d, the model on core %d", want->name, t->storage->vnc, m->vnc);
    else at[i] = host_address(t);
  }
  if (status == NRT_SUCCESS) status = host_status(run(m, at, n_in, n, stream), true);
  for (uint32_t i = n_in; i < n && status == NRT_SUCCESS; i++) atomic_fetch_add(&host_set_find(out, m->neff.tensors[i].name, i - n_in)->completions, 1);
  tnx_heap_free(at);
  return status;
}

NRT_API NRT_STATUS nrt_execute_repeat(nrt_model_t *m, const nrt_tensor_set_t *in, nrt_tensor_set_t *out, int repeat_count) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_is_model(m) || !host_is_set(in) || !host_is_set(out)) return NRT_INVALID_HANDLE;
  if (repeat_count < 1) return host_error(NRT_INVALID, "nrt_execute_repeat: %d times", repeat_count);
  for (int i = 0; i < repeat_count && status == NRT_SUCCESS; i++) status = host_execute(m, in, out);
  return status;
}
NRT_API NRT_STATUS nrt_execute(nrt_model_t *m, const nrt_tensor_set_t *in, nrt_tensor_set_t *out) { return nrt_execute_repeat(m, in, out, 1); }
