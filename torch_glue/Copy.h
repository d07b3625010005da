// Moving data: host to device, device to host, device to device; with conversion and any strides.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_neuronx {

// Bytes between two places of device memory, in the order of the current stream of the destination's device.
void copy_device_bytes(void* dst, const void* src, size_t bytes);
// dst.copy_(src): broadcasts, converts, at least one of the two is on the device.
void copy_tensor(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);
// Overwrites memory that nobody has written with the value deterministic mode promises (NaN or the largest integer),
// from element `begin` of the storage on. Does nothing unless that mode is on.
void fill_uninitialized(const at::Tensor& self, int64_t begin = 0);

} // namespace torch_neuronx
