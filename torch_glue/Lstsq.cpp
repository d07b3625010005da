#include "Lstsq.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>

#include "Call.h"
#include "Resize.h"
#include "Schema.h"
#include "Status.h"
#include "Tensor.h"

namespace torch_neuronx {

bool run_lstsq(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const tnx_row* row = tnx_row_find("linalg_lstsq");
  if (!row || op.operator_name().name != "aten::linalg_lstsq") return false;
  size_t n = op.schema().arguments().size();
  auto args = torch::jit::last(*stack, n);
  Call call(row);
  std::array<at::Tensor, 2> operands;
  for (size_t i = 0; i < operands.size(); i++) {
    operands[i] = args[i].toTensor().resolve_conj().resolve_neg();
    if (!is_neuron(operands[i]) || !call.add_tensor(operands[i])) return false;
  }
  if (!add_value(call, ArgKind::Float, args[2]) || !add_value(call, ArgKind::String, args[3])) return false;
  call.add_bool(true); // residuals, whatever the rank
  std::array<at::Tensor, 4> results;
  tnx_status status = run_new(call, operands[0].device().index(), results.data(), results.size());
  if (status == TNX_NOT_IMPLEMENTED) return false;
  check(status, "linalg_lstsq");
  if (!results[2].eq(operands[0].size(-1)).all().item<bool>()) results[1] = at::empty({0}, results[1].options());
  for (size_t i = 0; i < results.size() && n > 4; i++) { // the form that is given its results' memory
    const at::Tensor& out = args[4 + i].toTensor();
    resize_output(out, results[i].sizes(), results[i].strides());
    out.copy_(results[i]);
    results[i] = out;
  }
  torch::jit::drop(*stack, n);
  for (at::Tensor& t : results) stack->emplace_back(std::move(t));
  return true;
}

} // namespace torch_neuronx
