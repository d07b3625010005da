// Device memory for PyTorch: libtnx's caching allocator behind c10::DeviceAllocator.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include "tnx/runtime.h"

namespace torch_neuronx {

c10::DeviceAllocator* device_allocator();
// `bytes` on the device for work on the stream; the DataPtr frees itself.
c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes, tnx_stream* stream);

} // namespace torch_neuronx
