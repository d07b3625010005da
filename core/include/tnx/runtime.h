/* The runtime: devices, memory, streams, events. One per process, opened by the first call that needs a device.
 *
 * A device is one logical NeuronCore. On the host driver it is a share of this machine's cores with its own caching
 * allocator and streams. Work is queued on streams: tasks of one stream run in order, one at a time, on the stream's worker or on
 * a thread that waits for the stream; tasks of different streams may run at the same time.
 *
 * Every function is callable from any thread unless it says otherwise. After fork() the child's calls fail with TNX_BAD_FORK. */
#ifndef TNX_RUNTIME_H
#define TNX_RUNTIME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tnx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tnx_stream tnx_stream;
typedef struct tnx_event tnx_event;
typedef struct tnx_pool tnx_pool;

/* ---- process ---- */
/* Opens the runtime (idempotent). Reads NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES, TORCH_NEURONX_DRIVER, NEURON_LAUNCH_BLOCKING.
 * INVALID_ARGUMENT names a malformed variable. */
TNX_API tnx_status tnx_runtime_open(void);
TNX_API bool tnx_runtime_is_open(void);
TNX_API bool tnx_runtime_in_bad_fork(void);
/* Waits for all streams and stops all threads; device memory stays valid until exit. For tests and atexit. */
TNX_API void tnx_runtime_close(void);

/* ---- devices ---- */
TNX_API int tnx_device_count(void); /* never opens the runtime; 0 where the environment is malformed */
typedef struct tnx_device_props {
  char name[64];         /* instance family: "host" or "trn2" ... */
  char chip[128];        /* the processor's own name */
  char driver[16];       /* "host" or "trn" */
  char isa[16];          /* highest instruction set in use, host only */
  uint64_t total_memory; /* bytes */
  int cores;             /* threads this device computes with */
} tnx_device_props;
TNX_API tnx_status tnx_device_get_props(int device, tnx_device_props *out);
TNX_API tnx_status tnx_device_synchronize(int device); /* all streams; reports the first deferred error */

/* Compiled programs of drivers that run them, since the process started. */
typedef struct tnx_program_stats {
  uint64_t programs; /* different ones asked for */
  uint64_t compiled; /* by the compiler, in this process */
  uint64_t cached;   /* found in the cache on disk */
  uint64_t loaded, executed;
} tnx_program_stats;
/* False: the driver runs kernels, all figures are 0. Never opens the runtime. */
TNX_API bool tnx_program_get_stats(tnx_program_stats *out);

/* ---- memory ---- */
/* 64-byte aligned device memory for use on `stream` (NULL: the default stream). Zero bytes give a NULL pointer and TNX_OK. Requests are rounded up to a size
 * class: multiples of 256 bytes below 1 MiB from a small pool, of 64 KiB from a large pool; above 16 MiB in a segment of their own size. On shortage cached segments are returned and the
 * request is tried again; then OUT_OF_MEMORY, whose text gives the sizes in PyTorch's style.
 * Not from inside a task: freed blocks may still be used by work queued after it. */
TNX_API tnx_status tnx_mem_alloc(int device, size_t bytes, tnx_stream *stream, void **out);
/* Stream-ordered: the block may be reused at once by later work of its own stream, and by others once work recorded on it has finished. */
TNX_API void tnx_mem_free(void *ptr);
/* `ptr` (any address inside a block) is also used on `stream`: its block is not reused before the work queued there now is done. */
TNX_API tnx_status tnx_mem_record_stream(void *ptr, tnx_stream *stream);
TNX_API int tnx_mem_device_of(const void *ptr); /* -1: not device memory */
TNX_API tnx_status tnx_mem_empty_cache(int device);
TNX_API tnx_status tnx_mem_get_info(int device, uint64_t *free_out, uint64_t *total_out);
/* At most this many bytes may be reserved (0: the default, the whole device). Also TORCH_NEURONX_MEMORY_LIMIT=bytes, with k, m, g suffixes. */
TNX_API tnx_status tnx_mem_set_limit(int device, uint64_t bytes);

typedef struct tnx_mem_stat { int64_t current, peak, allocated, freed; } tnx_mem_stat;
enum { TNX_POOL_ALL, TNX_POOL_SMALL, TNX_POOL_LARGE, TNX_POOL_COUNT };
typedef struct tnx_mem_stats {
  tnx_mem_stat allocation[TNX_POOL_COUNT];       /* live blocks, count */
  tnx_mem_stat segment[TNX_POOL_COUNT];          /* segments taken from the driver, count */
  tnx_mem_stat active[TNX_POOL_COUNT];           /* live blocks and freed ones other streams still use, count */
  tnx_mem_stat inactive_split[TNX_POOL_COUNT];   /* free parts of split segments, count */
  tnx_mem_stat allocated_bytes[TNX_POOL_COUNT];  /* rounded sizes of live blocks */
  tnx_mem_stat reserved_bytes[TNX_POOL_COUNT];
  tnx_mem_stat active_bytes[TNX_POOL_COUNT];
  tnx_mem_stat inactive_split_bytes[TNX_POOL_COUNT];
  tnx_mem_stat requested_bytes[TNX_POOL_COUNT];  /* sizes as asked for */
  int64_t num_alloc_retries, num_ooms, num_tensor_frees, allocation_requests;
} tnx_mem_stats;
TNX_API tnx_status tnx_mem_get_stats(int device, tnx_mem_stats *out);
TNX_API tnx_status tnx_mem_reset_peak(int device);
TNX_API tnx_status tnx_mem_reset_accumulated(int device);

/* One block of the allocator's map, for snapshots. */
typedef struct tnx_mem_block {
  uint64_t segment, segment_size, address, size, requested; /* bytes */
  uint64_t stream;                                          /* its id */
  bool allocated, small_pool;
} tnx_mem_block;
/* Calls fn for every block in address order; the allocator's lock is held: fn must not allocate. */
TNX_API tnx_status tnx_mem_walk(int device, void (*fn)(void *ctx, const tnx_mem_block *block), void *ctx);

/* Page-aligned host memory that copies treat as pinned. */
TNX_API tnx_status tnx_host_alloc(size_t bytes, void **out);
TNX_API void tnx_host_free(void *ptr);
TNX_API bool tnx_host_is_pinned(const void *ptr);

/* Copies between host and device in stream order. Both directions return when `bytes` of the source have been read and, for
 * to_host and when `wait` is set, the destination holds them. A non-waiting copy to the device takes a snapshot of the source. */
TNX_API tnx_status tnx_copy_to_device(void *dst, const void *src, size_t bytes, tnx_stream *stream, bool wait);
TNX_API tnx_status tnx_copy_to_host(void *dst, const void *src, size_t bytes, tnx_stream *stream);
/* A copy within the stream's device, of ranges that do not overlap, as a task of the stream. */
TNX_API tnx_status tnx_copy_on_device(void *dst, const void *src, size_t bytes, tnx_stream *stream);

/* ---- streams ---- */
/* Runs on a thread that owns the stream for the call; may use the pool (see below). A failure is kept and reported by
 * the next synchronising call on the stream or its device, once; later tasks still run. */
typedef tnx_status (*tnx_task_fn)(void *payload, tnx_pool *pool);

/* priority < 0: work starts as soon as it can. Otherwise it also comes after all that the default stream was given before it. */
TNX_API tnx_status tnx_stream_create(int device, int priority, tnx_stream **out);
TNX_API void tnx_stream_destroy(tnx_stream *s); /* waits for its work; not for default streams */
TNX_API tnx_status tnx_stream_default(int device, tnx_stream **out); /* borrowed, lives as long as the runtime */
TNX_API int tnx_stream_device(const tnx_stream *s);
TNX_API uint64_t tnx_stream_id(const tnx_stream *s); /* 0 for default streams, else unique in the process */
/* Looks up a live stream by device and id; NULL if there is none. Borrowed. */
TNX_API tnx_stream *tnx_stream_find(int device, uint64_t id);
/* Copies `size` bytes of payload into the queue (16-byte aligned there) and returns; blocks while the queue is full. `drop`, if not NULL, is called
 * on the payload after fn, whether fn failed or not. With launch blocking, waits and returns fn's own status. */
TNX_API tnx_status tnx_stream_enqueue(tnx_stream *s, tnx_task_fn fn, void (*drop)(void *payload), const void *payload, size_t size);
/* Waits until all work queued so far is done, helping with it if the worker sleeps. Returns the deferred error, if any, and clears it. */
TNX_API tnx_status tnx_stream_synchronize(tnx_stream *s);
TNX_API bool tnx_stream_query(tnx_stream *s); /* true: nothing is queued or running */
TNX_API tnx_status tnx_stream_wait_event(tnx_stream *s, tnx_event *e); /* later work of s runs after e's record */
TNX_API void tnx_runtime_set_blocking(bool blocking);
TNX_API bool tnx_runtime_get_blocking(void);

/* ---- events ---- */
TNX_API tnx_status tnx_event_create(bool timing, tnx_event **out);
TNX_API void tnx_event_destroy(tnx_event *e); /* may be called while work still refers to it */
TNX_API tnx_status tnx_event_record(tnx_event *e, tnx_stream *s);
TNX_API bool tnx_event_query(tnx_event *e); /* true: done, or never recorded */
TNX_API tnx_status tnx_event_synchronize(tnx_event *e);
TNX_API tnx_status tnx_event_elapsed_ms(tnx_event *begin, tnx_event *end, double *ms_out); /* INVALID_ARGUMENT without timing or before both are done */

/* ---- the compute threads of a device ---- */
enum { TNX_MAX_WORKERS = 256 };
/* fn(ctx, begin, end, worker) over ranges covering [0, n) once, at most `grain` units a hand-out, worker in [0, workers). Returns when all is done. Ranges are
 * handed out on demand, so a thread that loses its core delays at most one hand-out. Only from inside a task, with the pool it was given. */
typedef void (*tnx_range_fn)(void *ctx, int64_t begin, int64_t end, int worker);
TNX_API void tnx_pool_for(tnx_pool *pool, int64_t n, int64_t grain, tnx_range_fn fn, void *ctx);
TNX_API int tnx_pool_workers(const tnx_pool *pool);
/* Scratch of a worker (worker >= 0) or shared by the step (worker == -1), at least `bytes`, 64-byte aligned, kept between calls and grown on demand; NULL when memory is
 * short. Call before tnx_pool_for, from the task's thread. */
TNX_API void *tnx_pool_scratch(tnx_pool *pool, int worker, size_t bytes);
/* Gives back scratch of more than `kept` bytes. From the task's thread, after tnx_pool_for. */
TNX_API void tnx_pool_trim(tnx_pool *pool, size_t kept);
/* Threads of the calling process's devices from now on (torch.set_num_threads's counterpart); n < 1: the default. */
TNX_API tnx_status tnx_runtime_set_threads(int n);
TNX_API int tnx_runtime_get_threads(void);

#ifdef __cplusplus
}
#endif
#endif
