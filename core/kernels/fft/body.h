/* The transforms, compiled for each instruction set and precision: REAL is the type, FN(name) its names.
 *
 * A buffer holds `lanes` lines side by side, real and imaginary parts apart: element i of lane l is at i * lanes + l. Every loop over neighbours, of lanes and of the
 * parts that earlier factors have finished, runs over adjacent memory and is left to the compiler to vectorise. */

typedef struct FN(buffer) { REAL *re, *im; } FN(buffer);

/* One factor r of Stockham's form: m = what is left after it, s = lanes times the factors done. With a_j = x[p + m j] for p < m,
 * y[r p + k] = w^(pk) sum_j a_j exp(-2 pi i jk / r), where w is the root of order r m. */
typedef struct FN(stage) { const tnxk_fft_roots *roots; int64_t m, s, step; /* of an exponent: roots.n / (r m) */ } FN(stage);

#define LOAD(j) const REAL *restrict r##j = x.re + s * (p + m * j), *restrict i##j = x.im + s * (p + m * j)
#define PLACE(k, count) REAL *restrict R##k = y.re + s * (count * p + k), *restrict I##k = y.im + s * (count * p + k)
#define ROOT(k)                                                            \
  root w##k = tnxk_fft_root(g->roots, p * k * g->step);                     \
  const REAL c##k = (REAL)w##k.re, d##k = (REAL)w##k.im
#define STORE(k, real, imag)                                               \
  {                                                                        \
    REAL re_ = (real), im_ = (imag);                                       \
    R##k[q] = re_ * c##k - im_ * d##k;                                     \
    I##k[q] = re_ * d##k + im_ * c##k;                                     \
  }

static void FN(radix2)(const FN(stage) *g, FN(buffer) x, FN(buffer) y) {
  const int64_t m = g->m, s = g->s;
  for (int64_t p = 0; p < m; p++) {
    LOAD(0); LOAD(1);
    PLACE(0, 2); PLACE(1, 2);
    ROOT(1);
    for (int64_t q = 0; q < s; q++) {
      R0[q] = r0[q] + r1[q];
      I0[q] = i0[q] + i1[q];
      STORE(1, r0[q] - r1[q], i0[q] - i1[q])
    }
  }
}

static void FN(radix3)(const FN(stage) *g, FN(buffer) x, FN(buffer) y) {
  const int64_t m = g->m, s = g->s;
  const REAL sin60 = (REAL)0.86602540378443864676;
  for (int64_t p = 0; p < m; p++) {
    LOAD(0); LOAD(1); LOAD(2);
    PLACE(0, 3); PLACE(1, 3); PLACE(2, 3);
    ROOT(1); ROOT(2);
    for (int64_t q = 0; q < s; q++) {
      REAL ar = r1[q] + r2[q], ai = i1[q] + i2[q], br = (r1[q] - r2[q]) * sin60, bi = (i1[q] - i2[q]) * sin60;
      REAL tr = r0[q] - ar * (REAL)0.5, ti = i0[q] - ai * (REAL)0.5;
      R0[q] = r0[q] + ar;
      I0[q] = i0[q] + ai;
      STORE(1, tr + bi, ti - br)
      STORE(2, tr - bi, ti + br)
    }
  }
}

static void FN(radix4)(const FN(stage) *g, FN(buffer) x, FN(buffer) y) {
  const int64_t m = g->m, s = g->s;
  for (int64_t p = 0; p < m; p++) {
    LOAD(0); LOAD(1); LOAD(2); LOAD(3);
    PLACE(0, 4); PLACE(1, 4); PLACE(2, 4); PLACE(3, 4);
    ROOT(1); ROOT(2); ROOT(3);
    for (int64_t q = 0; q < s; q++) {
      REAL ar = r0[q] + r2[q], ai = i0[q] + i2[q], br = r0[q] - r2[q], bi = i0[q] - i2[q];
      REAL cr = r1[q] + r3[q], ci = i1[q] + i3[q], dr = r1[q] - r3[q], di = i1[q] - i3[q];
      R0[q] = ar + cr;
      I0[q] = ai + ci;
      STORE(1, br + di, bi - dr)
      STORE(2, ar - cr, ai - ci)
      STORE(3, br - di, bi + dr)
    }
  }
}

static void FN(radix5)(const FN(stage) *g, FN(buffer) x, FN(buffer) y) {
  const int64_t m = g->m, s = g->s;
  const REAL cos72 = (REAL)0.30901699437494742410, cos144 = (REAL)-0.80901699437494742410, sin72 = (REAL)0.95105651629515357212, sin144 = (REAL)0.58778525229247312917;
  for (int64_t p = 0; p < m; p++) {
    LOAD(0); LOAD(1); LOAD(2); LOAD(3); LOAD(4);
    PLACE(0, 5); PLACE(1, 5); PLACE(2, 5); PLACE(3, 5); PLACE(4, 5);
    ROOT(1); ROOT(2); ROOT(3); ROOT(4);
    for (int64_t q = 0; q < s; q++) {
      REAL ar = r1[q] + r4[q], ai = i1[q] + i4[q], br = r1[q] - r4[q], bi = i1[q] - i4[q];
      REAL cr = r2[q] + r3[q], ci = i2[q] + i3[q], dr = r2[q] - r3[q], di = i2[q] - i3[q];
      REAL er = r0[q] + cos72 * ar + cos144 * cr, ei = i0[q] + cos72 * ai + cos144 * ci;
      REAL fr = r0[q] + cos144 * ar + cos72 * cr, fi = i0[q] + cos144 * ai + cos72 * ci;
      REAL gr = sin72 * br + sin144 * dr, gi = sin72 * bi + sin144 * di, hr = sin144 * br - sin72 * dr, hi = sin144 * bi - sin72 * di;
      R0[q] = r0[q] + (ar + cr);
      I0[q] = i0[q] + (ai + ci);
      STORE(1, er + gi, ei - gr)
      STORE(2, fr + hi, fi - hr)
      STORE(3, fr - hi, fi + hr)
      STORE(4, er - gi, ei + gr)
    }
  }
}

/* Any factor, by its definition; the root of the sum and that of the result are one. */
static void FN(radix_any)(const FN(stage) *g, int64_t r, FN(buffer) x, FN(buffer) y) {
  const int64_t m = g->m, s = g->s, n = g->roots->n;
  for (int64_t p = 0; p < m; p++)
    for (int64_t k = 0; k < r; k++) {
      PLACE(0, r);
      REAL *restrict re = R0 + s * k, *restrict im = I0 + s * k;
      for (int64_t j = 0; j < r; j++) {
        LOAD(0);
        const REAL *restrict ar = r0 + s * m * j, *restrict ai = i0 + s * m * j;
        root w = tnxk_fft_root(g->roots, (p * k * g->step + j * k % r * (n / r)) % n);
        const REAL c = (REAL)w.re, d = (REAL)w.im;
        if (j == 0)
          for (int64_t q = 0; q < s; q++) re[q] = ar[q] * c - ai[q] * d, im[q] = ar[q] * d + ai[q] * c;
        else
          for (int64_t q = 0; q < s; q++) re[q] += ar[q] * c - ai[q] * d, im[q] += ar[q] * d + ai[q] * c;
      }
    }
}

/* Transforms x, with y as scratch; returns which of the two holds the result. */
static FN(buffer) FN(transform)(const tnxk_fft_length *length, int64_t lanes, FN(buffer) x, FN(buffer) y) {
  FN(stage) g = {&length->roots, length->n, lanes, 1};
  for (int i = 0; i < length->n_factors; i++) {
    int64_t r = length->factors[i];
    g.m /= r;
    switch (r) {
      case 2: FN(radix2)(&g, x, y); break;
      case 3: FN(radix3)(&g, x, y); break;
      case 4: FN(radix4)(&g, x, y); break;
      case 5: FN(radix5)(&g, x, y); break;
      default: FN(radix_any)(&g, r, x, y);
    }
    g.s *= r;
    g.step *= r;
    FN(buffer) swap = x;
    x = y;
    y = swap;
  }
  return x;
}

/* ---- convolution: X[k] = c[k] sum_j (x[j] c[j]) conj(c[k - j]), c[j] = exp(-pi i j^2 / n) ---- */

static root FN(chirp)(const tnxk_fft *p, int64_t j) { return tnxk_fft_root(&p->chirp, (int64_t)((unsigned __int128)j * (unsigned __int128)j % (uint64_t)(2 * p->n))); }

/* The spectrum of conj(c) over the circle, scaled by 1 / its length, into `shared`. */
static void FN(chirp_spectrum)(const tnxk_fft *p, REAL *shared, REAL *worker) {
  int64_t m = p->length.n;
  FN(buffer) x = {worker, worker + m}, y = {worker + 2 * m, worker + 3 * m};
  memset(x.re, 0, sizeof(REAL) * (size_t)m);
  memset(x.im, 0, sizeof(REAL) * (size_t)m);
  for (int64_t j = 0; j < p->n; j++) {
    root c = FN(chirp)(p, j);
    x.re[j] = x.re[j ? m - j : 0] = (REAL)(c.re / (double)m);
    x.im[j] = x.im[j ? m - j : 0] = (REAL)(-c.im / (double)m);
  }
  x = FN(transform)(&p->length, 1, x, y);
  memcpy(shared, x.re, sizeof(REAL) * (size_t)m);
  memcpy(shared + m, x.im, sizeof(REAL) * (size_t)m);
}

static void FN(rotate)(const tnxk_fft *p, FN(buffer) x, int64_t lanes) {
  for (int64_t j = 0; j < p->n; j++) {
    root c = FN(chirp)(p, j);
    const REAL re = (REAL)c.re, im = (REAL)c.im;
    REAL *restrict xr = x.re + j * lanes, *restrict xi = x.im + j * lanes;
    for (int64_t l = 0; l < lanes; l++) {
      REAL r = xr[l];
      xr[l] = r * re - xi[l] * im;
      xi[l] = r * im + xi[l] * re;
    }
  }
}

static FN(buffer) FN(convolve)(const tnxk_fft *p, const REAL *spectrum, FN(buffer) x, FN(buffer) y) {
  int64_t m = p->length.n, lanes = p->lanes;
  FN(rotate)(p, x, lanes);
  memset(x.re + p->n * lanes, 0, sizeof(REAL) * (size_t)((m - p->n) * lanes));
  memset(x.im + p->n * lanes, 0, sizeof(REAL) * (size_t)((m - p->n) * lanes));
  FN(buffer) z = FN(transform)(&p->length, lanes, x, y), rest = z.re == x.re ? y : x;
  for (int64_t j = 0; j < m; j++) {
    const REAL re = spectrum[j], im = spectrum[m + j];
    REAL *restrict zr = z.re + j * lanes, *restrict zi = z.im + j * lanes;
    for (int64_t l = 0; l < lanes; l++) {
      REAL r = zr[l];
      zr[l] = r * re - zi[l] * im;
      zi[l] = r * im + zi[l] * re;
    }
  }
  /* the inverse is the transform with real and imaginary parts exchanged */
  FN(buffer) turned = {z.im, z.re}, scratch = {rest.im, rest.re};
  z = FN(transform)(&p->length, lanes, turned, scratch);
  FN(buffer) back = {z.im, z.re};
  FN(rotate)(p, back, lanes);
  return back;
}

/* ---- lines in and out ---- */

typedef struct FN(lines) { const char *in[64]; char *out[64]; int count; } FN(lines);

static void FN(load)(const tnxk_fft *p, const FN(lines) *lines, FN(buffer) x) {
  int64_t n = p->n, half = n / 2 + 1, lanes = p->lanes, stored = p->kind == TNXK_FFT_TO_REAL ? half : n;
  for (int64_t i = 0; i < stored; i++)
    for (int l = 0; l < lines->count; l++) {
      const REAL *from = (const REAL *)(const void *)(lines->in[l] + i * p->in_step);
      x.re[i * lanes + l] = from[0];
      x.im[i * lanes + l] = p->kind == TNXK_FFT_FROM_REAL ? 0 : from[1];
    }
  if (p->kind != TNXK_FFT_TO_REAL) return;
  /* the other half is the conjugate; what has no partner is real */
  for (int64_t i = 0; i < half; i++) {
    int64_t other = i ? n - i : 0;
    for (int l = 0; l < lines->count; l++) {
      if (other == i) x.im[i * lanes + l] = 0;
      x.re[other * lanes + l] = x.re[i * lanes + l];
      if (other != i) x.im[other * lanes + l] = -x.im[i * lanes + l];
    }
  }
}

static void FN(store)(const tnxk_fft *p, const FN(lines) *lines, FN(buffer) x) {
  int64_t lanes = p->lanes, stored = p->kind == TNXK_FFT_FROM_REAL ? p->n / 2 + 1 : p->n;
  const REAL scale = (REAL)p->scale;
  for (int64_t i = 0; i < stored; i++)
    for (int l = 0; l < lines->count; l++) {
      REAL *to = (REAL *)(void *)(lines->out[l] + i * p->out_step);
      to[0] = x.re[i * lanes + l] * scale;
      if (p->kind != TNXK_FFT_TO_REAL) to[1] = x.im[i * lanes + l] * scale;
    }
}

static void FN(run)(const tnxk_fft *p, uint32_t phase, int64_t begin, int64_t end, REAL *shared, REAL *worker) {
  if (p->convolves && phase == 0) {
    FN(chirp_spectrum)(p, shared, worker);
    return;
  }
  int64_t lanes = p->lanes, size = p->length.n * lanes;
  for (int64_t unit = begin; unit < end; unit++) {
    FN(buffer) x = {worker, worker + size}, y = {worker + 2 * size, worker + 3 * size};
    FN(lines) lines = {.count = 0};
    for (int64_t row = unit * lanes; row < p->rows && lines.count < lanes; row++) {
      const char *in = p->in;
      char *out = p->out;
      int64_t rest = row;
      for (int d = p->rank - 1; d >= 0; d--) {
        in += rest % p->sizes[d] * p->in_st[d];
        out += rest % p->sizes[d] * p->out_st[d];
        rest /= p->sizes[d];
      }
      lines.in[lines.count] = in;
      lines.out[lines.count++] = out;
    }
    if (lines.count < lanes) memset(worker, 0, sizeof(REAL) * 2 * (size_t)size); /* idle lanes compute too */
    FN(load)(p, &lines, x);
    if (p->inverse) {
      x = (FN(buffer)){x.im, x.re};
      y = (FN(buffer)){y.im, y.re};
    }
    x = p->convolves ? FN(convolve)(p, shared, x, y) : FN(transform)(&p->length, lanes, x, y);
    if (p->inverse) x = (FN(buffer)){x.im, x.re};
    FN(store)(p, &lines, x);
  }
}
#undef LOAD
#undef PLACE
#undef ROOT
#undef STORE
