// The one adapter through which every operator of libtnx's table runs.
//
// At registration an operator's schema is turned into a list of conversions; a call converts the arguments on the stack,
// asks libtnx for the plan, allocates the results, queues the plan and returns. What libtnx rejects is shown to PyTorch's Meta
// kernel first, so that errors have PyTorch's words; what it does not cover goes to the CPU.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "Call.h"
#include "Fallback.h"
#include "Masks.h"
#include "Generator.h"
#include "Lstsq.h"
#include "Meta.h"
#include "Resize.h"
#include "Schema.h"
#include "Sparse.h"
#include "Status.h"
#include "Stream.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

enum class Form : uint8_t { Functional, Inplace, Out };

// Where the arguments of a call come from and where its results go. Made once per overload.
struct Layout {
  Form form = Form::Functional;
  const tnx_row* row = nullptr;
  uint32_t n_stack = 0;
  std::vector<RowArg> args;        // what libtnx is given, in order
  std::vector<uint32_t> written;   // stack positions of tensors (or lists) the operator writes, in schema order
  std::vector<int32_t> returns;    // per schema return: the stack position it aliases, or -1 for a new tensor
  std::vector<bool> returns_int;   // the return is an integer (sizes that attention reports)
  int32_t generator = -1, device = -1;
  bool moves_indices = false;      // index tensors may live on the CPU
};

[[noreturn]] C10_NOINLINE void raise_devices(c10::DeviceIndex device, c10::Device other) {
  TORCH_CHECK(
      false, "Expected all tensors to be on the same device, but found at least two devices, ", neuron_device(device),
      " and ", other, "!");
  __builtin_unreachable();
}

struct TableKernel final : c10::OperatorKernel {
  Layout layout;
  OpCounter* counter;

  TableKernel(Layout l, OpCounter* c) : layout(std::move(l)), counter(c) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    c10::IValue* args = stack->data() + (stack->size() - layout.n_stack);
    if (C10_UNLIKELY(layout.generator >= 0 && layout.form == Form::Inplace) && drawn_for_host(op, stack, args)) return;
    Call call(layout.row);
    c10::DeviceIndex device = layout.form == Form::Out ? device_of_outputs(args) : -1;
    if (C10_UNLIKELY(!convert(call, args, &device))) return uncovered(op, stack, "dtype or rank");
    if (C10_UNLIKELY(device < 0)) device = device_argument(args);

    int64_t *seed = nullptr, *offset = nullptr;
    if (C10_UNLIKELY(layout.row->flags & TNX_ROW_RANDOM)) {
      uint32_t index = 0;
      seed = call.push_host_int(&index);
      call.add(TNX_ARG_TENSOR).value = index;
      offset = call.push_host_int(&index);
      call.add(TNX_ARG_TENSOR).value = index;
    }

    PlanRef plan;
    bool fresh = false;
    if (layout.form == Form::Out) {
      bool first_fresh = false;
      if (tnx_status s = call.prepare(plan, &first_fresh); C10_UNLIKELY(s != TNX_OK)) return failed(op, stack, s);
      if (C10_UNLIKELY(first_fresh)) check_fresh(op, stack, call, plan, false);
      resize_outputs(call, args, plan.plan);
    }
    set_targets(call, args);
    if (tnx_status s = call.prepare(plan, &fresh); C10_UNLIKELY(s != TNX_OK)) return failed(op, stack, s);
    if (C10_UNLIKELY(fresh)) check_fresh(op, stack, call, plan, true);
    if (C10_UNLIKELY(seed)) draw(call, args, plan.plan, device, seed, offset);

    tnx_stream* stream = current_stream_handle(device);
    record_use(call, stream);
    uint32_t n = tnx_plan_result_count(plan.plan);
    c10::SmallVector<at::Tensor, 4> results(n);
    c10::SmallVector<void*, 8> memory(std::max<size_t>(n, 1), nullptr);
    for (uint32_t i = 0; i < n; i++) {
      if (i < call.into.size() && call.into[i] != TNX_NO_TENSOR) continue;
      const tnx_result* r = tnx_plan_result(plan.plan, i);
      if (r->none) continue;
      auto rank = static_cast<size_t>(r->rank);
      results[i] = make_tensor(
          to_torch(static_cast<tnx_dtype>(r->dtype)), {r->sizes, rank}, {r->strides, rank}, r->bytes, device, stream);
      memory[i] = const_cast<void*>(results[i].storage().data());
    }
    check(call.launch(plan.plan, memory.data(), stream));
    counter->ran();
    give_back(stack, args, results);
  }

 private:
  // ---- arguments ----

  bool convert(Call& call, c10::IValue* args, c10::DeviceIndex* device) {
    for (const RowArg& a : layout.args) {
      if (C10_UNLIKELY(a.source < 0)) {
        if (!add_missing(call, a, args)) return false;
        continue;
      }
      c10::IValue& v = args[a.source];
      switch (a.kind) {
        case ArgKind::Tensor: {
          if (v.isNone()) {
            call.add_none();
            break;
          }
          uint32_t index = TNX_NO_TENSOR;
          if (C10_UNLIKELY(!tensor(call, v, a.written, device, &index))) return false;
          if (index == TNX_NO_TENSOR) call.add_none();
          else call.add(TNX_ARG_TENSOR).value = index;
          break;
        }
        case ArgKind::TensorList: {
          if (v.isNone()) {
            call.add_none();
            break;
          }
          c10::ArrayRef<c10::IValue> list = v.toListRef();
          auto* values = call.take<uint32_t>(list.size());
          for (size_t i = 0; i < list.size(); i++) {
            values[i] = TNX_NO_TENSOR;
            c10::IValue& element = const_cast<c10::IValue&>(list[i]);
            if (element.isNone()) continue;
            if (C10_UNLIKELY(layout.moves_indices && element.toTensor().defined() && !is_neuron(element.toTensor()))) {
              // As on other accelerators: indices on the CPU are taken along.
              call.keep.push_back(element.toTensor().to(neuron_device(*device < 0 ? current_device() : *device)));
              if (!call.push_device_tensor(call.keep.back().unsafeGetTensorImpl(), false, &values[i])) return false;
              continue;
            }
            if (C10_UNLIKELY(!tensor(call, element, a.written, device, &values[i]))) return false;
          }
          tnx_arg& out = call.add(TNX_ARG_TENSORS);
          out.values = values;
          out.count = static_cast<uint32_t>(list.size());
          break;
        }
        case ArgKind::Float:
        case ArgKind::Scalar:
          if (C10_UNLIKELY(layout.row->flags & TNX_ROW_NUMBERS) && v.isScalar()) {
            call.add_number(v.toScalar());
            break;
          }
          [[fallthrough]];
        case ArgKind::ScalarList:
          if (C10_UNLIKELY(layout.row->flags & TNX_ROW_NUMBERS) && v.isList()) {
            call.add_numbers(v.toListRef());
            break;
          }
          [[fallthrough]];
        default:
          if (C10_UNLIKELY(!add_value(call, a.kind, v))) return false;
      }
    }
    return true;
  }

  // Describes a tensor argument; *index stays TNX_NO_TENSOR for an undefined one.
  bool tensor(Call& call, c10::IValue& v, bool written, c10::DeviceIndex* device, uint32_t* index) {
    c10::TensorImpl* impl = v.unsafeToTensorImpl();
    if (C10_UNLIKELY(impl == c10::UndefinedTensorImpl::singleton())) return true;
    if (C10_LIKELY(is_neuron(impl))) {
      c10::DeviceIndex where = impl->device().index();
      if (*device < 0) *device = where;
      else if (C10_UNLIKELY(*device != where)) return refused(*device, impl->device());
      if (C10_UNLIKELY(impl->key_set().has_any(
              c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})))) {
        if (written) return false;
        call.keep.push_back(v.toTensor().resolve_conj().resolve_neg());
        impl = call.keep.back().unsafeGetTensorImpl();
      }
      return call.push_device_tensor(impl, written, index);
    }
    if (C10_LIKELY(!written && impl->device_type() == c10::DeviceType::CPU && impl->dim() == 0))
      return call.push_host_scalar(impl, index);
    return refused(*device < 0 ? current_device() : *device, impl->device());
  }

  // Elements of lists may be on different devices.
  bool refused(c10::DeviceIndex device, c10::Device other) const {
    if (!(layout.row->flags & TNX_ROW_EACH)) raise_devices(device, other);
    return false;
  }

  c10::DeviceIndex device_of_outputs(c10::IValue* args) {
    c10::DeviceIndex device = -1;
    for (uint32_t position : layout.written) {
      for_each_written(args, position, [&](const at::Tensor& t) {
        if (!is_neuron(t)) return;
        if (device < 0) device = t.device().index();
        else if (device != t.device().index()) raise_devices(device, t.device());
      });
    }
    return device;
  }

  c10::DeviceIndex device_argument(const c10::IValue* args) const {
    if (layout.device >= 0 && args[layout.device].isDevice()) {
      c10::Device d = args[layout.device].toDevice();
      if (d.is_privateuseone()) return checked_device(d.index());
    }
    return checked_device(-1);
  }

  // An argument of the functional overload that this overload does not have.
  bool add_missing(Call& call, const RowArg& a, const c10::IValue* args) {
    if (a.kind == ArgKind::DType && layout.form != Form::Functional && !layout.written.empty()) {
      const c10::IValue& target = args[layout.written[0]];
      if (!target.isTensor()) return false;
      tnx_dtype dtype = to_tnx(target.toTensor().scalar_type());
      if (dtype == TNX_DTYPE_NONE) return false;
      call.add_dtype(dtype);
      return true;
    }
    if (a.has_default && a.kind != ArgKind::Tensor && a.kind != ArgKind::TensorList) return add_value(call, a.kind, a.default_value);
    call.add_none();
    return true;
  }

  // ---- results ----

  template <typename F>
  void for_each_written(c10::IValue* args, uint32_t position, F&& f) {
    c10::IValue& v = args[position];
    if (v.isTensor()) {
      f(v.toTensor());
    } else if (v.isTensorList()) {
      for (const c10::IValue& e : v.toListRef()) f(e.toTensor());
    }
  }

  // Results come in this order: the schema's returns, then what is written without being returned.
  void set_targets(Call& call, c10::IValue* args) {
    if (layout.written.empty()) return;
    auto push = [&](uint32_t position) {
      for_each_written(args, position, [&](const at::Tensor& t) {
        uint32_t index = TNX_NO_TENSOR;
        if (t.defined()) index = index_of(call, t);
        call.into.push_back(index);
      });
    };
    for (size_t i = 0; i < layout.returns.size(); i++) {
      if (layout.returns_int[i]) continue;
      if (layout.returns[i] < 0) call.into.push_back(TNX_NO_TENSOR);
      else push(static_cast<uint32_t>(layout.returns[i]));
    }
    for (uint32_t position : layout.written)
      if (std::find(layout.returns.begin(), layout.returns.end(), static_cast<int32_t>(position)) == layout.returns.end())
        push(position);
  }

  // The described tensor with t's memory and shape, added if it is not an argument (out tensors).
  uint32_t index_of(Call& call, const at::Tensor& t) {
    tnx_tensor wanted;
    TORCH_CHECK(
        is_neuron(t), "Expected all tensors to be on the same device, but found at least two devices, neuron:0 and ",
        t.device(), "!");
    TORCH_CHECK_NOT_IMPLEMENTED(
        describe(t.unsafeGetTensorImpl(), true, &wanted), "neuron tensors of dtype ", t.scalar_type(), " and rank ",
        t.dim(), " cannot be written");
    // Written tensors come in the arguments' order, so that the search goes on behind the last one found.
    auto n = static_cast<uint32_t>(call.tensors.size());
    for (uint32_t step = 0, i = call.into.empty() || call.into.back() == TNX_NO_TENSOR ? 0 : call.into.back() + 1; step < n; step++, i++) {
      if (i >= n) i = 0;
      const tnx_tensor& have = call.tensors[i];
      if (have.sizes == wanted.sizes && have.strides == wanted.strides && have.data == wanted.data) return i;
    }
    call.tensors.push_back(wanted);
    return static_cast<uint32_t>(call.tensors.size() - 1);
  }

  C10_NOINLINE void resize_outputs(Call& call, c10::IValue* args, const tnx_plan* plan) {
    uint32_t i = 0, n = tnx_plan_result_count(plan);
    for (uint32_t position : layout.written) {
      for_each_written(args, position, [&](const at::Tensor& t) {
        if (i < n && t.defined() && is_neuron(t)) {
          const tnx_result* r = tnx_plan_result(plan, i);
          auto rank = static_cast<size_t>(r->rank);
          if (!r->none) resize_output(t, {r->sizes, rank}, c10::IntArrayRef(r->strides, rank));
        }
        i++;
      });
    }
  }

  C10_NOINLINE void draw(
      Call& call, const c10::IValue* args, const tnx_plan* plan, c10::DeviceIndex device, int64_t* seed, int64_t* offset) {
    // One number per element of the largest tensor in sight.
    int64_t count = 1;
    auto consider = [&](const int64_t* sizes, int32_t rank) {
      int64_t n = 1;
      for (int32_t i = 0; i < rank; i++) n *= sizes[i];
      count = std::max(count, n);
    };
    for (uint32_t i = 0; i < tnx_plan_result_count(plan); i++) {
      const tnx_result* r = tnx_plan_result(plan, i);
      if (!r->none) consider(r->sizes, r->rank);
    }
    for (uint32_t index : call.into)
      if (index != TNX_NO_TENSOR) consider(call.tensors[index].sizes, call.tensors[index].rank);
    std::optional<at::Generator> given;
    if (layout.generator >= 0) given = args[layout.generator].toOptional<at::Generator>();
    auto state = generator_or_default(given, device)->draw(static_cast<uint64_t>(count));
    *seed = static_cast<int64_t>(state.first);
    *offset = static_cast<int64_t>(state.second);
  }

  // A device's generator fills the processor's memory: PyTorch's dispatcher comes here for the generator's sake (Diffusers makes its noise on the CPU, whatever
  // the generator). The numbers are those it draws for its own device.
  C10_NOINLINE bool drawn_for_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::IValue* args) {
    at::Tensor target = args[0].toTensor();
    if (!target.is_cpu() || args[layout.generator].isNone()) return false;
    args[0] = at::empty_like(target, target.options().device(args[layout.generator].toGenerator().device()));
    (*this)(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
    target.copy_(stack->back().toTensor());
    stack->back() = std::move(target);
    return true;
  }

  void give_back(torch::jit::Stack* stack, c10::IValue* args, c10::SmallVector<at::Tensor, 4>& results) {
    if (layout.form == Form::Inplace && layout.returns.size() == 1 && layout.returns[0] == 0) {
      // The common in-place form: self is the result and lies at the bottom.
      torch::jit::drop(*stack, layout.n_stack - 1);
      return;
    }
    if (layout.row->flags & TNX_ROW_LIST && layout.form == Form::Functional) {
      c10::List<at::Tensor> list;
      list.reserve(results.size());
      for (at::Tensor& t : results) list.push_back(std::move(t));
      torch::jit::drop(*stack, layout.n_stack);
      stack->emplace_back(std::move(list));
      return;
    }
    c10::SmallVector<c10::IValue, 4> out;
    size_t next = 0;
    bool by_position = results.size() >= layout.returns.size();
    for (size_t i = 0; i < layout.returns.size(); i++) {
      if (layout.returns_int[i]) {
        // Attention reports the lengths of queries and keys.
        size_t which = i > 0 && layout.returns_int[i - 1] ? 1 : 0;
        out.emplace_back(args[which].toTensor().size(2));
        if (by_position) next++;
        continue;
      }
      if (layout.returns[i] >= 0) {
        out.push_back(args[layout.returns[i]]);
        next++;
      } else if (next < results.size()) {
        out.emplace_back(std::move(results[next++]));
      } else {
        out.emplace_back(at::Tensor());
      }
    }
    torch::jit::drop(*stack, layout.n_stack);
    for (c10::IValue& v : out) stack->push_back(std::move(v));
  }

  // ---- errors ----

  C10_NOINLINE void uncovered(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
    // Operators over lists: the loop over the elements that devices without a kernel of their own run.
    if (layout.row->flags & TNX_ROW_EACH) return op.redispatchBoxed(c10::DispatchKeySet(kUnclaimed), stack);
    fall_back(op, stack, reason);
  }

  C10_NOINLINE void failed(const c10::OperatorHandle& op, torch::jit::Stack* stack, tnx_status status) {
    if (status == TNX_NOT_IMPLEMENTED) {
      std::string reason = tnx_error_text();
      if (expand_masks(stack, layout.n_stack)) return (*this)(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
      if (run_lstsq(op, stack) || run_sparse_embedding_bag_backward(op, stack)) return counter->ran();
      return uncovered(op, stack, reason);
    }
    if (status == TNX_SHAPE || status == TNX_DTYPE || status == TNX_INDEX || status == TNX_INVALID_ARGUMENT) {
      std::string text = tnx_error_text();
      raise_as_pytorch(op, torch::jit::last(*stack, layout.n_stack));
      tnx_fail(status, "%s", text.c_str()); // PyTorch's kernels may have called libtnx in between
    }
    raise_status(status);
  }

  // The first call with new dtypes, ranks and attributes: does PyTorch accept it, and do both agree about the results? An
  // exception leaves the call unaccepted, so that the next one like it is checked again.
  C10_NOINLINE void check_fresh(
      const c10::OperatorHandle& op, torch::jit::Stack* stack, Call& call, const PlanRef& plan, bool compare) {
    compare_with_meta(op, stack, compare ? plan.plan : nullptr);
    call.accept(plan);
  }

  void compare_with_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack, const tnx_plan* plan) {
    auto results = judge(op, torch::jit::last(*stack, layout.n_stack));
    if (!results || !plan || layout.form != Form::Functional || (layout.row->flags & TNX_ROW_LIST)) return;
    uint32_t n = tnx_plan_result_count(plan), next = 0;
    bool by_position = n >= layout.returns.size();
    for (size_t i = 0; i < results->size() && next < n; i++) {
      const c10::IValue& v = (*results)[i];
      if (!v.isTensor()) {
        if (by_position) next++;
        continue;
      }
      const tnx_result* r = tnx_plan_result(plan, next++);
      const at::Tensor& t = v.toTensor();
      if (!t.defined() || r->none) continue;
      TORCH_CHECK(
          t.sizes() == c10::IntArrayRef(r->sizes, static_cast<size_t>(r->rank)) &&
              t.scalar_type() == to_torch(static_cast<tnx_dtype>(r->dtype)),
          "Neuron internal error: ", layout.row->functional, " result ", i, " is ", to_torch(static_cast<tnx_dtype>(r->dtype)),
          c10::IntArrayRef(r->sizes, static_cast<size_t>(r->rank)), " but PyTorch expects ", t.scalar_type(), t.sizes());
    }
  }
};

// Kernels of their own exist for these: they need more than a plan (devices, storages, views). (PyTorch's of arange makes the tensor for the out form.)
bool has_own_kernel(std::string_view name) {
  static constexpr std::string_view own[] = {
      "copy_", "_copy_from", "_copy_from_and_resize", "_to_copy", "_local_scalar_dense", "empty.memory_format",
      "empty_strided", "resize_", "set_", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real",
      "view_as_complex", "record_stream", "_fused_sdp_choice", "is_set_to", "detach", "alias", "lift_fresh", "lift",
      "copy", "clone", "native_batch_norm", "_native_batch_norm_legit", "_pin_memory", "is_pinned", "empty_like", "new_empty", "new_empty_strided",
      "arange.start_step"};
  return std::find(std::begin(own), std::end(own), name) != std::end(own);
}

std::optional<c10::OperatorHandle> find_op(std::string_view name) {
  auto dot = name.find('.');
  std::string base = "aten::" + std::string(name.substr(0, dot));
  std::string overload = dot == std::string_view::npos ? "" : std::string(name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema({base, overload});
}

bool index_operator(std::string_view name) {
  for (std::string_view n : {"index.", "index_put", "_index_put_impl_", "_unsafe_index", "_unsafe_masked_index"})
    if (name.substr(0, n.size()) == n) return true;
  return false;
}

std::optional<Layout> make_layout(const tnx_row* row, std::string_view name, Form form, const c10::OperatorHandle& op) {
  Layout layout;
  layout.form = form;
  layout.row = row;
  layout.moves_indices = index_operator(name);
  const c10::FunctionSchema& schema = op.schema();
  layout.n_stack = static_cast<uint32_t>(schema.arguments().size());
  for (uint32_t i = 0; i < layout.n_stack; i++) {
    const c10::Argument& a = schema.arguments()[i];
    ArgKind kind;
    if (!arg_kind(a, &kind)) return std::nullopt;
    if (a.alias_info() && a.alias_info()->isWrite()) layout.written.push_back(i);
    if (kind == ArgKind::Generator) layout.generator = static_cast<int32_t>(i);
    if (kind == ArgKind::Device) layout.device = static_cast<int32_t>(i);
  }
  for (const c10::Argument& r : schema.returns()) {
    int32_t position = -1;
    if (r.alias_info()) {
      for (uint32_t i = 0; i < layout.n_stack; i++) {
        const c10::AliasInfo* info = schema.arguments()[i].alias_info();
        if (info && info->isWrite() && info->beforeSets() == r.alias_info()->beforeSets()) position = static_cast<int32_t>(i);
      }
      if (position < 0) return std::nullopt; // a view
    }
    c10::TypeKind kind = r.type()->kind();
    bool is_int = kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType;
    if (!is_int && kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return std::nullopt;
    if (is_int && row->functional != std::string_view("_scaled_dot_product_fused_attention_overrideable"))
      return std::nullopt;
    layout.returns.push_back(position);
    layout.returns_int.push_back(is_int);
  }
  // One list is given back, several are not; out lists are the row's results only where there is one.
  bool one_list = form == Form::Functional && schema.returns().size() == 1;
  if (form != Form::Inplace && (row->flags & TNX_ROW_LIST) && !(row->flags & TNX_ROW_EACH) && !one_list) return std::nullopt;
  // libtnx gets the functional overload's arguments, whichever form is called.
  const c10::FunctionSchema* reference = &schema;
  std::optional<c10::OperatorHandle> functional;
  if (*row->functional && form != Form::Functional && (functional = find_op(row->functional)))
    reference = &functional->schema();
  if (!match_arguments(schema, *reference, layout.written, &layout.args)) return std::nullopt;
  return layout;
}

void register_one(torch::Library& m, const tnx_row* row, const char* name, Form form) {
  if (!*name || has_own_kernel(name)) return;
  auto op = find_op(name);
  if (!op) return;
  // A kernel here would take the place of the decomposition that autograd differentiates, unless the operator (linear, ...) has a
  // derivative formula of its own.
  if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !op->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) return;
  auto layout = make_layout(row, name, form, *op);
  if (!layout) return;
  OpCounter* counter = op_counter("aten::" + std::string(name));
  m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<TableKernel>(std::move(*layout), counter)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (uint32_t i = 0; i < tnx_row_count(); i++) {
    const tnx_row* row = tnx_row_at(i);
    if (row->flags & (TNX_ROW_VIEW | TNX_ROW_COMPOSITE)) continue;
    register_one(m, row, row->functional, Form::Functional);
    register_one(m, row, row->inplace, Form::Inplace);
    register_one(m, row, row->out, Form::Out);
  }
}

} // namespace
} // namespace torch_neuronx
