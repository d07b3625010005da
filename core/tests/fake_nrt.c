/* A libnrt.so.1 for tests: device memory on the heap, and execution by somebody else. A NEFF is text here:
 *   "copy"        output k becomes a copy of input k
 *   anything else is sent, with the inputs, to the process that listens on the socket FAKE_NRT_SOCKET; tests/xla_server.py runs it as StableHLO by XLA.
 * FAKE_NRT_FAULT="execute:2:101,allocate:1:4" makes the second execution and the first allocation answer these statuses. FAKE_NRT_LOG names a file for a line each call. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "drivers/nrt/nrt.h"

#define EXPORT __attribute__((visibility("default")))

struct nrt_tensor { unsigned char *data; size_t size; bool slice; };
struct nrt_model { char *text; size_t size; };
typedef struct named { char name[NRT_TENSOR_NAME_MAX]; nrt_tensor_t *tensor; } named;
typedef struct set { named *items; size_t n; } set;
struct nrta_error_tracker { nrta_error_t list[64]; size_t n; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used;
static bool open_now;

static void note(const char *text) {
  const char *path = getenv("FAKE_NRT_LOG");
  FILE *f = path ? fopen(path, "ae") : NULL;
  if (f) fprintf(f, "%s\n", text);
  if (f) fclose(f);
}

/* The status that FAKE_NRT_FAULT wants for this call of its kind. */
static NRT_STATUS fault(const char *kind) {
  static struct { char kind[16]; int count; } seen[8];
  note(kind);
  const char *p = getenv("FAKE_NRT_FAULT");
  if (!p) return NRT_SUCCESS;
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < 7 && seen[i].kind[0] && strcmp(seen[i].kind, kind)) i++;
  snprintf(seen[i].kind, sizeof seen[i].kind, "%s", kind);
  int now = ++seen[i].count;
  pthread_mutex_unlock(&lock);
  for (size_t n = strlen(kind); (p = strstr(p, kind)); p += n) {
    int at, status;
    if (sscanf(p + n, ":%d:%d", &at, &status) == 2 && (at == now || at == 0)) return (NRT_STATUS)status;
  }
  return NRT_SUCCESS;
}

EXPORT const char *nrt_get_status_as_str(NRT_STATUS status) { return status == NRT_SUCCESS ? "NRT_SUCCESS" : "NRT error"; }
EXPORT NRT_STATUS nrt_init(nrt_framework_type_t framework, const char *a, const char *b) {
  open_now = true;
  return fault("init");
}
EXPORT void nrt_close(void) {
  open_now = false;
  note("close");
}
EXPORT NRT_STATUS nrt_get_visible_vnc_count(uint32_t *out) {
  const char *n = getenv("FAKE_NRT_CORES");
  *out = n ? (uint32_t)atoi(n) : 2;
  return NRT_SUCCESS;
}
EXPORT NRT_STATUS nrt_get_instance_info(nrt_instance_info_t *out, size_t size) {
  memset(out, 0, sizeof *out);
  out->family = NRT_INSTANCE_TRN2;
  snprintf(out->arch_name, sizeof out->arch_name, "fake");
  return NRT_SUCCESS;
}
EXPORT NRT_STATUS nrt_get_vnc_memory_stats(uint32_t vnc, nrt_vnc_memory_stats_t *out, size_t size, size_t *got) {
  *out = (nrt_vnc_memory_stats_t){used, (size_t)4 << 30};
  *got = sizeof *out;
  return NRT_SUCCESS;
}

/* ---- tensors ---- */
EXPORT NRT_STATUS nrt_tensor_allocate(nrt_tensor_placement_t placement, int vnc, size_t size, const char *name, nrt_tensor_t **out) {
  NRT_STATUS status = fault("allocate");
  if (status != NRT_SUCCESS) return status;
  nrt_tensor_t *t = malloc(sizeof *t);
  *t = (nrt_tensor_t){malloc(size), size, false};
  used += size;
  *out = t;
  return NRT_SUCCESS;
}
EXPORT NRT_STATUS nrt_tensor_allocate_slice(const nrt_tensor_t *src, size_t offset, size_t size, const char *name, nrt_tensor_t **out) {
  if (offset + size > src->size) return NRT_INVALID;
  nrt_tensor_t *t = malloc(sizeof *t);
  *t = (nrt_tensor_t){src->data + offset, size, true};
  *out = t;
  return NRT_SUCCESS;
}
EXPORT void nrt_tensor_free(nrt_tensor_t **t) {
  if (!(*t)->slice) {
    used -= (*t)->size;
    free((*t)->data);
  }
  free(*t);
  *t = NULL;
}
EXPORT NRT_STATUS nrt_tensor_read(const nrt_tensor_t *t, void *buf, size_t offset, size_t size) {
  if (offset + size > t->size) return NRT_INVALID;
  memcpy(buf, t->data + offset, size);
  return fault("read");
}
EXPORT NRT_STATUS nrt_tensor_write(nrt_tensor_t *t, const void *buf, size_t offset, size_t size) {
  if (offset + size > t->size) return NRT_INVALID;
  memcpy(t->data + offset, buf, size);
  return fault("write");
}
EXPORT NRT_STATUS nrt_tensor_copy(const nrt_tensor_t *src, size_t so, nrt_tensor_t *dst, size_t d, size_t size) {
  if (so + size > src->size || d + size > dst->size) return NRT_INVALID;
  memmove(dst->data + d, src->data + so, size);
  return fault("copy");
}
EXPORT NRT_STATUS nrt_allocate_tensor_set(nrt_tensor_set_t **out) {
  *out = calloc(1, sizeof(set));
  return NRT_SUCCESS;
}
EXPORT void nrt_destroy_tensor_set(nrt_tensor_set_t **out) {
  set *s = *out;
  free(s->items);
  free(s);
  *out = NULL;
}
EXPORT NRT_STATUS nrt_add_tensor_to_tensor_set(nrt_tensor_set_t *to, const char *name, nrt_tensor_t *t) {
  set *s = to;
  s->items = realloc(s->items, (s->n + 1) * sizeof *s->items);
  snprintf(s->items[s->n].name, sizeof s->items->name, "%s", name);
  s->items[s->n++].tensor = t;
  return NRT_SUCCESS;
}

/* ---- models ---- */
EXPORT NRT_STATUS nrt_load(const void *neff, size_t size, int32_t vnc, int32_t count, nrt_model_t **out) {
  NRT_STATUS status = fault("load");
  if (status != NRT_SUCCESS) return status;
  nrt_model_t *m = malloc(sizeof *m);
  *m = (nrt_model_t){malloc(size + 1), size};
  memcpy(m->text, neff, size);
  m->text[size] = 0;
  *out = m;
  return NRT_SUCCESS;
}
EXPORT NRT_STATUS nrt_unload(nrt_model_t *m) {
  free(m->text);
  free(m);
  return NRT_SUCCESS;
}

static nrt_tensor_t *item(const set *s, const char *prefix, size_t i) {
  char name[40];
  snprintf(name, sizeof name, "%s%zu", prefix, i);
  for (size_t k = 0; k < s->n; k++)
    if (strcmp(s->items[k].name, name) == 0) return s->items[k].tensor;
  return NULL;
}

static bool send_all(int fd, const void *data, size_t n) {
  for (const char *p = data; n;) {
    ssize_t k = write(fd, p, n);
    if (k <= 0) return false;
    p += k;
    n -= (size_t)k;
  }
  return true;
}
static bool take_all(int fd, void *data, size_t n) {
  for (char *p = data; n;) {
    ssize_t k = read(fd, p, n);
    if (k <= 0) return false;
    p += k;
    n -= (size_t)k;
  }
  return true;
}

/* Text, inputs and the outputs' sizes out; a status and the outputs back. Numbers are 64-bit, of this machine's byte order. */
static NRT_STATUS ask(const nrt_model_t *m, const set *in, set *out) {
  static int fd = -1;
  const char *path = getenv("FAKE_NRT_SOCKET");
  if (!path) return NRT_UNSUPPORTED_NEFF_VERSION;
  pthread_mutex_lock(&lock);
  if (fd < 0) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
      close(fd);
      fd = -1;
    }
  }
  uint64_t n = m->size, status = NRT_FAILURE;
  bool ok = fd >= 0 && send_all(fd, &n, 8) && send_all(fd, m->text, m->size) && (n = in->n, send_all(fd, &n, 8));
  for (size_t i = 0; ok && i < in->n; i++) {
    nrt_tensor_t *t = item(in, "input", i);
    ok = t && (n = t->size, send_all(fd, &n, 8)) && send_all(fd, t->data, t->size);
  }
  ok = ok && (n = out->n, send_all(fd, &n, 8)) && take_all(fd, &status, 8);
  for (size_t i = 0; ok && status == 0 && i < out->n; i++) {
    nrt_tensor_t *t = item(out, "output", i);
    ok = t && take_all(fd, &n, 8) && n == t->size && take_all(fd, t->data, t->size);
  }
  pthread_mutex_unlock(&lock);
  return ok ? (NRT_STATUS)status : NRT_FAILURE;
}

EXPORT NRT_STATUS nrt_execute(nrt_model_t *m, const nrt_tensor_set_t *inputs, nrt_tensor_set_t *outputs) {
  const set *in = inputs;
  set *out = outputs;
  NRT_STATUS status = fault("execute");
  if (status != NRT_SUCCESS || !open_now) return open_now ? status : NRT_CLOSED;
  if (strcmp(m->text, "copy")) return ask(m, in, out);
  for (size_t i = 0; i < out->n; i++) {
    nrt_tensor_t *from = item(in, "input", i), *to = item(out, "output", i);
    if (!from || !to || from->size != to->size) return NRT_EXEC_BAD_INPUT;
    memmove(to->data, from->data, to->size);
  }
  return NRT_SUCCESS;
}

/* ---- asynchronous: done at once, but only the second look says so ---- */
EXPORT NRT_STATUS nrta_error_tracker_create(uint32_t lnc, nrta_error_tracker_t **out) {
  *out = calloc(1, sizeof **out);
  return NRT_SUCCESS;
}
EXPORT void nrta_error_tracker_destroy(nrta_error_tracker_t *t) { free(t); }
EXPORT NRT_STATUS nrta_error_tracker_get_list(nrta_error_tracker_t *t, const nrta_error_t **list, size_t *n) {
  *list = t->list;
  *n = t->n;
  return NRT_SUCCESS;
}
static nrta_seq_t last, shown;
EXPORT NRT_STATUS nrta_execute_schedule(nrt_model_t *m, const nrt_tensor_set_t *in, nrt_tensor_set_t *out, int queue, nrta_error_tracker_t *t, nrta_seq_t *seq) {
  *seq = ((uint64_t)NRTA_XU_COMPUTE << NRTA_SEQ_UNIT_SHIFT) + ++last;
  NRT_STATUS status = nrt_execute(m, in, out);
  if (status == NRT_EXEC_UNIT_UNRECOVERABLE) return status;
  if (status != NRT_SUCCESS && t->n < 64) t->list[t->n++] = (nrta_error_t){*seq, (uint64_t)status};
  return NRT_SUCCESS;
}
EXPORT NRT_STATUS nrta_is_completed(nrta_seq_t seq, bool *out) {
  *out = shown == seq;
  shown = seq;
  return NRT_SUCCESS;
}
