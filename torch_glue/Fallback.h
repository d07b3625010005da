// Operators that run on the CPU: counted, announced once each, and an error on request.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

#include "Tracking.h"

namespace torch_neuronx {

enum class FallbackMode { Warn, Error, Silent };
// From TORCH_NEURONX_FALLBACK=warn|error|silent until somebody sets it.
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode mode);

// Replaces the arguments on the stack by the operator's results, computed on the CPU.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// The counted form, which obeys the mode. `reason` may be empty.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason);

} // namespace torch_neuronx
