/* A StableHLO module as it was read: functions of operations with their types, attributes and regions, in MLIR's generic form (what stablehlo.c writes).
 *
 * The reader checks everything that needs no knowledge of an operation: each value is defined once and before its use, operands have the types that the
 * operation names. What operations mean is import.c's subject. Everything lives in the module's arena. */
#ifndef TNX_IR_HLO_MODULE_H
#define TNX_IR_HLO_MODULE_H
#include "ir/graph.h"

typedef struct tnx_hlo_place { uint32_t line, column; } tnx_hlo_place;

typedef enum tnx_hlo_attr_kind {
  TNX_HLO_UNIT,
  TNX_HLO_INT,    /* i; also true and false */
  TNX_HLO_FLOAT,  /* f */
  TNX_HLO_STRING, /* s; also @names and the last word of #stablehlo<..> */
  TNX_HLO_INTS,   /* ints, n: array<i64: ..> and lists of integers */
  TNX_HLO_DICT,   /* items, n: {..} and #stablehlo.name<..> */
  TNX_HLO_LIST,   /* items, n */
  TNX_HLO_DENSE   /* type, and i or f: every element has this value */
} tnx_hlo_attr_kind;

typedef struct tnx_hlo_attr {
  const char *name; /* "" in lists */
  uint8_t kind;     /* tnx_hlo_attr_kind */
  uint32_t n;
  int64_t i;
  double f;
  const char *s;
  const int64_t *ints;
  const struct tnx_hlo_attr *items;
  tnx_type type;
} tnx_hlo_attr;

typedef struct tnx_hlo_value { uint32_t id; tnx_type type; } tnx_hlo_value;

typedef struct tnx_hlo_block {
  uint32_t n_args, n_ops, n_results;
  const tnx_hlo_value *args;
  struct tnx_hlo_op **ops; /* without the return */
  const uint32_t *results; /* what the return gives */
  tnx_hlo_place end;
} tnx_hlo_block;

typedef struct tnx_hlo_op {
  const char *name; /* "stablehlo.add" */
  tnx_hlo_place place;
  uint32_t n_in, n_out, n_attrs, n_regions;
  const tnx_hlo_value *in;
  const tnx_hlo_value *out;
  const tnx_hlo_attr *attrs;
  const tnx_hlo_block *regions;
} tnx_hlo_op;

typedef struct tnx_hlo_function {
  const char *name;
  tnx_hlo_place place;
  const tnx_hlo_block *body;
  const int64_t *aliases; /* for each argument: the result that is written into it, or -1 */
  uint32_t n_results;
  const tnx_type *results;
} tnx_hlo_function;

typedef struct tnx_hlo_module {
  tnx_arena arena;
  const char *name, *file; /* file: for messages; the caller's */
  uint32_t n_functions, n_values; /* values have numbers below n_values */
  tnx_hlo_function *functions;
} tnx_hlo_module;

/* Reads a text of `len` bytes. PARSE with file:line:column and what was expected. */
tnx_status tnx_hlo_module_read(tnx_hlo_module *m, const char *file, const char *text, size_t len);
void tnx_hlo_module_fini(tnx_hlo_module *m);
const tnx_hlo_function *tnx_hlo_function_find(const tnx_hlo_module *m, const char *name);
/* NULL if the operation has no such attribute. */
const tnx_hlo_attr *tnx_hlo_attr_find(const tnx_hlo_attr *attrs, uint32_t n, const char *name);
#endif
