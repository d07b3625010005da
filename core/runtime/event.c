/* Events: a stream and the number of tasks queued on it when the event was recorded.
 *
 * Recording without timing queues nothing. With timing it queues one small task that notes the time; the event is reference
 * counted because that task may outlive the caller's handle. A later record makes earlier ones irrelevant (`generation`). */
#include "base/alloc.h"
#include "runtime/state.h"

struct tnx_event {
  tnx_mutex lock; /* rank 40: everything below but refs */
  bool timing;
  tnx_stream *stream; /* NULL: never recorded */
  uint64_t ticket, generation;
  uint64_t time_ns, time_generation;
  _Atomic uint32_t refs;
};

typedef struct stamp { tnx_event *event; uint64_t generation; } stamp;

static void release(tnx_event *e) {
  if (atomic_fetch_sub(&e->refs, 1) == 1) tnx_heap_free(e);
}

static void release_stamp(void *payload) { release(((stamp *)payload)->event); }

static tnx_status run_stamp(void *payload, tnx_pool *pool) {
  stamp *p = payload;
  tnx_mutex_lock(&p->event->lock);
  if (p->generation == p->event->generation) {
    p->event->time_ns = tnx_now_ns();
    p->event->time_generation = p->generation;
  }
  tnx_mutex_unlock(&p->event->lock);
  return TNX_OK;
}

static tnx_stream_point last_record(tnx_event *e) {
  tnx_mutex_lock(&e->lock);
  tnx_stream_point w = {e->stream, e->ticket};
  tnx_mutex_unlock(&e->lock);
  return w;
}

tnx_status tnx_event_create(bool timing, tnx_event **out) {
  tnx_event *e = tnx_heap_zalloc(1, sizeof *e);
  if (!e) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for an event");
  e->timing = timing;
  atomic_store(&e->refs, 1);
  *out = e;
  return TNX_OK;
}

void tnx_event_destroy(tnx_event *e) {
  if (e) release(e);
}

tnx_status tnx_event_record(tnx_event *e, tnx_stream *s) {
  TNX_TRY(tnx_runtime_ensure());
  tnx_mutex_lock(&e->lock);
  uint64_t generation = ++e->generation;
  e->stream = s;
  e->ticket = tnx_stream_pushed(s);
  bool timing = e->timing;
  tnx_mutex_unlock(&e->lock);
  if (!timing) return TNX_OK;
  atomic_fetch_add(&e->refs, 1);
  stamp p = {e, generation};
  bool queued;
  tnx_status status = tnx_stream_submit(s, run_stamp, release_stamp, &p, sizeof p, &queued);
  if (!queued) release(e);
  uint64_t ticket = tnx_stream_pushed(s); /* the stamp's, or a later one if other threads queue at the same time */
  tnx_mutex_lock(&e->lock);
  if (queued && e->generation == generation) e->ticket = ticket;
  tnx_mutex_unlock(&e->lock);
  return status;
}

bool tnx_event_query(tnx_event *e) {
  if (tnx_runtime_in_bad_fork()) return true; /* another thread of the parent may have held the lock */
  tnx_stream_point w = last_record(e);
  return !w.stream || tnx_stream_done(w.stream) >= w.ticket;
}

tnx_status tnx_event_synchronize(tnx_event *e) {
  TNX_TRY(tnx_runtime_ensure());
  tnx_stream_point w = last_record(e);
  if (!w.stream) return TNX_OK;
  if (tnx_stream_is_mine(w.stream)) return tnx_fail(TNX_INVALID_ARGUMENT, "a task may not wait for an event of its own stream");
  tnx_stream_wait(w.stream, w.ticket);
  return tnx_stream_take_error(w.stream);
}

tnx_status tnx_stream_wait_event(tnx_stream *s, tnx_event *e) {
  TNX_TRY(tnx_runtime_ensure());
  tnx_stream_point w = last_record(e);
  if (!w.stream || w.stream == s || tnx_stream_done(w.stream) >= w.ticket) return TNX_OK;
  return tnx_stream_enqueue(s, tnx_stream_run_wait, NULL, &w, sizeof w);
}

static tnx_status time_of(tnx_event *e, const char *which, uint64_t *out) {
  tnx_mutex_lock(&e->lock);
  bool timing = e->timing, recorded = e->stream != NULL, done = recorded && e->time_generation == e->generation;
  *out = e->time_ns;
  tnx_mutex_unlock(&e->lock);
  if (!timing) return tnx_fail(TNX_INVALID_ARGUMENT, "the %s event was created without timing", which);
  if (!recorded) return tnx_fail(TNX_INVALID_ARGUMENT, "the %s event has not been recorded", which);
  if (!done) return tnx_fail(TNX_INVALID_ARGUMENT, "the %s event is not done yet", which);
  return TNX_OK;
}

tnx_status tnx_event_elapsed_ms(tnx_event *begin, tnx_event *end, double *ms_out) {
  uint64_t t0, t1;
  TNX_TRY(time_of(begin, "begin", &t0));
  TNX_TRY(time_of(end, "end", &t1));
  *ms_out = ((double)t1 - (double)t0) * 1e-6;
  return TNX_OK;
}
