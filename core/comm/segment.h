/* The shared segment of a communicator and this process's view of it. Internal to core/comm.
 *
 * Layout: segment | peer[size] | slot[size] | channel[size][size]. A slot holds what one rank gives to the rounds of collectives, TNX_COMM_BUFFERS rounds at once;
 * channel[to][from] holds what is on its way from one rank to another. Every counter has one writer and only grows; data are written before the counter that publishes
 * them, so the counters order all access. */
#ifndef TNX_COMM_SEGMENT_H
#define TNX_COMM_SEGMENT_H
#include <pthread.h>

#include "base/cpu.h"
#include "runtime/sync.h"
#include "tnx/comm.h"

enum {
  TNX_COMM_BUFFERS = 4,
  TNX_COMM_CHUNK = 256 << 10, /* bytes of a round: what all ranks have in flight should fit the last cache */
  TNX_COMM_FRAGMENTS = 4,
  TNX_COMM_FRAGMENT = 64 << 10, /* bytes of a part of a message */
  TNX_COMM_TEXT = 256
};

typedef enum tnx_peer_state { TNX_PEER_ABSENT, TNX_PEER_ATTACHED, TNX_PEER_LEFT } tnx_peer_state;

/* What a rank believes to be doing in a round: the others compare it with their own belief. */
typedef struct tnx_comm_step {
  uint64_t number, step;
  int64_t count;
  uint8_t kind, dtype, reduce;
  int32_t root;
} tnx_comm_step;

typedef struct tnx_peer {
  _Alignas(64) _Atomic uint64_t posted; /* rounds whose contribution lies in the slot */
  _Alignas(64) _Atomic uint64_t taken;  /* rounds of which this rank needs nothing any more */
  _Alignas(64) _Atomic uint32_t bell;   /* changes when something happened while the rank slept */
  _Atomic uint32_t sleepers;
  _Alignas(64) _Atomic uint32_t state;  /* tnx_peer_state; the two below are written before it becomes ATTACHED */
  int32_t pid;
  uint64_t start_time;
  _Atomic uint64_t began, ended;        /* the collective begun last, 1 + number << 8 | kind, and the one finished last; 0: none */
  tnx_comm_step step[TNX_COMM_BUFFERS]; /* published by `posted` */
} tnx_peer;

typedef struct tnx_fragment {
  int64_t tag;
  uint64_t message_bytes;
  _Alignas(64) unsigned char data[TNX_COMM_FRAGMENT];
} tnx_fragment;

typedef struct tnx_channel {
  _Alignas(64) _Atomic uint64_t written; /* fragments; by the sender */
  _Alignas(64) _Atomic uint64_t read;    /* by the receiver */
  _Alignas(64) tnx_fragment fragment[TNX_COMM_FRAGMENTS];
} tnx_channel;

typedef struct tnx_segment {
  uint64_t magic, bytes, nonce;
  uint32_t size;
  /* 0, or 1 + the rank that gave up, which wrote the text before. */
  _Alignas(64) _Atomic uint32_t failed;
  _Atomic uint32_t failing; /* claimed by the one rank that writes the text */
  char text[TNX_COMM_TEXT];
} tnx_segment;

/* A message that came before its receive. */
typedef struct tnx_stash { struct tnx_stash *next; int64_t tag; uint64_t bytes; _Alignas(16) unsigned char data[]; } tnx_stash;

typedef struct tnx_inbox {
  tnx_mutex lock; /* rank 42: the stash and the reading end of the channel */
  tnx_stash *first;
} tnx_inbox;

struct tnx_comm {
  int rank, size, fd;
  bool owner; /* of the mapping: not for ranks of one process that share it in tests */
  char name[TNX_COMM_NAME_BYTES], shm_name[TNX_COMM_NAME_BYTES];
  tnx_segment *segment;
  tnx_peer *peers;
  unsigned char *slots;
  tnx_channel *channels;
  size_t bytes;
  uint64_t nonce;
  tnx_isa isa;
  /* Collectives: one at a time, whoever has the turn. */
  tnx_mutex lock; /* rank 44: the two below and the failure */
  uint64_t next_ticket;
  _Atomic uint64_t turn; /* the ticket that may run; written by the one that had it */
  tnx_status failure;
  char failure_text[2 * TNX_COMM_TEXT];
  pthread_mutex_t turn_lock; /* held for no longer than it takes to sleep or wake */
  pthread_cond_t turn_changed;
  uint64_t round_posted, round_taken; /* of this rank; by whoever has the turn */
  tnx_spin spin;
  tnx_inbox inbox[TNX_COMM_MAX_RANKS];
};

static inline unsigned char *tnx_comm_slot(const tnx_comm *c, int rank, uint64_t round) {
  return c->slots + ((size_t)rank * TNX_COMM_BUFFERS + round % TNX_COMM_BUFFERS) * TNX_COMM_CHUNK;
}
static inline tnx_channel *tnx_comm_channel(const tnx_comm *c, int from, int to) { return &c->channels[(size_t)to * (size_t)c->size + (size_t)from]; }

/* Waiting for another rank. `what` begins the message of a failure: "all_reduce #3". */
typedef struct tnx_comm_wait { tnx_comm *comm; char what[64]; uint64_t begin, deadline; /* ns; deadline UINT64_MAX: none */ } tnx_comm_wait;

void tnx_comm_wait_begin(tnx_comm_wait *w, tnx_comm *c, int64_t timeout_ms);
/* Until *counter >= target, which rank `peer` will see to. */
tnx_status tnx_comm_wait_counter(tnx_comm_wait *w, tnx_spin *spin, int peer, _Atomic uint64_t *counter, uint64_t target);
/* Until `peer` is in the segment. */
tnx_status tnx_comm_wait_attached(tnx_comm_wait *w, int peer);
/* Publishes *counter = value and wakes the ranks that sleep: all of them, or `peer` if it is not negative. */
void tnx_comm_publish(tnx_comm *c, _Atomic uint64_t *counter, uint64_t value, int peer);
/* Sleeps until something happens or 20 ms have passed, unless `ready`; then reports what makes waiting for `peer` useless (< 0: for any rank). */
tnx_status tnx_comm_sleep(tnx_comm_wait *w, int peer, bool (*ready)(void *), void *context);
/* Notes the calling thread's error as the communicator's failure, tells the other ranks and returns `s`. */
tnx_status tnx_comm_fail(tnx_comm *c, tnx_status s);
/* Another member over the same mapping, for ranks that are threads of one process. */
tnx_status tnx_comm_share(tnx_comm *first, int rank, tnx_comm **out);
#endif
