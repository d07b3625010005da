#include "HostAllocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <mutex>
#include <unordered_map>

#include "Status.h"
#include "tnx/runtime.h"

namespace torch_neuronx {
namespace {

struct Allocator final : at::HostAllocator {
  std::mutex mutex; // guards the members below
  at::HostStats stats;
  std::unordered_map<void*, size_t> sizes;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
  // A copy to the device that does not wait takes a snapshot of its source, so queued work never reads pinned memory.
  bool record_event(void* ptr, void* ctx, c10::Stream stream) override { return tnx_host_is_pinned(ptr); }
  void empty_cache() override {} // nothing is cached
  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex);
    return stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto* s : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
      s->reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto* s : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
      s->reset_peak();
  }
};

Allocator& allocator() {
  static auto* a = new Allocator();
  return *a;
}

void free_host(void* ptr) {
  if (!ptr) return;
  Allocator& a = allocator();
  {
    std::lock_guard<std::mutex> lock(a.mutex);
    auto it = a.sizes.find(ptr);
    if (it != a.sizes.end()) {
      for (auto* s : {&a.stats.active_requests, &a.stats.allocations}) s->decrease(1);
      for (auto* s : {&a.stats.active_bytes, &a.stats.allocated_bytes}) s->decrease(it->second);
      a.stats.num_host_free++;
      a.sizes.erase(it);
    }
  }
  tnx_host_free(ptr);
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  void* ptr = nullptr;
  if (bytes) {
    check(tnx_host_alloc(bytes, &ptr));
    std::lock_guard<std::mutex> lock(mutex);
    sizes[ptr] = bytes;
    for (auto* s : {&stats.active_requests, &stats.allocations}) s->increase(1);
    for (auto* s : {&stats.active_bytes, &stats.allocated_bytes}) s->increase(bytes);
    stats.num_host_alloc++;
  }
  return c10::DataPtr(ptr, ptr, &free_host, c10::Device(c10::DeviceType::CPU));
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return &free_host;
}

const bool registered = [] {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, &allocator());
  return true;
}();

} // namespace

c10::Allocator* pinned_allocator() {
  return &allocator();
}

} // namespace torch_neuronx
