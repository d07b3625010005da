/* Selection of the driver. */
#include "drivers/driver.h"

#include <stdlib.h>
#include <string.h>

tnx_status tnx_driver_select(const tnx_driver **out) {
  const char *name = getenv("TORCH_NEURONX_DRIVER"), *only = getenv("TORCH_NEURONX_COMPILE_ONLY");
  if (only && strcmp(only, "1") == 0) {
    *out = &tnx_driver_trn_offline;
    return TNX_OK;
  }
  if (!name || !*name || strcmp(name, "host") == 0) {
    *out = &tnx_driver_host;
    return TNX_OK;
  }
  if (strcmp(name, "trn") == 0) {
    TNX_TRY(tnx_driver_trn_probe());
    *out = &tnx_driver_trn;
    return TNX_OK;
  }
  return tnx_fail(TNX_INVALID_ARGUMENT, "TORCH_NEURONX_DRIVER is \"%.100s\", expected \"host\" or \"trn\"", name);
}
