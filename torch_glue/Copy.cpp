#include "Copy.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/DimVector.h>
#include <torch/library.h>

#include <limits>

#include "Call.h"
#include "Fallback.h"
#include "Resize.h"
#include "Status.h"
#include "Stream.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

const tnx_row* copy_row() {
  static const tnx_row* row = tnx_row_find("copy_");
  return row;
}

bool is_dense(const at::Tensor& t) {
  return t.is_non_overlapping_and_dense();
}
// Element i of one is element i of the other in memory.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && ((is_dense(a) && a.strides() == b.strides()) || (a.is_contiguous() && b.is_contiguous()));
}
void* data_of(const at::Tensor& t, bool written) {
  c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  auto* base = written ? static_cast<char*>(storage->mutable_data()) : static_cast<char*>(const_cast<void*>(storage->data()));
  return base ? base + static_cast<size_t>(t.storage_offset()) * t.itemsize() : nullptr;
}
bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.storage_offset() == b.storage_offset() &&
      a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() && a.sizes() == b.sizes() &&
      a.strides() == b.strides();
}

void host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  check(tnx_copy_to_device(
      data_of(dst, true), data_of(src, false), dst.nbytes(), current_stream_handle(dst.device().index()), !non_blocking));
}
void device_to_host(const at::Tensor& dst, const at::Tensor& src) {
  tnx_stream* stream = current_stream_handle(src.device().index());
  check(tnx_copy_to_host(data_of(dst, true), data_of(src, false), src.nbytes(), stream));
}

at::Tensor to_host(const at::Tensor& src);

// Same device. False: libtnx does not cover the case.
bool copy_on_device(const at::Tensor& dst, const at::Tensor& src) {
  const tnx_row* row = copy_row();
  if (!row) return false;
  Call call(row);
  uint32_t index = 0;
  if (!call.push_device_tensor(dst.unsafeGetTensorImpl(), true, &index)) return false;
  call.add(TNX_ARG_TENSOR).value = index;
  call.into.push_back(index);
  if (!call.push_device_tensor(src.unsafeGetTensorImpl(), false, &index)) return false;
  call.add(TNX_ARG_TENSOR).value = index;
  call.add_bool(false);
  tnx_status status = run_into(call, dst.device().index());
  if (status == TNX_NOT_IMPLEMENTED) return false;
  check(status);
  return true;
}

// Through the host: for what the device cannot do, and between devices.
void copy_through_host(const at::Tensor& dst, const at::Tensor& src) {
  at::Tensor host = to_host(src);
  at::Tensor converted = at::empty(dst.sizes(), dst.options().device(at::kCPU));
  converted.copy_(host);
  if (dst.is_contiguous()) return host_to_device(dst, converted, false);
  if (is_dense(dst)) {
    at::Tensor arranged = at::empty_strided(dst.sizes(), dst.strides(), converted.options());
    arranged.copy_(converted);
    return host_to_device(dst, arranged, false);
  }
  // Holes between the elements: fetch the whole span, change it, write it back.
  c10::StorageImpl* storage = dst.storage().unsafeGetStorageImpl();
  at::Tensor span = at::empty({static_cast<int64_t>(storage->nbytes())}, at::TensorOptions().dtype(at::kByte));
  tnx_stream* stream = current_stream_handle(dst.device().index());
  check(tnx_copy_to_host(span.mutable_data_ptr(), storage->data(), storage->nbytes(), stream));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(span.storage()), span.key_set(), dst.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(dst.sizes(), dst.strides(), dst.storage_offset());
  view.copy_(converted);
  check(tnx_copy_to_device(storage->mutable_data(), span.const_data_ptr(), storage->nbytes(), stream, true));
}

// A host tensor with the same values: dense strides are kept.
at::Tensor to_host(const at::Tensor& src) {
  if (is_dense(src)) {
    at::Tensor host = at::empty_strided(src.sizes(), src.strides(), src.options().device(at::kCPU));
    if (src.numel()) device_to_host(host, src);
    return host;
  }
  at::Tensor packed = make_contiguous(src.scalar_type(), src.sizes(), src.device().index());
  if (copy_on_device(packed, src)) return to_host(packed);
  c10::StorageImpl* storage = src.storage().unsafeGetStorageImpl();
  at::Tensor span = at::empty({static_cast<int64_t>(storage->nbytes())}, at::TensorOptions().dtype(at::kByte));
  tnx_stream* stream = current_stream_handle(src.device().index());
  check(tnx_copy_to_host(span.mutable_data_ptr(), storage->data(), storage->nbytes(), stream));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(span.storage()), span.key_set(), src.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(src.sizes(), src.strides(), src.storage_offset());
  return view;
}

void copy_from_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)) return host_to_device(dst, src, non_blocking);
  // The raw bytes go over first; the device converts, broadcasts and scatters them.
  at::Tensor dense = is_dense(src) ? src : src.contiguous();
  if (to_tnx(src.scalar_type()) != TNX_DTYPE_NONE && to_tnx(dst.scalar_type()) != TNX_DTYPE_NONE) {
    at::Tensor staged = make_strided(dense.scalar_type(), dense.sizes(), dense.strides(), dst.device().index());
    host_to_device(staged, dense, non_blocking);
    if (copy_on_device(dst, staged)) return;
  }
  // The host arranges what the device cannot.
  at::Tensor arranged = is_dense(dst) ? at::empty_strided(dst.sizes(), dst.strides(), dst.options().device(at::kCPU))
                                      : at::empty(dst.sizes(), dst.options().device(at::kCPU));
  arranged.copy_(dense);
  if (same_layout(dst, arranged)) return host_to_device(dst, arranged, non_blocking);
  at::Tensor staged = make_contiguous(dst.scalar_type(), dst.sizes(), dst.device().index());
  host_to_device(staged, arranged, non_blocking);
  if (!copy_on_device(dst, staged)) copy_through_host(dst, staged);
}

void copy_to_host(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)) return device_to_host(dst, src);
  // Convert on the device where that shrinks the transfer or where it is the only pass.
  if (src.scalar_type() != dst.scalar_type() && src.sizes() == dst.sizes() && dst.is_contiguous() &&
      to_tnx(dst.scalar_type()) != TNX_DTYPE_NONE && dst.itemsize() <= src.itemsize()) {
    at::Tensor converted = make_contiguous(dst.scalar_type(), src.sizes(), src.device().index());
    if (copy_on_device(converted, src)) return device_to_host(dst, converted);
  }
  dst.copy_(to_host(src));
}

} // namespace

void copy_device_bytes(void* dst, const void* src, size_t bytes) {
  if (!bytes) return;
  int device = tnx_mem_device_of(dst);
  TORCH_CHECK(device >= 0 && tnx_mem_device_of(src) >= 0, "both addresses must be of a neuron device");
  if (const tnx_row* row = copy_row(); row && tnx_mem_device_of(src) == device) {
    Call call(row);
    int64_t size = static_cast<int64_t>(bytes), stride = 1;
    for (const void* p : {static_cast<const void*>(dst), src}) {
      tnx_tensor& t = call.tensors.emplace_back();
      t = tnx_tensor{};
      t.data = const_cast<void*>(p);
      t.sizes = &size;
      t.strides = &stride;
      t.storage_begin = reinterpret_cast<uint64_t>(p);
      t.storage_end = t.storage_begin + bytes;
      t.rank = 1;
      t.dtype = TNX_U8;
    }
    call.add(TNX_ARG_TENSOR).value = 0;
    call.add(TNX_ARG_TENSOR).value = 1;
    call.add_bool(false);
    call.into.push_back(0);
    tnx_status status = run_into(call, static_cast<c10::DeviceIndex>(device));
    if (status == TNX_OK) return;
    if (status != TNX_NOT_IMPLEMENTED) raise_status(status);
  }
  auto host = std::make_unique<char[]>(bytes);
  int from = tnx_mem_device_of(src);
  check(tnx_copy_to_host(host.get(), src, bytes, current_stream_handle(static_cast<c10::DeviceIndex>(from))));
  check(tnx_copy_to_device(dst, host.get(), bytes, current_stream_handle(static_cast<c10::DeviceIndex>(device)), true));
}

void copy_tensor(const at::Tensor& dst, const at::Tensor& given, bool non_blocking) {
  TORCH_CHECK(dst.defined(), "self is undefined");
  TORCH_CHECK(given.defined(), "src is undefined");
  at::Tensor src = given;
  // Lazy conjugation and negation must be real before anybody looks at the memory. The views below take the bits away.
  if (C10_UNLIKELY(src.is_neg())) src = at::neg(src._neg_view());
  if (C10_UNLIKELY(src.is_conj())) src = at::conj_physical(src._conj());
  if (C10_UNLIKELY(dst.is_neg())) return copy_tensor(dst._neg_view(), at::neg(src), non_blocking);
  if (C10_UNLIKELY(dst.is_conj())) return copy_tensor(dst._conj(), at::conj_physical(src), non_blocking);
  if (src.sizes() != dst.sizes()) {
    at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
    TORCH_CHECK(
        dst.sizes() == shape, "output with shape ", dst.sizes(), " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
    src = src.expand(dst.sizes());
  }
  if (dst.numel() == 0) return;
  if (C10_UNLIKELY(src._is_zerotensor())) {
    dst.zero_();
    return;
  }
  at::assert_no_internal_overlap(dst);
  if (same_memory(dst, src)) return;
  bool to_device = is_neuron(dst), from_device = is_neuron(src);
  if (to_device && from_device) {
    if (dst.device() == src.device()) {
      if (!copy_on_device(dst, src)) copy_through_host(dst, src);
    } else {
      copy_through_host(dst, src);
    }
  } else if (to_device) {
    TORCH_CHECK(src.device().is_cpu(), "cannot copy from ", src.device(), " to ", dst.device());
    copy_from_host(dst, src, non_blocking);
  } else {
    TORCH_CHECK(dst.device().is_cpu(), "cannot copy from ", src.device(), " to ", dst.device());
    copy_to_host(dst, src);
  }
}

void fill_uninitialized(const at::Tensor& self, int64_t begin) {
  if (C10_LIKELY(
          !at::globalContext().deterministicAlgorithms() ||
          !at::globalContext().deterministicFillUninitializedMemory()))
    return;
  auto elements = static_cast<int64_t>(self.storage().nbytes() / self.itemsize()) - begin;
  if (elements <= 0) return;
  at::Tensor rest = make_view(self, {elements}, {1}, begin);
  if (self.is_floating_point() || self.is_complex()) {
    rest.fill_(std::numeric_limits<double>::quiet_NaN());
  } else if (self.scalar_type() == at::kBool) {
    rest.fill_(true);
  } else {
    unsigned bits = static_cast<unsigned>(self.itemsize()) * 8;
    bool is_signed = c10::isSignedType(self.scalar_type());
    uint64_t largest = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    if (is_signed) largest >>= 1;
    if (!is_signed && bits == 64) rest.fill_(at::Scalar(largest));
    else rest.fill_(static_cast<int64_t>(largest));
  }
}

namespace {

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TNX_COUNT_OP("aten::copy_");
  copy_tensor(self, src, non_blocking);
  return self;
}

// Strides of a copy that keeps the order of the dimensions.
at::DimVector kept_strides(const at::Tensor& self) {
  return is_dense(self) ? at::DimVector(self.strides()) : at::DimVector(at::infer_dense_strides(self.sizes(), self.strides()));
}

// Uninitialised memory for a copy of `self`.
at::Tensor empty_for(const at::Tensor& self, c10::ScalarType dtype, c10::DeviceIndex device, c10::MemoryFormat format) {
  if (format == c10::MemoryFormat::Preserve) return make_strided(dtype, self.sizes(), kept_strides(self), device);
  at::Tensor t = make_contiguous(dtype, self.sizes(), device);
  if (format != c10::MemoryFormat::Contiguous) t.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return t;
}

at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat> given) {
  TNX_COUNT_OP("aten::clone");
  c10::MemoryFormat format = given.value_or(c10::MemoryFormat::Preserve);
  if (C10_UNLIKELY(self._is_zerotensor())) return at::zeros(self.sizes(), self.options());
  at::Tensor out = empty_for(self, self.scalar_type(), self.device().index(), format);
  copy_tensor(out, self, false);
  return out;
}

at::Tensor to_copy(
    const at::Tensor& self, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, bool non_blocking,
    std::optional<c10::MemoryFormat> given) {
  TNX_COUNT_OP("aten::_to_copy");
  TORCH_CHECK(
      !layout || *layout == self.layout(), "to(options) doesn't support converting to a different layout, but got self.layout being ",
      self.layout(), " and options.layout set as ", *layout);
  c10::Device target = device.value_or(self.device());
  c10::ScalarType type = dtype.value_or(self.scalar_type());
  c10::MemoryFormat format = given.value_or(c10::MemoryFormat::Preserve);
  at::Tensor out;
  if (target.is_privateuseone()) {
    TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
    out = empty_for(self, type, checked_device(target.index()), format);
  } else {
    at::TensorOptions options = at::TensorOptions().dtype(type).device(target).pinned_memory(pin_memory);
    out = format == c10::MemoryFormat::Preserve ? at::empty_strided(self.sizes(), kept_strides(self), options) : at::empty(self.sizes(), options, format);
    // Meta tensors and other accelerators have no memory of ours to fill.
    if (!target.is_cpu()) {
      out.copy_(self, non_blocking);
      return out;
    }
  }
  copy_tensor(out, self, non_blocking);
  return out;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  copy_tensor(dst, self, non_blocking);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (is_neuron(dst) && dst.sizes() != self.sizes()) resize_tensor(dst.unsafeGetTensorImpl(), self.sizes());
  else if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  copy_tensor(dst, self, false);
  return dst;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  TNX_COUNT_OP("aten::_local_scalar_dense");
  alignas(16) char value[16];
  check(tnx_copy_to_host(value, data_of(self, false), self.itemsize(), current_stream_handle(self.device().index())));
  switch (self.scalar_type()) {
#define TNX_SCALAR(type, name)                 \
  case at::ScalarType::name:                   \
    return at::Scalar(*reinterpret_cast<type*>(value));
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_EXCEPT_COMPLEX_HALF_F8NZ(TNX_SCALAR)
    TNX_SCALAR(c10::complex<c10::Half>, ComplexHalf)
    TNX_SCALAR(c10::Float8_e5m2fnuz, Float8_e5m2fnuz)
    TNX_SCALAR(c10::Float8_e4m3fnuz, Float8_e4m3fnuz)
    TNX_SCALAR(c10::Float8_e8m0fnu, Float8_e8m0fnu)
#undef TNX_SCALAR
    case at::ScalarType::UInt16:
      return at::Scalar(static_cast<int64_t>(*reinterpret_cast<uint16_t*>(value)));
    case at::ScalarType::UInt32:
      return at::Scalar(static_cast<int64_t>(*reinterpret_cast<uint32_t*>(value)));
    case at::ScalarType::UInt64:
      return at::Scalar(*reinterpret_cast<uint64_t*>(value));
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"_local_scalar_dense\" not implemented for '", self.scalar_type(), "'");
  }
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  const void* data = self.storage().data();
  if (data) check(tnx_mem_record_stream(const_cast<void*>(data), stream_handle(stream)));
}

// module.to() keeps a parameter's identity (and so tied weights) where the old tensor can take over the new one's storage.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  auto plain = [](const at::Tensor& t) {
    return t.layout() == at::kStrided &&
        (t.device().is_cpu() || t.device().is_privateuseone() || t.device().is_meta());
  };
  return plain(self) && plain(from);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("clone", TORCH_FN(clone));
  m.impl("_to_copy", TORCH_FN(to_copy));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

} // namespace
} // namespace torch_neuronx
