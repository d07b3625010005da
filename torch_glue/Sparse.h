// Sparse tensors and the CPU fallback; see Sparse.cpp.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_neuronx {

// _embedding_bag_backward with a sparse gradient, of PyTorch's composition. False, and nothing done: it is not that operator, or not sparse.
bool run_sparse_embedding_bag_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace torch_neuronx
