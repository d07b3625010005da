// Scaled dot product attention put together from other operators, for the cases without a fused kernel.
#pragma once
#include <ATen/core/stack.h>

namespace torch_neuronx {

// Arguments of aten::_scaled_dot_product_fused_attention_overrideable and its backward on the stack; results instead.
void attention_from_parts(torch::jit::Stack* stack);
void attention_backward_from_parts(torch::jit::Stack* stack);

} // namespace torch_neuronx
