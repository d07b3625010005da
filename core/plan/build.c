/* From graph to plan: values get memory, nodes become steps. */
#include <string.h>

#include "ops/faults.h"
#include "plan/plan.h"
#include "runtime/programs.h"

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory in the compiler"); }

tnx_status tnx_planner_buffer(tnx_planner *pl, uint8_t kind, uint32_t index, uint8_t dtype, tnx_dim elements, uint32_t *out) {
  tnx_buffer b = {.kind = kind, .dtype = dtype, .index = index, .elements = elements, .first_step = UINT32_MAX};
  if (!tnx_vec_push(&pl->p->buffers, b)) return no_memory();
  *out = pl->p->buffers.len - 1;
  return TNX_OK;
}

tnx_status tnx_planner_step(tnx_planner *pl, tnx_step s, const tnx_layout *layouts, uint32_t n) {
  tnx_plan *p = pl->p;
  s.layouts = tnx_arena_copy(&p->arena, layouts, n * sizeof *layouts);
  s.n_layouts = n;
  if (!s.layouts || !tnx_vec_push(&p->steps, s)) return no_memory();
  uint32_t at = p->steps.len - 1;
  for (uint32_t i = 0; i < n; i++) {
    if (!layouts[i].buffer) continue;
    tnx_buffer *b = &p->buffers.data[layouts[i].buffer];
    if (b->first_step > at) b->first_step = at;
    b->last_step = at;
  }
  return TNX_OK;
}

static tnx_status new_temp(tnx_planner *pl, const tnx_value_data *v, tnx_layout *out) {
  tnx_dim elements = 1;
  for (int i = 0; i < v->rank; i++) TNX_TRY(tnx_graph_dim(pl->g, TNX_DIM_MUL, elements, v->sizes[i], &elements));
  uint32_t buffer;
  TNX_TRY(tnx_planner_buffer(pl, TNX_BUFFER_TEMP, pl->p->n_temps++, v->dtype, elements, &buffer));
  return tnx_layout_contiguous(pl->g, v, buffer, out);
}

tnx_status tnx_planner_dest(tnx_planner *pl, tnx_value v, tnx_layout *out) {
  if (pl->place[v].buffer) *out = pl->place[v];
  else TNX_TRY(new_temp(pl, &pl->g->values.data[v], out));
  pl->loc[v] = *out;
  return TNX_OK;
}

/* A constant, a coordinate or a size, perhaps broadcast: in no memory until it is written somewhere. */
static bool is_fill(const tnx_planner *pl, tnx_value v) {
  const tnx_node *n = tnx_graph_producer(pl->g, v);
  if (n->op == TNX_OP_BROADCAST) n = tnx_graph_producer(pl->g, n->inputs[0]);
  return tnx_op_get_info((tnx_op)n->op)->klass == TNX_CLASS_LEAF && n->op != TNX_OP_INPUT;
}

tnx_status tnx_planner_need(tnx_planner *pl, tnx_value v, tnx_layout *out) {
  if (pl->loc[v].buffer) {
    *out = pl->loc[v];
    return TNX_OK;
  }
  tnx_graph *g = pl->g;
  const tnx_node *n = tnx_graph_producer(g, v);
  uint8_t klass = tnx_op_get_info((tnx_op)n->op)->klass;
  if (is_fill(pl, v)) {
    TNX_TRY(tnx_planner_dest(pl, v, out));
    pl->loc[v].buffer = 0; /* it is not there before it is filled: the fill computes it */
    TNX_TRY(tnx_planner_fill(pl, v, out));
    pl->loc[v] = *out;
    return TNX_OK;
  }
  if (klass != TNX_CLASS_VIEW) return tnx_fail(TNX_INTERNAL, "%s is read before it is computed", tnx_op_get_info((tnx_op)n->op)->name);
  tnx_layout x;
  TNX_TRY(tnx_planner_need(pl, n->inputs[0], &x));
  bool ok;
  TNX_TRY(tnx_layout_view(g, n, &x, out, &ok));
  if (!ok) { /* row-major copy of the operand, written where the view is wanted */
    tnx_layout copy;
    if (n->op == TNX_OP_RESHAPE && pl->place[v].buffer) {
      bool fits;
      TNX_TRY(tnx_layout_unview(g, n, &pl->place[v], &copy, &fits));
      if (!fits) TNX_TRY(new_temp(pl, &g->values.data[n->inputs[0]], &copy));
    } else {
      TNX_TRY(new_temp(pl, &g->values.data[n->inputs[0]], &copy));
    }
    TNX_TRY(tnx_planner_copy(pl, &x, &copy));
    TNX_TRY(tnx_layout_view(g, n, &copy, out, &ok));
    if (!ok) return tnx_fail(TNX_INTERNAL, "a view of contiguous memory failed");
  }
  pl->loc[v] = *out;
  return TNX_OK;
}

/* ---- nodes that run alone ---- */

/* Brings v to dest. `stays`: what is there is not written over later, so that other readers may find v there. */
static tnx_status copy_unless_there(tnx_planner *pl, tnx_value v, const tnx_layout *dest, bool stays) {
  tnx_layout x;
  const tnx_node *n = tnx_graph_producer(pl->g, v);
  if (!pl->loc[v].buffer && is_fill(pl, v)) return tnx_planner_fill(pl, v, dest);
  if (!pl->loc[v].buffer && n->op == TNX_OP_RESHAPE) { /* strides that allow no view: the copy that is due anyway goes straight there */
    tnx_layout whole, direct;
    bool is_view, fits;
    TNX_TRY(tnx_planner_need(pl, n->inputs[0], &x));
    TNX_TRY(tnx_layout_view(pl->g, n, &x, &whole, &is_view));
    TNX_TRY(tnx_layout_unview(pl->g, n, dest, &direct, &fits));
    if (!is_view && fits) {
      if (stays) pl->loc[v] = *dest;
      return tnx_planner_copy(pl, &x, &direct);
    }
  }
  TNX_TRY(tnx_planner_need(pl, v, &x));
  return tnx_layout_equal(&x, dest) ? TNX_OK : tnx_planner_copy(pl, &x, dest);
}

static tnx_status emit_concat(tnx_planner *pl, const tnx_node *n) {
  tnx_layout dest;
  TNX_TRY(tnx_planner_dest(pl, n->first, &dest));
  tnx_dim start = 0;
  int dim = (int)n->ints[0];
  for (uint32_t i = 0; i < n->n_inputs; i++) {
    tnx_layout part = dest;
    tnx_dim len = pl->g->values.data[n->inputs[i]].sizes[dim];
    TNX_TRY(tnx_layout_slice(pl->g, &part, dim, start, len, 1));
    if (len != 0) TNX_TRY(copy_unless_there(pl, n->inputs[i], &part, false));
    TNX_TRY(tnx_graph_dim(pl->g, TNX_DIM_ADD, start, len, &start));
  }
  return TNX_OK;
}

static tnx_status emit_pad(tnx_planner *pl, const tnx_node *n) {
  tnx_graph *g = pl->g;
  const tnx_value_data *v = &g->values.data[n->first], *x = &g->values.data[n->inputs[0]];
  tnx_layout dest, from, to;
  TNX_TRY(tnx_planner_dest(pl, n->first, &dest));
  /* everything gets the value, then the operand's part is copied over it */
  tnx_layout value;
  TNX_TRY(tnx_planner_need(pl, n->inputs[1], &value));
  tnx_layout spread = dest;
  spread.buffer = value.buffer;
  spread.offset = value.offset;
  for (int i = 0; i < dest.rank; i++) spread.strides[i] = 0;
  TNX_TRY(tnx_planner_copy(pl, &spread, &dest));
  TNX_TRY(tnx_planner_need(pl, n->inputs[0], &from));
  to = dest;
  for (int i = 0; i < v->rank; i++) {
    tnx_dim low = n->ints[i], crop, start, high, len;
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_MAX, low, 0, &start)); /* where the operand begins in the result */
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_SUB, start, low, &crop)); /* what is cut off its front */
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_SUB, x->sizes[i], crop, &len));
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_SUB, v->sizes[i], start, &high));
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_MIN, len, high, &len));
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_MAX, len, 0, &len));
    TNX_TRY(tnx_layout_slice(g, &from, i, crop, len, 1));
    TNX_TRY(tnx_layout_slice(g, &to, i, start, len, 1));
  }
  return tnx_planner_copy(pl, &from, &to);
}

/* Where an update goes, as a view of its base. */
static tnx_status emit_update(tnx_planner *pl, const tnx_node *n) {
  tnx_graph *g = pl->g;
  tnx_layout dest, part;
  TNX_TRY(tnx_planner_dest(pl, n->first, &dest));
  TNX_TRY(copy_unless_there(pl, n->inputs[0], &dest, false));
  const tnx_value_data *u = &g->values.data[n->inputs[1]];
  part = dest;
  if (n->op == TNX_OP_UPDATE_SLICE) {
    TNX_TRY(tnx_layout_slice(g, &part, (int)n->ints[0], n->ints[1], u->sizes[n->ints[0]], n->ints[2]));
  } else if (n->op == TNX_OP_UPDATE_STRIDED) {
    if (!tnx_layout_is_contiguous(g, &dest)) return tnx_fail(TNX_NOT_IMPLEMENTED, "as_strided_scatter into a tensor that is not contiguous");
    part.rank = u->rank;
    for (int i = 0; i < u->rank; i++) {
      part.sizes[i] = u->sizes[i];
      part.strides[i] = n->ints[i + 1];
    }
    TNX_TRY(tnx_graph_dim(g, TNX_DIM_ADD, part.offset, n->ints[0], &part.offset));
  } else {
    tnx_node view = {.op = TNX_OP_DIAGONAL, .n_ints = n->n_ints, .ints = n->ints, .first = n->inputs[1]};
    bool ok;
    TNX_TRY(tnx_layout_view(g, &view, &dest, &part, &ok));
  }
  return copy_unless_there(pl, n->inputs[1], &part, false);
}

/* GATHER and SCATTER steps: see tnx_step.dims. */
static tnx_status indexed_step(tnx_planner *pl, uint8_t kind, uint8_t op, bool wraps, uint8_t fault, const char *name, const int8_t *dims, int n_dims, const tnx_layout *layouts, int n) {
  tnx_step s = {.kind = kind, .op = op, .wraps = wraps, .fault = fault, .name = name};
  s.dims = tnx_arena_copy(&pl->p->arena, dims, (size_t)n_dims);
  return s.dims ? tnx_planner_step(pl, s, layouts, (uint32_t)n) : no_memory();
}

/* dims for an index of n adjacent dimensions of x (from `first` on) by index tensors of rank ri; walks x's rank - n + ri dimensions. */
static int replaced_dims(int rank, int first, int n, int ri, int8_t *dims) {
  int k = 0;
  for (int i = 0; i < first; i++) dims[k++] = (int8_t)i;
  for (int i = 0; i < ri; i++) dims[k++] = -1;
  for (int i = first + n; i < rank; i++) dims[k++] = (int8_t)i;
  return k;
}

static tnx_status emit_indexed(tnx_planner *pl, const tnx_node *n) {
  tnx_graph *g = pl->g;
  const char *name = tnx_op_get_info((tnx_op)n->op)->name;
  bool scatter = n->op == TNX_OP_SCATTER || n->op == TNX_OP_PUT || n->op == TNX_OP_INDEX_PUT;
  int rank = g->values.data[n->inputs[0]].rank;
  int8_t dims[TNX_MAX_RANK * 3 + 8];
  int k = 0, n_index = 1;
  tnx_layout l[TNX_MAX_RANK + 3]; /* the indexed operand, the other side, indices */
  const tnx_value *index = &n->inputs[1];
  if (scatter) {
    TNX_TRY(tnx_planner_dest(pl, n->first, &l[0]));
    TNX_TRY(copy_unless_there(pl, n->inputs[0], &l[0], false));
    if (n->op == TNX_OP_INDEX_PUT) {
      index = &n->inputs[2];
      n_index = (int)n->n_inputs - 2;
    }
    TNX_TRY(tnx_planner_need(pl, n->op == TNX_OP_INDEX_PUT ? n->inputs[1] : n->inputs[2], &l[1]));
  } else {
    TNX_TRY(tnx_planner_need(pl, n->inputs[0], &l[0]));
    n_index = (int)n->n_inputs - 1;
  }
  if (n_index > TNXK_INDEX_MAX) return tnx_fail(TNX_NOT_IMPLEMENTED, "indexing with more than %d index tensors", TNXK_INDEX_MAX);
  for (int i = 0; i < n_index; i++) TNX_TRY(tnx_planner_need(pl, index[i], &l[2 + i]));
  int ri = l[2].rank;
  if (n->op == TNX_OP_GATHER || n->op == TNX_OP_SCATTER) {
    for (int i = 0; i < rank; i++) dims[k++] = i == n->ints[0] ? -1 : (int8_t)i;
    dims[k++] = (int8_t)n->ints[0];
    dims[k++] = 0;
  } else if (n->op == TNX_OP_TAKE || n->op == TNX_OP_PUT) {
    k = replaced_dims(rank, (int)n->ints[0], 1, ri, dims);
    dims[k++] = (int8_t)n->ints[0];
    dims[k++] = (int8_t)n->ints[0];
  } else {
    const tnx_dim *walked = n->ints + (n->op == TNX_OP_INDEX_PUT);
    k = replaced_dims(rank, (int)walked[0], n_index, ri, dims);
    for (int i = 0; i < n_index; i++) {
      dims[k++] = (int8_t)walked[i];
      dims[k++] = (int8_t)walked[0];
    }
  }
  if (!scatter) TNX_TRY(tnx_planner_dest(pl, n->first, &l[1]));
  uint8_t mode = 0;
  if (scatter) mode = (uint8_t)n->ints[n->op == TNX_OP_INDEX_PUT ? 0 : 1];
  return indexed_step(pl, scatter ? TNX_STEP_SCATTER : TNX_STEP_GATHER, mode, n->op == TNX_OP_INDEX || n->op == TNX_OP_INDEX_PUT, n->fault ? n->fault : TNX_FAULT_INDEX, name, dims, k, l, 2 + n_index);
}

static tnx_status emit_nonzero(tnx_planner *pl, const tnx_node *n) {
  tnx_layout l[2];
  TNX_TRY(tnx_planner_need(pl, n->inputs[0], &l[0]));
  if (!tnx_layout_is_contiguous(pl->g, &l[0])) {
    tnx_layout copy;
    TNX_TRY(new_temp(pl, &pl->g->values.data[n->inputs[0]], &copy));
    TNX_TRY(tnx_planner_copy(pl, &l[0], &copy));
    l[0] = copy;
  }
  TNX_TRY(tnx_planner_dest(pl, n->first, &l[1]));
  return tnx_planner_step(pl, (tnx_step){.kind = TNX_STEP_NONZERO, .fill = n->ints[0], .name = "NONZERO"}, l, 2);
}

static tnx_status emit_scan(tnx_planner *pl, const tnx_node *n) {
  tnx_layout l[3] = {{0}};
  static const uint8_t ops[TNX_OP_COUNT] = {[TNX_OP_CUMSUM] = TNXK_CUMSUM, [TNX_OP_CUMPROD] = TNXK_CUMPROD, [TNX_OP_CUMMAX] = TNXK_CUMMAX,
                                            [TNX_OP_CUMMIN] = TNXK_CUMMIN, [TNX_OP_LOGCUMSUMEXP] = TNXK_LOGCUMSUMEXP};
  TNX_TRY(tnx_planner_need(pl, n->inputs[0], &l[0]));
  TNX_TRY(tnx_planner_dest(pl, n->first, &l[1]));
  if (n->n_results > 1) TNX_TRY(tnx_planner_dest(pl, n->first + 1, &l[2]));
  tnx_step s = {.kind = n->op == TNX_OP_TOPK ? TNX_STEP_TOPK : TNX_STEP_SCAN, .dim = (int8_t)n->ints[0], .name = tnx_op_get_info((tnx_op)n->op)->name};
  s.op = n->op == TNX_OP_TOPK ? (uint8_t)(n->ints[1] | n->ints[2] << 1) : ops[n->op];
  return tnx_planner_step(pl, s, l, 3);
}

/* x as a matrix over its last dimension: leading dimensions merged; a copy where strides do not allow it. */
static tnx_status as_matrix(tnx_planner *pl, const tnx_layout *x, bool may_copy, tnx_layout *out, bool *ok) {
  tnx_graph *g = pl->g;
  tnx_dim rows = 1, sizes[2];
  for (int i = 0; i + 1 < x->rank; i++) TNX_TRY(tnx_graph_dim(g, TNX_DIM_MUL, rows, x->sizes[i], &rows));
  sizes[0] = rows;
  sizes[1] = x->sizes[x->rank - 1];
  /* merge the rows only: the last dimension keeps whatever stride it has */
  tnx_layout lead = *x;
  lead.rank--;
  tnx_layout merged;
  TNX_TRY(tnx_layout_reshape(g, &lead, 1, sizes, &merged, ok));
  *out = *x;
  out->rank = 2;
  out->sizes[0] = sizes[0];
  out->sizes[1] = sizes[1];
  out->strides[1] = x->strides[x->rank - 1];
  if (*ok) {
    out->strides[0] = merged.strides[0];
    return TNX_OK;
  }
  if (!may_copy) return TNX_OK;
  tnx_value_data v = {.rank = x->rank, .dtype = x->dtype, .sizes = x->sizes};
  tnx_layout copy;
  TNX_TRY(new_temp(pl, &v, &copy));
  TNX_TRY(tnx_planner_copy(pl, x, &copy));
  *out = copy;
  out->rank = 2;
  out->sizes[0] = rows;
  out->sizes[1] = sizes[1];
  out->strides[0] = sizes[1];
  out->strides[1] = 1;
  *ok = true;
  return TNX_OK;
}

/* Factors of the constant `size` that are x's dimensions from *dim down, outermost first in sizes[]; a dimension that goes on beyond is cut,
 * *rest of it being left. 0: there are none, or too many. */
static int factors(const tnx_layout *x, int *dim, tnx_dim *rest, tnx_dim size, tnx_dim *sizes) {
  tnx_dim found[TNXK_MATMUL_WINDOW_RANK];
  int n = 0;
  while (size > 1) {
    if (*dim < 0 || n == TNXK_MATMUL_WINDOW_RANK || tnx_dim_is_symbolic(*rest)) return 0;
    tnx_dim part = *rest < size ? *rest : size;
    if (part == 0 || size % part || *rest % part) return 0;
    if (part > 1) found[n++] = part;
    size /= part;
    *rest /= part;
    if (*rest == 1 && --*dim >= 0) *rest = x->sizes[*dim];
  }
  for (int i = 0; i < n; i++) sizes[i] = found[n - 1 - i];
  return n;
}

/* The columns of a convolution, [.., k, n] reshaped from windows that no strides of a matrix describe: found as windows of the image
 * instead of being copied. flags: by how many dimensions k and n are walked. */
static tnx_status as_windows(tnx_planner *pl, tnx_value v, tnx_layout *out, uint8_t *flags) {
  const tnx_node *n = tnx_graph_producer(pl->g, v);
  const tnx_value_data *d = &pl->g->values.data[v];
  bool half = d->dtype == TNX_BF16 || d->dtype == TNX_F16, is_view, ok;
  if (pl->loc[v].buffer || n->op != TNX_OP_RESHAPE || !(half || d->dtype == TNX_F32) || d->rank < 2 || d->rank > 4) return TNX_OK;
  tnx_dim k = d->sizes[d->rank - 2], columns = d->sizes[d->rank - 1];
  if (tnx_dim_is_symbolic(k) || tnx_dim_is_symbolic(columns)) return TNX_OK;
  tnx_layout x, direct;
  TNX_TRY(tnx_planner_need(pl, n->inputs[0], &x));
  TNX_TRY(tnx_layout_view(pl->g, n, &x, &direct, &is_view));
  if (is_view || x.rank == 0) return TNX_OK;
  tnx_dim sizes[4 + 2 * TNXK_MATMUL_WINDOW_RANK], side[2][TNXK_MATMUL_WINDOW_RANK], rest = x.sizes[x.rank - 1];
  int dim = x.rank - 1, nn = factors(&x, &dim, &rest, columns, side[1]), nk = nn ? factors(&x, &dim, &rest, k, side[0]) : 0, rank = d->rank - 2;
  if (!nk) return TNX_OK;
  memcpy(sizes, d->sizes, (size_t)rank * sizeof *sizes);
  memcpy(sizes + rank, side[0], (size_t)nk * sizeof *sizes);
  memcpy(sizes + rank + nk, side[1], (size_t)nn * sizeof *sizes);
  TNX_TRY(tnx_layout_reshape(pl->g, &x, rank + nk + nn, sizes, &direct, &ok));
  if (!ok) return TNX_OK;
  *out = direct;
  flags[0] = (uint8_t)nk;
  flags[1] = (uint8_t)nn;
  return TNX_OK;
}

/* MATMUL steps: a, b, c, add, gate. */
static tnx_status emit_product(tnx_planner *pl, const tnx_node *n) {
  tnx_layout l[5] = {{0}};
  tnx_step s = {.kind = TNX_STEP_MATMUL, .name = tnx_op_get_info((tnx_op)n->op)->name, .numbers = {1, 0}};
  if (n->op == TNX_OP_LINEAR) {
    tnx_layout x, out;
    bool ok, flat;
    TNX_TRY(tnx_planner_need(pl, n->inputs[0], &x));
    TNX_TRY(as_matrix(pl, &x, true, &l[0], &ok));
    TNX_TRY(tnx_planner_need(pl, n->inputs[1], &l[1]));
    tnx_dim k = l[1].sizes[1], ks = l[1].strides[1]; /* weight [n, k] is b [k, n] */
    l[1].sizes[1] = l[1].sizes[0];
    l[1].strides[1] = l[1].strides[0];
    l[1].sizes[0] = k;
    l[1].strides[0] = ks;
    if (n->n_inputs > 2) {
      TNX_TRY(tnx_planner_need(pl, n->inputs[2], &l[3]));
      l[3].rank = 2;
      l[3].sizes[1] = l[3].sizes[0];
      l[3].strides[1] = l[3].strides[0];
      l[3].sizes[0] = l[0].sizes[0];
      l[3].strides[0] = 0;
      s.numbers[1] = 1;
    }
    s.op = (uint8_t)n->ints[0];
    TNX_TRY(tnx_planner_dest(pl, n->first, &out));
    TNX_TRY(as_matrix(pl, &out, false, &l[2], &flat));
    if (flat) return tnx_planner_step(pl, s, l, 5);
    tnx_layout temp;
    TNX_TRY(new_temp(pl, &pl->g->values.data[n->first], &temp));
    TNX_TRY(as_matrix(pl, &temp, false, &l[2], &flat));
    TNX_TRY(tnx_planner_step(pl, s, l, 5));
    return tnx_planner_copy(pl, &temp, &out);
  }
  int first = n->op == TNX_OP_ADDMM;
  TNX_TRY(tnx_planner_need(pl, n->inputs[first], &l[0]));
  TNX_TRY(as_windows(pl, n->inputs[first + 1], &l[1], s.flags));
  if (!s.flags[0]) TNX_TRY(tnx_planner_need(pl, n->inputs[first + 1], &l[1]));
  if (n->op == TNX_OP_ADDMM) {
    s.numbers[0] = n->floats[1];
    s.numbers[1] = n->floats[0];
    if (n->floats[0] != 0) TNX_TRY(tnx_planner_need(pl, n->inputs[0], &l[3]));
  }
  TNX_TRY(tnx_planner_dest(pl, n->first, &l[2]));
  return tnx_planner_step(pl, s, l, 5);
}

/* ATTENTION: q, k, v, mask, out, lse. ATTENTION_BACKWARD: those, then dout, dq, dk, dv. */
static tnx_status emit_attention(tnx_planner *pl, const tnx_node *n) {
  tnx_layout l[10] = {{0}};
  bool backward = n->op == TNX_OP_ATTENTION_BACKWARD;
  tnx_step s = {.kind = backward ? TNX_STEP_ATTENTION_BACKWARD : TNX_STEP_ATTENTION, .op = (uint8_t)n->ints[0], .name = tnx_op_get_info((tnx_op)n->op)->name};
  s.numbers[0] = n->floats[0];
  const tnx_value *in = n->inputs;
  for (int i = 0; i < 3; i++) TNX_TRY(tnx_planner_need(pl, in[backward + i], &l[i]));
  if (n->ints[1]) TNX_TRY(tnx_planner_need(pl, in[backward ? 6 : 3], &l[3]));
  if (!backward) {
    TNX_TRY(tnx_planner_dest(pl, n->first, &l[4]));
    if (tnx_planner_stored(pl, n->first + 1)) TNX_TRY(tnx_planner_dest(pl, n->first + 1, &l[5]));
    return tnx_planner_step(pl, s, l, 6);
  }
  TNX_TRY(tnx_planner_need(pl, in[4], &l[4]));
  TNX_TRY(tnx_planner_need(pl, in[5], &l[5]));
  TNX_TRY(tnx_planner_need(pl, in[0], &l[6]));
  for (int i = 0; i < 3; i++) TNX_TRY(tnx_planner_dest(pl, n->first + (tnx_value)i, &l[7 + i]));
  return tnx_planner_step(pl, s, l, 10);
}

/* LINALG: operands, then results. FFT: the same. */
static tnx_status emit_whole(tnx_planner *pl, const tnx_node *n) {
  static const uint8_t ops[TNX_OP_COUNT] = {
#define TNXK_LINALG(operation, n_in, n_out, function, needs) [TNX_OP_##operation] = TNXK_LINALG_##operation,
#include "kernels/linalg/kernels.def"
#undef TNXK_LINALG
      [TNX_OP_FFT] = TNXK_FFT_COMPLEX, [TNX_OP_RFFT] = TNXK_FFT_FROM_REAL, [TNX_OP_IRFFT] = TNXK_FFT_TO_REAL};
  tnx_layout l[TNXK_LINALG_OPERANDS + 1] = {{0}};
  bool fft = tnx_op_get_info((tnx_op)n->op)->klass == TNX_CLASS_FFT;
  tnx_step s = {.kind = fft ? TNX_STEP_FFT : TNX_STEP_LINALG, .op = ops[n->op], .name = tnx_op_get_info((tnx_op)n->op)->name};
  for (uint32_t i = 0; i < 3; i++) s.flags[i] = (uint8_t)n->ints[i];
  if (fft) s.dim = (int8_t)n->ints[0];
  if (n->n_floats) s.numbers[0] = n->floats[0];
  for (uint32_t i = 0; i < n->n_inputs; i++) TNX_TRY(tnx_planner_need(pl, n->inputs[i], &l[i]));
  for (uint32_t i = 0; i < n->n_results; i++) TNX_TRY(tnx_planner_dest(pl, n->first + i, &l[n->n_inputs + i]));
  return tnx_planner_step(pl, s, l, n->n_inputs + n->n_results);
}

static tnx_status emit(tnx_planner *pl, tnx_node_id id) {
  const tnx_node n = pl->g->nodes.data[id];
  switch (tnx_op_get_info((tnx_op)n.op)->klass) {
    case TNX_CLASS_LEAF:
    case TNX_CLASS_VIEW: return TNX_OK; /* on demand */
    case TNX_CLASS_DATA: return n.op == TNX_OP_CONCAT ? emit_concat(pl, &n) : n.op == TNX_OP_PAD ? emit_pad(pl, &n) : emit_update(pl, &n);
    case TNX_CLASS_INDEX: return n.op == TNX_OP_NONZERO ? emit_nonzero(pl, &n) : emit_indexed(pl, &n);
    case TNX_CLASS_SCAN: return emit_scan(pl, &n);
    case TNX_CLASS_PRODUCT:
      return n.op == TNX_OP_ATTENTION || n.op == TNX_OP_ATTENTION_BACKWARD ? emit_attention(pl, &n) : emit_product(pl, &n);
    case TNX_CLASS_LINALG:
    case TNX_CLASS_FFT: return emit_whole(pl, &n);
    default: { /* pointwise and reductions: in a group */
      uint32_t grp = pl->a.group[id];
      return pl->a.groups.data[grp].last == id ? tnx_planner_group(pl, grp) : TNX_OK;
    }
  }
}

/* ---- inputs, outputs ---- */

static tnx_status bind_inputs(tnx_planner *pl) {
  tnx_graph *g = pl->g;
  tnx_plan *p = pl->p;
  for (uint32_t i = 0; i < g->inputs.len; i++) {
    const tnx_input *in = &g->inputs.data[i];
    const tnx_value_data *v = &g->values.data[in->value];
    bool host = v->flags & TNX_VALUE_HOST;
    tnx_plan_input pi = {v->dtype, v->rank, v->flags, host ? p->n_hosts++ : TNX_NO_TENSOR};
    if (!tnx_vec_push(&p->inputs, pi)) return no_memory();
    uint32_t buffer;
    TNX_TRY(tnx_planner_buffer(pl, host ? TNX_BUFFER_HOST : TNX_BUFFER_INPUT, host ? pi.host : i, v->dtype, 0, &buffer));
    tnx_layout *l = &pl->loc[in->value];
    TNX_TRY(tnx_layout_contiguous(g, v, buffer, l));
    if (in->strides)
      for (int d = 0; d < v->rank; d++) l->strides[d] = in->strides[d];
  }
  return TNX_OK;
}

static tnx_status bind_outputs(tnx_planner *pl) {
  tnx_graph *g = pl->g;
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    tnx_plan_output po = {.into = o->into, .none = o->value == 0};
    if (o->value) {
      const tnx_value_data *v = &g->values.data[o->value];
      uint32_t buffer = 0;
      if (o->into == TNX_NO_TENSOR) TNX_TRY(tnx_planner_buffer(pl, TNX_BUFFER_OUTPUT, i, v->dtype, 0, &buffer));
      TNX_TRY(tnx_layout_contiguous(g, v, buffer, &po.layout));
      if (o->strides)
        for (int d = 0; d < v->rank; d++) po.layout.strides[d] = o->strides[d];
    }
    if (!tnx_vec_push(&pl->p->outputs, po)) return no_memory();
  }
  return TNX_OK;
}

/* Is this layout a part of an input's memory that some output goes into? */
static bool is_mutated_input(const tnx_planner *pl, const tnx_layout *l) {
  const tnx_buffer *b = &pl->p->buffers.data[l->buffer];
  if (b->kind != TNX_BUFFER_INPUT) return false;
  for (uint32_t i = 0; i < pl->g->outputs.len; i++) {
    uint32_t into = pl->g->outputs.data[i].into;
    if (into == TNX_NO_TENSOR || !pl->g->outputs.data[i].value) continue;
    const tnx_input *x = &pl->g->inputs.data[into], *y = &pl->g->inputs.data[b->index];
    if (into == b->index || x->overlaps || y->overlaps || (x->alias != TNX_NO_TENSOR && x->alias == y->alias)) return true;
  }
  return false;
}

/* What was not computed in place is copied at the end. New outputs come first, since they may be old contents of inputs that are overwritten; then old contents that
 * other inputs are to receive are saved; then inputs are overwritten. */
static tnx_status finish_outputs(tnx_planner *pl) {
  tnx_graph *g = pl->g;
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (o->value && o->into == TNX_NO_TENSOR) TNX_TRY(copy_unless_there(pl, o->value, &pl->p->outputs.data[i].layout, true));
  }
  tnx_layout *from = TNX_ARENA_ARRAY(&pl->a.arena, tnx_layout, g->outputs.len);
  if (!from) return no_memory();
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (!o->value || o->into == TNX_NO_TENSOR || is_fill(pl, o->value)) continue;
    const tnx_layout *dest = &pl->loc[g->inputs.data[o->into].value];
    TNX_TRY(tnx_planner_need(pl, o->value, &from[i]));
    if (!is_mutated_input(pl, &from[i]) || tnx_layout_equal(&from[i], dest)) continue;
    tnx_layout saved;
    TNX_TRY(new_temp(pl, &g->values.data[o->value], &saved));
    TNX_TRY(tnx_planner_copy(pl, &from[i], &saved));
    from[i] = saved;
  }
  for (uint32_t i = 0; i < g->outputs.len; i++) {
    const tnx_output *o = &g->outputs.data[i];
    if (!o->value || o->into == TNX_NO_TENSOR) continue;
    const tnx_layout *dest = &pl->loc[g->inputs.data[o->into].value];
    if (is_fill(pl, o->value)) TNX_TRY(tnx_planner_fill(pl, o->value, dest));
    else if (!tnx_layout_equal(&from[i], dest)) TNX_TRY(tnx_planner_copy(pl, &from[i], dest));
  }
  return TNX_OK;
}

/* ---- the plan ---- */

static void plan_destroy(tnx_plan *p) {
  for (int i = 0; i < TNX_PLAN_INSTANCES; i++)
    if (p->instances[i]) tnx_instance_release(p->instances[i]);
  tnx_vec_fini(&p->steps);
  tnx_vec_fini(&p->buffers);
  tnx_vec_fini(&p->inputs);
  tnx_vec_fini(&p->outputs);
  tnx_vec_fini(&p->dims);
  if (p->program) tnx_graph_fini(&p->program->graph);
  tnx_arena_fini(&p->arena);
  pthread_mutex_destroy(&p->mutex);
  tnx_heap_free(p);
}

void tnx_plan_retain(tnx_plan *p) { atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed); }

void tnx_plan_release(tnx_plan *p) {
  if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1) plan_destroy(p);
}

/* The plan of a device that runs compiled programs: what StableHLO cannot say is found out now, while the caller can still do something else. */
static tnx_status build_program(tnx_planner *pl) {
  const tnx_graph *g = pl->g;
  tnx_plan *p = pl->p;
  tnx_plan_program *prog = TNX_ARENA_NEW(&p->arena, tnx_plan_program);
  if (!prog || !(prog->needed = TNX_ARENA_ARRAY(&p->arena, bool, g->inputs.len))) return no_memory();
  if (g->symbols.len == 0) {
    char *text;
    TNX_TRY(tnx_graph_stablehlo(g, &text));
    tnx_text_free(text);
  }
  for (uint32_t i = 0; i < g->inputs.len; i++) prog->needed[i] = pl->a.live[g->values.data[g->inputs.data[i].value].node];
  TNX_TRY(tnx_graph_copy(g, &prog->graph));
  p->program = prog;
  return TNX_OK;
}

static tnx_status build(tnx_planner *pl) {
  tnx_graph *g = pl->g;
  const tnx_driver *driver;
  TNX_TRY(bind_inputs(pl));
  TNX_TRY(bind_outputs(pl));
  TNX_TRY(tnx_runtime_get_driver(&driver));
  if (driver->programs) return build_program(pl);
  TNX_TRY(tnx_planner_place(pl));
  for (tnx_node_id id = 1; id < g->nodes.len; id++)
    if (pl->a.live[id]) TNX_TRY(emit(pl, id));
  return finish_outputs(pl);
}

static tnx_status plan_build(tnx_graph *g, bool fuse, bool *too_large, tnx_plan **out) {
  tnx_status status = TNX_OK;
  tnx_planner pl = {.g = g};
  tnx_plan *p = tnx_heap_zalloc(1, sizeof *p);
  if (!p) return no_memory();
  p->refs = 1;
  tnx_arena_init(&p->arena);
  pthread_mutex_init(&p->mutex, NULL);
  pl.p = p;
  p->name = tnx_arena_strdup(&p->arena, g->name);
  if (!p->name || !tnx_vec_push(&p->buffers, (tnx_buffer){0})) status = no_memory();
  if (status == TNX_OK) status = tnx_passes_run(g, fuse, &pl.a);
  if (status != TNX_OK) {
    plan_destroy(p);
    return status;
  }
  pl.loc = TNX_ARENA_ARRAY(&pl.a.arena, tnx_layout, g->values.len);
  pl.place = TNX_ARENA_ARRAY(&pl.a.arena, tnx_layout, g->values.len);
  status = pl.loc && pl.place ? build(&pl) : no_memory();
  *too_large = pl.too_large;
  tnx_analysis_fini(&pl.a);
  if (status == TNX_OK) {
    p->n_symbols = g->symbols.len;
    p->n_exprs = g->exprs.len;
    p->exprs = tnx_arena_copy(&p->arena, g->exprs.data, g->exprs.len * sizeof *g->exprs.data);
    if (!p->exprs) status = no_memory();
  }
  if (status != TNX_OK) {
    plan_destroy(p);
    return status;
  }
  *out = p;
  return TNX_OK;
}

tnx_status tnx_plan_build(tnx_graph *g, tnx_plan **out) {
#ifdef TNX_VERIFY
  TNX_TRY(tnx_graph_verify(g));
#endif
  bool too_large = false;
  tnx_status status = plan_build(g, true, &too_large, out);
  return too_large ? plan_build(g, false, &too_large, out) : status;
}
