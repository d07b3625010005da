/* What the planner needs of the runtime for devices that run compiled programs: the driver's functions, and work held back.
 *
 * Held work: eager calls on such a device are gathered and become one program, so a stream may have work that is not queued yet. `hold` counts it as one more task
 * at once: tickets taken from then on (events, freed memory) cover it. Whoever queues something else or waits for the stream makes the holder queue it first. */
#ifndef TNX_RUNTIME_PROGRAMS_H
#define TNX_RUNTIME_PROGRAMS_H
#include "drivers/driver.h"
#include "tnx/runtime.h"

/* The driver in use, or the one that opening the runtime would use. Borrowed, constant. */
tnx_status tnx_runtime_get_driver(const tnx_driver **out);
/* The holder's functions, set once, before the first hold; called on any thread. release: queues what is held on a stream. upload: takes a small copy from the host
 * along with what is held, of which it is independent; false if it is not, and the copy has to be queued. */
void tnx_runtime_set_holder(tnx_status (*release)(tnx_stream *s), bool (*upload)(tnx_stream *s, void *to, const void *from, size_t bytes));

/* The holder's own state for a stream; kept as long as the stream object, which is never given back. Any thread; set by the holder only. */
void *tnx_stream_get_holder(tnx_stream *s);
void tnx_stream_set_holder(tnx_stream *s, void *state);
/* Puts what is queued next behind the default stream's work, as every other task is: before hold, since it may queue a task. */
tnx_status tnx_stream_follow(tnx_stream *s);
void tnx_stream_hold(tnx_stream *s);
/* Queues the task that was counted by hold; the stream is not held any more. Only from the holder's release. */
tnx_status tnx_stream_enqueue_held(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size, bool *queued_out);
/* Makes the holder queue what it holds. */
tnx_status tnx_stream_release(tnx_stream *s);

/* tnx_mem_alloc for the holder while it queues: on shortage of memory it takes back what it can without waiting for a stream, which may wait for the holder. */
tnx_status tnx_mem_alloc_now(int device, size_t bytes, tnx_stream *stream, void **out);
/* Unique among the allocations of a device: that of the live block around the address; 0 where there is none. */
uint64_t tnx_mem_serial(const void *ptr);
#endif
