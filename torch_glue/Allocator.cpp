#include "Allocator.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "Copy.h"
#include "History.h"
#include "Status.h"
#include "Stream.h"

namespace torch_neuronx {
namespace {

// Sizes of the blocks that were allocated while a memory profiler was listening: its frees need them.
struct ProfiledBlocks {
  std::mutex mutex; // guards sizes
  std::unordered_map<void*, size_t> sizes;
  std::atomic<size_t> count{0};
};
ProfiledBlocks& profiled() {
  static auto* blocks = new ProfiledBlocks();
  return *blocks;
}

void report(void* ptr, int64_t delta, int device) {
  tnx_mem_stats stats;
  if (tnx_mem_get_stats(device, &stats) != TNX_OK) return;
  c10::reportMemoryUsageToProfiler(
      ptr,
      delta,
      static_cast<size_t>(stats.allocated_bytes[TNX_POOL_ALL].current),
      static_cast<size_t>(stats.reserved_bytes[TNX_POOL_ALL].current),
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
}

void free_block(void* ptr) {
  if (!ptr) return;
  if (C10_UNLIKELY(history_is_on())) note_free(ptr);
  ProfiledBlocks& blocks = profiled();
  if (C10_UNLIKELY(blocks.count.load(std::memory_order_relaxed))) {
    size_t size = 0;
    {
      std::lock_guard<std::mutex> lock(blocks.mutex);
      auto it = blocks.sizes.find(ptr);
      if (it != blocks.sizes.end()) {
        size = it->second;
        blocks.sizes.erase(it);
        blocks.count.fetch_sub(1, std::memory_order_relaxed);
      }
    }
    int device = tnx_mem_device_of(ptr);
    tnx_mem_free(ptr);
    if (size && c10::memoryProfilingEnabled()) report(ptr, -static_cast<int64_t>(size), device);
    return;
  }
  tnx_mem_free(ptr);
}

void convert(const tnx_mem_stat* from, c10::CachingAllocator::StatArray& to) {
  // Both count in the same order: all, small pool, large pool.
  for (int i = 0; i < TNX_POOL_COUNT; i++) {
    auto& stat = to[static_cast<size_t>(i)];
    stat.current = from[i].current;
    stat.peak = from[i].peak;
    stat.allocated = from[i].allocated;
    stat.freed = from[i].freed;
  }
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DeviceIndex device = current_device();
    return allocate_on(device, bytes, current_stream_handle(device));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    copy_device_bytes(dest, src, count);
  }
  bool initialized() override { return tnx_runtime_is_open(); }
  void emptyCache(c10::MempoolId_t) override {
    if (!tnx_runtime_is_open()) return;
    for (int i = 0; i < device_count(); i++) check(tnx_mem_empty_cache(i));
  }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    if (ptr.get()) check(tnx_mem_record_stream(ptr.get(), stream_handle(stream)));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    tnx_mem_stats s;
    check(tnx_mem_get_stats(checked_device(device), &s));
    c10::CachingDeviceAllocator::DeviceStats out;
    convert(s.allocation, out.allocation);
    convert(s.segment, out.segment);
    convert(s.active, out.active);
    convert(s.inactive_split, out.inactive_split);
    convert(s.allocated_bytes, out.allocated_bytes);
    convert(s.reserved_bytes, out.reserved_bytes);
    convert(s.active_bytes, out.active_bytes);
    convert(s.inactive_split_bytes, out.inactive_split_bytes);
    convert(s.requested_bytes, out.requested_bytes);
    out.num_alloc_retries = s.num_alloc_retries;
    out.num_ooms = s.num_ooms;
    out.num_device_alloc = s.segment[TNX_POOL_ALL].allocated;
    out.num_device_free = s.segment[TNX_POOL_ALL].freed;
    return out;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check(tnx_mem_reset_accumulated(checked_device(device)));
  }
  void resetPeakStats(c10::DeviceIndex device) override { check(tnx_mem_reset_peak(checked_device(device))); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free_bytes = 0, total_bytes = 0;
    check(tnx_mem_get_info(checked_device(device), &free_bytes, &total_bytes));
    return {free_bytes, total_bytes};
  }
};

Allocator g_allocator;

} // namespace

c10::DeviceAllocator* device_allocator() {
  return &g_allocator;
}

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes, tnx_stream* stream) {
  void* ptr = nullptr;
  tnx_status status = tnx_mem_alloc(device, bytes, stream, &ptr);
  if (C10_UNLIKELY(status != TNX_OK)) {
    if (status == TNX_OUT_OF_MEMORY && c10::memoryProfilingEnabled()) {
      tnx_mem_stats stats{};
      if (tnx_mem_get_stats(device, &stats) == TNX_OK)
        c10::reportOutOfMemoryToProfiler(
            static_cast<int64_t>(bytes),
            static_cast<size_t>(stats.allocated_bytes[TNX_POOL_ALL].current),
            static_cast<size_t>(stats.reserved_bytes[TNX_POOL_ALL].current),
            c10::Device(c10::DeviceType::PrivateUse1, device));
    }
    if (status == TNX_OUT_OF_MEMORY && history_is_on()) {
      std::string text = tnx_error_text();
      uint64_t free_bytes = 0, total = 0;
      tnx_mem_get_info(device, &free_bytes, &total);
      note_out_of_memory(device, bytes, free_bytes);
      tnx_fail(status, "%s", text.c_str()); // what came in between may have replaced it
    }
    raise_status(status);
  }
  if (C10_UNLIKELY(ptr && history_is_on())) note_alloc(device, ptr, bytes, stream);
  if (C10_UNLIKELY(ptr && c10::memoryProfilingEnabled())) {
    ProfiledBlocks& blocks = profiled();
    {
      std::lock_guard<std::mutex> lock(blocks.mutex);
      blocks.sizes[ptr] = bytes;
      blocks.count.fetch_add(1, std::memory_order_relaxed);
    }
    report(ptr, static_cast<int64_t>(bytes), device);
  }
  return c10::DataPtr(ptr, ptr, &free_block, c10::Device(c10::DeviceType::PrivateUse1, device));
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &g_allocator)

} // namespace torch_neuronx
