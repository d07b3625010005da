// What PyTorch's device-independent code asks a backend.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "Generator.h"
#include "HostAllocator.h"
#include "Resize.h"
#include "Status.h"
#include "Stream.h"

namespace torch_neuronx {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return torch_neuronx::device_count() > 0; }
  void init() const override { check(tnx_runtime_open()); }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < torch_neuronx::device_count() && tnx_runtime_is_open();
  }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(torch_neuronx::device_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex previous = current_device();
    if (index >= 0) set_device(index);
    return previous;
  }
  // Nothing is opened by making a device current, so this is the same.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return tnx_host_is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    int device = tnx_mem_device_of(data);
    TORCH_CHECK(device >= 0, "the pointer does not point to memory of a neuron device");
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

} // namespace
} // namespace torch_neuronx
