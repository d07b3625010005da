// PyTorch's Meta kernels as the judge of a call: they know PyTorch's error messages.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace torch_neuronx {

// Runs the operator's Meta kernel on copies of the arguments without data and returns its results. Throws what the kernel
// throws. nullopt: there is no such kernel, or it needs the data.
std::optional<torch::jit::Stack> run_meta(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

} // namespace torch_neuronx
