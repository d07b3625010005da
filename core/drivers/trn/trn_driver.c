/* Trainium and Inferentia through the Neuron runtime's C API (libnrt.so.1, loaded at run time so that nothing depends on it).
 * This build finds the library and says what is missing; it cannot run work on the hardware. */
#include <dlfcn.h>
#include <glob.h>

#include "drivers/driver.h"

tnx_status tnx_driver_trn_probe(void) {
  void *lib = dlopen("libnrt.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    const char *why = dlerror();
    return tnx_fail(TNX_DEVICE,
                    "TORCH_NEURONX_DRIVER=trn needs the Neuron runtime library libnrt.so.1, which could not be loaded (%.300s). It is part of the package "
                    "aws-neuronx-runtime-lib; its folder, usually /opt/aws/neuron/lib, must be in the loader's path",
                    why ? why : "no reason given");
  }
  bool complete = dlsym(lib, "nrt_init") && dlsym(lib, "nrt_load") && dlsym(lib, "nrt_execute") && dlsym(lib, "nrt_tensor_allocate");
  dlclose(lib);
  if (!complete) return tnx_fail(TNX_DEVICE, "TORCH_NEURONX_DRIVER=trn: libnrt.so.1 was loaded but lacks nrt_init, nrt_load, nrt_execute or nrt_tensor_allocate");
  glob_t found;
  bool device = glob("/dev/neuron[0-9]*", 0, NULL, &found) == 0;
  if (device) globfree(&found);
  if (!device) return tnx_fail(TNX_DEVICE, "TORCH_NEURONX_DRIVER=trn: libnrt.so.1 was found but there is no /dev/neuron* device (is the kernel module of aws-neuronx-dkms loaded?)");
  return tnx_fail(TNX_NOT_IMPLEMENTED, "TORCH_NEURONX_DRIVER=trn: libnrt.so.1 and a Neuron device were found, but this build has no execution on trn yet; use TORCH_NEURONX_DRIVER=host");
}
