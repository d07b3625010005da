// What runs for each operator with sparse tensors of the device.
//
// Nearly all of PyTorch's kernels for the sparse layouts are written in terms of operators on indices and values and know no device: it registers the same functions for
// the CPU and for accelerators. Those run here as they are, and what they call runs on the device. Kernels that read the processor's memory are replaced, or
// the operator runs on the CPU like any other that the device lacks, counted.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "Fallback.h"
#include "Sparse.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

using c10::DispatchKey;
using Names = std::vector<std::string_view>;

// Runs the kernel that PyTorch has registered under `key`, one of the CPU's.
struct ForeignKernel final : c10::OperatorKernel {
  DispatchKey key;
  OpCounter* counter;

  ForeignKernel(DispatchKey k, OpCounter* c) : key(k), counter(c) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    // Parts that it makes before it has looked at its arguments are to lie where they do.
    c10::OptionalDeviceGuard guard;
    for (const c10::IValue& v : torch::jit::last(*stack, op.schema().arguments().size())) {
      if (v.isTensor() && is_neuron(v.toTensor()) && !guard.current_device()) guard.reset_device(v.toTensor().device());
      if (v.isDevice() && v.toDevice().is_privateuseone() && v.toDevice().has_index()) guard.reset_device(v.toDevice());
    }
    op.redispatchBoxed(c10::DispatchKeySet(key), stack);
    counter->ran();
  }
};

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fall_back(op, stack, "sparse layout");
}

torch::CppFunction foreign(DispatchKey key, const std::string& name) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ForeignKernel>(key, op_counter("aten::" + name)));
}

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Every operator that PyTorch has a kernel for under the CPU's key `from`; `own`: those this library has itself (Sparse.cpp, SparseCsr.cpp), `host`: those whose kernel
// reads the processor's memory.
void register_layout(torch::Library& m, DispatchKey from, const Names& own, const Names& host) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& n : dispatcher.getAllOpNames()) {
    if (n.name.rfind("aten::", 0) != 0) continue;
    auto op = dispatcher.findSchema(n);
    if (!op || !op->hasKernelForDispatchKey(from)) continue;
    std::string name = n.name.substr(6) + (n.overload_name.empty() ? "" : "." + n.overload_name);
    if (has(own, name)) continue;
    if (has(host, name)) m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
    else m.impl(name.c_str(), foreign(from, name));
  }
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  register_layout(
      m, DispatchKey::SparseCPU,
      {"_coalesce", "_sparse_mask_projection", "_sparse_sparse_matmul", "_sparse_sum_backward", "add.out", "addmm", "addmm.out", "addmm_", "bmm", "bmm.out",
       "index_select", "mul.out", "sparse_mask"},
      {"_pin_memory", "_sparse_log_softmax", "_sparse_log_softmax_backward_data", "_sparse_softmax", "_sparse_softmax_backward_data", "hspmm", "hspmm.out",
       "is_pinned", "sspaddmm.out"});
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  register_layout(
      m, DispatchKey::SparseCsrCPU,
      {"_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr", "add.out", "addmm.out", "addmv.out", "sparse_sampled_addmm", "sparse_sampled_addmm.out"},
      {"_pin_memory", "_sparse_csr_prod.dim_dtype", "_sparse_csr_sum.dim_dtype", "_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward", "is_pinned",
       "triangular_solve.X"});
}

// From dense tensors.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"})
    m.impl(name, foreign(DispatchKey::CPU, name));
}

} // namespace

bool run_sparse_embedding_bag_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (op.operator_name().name != "aten::_embedding_bag_backward") return false;
  constexpr size_t n = 12, sparse = 9;
  if (!torch::jit::peek(*stack, sparse, n).toBool()) return false;
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::CPU), stack);
  return true;
}

} // namespace torch_neuronx
