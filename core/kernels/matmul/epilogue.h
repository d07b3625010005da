/* From a row of float32 sums to the output: scale, added term, activation, gate, one rounding. */
#ifndef TNXK_MATMUL_EPILOGUE_H
#define TNXK_MATMUL_EPILOGUE_H
#include "kernels/matmul/matmul_internal.h"
#include "kernels/matmul/vec.h"

static V load_strided(const char *p, int64_t stride, int64_t n, int dt) {
  float x[VL] = {0};
  for (int64_t i = 0; i < n; i++) {
    const char *e = p + i * stride * mm_dtype_bytes(dt);
    switch (dt) {
      case TNX_F64: { double d; memcpy(&d, e, 8); x[i] = (float)d; break; }
      case TNX_F32: memcpy(&x[i], e, 4); break;
      case TNX_BF16: { uint16_t h; memcpy(&h, e, 2); x[i] = tnx_bf16_to_f32(h); break; }
      default: { uint16_t h; memcpy(&h, e, 2); x[i] = tnx_f16_to_f32(h); break; }
    }
  }
  return v_load(x);
}

static void store_strided(char *p, int64_t stride, int64_t n, int dt, V v) {
  float x[VL];
  v_store(x, v);
  for (int64_t i = 0; i < n; i++) {
    if (dt == TNX_F32) ((float *)p)[i * stride] = x[i];
    else ((uint16_t *)p)[i * stride] = dt == TNX_BF16 ? tnx_f32_to_bf16(x[i]) : tnx_f32_to_f16(x[i]);
  }
}

INL V v_activate(V x, int act) {
  switch (act) {
    case TNXK_ACT_RELU: return v_select(x < v_zero(), v_zero(), x);
    case TNXK_ACT_SILU: return x / (v_set1(1.0f) + v_exp(-x));
    case TNXK_ACT_GELU_ERF: return v_set1(0.5f) * x * (v_set1(1.0f) + v_erf(x * v_set1(0.70710678f)));
    case TNXK_ACT_GELU_TANH: { /* 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */
      V u = v_set1(-2 * 0.79788456f) * x * v_fma(x * x, v_set1(0.044715f), v_set1(1.0f));
      return x / (v_set1(1.0f) + v_exp(u));
    }
    default: return x;
  }
}

/* Columns [col, col + n) of row `row`: t (and g behind a gate) hold the sums, readable up to a whole vector. */
static void store_row(const tnxk_matmul *q, const mm_item *it, int64_t row, int64_t col, int64_t n, const float *t,
                      const float *g) {
  const int ct = q->c_dtype, at = q->add_dtype, act = q->act;
  const int cs = mm_dtype_bytes(ct), as = mm_dtype_bytes(at);
  char *c = it->c + (row * q->c_rs + col * q->c_cs) * cs;
  const char *add = it->add ? it->add + (row * q->add_rs + col * q->add_cs) * as : NULL;
  const V alpha = v_set1((float)q->alpha), beta = v_set1((float)q->beta);
  const bool scale = q->alpha != 1.0;
  const bool whole_add = q->add_cs == 1 && at != TNX_F64;
  for (int64_t j = 0; j < n; j += VL) {
    const int64_t w = mm_min(VL, n - j);
    V x = v_load(t + j);
    if (scale) x = x * alpha;
    if (add) {
      const char *e = add + j * q->add_cs * as;
      V y = w == VL && whole_add ? v_load_dt(e, at) : load_strided(e, q->add_cs, w, at);
      x = v_fma(y, beta, x);
    }
    x = v_activate(x, act);
    if (it->gate) x = x * v_load(g + j);
    char *e = c + j * q->c_cs * cs;
    if (w < VL || q->c_cs != 1) store_strided(e, q->c_cs, w, ct, x);
    else if (ct == TNX_F32) v_store((float *)e, x);
    else if (ct == TNX_BF16) v_store_bf16((uint16_t *)e, x);
    else v_store_f16((uint16_t *)e, x);
  }
}
#endif
