/* Instances: a plan with its symbolic sizes bound. Kernels are chosen and parameter structs filled; only addresses are missing. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "plan/plan.h"

/* Kernels are selected for this many threads; results do not depend on it. */
static int workers_hint(void) { return tnx_runtime_get_threads(); }

typedef struct binder {
  const tnx_plan *p;
  tnx_instance *inst;
  const int64_t *vals;
  tnx_patch patches[TNXK_PROGRAM_MAX_OPERANDS + 2];
  uint32_t n_patches;
  int32_t fault_offset;
} binder;

static int64_t val(const binder *b, tnx_dim d) { return tnx_dim_value(d, b->vals); }

/* The address at `offset` of the params is that of layout l's first element. */
static void patch(binder *b, size_t offset, const tnx_layout *l) {
  if (!l->buffer) return;
  b->patches[b->n_patches++] = (tnx_patch){(uint32_t)offset, l->buffer, val(b, l->offset) * (int64_t)tnx_dtype_size((tnx_dtype)l->dtype)};
}

static void byte_strides(const binder *b, const tnx_layout *l, int64_t *out) {
  for (int i = 0; i < l->rank; i++) out[i] = val(b, l->strides[i]) * (int64_t)tnx_dtype_size((tnx_dtype)l->dtype);
}

static void bound_sizes(const binder *b, const tnx_layout *l, int64_t *out) {
  for (int i = 0; i < l->rank; i++) out[i] = val(b, l->sizes[i]);
}

/* Select functions look at whether optional pointers are NULL, so present ones get a stand-in until the launch. */
static void *const present = (void *)(uintptr_t)64;

static tnx_status bind_program(binder *b, const tnx_step *s, tnxk_program_args *a, size_t *bytes, tnxk_kernel *k) {
  memset(a, 0, sizeof *a);
  a->program = &s->program;
  for (uint16_t i = 0; i < s->program.n_instrs; i++)
    if (s->program.instrs[i].op == TNXK_CHECK) b->fault_offset = (int32_t)offsetof(tnxk_program_args, fault);
  a->rank = s->rank;
  a->n_reduced = s->n_reduced;
  for (int i = 0; i < s->rank; i++) a->sizes[i] = val(b, s->space[i]);
  for (uint32_t i = 0; i < s->n_layouts; i++) {
    a->operand[i].base = present;
    byte_strides(b, &s->layouts[i], a->operand[i].strides);
  }
  tnxk_program_simplify(a);
  TNX_TRY(tnxk_program_select(a, tnx_cpu_isa(), k));
  for (uint32_t i = 0; i < s->n_layouts; i++) {
    patch(b, (size_t)((char *)&a->operand[i].base - (char *)a), &s->layouts[i]);
    /* simplify may have turned a negative stride round and moved the base: keep that distance */
    b->patches[b->n_patches - 1].byte_offset += (int64_t)((uintptr_t)a->operand[i].base - (uintptr_t)present);
  }
  void *memory = tnx_arena_alloc(&b->inst->arena, tnxk_program_prepared_bytes(a));
  if (!memory) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
  TNX_TRY(tnxk_program_prepare(a, tnx_cpu_isa(), memory));
  *bytes = (size_t)((char *)&a->operand[s->n_layouts] - (char *)a);
  return TNX_OK;
}

static tnx_status bind_copy(binder *b, const tnx_step *s, tnxk_copy *c, tnxk_kernel *k) {
  memset(c, 0, sizeof *c);
  const tnx_layout *to = &s->layouts[1];
  c->rank = to->rank;
  bound_sizes(b, to, c->sizes);
  byte_strides(b, &s->layouts[0], c->src_st);
  byte_strides(b, to, c->out_st);
  c->elem_size = (int32_t)tnx_dtype_size((tnx_dtype)to->dtype);
  c->src = c->out = present;
  patch(b, offsetof(tnxk_copy, src), &s->layouts[0]);
  patch(b, offsetof(tnxk_copy, out), to);
  return tnxk_copy_select(c, tnx_cpu_isa(), workers_hint(), k);
}

static tnx_status bind_matmul(binder *b, const tnx_step *s, tnxk_matmul *m, tnxk_kernel *k) {
  memset(m, 0, sizeof *m);
  const tnx_layout *a = &s->layouts[0], *w = &s->layouts[1], *c = &s->layouts[2], *add = &s->layouts[3], *gate = &s->layouts[4];
  int rb = c->rank - 2;
  m->m = val(b, c->sizes[rb]);
  m->n = val(b, c->sizes[rb + 1]);
  m->k = val(b, a->sizes[rb + 1]);
#define RC(field, l) (m->field##_rs = val(b, (l)->strides[rb]), m->field##_cs = val(b, (l)->strides[rb + 1]))
  RC(a, a);
  if (s->flags[0]) {
    m->b_windows = true;
    for (int i = 0; i < TNXK_MATMUL_WINDOW_RANK; i++) m->bk[i] = m->bn[i] = 1;
    for (int side = 0; side < 2; side++) {
      int n = s->flags[side], from = side ? rb + s->flags[0] : rb;
      int64_t *sizes = side ? m->bn : m->bk, *strides = side ? m->bn_st : m->bk_st;
      for (int i = 0; i < n; i++) {
        sizes[TNXK_MATMUL_WINDOW_RANK - n + i] = val(b, w->sizes[from + i]);
        strides[TNXK_MATMUL_WINDOW_RANK - n + i] = val(b, w->strides[from + i]);
      }
    }
  } else {
    RC(b, w);
  }
  RC(c, c);
  if (add->buffer) RC(add, add);
#undef RC
  /* batch dimensions that all operands walk as one are merged */
  for (int i = 0; i < rb; i++) {
    int64_t size = val(b, c->sizes[i]), as = val(b, a->strides[i]), bs = val(b, w->strides[i]), cs = val(b, c->strides[i]);
    int64_t ds = add->buffer ? val(b, add->strides[i]) : 0;
    if (size == 1) continue;
    int t = m->batch_rank - 1;
    if (t >= 0 && m->a_bs[t] == as * size && m->b_bs[t] == bs * size && m->c_bs[t] == cs * size && m->add_bs[t] == ds * size) {
      m->batch[t] *= size;
    } else {
      if (++t == TNXK_MATMUL_MAX_BATCH_RANK) return tnx_fail(TNX_NOT_IMPLEMENTED, "matmul over more than %d separate batch dimensions", TNXK_MATMUL_MAX_BATCH_RANK);
      m->batch[t] = size;
      m->batch_rank = t + 1;
    }
    m->a_bs[t] = as;
    m->b_bs[t] = bs;
    m->c_bs[t] = cs;
    m->add_bs[t] = ds;
  }
  /* one b for the whole batch: its rows join a's */
  if (m->batch_rank == 1 && m->b_bs[0] == 0 && m->a_bs[0] == m->a_rs * m->m && m->c_bs[0] == m->c_rs * m->m && (!add->buffer || m->add_bs[0] == m->add_rs * m->m)) {
    m->m *= m->batch[0];
    m->batch_rank = 0;
  }
  m->dtype = a->dtype;
  m->b_int8 = w->dtype == TNX_I8 && a->dtype != TNX_I8;
  m->c_dtype = c->dtype;
  m->add_dtype = add->dtype;
  m->act = s->op;
  m->alpha = s->numbers[0];
  m->beta = s->numbers[1];
  m->a = m->b = m->c = present;
  m->add = add->buffer ? present : NULL;
  m->gate = gate->buffer ? present : NULL;
  patch(b, offsetof(tnxk_matmul, a), a);
  patch(b, offsetof(tnxk_matmul, b), w);
  patch(b, offsetof(tnxk_matmul, c), c);
  patch(b, offsetof(tnxk_matmul, add), add);
  patch(b, offsetof(tnxk_matmul, gate), gate);
  return tnxk_matmul_select(m, tnx_cpu_isa(), workers_hint(), k);
}

static void strides4(const binder *b, const tnx_layout *l, int64_t *out) {
  for (int i = 0; i < 4; i++) out[i] = l->sizes[i] == 1 ? 0 : val(b, l->strides[i]);
}

static void fill_attention(binder *b, const tnx_step *s, size_t at, tnxk_attention *t) {
  const tnx_layout *q = &s->layouts[0], *k = &s->layouts[1], *v = &s->layouts[2], *mask = &s->layouts[3], *out = &s->layouts[4], *lse = &s->layouts[5];
  t->batch = val(b, q->sizes[0]);
  t->heads = val(b, q->sizes[1]);
  t->q_len = val(b, q->sizes[2]);
  t->head_dim = val(b, q->sizes[3]);
  t->kv_heads = val(b, k->sizes[1]);
  t->kv_len = val(b, k->sizes[2]);
  t->v_dim = val(b, v->sizes[3]);
  strides4(b, q, t->q_st);
  strides4(b, k, t->k_st);
  strides4(b, v, t->v_st);
  strides4(b, out, t->out_st);
  if (mask->buffer) strides4(b, mask, t->mask_st);
  t->dtype = q->dtype;
  t->mask_dtype = mask->dtype;
  t->is_causal = s->op;
  t->scale = s->numbers[0];
  t->q = t->k = t->v = t->out = present;
  t->mask = mask->buffer ? present : NULL;
  t->lse = lse->buffer ? (float *)present : NULL;
  patch(b, at + offsetof(tnxk_attention, q), q);
  patch(b, at + offsetof(tnxk_attention, k), k);
  patch(b, at + offsetof(tnxk_attention, v), v);
  patch(b, at + offsetof(tnxk_attention, mask), mask);
  patch(b, at + offsetof(tnxk_attention, out), out);
  patch(b, at + offsetof(tnxk_attention, lse), lse);
}

static tnx_status bind_attention_backward(binder *b, const tnx_step *s, tnxk_attention_bwd *t, tnxk_kernel *k) {
  memset(t, 0, sizeof *t);
  fill_attention(b, s, offsetof(tnxk_attention_bwd, fwd), &t->fwd);
  const tnx_layout *l = &s->layouts[6];
  strides4(b, &l[0], t->dout_st);
  strides4(b, &l[1], t->dq_st);
  strides4(b, &l[2], t->dk_st);
  strides4(b, &l[3], t->dv_st);
  t->dout = t->dq = t->dk = t->dv = present;
  patch(b, offsetof(tnxk_attention_bwd, dout), &l[0]);
  patch(b, offsetof(tnxk_attention_bwd, dq), &l[1]);
  patch(b, offsetof(tnxk_attention_bwd, dk), &l[2]);
  patch(b, offsetof(tnxk_attention_bwd, dv), &l[3]);
  return tnxk_attention_bwd_select(t, tnx_cpu_isa(), workers_hint(), k);
}

static tnx_status bind_indexed(binder *b, const tnx_step *s, tnxk_index *x, tnxk_kernel *k) {
  memset(x, 0, sizeof *x);
  bool scatter = s->kind == TNX_STEP_SCATTER;
  const tnx_layout *indexed = &s->layouts[0], *other = &s->layouts[1];
  int64_t *walked = scatter ? x->out_st : x->src_st, elem = (int64_t)tnx_dtype_size((tnx_dtype)indexed->dtype);
  x->rank = other->rank;
  x->n_index = (int32_t)s->n_layouts - 2;
  bound_sizes(b, other, x->sizes);
  byte_strides(b, other, scatter ? x->src_st : x->out_st);
  for (int i = 0; i < x->rank; i++) walked[i] = s->dims[i] < 0 ? 0 : val(b, indexed->strides[s->dims[i]]) * elem;
  for (int t = 0; t < x->n_index; t++) {
    const tnx_layout *l = &s->layouts[2 + t];
    int dim = s->dims[x->rank + 2 * t], at = s->dims[x->rank + 2 * t + 1];
    x->index[t].data = present;
    x->index[t].limit = val(b, indexed->sizes[dim]);
    x->index[t].step = val(b, indexed->strides[dim]) * elem;
    for (int i = 0; i < l->rank; i++) x->index[t].st[at + i] = val(b, l->strides[i]) * (int64_t)tnx_dtype_size((tnx_dtype)l->dtype);
    patch(b, (size_t)((char *)&x->index[t].data - (char *)x), l);
    x->index_dtype = l->dtype;
  }
  x->dtype = indexed->dtype;
  x->op = s->op;
  x->wraps = s->wraps;
  x->src = x->out = present;
  patch(b, scatter ? offsetof(tnxk_index, out) : offsetof(tnxk_index, src), indexed);
  patch(b, scatter ? offsetof(tnxk_index, src) : offsetof(tnxk_index, out), other);
  b->fault_offset = (int32_t)offsetof(tnxk_index, fault);
  return scatter ? tnxk_scatter_select(x, tnx_cpu_isa(), workers_hint(), k) : tnxk_gather_select(x, tnx_cpu_isa(), workers_hint(), k);
}

static tnx_status bind_nonzero(binder *b, const tnx_step *s, tnxk_nonzero *p, tnxk_kernel *k) {
  memset(p, 0, sizeof *p);
  const tnx_layout *mask = &s->layouts[0], *out = &s->layouts[1];
  int64_t st[2];
  p->rank = mask->rank;
  bound_sizes(b, mask, p->sizes);
  byte_strides(b, out, st);
  p->row_st = st[0];
  p->column_st = st[1];
  p->rows = val(b, out->sizes[0]);
  p->fill = s->fill;
  p->mask = p->out = present;
  patch(b, offsetof(tnxk_nonzero, mask), mask);
  patch(b, offsetof(tnxk_nonzero, out), out);
  return tnxk_nonzero_select(p, tnx_cpu_isa(), workers_hint(), k);
}

/* Sizes and strides of a layout without dimension dim. */
static void rows(const binder *b, const tnx_layout *l, int dim, int64_t *sizes, int64_t *strides, int64_t *step) {
  int64_t elem = (int64_t)tnx_dtype_size((tnx_dtype)l->dtype);
  int k = 0;
  for (int i = 0; i < l->rank; i++) {
    if (i == dim) continue;
    if (sizes) sizes[k] = val(b, l->sizes[i]);
    strides[k++] = val(b, l->strides[i]) * elem;
  }
  *step = l->rank ? val(b, l->strides[dim]) * elem : 0;
}

static tnx_status bind_scan(binder *b, const tnx_step *s, tnxk_scan *c, tnxk_kernel *k) {
  memset(c, 0, sizeof *c);
  const tnx_layout *in = &s->layouts[0], *out = &s->layouts[1], *index = &s->layouts[2];
  c->rank = in->rank ? in->rank - 1 : 0;
  c->n = in->rank ? val(b, in->sizes[s->dim]) : 1;
  rows(b, in, s->dim, c->sizes, c->in_st, &c->in_step);
  rows(b, out, s->dim, NULL, c->out_st, &c->out_step);
  if (index->buffer) rows(b, index, s->dim, NULL, c->index_st, &c->index_step);
  c->dtype = in->dtype;
  c->op = s->op;
  c->in = c->out = present;
  c->index = index->buffer ? (int64_t *)present : NULL;
  patch(b, offsetof(tnxk_scan, in), in);
  patch(b, offsetof(tnxk_scan, out), out);
  patch(b, offsetof(tnxk_scan, index), index);
  return tnxk_scan_select(c, tnx_cpu_isa(), workers_hint(), k);
}

static tnx_status bind_topk(binder *b, const tnx_step *s, tnxk_topk *c, tnxk_kernel *k) {
  memset(c, 0, sizeof *c);
  const tnx_layout *in = &s->layouts[0], *values = &s->layouts[1], *index = &s->layouts[2];
  c->rank = in->rank ? in->rank - 1 : 0;
  c->n = in->rank ? val(b, in->sizes[s->dim]) : 1;
  c->k = values->rank ? val(b, values->sizes[s->dim]) : 1;
  rows(b, in, s->dim, c->sizes, c->in_st, &c->in_step);
  rows(b, values, s->dim, NULL, c->values_st, &c->values_step);
  rows(b, index, s->dim, NULL, c->index_st, &c->index_step);
  c->dtype = in->dtype;
  c->descending = s->op & 1;
  c->stable = s->op & 2;
  c->in = c->values = present;
  c->index = (int64_t *)present;
  patch(b, offsetof(tnxk_topk, in), in);
  patch(b, offsetof(tnxk_topk, values), values);
  patch(b, offsetof(tnxk_topk, index), index);
  return tnxk_topk_select(c, tnx_cpu_isa(), workers_hint(), k);
}

static tnx_status bind_linalg(binder *b, const tnx_step *s, tnxk_linalg *p, tnxk_kernel *k) {
  memset(p, 0, sizeof *p);
  const tnx_layout *first = &s->layouts[0];
  p->op = s->op;
  p->dtype = first->dtype;
  p->check = s->flags[0] != 0;
  p->flags[0] = s->flags[1];
  p->flags[1] = s->flags[2];
  p->number = s->numbers[0];
  p->batch_rank = first->rank - 2;
  for (int d = 0; d < p->batch_rank; d++) p->batch[d] = val(b, first->sizes[d]);
  for (uint32_t i = 0; i < s->n_layouts; i++) {
    const tnx_layout *l = &s->layouts[i];
    tnxk_matrices *x = &p->x[i];
    int at = p->batch_rank, core = l->rank - at;
    for (int d = 0; d < at; d++) x->bs[d] = val(b, l->strides[d]);
    x->rows = core > 0 ? val(b, l->sizes[at]) : 1;
    x->rs = core > 0 ? val(b, l->strides[at]) : 1;
    x->cols = core > 1 ? val(b, l->sizes[at + 1]) : 1;
    x->cs = core > 1 ? val(b, l->strides[at + 1]) : x->rows;
    x->data = present;
    patch(b, (size_t)((char *)&x->data - (char *)p), l);
  }
  b->fault_offset = (int32_t)offsetof(tnxk_linalg, fault);
  return tnxk_linalg_select(p, k);
}

static tnx_status bind_fft(binder *b, const tnx_step *s, tnxk_fft *p, tnxk_kernel *k) {
  memset(p, 0, sizeof *p);
  const tnx_layout *in = &s->layouts[0], *out = &s->layouts[1], *signal = s->op == TNXK_FFT_TO_REAL ? out : in;
  p->kind = s->op;
  p->inverse = s->flags[1];
  p->is_double = in->dtype == TNX_F64 || in->dtype == TNX_C128;
  p->n = val(b, signal->sizes[s->dim]);
  p->scale = s->flags[2] == 0 ? 1 : s->flags[2] == 1 ? 1 / sqrt((double)p->n) : 1 / (double)p->n;
  p->rank = in->rank - 1;
  rows(b, in, s->dim, p->sizes, p->in_st, &p->in_step);
  rows(b, out, s->dim, NULL, p->out_st, &p->out_step);
  p->in = p->out = present;
  patch(b, offsetof(tnxk_fft, in), in);
  patch(b, offsetof(tnxk_fft, out), out);
  TNX_TRY(tnxk_fft_select(p, tnx_cpu_isa(), workers_hint(), k));
  void *memory = tnx_arena_alloc(&b->inst->arena, tnxk_fft_table_bytes(p));
  if (!memory) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
  tnxk_fft_prepare(p, memory);
  return TNX_OK;
}

static tnx_status bind_step(binder *b, const tnx_step *s, tnx_bound_step *out) {
  union {
    tnxk_program_args program;
    tnxk_copy copy;
    tnxk_matmul matmul;
    tnxk_attention attention;
    tnxk_attention_bwd attention_bwd;
    tnxk_index index;
    tnxk_scan scan;
    tnxk_topk topk;
    tnxk_nonzero nonzero;
    tnxk_linalg linalg;
    tnxk_fft fft;
  } u;
  size_t bytes = 0;
  b->n_patches = 0;
  b->fault_offset = -1;
  tnxk_kernel *k = &out->kernel;
  switch (s->kind) {
    case TNX_STEP_PROGRAM: TNX_TRY(bind_program(b, s, &u.program, &bytes, k)); break;
    case TNX_STEP_COPY: bytes = sizeof u.copy; TNX_TRY(bind_copy(b, s, &u.copy, k)); break;
    case TNX_STEP_MATMUL: bytes = sizeof u.matmul; TNX_TRY(bind_matmul(b, s, &u.matmul, k)); break;
    case TNX_STEP_ATTENTION:
      bytes = sizeof u.attention;
      memset(&u.attention, 0, sizeof u.attention);
      fill_attention(b, s, 0, &u.attention);
      TNX_TRY(tnxk_attention_select(&u.attention, tnx_cpu_isa(), workers_hint(), k));
      break;
    case TNX_STEP_ATTENTION_BACKWARD: bytes = sizeof u.attention_bwd; TNX_TRY(bind_attention_backward(b, s, &u.attention_bwd, k)); break;
    case TNX_STEP_GATHER:
    case TNX_STEP_SCATTER: bytes = sizeof u.index; TNX_TRY(bind_indexed(b, s, &u.index, k)); break;
    case TNX_STEP_SCAN: bytes = sizeof u.scan; TNX_TRY(bind_scan(b, s, &u.scan, k)); break;
    case TNX_STEP_NONZERO: bytes = sizeof u.nonzero; TNX_TRY(bind_nonzero(b, s, &u.nonzero, k)); break;
    case TNX_STEP_LINALG: bytes = sizeof u.linalg; TNX_TRY(bind_linalg(b, s, &u.linalg, k)); break;
    case TNX_STEP_FFT: bytes = sizeof u.fft; TNX_TRY(bind_fft(b, s, &u.fft, k)); break;
    default: bytes = sizeof u.topk; TNX_TRY(bind_topk(b, s, &u.topk, k)); break;
  }
  out->params = tnx_arena_copy(&b->inst->arena, &u, bytes);
  out->params_bytes = (uint32_t)bytes;
  out->patches = tnx_arena_copy(&b->inst->arena, b->patches, b->n_patches * sizeof *b->patches);
  out->n_patches = b->n_patches;
  out->fault_offset = b->fault_offset;
  out->fault = s->fault;
  if (s->kind == TNX_STEP_GATHER || s->kind == TNX_STEP_SCATTER)
    for (int t = 0; t < u.index.n_index; t++) out->fault_dim[t] = (uint8_t)s->dims[u.index.rank + 2 * t];
  out->check = s->kind == TNX_STEP_LINALG ? s->flags[0] : 0;
  out->name = s->name;
  return out->params && out->patches ? TNX_OK : tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
}

/* ---- memory plan: temporaries share one block where their lifetimes do not overlap ---- */

static tnx_status plan_memory(binder *b) {
  const tnx_plan *p = b->p;
  tnx_instance *inst = b->inst;
  typedef struct span { uint64_t begin, end; uint32_t last_step; } span;
  inst->temp_offset = TNX_ARENA_ARRAY(&inst->arena, uint64_t, p->n_temps);
  span *live = tnx_heap_alloc((p->n_temps + 1) * sizeof *live);
  if (!inst->temp_offset || !live) {
    tnx_heap_free(live);
    return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
  }
  uint32_t n_live = 0; /* sorted by begin */
  tnx_status status = TNX_OK;
  /* buffers were created in an order close to their first use; placing them step by step keeps the first fit tight */
  for (uint32_t step = 0; step < p->steps.len && status == TNX_OK; step++) {
    const tnx_step *s = &p->steps.data[step];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n_live; i++)
      if (live[i].last_step >= step) live[kept++] = live[i];
    n_live = kept;
    for (uint32_t l = 0; l < s->n_layouts; l++) {
      uint32_t id = s->layouts[l].buffer;
      const tnx_buffer *buf = &p->buffers.data[id];
      if (!id || buf->kind != TNX_BUFFER_TEMP || buf->first_step != step) continue;
      bool placed = false; /* the same buffer may be several operands of the step */
      for (uint32_t j = 0; j < l; j++) placed |= s->layouts[j].buffer == id;
      if (placed) continue;
      int64_t elements = val(b, buf->elements);
      uint64_t bytes;
      if (elements < 0 || __builtin_mul_overflow((uint64_t)elements, tnx_dtype_size((tnx_dtype)buf->dtype), &bytes) || bytes > UINT64_MAX / 4) {
        status = tnx_fail(TNX_OVERFLOW, "a temporary is too large");
        break;
      }
      bytes = (bytes + 63) & ~(uint64_t)63;
      uint64_t at = 0;
      uint32_t pos = 0;
      for (; pos < n_live && live[pos].begin < at + bytes; pos++)
        if (live[pos].end > at) at = live[pos].end;
      memmove(live + pos + 1, live + pos, (n_live - pos) * sizeof *live);
      live[pos] = (span){at, at + bytes, buf->last_step};
      n_live++;
      inst->temp_offset[buf->index] = at;
      if (at + bytes > inst->temp_bytes) inst->temp_bytes = at + bytes;
    }
  }
  tnx_heap_free(live);
  return status;
}

static tnx_status bind_results(binder *b) {
  const tnx_plan *p = b->p;
  tnx_result *r = b->inst->results = TNX_ARENA_ARRAY(&b->inst->arena, tnx_result, p->outputs.len);
  if (!r) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
  for (uint32_t i = 0; i < p->outputs.len; i++) {
    const tnx_layout *l = &p->outputs.data[i].layout;
    r[i].none = p->outputs.data[i].none;
    r[i].rank = l->rank;
    r[i].dtype = l->dtype;
    int64_t last = 0;
    bool empty = false;
    for (int d = 0; d < l->rank; d++) {
      r[i].sizes[d] = val(b, l->sizes[d]);
      r[i].strides[d] = val(b, l->strides[d]);
      if (r[i].sizes[d] < 0) return tnx_fail(TNX_SHAPE, "result %u would have size %lld in dimension %d", i, (long long)r[i].sizes[d], d);
      empty |= r[i].sizes[d] == 0;
      int64_t span;
      if (!empty && (__builtin_mul_overflow(r[i].sizes[d] - 1, r[i].strides[d], &span) || __builtin_add_overflow(last, span, &last)))
        return tnx_fail(TNX_OVERFLOW, "the size of result %u overflows 64 bits", i);
    }
    uint64_t elements = empty ? 0 : (uint64_t)last + 1;
    if (__builtin_mul_overflow(elements, tnx_dtype_size((tnx_dtype)l->dtype), &r[i].bytes)) return tnx_fail(TNX_OVERFLOW, "the size of result %u overflows 64 bits", i);
  }
  return TNX_OK;
}

static tnx_status instance_create(const tnx_plan *p, const int64_t *symbols, tnx_instance **out) {
  tnx_status status;
  tnx_instance *inst = tnx_heap_zalloc(1, sizeof *inst);
  int64_t *vals = tnx_heap_zalloc(p->n_exprs ? p->n_exprs : 1, sizeof *vals);
  if (!inst || !vals) {
    tnx_heap_free(inst);
    tnx_heap_free(vals);
    return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
  }
  tnx_arena_init(&inst->arena);
  inst->refs = 1;
  binder b = {.p = p, .inst = inst, .vals = vals};
  TNX_TRY_DONE(tnx_graph_eval(p->exprs, p->n_exprs, symbols, p->n_symbols, vals));
  inst->symbols = tnx_arena_copy(&inst->arena, symbols, p->n_symbols * sizeof *symbols);
  inst->steps = TNX_ARENA_ARRAY(&inst->arena, tnx_bound_step, p->steps.len);
  inst->dim_values = TNX_ARENA_ARRAY(&inst->arena, int64_t, p->dims.len);
  if (!inst->symbols || !inst->steps || !inst->dim_values) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the planner");
    goto done;
  }
  for (uint32_t i = 0; i < p->dims.len; i++) inst->dim_values[i] = val(&b, p->dims.data[i]);
  TNX_TRY_DONE(bind_results(&b));
  if (p->program) {
    status = tnx_program_bind(p, inst, vals);
    goto done;
  }
  for (uint32_t i = 0; i < p->steps.len; i++) {
    status = bind_step(&b, &p->steps.data[i], &inst->steps[inst->n_steps]);
    if (status != TNX_OK) {
      tnx_error_prefix("%s", p->steps.data[i].name);
      goto done;
    }
    const tnxk_kernel *k = &inst->steps[inst->n_steps].kernel;
    TNX_LOG(KERNEL, "%s: step %u %s -> %s, %lld units", p->name, i, p->steps.data[i].name, k->name, (long long)k->units[0]);
    bool work = false;
    for (uint32_t ph = 0; ph < k->phases; ph++) work |= k->units[ph] > 0;
    inst->n_steps += work;
  }
  TNX_TRY_DONE(plan_memory(&b));
done:
  tnx_heap_free(vals);
  if (status != TNX_OK) {
    tnx_instance_release(inst);
    inst = NULL;
  }
  *out = inst;
  return status;
}

void tnx_instance_release(tnx_instance *inst) {
  if (!inst || atomic_fetch_sub_explicit(&inst->refs, 1, memory_order_acq_rel) != 1) return;
  tnx_arena_fini(&inst->arena);
  tnx_heap_free(inst);
}

tnx_status tnx_instance_get(tnx_plan *p, const int64_t *symbols, uint32_t n_symbols, tnx_instance **out) {
  if (n_symbols != p->n_symbols) return tnx_fail(TNX_INVALID_ARGUMENT, "%s: %u symbol values given, %u wanted", p->name, n_symbols, p->n_symbols);
  tnx_status status = TNX_OK;
  tnx_instance *found = NULL;
  pthread_mutex_lock(&p->mutex);
  int i = 0;
  for (; i < TNX_PLAN_INSTANCES && p->instances[i]; i++)
    if (n_symbols == 0 || memcmp(p->instances[i]->symbols, symbols, n_symbols * sizeof *symbols) == 0) {
      found = p->instances[i];
      break;
    }
  if (!found) {
    status = instance_create(p, symbols, &found);
    if (status == TNX_OK && i == TNX_PLAN_INSTANCES) tnx_instance_release(p->instances[--i]); /* the least recently used one */
  }
  if (found) {
    memmove(&p->instances[1], &p->instances[0], (size_t)i * sizeof found);
    p->instances[0] = found;
    atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&p->mutex);
  *out = found;
  return status;
}
