// Which operators ran, and which of them on the CPU. Counting costs one relaxed store.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_neuronx {

// Lives until the process ends.
struct OpCounter {
  std::string name; // "aten::add.Tensor"
  std::atomic<uint64_t> executed{0}, fallback{0};
  std::atomic<bool> warned{false};

  // Two threads may lose a count to each other; nobody needs an exact figure enough to pay for a locked instruction.
  static void bump(std::atomic<uint64_t>& n) {
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void ran() { bump(executed); }
};

// The counter of an operator; the same one for the same name.
OpCounter* op_counter(std::string_view name);
struct OpCount {
  std::string name;
  uint64_t executed, fallback;
};
// Operators with a count that is not zero, by name.
std::vector<OpCount> op_counts();
void clear_op_counts();

#define TNX_COUNT_OP(name)                                                       \
  do {                                                                           \
    static ::torch_neuronx::OpCounter* tnx_counter_ = ::torch_neuronx::op_counter(name); \
    tnx_counter_->ran();                                                         \
  } while (0)

} // namespace torch_neuronx
