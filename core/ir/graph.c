/* Graph storage: nodes and values with structural sharing, and symbolic size expressions. */
#include "ir/graph.h"

#include "base/hash.h"

static const tnx_op_info op_info[TNX_OP_COUNT] = {
    [TNX_OP_NONE] = {"NONE", 0, 0, 0},
#define TNX_OP(name, klass, inputs, results, attributes, doc) [TNX_OP_##name] = {#name, TNX_CLASS_##klass, inputs, results},
#include "ops/ops.def"
#undef TNX_OP
};

const tnx_op_info *tnx_op_get_info(tnx_op op) { return &op_info[(unsigned)op < TNX_OP_COUNT ? op : TNX_OP_NONE]; }

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while building a graph"); }

tnx_status tnx_graph_init(tnx_graph *g, const char *name) {
  memset(g, 0, sizeof *g);
  tnx_arena_init(&g->arena);
  g->name = tnx_arena_strdup(&g->arena, name ? name : "graph");
  /* Entry 0 of each table means "none". */
  bool ok = g->name && tnx_vec_push(&g->nodes, (tnx_node){0}) && tnx_vec_push(&g->values, (tnx_value_data){0}) &&
            tnx_vec_push(&g->exprs, (tnx_expr){0});
  if (ok) return TNX_OK;
  tnx_graph_fini(g);
  return no_memory();
}

void tnx_graph_fini(tnx_graph *g) {
  tnx_vec_fini(&g->nodes);
  tnx_vec_fini(&g->values);
  tnx_vec_fini(&g->exprs);
  tnx_vec_fini(&g->symbols);
  tnx_vec_fini(&g->inputs);
  tnx_vec_fini(&g->outputs);
  tnx_heap_free(g->cse);
  tnx_heap_free(g->expr_table);
  tnx_arena_fini(&g->arena);
  memset(g, 0, sizeof *g);
}

/* ---- hash-consing ---- */

static uint64_t node_hash(const tnx_graph *g, const tnx_node *n) {
  uint64_t h = tnx_hash_mix(n->op, ((uint64_t)n->n_inputs << 32) | n->n_ints);
  h = tnx_hash_bytes(n->inputs, n->n_inputs * sizeof *n->inputs, h);
  h = tnx_hash_bytes(n->ints, n->n_ints * sizeof *n->ints, h);
  h = tnx_hash_bytes(n->floats, n->n_floats * sizeof *n->floats, h);
  for (uint32_t i = 0; i < n->n_results; i++) {
    const tnx_value_data *v = &g->values.data[n->first + i];
    h = tnx_hash_mix(h ^ v->dtype, v->rank);
    h = tnx_hash_bytes(v->sizes, v->rank * sizeof *v->sizes, h);
  }
  return h;
}

static bool node_equal(const tnx_graph *g, const tnx_node *a, const tnx_node *b) {
  if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_ints != b->n_ints || a->n_floats != b->n_floats || a->n_results != b->n_results)
    return false;
  if ((a->n_inputs && memcmp(a->inputs, b->inputs, a->n_inputs * sizeof *a->inputs)) || (a->n_ints && memcmp(a->ints, b->ints, a->n_ints * sizeof *a->ints)) ||
      (a->n_floats && memcmp(a->floats, b->floats, a->n_floats * sizeof *a->floats)))
    return false;
  for (uint32_t i = 0; i < a->n_results; i++) {
    const tnx_value_data *x = &g->values.data[a->first + i], *y = &g->values.data[b->first + i];
    if (x->dtype != y->dtype || x->rank != y->rank || x->flags != y->flags || (x->rank && memcmp(x->sizes, y->sizes, x->rank * sizeof *x->sizes))) return false;
  }
  return true;
}

static tnx_status cse_grow(tnx_graph *g) {
  uint32_t cap = g->cse_cap ? g->cse_cap * 2 : 64;
  uint32_t *t = tnx_heap_zalloc(cap, sizeof *t);
  if (!t) return no_memory();
  for (uint32_t i = 0; i < g->cse_cap; i++) {
    if (!g->cse[i]) continue;
    uint32_t p = (uint32_t)node_hash(g, &g->nodes.data[g->cse[i]]) & (cap - 1);
    while (t[p]) p = (p + 1) & (cap - 1);
    t[p] = g->cse[i];
  }
  tnx_heap_free(g->cse);
  g->cse = t;
  g->cse_cap = cap;
  return TNX_OK;
}

tnx_status tnx_graph_add(tnx_graph *g, tnx_op op, const tnx_value *inputs, uint32_t n_inputs, const tnx_dim *ints, uint32_t n_ints, const double *floats,
                         uint32_t n_floats, const tnx_type *types, uint32_t n_results, tnx_value *first_out) {
  /* Small graphs (eager calls) compare with the few nodes there are; larger ones use the table. */
  enum { TABLE_FROM = 24 };
  tnx_node n = {.op = (uint16_t)op, .n_results = (uint16_t)n_results, .n_inputs = n_inputs, .n_ints = n_ints, .n_floats = n_floats, .first = g->values.len};
  n.inputs = inputs;
  n.ints = ints;
  n.floats = floats;
  uint32_t values_before = g->values.len;
  for (uint32_t i = 0; i < n_results; i++) {
    tnx_value_data v = {.node = g->nodes.len, .dtype = types[i].dtype, .rank = types[i].rank, .result = (uint8_t)i, .sizes = types[i].sizes};
    if (!tnx_vec_push(&g->values, v)) return no_memory();
  }
  uint32_t slot = 0;
  bool shared = op != TNX_OP_INPUT, table = g->nodes.len >= TABLE_FROM;
  if (shared) {
    const tnx_node *same = NULL;
    if (table) {
      if (g->cse_len * 2 >= g->cse_cap) TNX_TRY(cse_grow(g));
      if (g->cse_len == 0) { /* the table starts late: take in what is there */
        for (uint32_t i = 1; i < g->nodes.len; i++) {
          if (g->nodes.data[i].op == TNX_OP_INPUT) continue;
          uint32_t p = (uint32_t)node_hash(g, &g->nodes.data[i]) & (g->cse_cap - 1);
          while (g->cse[p]) p = (p + 1) & (g->cse_cap - 1);
          g->cse[p] = i;
          g->cse_len++;
        }
      }
      slot = (uint32_t)node_hash(g, &n) & (g->cse_cap - 1);
      for (; g->cse[slot]; slot = (slot + 1) & (g->cse_cap - 1))
        if (node_equal(g, &g->nodes.data[g->cse[slot]], &n)) {
          same = &g->nodes.data[g->cse[slot]];
          break;
        }
    } else {
      for (uint32_t i = 1; i < g->nodes.len && !same; i++)
        if (g->nodes.data[i].op != TNX_OP_INPUT && node_equal(g, &g->nodes.data[i], &n)) same = &g->nodes.data[i];
    }
    if (same) {
      g->values.len = values_before;
      *first_out = same->first;
      return TNX_OK;
    }
  }
  n.inputs = tnx_arena_copy(&g->arena, inputs, n_inputs * sizeof *inputs);
  n.ints = tnx_arena_copy(&g->arena, ints, n_ints * sizeof *ints);
  n.floats = tnx_arena_copy(&g->arena, floats, n_floats * sizeof *floats);
  bool ok = n.inputs && n.ints && n.floats;
  for (uint32_t i = 0; ok && i < n_results; i++) {
    const void *sizes = tnx_arena_copy(&g->arena, types[i].sizes, types[i].rank * sizeof *types[i].sizes);
    g->values.data[n.first + i].sizes = sizes;
    ok = sizes != NULL;
  }
  if (!ok || !tnx_vec_push(&g->nodes, n)) {
    g->values.len = values_before;
    return no_memory();
  }
  if (shared && table) {
    g->cse[slot] = g->nodes.len - 1;
    g->cse_len++;
  }
  *first_out = n.first;
  return TNX_OK;
}

/* ---- symbolic sizes ---- */

static tnx_status expr_find(tnx_graph *g, tnx_expr e, tnx_dim *out) {
  if (g->exprs.len * 2 >= g->expr_cap) {
    uint32_t cap = g->expr_cap ? g->expr_cap * 2 : 32;
    uint32_t *t = tnx_heap_zalloc(cap, sizeof *t);
    if (!t) return no_memory();
    for (uint32_t i = 1; i < g->exprs.len; i++) {
      const tnx_expr *x = &g->exprs.data[i];
      uint32_t p = (uint32_t)tnx_hash_mix((uint64_t)x->a * 31 + x->op, (uint64_t)x->b) & (cap - 1);
      while (t[p]) p = (p + 1) & (cap - 1);
      t[p] = i;
    }
    tnx_heap_free(g->expr_table);
    g->expr_table = t;
    g->expr_cap = cap;
  }
  uint32_t p = (uint32_t)tnx_hash_mix((uint64_t)e.a * 31 + e.op, (uint64_t)e.b) & (g->expr_cap - 1);
  for (; g->expr_table[p]; p = (p + 1) & (g->expr_cap - 1)) {
    const tnx_expr *x = &g->exprs.data[g->expr_table[p]];
    if (x->op == e.op && x->a == e.a && x->b == e.b) {
      *out = TNX_DIM_SYMBOLIC + (int64_t)g->expr_table[p];
      return TNX_OK;
    }
  }
  if (!tnx_vec_push(&g->exprs, e)) return no_memory();
  g->expr_table[p] = g->exprs.len - 1;
  *out = TNX_DIM_SYMBOLIC + (int64_t)(g->exprs.len - 1);
  return TNX_OK;
}

tnx_status tnx_graph_symbol(tnx_graph *g, const char *name, int64_t min, tnx_dim *out) {
  tnx_symbol s = {tnx_arena_strdup(&g->arena, name), min};
  if (!s.name || !tnx_vec_push(&g->symbols, s)) return no_memory();
  return expr_find(g, (tnx_expr){TNX_EXPR_SYMBOL, (int64_t)g->symbols.len - 1, 0}, out);
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static tnx_status apply(uint8_t op, int64_t a, int64_t b, int64_t *out) {
  bool over = false;
  switch (op) {
    case TNX_DIM_ADD: over = __builtin_add_overflow(a, b, out); break;
    case TNX_DIM_SUB: over = __builtin_sub_overflow(a, b, out); break;
    case TNX_DIM_MUL: over = __builtin_mul_overflow(a, b, out); break;
    case TNX_DIM_FLOORDIV:
    case TNX_DIM_MOD:
      if (b == 0) return tnx_fail(TNX_INVALID_ARGUMENT, "a size is divided by zero");
      if (b == -1) over = op == TNX_DIM_FLOORDIV ? __builtin_sub_overflow((int64_t)0, a, out) : (*out = 0, false);
      else *out = op == TNX_DIM_FLOORDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
      break;
    case TNX_DIM_MIN: *out = a < b ? a : b; break;
    case TNX_DIM_MAX: *out = a > b ? a : b; break;
    default: return tnx_fail(TNX_INTERNAL, "unknown size operation %d", op);
  }
  /* The lowest 2^32 numbers are the codes of symbolic sizes. */
  if (over || tnx_dim_is_symbolic(*out)) return tnx_fail(TNX_OVERFLOW, "a size overflows 64 bits");
  return TNX_OK;
}

tnx_status tnx_graph_dim(tnx_graph *g, tnx_dim_op op, tnx_dim a, tnx_dim b, tnx_dim *out) {
  bool sa = tnx_dim_is_symbolic(a), sb = tnx_dim_is_symbolic(b);
  if (!sa && !sb) return apply(op, a, b, out);
  switch (op) {
    case TNX_DIM_ADD:
      if (a == 0) { *out = b; return TNX_OK; }
      if (b == 0) { *out = a; return TNX_OK; }
      break;
    case TNX_DIM_SUB:
      if (b == 0) { *out = a; return TNX_OK; }
      if (a == b) { *out = 0; return TNX_OK; }
      if (!sb) return tnx_graph_dim(g, TNX_DIM_ADD, a, -b, out);
      break;
    case TNX_DIM_MUL:
      if (a == 0 || b == 0) { *out = 0; return TNX_OK; }
      if (a == 1) { *out = b; return TNX_OK; }
      if (b == 1) { *out = a; return TNX_OK; }
      break;
    case TNX_DIM_FLOORDIV:
      if (b == 1) { *out = a; return TNX_OK; }
      if (a == b) { *out = 1; return TNX_OK; }
      if (sa) { /* (x * b) // b */
        const tnx_expr *e = &g->exprs.data[(uint32_t)(a - TNX_DIM_SYMBOLIC)];
        if (e->op == TNX_DIM_MUL && e->b == b) { *out = e->a; return TNX_OK; }
        if (e->op == TNX_DIM_MUL && e->a == b) { *out = e->b; return TNX_OK; }
      }
      break;
    case TNX_DIM_MOD:
      if (b == 1 || a == b) { *out = 0; return TNX_OK; }
      break;
    default:
      if (a == b) { *out = a; return TNX_OK; }
      break;
  }
  bool commutes = op == TNX_DIM_ADD || op == TNX_DIM_MUL || op == TNX_DIM_MIN || op == TNX_DIM_MAX;
  /* One order for commuting operands: symbols by number, a constant last. */
  if (commutes && (tnx_dim_is_symbolic(a) ? tnx_dim_is_symbolic(b) && a > b : true)) { tnx_dim t = a; a = b; b = t; }
  /* (x op c1) op c2 -> x op (c1 op c2) */
  if ((op == TNX_DIM_ADD || op == TNX_DIM_MUL) && !tnx_dim_is_symbolic(b)) {
    tnx_expr e = g->exprs.data[(uint32_t)(a - TNX_DIM_SYMBOLIC)];
    if (e.op == op && !tnx_dim_is_symbolic(e.b)) {
      int64_t c;
      TNX_TRY(apply(op, e.b, b, &c));
      return tnx_graph_dim(g, op, e.a, c, out);
    }
  }
  return expr_find(g, (tnx_expr){(uint8_t)op, a, b}, out);
}

tnx_status tnx_graph_eval(const tnx_expr *exprs, uint32_t n, const int64_t *symbols, uint32_t n_symbols, int64_t *vals) {
  for (uint32_t i = 1; i < n; i++) {
    const tnx_expr *e = &exprs[i];
    if (e->op == TNX_EXPR_SYMBOL) {
      if ((uint64_t)e->a >= n_symbols) return tnx_fail(TNX_INVALID_ARGUMENT, "the graph has more symbols than the %u given", n_symbols);
      vals[i] = symbols[e->a];
    } else {
      TNX_TRY(apply(e->op, tnx_dim_value(e->a, vals), tnx_dim_value(e->b, vals), &vals[i]));
    }
  }
  return TNX_OK;
}
