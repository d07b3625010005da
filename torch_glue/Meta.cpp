#include "Meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>

#include "Tensor.h"

namespace py = pybind11;

namespace torch_neuronx {
namespace {

at::Tensor to_meta(const at::Tensor& t) {
  if (!is_neuron(t)) return t;
  at::Tensor m = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
  if (t.storage_offset()) {
    // The storage is as long as the tensor's own, so that views of it stay in bounds.
    c10::StorageImpl* storage = m.storage().unsafeGetStorageImpl();
    storage->set_nbytes(t.storage().nbytes());
    m.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  }
  return m;
}

// The same shape on the CPU; integers are zero, so that they are indices of something.
at::Tensor to_blank(const at::Tensor& t) {
  if (!is_neuron(t)) return t;
  at::Tensor blank = at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type());
  if (!t.is_floating_point() && !t.is_complex() && blank.nbytes()) std::memset(blank.mutable_data_ptr(), 0, blank.storage().nbytes());
  return blank;
}

template <typename F>
c10::IValue convert(const c10::IValue& v, c10::DeviceType device, F&& tensor) {
  if (v.isTensor()) return tensor(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(tensor(t));
    return out;
  }
  if (v.isList()) {
    auto list = v.toList();
    auto optional = list.elementType()->cast<c10::OptionalType>();
    if (!optional || optional->getElementType()->kind() != c10::TypeKind::TensorType) return v;
    c10::List<std::optional<at::Tensor>> out;
    for (const c10::IValue& e : v.toListRef())
      out.push_back(e.isTensor() ? std::optional<at::Tensor>(tensor(e.toTensor())) : std::nullopt);
    return out;
  }
  if (v.isDevice()) return c10::Device(device);
  if (v.isGenerator()) return c10::IValue();
  return v;
}

// Beyond this nobody gets a better worded error message.
constexpr size_t kMaxBlankBytes = size_t{1} << 28;

size_t bytes_of(c10::ArrayRef<c10::IValue> args) {
  size_t total = 0;
  auto add = [&](const at::Tensor& t) {
    if (is_neuron(t)) total += bytes_for(t.sizes(), t.strides(), 0, t.itemsize());
    return t;
  };
  for (const c10::IValue& v : args) convert(v, c10::kCPU, add);
  return total;
}

} // namespace

// PyTorch's Meta kernels of operators over lists check nothing; its loop over the elements does.
static c10::DispatchKey meta_key(const c10::OperatorHandle& op) {
  bool loop = op.operator_name().name.rfind("aten::_foreach_", 0) == 0 &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  return loop ? kUnclaimed : c10::DispatchKey::Meta;
}

std::optional<torch::jit::Stack> run_meta(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  torch::jit::Stack stack;
  stack.reserve(args.size());
  for (const c10::IValue& v : args)
    stack.push_back(convert(v, c10::kMeta, [](const at::Tensor& t) { return to_meta(t); }));
  at::AutoDispatchBelowADInplaceOrView guard;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(meta_key(op)), &stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  } catch (py::error_already_set& error) {
    // Some of PyTorch's Meta kernels trip over an optional tensor that is not given: that says nothing about the call.
    py::gil_scoped_acquire gil;
    if (!error.matches(PyExc_AttributeError)) throw;
    return std::nullopt;
  }
  return stack;
}

static void raise_as_cpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) || bytes_of(args) > kMaxBlankBytes) return;
  torch::jit::Stack stack;
  stack.reserve(args.size());
  for (const c10::IValue& v : args)
    stack.push_back(convert(v, c10::kCPU, [](const at::Tensor& t) { return to_blank(t); }));
  at::AutoDispatchBelowADInplaceOrView guard;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::NotImplementedError&) {
    return;
  }
}

std::optional<torch::jit::Stack> judge(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  try {
    return run_meta(op, args);
  } catch (...) {
    raise_as_cpu(op, args);
    throw;
  }
}

void raise_as_pytorch(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  raise_as_cpu(op, args);
  run_meta(op, args);
}

} // namespace torch_neuronx
