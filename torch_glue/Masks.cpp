#include "Masks.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/nonzero_static.h>
#include <torch/library.h>

#include <vector>

namespace torch_neuronx {

namespace {

at::Tensor holds(const at::Tensor& t) {
  return t.scalar_type() == at::kBool ? t : t.ne(0);
}

// One pass counts them (read back: the result's size), one writes their coordinates.
at::Tensor nonzero(const at::Tensor& self) {
  at::Tensor mask = holds(self);
  int64_t count = mask.numel() ? mask.sum().item<int64_t>() : 0;
  return at::nonzero_static(mask, count);
}

} // namespace

at::Tensor true_positions(const at::Tensor& mask) {
  return nonzero(mask.reshape({-1})).squeeze(1);
}

namespace {

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ", out.scalar_type());
  at::Tensor result = nonzero(self);
  out.resize_(result.sizes());
  return out.copy_(result);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  auto shape = at::infer_size(self.sizes(), mask.sizes());
  return self.expand(shape).reshape({-1}).index_select(0, true_positions(mask.expand(shape)));
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "masked_select(): self and result must have the same scalar type");
  at::Tensor result = masked_select(self, mask);
  out.resize_(result.sizes());
  return out.copy_(result);
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
      other.device(), "!");
  return self.sizes() == other.sizes() && self.eq(other).all().item<bool>();
}

} // namespace

bool expand_masks(torch::jit::Stack* stack, size_t n_args) {
  if (n_args < 2) return false;
  c10::IValue& self = (*stack)[stack->size() - n_args];
  c10::IValue& indices = (*stack)[stack->size() - n_args + 1];
  if (!self.isTensor() || !indices.isList()) return false;
  std::vector<std::optional<at::Tensor>> given, expanded;
  for (const c10::IValue& v : indices.toListRef()) {
    if (!v.isNone() && !v.isTensor()) return false;
    given.push_back(v.isNone() ? std::nullopt : std::make_optional(v.toTensor()));
  }
  bool found = false;
  int64_t dim = 0;
  for (const auto& t : given) {
    if (!t || !t->defined() || (t->scalar_type() != at::kBool && t->scalar_type() != at::kByte)) {
      expanded.push_back(t);
      dim++;
      continue;
    }
    if (t->dim() == 0) return false;
    found = true;
    for (int64_t d = 0; d < t->dim(); d++)
      TORCH_CHECK_INDEX(
          dim + d < self.toTensor().dim() && t->size(d) == self.toTensor().size(dim + d), "The shape of the mask ", t->sizes(),
          " at index ", d, " does not match the shape of the indexed tensor ", self.toTensor().sizes(), " at index ", dim + d);
    at::Tensor mask = holds(*t).to(self.toTensor().device());
    for (const at::Tensor& c : nonzero(mask).unbind(1)) expanded.push_back(c);
    dim += t->dim();
  }
  if (!found) return false;
  c10::List<std::optional<at::Tensor>> list;
  for (auto& t : expanded) list.push_back(std::move(t));
  indices = std::move(list);
  return true;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("equal", equal);
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
}

} // namespace torch_neuronx
