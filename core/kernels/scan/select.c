/* Chooses the kernel of a scan, sort or top-k and its split into units. */
#include "kernels/scan/rows.h"

static const struct {
  tnx_isa isa;
  const char *operation, *name;
  tnxk_run_fn run;
} kernels[] = {
#define TNXK_SCAN(isa, operation, function) {TNX_ISA_##isa, #operation, #function, function},
#include "kernels/scan/kernels.def"
#undef TNXK_SCAN
};

static tnx_status pick(const char *operation, tnx_isa isa, int64_t units, int64_t unit_ns, size_t worker_bytes, tnxk_kernel *out) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    if (kernels[i].isa > isa || strcmp(kernels[i].operation, operation) != 0) continue;
    int64_t grain = 30000 / (unit_ns + 20);
    *out = (tnxk_kernel){.name = kernels[i].name, .run = kernels[i].run, .phases = 1, .units = {units},
                         .grain = {grain ? grain : 1}, .worker_bytes = worker_bytes};
    return TNX_OK;
  }
  return tnx_fail(TNX_INTERNAL, "no kernel for %s", operation);
}

/* Number of rows, checked together with the row length. */
static tnx_status count_rows(int32_t rank, const int64_t *sizes, int64_t n, int64_t *rows_out) {
  if (rank < 0 || rank > TNXK_MAX_RANK) return tnx_fail(TNX_INVALID_ARGUMENT, "rank %d is not in [0, %d]", rank, TNXK_MAX_RANK);
  int64_t rows = 1, all = n;
  if (n < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "row length %lld is negative", (long long)n);
  for (int32_t d = 0; d < rank; d++) {
    if (sizes[d] < 0) return tnx_fail(TNX_INVALID_ARGUMENT, "size %lld is negative", (long long)sizes[d]);
    if (__builtin_mul_overflow(rows, sizes[d], &rows) || __builtin_mul_overflow(all, sizes[d], &all))
      return tnx_fail(TNX_OVERFLOW, "the iteration space is too large");
  }
  *rows_out = rows;
  return TNX_OK;
}

tnx_status tnxk_scan_select(const tnxk_scan *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  int64_t rows;
  TNX_TRY(count_rows(p->rank, p->sizes, p->n, &rows));
  if (!tnxk_scan_has((tnx_dtype)p->dtype, (tnxk_scan_op)p->op))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "scan %u of %s", p->op, tnx_dtype_name((tnx_dtype)p->dtype));
  int tile = tnxk_scan_tile_dim(p);
  int64_t across = tile >= 0 ? p->sizes[tile] : 1, tiles = (across + TNXK_SCAN_TILE - 1) / TNXK_SCAN_TILE;
  int64_t units = rows && p->n ? rows / across * tiles : 0;
  int64_t unit_rows = across < TNXK_SCAN_TILE ? across : TNXK_SCAN_TILE;
  return pick("scan", isa, units, p->n < 30000 ? p->n * unit_rows * (p->op == TNXK_LOGCUMSUMEXP ? 25 : 2) : 60000, 0, out);
}

tnx_status tnxk_topk_select(const tnxk_topk *p, tnx_isa isa, int workers, tnxk_kernel *out) {
  int64_t rows;
  TNX_TRY(count_rows(p->rank, p->sizes, p->n, &rows));
  if (p->dtype >= TNX_DTYPE_COUNT || tnx_dtype_is_complex((tnx_dtype)p->dtype))
    return tnx_fail(TNX_NOT_IMPLEMENTED, "sort of %s", tnx_dtype_name((tnx_dtype)p->dtype));
  if (p->k < 0 || p->k > p->n) return tnx_fail(TNX_INVALID_ARGUMENT, "k = %lld is not in [0, %lld]", (long long)p->k, (long long)p->n);
  bool by_heap = tnxk_topk_by_heap(p);
  size_t entries = (size_t)(by_heap ? p->k : p->n), bytes, entry = (tnxk_topk_narrow(p) ? 8u : 16u) * (by_heap ? 1 : 2);
  if (__builtin_mul_overflow(entries, entry, &bytes) || __builtin_add_overflow(bytes, TNXK_TOPK_COUNTS * sizeof(size_t), &bytes))
    return tnx_fail(TNX_OVERFLOW, "a row of %lld elements is too long to sort", (long long)p->n);
  int64_t unit_ns = p->n < 60000 ? p->n * (by_heap ? 1 : 10) : 60000;
  return pick("topk", isa, p->k ? rows : 0, unit_ns, bytes, out);
}
