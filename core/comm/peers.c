/* Waiting for other ranks: spinning, sleeping, and noticing that waiting is useless because a rank has died, left, aborted or is too late.
 *
 * A waiter announces itself in `sleepers`, looks once more at what it waits for and sleeps on `bell`. A rank publishes a counter, then looks at `sleepers`. Both in
 * sequentially consistent order: one of the two sees the other. Sleeps are short, so a wake-up that a dying process did not give costs 20 ms. */
#include "comm/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAP_NS = 20 * 1000 * 1000 };

static void nap(_Atomic uint32_t *word, uint32_t expected) {
  struct timespec t = {.tv_nsec = NAP_NS};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0); /* not FUTEX_PRIVATE: the word is shared between processes */
}

void tnx_peer_wake(tnx_peer *p) {
  if (atomic_load(&p->sleepers) == 0) return;
  atomic_fetch_add(&p->bell, 1);
  syscall(SYS_futex, &p->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t tnx_process_start_time(int pid) {
  char path[32], line[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = fopen(path, "re");
  if (!f) return 0;
  size_t n = fread(line, 1, sizeof line - 1, f);
  fclose(f);
  line[n] = 0;
  char *s = strrchr(line, ')'); /* the name before it may hold anything */
  if (!s || s[1] != ' ' || s[2] == 'Z' || s[2] == 'X') return 0;
  s += 2;
  for (int field = 3; field < 22; field++) { /* the state is field 3, the start time 22 */
    s = strchr(s, ' ');
    if (!s) return 0;
    s++;
  }
  return strtoull(s, NULL, 10);
}

bool tnx_peer_is_alive(const tnx_peer *p) { return tnx_process_start_time(p->pid) == p->start_time; }

void tnx_comm_publish(tnx_comm *c, _Atomic uint64_t *counter, uint64_t value, int peer) {
  atomic_store(counter, value);
  if (peer >= 0) {
    tnx_peer_wake(&c->peers[peer]);
    return;
  }
  for (int p = 0; p < c->size; p++)
    if (p != c->rank) tnx_peer_wake(&c->peers[p]);
}

static void keep_failure(tnx_comm *c, tnx_status s, const char *text) {
  tnx_mutex_lock(&c->lock);
  if (c->failure == TNX_OK) {
    c->failure = s;
    snprintf(c->failure_text, sizeof c->failure_text, "%s", text);
  }
  tnx_mutex_unlock(&c->lock);
}

/* Tells the other ranks; the first rank's reason stays. */
static void spread_failure(tnx_comm *c, const char *text) {
  uint32_t nobody = 0;
  if (!atomic_compare_exchange_strong(&c->segment->failing, &nobody, 1)) return;
  snprintf(c->segment->text, sizeof c->segment->text, "%s", text);
  atomic_store(&c->segment->failed, (uint32_t)c->rank + 1);
  for (int p = 0; p < c->size; p++) tnx_peer_wake(&c->peers[p]);
}

tnx_status tnx_comm_fail(tnx_comm *c, tnx_status s) {
  keep_failure(c, s, tnx_error_text());
  spread_failure(c, tnx_error_text());
  return s;
}

void tnx_comm_abort(tnx_comm *c, const char *why) {
  char text[TNX_COMM_TEXT];
  snprintf(text, sizeof text, "rank %d of group \"%s\" aborted%s%s", c->rank, c->name, why && *why ? ": " : "", why ? why : "");
  keep_failure(c, TNX_DEVICE, text);
  spread_failure(c, text);
}

tnx_status tnx_comm_get_failure(tnx_comm *c) {
  tnx_mutex_lock(&c->lock);
  tnx_status s = c->failure;
  if (s != TNX_OK) tnx_fail(s, "%s", c->failure_text);
  tnx_mutex_unlock(&c->lock);
  return s;
}

bool tnx_comm_get_progress(tnx_comm *c, int rank, tnx_comm_progress *out) {
  tnx_peer *p = &c->peers[rank];
  uint64_t began = atomic_load(&p->began), ended = atomic_load(&p->ended);
  uint32_t state = atomic_load(&p->state);
  *out = (tnx_comm_progress){.attached = state != TNX_PEER_ABSENT, .finished = began == ended};
  if (out->attached) {
    out->pid = p->pid;
    out->alive = tnx_peer_is_alive(p);
  }
  if (!began) return false;
  out->number = (began >> 8) - 1;
  out->kind = (tnx_collective_kind)(began & 0xff);
  return true;
}

/* "which has finished all_reduce #3 and has begun nothing since" */
static void describe(tnx_comm *c, int peer, char *out, size_t bytes) {
  tnx_comm_progress p;
  if (tnx_comm_get_progress(c, peer, &p))
    snprintf(out, bytes, "which %s %s #%llu%s", p.finished ? "finished" : "is in", tnx_collective_name(p.kind), (unsigned long long)p.number, p.finished ? " last" : "");
  else snprintf(out, bytes, "which has not %s", p.attached ? "begun a collective" : "joined the group");
}

void tnx_comm_wait_begin(tnx_comm_wait *w, tnx_comm *c, int64_t timeout_ms) {
  w->comm = c;
  w->begin = tnx_now_ns();
  w->deadline = timeout_ms < 0 || timeout_ms > INT64_MAX / 2000000 ? UINT64_MAX : w->begin + (uint64_t)timeout_ms * 1000000u;
}

/* TNX_OK: go on waiting. */
static tnx_status look(tnx_comm_wait *w, int peer) {
  tnx_comm *c = w->comm;
  uint32_t failed = atomic_load(&c->segment->failed);
  if (failed) {
    TNX_TRY(tnx_comm_get_failure(c));
    return tnx_fail(TNX_DEVICE, "%s on rank %d: the group has failed: %s", w->what, c->rank, c->segment->text);
  }
  for (int i = peer < 0 ? 0 : peer; i < (peer < 0 ? c->size : peer + 1); i++) {
    uint32_t state = atomic_load(&c->peers[i].state);
    if (i == c->rank || state == TNX_PEER_ABSENT) continue;
    if (state == TNX_PEER_LEFT) return tnx_fail(TNX_DEVICE, "%s of group \"%s\" on rank %d: rank %d (process %d) has left the group", w->what, c->name, c->rank, i, c->peers[i].pid);
    if (!tnx_peer_is_alive(&c->peers[i])) return tnx_fail(TNX_DEVICE, "%s of group \"%s\" on rank %d: rank %d (process %d) has died", w->what, c->name, c->rank, i, c->peers[i].pid);
  }
  uint64_t now = tnx_now_ns();
  if (now < w->deadline) return TNX_OK;
  if (peer < 0) return tnx_fail(TNX_TIMEOUT, "%s of group \"%s\" on rank %d timed out after %llu ms", w->what, c->name, c->rank, (unsigned long long)((now - w->begin) / 1000000));
  char doing[128];
  describe(c, peer, doing, sizeof doing);
  return tnx_fail(TNX_TIMEOUT, "%s of group \"%s\" on rank %d timed out after %llu ms waiting for rank %d, %s", w->what, c->name, c->rank,
                  (unsigned long long)((now - w->begin) / 1000000), peer, doing);
}

tnx_status tnx_comm_sleep(tnx_comm_wait *w, int peer, bool (*ready)(void *), void *context) {
  tnx_peer *me = &w->comm->peers[w->comm->rank];
  uint32_t bell = atomic_load(&me->bell);
  atomic_fetch_add(&me->sleepers, 1);
  if (!ready(context)) nap(&me->bell, bell);
  atomic_fetch_sub(&me->sleepers, 1);
  if (ready(context)) return TNX_OK;
  tnx_status s = look(w, peer);
  return s != TNX_OK && ready(context) ? TNX_OK : s; /* it may have done its part before it left */
}

typedef struct goal { _Atomic uint64_t *counter; uint64_t target; } goal;
static bool reached(void *context) {
  goal *g = context;
  return atomic_load(g->counter) >= g->target;
}

tnx_status tnx_comm_wait_counter(tnx_comm_wait *w, tnx_spin *spin, int peer, _Atomic uint64_t *counter, uint64_t target) {
  if (atomic_load_explicit(counter, memory_order_acquire) >= target) return TNX_OK;
  tnx_spin_begin(spin);
  do {
    if (atomic_load_explicit(counter, memory_order_acquire) >= target) return TNX_OK;
  } while (tnx_spin_once(spin));
  goal g = {counter, target};
  while (!reached(&g)) TNX_TRY(tnx_comm_sleep(w, peer, reached, &g));
  return TNX_OK;
}

static bool attached(void *context) { return atomic_load(&((tnx_peer *)context)->state) != TNX_PEER_ABSENT; }

tnx_status tnx_comm_wait_attached(tnx_comm_wait *w, int peer) {
  tnx_peer *p = &w->comm->peers[peer];
  while (!attached(p)) TNX_TRY(tnx_comm_sleep(w, peer, attached, p));
  return TNX_OK;
}
