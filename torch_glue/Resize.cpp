#include "Resize.h"

#include <c10/util/accumulate.h>
#include <torch/library.h>

#include "Allocator.h"
#include "Copy.h"
#include "Stream.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  c10::DeviceIndex device = storage->device().index();
  if (bytes == 0) {
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
    storage->set_nbytes(0);
    return;
  }
  c10::DataPtr fresh = allocate_on(device, bytes, current_stream_handle(device));
  size_t kept = std::min(bytes, storage->nbytes());
  if (kept && storage->data()) copy_device_bytes(fresh.get(), storage->data(), kept);
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

void resize_tensor(c10::TensorImpl* self, c10::IntArrayRef sizes, c10::OptionalIntArrayRef strides) {
  if (self->sizes() == sizes && (!strides || self->strides() == *strides)) return;
  size_t needed = 0;
  if (strides) {
    self->set_sizes_and_strides(sizes, *strides);
    needed = bytes_for(sizes, *strides, self->storage_offset(), self->itemsize());
  } else {
    self->set_sizes_contiguous(sizes);
    needed = bytes_for(sizes, self->strides(), self->storage_offset(), self->itemsize());
  }
  if (self->numel() == 0) return;
  c10::StorageImpl* storage = self->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() < needed) resize_storage(storage, needed);
}

void resize_output(const at::Tensor& out, c10::IntArrayRef sizes, c10::OptionalIntArrayRef strides) {
  if (out.sizes() == sizes) return;
  if (out.numel() != 0) {
    TORCH_WARN(
        "An output with one or more elements was resized since it had shape ", out.sizes(),
        ", which does not match the required output shape ", sizes,
        ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have "
        "zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
        "t.resize_(0).");
  }
  resize_tensor(out.unsafeGetTensorImpl(), sizes, strides);
}

namespace {

void check_bounds(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, size_t itemsize, const c10::StorageImpl* storage) {
  size_t needed = bytes_for(sizes, strides, offset, itemsize);
  if (c10::multiply_integers(sizes) == 0) return;
  TORCH_CHECK(
      needed <= storage->nbytes(), "setStorage: sizes ", sizes, ", strides ", strides, ", storage offset ", offset,
      ", and itemsize ", itemsize, " requiring a storage size of ", needed, " are out of bounds for storage of size ",
      storage->nbytes());
}

const at::Tensor& resize_(
    const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> memory_format) {
  TNX_COUNT_OP("aten::resize_");
  for (int64_t s : size)
    TORCH_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  size_t old_bytes = impl->unsafe_storage().nbytes();
  resize_tensor(impl, size);
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  // In deterministic mode the new part has a defined value.
  if (impl->unsafe_storage().nbytes() > old_bytes)
    fill_uninitialized(self, static_cast<int64_t>(old_bytes / self.itemsize()));
  return self;
}

at::Tensor& set_storage_offset_(
    at::Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  TNX_COUNT_OP("aten::set_.source_Storage_storage_offset");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(
      stride.empty() || stride.size() == size.size(), "unequal size length (", size.size(), ") and stride length (",
      stride.size(), ")");
  TORCH_CHECK(
      self.device() == source.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
      "\" to a storage on different device \"", source.device(),
      "\".  This is no longer allowed; the devices must match.");
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    for (int64_t s : stride) TORCH_CHECK(s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
    impl->set_sizes_and_strides(size, stride, offset);
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  size_t needed = impl->numel() ? bytes_for(impl->sizes(), impl->strides(), offset, impl->itemsize()) : 0;
  if (needed > storage->nbytes()) {
    // PyTorch lets a tensor grow the storage it is set to.
    if (storage->resizable()) resize_storage(storage, needed);
    else check_bounds(impl->sizes(), impl->strides(), offset, impl->itemsize(), storage);
  }
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, c10::Storage source) {
  auto elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset_(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset_(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_(at::Tensor& self) {
  c10::DeviceIndex device = self.device().index();
  c10::Storage empty(
      c10::Storage::use_byte_size_t(), 0, allocate_on(device, 0, current_stream_handle(device)), device_allocator(),
      true);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(empty));
  impl->set_storage_offset(0);
  impl->set_sizes_contiguous({0});
  return self;
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.unsafeGetTensorImpl() == other.unsafeGetTensorImpl() ||
      (self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
       self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
       self.strides() == other.strides());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("is_set_to", TORCH_FN(is_set_to));
}

} // namespace
} // namespace torch_neuronx
