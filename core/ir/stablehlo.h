/* The StableHLO writer's inside: handles of values in the text being written, and helpers that add one operation each.
 *
 * Operations are written in MLIR's generic form, so that the text depends on the dialect's names and attributes only, not on its pretty syntax. Sizes are
 * numbers: symbolic sizes are evaluated first. Errors are sticky in the writer, as in the builder. */
#ifndef TNX_IR_STABLEHLO_H
#define TNX_IR_STABLEHLO_H
#include "ir/text.h"

enum { HLO_MAX_RANK = 2 * TNX_MAX_RANK + 2 };

/* A value of the text: its number and type. Passed by value; id 0 is "failed". */
typedef struct hlo {
  uint32_t id;
  uint8_t dtype, rank;
  int64_t sizes[HLO_MAX_RANK];
} hlo;

typedef struct hlo_writer {
  tnx_text text;
  tnx_text functions; /* decompositions, behind main */
  const tnx_graph *g;
  const int64_t *dims; /* values of the graph's size expressions */
  hlo *values;         /* by the graph's values */
  const tnx_node *node; /* the one being written */
  uint32_t next, n_functions;
  tnx_status status;
} hlo_writer;

/* ---- types ---- */
hlo hlo_type(tnx_dtype t, int rank, const int64_t *sizes);
hlo hlo_retype(hlo x, tnx_dtype t); /* x's shape, another dtype */
hlo hlo_result(hlo_writer *w, uint32_t i); /* the type of the node's result i */
static inline hlo hlo_operand(const hlo_writer *w, uint32_t i) { return w->values[w->node->inputs[i]]; }
static inline int64_t hlo_int(const hlo_writer *w, uint32_t i) { return tnx_dim_value(w->node->ints[i], w->dims); }
int64_t hlo_numel(hlo_writer *w, hlo x);
bool hlo_is_empty(hlo x);
void hlo_row_major(hlo x, int64_t *strides);
hlo hlo_fail(hlo_writer *w, tnx_status status, const char *what);

/* ---- writing one operation: begin, attributes by tnx_text_add, regions, end ---- */
hlo hlo_begin(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo type);
void hlo_begin_many(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo *results, int n_results); /* gives the results their numbers */
void hlo_end(hlo_writer *w, const hlo *in, int n_in, const hlo *results, int n_results);
void hlo_add_type(tnx_text *t, hlo x);
void hlo_add_array(hlo_writer *w, const char *name, const int64_t *v, int n); /* name = array<i64: ..> */
void hlo_add_list(hlo_writer *w, const char *name, const int64_t *v, int n);  /* name = [..] */
/* Opens a region with one block of 0-dim arguments; they get their numbers. Closed by hlo_region_end, which returns the given values. */
void hlo_region_begin(hlo_writer *w, hlo *args, int n);
void hlo_region_end(hlo_writer *w, const hlo *results, int n);

/* stablehlo.while over at most HLO_MAX_STATE values. begin: state becomes the condition's arguments; body: those of the body, which runs while `more`, 0-dim, holds;
 * end: state, by then the next values, becomes the results. What was made before the loop may be used inside. */
enum { HLO_MAX_STATE = 8 };
typedef struct hlo_loop {
  hlo init[HLO_MAX_STATE], results[HLO_MAX_STATE];
  int n;
} hlo_loop;
void hlo_loop_begin(hlo_writer *w, hlo_loop *l, hlo *state, int n);
void hlo_loop_body(hlo_writer *w, hlo_loop *l, hlo *state, hlo more);
void hlo_loop_end(hlo_writer *w, hlo_loop *l, hlo *state);

/* ---- operations ---- */
hlo hlo_op(hlo_writer *w, const char *name, const hlo *in, int n_in, hlo type); /* without attributes */
hlo hlo_un(hlo_writer *w, const char *name, hlo x);
hlo hlo_bin(hlo_writer *w, const char *name, hlo x, hlo y);
hlo hlo_compare(hlo_writer *w, const char *direction, hlo x, hlo y);
hlo hlo_select(hlo_writer *w, hlo p, hlo x, hlo y);
hlo hlo_convert(hlo_writer *w, hlo x, tnx_dtype t); /* stablehlo.convert as it is */
hlo hlo_const_f(hlo_writer *w, tnx_dtype t, double v); /* 0-dim */
hlo hlo_const_i(hlo_writer *w, tnx_dtype t, int64_t v);
hlo hlo_full_f(hlo_writer *w, hlo like, double v); /* of like's shape and dtype, whatever that is */
hlo hlo_full_i(hlo_writer *w, hlo like, int64_t v);
hlo hlo_broadcast(hlo_writer *w, hlo x, const int64_t *dims, hlo type);
hlo hlo_splat(hlo_writer *w, hlo scalar, hlo like); /* a 0-dim value in like's shape */
hlo hlo_reshape(hlo_writer *w, hlo x, int rank, const int64_t *sizes);
hlo hlo_iota(hlo_writer *w, hlo type, int dim);
hlo hlo_pad(hlo_writer *w, hlo x, hlo value, const int64_t *low, const int64_t *high, const int64_t *interior);
hlo hlo_slice(hlo_writer *w, hlo x, int dim, int64_t start, int64_t len, int64_t step);
hlo hlo_isnan(hlo_writer *w, hlo x); /* false for integers */
hlo hlo_copysign(hlo_writer *w, hlo x, hlo y); /* float32 and float64 */
hlo hlo_part(hlo_writer *w, const char *name, hlo x); /* "stablehlo.real" or "stablehlo.imag" of a complex x */
hlo hlo_conj(hlo_writer *w, hlo x);                   /* of a complex x */
hlo hlo_running(hlo_writer *w, tnx_op op, hlo x, int dim); /* CUMSUM, CUMPROD, LOGCUMSUMEXP; halves as float32 */
hlo hlo_triangular_solve(hlo_writer *w, hlo a, hlo b, bool lower, bool unit, int64_t transposed); /* op(a) X = b; transposed: 0, 1, or 2 for the adjoint */
/* The reduced dimensions are dropped. */
hlo hlo_reduce(hlo_writer *w, const char *op, hlo x, hlo init, const int64_t *dims, int n);
hlo hlo_dot(hlo_writer *w, hlo x, hlo y, int n_batch, int x_contract, int y_contract, tnx_dtype result); /* the first n_batch dimensions of both are batches */
/* The largest or smallest number of the dtype: what MAX (MIN) starts from; -inf (inf) for floats. */
hlo hlo_lowest(hlo_writer *w, tnx_dtype t, bool highest);

/* ---- nodes, one function for each class ---- */
hlo hlo_cast(hlo_writer *w, hlo x, tnx_dtype t); /* PyTorch's conversion */
hlo hlo_wide(hlo_writer *w, hlo x);              /* halves and float8 to float32, others unchanged */
hlo hlo_special(hlo_writer *w, tnx_op op, hlo x, hlo y); /* y.id 0: an operator of one operand */
void hlo_pointwise(hlo_writer *w);
void hlo_view(hlo_writer *w);
void hlo_data(hlo_writer *w);
void hlo_index(hlo_writer *w);
void hlo_reduction(hlo_writer *w);
void hlo_scan(hlo_writer *w);
void hlo_product(hlo_writer *w);
void hlo_linalg(hlo_writer *w);
void hlo_factor(hlo_writer *w); /* those of LINALG that are loops */
void hlo_fft(hlo_writer *w);
void hlo_set_result(hlo_writer *w, uint32_t i, hlo x); /* converts to the result's dtype */
#endif
