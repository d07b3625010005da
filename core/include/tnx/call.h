/* Operator calls: how the glue asks libtnx to run one ATen operator (eager) or to add it to a graph (compiled).
 *
 * Both go through the same operator table (core/aten/aten.def): a row names an ATen overload, its in-place and out forms, and the
 * lowering function. An eager call is a one-operator graph whose plan is cached under everything the plan depends on. */
#ifndef TNX_CALL_H
#define TNX_CALL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tnx/dtype.h"
#include "tnx/runtime.h"
#include "tnx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A size, stride or index that may be symbolic: a plain number, or TNX_DIM_SYMBOLIC | expression id of the graph at hand. */
typedef int64_t tnx_dim;
/* A value of the graph at hand; 0 is none. */
typedef uint32_t tnx_value;

enum { TNX_MAX_RANK = 12, TNX_MAX_RESULTS = 16 /* of a call without lists of tensors */ };

/* ---- the operator table ---- */
enum {
  TNX_ROW_VIEW = 1 << 0,     /* a view: native in graphs only; eager tensors take PyTorch's own view path */
  TNX_ROW_COMPOSITE = 1 << 1, /* PyTorch decomposes it in eager; graphs keep it whole */
  TNX_ROW_RANDOM = 1 << 2,   /* its last two arguments, added by the caller, are the Philox seed and offset as 0-dim int64 host tensors */
  TNX_ROW_LIST = 1 << 3,     /* returns a list of tensors */
  TNX_ROW_APART = 1 << 4,    /* what is written may share no memory with an operand (but the one an in-place form writes to) */
  TNX_ROW_NUMBERS = 1 << 5,  /* eager callers pass its fractional numbers (a learning rate) as wrapped 0-dim host tensors: calls that differ in them share a plan */
  TNX_ROW_EACH = 1 << 6      /* another row for each element of lists; where it does not cover a call, PyTorch's loop over the elements does */
};
typedef struct tnx_row {
  const char *functional; /* "add.Tensor"; "" where there is none (the row is in-place only) */
  const char *inplace;    /* "add_.Tensor" or "" */
  const char *out;        /* "add.out" or "" */
  uint32_t flags;
  uint32_t id;            /* its place in the table */
} tnx_row;
TNX_API uint32_t tnx_row_count(void);
TNX_API const tnx_row *tnx_row_at(uint32_t id);
/* By the functional, in-place or out name; NULL if the table has no such row. */
TNX_API const tnx_row *tnx_row_find(const char *name);

/* ---- arguments ---- */
typedef enum tnx_arg_kind {
  TNX_ARG_NONE,
  TNX_ARG_TENSOR,      /* .value: eager call: index into tnx_call.tensors; lowering: graph value */
  TNX_ARG_TENSORS,     /* .values / .count; entries may be TNX_NO_TENSOR where the schema allows none */
  TNX_ARG_INT,         /* .dim; also a Scalar that holds an integer; may be symbolic */
  TNX_ARG_FLOAT,       /* .number[0]; also a Scalar that holds a float */
  TNX_ARG_BOOL,        /* .dim 0 or 1; also a Scalar that holds a bool */
  TNX_ARG_COMPLEX,     /* .number[0], .number[1] */
  TNX_ARG_INTS,        /* .dims / .count */
  TNX_ARG_FLOATS,      /* .numbers / .count */
  TNX_ARG_BOOLS,       /* .dims / .count */
  TNX_ARG_SCALARS,     /* .args / .count: list of Scalars */
  TNX_ARG_DTYPE,       /* .dtype */
  TNX_ARG_STRING       /* .string, NUL-terminated */
} tnx_arg_kind;
#define TNX_NO_TENSOR UINT32_MAX

typedef struct tnx_arg {
  uint32_t kind; /* tnx_arg_kind */
  uint32_t count;
  union {
    uint32_t value;
    tnx_dim dim;
    double number[2];
    tnx_dtype dtype;
    const uint32_t *values;
    const tnx_dim *dims;
    const double *numbers;
    const struct tnx_arg *args;
    const char *string;
  };
} tnx_arg;
/* Device, layout, memory format, generator and pin_memory arguments are passed as TNX_ARG_NONE, except memory_format: TNX_ARG_INT with
 * c10::MemoryFormat's number (0 contiguous, 1 preserve, 2 channels last, 3 channels last 3d). */

/* Places for results that a call with these arguments may need: lists give a result for each element. */
static inline uint32_t tnx_max_results(const tnx_arg *args, uint32_t n_args) {
  uint32_t n = TNX_MAX_RESULTS;
  for (uint32_t i = 0; i < n_args; i++)
    if (args[i].kind == TNX_ARG_TENSORS) n += args[i].count;
  return n;
}

/* ---- eager calls ---- */
enum {
  TNX_TENSOR_WRAPPED = 1 << 0, /* a Python number turned into a 0-dim tensor: takes part in promotion as a number */
  TNX_TENSOR_HOST = 1 << 1     /* 0-dim CPU tensor: its value (16 bytes at data) is copied at the call, so it is not part of the cache key */
};
typedef struct tnx_tensor {
  void *data; /* address of element 0 */
  const int64_t *sizes, *strides; /* strides in elements */
  uint64_t storage_begin, storage_end; /* addresses of the storage: who may overlap whom */
  int32_t rank;
  uint8_t dtype, flags;
} tnx_tensor;

typedef struct tnx_call {
  const tnx_row *row;
  const tnx_arg *args; /* in schema order, defaults filled in, without the out arguments */
  uint32_t n_args;
  const tnx_tensor *tensors;
  uint32_t n_tensors;
  /* Results that go into given tensors (in-place and out forms): into[i] is the index of result i's tensor or TNX_NO_TENSOR. The
   * tensor already has the right sizes: see tnx_call_prepare. */
  const uint32_t *into;
  uint32_t n_into;
  uint8_t default_dtype; /* torch.get_default_dtype(): what Python floats become beside integer tensors */
} tnx_call;

typedef struct tnx_plan tnx_plan;

/* What a result looks like. Borrowed from the plan. */
typedef struct tnx_result {
  int32_t rank;
  uint8_t dtype;
  uint8_t none; /* the result is an undefined tensor */
  int64_t sizes[TNX_MAX_RANK], strides[TNX_MAX_RANK];
  uint64_t bytes;
} tnx_result;

/* The plan of the call: found in the cache or built. *plan_out is retained for the caller (tnx_plan_release). NOT_IMPLEMENTED: the
 * row does not cover this case (the glue falls back, counted). SHAPE, DTYPE, INVALID_ARGUMENT, INDEX: the call is wrong; the
 * glue asks PyTorch's Meta kernel for its words first. *fresh_out: the row has not been seen with these dtypes, ranks and attributes before, and the
 * plan is not in the cache: the glue lets the Meta kernel check the call and then accepts it; a call that is not accepted leaves no trace. For out forms call once with n_into = 0 to learn the results' sizes (tnx_plan_result), resize, then prepare with into. */
TNX_API tnx_status tnx_call_prepare(const tnx_call *call, tnx_plan **plan_out, bool *fresh_out);
/* A fresh call is right: its plan is cached, and calls of its kind are no longer fresh. The call is the one that was prepared. */
TNX_API void tnx_call_accept(const tnx_call *call, tnx_plan *plan);
TNX_API uint32_t tnx_plan_result_count(const tnx_plan *plan);
TNX_API const tnx_result *tnx_plan_result(const tnx_plan *plan, uint32_t i);
/* Queues the plan on the stream. tensors: the call's. results[i]: memory for result i (ignored where into is given or the result is none). */
TNX_API tnx_status tnx_call_launch(tnx_plan *plan, const tnx_call *call, void *const *results, tnx_stream *stream);
TNX_API void tnx_plan_release(tnx_plan *plan);

/* Figures of the plan cache, process-wide. */
typedef struct tnx_cache_stats { uint64_t hits, misses, evictions, entries, bytes, build_ns; } tnx_cache_stats;
TNX_API void tnx_cache_get_stats(tnx_cache_stats *out);
TNX_API void tnx_cache_clear(void);

/* ---- graphs (torch.compile) ---- */
typedef struct tnx_module tnx_module; /* a graph being built */

TNX_API tnx_status tnx_module_create(const char *name, tnx_module **out);
TNX_API void tnx_module_destroy(tnx_module *m);
TNX_API void tnx_module_set_default_dtype(tnx_module *m, tnx_dtype t); /* torch.get_default_dtype(); float32 where not called */
/* A new symbol, bound at every run (run's `symbols`, in order of creation). Symbols are sizes of at least `min` (0 and 1 are specialised by Dynamo: pass 2). */
TNX_API tnx_status tnx_module_symbol(tnx_module *m, const char *name, int64_t min, tnx_dim *out);
typedef enum tnx_dim_op { TNX_DIM_ADD, TNX_DIM_SUB, TNX_DIM_MUL, TNX_DIM_FLOORDIV, TNX_DIM_MOD, TNX_DIM_MIN, TNX_DIM_MAX } tnx_dim_op;
TNX_API tnx_status tnx_module_dim(tnx_module *m, tnx_dim_op op, tnx_dim a, tnx_dim b, tnx_dim *out);
/* A tensor input; strides in elements, may be symbolic. flags: TNX_TENSOR_HOST for 0-dim CPU tensors. */
TNX_API tnx_status tnx_module_input(tnx_module *m, tnx_dtype dtype, int32_t rank, const tnx_dim *sizes, const tnx_dim *strides, uint32_t flags, tnx_value *out);
/* Adds one operator. args: TENSOR arguments hold values. results: tnx_max_results places; none results are 0. */
TNX_API tnx_status tnx_module_call(tnx_module *m, const tnx_row *row, const tnx_arg *args, uint32_t n_args, tnx_value *results, uint32_t *n_results_out);
/* Dtype and shape the core derived for a value: checked by the importer against FakeTensor's. */
TNX_API tnx_status tnx_module_value_info(const tnx_module *m, tnx_value v, tnx_dtype *dtype, int32_t *rank, tnx_dim *sizes);
/* The value becomes the next output. into: TNX_NO_TENSOR, or the number of the input whose memory receives it (a mutated input). strides: as PyTorch expects them for a new output, or NULL: contiguous. */
TNX_API tnx_status tnx_module_output(tnx_module *m, tnx_value v, uint32_t into, const tnx_dim *strides);
/* Passes, plan. The module may be destroyed afterwards. compile_ns_out may be NULL. */
TNX_API tnx_status tnx_module_compile(tnx_module *m, tnx_plan **plan_out, uint64_t *compile_ns_out);
/* Text of the graph ("tnx") or its StableHLO ("stablehlo"); freed with tnx_text_free. */
TNX_API tnx_status tnx_module_text(tnx_module *m, const char *format, char **text_out);
TNX_API tnx_status tnx_plan_text(const tnx_plan *plan, char **text_out);
TNX_API void tnx_text_free(char *text);
/* Runs a compiled plan: inputs in order (addresses of element 0; HOST inputs: address of the value, copied), results for outputs that are new. symbols: values. */
TNX_API tnx_status tnx_plan_run(tnx_plan *plan, const int64_t *symbols, uint32_t n_symbols, void *const *inputs, uint32_t n_inputs, void *const *results, uint32_t n_results, tnx_stream *stream);
/* Sizes and strides of the outputs for these symbols, into a caller's array of tnx_plan_result_count entries. */
TNX_API tnx_status tnx_plan_infer(tnx_plan *plan, const int64_t *symbols, uint32_t n_symbols, tnx_result *results_out);

#define TNX_DIM_SYMBOLIC INT64_MIN
static inline bool tnx_dim_is_symbolic(tnx_dim d) { return d < INT64_MIN + (INT64_C(1) << 32); }

#ifdef __cplusplus
}
#endif
#endif
