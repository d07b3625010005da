/* Internal to the indexing family: the bodies of gather, scatter and copy, compiled once per instruction set (the loops over indices are left to the
 * compiler). The including file gives each the inner loop that is worth its own code: an accumulation for contiguous runs, a transposition of one tile. */
#ifndef TNXK_INDEXING_BODY_H
#define TNXK_INDEXING_BODY_H
#include "kernels/indexing/walk.h"

/* off[i] = or += wrap(index i) * step, for n indices `st` bytes apart. The sign of the result tells whether any is out of range. Negated and reduced
 * tests instead of comparisons, 32-bit factors where they suffice: what vector units without 64-bit multiplication do well. */
#define RESOLVE(name, type, FACTOR, STEP)                                                                                           \
  static inline int64_t name(const char *index, int64_t n, int64_t wrap, int64_t limit, int64_t step, int64_t *off, bool sum) {   \
    uint64_t bad = 0, last = (uint64_t)limit - 1;                                                                                   \
    const type *v = (const type *)index;                                                                                            \
    if (sum)                                                                                                                        \
      for (int64_t i = 0; i < n; i++) {                                                                                             \
        int64_t x = v[i];                                                                                                           \
        x += x < 0 ? wrap : 0;                                                                                                      \
        bad |= (uint64_t)x | (last - (uint64_t)x);                                                                                  \
        off[i] += (int64_t)((uint64_t)(FACTOR)x * (STEP)step);                                                                      \
      }                                                                                                                             \
    else                                                                                                                            \
      for (int64_t i = 0; i < n; i++) {                                                                                             \
        int64_t x = v[i];                                                                                                           \
        x += x < 0 ? wrap : 0;                                                                                                      \
        bad |= (uint64_t)x | (last - (uint64_t)x);                                                                                  \
        off[i] = (int64_t)((uint64_t)(FACTOR)x * (STEP)step);                                                                       \
      }                                                                                                                             \
    return (int64_t)bad;                                                                                                            \
  }
RESOLVE(resolve_64, int64_t, uint64_t, uint64_t)
RESOLVE(resolve_64_short, int64_t, uint32_t, uint32_t)
RESOLVE(resolve_32, int32_t, uint64_t, uint64_t)
RESOLVE(resolve_32_short, int32_t, uint32_t, uint32_t)
#undef RESOLVE

/* What the indices add for each of n <= TNXK_LANES lanes from `first` on, at stream positions `at` of lane 0; false if any is out of range. */
static inline bool lanes_resolve(const tnxk_index *p, const tnxk_indexed *r, const int64_t *at, int64_t first, int64_t n, int64_t *off) {
  int64_t base = 0;
  bool any = false, wide = p->index_dtype == TNX_I64;
  for (int t = 0; t < p->n_index; t++) {
    int64_t st = r->lane_st[2 + t], limit = p->index[t].limit, step = p->index[t].step, wrap = p->wraps ? limit : 0;
    const char *index = (const char *)p->index[t].data + at[2 + t] + first * st;
    union { int64_t wide[TNXK_LANES]; int32_t narrow[TNXK_LANES]; } packed;
    int64_t one = 0;
    if (st == 0) {
      if (wide) memcpy(&one, index, 8);
      else one = *(const int32_t *)index;
      one += one < 0 ? wrap : 0;
      if (one < 0 || one >= limit) return false;
      base += one * step;
      continue;
    }
    if (st != (wide ? 8 : 4)) {
      if (wide)
        for (int64_t i = 0; i < n; i++) packed.wide[i] = *(const int64_t *)(index + i * st);
      else
        for (int64_t i = 0; i < n; i++) packed.narrow[i] = *(const int32_t *)(index + i * st);
      index = (const char *)&packed;
    }
    bool narrow = limit <= INT32_MAX && step >= 0 && step <= INT32_MAX;
    int64_t bad = wide ? (narrow ? resolve_64_short : resolve_64)(index, n, wrap, limit, step, off, any)
                       : (narrow ? resolve_32_short : resolve_32)(index, n, wrap, limit, step, off, any);
    if (bad < 0) return false;
    any = true;
  }
  if (!any)
    for (int64_t i = 0; i < n; i++) off[i] = base;
  else if (base)
    for (int64_t i = 0; i < n; i++) off[i] += base;
  return true;
}

/* Lane i alone, for pieces that have an index out of range. */
static inline bool lane_resolve(const tnxk_index *p, const tnxk_indexed *r, const int64_t *at, int64_t i, int64_t *offset) {
  int64_t there[TNXK_WALK_MAX_STREAMS];
  for (int s = 0; s < r->w.streams; s++) there[s] = at[s] + i * r->lane_st[s];
  return tnxk_index_resolve(p, there, offset);
}

/* n single elements, one side of which the offsets move. */
#define LANE_LOOP(type, in_offset, out_offset)                                       \
  for (int64_t i = 0; i < n; i++) {                                                  \
    type v;                                                                          \
    memcpy(&v, src + i * src_st + in_offset, sizeof v);                              \
    memcpy(out + i * out_st + out_offset, &v, sizeof v);                             \
  }                                                                                  \
  return
typedef struct { uint64_t half[2]; } tnxk_wide;
#define LANE_COPY(name, in_offset, out_offset)                                                                                           \
  static inline void name(char *out, const char *src, int64_t n, int64_t elem, int64_t out_st, int64_t src_st, const int64_t *off) {     \
    switch (elem) {                                                                                                                      \
      case 1: LANE_LOOP(uint8_t, in_offset, out_offset);                                                                                 \
      case 2: LANE_LOOP(uint16_t, in_offset, out_offset);                                                                                \
      case 4: LANE_LOOP(uint32_t, in_offset, out_offset);                                                                                \
      case 8: LANE_LOOP(uint64_t, in_offset, out_offset);                                                                                \
      default: LANE_LOOP(tnxk_wide, in_offset, out_offset);                                                                              \
    }                                                                                                                                    \
  }
LANE_COPY(lanes_read, off[i], 0)
LANE_COPY(lanes_write, 0, off[i])
#undef LANE_COPY
#undef LANE_LOOP

/* n single elements by one int64 index each, four at a time: looked up as they are read, the offsets are never written. False where an index is out of range. */
#define LOOK_UP(type)                                                                                                                     \
  static __attribute__((noinline)) bool look_up_##type(char *out, const char *src, const int64_t *index, int64_t n, int64_t wrap,           \
                                                       int64_t limit, int64_t step, int64_t src_st) {                                      \
    int64_t i = 0;                                                                                                                        \
    for (; i + 4 <= n; i += 4) {                                                                                                          \
      int64_t x[4];                                                                                                                       \
      for (int k = 0; k < 4; k++) x[k] = index[i + k] + (index[i + k] >> 63 & wrap);                                                      \
      if (((uint64_t)x[0] >= (uint64_t)limit) | ((uint64_t)x[1] >= (uint64_t)limit) | ((uint64_t)x[2] >= (uint64_t)limit) |               \
          ((uint64_t)x[3] >= (uint64_t)limit))                                                                                            \
        return false;                                                                                                                     \
      for (int k = 0; k < 4; k++) memcpy(out + (i + k) * (int64_t)sizeof(type), src + (i + k) * src_st + x[k] * step, sizeof(type));      \
    }                                                                                                                                     \
    for (; i < n; i++) {                                                                                                                  \
      int64_t x = index[i] + (index[i] >> 63 & wrap);                                                                                     \
      if ((uint64_t)x >= (uint64_t)limit) return false;                                                                                   \
      memcpy(out + i * (int64_t)sizeof(type), src + i * src_st + x * step, sizeof(type));                                                 \
    }                                                                                                                                     \
    return true;                                                                                                                          \
  }
LOOK_UP(uint16_t)
LOOK_UP(uint32_t)
LOOK_UP(uint64_t)
#undef LOOK_UP
static inline bool lanes_look_up(const tnxk_index *p, const tnxk_indexed *r, const int64_t *at, int64_t first, int64_t n, char *out, const char *src) {
  if (r->run != 1 || p->n_index != 1 || p->index_dtype != TNX_I64 || r->lane_st[2] != 8 || r->lane_st[1] != r->elem || p->index[0].limit < 1) return false;
  const int64_t *index = (const int64_t *)((const char *)p->index[0].data + at[2] + first * 8);
  int64_t limit = p->index[0].limit, wrap = p->wraps ? limit : 0, step = p->index[0].step, st = r->lane_st[0];
  switch (r->elem) {
    case 2: return look_up_uint16_t(out, src, index, n, wrap, limit, step, st);
    case 4: return look_up_uint32_t(out, src, index, n, wrap, limit, step, st);
    case 8: return look_up_uint64_t(out, src, index, n, wrap, limit, step, st);
    default: return false;
  }
}

/* Units: outer coordinates x pieces of the lanes x pieces of the run. */
static inline void gather_body(const tnxk_index *p, int64_t begin, int64_t end) {
  static const uint64_t zero[2] = {0, 0};
  tnxk_indexed r;
  tnxk_indexed_reduce(p, false, &r);
  int64_t pieces = r.lane_chunks * r.chunks, piece = begin % pieces, off[TNXK_LANES];
  const int64_t elements = tnxk_walk_count(&r.w, 0, r.outer) * r.lanes * r.run;
  const bool runs_uncached = tnxk_run_is_uncached(r.run, r.elem, r.out_step, elements);
  const bool lanes_uncached = r.run == 1 && tnxk_run_is_uncached(r.lanes, r.elem, r.lane_st[1], elements);
  _Alignas(64) char looked_up[TNXK_LANES * 8];
  tnxk_cursor c;
  tnxk_cursor_seek(&c, &r.w, r.outer, begin / pieces);
  for (int64_t u = begin; u < end; u++) {
    int64_t lane = piece / r.chunks * r.lane_chunk, lanes = r.lanes - lane < r.lane_chunk ? r.lanes - lane : r.lane_chunk;
    int64_t first = piece % r.chunks * r.chunk, n = r.run - first < r.chunk ? r.run - first : r.chunk;
    const char *src = (const char *)p->src + c.at[0] + first * r.src_step + lane * r.lane_st[0];
    char *out = (char *)p->out + c.at[1] + first * r.out_step + lane * r.lane_st[1];
    if (lanes_look_up(p, &r, c.at, lane, lanes, lanes_uncached ? looked_up : out, src)) {
      if (lanes_uncached) tnxk_uncached_copy(out, looked_up, (size_t)(lanes * r.elem));
    } else if (!lanes_resolve(p, &r, c.at, lane, lanes, off)) {
      for (int64_t i = 0; i < lanes; i++) {
        bool ok = lane_resolve(p, &r, c.at, lane + i, off);
        tnxk_copy_run(out + i * r.lane_st[1], ok ? src + i * r.lane_st[0] + *off : (const char *)zero, n, r.elem, r.out_step, ok ? r.src_step : 0);
      }
    } else if (r.run == 1) {
      lanes_read(out, src, lanes, r.elem, r.lane_st[1], r.lane_st[0], off);
    } else if (runs_uncached) {
      for (int64_t i = 0; i < lanes; i++) tnxk_copy_run_uncached(out + i * r.lane_st[1], src + i * r.lane_st[0] + off[i], n, r.elem, r.src_step);
    } else {
      for (int64_t i = 0; i < lanes; i++) tnxk_copy_run(out + i * r.lane_st[1], src + i * r.lane_st[0] + off[i], n, r.elem, r.out_step, r.src_step);
    }
    if (++piece == pieces) {
      piece = 0;
      tnxk_cursor_next(&c, &r.w);
    }
  }
  if (runs_uncached || lanes_uncached) tnxk_uncached_fence();
}

/* Units: coordinates of the own dimensions x pieces of the lanes x pieces of the run x parts of the indexed dimension; each walks the colliding
 * dimensions in order. */
static inline void scatter_body(const tnxk_index *p, int64_t begin, int64_t end, tnxk_accumulate_fn contiguous) {
  tnxk_indexed r;
  tnxk_indexed_reduce(p, true, &r);
  bool set = p->op == TNXK_SCATTER_SET;
  tnxk_accumulate_fn accumulate = set ? NULL : tnxk_accumulate_get((tnx_dtype)p->dtype, (tnxk_scatter_op)p->op);
  if (contiguous && r.run > 1 && r.src_step == r.elem && r.out_step == r.elem) accumulate = contiguous;
  tnxk_walk inner = r.w;
  inner.rank = r.outer - r.own;
  for (int d = 0; d < inner.rank; d++) {
    inner.sizes[d] = r.w.sizes[r.own + d];
    for (int s = 0; s < inner.streams; s++) inner.st[s][d] = r.w.st[s][r.own + d];
  }
  int64_t collisions = tnxk_walk_count(&inner, 0, inner.rank), pieces = r.lane_chunks * r.chunks * r.parts, off[TNXK_LANES];
  tnxk_cursor own, in;
  tnxk_cursor_seek(&own, &r.w, r.own, begin / pieces);
  int64_t piece = begin % pieces;
  for (int64_t u = begin; u < end; u++) {
    int64_t part = piece % r.parts, rest = piece / r.parts, lane0 = rest / r.chunks * r.lane_chunk, first = rest % r.chunks * r.chunk;
    int64_t lanes = r.lanes - lane0 < r.lane_chunk ? r.lanes - lane0 : r.lane_chunk, n = r.run - first < r.chunk ? r.run - first : r.chunk;
    /* offsets of this part */
    int64_t low = 0, high = INT64_MAX;
    if (r.parts > 1) {
      low = p->index[0].limit * part / r.parts * p->index[0].step;
      high = p->index[0].limit * (part + 1) / r.parts * p->index[0].step;
    }
    tnxk_cursor_seek(&in, &inner, inner.rank, 0);
    for (int s = 0; s < inner.streams; s++) in.at[s] = own.at[s];
    for (int64_t c = 0; c < collisions; c++) {
      for (int64_t lane = lane0; lane < lane0 + lanes; lane += TNXK_LANES) {
        int64_t here = lane0 + lanes - lane < TNXK_LANES ? lane0 + lanes - lane : TNXK_LANES;
        const char *src = (const char *)p->src + in.at[0] + first * r.src_step + lane * r.lane_st[0];
        char *out = (char *)p->out + in.at[1] + first * r.out_step + lane * r.lane_st[1];
        bool all = lanes_resolve(p, &r, in.at, lane, here, off);
        if (all && r.run == 1) {
          if (set) lanes_write(out, src, here, r.elem, r.lane_st[1], r.lane_st[0], off);
          else accumulate(out, src, here, r.lane_st[1], r.lane_st[0], off);
          continue;
        }
        for (int64_t i = 0; i < here; i++) {
          if ((!all && !lane_resolve(p, &r, in.at, lane + i, &off[i])) || (r.parts > 1 && (off[i] < low || off[i] >= high))) continue;
          char *to = out + i * r.lane_st[1] + off[i];
          const char *from = src + i * r.lane_st[0];
          if (set) tnxk_copy_run(to, from, n, r.elem, r.out_step, r.src_step);
          else accumulate(to, from, n, r.out_step, r.src_step, NULL);
        }
      }
      tnxk_cursor_next(&in, &inner);
    }
    if (++piece == pieces) {
      piece = 0;
      tnxk_cursor_next(&own, &r.w);
    }
  }
}

/* out[i][j] = src[j][i] for one tile: out rows are out_row bytes apart, src rows src_row bytes apart. */
typedef void (*transpose_fn)(char *out, const char *src, int64_t rows, int64_t cols, int64_t out_row, int64_t src_row, int64_t elem);

/* Units: outer coordinates x row tiles x column chunks. */
static inline void copy_body(const tnxk_copy *p, int64_t begin, int64_t end, transpose_fn transpose) {
  tnxk_copying r;
  tnxk_copying_reduce(p, &r);
  int last = r.w.rank - 1;
  int64_t per_outer = r.row_units * r.col_units;
  int64_t src_col = r.w.rank ? r.w.st[0][last] : p->elem_size, out_col = r.w.rank ? r.w.st[1][last] : p->elem_size;
  tnxk_cursor c;
  tnxk_cursor_seek(&c, &r.w, r.outer, begin / per_outer);
  int64_t piece = begin % per_outer;
  const bool uncached = !r.transposed && tnxk_run_is_uncached(r.cols, p->elem_size, out_col, tnxk_walk_count(&r.w, 0, r.w.rank));
  for (int64_t u = begin; u < end; u++) {
    int64_t col = piece % r.col_units * r.chunk, cols = r.cols - col < r.chunk ? r.cols - col : r.chunk;
    const char *src = (const char *)p->src + c.at[0] + col * src_col;
    char *out = (char *)p->out + c.at[1] + col * out_col;
    if (r.transposed) {
      int64_t row = piece / r.col_units * TNXK_COPY_TILE;
      int64_t rows = r.rows - row < TNXK_COPY_TILE ? r.rows - row : TNXK_COPY_TILE;
      int64_t out_row = r.w.st[1][last - 1];
      transpose(out + row * out_row, src + row * p->elem_size, rows, cols, out_row, src_col, p->elem_size);
    } else if (uncached) {
      tnxk_copy_run_uncached(out, src, cols, p->elem_size, src_col);
    } else {
      tnxk_copy_run(out, src, cols, p->elem_size, out_col, src_col);
    }
    if (++piece == per_outer) {
      piece = 0;
      tnxk_cursor_next(&c, &r.w);
    }
  }
  if (uncached) tnxk_uncached_fence();
}

#define TRANSPOSE_LOOP(type)                                                        \
  for (int64_t i = 0; i < rows; i++)                                                \
    for (int64_t j = 0; j < cols; j++) {                                            \
      type v;                                                                       \
      memcpy(&v, src + j * src_row + i * (int64_t)sizeof v, sizeof v);              \
      memcpy(out + i * out_row + j * (int64_t)sizeof v, &v, sizeof v);              \
    }

static inline void transpose_plain(char *out, const char *src, int64_t rows, int64_t cols, int64_t out_row, int64_t src_row,
                                   int64_t elem) {
  typedef struct { uint64_t half[2]; } wide;
  switch (elem) {
    case 1: TRANSPOSE_LOOP(uint8_t) return;
    case 2: TRANSPOSE_LOOP(uint16_t) return;
    case 4: TRANSPOSE_LOOP(uint32_t) return;
    case 8: TRANSPOSE_LOOP(uint64_t) return;
    default: TRANSPOSE_LOOP(wide) return;
  }
}
#endif
