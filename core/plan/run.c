/* Launching plans: the record that travels through the stream, and the loop over steps on its other side. */
#include "plan/run.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ops/checks.h"
#include "ops/faults.h"
#include "plan/batch.h"

typedef struct launch {
  tnx_plan *plan;
  tnx_instance *inst;
  void *temp;
  uint32_t hosts_at; /* bytes from the record's start to the host scalars */
  /* then: input addresses, output addresses, host scalars of 16 bytes each */
  void *addresses[];
} launch;

enum { SMALL_RECORD = 1024 };

static void drop(void *payload) {
  launch *l = payload;
  tnx_instance_release(l->inst);
  tnx_plan_release(l->plan);
}

typedef struct phase { const tnxk_kernel *k; const void *params; void *shared; uint32_t number; void **worker; } phase;

static void run_range(void *ctx, int64_t begin, int64_t end, int worker) {
  const phase *p = ctx;
  p->k->run(p->params, p->number, begin, end, p->shared, p->worker[worker]);
}

/* What a step of usual size needs stays for the next one. */
enum { SCRATCH_KEPT = 64 << 20 };

static tnx_status run_kernel(const tnxk_kernel *k, const void *params, tnx_pool *pool) {
  int workers = 1; /* one hand-out runs on the calling thread, which is worker 0 */
  for (uint32_t i = 0; i < k->phases; i++)
    if (k->units[i] > k->grain[i]) workers = tnx_pool_workers(pool);
  void *scratch[TNX_MAX_WORKERS] = {NULL};
  phase p = {k, params, NULL, 0, scratch};
  if (k->shared_bytes && !(p.shared = tnx_pool_scratch(pool, -1, k->shared_bytes)))
    return tnx_fail(TNX_OUT_OF_MEMORY, "%s: %zu bytes of scratch memory could not be allocated", k->name, k->shared_bytes);
  for (int w = 0; k->worker_bytes && w < workers; w++)
    if (!(scratch[w] = tnx_pool_scratch(pool, w, k->worker_bytes)))
      return tnx_fail(TNX_OUT_OF_MEMORY, "%s: %zu bytes of scratch memory could not be allocated", k->name, k->worker_bytes);
  for (; p.number < k->phases; p.number++) {
    int64_t n = k->units[p.number];
    if (n > 0) tnx_pool_for(pool, n, k->grain[p.number] > 0 ? k->grain[p.number] : 1, run_range, &p);
  }
  if (k->worker_bytes > SCRATCH_KEPT || k->shared_bytes > SCRATCH_KEPT) tnx_pool_trim(pool, SCRATCH_KEPT);
  return TNX_OK;
}

/* What LAPACK's info means where it is an error, in PyTorch's words; unit: the matrix's place in the batch, -1 for a single one. */
static tnx_status failed_check(uint8_t check, int32_t info, int64_t unit) {
  static const struct { tnx_status status; const char *api, *text; } checks[TNX_CHECK_COUNT] = {
      {TNX_LINALG, "linalg", "LAPACK reports %d"},
#define TNX_CHECK(name, status, api, text) {TNX_##status, api, text},
#include "ops/checks.def"
#undef TNX_CHECK
  };
  char where[48] = "", why[320];
  if (!*checks[check].api) return tnx_fail(checks[check].status, "%s", checks[check].text);
  if (check == TNX_CHECK_EIG && info < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  if (unit >= 0) snprintf(where, sizeof where, ": (Batch element %lld)", (long long)unit);
  if (info < 0) snprintf(why, sizeof why, "The algorithm failed to converge because the input matrix contained non-finite values.");
  else snprintf(why, sizeof why, checks[check].text, info, info);
  return tnx_fail(checks[check].status, "%s%s: %s", checks[check].api, where, why);
}

static tnx_status fault_status(const tnx_bound_step *s, const tnxk_fault *f) {
  if (s->check) return failed_check(s->check, (int32_t)f->code, f->limit ? (f->code >> 32) - 1 : -1);
  if (!s->fault) return tnx_fault_raise((tnx_fault)f->code, f->value, 0, f->limit);
  return tnx_fault_raise((tnx_fault)s->fault, f->value, s->fault_dim[f->code - 1], f->limit);
}

static tnx_status run_steps(const tnx_instance *inst, void *const *bufs, tnx_pool *pool) {
  _Alignas(64) unsigned char params[sizeof(tnxk_program_args) > sizeof(tnxk_index) ? sizeof(tnxk_program_args) : sizeof(tnxk_index)];
  _Static_assert(sizeof params >= sizeof(tnxk_attention_bwd) && sizeof params >= sizeof(tnxk_matmul) && sizeof params >= sizeof(tnxk_topk) &&
                     sizeof params >= sizeof(tnxk_scan) && sizeof params >= sizeof(tnxk_copy) && sizeof params >= sizeof(tnxk_linalg) &&
                     sizeof params >= sizeof(tnxk_fft) && sizeof params >= sizeof(tnxk_nonzero),
                 "the largest parameter struct");
  for (uint32_t i = 0; i < inst->n_steps; i++) {
    const tnx_bound_step *s = &inst->steps[i];
    tnxk_fault fault = {0};
    memcpy(params, s->params, s->params_bytes);
    for (uint32_t j = 0; j < s->n_patches; j++) {
      const tnx_patch *p = &s->patches[j];
      char *at = (char *)bufs[p->buffer] + p->byte_offset;
      memcpy(params + p->param_offset, &at, sizeof at);
    }
    if (s->fault_offset >= 0) {
      tnxk_fault *f = &fault;
      memcpy(params + s->fault_offset, &f, sizeof f);
    }
    tnx_status status = run_kernel(&s->kernel, params, pool);
    if (status == TNX_OK && s->fault_offset >= 0 && fault.code)
      status = fault_status(s, &fault);
    if (status != TNX_OK) return status;
  }
  return TNX_OK;
}

static tnx_status run(void *payload, tnx_pool *pool) {
  launch *l = payload;
  const tnx_plan *p = l->plan;
  const tnx_instance *inst = l->inst;
  enum { ON_STACK = 64 };
  void *few[ON_STACK], **bufs = p->buffers.len <= ON_STACK ? few : tnx_heap_alloc(p->buffers.len * sizeof *bufs);
  if (!bufs) return tnx_fail(TNX_OUT_OF_MEMORY, "%s: out of host memory", p->name);
  for (uint32_t i = 1; i < p->buffers.len; i++) {
    const tnx_buffer *b = &p->buffers.data[i];
    switch (b->kind) {
      case TNX_BUFFER_INPUT: bufs[i] = l->addresses[b->index]; break;
      case TNX_BUFFER_OUTPUT: bufs[i] = l->addresses[p->inputs.len + b->index]; break;
      case TNX_BUFFER_HOST: bufs[i] = (char *)l + l->hosts_at + 16 * b->index; break;
      case TNX_BUFFER_DIMS: bufs[i] = inst->dim_values; break;
      default: bufs[i] = (char *)l->temp + inst->temp_offset[b->index]; break;
    }
  }
  tnx_status status = run_steps(inst, bufs, pool);
  if (status != TNX_OK) tnx_error_prefix("%s", p->name);
  if (bufs != few) tnx_heap_free(bufs);
  return status;
}

tnx_status tnx_plan_launch(tnx_plan *p, tnx_instance *inst, void *const *inputs, void *const *results, tnx_stream *stream) {
  if (p->program) return tnx_batch_launch(p, inst, inputs, results, stream);
  if (inst->n_steps == 0) return TNX_OK;
  _Alignas(16) unsigned char small[SMALL_RECORD];
  uint32_t n_in = p->inputs.len, n_out = p->outputs.len;
  size_t hosts_at = sizeof(launch) + (n_in + n_out) * sizeof(void *);
  hosts_at = (hosts_at + 15) & ~(size_t)15;
  size_t bytes = hosts_at + 16 * (size_t)p->n_hosts;
  launch *l = bytes <= sizeof small ? (launch *)(void *)small : tnx_heap_alloc(bytes);
  if (!l) return tnx_fail(TNX_OUT_OF_MEMORY, "%s: out of host memory", p->name);
  l->plan = p;
  l->inst = inst;
  l->temp = NULL;
  l->hosts_at = (uint32_t)hosts_at;
  for (uint32_t i = 0; i < n_in; i++) {
    const tnx_plan_input *in = &p->inputs.data[i];
    if (in->host == TNX_NO_TENSOR) l->addresses[i] = inputs[i];
    else memcpy((char *)l + hosts_at + 16 * in->host, inputs[i], tnx_dtype_size((tnx_dtype)in->dtype));
  }
  for (uint32_t i = 0; i < n_out; i++) l->addresses[n_in + i] = p->outputs.data[i].into == TNX_NO_TENSOR && results ? results[i] : NULL;
  tnx_status status = TNX_OK;
  if (inst->temp_bytes) status = tnx_mem_alloc(tnx_stream_device(stream), inst->temp_bytes, stream, &l->temp);
  if (status == TNX_OK) {
    void *temp = l->temp;
    tnx_plan_retain(p);
    atomic_fetch_add_explicit(&inst->refs, 1, memory_order_relaxed);
    status = tnx_stream_enqueue(stream, run, drop, l, bytes);
    /* stream-ordered: later work may reuse the block at once */
    if (temp) tnx_mem_free(temp);
  }
  if (l != (launch *)(void *)small) tnx_heap_free(l);
  return status;
}
