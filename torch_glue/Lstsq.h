// Least squares by the drivers that find the rank.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_neuronx {

// gelsd and gelss give residuals where the matrix has full rank, which has to be read back: the result's size. Replaces the arguments on the stack
// by the results. False: another operator.
bool run_lstsq(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace torch_neuronx
