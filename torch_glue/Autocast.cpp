// Autocast for the device, with PyTorch's own operator lists.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torch_neuronx {
namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;
using c10::IntArrayRef;

at::Tensor binary_cross_entropy_banned(
    const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
      "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
      "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
      "safe to autocast.");
}

} // namespace
} // namespace torch_neuronx

// The registration macros name things of at::autocast unqualified.
namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TNX_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TNX_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TNX_FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TNX_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TNX_LOWER)
  AT_FORALL_FP32(TNX_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TNX_FP32_SET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TNX_PROMOTE)
#undef TNX_LOWER
#undef TNX_FP32
#undef TNX_FP32_SET
#undef TNX_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(torch_neuronx::binary_cross_entropy_banned));
}

} // namespace at::autocast
