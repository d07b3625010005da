/* Chooses the kernel of an indexed read or write, or of a strided copy, and its split into units. */
#include "kernels/indexing/walk.h"

static const struct {
  tnx_isa isa;
  const char *operation, *name;
  tnxk_run_fn run;
} kernels[] = {
#define TNXK_INDEXING(isa, operation, function) {TNX_ISA_##isa, #operation, #function, function},
#include "kernels/indexing/kernels.def"
#undef TNXK_INDEXING
};

static tnx_status pick(const char *operation, tnx_isa isa, int64_t units, int64_t unit_bytes, tnxk_kernel *out) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (kernels[i].isa > isa || strcmp(kernels[i].operation, operation) != 0) continue;
    /* About 5 GB/s, and some nanoseconds for each unit's walk, come to 30 us at this many. */
    int64_t grain = (128 << 10) / (unit_bytes + 24);
    *out = (tnxk_kernel){.name = kernels[i].name, .run = kernels[i].run, .phases = 1, .units = {units}, .grain = {grain ? grain : 1}};
    return TNX_OK;
  }
  return tnx_fail(TNX_INTERNAL, "no kernel for %s", operation);
}

static tnx_status check_space(int32_t rank, const int64_t *sizes, int64_t elem) {
  if (rank < 0 || rank > TNXK_MAX_RANK) return tnx_fail(TNX_INVALID_ARGUMENT, "rank %d is not in [0, %d]", rank, TNXK_MAX_RANK);
  int64_t bytes = elem;
  for (int32_t d = 0; d < rank; d++) {
    if (sizes[d] < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "size %lld is negative", (long long)sizes[d]);
    if (__builtin_mul_overflow(bytes, sizes[d], &bytes)) return tnx_fail(TNX_OVERFLOW, "the iteration space is too large");
  }
  return TNX_OK;
}

static tnx_status check_index(const tnxk_index *p) {
  if (p->dtype >= TNX_DTYPE_COUNT) return tnx_fail(TNX_DTYPE, "unknown dtype %u", p->dtype);
  if (p->index_dtype != TNX_I64 && p->index_dtype != TNX_I32)
    return tnx_fail(TNX_DTYPE, "indices must be int64 or int32, not %s", tnx_dtype_name((tnx_dtype)p->index_dtype));
  if (p->n_index < 0 || p->n_index > TNXK_INDEX_MAX)
    return tnx_fail(TNX_NOT_IMPLEMENTED, "%d index tensors (at most %d)", p->n_index, TNXK_INDEX_MAX);
  return check_space(p->rank, p->sizes, (int64_t)tnx_dtype_size((tnx_dtype)p->dtype));
}

tnx_status tnxk_gather_select(const tnxk_index *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  TNX_TRY(check_index(p));
  tnxk_indexed r;
  tnxk_indexed_reduce(p, false, &r);
  int64_t lanes = r.lanes < r.lane_chunk ? r.lanes : r.lane_chunk, n = r.run < r.chunk ? r.run : r.chunk;
  return pick("gather", isa, tnxk_walk_count(&r.w, 0, r.outer) * r.lane_chunks * r.chunks, lanes * (n * r.elem + 8), out);
}

tnx_status tnxk_scatter_select(const tnxk_index *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  TNX_TRY(check_index(p));
  if (p->op > TNXK_SCATTER_MAX) return tnx_fail(TNX_INVALID_ARGUMENT, "unknown scatter operation %u", p->op);
  if (p->op != TNXK_SCATTER_SET && !tnxk_accumulate_get((tnx_dtype)p->dtype, (tnxk_scatter_op)p->op))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "scatter minimum and maximum of %s", tnx_dtype_name((tnx_dtype)p->dtype));
  tnxk_indexed r;
  tnxk_indexed_reduce(p, true, &r);
  int64_t collisions = tnxk_walk_count(&r.w, r.own, r.outer);
  int64_t units = collisions ? tnxk_walk_count(&r.w, 0, r.own) * r.lane_chunks * r.chunks * r.parts : 0;
  int64_t lanes = r.lanes < r.lane_chunk ? r.lanes : r.lane_chunk, n = r.run < r.chunk ? r.run : r.chunk;
  return pick("scatter", isa, units, collisions * lanes * (n * r.elem / r.parts + 16), out);
}

tnx_status tnxk_copy_select(const tnxk_copy *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  int32_t e = p->elem_size;
  if (e != 1 && e != 2 && e != 4 && e != 8 && e != 16) return tnx_fail(TNX_INVALID_ARGUMENT, "element size %d", e);
  TNX_TRY(check_space(p->rank, p->sizes, e));
  tnxk_copying r;
  tnxk_copying_reduce(p, &r);
  int64_t units = tnxk_walk_count(&r.w, 0, r.outer) * r.row_units * r.col_units;
  int64_t unit = (r.cols < r.chunk ? r.cols : r.chunk) * (r.rows < TNXK_COPY_TILE ? r.rows : TNXK_COPY_TILE);
  return pick("copy", isa, units, unit * e, out);
}

/* Three phases: blocks are counted, the counts become the rows where blocks begin, blocks are written. */
tnx_status tnxk_nonzero_select(const tnxk_nonzero *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  TNX_TRY(check_space(p->rank, p->sizes, 1));
  if (p->rank < 1) return tnx_fail(TNX_INVALID_ARGUMENT, "a mask without dimensions");
  int64_t n = 1;
  for (int32_t d = 0; d < p->rank; d++) n *= p->sizes[d];
  int64_t blocks = tnxk_ceil_div(n, TNXK_NONZERO_BLOCK);
  TNX_TRY(pick("nonzero", isa, blocks, TNXK_NONZERO_BLOCK, out));
  out->phases = 3;
  out->units[1] = out->grain[1] = 1;
  out->units[2] = blocks;
  out->grain[2] = 4;
  out->shared_bytes = (size_t)(blocks + 1) * sizeof(int64_t);
  return TNX_OK;
}
