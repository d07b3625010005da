/* Launches on devices that run compiled programs.
 *
 * Eager calls are gathered, in order, and become one program when somebody waits, copies, queues something else, or the batch is full: as many programs as there are
 * points where the host looks, not one for each operator. The batch knows memory by ranges: what a call reads is the latest value written there by the batch, or
 * device memory as it was before it; what is overwritten or freed before the end is never written at all. So the program is the calls' meaning in order, whatever views
 * they take and however they share memory. A compiled graph is a batch of one. */
#ifndef TNX_PLAN_BATCH_H
#define TNX_PLAN_BATCH_H
#include "plan/plan.h"
#include "runtime/programs.h"

/* tnx_plan_launch for plans with a program. NOT_IMPLEMENTED: results that overlap in a way that no single program can write. */
tnx_status tnx_batch_launch(tnx_plan *p, tnx_instance *inst, void *const *inputs, void *const *results, tnx_stream *stream);

/* Operand of a call as the batch sees it. All members count: the sequence of them is the batch's identity. */
typedef enum tnx_ref_kind {
  TNX_REF_NONE,   /* not needed, or no elements */
  TNX_REF_MEMORY, /* read: device memory region `index`, as before the batch */
  TNX_REF_HOST,   /* read: host scalar `index` */
  TNX_REF_RANGE,  /* read, or written: a part of range `index`, from element `offset` on */
  TNX_REF_NEW,    /* written: range `index` begins with it, all of it */
  TNX_REF_SPAN    /* written: range `index` begins with it, between elements of memory region `base` that stay */
} tnx_ref_kind;
typedef struct tnx_ref { uint32_t kind, index, base, none; int64_t offset; } tnx_ref;

/* Memory read from outside the batch. */
typedef struct tnx_region { uintptr_t address; uint64_t bytes; int64_t elements; uint32_t dtype; } tnx_region;
/* Memory that the batch has written, disjoint from the other live ones. */
typedef struct tnx_range {
  uintptr_t address;
  uint64_t bytes, serial; /* serial: of the allocation it lies in */
  int64_t elements;
  uint32_t dtype, region; /* region: the very same memory that is read, or TNX_NO_TENSOR; known at the end */
  void *apart;            /* where the program writes it, copied afterwards: it overlaps memory that the program reads; NULL: in place; known at the end */
  bool live;              /* not overwritten as a whole since */
  bool crosses;           /* apart is needed */
  bool in_place;          /* written by an operator that was given this memory, not by one whose result merely came to lie there */
} tnx_range;

typedef struct tnx_batch_call { tnx_plan *plan; tnx_instance *inst; uint32_t refs; /* its first one: inputs, then outputs */ } tnx_batch_call;

typedef struct tnx_batch {
  TNX_VEC(tnx_batch_call) calls;
  TNX_VEC(tnx_ref) refs;
  TNX_VEC(tnx_region) regions;
  TNX_VEC(tnx_range) ranges;
  TNX_VEC(uint8_t) host_dtypes;     /* of the host scalars */
  TNX_VEC(unsigned char) hosts;     /* TNX_HOST_SLOT bytes each */
  TNX_VEC(unsigned char) uploads;   /* tnx_upload records: small copies from the host, made before the program runs */
  TNX_VEC(void *) scratch;          /* device memory for host scalars, and for results apart */
} tnx_batch;
enum { TNX_HOST_SLOT = 64 };
/* A copy to device memory that the batch neither reads before nor has written; the bytes follow, padded to 8. */
typedef struct tnx_upload { void *to; uint64_t bytes; } tnx_upload;

/* A program of a batch and what its operands are: codes of regions (number) and host scalars (number | TNX_BATCH_HOST), and numbers of ranges. */
enum { TNX_BATCH_HOST = 1u << 31 };
typedef struct tnx_batch_program {
  _Atomic uint32_t refs;
  tnx_program *program; /* NULL: nothing to do */
  const tnx_program_driver *driver;
  char *name;
  uint32_t n_inputs, n_outputs;
  uint32_t *inputs, *outputs;
} tnx_batch_program;

/* batch_graph.c: the batch's graph, with only what live results need. written[range]: it is to be in memory at the end. */
tnx_status tnx_batch_graph(const tnx_batch *b, const bool *written, tnx_graph *out, uint32_t **inputs_out, uint32_t **outputs_out);
#endif
