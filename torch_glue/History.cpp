#include "History.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace torch_neuronx {
namespace {

struct History {
  std::mutex mutex; // guards all below but `on`
  HistoryOptions options;
  std::deque<HistoryEntry> events;
  std::unordered_map<uint64_t, HistoryEntry> live;
  std::atomic<bool> on{false};
};
History& history() {
  static auto* h = new History();
  return *h;
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Takes the GIL: not with the mutex held.
std::shared_ptr<torch::CapturedTraceback> traceback(bool wanted, bool cpp_frames) {
  return wanted ? torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp_frames) : nullptr;
}

HistoryOptions current_options() {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  return h.options;
}

void keep(History& h, HistoryEntry entry) {
  if (h.options.depth != HistoryDepth::All || h.options.max_entries == 0) return;
  while (h.events.size() >= h.options.max_entries) h.events.pop_front();
  h.events.push_back(std::move(entry));
}

} // namespace

bool history_is_on() noexcept {
  return history().on.load(std::memory_order_relaxed);
}

void record_history(const HistoryOptions& options, bool clear) {
  History& h = history();
  std::deque<HistoryEntry> events; // dropped without the mutex: tracebacks may take the GIL
  std::unordered_map<uint64_t, HistoryEntry> live;
  std::lock_guard<std::mutex> lock(h.mutex);
  if (clear || options.depth == HistoryDepth::Off) {
    events.swap(h.events);
    live.swap(h.live);
  }
  h.options = options;
  h.on.store(options.depth != HistoryDepth::Off, std::memory_order_relaxed);
}

void note_alloc(int device, const void* address, size_t size, const tnx_stream* stream) {
  History& h = history();
  HistoryOptions options = current_options();
  HistoryEntry e{
      "alloc", device, reinterpret_cast<uint64_t>(address), size, tnx_stream_id(stream), now_us(),
      traceback(options.context != HistoryDepth::Off, options.cpp_frames)};
  std::lock_guard<std::mutex> lock(h.mutex);
  if (h.options.depth == HistoryDepth::Off) return;
  keep(h, e);
  h.live[e.address] = std::move(e);
}

void note_free(const void* address) {
  History& h = history();
  HistoryOptions options = current_options();
  auto context = traceback(options.context == HistoryDepth::All, options.cpp_frames);
  HistoryEntry freed{};
  std::lock_guard<std::mutex> lock(h.mutex);
  auto it = h.live.find(reinterpret_cast<uint64_t>(address));
  if (it == h.live.end()) return;
  freed = std::move(it->second);
  h.live.erase(it);
  for (const char* action : {"free_requested", "free_completed"})
    keep(h, {action, freed.device, freed.address, freed.size, freed.stream, now_us(), context});
}

void note_out_of_memory(int device, size_t size, uint64_t free_bytes) {
  History& h = history();
  HistoryOptions options = current_options();
  auto context = traceback(options.context != HistoryDepth::Off, options.cpp_frames);
  std::lock_guard<std::mutex> lock(h.mutex);
  keep(h, {"oom", device, free_bytes, size, 0, now_us(), context});
}

std::vector<HistoryEntry> history_events() {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  return {h.events.begin(), h.events.end()};
}

std::vector<HistoryEntry> history_live() {
  History& h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  std::vector<HistoryEntry> out;
  for (const auto& [address, entry] : h.live) out.push_back(entry);
  return out;
}

} // namespace torch_neuronx
