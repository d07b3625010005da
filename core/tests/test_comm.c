/* Communicators: collectives against plain loops, with ranks that are threads over one mapping (so that ThreadSanitizer sees all accesses) and ranks that are processes. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "comm/segment.h"
#include "test.h"

enum { RANKS = 4, MOST = 200000 };

typedef void (*rank_fn)(tnx_comm *c);
typedef struct rank_thread { tnx_comm *comm; rank_fn fn; pthread_t thread; } rank_thread;

static void *run_rank(void *arg) {
  rank_thread *r = arg;
  r->fn(r->comm);
  return NULL;
}

static void with_threads(int size, rank_fn fn) {
  rank_thread ranks[RANKS];
  CHECK_OK(tnx_comm_create(0, size, "threads", &ranks[0].comm));
  for (int i = 1; i < size; i++) CHECK_OK(tnx_comm_share(ranks[0].comm, i, &ranks[i].comm));
  for (int i = 0; i < size; i++) {
    ranks[i].fn = fn;
    pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
  }
  for (int i = 0; i < size; i++) pthread_join(ranks[i].thread, NULL);
  for (int i = size; i-- > 0;) tnx_comm_destroy(ranks[i].comm);
}

/* A value that every rank can compute for every other: small whole numbers, so sums are exact in any order. */
static float value(int rank, int64_t i, int salt) { return (float)((rank * 7 + i * 3 + salt * 5) % 23) - 11; }

static tnx_status call(tnx_comm *c, tnx_collective_kind kind, const void *const *in, void *const *out, const int64_t *in_counts, const int64_t *out_counts, tnx_reduce op, int root) {
  tnx_collective k = {.ticket = tnx_comm_take_ticket(c), .timeout_ms = 60000, .kind = kind, .dtype = TNX_F32, .reduce = op, .root = root,
                      .in = in, .out = out, .in_counts = in_counts, .out_counts = out_counts};
  return tnx_comm_run(c, &k);
}

static void all_reduces(tnx_comm *c) {
  static const int64_t counts[] = {0, 1, 7, 1000, 65536, 65537, MOST};
  int me = tnx_comm_rank(c), n = tnx_comm_size(c);
  float *x = malloc(MOST * sizeof *x);
  for (size_t t = 0; t < sizeof counts / sizeof *counts; t++)
    for (int op = 0; op <= TNX_REDUCE_MAX; op++) {
      for (int64_t i = 0; i < counts[t]; i++) x[i] = value(me, i, op);
      const void *in[1] = {x};
      void *out[1] = {x};
      CHECK_OK(call(c, TNX_ALL_REDUCE, in, out, &counts[t], NULL, (tnx_reduce)op, 0));
      int64_t wrong = 0;
      for (int64_t i = 0; i < counts[t]; i++) {
        float want = value(0, i, op);
        for (int p = 1; p < n; p++) {
          float v = value(p, i, op);
          if (op <= TNX_REDUCE_AVERAGE) want += v;
          else if (op == TNX_REDUCE_PRODUCT) want *= v;
          else if (op == TNX_REDUCE_MIN) want = v < want ? v : want;
          else want = v > want ? v : want;
        }
        if (op == TNX_REDUCE_AVERAGE) want /= (float)n;
        wrong += x[i] != want;
      }
      CHECK_EQ(wrong, 0);
    }
  free(x);
}

/* Rank r has `uneven` times r more elements than rank 0. */
static void moves(tnx_comm *c) {
  int me = tnx_comm_rank(c), n = tnx_comm_size(c);
  for (int uneven = 0; uneven <= 40000; uneven += 20000)
    for (int64_t base = 0; base <= 70000; base += 35000) {
      int64_t counts[RANKS], to[RANKS], from[RANKS], wrong = 0;
      float *in[RANKS], *out[RANKS], *one = malloc((size_t)(base + RANKS * uneven + 1) * sizeof(float));
      for (int p = 0; p < n; p++) {
        counts[p] = base + p * uneven;
        to[p] = base + (p + me) % n * uneven;   /* what rank me gives rank p */
        from[p] = base + (me + p) % n * uneven;
        in[p] = malloc((size_t)(base + RANKS * uneven + 1) * sizeof(float));
        out[p] = calloc((size_t)(base + RANKS * uneven + 1), sizeof(float));
      }
      const void *const *ins = (const void *const *)in;
      void *const *outs = (void *const *)out;
      const void *own_in[1] = {one};
      void *own_out[1] = {one};
      /* all_gather and gather */
      for (int kind = 0; kind < 2; kind++) {
        for (int64_t i = 0; i < counts[me]; i++) one[i] = value(me, i, 1);
        for (int p = 0; p < n; p++) memset(out[p], 0, (size_t)(counts[p] + 1) * sizeof(float));
        CHECK_OK(call(c, kind ? TNX_GATHER : TNX_ALL_GATHER, own_in, outs, counts, NULL, TNX_REDUCE_SUM, n - 1));
        if (kind == 0 || me == n - 1)
          for (int p = 0; p < n; p++)
            for (int64_t i = 0; i < counts[p]; i++) wrong += out[p][i] != value(p, i, 1);
      }
      CHECK_EQ(wrong, 0);
      /* reduce_scatter, scatter */
      for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < counts[p]; i++) in[p][i] = value(me, i, p);
      CHECK_OK(call(c, TNX_REDUCE_SCATTER, ins, own_out, counts, NULL, TNX_REDUCE_SUM, 0));
      for (int64_t i = 0; i < counts[me]; i++) {
        float want = 0;
        for (int p = 0; p < n; p++) want += value(p, i, me);
        wrong += one[i] != want;
      }
      CHECK_EQ(wrong, 0);
      CHECK_OK(call(c, TNX_SCATTER, ins, own_out, counts, counts, TNX_REDUCE_SUM, n - 1));
      for (int64_t i = 0; i < counts[me]; i++) wrong += one[i] != value(n - 1, i, me);
      CHECK_EQ(wrong, 0);
      /* all_to_all */
      for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < to[p]; i++) in[p][i] = value(me, i, p);
      CHECK_OK(call(c, TNX_ALL_TO_ALL, ins, outs, to, from, TNX_REDUCE_SUM, 0));
      for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < from[p]; i++) wrong += out[p][i] != value(p, i, me);
      CHECK_EQ(wrong, 0);
      /* broadcast, reduce */
      for (int64_t i = 0; i < base; i++) one[i] = value(me, i, 3);
      CHECK_OK(call(c, TNX_BROADCAST, own_in, own_out, &base, NULL, TNX_REDUCE_SUM, 1));
      for (int64_t i = 0; i < base; i++) wrong += one[i] != value(1, i, 3);
      for (int64_t i = 0; i < base; i++) one[i] = value(me, i, 4);
      CHECK_OK(call(c, TNX_REDUCE, own_in, own_out, &base, NULL, TNX_REDUCE_MAX, 0));
      if (me == 0)
        for (int64_t i = 0; i < base; i++) {
          float want = value(0, i, 4);
          for (int p = 1; p < n; p++) want = value(p, i, 4) > want ? value(p, i, 4) : want;
          wrong += one[i] != want;
        }
      CHECK_EQ(wrong, 0);
      CHECK_OK(call(c, TNX_BARRIER, NULL, NULL, NULL, NULL, TNX_REDUCE_SUM, 0));
      for (int p = 0; p < n; p++) free(in[p]), free(out[p]);
      free(one);
    }
}

/* Everybody sends to everybody, two tags, received in the other order; the last one from any rank. */
static void messages(tnx_comm *c) {
  int me = tnx_comm_rank(c), n = tnx_comm_size(c), to = (me + 1) % n, from = (me + n - 1) % n;
  enum { SMALL = 100, LARGE = 50000 };
  float *x = malloc(LARGE * sizeof *x);
  for (int i = 0; i < SMALL; i++) x[i] = value(me, i, 1);
  CHECK_OK(tnx_comm_send(c, to, 1, x, SMALL * sizeof *x, 60000));
  CHECK_OK(tnx_comm_send(c, to, 3, x, 0, 60000));
  CHECK_OK(tnx_comm_recv(c, from, 3, NULL, 0, 60000, NULL));
  for (int i = 0; i < LARGE; i++) x[i] = value(me, i, 2);
  CHECK_OK(tnx_comm_send(c, to, 2, x, LARGE / 2 * sizeof *x, 60000));
  int64_t wrong = 0;
  int who = -1;
  CHECK_OK(tnx_comm_recv(c, from, 2, x, LARGE / 2 * sizeof *x, 60000, NULL));
  for (int i = 0; i < LARGE / 2; i++) wrong += x[i] != value(from, i, 2);
  CHECK_OK(tnx_comm_recv(c, -1, 1, x, SMALL * sizeof *x, 60000, &who));
  for (int i = 0; i < SMALL; i++) wrong += x[i] != value(from, i, 1);
  CHECK_EQ(wrong, 0);
  CHECK_EQ(who, from);
  free(x);
}

static void disagreement(tnx_comm *c) {
  float x[4] = {0};
  const void *in[1] = {x};
  void *out[1] = {x};
  int64_t n = 2 + tnx_comm_rank(c);
  tnx_status s = call(c, TNX_ALL_REDUCE, in, out, &n, NULL, TNX_REDUCE_SUM, 0);
  CHECK(s != TNX_OK);
  CHECK(strstr(tnx_error_text(), "elements") != NULL);
  CHECK(call(c, TNX_BARRIER, NULL, NULL, NULL, NULL, TNX_REDUCE_SUM, 0) != TNX_OK);
}

static void lateness(tnx_comm *c) {
  if (tnx_comm_rank(c) == 0) return;
  tnx_collective k = {.ticket = tnx_comm_take_ticket(c), .timeout_ms = 60, .kind = TNX_BARRIER};
  CHECK_EQ(tnx_comm_run(c, &k), TNX_TIMEOUT);
  CHECK(strstr(tnx_error_text(), "barrier #0") && strstr(tnx_error_text(), "waiting for rank 0"));
}

TEST(all_reduce_threads) { for (int n = 1; n <= RANKS; n++) with_threads(n, all_reduces); }
TEST(moves_threads) { for (int n = 2; n <= RANKS; n++) with_threads(n, moves); }
TEST(messages_threads) { for (int n = 2; n <= RANKS; n++) with_threads(n, messages); }
TEST(disagreement_is_an_error) { with_threads(2, disagreement); }
TEST(lateness_names_the_rank) { with_threads(2, lateness); }

/* Each dtype and operator of two ranks against arithmetic in double; small values, exact in every type. */
static void dtypes(tnx_comm *c) {
  static const tnx_dtype types[] = {TNX_U8, TNX_I8, TNX_I16, TNX_I32, TNX_I64, TNX_F16, TNX_BF16, TNX_F32, TNX_F64};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int op = 0; op <= TNX_REDUCE_MAX; op++) {
      unsigned char bytes[64] = {0};
      int64_t one = 1;
      double mine = tnx_comm_rank(c) ? 2 : 4, got = 0, want[] = {6, 3, 8, 2, 4};
      switch (types[t]) {
        case TNX_U8: *(uint8_t *)bytes = (uint8_t)mine; break;
        case TNX_I8: *(int8_t *)bytes = (int8_t)mine; break;
        case TNX_I16: *(int16_t *)bytes = (int16_t)mine; break;
        case TNX_I32: *(int32_t *)bytes = (int32_t)mine; break;
        case TNX_I64: *(int64_t *)bytes = (int64_t)mine; break;
        case TNX_F16: *(uint16_t *)bytes = tnx_f32_to_f16((float)mine); break;
        case TNX_BF16: *(uint16_t *)bytes = tnx_f32_to_bf16((float)mine); break;
        case TNX_F32: *(float *)bytes = (float)mine; break;
        default: *(double *)bytes = mine;
      }
      const void *in[1] = {bytes};
      void *out[1] = {bytes};
      tnx_collective k = {.ticket = tnx_comm_take_ticket(c), .timeout_ms = 60000, .kind = TNX_ALL_REDUCE, .dtype = types[t], .reduce = (tnx_reduce)op, .in = in, .out = out, .in_counts = &one};
      CHECK_OK(tnx_comm_run(c, &k));
      switch (types[t]) {
        case TNX_U8: got = *(uint8_t *)bytes; break;
        case TNX_I8: got = *(int8_t *)bytes; break;
        case TNX_I16: got = *(int16_t *)bytes; break;
        case TNX_I32: got = *(int32_t *)bytes; break;
        case TNX_I64: got = (double)*(int64_t *)bytes; break;
        case TNX_F16: got = tnx_f16_to_f32(*(uint16_t *)bytes); break;
        case TNX_BF16: got = tnx_bf16_to_f32(*(uint16_t *)bytes); break;
        case TNX_F32: got = *(float *)bytes; break;
        default: got = *(double *)bytes;
      }
      CHECK(got == want[op]);
    }
}
TEST(dtypes_threads) { with_threads(2, dtypes); }

/* Two processes; the second dies in the middle. */
TEST(processes_and_death) {
  tnx_comm *c;
  unsigned char handle[TNX_COMM_HANDLE_BYTES];
  CHECK_OK(tnx_comm_create(0, 2, "processes", &c));
  tnx_comm_get_handle(c, handle);
  pid_t child = fork();
  if (child == 0) {
    tnx_comm *mine;
    if (tnx_comm_attach(1, 2, "processes", handle, &mine) != TNX_OK) _exit(1);
    all_reduces(mine);
    if (test_bad) _exit(2);
    kill(getpid(), SIGKILL);
  }
  all_reduces(c);
  CHECK_EQ(call(c, TNX_BARRIER, NULL, NULL, NULL, NULL, TNX_REDUCE_SUM, 0), TNX_DEVICE);
  CHECK(strstr(tnx_error_text(), "rank 1") && strstr(tnx_error_text(), "died"));
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  handle[16] ^= 1; /* another nonce */
  tnx_comm *wrong;
  CHECK_EQ(tnx_comm_attach(1, 2, "processes", handle, &wrong), TNX_IO);
  tnx_comm_destroy(c);
}

int main(void) {
  RUN(processes_and_death); /* first: it forks */
  RUN(all_reduce_threads);
  RUN(moves_threads);
  RUN(messages_threads);
  RUN(dtypes_threads);
  RUN(disagreement_is_an_error);
  RUN(lateness_names_the_rank);
  return TEST_END;
}
