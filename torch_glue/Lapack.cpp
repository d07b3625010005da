// Where libtnx finds LAPACK: in the library that PyTorch was built with, which exports it. Nothing else needs to be installed, and nothing is linked.
#include <ATen/Context.h>
#include <dlfcn.h>

#include <tnx/lapack.h>

namespace torch_neuronx {
namespace {

// dlsym on the library's own handle looks through it and what it was linked with, and not through what else the process has loaded.
struct Provider {
  Provider() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&at::globalContext), &info)) return;
    void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    tnx_lapack_provide([](void* ctx, const char* name) { return dlsym(ctx, name); }, library);
    // The handle is kept: the routines are used until the process ends.
  }
};
Provider provider;

} // namespace
} // namespace torch_neuronx
