/* Random matrix products checked against a product in double precision: shapes, strides, batches, types, epilogues, zero
 * sizes; and the promise that results do not depend on how units are split or in which order they run. */
#ifndef TNX_MATMUL_CASES_H
#define TNX_MATMUL_CASES_H
#include "base/half.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_internal.h"
#include "test.h"

typedef tnx_status (*matmul_select_fn)(const tnxk_matmul *p, tnxk_kernel *out);

typedef struct mcase {
  tnxk_matmul p;
  void *a, *b, *gate, *add;
  unsigned char *c; /* as the kernel wrote it */
  int64_t c_elems;
} mcase;

static inline int mc_float(int dt) { return dt == TNX_F32 || dt == TNX_BF16 || dt == TNX_F16 || dt == TNX_F64; }

static inline double mc_get(const void *p, int64_t i, int dt) {
  switch (dt) {
    case TNX_F64: return ((const double *)p)[i];
    case TNX_F32: return ((const float *)p)[i];
    case TNX_BF16: return tnx_bf16_to_f32(((const uint16_t *)p)[i]);
    case TNX_F16: return tnx_f16_to_f32(((const uint16_t *)p)[i]);
    case TNX_I64: return (double)((const int64_t *)p)[i];
    case TNX_I32: return ((const int32_t *)p)[i];
    case TNX_I16: return ((const int16_t *)p)[i];
    case TNX_I8: return ((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
  }
}

static inline void mc_put(void *p, int64_t i, int dt, uint64_t r) {
  double v = (double)(int64_t)(r >> 12) * 0x1p-51 - 1;
  switch (dt) {
    case TNX_F64: ((double *)p)[i] = v; break;
    case TNX_F32: ((float *)p)[i] = (float)v; break;
    case TNX_BF16: ((uint16_t *)p)[i] = tnx_f32_to_bf16((float)v); break;
    case TNX_F16: ((uint16_t *)p)[i] = tnx_f32_to_f16((float)v); break;
    case TNX_I64: ((int64_t *)p)[i] = (int64_t)(r % 2001) - 1000; break;
    case TNX_I32: ((int32_t *)p)[i] = (int32_t)(r % 2001) - 1000; break;
    case TNX_I16: ((int16_t *)p)[i] = (int16_t)r; break;
    default: ((uint8_t *)p)[i] = (uint8_t)r; break;
  }
}

static inline int64_t mc_below(uint64_t *s, int64_t n) { return (int64_t)(test_rand(s) % (uint64_t)n); }

static inline int64_t mc_size(uint64_t *s, int64_t big) {
  switch (mc_below(s, 8)) {
    case 0: return 1;
    case 1: return 1 + mc_below(s, 4);
    case 2: case 3: return 1 + mc_below(s, 20);
    case 4: return 8 * (1 + mc_below(s, 8));
    case 5: return mc_below(s, 6) == 0 ? 0 : 1 + mc_below(s, big);
    default: return 1 + mc_below(s, big);
  }
}

/* Strides of a rows x cols matrix: row-major, column-major or general; returns the elements it spans. */
static inline int64_t mc_layout(uint64_t *s, int64_t rows, int64_t cols, int64_t *rs, int64_t *cs) {
  int kind = (int)mc_below(s, 7);
  int64_t pad = mc_below(s, 2) ? mc_below(s, 9) : 0;
  if (kind < 3) *cs = 1, *rs = cols + pad;
  else if (kind < 6) *rs = 1, *cs = rows + pad;
  else *cs = 2 + mc_below(s, 2), *rs = cols * *cs + pad;
  return rows == 0 || cols == 0 ? 0 : (rows - 1) * *rs + (cols - 1) * *cs + 1;
}

/* Batch strides over items of `span` elements; a dimension may be broadcast when `may_repeat`. Returns all elements. */
static inline int64_t mc_batch(uint64_t *s, const tnxk_matmul *p, int64_t span, int64_t *bs, bool may_repeat) {
  int64_t total = span;
  for (int d = p->batch_rank - 1; d >= 0; d--) {
    bs[d] = total;
    if (may_repeat && mc_below(s, 3) == 0) bs[d] = 0;
    else total *= p->batch[d];
  }
  return total;
}

static inline void *mc_fill(uint64_t *s, int64_t n, int dt) {
  void *p = malloc((size_t)n * tnx_dtype_size((tnx_dtype)dt) + 1);
  for (int64_t i = 0; p && i < n; i++) mc_put(p, i, dt, test_rand(s));
  return p;
}

enum { MC_PATTERN = 0xa5 };

static inline void mc_make(mcase *t, uint64_t *s, int dt, int64_t big) {
  memset(t, 0, sizeof *t);
  tnxk_matmul *p = &t->p;
  p->dtype = (uint8_t)dt;
  p->c_dtype = (uint8_t)((dt == TNX_BF16 || dt == TNX_F16) && mc_below(s, 3) == 0 ? TNX_F32 : dt);
  p->m = mc_size(s, big), p->n = mc_size(s, big), p->k = mc_size(s, big);
  p->alpha = mc_below(s, 2) ? 1 : mc_float(dt) ? 0.75 : 3;
  p->beta = mc_below(s, 2) ? 1 : mc_float(dt) ? -1.5 : -2;
  if (mc_below(s, 3) == 0) {
    p->batch_rank = 1 + (int)mc_below(s, TNXK_MATMUL_MAX_BATCH_RANK);
    for (int d = 0; d < p->batch_rank; d++) p->batch[d] = mc_below(s, 40) == 0 ? 0 : 1 + mc_below(s, 3);
  }
  int64_t span = mc_layout(s, p->m, p->k, &p->a_rs, &p->a_cs);
  t->a = mc_fill(s, mc_batch(s, p, span, p->a_bs, true), dt);
  span = mc_layout(s, p->k, p->n, &p->b_rs, &p->b_cs);
  int64_t b_elems = mc_batch(s, p, span, p->b_bs, true);
  p->b_int8 = (dt == TNX_F32 || dt == TNX_BF16 || dt == TNX_F16) && mc_below(s, 4) == 0;
  t->b = mc_fill(s, b_elems, mm_b_dtype(p));
  if (mc_float(dt)) {
    p->act = (uint8_t)(mc_below(s, 2) ? mc_below(s, 5) : 0);
    if (mc_below(s, 4) == 0 && !(p->b_int8 && p->c_dtype == TNX_F16)) /* whose range a product of both would leave */
      t->gate = mc_fill(s, b_elems, mm_b_dtype(p));
  }
  if (mc_below(s, 2)) {
    static const uint8_t kinds[] = {TNX_F32, TNX_BF16, TNX_F16, TNX_F64};
    p->add_dtype = (uint8_t)(mc_float(dt) && mc_below(s, 3) == 0 ? kinds[mc_below(s, 4)] : dt);
    span = mc_layout(s, p->m, p->n, &p->add_rs, &p->add_cs);
    int kind = (int)mc_below(s, 4);
    if (kind == 0) p->add_rs = 0, p->add_cs = 1, span = p->n; /* a bias */
    if (kind == 1) p->add_cs = 0, p->add_rs = 1, span = p->m;
    t->add = mc_fill(s, mc_batch(s, p, span, p->add_bs, true), p->add_dtype);
  }
  span = mc_layout(s, p->m, p->n, &p->c_rs, &p->c_cs);
  t->c_elems = mc_batch(s, p, span, p->c_bs, false);
  if (p->batch_rank == 1 && mc_below(s, 2) && p->m > 0 && p->n > 0 && p->k > 0) { /* batch that a weight does not follow */
    free(t->a), free(t->add);
    t->add = NULL;
    p->a_cs = 1, p->a_rs = p->k, p->a_bs[0] = p->m * p->k;
    t->a = mc_fill(s, p->batch[0] * p->m * p->k, dt);
    p->c_cs = 1, p->c_rs = p->n, p->c_bs[0] = p->m * p->n, t->c_elems = p->batch[0] * p->m * p->n;
    p->b_bs[0] = 0;
  }
  t->c = malloc((size_t)t->c_elems * tnx_dtype_size((tnx_dtype)p->c_dtype) + 1);
  p->a = t->a, p->b = t->b, p->gate = t->gate, p->add = t->add, p->c = t->c;
}

static inline void mc_free(mcase *t) { free(t->a), free(t->b), free(t->gate), free(t->add), free(t->c); }

/* Runs every phase; `seed` 0: one range each; otherwise random ranges in random order, each with scratch of its own. */
static inline void mc_run(const tnxk_matmul *p, const tnxk_kernel *k, uint64_t seed) {
  void *shared = aligned_alloc(64, mm_align64(k->shared_bytes + 1));
  void *worker = aligned_alloc(64, mm_align64(k->worker_bytes + 1));
  memset(shared, 0xff, k->shared_bytes);
  memset(worker, 0xff, k->worker_bytes);
  for (uint32_t ph = 0; ph < k->phases; ph++) {
    if (seed == 0) {
      if (k->units[ph] > 0) k->run(p, ph, 0, k->units[ph], shared, worker);
      continue;
    }
    /* A few cuts, the pieces run from the last to the first. */
    int64_t end = k->units[ph];
    while (end > 0) {
      int64_t n = 1 + mc_below(&seed, mc_below(&seed, 2) ? end : mm_min(end, 3));
      memset(worker, (int)mc_below(&seed, 256), k->worker_bytes);
      k->run(p, ph, end - n, end, shared, worker);
      end -= n;
    }
  }
  free(shared), free(worker);
}

static inline double mc_act(double x, int act) {
  switch (act) {
    case TNXK_ACT_RELU: return x < 0 ? 0 : x;
    case TNXK_ACT_SILU: return x / (1 + exp(-x));
    case TNXK_ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case TNXK_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default: return x;
  }
}

static inline uint64_t mc_int(double v) { return (uint64_t)(int64_t)v; }

/* True if every output is right and nothing else in c was touched. */
static inline bool mc_check(const mcase *t) {
  const tnxk_matmul *p = &t->p;
  int cs = (int)tnx_dtype_size((tnx_dtype)p->c_dtype);
  unsigned char *seen = calloc((size_t)t->c_elems + 1, 1);
  int64_t items = 1;
  bool ok = true;
  for (int d = 0; d < p->batch_rank; d++) items *= p->batch[d];
  double eps = p->dtype == TNX_F64 ? 0x1p-52 : 0x1p-23;
  for (int64_t it = 0; it < items && ok; it++) {
    int64_t oa = 0, ob = 0, oc = 0, oadd = 0, r = it;
    for (int d = p->batch_rank - 1; d >= 0; d--) {
      int64_t i = r % p->batch[d];
      r /= p->batch[d];
      oa += i * p->a_bs[d], ob += i * p->b_bs[d], oc += i * p->c_bs[d], oadd += i * p->add_bs[d];
    }
    for (int64_t i = 0; i < p->m && ok; i++)
      for (int64_t j = 0; j < p->n && ok; j++) {
        double s = 0, mag = 0, g = 0, gmag = 0;
        uint64_t si = 0;
        for (int64_t x = 0; x < p->k; x++) {
          double av = mc_get(t->a, oa + i * p->a_rs + x * p->a_cs, p->dtype);
          int64_t bi = ob + x * p->b_rs + j * p->b_cs;
          double bv = mc_get(t->b, bi, mm_b_dtype(p));
          s += av * bv, mag += fabs(av * bv);
          si += mc_int(av) * mc_int(bv);
          if (t->gate) {
            double gv = mc_get(t->gate, bi, mm_b_dtype(p));
            g += av * gv, gmag += fabs(av * gv);
          }
        }
        int64_t ci = oc + i * p->c_rs + j * p->c_cs;
        seen[ci] = 1;
        double add = t->add ? mc_get(t->add, oadd + i * p->add_rs + j * p->add_cs, p->add_dtype) : 0;
        if (!mc_float(p->dtype)) {
          uint64_t want = si * mc_int(p->alpha) + (t->add ? mc_int(p->beta) * mc_int(add) : 0), got = 0;
          memcpy(&got, t->c + ci * cs, (size_t)cs);
          ok = cs == 8 ? got == want : got == (want & ((1ull << (8 * cs)) - 1));
          continue;
        }
        double lin = p->alpha * s + p->beta * add;
        double err = eps * (2 + (double)p->k / 16) * fabs(p->alpha) * mag + 2 * eps * (fabs(lin) + fabs(p->beta * add));
        double want = mc_act(lin, p->act);
        err = 1.2 * err + (p->act ? 4 * eps * (fabs(lin) + 0.01) : 0);
        if (t->gate) {
          err = err * fabs(g) + fabs(want) * eps * (2 + (double)p->k / 16) * gmag + 2 * eps * fabs(want * g);
          want *= g;
        }
        err += fabs(want) * (p->c_dtype == TNX_BF16 ? 0x1p-8 : p->c_dtype == TNX_F16 ? 0x1p-11 : eps) + 1e-30;
        if (p->c_dtype == TNX_F16) err += 0x1p-25;
        double got = mc_get(t->c, ci, p->c_dtype);
        if (!(fabs(got - want) <= err)) {
          printf("  item %lld (%lld, %lld): %.9g, expected %.9g +- %.3g\n", (long long)it, (long long)i, (long long)j, got,
                 want, err);
          ok = false;
        }
      }
  }
  for (int64_t i = 0; i < t->c_elems && ok; i++)
    for (int x = 0; x < cs && !seen[i]; x++)
      if (t->c[i * cs + x] != MC_PATTERN) {
        printf("  element %lld of c was touched\n", (long long)i);
        ok = false;
        break;
      }
  free(seen);
  return ok;
}

/* One seed: right result, and the same bits when the work is cut differently. */
static inline bool mc_case(matmul_select_fn select, int dt, uint64_t seed, int64_t big) {
  uint64_t s = seed;
  mcase t;
  mc_make(&t, &s, dt, big);
  size_t bytes = (size_t)t.c_elems * tnx_dtype_size((tnx_dtype)t.p.c_dtype);
  tnxk_kernel k;
  tnx_status st = select(&t.p, &k);
  bool ok = st == TNX_OK;
  if (ok) {
    memset(t.c, MC_PATTERN, bytes);
    mc_run(&t.p, &k, 0);
    ok = mc_check(&t);
    unsigned char *first = malloc(bytes + 1);
    memcpy(first, t.c, bytes);
    for (int i = 0; i < 2 && ok; i++) {
      memset(t.c, MC_PATTERN, bytes);
      mc_run(&t.p, &k, test_rand(&s) | 1);
      ok = memcmp(first, t.c, bytes) == 0;
      if (!ok) printf("  the result depends on how the units are split\n");
    }
    free(first);
  }
  if (!ok)
    printf("  %s seed %llu %s: m %lld n %lld k %lld, a %lld,%lld b %lld,%lld c %lld,%lld batch rank %d act %d gate %d add %d int8 %d\n",
           k.name ? k.name : "?", (unsigned long long)seed, tnx_dtype_name((tnx_dtype)dt), (long long)t.p.m,
           (long long)t.p.n, (long long)t.p.k, (long long)t.p.a_rs, (long long)t.p.a_cs, (long long)t.p.b_rs,
           (long long)t.p.b_cs, (long long)t.p.c_rs, (long long)t.p.c_cs, (int)t.p.batch_rank, t.p.act, t.gate != NULL,
           t.add != NULL, t.p.b_int8);
  mc_free(&t);
  return ok;
}

/* For tests of one file's kernels: the first prepare function that takes the problem, or the reference. */
static inline tnx_status mc_first(const tnxk_matmul *p, const tnxk_matmul_prepare_fn *list, int n, tnxk_kernel *out) {
  tnxk_matmul q = mm_canonical(p);
  for (int i = 0; i < n; i++) {
    memset(out, 0, sizeof *out);
    if (list[i](&q, out)) return TNX_OK;
  }
  return tnxk_matmul_select(p, TNX_ISA_SCALAR, 1, out);
}

static inline void mc_many(matmul_select_fn select, int dt, int count, int64_t big) {
  for (int i = 0; i < count; i++) CHECK(mc_case(select, dt, (uint64_t)i * 977 + (uint64_t)dt * 131 + 1, big));
}
#endif
