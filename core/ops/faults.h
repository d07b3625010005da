/* Numbers and words of what can be wrong with data when a plan runs (faults.def). */
#ifndef TNX_OPS_FAULTS_H
#define TNX_OPS_FAULTS_H
#include <stdint.h>

#include "tnx/status.h"

typedef enum tnx_fault {
  TNX_FAULT_NONE,
#define TNX_FAULT(name, status, words) TNX_FAULT_##name,
#include "ops/faults.def"
#undef TNX_FAULT
  TNX_FAULT_COUNT
} tnx_fault;

/* Fails with the fault's status and words. */
tnx_status tnx_fault_raise(tnx_fault fault, int64_t value, int dim, int64_t size);
#endif
