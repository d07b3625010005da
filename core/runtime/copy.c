/* Copies between host and device and within a device, in stream order, as tasks of the stream. */
#include <string.h>

#include "base/alloc.h"
#include "runtime/state.h"

enum { INLINE_SNAPSHOT = 8 << 10, LARGEST_SNAPSHOT = 8 << 20 };

typedef tnx_status (*copy_fn)(int device, void *dst, const void *src, size_t bytes);
typedef struct copy {
  void *dst;
  const void *src; /* NULL: the snapshot that follows */
  size_t bytes;
  int device;
  copy_fn fn;
  void *owned;     /* heap snapshot, freed afterwards */
} copy;
_Static_assert(sizeof(copy) % 16 == 0, "the snapshot behind it is aligned");

typedef struct pieces { const copy *c; size_t size; _Atomic int status; } pieces;

static void copy_pieces(void *ctx, int64_t begin, int64_t end, int worker) {
  pieces *p = ctx;
  for (int64_t i = begin; i < end; i++) {
    size_t at = (size_t)i * p->size, n = p->c->bytes - at < p->size ? p->c->bytes - at : p->size;
    tnx_status s = p->c->fn(p->c->device, (char *)p->c->dst + at, (const char *)p->c->src + at, n);
    if (s != TNX_OK) atomic_store(&p->status, (int)s);
  }
}

static tnx_status run_copy(void *payload, tnx_pool *pool) {
  copy c = *(copy *)payload;
  if (!c.src) c.src = (copy *)payload + 1;
  size_t piece = tnx_rt.driver->copy_piece;
  if (!piece || c.bytes < 2 * piece || tnx_pool_workers(pool) < 2) return c.fn(c.device, c.dst, c.src, c.bytes);
  pieces p = {&c, piece, TNX_OK};
  tnx_pool_for(pool, (int64_t)((c.bytes + piece - 1) / piece), 1, copy_pieces, &p);
  int status = atomic_load(&p.status);
  return status == TNX_OK ? TNX_OK : tnx_fail((tnx_status)status, "a copy of %zu bytes failed", c.bytes);
}

static void drop_copy(void *payload) { tnx_heap_free(((copy *)payload)->owned); }

/* Runs the copy after everything queued; reports an earlier task's failure first. */
static tnx_status copy_and_wait(tnx_stream *s, const copy *c) {
  bool queued;
  tnx_status own = tnx_stream_run(s, run_copy, NULL, c, sizeof *c, &queued);
  if (!queued) return own;
  TNX_TRY(tnx_stream_take_error(s));
  return own;
}

tnx_status tnx_copy_to_device(void *dst, const void *src, size_t bytes, tnx_stream *stream, bool wait) {
  TNX_TRY(tnx_runtime_ensure());
  if (bytes == 0) return TNX_OK;
  if (bytes <= INLINE_SNAPSHOT && atomic_load_explicit(&stream->held, memory_order_acquire) && tnx_rt.upload_held(stream, dst, src, bytes)) return TNX_OK;
  copy c = {.dst = dst, .src = src, .bytes = bytes, .device = stream->device->index, .fn = tnx_rt.driver->copy_to_device};
  if (wait || bytes > LARGEST_SNAPSHOT) return copy_and_wait(stream, &c); /* a snapshot that large would cost more than waiting */
  if (sizeof c + bytes <= INLINE_SNAPSHOT) {
    _Alignas(16) unsigned char payload[INLINE_SNAPSHOT];
    c.src = NULL;
    memcpy(payload, &c, sizeof c);
    memcpy(payload + sizeof c, src, bytes);
    return tnx_stream_enqueue(stream, run_copy, NULL, payload, sizeof c + bytes);
  }
  c.owned = tnx_heap_alloc(bytes);
  if (!c.owned) return copy_and_wait(stream, &c);
  memcpy(c.owned, src, bytes);
  c.src = c.owned;
  bool queued;
  tnx_status status = tnx_stream_submit(stream, run_copy, drop_copy, &c, sizeof c, &queued);
  if (!queued) tnx_heap_free(c.owned);
  return status;
}

tnx_status tnx_copy_to_host(void *dst, const void *src, size_t bytes, tnx_stream *stream) {
  TNX_TRY(tnx_runtime_ensure());
  if (bytes == 0) return tnx_stream_synchronize(stream);
  copy c = {.dst = dst, .src = src, .bytes = bytes, .device = stream->device->index, .fn = tnx_rt.driver->copy_to_host};
  return copy_and_wait(stream, &c);
}

tnx_status tnx_copy_on_device(void *dst, const void *src, size_t bytes, tnx_stream *stream) {
  TNX_TRY(tnx_runtime_ensure());
  if (bytes == 0) return TNX_OK;
  copy c = {.dst = dst, .src = src, .bytes = bytes, .device = stream->device->index, .fn = tnx_rt.driver->copy};
  return tnx_stream_enqueue(stream, run_copy, NULL, &c, sizeof c);
}
