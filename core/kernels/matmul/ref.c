/* Scalar reference of every matmul dtype: one unit is one row of the output. Not for speed: the last row of kernels.def,
 * taken for k == 0, empty problems and types without a kernel of their own. */
#include <math.h>

#include "base/half.h"
#include "kernels/matmul/matmul_internal.h"

static double load_float(const void *p, int64_t i, int dt) {
  switch (dt) {
    case TNX_F64: return ((const double *)p)[i];
    case TNX_F32: return ((const float *)p)[i];
    case TNX_BF16: return tnx_bf16_to_f32(((const uint16_t *)p)[i]);
    case TNX_I8: return ((const int8_t *)p)[i];
    default: return tnx_f16_to_f32(((const uint16_t *)p)[i]);
  }
}

static void store_float(void *p, int64_t i, int dt, double v) {
  switch (dt) {
    case TNX_F64: ((double *)p)[i] = v; break;
    case TNX_F32: ((float *)p)[i] = (float)v; break;
    case TNX_BF16: ((uint16_t *)p)[i] = tnx_f32_to_bf16((float)v); break;
    default: ((uint16_t *)p)[i] = tnx_f32_to_f16((float)v); break;
  }
}

/* Integers wrap, so unsigned arithmetic modulo 2^64 gives the low bits of every width. */
static uint64_t load_int(const void *p, int64_t i, int dt) {
  switch (dt) {
    case TNX_I64: return (uint64_t)((const int64_t *)p)[i];
    case TNX_I32: return (uint64_t)(int64_t)((const int32_t *)p)[i];
    case TNX_I16: return (uint64_t)(int64_t)((const int16_t *)p)[i];
    case TNX_I8: return (uint64_t)(int64_t)((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
  }
}

static void store_int(void *p, int64_t i, int dt, uint64_t v) {
  switch (dt) {
    case TNX_I64: ((uint64_t *)p)[i] = v; break;
    case TNX_I32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case TNX_I16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    default: ((uint8_t *)p)[i] = (uint8_t)v; break;
  }
}

static double activate(double x, int act) {
  switch (act) {
    case TNXK_ACT_RELU: return x < 0 ? 0 : x;
    case TNXK_ACT_SILU: return x / (1 + exp(-x));
    case TNXK_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case TNXK_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default: return x;
  }
}

static double dot(const tnxk_matmul *q, const char *a, const char *b) {
  if (q->dtype == TNX_F64) {
    const double *x = (const double *)a, *y = (const double *)b;
    double s = 0;
    for (int64_t i = 0; i < q->k; i++) s = fma(x[i * q->a_cs], y[i * q->b_rs], s);
    return s;
  }
  float s = 0;
  for (int64_t i = 0; i < q->k; i++)
    s = fmaf((float)load_float(a, i * q->a_cs, q->dtype), (float)load_float(b, i * q->b_rs, mm_b_dtype(q)), s);
  return s;
}

static void float_row(const tnxk_matmul *q, const mm_item *it, int64_t i) {
  int es = mm_dtype_bytes(mm_b_dtype(q));
  const char *a = it->a + i * q->a_rs * mm_dtype_bytes(q->dtype);
  for (int64_t j = 0; j < q->n; j++) {
    double v = q->alpha * dot(q, a, it->b + j * q->b_cs * es);
    if (it->add) v += q->beta * load_float(it->add, i * q->add_rs + j * q->add_cs, q->add_dtype);
    v = activate(v, q->act);
    if (it->gate) v *= dot(q, a, it->gate + j * q->b_cs * es);
    store_float(it->c, i * q->c_rs + j * q->c_cs, q->c_dtype, v);
  }
}

static void int_row(const tnxk_matmul *q, const mm_item *it, int64_t i) {
  uint64_t alpha = (uint64_t)(int64_t)q->alpha, beta = (uint64_t)(int64_t)q->beta;
  for (int64_t j = 0; j < q->n; j++) {
    uint64_t s = 0;
    for (int64_t x = 0; x < q->k; x++)
      s += load_int(it->a, i * q->a_rs + x * q->a_cs, q->dtype) * load_int(it->b, x * q->b_rs + j * q->b_cs, q->dtype);
    s *= alpha;
    if (it->add) s += beta * load_int(it->add, i * q->add_rs + j * q->add_cs, q->add_dtype);
    store_int(it->c, i * q->c_rs + j * q->c_cs, q->c_dtype, s);
  }
}

static void run(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker) {
  (void)phase, (void)shared, (void)worker;
  tnxk_matmul q = mm_canonical(params);
  bool is_float = q.dtype == TNX_F32 || q.dtype == TNX_BF16 || q.dtype == TNX_F16 || q.dtype == TNX_F64;
  for (int64_t u = begin; u < end; u++) {
    mm_item it = mm_get_item(&q, u / q.m);
    if (is_float) float_row(&q, &it, u % q.m);
    else int_row(&q, &it, u % q.m);
  }
}

bool tnxk_matmul_ref__scalar_prepare(const tnxk_matmul *q, tnxk_kernel *out) {
  out->name = "tnxk_matmul_ref__scalar";
  out->run = run;
  out->phases = 1;
  out->units[0] = q->n == 0 ? 0 : q->m * mm_batches(q);
  out->grain[0] = mm_max(1, 20000 / (q->n * q->k + 1));
  return true;
}
