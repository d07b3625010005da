/* Writing and reading the host device's programs (neff.h). */
#include "nrt_host/neff.h"

#include <stdio.h>
#include <string.h>

#include "plan/routine.h"

static const char magic[8] = "\x7fTNXNEF\n";
enum { CHECKED_FROM = 24, MAX_TENSORS = 1 << 20 };

static uint64_t checksum(const unsigned char *p, size_t n) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory"); }

/* ---- writing ---- */

typedef struct writer { unsigned char *data; size_t len, cap; bool failed; } writer;

static void put(writer *w, const void *p, size_t n) {
  if (w->failed) return;
  if (n > w->cap - w->len) {
    size_t cap = w->cap * 2 + n + 1024;
    unsigned char *more = tnx_heap_realloc(w->data, cap);
    if (!more) {
      w->failed = true;
      return;
    }
    w->data = more;
    w->cap = cap;
  }
  if (n) memcpy(w->data + w->len, p, n);
  w->len += n;
}
static void put_number(writer *w, uint64_t v, int bytes) {
  unsigned char b[8];
  for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(v >> 8 * i);
  put(w, b, (size_t)bytes);
}
static void put_text(writer *w, const char *s, size_t n) {
  put_number(w, n, 8);
  put(w, s, n);
}

tnx_status tnx_neff_write(const tnx_routine *r, const char *target, const char *module, size_t module_bytes, unsigned char **data_out, size_t *size_out) {
  writer w = {0};
  put(&w, magic, sizeof magic);
  put_number(&w, TNX_NEFF_VERSION, 8);
  put_number(&w, 0, 8); /* the checksum */
  put_text(&w, target, strlen(target));
  put_number(&w, r->n_inputs, 4);
  put_number(&w, r->outputs.len, 4);
  for (uint32_t i = 0; i < r->n_inputs + r->outputs.len; i++) {
    bool output = i >= r->n_inputs;
    const tnx_type *t = &r->values.data[output ? r->outputs.data[i - r->n_inputs] : i];
    char name[TNX_NEFF_NAME_MAX];
    snprintf(name, sizeof name, "%s%u", output ? "output" : "input", output ? i - r->n_inputs : i);
    put_text(&w, name, strlen(name));
    const char *dtype = tnx_dtype_name((tnx_dtype)t->dtype);
    put_text(&w, dtype, strlen(dtype));
    put_number(&w, t->rank, 4);
    for (int d = 0; d < t->rank; d++) put_number(&w, (uint64_t)t->sizes[d], 8);
  }
  put_text(&w, module, module_bytes);
  if (w.failed) {
    tnx_heap_free(w.data);
    return no_memory();
  }
  uint64_t sum = checksum(w.data + CHECKED_FROM, w.len - CHECKED_FROM);
  for (int i = 0; i < 8; i++) w.data[16 + i] = (unsigned char)(sum >> 8 * i);
  *data_out = w.data;
  *size_out = w.len;
  return TNX_OK;
}

/* ---- reading ---- */

typedef struct reader { const unsigned char *p; size_t left; } reader;

static tnx_status cut_short(void) { return tnx_fail(TNX_PARSE, "the NEFF is cut short"); }

static tnx_status get_number(reader *r, int bytes, uint64_t *out) {
  if (r->left < (size_t)bytes) return cut_short();
  *out = 0;
  for (int i = 0; i < bytes; i++) *out |= (uint64_t)r->p[i] << 8 * i;
  r->p += bytes;
  r->left -= (size_t)bytes;
  return TNX_OK;
}
static tnx_status get_text(reader *r, const char **s, size_t *n) {
  uint64_t len = 0;
  TNX_TRY(get_number(r, 8, &len));
  if (len > r->left) return cut_short();
  *s = (const char *)r->p;
  *n = (size_t)len;
  r->p += len;
  r->left -= (size_t)len;
  return TNX_OK;
}

static tnx_status read_tensor(tnx_neff *n, reader *r, tnx_neff_tensor *t) {
  const char *s;
  size_t len;
  char dtype[32];
  uint64_t rank = 0;
  TNX_TRY(get_text(r, &s, &len));
  if (len >= sizeof t->name) return tnx_fail(TNX_PARSE, "a tensor's name in the NEFF is too long");
  memcpy(t->name, s, len);
  TNX_TRY(get_text(r, &s, &len));
  if (len >= sizeof dtype) return tnx_fail(TNX_PARSE, "a tensor's dtype in the NEFF is unknown");
  memcpy(dtype, s, len);
  dtype[len] = 0;
  tnx_dtype d = tnx_dtype_parse(dtype);
  TNX_TRY(get_number(r, 4, &rank));
  if (d == TNX_DTYPE_NONE || rank > TNX_MAX_RANK) return tnx_fail(TNX_PARSE, "a tensor of the NEFF has an unknown dtype or too many dimensions");
  tnx_dim *sizes = tnx_arena_alloc(&n->arena, rank * sizeof *sizes);
  if (!sizes) return no_memory();
  size_t bytes = tnx_dtype_size(d);
  for (uint64_t i = 0; i < rank; i++) {
    uint64_t size = 0;
    TNX_TRY(get_number(r, 8, &size));
    sizes[i] = (tnx_dim)size;
    if (sizes[i] < 0 || __builtin_mul_overflow(bytes, (size_t)size, &bytes)) return tnx_fail(TNX_PARSE, "a tensor of the NEFF is too large");
  }
  t->type = (tnx_type){(uint8_t)d, (uint8_t)rank, sizes};
  t->bytes = bytes;
  return TNX_OK;
}

static tnx_status read_all(tnx_neff *n, reader *r) {
  const char *s;
  size_t len;
  uint64_t inputs = 0, outputs = 0;
  TNX_TRY(get_text(r, &s, &len));
  char *target = tnx_arena_alloc(&n->arena, len + 1);
  if (!target) return no_memory();
  memcpy(target, s, len);
  n->target = target;
  TNX_TRY(get_number(r, 4, &inputs));
  TNX_TRY(get_number(r, 4, &outputs));
  if (inputs + outputs > MAX_TENSORS) return tnx_fail(TNX_PARSE, "the NEFF has too many tensors");
  n->n_inputs = (uint32_t)inputs;
  n->n_tensors = (uint32_t)(inputs + outputs);
  n->tensors = tnx_arena_alloc(&n->arena, n->n_tensors * sizeof *n->tensors);
  if (!n->tensors) return no_memory();
  for (uint32_t i = 0; i < n->n_tensors; i++) {
    TNX_TRY(read_tensor(n, r, &n->tensors[i]));
    n->tensors[i].output = i >= n->n_inputs;
  }
  TNX_TRY(get_text(r, &n->module, &n->module_bytes));
  return r->left ? tnx_fail(TNX_PARSE, "the NEFF has %zu bytes too many", r->left) : TNX_OK;
}

tnx_status tnx_neff_read(tnx_neff *n, const void *data, size_t size) {
  reader r = {data, size};
  uint64_t version = 0, sum = 0;
  *n = (tnx_neff){0};
  if (!data || size < sizeof magic || memcmp(data, magic, sizeof magic) != 0) return tnx_fail(TNX_PARSE, "not a program for the host device (nxcc makes them)");
  r.p += sizeof magic;
  r.left -= sizeof magic;
  TNX_TRY(get_number(&r, 8, &version));
  if (version != TNX_NEFF_VERSION) return tnx_fail(TNX_NOT_IMPLEMENTED, "the NEFF has version %llu, this library reads version %d", (unsigned long long)version, TNX_NEFF_VERSION);
  TNX_TRY(get_number(&r, 8, &sum));
  if (sum != checksum(r.p, r.left)) return tnx_fail(TNX_PARSE, "the NEFF's checksum is wrong: the file is damaged");
  tnx_arena_init(&n->arena);
  tnx_status status = read_all(n, &r);
  if (status != TNX_OK) tnx_neff_fini(n);
  return status;
}

void tnx_neff_fini(tnx_neff *n) {
  tnx_arena_fini(&n->arena);
  *n = (tnx_neff){0};
}
