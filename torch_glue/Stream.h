// The calling thread's current device and streams, and the mapping c10::Stream <-> tnx_stream.
//
// c10's stream id is libtnx's: 0 is a device's default stream. Streams handed out by torch.Stream come from pools of
// 32 per device and priority class and live until the process ends, because c10::Stream is copied without ownership.
#pragma once
#include <c10/core/Stream.h>

#include "tnx/runtime.h"

namespace torch_neuronx {

constexpr int kMaxDevices = 64;

// Number of devices; never opens the runtime, never throws.
int device_count() noexcept;
// The thread's current device. Opens nothing.
c10::DeviceIndex current_device() noexcept;
void set_device(c10::DeviceIndex index);
void set_device_unchecked(c10::DeviceIndex index) noexcept;
// `index`, or the current device for -1; throws for a device that does not exist.
c10::DeviceIndex checked_device(c10::DeviceIndex index);

// True once any thread has made a stream other than the default one current: only then can a block be used by a
// stream it was not allocated for.
bool multiple_streams() noexcept;

// The thread's current stream of a device (not -1). Opens the runtime on first use.
tnx_stream* current_stream_handle(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream default_stream(c10::DeviceIndex index);
c10::Stream pooled_stream(c10::DeviceIndex index, int priority);
c10::Stream exchange_stream(c10::Stream stream);
// Throws if there is no such stream.
tnx_stream* stream_handle(c10::Stream stream);

} // namespace torch_neuronx
