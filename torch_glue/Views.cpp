// View operators: metadata only, no kernel runs.
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/DimVector.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include "Tensor.h"

namespace torch_neuronx {
namespace {

at::Tensor as_strided(
    const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  int64_t at = offset.value_or(self.storage_offset());
  TORCH_CHECK(
      size.size() == stride.size(), "mismatch in length of strides and shape: size has ", size.size(),
      " dimensions, strides have ", stride.size());
  TORCH_CHECK(at >= 0, "Tensor: invalid storage offset ", at);
  for (int64_t s : stride)
    TORCH_CHECK(s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
  if (c10::multiply_integers(size) != 0) {
    size_t needed = bytes_for(size, stride, at, self.itemsize());
    TORCH_CHECK(
        needed <= self.storage().nbytes(), "setStorage: sizes ", size, ", strides ", stride, ", storage offset ", at,
        ", and itemsize ", self.itemsize(), " requiring a storage size of ", needed,
        " are out of bounds for storage of size ", self.storage().nbytes());
  }
  return make_view(self, size, stride, at);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  at::DimVector inferred = at::infer_size_dv(size, self.numel());
  auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(
      stride.has_value(),
      "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
      "contiguous subspaces). Use .reshape(...) instead.");
  return make_view(self, inferred, *stride, self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return make_view(self, size, stride, self.storage_offset());
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  int64_t d = at::maybe_wrap_dim(dimension, self.dim(), /*wrap_scalar=*/true);
  int64_t limit = self.dim() == 0 ? 1 : self.size(d);
  TORCH_CHECK(size >= 0, "size is ", size, " but must be >= 0");
  TORCH_CHECK(size <= limit, "maximum size for tensor at dimension ", d, " is ", limit, " but size is ", size);
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  c10::DimVector sizes(self.sizes()), strides(self.strides());
  if (self.dim() == 0) {
    sizes.push_back(size);
    strides.push_back(1);
  } else {
    sizes.push_back(size);
    strides.push_back(strides[static_cast<size_t>(d)]);
    sizes[static_cast<size_t>(d)] = (limit - size) / step + 1;
    strides[static_cast<size_t>(d)] *= step;
  }
  return make_view(self, sizes, strides, self.storage_offset());
}

at::Tensor view_as_real(const at::Tensor& self) {
  TORCH_CHECK(
      !self.is_conj(),
      "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it "
      "as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original.");
  TORCH_CHECK(self.is_complex(), "view_as_real is only supported for complex tensors");
  c10::DimVector sizes(self.sizes()), strides(self.strides());
  for (auto& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  return make_view(
      self, sizes, strides, self.storage_offset() * 2,
      c10::scalarTypeToTypeMeta(c10::toRealValueType(self.scalar_type())));
}

at::Tensor view_as_complex(const at::Tensor& self) {
  TORCH_CHECK(
      self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble || self.scalar_type() == at::kHalf,
      "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: ",
      self.scalar_type());
  TORCH_CHECK(self.dim() != 0, "Input tensor must have one or more dimensions");
  TORCH_CHECK(self.size(-1) == 2, "Tensor must have a last dimension of size 2");
  TORCH_CHECK(self.stride(-1) == 1, "Tensor must have a last dimension with stride 1");
  c10::DimVector sizes(self.sizes().slice(0, static_cast<size_t>(self.dim() - 1)));
  c10::DimVector strides(self.strides().slice(0, static_cast<size_t>(self.dim() - 1)));
  for (size_t i = 0; i < strides.size(); i++) {
    TORCH_CHECK(
        strides[i] % 2 == 0, "Tensor must have a stride divisible by 2 for all but last dimension");
    strides[i] /= 2;
  }
  TORCH_CHECK(self.storage_offset() % 2 == 0, "Tensor must have a storage_offset divisible by 2");
  return make_view(
      self, sizes, strides, self.storage_offset() / 2, c10::scalarTypeToTypeMeta(c10::toComplexType(self.scalar_type())));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
}

} // namespace
} // namespace torch_neuronx
