/* Analysis of a program over its arguments: which instruction reads whose value, how often each value changes, and how
 * the space is cut. Looks at sizes, strides and dtypes only, never at addresses. */
#include "kernels/program/plan.h"

#include <string.h>

#include "kernels/uncached.h"

static const uint8_t operands_read[] = {
#define TNXK_OP(name, operands, types, doc) operands,
#include "kernels/program/ops.def"
#undef TNXK_OP
};

tnxk_ctype tnxk_ctype_of(tnx_dtype t) {
  switch (tnx_dtype_get_kind(t)) {
    case TNX_KIND_BOOL: return TNXK_B8;
    case TNX_KIND_FLOAT: return t == TNX_F64 ? TNXK_F64 : TNXK_F32;
    case TNX_KIND_COMPLEX: return t == TNX_C128 ? TNXK_C128 : TNXK_C64;
    default: return TNXK_I64;
  }
}

static int result_ctype(const tnxk_instr *in) {
  switch (in->op) {
    case TNXK_CONVERT: return tnxk_ctype_of((tnx_dtype)in->dtype);
    case TNXK_EQ: case TNXK_NE: case TNXK_LT: case TNXK_LE: case TNXK_GT: case TNXK_GE:
    case TNXK_ISNAN: case TNXK_ISFINITE: return TNXK_B8;
    case TNXK_ABS: case TNXK_REAL: case TNXK_IMAG:
      return in->ctype == TNXK_C64 ? TNXK_F32 : in->ctype == TNXK_C128 ? TNXK_F64 : in->ctype;
    case TNXK_COMPLEX: return in->ctype == TNXK_F32 ? TNXK_C64 : TNXK_C128;
    case TNXK_ACC_ARGMAX: case TNXK_ACC_ARGMIN: return TNXK_I64;
    default: return in->ctype;
  }
}

static int64_t product(const int64_t *sizes, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= sizes[d];
  return n;
}

bool prog_contiguous(const tnxk_program_args *p, int operand, const prog_space *s) {
  const int64_t *st = p->operand[operand].strides;
  int64_t want = (int64_t)tnx_dtype_size((tnx_dtype)p->program->operands[operand].dtype);
  for (int d = s->t1 - 1; d >= s->t0; d--) {
    if (p->sizes[d] != 1 && st[d] != want) return false;
    want *= p->sizes[d];
  }
  return true;
}

static bool zero_strides(const tnxk_program_args *p, int operand, int from, int to) {
  for (int d = from; d < to; d++)
    if (p->operand[operand].strides[d] != 0) return false;
  return true;
}

/* Does a loaded operand repeat along long rows, or go on where it left off in each of them only? Is the number of the row asked for? */
static bool rows_pay(const tnxk_program_args *p) {
  const int last = p->rank - 1;
  const prog_space flat = {0, p->rank, 0};
  if (last < 1 || p->sizes[last] < 2 * PROG_TILE) return false;
  for (int i = 0; i < p->program->n_instrs; i++)
    if (p->program->instrs[i].op == TNXK_IOTA && p->program->instrs[i].imm.i < last) return true;
  for (int o = 0; o < p->program->n_operands; o++) {
    int64_t step = p->operand[o].strides[last], size = (int64_t)tnx_dtype_size((tnx_dtype)p->program->operands[o].dtype);
    if (p->program->operands[o].store || (step != 0 && step != size)) continue;
    if (!zero_strides(p, o, 0, p->rank) && !prog_contiguous(p, o, &flat)) return true;
  }
  return false;
}

static void cut_space(const tnxk_program_args *p, prog_plan *plan) {
  int mode = p->program->mode, rank = p->rank, red = p->n_reduced;
  plan->n_chunks = 1;
  plan->segments = mode == TNXK_MAP && rows_pay(p) ? (p->sizes[rank - 1] + PROG_CHUNK - 1) / PROG_CHUNK : 0;
  switch (mode) {
    case TNXK_MAP: plan->body.t0 = plan->segments ? rank - 1 : 0; break;
    case TNXK_ROW: plan->body.t0 = rank - 1; break;
    case TNXK_REDUCE_INNER: plan->body.t0 = rank - red; break;
    default: plan->body.t0 = red; break;
  }
  plan->body.t1 = rank;
  plan->body.count = product(p->sizes, plan->body.t0, rank);
  plan->outer = product(p->sizes, 0, plan->body.t0);
  plan->epilogue = plan->body;
  plan->rows = (prog_space){0, plan->body.t0, plan->outer};
  plan->row_len = plan->body.count;
  plan->group = 0;
  if ((mode == TNXK_ROW || mode == TNXK_REDUCE_INNER) && plan->outer > 1 && plan->row_len > 0 && plan->row_len <= PROG_TILE / 2) {
    plan->group = PROG_TILE / plan->row_len;
    plan->body.t0 = 0;
    plan->body.count = plan->outer * plan->row_len;
  }
  plan->tile = plan->body.count < PROG_TILE ? plan->body.count : PROG_TILE;
  if (mode == TNXK_REDUCE_INNER) {
    plan->epilogue.t0 = 0;
    plan->epilogue.t1 = rank - red;
    plan->epilogue.count = plan->outer;
    if (plan->outer > plan->tile) plan->tile = plan->outer < PROG_TILE ? plan->outer : PROG_TILE;
    plan->chunk = PROG_CHUNK;
    /* Few outputs with long rows: their chunks are units of their own. */
    if (plan->outer < 64 && plan->row_len >= 2 * PROG_CHUNK)
      plan->n_chunks = (plan->row_len + PROG_CHUNK - 1) / PROG_CHUNK;
  } else if (mode == TNXK_REDUCE_OUTER) {
    int64_t tiles = (plan->body.count + PROG_TILE - 1) / PROG_TILE;
    plan->chunk = plan->outer / 16 > 256 ? (plan->outer + 15) / 16 : 256;
    if (tiles < 16 && plan->outer >= 512) plan->n_chunks = (plan->outer + plan->chunk - 1) / plan->chunk;
  }
}

/* ---- values that live in operand memory ---- */

/* Byte range that an operand touches. */
static void extent(const tnxk_program_args *p, int o, uintptr_t *lo, uintptr_t *hi) {
  uintptr_t l = (uintptr_t)p->operand[o].base, h = l + tnx_dtype_size((tnx_dtype)p->program->operands[o].dtype);
  for (int d = 0; d < p->rank; d++) {
    int64_t span = p->operand[o].strides[d] * (p->sizes[d] - 1);
    if (span < 0) l += (uintptr_t)span;
    else h += (uintptr_t)span;
  }
  *lo = l;
  *hi = h;
}

static bool really(const tnxk_program_args *p, int a, int b) {
  uintptr_t al, ah, bl, bh;
  extent(p, a, &al, &ah);
  extent(p, b, &bl, &bh);
  return al < bh && bl < ah;
}

typedef bool (*overlap_fn)(const tnxk_program_args *p, int a, int b);
static bool always(const tnxk_program_args *p, int a, int b) { return true; }
static bool never(const tnxk_program_args *p, int a, int b) { return false; }

/* Is a store's operand large, walked from end to end, and not the memory of an operand that is read, which brings it into the caches anyway? */
static bool is_uncached(const tnxk_program_args *p, const prog_plan *plan, const prog_node *store, overlap_fn overlap) {
  const int o = store->in->b;
  const prog_space *s = store->epilogue ? &plan->epilogue : &plan->body;
  if (store->level != PL_LANE || !prog_contiguous(p, o, s)) return false;
  uintptr_t lo, hi;
  extent(p, o, &lo, &hi);
  if (!tnxk_uncached_pays((int64_t)(hi - lo))) return false;
  for (int k = 0; k < p->program->n_operands; k++)
    if (k != o && !zero_strides(p, k, 0, p->rank) && overlap(p, k, o)) return false;
  return true;
}

/* Finds the values that can live in operand memory. A load is used in place when nothing may overwrite it before its last
 * use; a value is computed straight into the memory it is stored to when nothing reads or writes that memory between its
 * making and the store, unless the store goes past the caches. */
static void place_in_memory(const tnxk_program_args *p, prog_plan *plan, overlap_fn overlap) {
  prog_node *x = plan->nodes;
  const tnxk_operand *op = p->program->operands;
  int n = plan->n_instrs, n_loads = 0, n_stores = 0;
  uint16_t loads[PROG_MAX_INSTRS], stores[PROG_MAX_INSTRS];
  for (int i = 0; i < n; i++) {
    if (x[i].kind == PK_LOAD) loads[n_loads++] = (uint16_t)i;
    else if (x[i].kind == PK_STORE) stores[n_stores++] = (uint16_t)i;
  }
  for (int k = 0; k < n_loads; k++) {
    int i = loads[k], o = x[i].in->b;
    if (x[i].level != PL_LANE || !prog_same_layout(op[o].dtype) || op[o].dtype == TNX_BOOL) continue; /* a bool's memory may hold other bytes than 0 and 1 */
    if (!prog_contiguous(p, o, x[i].epilogue ? &plan->epilogue : &plan->body)) continue;
    bool safe = true;
    for (int s = 0; s < n_stores && safe; s++)
      if (stores[s] > i && stores[s] < x[i].last_use) safe = !overlap(p, o, x[stores[s]].in->b);
    if (safe) {
      x[i].kind = PK_NOP;
      x[i].operand = (int16_t)o;
    }
  }
  struct { int from, to, operand; } placed[TNXK_PROGRAM_MAX_OPERANDS]; /* values in stored operands: from making to last need */
  int n_placed = 0;
  for (int s = 0; s < n_stores; s++) {
    int j = stores[s], o = x[j].in->b, i = x[j].a;
    if ((x[j].uncached = is_uncached(p, plan, &x[j], overlap))) {
      plan->uncached = true;
      continue;
    }
    if (i >= n) continue; /* an expanded value */
    prog_node *v = &x[i];
    if (v->level != PL_LANE || (v->kind != PK_OP && v->kind != PK_LOAD && v->kind != PK_IOTA && v->kind != PK_RAMP) || v->operand >= 0) continue;
    if (x[j].level != PL_LANE || v->epilogue != x[j].epilogue || (int)tnx_dtype_size((tnx_dtype)op[o].dtype) != v->width) continue;
    if (!prog_same_layout(op[o].dtype)) continue;
    if (!prog_contiguous(p, o, x[j].epilogue ? &plan->epilogue : &plan->body)) continue;
    bool safe = true;
    for (int k = 0; k < n_loads && safe; k++) {
      int l = loads[k];
      /* The load itself, or a later use of a load that is read in place, between i and j. */
      bool between = l >= i && l < j;
      bool used = x[l].kind == PK_NOP && l < j && x[l].last_use > i;
      if (between || used) safe = !overlap(p, o, x[l].in->b);
    }
    for (int k = 0; k < n_stores && safe; k++)
      if (k != s && stores[k] > i && (stores[k] < j || stores[k] < v->last_use)) safe = !overlap(p, o, x[stores[k]].in->b);
    int end = v->last_use > j ? v->last_use : j;
    for (int k = 0; k < n_placed && safe; k++)
      if (placed[k].from < end && i < placed[k].to) safe = !overlap(p, o, placed[k].operand);
    if (safe && n_placed < TNXK_PROGRAM_MAX_OPERANDS) {
      v->operand = (int16_t)o;
      x[j].kind = PK_NOP;
      placed[n_placed].from = i;
      placed[n_placed].to = end;
      placed[n_placed++].operand = o;
    }
  }
}

/* ---- order of execution ---- */

static void fill_order(prog_plan *plan) {
  prog_node *x = plan->nodes;
  const int n = plan->n_instrs;
  int k = 0, mov = 0;
  plan->whole_chunks = 0;
  for (int i = 0; i < n; i++)
    if (x[i].level == PL_RUN && x[i].kind != PK_REDUCE) plan->order[k++] = (uint16_t)i;
  plan->run_end = (uint16_t)k;
  for (int ph = 0; ph < plan->n_phases; ph++) {
    for (int i = 0; i < n && !plan->group; i++)
      if (x[i].level == PL_ROW && x[i].phase == ph && !x[i].epilogue && x[i].kind != PK_REDUCE) plan->order[k++] = (uint16_t)i;
    plan->row_end[ph] = (uint16_t)k;
    for (int i = 0; i < n; i++)
      if ((x[i].level == PL_LANE || x[i].kind == PK_REDUCE || (plan->group && x[i].level == PL_ROW)) && x[i].phase == ph && !x[i].epilogue && x[i].kind != PK_NOP && x[i].kind != PK_FUSED)
        plan->order[k++] = (uint16_t)i;
    plan->lane_end[ph] = (uint16_t)k;
    bool whole = !plan->group;
    for (int j = plan->row_end[ph]; j < k && whole; j++) {
      const prog_node *r = &x[plan->order[j]];
      whole = (r->kind == PK_ACC || r->kind == PK_REDUCE) && x[r->a].operand >= 0 && (!r->dot || x[r->b].operand >= 0);
    }
    if (whole) plan->whole_chunks |= (uint64_t)1 << ph;
  }
  for (int i = 0; i < n; i++)
    if (x[i].epilogue && x[i].level != PL_RUN && x[i].kind != PK_NOP && x[i].kind != PK_FUSED) plan->order[k++] = (uint16_t)i;
  plan->epi_end = (uint16_t)k;

  plan->n_mov_body = 0;
  for (int epilogue = 0; epilogue < 2; epilogue++) {
    for (int i = 0; i < n; i++) {
      if (x[i].epilogue != epilogue || x[i].level != PL_LANE || x[i].in->op == TNXK_STORE) continue;
      if (x[i].operand >= 0)
        plan->moving[mov++] = (prog_moving){.node = (uint16_t)i, .operand = x[i].operand, .step = x[i].width};
      else if (x[i].held)
        plan->moving[mov++] = (prog_moving){.node = (uint16_t)i, .operand = -1, .step = x[i].width, .offset = x[i].at};
    }
    if (!epilogue) plan->n_mov_body = (uint16_t)mov;
  }
  plan->n_mov = (uint16_t)mov;
}

static void reset_placement(prog_plan *plan) {
  plan->uncached = false;
  for (int i = 0; i < plan->n_instrs; i++) {
    prog_node *x = &plan->nodes[i];
    x->operand = -1;
    x->uncached = false;
    if (x->kind == PK_NOP) x->kind = x->in->op == TNXK_LOAD ? PK_LOAD : PK_STORE;
  }
}

/* Decides for the worst case and, where the best case would differ, leaves it to each run. */
static void place_for_any_addresses(const tnxk_program_args *p, prog_plan *plan) {
  int placed[2] = {0}, uncached[2] = {0};
  for (int worst = 0; worst < 2; worst++) {
    reset_placement(plan);
    place_in_memory(p, plan, worst ? always : never);
    for (int i = 0; i < plan->n_instrs; i++) {
      placed[worst] += plan->nodes[i].operand >= 0;
      uncached[worst] += plan->nodes[i].uncached;
    }
  }
  plan->addresses_matter = placed[0] != placed[1] || uncached[0] != uncached[1];
}

void prog_place(const tnxk_program_args *p, prog_plan *plan) {
  reset_placement(plan);
  place_in_memory(p, plan, really);
  fill_order(plan);
}

size_t prog_plan_bytes(int n) {
  return sizeof(prog_plan) + sizeof(prog_node) * (size_t)n + sizeof(prog_moving) * (size_t)n + sizeof(uint16_t) * (size_t)n;
}

static void prog_plan_arrays(prog_plan *plan) {
  plan->nodes = (prog_node *)(plan + 1);
  plan->moving = (prog_moving *)(plan->nodes + plan->n_instrs);
  plan->order = (uint16_t *)(plan->moving + plan->n_instrs);
}

void prog_plan_copy(prog_plan *to, const prog_plan *from) {
  memcpy(to, from, prog_plan_bytes(from->n_instrs));
  prog_plan_arrays(to);
}

/* ---- analysis ---- */

/* Is the register read after instruction i, before it is written again? */
static bool used_later(const tnxk_program *g, int i, uint16_t reg) {
  for (int k = i + 1; k < g->n_instrs; k++) {
    const tnxk_instr *in = &g->instrs[k];
    const uint16_t r[3] = {in->a, in->b, in->c};
    for (int j = 0; j < operands_read[in->op]; j++)
      if (r[j] == reg) return true;
    if (in->op != TNXK_STORE && in->dst == reg) return false;
  }
  return false;
}

static int pair_op(int op) {
  switch (op) {
    case TNXK_ADD: return PROG_PAIR_ADD;
    case TNXK_SUB: return PROG_PAIR_SUB;
    case TNXK_MUL: return PROG_PAIR_MUL;
    case TNXK_DIV: return PROG_PAIR_DIV;
    case TNXK_MAX: return PROG_PAIR_MAX;
    case TNXK_MIN: return PROG_PAIR_MIN;
    default: return -1;
  }
}

/* Does instruction i alone read the value of instruction j? */
static bool sole_reader(const tnxk_program *g, const prog_node *nodes, int j, int i) {
  for (int k = j + 1; k < i; k++)
    if (nodes[k].a == j || nodes[k].b == j || nodes[k].c == j) return false;
  return !used_later(g, i, nodes[j].in->dst);
}

/* Is instruction j an operation on lanes whose value instruction i alone reads, in the same phase? */
static bool made_for(const tnxk_program *g, const prog_node *nodes, int j, int i, int phase) {
  const prog_node *p = &nodes[j];
  return p->kind == PK_OP && !p->pair && p->level == PL_LANE && p->phase == phase && p->epilogue == nodes[i].epilogue && sole_reader(g, nodes, j, i);
}

/* Has no later instruction taken the value's register? Values that are the same in all lanes have a place of their own. */
static bool is_kept(const prog_node *nodes, const uint16_t *def, int value) { return nodes[value].level != PL_LANE || def[nodes[value].in->dst] == value; }

/* Takes the operation that makes one operand of instruction i into it, so that the tile is walked once for both. The operation must be made
 * for i alone, a few instructions before, and what it reads must still be there. */
static void fuse_pair(const tnxk_program *g, const prog_isa *t, prog_plan *plan, const uint16_t *def, int i, int phase) {
  prog_node *nodes = plan->nodes, *x = &nodes[i];
  int second = pair_op(x->in->op);
  if (second < 0 || x->in->ctype != TNXK_F32 || x->a == x->b || plan->group) return;
  for (int side = 0; side < 2; side++) {
    int j = side ? x->b : x->a, first;
    prog_node *p = &nodes[j];
    if (i - j > TNXK_PROGRAM_PAIR_REACH || (first = pair_op(p->in->op)) < 0) continue;
    int as = !side || second == PROG_PAIR_ADD || second == PROG_PAIR_MUL ? second : second == PROG_PAIR_SUB ? PROG_PAIR_RSUB : -1;
    if (as < 0 || !t->pair[first][as] || !is_kept(nodes, def, p->a) || !is_kept(nodes, def, p->b) || !made_for(g, nodes, j, i, phase)) continue;
    uint16_t other = side ? x->a : x->b;
    p->kind = PK_FUSED;
    x->pair = true;
    x->fn = t->pair[first][as];
    x->a = p->a;
    x->b = p->b;
    x->c = other;
    nodes[x->a].last_use = nodes[x->b].last_use = (uint16_t)i;
    return;
  }
}

/* Random numbers of float32: the conversion of a word's upper 24 bits, made for it alone, is one operation with the word. */
static void fuse_random(const tnxk_program *g, const prog_isa *t, prog_plan *plan, const uint16_t *def, int i, int phase) {
  prog_node *nodes = plan->nodes, *x = &nodes[i], *shift = &nodes[x->a], *word = &nodes[shift->a];
  if (x->in->op != TNXK_CONVERT || x->in->dtype != TNX_F32 || shift->in->op != TNXK_SHR || word->in->op != TNXK_PHILOX) return;
  const tnxk_instr *by = nodes[shift->b].in;
  if (by->op != TNXK_CONST || by->imm.i != 8 || !made_for(g, nodes, x->a, i, phase) || !made_for(g, nodes, shift->a, x->a, phase)) return;
  if (!is_kept(nodes, def, word->a) || !is_kept(nodes, def, word->b) || !is_kept(nodes, def, word->c)) return;
  shift->kind = word->kind = PK_FUSED;
  x->fn = t->random24;
  x->a = word->a;
  x->b = word->b;
  x->c = word->c;
  x->pair = true;
  nodes[x->a].last_use = nodes[x->b].last_use = nodes[x->c].last_use = (uint16_t)i;
}

/* A comparison of the places along a row with a number that is the same for the row needs neither as lanes: its result changes in one or two places. */
static void fuse_ramp(const tnxk_program *g, prog_plan *plan, int rank, int i, int phase) {
  prog_node *nodes = plan->nodes, *x = &nodes[i];
  if (x->in->op < TNXK_EQ || x->in->op > TNXK_GE || x->in->ctype != TNXK_I64 || plan->group || x->epilogue || plan->body.t0 != rank - 1) return;
  int place = nodes[x->a].level == PL_LANE ? x->a : x->b, number = place == x->a ? x->b : x->a;
  const prog_node *p = &nodes[place];
  if (p->kind != PK_IOTA || nodes[number].level == PL_LANE || p->in->imm.i != rank - 1) return;
  x->kind = PK_RAMP;
  x->mirrored = place == x->b;
  x->a = (uint16_t)number;
  x->b = (uint16_t)plan->n_instrs;
  if (p->phase == phase && sole_reader(g, nodes, place, i)) nodes[place].kind = PK_FUSED;
}

#define BAD(...) return tnx_fail(TNX_INVALID_ARGUMENT, "program: " __VA_ARGS__)

tnx_status prog_analyze(const tnxk_program_args *p, const prog_isa *t, prog_plan *plan) {
  const tnxk_program *g = p->program;
  const int n = g->n_instrs, mode = g->mode, rank = p->rank;
  const bool reduces = mode >= TNXK_REDUCE_INNER;
  if (rank < 1 || rank > TNXK_MAX_RANK || (reduces && (p->n_reduced < 0 || p->n_reduced > rank))) BAD("rank %d", rank);
  if (n > PROG_MAX_INSTRS || g->n_operands > TNXK_PROGRAM_MAX_OPERANDS || g->n_regs > TNXK_PROGRAM_MAX_REGS)
    return tnx_fail(TNX_NOT_IMPLEMENTED, "program: %d instructions, %d operands, %d registers", n, g->n_operands, g->n_regs);
  plan->n_instrs = n;
  prog_plan_arrays(plan);
  prog_node *nodes = plan->nodes;
  plan->n_accs = plan->n_uniform = 0;
  cut_space(p, plan);

  uint16_t def[TNXK_PROGRAM_MAX_REGS];
  /* A register has its own storage for each lane width (bits 1, 4, 8, 16 of the masks), so that an instruction may read and
   * write one register with different widths, and whole rows apart from tiles. */
  uint8_t tiles_used[TNXK_PROGRAM_MAX_REGS], rows_used[TNXK_PROGRAM_MAX_REGS];
  memset(def, 0xff, sizeof(uint16_t) * g->n_regs);
  memset(tiles_used, 0, g->n_regs);
  memset(rows_used, 0, g->n_regs);
  int phase = 0, width_max = 1;
  for (int i = 0; i < n; i++) {
    const tnxk_instr *in = &g->instrs[i];
    prog_node *x = &nodes[i];
    if (in->op >= TNXK_OP_COUNT || in->ctype >= TNXK_CTYPE_COUNT) BAD("instruction %d", i);
    *x = (prog_node){.in = in, .a = (uint16_t)n, .b = (uint16_t)n, .c = (uint16_t)n, .last_use = (uint16_t)i, .operand = -1};
    x->epilogue = reduces && i >= g->first_epilogue;
    const prog_space *space = x->epilogue ? &plan->epilogue : &plan->body;
    x->width = (uint8_t)prog_width(result_ctype(in));
    x->kind = PK_OP;
    x->level = PL_RUN;
    int operand = in->b;
    switch (in->op) {
      case TNXK_LOAD:
      case TNXK_STORE: {
        if (operand >= g->n_operands) BAD("operand %d", operand);
        tnx_dtype dt = (tnx_dtype)g->operands[operand].dtype;
        if (dt >= TNX_DTYPE_COUNT || tnxk_ctype_of(dt) != in->ctype) BAD("operand %d is not of the instruction's type", operand);
        bool flat = zero_strides(p, operand, x->epilogue ? space->t0 : plan->rows.t1, space->t1);
        x->kind = in->op == TNXK_LOAD ? PK_LOAD : PK_STORE;
        if (!(in->op == TNXK_LOAD ? t->load[dt] != NULL : t->store[dt] != NULL))
          return tnx_fail(TNX_NOT_IMPLEMENTED, "program: memory of %s", tnx_dtype_name(dt));
        if (in->op == TNXK_STORE) {
          if (reduces && !x->epilogue) BAD("a store among the reduced instructions");
          x->level = mode == TNXK_ROW && flat ? PL_ROW : PL_LANE;
        } else {
          x->level = !flat ? PL_LANE : zero_strides(p, operand, 0, rank) ? PL_RUN : x->epilogue ? PL_LANE : PL_ROW;
        }
        break;
      }
      case TNXK_IOTA:
        if (in->imm.i < 0 || in->imm.i >= rank) BAD("iota of dimension %d", (int)in->imm.i);
        x->kind = PK_IOTA;
        x->level = x->epilogue || in->imm.i >= plan->rows.t1 ? PL_LANE : PL_ROW;
        break;
      case TNXK_CHECK: x->kind = PK_CHECK; break;
      case TNXK_CONVERT:
        x->fn = in->dtype < TNX_DTYPE_COUNT ? t->convert[in->ctype][in->dtype] : NULL;
        break;
      default:
        if (in->op >= TNXK_REDUCE_SUM) {
          bool acc = in->op >= TNXK_ACC_SUM;
          x->kind = acc ? PK_ACC : PK_REDUCE;
          x->acc_op = (uint8_t)(acc ? in->op - TNXK_ACC_SUM : in->op - TNXK_REDUCE_SUM);
          if (acc ? !reduces || x->epilogue : mode != TNXK_ROW) BAD("a reduction outside its mode");
          if (!t->tile[x->acc_op][in->ctype])
            return tnx_fail(TNX_NOT_IMPLEMENTED, "program: this reduction of compute type %d", in->ctype);
          if (plan->n_accs == PROG_MAX_ACCS) return tnx_fail(TNX_NOT_IMPLEMENTED, "program: more than %d reductions", PROG_MAX_ACCS);
          plan->acc_node[plan->n_accs] = (uint16_t)i;
          x->acc = (uint8_t)plan->n_accs++;
        } else {
          x->fn = t->op[in->op][in->ctype];
        }
    }
    if (x->kind == PK_OP && !x->fn) return tnx_fail(TNX_NOT_IMPLEMENTED, "program: operation %d of compute type %d", in->op, in->ctype);

    uint16_t *src[3] = {&x->a, &x->b, &x->c};
    const uint16_t reg[3] = {in->a, in->b, in->c};
    int reads = operands_read[in->op], ready = 0;
    for (int k = 0; k < reads; k++) {
      if (reg[k] >= g->n_regs || def[reg[k]] == PROG_NONE) BAD("instruction %d reads an empty register", i);
      prog_node *s = &nodes[def[reg[k]]];
      *src[k] = def[reg[k]];
      s->last_use = (uint16_t)i;
      if (x->epilogue && !s->epilogue && s->kind != PK_ACC && s->level != PL_RUN)
        BAD("instruction %d, after the reduction, reads a value from before it", i);
      if (s->level < x->level) x->level = s->level;
      if (s->ready > ready) ready = s->ready;
    }
    /* Sums of products made for them alone; not of short rows, whose sums have loops of their own. */
    prog_node *product = reads ? &nodes[x->a] : NULL;
    if ((x->kind == PK_REDUCE || x->kind == PK_ACC) && x->acc_op == PROG_SUM && t->tile_dot[in->ctype] && !plan->group && x->a == i - 1 &&
        product->in->op == TNXK_MUL && ready <= phase && made_for(g, nodes, i - 1, i, phase)) {
      product->kind = PK_FUSED;
      x->dot = true;
      x->a = product->a;
      x->b = product->b;
      nodes[x->a].last_use = nodes[x->b].last_use = (uint16_t)i;
    }
    bool lane_loop = x->level == PL_LANE;
    if (x->kind == PK_REDUCE || x->kind == PK_ACC) {
      x->level = x->kind == PK_REDUCE ? PL_ROW : PL_LANE;
      lane_loop = true;
    }
    if (x->level != PL_RUN || lane_loop) {
      if (ready > phase) phase = ready;
      if (phase + 1 >= PROG_MAX_PHASES) return tnx_fail(TNX_NOT_IMPLEMENTED, "program: too many dependent reductions");
      x->phase = (uint8_t)phase;
      x->ready = (uint8_t)(phase + (x->kind == PK_REDUCE && !plan->group));
    }
    if (x->kind == PK_OP && x->level == PL_LANE && x->phase == phase) {
      fuse_pair(g, t, plan, def, i, phase);
      fuse_ramp(g, plan, rank, i, phase);
      fuse_random(g, t, plan, def, i, phase);
    }
    if (x->pair) reads = 3;
    if (x->kind == PK_RAMP) reads = 0; /* by lanes */
    for (int k = 0; k < reads; k++) {
      prog_node *s = &nodes[*src[k]];
      if (s->level == PL_ROW && plan->group) {
        s->expand |= lane_loop;
        if (lane_loop) *src[k] = (uint16_t)(*src[k] + n + 1);
      } else if (s->level != PL_LANE) {
        s->splat |= lane_loop || plan->group;
      } else if (mode == TNXK_ROW && s->phase != x->phase) {
        s->held = true;
        rows_used[s->in->dst] |= s->width;
      }
    }
    if (x->kind == PK_STORE) continue;
    if (in->dst >= g->n_regs) BAD("register %d", in->dst);
    def[in->dst] = (uint16_t)i;
    if (x->width > width_max) width_max = x->width;
    if (x->level == PL_LANE) {
      tiles_used[in->dst] |= x->width;
    } else {
      plan->n_uniform += x->level == PL_ROW && plan->group ? 2 : 1;
    }
  }
  plan->n_phases = phase + 1;

  /* Worker memory. Registers are 64 bytes longer than a tile: equal positions then fall into different cache sets. */
  uint32_t tile_at[TNXK_PROGRAM_MAX_REGS][5], row_at[TNXK_PROGRAM_MAX_REGS][5];
  size_t off = 0, rows = (size_t)((plan->body.count + PROG_TILE - 1) / PROG_TILE) * PROG_TILE, held = 0;
#define PLACE(field, bytes) field = (uint32_t)off, off += ((size_t)(bytes) + 63) / 64 * 64
  off = (prog_plan_bytes(n) + 63) / 64 * 64;
  PLACE(plan->off_cur, sizeof(char *) * (2 * (size_t)n + 1));
  for (int r = 0; r < g->n_regs; r++) {
    for (int w = 0; w < 5; w++) {
      if (tiles_used[r] >> w & 1) PLACE(tile_at[r][w], ((size_t)plan->tile << w) + 64);
      if (!(rows_used[r] >> w & 1)) continue;
      held += (rows << w) + 64;
      if (held > TNXK_ROW_MAX_BYTES) return tnx_fail(TNX_NOT_IMPLEMENTED, "program: rows need %zu bytes of registers", held);
      PLACE(row_at[r][w], (rows << w) + 64);
    }
  }
  plan->uniform_bytes = (uint32_t)(((size_t)plan->tile * (size_t)width_max + 63) / 64 * 64 + 64);
  PLACE(plan->off_uniform, plan->uniform_bytes * (size_t)plan->n_uniform);
  plan->acc_bytes = mode == TNXK_REDUCE_OUTER ? 4 * PROG_VECTOR_BYTES : sizeof(prog_acc);
  PLACE(plan->off_acc, plan->acc_bytes * (size_t)plan->n_accs);
  PLACE(plan->off_value, mode == TNXK_REDUCE_INNER ? PROG_VECTOR_BYTES * (size_t)plan->n_accs : 0);
#undef PLACE
  plan->worker_bytes = off;
  uint32_t uniform = plan->off_uniform;
  for (int i = 0; i < n; i++) {
    prog_node *x = &nodes[i];
    x->at = 0;
    if (x->kind == PK_STORE) continue;
    if (x->level != PL_LANE) {
      x->at = uniform;
      uniform += plan->uniform_bytes;
      x->at_expanded = uniform;
      if (x->level == PL_ROW && plan->group) uniform += plan->uniform_bytes;
    } else if (x->kind != PK_ACC) {
      int w = __builtin_ctz(x->width);
      x->at = x->held ? row_at[x->in->dst][w] : tile_at[x->in->dst][w];
    }
  }
  place_for_any_addresses(p, plan);
  fill_order(plan);
  return TNX_OK;
}
