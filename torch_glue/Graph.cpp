// Building and running compiled graphs from Python (torch.compile): GraphBuilder and CompiledPlan.
//
// A builder is used by one thread. A plan may be run by any.
#include "Python.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_scalars.h>

#include <c10/core/DefaultDtype.h>

#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "Call.h"
#include "Schema.h"
#include "Status.h"
#include "Stream.h"
#include "Tensor.h"
#include "tnx/call.h"

namespace py = pybind11;

namespace torch_neuronx {
namespace {

struct Value {
  tnx_value id;
};
// A size that depends on the graph's symbols.
struct Dim {
  tnx_dim value;
};

tnx_dim dim_of(py::handle h) {
  if (py::isinstance<Dim>(h)) return h.cast<const Dim&>().value;
  TORCH_CHECK_TYPE(PyIndex_Check(h.ptr()) && !PyBool_Check(h.ptr()), "expected an int or a Dim, got ", py::repr(h).cast<std::string>());
  return static_cast<tnx_dim>(PyNumber_AsSsize_t(h.ptr(), nullptr));
}
py::object dim_object(tnx_dim d) {
  if (tnx_dim_is_symbolic(d)) return py::cast(Dim{d});
  return py::int_(d);
}
std::vector<tnx_dim> dims_of(py::handle h) {
  std::vector<tnx_dim> out;
  for (py::handle e : py::iter(h)) out.push_back(dim_of(e));
  return out;
}

struct PlanHandle {
  tnx_plan* plan = nullptr;
  ~PlanHandle() {
    if (plan) tnx_plan_release(plan);
  }
};

struct HostInput {
  uint32_t index;
  tnx_dtype dtype;
};

class CompiledPlan {
 public:
  CompiledPlan(tnx_plan* plan, uint32_t n_inputs, std::vector<HostInput> hosts, std::vector<uint32_t> into, uint32_t n_symbols, uint64_t ns)
      : compile_ns(ns), n_inputs_(n_inputs), n_symbols_(n_symbols), hosts_(std::move(hosts)), into_(std::move(into)) {
    handle_.plan = plan;
    uint32_t n = tnx_plan_result_count(plan);
    // libtnx may list the mutated inputs among the results or leave them out.
    for (uint32_t i = 0; i < into_.size(); i++)
      if (into_[i] == TNX_NO_TENSOR) fresh_.push_back(i);
    lists_all_ = n == into_.size();
    TORCH_CHECK(lists_all_ || n == fresh_.size(), "Neuron internal error: the plan has ", n, " results, not ", into_.size());
    results_.resize(n);
    if (!n_symbols_ && n) check(tnx_plan_infer(plan, nullptr, 0, results_.data()));
  }

  // New outputs, in order. tensors: one per input, a Python number is allowed for a host input.
  py::list run(py::handle tensors, py::handle symbols) {
    PyObject* sequence = tensors.ptr();
    TORCH_CHECK_TYPE(PyList_Check(sequence) || PyTuple_Check(sequence), "run() takes a list or tuple of tensors");
    auto n = static_cast<uint32_t>(PySequence_Fast_GET_SIZE(sequence));
    TORCH_CHECK(n == n_inputs_, "the plan has ", n_inputs_, " inputs, got ", n);
    PyObject** items = PySequence_Fast_ITEMS(sequence);

    c10::SmallVector<int64_t, 8> values;
    for (py::handle s : py::iter(symbols)) values.push_back(s.cast<int64_t>());
    TORCH_CHECK(values.size() == n_symbols_, "the plan has ", n_symbols_, " symbols, got ", values.size());

    c10::SmallVector<void*, 64> inputs(n);
    c10::DeviceIndex device = -1;
    size_t host = 0;
    c10::SmallVector<std::array<char, 16>, 4> numbers(hosts_.size());
    for (uint32_t i = 0; i < n; i++) {
      if (host < hosts_.size() && hosts_[host].index == i) {
        read_number(items[i], hosts_[host].dtype, i, numbers[host].data());
        inputs[i] = numbers[host].data();
        host++;
        continue;
      }
      TORCH_CHECK_TYPE(THPVariable_Check(items[i]), "input ", i, " is not a tensor");
      const c10::TensorImpl* t = THPVariable_Unpack(items[i]).unsafeGetTensorImpl();
      TORCH_CHECK(is_neuron(t), "input ", i, " is on ", t->device(), ", not on neuron");
      if (device < 0) device = t->device().index();
      else
        TORCH_CHECK(
            device == t->device().index(), "Expected all tensors to be on the same device, but found at least two devices, ",
            neuron_device(device), " and ", t->device(), "!");
      auto* base = static_cast<char*>(const_cast<void*>(t->unsafe_storage().unsafeGetStorageImpl()->data()));
      inputs[i] = base ? base + static_cast<size_t>(t->storage_offset()) * t->itemsize() : nullptr;
    }
    if (device < 0) device = checked_device(-1);
    tnx_stream* stream = current_stream_handle(device);
    if (C10_UNLIKELY(multiple_streams()))
      for (uint32_t i = 0; i < n; i++)
        if (inputs[i] && tnx_mem_device_of(inputs[i]) >= 0) check(tnx_mem_record_stream(inputs[i], stream));

    std::vector<tnx_result> inferred;
    const tnx_result* results = results_.data();
    if (n_symbols_ && !results_.empty()) {
      inferred.resize(results_.size());
      check(tnx_plan_infer(handle_.plan, values.data(), n_symbols_, inferred.data()));
      results = inferred.data();
    }
    c10::SmallVector<void*, 16> memory(into_.size() + 1, nullptr);
    py::list out(fresh_.size());
    for (size_t k = 0; k < fresh_.size(); k++) {
      const tnx_result& r = results[lists_all_ ? fresh_[k] : k];
      if (r.none) {
        out[k] = py::none();
        continue;
      }
      auto rank = static_cast<size_t>(r.rank);
      at::Tensor t = make_tensor(
          to_torch(static_cast<tnx_dtype>(r.dtype)), {r.sizes, rank}, {r.strides, rank}, r.bytes, device, stream);
      memory[fresh_[k]] = const_cast<void*>(t.storage().data());
      PyList_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(k), THPVariable_Wrap(std::move(t)));
    }
    check(tnx_plan_run(
        handle_.plan, values.data(), n_symbols_, inputs.data(), n, memory.data(), static_cast<uint32_t>(into_.size()),
        stream));
    return out;
  }

  std::string text() const {
    char* t = nullptr;
    check(tnx_plan_text(handle_.plan, &t));
    std::string out(t);
    tnx_text_free(t);
    return out;
  }

  uint64_t compile_ns;
  uint32_t n_inputs() const { return n_inputs_; }

 private:
  static void read_number(PyObject* o, tnx_dtype dtype, uint32_t index, char* out) {
    std::memset(out, 0, 16);
    if (THPVariable_Check(o)) {
      const at::Tensor& t = THPVariable_Unpack(o);
      TORCH_CHECK(t.device().is_cpu() && t.numel() == 1, "input ", index, " must be a CPU tensor with one element");
      TORCH_CHECK(to_tnx(t.scalar_type()) == dtype, "input ", index, " has dtype ", t.scalar_type());
      std::memcpy(out, t.const_data_ptr(), t.itemsize());
      return;
    }
    torch::utils::store_scalar(out, to_torch(dtype), o);
  }

  PlanHandle handle_;
  uint32_t n_inputs_, n_symbols_;
  std::vector<HostInput> hosts_;
  std::vector<uint32_t> into_, fresh_; // fresh_: outputs that are new tensors
  std::vector<tnx_result> results_;
  bool lists_all_ = false;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name) {
    check(tnx_module_create(name.c_str(), &module_));
    tnx_module_set_default_dtype(module_, to_tnx(c10::get_default_dtype_as_scalartype()));
  }
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;
  ~GraphBuilder() { tnx_module_destroy(module_); }

  Dim symbol(const std::string& name, int64_t min) {
    Dim d{};
    check(tnx_module_symbol(module_, name.c_str(), min, &d.value));
    n_symbols_++;
    return d;
  }

  py::object dim(const std::string& op, py::handle a, py::handle b) {
    static const std::unordered_map<std::string, tnx_dim_op> ops = {
        {"add", TNX_DIM_ADD}, {"sub", TNX_DIM_SUB}, {"mul", TNX_DIM_MUL}, {"floordiv", TNX_DIM_FLOORDIV},
        {"mod", TNX_DIM_MOD}, {"min", TNX_DIM_MIN}, {"max", TNX_DIM_MAX}};
    auto it = ops.find(op);
    TORCH_CHECK_VALUE(it != ops.end(), "no operation '", op, "' on sizes");
    tnx_dim out = 0;
    check(tnx_module_dim(module_, it->second, dim_of(a), dim_of(b), &out));
    return dim_object(out);
  }

  Value input(py::handle dtype, py::handle sizes, py::handle strides, bool host) {
    tnx_dtype type = dtype_of(dtype);
    std::vector<tnx_dim> shape = dims_of(sizes), steps = dims_of(strides);
    TORCH_CHECK_VALUE(shape.size() == steps.size(), "sizes and strides differ in length");
    Value v{};
    check(tnx_module_input(
        module_, type, static_cast<int32_t>(shape.size()), shape.data(), steps.data(), host ? uint32_t{TNX_TENSOR_HOST} : 0u, &v.id));
    if (host) hosts_.push_back({n_inputs_, type});
    n_inputs_++;
    return v;
  }

  // Adds an operator by its overload name ("add.Tensor"). args, kwargs: as in a call of torch.ops.aten; hidden: what the lowering
  // takes behind them (the seed and offset of a random operator, whether a determinant's matrix is contiguous). Returns its
  // results, None for the undefined ones.
  py::list call(const std::string& name, py::tuple args, py::dict kwargs, py::object hidden) {
    const tnx_row* row = tnx_row_find(name.c_str());
    TORCH_CHECK_NOT_IMPLEMENTED(row, "the operator table has no row for aten::", name);
    const RowSchema& schema = schema_of(row, name);
    TORCH_CHECK_TYPE(args.size() <= schema.n_called, "aten::", name, " takes ", schema.n_called, " arguments, got ", args.size());
    Call c(row);
    for (size_t i = 0; i < schema.args.size(); i++) {
      const RowArg& a = schema.args[i];
      py::object given;
      bool found = false;
      if (a.source >= 0) {
        if (static_cast<size_t>(a.source) < args.size()) {
          given = args[static_cast<size_t>(a.source)];
          found = true;
        } else if (kwargs.contains(schema.names[i].c_str())) {
          given = kwargs[schema.names[i].c_str()];
          found = true;
        }
      }
      if (!found) {
        if (a.has_default && a.kind != ArgKind::Tensor && a.kind != ArgKind::TensorList) {
          TORCH_CHECK(add_value(c, a.kind, a.default_value), "aten::", name, ": bad default of ", schema.names[i]);
        } else {
          TORCH_CHECK_TYPE(a.has_default || a.source < 0 || schema.optional[i], "aten::", name, " misses its argument ", schema.names[i]);
          c.add_none();
        }
        continue;
      }
      try {
        add_object(c, a.kind, given);
      } catch (const c10::TypeError& e) {
        TORCH_CHECK_TYPE(false, "aten::", name, ", argument ", schema.names[i], ": ", e.what_without_backtrace());
      }
    }
    if (!hidden.is_none()) {
      for (py::handle h : py::iter(hidden)) {
        if (py::isinstance<py::bool_>(h)) c.add_bool(h.cast<bool>());
        else c.add(TNX_ARG_TENSOR).value = h.cast<const Value&>().id;
      }
    }
    std::vector<tnx_value> results(tnx_max_results(c.args.data(), static_cast<uint32_t>(c.args.size())));
    uint32_t n = 0;
    check(tnx_module_call(module_, row, c.args.data(), static_cast<uint32_t>(c.args.size()), results.data(), &n), name.c_str());
    py::list out;
    for (uint32_t i = 0; i < n; i++) {
      if (results[i]) out.append(Value{results[i]});
      else out.append(py::none());
    }
    return out;
  }

  py::tuple value_info(const Value& v) {
    tnx_dtype dtype = TNX_DTYPE_NONE;
    int32_t rank = 0;
    tnx_dim sizes[TNX_MAX_RANK];
    check(tnx_module_value_info(module_, v.id, &dtype, &rank, sizes));
    py::list shape;
    for (int32_t i = 0; i < rank; i++) shape.append(dim_object(sizes[i]));
    return py::make_tuple(dtype_object(dtype), shape);
  }

  void output(const Value& v, std::optional<uint32_t> into, py::object strides) {
    uint32_t target = into.value_or(TNX_NO_TENSOR);
    if (strides.is_none()) {
      check(tnx_module_output(module_, v.id, target, nullptr));
    } else {
      std::vector<tnx_dim> steps = dims_of(strides);
      check(tnx_module_output(module_, v.id, target, steps.data()));
    }
    into_.push_back(target);
  }

  std::unique_ptr<CompiledPlan> compile() {
    tnx_plan* plan = nullptr;
    uint64_t ns = 0;
    {
      py::gil_scoped_release release;
      check(tnx_module_compile(module_, &plan, &ns));
    }
    return std::make_unique<CompiledPlan>(plan, n_inputs_, hosts_, into_, n_symbols_, ns);
  }

  std::string text(const std::string& format) const {
    char* t = nullptr;
    check(tnx_module_text(module_, format.c_str(), &t));
    std::string out(t);
    tnx_text_free(t);
    return out;
  }

 private:
  // The row's arguments matched to those of the overload that is called.
  struct RowSchema {
    std::vector<RowArg> args;
    std::vector<std::string> names;
    std::vector<bool> optional;
    size_t n_called = 0;
  };

  static tnx_dtype dtype_of(py::handle h) {
    TORCH_CHECK_TYPE(THPDtype_Check(h.ptr()), "expected a dtype");
    auto type = reinterpret_cast<THPDtype*>(h.ptr())->scalar_type;
    tnx_dtype dtype = to_tnx(type);
    TORCH_CHECK_NOT_IMPLEMENTED(dtype != TNX_DTYPE_NONE, "neuron graphs have no dtype ", type);
    return dtype;
  }
  static py::object dtype_object(tnx_dtype dtype) {
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(to_torch(dtype))));
  }

  static const RowSchema& schema_of(const tnx_row* row, const std::string& name) {
    static auto* cache = new std::unordered_map<std::string, std::unique_ptr<RowSchema>>(); // under the GIL
    auto& slot = (*cache)[name];
    if (slot) return *slot;
    auto find = [](const std::string& n) {
      auto dot = n.find('.');
      return c10::Dispatcher::singleton().findSchema(
          {"aten::" + n.substr(0, dot), dot == std::string::npos ? "" : n.substr(dot + 1)});
    };
    auto op = find(name);
    TORCH_CHECK_NOT_IMPLEMENTED(op, "PyTorch has no operator aten::", name);
    auto functional = *row->functional ? find(row->functional) : std::nullopt;
    const c10::FunctionSchema& reference = functional ? functional->schema() : op->schema();
    auto made = std::make_unique<RowSchema>();
    TORCH_CHECK_NOT_IMPLEMENTED(
        match_arguments(op->schema(), reference, {}, &made->args), "aten::", name, " does not fit its row");
    for (const c10::Argument& a : reference.arguments()) {
      if (a.is_out()) continue;
      made->names.push_back(a.name());
      made->optional.push_back(a.type()->kind() == c10::TypeKind::OptionalType);
    }
    made->n_called = op->schema().arguments().size();
    slot = std::move(made);
    return *slot;
  }

  static void set_number(tnx_arg& a, py::handle h) {
    PyObject* o = h.ptr();
    a.count = 0;
    if (py::isinstance<Dim>(h)) {
      a.kind = TNX_ARG_INT;
      a.dim = h.cast<const Dim&>().value;
    } else if (PyBool_Check(o)) {
      a.kind = TNX_ARG_BOOL;
      a.dim = o == Py_True;
    } else if (PyFloat_Check(o)) {
      a.kind = TNX_ARG_FLOAT;
      a.number[0] = PyFloat_AS_DOUBLE(o);
      a.number[1] = 0;
    } else if (PyComplex_Check(o)) {
      a.kind = TNX_ARG_COMPLEX;
      a.number[0] = PyComplex_RealAsDouble(o);
      a.number[1] = PyComplex_ImagAsDouble(o);
    } else {
      a.kind = TNX_ARG_INT;
      a.dim = dim_of(h);
    }
  }

  static void add_object(Call& c, ArgKind kind, py::handle h) {
    if (h.is_none()) {
      c.add_none();
      return;
    }
    auto sequence = [&] {
      TORCH_CHECK_TYPE(PySequence_Check(h.ptr()), "expected a sequence, got ", py::repr(h).cast<std::string>());
      return py::reinterpret_steal<py::object>(PySequence_Fast(h.ptr(), "expected a sequence"));
    };
    switch (kind) {
      case ArgKind::Tensor:
        // A number where a tensor is wanted is a constant of the graph for the lowering to promote.
        if (py::isinstance<Value>(h)) c.add(TNX_ARG_TENSOR).value = h.cast<const Value&>().id;
        else set_number(c.add(TNX_ARG_NONE), h);
        return;
      case ArgKind::TensorList: {
        py::object s = sequence();
        auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(s.ptr()));
        auto* values = c.take<uint32_t>(n);
        for (size_t i = 0; i < n; i++) {
          py::handle e = PySequence_Fast_GET_ITEM(s.ptr(), static_cast<Py_ssize_t>(i));
          values[i] = e.is_none() ? TNX_NO_TENSOR : e.cast<const Value&>().id;
        }
        tnx_arg& a = c.add(TNX_ARG_TENSORS);
        a.values = values;
        a.count = static_cast<uint32_t>(n);
        return;
      }
      case ArgKind::Float:
        c.add_float(py::cast<double>(h));
        return;
      case ArgKind::Bool:
        c.add_bool(py::cast<bool>(h));
        return;
      case ArgKind::Int:
      case ArgKind::Scalar:
        set_number(c.add(TNX_ARG_NONE), h);
        return;
      case ArgKind::IntList: {
        if (!PySequence_Check(h.ptr())) {
          auto* one = c.take<tnx_dim>(1);
          *one = dim_of(h);
          tnx_arg& a = c.add(TNX_ARG_INTS);
          a.dims = one;
          a.count = 1;
          return;
        }
        std::vector<tnx_dim> list = dims_of(h);
        auto* dims = c.take<tnx_dim>(list.size());
        std::copy(list.begin(), list.end(), dims);
        tnx_arg& a = c.add(TNX_ARG_INTS);
        a.dims = dims;
        a.count = static_cast<uint32_t>(list.size());
        return;
      }
      case ArgKind::FloatList: {
        auto list = h.cast<std::vector<double>>();
        auto* numbers = c.take<double>(list.size());
        std::copy(list.begin(), list.end(), numbers);
        tnx_arg& a = c.add(TNX_ARG_FLOATS);
        a.numbers = numbers;
        a.count = static_cast<uint32_t>(list.size());
        return;
      }
      case ArgKind::BoolList: {
        auto list = h.cast<std::vector<bool>>();
        auto* dims = c.take<tnx_dim>(list.size());
        std::copy(list.begin(), list.end(), dims);
        tnx_arg& a = c.add(TNX_ARG_BOOLS);
        a.dims = dims;
        a.count = static_cast<uint32_t>(list.size());
        return;
      }
      case ArgKind::ScalarList: {
        py::object s = sequence();
        auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(s.ptr()));
        auto* items = c.take<tnx_arg>(n);
        for (size_t i = 0; i < n; i++) set_number(items[i], PySequence_Fast_GET_ITEM(s.ptr(), static_cast<Py_ssize_t>(i)));
        tnx_arg& a = c.add(TNX_ARG_SCALARS);
        a.args = items;
        a.count = static_cast<uint32_t>(n);
        return;
      }
      case ArgKind::DType:
        c.add_dtype(dtype_of(h));
        return;
      case ArgKind::MemoryFormat:
        TORCH_CHECK_TYPE(THPMemoryFormat_Check(h.ptr()), "expected a memory format");
        c.add_int(static_cast<int64_t>(reinterpret_cast<THPMemoryFormat*>(h.ptr())->memory_format));
        return;
      case ArgKind::String: {
        auto text = h.cast<std::string>();
        auto* copy = c.take<char>(text.size() + 1);
        std::memcpy(copy, text.c_str(), text.size() + 1);
        c.add(TNX_ARG_STRING).string = copy;
        return;
      }
      case ArgKind::Device:
      case ArgKind::Generator:
      case ArgKind::Ignored:
        c.add_none();
        return;
    }
  }

  tnx_module* module_ = nullptr;
  uint32_t n_inputs_ = 0, n_symbols_ = 0;
  std::vector<HostInput> hosts_;
  std::vector<uint32_t> into_;
};

} // namespace

void bind_graph(py::module_& m) {
  py::class_<Value>(m, "Value", "A tensor of the graph being built.")
      .def_readonly("id", &Value::id)
      .def("__eq__", [](const Value& a, const Value& b) { return a.id == b.id; })
      .def("__hash__", [](const Value& v) { return v.id; })
      .def("__repr__", [](const Value& v) { return "Value(" + std::to_string(v.id) + ")"; });
  py::class_<Dim>(m, "Dim", "A size that depends on the graph's symbols.")
      .def("__eq__", [](const Dim& a, const Dim& b) { return a.value == b.value; })
      .def("__hash__", [](const Dim& d) { return d.value; })
      .def("__repr__", [](const Dim& d) { return "Dim(" + std::to_string(static_cast<uint32_t>(d.value)) + ")"; });
  py::class_<CompiledPlan>(m, "CompiledPlan", "An executable graph.")
      .def("run", &CompiledPlan::run, py::arg("tensors"), py::arg("symbols") = py::tuple(),
           "Queues the graph on the current stream and returns its new outputs.")
      .def("text", &CompiledPlan::text)
      .def_property_readonly("n_inputs", &CompiledPlan::n_inputs)
      .def_readonly("compile_ns", &CompiledPlan::compile_ns);
  py::class_<GraphBuilder>(m, "GraphBuilder", "Builds one graph, operator by operator.")
      .def(py::init<const std::string&>(), py::arg("name") = "graph")
      .def("symbol", &GraphBuilder::symbol, py::arg("name"), py::arg("min") = 2)
      .def("dim", &GraphBuilder::dim, py::arg("op"), py::arg("a"), py::arg("b"),
           "Arithmetic on sizes: add, sub, mul, floordiv, mod, min, max.")
      .def("input", &GraphBuilder::input, py::arg("dtype"), py::arg("sizes"), py::arg("strides"), py::arg("host") = false)
      .def("call", &GraphBuilder::call, py::arg("name"), py::arg("args") = py::tuple(), py::arg("kwargs") = py::dict(),
           py::arg("hidden") = py::none())
      .def("value_info", &GraphBuilder::value_info, "(dtype, sizes) as libtnx derived them.")
      .def("output", &GraphBuilder::output, py::arg("value"), py::arg("into") = py::none(), py::arg("strides") = py::none())
      .def("compile", &GraphBuilder::compile)
      .def("text", &GraphBuilder::text, py::arg("format") = "tnx");
}

} // namespace torch_neuronx
