/* Runs a selected kernel for the tests: phase by phase, its units cut into ranges of at most `piece` (0: one range), the ranges
 * taken in a shuffled order, with fresh worker scratch full of NaN bytes for each, so that a result that depends on the split,
 * the order or stale scratch shows. */
#ifndef TNX_TEST_KERNEL_SPLIT_H
#define TNX_TEST_KERNEL_SPLIT_H
#include "kernels/kernel.h"
#include "test.h"

static void *split_scratch(size_t bytes) {
  size_t size = (bytes + 127) / 64 * 64;
  void *p = aligned_alloc(64, size);
  memset(p, 0xff, size);
  return p;
}

static void kernel_run_split(const tnxk_kernel *k, const void *params, int64_t piece, uint64_t seed) {
  void *shared = split_scratch(k->shared_bytes);
  for (uint32_t phase = 0; phase < k->phases; phase++) {
    CHECK(k->grain[phase] >= 1);
    int64_t units = k->units[phase], step = piece ? piece : units, n = units ? (units + step - 1) / step : 0;
    int64_t *order = malloc(sizeof *order * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; piece && i > 0; i--) {
      int64_t j = (int64_t)(test_rand(&seed) % (uint64_t)(i + 1)), t = order[i];
      order[i] = order[j], order[j] = t;
    }
    void *worker = NULL;
    for (int64_t i = 0; i < n; i++) {
      if (!worker || i < 8) free(worker), worker = split_scratch(k->worker_bytes);
      int64_t begin = order[i] * step, end = begin + step < units ? begin + step : units;
      k->run(params, phase, begin, end, shared, worker);
    }
    free(worker);
    free(order);
  }
  free(shared);
}
#endif
