// Compressed sparse tensors (CSR and its kin): what PyTorch has once for each device, by way of coordinates.
//
// A compressed row is turned into one index for each element, and the operator on tensors in coordinates (Sparse.cpp) does the rest.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include <algorithm>

#include "Fallback.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

using Stack = torch::jit::Stack;

bool is_strided(const at::Tensor& t) {
  return t.layout() == at::kStrided;
}
// What has coordinates: rows or columns compressed, one number for each element, no batches.
bool is_matrix(const at::Tensor& t) {
  return (t.layout() == at::kSparseCsr || t.layout() == at::kSparseCsc) && t.dim() == 2 && t.dense_dim() == 0;
}

// For each element (along the last dimension of `plain`) the row it is in.
at::Tensor rows_of(const at::Tensor& compressed, const at::Tensor& plain) {
  at::Tensor ends = compressed.narrow(-1, 1, compressed.size(-1) - 1).contiguous();
  at::Tensor each = at::arange(plain.size(-1), compressed.options()).expand(plain.sizes()).contiguous();
  return at::searchsorted(ends, each, /*out_int32=*/compressed.scalar_type() == at::kInt, /*right=*/true);
}

at::Tensor& coo_to_csr_out(const at::Tensor& self, int64_t size, bool out_int32, at::Tensor& out) {
  TNX_COUNT_OP("aten::_convert_indices_from_coo_to_csr.out");
  return out.copy_(at::searchsorted(self.contiguous(), at::arange(size + 1, self.options()), out_int32));
}

at::Tensor& csr_to_coo_out(const at::Tensor& compressed, const at::Tensor& plain, bool /*out_int32*/, bool transpose, at::Tensor& out) {
  TNX_COUNT_OP("aten::_convert_indices_from_csr_to_coo.out");
  int64_t batch_dims = plain.dim() - 1;
  for (int64_t d = 0; d < batch_dims; d++) {
    c10::DimVector shape(static_cast<size_t>(plain.dim()), 1);
    shape[static_cast<size_t>(d)] = plain.size(d);
    out.select(0, d).copy_(at::arange(plain.size(d), plain.options()).view(shape).expand(plain.sizes()).reshape({-1}));
  }
  out.select(0, batch_dims + (transpose ? 1 : 0)).copy_(rows_of(compressed, plain).reshape({-1}));
  out.select(0, batch_dims + (transpose ? 0 : 1)).copy_(plain.reshape({-1}));
  return out;
}

// All invariants at once, one number read back; where one is broken, PyTorch's check says which, in its words.
void validate(bool is_crow, const at::Tensor& compressed, const at::Tensor& plain, int64_t cdim, int64_t dim, int64_t nnz) {
  TNX_COUNT_OP("aten::_validate_compressed_sparse_indices");
  bool valid = compressed.size(-1) == cdim + 1 && plain.size(-1) == nnz;
  if (valid && compressed.numel()) {
    at::Tensor length = compressed.diff();
    at::Tensor good = compressed.select(-1, 0).eq(0).all().logical_and(compressed.select(-1, -1).eq(nnz).all());
    good = good.logical_and(length.ge(0).logical_and(length.le(dim)).all());
    if (plain.numel()) {
      good = good.logical_and(plain.ge(0).logical_and(plain.lt(dim)).all());
      good = good.logical_and(rows_of(compressed, plain).mul(dim).add(plain).diff().gt(0).all());
    }
    valid = good.item<bool>();
  }
  if (valid) return;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_validate_compressed_sparse_indices", "");
  Stack stack;
  torch::jit::push(stack, is_crow, compressed, plain, cdim, dim, nnz);
  run_on_cpu(op, &stack);
}

// ---- operators whose out tensor is the last argument ----

void finish(Stack* stack, size_t n, const at::Tensor& result, const char* name) {
  at::Tensor out = torch::jit::peek(*stack, n - 1, n).toTensor();
  if (!is_strided(out)) out.resize_as_sparse_(result);
  else if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  out.copy_(result);
  torch::jit::drop(*stack, n);
  stack->emplace_back(std::move(out));
  op_counter(name)->ran();
}

const at::Tensor& tensor(const Stack* stack, size_t i, size_t n) {
  return torch::jit::peek(*stack, i, n).toTensor();
}

void add_out(const c10::OperatorHandle& op, Stack* stack) {
  constexpr size_t n = 4;
  const at::Tensor &self = tensor(stack, 0, n), &other = tensor(stack, 1, n), &out = tensor(stack, 3, n);
  at::Scalar alpha = torch::jit::peek(*stack, 2, n).toScalar();
  bool both = is_matrix(self) && self.layout() == at::kSparseCsr && other.layout() == at::kSparseCsr && out.layout() == at::kSparseCsr;
  bool to_dense = is_strided(self) && is_matrix(other) && is_strided(out);
  if ((!both && !to_dense) || self.device() != other.device()) return fall_back(op, stack, "sparse layout");
  at::Tensor sum = at::add(both ? self.to_sparse() : self, other.to_sparse(), alpha);
  finish(stack, n, both ? sum.to_sparse_csr() : sum, "aten::add.out");
}

// beta self + alpha mat1 mat2 with one sparse factor.
void addmm_out(const c10::OperatorHandle& op, Stack* stack) {
  constexpr size_t n = 6;
  const at::Tensor &self = tensor(stack, 0, n), &mat1 = tensor(stack, 1, n), &mat2 = tensor(stack, 2, n), &out = tensor(stack, 5, n);
  at::Scalar beta = torch::jit::peek(*stack, 3, n).toScalar(), alpha = torch::jit::peek(*stack, 4, n).toScalar();
  bool first = is_matrix(mat1) && is_strided(mat2), second = is_strided(mat1) && is_matrix(mat2);
  if ((!first && !second) || !is_strided(self) || !is_strided(out)) return fall_back(op, stack, "sparse layout");
  at::Tensor result = first ? at::addmm(self, mat1.to_sparse(), mat2, beta, alpha)
                            : at::addmm(self.expand({mat1.size(0), mat2.size(1)}).t(), mat2.to_sparse().t(), mat1.t(), beta, alpha).t();
  finish(stack, n, result, "aten::addmm.out");
}

void addmv_out(const c10::OperatorHandle& op, Stack* stack) {
  constexpr size_t n = 6;
  const at::Tensor &self = tensor(stack, 0, n), &mat = tensor(stack, 1, n), &vec = tensor(stack, 2, n), &out = tensor(stack, 5, n);
  at::Scalar beta = torch::jit::peek(*stack, 3, n).toScalar(), alpha = torch::jit::peek(*stack, 4, n).toScalar();
  if (!is_matrix(mat) || !is_strided(vec) || vec.dim() != 1 || !is_strided(self) || !is_strided(out)) return fall_back(op, stack, "sparse layout");
  at::Tensor column = self.dim() == 1 ? self.unsqueeze(1) : self;
  finish(stack, n, at::addmm(column, mat.to_sparse(), vec.unsqueeze(1), beta, alpha).squeeze(1), "aten::addmv.out");
}

// Rows compressed instead of columns, and the reverse.
void convert(const c10::OperatorHandle& op, Stack* stack) {
  size_t n = op.schema().arguments().size();
  const at::Tensor& self = tensor(stack, 0, n);
  char to = op.operator_name().name.back(), kind = op.operator_name().name[op.operator_name().name.size() - 3]; // csr, csc, bsr, bsc
  c10::Layout other = kind == 'c' ? (to == 'r' ? at::kSparseCsc : at::kSparseCsr) : (to == 'r' ? at::kSparseBsc : at::kSparseBsr);
  if (self.layout() != other) return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), stack);
  if (!is_matrix(self)) return fall_back(op, stack, "sparse layout");
  at::Tensor coordinates = self.to_sparse();
  torch::jit::drop(*stack, n);
  stack->emplace_back(to == 'r' ? coordinates.to_sparse_csr() : coordinates.to_sparse_csc());
  op_counter(op.operator_name().name)->ran();
}

// beta self + alpha (mat1 mat2) where self has elements: a scalar product for each.
at::Tensor sampled(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  constexpr int64_t kMaxElements = int64_t{1} << 24;
  at::Tensor rows = rows_of(self.crow_indices(), self.col_indices()), columns = self.col_indices(), second = mat2.t();
  int64_t count = columns.size(0), step = std::max<int64_t>(1, kMaxElements / std::max<int64_t>(1, mat1.size(1)));
  at::Tensor products = at::empty({count}, mat1.options());
  for (int64_t i = 0; i < count; i += step) {
    int64_t m = std::min(step, count - i);
    products.narrow(0, i, m).copy_(mat1.index_select(0, rows.narrow(0, i, m)).mul(second.index_select(0, columns.narrow(0, i, m))).sum(1));
  }
  at::Tensor values = products.mul(alpha);
  if (!beta.equal(0)) values = values.add(self.values(), beta);
  return at::_sparse_csr_tensor_unsafe(self.crow_indices().clone(), columns.clone(), values, self.sizes(), self.options());
}

bool can_sample(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  return is_matrix(self) && self.layout() == at::kSparseCsr && is_strided(mat1) && is_strided(mat2) && mat1.dim() == 2 && mat2.dim() == 2 &&
      mat1.size(0) == self.size(0) && mat2.size(1) == self.size(1) && mat1.size(1) == mat2.size(0) && mat1.scalar_type() == self.scalar_type() &&
      mat2.scalar_type() == self.scalar_type();
}

void sampled_addmm(const c10::OperatorHandle& op, Stack* stack) {
  size_t n = op.schema().arguments().size(); // five, and perhaps the out tensor
  const at::Tensor &self = tensor(stack, 0, n), &mat1 = tensor(stack, 1, n), &mat2 = tensor(stack, 2, n);
  if (!can_sample(self, mat1, mat2)) return fall_back(op, stack, "shapes or layouts");
  at::Tensor result = sampled(self, mat1, mat2, torch::jit::peek(*stack, 3, n).toScalar(), torch::jit::peek(*stack, 4, n).toScalar());
  if (n == 6) return finish(stack, n, result, "aten::sparse_sampled_addmm.out");
  torch::jit::drop(*stack, n);
  stack->emplace_back(std::move(result));
  op_counter("aten::sparse_sampled_addmm")->ran();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_indices_from_coo_to_csr.out", coo_to_csr_out);
  m.impl("_convert_indices_from_csr_to_coo.out", csr_to_coo_out);
  m.impl("_validate_compressed_sparse_indices", validate);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("add.out", torch::CppFunction::makeFromBoxedFunction<&add_out>());
  m.impl("addmm.out", torch::CppFunction::makeFromBoxedFunction<&addmm_out>());
  m.impl("addmv.out", torch::CppFunction::makeFromBoxedFunction<&addmv_out>());
  for (const char* name : {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&convert>());
  m.impl("sparse_sampled_addmm", torch::CppFunction::makeFromBoxedFunction<&sampled_addmm>());
  m.impl("sparse_sampled_addmm.out", torch::CppFunction::makeFromBoxedFunction<&sampled_addmm>());
}

} // namespace
} // namespace torch_neuronx
