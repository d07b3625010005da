/* The seam between the runtime and a kind of device. A driver is one constant table of functions; the runtime calls it, and it
 * never calls back into the runtime. It reports failures by tnx_status and tnx_fail.
 *
 * Threads: "open" slots run on the thread that opens the runtime, one at a time, with runtime.lock held. "segment" slots run on any
 * thread with that device's allocator.lock held, so never twice at once for a device. "work" slots run on the thread that holds a
 * stream's consumer role (or a compute thread it handed a part to), with no lock held, possibly at once for several streams. */
#ifndef TNX_DRIVER_H
#define TNX_DRIVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tnx/runtime.h"

enum {
  TNX_SEGMENT_ALIGN_SHIFT = 21,
  TNX_SEGMENT_ALIGN = 1 << TNX_SEGMENT_ALIGN_SHIFT /* addresses and sizes of segments are multiples of this */
};

/* A range of device memory that a program reads or writes. */
typedef struct tnx_operand { void *address; size_t bytes; } tnx_operand;
/* A compiled program; the driver's own. */
typedef struct tnx_program tnx_program;
typedef struct tnx_program_source {
  const char *name; /* for messages: the operators */
  const char *text; /* StableHLO, shapes static: arguments and results in order; tf.aliasing_output marks an argument whose memory a result takes */
  size_t text_bytes;
  uint32_t n_inputs, n_outputs;
} tnx_program_source;

/* Devices that run compiled programs instead of kernels on this machine's threads: the planner writes each plan, or several eager calls at once, as StableHLO. */
typedef struct tnx_program_driver {
  /* A program of this text. Begins to compile it unless a cache has it and returns at once; `run` waits for it and reports its failure. Any thread. */
  tnx_status (*create)(const tnx_program_source *source, tnx_program **out);
  /* Runs it; operands in the text's order. (work) */
  tnx_status (*run)(tnx_program *p, int device, const tnx_operand *inputs, const tnx_operand *outputs);
  void (*release)(tnx_program *p); /* any thread */
  void (*stats)(tnx_program_stats *out); /* any thread */
} tnx_program_driver;

typedef struct tnx_driver {
  const char *name; /* as in TORCH_NEURONX_DRIVER */

  /* Opens the driver for `devices` devices, before any other slot; again if opening the runtime failed after it. Called by runtime.c. (open) */
  tnx_status (*open)(int devices);
  /* The process ends: no slot that needs the device is called after it. NULL: nothing to do. (open) */
  void (*close)(void);
  /* How many devices there are under the environment's rules; NULL: as many as the environment says. Called before `open` and without a runtime. */
  tnx_status (*count)(int *out);
  /* Fills everything but `cores`, which the runtime decides. Called by runtime.c. (open) */
  tnx_status (*get_props)(int device, int devices, tnx_device_props *out);

  /* A new segment: `bytes` is a multiple of TNX_SEGMENT_ALIGN, and so is the address returned. OUT_OF_MEMORY when the device has none; the
   * allocator then empties its cache and asks again. `large`: hint that the segment is worth big pages. Called by allocator.c. (segment) */
  tnx_status (*segment_alloc)(int device, size_t bytes, bool large, void **out);
  /* Takes back a segment; no queued work uses it any more. Called by allocator.c. (segment) */
  void (*segment_free)(int device, void *segment, size_t bytes);
  /* Bytes the device could still give to anybody, as far as it knows; UINT64_MAX if it does not. Called by allocator.c, on any thread, with
   * or without allocator.lock. */
  uint64_t (*available)(int device);

  /* Called by stream.c around every task of a stream, copies included. NULL where a device needs neither. (work) */
  void (*work_begin)(int device);
  void (*work_end)(int device);
  /* Synchronous copies between host and device, called by copy.c. (work) */
  tnx_status (*copy_to_device)(int device, void *dst, const void *src, size_t bytes);
  tnx_status (*copy_to_host)(int device, void *dst, const void *src, size_t bytes);
  /* A copy within the device (the ranges do not overlap) and a byte fill, for layers above that move memory without a kernel. (work) */
  tnx_status (*copy)(int device, void *dst, const void *src, size_t bytes);
  tnx_status (*fill)(int device, void *dst, uint8_t value, size_t bytes);
  /* Copies of at least twice this many bytes are cut into such pieces for the compute threads; 0: one call does it best. */
  size_t copy_piece;
  /* NULL: plans are kernels on the device's threads, which reach device memory by its addresses. Otherwise only the slots above do. */
  const tnx_program_driver *programs;
} tnx_driver;

/* The driver named by TORCH_NEURONX_DRIVER (unset: host), or the one that only compiles under TORCH_NEURONX_COMPILE_ONLY=1. INVALID_ARGUMENT for an unknown name; DEVICE, with what is missing, where the
 * driver cannot run on this machine. Borrowed, constant. Any thread. */
tnx_status tnx_driver_select(const tnx_driver **out);
/* For drivers whose device memory is this process's: a mapping that begins at a multiple of TNX_SEGMENT_ALIGN (protection as for mmap; OUT_OF_MEMORY), a copy, a fill. */
tnx_status tnx_segment_map(size_t bytes, int protection, void **out);
tnx_status tnx_memory_copy(int device, void *dst, const void *src, size_t bytes);
tnx_status tnx_memory_fill(int device, void *dst, uint8_t value, size_t bytes);
/* The drivers; trn_offline compiles only. */
extern const tnx_driver tnx_driver_host, tnx_driver_trn, tnx_driver_trn_offline;
tnx_status tnx_driver_trn_probe(void); /* DEVICE: why the trn driver cannot be used here */
#endif
