#include "Stream.h"

#include <array>
#include <atomic>
#include <mutex>

#include "Status.h"

namespace torch_neuronx {
namespace {

constexpr int kPoolSize = 32;

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<tnx_stream*, kMaxDevices> streams{}; // null: the default stream, not looked up yet
};
thread_local ThreadState t_state;

std::atomic<bool> g_multiple{false};

struct Pool {
  std::mutex mutex; // guards the two below
  std::array<tnx_stream*, kPoolSize> streams{};
  unsigned next = 0;
};
// Index 0: normal priority, 1: high priority.
Pool& pool_of(c10::DeviceIndex device, bool high) {
  static auto* pools = new std::array<std::array<Pool, 2>, kMaxDevices>();
  return (*pools)[static_cast<size_t>(device)][high ? 1 : 0];
}

c10::Stream make_stream(c10::DeviceIndex index, uint64_t id) {
  return c10::Stream(
      c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), static_cast<c10::StreamId>(id));
}

} // namespace

int device_count() noexcept {
  int n = tnx_device_count();
  return n < 0 ? 0 : (n > kMaxDevices ? kMaxDevices : n);
}

c10::DeviceIndex current_device() noexcept {
  return t_state.device;
}

c10::DeviceIndex checked_device(c10::DeviceIndex index) {
  if (index == -1) return t_state.device;
  int n = device_count();
  if (C10_UNLIKELY(index < 0 || index >= n)) {
    if (n == 0) check(tnx_runtime_open()); // explains why there is no device
    TORCH_CHECK(
        false, "Invalid device index ", static_cast<int>(index), ": this process sees ", n, " Neuron device(s)");
  }
  return index;
}

void set_device(c10::DeviceIndex index) {
  t_state.device = checked_device(index);
}

void set_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0 && index < kMaxDevices) t_state.device = index;
}

bool multiple_streams() noexcept {
  return g_multiple.load(std::memory_order_relaxed);
}

tnx_stream* current_stream_handle(c10::DeviceIndex index) {
  tnx_stream*& slot = t_state.streams[static_cast<size_t>(index)];
  if (C10_UNLIKELY(!slot)) {
    checked_device(index);
    check(tnx_stream_default(index, &slot));
  }
  // A forked child inherits the parent's pointers, and must not touch them; the calls themselves report BAD_FORK.
  return slot;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  index = checked_device(index);
  tnx_stream* s = t_state.streams[static_cast<size_t>(index)];
  return make_stream(index, s ? tnx_stream_id(s) : 0);
}

c10::Stream default_stream(c10::DeviceIndex index) {
  return make_stream(checked_device(index), 0);
}

c10::Stream pooled_stream(c10::DeviceIndex index, int priority) {
  index = checked_device(index);
  Pool& pool = pool_of(index, priority < 0);
  std::lock_guard<std::mutex> lock(pool.mutex);
  tnx_stream*& slot = pool.streams[pool.next++ % kPoolSize];
  if (!slot) check(tnx_stream_create(index, priority < 0 ? -1 : 0, &slot));
  return make_stream(index, tnx_stream_id(slot));
}

tnx_stream* stream_handle(c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == c10::DeviceType::PrivateUse1, "expected a neuron stream but got one of ", stream.device());
  c10::DeviceIndex index = checked_device(stream.device_index());
  if (stream.id() == 0) {
    tnx_stream* s = nullptr;
    check(tnx_stream_default(index, &s));
    return s;
  }
  tnx_stream* s = tnx_stream_find(index, static_cast<uint64_t>(stream.id()));
  TORCH_CHECK(s, "no stream with id ", stream.id(), " on neuron:", static_cast<int>(index));
  return s;
}

c10::Stream exchange_stream(c10::Stream stream) {
  c10::Stream previous = current_stream(stream.device_index());
  tnx_stream* handle = stream_handle(stream);
  if (stream.id() != 0) g_multiple.store(true, std::memory_order_relaxed);
  t_state.streams[static_cast<size_t>(stream.device_index())] = handle;
  return previous;
}

} // namespace torch_neuronx
