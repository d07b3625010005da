// Operators whose result's size is a number of groups in the data: unique values, runs, bins, repeats. Made of device rows; one number is read back.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "Masks.h"

namespace torch_neuronx {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::TensorOptions longs(const at::Tensor& t) {
  return t.options().dtype(at::kLong);
}

// Of elements in order along dimension 0: which ones begin a group, given which differ from the one before.
at::Tensor begins(const at::Tensor& differs) {
  auto sizes = differs.sizes().vec();
  sizes[0] = 1;
  return at::cat({at::ones(sizes, differs.options()), differs});
}

at::Tensor differs_from_previous(const at::Tensor& x) {
  int64_t n = x.size(0);
  return x.narrow(0, 1, n - 1).ne(x.narrow(0, 0, n - 1));
}

at::Tensor group_numbers(const at::Tensor& first) {
  return first.cumsum(0).sub(1);
}

at::Tensor counts_of(const at::Tensor& starts, int64_t total) {
  return at::cat({starts.narrow(0, 1, starts.size(0) - 1), at::full({1}, total, starts.options())}).sub(starts);
}

Three unique2(const at::Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  at::Tensor flat = self.reshape({-1}), none = at::empty({0}, longs(self));
  int64_t n = flat.numel();
  if (n == 0) return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), longs(self)) : none, none};
  auto [values, order] = at::sort(flat, /*stable=*/true, 0, /*descending=*/false);
  at::Tensor first = begins(differs_from_previous(values)), starts = true_positions(first);
  at::Tensor inverse = return_inverse ? at::empty_like(order).scatter_(0, order, group_numbers(first)).view(self.sizes()) : none;
  return {values.index_select(0, starts), inverse, return_counts ? counts_of(starts, n) : none};
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

// Each column's elements replaced by their place among the column's distinct values.
at::Tensor ranks(const at::Tensor& x) {
  auto [values, order] = at::sort(x, /*stable=*/true, 0, /*descending=*/false);
  return at::empty_like(order).scatter_(0, order, group_numbers(begins(differs_from_previous(values))));
}

// The order of rows among the distinct rows. Neighbouring columns are merged until one is left: a pair of ranks is a number.
at::Tensor row_ranks(const at::Tensor& rows) {
  int64_t n = rows.size(0);
  at::Tensor r = ranks(rows);
  while (r.size(1) > 1) {
    int64_t columns = r.size(1), pairs = columns / 2;
    at::Tensor both = r.narrow(1, 0, 2 * pairs).reshape({n, pairs, 2});
    at::Tensor merged = both.select(2, 0).mul(n).add(both.select(2, 1));
    if (columns % 2) merged = at::cat({merged, r.narrow(1, columns - 1, 1)}, 1);
    r = ranks(merged);
  }
  return r.select(1, 0);
}

// True where there is something to compare; a selected dimension of size 0 has no slices.
bool has_slices(const at::Tensor& self, int64_t dim) {
  auto zeros = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return false;
  }
  TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  return true;
}

Three no_slices(const at::Tensor& self) {
  return {at::empty(self.sizes(), self.options()), at::empty({0}, longs(self)), at::empty({0}, longs(self))};
}

Three unique_dim(const at::Tensor& self, int64_t dim, bool /*sorted*/, bool /*return_inverse*/, bool /*return_counts*/) {
  if (self.dim() == 0) {
    auto [values, inverse, counts] = unique2(self, true, true, true);
    return {values.view({}), inverse.view({1}), counts};
  }
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (!has_slices(self, dim)) return no_slices(self);
  int64_t n = self.size(dim);
  at::Tensor inverse = row_ranks(self.movedim(dim, 0).reshape({n, -1}));
  auto [sorted, order] = at::sort(inverse, /*stable=*/true, 0, /*descending=*/false);
  at::Tensor starts = true_positions(begins(differs_from_previous(sorted)));
  return {self.index_select(dim, order.index_select(0, starts)), inverse, counts_of(starts, n)};
}

Three unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim && !(*dim == 0 && self.dim() == 1) && self.dim() > 0) {
    int64_t d = at::maybe_wrap_dim(*dim, self.dim());
    if (!has_slices(self, d)) return no_slices(self);
    int64_t n = self.size(d);
    at::Tensor first = begins(differs_from_previous(self.movedim(d, 0).reshape({n, -1})).any(1)), starts = true_positions(first);
    return {self.index_select(d, starts), group_numbers(first), counts_of(starts, n)};
  }
  at::Tensor flat = self.reshape({-1}), none = at::empty({0}, longs(self));
  int64_t n = flat.numel();
  if (n == 0) return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), longs(self)) : none, none};
  at::Tensor first = begins(differs_from_previous(flat)), starts = true_positions(first);
  return {
      flat.index_select(0, starts), return_inverse ? group_numbers(first).view(self.sizes()) : none,
      return_counts ? counts_of(starts, n) : none};
}

// Element i of the result is the number of the repeated element it belongs to: each end moves on to the next one.
at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK_NOT_IMPLEMENTED(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt, "\"repeat_interleave_cpu\" not implemented for '",
      repeats.scalar_type(), "'");
  if (repeats.size(0) == 0) return at::empty({0}, repeats.options());
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  at::Tensor ends = repeats.cumsum(0, at::kLong);
  int64_t total = ends[-1].item<int64_t>();
  TORCH_CHECK(!output_size || *output_size == total, "allocated size does not match required size");
  at::Tensor marks = at::zeros({total + 1}, ends.options()).scatter_add_(0, ends, at::ones_like(ends));
  return marks.cumsum(0).narrow(0, 0, total).to(repeats.scalar_type());
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isIntegralType(self.scalar_type(), /*includeBool=*/false), "\"bincount_cpu\" not implemented for '", self.scalar_type(), "'");
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, longs(self));
  TORCH_CHECK(self.dim() == 1 && self.min().item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  bool weighted = weights && weights->defined();
  TORCH_CHECK(
      !weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)), "weights should be 1-d and have the same length as input");
  int64_t bins = std::max(self.max().item<int64_t>() + 1, minlength);
  at::Tensor index = self.to(at::kLong);
  at::Tensor each = !weighted ? at::ones_like(index) : weights->scalar_type() == at::kFloat ? *weights : weights->to(at::kDouble);
  return at::zeros({bins}, each.options()).scatter_add_(0, index, each);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique2", unique2);
  m.impl("_unique", unique);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("bincount", bincount);
}

} // namespace torch_neuronx
