/* Executable plans.
 *
 * A plan is a list of steps over buffers. Sizes and strides may be symbolic; an instance binds them to one set of symbol values: kernels are chosen,
 * parameter structs filled, temporaries given their place in one block of scratch memory. A launch fills in the buffers' addresses only.
 * Plans are immutable once built, but for their cache of instances (guarded by its mutex); any number of launches may be under way. */
#ifndef TNX_PLAN_PLAN_H
#define TNX_PLAN_PLAN_H
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/attention/attention.h"
#include "kernels/fft/fft.h"
#include "kernels/indexing/indexing.h"
#include "kernels/kernel.h"
#include "kernels/linalg/linalg.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/program.h"
#include "kernels/scan/scan.h"
#include "passes/passes.h"
#include "plan/flat.h"
#include "plan/layout.h"

typedef enum tnx_buffer_kind {
  TNX_BUFFER_INPUT,  /* index: input number */
  TNX_BUFFER_HOST,   /* index: host scalar number; 16 bytes in the launch record */
  TNX_BUFFER_OUTPUT, /* index: output number */
  TNX_BUFFER_TEMP,   /* index: temporary number */
  TNX_BUFFER_DIMS    /* values of symbolic sizes, int64, kept by the instance */
} tnx_buffer_kind;

typedef struct tnx_buffer {
  uint8_t kind, dtype;
  uint32_t index;
  tnx_dim elements;
  uint32_t first_step, last_step; /* TEMP: steps that touch it */
} tnx_buffer;

typedef enum tnx_step_kind {
  TNX_STEP_PROGRAM, TNX_STEP_COPY, TNX_STEP_MATMUL, TNX_STEP_ATTENTION, TNX_STEP_ATTENTION_BACKWARD, TNX_STEP_GATHER, TNX_STEP_SCATTER,
  TNX_STEP_SCAN, TNX_STEP_TOPK, TNX_STEP_NONZERO, TNX_STEP_LINALG, TNX_STEP_FFT
} tnx_step_kind;

typedef struct tnx_step {
  uint8_t kind;         /* tnx_step_kind */
  uint8_t op;           /* SCATTER: tnxk_scatter_op; SCAN: tnxk_scan_op; TOPK: descending, 2 if stable; ATTENTION*: causal; MATMUL: tnxk_act; LINALG: tnxk_linalg_op; FFT: tnxk_fft_kind */
  uint8_t rank;         /* PROGRAM: of the space */
  uint8_t n_reduced;    /* PROGRAM */
  uint8_t fault;        /* GATHER, SCATTER: tnx_fault of an index out of range */
  bool wraps;           /* GATHER, SCATTER: negative indices count from the end */
  uint8_t flags[3];     /* LINALG, FFT: the node's ints; MATMUL: by how many dimensions the rows and the columns of b are walked (0: by one each) */
  int8_t dim;           /* SCAN, TOPK, FFT: dimension; GATHER, SCATTER: see step_index */
  const char *name;     /* the operator it came from, for messages */
  tnx_layout *layouts;  /* operands, in the order the kind gives them (see bind.c); buffer 0: absent */
  uint32_t n_layouts;
  const tnx_dim *space; /* PROGRAM: sizes */
  tnxk_program program; /* PROGRAM; operand k is layouts[k], whose strides are already those over the space */
  const int8_t *dims;   /* GATHER, SCATTER: for each dimension of the iteration space: the dimension of the indexed operand it walks, or -1;
                           then for each index operand: the dimension it indexes, then the space dimension its first dimension lies on */
  int64_t fill;         /* NONZERO */
  double numbers[2];    /* MATMUL: alpha, beta; ATTENTION: scale; LSTSQ: rcond */
} tnx_step;

typedef struct tnx_plan_input { uint8_t dtype, rank, flags; uint32_t host; /* host scalar number or TNX_NO_TENSOR */ } tnx_plan_input;
typedef struct tnx_plan_output {
  tnx_layout layout; /* of a new output: contiguous or as asked for */
  uint32_t into;     /* input number or TNX_NO_TENSOR */
  bool none;
} tnx_plan_output;

typedef struct tnx_instance tnx_instance;

/* On devices that run compiled programs a plan has no steps: it keeps its graph, and instances its sizes and where its operands lie. See batch.h. */
typedef struct tnx_plan_program {
  tnx_graph graph;
  bool *needed; /* by input: some output depends on it */
} tnx_plan_program;

enum { TNX_PLAN_INSTANCES = 4 };

struct tnx_plan {
  _Atomic uint32_t refs;
  tnx_arena arena;
  const char *name;
  TNX_VEC(tnx_step) steps;
  TNX_VEC(tnx_buffer) buffers; /* [0] unused */
  TNX_VEC(tnx_plan_input) inputs;
  TNX_VEC(tnx_plan_output) outputs;
  TNX_VEC(tnx_dim) dims; /* symbolic sizes whose values the DIMS buffer holds */
  uint32_t n_temps, n_hosts, dims_buffer;
  const tnx_expr *exprs;
  uint32_t n_exprs, n_symbols;
  uint64_t build_ns;   /* eager plans: how long lowering and planning took */
  tnx_result *results; /* eager plans: what tnx_plan_result gives; others are asked by tnx_plan_infer */
  tnx_plan_program *program; /* NULL: the plan is its steps */
  pthread_mutex_t mutex; /* guards instances; rank: below the plan cache's, above the allocator's */
  tnx_instance *instances[TNX_PLAN_INSTANCES]; /* most recently used first */
};

/* Builds the plan of a graph; the graph may be destroyed afterwards. A graph whose fused groups exceed what a program can hold is planned without fusion. */
tnx_status tnx_plan_build(tnx_graph *g, tnx_plan **out);
void tnx_plan_retain(tnx_plan *p);

/* ---- instances ---- */
typedef struct tnx_patch { uint32_t param_offset, buffer; int64_t byte_offset; } tnx_patch;

typedef struct tnx_bound_step {
  tnxk_kernel kernel;
  const void *params;
  uint32_t params_bytes;
  const tnx_patch *patches;
  uint32_t n_patches;
  int32_t fault_offset; /* of a tnxk_fault * in params; -1: none */
  uint8_t fault;        /* tnx_fault that an index out of range is; 0: the code says it (programs) */
  uint8_t fault_dim[TNXK_INDEX_MAX]; /* the dimension each index walks */
  uint8_t check;        /* LINALG: tnx_check */
  const char *name;
} tnx_bound_step;

struct tnx_instance {
  _Atomic uint32_t refs;
  tnx_arena arena;
  int64_t *symbols;
  uint32_t n_steps;
  tnx_bound_step *steps;
  int64_t *dim_values;
  uint64_t *temp_offset; /* bytes into the scratch block, by temporary */
  uint64_t temp_bytes;
  tnx_result *results;
  /* of a plan with a program */
  uint64_t number;     /* unique in the process */
  int64_t *dims;       /* values of the graph's size expressions */
  tnx_view *inputs, *outputs; /* layouts; of an output that goes into an input: that input's */
};

tnx_status tnx_instance_get(tnx_plan *p, const int64_t *symbols, uint32_t n_symbols, tnx_instance **out); /* retained */
void tnx_instance_release(tnx_instance *inst);

/* ---- building blocks of tnx_plan_build ---- */
typedef struct tnx_planner {
  tnx_graph *g;
  tnx_analysis a;
  tnx_plan *p;
  tnx_layout *loc;   /* value -> where it is; buffer 0: nowhere yet */
  tnx_layout *place; /* value -> where it has to be written; buffer 0: anywhere */
  bool too_large;    /* a group did not fit the limits of a program */
} tnx_planner;

tnx_status tnx_planner_buffer(tnx_planner *pl, uint8_t kind, uint32_t index, uint8_t dtype, tnx_dim elements, uint32_t *out);
/* Makes sure v has memory; its layout. */
tnx_status tnx_planner_need(tnx_planner *pl, tnx_value v, tnx_layout *out);
/* The layout v is to be written to: its place, or a new temporary. Sets loc. */
tnx_status tnx_planner_dest(tnx_planner *pl, tnx_value v, tnx_layout *out);
tnx_status tnx_planner_step(tnx_planner *pl, tnx_step step, const tnx_layout *layouts, uint32_t n);
/* place.c: decides where outputs, concatenations and updates are written. */
tnx_status tnx_planner_place(tnx_planner *pl);
/* program.c: a group, a broadcast leaf, or a converting copy as a program step. */
tnx_status tnx_planner_group(tnx_planner *pl, uint32_t group);
tnx_status tnx_planner_fill(tnx_planner *pl, tnx_value v, const tnx_layout *dest);
tnx_status tnx_planner_copy(tnx_planner *pl, const tnx_layout *from, const tnx_layout *to);
/* True where a value computed in a group has to be in memory. */
bool tnx_planner_stored(const tnx_planner *pl, tnx_value v);
/* bind.c's part for plans with a program: dims and layouts; INDEX never, OVERFLOW for sizes beyond 64 bits. */
tnx_status tnx_program_bind(const tnx_plan *p, tnx_instance *inst, const int64_t *dims);
/* Where a node runs in node order: a grouped one with its group's last. */
static inline tnx_node_id tnx_planner_position(const tnx_planner *pl, tnx_node_id n) {
  uint32_t grp = pl->a.group[n];
  return grp ? pl->a.groups.data[grp].last : n;
}
#endif
