// Runs operators on the CPU, and connects to PyTorch's native internals where it offers no other way; no other file does.
#include "Fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/transformers/attention.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "Attention.h"
#include "Generator.h"
#include "Stream.h"
#include "Tensor.h"
#include "tnx/call.h"

namespace torch_neuronx {
namespace {

FallbackMode mode_from_environment() {
  const char* v = std::getenv("TORCH_NEURONX_FALLBACK");
  if (!v || !*v || !std::strcmp(v, "warn")) return FallbackMode::Warn;
  if (!std::strcmp(v, "error")) return FallbackMode::Error;
  if (!std::strcmp(v, "silent")) return FallbackMode::Silent;
  TORCH_WARN("TORCH_NEURONX_FALLBACK=", v, " is not one of warn, error, silent; using warn");
  return FallbackMode::Warn;
}
std::atomic<FallbackMode>& mode_slot() {
  static std::atomic<FallbackMode> mode{mode_from_environment()};
  return mode;
}

std::string full_name(const c10::OperatorHandle& op) {
  const auto& n = op.operator_name();
  return n.overload_name.empty() ? n.name : n.name + "." + n.overload_name;
}

// The first neuron device among the arguments.
c10::DeviceIndex device_of(c10::ArrayRef<c10::IValue> args) {
  for (const c10::IValue& v : args) {
    if (v.isTensor() && is_neuron(v.toTensor())) return v.toTensor().device().index();
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector())
        if (is_neuron(t)) return t.device().index();
    if (v.isDevice() && v.toDevice().is_privateuseone() && v.toDevice().has_index()) return v.toDevice().index();
  }
  return current_device();
}

std::string describe_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  std::ostringstream out;
  const auto& schema = op.schema().arguments();
  auto show = [&](const at::Tensor& t) {
    if (t.defined()) out << t.scalar_type() << t.sizes();
    else out << "None";
  };
  const char* separator = "";
  for (size_t i = 0; i < args.size() && i < schema.size(); i++) {
    if (args[i].isTensor()) {
      out << separator << schema[i].name() << ": ";
      show(args[i].toTensor());
    } else if (args[i].isTensorList()) {
      out << separator << schema[i].name() << ": [";
      const char* inner = "";
      for (const at::Tensor& t : args[i].toTensorVector()) {
        out << inner;
        show(t);
        inner = ", ";
      }
      out << "]";
    } else {
      continue;
    }
    separator = ", ";
  }
  return out.str();
}

bool is_kind(const c10::Argument& a, c10::TypeKind kind) {
  c10::TypePtr type = a.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == kind;
}

// A random operator draws from a CPU generator that this device's generator seeds, so torch.manual_seed and the saved
// states of neuron generators keep their meaning.
void substitute_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema().arguments();
  auto args = torch::jit::last(*stack, schema.size());
  for (size_t i = 0; i < schema.size(); i++) {
    if (!is_kind(schema[i], c10::TypeKind::GeneratorType)) continue;
    auto given = args[i].toOptional<at::Generator>();
    if (given && given->defined() && given->device().is_cpu()) continue;
    auto [seed, offset] = generator_or_default(given, device_of(args))->draw(4);
    torch::jit::peek(*stack, i, schema.size()) =
        at::detail::createCPUGenerator(seed ^ (offset * uint64_t{0x9e3779b97f4a7c15}));
  }
}

// Operators that change tensors which their schema does not mark as changed.
bool writes_running_statistics(std::string_view name) {
  return name == "aten::native_batch_norm" || name == "aten::batch_norm_update_stats";
}

// ---- sparse tensors ----

bool is_sparse(const at::Tensor& t) {
  return t.defined() && t.layout() != at::kStrided;
}

bool has_sparse(c10::ArrayRef<c10::IValue> args) {
  for (const c10::IValue& v : args) {
    if (v.isTensor() && is_sparse(v.toTensor())) return true;
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector())
        if (is_sparse(t)) return true;
  }
  return false;
}

template <typename F>
c10::IValue with_tensors(const c10::IValue& v, F&& f) {
  if (v.isTensor()) return v.toTensor().defined() ? c10::IValue(f(v.toTensor())) : v;
  if (!v.isTensorList()) return v;
  c10::List<at::Tensor> out;
  for (const at::Tensor& t : v.toTensorVector()) out.push_back(t.defined() ? f(t) : t);
  return out;
}

void take_over(const at::Tensor& target, const at::Tensor& result) {
  if (!is_sparse(target)) {
    if (target.sizes() != result.sizes()) target.resize_(result.sizes());
  } else {
    target.resize_as_sparse_(result);
  }
  target.copy_(result);
}

// Copies of arguments on the CPU. What is one tensor stays one: an out tensor may be an argument too.
class HostCopies {
 public:
  at::Tensor of(const at::Tensor& t) {
    for (auto& [from, copy] : made_)
      if (from.is_same(t)) return copy;
    at::Tensor copy = t.cpu();
    // A kernel may keep what its derivative needs only if one is asked for (_sparse_mm_reduce_impl).
    if (t.requires_grad() && !copy.requires_grad()) copy.set_requires_grad(true);
    return made_.emplace_back(t, std::move(copy)).second;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
};

// PyTorch's fallback knows strided tensors only.
void sparse_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  size_t n = schema.arguments().size();
  c10::Device device = neuron_device(device_of(torch::jit::last(*stack, n)));
  HostCopies copies;
  std::vector<c10::IValue> given(stack->end() - static_cast<int64_t>(n), stack->end());
  for (size_t i = 0; i < n; i++) {
    c10::IValue& v = torch::jit::peek(*stack, i, n);
    if (v.isDevice()) v = c10::Device(c10::kCPU);
    else v = with_tensors(v, [&](const at::Tensor& t) { return copies.of(t); });
  }
  std::vector<c10::IValue> on_host(stack->end() - static_cast<int64_t>(n), stack->end());
  op.callBoxed(stack);
  for (size_t i = 0; i < n; i++) {
    const c10::AliasInfo* info = schema.arguments()[i].alias_info();
    if (!info || !info->isWrite() || !given[i].isTensor()) continue;
    if (is_neuron(given[i].toTensor())) take_over(given[i].toTensor(), on_host[i].toTensor());
  }
  size_t returns = schema.returns().size();
  for (size_t r = 0; r < returns; r++) {
    c10::IValue& v = torch::jit::peek(*stack, r, returns);
    const c10::AliasInfo* info = schema.returns()[r].alias_info();
    size_t same = n;
    for (size_t i = 0; info && i < n; i++)
      if (const c10::AliasInfo* a = schema.arguments()[i].alias_info(); a && a->isWrite() && a->beforeSets() == info->beforeSets()) same = i;
    v = same < n ? given[same] : with_tensors(v, [&](const at::Tensor& t) { return t.to(device); });
  }
}

void convolution_on_cpu(torch::jit::Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  at::native::cpu_fallback(op, stack);
}

void convolution_backward_on_cpu(torch::jit::Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  // convolution_backward takes the bias sizes in addition, behind the weight.
  constexpr size_t n = 10;
  auto bias = c10::List<int64_t>({torch::jit::peek(*stack, 0, n).toTensor().size(1)});
  stack->insert(stack->end() - static_cast<int64_t>(n - 3), c10::IValue(bias));
  at::native::cpu_fallback(op, stack);
}

} // namespace

FallbackMode fallback_mode() {
  return mode_slot().load(std::memory_order_relaxed);
}
void set_fallback_mode(FallbackMode mode) {
  mode_slot().store(mode, std::memory_order_relaxed);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::convolution_overrideable") return convolution_on_cpu(stack);
  if (name == "aten::convolution_backward_overrideable") return convolution_backward_on_cpu(stack);
  if (name == "aten::_scaled_dot_product_fused_attention_overrideable") return attention_from_parts(stack);
  if (name == "aten::_scaled_dot_product_fused_attention_overrideable_backward")
    return attention_backward_from_parts(stack);
  substitute_generator(op, stack);
  if (has_sparse(torch::jit::last(*stack, op.schema().arguments().size()))) return sparse_on_cpu(op, stack);
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> changed; // on the device, on the CPU
  if (writes_running_statistics(name)) {
    const auto& schema = op.schema().arguments();
    for (size_t i = 0; i < schema.size(); i++) {
      if (schema[i].name() != "running_mean" && schema[i].name() != "running_var") continue;
      c10::IValue& v = torch::jit::peek(*stack, i, schema.size());
      if (!v.isTensor() || !is_neuron(v.toTensor())) continue;
      changed.emplace_back(v.toTensor(), v.toTensor().cpu());
      v = changed.back().second;
    }
  }
  at::native::cpu_fallback(op, stack);
  for (auto& [device, host] : changed) device.copy_(host);
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
  std::string name = full_name(op);
  OpCounter* counter = op_counter(name);
  FallbackMode mode = fallback_mode();
  if (mode == FallbackMode::Error) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "The operator '", name, "' is not implemented natively on neuron for (",
        describe_arguments(op, torch::jit::last(*stack, op.schema().arguments().size())), ")",
        reason.empty() ? "" : ": ", reason, ". TORCH_NEURONX_FALLBACK=error forbids running it on the CPU.");
  }
  OpCounter::bump(counter->fallback);
  if (mode == FallbackMode::Warn && !counter->warned.exchange(true, std::memory_order_relaxed)) {
    TORCH_WARN(
        "The operator '", name, "' is not implemented natively on neuron", reason.empty() ? "" : " for this case (",
        reason, reason.empty() ? "" : ")",
        " and runs on the CPU. torch.neuron.fallback_counts() lists all such operators; TORCH_NEURONX_FALLBACK=error "
        "makes them errors, TORCH_NEURONX_FALLBACK=silent hides this message.");
  }
  run_on_cpu(op, stack);
}

namespace {

void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fall_back(op, stack, "");
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

// PyTorch gives these a kernel that raises for every device; without a row of the table they run on the CPU.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"convolution_overrideable", "convolution_backward_overrideable"})
    if (!tnx_row_find(name)) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

} // namespace
} // namespace torch_neuronx

namespace at::native {
// scaled_dot_product_attention asks this stub, not the operator _fused_sdp_choice.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_neuronx::fused_sdp_choice)
} // namespace at::native
