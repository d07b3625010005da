#include "Tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/SmallVector.h>

#include "Allocator.h"
#include "Stream.h"

namespace torch_neuronx {

c10::ScalarType to_torch(tnx_dtype t) {
  static constexpr auto table = [] {
    std::array<c10::ScalarType, TNX_DTYPE_COUNT> r{};
    for (size_t i = 0; i < detail::kDtypes.size(); i++)
      if (detail::kDtypes[i] != TNX_DTYPE_NONE) r[detail::kDtypes[i]] = static_cast<c10::ScalarType>(i);
    return r;
  }();
  TORCH_INTERNAL_ASSERT(static_cast<unsigned>(t) < TNX_DTYPE_COUNT);
  return table[t];
}

bool describe(const c10::TensorImpl* t, bool written, tnx_tensor* out) {
  c10::IntArrayRef sizes = t->sizes();
  if (C10_UNLIKELY(sizes.size() > TNX_MAX_RANK || !t->has_storage())) return false;
  tnx_dtype dtype = to_tnx(c10::typeMetaToScalarType(t->dtype()));
  if (C10_UNLIKELY(dtype == TNX_DTYPE_NONE)) return false;
  c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
  auto* base = written ? static_cast<char*>(storage->mutable_data())
                       : static_cast<char*>(const_cast<void*>(storage->data()));
  out->storage_begin = reinterpret_cast<uint64_t>(base);
  out->storage_end = out->storage_begin + storage->nbytes();
  out->data = base ? base + static_cast<size_t>(t->storage_offset()) * t->itemsize() : nullptr;
  out->sizes = sizes.data();
  out->strides = t->strides().data();
  out->rank = static_cast<int32_t>(sizes.size());
  out->dtype = static_cast<uint8_t>(dtype);
  out->flags = 0;
  return true;
}

at::Tensor make_tensor(
    c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t bytes, c10::DeviceIndex device,
    tnx_stream* stream) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocate_on(device, bytes, stream), device_allocator(),
      /*resizable=*/true);
  at::Tensor t = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

at::Tensor make_strided(
    c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::DeviceIndex device) {
  size_t bytes = bytes_for(sizes, strides, 0, c10::elementSize(dtype));
  return make_tensor(dtype, sizes, strides, bytes, device, current_stream_handle(device));
}

at::Tensor make_contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::DeviceIndex device) {
  size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  c10::SmallVector<int64_t, 8> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  return make_tensor(dtype, sizes, strides, bytes, device, current_stream_handle(device));
}

at::Tensor make_view(
    const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), dtype);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

at::Tensor make_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  return make_view(self, sizes, strides, offset, self.dtype());
}

size_t bytes_for(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, size_t itemsize) {
  return at::detail::computeStorageNbytes(sizes, strides, itemsize, static_cast<size_t>(offset));
}

} // namespace torch_neuronx
