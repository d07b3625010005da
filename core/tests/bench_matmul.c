/* Speed of the matmul kernels: `bench_matmul [threads]`. Prints GFLOP/s and the bandwidth of reading b; one thread is
 * measured in processor time, several in elapsed time.
 * Not a test; built by hand against tnx_static. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/matmul/matmul.h"

typedef struct team {
  const tnxk_kernel *k;
  const tnxk_matmul *p;
  pthread_barrier_t barrier;
  void *shared;
  _Atomic int64_t next[TNXK_MAX_PHASES];
  int threads, reps;
  size_t b_step; /* each repetition reads another copy of b, so that it comes from memory */
  int copies;
} team;

typedef struct member { team *t; int index; } member;

static double now(int threads) {
  struct timespec ts;
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void *work(void *arg) {
  member *m = arg;
  team *t = m->t;
  void *worker = aligned_alloc(64, (t->k->worker_bytes + 64) / 64 * 64);
  if (!worker) return NULL;
  for (int r = 0; r < t->reps; r++) {
    tnxk_matmul p = *t->p;
    p.b = (const char *)p.b + (size_t)(r % t->copies) * t->b_step;
    for (uint32_t ph = 0; ph < t->k->phases; ph++) {
      int64_t g = t->k->grain[ph], u;
      while ((u = atomic_fetch_add(&t->next[ph], g)) < t->k->units[ph])
        t->k->run(&p, ph, u, u + g < t->k->units[ph] ? u + g : t->k->units[ph], t->shared, worker);
      if (t->threads > 1) pthread_barrier_wait(&t->barrier);
      if (ph + 1 == t->k->phases) {
        if (m->index == 0)
          for (uint32_t x = 0; x < t->k->phases; x++) t->next[x] = 0;
        if (t->threads > 1) pthread_barrier_wait(&t->barrier);
      }
    }
  }
  free(worker);
  return NULL;
}

static double seconds(team *t) {
  pthread_t th[64];
  member m[64];
  double t0 = now(t->threads);
  for (int i = 1; i < t->threads; i++) m[i] = (member){t, i}, pthread_create(&th[i], NULL, work, &m[i]);
  m[0] = (member){t, 0};
  work(&m[0]);
  for (int i = 1; i < t->threads; i++) pthread_join(th[i], NULL);
  return (now(t->threads) - t0) / t->reps;
}

static void one(int64_t m, int64_t n, int64_t k, char layout, tnx_dtype dt, int threads) {
  size_t es = tnx_dtype_size(dt), bytes = (size_t)(n * k) * es;
  int copies = m <= 8 ? (int)(64000000 / bytes) + 1 : 1;
  char *a = malloc((size_t)(m * k) * es), *b = malloc(bytes * (size_t)copies), *c = malloc((size_t)(m * n) * es);
  if (!a || !b || !c) return;
  memset(a, 0x3c, (size_t)(m * k) * es);
  memset(b, 0x3c, bytes * (size_t)copies);
  tnxk_matmul p = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .a_rs = k, .a_cs = 1, .c_rs = n, .c_cs = 1, .alpha = 1,
                   .b_rs = layout == 'w' ? 1 : n, .b_cs = layout == 'w' ? k : 1, .dtype = (uint8_t)dt, .c_dtype = (uint8_t)dt};
  if (layout == 't') p.a_rs = 1, p.a_cs = m;
  tnxk_kernel kern;
  if (tnxk_matmul_select(&p, tnx_cpu_isa(), threads, &kern) != TNX_OK) return;
  team t = {.k = &kern, .p = &p, .threads = threads, .reps = copies, .b_step = bytes, .copies = copies};
  t.shared = aligned_alloc(64, (kern.shared_bytes + 64) / 64 * 64);
  pthread_barrier_init(&t.barrier, NULL, (unsigned)threads);
  double once = seconds(&t);
  t.reps = (int)(0.1 / once) + 1;
  double best = seconds(&t);
  for (int i = 0; i < 4; i++) {
    double s = seconds(&t);
    if (s < best) best = s;
  }
  printf("%5lld x %5lld x %5lld %c %-9s %-28s units %5lld x %5.0f us: %8.1f us %6.1f GFLOP/s %6.2f GB/s\n", (long long)m,
         (long long)n, (long long)k, layout, tnx_dtype_name(dt), kern.name, (long long)kern.units[kern.phases - 1],
         best * 1e6 / (double)kern.units[kern.phases - 1] * threads, best * 1e6, 2e-9 * (double)(m * n) * (double)k / best,
         1e-9 * (double)bytes / best);
  fflush(stdout);
  pthread_barrier_destroy(&t.barrier);
  free(a), free(b), free(c), free(t.shared);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > 64) return 1;
  static const struct { int64_t m, n, k; char layout; } shapes[] = {
      {1, 576, 576, 'w'},    {1, 1536, 576, 'w'},   {1, 576, 1536, 'w'},  {1, 49152, 576, 'w'}, {1, 4096, 4096, 'w'},
      {2, 1536, 576, 'w'},   {4, 1536, 576, 'w'},   {4, 4096, 4096, 'w'}, {8, 1536, 576, 'w'},  {16, 1536, 576, 'w'},
      {1, 1536, 576, 'r'},   {4, 1536, 576, 'r'},   {6, 4096, 4096, 'r'}, {12, 1536, 576, 'r'}, {24, 1536, 576, 'w'}, {32, 1536, 576, 'w'},
      {128, 1536, 576, 'w'}, {512, 576, 576, 'w'},  {512, 1536, 576, 'w'}, {512, 576, 1536, 'w'}, {1024, 1024, 1024, 'r'},
      {1024, 1024, 1024, 'w'}, {576, 1536, 1024, 't'}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (int d = 0; d < 2; d++)
      one(shapes[i].m, shapes[i].n, shapes[i].k, shapes[i].layout, d ? TNX_BF16 : TNX_F32, threads);
  return 0;
}
