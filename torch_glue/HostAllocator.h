// Pinned host memory for PyTorch.
#pragma once
#include <c10/core/Allocator.h>

namespace torch_neuronx {

c10::Allocator* pinned_allocator();

} // namespace torch_neuronx
