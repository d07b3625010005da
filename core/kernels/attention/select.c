/* Chooses the attention kernel and its split into units. */
#include "kernels/attention/plan.h"

typedef struct choice {
  tnx_isa isa;
  int lanes;
  bool f64;
  const char *name, *bwd_name, *fused_name;
  tnxk_run_fn run, bwd_run, fused_run;
} choice;

static const choice kernels[] = {
#define TNXK_ATTENTION(isa, lanes, f64, suffix)                                                                                 \
  {TNX_ISA_##isa, lanes, f64, "tnxk_attention__" #suffix, "tnxk_attention_bwd__" #suffix, "tnxk_attention_bwd_fused__" #suffix, \
   tnxk_attention__##suffix, tnxk_attention_bwd__##suffix, tnxk_attention_bwd_fused__##suffix},
#include "kernels/attention/kernels.def"
#undef TNXK_ATTENTION
};

static const choice *pick(const tnxk_attention *p, tnx_isa isa) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (kernels[i].isa <= isa && kernels[i].f64 == (p->dtype == TNX_F64)) return &kernels[i];
  return NULL;
}

static bool mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Checks sizes and dtypes; the products that unit counts and scratch sizes use do not overflow afterwards. */
static tnx_status check(const tnxk_attention *p) {
  int64_t t;
  if (p->dtype != TNX_F32 && p->dtype != TNX_BF16 && p->dtype != TNX_F16 && p->dtype != TNX_F64)
    return tnx_fail(TNX_NOT_IMPLEMENTED, "attention of %s", tnx_dtype_name((tnx_dtype)p->dtype));
  if (p->mask && p->mask_dtype != TNX_BOOL && p->mask_dtype != TNX_F32 && p->mask_dtype != TNX_BF16 && p->mask_dtype != TNX_F16 &&
      p->mask_dtype != TNX_F64)
    return tnx_fail(TNX_DTYPE, "an attention mask must be bool or a float type, not %s", tnx_dtype_name((tnx_dtype)p->mask_dtype));
  if (p->batch < 0 || p->heads < 0 || p->kv_heads < 0 || p->q_len < 0 || p->kv_len < 0 || p->head_dim < 0 || p->v_dim < 0)
    return tnx_fail(TNX_INVALID_ARGUMENT, "an attention size is negative");
  if (p->kv_heads ? p->heads % p->kv_heads != 0 : p->heads != 0)
    return tnx_fail(TNX_SHAPE, "%lld heads do not share %lld key heads", (long long)p->heads, (long long)p->kv_heads);
  int64_t width = p->head_dim > p->v_dim ? p->head_dim : p->v_dim, length = p->q_len > p->kv_len ? p->q_len : p->kv_len;
  if (p->batch > INT32_MAX || p->heads > INT32_MAX || width > INT32_MAX || length > INT64_MAX / 4096 || !mul(p->batch * p->heads, length + 4096, &t) ||
      !mul(t, width + 64, &t) || !mul(t, 32, &t))
    return tnx_fail(TNX_OVERFLOW, "attention sizes are too large");
  return TNX_OK;
}

static int64_t grain_of(double unit_ns) { return unit_ns >= 30000 ? 1 : (int64_t)(30000 / (unit_ns + 10)) + 1; }

tnx_status tnxk_attention_select(const tnxk_attention *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  TNX_TRY(check(p));
  const choice *c = pick(p, isa);
  if (!c) return tnx_fail(TNX_INTERNAL, "no attention kernel");
  *out = (tnxk_kernel){.name = c->name, .run = c->run, .phases = 1};
  double row_ns = (double)p->kv_len * (double)(p->head_dim + p->v_dim);
  if (c->f64) {
    out->units[0] = p->batch * p->heads * p->q_len;
    out->grain[0] = grain_of(row_ns);
    out->worker_bytes = sizeof(double) * (size_t)p->v_dim;
    return TNX_OK;
  }
  tnxk_attn_plan x;
  tnxk_attn_plan_make(p, c->lanes, &x);
  int64_t units = p->batch * p->kv_heads * x.q_blocks;
  out->units[0] = units * x.splits;
  out->grain[0] = grain_of(row_ns / (double)x.splits * (double)x.rows * 0.08);
  out->worker_bytes = sizeof(float) * (size_t)x.floats;
  if (x.splits > 1) {
    out->phases = 2;
    out->units[1] = units * x.rows;
    out->grain[1] = grain_of((double)(x.splits * x.partial));
    out->shared_bytes = sizeof(float) * (size_t)(units * x.splits * x.rows * x.partial);
  }
  return TNX_OK;
}

tnx_status tnxk_attention_bwd_select(const tnxk_attention_bwd *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  const tnxk_attention *f = &p->fwd;
  TNX_TRY(check(f));
  const choice *c = pick(f, isa);
  if (!c) return tnx_fail(TNX_INTERNAL, "no attention kernel");
  *out = (tnxk_kernel){.name = c->bwd_name, .run = c->bwd_run, .phases = 3};
  int64_t queries = f->batch * f->heads * f->q_len;
  double pair_ns = (double)(f->head_dim + f->v_dim);
  out->units[0] = queries;
  if (c->f64) {
    out->units[1] = f->batch * f->kv_heads * f->kv_len;
    out->units[2] = queries;
    out->grain[0] = out->grain[2] = grain_of(pair_ns * (double)f->kv_len);
    out->grain[1] = grain_of(pair_ns * (double)f->q_len * (double)(f->kv_heads ? f->heads / f->kv_heads : 1) * 2);
    out->shared_bytes = 3 * sizeof(double) * (size_t)queries;
    out->worker_bytes = sizeof(double) * (size_t)(f->head_dim + f->v_dim);
    return TNX_OK;
  }
  tnxk_attn_bwd_plan x;
  tnxk_attn_bwd_plan_make(f, c->lanes, &x);
  int64_t groups = f->batch * f->kv_heads;
  if (groups >= 2 * (int64_t)workers || groups * x.kv_blocks < 2) { /* both ways give the same bits */
    out->name = c->fused_name;
    out->run = c->fused_run;
    out->phases = 2;
    out->units[1] = groups;
    out->grain[0] = grain_of((double)f->v_dim * 2);
    out->grain[1] = grain_of(pair_ns * (double)f->kv_len * (double)f->q_len * (double)x.f.group * 0.2);
    out->shared_bytes = sizeof(float) * (size_t)(x.delta + groups * x.group_dq);
    out->worker_bytes = sizeof(float) * (size_t)x.floats;
    return TNX_OK;
  }
  out->units[1] = groups * x.kv_blocks;
  out->units[2] = groups * x.f.q_blocks;
  out->grain[0] = grain_of((double)f->v_dim * 2);
  out->grain[1] = grain_of(pair_ns * TNXK_ATTN_BLOCK * (double)f->q_len * (double)x.f.group * 0.16);
  out->grain[2] = grain_of(pair_ns * (double)x.f.rows * (double)f->kv_len * 0.12);
  out->shared_bytes = sizeof(float) * (size_t)x.delta;
  out->worker_bytes = sizeof(float) * (size_t)x.floats;
  return TNX_OK;
}
