#include "Call.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <cmath>

#include "Status.h"
#include "Stream.h"

namespace torch_neuronx {

void Call::set_scalar(tnx_arg& a, const at::Scalar& v) {
  a.count = 0;
  if (v.isBoolean()) {
    a.kind = TNX_ARG_BOOL;
    a.dim = v.toBool();
  } else if (v.isIntegral(false)) {
    a.kind = TNX_ARG_INT;
    a.dim = v.type() == c10::ScalarType::UInt64 ? static_cast<int64_t>(v.toUInt64()) : v.toLong();
  } else if (v.isComplex()) {
    auto c = v.toComplexDouble();
    a.kind = TNX_ARG_COMPLEX;
    a.number[0] = c.real();
    a.number[1] = c.imag();
  } else {
    a.kind = TNX_ARG_FLOAT;
    a.number[0] = v.toDouble();
    a.number[1] = 0;
  }
}

void Call::add_scalar(const at::Scalar& v) {
  set_scalar(add(TNX_ARG_NONE), v);
}

uint32_t Call::push_number(const at::Scalar& v) {
  auto index = static_cast<uint32_t>(tensors.size());
  tnx_tensor& out = tensors.emplace_back();
  auto* value = take<double>(2);
  out = tnx_tensor{};
  out.data = value;
  out.flags = TNX_TENSOR_HOST | TNX_TENSOR_WRAPPED;
  if (v.isComplex()) {
    out.dtype = TNX_C128;
    value[0] = v.toComplexDouble().real();
    value[1] = v.toComplexDouble().imag();
  } else if (v.isFloatingPoint()) {
    out.dtype = TNX_F64;
    value[0] = v.toDouble();
  } else {
    out.dtype = v.isBoolean() ? TNX_BOOL : TNX_I64;
    int64_t whole = v.isBoolean() ? v.toBool() : v.toLong();
    std::memcpy(value, &whole, sizeof whole);
  }
  return index;
}

void Call::add_number(const at::Scalar& v) {
  if (!v.isFloatingPoint() || v.toDouble() == std::trunc(v.toDouble())) return add_scalar(v);
  uint32_t index = push_number(v);
  add(TNX_ARG_TENSOR).value = index;
}

void Call::add_numbers(c10::ArrayRef<c10::IValue> list) {
  auto* values = take<uint32_t>(list.size());
  for (size_t i = 0; i < list.size(); i++) values[i] = push_number(list[i].toScalar());
  tnx_arg& a = add(TNX_ARG_TENSORS);
  a.values = values;
  a.count = static_cast<uint32_t>(list.size());
}

bool Call::push_host_scalar(const c10::TensorImpl* t, uint32_t* index) {
  *index = static_cast<uint32_t>(tensors.size());
  tnx_tensor& out = tensors.emplace_back();
  tnx_dtype dtype = to_tnx(c10::typeMetaToScalarType(t->dtype()));
  if (dtype == TNX_DTYPE_NONE || t->numel() != 1) return false;
  auto* value = take<char>(16);
  std::memset(value, 0, 16);
  std::memcpy(value, t->data(), t->itemsize());
  out.data = value;
  out.sizes = out.strides = nullptr;
  out.storage_begin = out.storage_end = 0;
  out.rank = 0;
  out.dtype = static_cast<uint8_t>(dtype);
  out.flags = TNX_TENSOR_HOST;
  if (t->is_wrapped_number()) out.flags |= TNX_TENSOR_WRAPPED;
  return true;
}

int64_t* Call::push_host_int(uint32_t* index) {
  *index = static_cast<uint32_t>(tensors.size());
  tnx_tensor& out = tensors.emplace_back();
  auto* value = take<int64_t>(2);
  value[0] = value[1] = 0;
  out = tnx_tensor{};
  out.data = value;
  out.dtype = TNX_I64;
  out.flags = TNX_TENSOR_HOST;
  return value;
}

bool Call::add_tensor(const at::Tensor& t, bool written) {
  uint32_t index = 0;
  if (!push_device_tensor(t.unsafeGetTensorImpl(), written, &index)) return false;
  add(TNX_ARG_TENSOR).value = index;
  return true;
}

tnx_status Call::prepare(PlanRef& plan, bool* fresh) {
  plan.reset();
  call_.row = row_;
  call_.args = args.data();
  call_.n_args = static_cast<uint32_t>(args.size());
  call_.tensors = tensors.data();
  call_.n_tensors = static_cast<uint32_t>(tensors.size());
  call_.into = into.empty() ? nullptr : into.data();
  call_.n_into = static_cast<uint32_t>(into.size());
  call_.default_dtype = static_cast<uint8_t>(to_tnx(c10::get_default_dtype_as_scalartype()));
  *fresh = false;
  return tnx_call_prepare(&call_, &plan.plan, fresh);
}

void record_use(const Call& call, tnx_stream* stream) {
  if (C10_LIKELY(!multiple_streams())) return;
  for (const tnx_tensor& t : call.tensors)
    if (!(t.flags & TNX_TENSOR_HOST) && t.data && t.storage_begin != t.storage_end)
      check(tnx_mem_record_stream(reinterpret_cast<void*>(t.storage_begin), stream));
}

tnx_status run_into(Call& call, c10::DeviceIndex device) {
  PlanRef plan;
  bool fresh = false;
  tnx_status status = call.prepare(plan, &fresh);
  if (status != TNX_OK) return status;
  if (fresh) call.accept(plan);
  tnx_stream* stream = current_stream_handle(device);
  record_use(call, stream);
  void* results[TNX_MAX_RESULTS] = {};
  return call.launch(plan.plan, results, stream);
}

tnx_status run_new(Call& call, c10::DeviceIndex device, at::Tensor* results, uint32_t capacity) {
  PlanRef plan;
  bool fresh = false;
  tnx_status status = call.prepare(plan, &fresh);
  if (status != TNX_OK) return status;
  if (fresh) call.accept(plan);
  tnx_stream* stream = current_stream_handle(device);
  record_use(call, stream);
  void* memory[TNX_MAX_RESULTS] = {};
  uint32_t n = tnx_plan_result_count(plan.plan);
  for (uint32_t i = 0; i < n && i < capacity; i++) {
    if (i < call.into.size() && call.into[i] != TNX_NO_TENSOR) continue;
    const tnx_result* r = tnx_plan_result(plan.plan, i);
    if (r->none) continue;
    auto rank = static_cast<size_t>(r->rank);
    results[i] = make_tensor(
        to_torch(static_cast<tnx_dtype>(r->dtype)), {r->sizes, rank}, {r->strides, rank}, r->bytes, device, stream);
    memory[i] = const_cast<void*>(results[i].storage().data());
  }
  return call.launch(plan.plan, memory, stream);
}

} // namespace torch_neuronx
