/* libnrt on the host device: what its files share.
 *
 * The library holds a copy of libtnx of its own, all of whose symbols are hidden: it may live in one process with torch_neuronx, whose device may even be this library
 * through the trn driver. A NeuronCore (vnc) is a device of the copy's runtime. */
#ifndef TNX_NRT_HOST_HOST_H
#define TNX_NRT_HOST_HOST_H
#include <pthread.h>
#include <stdatomic.h>

#include "drivers/nrt/nrt.h"
#include "nrt_host/neff.h"
#include "plan/routine.h"

#define NRT_API __attribute__((visibility("default")))

/* ---- handles: a stale or foreign pointer is told by its mark ---- */
enum { HOST_TENSOR = 0x6e727474, HOST_SET = 0x6e727473, HOST_MODEL = 0x6e72746d, HOST_TRACKER = 0x6e727465 };

/* Memory that tensors and their slices share. */
typedef struct host_storage {
  _Atomic uint32_t refs;
  void *data;
  size_t bytes;
  nrt_tensor_placement_t placement;
  int vnc;    /* -1: host memory */
  bool owned; /* false: the caller's buffer */
} host_storage;

struct nrt_tensor {
  uint32_t mark;
  host_storage *storage; /* NULL: empty */
  size_t offset, size;
  char *name;
  _Atomic uint64_t completions; /* executions that wrote it */
};

typedef struct host_set {
  uint32_t mark, n, cap;
  struct host_entry { char *name; nrt_tensor_t *tensor; } *entries;
} host_set;

struct nrt_model {
  uint32_t mark;
  int vnc;
  unsigned char *data; /* the NEFF; neff borrows from it */
  tnx_neff neff;
  tnx_planned_routine *planned;
};

static inline bool host_is_tensor(const nrt_tensor_t *t) { return t && t->mark == HOST_TENSOR; }
static inline bool host_is_set(const nrt_tensor_set_t *s) { return s && ((const host_set *)s)->mark == HOST_SET; }
static inline bool host_is_model(const nrt_model_t *m) { return m && m->mark == HOST_MODEL; }
static inline char *host_address(const nrt_tensor_t *t) { return t->storage && t->storage->data ? (char *)t->storage->data + t->offset : NULL; }
/* The tensor of that name; `hint`: where it stands if the set was filled in order. */
nrt_tensor_t *host_set_find(const host_set *s, const char *name, uint32_t hint);

/* ---- state ---- */
NRT_STATUS host_ready(void); /* NRT_UNINITIALIZED before nrt_init, NRT_CLOSED after nrt_close */
bool host_vnc_exists(int64_t vnc);
NRT_STATUS host_stream(int vnc, tnx_stream **out); /* the core's */
/* After an error that the core does not survive: NRT_EXEC_UNIT_UNRECOVERABLE until the runtime is initialised anew. */
NRT_STATUS host_core_status(int vnc);
void host_core_fail(int vnc);
void host_model_loaded(int vnc, int change);
int host_free_core(void);
/* Writes the message to standard error where NEURON_RT_LOG_LEVEL asks for errors; gives the status back. */
NRT_STATUS host_error(NRT_STATUS status, const char *fmt, ...) TNX_PRINTF(2, 3);
/* libtnx's failure, whose text is the thread's, as one of NRT. executing: it happened while a model ran. */
NRT_STATUS host_status(tnx_status s, bool executing);

void host_lapack_provide(void);

/* ---- injected faults: NRT_HOST_FAULT=alloc:3,execute:2+,timeout:1,terminal:4,load:1 fails the n-th call of a kind (n+: and all later ones) ---- */
typedef enum host_fault { HOST_FAULT_ALLOC, HOST_FAULT_LOAD, HOST_FAULT_EXECUTE, HOST_FAULT_TIMEOUT, HOST_FAULT_TERMINAL, HOST_FAULT_COUNT } host_fault;
NRT_STATUS host_faults_read(void);
bool host_fault_now(host_fault kind); /* counts the call */

/* ---- execution ---- */
NRT_STATUS host_execute(nrt_model_t *model, const host_set *in, const host_set *out);
/* Stops the asynchronous queues; what is queued is done first. */
void host_async_close(void);
#endif
