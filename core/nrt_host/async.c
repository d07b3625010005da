/* libnrt on the host device: the asynchronous interface. An execution unit's queue is a list of operations that one thread does in order; sequence numbers count them.
 * Queues of one core are independent of each other: who needs an order waits, as on the hardware. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "nrt_host/host.h"

enum { UNITS = 5, QUEUES = 4, MAX_UNITS = UNITS * QUEUES * 64, QUEUE_LENGTH = 1024 };

typedef struct operation {
  struct operation *next;
  nrta_seq_t seq;
  nrta_error_tracker_t *errors;
  nrt_model_t *model; /* NULL: a transfer */
  const host_set *in, *out;
  nrt_tensor_t *from, *to;
  void *buffer;
  uint64_t from_offset, to_offset, size;
} operation;

typedef struct waiter { struct waiter *next; nrta_seq_t seq; int fd; } waiter;

typedef struct unit {
  pthread_mutex_t lock; /* guards the rest; rank: above libtnx's */
  pthread_cond_t more;
  pthread_t thread;
  bool running, stop;
  uint32_t queued;
  uint64_t scheduled, completed; /* numbers of the last ones */
  operation *first, **last;
  waiter *waiters;
} unit;

struct nrta_error_tracker {
  uint32_t mark;
  pthread_mutex_t lock; /* guards the lists; innermost */
  nrta_error_t *errors, *given; /* given: the list that the caller reads until it asks again */
  uint32_t n, cap;
};

static pthread_mutex_t units_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the table; rank: above a unit's */
static unit *units[MAX_UNITS];

static void track(nrta_error_tracker_t *t, nrta_seq_t seq, NRT_STATUS status) {
  if (!t) return;
  pthread_mutex_lock(&t->lock);
  if (t->n == t->cap) {
    uint32_t cap = t->cap ? t->cap * 2 : 16;
    nrta_error_t *more = tnx_heap_realloc(t->errors, cap * sizeof *more);
    if (more) {
      t->errors = more;
      t->cap = cap;
    }
  }
  if (t->n < t->cap) t->errors[t->n++] = (nrta_error_t){seq, (uint64_t)status};
  pthread_mutex_unlock(&t->lock);
}

static NRT_STATUS perform(const operation *op) {
  if (op->model) return host_execute(op->model, op->in, op->out);
  if (op->from && op->to) return nrt_tensor_copy(op->from, op->from_offset, op->to, op->to_offset, op->size);
  return op->to ? nrt_tensor_write(op->to, op->buffer, op->to_offset, op->size) : nrt_tensor_read(op->from, op->buffer, op->from_offset, op->size);
}

static void signal_fd(int fd) {
  uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {}
  close(fd);
}

static void *work(void *arg) {
  unit *u = arg;
  pthread_mutex_lock(&u->lock);
  while (true) {
    while (!u->first && !u->stop) pthread_cond_wait(&u->more, &u->lock);
    operation *op = u->first;
    if (!op) break;
    if (!(u->first = op->next)) u->last = &u->first;
    pthread_mutex_unlock(&u->lock);
    NRT_STATUS status = perform(op);
    if (status != NRT_SUCCESS) track(op->errors, op->seq, status);
    pthread_mutex_lock(&u->lock);
    u->completed++;
    u->queued--;
    for (waiter **w = &u->waiters; *w;) {
      waiter *done = *w;
      if (done->seq > u->completed) {
        w = &done->next;
        continue;
      }
      *w = done->next;
      signal_fd(done->fd);
      tnx_heap_free(done);
    }
    tnx_heap_free(op);
  }
  pthread_mutex_unlock(&u->lock);
  return NULL;
}

static NRT_STATUS unit_get(uint32_t vnc, nrta_xu_t xu, int queue, uint32_t *number, unit **out) {
  if (!host_vnc_exists(vnc) || (unsigned)xu >= UNITS || queue < 0 || queue >= QUEUES || vnc * UNITS * QUEUES >= MAX_UNITS) return host_error(NRT_INVALID, "no such execution unit or queue");
  if ((xu == NRTA_XU_COMPUTE || xu == NRTA_XU_COLLECTIVES) && queue != 0) return host_error(NRT_INVALID, "queue %d of a unit that has queue 0", queue);
  *number = (vnc * UNITS + xu) * QUEUES + (uint32_t)queue;
  NRT_STATUS status = NRT_SUCCESS;
  pthread_mutex_lock(&units_lock);
  unit *u = units[*number];
  if (!u) {
    u = tnx_heap_zalloc(1, sizeof *u);
    if (u) {
      pthread_mutex_init(&u->lock, NULL);
      pthread_cond_init(&u->more, NULL);
      u->last = &u->first;
      u->running = pthread_create(&u->thread, NULL, work, u) == 0;
    }
    if (!u || !u->running) {
      tnx_heap_free(u);
      status = NRT_RESOURCE;
    } else {
      units[*number] = u;
    }
  }
  pthread_mutex_unlock(&units_lock);
  *out = u;
  return status;
}

static NRT_STATUS schedule(uint32_t vnc, nrta_xu_t xu, int queue, operation op, nrta_seq_t *out) {
  unit *u;
  uint32_t number;
  NRT_STATUS status = unit_get(vnc, xu, queue, &number, &u);
  if (status != NRT_SUCCESS) return status;
  operation *o = tnx_heap_alloc(sizeof *o);
  if (!o) return NRT_RESOURCE;
  *o = op;
  pthread_mutex_lock(&u->lock);
  if (u->queued >= QUEUE_LENGTH) {
    pthread_mutex_unlock(&u->lock);
    tnx_heap_free(o);
    return NRT_QUEUE_FULL;
  }
  o->seq = (nrta_seq_t)(number + 1) << NRTA_SEQ_UNIT_SHIFT | ++u->scheduled;
  u->queued++;
  if (out) *out = o->seq;
  *u->last = o;
  u->last = &o->next;
  pthread_cond_signal(&u->more);
  pthread_mutex_unlock(&u->lock);
  return NRT_SUCCESS;
}

void host_async_close(void) {
  pthread_mutex_lock(&units_lock);
  for (int i = 0; i < MAX_UNITS; i++) {
    unit *u = units[i];
    if (!u) continue;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_signal(&u->more);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL);
    pthread_mutex_destroy(&u->lock);
    pthread_cond_destroy(&u->more);
    tnx_heap_free(u);
    units[i] = NULL;
  }
  pthread_mutex_unlock(&units_lock);
}

/* ---- operations ---- */

static bool tracked(const nrta_error_tracker_t *t) { return !t || t->mark == HOST_TRACKER; }
static uint32_t core_of(const nrt_tensor_t *t) { return t->storage && t->storage->vnc >= 0 ? (uint32_t)t->storage->vnc : 0; }

static NRT_STATUS transfer(nrt_tensor_t *tensor, bool write, void *buf, uint64_t offset, uint64_t size, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_is_tensor(tensor) || !tensor->storage || !tracked(errors)) return NRT_INVALID_HANDLE;
  if ((!buf && size) || offset > tensor->size || size > tensor->size - offset) return NRT_INVALID;
  operation op = {.errors = errors, .buffer = buf, .size = size, .from_offset = offset, .to_offset = offset};
  if (write) op.to = tensor;
  else op.from = tensor;
  return schedule(core_of(tensor), write ? NRTA_XU_TENSOR_WRITE : NRTA_XU_TENSOR_READ, queue, op, out);
}
NRT_API NRT_STATUS nrta_tensor_write(nrt_tensor_t *tensor, const void *buf, uint64_t offset, uint64_t size, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out) {
  return transfer(tensor, true, (void *)(uintptr_t)buf, offset, size, queue, errors, out);
}
NRT_API NRT_STATUS nrta_tensor_read(void *buf, nrt_tensor_t *tensor, uint64_t offset, uint64_t size, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out) {
  return transfer(tensor, false, buf, offset, size, queue, errors, out);
}
NRT_API NRT_STATUS nrta_tensor_copy(nrt_tensor_t *src, uint64_t src_offset, nrt_tensor_t *dst, uint64_t dst_offset, uint64_t size, int queue, nrta_error_tracker_t *errors,
                                    nrta_seq_t *out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_is_tensor(src) || !host_is_tensor(dst) || !src->storage || !dst->storage || !tracked(errors)) return NRT_INVALID_HANDLE;
  if (src_offset > src->size || size > src->size - src_offset || dst_offset > dst->size || size > dst->size - dst_offset) return NRT_INVALID;
  operation op = {.errors = errors, .from = src, .to = dst, .from_offset = src_offset, .to_offset = dst_offset, .size = size};
  return schedule(core_of(src), NRTA_XU_TENSOR_OP, queue, op, out);
}

NRT_API NRT_STATUS nrta_execute_schedule(nrt_model_t *model, const nrt_tensor_set_t *in, nrt_tensor_set_t *result, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_is_model(model) || !host_is_set(in) || !host_is_set(result) || !tracked(errors)) return NRT_INVALID_HANDLE;
  if ((status = host_core_status(model->vnc)) != NRT_SUCCESS) return status;
  operation op = {.errors = errors, .model = model, .in = in, .out = result};
  return schedule((uint32_t)model->vnc, NRTA_XU_COMPUTE, queue, op, out);
}

NRT_API NRT_STATUS nrta_cc_prepare(nrt_cc_comm_t *comm, nrt_tensor_list_t *in, nrt_tensor_list_t *result, nrt_dtype_t dtype, nrt_op_type_t op, nrt_cc_op_type_t cc_op,
                                   nrt_cc_context_t **out) {
  return host_error(NRT_FAILURE, "nrta_cc_prepare: not supported by the host device");
}
NRT_API NRT_STATUS nrta_cc_schedule(nrt_cc_context_t **context, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out) {
  return host_error(NRT_FAILURE, "nrta_cc_schedule: not supported by the host device");
}

/* ---- completion ---- */

static unit *unit_of(nrta_seq_t seq, uint64_t *number) {
  uint64_t id = seq >> NRTA_SEQ_UNIT_SHIFT;
  *number = seq & ((UINT64_C(1) << NRTA_SEQ_UNIT_SHIFT) - 1);
  if (id == 0 || id > MAX_UNITS) return NULL;
  pthread_mutex_lock(&units_lock);
  unit *u = units[id - 1];
  pthread_mutex_unlock(&units_lock);
  return u;
}

NRT_API NRT_STATUS nrta_is_completed(nrta_seq_t seq, bool *out) {
  uint64_t number;
  unit *u = unit_of(seq, &number);
  if (!out || !u) return NRT_INVALID;
  pthread_mutex_lock(&u->lock);
  bool known = number <= u->scheduled;
  *out = number <= u->completed;
  pthread_mutex_unlock(&u->lock);
  return known ? NRT_SUCCESS : NRT_INVALID;
}

NRT_API NRT_STATUS nrta_get_sequence(uint32_t lnc, nrta_xu_t xu, int queue, nrta_seq_t *out) {
  unit *u;
  uint32_t number;
  NRT_STATUS status = host_ready();
  if (status == NRT_SUCCESS) status = out ? unit_get(lnc, xu, queue, &number, &u) : NRT_INVALID;
  if (status != NRT_SUCCESS) return status;
  pthread_mutex_lock(&u->lock);
  *out = (nrta_seq_t)(number + 1) << NRTA_SEQ_UNIT_SHIFT | u->completed;
  pthread_mutex_unlock(&u->lock);
  return NRT_SUCCESS;
}

NRT_API NRT_STATUS nrta_get_completion_handle(nrta_seq_t seq, int *fd) {
  uint64_t number;
  unit *u = unit_of(seq, &number);
  if (!fd || !u) return NRT_INVALID;
  NRT_STATUS status = NRT_RESOURCE;
  waiter *w = tnx_heap_alloc(sizeof *w);
  *fd = eventfd(0, EFD_CLOEXEC);
  int own = *fd < 0 ? -1 : dup(*fd);
  if (w && own >= 0) {
    pthread_mutex_lock(&u->lock);
    bool done = number <= u->completed;
    if (done) signal_fd(own);
    else {
      *w = (waiter){u->waiters, number, own};
      u->waiters = w;
      w = NULL;
    }
    pthread_mutex_unlock(&u->lock);
    status = NRT_SUCCESS;
  } else if (*fd >= 0) {
    close(*fd);
  }
  tnx_heap_free(w);
  return status;
}

NRT_API NRT_STATUS nrt_async_drain_queued_execs(int32_t vnc) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!host_vnc_exists(vnc)) return NRT_INVALID;
  uint32_t number;
  unit *u;
  status = unit_get((uint32_t)vnc, NRTA_XU_COMPUTE, 0, &number, &u);
  if (status != NRT_SUCCESS) return status;
  pthread_mutex_lock(&u->lock);
  uint64_t last = u->scheduled;
  pthread_mutex_unlock(&u->lock);
  int fd;
  if (last == 0) return NRT_SUCCESS;
  status = nrta_get_completion_handle((nrta_seq_t)(number + 1) << NRTA_SEQ_UNIT_SHIFT | last, &fd);
  if (status != NRT_SUCCESS) return status;
  struct pollfd p = {.fd = fd, .events = POLLIN};
  while (poll(&p, 1, -1) < 0 && errno == EINTR) {}
  close(fd);
  return NRT_SUCCESS;
}

/* ---- errors ---- */

NRT_API NRT_STATUS nrta_error_tracker_create(uint32_t lnc, nrta_error_tracker_t **out) {
  NRT_STATUS status = host_ready();
  if (status != NRT_SUCCESS) return status;
  if (!out || !host_vnc_exists(lnc)) return NRT_INVALID;
  nrta_error_tracker_t *t = tnx_heap_zalloc(1, sizeof *t);
  if (!t) return NRT_RESOURCE;
  t->mark = HOST_TRACKER;
  pthread_mutex_init(&t->lock, NULL);
  *out = t;
  return NRT_SUCCESS;
}

NRT_API void nrta_error_tracker_destroy(nrta_error_tracker_t *t) {
  if (!t || t->mark != HOST_TRACKER) return;
  t->mark = 0;
  pthread_mutex_destroy(&t->lock);
  tnx_heap_free(t->errors);
  tnx_heap_free(t->given);
  tnx_heap_free(t);
}

NRT_API NRT_STATUS nrta_error_tracker_get_list(nrta_error_tracker_t *t, const nrta_error_t **list, size_t *count) {
  if (!t || t->mark != HOST_TRACKER) return NRT_INVALID_HANDLE;
  if (!list || !count) return NRT_INVALID;
  pthread_mutex_lock(&t->lock);
  tnx_heap_free(t->given);
  t->given = t->errors;
  *list = t->given;
  *count = t->n;
  t->errors = NULL;
  t->n = t->cap = 0;
  pthread_mutex_unlock(&t->lock);
  return NRT_SUCCESS;
}
