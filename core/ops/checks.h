/* Operators whose failure, found while they run, is an error: an attribute of LINALG nodes. 0: a failure shows in `info` only. */
#ifndef TNX_OPS_CHECKS_H
#define TNX_OPS_CHECKS_H
typedef enum tnx_check {
  TNX_CHECK_NONE,
#define TNX_CHECK(name, status, api, text) TNX_CHECK_##name,
#include "ops/checks.def"
#undef TNX_CHECK
  TNX_CHECK_COUNT
} tnx_check;
#endif
