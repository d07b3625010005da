/* The program form: a graph in static single assignment order.
 *
 * Nodes are kept in topological order; node i's operands are results of nodes before it. A value is one result of one node and has a dtype and
 * sizes, which may be symbolic. Graphs are functional: nothing is modified; that a result lands in an input's memory is a property of the
 * graph's outputs (tnx_output.into), and the planner decides what can be done in place. Everything lives in the graph's arena. Value, node and
 * expression id 0 is "none". One thread at a time. */
#ifndef TNX_IR_GRAPH_H
#define TNX_IR_GRAPH_H
#include "base/arena.h"
#include "base/vec.h"
#include "tnx/call.h"

typedef enum tnx_op {
  TNX_OP_NONE,
#define TNX_OP(name, klass, inputs, results, attributes, doc) TNX_OP_##name,
#include "ops/ops.def"
#undef TNX_OP
  TNX_OP_COUNT
} tnx_op;

typedef enum tnx_op_class {
  TNX_CLASS_LEAF, TNX_CLASS_UNARY, TNX_CLASS_BINARY, TNX_CLASS_TERNARY, TNX_CLASS_CONVERT, TNX_CLASS_VIEW, TNX_CLASS_DATA,
  TNX_CLASS_REDUCE, TNX_CLASS_SCAN, TNX_CLASS_INDEX, TNX_CLASS_PRODUCT, TNX_CLASS_LINALG, TNX_CLASS_FFT
} tnx_op_class;

typedef struct tnx_op_info {
  const char *name; /* "ADD" */
  uint8_t klass;
  int8_t inputs; /* -1: any number */
  uint8_t results;
} tnx_op_info;
const tnx_op_info *tnx_op_get_info(tnx_op op);
static inline bool tnx_op_is_pointwise(tnx_op op) {
  uint8_t c = tnx_op_get_info(op)->klass;
  return c >= TNX_CLASS_UNARY && c <= TNX_CLASS_CONVERT;
}

typedef uint32_t tnx_node_id;

typedef struct tnx_node {
  uint16_t op;
  uint8_t n_results;
  uint8_t fault; /* INDEX class: tnx_fault of an index out of range, 0 for the usual words; no part of the node's identity */
  uint32_t n_inputs, n_ints, n_floats;
  tnx_value first; /* results are values first .. first + n_results - 1 */
  const tnx_value *inputs;
  const tnx_dim *ints;
  const double *floats;
} tnx_node;

enum {
  TNX_VALUE_WRAPPED = 1 << 0, /* stands for a Python number in type promotion */
  TNX_VALUE_HOST = 1 << 1     /* 0-dim input whose bytes come with each launch */
};
typedef struct tnx_value_data {
  tnx_node_id node;
  uint8_t dtype, rank, result, flags;
  const tnx_dim *sizes;
} tnx_value_data;

/* Symbolic sizes: expressions over symbols, unique by structure, in an order in which operands come first. */
typedef struct tnx_expr {
  uint8_t op; /* tnx_dim_op, or TNX_EXPR_SYMBOL */
  tnx_dim a, b; /* operands; SYMBOL: a is its number */
} tnx_expr;
enum { TNX_EXPR_SYMBOL = 100 };

typedef struct tnx_output {
  tnx_value value;          /* 0: an undefined result */
  uint32_t into;            /* input number or TNX_NO_TENSOR */
  const tnx_dim *strides;   /* wanted strides of a new output; NULL: contiguous */
} tnx_output;

typedef struct tnx_input {
  tnx_value value;
  const tnx_dim *strides; /* elements */
  /* inputs with the same class share memory exactly (same address, sizes, strides); TNX_NO_TENSOR: shares with none. An input that overlaps another one
   * in any other way has `overlaps` set: what is written to either must be computed before. */
  uint32_t alias;
  bool overlaps;
} tnx_input;

typedef struct tnx_symbol { const char *name; int64_t min; } tnx_symbol;

typedef struct tnx_graph {
  tnx_arena arena;
  const char *name;
  TNX_VEC(tnx_node) nodes;         /* [0] is unused */
  TNX_VEC(tnx_value_data) values;  /* [0] is unused */
  TNX_VEC(tnx_expr) exprs;         /* [0] is unused */
  TNX_VEC(tnx_symbol) symbols;
  TNX_VEC(tnx_input) inputs;
  TNX_VEC(tnx_output) outputs;
  uint32_t *cse;  /* open-addressed table of node ids by structure */
  uint32_t cse_cap, cse_len;
  uint32_t *expr_table;
  uint32_t expr_cap;
} tnx_graph;

tnx_status tnx_graph_init(tnx_graph *g, const char *name);
void tnx_graph_fini(tnx_graph *g);

static inline const tnx_value_data *tnx_graph_value(const tnx_graph *g, tnx_value v) { return &g->values.data[v]; }
static inline const tnx_node *tnx_graph_node(const tnx_graph *g, tnx_node_id n) { return &g->nodes.data[n]; }
static inline const tnx_node *tnx_graph_producer(const tnx_graph *g, tnx_value v) { return &g->nodes.data[g->values.data[v].node]; }

/* Adds a node, or finds the equal one that is there already (same operator, operands, attributes, result types). Results of `types`. NULL arrays are allowed with count 0. */
typedef struct tnx_type { uint8_t dtype, rank; const tnx_dim *sizes; } tnx_type;
tnx_status tnx_graph_add(tnx_graph *g, tnx_op op, const tnx_value *inputs, uint32_t n_inputs, const tnx_dim *ints, uint32_t n_ints, const double *floats,
                         uint32_t n_floats, const tnx_type *types, uint32_t n_results, tnx_value *first_out);

/* Symbolic arithmetic. Folds constants and simple identities; on overflow or shortage of memory the graph's error is returned. */
tnx_status tnx_graph_symbol(tnx_graph *g, const char *name, int64_t min, tnx_dim *out);
tnx_status tnx_graph_dim(tnx_graph *g, tnx_dim_op op, tnx_dim a, tnx_dim b, tnx_dim *out);
/* The value of every expression for the given symbols, into vals[exprs.len]. Overflow and division by zero are errors. */
tnx_status tnx_graph_eval(const tnx_expr *exprs, uint32_t n, const int64_t *symbols, uint32_t n_symbols, int64_t *vals);
static inline int64_t tnx_dim_value(tnx_dim d, const int64_t *vals) { return tnx_dim_is_symbolic(d) ? vals[(uint32_t)(d - TNX_DIM_SYMBOLIC)] : d; }

/* A graph of its own with the same contents, under the same ids. */
tnx_status tnx_graph_copy(const tnx_graph *src, tnx_graph *out);
/* needed[node]: some output depends on it. */
void tnx_graph_needed(const tnx_graph *g, bool *needed);
/* Adds what src's outputs need to dst, with sizes replaced by their values (dims, from tnx_graph_eval): inputs[i] is dst's value for input i, of its dtype and sizes
 * (any for one that nothing needs); outputs[i] receives the value of output i, 0 for none. */
tnx_status tnx_graph_inline(const tnx_graph *src, const int64_t *dims, tnx_graph *dst, const tnx_value *inputs, tnx_value *outputs);

/* Every rule a graph has to keep: operand order, counts, dtypes and shapes by operator. INTERNAL with the node's text. */
tnx_status tnx_graph_verify(const tnx_graph *g);
/* Heap text of the graph, one node a line; freed with tnx_text_free. */
tnx_status tnx_graph_print(const tnx_graph *g, char **text_out);
/* Reads what tnx_graph_print wrote, and verifies it: initialises g as tnx_graph_init does, unless it fails (PARSE for anything wrong with the text). */
tnx_status tnx_graph_parse(tnx_graph *g, const char *text);
/* StableHLO text; composites become stablehlo.composite with their decomposition. NOT_IMPLEMENTED names the node that has no form there. */
tnx_status tnx_graph_stablehlo(const tnx_graph *g, char **text_out);
/* The same for given values of the graph's symbols: shapes in the text are static. Without them a graph with symbols is NOT_IMPLEMENTED. */
tnx_status tnx_graph_stablehlo_for(const tnx_graph *g, const int64_t *symbols, uint32_t n_symbols, char **text_out);
#endif
