/* The executor: walks the iteration space tile by tile and calls the ISA's loops.
 *
 * Values are named by the instruction that makes them; cur[i] is where lane 0 of value i is for the current tile: in its
 * register, in a uniform's own tile, or in an operand's memory where a contiguous operand of a compute type needs no copy. */
#include <string.h>

#include "kernels/program/plan.h"
#include "kernels/uncached.h"

typedef struct machine {
  const tnxk_program_args *p;
  const prog_isa *t;
  const prog_plan *plan;
  const prog_node *x;
  const uint16_t *order;
  char *worker;
  char **cur;
  const prog_space *space;
  int64_t coord[TNXK_MAX_RANK]; /* of the current outer position and of the tile's first element */
  int64_t start;                /* that element's index in the space */
  char *base[TNXK_PROGRAM_MAX_OPERANDS]; /* operand addresses at the outer position */
} machine;

static int width_ctype(int width) { return width == 4 ? TNXK_F32 : width == 1 ? TNXK_B8 : width == 16 ? TNXK_C128 : TNXK_I64; }

/* ---- memory ---- */

/* Calls for the runs of the innermost dimension that n elements from the tile's start consist of. */
static void walk(machine *m, int o, char *reg, int width, int64_t n, prog_load_fn load, prog_store_fn store) {
  const prog_space *s = m->space;
  const int64_t *st = m->p->operand[o].strides, *sizes = m->p->sizes;
  char *at = m->base[o];
  int d = s->t1 - 1;
  if (s->t1 - s->t0 <= 1) {
    int64_t step = s->t1 > s->t0 ? st[d] : 0;
    at += m->start * step;
    if (load) load(reg, at, step, n);
    else store(at, step, reg, n);
    return;
  }
  int64_t c[TNXK_MAX_RANK];
  for (int k = s->t0; k <= d; k++) {
    c[k] = m->coord[k];
    at += c[k] * st[k];
  }
  for (;;) {
    int64_t run = sizes[d] - c[d];
    if (run > n) run = n;
    if (load) load(reg, at, st[d], run);
    else store(at, st[d], reg, run);
    n -= run;
    if (n == 0) return;
    reg += run * width;
    at -= c[d] * st[d];
    c[d] = 0;
    for (int k = d - 1; k >= s->t0; k--) {
      at += st[k];
      if (++c[k] < sizes[k]) break;
      at -= c[k] * st[k];
      c[k] = 0;
    }
  }
}

/* A tile of an operand whose elements follow each other. */
static void store_uncached(machine *m, int o, const char *reg, int64_t n) {
  const tnx_dtype dt = (tnx_dtype)m->p->program->operands[o].dtype;
  const int64_t size = (int64_t)tnx_dtype_size(dt);
  _Alignas(64) char narrow[PROG_TILE * 4];
  if (!prog_same_layout(dt)) {
    m->t->store[dt](narrow, size, reg, n);
    reg = narrow;
  }
  tnxk_uncached_copy(m->base[o] + m->start * size, reg, (size_t)(n * size));
}

/* Coordinates along dimension d of n elements from the tile's start. */
static void iota(machine *m, int d, int64_t *out, int64_t n) {
  const prog_space *s = m->space;
  if (d < s->t0 || d >= s->t1) {
    for (int64_t i = 0; i < n; i++) out[i] = m->coord[d];
    return;
  }
  int64_t inner = 1;
  for (int k = d + 1; k < s->t1; k++) inner *= m->p->sizes[k];
  int64_t size = m->p->sizes[d], v = m->start / inner % size, left = inner - m->start % inner, run;
  for (int64_t i = 0; i < n; i += run) {
    if (inner == 1) { /* the numbers up to the end of the dimension */
      run = size - v < n - i ? size - v : n - i;
      for (int64_t k = 0; k < run; k++) out[i + k] = v + k;
      v = 0;
    } else { /* one of them, for all the places inside */
      run = left < n - i ? left : n - i;
      for (int64_t k = 0; k < run; k++) out[i + k] = v;
      left = inner;
      if (++v == size) v = 0;
    }
  }
}

/* ---- positions ---- */

static void unravel(machine *m, int64_t index, int from, int to) {
  for (int d = to - 1; d > from; d--) {
    m->coord[d] = index % m->p->sizes[d];
    index /= m->p->sizes[d];
  }
  if (to > from) m->coord[from] = index;
}

/* Moves to an outer position: element `index` of dimensions [from, to). */
static void set_outer(machine *m, int64_t index, int from, int to) {
  unravel(m, index, from, to);
  for (int o = 0; o < m->p->program->n_operands; o++) {
    char *at = m->p->operand[o].base;
    for (int d = from; d < to; d++) at += m->coord[d] * m->p->operand[o].strides[d];
    m->base[o] = at;
  }
}

static void move(machine *m, int from, int to) {
  for (int k = from; k < to; k++) {
    const prog_moving *v = &m->plan->moving[k];
    m->cur[v->node] = (v->operand < 0 ? m->worker + v->offset : m->base[v->operand]) + m->start * v->step;
  }
}

static void set_tile(machine *m, int64_t start) {
  m->start = start;
  if (m->space->t1 - m->space->t0 > 1) unravel(m, start, m->space->t0, m->space->t1);
  if (m->space == &m->plan->body) move(m, 0, m->plan->n_mov_body);
  else move(m, m->plan->n_mov_body, m->plan->n_mov);
}

/* ---- execution ---- */

/* Copies n lanes of a; the first one whose condition is false is reported. */
static void check(machine *m, const prog_node *x, char *out, const char *a, const char *ok, int64_t n) {
  if (out != a) memcpy(out, a, (size_t)n * x->width);
  const char *bad = memchr(ok, 0, (size_t)n);
  if (!bad || !m->p->fault || m->p->fault->code) return; /* an earlier check of the program says more */
  int64_t value = 0;
  if (x->in->ctype == TNXK_I64) memcpy(&value, a + (bad - ok) * 8, 8);
  if (x->in->ctype == TNXK_B8) value = a[bad - ok];
  m->p->fault->value = value;
  m->p->fault->limit = 0;
  m->p->fault->code = x->in->imm.i;
}

/* Where n places from the tile's start on are compared with one number: runs of true and false. */
static void ramp(machine *m, const prog_node *x, uint8_t *out, int64_t n) {
  static const uint8_t mirror[] = {[TNXK_EQ] = TNXK_EQ, [TNXK_NE] = TNXK_NE, [TNXK_LT] = TNXK_GT, [TNXK_LE] = TNXK_GE, [TNXK_GT] = TNXK_LT, [TNXK_GE] = TNXK_LE};
  int op = x->mirrored ? mirror[x->in->op] : x->in->op;
  int64_t v = *(const int64_t *)m->cur[x->a];
  bool here = v >= m->start && v - m->start < n; /* one of the places is the number */
  int64_t below = here ? v - m->start : v < m->start ? 0 : n; /* places less than the number */
  uint8_t low = op == TNXK_LT || op == TNXK_LE || op == TNXK_NE, high = op == TNXK_GT || op == TNXK_GE || op == TNXK_NE;
  memset(out, low, (size_t)below);
  memset(out + below, high, (size_t)(n - below));
  if (here) out[below] = op == TNXK_EQ || op == TNXK_LE || op == TNXK_GE;
}

static void exec(machine *m, int from, int to, int64_t n, int64_t pos) {
  char **cur = m->cur;
  const tnxk_operand *op = m->p->program->operands;
  for (int k = from; k < to; k++) {
    int i = m->order[k];
    const prog_node *x = &m->x[i];
    switch (x->kind) {
      case PK_OP: x->fn(cur[i], cur[x->a], cur[x->b], cur[x->c], n, x->in); break;
      case PK_CHECK: check(m, x, cur[i], cur[x->a], cur[x->b], n); break;
      case PK_LOAD: walk(m, x->in->b, cur[i], x->width, n, m->t->load[op[x->in->b].dtype], NULL); break;
      case PK_STORE:
        if (x->uncached) store_uncached(m, x->in->b, cur[x->a], n);
        else walk(m, x->in->b, cur[x->a], prog_width(x->in->ctype), n, NULL, m->t->store[op[x->in->b].dtype]);
        break;
      case PK_RAMP: ramp(m, x, (uint8_t *)cur[i], n); break;
      case PK_IOTA: iota(m, (int)x->in->imm.i, (int64_t *)cur[i], n); break;
      case PK_ACC:
        if (m->p->program->mode == TNXK_REDUCE_OUTER) {
          char *acc = m->worker + m->plan->off_acc + x->acc * m->plan->acc_bytes;
          if (x->dot) m->t->lanes_dot[x->in->ctype](acc, cur[x->a], cur[x->b], n);
          else m->t->lanes[x->acc_op][x->in->ctype](acc, (int64_t *)(acc + 3 * PROG_VECTOR_BYTES), cur[x->a], n, pos);
          break;
        } /* fallthrough */
      case PK_REDUCE: {
        prog_acc *acc = (prog_acc *)(m->worker + m->plan->off_acc) + x->acc;
        if (x->dot) m->t->tile_dot[x->in->ctype](acc, cur[x->a], cur[x->b], n);
        else m->t->tile[x->acc_op][x->in->ctype](acc, cur[x->a], n, pos);
        break;
      }
    }
  }
}

/* Uniform values: one lane, then splat where lanes read it. */
static void exec_uniform(machine *m, int from, int to) {
  for (int k = from; k < to; k++) {
    int i = m->order[k];
    exec(m, k, k + 1, 1, 0);
    if (m->x[i].splat) m->t->splat[width_ctype(m->x[i].width)](m->cur[i], m->plan->tile);
  }
}

static void setup(machine *m, const tnxk_program_args *p, void *worker, const prog_isa *t) {
  m->p = p;
  m->t = t;
  m->worker = worker;
  const prog_plan *plan = p->prepared;
  if (!plan || plan->addresses_matter) {
    prog_plan *own = worker; /* the block begins with room for it */
    if (plan) prog_plan_copy(own, plan);
    else (void)prog_analyze(p, t, own); /* select has seen it succeed */
    if (own->addresses_matter) prog_place(p, own);
    plan = own;
  }
  m->plan = plan;
  m->x = plan->nodes;
  m->order = plan->order;
  m->cur = (char **)(m->worker + plan->off_cur);
  const int n = plan->n_instrs;
  for (int i = 0; i < n; i++) m->cur[i] = m->worker + plan->nodes[i].at;
  m->cur[n] = NULL;
  if (plan->group)
    for (int i = 0; i < n; i++) m->cur[n + 1 + i] = m->worker + plan->nodes[i].at_expanded;
  m->space = &plan->body;
  m->start = 0;
  for (int d = 0; d < p->rank; d++) m->coord[d] = 0;
  for (int o = 0; o < p->program->n_operands; o++) m->base[o] = p->operand[o].base;
  exec_uniform(m, 0, plan->run_end);
}

static void run_map(machine *m, int64_t begin, int64_t end) {
  for (int64_t u = begin; u < end; u++) {
    int64_t start = u * PROG_TILE, n = m->plan->body.count - start;
    set_tile(m, start);
    exec(m, m->plan->row_end[0], m->plan->lane_end[0], n < PROG_TILE ? n : PROG_TILE, 0);
  }
}

/* Moves to a position of the dimensions outside the rows. */
static void set_row(machine *m, int64_t row) {
  set_outer(m, row, 0, m->plan->body.t0);
  m->start = 0;
}

static void run_map_rows(machine *m, int64_t begin, int64_t end) {
  const prog_plan *plan = m->plan;
  int64_t current = -1;
  for (int64_t u = begin; u < end; u++) {
    int64_t row = u / plan->segments, at = u % plan->segments * PROG_CHUNK, stop = plan->body.count - at < PROG_CHUNK ? plan->body.count : at + PROG_CHUNK;
    if (row != current) {
      set_row(m, row);
      exec_uniform(m, plan->run_end, plan->row_end[0]);
      current = row;
    }
    for (; at < stop; at += PROG_TILE) {
      set_tile(m, at);
      exec(m, plan->row_end[0], plan->lane_end[0], stop - at < PROG_TILE ? stop - at : PROG_TILE, 0);
    }
  }
}

/* ---- reductions along tiles ---- */

static prog_acc *acc_at(machine *m, int k) { return (prog_acc *)(m->worker + m->plan->off_acc) + k; }

static void acc_init(machine *m, int k) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  prog_acc *acc = acc_at(m, k);
  int ct = x->in->ctype;
  acc->s[0] = acc->s[1] = acc->e[0] = acc->e[1] = 0;
  acc->i = acc->index = 0;
  switch (x->acc_op) {
    case PROG_PROD: acc->s[0] = 1, acc->i = 1; break;
    case PROG_MAX: case PROG_ARGMAX: acc->s[0] = -__builtin_inf(), acc->i = ct == TNXK_B8 ? 0 : INT64_MIN; break;
    case PROG_MIN: case PROG_ARGMIN: acc->s[0] = __builtin_inf(), acc->i = ct == TNXK_B8 ? 1 : INT64_MAX; break;
  }
  if (m->t->reset[x->acc_op][ct]) m->t->reset[x->acc_op][ct](acc);
}

static void acc_fold(machine *m, int k) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  if (m->t->fold[x->acc_op][x->in->ctype]) m->t->fold[x->acc_op][x->in->ctype](acc_at(m, k));
}

static double rounded_total(const prog_acc *acc, int k) {
  if (acc->e[k] == 0) return acc->s[k]; /* -0 stays, which a product may be */
  double v = acc->s[k] + acc->e[k];
  return v == v ? v : acc->s[k]; /* beyond the finite numbers the error term is NaN */
}

static void acc_value(machine *m, int k, void *out) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  const prog_acc *acc = acc_at(m, k);
  if (x->acc_op >= PROG_ARGMAX) {
    memcpy(out, &acc->index, 8);
    return;
  }
  double d[2] = {rounded_total(acc, 0), rounded_total(acc, 1)};
  float f[2] = {(float)d[0], (float)d[1]};
  switch (x->in->ctype) {
    case TNXK_F32: memcpy(out, f, 4); break;
    case TNXK_F64: memcpy(out, d, 8); break;
    case TNXK_C64: memcpy(out, f, 8); break;
    case TNXK_C128: memcpy(out, d, 16); break;
    case TNXK_I64: memcpy(out, &acc->i, 8); break;
    default: *(uint8_t *)out = acc->i != 0;
  }
}

/* A chunk's total, as it waits in shared memory for the second phase. */
typedef struct partial {
  double s[2], e[2];
  int64_t i, index;
} partial;

static void acc_merge(machine *m, int k, const partial *q) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  prog_acc *acc = acc_at(m, k);
  bool is_int = x->in->ctype == TNXK_I64 || x->in->ctype == TNXK_B8;
  double s = acc->s[0], v = q->s[0];
  switch (x->acc_op) {
    case PROG_SUM:
      acc->i = (int64_t)((uint64_t)acc->i + (uint64_t)q->i);
      for (int j = 0; j < 2; j++) {
        prog_acc_add(acc, j, q->s[j]);
        acc->e[j] += q->e[j];
      }
      return;
    case PROG_PROD:
      acc->i = (int64_t)((uint64_t)acc->i * (uint64_t)q->i);
      if (x->in->ctype == TNXK_C64 || x->in->ctype == TNXK_C128) {
        double re = s * q->s[0] - acc->s[1] * q->s[1];
        acc->s[1] = s * q->s[1] + acc->s[1] * q->s[0];
        acc->s[0] = re;
      } else {
        acc->s[0] = s * v;
      }
      return;
    default: {
      bool max = x->acc_op == PROG_MAX || x->acc_op == PROG_ARGMAX;
      bool wins = is_int ? (max ? q->i > acc->i : q->i < acc->i) : (max ? v > s : v < s) || (v != v && s == s);
      if (!wins) return;
      acc->s[0] = v;
      acc->i = q->i;
      acc->index = q->index;
    }
  }
}

/* Runs a phase's lane instructions over positions [begin, end) of the body's space. Chunk borders are multiples of PROG_CHUNK,
 * so the places where lanes are folded depend on positions only. */
static void reduce_tiles(machine *m, int phase, int64_t begin, int64_t end, uint32_t accs) {
  const int64_t step = m->plan->whole_chunks >> phase & 1 ? PROG_CHUNK : PROG_TILE;
  for (int64_t at = begin; at < end; at += step) {
    int64_t n = end - at < step ? end - at : step;
    set_tile(m, at);
    exec(m, m->plan->row_end[phase], m->plan->lane_end[phase], n, at);
    if (accs && ((at + n) % PROG_CHUNK == 0 || at + n == end))
      for (int k = 0; k < m->plan->n_accs; k++)
        if (accs >> k & 1) acc_fold(m, k);
  }
}

/* ---- short rows ---- */

/* `count` rows from `row` as one tile; the results of ACC_* go to lane `batch` of their vectors. */
static void exec_group(machine *m, int64_t row, int64_t count, int64_t batch) {
  const prog_plan *plan = m->plan;
  const int64_t len = plan->row_len;
  set_tile(m, row * len);
  for (int k = plan->run_end; k < plan->lane_end[0]; k++) {
    int i = m->order[k];
    const prog_node *x = &m->x[i];
    if (x->kind == PK_REDUCE) {
      m->t->rows[x->acc_op][x->in->ctype](m->cur[i], m->cur[x->a], count, len);
    } else if (x->kind == PK_ACC) {
      m->t->rows[x->acc_op][x->in->ctype](m->cur[i] + batch * x->width, m->cur[x->a], count, len);
    } else if (x->level == PL_ROW) {
      if (x->kind == PK_OP) {
        exec(m, k, k + 1, count, 0);
      } else { /* memory and coordinates outside the rows */
        m->space = &plan->rows;
        m->start = row;
        unravel(m, row, 0, plan->rows.t1);
        exec(m, k, k + 1, count, 0);
        m->space = &plan->body;
        m->start = row * len;
        unravel(m, m->start, 0, plan->body.t1);
      }
    } else {
      exec(m, k, k + 1, count * len, 0);
    }
    if (!x->expand) continue;
    char *to = m->cur[plan->n_instrs + 1 + i];
    void (*splat)(void *, int64_t) = m->t->splat[width_ctype(x->width)];
    for (int64_t r = 0; r < count; r++, to += len * x->width) {
      memcpy(to, m->cur[i] + r * x->width, x->width);
      splat(to, len);
    }
  }
}

static void run_rows(machine *m, int64_t begin, int64_t end) {
  const prog_plan *plan = m->plan;
  if (plan->group) {
    for (int64_t row = begin; row < end; row += plan->group) exec_group(m, row, end - row < plan->group ? end - row : plan->group, 0);
    return;
  }
  for (int64_t row = begin; row < end; row++) {
    set_row(m, row);
    int at = m->plan->run_end;
    for (int ph = 0; ph < plan->n_phases; ph++) {
      exec_uniform(m, at, m->plan->row_end[ph]);
      uint32_t accs = 0;
      for (int k = 0; k < plan->n_accs; k++)
        if (m->x[m->plan->acc_node[k]].phase == ph) {
          accs |= 1u << k;
          acc_init(m, k);
        }
      reduce_tiles(m, ph, 0, plan->body.count, accs);
      for (int k = 0; k < plan->n_accs; k++)
        if (accs >> k & 1) {
          int i = m->plan->acc_node[k];
          acc_value(m, k, m->cur[i]);
          if (m->x[i].splat) m->t->splat[width_ctype(m->x[i].width)](m->cur[i], plan->tile);
        }
      at = m->plan->lane_end[ph];
    }
  }
}

static void run_epilogue(machine *m, int64_t start, int64_t n) {
  m->space = &m->plan->epilogue;
  for (int o = 0; o < m->p->program->n_operands; o++) m->base[o] = m->p->operand[o].base;
  set_tile(m, start);
  exec(m, m->plan->lane_end[m->plan->n_phases - 1], m->plan->epi_end, n, 0);
  m->space = &m->plan->body;
}

static void run_reduce_inner(machine *m, uint32_t phase, int64_t begin, int64_t end, partial *shared) {
  const prog_plan *plan = m->plan;
  const uint32_t all = plan->n_accs ? (uint32_t)(0xffffffffu >> (32 - plan->n_accs)) : 0;
  int64_t batch = 0;
  if (plan->group) {
    for (int k = 0; k < plan->n_accs; k++) m->cur[plan->acc_node[k]] = m->worker + plan->off_value + (size_t)k * PROG_VECTOR_BYTES;
    for (int64_t u = begin; u < end;) {
      int64_t count = end - u < plan->group ? end - u : plan->group;
      for (int o = 0; o < m->p->program->n_operands; o++) m->base[o] = m->p->operand[o].base;
      exec_group(m, u, count, batch);
      u += count;
      batch += count;
      if (batch + plan->group <= PROG_TILE && u < end) continue;
      run_epilogue(m, u - batch, batch);
      batch = 0;
    }
    return;
  }
  for (int64_t u = begin; u < end; u++) {
    bool chunks = plan->n_chunks > 1 && phase == 0;
    for (int k = 0; k < plan->n_accs; k++) acc_init(m, k);
    if (plan->n_chunks == 1 || phase == 0) {
      int64_t lo = chunks ? u % plan->n_chunks * plan->chunk : 0, hi = plan->body.count;
      if (chunks && hi - lo > plan->chunk) hi = lo + plan->chunk;
      set_row(m, chunks ? u / plan->n_chunks : u);
      exec_uniform(m, m->plan->run_end, m->plan->row_end[0]);
      reduce_tiles(m, 0, lo, hi, all);
    } else {
      for (int64_t c = 0; c < plan->n_chunks; c++)
        for (int k = 0; k < plan->n_accs; k++) acc_merge(m, k, &shared[(u * plan->n_chunks + c) * plan->n_accs + k]);
    }
    if (chunks) {
      for (int k = 0; k < plan->n_accs; k++) {
        const prog_acc *acc = acc_at(m, k);
        shared[u * plan->n_accs + k] = (partial){{acc->s[0], acc->s[1]}, {acc->e[0], acc->e[1]}, acc->i, acc->index};
      }
      continue;
    }
    for (int k = 0; k < plan->n_accs; k++) {
      int i = m->plan->acc_node[k];
      m->cur[i] = m->worker + plan->off_value + (size_t)k * PROG_VECTOR_BYTES;
      acc_value(m, k, m->cur[i] + batch * m->x[i].width);
    }
    if (++batch == PROG_TILE || u == end - 1) {
      run_epilogue(m, u - batch + 1, batch);
      batch = 0;
    }
  }
}

/* ---- reductions across tiles ---- */

static char *outer_acc(machine *m, int k, int part) {
  return m->worker + m->plan->off_acc + (size_t)k * m->plan->acc_bytes + (size_t)part * PROG_VECTOR_BYTES;
}

static void fill_neutral(machine *m, int k, char *v, int64_t n) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  int ct = x->in->ctype;
  tnxk_instr in = {0};
  double s = x->acc_op == PROG_SUM ? 0 : x->acc_op == PROG_PROD ? 1
           : x->acc_op == PROG_MAX || x->acc_op == PROG_ARGMAX ? -__builtin_inf() : __builtin_inf();
  if (ct == TNXK_I64) in.imm.i = s < 0 ? INT64_MIN : s > 1 ? INT64_MAX : (int64_t)s;
  else if (ct == TNXK_B8) in.imm.i = s > 0;
  else in.imm.f[0] = s;
  m->t->op[TNXK_CONST][ct](v, NULL, NULL, NULL, n, &in);
}

/* Sums and products go through three levels of 64 positions each, as in a cascade, so that the error grows with the
 * logarithm of the length. */
static bool cascades(const prog_node *x) { return x->acc_op <= PROG_PROD; }

static void cascade(machine *m, int k, int from, int64_t n) {
  const prog_node *x = &m->x[m->plan->acc_node[k]];
  m->t->lanes[x->acc_op][x->in->ctype](outer_acc(m, k, from + 1), NULL, outer_acc(m, k, from), n, 0);
  fill_neutral(m, k, outer_acc(m, k, from), n);
}

static void run_reduce_outer(machine *m, uint32_t phase, int64_t begin, int64_t end, char *shared) {
  const prog_plan *plan = m->plan;
  const int64_t tiles = (plan->body.count + PROG_TILE - 1) / PROG_TILE;
  const size_t block = 2 * PROG_VECTOR_BYTES;
  const bool split = plan->n_chunks > 1;
  for (int64_t u = begin; u < end; u++) {
    int64_t start = u % tiles * PROG_TILE, n = plan->body.count - start;
    if (n > PROG_TILE) n = PROG_TILE;
    for (int k = 0; k < plan->n_accs; k++) {
      for (int part = 0; part < 3; part++) fill_neutral(m, k, outer_acc(m, k, part), n);
      memset(outer_acc(m, k, 3), 0, (size_t)n * 8);
    }
    if (!split || phase == 0) {
      int64_t lo = split ? u / tiles * plan->chunk : 0, hi = plan->outer;
      if (split && hi - lo > plan->chunk) hi = lo + plan->chunk;
      for (int64_t r = lo; r < hi; r++) {
        set_row(m, r);
        exec_uniform(m, m->plan->run_end, m->plan->row_end[0]);
        set_tile(m, start);
        exec(m, m->plan->row_end[0], m->plan->lane_end[0], n, r);
        int64_t done = r - lo + 1;
        if (done % 64 == 0)
          for (int k = 0; k < plan->n_accs; k++)
            if (cascades(&m->x[m->plan->acc_node[k]])) {
              cascade(m, k, 0, n);
              if (done % 4096 == 0) cascade(m, k, 1, n);
            }
      }
      for (int k = 0; k < plan->n_accs; k++)
        if (cascades(&m->x[m->plan->acc_node[k]])) {
          cascade(m, k, 0, n);
          cascade(m, k, 1, n);
        }
    } else {
      for (int64_t c = 0; c < plan->n_chunks; c++)
        for (int k = 0; k < plan->n_accs; k++) {
          const prog_node *x = &m->x[m->plan->acc_node[k]];
          const char *q = shared + (size_t)((c * tiles + u) * plan->n_accs + k) * block;
          int64_t won[PROG_TILE] = {0}, *index = (int64_t *)outer_acc(m, k, 3);
          const int64_t *from = (const int64_t *)(q + PROG_VECTOR_BYTES);
          m->t->lanes[x->acc_op][x->in->ctype](outer_acc(m, k, cascades(x) ? 2 : 0), won, q, n, 1);
          for (int64_t i = 0; i < n && x->acc_op >= PROG_ARGMAX; i++)
            if (won[i]) index[i] = from[i];
        }
    }
    for (int k = 0; k < plan->n_accs; k++) {
      int i = m->plan->acc_node[k];
      char *v = outer_acc(m, k, cascades(&m->x[i]) ? 2 : 0);
      if (split && phase == 0) {
        char *q = shared + (size_t)(u * plan->n_accs + k) * block;
        memcpy(q, v, (size_t)n * (size_t)prog_width(m->x[i].in->ctype));
        memcpy(q + PROG_VECTOR_BYTES, outer_acc(m, k, 3), (size_t)n * 8);
      } else {
        m->cur[i] = m->x[i].acc_op >= PROG_ARGMAX ? outer_acc(m, k, 3) : v;
      }
    }
    if (!split || phase == 1) run_epilogue(m, start, n);
  }
}

void prog_run(const tnxk_program_args *p, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker, const prog_isa *t) {
  if (begin >= end) return;
  machine m;
  setup(&m, p, worker, t);
  switch (p->program->mode) {
    case TNXK_MAP: m.plan->segments ? run_map_rows(&m, begin, end) : run_map(&m, begin, end); break;
    case TNXK_ROW: run_rows(&m, begin, end); break;
    case TNXK_REDUCE_INNER: run_reduce_inner(&m, phase, begin, end, shared); break;
    default: run_reduce_outer(&m, phase, begin, end, shared);
  }
  if (m.plan->uncached) tnxk_uncached_fence();
}

size_t prog_partial_bytes(const prog_plan *plan, int mode) {
  if (plan->n_chunks == 1) return 0;
  if (mode == TNXK_REDUCE_INNER) return sizeof(partial) * (size_t)(plan->outer * plan->n_chunks * plan->n_accs);
  int64_t tiles = (plan->body.count + PROG_TILE - 1) / PROG_TILE;
  return 2 * PROG_VECTOR_BYTES * (size_t)(tiles * plan->n_chunks * plan->n_accs);
}
