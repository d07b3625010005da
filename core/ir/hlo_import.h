/* The StableHLO importer's inside. Operations are written into the graph of the routine's current step with the builder, one function for each; loops end the step.
 *
 * A function gets its operands with hlo_in and stores results in m->results. The result's type is compared with the operation's afterwards, so that a wrong attribute
 * is found there. Errors are sticky in the builder. */
#ifndef TNX_IR_HLO_IMPORT_H
#define TNX_IR_HLO_IMPORT_H
#include "ir/builder_internal.h"
#include "ir/hlo_module.h"
#include "ir/routine.h"

enum { HLO_IMPORT_RESULTS = 64 };

/* Where values of one region or function body live: a routine under construction. Captured values come from the parent. */
typedef struct hlo_scope {
  struct hlo_scope *parent;
  tnx_routine *routine;
  TNX_VEC(uint32_t) captured; /* numbers of values in the text ... */
  TNX_VEC(uint32_t) capture;  /* ... and the routine's values that they are here */
  uint32_t step;              /* the graph being written is steps[step]; the routine's inputs come from no step */
} hlo_scope;

typedef struct hlo_definition {
  hlo_scope *scope;
  uint32_t step;
  tnx_value value;   /* in that step's graph; 0: not there */
  uint32_t routine;  /* number of the routine's value + 1; 0: it has none yet */
} hlo_definition;

typedef struct hlo_import {
  tnx_builder b;
  const tnx_hlo_module *module;
  hlo_scope *scope;
  hlo_definition *values; /* by number in the text */
  const tnx_hlo_op *op;
  tnx_value results[HLO_IMPORT_RESULTS];
  bool elementwise; /* a region is being applied to tensors: its numbers have the tensors' shape */
  int flags, depth;
  uint32_t inlined; /* operations so far */
} hlo_import;

tnx_value hlo_in(hlo_import *m, uint32_t i);
static inline const tnx_type *hlo_in_type(const hlo_import *m, uint32_t i) { return &m->op->in[i].type; }
static inline const tnx_type *hlo_out_type(const hlo_import *m, uint32_t i) { return &m->op->out[i].type; }
static inline void hlo_give(hlo_import *m, tnx_value v) { m->results[0] = v; }
tnx_value hlo_refuse(hlo_import *m, const char *what);      /* the operation is wrong: PARSE */
tnx_value hlo_unsupported(hlo_import *m, const char *what); /* NOT_IMPLEMENTED */
/* Attributes. Absent: the default, or refused. */
const tnx_hlo_attr *hlo_attr(hlo_import *m, const char *name);
const int64_t *hlo_ints(hlo_import *m, const tnx_hlo_attr *attrs, uint32_t n_attrs, const char *name, uint32_t *n); /* absent: none */
int64_t hlo_int_attr(hlo_import *m, const char *name, int64_t otherwise);
const char *hlo_word_attr(hlo_import *m, const char *name); /* "" if absent */
/* n distinct numbers below rank. */
bool hlo_are_dims(const int64_t *v, uint32_t n, int rank);
/* The region's results for these arguments, which are tensors: every operation is applied to all elements. Pointwise operations only. */
bool hlo_apply_region(hlo_import *m, const tnx_hlo_block *region, const tnx_value *args, tnx_value *results);
/* The region as a formula over a0, a1, ..., to be compared; false if it is too long or has operations with attributes other than comparisons. */
bool hlo_region_formula(const tnx_hlo_block *region, uint32_t result, char *buf, size_t cap);

/* ---- operations; false: not this file's ---- */
bool hlo_import_pointwise(hlo_import *m);
const char *hlo_pointwise_name(uint32_t i); /* of the operations that are one operator; NULL behind the last */
bool hlo_import_data(hlo_import *m);
bool hlo_import_index(hlo_import *m);
bool hlo_import_reduction(hlo_import *m);
#endif
