#include "Tracking.h"

#include <map>
#include <memory>
#include <mutex>

namespace torch_neuronx {
namespace {

struct Registry {
  std::mutex mutex; // guards the map, not the counters
  std::map<std::string, std::unique_ptr<OpCounter>, std::less<>> counters;
};
Registry& registry() {
  static auto* r = new Registry();
  return *r;
}

} // namespace

OpCounter* op_counter(std::string_view name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.counters.find(name);
  if (it == r.counters.end()) {
    auto counter = std::make_unique<OpCounter>();
    counter->name = name;
    it = r.counters.emplace(counter->name, std::move(counter)).first;
  }
  return it->second.get();
}

std::vector<OpCount> op_counts() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<OpCount> out;
  for (auto& [name, counter] : r.counters) {
    OpCount c{name, counter->executed.load(std::memory_order_relaxed), counter->fallback.load(std::memory_order_relaxed)};
    if (c.executed || c.fallback) out.push_back(std::move(c));
  }
  return out;
}

void clear_op_counts() {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& [name, counter] : r.counters) {
    counter->executed.store(0, std::memory_order_relaxed);
    counter->fallback.store(0, std::memory_order_relaxed);
  }
}

} // namespace torch_neuronx
