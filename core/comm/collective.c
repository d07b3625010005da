/* Collectives as rounds over the slots of the ranks.
 *
 * In a round each rank writes what it gives (at most TNX_COMM_CHUNK bytes) into a buffer of its slot and publishes it, waits for the ranks it reads from, reads, and says
 * that it is done. A buffer is written again when all ranks have taken the round it was used for, TNX_COMM_BUFFERS rounds before, so ranks run up to that far apart and no round ends with
 * a barrier. Each round carries what its rank believes to be doing, and a reader compares: calls that do not fit together are errors, not hangs.
 *
 * A collective is a number of steps with a function that writes and one that reads; steps are written one ahead of reading. All values are combined in the order of ranks. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/segment.h"
#include "kernels/collective/collective.h"

enum { AHEAD = 2, DIRECT_BYTES = 32 << 10 };

typedef struct run run;
typedef tnx_status (*write_fn)(run *r, int64_t step, unsigned char *slot);
typedef tnx_status (*read_fn)(run *r, int64_t step, uint64_t round);

struct run {
  tnx_comm *c;
  const tnx_collective *call;
  tnx_comm_wait wait;
  size_t item;         /* bytes of an element */
  int64_t part;        /* elements that a step moves from a rank, or from a rank to each other one */
  int64_t most;        /* the largest number of elements between two ranks, where only the ranks together know it */
  uint64_t step;       /* rounds of this call so far */
  tnxk_reduce_fn reduce;
  tnxk_scale_fn scale;
};

const char *tnx_collective_name(tnx_collective_kind kind) {
  static const char *const names[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier"};
  return (unsigned)kind < TNX_COLLECTIVE_COUNT ? names[kind] : "unknown collective";
}

/* ---- rounds ---- */

/* The buffer for this rank's next round, when nobody reads it any more. */
static tnx_status round_begin(run *r, unsigned char **slot_out) {
  tnx_comm *c = r->c;
  uint64_t round = c->round_posted;
  if (round >= TNX_COMM_BUFFERS)
    for (int p = 0; p < c->size; p++)
      if (p != c->rank) TNX_TRY(tnx_comm_wait_counter(&r->wait, &c->spin, p, &c->peers[p].taken, round - TNX_COMM_BUFFERS + 1));
  *slot_out = tnx_comm_slot(c, c->rank, round);
  return TNX_OK;
}

static tnx_comm_step belief(const run *r, uint64_t step) {
  const tnx_collective *call = r->call;
  bool reduces = call->kind == TNX_ALL_REDUCE || call->kind == TNX_REDUCE || call->kind == TNX_REDUCE_SCATTER;
  bool rooted = call->kind == TNX_REDUCE || call->kind == TNX_BROADCAST || call->kind == TNX_GATHER || call->kind == TNX_SCATTER;
  bool even = call->kind == TNX_ALL_REDUCE || call->kind == TNX_REDUCE || call->kind == TNX_BROADCAST;
  return (tnx_comm_step){.number = call->ticket, .step = step, .count = even ? call->in_counts[0] : 0, .kind = (uint8_t)call->kind, .dtype = (uint8_t)call->dtype,
                         .reduce = (uint8_t)(reduces ? call->reduce : 0), .root = rooted ? call->root : 0};
}

static void round_post(run *r) {
  tnx_comm *c = r->c;
  tnx_peer *me = &c->peers[c->rank];
  me->step[c->round_posted % TNX_COMM_BUFFERS] = belief(r, r->step++);
  tnx_comm_publish(c, &me->posted, ++c->round_posted, -1);
}

static tnx_status disagree(run *r, int peer, const tnx_comm_step *mine, const tnx_comm_step *theirs) {
  if (theirs->kind != mine->kind || theirs->number != mine->number)
    return tnx_fail(TNX_INVALID_ARGUMENT, "%s of group \"%s\" on rank %d does not fit rank %d, which is in %s #%llu", r->wait.what, r->c->name, r->c->rank, peer,
                    tnx_collective_name((tnx_collective_kind)theirs->kind), (unsigned long long)theirs->number);
  if (theirs->dtype != mine->dtype)
    return tnx_fail(TNX_DTYPE, "%s of group \"%s\": rank %d has %s and rank %d has %s", r->wait.what, r->c->name, r->c->rank, tnx_dtype_name((tnx_dtype)mine->dtype), peer,
                    tnx_dtype_name((tnx_dtype)theirs->dtype));
  if (theirs->count != mine->count || theirs->step != mine->step)
    return tnx_fail(TNX_SHAPE, "%s of group \"%s\": rank %d has %lld elements and rank %d has %lld", r->wait.what, r->c->name, r->c->rank, (long long)mine->count, peer,
                    (long long)theirs->count);
  return tnx_fail(TNX_INVALID_ARGUMENT, "%s of group \"%s\": ranks %d and %d differ in their root or operator", r->wait.what, r->c->name, r->c->rank, peer);
}

/* What a rank gave to a round that this rank reads now. */
static tnx_status round_read(run *r, int peer, uint64_t round, unsigned char **slot_out) {
  tnx_comm *c = r->c;
  tnx_peer *p = &c->peers[peer];
  if (peer != c->rank) {
    TNX_TRY(tnx_comm_wait_counter(&r->wait, &c->spin, peer, &p->posted, round + 1));
    const tnx_comm_step *theirs = &p->step[round % TNX_COMM_BUFFERS], *mine = &c->peers[c->rank].step[round % TNX_COMM_BUFFERS];
    if (theirs->number != mine->number || theirs->step != mine->step || theirs->count != mine->count || theirs->kind != mine->kind || theirs->dtype != mine->dtype ||
        theirs->reduce != mine->reduce || theirs->root != mine->root)
      return disagree(r, peer, mine, theirs);
  }
  *slot_out = tnx_comm_slot(c, peer, round);
  return TNX_OK;
}

static void round_end(run *r) {
  tnx_comm *c = r->c;
  tnx_comm_publish(c, &c->peers[c->rank].taken, ++c->round_taken, -1);
}

static tnx_status pipeline(run *r, int64_t steps, write_fn write, read_fn read) {
  int64_t written = 0;
  for (int64_t taken = 0; taken < steps; taken++) {
    for (; written < steps && written < taken + AHEAD; written++) {
      unsigned char *slot;
      TNX_TRY(round_begin(r, &slot));
      write(r, written, slot);
      round_post(r);
    }
    TNX_TRY(read(r, taken, r->c->round_taken));
    round_end(r);
  }
  return TNX_OK;
}

/* ---- pieces ---- */

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t steps_for(int64_t count, int64_t part) { return count <= part ? 1 : (count + part - 1) / part; } /* one at least: it orders and compares empty calls */
/* How many of `count` elements belong to a step of `part`. */
static int64_t piece(int64_t count, int64_t step, int64_t part) {
  int64_t left = count - step * part;
  return left < 0 ? 0 : min64(left, part);
}
static void copy(void *to, const void *from, size_t bytes) {
  if (bytes && to != from) memcpy(to, from, bytes);
}
static const unsigned char *in_at(const run *r, int rank, int64_t element) { return (const unsigned char *)r->call->in[rank] + (size_t)element * r->item; }
static unsigned char *out_at(const run *r, int rank, int64_t element) { return (unsigned char *)r->call->out[rank] + (size_t)element * r->item; }

/* Into a slot: scaled where the operator asks for it. */
static void give(const run *r, void *to, const void *from, int64_t count) {
  if (r->call->scaled) r->scale(to, from, count, r->call->factor);
  else copy(to, from, (size_t)count * r->item);
}

/* Combines `count` elements, which lie `offset` bytes into each rank's slot. This rank's own, if not scaled, come from its tensor. */
static tnx_status combine(run *r, uint64_t round, size_t offset, const void *own, int64_t count, void *out) {
  tnx_comm *c = r->c;
  const void *from[TNX_COMM_MAX_RANKS];
  for (int p = 0; p < c->size; p++) {
    unsigned char *slot;
    TNX_TRY(round_read(r, p, round, &slot));
    from[p] = p == c->rank && own && !r->call->scaled ? own : slot + offset;
  }
  if (count) r->reduce(out, from, c->size, count, r->call->reduce == TNX_REDUCE_AVERAGE);
  return TNX_OK;
}

/* ---- all_reduce and reduce ---- */

static tnx_status write_own(run *r, int64_t step, unsigned char *slot) {
  int64_t n = piece(r->call->in_counts[0], step, r->part);
  if (n) give(r, slot, in_at(r, 0, step * r->part), n);
  return TNX_OK;
}

static tnx_status read_reduced(run *r, int64_t step, uint64_t round) {
  int64_t n = piece(r->call->in_counts[0], step, r->part);
  return combine(r, round, 0, n ? in_at(r, 0, step * r->part) : NULL, n, n ? out_at(r, 0, step * r->part) : NULL);
}

static tnx_status read_at_root(run *r, int64_t step, uint64_t round) {
  unsigned char *slot;
  if (r->c->rank == r->call->root) return read_reduced(r, step, round);
  return round_read(r, r->call->root, round, &slot);
}

/* Many ranks and many bytes: each rank combines its share of a chunk, and all copy the shares. Two rounds a chunk, but each byte is combined once. */
static tnx_status all_reduce_shared(run *r) {
  tnx_comm *c = r->c;
  int64_t count = r->call->in_counts[0], chunk = r->part, share = (chunk + c->size - 1) / c->size;
  share = (share + 63) & ~(int64_t)63;
  for (int64_t at = 0; at < count; at += chunk) {
    int64_t n = min64(chunk, count - at), first = min64(n, share * c->rank), mine = min64(n - first, share);
    unsigned char *slot;
    TNX_TRY(round_begin(r, &slot));
    give(r, slot, in_at(r, 0, at), n);
    round_post(r);
    TNX_TRY(round_begin(r, &slot)); /* the buffer of the shares, before waiting for the others */
    TNX_TRY(combine(r, c->round_taken, (size_t)first * r->item, in_at(r, 0, at + first), mine, slot));
    round_end(r);
    round_post(r);
    for (int p = 0; p < c->size; p++) {
      int64_t begin = min64(n, share * p), m = min64(n - begin, share);
      TNX_TRY(round_read(r, p, c->round_taken, &slot));
      if (m) copy(out_at(r, 0, at + begin), slot, (size_t)m * r->item);
    }
    round_end(r);
  }
  return TNX_OK;
}

static tnx_status run_all_reduce(run *r) {
  int64_t count = r->call->in_counts[0];
  if (r->c->size > 2 && (size_t)count * r->item > DIRECT_BYTES) return all_reduce_shared(r);
  return pipeline(r, steps_for(count, r->part), write_own, read_reduced);
}

static tnx_status run_reduce(run *r) { return pipeline(r, steps_for(r->call->in_counts[0], r->part), write_own, read_at_root); }

/* ---- broadcast, gather, scatter, all_gather ---- */

static tnx_status write_at_root(run *r, int64_t step, unsigned char *slot) { return r->c->rank == r->call->root ? write_own(r, step, slot) : TNX_OK; }

static tnx_status read_broadcast(run *r, int64_t step, uint64_t round) {
  unsigned char *slot;
  if (r->c->rank == r->call->root) return TNX_OK;
  TNX_TRY(round_read(r, r->call->root, round, &slot));
  int64_t n = piece(r->call->in_counts[0], step, r->part);
  if (n) copy(out_at(r, 0, step * r->part), slot, (size_t)n * r->item);
  return TNX_OK;
}

static tnx_status run_broadcast(run *r) { return pipeline(r, steps_for(r->call->in_counts[0], r->part), write_at_root, read_broadcast); }

static tnx_status write_counted(run *r, int64_t step, unsigned char *slot) {
  int64_t n = piece(r->call->in_counts[r->c->rank], step, r->part);
  if (n) copy(slot, in_at(r, 0, step * r->part), (size_t)n * r->item);
  return TNX_OK;
}

static tnx_status read_gathered(run *r, int64_t step, uint64_t round) {
  for (int i = 0; i < r->c->size; i++) {
    int p = (r->c->rank + i) % r->c->size; /* not all ranks at one slot */
    int64_t n = piece(r->call->in_counts[p], step, r->part);
    unsigned char *slot;
    TNX_TRY(round_read(r, p, round, &slot));
    if (n) copy(out_at(r, p, step * r->part), p == r->c->rank ? in_at(r, 0, step * r->part) : slot, (size_t)n * r->item);
  }
  return TNX_OK;
}

static int64_t largest(const int64_t *counts, int n) {
  int64_t most = 0;
  for (int i = 0; i < n; i++) most = counts[i] > most ? counts[i] : most;
  return most;
}

static tnx_status run_all_gather(run *r) { return pipeline(r, steps_for(largest(r->call->in_counts, r->c->size), r->part), write_counted, read_gathered); }

static tnx_status read_gathered_at_root(run *r, int64_t step, uint64_t round) {
  unsigned char *slot;
  return r->c->rank == r->call->root ? read_gathered(r, step, round) : round_read(r, r->call->root, round, &slot);
}

/* ---- parts for each rank: reduce_scatter, scatter, all_to_all ---- */

static size_t part_bytes(const run *r) { return (size_t)r->part * r->item; }

static tnx_status write_parts(run *r, int64_t step, unsigned char *slot) {
  bool own = r->call->scaled; /* this rank reads its own part where it lies, unless it has to be scaled */
  for (int p = 0; p < r->c->size; p++) {
    int64_t n = piece(r->call->in_counts[p], step, r->part);
    if (n && (p != r->c->rank || own)) give(r, slot + (size_t)p * part_bytes(r), in_at(r, p, step * r->part), n);
  }
  return TNX_OK;
}

static tnx_status read_reduced_part(run *r, int64_t step, uint64_t round) {
  int me = r->c->rank;
  int64_t n = piece(r->call->in_counts[me], step, r->part);
  return combine(r, round, (size_t)me * part_bytes(r), n ? in_at(r, me, step * r->part) : NULL, n, n ? out_at(r, 0, step * r->part) : NULL);
}

static tnx_status run_reduce_scatter(run *r) {
  r->part = r->part / r->c->size;
  return pipeline(r, steps_for(largest(r->call->in_counts, r->c->size), r->part), write_parts, read_reduced_part);
}

static tnx_status write_parts_at_root(run *r, int64_t step, unsigned char *slot) { return r->c->rank == r->call->root ? write_parts(r, step, slot) : TNX_OK; }

static tnx_status read_scattered(run *r, int64_t step, uint64_t round) {
  int me = r->c->rank;
  int64_t n = piece(r->call->out_counts[me], step, r->part);
  unsigned char *slot;
  TNX_TRY(round_read(r, r->call->root, round, &slot));
  if (n) copy(out_at(r, 0, step * r->part), me == r->call->root ? in_at(r, me, step * r->part) : slot + (size_t)me * part_bytes(r), (size_t)n * r->item);
  return TNX_OK;
}

/* The numbers that only one rank knows are the first round: how many steps there are and how much goes where. */
static tnx_status write_counts(run *r, int64_t step, unsigned char *slot) {
  memcpy(slot, r->call->in_counts, (size_t)r->c->size * sizeof(int64_t));
  return TNX_OK;
}

static tnx_status mismatch(run *r, int from, int to, int64_t given, int64_t expected) {
  return tnx_fail(TNX_SHAPE, "%s of group \"%s\" on rank %d: rank %d gives rank %d %lld elements, and %lld are expected", r->wait.what, r->c->name, r->c->rank, from, to,
                  (long long)given, (long long)expected);
}

static tnx_status read_counts(run *r, int64_t step, uint64_t round) {
  tnx_comm *c = r->c;
  for (int p = 0; p < c->size; p++) {
    unsigned char *slot;
    TNX_TRY(round_read(r, p, round, &slot));
    const int64_t *counts = (const int64_t *)slot;
    if (counts[c->rank] != r->call->out_counts[p]) return mismatch(r, p, c->rank, counts[c->rank], r->call->out_counts[p]);
    int64_t most = largest(counts, c->size);
    r->most = most > r->most ? most : r->most;
  }
  return TNX_OK;
}

static tnx_status read_exchanged(run *r, int64_t step, uint64_t round) {
  int me = r->c->rank;
  for (int i = 0; i < r->c->size; i++) {
    int p = (me + i) % r->c->size;
    int64_t n = piece(r->call->out_counts[p], step, r->part);
    unsigned char *slot;
    TNX_TRY(round_read(r, p, round, &slot));
    if (n) copy(out_at(r, p, step * r->part), p == me ? in_at(r, me, step * r->part) : slot + (size_t)me * part_bytes(r), (size_t)n * r->item);
  }
  return TNX_OK;
}

static tnx_status run_all_to_all(run *r) {
  TNX_TRY(pipeline(r, 1, write_counts, read_counts));
  r->part = r->part / r->c->size;
  return pipeline(r, steps_for(r->most, r->part), write_parts, read_exchanged);
}

static tnx_status write_root_counts(run *r, int64_t step, unsigned char *slot) { return r->c->rank == r->call->root ? write_counts(r, step, slot) : TNX_OK; }

static tnx_status read_root_counts(run *r, int64_t step, uint64_t round) {
  unsigned char *slot;
  TNX_TRY(round_read(r, r->call->root, round, &slot));
  const int64_t *counts = (const int64_t *)slot;
  if (counts[r->c->rank] != r->call->out_counts[r->c->rank]) return mismatch(r, r->call->root, r->c->rank, counts[r->c->rank], r->call->out_counts[r->c->rank]);
  r->most = largest(counts, r->c->size);
  return TNX_OK;
}

static tnx_status run_scatter(run *r) {
  TNX_TRY(pipeline(r, 1, write_root_counts, read_root_counts));
  r->part = r->part / r->c->size;
  return pipeline(r, steps_for(r->most, r->part), write_parts_at_root, read_scattered);
}

static tnx_status write_own_count(run *r, int64_t step, unsigned char *slot) {
  memcpy(slot, &r->call->in_counts[r->c->rank], sizeof(int64_t));
  return TNX_OK;
}

static tnx_status read_own_counts(run *r, int64_t step, uint64_t round) {
  for (int p = 0; p < r->c->size; p++) {
    unsigned char *slot;
    int64_t n;
    TNX_TRY(round_read(r, p, round, &slot));
    memcpy(&n, slot, sizeof n);
    r->most = n > r->most ? n : r->most;
    if (r->c->rank == r->call->root && n != r->call->in_counts[p]) return mismatch(r, p, r->c->rank, n, r->call->in_counts[p]);
  }
  return TNX_OK;
}

static tnx_status run_gather(run *r) {
  TNX_TRY(pipeline(r, 1, write_own_count, read_own_counts));
  return pipeline(r, steps_for(r->most, r->part), write_counted, read_gathered_at_root);
}

/* ---- barrier ---- */

static tnx_status write_nothing(run *r, int64_t step, unsigned char *slot) { return TNX_OK; }

static tnx_status read_all(run *r, int64_t step, uint64_t round) {
  unsigned char *slot;
  for (int p = 0; p < r->c->size; p++) TNX_TRY(round_read(r, p, round, &slot));
  return TNX_OK;
}

static tnx_status run_barrier(run *r) { return pipeline(r, 1, write_nothing, read_all); }

/* ---- calls ---- */

static tnx_status run_call(run *r) {
  static tnx_status (*const functions[])(run *) = {run_all_reduce, run_reduce, run_broadcast, run_all_gather, run_reduce_scatter, run_gather, run_scatter, run_all_to_all, run_barrier};
  tnx_comm *c = r->c;
  const tnx_collective *call = r->call;
  if ((unsigned)call->kind >= TNX_COLLECTIVE_COUNT) return tnx_fail(TNX_INVALID_ARGUMENT, "collective %d does not exist", (int)call->kind);
  if (call->root < 0 || call->root >= c->size) return tnx_fail(TNX_INVALID_ARGUMENT, "%s: root %d is not in [0, %d)", r->wait.what, call->root, c->size);
  if (call->kind != TNX_BARRIER) {
    r->item = tnx_dtype_size(call->dtype);
    r->part = TNX_COMM_CHUNK / (int64_t)r->item;
    if (call->kind == TNX_ALL_REDUCE || call->kind == TNX_REDUCE || call->kind == TNX_REDUCE_SCATTER) {
      TNX_TRY(tnxk_reduce_select(call->dtype, call->reduce, c->isa, &r->reduce));
      if (call->scaled) TNX_TRY(tnxk_scale_select(call->dtype, c->isa, &r->scale));
    }
  }
  /* Until all have come, the creator must not leave: the late ones find the segment through it. */
  if (c->round_posted == 0)
    for (int p = 0; p < c->size; p++) TNX_TRY(tnx_comm_wait_attached(&r->wait, p));
  return functions[call->kind](r);
}

static void take_turn(tnx_comm *c, uint64_t ticket) {
  if (atomic_load(&c->turn) == ticket) return;
  pthread_mutex_lock(&c->turn_lock);
  while (atomic_load(&c->turn) != ticket) pthread_cond_wait(&c->turn_changed, &c->turn_lock);
  pthread_mutex_unlock(&c->turn_lock);
}

static void pass_turn(tnx_comm *c, uint64_t ticket) {
  pthread_mutex_lock(&c->turn_lock);
  atomic_store(&c->turn, ticket + 1);
  pthread_cond_broadcast(&c->turn_changed);
  pthread_mutex_unlock(&c->turn_lock);
}

uint64_t tnx_comm_take_ticket(tnx_comm *c) {
  tnx_mutex_lock(&c->lock);
  uint64_t ticket = c->next_ticket++;
  tnx_mutex_unlock(&c->lock);
  return ticket;
}

tnx_status tnx_comm_run(tnx_comm *c, const tnx_collective *call) {
  take_turn(c, call->ticket);
  tnx_peer *me = &c->peers[c->rank];
  uint64_t stamp = (call->ticket + 1) << 8 | (uint64_t)call->kind;
  run r = {.c = c, .call = call};
  snprintf(r.wait.what, sizeof r.wait.what, "%s #%llu", tnx_collective_name(call->kind), (unsigned long long)call->ticket);
  tnx_comm_wait_begin(&r.wait, c, call->timeout_ms);
  atomic_store(&me->began, stamp);
  tnx_status status = tnx_comm_get_failure(c);
  if (status == TNX_OK) {
    status = run_call(&r);
    if (status == TNX_OK) atomic_store(&me->ended, stamp);
    else tnx_comm_fail(c, status);
  }
  pass_turn(c, call->ticket);
  return status;
}
