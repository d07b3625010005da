// PyTorch's Meta kernels as the judge of a call: they know PyTorch's error messages.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace torch_neuronx {

// A device key for which nobody registers kernels in this process: the dispatcher gives it PyTorch's composite ones.
constexpr c10::DispatchKey kUnclaimed = c10::DispatchKey::IPU;

// Lets PyTorch reject a call: if the operator's Meta kernel raises, so does this, with the words of the CPU kernel where that
// raises as well (some Meta kernels are written in Python and word their errors differently). Returns the Meta kernel's results;
// nullopt if there is no such kernel, or it needs the data.
std::optional<torch::jit::Stack> judge(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);
// For a call that libtnx has rejected: throws what PyTorch throws. Returns if PyTorch has nothing against it.
void raise_as_pytorch(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

// Runs the operator's Meta kernel on copies of the arguments without data and returns its results. Throws what the kernel
// throws. nullopt: there is no such kernel, or it needs the data.
std::optional<torch::jit::Stack> run_meta(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

} // namespace torch_neuronx
