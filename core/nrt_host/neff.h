/* The file that nxcc writes and nrt_load reads: a module for the host device in place of a NEFF for the hardware.
 *
 * Little-endian: magic, version, checksum (FNV-1a, 64 bits, of all that follows it), then the compiler's target, the tensors (usage, dtype, sizes, name) and the module as
 * StableHLO, which the library reads and plans at load. Whatever is wrong with a file is found before any of it is used. */
#ifndef TNX_NRT_HOST_NEFF_H
#define TNX_NRT_HOST_NEFF_H
#include "ir/routine.h"

enum { TNX_NEFF_VERSION = 1, TNX_NEFF_NAME_MAX = 64 };

typedef struct tnx_neff_tensor {
  char name[TNX_NEFF_NAME_MAX]; /* input0, ..., output0, ... */
  bool output;
  tnx_type type; /* sizes: in the neff's arena */
  size_t bytes;
} tnx_neff_tensor;

typedef struct tnx_neff {
  tnx_arena arena;
  const char *target;
  tnx_neff_tensor *tensors; /* inputs, then outputs */
  uint32_t n_tensors, n_inputs;
  const char *module; /* StableHLO */
  size_t module_bytes;
} tnx_neff;

/* The file's bytes, from the heap, for a module that was imported as `r` from this text. */
tnx_status tnx_neff_write(const tnx_routine *r, const char *target, const char *module, size_t module_bytes, unsigned char **data_out, size_t *size_out);
/* PARSE for anything that is not such a file; NOT_IMPLEMENTED for one of another version. The module's text is borrowed from `data`. */
tnx_status tnx_neff_read(tnx_neff *n, const void *data, size_t size);
void tnx_neff_fini(tnx_neff *n);
#endif
