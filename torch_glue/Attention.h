// Scaled dot product attention put together from other operators, for the cases without a fused kernel.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>

namespace torch_neuronx {

// Which of PyTorch's attention back ends takes a call (numbers of sdp::SDPBackend): the fused one wherever the table's row
// covers it, else the parts.
int64_t fused_sdp_choice(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double dropout_p,
    bool is_causal, std::optional<double> scale, bool enable_gqa);

// Arguments of aten::_scaled_dot_product_fused_attention_overrideable and its backward on the stack; results instead.
void attention_from_parts(torch::jit::Stack* stack);
void attention_backward_from_parts(torch::jit::Stack* stack);

} // namespace torch_neuronx
