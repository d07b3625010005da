/* What the matmul kernels share: the canonical form of a problem and the addresses of one batch item.
 * A kernel derives its whole plan from the canonical form, in prepare and again in run, so params stay plain data. */
#ifndef TNXK_MATMUL_INTERNAL_H
#define TNXK_MATMUL_INTERNAL_H
#include "kernels/matmul/matmul.h"

/* Fills *out and returns true if the kernel takes this canonical problem. */
typedef bool (*tnxk_matmul_prepare_fn)(const tnxk_matmul *canonical, tnxk_kernel *out);

#define TNXK_MATMUL_KERNEL(op, suffix, isa, dtypes) \
  bool tnxk_matmul_##op##__##suffix##_prepare(const tnxk_matmul *canonical, tnxk_kernel *out);
#include "kernels/matmul/kernels.def"
#undef TNXK_MATMUL_KERNEL

static inline int64_t mm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mm_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t mm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t mm_round_up(int64_t a, int64_t b) { return mm_ceil(a, b) * b; }
static inline size_t mm_align64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static inline int mm_dtype_bytes(int dt) {
  switch (dt) {
    case TNX_F64: case TNX_I64: return 8;
    case TNX_F32: case TNX_I32: return 4;
    case TNX_BF16: case TNX_F16: case TNX_I16: return 2;
    default: return 1;
  }
}

static inline int mm_b_dtype(const tnxk_matmul *q) { return q->b_int8 ? TNX_I8 : q->dtype; }

#define MM_SWAP(x, y) do { int64_t t_ = (x); (x) = (y); (y) = t_; } while (0)

/* The canonical form of *p: batch dimensions that a weight does not follow become rows of a; a problem whose output is
 * column-major, or that is a tall matrix times a few columns, is turned into its transpose (c^T = b^T a^T), unless b is int8. */
static inline tnxk_matmul mm_canonical(const tnxk_matmul *p) {
  tnxk_matmul q = *p;
  if (q.beta == 0) q.add = NULL;
  if (q.add == NULL) {
    q.add_rs = q.add_cs = 0;
    for (int d = 0; d < q.batch_rank; d++) q.add_bs[d] = 0;
  }
  int r = 0;
  for (int d = 0; d < q.batch_rank; d++) {
    if (q.batch[d] == 1) continue;
    q.batch[r] = q.batch[d], q.a_bs[r] = q.a_bs[d], q.b_bs[r] = q.b_bs[d], q.c_bs[r] = q.c_bs[d], q.add_bs[r] = q.add_bs[d];
    r++;
  }
  q.batch_rank = r;
  while (q.batch_rank > 0) {
    int d = q.batch_rank - 1;
    if (q.m == 1) q.a_rs = q.a_bs[d], q.c_rs = q.c_bs[d], q.add_rs = q.add_bs[d];
    if (q.b_bs[d] != 0 || q.a_bs[d] != q.m * q.a_rs || q.c_bs[d] != q.m * q.c_rs || q.add_bs[d] != q.m * q.add_rs) break;
    q.m *= q.batch[d];
    q.batch_rank--;
  }
  bool column_major = q.c_rs == 1 && q.c_cs != 1 && q.m > 1 && q.n > 1;
  if (q.gate == NULL && !q.b_windows && !q.b_int8 && (column_major || (q.n <= 4 && q.m > q.n))) {
    const void *t = q.a;
    q.a = q.b, q.b = t;
    MM_SWAP(q.m, q.n);
    MM_SWAP(q.c_rs, q.c_cs);
    MM_SWAP(q.add_rs, q.add_cs);
    MM_SWAP(q.a_rs, q.b_cs);
    MM_SWAP(q.a_cs, q.b_rs);
    for (int d = 0; d < q.batch_rank; d++) MM_SWAP(q.a_bs[d], q.b_bs[d]);
  }
  if (q.n == 1) q.c_cs = 1, q.add_cs = 0;
  if (q.k == 1) q.a_cs = 1;
  return q;
}

static inline int64_t mm_batches(const tnxk_matmul *q) {
  int64_t n = 1;
  for (int d = 0; d < q->batch_rank; d++) n *= q->batch[d];
  return n;
}

static inline bool mm_empty(const tnxk_matmul *q) { return q->m <= 0 || q->n <= 0 || mm_batches(q) <= 0; }
/* False for an empty output or an empty sum, left to the reference kernel, and for windows, which are the packing kernels'. */
static inline bool mm_regular(const tnxk_matmul *q) { return !mm_empty(q) && q->k > 0 && !q->b_windows; }

typedef struct mm_item {
  const char *a, *b, *gate, *add; /* gate, add: NULL if absent */
  char *c;
} mm_item;

/* The operands of batch item `index`. */
static inline mm_item mm_get_item(const tnxk_matmul *q, int64_t index) {
  int64_t a = 0, b = 0, c = 0, add = 0;
  for (int d = q->batch_rank - 1; d >= 0; d--) {
    int64_t i = index % q->batch[d];
    index /= q->batch[d];
    a += i * q->a_bs[d], b += i * q->b_bs[d], c += i * q->c_bs[d], add += i * q->add_bs[d];
  }
  int bytes = mm_dtype_bytes(mm_b_dtype(q));
  mm_item it;
  it.a = (const char *)q->a + a * mm_dtype_bytes(q->dtype);
  it.b = (const char *)q->b + b * bytes;
  it.gate = q->gate ? (const char *)q->gate + b * bytes : NULL;
  it.add = q->add ? (const char *)q->add + add * mm_dtype_bytes(q->add_dtype) : NULL;
  it.c = (char *)q->c + c * mm_dtype_bytes(q->c_dtype);
  return it;
}

/* Names made from the including file's MM_SUFFIX. */
#define MM_CAT2(a, b, c) a##b##c
#define MM_CAT(a, b, c) MM_CAT2(a, b, c)
#define MM_STR2(x) #x
#define MM_STR(x) MM_STR2(x)
#define MM_PREPARE(op) MM_CAT(tnxk_matmul_##op##__, MM_SUFFIX, _prepare)
#define MM_NAME(op) "tnxk_matmul_" #op "__" MM_STR(MM_SUFFIX)
#endif
