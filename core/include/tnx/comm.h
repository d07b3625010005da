/* Communicators: collectives and messages between the ranks of one machine, through a segment of shared memory.
 *
 * One rank creates the communicator and passes its handle to the others by any means; they attach. Collectives of a communicator run one after the other in the order of
 * their tickets, which must be taken in the same order on every rank; sends and receives run beside them. All functions that move data block: call them from a
 * stream's task. A rank that is late, has died, has left or calls something else is reported by its number, and the communicator is then unusable.
 *
 * Any thread. Results have the same bits on every rank and in every run: values are combined in the order of ranks. */
#ifndef TNX_COMM_H
#define TNX_COMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tnx/dtype.h"
#include "tnx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tnx_comm tnx_comm;

enum { TNX_COMM_HANDLE_BYTES = 128, TNX_COMM_MAX_RANKS = 256, TNX_COMM_NAME_BYTES = 64 };

typedef enum tnx_reduce {
  TNX_REDUCE_SUM,
  TNX_REDUCE_AVERAGE,
  TNX_REDUCE_PRODUCT,
  TNX_REDUCE_MIN,
  TNX_REDUCE_MAX,
  TNX_REDUCE_AND,
  TNX_REDUCE_OR,
  TNX_REDUCE_XOR,
  TNX_REDUCE_COUNT
} tnx_reduce;

typedef enum tnx_collective_kind {
  TNX_ALL_REDUCE,     /* in[0] -> out[0], which may be the same */
  TNX_REDUCE,         /* in[0] -> out[0] of root */
  TNX_BROADCAST,      /* in[0] of root -> out[0] of the others */
  TNX_ALL_GATHER,     /* in[0] -> out[rank] of all */
  TNX_REDUCE_SCATTER, /* in[rank] of all -> out[0] of that rank */
  TNX_GATHER,         /* in[0] -> out[rank] of root */
  TNX_SCATTER,        /* in[rank] of root -> out[0] of that rank */
  TNX_ALL_TO_ALL,     /* in[to] -> out[from] */
  TNX_BARRIER,
  TNX_COLLECTIVE_COUNT
} tnx_collective_kind;

/* One call of a collective. Pointers are to contiguous memory of this process and need only be valid where the kind uses them. */
typedef struct tnx_collective {
  uint64_t ticket;    /* of tnx_comm_take_ticket */
  int64_t timeout_ms; /* from when it starts to run; < 0: none */
  tnx_collective_kind kind;
  tnx_dtype dtype;
  tnx_reduce reduce;
  bool scaled;        /* each rank's values are multiplied by its `factor` first */
  double factor;
  int root;
  const void *const *in;
  void *const *out;
  /* Elements. One number for most kinds; one for each rank, which may differ, for ALL_GATHER and REDUCE_SCATTER (how many each rank gives or gets: the same list on all ranks),
   * GATHER and SCATTER (read at the root; the others give their own at [rank]) and ALL_TO_ALL (in_counts: to each rank, out_counts: from each). */
  const int64_t *in_counts, *out_counts;
} tnx_collective;

/* "all_reduce", as in torch.distributed. Static. */
TNX_API const char *tnx_collective_name(tnx_collective_kind kind);

/* A new communicator of `size` ranks, seen from `rank`; `name` is for messages. */
TNX_API tnx_status tnx_comm_create(int rank, int size, const char *name, tnx_comm **out);
/* What the other ranks need to attach: plain bytes. The creator must be alive when they do. */
TNX_API void tnx_comm_get_handle(const tnx_comm *c, unsigned char out[TNX_COMM_HANDLE_BYTES]);
TNX_API tnx_status tnx_comm_attach(int rank, int size, const char *name, const unsigned char handle[TNX_COMM_HANDLE_BYTES], tnx_comm **out);
/* Nothing may be running on it. The other ranks learn that this one has left. */
TNX_API void tnx_comm_destroy(tnx_comm *c);
TNX_API int tnx_comm_rank(const tnx_comm *c);
TNX_API int tnx_comm_size(const tnx_comm *c);

/* Text that is equal for processes that can share memory with each other: the machine, its boot and its namespace of processes. */
TNX_API void tnx_comm_machine(char *out, size_t bytes);

/* The next place in the order of this rank's collectives. Each ticket is run once. */
TNX_API uint64_t tnx_comm_take_ticket(tnx_comm *c);
/* Runs a collective when its turn has come. TIMEOUT, DEVICE (a rank has died, left or aborted), SHAPE and DTYPE (ranks disagree, or the operator has no such dtype); the
 * text names the collective, its number and the rank. */
TNX_API tnx_status tnx_comm_run(tnx_comm *c, const tnx_collective *call);

/* Messages: in order for each pair of ranks and tag; of any size. A send returns when the bytes have left the sender's buffer. */
TNX_API tnx_status tnx_comm_send(tnx_comm *c, int to, int64_t tag, const void *data, size_t bytes, int64_t timeout_ms);
/* from < 0: of any rank, which *from_out (may be NULL) then tells. INVALID_ARGUMENT if the message has another length. */
TNX_API tnx_status tnx_comm_recv(tnx_comm *c, int from, int64_t tag, void *data, size_t bytes, int64_t timeout_ms, int *from_out);

/* Makes everything that runs or is still to run fail, here and on the other ranks. */
TNX_API void tnx_comm_abort(tnx_comm *c, const char *why);
/* The first failure of this communicator, TNX_OK before. */
TNX_API tnx_status tnx_comm_get_failure(tnx_comm *c);

/* What a rank is doing, for reports of hangs: the number and kind of the collective it began last. False: it has begun none. */
typedef struct tnx_comm_progress { int pid; bool attached, alive; uint64_t number; tnx_collective_kind kind; bool finished; } tnx_comm_progress;
TNX_API bool tnx_comm_get_progress(tnx_comm *c, int rank, tnx_comm_progress *out);

#ifdef __cplusplus
}
#endif
#endif
