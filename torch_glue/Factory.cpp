// Operators that make tensors without contents.
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "Allocator.h"
#include "Copy.h"
#include "Stream.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

c10::DeviceIndex device_for(std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  if (!device) return current_device();
  TORCH_CHECK(device->is_privateuseone(), "expected a neuron device but got ", *device);
  return checked_device(device->index());
}

void check_layout(std::optional<c10::Layout> layout) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "neuron tensors are strided; got layout ", *layout);
}

at::Tensor empty(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  TNX_COUNT_OP("aten::empty.memory_format");
  check_layout(layout);
  c10::DeviceIndex index = device_for(device, pin_memory);
  for (int64_t s : size)
    TORCH_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", size);
  at::Tensor t = make_contiguous(c10::dtype_or_default(dtype), size, index);
  if (format && *format != c10::MemoryFormat::Contiguous && *format != c10::MemoryFormat::Preserve)
    t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  fill_uninitialized(t);
  return t;
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  TNX_COUNT_OP("aten::empty_strided");
  check_layout(layout);
  c10::DeviceIndex index = device_for(device, pin_memory);
  for (int64_t s : size)
    TORCH_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", size);
  TORCH_CHECK(
      size.size() == stride.size(), "dimensionality of sizes (", size.size(), ") must match dimensionality of strides (",
      stride.size(), ")");
  at::Tensor t = make_strided(c10::dtype_or_default(dtype), size, stride, index);
  fill_uninitialized(t);
  return t;
}

// Zeros without memory, for gradients that are known to vanish. PyTorch's kernels for the key ZeroTensor give them memory before this backend would look
// at it; copies are the exception (Copy.cpp).
at::Tensor efficient_zeros(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  TNX_COUNT_OP("aten::_efficientzerotensor");
  check_layout(layout);
  struct NoMemory final : c10::Allocator {
    explicit NoMemory(c10::Device d) : device(d) {}
    static void nothing(void*) {}
    c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &nothing, device}; }
    c10::DeleterFnPtr raw_deleter() const override { return &nothing; }
    void copy_data(void*, const void*, std::size_t) const override {}
    c10::Device device;
  } allocator(neuron_device(device_for(device, pin_memory)));
  c10::DispatchKeySet keys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
}

} // namespace
} // namespace torch_neuronx
