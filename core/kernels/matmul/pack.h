/* Packing of matrix panels: `width` rows, column after column of k, zero-padded to the width. A width is a multiple of VL
 * or less than VL. */
#ifndef TNXK_MATMUL_PACK_H
#define TNXK_MATMUL_PACK_H
#include "kernels/matmul/matmul_internal.h"
#include "kernels/matmul/vec.h"

/* Packed columns of k elements: a column is one float32, or with TNXK_PAIRS two bfloat16 of consecutive k in one word. */
#define KCOLS(k) (((k) + KSTEP - 1) / KSTEP)

/* Packing takes `rows` rows of k elements and writes out[column * width + row] for the KCOLS(k) packed columns. */

/* One packed column of a row, from elements that lie side by side. */
INL V load_columns(const char *p, int dt) { return PAIRS ? v_load((const float *)p) : v_load_dt(p, dt); }
INL V load_columns_part(const char *p, int64_t bytes, int dt) { return v_load_dt_part(p, bytes, PAIRS ? TNX_F32 : dt); }

/* k at unit distance; a row is `rs` bytes from the next. */
INL void pack_k_dt(const char *p, int64_t rs, int64_t rows, int64_t k, float *out, const int width, const int dt) {
  const int es = v_bytes(dt), ces = es * KSTEP;
  const int64_t columns = KCOLS(k);
  for (int g = 0; g < width; g += VL) {
    const int w = width - g < VL ? width - g : VL;
    const char *pg = p + g * rs;
    const int64_t live = rows - g;
    for (int64_t x = 0; x < columns; x += VL) {
      const int64_t bytes = mm_min(VL * ces, k * es - x * ces), n = mm_min(VL, columns - x);
      V r[VL];
      if (live >= w && bytes == VL * ces) {
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) r[i] = i < w ? load_columns(pg + i * rs + x * ces, dt) : v_zero();
      } else {
        for (int i = 0; i < VL; i++)
          r[i] = i < w && i < live ? load_columns_part(pg + i * rs + x * ces, bytes, dt) : v_zero();
      }
      v_transpose(r);
      float *o = out + x * width + g;
      if (n == VL) {
        /* A panel narrower than a vector: each store's excess is overwritten by the next one; room follows the last. */
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) v_store(o + i * width, r[i]);
      } else {
        for (int i = 0; i < n; i++) v_store(o + i * width, r[i]);
      }
    }
  }
}

/* Rows at unit distance for each k; k steps by `cs` bytes. `ahead` bytes on is what will be packed next: a prefetch of memory that is
 * not mapped costs a walk through the page tables. */
INL void pack_r_dt(const char *p, int64_t cs, int64_t rows, int64_t k, float *out, const int width, const int dt, const int64_t ahead) {
  const int es = v_bytes(dt);
  /* A narrow panel reads past its rows into the same or the next k, so not at the last one. */
  const bool exact = width % VL == 0;
  const bool wide_ok = rows >= width && (exact || cs >= VL * es);
  for (int64_t x = 0; x < k; x += KSTEP) {
    const char *px = p + x * cs;
    float *o = out + x / KSTEP * width;
    if (ahead) __builtin_prefetch(px + ahead);
    for (int g = 0; g < width; g += VL) {
      V v[KSTEP];
      for (int h = 0; h < KSTEP; h++) {
        if (x + h >= k) v[h] = v_zero();
        else if (wide_ok && (exact || x + h + 1 < k)) v[h] = v_load_dt(px + h * cs + g * es, dt);
        else v[h] = v_load_dt_part(px + h * cs + g * es, mm_max(0, mm_min(mm_min(VL, width - g), rows - g)) * es, dt);
      }
      /* A pair's first element is the low half of the word. */
      v_store(o + g, PAIRS ? (V)((VU)v[KSTEP - 1] | (VU)v[0] >> 16) : v[0]);
    }
  }
}

INL void pack_any_dt(const char *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, float *out, const int width,
                     const int dt) {
  const int es = v_bytes(dt);
  for (int64_t x = 0; x < k; x += KSTEP)
    for (int g = 0; g < width; g += VL) {
      char buf[4 * VL] = {0};
      for (int i = 0; i < VL && g + i < width && g + i < rows; i++)
        for (int h = 0; h < KSTEP && x + h < k; h++)
          memcpy(buf + (i * KSTEP + h) * es, p + (g + i) * rs + (x + h) * cs, (size_t)es);
      v_store(out + x / KSTEP * width + g, load_columns(buf, dt));
    }
}

INL void pack_panel_dt(const char *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, float *out, const int width,
                       const int dt) {
  const int es = v_bytes(dt);
  if (cs == 1) pack_k_dt(p, rs * es, rows, k, out, width, dt);
  else if (rs == 1) pack_r_dt(p, cs * es, rows, k, out, width, dt, 16 * cs * es);
  else pack_any_dt(p, rs * es, cs * es, rows, k, out, width, dt);
}

/* One panel of `width` rows from p: rows at distance rs, k at distance cs (elements). `out` has room for VL floats more. */
INL void pack_panel(const char *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, float *out, const int width, int dt) {
#if !defined(TNXK_PAIRS)
  if (dt == TNX_F32) {
    pack_panel_dt(p, rs, cs, rows, k, out, width, TNX_F32);
    return;
  }
  if (dt == TNX_F16) {
    pack_panel_dt(p, rs, cs, rows, k, out, width, TNX_F16);
    return;
  }
  if (dt == TNX_I8) {
    pack_panel_dt(p, rs, cs, rows, k, out, width, TNX_I8);
    return;
  }
#endif
  pack_panel_dt(p, rs, cs, rows, k, out, width, TNX_BF16);
}
#endif
