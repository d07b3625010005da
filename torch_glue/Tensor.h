// Tensors of the device: building them with as little work as possible, and describing them to libtnx.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>

#include "tnx/call.h"
#include "tnx/dtype.h"

namespace torch_neuronx {

namespace detail {
constexpr std::array<uint8_t, static_cast<size_t>(c10::ScalarType::NumOptions)> dtype_table() {
  std::array<uint8_t, static_cast<size_t>(c10::ScalarType::NumOptions)> t{};
  for (auto& e : t) e = TNX_DTYPE_NONE;
  auto put = [&](c10::ScalarType s, tnx_dtype d) { t[static_cast<size_t>(s)] = static_cast<uint8_t>(d); };
  put(c10::ScalarType::Bool, TNX_BOOL);
  put(c10::ScalarType::Byte, TNX_U8);
  put(c10::ScalarType::Char, TNX_I8);
  put(c10::ScalarType::Short, TNX_I16);
  put(c10::ScalarType::Int, TNX_I32);
  put(c10::ScalarType::Long, TNX_I64);
  put(c10::ScalarType::UInt16, TNX_U16);
  put(c10::ScalarType::UInt32, TNX_U32);
  put(c10::ScalarType::UInt64, TNX_U64);
  put(c10::ScalarType::Float8_e4m3fn, TNX_F8E4M3);
  put(c10::ScalarType::Float8_e5m2, TNX_F8E5M2);
  put(c10::ScalarType::Half, TNX_F16);
  put(c10::ScalarType::BFloat16, TNX_BF16);
  put(c10::ScalarType::Float, TNX_F32);
  put(c10::ScalarType::Double, TNX_F64);
  put(c10::ScalarType::ComplexFloat, TNX_C64);
  put(c10::ScalarType::ComplexDouble, TNX_C128);
  return t;
}
inline constexpr auto kDtypes = dtype_table();
} // namespace detail

// TNX_DTYPE_NONE for types libtnx does not know.
inline tnx_dtype to_tnx(c10::ScalarType t) {
  return static_cast<tnx_dtype>(detail::kDtypes[static_cast<size_t>(t)]);
}
c10::ScalarType to_torch(tnx_dtype t);

inline bool is_neuron(const c10::TensorImpl* t) {
  return t->device_type() == c10::DeviceType::PrivateUse1;
}
inline bool is_neuron(const at::Tensor& t) {
  return t.defined() && is_neuron(t.unsafeGetTensorImpl());
}
inline c10::Device neuron_device(c10::DeviceIndex index) {
  return {c10::DeviceType::PrivateUse1, index};
}

// Fills `out` for a strided tensor with storage. Sizes and strides are borrowed. `written`: the memory will be changed.
// False: libtnx has no such dtype or rank.
bool describe(const c10::TensorImpl* t, bool written, tnx_tensor* out);

// A new tensor with uninitialised memory for work on `stream`; `bytes` covers sizes and strides.
at::Tensor make_tensor(
    c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t bytes, c10::DeviceIndex device,
    tnx_stream* stream);
// The same for contiguous sizes on the device's current stream.
at::Tensor make_contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::DeviceIndex device);
at::Tensor make_strided(
    c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::DeviceIndex device);
// A view of `self`'s storage.
at::Tensor make_view(
    const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype);
at::Tensor make_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset);

// Bytes of storage that sizes, strides and offset (elements) need, checked for overflow.
size_t bytes_for(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, size_t itemsize);

} // namespace torch_neuronx
