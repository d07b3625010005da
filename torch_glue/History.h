// What torch.neuron.memory._record_memory_history keeps: who allocated the live blocks, and the last allocations and frees.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tnx/runtime.h"

namespace torch {
struct CapturedTraceback;
}

namespace torch_neuronx {

enum class HistoryDepth { Off, Live, All }; // nothing; the live blocks; also a list of what happened

struct HistoryOptions {
  HistoryDepth depth = HistoryDepth::Off;
  HistoryDepth context = HistoryDepth::Off; // whose tracebacks are taken: of no event, of allocations, also of frees
  bool cpp_frames = false;
  size_t max_entries = 0;
};
struct HistoryEntry {
  const char* action; // PyTorch's names: "alloc", "free_requested", "oom"
  int device;
  uint64_t address, size, stream; // size: as asked for
  int64_t time_us;
  std::shared_ptr<torch::CapturedTraceback> context;
};

// Not for concurrent calls with itself; allocations may go on meanwhile.
void record_history(const HistoryOptions& options, bool clear);
bool history_is_on() noexcept;
void note_alloc(int device, const void* address, size_t size, const tnx_stream* stream);
void note_free(const void* address);
void note_out_of_memory(int device, size_t size, uint64_t free_bytes);
// The events kept, oldest first, and the live blocks allocated while recording.
std::vector<HistoryEntry> history_events();
std::vector<HistoryEntry> history_live();

} // namespace torch_neuronx
