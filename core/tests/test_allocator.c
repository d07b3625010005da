/* The caching allocator: size classes, split and join, statistics against the block map, limit and retry, use on other streams, fault
 * injection, stress. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "test.h"
#include "tnx/runtime.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SCALE = 8 };
#else
enum { SCALE = 1 };
#endif
enum { KIB = 1 << 10, MIB = 1 << 20 };

static tnx_stream *default_stream(void) {
  tnx_stream *s = NULL;
  CHECK_OK(tnx_stream_default(0, &s));
  return s;
}

static tnx_mem_stats stats(void) {
  tnx_mem_stats s;
  memset(&s, 0, sizeof s);
  CHECK_OK(tnx_mem_get_stats(0, &s));
  return s;
}

static void *get(size_t bytes, tnx_stream *s) {
  void *p = NULL;
  CHECK_OK(tnx_mem_alloc(0, bytes, s, &p));
  return p;
}

static tnx_status wait_flag(void *p, tnx_pool *pool) {
  while (!atomic_load(*(_Atomic int **)p)) usleep(100);
  return TNX_OK;
}

/* What the statistics must say, from the block map, and whether the map itself is sound. */
typedef struct map { tnx_mem_stats want; uint64_t segment, end; bool last_free, sound; uint64_t last_stream; int in_segment; int64_t first_free; bool first_small; } map;
static void finish_segment(map *m) { /* a free block that is its whole segment is no split */
  if (m->in_segment == 1 && m->first_free >= 0)
    for (int p = 0; p < 2; p++) {
      int pool = p == 0 ? TNX_POOL_ALL : m->first_small ? TNX_POOL_SMALL : TNX_POOL_LARGE;
      m->want.inactive_split[pool].current--;
      m->want.inactive_split_bytes[pool].current -= m->first_free;
    }
}
static void visit(void *ctx, const tnx_mem_block *b) {
  map *m = ctx;
  int pool = b->small_pool ? TNX_POOL_SMALL : TNX_POOL_LARGE;
  if (b->segment != m->segment || !m->in_segment) {
    finish_segment(m);
    if (b->segment < m->segment || b->address != b->segment || (m->in_segment && m->end > b->segment)) m->sound = false;
    m->segment = b->segment;
    m->in_segment = 0;
    m->first_free = b->allocated ? -1 : (int64_t)b->size;
    m->first_small = b->small_pool;
    for (int p = 0; p < 2; p++) {
      m->want.segment[p ? pool : TNX_POOL_ALL].current++;
      m->want.reserved_bytes[p ? pool : TNX_POOL_ALL].current += (int64_t)b->segment_size;
    }
  } else {
    if (b->address != m->end) m->sound = false;                /* blocks tile the segment */
    if (!b->allocated && m->last_free) m->sound = false;       /* free neighbours are joined */
    if (b->stream != m->last_stream) m->sound = false;
  }
  m->in_segment++;
  m->end = b->address + b->size;
  m->last_free = !b->allocated;
  m->last_stream = b->stream;
  if (b->size % 256 || b->address % 64 || b->size == 0) m->sound = false;
  for (int p = 0; p < 2; p++) {
    int q = p ? pool : TNX_POOL_ALL;
    if (b->allocated) {
      m->want.active[q].current++;
      m->want.active_bytes[q].current += (int64_t)b->size;
    } else {
      m->want.inactive_split[q].current++;
      m->want.inactive_split_bytes[q].current += (int64_t)b->size;
    }
  }
}

/* Only while no other thread allocates. */
static void check_map(void) {
  map m;
  memset(&m, 0, sizeof m);
  m.sound = true;
  m.first_free = -1;
  tnx_mem_stats s = stats();
  CHECK_OK(tnx_mem_walk(0, visit, &m));
  finish_segment(&m);
  CHECK(m.sound);
  for (int q = 0; q < TNX_POOL_COUNT; q++) {
    CHECK_EQ(s.segment[q].current, m.want.segment[q].current);
    CHECK_EQ(s.reserved_bytes[q].current, m.want.reserved_bytes[q].current);
    CHECK_EQ(s.active[q].current, m.want.active[q].current);
    CHECK_EQ(s.active_bytes[q].current, m.want.active_bytes[q].current);
    CHECK_EQ(s.inactive_split[q].current, m.want.inactive_split[q].current);
    CHECK_EQ(s.inactive_split_bytes[q].current, m.want.inactive_split_bytes[q].current);
    CHECK(s.reserved_bytes[q].current >= s.active_bytes[q].current && s.active_bytes[q].current >= s.allocated_bytes[q].current);
    CHECK(s.allocated_bytes[q].current >= s.requested_bytes[q].current && s.active[q].current >= s.allocation[q].current);
    const tnx_mem_stat *all[] = {s.allocation, s.segment, s.active, s.inactive_split, s.allocated_bytes, s.reserved_bytes, s.active_bytes, s.inactive_split_bytes, s.requested_bytes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
      CHECK(all[i][q].peak >= all[i][q].current && all[i][q].current >= 0);
      if (q) CHECK_EQ(all[i][TNX_POOL_SMALL].current + all[i][TNX_POOL_LARGE].current, all[i][TNX_POOL_ALL].current);
    }
  }
}

/* Starts a test with nothing live and nothing cached. */
static void fresh(void) {
  CHECK_OK(tnx_mem_empty_cache(0));
  CHECK_OK(tnx_mem_reset_peak(0));
  CHECK_OK(tnx_mem_reset_accumulated(0));
  CHECK_EQ(stats().reserved_bytes[0].current, 0);
}

TEST(zero_and_rounding) {
  fresh();
  void *p = (void *)1;
  CHECK_OK(tnx_mem_alloc(0, 0, NULL, &p));
  CHECK(p == NULL);
  tnx_mem_free(NULL);
  static const struct { size_t ask, get; int pool; } cases[] = {{1, 256, TNX_POOL_SMALL}, {256, 256, TNX_POOL_SMALL}, {257, 512, TNX_POOL_SMALL},
      {MIB - 256, MIB - 256, TNX_POOL_SMALL}, {MIB - 255, MIB, TNX_POOL_LARGE}, {MIB, MIB, TNX_POOL_LARGE}, {MIB + 1, MIB + 64 * KIB, TNX_POOL_LARGE},
      {16 * MIB, 16 * MIB, TNX_POOL_LARGE}, {40 * MIB, 40 * MIB, TNX_POOL_LARGE}, {40 * MIB + 1, 40 * MIB + 64 * KIB, TNX_POOL_LARGE}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    p = get(cases[i].ask, NULL);
    CHECK((uintptr_t)p % 64 == 0);
    tnx_mem_stats s = stats();
    CHECK_EQ(s.allocated_bytes[TNX_POOL_ALL].current, cases[i].get);
    CHECK_EQ(s.allocated_bytes[cases[i].pool].current, cases[i].get);
    CHECK_EQ(s.requested_bytes[TNX_POOL_ALL].current, cases[i].ask);
    CHECK_EQ(s.allocation[cases[i].pool].current, 1);
    check_map();
    CHECK_EQ(tnx_mem_device_of((char *)p + cases[i].ask - 1), 0);
    tnx_mem_free(p);
    check_map();
  }
  CHECK_EQ(stats().num_tensor_frees, 10);
  CHECK_EQ(stats().allocation_requests, 10);
}

TEST(split_and_join) {
  fresh();
  enum { N = 64 };
  void *p[N];
  for (int i = 0; i < N; i++) p[i] = get(1000, NULL);
  CHECK_EQ(stats().segment[0].current, 1);
  for (int i = 1; i < N; i++) CHECK((char *)p[i] - (char *)p[i - 1] == 1024);
  for (int i = 0; i < N; i += 2) tnx_mem_free(p[i]);
  check_map();
  CHECK_EQ(stats().inactive_split[0].current, N / 2 + 1);
  /* Best fit: a hole of the right size, not the long rest. */
  void *q = get(1024, NULL);
  bool in_hole = false;
  for (int i = 0; i < N; i += 2) in_hole |= q == p[i];
  CHECK(in_hole);
  tnx_mem_free(q);
  /* Two holes and the block between them become one. */
  tnx_mem_free(p[1]);
  q = get(3 * 1024, NULL);
  CHECK(q == p[0]);
  tnx_mem_free(q);
  for (int i = 3; i < N; i += 2) tnx_mem_free(p[i]);
  check_map();
  CHECK_EQ(stats().inactive_split[0].current, 0);
  CHECK_EQ(stats().reserved_bytes[0].current, 2 * MIB);
  CHECK(get(2 * MIB, NULL) != NULL); /* large pool: a segment of its own kind */
  CHECK_EQ(stats().segment[TNX_POOL_LARGE].current, 1);
  tnx_mem_stats s = stats();
  CHECK_EQ(s.reserved_bytes[0].current, 2 * MIB + 32 * MIB);
  CHECK_EQ(s.allocation[0].allocated, N + 3);
  CHECK_EQ(s.allocation[0].freed, N + 2);
  CHECK_EQ(s.allocation[0].peak, N);
  CHECK_OK(tnx_mem_empty_cache(0)); /* the small segment goes, the used one stays */
  CHECK_EQ(stats().reserved_bytes[0].current, 32 * MIB);
}

static void free_live(void *ctx, const tnx_mem_block *b) {
  uint64_t *live = ctx;
  if (b->allocated) live[++live[0]] = b->address;
}
static void free_everything(void) {
  static uint64_t live[100000];
  live[0] = 0;
  CHECK_OK(tnx_mem_walk(0, free_live, live));
  for (uint64_t i = 1; i <= live[0]; i++) tnx_mem_free((void *)(uintptr_t)live[i]);
}

TEST(streams_do_not_share) {
  free_everything();
  fresh();
  tnx_stream *t;
  CHECK_OK(tnx_stream_create(0, 0, &t));
  void *a = get(1000, NULL);
  tnx_mem_free(a);
  void *b = get(1000, t);
  CHECK(a != b);
  CHECK_EQ(stats().segment[0].current, 2);
  CHECK(get(1000, NULL) == a); /* at once again on its own stream */
  check_map();
  tnx_mem_free(a);
  tnx_mem_free(b);
  tnx_stream_destroy(t);
  fresh();
}

TEST(record_stream) {
  fresh();
  tnx_stream *s = default_stream(), *t;
  CHECK_OK(tnx_stream_create(0, 0, &t));
  _Atomic int flag = 0, *at = &flag;
  void *a = get(5000, s);
  CHECK_OK(tnx_stream_enqueue(t, wait_flag, NULL, &at, sizeof at));
  CHECK_OK(tnx_mem_record_stream((char *)a + 3000, t));
  CHECK_OK(tnx_mem_record_stream(a, t));
  CHECK_OK(tnx_mem_record_stream(a, s)); /* its own: no effect */
  tnx_mem_free(a);
  CHECK_EQ(stats().allocation[0].current, 0);
  CHECK_EQ(stats().active[0].current, 1);
  check_map();
  void *b = get(5000, s);
  CHECK(b != a);
  flag = 1;
  CHECK_OK(tnx_stream_synchronize(t));
  void *c = get(5000, s);
  CHECK(c == a);
  CHECK_EQ(stats().active[0].current, 2);
  /* Recorded, but its stream is idle when it is freed. */
  CHECK_OK(tnx_mem_record_stream(c, t));
  tnx_mem_free(c);
  CHECK_EQ(stats().active[0].current, 1);
  tnx_mem_free(b);
  CHECK_EQ(tnx_mem_record_stream(b, t), TNX_INVALID_ARGUMENT);
  CHECK_EQ(tnx_mem_record_stream(&a, t), TNX_INVALID_ARGUMENT);
  CHECK_OK(tnx_mem_record_stream(NULL, t));
  check_map();
  tnx_stream_destroy(t);
  fresh();
}

typedef struct touch { _Atomic int *flag; volatile char *p; } touch;
static tnx_status run_touch(void *payload, tnx_pool *pool) {
  touch *t = payload;
  while (!atomic_load(t->flag)) usleep(50);
  *t->p = 1;
  return TNX_OK;
}
static void *set_flag_later(void *flag) {
  usleep(20000);
  atomic_store((_Atomic int *)flag, 1);
  return NULL;
}
TEST(cache_is_not_emptied_under_work) {
  /* The block is freed while a queued task still writes it: its segment must survive until the task is done. */
  fresh();
  tnx_stream *s = default_stream();
  _Atomic int flag = 0;
  touch t = {&flag, get(20 * MIB, s)};
  CHECK_OK(tnx_stream_enqueue(s, run_touch, NULL, &t, sizeof t));
  tnx_mem_free((void *)t.p);
  pthread_t thread;
  pthread_create(&thread, NULL, set_flag_later, (void *)&flag);
  CHECK_OK(tnx_mem_empty_cache(0));
  CHECK_EQ(atomic_load(&flag), 1);
  CHECK_EQ(stats().reserved_bytes[0].current, 0);
  pthread_join(thread, NULL);
}

TEST(limit_and_retry) {
  fresh();
  uint64_t free_bytes, total;
  CHECK_OK(tnx_mem_get_info(0, &free_bytes, &total));
  CHECK(free_bytes > 0 && free_bytes <= total);
  CHECK_OK(tnx_mem_set_limit(0, 100 * MIB));
  CHECK_OK(tnx_mem_get_info(0, &free_bytes, &total));
  CHECK_EQ(free_bytes, 100 * MIB);
  void *a = get(60 * MIB, NULL), *b = NULL;
  CHECK_EQ(tnx_mem_alloc(0, 60 * MIB, NULL, &b), TNX_OUT_OF_MEMORY);
  CHECK(b == NULL);
  const char *text = tnx_error_text();
  CHECK(strstr(text, "Neuron out of memory. Tried to allocate 60.00 MiB. Device 0 has a total capacity of ") != NULL);
  CHECK(strstr(text, "60.00 MiB memory in use") != NULL && strstr(text, "100.00 MiB allowed") != NULL);
  CHECK(strstr(text, "60.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.") != NULL);
  CHECK_EQ(stats().num_ooms, 1);
  CHECK_EQ(stats().num_alloc_retries, 1);
  tnx_mem_free(a);
  b = get(80 * MIB, NULL); /* needs the cached segment's room */
  CHECK_EQ(stats().num_alloc_retries, 2);
  CHECK_EQ(stats().num_ooms, 1);
  CHECK_EQ(stats().reserved_bytes[0].current, 80 * MIB);
  /* A shared segment of 32 MiB does not fit any more, but what is asked for does. */
  a = get(15 * MIB, NULL);
  CHECK(stats().reserved_bytes[0].current <= 100 * MIB);
  check_map();
  tnx_mem_free(a);
  tnx_mem_free(b);
  CHECK_OK(tnx_mem_set_limit(0, 0));
  CHECK_EQ(tnx_mem_alloc(0, SIZE_MAX - 5, NULL, &a), TNX_OUT_OF_MEMORY);
  CHECK_EQ(tnx_mem_alloc(0, (size_t)1 << 46, NULL, &a), TNX_OUT_OF_MEMORY);
  check_map();
  fresh();
}

TEST(misuse) {
  fresh();
  int local;
  void *a = get(1000, NULL);
  tnx_mem_free(&local);
  tnx_mem_free((char *)a + 256);
  CHECK_EQ(stats().allocation[0].current, 1);
  tnx_mem_free(a);
  tnx_mem_free(a); /* a second free of a block changes nothing */
  CHECK_EQ(stats().num_tensor_frees, 1);
  check_map();
  CHECK_EQ(tnx_mem_alloc(5, 100, NULL, &a), TNX_DEVICE);
  CHECK_EQ(tnx_mem_empty_cache(-1), TNX_DEVICE);
  fresh();
}

TEST(fault_injection) {
  fresh();
  tnx_stream *t;
  int failures = 0;
  for (int64_t k = 0; k < 60; k++) {
    void *p[20] = {0};
    tnx_heap_fail_after(k);
    if (tnx_stream_create(0, 0, &t) == TNX_OK) {
      for (int i = 0; i < 20; i++) {
        tnx_status s = tnx_mem_alloc(0, i % 3 ? 40000u * (unsigned)(i + 1) : 3u * MIB, t, &p[i]);
        if (s != TNX_OK) {
          failures++;
          CHECK_EQ(s, TNX_OUT_OF_MEMORY);
          CHECK(p[i] == NULL);
        } else {
          tnx_status r = tnx_mem_record_stream(p[i], default_stream());
          CHECK(r == TNX_OK || r == TNX_OUT_OF_MEMORY);
          failures += r != TNX_OK;
        }
      }
      tnx_heap_fail_after(-1);
      check_map();
      for (int i = 0; i < 20; i++) tnx_mem_free(p[i]);
      check_map();
      tnx_stream_destroy(t);
    } else {
      failures++;
    }
    tnx_heap_fail_after(-1);
    if (k % 4 == 0) fresh(); /* with and without a warm cache */
  }
  CHECK(failures > 10);
  fresh();
}

TEST(descriptors_do_not_leak) {
  void *p[200];
  int64_t live = 0;
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < 200; i++) p[i] = get(100 + (size_t)i * 1000, NULL);
    for (int i = 0; i < 200; i++) tnx_mem_free(p[(i * 77) % 200]);
    fresh();
    if (round == 1) live = tnx_heap_live();
  }
  CHECK_EQ(tnx_heap_live(), live);
}

/* ---- stress ---- */

typedef struct owner { pthread_t thread; tnx_stream *stream, *other; uint64_t seed; int rounds; int bad; bool cache; } owner;
static tnx_status nothing(void *p, tnx_pool *pool) { return TNX_OK; }

static void *churn(void *arg) {
  owner *o = arg;
  enum { SLOTS = 200 };
  struct { unsigned char *p; size_t n; unsigned char tag; } slot[SLOTS];
  memset(slot, 0, sizeof slot);
  for (int r = 0; r < o->rounds; r++) {
    int i = (int)(test_rand(&o->seed) % SLOTS);
    if (slot[i].p) {
      for (size_t at = 0; at < slot[i].n; at += slot[i].n / 8 + 1) o->bad += slot[i].p[at] != slot[i].tag;
      o->bad += slot[i].p[slot[i].n - 1] != slot[i].tag;
      if (r % 7 == 0) {
        o->bad += tnx_mem_record_stream(slot[i].p + slot[i].n / 2, o->other) != TNX_OK;
        o->bad += tnx_stream_enqueue(o->other, nothing, NULL, &i, sizeof i) != TNX_OK;
      }
      o->bad += tnx_mem_device_of(slot[i].p + slot[i].n / 2) != 0;
      tnx_mem_free(slot[i].p);
      slot[i].p = NULL;
    } else {
      unsigned kind = (unsigned)(test_rand(&o->seed) % 20);
      slot[i].n = 1 + test_rand(&o->seed) % (kind < 14 ? 8000 : kind < 19 ? 900000 : 5000000);
      void *p;
      if (tnx_mem_alloc(0, slot[i].n, o->stream, &p) != TNX_OK) {
        o->bad++;
        continue;
      }
      slot[i].p = p;
      slot[i].tag = (unsigned char)test_rand(&o->seed);
      for (size_t at = 0; at < slot[i].n; at += slot[i].n / 8 + 1) slot[i].p[at] = slot[i].tag;
      slot[i].p[slot[i].n - 1] = slot[i].tag;
    }
    if (o->cache && r % 500 == 0) o->bad += tnx_mem_empty_cache(0) != TNX_OK;
  }
  for (int i = 0; i < SLOTS; i++) tnx_mem_free(slot[i].p);
  return NULL;
}

TEST(stress_one_thread) {
  fresh();
  tnx_stream *t;
  CHECK_OK(tnx_stream_create(0, 0, &t));
  owner o = {.stream = default_stream(), .other = t, .seed = 42, .rounds = 2000};
  for (int round = 0; round < 40 / SCALE; round++) {
    churn(&o);
    CHECK_EQ(o.bad, 0);
    check_map();
  }
  tnx_stream_destroy(t);
  fresh();
}

TEST(stress_threads) {
  fresh();
  enum { THREADS = 5 };
  owner o[THREADS];
  for (int i = 0; i < THREADS; i++) {
    o[i] = (owner){.seed = (uint64_t)i + 7, .rounds = 40000 / SCALE, .cache = i == 0};
    CHECK_OK(tnx_stream_create(0, 0, &o[i].stream));
  }
  o[THREADS - 1].stream = o[0].stream; /* two threads on one stream */
  for (int i = 0; i < THREADS; i++) o[i].other = o[(i + 1) % (THREADS - 1)].stream;
  for (int i = 0; i < THREADS; i++) pthread_create(&o[i].thread, NULL, churn, &o[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(o[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) CHECK_EQ(o[i].bad, 0);
  CHECK_OK(tnx_device_synchronize(0));
  check_map();
  CHECK_EQ(stats().allocation[0].current, 0);
  CHECK_EQ(stats().active[0].current, 0);
  for (int i = 0; i < THREADS - 1; i++) tnx_stream_destroy(o[i].stream);
  fresh();
}

int main(void) {
  RUN(zero_and_rounding);
  RUN(split_and_join);
  RUN(streams_do_not_share);
  RUN(record_stream);
  RUN(cache_is_not_emptied_under_work);
  RUN(limit_and_retry);
  RUN(misuse);
  RUN(fault_injection);
  RUN(descriptors_do_not_leak);
  RUN(stress_one_thread);
  RUN(stress_threads);
  return TEST_END;
}
