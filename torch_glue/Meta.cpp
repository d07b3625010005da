#include "Meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "Tensor.h"

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

c10::IValue to_meta(const c10::IValue& v) {
  if (v.isTensor()) return to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(to_meta(t));
    return out;
  }
  if (v.isList() && v.toListRef().size() && v.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    auto list = v.toList();
    auto optional = list.elementType()->cast<c10::OptionalType>();
    if (optional->getElementType()->kind() != c10::TypeKind::TensorType) return v;
    c10::List<std::optional<at::Tensor>> out;
    for (const c10::IValue& e : v.toListRef())
      out.push_back(e.isTensor() ? std::optional<at::Tensor>(to_meta(e.toTensor())) : std::nullopt);
    return out;
  }
  if (v.isDevice()) return c10::Device(c10::kMeta);
  if (v.isGenerator()) return c10::IValue();
  return v;
}

} // namespace

std::optional<torch::jit::Stack> run_meta(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  torch::jit::Stack stack;
  stack.reserve(args.size());
  for (const c10::IValue& v : args) stack.push_back(to_meta(v));
  at::AutoDispatchBelowADInplaceOrView guard;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
  return stack;
}

} // namespace torch_neuronx
