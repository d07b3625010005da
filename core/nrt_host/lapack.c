/* libnrt on the host device: where its copy of libtnx finds LAPACK. The library that NRT_HOST_LAPACK names, else PyTorch's own where the process has it, else a system's.
 * Without any, programs with factorisations fail when they run; others need none. */
#include <dlfcn.h>
#include <stdlib.h>

#include "nrt_host/host.h"
#include "tnx/lapack.h"

static void *find(void *library, const char *name) { return dlsym(library, name); }

void host_lapack_provide(void) {
  static const char *const loaded[] = {"libtorch_cpu.so"}, *const systems[] = {"liblapack.so.3", "libopenblas.so.0"};
  const char *named = getenv("NRT_HOST_LAPACK");
  void *library = named && *named ? dlopen(named, RTLD_LAZY) : NULL;
  for (size_t i = 0; !library && i < sizeof loaded / sizeof *loaded; i++) library = dlopen(loaded[i], RTLD_LAZY | RTLD_NOLOAD);
  for (size_t i = 0; !library && i < sizeof systems / sizeof *systems; i++) library = dlopen(systems[i], RTLD_LAZY);
  if (library) tnx_lapack_provide(find, library); /* the handle is kept: routines are used until the process ends */
}
