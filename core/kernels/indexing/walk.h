/* Internal to the indexing family: how an iteration space is reduced before it is walked, and the walk itself.
 * The reduced form depends on sizes, strides, limits and dtypes only, so select and run, which both compute it, agree. */
#ifndef TNXK_INDEXING_WALK_H
#define TNXK_INDEXING_WALK_H
#include <stdlib.h>
#include <string.h>

#include "kernels/indexing/indexing.h"
#include "kernels/uncached.h"

enum { TNXK_WALK_MAX_STREAMS = 2 + TNXK_INDEX_MAX, TNXK_CHUNK_BYTES = 32 << 10 };

/* Streams 0 and 1 are src and out, the others the index tensors; all strides in bytes. */
typedef struct tnxk_walk {
  int rank, streams;
  int64_t sizes[TNXK_MAX_RANK];
  int64_t st[TNXK_WALK_MAX_STREAMS][TNXK_MAX_RANK];
} tnxk_walk;

/* Removes dimensions of size 1 and joins neighbours that every stream walks as one. A size of 0 leaves one dimension of size 0. */
static inline void tnxk_walk_squeeze(tnxk_walk *w) {
  int r = 0;
  for (int d = 0; d < w->rank; d++) {
    if (w->sizes[d] == 0) {
      w->rank = 1;
      w->sizes[0] = 0;
      for (int s = 0; s < w->streams; s++) w->st[s][0] = 0;
      return;
    }
  }
  for (int d = 0; d < w->rank; d++) {
    if (w->sizes[d] == 1) continue;
    bool joins = r > 0;
    for (int s = 0; joins && s < w->streams; s++) joins = w->st[s][r - 1] == w->st[s][d] * w->sizes[d];
    int to = joins ? r - 1 : r++;
    w->sizes[to] = joins ? w->sizes[to] * w->sizes[d] : w->sizes[d];
    for (int s = 0; s < w->streams; s++) w->st[s][to] = w->st[s][d];
  }
  w->rank = r;
}

static inline void tnxk_walk_swap(tnxk_walk *w, int a, int b) {
  int64_t t = w->sizes[a];
  w->sizes[a] = w->sizes[b], w->sizes[b] = t;
  for (int s = 0; s < w->streams; s++) t = w->st[s][a], w->st[s][a] = w->st[s][b], w->st[s][b] = t;
}

/* Product of the sizes of dimensions [from, to). */
static inline int64_t tnxk_walk_count(const tnxk_walk *w, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= w->sizes[d];
  return n;
}

/* A position in dimensions [0, rank) of a walk: coordinates and the byte offset of every stream. */
typedef struct tnxk_cursor {
  int rank;
  int64_t x[TNXK_MAX_RANK];
  int64_t at[TNXK_WALK_MAX_STREAMS];
} tnxk_cursor;

static inline void tnxk_cursor_seek(tnxk_cursor *c, const tnxk_walk *w, int rank, int64_t linear) {
  c->rank = rank;
  for (int s = 0; s < w->streams; s++) c->at[s] = 0;
  for (int d = rank - 1; d >= 0; d--) {
    c->x[d] = linear % w->sizes[d];
    linear /= w->sizes[d];
    for (int s = 0; s < w->streams; s++) c->at[s] += c->x[d] * w->st[s][d];
  }
}

static inline void tnxk_cursor_next(tnxk_cursor *c, const tnxk_walk *w) {
  for (int d = c->rank - 1; d >= 0; d--) {
    if (++c->x[d] < w->sizes[d]) {
      for (int s = 0; s < w->streams; s++) c->at[s] += w->st[s][d];
      return;
    }
    for (int s = 0; s < w->streams; s++) c->at[s] -= (w->sizes[d] - 1) * w->st[s][d];
    c->x[d] = 0;
  }
}

/* An indexed operation, reduced: [outer dimensions][lanes][run]. The run is the last dimension if no index varies along it (else 1 element);
 * the lanes are the dimension before it. A unit is a position in the outer dimensions, a piece of `lane_chunk` lanes and a piece of `chunk`
 * elements of the run. For scatter, the outer dimensions are ordered: `own` dimensions that the output walks by itself, then those that only the
 * indices tell apart, which a unit walks from first to last. Lanes that only the indices tell apart are not cut. Where that leaves few units, each
 * takes the lanes whose one index falls into its part of the indexed dimension. */
enum { TNXK_LANES = 512, TNXK_FEW_UNITS = 16 };
typedef struct tnxk_indexed {
  tnxk_walk w;
  int outer;          /* dimensions before the lanes */
  int own;            /* scatter: dimensions [0, own) cannot collide */
  int64_t elem;       /* bytes */
  int64_t lanes, lane_chunk, lane_chunks, lane_st[TNXK_WALK_MAX_STREAMS];
  int64_t run, src_step, out_step, chunk, chunks;
  int64_t parts;      /* scatter: of the indexed dimension */
} tnxk_indexed;

static inline int64_t tnxk_ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

static inline void tnxk_indexed_reduce(const tnxk_index *p, bool scatter, tnxk_indexed *r) {
  tnxk_walk *w = &r->w;
  w->rank = p->rank;
  w->streams = 2 + p->n_index;
  for (int d = 0; d < p->rank; d++) {
    w->sizes[d] = p->sizes[d];
    w->st[0][d] = p->src_st[d];
    w->st[1][d] = p->out_st[d];
    for (int t = 0; t < p->n_index; t++) w->st[2 + t][d] = p->index[t].st[d];
  }
  tnxk_walk_squeeze(w);
  r->elem = (int64_t)tnx_dtype_size((tnx_dtype)p->dtype);
  r->run = 1, r->src_step = r->out_step = r->elem;
  r->outer = w->rank;
  if (r->outer > 0) {
    int last = r->outer - 1;
    bool free_of_index = !scatter || w->st[1][last] != 0;
    for (int t = 0; free_of_index && t < p->n_index; t++) free_of_index = w->st[2 + t][last] == 0;
    if (free_of_index) {
      r->run = w->sizes[last];
      r->src_step = w->st[0][last];
      r->out_step = w->st[1][last];
      r->outer = last;
    }
  }
  r->chunk = TNXK_CHUNK_BYTES / r->elem;
  r->chunks = tnxk_ceil_div(r->run, r->chunk);
  r->lanes = 1;
  for (int s = 0; s < w->streams; s++) r->lane_st[s] = 0;
  if (r->outer > 0) {
    int last = --r->outer;
    r->lanes = w->sizes[last];
    for (int s = 0; s < w->streams; s++) r->lane_st[s] = w->st[s][last];
  }
  bool cut = !scatter || r->lane_st[1] != 0;
  int64_t fit = r->run ? TNXK_CHUNK_BYTES / r->elem / (r->run < r->chunk ? r->run : r->chunk) : 1;
  r->lane_chunk = !cut ? r->lanes : fit < 1 ? 1 : fit < TNXK_LANES ? fit : TNXK_LANES;
  r->lane_chunks = r->lanes ? tnxk_ceil_div(r->lanes, r->lane_chunk) : 0;
  r->own = 0;
  r->parts = 1;
  if (!scatter) return;
  for (int d = 0; d < r->outer; d++) {
    if (w->st[1][d] == 0) continue;
    for (int e = d; e > r->own; e--) tnxk_walk_swap(w, e, e - 1); /* keeps the order inside each class */
    r->own++;
  }
  /* Reading all indices for each part is worth it for long runs only. */
  int64_t units = tnxk_walk_count(w, 0, r->own) * r->chunks, bytes = r->run * r->elem;
  if (!cut && p->n_index == 1 && p->index[0].step > 0 && units < TNXK_FEW_UNITS && r->lanes * bytes > TNXK_CHUNK_BYTES) {
    r->parts = bytes / 256 < TNXK_FEW_UNITS ? bytes / 256 : TNXK_FEW_UNITS;
    if (r->parts > p->index[0].limit) r->parts = p->index[0].limit;
    if (r->parts < 1) r->parts = 1;
  }
}

/* Byte offset that the indices add at stream positions at[2..]; false (and the fault recorded) if one is out of range. */
static inline bool tnxk_index_resolve(const tnxk_index *p, const int64_t *at, int64_t *offset) {
  int64_t sum = 0;
  for (int t = 0; t < p->n_index; t++) {
    const char *address = (const char *)p->index[t].data + at[2 + t];
    int64_t i, limit = p->index[t].limit;
    if (p->index_dtype == TNX_I64) memcpy(&i, address, 8);
    else {
      int32_t narrow;
      memcpy(&narrow, address, 4);
      i = narrow;
    }
    if (i < (p->wraps ? -limit : 0) || i >= limit) {
      if (p->fault) {
        p->fault->value = i;
        p->fault->limit = limit;
        p->fault->code = 1 + t;
      }
      return false;
    }
    sum += (i < 0 ? i + limit : i) * p->index[t].step;
  }
  *offset = sum;
  return true;
}

/* n elements of `elem` bytes from src to out. A src_step of 0 repeats one element. */
static inline void tnxk_copy_run(char *out, const char *src, int64_t n, int64_t elem, int64_t out_step, int64_t src_step) {
  if (n > 1 && out_step == elem && src_step == elem) {
    memcpy(out, src, (size_t)(n * elem));
    return;
  }
#define LOOP(type, to, from)                                           \
  for (int64_t i = 0; i < n; i++) {                                    \
    type v;                                                            \
    memcpy(&v, src + i * (from), sizeof v);                            \
    memcpy(out + i * (to), &v, sizeof v);                              \
  }                                                                    \
  return
/* Backwards, with steps that the compiler knows: it reverses vectors. */
#define REVERSED(type) _Pragma("GCC ivdep") LOOP(type, (int64_t)sizeof(type), -(int64_t)sizeof(type))
  typedef struct { uint64_t half[2]; } wide;
  bool reversed = out_step == elem && src_step == -elem;
  switch (elem * (reversed ? -1 : 1)) {
    case 1: LOOP(uint8_t, out_step, src_step);
    case 2: LOOP(uint16_t, out_step, src_step);
    case 4: LOOP(uint32_t, out_step, src_step);
    case 8: LOOP(uint64_t, out_step, src_step);
    case -1: REVERSED(uint8_t);
    case -2: REVERSED(uint16_t);
    case -4: REVERSED(uint32_t);
    case -8: REVERSED(uint64_t);
    default: LOOP(wide, out_step, src_step);
  }
#undef REVERSED
#undef LOOP
}

/* The same for a run of a large result, which follow each other in memory. */
static inline void tnxk_copy_run_uncached(char *out, const char *src, int64_t n, int64_t elem, int64_t src_step) {
  if (src_step == elem) {
    tnxk_uncached_copy(out, src, (size_t)(n * elem));
    return;
  }
  _Alignas(64) char piece[2048];
  const int64_t most = (int64_t)sizeof piece / elem;
  for (int64_t i = 0; i < n; i += most) {
    int64_t here = n - i < most ? n - i : most;
    tnxk_copy_run(piece, src + i * src_step, here, elem, elem, src_step);
    tnxk_uncached_copy(out + i * elem, piece, (size_t)(here * elem));
  }
}

/* Do runs of n elements of a result of so many go past the caches? */
static inline bool tnxk_run_is_uncached(int64_t n, int64_t elem, int64_t out_step, int64_t elements) {
  return out_step == elem && n * elem >= 256 && tnxk_uncached_pays(elements * elem);
}

/* A strided copy, reduced: dimensions in order of falling output stride. Where the input is contiguous along another dimension
 * than the output, the two are the last ones: [.., rows, columns], out contiguous along columns and src along rows. */
enum { TNXK_COPY_TILE = 64 };
typedef struct tnxk_copying {
  tnxk_walk w;
  int outer;
  bool transposed;
  int64_t rows, cols;               /* transposed: the two dimensions; else rows == 1 and cols is the run */
  int64_t row_units, col_units, chunk;
} tnxk_copying;

static inline int64_t tnxk_abs(int64_t v) { return v < 0 ? -v : v; }

static inline void tnxk_copying_reduce(const tnxk_copy *p, tnxk_copying *r) {
  tnxk_walk *w = &r->w;
  w->rank = p->rank;
  w->streams = 2;
  for (int d = 0; d < p->rank; d++) w->sizes[d] = p->sizes[d], w->st[0][d] = p->src_st[d], w->st[1][d] = p->out_st[d];
  tnxk_walk_squeeze(w);
  for (int d = 1; d < w->rank; d++)
    for (int e = d; e > 0; e--) {
      int64_t a = tnxk_abs(w->st[1][e - 1]), b = tnxk_abs(w->st[1][e]);
      if (a > b || (a == b && tnxk_abs(w->st[0][e - 1]) >= tnxk_abs(w->st[0][e]))) break;
      tnxk_walk_swap(w, e, e - 1);
    }
  tnxk_walk_squeeze(w);
  int last = w->rank - 1;
  r->transposed = false;
  r->rows = r->row_units = 1;
  r->cols = w->rank ? w->sizes[last] : 1;
  r->outer = w->rank ? last : 0;
  r->chunk = TNXK_CHUNK_BYTES / p->elem_size;
  if (w->rank >= 2 && w->st[1][last] == p->elem_size && w->st[0][last] != p->elem_size && w->st[0][last] != 0) {
    for (int d = 0; d < last; d++) {
      if (w->st[0][d] != p->elem_size) continue;
      for (int e = d; e < last - 1; e++) tnxk_walk_swap(w, e, e + 1);
      r->transposed = true;
      r->rows = w->sizes[last - 1];
      r->outer = last - 1;
      r->chunk = TNXK_COPY_TILE;
      r->row_units = (r->rows + TNXK_COPY_TILE - 1) / TNXK_COPY_TILE;
      break;
    }
  }
  r->col_units = r->cols ? (r->cols + r->chunk - 1) / r->chunk : 0;
}

/* Elements of a mask that one unit counts, and later places. */
enum { TNXK_NONZERO_BLOCK = 4096 };

/* Adds (or multiplies, or takes the least or greatest of) n elements of src into out, whose element i is `offset[i]` further if there are offsets. */
typedef void (*tnxk_accumulate_fn)(char *out, const char *src, int64_t n, int64_t out_step, int64_t src_step, const int64_t *offset);
tnxk_accumulate_fn tnxk_accumulate_get(tnx_dtype dtype, tnxk_scatter_op op);

#define TNXK_INDEXING(isa, operation, function) \
  void function(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
#include "kernels/indexing/kernels.def"
#undef TNXK_INDEXING
#endif
