/* How fast this machine reads memory: bandwidth <threads> <MiB a thread>. Prints bytes per second, best of several passes.
 *
 * The limit of batch-1 decoding: each token reads every weight once, so tokens/s cannot exceed this divided by the bytes of the weights. Built by
 * bench.py with -O3 -march=native; each thread sums its own buffer, which is far larger than the caches. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PASSES = 8, MAX_THREADS = 256 };

typedef struct reader {
  uint64_t *words;
  size_t count;
  uint64_t sum; /* kept, so that the loop is not removed */
  pthread_barrier_t *barrier;
} reader;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_all(void *arg) {
  reader *r = arg;
  for (size_t i = 0; i < r->count; i++) r->words[i] = i; /* the pages belong to the thread that reads them */
  for (int pass = 0; pass < PASSES; pass++) {
    pthread_barrier_wait(r->barrier);
    /* Independent streams keep enough loads in flight. */
    uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const size_t quarter = r->count / 4;
    const uint64_t *a = r->words, *b = a + quarter, *c = b + quarter, *d = c + quarter;
    for (size_t i = 0; i < quarter; i++) s0 += a[i], s1 += b[i], s2 += c[i], s3 += d[i];
    r->sum += s0 + s1 + s2 + s3;
    pthread_barrier_wait(r->barrier);
  }
  return NULL;
}

int main(int argc, char **argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 256) << 20;
  if (threads < 1 || threads > MAX_THREADS || bytes == 0) return fprintf(stderr, "usage: bandwidth <threads> <MiB a thread>\n"), 2;

  static reader readers[MAX_THREADS];
  static pthread_t ids[MAX_THREADS];
  pthread_barrier_t barrier;
  if (pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1)) return perror("barrier"), 1;
  for (int t = 0; t < threads; t++) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return perror("mmap"), 1;
    madvise(p, bytes, MADV_HUGEPAGE);
    readers[t] = (reader){.words = p, .count = bytes / sizeof(uint64_t), .barrier = &barrier};
    if (pthread_create(&ids[t], NULL, read_all, &readers[t])) return perror("thread"), 1;
  }
  double best = 0;
  for (int pass = 0; pass < PASSES; pass++) {
    pthread_barrier_wait(&barrier);
    const double start = now();
    pthread_barrier_wait(&barrier);
    const double rate = (double)bytes * threads / (now() - start);
    if (rate > best) best = rate;
  }
  uint64_t sum = 0;
  for (int t = 0; t < threads; t++) {
    pthread_join(ids[t], NULL);
    sum += readers[t].sum;
  }
  printf("%.0f\n", best);
  return sum == 1; /* never, but the compiler cannot know */
}
