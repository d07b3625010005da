// c10's view of devices, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "Status.h"
#include "Stream.h"
#include "tnx/dtype.h"

namespace torch_neuronx {
namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static tnx_event* event_of(void* event) { return static_cast<tnx_event*>(event); }
  static c10::Device device_at(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }

  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::DeviceIndex previous = current_device();
    if (d.index() != previous) set_device(d.index());
    return device_at(previous);
  }
  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device d) const override { set_device(d.index()); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { set_device_unchecked(d.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (int i = 0; i < static_cast<int>(c10::NumScalarTypes); i++) {
      auto type = static_cast<c10::ScalarType>(i);
      if (tnx_dtype_parse(name_of(type)) != TNX_DTYPE_NONE) capability.capability_data.capability_bits |= 1ULL << i;
    }
    return capability;
  }

  c10::Stream getStream(c10::Device d) const override { return current_stream(d.index()); }
  c10::Stream getDefaultStream(c10::Device d) const override { return default_stream(d.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high) const override {
    return pooled_stream(d.index(), high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device d, int priority) const override { return pooled_stream(d.index(), priority); }
  c10::Stream exchangeStream(c10::Stream s) const override { return exchange_stream(s); }
  void* getStreamNativeHandle(const c10::Stream s) const override { return stream_handle(s); }
  bool queryStream(const c10::Stream& s) const override { return tnx_stream_query(stream_handle(s)); }
  void synchronizeStream(const c10::Stream& s) const override { check(tnx_stream_synchronize(stream_handle(s))); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check(tnx_device_synchronize(checked_device(index)));
  }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& s) const override {
    if (ptr.get()) check(tnx_mem_record_stream(ptr.get(), stream_handle(s)));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index, const c10::EventFlag flag)
      const override {
    TORCH_CHECK(
        index == -1 || index == stream.device_index(),
        "Event device index ",
        static_cast<int>(index),
        " does not match recording stream's device index ",
        static_cast<int>(stream.device_index()),
        ".");
    if (!*event) {
      tnx_event* created = nullptr;
      // PyTorch passes BACKEND_DEFAULT for events that measure time.
      check(tnx_event_create(flag == c10::EventFlag::BACKEND_DEFAULT, &created));
      *event = created;
    }
    check(tnx_event_record(event_of(*event), stream_handle(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) check(tnx_stream_wait_event(stream_handle(stream), event_of(event)));
  }
  bool queryEvent(void* event) const override { return !event || tnx_event_query(event_of(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) check(tnx_event_synchronize(event_of(event)));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event) tnx_event_destroy(event_of(event));
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(begin && end, "Both events must be recorded before calculating elapsed time.");
    double ms = 0;
    check(tnx_event_elapsed_ms(event_of(begin), event_of(end), &ms));
    return ms;
  }

 private:
  static const char* name_of(c10::ScalarType type) {
    switch (type) {
      case c10::ScalarType::Bool: return "bool";
      case c10::ScalarType::Byte: return "uint8";
      case c10::ScalarType::Char: return "int8";
      case c10::ScalarType::Short: return "int16";
      case c10::ScalarType::Int: return "int32";
      case c10::ScalarType::Long: return "int64";
      case c10::ScalarType::UInt16: return "uint16";
      case c10::ScalarType::UInt32: return "uint32";
      case c10::ScalarType::UInt64: return "uint64";
      case c10::ScalarType::Float8_e4m3fn: return "float8_e4m3fn";
      case c10::ScalarType::Float8_e5m2: return "float8_e5m2";
      case c10::ScalarType::Half: return "float16";
      case c10::ScalarType::BFloat16: return "bfloat16";
      case c10::ScalarType::Float: return "float32";
      case c10::ScalarType::Double: return "float64";
      case c10::ScalarType::ComplexFloat: return "complex64";
      case c10::ScalarType::ComplexDouble: return "complex128";
      default: return "";
    }
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace
} // namespace torch_neuronx
