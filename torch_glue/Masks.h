// Operators that read one number back (most for the size of their result) and are otherwise made of the table's operators.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace torch_neuronx {

// Flat row-major positions of the true elements of a mask.
at::Tensor true_positions(const at::Tensor& mask);

// Replaces bool and uint8 masks among the indices (argument 1 of the n_args on top of the stack) by the positions where they hold, as PyTorch's
// indexing does. False: there are none.
bool expand_masks(torch::jit::Stack* stack, size_t n_args);

} // namespace torch_neuronx
