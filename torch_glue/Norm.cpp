// Batch norm, whose training form changes its running statistics without saying so in the schema.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "Call.h"
#include "Fallback.h"
#include "Status.h"
#include "Stream.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

using Optional = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool defined(const Optional& t) {
  return t && t->defined();
}

// False: libtnx does not cover the case.
bool run_batch_norm(
    const at::Tensor& input, const Optional& weight, const Optional& bias, const Optional& mean, const Optional& var,
    bool training, double momentum, double eps, Three* out) {
  static const tnx_row* plain = tnx_row_find("native_batch_norm");
  static const tnx_row* updating = tnx_row_find("_native_batch_norm_legit_functional");
  bool update = training && defined(mean) && defined(var);
  const tnx_row* row = update ? updating : plain;
  if (!row) return false;
  for (const Optional* t : {&weight, &bias, &mean, &var}) {
    if (!defined(*t)) continue;
    TORCH_CHECK(
        (*t)->device() == input.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
        input.device(), " and ", (*t)->device(), "!");
  }
  Call call(row);
  if (!call.add_tensor(input)) return false;
  for (const Optional* t : {&weight, &bias}) {
    if (!defined(*t)) call.add_none();
    else if (!call.add_tensor(**t)) return false;
  }
  if (update) call.into.append(3, TNX_NO_TENSOR);
  for (const Optional* t : {&mean, &var}) {
    if (!defined(*t)) {
      call.add_none();
      continue;
    }
    if (!call.add_tensor(**t, update)) return false;
    if (update) call.into.push_back(static_cast<uint32_t>(call.tensors.size() - 1));
  }
  call.add_bool(training);
  call.add_float(momentum);
  call.add_float(eps);
  std::array<at::Tensor, 3> results;
  tnx_status status = run_new(call, input.device().index(), results.data(), 3);
  if (status == TNX_NOT_IMPLEMENTED) return false;
  check(status, "native_batch_norm");
  *out = {std::move(results[0]), std::move(results[1]), std::move(results[2])};
  return true;
}

Three native_batch_norm(
    const at::Tensor& input, const Optional& weight, const Optional& bias, const Optional& mean, const Optional& var,
    bool training, double momentum, double eps) {
  Three out;
  if (run_batch_norm(input, weight, bias, mean, var, training, momentum, eps, &out)) {
    TNX_COUNT_OP("aten::native_batch_norm");
    return out;
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm", "");
  torch::jit::Stack stack;
  torch::jit::push(stack, input, weight, bias, mean, var, training, momentum, eps);
  fall_back(op, &stack, "dtype or rank");
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

Three native_batch_norm_legit(
    const at::Tensor& input, const Optional& weight, const Optional& bias, at::Tensor& mean, at::Tensor& var, bool training,
    double momentum, double eps) {
  return native_batch_norm(input, weight, bias, mean, var, training, momentum, eps);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
  m.impl("_native_batch_norm_legit", TORCH_FN(native_batch_norm_legit));
}

} // namespace
} // namespace torch_neuronx
