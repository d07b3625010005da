// One operator call on its way to libtnx: the flat arguments, and the memory they point into.
//
// Used by the boxed adapter, which fills it from a stack, and by the few kernels that run a row themselves. Lives on the
// C++ stack for one call; never copied.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstring>
#include <memory>
#include <vector>

#include "Tensor.h"
#include "tnx/call.h"

namespace torch_neuronx {

// Owns a plan reference.
struct PlanRef {
  tnx_plan* plan = nullptr;
  PlanRef() = default;
  PlanRef(const PlanRef&) = delete;
  PlanRef& operator=(const PlanRef&) = delete;
  ~PlanRef() { reset(); }
  void reset() {
    if (plan) tnx_plan_release(plan);
    plan = nullptr;
  }
};

class Call {
 public:
  explicit Call(const tnx_row* row) : row_(row) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // `n` items of T that live as long as the call.
  template <typename T>
  T* take(size_t n) {
    size_t bytes = (n * sizeof(T) + 15) & ~size_t{15};
    if (C10_LIKELY(used_ + bytes <= sizeof inline_)) {
      void* p = inline_ + used_;
      used_ += bytes;
      return static_cast<T*>(p);
    }
    overflow_.emplace_back(new char[bytes + 16]);
    auto address = (reinterpret_cast<uintptr_t>(overflow_.back().get()) + 15) & ~uintptr_t{15};
    return reinterpret_cast<T*>(address);
  }

  tnx_arg& add(tnx_arg_kind kind) {
    tnx_arg& a = args.emplace_back();
    a.kind = kind;
    a.count = 0;
    a.number[0] = a.number[1] = 0;
    return a;
  }
  void add_none() { add(TNX_ARG_NONE); }
  void add_int(int64_t v) { add(TNX_ARG_INT).dim = v; }
  void add_bool(bool v) { add(TNX_ARG_BOOL).dim = v; }
  void add_float(double v) { add(TNX_ARG_FLOAT).number[0] = v; }
  void add_dtype(tnx_dtype v) { add(TNX_ARG_DTYPE).dtype = v; }
  void add_scalar(const at::Scalar& v);
  // A number that differs from call to call travels by value: it is not part of what the plan depends on. Whole numbers are
  // (x + 1 * y is x + y), and there are few of them.
  void add_number(const at::Scalar& v);
  void add_numbers(c10::ArrayRef<c10::IValue> list);
  static void set_scalar(tnx_arg& a, const at::Scalar& v);

  // Describes a tensor of the device and returns its index. False: not representable.
  bool push_device_tensor(const c10::TensorImpl* t, bool written, uint32_t* index) {
    *index = static_cast<uint32_t>(tensors.size());
    return describe(t, written, &tensors.emplace_back());
  }
  // A 0-dim CPU tensor, by value.
  bool push_host_scalar(const c10::TensorImpl* t, uint32_t* index);
  // An int64 value as a 0-dim host tensor; returns where the value is kept.
  int64_t* push_host_int(uint32_t* index);
  uint32_t push_number(const at::Scalar& v);
  // Adds a tensor argument and returns true if it is representable.
  bool add_tensor(const at::Tensor& t, bool written = false);

  tnx_status prepare(PlanRef& plan, bool* fresh);
  // After prepare has said that the call is fresh, and PyTorch has found nothing wrong with it.
  void accept(const PlanRef& plan) { tnx_call_accept(&call_, plan.plan); }
  tnx_status launch(tnx_plan* plan, void* const* results, tnx_stream* stream) {
    return tnx_call_launch(plan, &call_, results, stream);
  }
  const tnx_row* row() const { return row_; }

  c10::SmallVector<tnx_arg, 16> args;
  c10::SmallVector<tnx_tensor, 6> tensors;
  c10::SmallVector<uint32_t, 4> into; // as tnx_call.into; empty: all results are new
  c10::SmallVector<at::Tensor, 2> keep; // temporaries that must outlive the call

 private:
  const tnx_row* row_;
  tnx_call call_{};
  size_t used_ = 0;
  alignas(16) char inline_[768];
  std::vector<std::unique_ptr<char[]>> overflow_;
};

// Runs the call with its result written into `out`, which must be tensor `into[0]`. Returns libtnx's status.
tnx_status run_into(Call& call, c10::DeviceIndex device);
// Runs the call and allocates its new results; result i without memory of its own (in `into`, or undefined) stays undefined.
tnx_status run_new(Call& call, c10::DeviceIndex device, at::Tensor* results, uint32_t capacity);
// Makes sure blocks are not reused too early when `stream` is not the one they were allocated for.
void record_use(const Call& call, tnx_stream* stream);

} // namespace torch_neuronx
