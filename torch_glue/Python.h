// The parts of the extension module; each adds its functions and classes.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace torch_neuronx {

void bind_runtime(pybind11::module_& m);
void bind_graph(pybind11::module_& m);

} // namespace torch_neuronx
