/* Groups, fills and copies as program steps: instruction selection and register assignment. */
#include <string.h>

#include "plan/plan.h"

enum { MAX_INSTRS = 256, MAX_MEMO = 192, NO_REG = 0xffff };

typedef struct emitter {
  tnx_planner *pl;
  tnx_graph *g;
  uint32_t group;
  int rank; /* of the space, as the graph has it */
  const tnx_dim *space;
  tnxk_instr instrs[MAX_INSTRS];
  int n_instrs, n_regs, first_epilogue;
  tnx_layout operands[TNXK_PROGRAM_MAX_OPERANDS]; /* strides over the space */
  bool store[TNXK_PROGRAM_MAX_OPERANDS];
  int n_operands;
  /* what has been computed: a value, seen through a map from its dimensions to the space's, is in a register */
  struct { tnx_value v; uint16_t reg; int8_t map[TNX_MAX_RANK]; } memo[MAX_MEMO];
  int n_memo;
} emitter;

static const uint16_t op_of[TNX_OP_COUNT] = {
#define K(name) [TNX_OP_##name] = TNXK_##name
    K(NEG), K(ABS), K(SIGN), K(CEIL), K(FLOOR), K(TRUNC), K(ROUND), K(SQRT), K(RSQRT), K(EXP), K(EXP2), K(EXPM1), K(LOG), K(LOG2), K(LOG10), K(LOG1P),
    K(SIN), K(COS), K(TAN), K(ASIN), K(ACOS), K(ATAN), K(SINH), K(COSH), K(TANH), K(ASINH), K(ACOSH), K(ATANH), K(ERF), K(ERFC), K(ERFINV), K(LGAMMA),
    K(DIGAMMA), K(SIGMOID), K(NOT), K(ISNAN), K(ISFINITE), K(REAL), K(IMAG), K(CONJ), K(ADD), K(SUB), K(MUL), K(DIV), K(FMOD), K(REMAINDER), K(FLOORDIV),
    K(POW), K(ATAN2), K(HYPOT), K(NEXTAFTER), K(COPYSIGN), K(MAX), K(MIN), K(FMAX), K(FMIN), K(AND), K(OR), K(XOR), K(SHL), K(SHR), K(EQ), K(NE), K(LT),
    K(LE), K(GT), K(GE), K(COMPLEX), K(SELECT), K(CHECK), K(PHILOX), K(REDUCE_SUM), K(REDUCE_PROD), K(REDUCE_MAX), K(REDUCE_MIN),
    K(BESSEL_I0), K(BESSEL_I0E), K(BESSEL_I1), K(BESSEL_I1E), K(BESSEL_K0), K(BESSEL_K0E), K(BESSEL_K1), K(BESSEL_K1E), K(BESSEL_Y0), K(BESSEL_Y1),
    K(AIRY_AI), K(ERFCX), K(NDTRI), K(LOG_NDTR), K(BESSEL_J0), K(BESSEL_J1), K(MANTISSA), K(EXPONENT), K(ZETA), K(IGAMMA),
    K(IGAMMAC), K(CHEBYSHEV_T), K(CHEBYSHEV_U), K(CHEBYSHEV_V), K(CHEBYSHEV_W), K(HERMITE_H), K(HERMITE_HE), K(LAGUERRE), K(LEGENDRE), K(GCD),
    K(LCM), K(SAMPLE_GAMMA), K(SAMPLE_POISSON), K(SAMPLE_GAMMA_GRAD),
#undef K
};

static tnx_status too_large(emitter *e) {
  e->pl->too_large = true;
  return tnx_fail(TNX_INTERNAL, "a fused group does not fit one program");
}

static tnx_status push(emitter *e, tnxk_instr in, uint16_t *dst) {
  if (e->n_instrs >= MAX_INSTRS) return too_large(e);
  if (dst) *dst = in.dst = (uint16_t)e->n_regs++;
  e->instrs[e->n_instrs++] = in;
  return TNX_OK;
}

static tnx_status unsupported(const tnx_node *n, tnx_dtype t) {
  return tnx_fail(TNX_NOT_IMPLEMENTED, "%s of %s", tnx_op_get_info((tnx_op)n->op)->name, tnx_dtype_name(t));
}

/* Adds operand l, a value seen through map, with its strides over the space; finds it if it is there. */
static tnx_status operand(emitter *e, const tnx_layout *l, const int8_t *map, bool store, uint16_t *out) {
  tnx_layout o = {.buffer = l->buffer, .dtype = l->dtype, .offset = l->offset, .rank = (uint8_t)e->rank};
  for (int i = 0; i < e->rank; i++) o.sizes[i] = e->space[i];
  for (int i = 0; i < l->rank; i++)
    if (map[i] >= 0 && !(l->sizes[i] == 1 && e->space[map[i]] != 1)) o.strides[map[i]] = l->strides[i];
  for (int i = 0; i < e->n_operands && !store; i++)
    if (!e->store[i] && tnx_layout_equal(&e->operands[i], &o)) {
      *out = (uint16_t)i;
      return TNX_OK;
    }
  if (e->n_operands >= TNXK_PROGRAM_MAX_OPERANDS) return too_large(e);
  e->operands[e->n_operands] = o;
  e->store[e->n_operands] = store;
  *out = (uint16_t)e->n_operands++;
  return TNX_OK;
}

static tnx_status load(emitter *e, const tnx_layout *l, const int8_t *map, uint16_t *reg) {
  uint16_t k;
  TNX_TRY(operand(e, l, map, false, &k));
  return push(e, (tnxk_instr){.op = TNXK_LOAD, .ctype = (uint8_t)tnxk_ctype_of((tnx_dtype)l->dtype), .dtype = TNX_DTYPE_NONE, .b = k}, reg);
}

/* Integer results narrower than the 64-bit lanes they are computed in have to wrap before they are used again. */
static bool must_wrap(tnx_op op, tnx_dtype t) {
  if (!tnx_dtype_is_integral(t) || t == TNX_BOOL || tnx_dtype_size(t) == 8) return false;
  switch (op) {
    case TNX_OP_ADD: case TNX_OP_SUB: case TNX_OP_MUL: case TNX_OP_NEG: case TNX_OP_ABS: case TNX_OP_SHL: case TNX_OP_POW: case TNX_OP_NOT:
    case TNX_OP_DIV: case TNX_OP_FLOORDIV: case TNX_OP_GCD: case TNX_OP_LCM: case TNX_OP_REDUCE_SUM: case TNX_OP_REDUCE_PROD: return true;
    default: return false;
  }
}

/* Registers hold uint64 by its bits, so what depends on the sign of a 64-bit lane is not covered for it. */
static bool u64_ok(tnx_op op) {
  switch (op) {
    case TNX_OP_ADD: case TNX_OP_SUB: case TNX_OP_MUL: case TNX_OP_AND: case TNX_OP_OR: case TNX_OP_XOR: case TNX_OP_NOT: case TNX_OP_EQ: case TNX_OP_NE:
    case TNX_OP_SELECT: case TNX_OP_CHECK: case TNX_OP_SHL: case TNX_OP_NEG: case TNX_OP_REDUCE_SUM: case TNX_OP_REDUCE_PROD: return true;
    default: return false;
  }
}

static tnx_status convert(emitter *e, uint16_t x, tnx_dtype from, tnx_dtype to, uint16_t *reg) {
  tnxk_ctype cf = tnxk_ctype_of(from), ct = tnxk_ctype_of(to);
  if ((from == TNX_U64 || to == TNX_U64) && cf != ct) return tnx_fail(TNX_NOT_IMPLEMENTED, "conversion from %s to %s", tnx_dtype_name(from), tnx_dtype_name(to));
  bool widens = cf == ct && (to == TNX_F32 || to == TNX_F64 || to == TNX_I64 || to == TNX_U64 || to == TNX_C64 || to == TNX_C128 || to == TNX_BOOL);
  if (widens) {
    *reg = x;
    return TNX_OK;
  }
  return push(e, (tnxk_instr){.op = TNXK_CONVERT, .ctype = (uint8_t)cf, .dtype = (uint8_t)to, .a = x}, reg);
}

static tnx_status compute(emitter *e, tnx_value v, const int8_t *map, uint16_t *reg);

static tnx_status leaf(emitter *e, tnx_value v, const tnx_node *n, const int8_t *map, uint16_t *reg) {
  const tnx_value_data *d = &e->g->values.data[v];
  tnxk_instr in = {.op = TNXK_CONST, .ctype = (uint8_t)tnxk_ctype_of((tnx_dtype)d->dtype), .dtype = TNX_DTYPE_NONE};
  if (n->op == TNX_OP_IOTA) {
    int dim = (int)n->ints[0], at = map[dim];
    if (at >= 0 && !(d->sizes[dim] == 1 && e->space[at] != 1)) {
      in.op = TNXK_IOTA;
      in.imm.i = at;
    }
    return push(e, in, reg);
  }
  if (n->op == TNX_OP_DIMVAL) {
    tnx_plan *p = e->pl->p;
    uint32_t i = 0;
    while (i < p->dims.len && p->dims.data[i] != n->ints[0]) i++;
    if (i == p->dims.len && !tnx_vec_push(&p->dims, n->ints[0])) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
    if (!p->dims_buffer) TNX_TRY(tnx_planner_buffer(e->pl, TNX_BUFFER_DIMS, 0, TNX_I64, 0, &p->dims_buffer));
    tnx_layout l = {.buffer = p->dims_buffer, .dtype = TNX_I64, .offset = i};
    return load(e, &l, map, reg);
  }
  if (n->n_ints) in.imm.i = n->ints[0];
  else { in.imm.f[0] = n->floats[0]; in.imm.f[1] = n->floats[1]; }
  /* a constant is what its dtype can hold */
  TNX_TRY(push(e, in, reg));
  if (tnx_dtype_is_float((tnx_dtype)d->dtype) && d->dtype != TNX_F32 && d->dtype != TNX_F64)
    return push(e, (tnxk_instr){.op = TNXK_CONVERT, .ctype = TNXK_F32, .dtype = d->dtype, .a = *reg}, reg);
  return TNX_OK;
}

static tnx_status member(emitter *e, tnx_value v, const tnx_node *n, const int8_t *map, uint16_t *reg) {
  uint16_t x[3] = {0};
  const tnx_value_data *d = &e->g->values.data[v];
  for (uint32_t i = 0; i < n->n_inputs; i++) TNX_TRY(compute(e, n->inputs[i], map, &x[i]));
  tnx_dtype in = (tnx_dtype)e->g->values.data[n->inputs[n->op == TNX_OP_SELECT ? 1 : 0]].dtype;
  if (n->op == TNX_OP_CONVERT) return convert(e, x[0], in, (tnx_dtype)d->dtype, reg);
  tnxk_op op = (tnxk_op)op_of[n->op];
  tnxk_ctype ct = tnxk_ctype_of(in);
  if (ct == TNXK_B8) { /* arithmetic on bool is logic */
    if (op == TNXK_ADD) op = TNXK_OR;
    if (op == TNXK_MUL) op = TNXK_AND;
  }
  if (!tnxk_op_supported(op, ct) || (in == TNX_U64 && !u64_ok((tnx_op)n->op))) return unsupported(n, in);
  tnxk_instr instr = {.op = (uint16_t)op, .ctype = (uint8_t)ct, .dtype = TNX_DTYPE_NONE, .a = x[0], .b = x[1], .c = x[2]};
  if (op == TNXK_CHECK) instr.imm.i = n->ints[0];
  TNX_TRY(push(e, instr, reg));
  if (must_wrap((tnx_op)n->op, (tnx_dtype)d->dtype))
    return push(e, (tnxk_instr){.op = TNXK_CONVERT, .ctype = TNXK_I64, .dtype = d->dtype, .a = *reg}, reg);
  return TNX_OK;
}

/* The register with v, seen through map (dimension of v -> dimension of the space, -1: none). */
static tnx_status compute(emitter *e, tnx_value v, const int8_t *map, uint16_t *reg) {
  const tnx_node *n = tnx_graph_producer(e->g, v);
  const tnx_value_data *d = &e->g->values.data[v];
  for (int i = 0; i < e->n_memo; i++)
    if (e->memo[i].v == v && memcmp(e->memo[i].map, map, d->rank) == 0) {
      *reg = e->memo[i].reg;
      return TNX_OK;
    }
  bool is_member = e->group && e->pl->a.group[d->node] == e->group;
  if (is_member) {
    TNX_TRY(member(e, v, n, map, reg));
  } else if (n->op == TNX_OP_CONST || n->op == TNX_OP_IOTA || n->op == TNX_OP_DIMVAL) {
    TNX_TRY(leaf(e, v, n, map, reg));
  } else if (n->op == TNX_OP_BROADCAST && !e->pl->loc[v].buffer) {
    int8_t inner[TNX_MAX_RANK];
    for (uint32_t i = 0; i < n->n_ints; i++) inner[i] = map[n->ints[i]];
    return compute(e, n->inputs[0], inner, reg);
  } else {
    tnx_layout l;
    TNX_TRY(tnx_planner_need(e->pl, v, &l));
    TNX_TRY(load(e, &l, map, reg));
  }
  if (e->n_memo < MAX_MEMO) {
    e->memo[e->n_memo].v = v;
    e->memo[e->n_memo].reg = *reg;
    memcpy(e->memo[e->n_memo++].map, map, d->rank);
  }
  return TNX_OK;
}

static tnx_status store(emitter *e, uint16_t reg, const tnx_layout *l, const int8_t *map) {
  uint16_t k;
  TNX_TRY(operand(e, l, map, true, &k));
  /* a rounding that the store repeats is left to it */
  for (int i = 0; i < e->n_instrs; i++) {
    const tnxk_instr *in = &e->instrs[i];
    if (in->dst == reg && in->op == TNXK_CONVERT && in->dtype == l->dtype && in->ctype == (uint8_t)tnxk_ctype_of((tnx_dtype)l->dtype)) {
      reg = in->a;
      break;
    }
  }
  return push(e, (tnxk_instr){.op = TNXK_STORE, .ctype = (uint8_t)tnxk_ctype_of((tnx_dtype)l->dtype), .dtype = l->dtype, .dst = NO_REG, .a = reg, .b = k}, NULL);
}

static int reads(const tnxk_instr *in, uint16_t *r) {
  static const uint8_t n_operands[TNXK_OP_COUNT] = {
#define TNXK_OP(name, operands, types, doc) [TNXK_##name] = operands,
#include "kernels/program/ops.def"
#undef TNXK_OP
  };
  int n = n_operands[in->op];
  r[0] = in->a;
  r[1] = in->b;
  r[2] = in->c;
  return n;
}

/* Drops instructions whose result nobody reads, and maps virtual registers to few real ones. A result never shares a register with an operand of its own
 * instruction: lanes of different widths would overlap. A value stays a few instructions longer than it is read while registers last: the program family
 * takes an operation into the one that reads it where the operands are still there. */
static tnx_status assign_registers(emitter *e) {
  uint16_t last[MAX_INSTRS], r[3];
  bool used[MAX_INSTRS] = {false};
  for (int i = e->n_instrs; i-- > 0;) {
    tnxk_instr *in = &e->instrs[i];
    if (in->op != TNXK_STORE && !used[in->dst]) {
      memmove(in, in + 1, (size_t)(e->n_instrs - i - 1) * sizeof *in);
      e->n_instrs--;
      if (i < e->first_epilogue) e->first_epilogue--;
      continue;
    }
    for (int j = reads(in, r); j-- > 0;) used[r[j]] = true;
  }
  memset(last, 0, sizeof last);
  for (int i = 0; i < e->n_instrs; i++)
    for (int j = reads(&e->instrs[i], r); j-- > 0;) last[r[j]] = (uint16_t)i;
  uint16_t real[MAX_INSTRS], owner_end[TNXK_PROGRAM_MAX_REGS];
  int n_real = 0;
  for (int i = 0; i < e->n_instrs; i++) {
    tnxk_instr *in = &e->instrs[i];
    int k = reads(in, r);
    if (in->op != TNXK_STORE) {
      int free_reg = 0, oldest = -1;
      for (; free_reg < n_real && owner_end[free_reg] + TNXK_PROGRAM_PAIR_REACH >= i; free_reg++)
        if (owner_end[free_reg] < i && (oldest < 0 || owner_end[free_reg] < owner_end[oldest])) oldest = free_reg;
      if (free_reg == TNXK_PROGRAM_MAX_REGS) free_reg = oldest;
      if (free_reg < 0) return too_large(e);
      if (free_reg == n_real) n_real++;
      owner_end[free_reg] = last[in->dst];
      real[in->dst] = (uint16_t)free_reg;
      in->dst = (uint16_t)free_reg;
    } else {
      in->dst = 0;
    }
    if (k > 0) in->a = real[r[0]];
    if (k > 1) in->b = real[r[1]];
    if (k > 2) in->c = real[r[2]];
  }
  e->n_regs = n_real;
  return TNX_OK;
}

/* The program becomes a step. order: dimension of the space at each place of the step's. */
static tnx_status finish(emitter *e, tnxk_mode mode, int n_reduced, const int *order, const char *name) {
  TNX_TRY(assign_registers(e));
  tnx_plan *p = e->pl->p;
  int rank = e->rank ? e->rank : 1;
  tnxk_operand ops[TNXK_PROGRAM_MAX_OPERANDS];
  tnx_dim space[TNX_MAX_RANK] = {1};
  for (int i = 0; i < e->rank; i++) space[i] = e->space[order[i]];
  for (int i = 0; i < e->n_operands; i++) {
    tnx_layout l = e->operands[i];
    for (int j = 0; j < e->rank; j++) {
      e->operands[i].sizes[j] = l.sizes[order[j]];
      e->operands[i].strides[j] = l.strides[order[j]];
    }
    if (e->rank == 0) e->operands[i].sizes[0] = 1, e->operands[i].strides[0] = 0;
    e->operands[i].rank = (uint8_t)rank;
    ops[i] = (tnxk_operand){l.dtype, e->store[i]};
  }
  for (int i = 0; i < e->n_instrs; i++)
    if (e->instrs[i].op == TNXK_IOTA)
      for (int j = 0; j < e->rank; j++)
        if (order[j] == e->instrs[i].imm.i) {
          e->instrs[i].imm.i = j;
          break;
        }
  tnx_step s = {.kind = TNX_STEP_PROGRAM, .rank = (uint8_t)rank, .n_reduced = (uint8_t)n_reduced, .name = name};
  s.space = tnx_arena_copy(&p->arena, space, (size_t)rank * sizeof *space);
  s.program = (tnxk_program){.instrs = tnx_arena_copy(&p->arena, e->instrs, (size_t)e->n_instrs * sizeof *e->instrs),
                             .operands = tnx_arena_copy(&p->arena, ops, (size_t)e->n_operands * sizeof *ops),
                             .n_instrs = (uint16_t)e->n_instrs,
                             .n_operands = (uint16_t)e->n_operands,
                             .n_regs = (uint16_t)e->n_regs,
                             .first_epilogue = (uint16_t)e->first_epilogue,
                             .mode = (uint8_t)mode};
  if (!s.space || !s.program.instrs || !s.program.operands) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  return tnx_planner_step(e->pl, s, e->operands, (uint32_t)e->n_operands);
}

static void start(emitter *e, tnx_planner *pl, uint32_t group, int rank, const tnx_dim *space) {
  e->pl = pl;
  e->g = pl->g;
  e->group = group;
  e->rank = rank;
  e->space = space;
  e->n_instrs = e->n_regs = e->first_epilogue = e->n_operands = e->n_memo = 0;
}

static const int8_t identity_map[TNX_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const int identity_order[TNX_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

bool tnx_planner_stored(const tnx_planner *pl, tnx_value v) {
  const tnx_analysis *a = &pl->a;
  uint32_t grp = a->group[pl->g->values.data[v].node];
  if (a->is_output[v]) return true;
  for (uint32_t i = a->user_begin[v]; i < a->user_begin[v + 1]; i++) {
    const tnx_node *n = &pl->g->nodes.data[a->users[i]];
    if (n->op == TNX_OP_BROADCAST && !a->is_output[n->first]) { /* looked through: its users count as this value's */
      for (uint32_t j = a->user_begin[n->first]; j < a->user_begin[n->first + 1]; j++)
        if (a->group[a->users[j]] != grp) return true;
    } else if (a->group[a->users[i]] != grp) {
      return true;
    }
  }
  return false;
}

/* Stores every value of the group that has to be in memory; `from`/`to` limit the members by number. */
static tnx_status store_members(emitter *e, tnx_node_id from, tnx_node_id to) {
  struct { tnx_value v; uint16_t reg; } stores[TNXK_PROGRAM_MAX_OPERANDS];
  int n = 0;
  for (tnx_node_id id = from; id <= to; id++) {
    if (e->pl->a.group[id] != e->group) continue;
    const tnx_node *node = &e->g->nodes.data[id];
    if (!tnx_planner_stored(e->pl, node->first)) continue;
    if (n == TNXK_PROGRAM_MAX_OPERANDS) return too_large(e);
    stores[n].v = node->first;
    TNX_TRY(compute(e, node->first, identity_map, &stores[n++].reg));
  }
  /* all loads come before all stores: a store may overwrite an operand of the same layout */
  for (int i = 0; i < n; i++) {
    tnx_layout dest;
    TNX_TRY(tnx_planner_dest(e->pl, stores[i].v, &dest));
    TNX_TRY(store(e, stores[i].reg, &dest, identity_map));
  }
  return TNX_OK;
}

/* Windows: a few short dimensions that UNFOLD made. Lanes then walk the kept dimensions, and the places are added one after the other.
 * Only those: their sizes are attributes, so that a graph with symbolic sizes takes the same way, to the same bits. */
static bool is_window(const emitter *e, const tnx_node *reduce, const bool *is_reduced) {
  enum { MAX_LENGTH = 8, MAX_PLACES = 64 };
  const tnx_node *x = tnx_graph_producer(e->g, reduce->inputs[0]);
  while (x->op == TNX_OP_CONVERT || x->op == TNX_OP_SLICE) x = tnx_graph_producer(e->g, x->inputs[0]);
  int64_t places = 1;
  for (int i = 0; i < e->rank; i++) {
    if (!is_reduced[i]) continue;
    if (tnx_dim_is_symbolic(e->space[i]) || e->space[i] > MAX_LENGTH) return false;
    places *= e->space[i];
  }
  return x->op == TNX_OP_UNFOLD && places <= MAX_PLACES;
}

/* REDUCE: kept dimensions first and the reduced ones innermost, unless the operand is contiguous along a kept one or the reduced ones
 * are a window. */
static tnxk_mode reduce_order(emitter *e, const tnx_node *reduce, int *order, int *n_reduced) {
  bool is_reduced[TNX_MAX_RANK] = {false};
  for (uint32_t i = 0; i < reduce->n_ints; i++) is_reduced[reduce->ints[i]] = true;
  int inner = e->rank - 1; /* the dimension that the first full operand is contiguous along */
  for (int i = 0; i < e->n_operands; i++) {
    bool full = true;
    int unit = -1;
    for (int j = 0; j < e->rank; j++) {
      full &= e->operands[i].strides[j] != 0 || e->space[j] == 1;
      if (e->operands[i].strides[j] == 1 && e->space[j] != 1) unit = j;
    }
    if (full && unit >= 0) {
      inner = unit;
      break;
    }
  }
  while (inner > 0 && e->space[inner] == 1) inner--;
  tnxk_mode mode = e->rank == 0 || (is_reduced[inner] && !is_window(e, reduce, is_reduced)) ? TNXK_REDUCE_INNER : TNXK_REDUCE_OUTER;
  int k = 0;
  *n_reduced = 0;
  for (int part = 0; part < 2; part++)
    for (int i = 0; i < e->rank; i++)
      if (is_reduced[i] == (part == (mode == TNXK_REDUCE_INNER ? 1 : 0))) {
        order[k++] = i;
        *n_reduced += is_reduced[i];
      }
  return mode;
}

static tnx_status reduce_group(emitter *e, const tnx_group *grp) {
  const tnx_node *r = &e->g->nodes.data[grp->reduce];
  tnx_value x = r->inputs[0];
  tnx_dtype t = (tnx_dtype)e->g->values.data[x].dtype;
  static const uint16_t acc[TNX_OP_COUNT] = {[TNX_OP_REDUCE_SUM] = TNXK_ACC_SUM, [TNX_OP_REDUCE_PROD] = TNXK_ACC_PROD, [TNX_OP_REDUCE_MAX] = TNXK_ACC_MAX,
                                             [TNX_OP_REDUCE_MIN] = TNXK_ACC_MIN, [TNX_OP_ARGMAX] = TNXK_ACC_ARGMAX, [TNX_OP_ARGMIN] = TNXK_ACC_ARGMIN};
  if (!tnxk_op_supported((tnxk_op)acc[r->op], tnxk_ctype_of(t)) || (t == TNX_U64 && !u64_ok((tnx_op)r->op))) return unsupported(r, t);
  uint16_t reg;
  TNX_TRY(compute(e, x, identity_map, &reg));
  int order[TNX_MAX_RANK], n_reduced;
  tnxk_mode mode = reduce_order(e, r, order, &n_reduced);
  TNX_TRY(push(e, (tnxk_instr){.op = acc[r->op], .ctype = (uint8_t)tnxk_ctype_of(t), .dtype = TNX_DTYPE_NONE, .a = reg}, &reg));
  e->first_epilogue = e->n_instrs;
  if (must_wrap((tnx_op)r->op, (tnx_dtype)e->g->values.data[r->first].dtype))
    TNX_TRY(push(e, (tnxk_instr){.op = TNXK_CONVERT, .ctype = TNXK_I64, .dtype = e->g->values.data[r->first].dtype, .a = reg}, &reg));
  /* tiles of the operand are gone: only the accumulator goes on */
  e->n_memo = 1;
  e->memo[0].v = r->first;
  e->memo[0].reg = reg;
  memcpy(e->memo[0].map, identity_map, sizeof e->memo[0].map);
  TNX_TRY(store_members(e, grp->reduce, grp->last));
  return finish(e, mode, n_reduced, order, tnx_op_get_info((tnx_op)r->op)->name);
}

tnx_status tnx_planner_group(tnx_planner *pl, uint32_t group) {
  const tnx_group grp = pl->a.groups.data[group];
  emitter *e = TNX_ARENA_NEW(&pl->a.arena, emitter);
  if (!e) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  start(e, pl, group, grp.rank, grp.space);
  if (grp.mode == TNX_GROUP_REDUCE) return reduce_group(e, &grp);
  TNX_TRY(store_members(e, 1, grp.last));
  return finish(e, grp.mode == TNX_GROUP_ROW ? TNXK_ROW : TNXK_MAP, 0, identity_order, tnx_op_get_info((tnx_op)pl->g->nodes.data[grp.last].op)->name);
}

tnx_status tnx_planner_fill(tnx_planner *pl, tnx_value v, const tnx_layout *dest) {
  const tnx_value_data *d = &pl->g->values.data[v];
  emitter *e = TNX_ARENA_NEW(&pl->a.arena, emitter);
  if (!e) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  start(e, pl, 0, d->rank, d->sizes);
  uint16_t reg;
  TNX_TRY(compute(e, v, identity_map, &reg));
  TNX_TRY(store(e, reg, dest, identity_map));
  return finish(e, TNXK_MAP, 0, identity_order, "FILL");
}

tnx_status tnx_planner_copy(tnx_planner *pl, const tnx_layout *from, const tnx_layout *to) {
  if (from->dtype == to->dtype) {
    tnx_layout l[2] = {*from, *to};
    return tnx_planner_step(pl, (tnx_step){.kind = TNX_STEP_COPY, .name = "COPY"}, l, 2);
  }
  emitter *e = TNX_ARENA_NEW(&pl->a.arena, emitter);
  if (!e) return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler");
  start(e, pl, 0, to->rank, to->sizes);
  uint16_t reg;
  TNX_TRY(load(e, from, identity_map, &reg));
  TNX_TRY(convert(e, reg, (tnx_dtype)from->dtype, (tnx_dtype)to->dtype, &reg));
  TNX_TRY(store(e, reg, to, identity_map));
  return finish(e, TNXK_MAP, 0, identity_order, "COPY");
}
