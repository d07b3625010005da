#include "Attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "Tensor.h"
#include "tnx/call.h"

namespace torch_neuronx {
namespace {

constexpr const char* kForward = "_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kBackward = "_scaled_dot_product_fused_attention_overrideable_backward";

// PyTorch's numbers for sdp::SDPBackend.
constexpr int64_t kMath = 0, kOverrideable = 4;

// Known sizes only: symbolic ones are guarded by whoever made them.
bool fit_together(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool enable_gqa) {
  for (const at::Tensor* t : {&q, &k, &v})
    if (t->unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return true;
  bool heads = enable_gqa ? k.size(1) > 0 && q.size(1) % k.size(1) == 0 : q.size(1) == k.size(1);
  return heads && k.size(1) == v.size(1) && q.size(0) == k.size(0) && q.size(0) == v.size(0) && q.size(3) == k.size(3) &&
      k.size(2) == v.size(2);
}

} // namespace

int64_t fused_sdp_choice(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double dropout_p,
    bool is_causal, std::optional<double> scale, bool enable_gqa) {
  static const tnx_row* forward = tnx_row_find(kForward);
  static const tnx_row* backward = tnx_row_find(kBackward);
  if (!forward) return kMath;
  if (!is_neuron(q) || !is_neuron(k) || !is_neuron(v)) return kMath;
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || !q.is_floating_point()) return kMath;
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) return kMath;
  if (!fit_together(q, k, v, enable_gqa)) return kMath; // its parts have PyTorch's words for what is wrong
  // Without the random numbers of a row of its own, dropout is left to the parts.
  if (dropout_p > 0 && !(forward->flags & TNX_ROW_RANDOM)) return kMath;
  if (mask && mask->defined() && mask->requires_grad()) return kMath;
  if ((q.requires_grad() || k.requires_grad() || v.requires_grad()) && !backward) return kMath;
  return kOverrideable;
}

namespace {

double scale_of(const at::Tensor& q, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
}

// Keys or values repeated so that they have a head for each query head.
at::Tensor expand_heads(const at::Tensor& t, int64_t heads) {
  if (t.size(1) == heads) return t;
  return t.repeat_interleave(heads / t.size(1), 1);
}
at::Tensor reduce_heads(const at::Tensor& grad, int64_t heads, at::ScalarType dtype) {
  if (grad.size(1) == heads) return grad.to(dtype);
  auto g = grad.reshape({grad.size(0), heads, grad.size(1) / heads, grad.size(2), grad.size(3)});
  return g.sum(2).to(dtype);
}

// scale * q k^T + mask, in float32 or wider.
at::Tensor scores(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask, bool is_causal, double scale) {
  at::Tensor s = at::matmul(q, k.transpose(-2, -1)).mul(scale);
  if (is_causal) {
    at::Tensor allowed = at::empty({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).fill_(true).tril();
    s = s.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (mask.defined()) {
    s = mask.scalar_type() == at::kBool ? s.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity())
                                        : s.add(mask.to(s.scalar_type()));
  }
  return s;
}

at::ScalarType wide(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// exp(scores - logsumexp): rows in which everything is masked give zeros.
at::Tensor probabilities(const at::Tensor& s, const at::Tensor& lse) {
  at::Tensor p = s.sub(lse.unsqueeze(-1)).exp();
  at::Tensor masked = lse.eq(-std::numeric_limits<double>::infinity()).unsqueeze(-1);
  return p.masked_fill(masked, 0);
}

at::Tensor tensor_or_undefined(const c10::IValue& v) {
  return v.isTensor() ? v.toTensor() : at::Tensor();
}

} // namespace

void attention_from_parts(torch::jit::Stack* stack) {
  // query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale
  constexpr size_t n = 8;
  auto arg = [&](size_t i) -> c10::IValue& { return torch::jit::peek(*stack, i, n); };
  at::Tensor query = arg(0).toTensor(), key = arg(1).toTensor(), value = arg(2).toTensor();
  at::Tensor mask = tensor_or_undefined(arg(3));
  TORCH_CHECK_NOT_IMPLEMENTED(arg(4).toDouble() == 0, "fused attention with dropout is not implemented for this case");
  bool causal = arg(5).toBool();
  double scale = scale_of(query, arg(7).toOptional<double>());
  at::ScalarType dtype = wide(query);
  at::Tensor q = query.to(dtype);
  at::Tensor k = expand_heads(key, q.size(1)).to(dtype), v = expand_heads(value, q.size(1)).to(dtype);
  at::Tensor s = scores(q, k, mask, causal, scale);
  at::Tensor lse = at::logsumexp(s, {-1}, false);
  at::Tensor out = at::matmul(probabilities(s, lse), v).to(query.scalar_type());
  int64_t max_q = query.size(2), max_k = key.size(2);
  torch::jit::drop(*stack, n);
  at::Tensor none;
  at::Tensor philox = at::empty({}, at::TensorOptions().dtype(at::kLong)).zero_();
  torch::jit::push(*stack, out, lse.to(at::kFloat), none, none, max_q, max_k, philox, philox, none);
}

void attention_backward_from_parts(torch::jit::Stack* stack) {
  // grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
  // dropout_p, is_causal, philox_seed, philox_offset, scale
  constexpr size_t n = 17;
  auto arg = [&](size_t i) -> c10::IValue& { return torch::jit::peek(*stack, i, n); };
  at::Tensor grad_out = arg(0).toTensor(), query = arg(1).toTensor(), key = arg(2).toTensor(), value = arg(3).toTensor();
  at::Tensor mask = tensor_or_undefined(arg(4));
  auto wanted = arg(5).toBoolList();
  at::Tensor out = arg(6).toTensor();
  TORCH_CHECK_NOT_IMPLEMENTED(arg(12).toDouble() == 0, "fused attention with dropout is not implemented for this case");
  bool causal = arg(13).toBool();
  double scale = scale_of(query, arg(16).toOptional<double>());
  at::ScalarType dtype = wide(query);
  int64_t heads = query.size(1);
  at::Tensor g = grad_out.to(dtype), q = query.to(dtype);
  at::Tensor k = expand_heads(key, heads).to(dtype), v = expand_heads(value, heads).to(dtype);
  at::Tensor s = scores(q, k, mask, causal, scale);
  at::Tensor p = probabilities(s, at::logsumexp(s, {-1}, false));
  at::Tensor grad_v = at::matmul(p.transpose(-2, -1), g);
  at::Tensor delta = g.mul(out.to(dtype)).sum(-1, true);
  at::Tensor grad_s = p.mul(at::matmul(g, v.transpose(-2, -1)).sub(delta));
  at::Tensor grad_q = at::matmul(grad_s, k).mul(scale).to(query.scalar_type());
  at::Tensor grad_k = reduce_heads(at::matmul(grad_s.transpose(-2, -1), q).mul(scale), key.size(1), key.scalar_type());
  grad_v = reduce_heads(grad_v, value.size(1), value.scalar_type());
  at::Tensor grad_mask;
  if (mask.defined() && wanted.size() > 3 && wanted[3]) grad_mask = grad_s.sum_to_size(mask.sizes()).to(mask.scalar_type());
  torch::jit::drop(*stack, n);
  torch::jit::push(*stack, grad_q, grad_k, grad_v, grad_mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
}

namespace {

void forward_parts(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  attention_from_parts(stack);
}
void backward_parts(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  attention_backward_from_parts(stack);
}

// torch.func.vmap has rules for the parts, and none for an operator that only other backends implement.
TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {
  m.impl(kForward, torch::CppFunction::makeFromBoxedFunction<&forward_parts>());
  m.impl(kBackward, torch::CppFunction::makeFromBoxedFunction<&backward_parts>());
}

} // namespace

} // namespace torch_neuronx
