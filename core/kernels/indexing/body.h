/* Internal to the indexing family: the bodies of scatter and copy, shared by the instruction sets. The including file gives
 * each the inner loop that is worth its own code: an accumulation for contiguous runs, a transposition of one tile. */
#ifndef TNXK_INDEXING_BODY_H
#define TNXK_INDEXING_BODY_H
#include "kernels/indexing/walk.h"

/* Units: (coordinates of the own dimensions) x (chunks of the run); each walks the colliding dimensions in order. */
static inline void scatter_body(const tnxk_index *p, int64_t begin, int64_t end, tnxk_accumulate_fn contiguous) {
  tnxk_indexed r;
  tnxk_indexed_reduce(p, true, &r);
  bool set = p->op == TNXK_SCATTER_SET;
  tnxk_accumulate_fn accumulate = set ? NULL : tnxk_accumulate_get((tnx_dtype)p->dtype, (tnxk_scatter_op)p->op);
  if (contiguous && r.src_step == r.elem && r.out_step == r.elem) accumulate = contiguous;
  tnxk_walk inner = r.w;
  inner.rank = r.outer - r.own;
  for (int d = 0; d < inner.rank; d++) {
    inner.sizes[d] = r.w.sizes[r.own + d];
    for (int s = 0; s < inner.streams; s++) inner.st[s][d] = r.w.st[s][r.own + d];
  }
  int64_t collisions = tnxk_walk_count(&inner, 0, inner.rank);
  tnxk_cursor own, in;
  tnxk_cursor_seek(&own, &r.w, r.own, begin / r.chunks);
  int64_t piece = begin % r.chunks;
  for (int64_t u = begin; u < end; u++) {
    int64_t first = piece * r.chunk, n = r.run - first < r.chunk ? r.run - first : r.chunk;
    tnxk_cursor_seek(&in, &inner, inner.rank, 0);
    for (int s = 0; s < inner.streams; s++) in.at[s] = own.at[s];
    const char *src = (const char *)p->src + first * r.src_step;
    char *out = (char *)p->out + first * r.out_step;
    for (int64_t i = 0; i < collisions; i++) {
      int64_t offset;
      if (tnxk_index_resolve(p, in.at, &offset)) {
        if (set) tnxk_copy_run(out + in.at[1] + offset, src + in.at[0], n, r.elem, r.out_step, r.src_step);
        else accumulate(out + in.at[1] + offset, src + in.at[0], n, r.out_step, r.src_step);
      }
      tnxk_cursor_next(&in, &inner);
    }
    if (++piece == r.chunks) {
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
  for (int64_t u = begin; u < end; u++) {
    int64_t col = piece % r.col_units * r.chunk, cols = r.cols - col < r.chunk ? r.cols - col : r.chunk;
    const char *src = (const char *)p->src + c.at[0] + col * src_col;
    char *out = (char *)p->out + c.at[1] + col * out_col;
    if (r.transposed) {
      int64_t row = piece / r.col_units * TNXK_COPY_TILE;
      int64_t rows = r.rows - row < TNXK_COPY_TILE ? r.rows - row : TNXK_COPY_TILE;
      int64_t out_row = r.w.st[1][last - 1];
      transpose(out + row * out_row, src + row * p->elem_size, rows, cols, out_row, src_col, p->elem_size);
    } else {
      tnxk_copy_run(out, src, cols, p->elem_size, out_col, src_col);
    }
    if (++piece == per_outer) {
      piece = 0;
      tnxk_cursor_next(&c, &r.w);
    }
  }
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
