/* Messages between two ranks: a channel of fragments for each direction of each pair.
 *
 * A message is its fragments one after the other, each with the message's tag and length. The receiver that finds another tag at the channel's end moves that message into its
 * stash, so a receive never waits for one that comes later. Any number of threads may receive; a channel is read by one at a time. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/segment.h"

static uint64_t fragments_of(size_t bytes) { return bytes ? (bytes + TNX_COMM_FRAGMENT - 1) / TNX_COMM_FRAGMENT : 1; }
static size_t fragment_bytes(size_t bytes, uint64_t i) {
  size_t at = (size_t)i * TNX_COMM_FRAGMENT;
  return bytes - at < TNX_COMM_FRAGMENT ? bytes - at : TNX_COMM_FRAGMENT;
}

static tnx_status check_peer(tnx_comm *c, int peer, const char *what) {
  if (peer < 0 || peer >= c->size || peer == c->rank) return tnx_fail(TNX_INVALID_ARGUMENT, "%s: rank %d is not another rank of group \"%s\"", what, peer, c->name);
  return tnx_comm_get_failure(c);
}

tnx_status tnx_comm_send(tnx_comm *c, int to, int64_t tag, const void *data, size_t bytes, int64_t timeout_ms) {
  TNX_TRY(check_peer(c, to, "send"));
  tnx_comm_wait w;
  tnx_spin spin = {0};
  snprintf(w.what, sizeof w.what, "send to rank %d", to);
  tnx_comm_wait_begin(&w, c, timeout_ms);
  tnx_channel *channel = tnx_comm_channel(c, c->rank, to);
  tnx_status status = tnx_comm_wait_attached(&w, to); /* see collective.c: nobody leaves before the others can find the segment */
  uint64_t written = atomic_load(&channel->written), n = fragments_of(bytes);
  for (uint64_t i = 0; i < n && status == TNX_OK; i++, written++) {
    if (written >= TNX_COMM_FRAGMENTS) status = tnx_comm_wait_counter(&w, &spin, to, &channel->read, written - TNX_COMM_FRAGMENTS + 1);
    if (status != TNX_OK) break;
    tnx_fragment *f = &channel->fragment[written % TNX_COMM_FRAGMENTS];
    f->tag = tag;
    f->message_bytes = bytes;
    if (bytes) memcpy(f->data, (const unsigned char *)data + i * TNX_COMM_FRAGMENT, fragment_bytes(bytes, i));
    tnx_comm_publish(c, &channel->written, written + 1, to);
  }
  return status == TNX_OK ? TNX_OK : tnx_comm_fail(c, status);
}

/* Moves a message whose first fragment is there out of the channel; data == NULL: away with it. */
static tnx_status drain(tnx_comm_wait *w, int from, unsigned char *data, size_t bytes) {
  tnx_comm *c = w->comm;
  tnx_channel *channel = tnx_comm_channel(c, from, c->rank);
  tnx_spin spin = {0};
  uint64_t read = atomic_load(&channel->read), n = fragments_of(bytes);
  for (uint64_t i = 0; i < n; i++, read++) {
    TNX_TRY(tnx_comm_wait_counter(w, &spin, from, &channel->written, read + 1));
    if (bytes && data) memcpy(data + i * TNX_COMM_FRAGMENT, channel->fragment[read % TNX_COMM_FRAGMENTS].data, fragment_bytes(bytes, i));
    tnx_comm_publish(c, &channel->read, read + 1, from);
  }
  return TNX_OK;
}

static tnx_status wrong_length(tnx_comm_wait *w, int from, uint64_t sent, size_t expected) {
  return tnx_fail(TNX_INVALID_ARGUMENT, "%s of group \"%s\" on rank %d: rank %d sent %llu bytes, and the tensor has %zu", w->what, w->comm->name, w->comm->rank, from,
                  (unsigned long long)sent, expected);
}

/* Takes what has come from a rank so far: *found if the wanted message was among it. The inbox is locked. */
static tnx_status take_locked(tnx_comm_wait *w, int from, int64_t tag, void *data, size_t bytes, bool *found) {
  tnx_comm *c = w->comm;
  tnx_inbox *box = &c->inbox[from];
  tnx_channel *channel = tnx_comm_channel(c, from, c->rank);
  tnx_stash **last = &box->first;
  for (; *last; last = &(*last)->next) {
    tnx_stash *s = *last;
    if (s->tag != tag) continue;
    *last = s->next;
    uint64_t sent = s->bytes;
    if (sent == bytes && bytes) memcpy(data, s->data, bytes);
    tnx_heap_free(s);
    *found = true;
    return sent == bytes ? TNX_OK : wrong_length(w, from, sent, bytes);
  }
  while (atomic_load(&channel->written) > atomic_load(&channel->read)) {
    const tnx_fragment *f = &channel->fragment[atomic_load(&channel->read) % TNX_COMM_FRAGMENTS];
    uint64_t sent = f->message_bytes;
    int64_t its = f->tag;
    if (its == tag) {
      *found = true;
      if (sent == bytes) return drain(w, from, data, bytes);
      TNX_TRY(drain(w, from, NULL, sent)); /* what follows it stays readable */
      return wrong_length(w, from, sent, bytes);
    }
    tnx_stash *s = tnx_heap_alloc(sizeof *s + sent);
    if (!s) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a message of %llu bytes that came before its receive", (unsigned long long)sent);
    *s = (tnx_stash){.tag = its, .bytes = sent};
    tnx_status status = drain(w, from, s->data, sent);
    if (status != TNX_OK) {
      tnx_heap_free(s);
      return status;
    }
    *last = s;
    last = &s->next;
  }
  return TNX_OK;
}

typedef struct arrival { tnx_comm *comm; int from; } arrival;
static bool arrived(void *context) {
  arrival *a = context;
  tnx_comm *c = a->comm;
  for (int p = a->from < 0 ? 0 : a->from; p < (a->from < 0 ? c->size : a->from + 1); p++) {
    tnx_channel *channel = tnx_comm_channel(c, p, c->rank);
    if (p != c->rank && atomic_load(&channel->written) > atomic_load(&channel->read)) return true;
  }
  return false;
}

static tnx_status receive(tnx_comm_wait *w, int from, int64_t tag, void *data, size_t bytes, int *from_out) {
  tnx_comm *c = w->comm;
  tnx_spin spin = {0};
  arrival a = {c, from};
  tnx_spin_begin(&spin);
  for (;;) {
    for (int p = from < 0 ? 0 : from; p < (from < 0 ? c->size : from + 1); p++) {
      if (p == c->rank) continue;
      bool found = false;
      tnx_mutex_lock(&c->inbox[p].lock);
      tnx_status status = take_locked(w, p, tag, data, bytes, &found);
      tnx_mutex_unlock(&c->inbox[p].lock);
      TNX_TRY(status);
      if (found) {
        if (from_out) *from_out = p;
        return TNX_OK;
      }
    }
    bool more;
    while (!(more = arrived(&a)) && tnx_spin_once(&spin)) {}
    if (!more) TNX_TRY(tnx_comm_sleep(w, from, arrived, &a));
  }
}

tnx_status tnx_comm_recv(tnx_comm *c, int from, int64_t tag, void *data, size_t bytes, int64_t timeout_ms, int *from_out) {
  if (from >= 0) TNX_TRY(check_peer(c, from, "recv"));
  else TNX_TRY(tnx_comm_get_failure(c));
  tnx_comm_wait w;
  if (from < 0) snprintf(w.what, sizeof w.what, "recv from any rank");
  else snprintf(w.what, sizeof w.what, "recv from rank %d", from);
  tnx_comm_wait_begin(&w, c, timeout_ms);
  tnx_status status = receive(&w, from, tag, data, bytes, from_out);
  return status == TNX_OK ? TNX_OK : tnx_comm_fail(c, status);
}
