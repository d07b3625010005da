/* Selection: simplifies arguments, checks a program and fills its kernel; which operations exist. */
#include <string.h>

#include "kernels/program/plan.h"

static const struct {
  const char *name;
  tnxk_run_fn run;
  const prog_isa *table;
} variants[] = {
    [TNX_ISA_SCALAR] = {"tnxk_program__scalar", tnxk_program__scalar, &prog_isa__scalar},
#if defined(__x86_64__)
    [TNX_ISA_AVX2] = {"tnxk_program__avx2", tnxk_program__avx2, &prog_isa__avx2},
    [TNX_ISA_AVX512] = {"tnxk_program__avx512", tnxk_program__avx512, &prog_isa__avx512},
#endif
};

bool tnxk_op_supported(tnxk_op op, tnxk_ctype ct) {
  const prog_isa *t = &prog_isa__scalar;
  if ((unsigned)op >= TNXK_OP_COUNT || (unsigned)ct >= TNXK_CTYPE_COUNT) return false;
  static const uint8_t storage[] = {TNX_F32, TNX_F64, TNX_I64, TNX_BOOL, TNX_C64, TNX_C128};
  if (op == TNXK_LOAD) return t->load[storage[ct]] != NULL;
  if (op == TNXK_STORE) return t->store[storage[ct]] != NULL;
  if (op == TNXK_CONVERT) return t->convert[ct][TNX_F32] != NULL;
  if (op == TNXK_CHECK) return t->op[TNXK_SELECT][ct] != NULL;
  if (op == TNXK_IOTA) return ct == TNXK_I64;
  if (op >= TNXK_ACC_SUM) return t->tile[op - TNXK_ACC_SUM][ct] != NULL;
  if (op >= TNXK_REDUCE_SUM) return t->tile[op - TNXK_REDUCE_SUM][ct] != NULL;
  return t->op[op][ct] != NULL;
}

/* Rough nanoseconds for 512 lanes, for the grain only. */
static int64_t cost(const tnxk_instr *in) {
  switch (in->op) {
    case TNXK_LOAD: case TNXK_STORE: case TNXK_CONST: return 150;
    case TNXK_EXP: case TNXK_TANH: case TNXK_SIGMOID: case TNXK_LOG: case TNXK_EXPM1: case TNXK_EXP2: case TNXK_ERF:
    case TNXK_SIN: case TNXK_COS: case TNXK_TAN: case TNXK_LOG2: case TNXK_LOG10: case TNXK_LOG1P: case TNXK_POW:
      return in->ctype == TNXK_F32 ? 700 : 8000;
    default: break;
  }
  if ((in->op >= TNXK_EXP2 && in->op < TNXK_SIGMOID) || (in->op >= TNXK_FMOD && in->op <= TNXK_NEXTAFTER)) return 8000;
  return 80;
}

static int variant(tnx_isa isa) {
  int v = (int)(sizeof variants / sizeof variants[0]) - 1;
  return (int)isa < v ? (int)isa : v;
}

/* A plan of the largest program. */
typedef union plan_room {
  prog_plan plan;
  char bytes[sizeof(prog_plan) + PROG_MAX_INSTRS * (sizeof(prog_node) + sizeof(prog_moving) + sizeof(uint16_t))];
} plan_room;

size_t tnxk_program_prepared_bytes(const tnxk_program_args *args) { return prog_plan_bytes(args->program->n_instrs); }

tnx_status tnxk_program_prepare(tnxk_program_args *args, tnx_isa isa, void *memory) {
  args->prepared = NULL;
  TNX_TRY(prog_analyze(args, variants[variant(isa)].table, memory));
  args->prepared = memory;
  return TNX_OK;
}

tnx_status tnxk_program_select(const tnxk_program_args *args, tnx_isa isa, tnxk_kernel *out) {
  int v = variant(isa);
  plan_room room;
  prog_plan *plan = &room.plan;
  TNX_TRY(prog_analyze(args, variants[v].table, plan));
  int mode = args->program->mode;
  int64_t tile_cost = 40, tiles = (plan->row_len + PROG_TILE - 1) / PROG_TILE, unit_tiles = 1;
  for (int i = 0; i < plan->n_instrs; i++)
    if (plan->nodes[i].level == PL_LANE) tile_cost += cost(plan->nodes[i].in);

  memset(out, 0, sizeof *out);
  out->name = variants[v].name;
  out->run = variants[v].run;
  out->phases = plan->n_chunks > 1 ? 2 : 1;
  switch (mode) {
    case TNXK_MAP:
      out->units[0] = plan->segments ? plan->outer * plan->segments : tiles;
      if (plan->segments) unit_tiles = tiles < PROG_CHUNK_TILES ? tiles : PROG_CHUNK_TILES;
      break;
    case TNXK_ROW:
      out->units[0] = plan->row_len ? plan->outer : 0;
      unit_tiles = tiles;
      break;
    case TNXK_REDUCE_INNER:
      out->units[0] = plan->outer * plan->n_chunks;
      out->units[1] = plan->outer;
      unit_tiles = plan->n_chunks > 1 ? PROG_CHUNK_TILES : tiles;
      break;
    default:
      out->units[0] = tiles * plan->n_chunks;
      out->units[1] = tiles;
      unit_tiles = plan->n_chunks > 1 ? plan->chunk : plan->outer;
  }
  int64_t lanes = plan->row_len < PROG_TILE ? plan->row_len : PROG_TILE;
  int64_t unit_ns = unit_tiles * (tile_cost * lanes / PROG_TILE + 40) + 40;
  out->grain[0] = 30000 / unit_ns > 1 ? 30000 / unit_ns : 1;
  out->grain[1] = 8;
  out->shared_bytes = prog_partial_bytes(plan, mode);
  out->worker_bytes = plan->worker_bytes;
  if (out->phases == 1) out->units[1] = out->grain[1] = 0;
  return TNX_OK;
}

/* ---- simplification ---- */

static void remove_dimension(tnxk_program_args *a, int d) {
  for (int k = d; k + 1 < a->rank; k++) {
    a->sizes[k] = a->sizes[k + 1];
    for (int o = 0; o < a->program->n_operands; o++) a->operand[o].strides[k] = a->operand[o].strides[k + 1];
  }
  a->rank--;
}

static void swap_dimensions(tnxk_program_args *a, int x, int y) {
  int64_t t = a->sizes[x];
  a->sizes[x] = a->sizes[y];
  a->sizes[y] = t;
  for (int o = 0; o < a->program->n_operands; o++) {
    int64_t *st = a->operand[o].strides;
    t = st[x];
    st[x] = st[y];
    st[y] = t;
  }
}

static bool mergeable(const tnxk_program_args *a, int d) {
  for (int o = 0; o < a->program->n_operands; o++) {
    int64_t inner;
    const int64_t *st = a->operand[o].strides;
    if (__builtin_mul_overflow(st[d + 1], a->sizes[d + 1], &inner) || st[d] != inner) return false;
  }
  return true;
}

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

/* Whether dimension y should be outside dimension x: by the first operand that tells them apart, stored ones first. */
static bool belongs_outside(const tnxk_program_args *a, int y, int x) {
  for (int stores = 1; stores >= 0; stores--)
    for (int o = 0; o < a->program->n_operands; o++) {
      if (a->program->operands[o].store != stores) continue;
      int64_t sx = magnitude(a->operand[o].strides[x]), sy = magnitude(a->operand[o].strides[y]);
      if (sx == 0 || sy == 0 || sx == sy) continue;
      return sy > sx;
    }
  return false;
}

/* Drops, orders and merges dimensions [from, to); keeps at least `least` of them. Returns how many are left. */
static int simplify_group(tnxk_program_args *a, int from, int to, int least, bool reorder) {
  for (int d = to - 1; d >= from && to - from > least; d--)
    if (a->sizes[d] == 1) {
      remove_dimension(a, d);
      to--;
    }
  if (reorder)
    for (int i = from + 1; i < to; i++)
      for (int k = i; k > from && belongs_outside(a, k, k - 1); k--) swap_dimensions(a, k, k - 1);
  for (int d = to - 2; d >= from && to - from > least; d--)
    if (mergeable(a, d)) {
      a->sizes[d + 1] *= a->sizes[d];
      remove_dimension(a, d);
      to--;
    }
  return to - from;
}

void tnxk_program_simplify(tnxk_program_args *a) {
  const tnxk_program *g = a->program;
  int pinned = 0; /* dimensions up to the last one that an IOTA names keep their numbers */
  for (int i = 0; i < g->n_instrs; i++)
    if (g->instrs[i].op == TNXK_IOTA && g->instrs[i].imm.i >= pinned && g->instrs[i].imm.i < a->rank)
      pinned = (int)g->instrs[i].imm.i + 1;
  bool empty = false;
  for (int d = 0; d < a->rank; d++) empty |= a->sizes[d] == 0;
  if (empty) {
    if (g->mode == TNXK_MAP && pinned == 0) {
      a->rank = 1;
      a->sizes[0] = 0;
    }
    return;
  }
  int split = g->mode == TNXK_MAP ? 0 : g->mode == TNXK_ROW ? a->rank - 1
            : g->mode == TNXK_REDUCE_INNER ? a->rank - a->n_reduced : a->n_reduced;
  int reduced_outside = g->mode == TNXK_REDUCE_OUTER;
  /* The inner group first: it does not move the outer one. */
  int inner_from = split > pinned ? split : pinned;
  if (g->mode != TNXK_ROW && inner_from < a->rank) {
    int kept = inner_from - split, least = kept > 0 || reduced_outside ? 0 : 1;
    if (g->mode == TNXK_MAP) least = pinned ? 0 : 1;
    int left = kept + simplify_group(a, inner_from, a->rank, least, g->mode == TNXK_MAP);
    if (g->mode == TNXK_REDUCE_INNER) a->n_reduced = left;
  }
  if (pinned < split) {
    int least = reduced_outside && pinned == 0 ? 1 : 0;
    int left = pinned + simplify_group(a, pinned, split, least, false);
    if (reduced_outside) a->n_reduced = left;
  }
}
