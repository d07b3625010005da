// torch_neuronx._C: what the Python package needs beyond PyTorch's generic device API.
#include "Python.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <string>
#include <vector>

#include "Fallback.h"
#include "Generator.h"
#include "History.h"
#include "Status.h"
#include "Stream.h"
#include "Tracking.h"
#include "tnx/call.h"
#include "tnx/runtime.h"

namespace py = pybind11;

// Their header includes one that PyTorch's package does not have.
namespace torch {
TORCH_PYTHON_API void freeDeadCapturedTracebackFrames();
TORCH_PYTHON_API void installCapturedTracebackPython();
} // namespace torch

namespace torch_neuronx {
namespace {

py::dict stat_dict(const tnx_mem_stat (&stats)[TNX_POOL_COUNT]) {
  static const char* pools[TNX_POOL_COUNT] = {"all", "small_pool", "large_pool"};
  py::dict out;
  for (int i = 0; i < TNX_POOL_COUNT; i++) {
    py::dict d;
    d["current"] = stats[i].current;
    d["peak"] = stats[i].peak;
    d["allocated"] = stats[i].allocated;
    d["freed"] = stats[i].freed;
    out[pools[i]] = d;
  }
  return out;
}

// {"allocated_bytes": {"all": {"current": ...}, "small_pool": ...}, ..., "num_ooms": ...}
py::dict memory_stats(int device) {
  tnx_mem_stats s;
  check(tnx_mem_get_stats(checked_device(static_cast<c10::DeviceIndex>(device)), &s));
  py::dict out;
  out["allocation"] = stat_dict(s.allocation);
  out["segment"] = stat_dict(s.segment);
  out["active"] = stat_dict(s.active);
  out["inactive_split"] = stat_dict(s.inactive_split);
  out["allocated_bytes"] = stat_dict(s.allocated_bytes);
  out["reserved_bytes"] = stat_dict(s.reserved_bytes);
  out["active_bytes"] = stat_dict(s.active_bytes);
  out["inactive_split_bytes"] = stat_dict(s.inactive_split_bytes);
  out["requested_bytes"] = stat_dict(s.requested_bytes);
  out["num_alloc_retries"] = s.num_alloc_retries;
  out["num_ooms"] = s.num_ooms;
  out["num_tensor_frees"] = s.num_tensor_frees;
  out["allocation_requests"] = s.allocation_requests;
  return out;
}

py::list memory_blocks(int device) {
  std::vector<tnx_mem_block> blocks;
  // The walk holds the allocator's lock: room is made before, and the few blocks that appear in between grow it again.
  auto collect = [](void* context, const tnx_mem_block* block) {
    static_cast<std::vector<tnx_mem_block>*>(context)->push_back(*block);
  };
  check(tnx_mem_walk(checked_device(static_cast<c10::DeviceIndex>(device)), collect, &blocks));
  py::list out;
  for (const tnx_mem_block& b : blocks) {
    py::dict d;
    d["segment"] = b.segment;
    d["segment_size"] = b.segment_size;
    d["address"] = b.address;
    d["size"] = b.size;
    d["requested"] = b.requested;
    d["stream"] = b.stream;
    d["allocated"] = b.allocated;
    d["small_pool"] = b.small_pool;
    out.append(d);
  }
  return out;
}

// Entries with their tracebacks as PyTorch's snapshots have them: the innermost frame first.
py::list history_list(const std::vector<HistoryEntry>& entries) {
  std::vector<torch::CapturedTraceback*> contexts;
  for (const HistoryEntry& e : entries)
    if (e.context) contexts.push_back(e.context.get());
  torch::SymbolizedTracebacks symbols = torch::symbolize(contexts);
  std::vector<py::dict> frames;
  for (const auto& f : symbols.all_frames) {
    py::dict d;
    d["filename"] = f.filename;
    d["line"] = f.lineno;
    d["name"] = f.funcname;
    frames.push_back(d);
  }
  py::list out;
  size_t next = 0;
  for (const HistoryEntry& e : entries) {
    py::list stack;
    if (e.context)
      for (uint64_t index : symbols.tracebacks[next++]) stack.append(frames[index]);
    py::dict d;
    d["action"] = e.action;
    d["device"] = e.device;
    d["addr"] = e.address;
    d["size"] = e.size;
    d["stream"] = e.stream;
    d["time_us"] = e.time_us;
    d["frames"] = stack;
    out.append(d);
  }
  return out;
}

HistoryDepth history_depth(const std::string& name) {
  if (name == "state" || name == "alloc") return HistoryDepth::Live;
  return name == "all" ? HistoryDepth::All : HistoryDepth::Off;
}

py::dict device_properties(int device) {
  tnx_device_props p;
  check(tnx_device_get_props(checked_device(static_cast<c10::DeviceIndex>(device)), &p));
  py::dict d;
  d["name"] = std::string(p.name);
  d["chip"] = std::string(p.chip);
  d["driver"] = std::string(p.driver);
  d["isa"] = std::string(p.isa);
  d["total_memory"] = p.total_memory;
  d["cores"] = p.cores;
  return d;
}

py::dict cache_stats() {
  tnx_cache_stats s;
  tnx_cache_get_stats(&s);
  py::dict d;
  d["hits"] = s.hits;
  d["misses"] = s.misses;
  d["evictions"] = s.evictions;
  d["entries"] = s.entries;
  d["bytes"] = s.bytes;
  d["build_ns"] = s.build_ns;
  return d;
}

py::dict program_stats() {
  tnx_program_stats s;
  tnx_program_get_stats(&s);
  py::dict d;
  d["programs"] = s.programs;
  d["compiled"] = s.compiled;
  d["cached"] = s.cached;
  d["loaded"] = s.loaded;
  d["executed"] = s.executed;
  return d;
}

py::list rows() {
  py::list out;
  for (uint32_t i = 0; i < tnx_row_count(); i++) {
    const tnx_row* r = tnx_row_at(i);
    py::dict d;
    d["functional"] = r->functional;
    d["inplace"] = r->inplace;
    d["out"] = r->out;
    d["view"] = (r->flags & TNX_ROW_VIEW) != 0;
    d["composite"] = (r->flags & TNX_ROW_COMPOSITE) != 0;
    d["random"] = (r->flags & TNX_ROW_RANDOM) != 0;
    d["list"] = (r->flags & TNX_ROW_LIST) != 0;
    out.append(d);
  }
  return out;
}

// How each aten overload runs on the device: "table" (a row of libtnx), "glue" (a kernel of the extension), "composite"
// (PyTorch takes it apart) or "fallback" (on the CPU).
py::dict operator_support() {
  py::dict out;
  for (const c10::OperatorName& n : c10::Dispatcher::singleton().getAllOpNames()) {
    if (n.name.rfind("aten::", 0) != 0) continue;
    auto op = c10::Dispatcher::singleton().findSchema(n);
    if (!op) continue;
    std::string name = n.name.substr(6) + (n.overload_name.empty() ? "" : "." + n.overload_name);
    const tnx_row* found = tnx_row_find(name.c_str());
    bool row = found && !(found->flags & TNX_ROW_VIEW);
    const char* kind = "fallback";
    if (op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) kind = row ? "table" : "glue";
    else if (
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
      kind = "composite";
    out[py::str(name)] = kind;
  }
  return out;
}

} // namespace

void bind_runtime(py::module_& m) {
  using release = py::call_guard<py::gil_scoped_release>;
  m.def("open", [] { check(tnx_runtime_open()); }, release());
  m.def("is_open", &tnx_runtime_is_open);
  m.def("close", &tnx_runtime_close, release());
  m.def("is_in_bad_fork", &tnx_runtime_in_bad_fork);
  m.def("device_count", &device_count);
  m.def("device_properties", &device_properties);
  m.def("synchronize", [](int device) { check(tnx_device_synchronize(checked_device(static_cast<c10::DeviceIndex>(device)))); }, release());

  m.def("memory_stats", &memory_stats);
  m.def("record_memory_history", [](const std::string& enabled, const std::string& context, bool cpp_frames, size_t max_entries, bool clear) {
    torch::installCapturedTracebackPython();
    record_history({history_depth(enabled), history_depth(context), cpp_frames, max_entries}, clear);
    torch::freeDeadCapturedTracebackFrames();
  });
  m.def("memory_history", [] { return py::make_tuple(history_list(history_events()), history_list(history_live())); });
  m.def("memory_blocks", &memory_blocks);
  m.def("memory_info", [](int device) {
    uint64_t free_bytes = 0, total = 0;
    check(tnx_mem_get_info(checked_device(static_cast<c10::DeviceIndex>(device)), &free_bytes, &total));
    return std::make_pair(free_bytes, total);
  });
  m.def("set_memory_limit", [](int device, uint64_t bytes) {
    check(tnx_mem_set_limit(checked_device(static_cast<c10::DeviceIndex>(device)), bytes));
  });

  m.def("default_generator", [](int device) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(device))));
  });

  m.def("set_launch_blocking", &tnx_runtime_set_blocking);
  m.def("launch_blocking", &tnx_runtime_get_blocking);
  m.def("set_num_threads", [](int n) { check(tnx_runtime_set_threads(n)); });
  m.def("num_threads", &tnx_runtime_get_threads);

  m.def("op_counts", [] {
    py::list out;
    for (const OpCount& c : op_counts()) out.append(py::make_tuple(c.name, c.executed, c.fallback));
    return out;
  });
  m.def("clear_op_counts", &clear_op_counts);
  m.def("fallback_mode", [] {
    switch (fallback_mode()) {
      case FallbackMode::Error: return "error";
      case FallbackMode::Silent: return "silent";
      default: return "warn";
    }
  });
  m.def("set_fallback_mode", [](const std::string& mode) {
    if (mode == "warn") set_fallback_mode(FallbackMode::Warn);
    else if (mode == "error") set_fallback_mode(FallbackMode::Error);
    else if (mode == "silent") set_fallback_mode(FallbackMode::Silent);
    else TORCH_CHECK_VALUE(false, "fallback mode must be warn, error or silent, not '", mode, "'");
  });

  m.def("cache_stats", &cache_stats);
  m.def("cache_clear", &tnx_cache_clear);
  m.def("program_stats", &program_stats);
  m.def("rows", &rows);
  m.def("has_row", [](const std::string& name) { return tnx_row_find(name.c_str()) != nullptr; });
  m.def("operator_support", &operator_support);
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "The native part of torch_neuronx.";
  bind_runtime(m);
  bind_graph(m);
}

} // namespace torch_neuronx
