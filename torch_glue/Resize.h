// Changing the size of storages and tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_neuronx {

// New memory of `bytes`, with the old contents as far as they fit.
void resize_storage(c10::StorageImpl* storage, size_t bytes);
// Sizes with contiguous strides, or the given strides; the storage grows if it must and never shrinks.
void resize_tensor(c10::TensorImpl* self, c10::IntArrayRef sizes, c10::OptionalIntArrayRef strides = std::nullopt);
// Gives an `out` tensor the size of the result, with PyTorch's warning where a non-empty tensor changes.
void resize_output(const at::Tensor& out, c10::IntArrayRef sizes, c10::OptionalIntArrayRef strides = std::nullopt);

} // namespace torch_neuronx
