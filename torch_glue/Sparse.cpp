// Sparse tensors in coordinates (COO): PyTorch's own tensor type, whose indices and values are tensors of this device.
//
// What PyTorch has once for each device, because it reads memory, is written here in terms of the device's operators. SparseKeys.cpp says what becomes of the others.
// Indices are compared as single numbers: the position of the element in a tensor of the sparse sizes.
#include <ATen/ExpandUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "Masks.h"
#include "Tensor.h"
#include "Tracking.h"

namespace torch_neuronx {
namespace {

at::SparseTensorImpl* impl_of(const at::Tensor& t) {
  return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}

// `r` becomes the sparse tensor of these parts, converted to its dtype.
at::Tensor& set_parts(
    at::Tensor& r, c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values, bool coalesced) {
  int64_t sparse_dim = indices.size(0);
  impl_of(r)->raw_resize_(sparse_dim, static_cast<int64_t>(sizes.size()) - sparse_dim, sizes);
  impl_of(r)->set_indices_and_values_unsafe(indices, values.to(r.scalar_type()));
  impl_of(r)->set_coalesced(coalesced);
  return r;
}

at::Tensor from_parts(const at::Tensor& like, c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, like.options().dtype(values.scalar_type()), coalesced);
}

int64_t product(c10::IntArrayRef sizes) {
  return c10::multiply_integers(sizes);
}

c10::IntArrayRef sparse_sizes(const at::Tensor& t) {
  return t.sizes().slice(0, static_cast<size_t>(t.sparse_dim()));
}

// The sizes of the dense tensor with one row for each position of the sparse dimensions.
std::vector<int64_t> rows_and_dense_sizes(const at::Tensor& t) {
  auto sizes = t.sizes().slice(static_cast<size_t>(t.sparse_dim())).vec();
  sizes.insert(sizes.begin(), product(sparse_sizes(t)));
  return sizes;
}

// Each column of `indices` as one number.
at::Tensor flatten(const at::Tensor& indices, c10::IntArrayRef sizes) {
  if (sizes.empty()) return at::zeros({indices.size(1)}, indices.options());
  at::Tensor flat = indices.select(0, 0);
  for (size_t d = 1; d < sizes.size(); d++) flat = flat.mul(sizes[d]).add(indices.select(0, static_cast<int64_t>(d)));
  return flat;
}

at::Tensor flat_indices(const at::Tensor& t) {
  return flatten(t._indices(), sparse_sizes(t));
}

// Numbers in a form that sums of them fit in.
at::Tensor summable(const at::Tensor& values) {
  return values.scalar_type() == at::kBool ? values.to(at::kLong) : values;
}

// A vector over the elements, shaped to go with values of so many dimensions.
at::Tensor along_values(const at::Tensor& v, const at::Tensor& values) {
  c10::DimVector shape(static_cast<size_t>(values.dim()), 1);
  shape[0] = v.size(0);
  return v.reshape(shape);
}

void check_cast(const char* name, c10::ScalarType from, const at::Tensor& r) {
  TORCH_CHECK(c10::canCast(from, r.scalar_type()), "Can't convert result type ", from, " to output ", r.scalar_type(), " in ", name, " operation");
}

void check_same_device(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(
      a.device() == b.device(), "Expected all tensors to be on the same device, but found at least two devices, ", a.device(), " and ", b.device(), "!");
}

at::Tensor coalesce(const at::Tensor& self) {
  TNX_COUNT_OP("aten::_coalesce");
  if (self._nnz() < 2) return self.clone()._coalesced_(true);
  auto [sorted, order] = at::sort(flat_indices(self), /*stable=*/true, 0, /*descending=*/false);
  auto [distinct, group, counts] = at::unique_consecutive(sorted, /*return_inverse=*/true, /*return_counts=*/true);
  at::Tensor first = order.index_select(0, counts.cumsum(0).sub(counts));
  at::Tensor values = summable(self._values());
  auto sizes = values.sizes().vec();
  sizes[0] = distinct.size(0);
  at::Tensor sums = at::zeros(sizes, values.options()).index_add_(0, group, values.index_select(0, order));
  return from_parts(self, self.sizes(), self._indices().index_select(1, first), sums.to(self.scalar_type()), true);
}

// ---- sums ----

at::Tensor& add_to_dense(const at::Tensor& dense, const at::Tensor& sparse, const at::Scalar& alpha, at::Tensor& r) {
  TORCH_CHECK(!r.is_sparse(), "add: expected 'out' to be a dense tensor");
  TORCH_CHECK(
      dense.sizes() == sparse.sizes(), "add: expected 'self' and 'other' to have same size, but self has size ", dense.sizes(),
      " while other has size ", sparse.sizes(), " (FYI: dense-sparse addition does not currently support broadcasting)");
  auto common = at::result_type(dense, sparse);
  check_cast("add", common, r);
  if (!r.is_same(dense)) r.resize_(dense.sizes());
  if (sparse._nnz() == 0) return r.is_same(dense) ? r : r.copy_(dense);
  bool in_place = r.scalar_type() == common && common != at::kBool && r.is_contiguous();
  at::Tensor sum = r;
  if (!in_place) sum = summable(dense.to(common)).clone(at::MemoryFormat::Contiguous);
  else if (!r.is_same(dense)) r.copy_(dense);
  at::Tensor values = summable(sparse._values().to(common));
  sum.view(rows_and_dense_sizes(sparse)).index_add_(0, flat_indices(sparse), values, alpha);
  if (!in_place) r.copy_(common == at::kBool ? sum.ne(0) : sum);
  return r;
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& r) {
  TNX_COUNT_OP("aten::add.out");
  check_same_device(self, other);
  check_same_device(self, r);
  if (!self.is_sparse()) return add_to_dense(self, other, alpha, r);
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(r.is_sparse(), "add: expected 'out' to be a sparse tensor");
  TORCH_CHECK(
      self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(), " != ", other.sizes());
  auto common = c10::promoteTypes(self.scalar_type(), other.scalar_type());
  check_cast("add", common, r);
  if (other._nnz() == 0) return at::copy_sparse_to_sparse_(r, self), r;
  at::Tensor values = other._values().to(common);
  if (!alpha.equal(1)) values = values.mul(alpha);
  if (self._nnz() == 0) return set_parts(r, other.sizes(), other._indices().clone(), values.clone(), other.is_coalesced());
  TORCH_CHECK(
      self.sparse_dim() == other.sparse_dim(), "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
      " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  at::Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  at::Tensor both = from_parts(self, self.sizes(), indices, at::cat({self._values().to(common), values}), false);
  // What is coalesced stays so; and what is not must not grow without end.
  if ((self.is_coalesced() && other.is_coalesced()) || both._nnz() > both.numel()) both = both.coalesce();
  return set_parts(r, self.sizes(), both._indices(), both._values(), both.is_coalesced());
}

// ---- elements that two tensors have in common ----

// For each of `wanted` (flat indices) its place among the elements of coalesced `in`, which is not empty, and whether it is there.
struct Found {
  at::Tensor place, is_there;
};
Found find(const at::Tensor& in, const at::Tensor& wanted) {
  at::Tensor have = flat_indices(in);
  at::Tensor place = at::searchsorted(have, wanted).clamp_max(have.size(0) - 1);
  return {place, have.index_select(0, place).eq(wanted)};
}

// The values of `in` at the flat indices `wanted`, zero where it has none.
at::Tensor values_at(const at::Tensor& in, const at::Tensor& wanted) {
  at::Tensor source = in.coalesce();
  auto [place, is_there] = find(source, wanted);
  at::Tensor values = source._values().index_select(0, place);
  return at::where(along_values(is_there, values), values, at::zeros({}, values.options()));
}

void check_same_pattern(const char* name, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(
      a.sizes() == b.sizes(), name, ": expected 'self' and 'other' to have same sizes when both are sparse, but ", a.sizes(), " != ", b.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(
      a.sparse_dim() == b.sparse_dim(), name, ": expected tensors of the same number of sparse dimensions, but got ", a.sparse_dim(), " and ",
      b.sparse_dim());
}

at::Tensor& mul_sparse(const at::Tensor& self, const at::Tensor& other, at::Tensor& r) {
  auto common = at::result_type(self, other);
  check_cast("mul", common, r);
  check_same_pattern("mul", self, other);
  if (self._nnz() == 0 || other._nnz() == 0) {
    auto values = self._values().sizes().vec();
    values[0] = 0;
    return set_parts(
        r, self.sizes(), at::empty({self.sparse_dim(), 0}, self._indices().options()), at::empty(values, self._values().options()), true);
  }
  if (!self.is_coalesced() || !other.is_coalesced()) {
    // The elements of one that is not coalesced, each multiplied: the product distributes over its duplicates.
    bool first = self.is_coalesced() || other.is_coalesced() ? other.is_coalesced() : self._nnz() < other._nnz();
    const at::Tensor& pattern = first ? self : other;
    const at::Tensor& factor = first ? other : self;
    at::Tensor values = pattern._values().mul(values_at(factor, flat_indices(pattern)));
    return set_parts(r, self.sizes(), pattern._indices().clone(), values, false);
  }
  auto [place, is_there] = find(other, flat_indices(self));
  at::Tensor kept = true_positions(is_there);
  at::Tensor values = self._values().index_select(0, kept).mul(other._values().index_select(0, place.index_select(0, kept)));
  return set_parts(r, self.sizes(), self._indices().index_select(1, kept), values, true);
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& r) {
  TNX_COUNT_OP("aten::mul.out");
  if (self.is_sparse() && other.is_sparse() && self.dim() && other.dim()) {
    check_same_device(self, other);
    return mul_sparse(self, other, r);
  }
  // With a dense factor PyTorch's kernel is written in operators.
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "out").typed<at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&)>();
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::SparseCPU), self, other, r);
}

at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  TNX_COUNT_OP("aten::sparse_mask");
  if (self.is_same(mask)) return self;
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ", self.sizes(), " but mask has size ", mask.sizes());
  check_same_device(self, mask);
  at::Tensor indices = mask._indices(), values;
  if (self.is_sparse()) {
    check_same_pattern("sparse_mask", self, mask);
    values = self._nnz() ? values_at(self, flat_indices(mask)) : at::zeros(mask._values().sizes(), self._values().options());
  } else {
    TORCH_CHECK(self.layout() == at::kStrided, "sparse_mask: expected a strided or sparse tensor, but got layout ", self.layout());
    values = self.reshape(rows_and_dense_sizes(mask)).index_select(0, flat_indices(mask));
  }
  return from_parts(self, mask.sizes(), indices.clone(), values, mask.is_coalesced());
}

// The elements of `self` as they are where `mask` has elements, zero elsewhere; `accumulate`: as often as it has them.
at::Tensor sparse_mask_projection(const at::Tensor& self, const at::Tensor& mask, bool accumulate) {
  TNX_COUNT_OP("aten::_sparse_mask_projection");
  check_same_pattern("_sparse_mask_projection", self, mask);
  at::Tensor values = self._values();
  if (self._nnz() == 0 || mask._nnz() == 0) {
    values = at::zeros(values.sizes(), values.options());
  } else {
    at::Tensor wanted = flat_indices(self), have = std::get<0>(at::sort(flat_indices(mask)));
    at::Tensor begin = at::searchsorted(have, wanted), end = at::searchsorted(have, wanted, /*out_int32=*/false, /*right=*/true);
    at::Tensor count = along_values(end.sub(begin), values);
    at::Tensor zero = at::zeros({}, values.options());
    values = at::where(count.gt(0), accumulate ? values.mul(count.to(values.scalar_type())) : values, zero);
  }
  return from_parts(self, self.sizes(), self._indices().clone(), values, self.is_coalesced());
}

// ---- products ----

// r[rows[i]] += alpha * values[i] * dense[columns[i]], for all i. In parts, as each element makes a row of the other factor.
void add_products(
    at::Tensor& r, const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& values, const at::Tensor& dense, const at::Scalar& alpha) {
  constexpr int64_t kMaxElements = int64_t{1} << 24;
  int64_t count = values.size(0), step = std::max<int64_t>(1, kMaxElements / std::max<int64_t>(1, dense.size(1)));
  for (int64_t i = 0; i < count; i += step) {
    int64_t n = std::min(step, count - i);
    at::Tensor products = dense.index_select(0, columns.narrow(0, i, n)).mul(values.narrow(0, i, n).unsqueeze(1));
    r.index_add_(0, rows.narrow(0, i, n), products, alpha);
  }
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  TNX_COUNT_OP("aten::addmm");
  TORCH_CHECK(mat1.is_sparse() && !self.is_sparse() && !mat2.is_sparse(), "addmm: expected a sparse 'mat1', and a dense 'self' and 'mat2'");
  check_same_device(self, mat1);
  check_same_device(self, mat2);
  TORCH_CHECK(mat1.sparse_dim() == 2, "addmm: matrices expected, got ", mat1.sparse_dim(), "D tensor");
  TORCH_CHECK(mat1.dense_dim() == 0, "addmm: scalar values expected, got ", mat1.dense_dim(), "D values");
  TORCH_CHECK(mat2.dim() == 2, "addmm: matrices expected, got ", mat2.dim(), "D tensor");
  int64_t m = mat1.size(0), n = mat2.size(1);
  TORCH_CHECK(mat2.size(0) == mat1.size(1), "addmm: Argument #3 (dense): Expected dim 0 size ", mat1.size(1), ", got ", mat2.size(0));
  auto type = mat1.scalar_type();
  TORCH_CHECK(
      self.scalar_type() == type && mat2.scalar_type() == type, "addmm: expected tensors of one dtype, but got ", self.scalar_type(), ", ", type, " and ",
      mat2.scalar_type());
  // (beta 0 ignores what self holds, NaN included)
  at::Tensor base = self.expand({m, n});
  at::Tensor r = beta.equal(0) ? at::zeros({m, n}, mat2.options()) : beta.equal(1) ? base.clone(at::MemoryFormat::Contiguous) : base.mul(beta).contiguous();
  add_products(r, mat1._indices().select(0, 0), mat1._indices().select(0, 1), mat1._values(), mat2, alpha);
  return r;
}

at::Tensor& addmm_out(
    const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& r) {
  at::Tensor result = addmm(self, mat1, mat2, beta, alpha);
  r.resize_(result.sizes());
  return r.copy_(result);
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  return self.copy_(addmm(self, mat1, mat2, beta, alpha));
}

// A batch of products as one, of the matrix that has the batch's along its diagonal.
at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  TNX_COUNT_OP("aten::bmm");
  TORCH_CHECK(!mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
  check_same_device(self, mat2);
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ", self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ", self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  int64_t batches = self.size(0), m = self.size(1), k = self.size(2), n = mat2.size(2);
  at::Tensor indices = self._indices(), batch = indices.select(0, 0);
  at::Tensor r = at::zeros({batches * m, n}, mat2.options());
  add_products(
      r, batch.mul(m).add(indices.select(0, 1)), batch.mul(k).add(indices.select(0, 2)), self._values(), mat2.reshape({batches * k, n}), 1);
  return r.view({batches, m, n});
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& r) {
  at::Tensor result = bmm(self, mat2);
  r.resize_(result.sizes());
  return r.copy_(result);
}

// The pairs of an element of `wanted` and an equal one of `sorted`, as places in either.
struct Pairs {
  at::Tensor wanted, sorted;
};
Pairs pairs_of(const at::Tensor& wanted, const at::Tensor& sorted) {
  at::Tensor begin = at::searchsorted(sorted, wanted), end = at::searchsorted(sorted, wanted, /*out_int32=*/false, /*right=*/true);
  at::Tensor count = end.sub(begin), before = count.cumsum(0).sub(count);
  at::Tensor which = at::repeat_interleave(count);
  at::Tensor within = at::arange(which.size(0), which.options()).sub(before.index_select(0, which));
  return {which, begin.index_select(0, which).add(within)};
}

// Each element (i, j) of the first meets the elements of row j of the second.
at::Tensor sparse_sparse_matmul(const at::Tensor& self, const at::Tensor& other) {
  TNX_COUNT_OP("aten::_sparse_sparse_matmul");
  TORCH_CHECK(self.is_sparse() && other.is_sparse(), "sparse_sparse_matmul: expected two sparse tensors");
  check_same_device(self, other);
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2, "sparse_sparse_matmul: matrices expected, got ", self.dim(), "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.dense_dim() == 0 && other.dense_dim() == 0, "sparse_sparse_matmul: scalar values expected");
  TORCH_CHECK(
      self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x", self.size(1), " and ", other.size(0), "x",
      other.size(1), ")");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "mat1 dtype ", self.scalar_type(), " does not match mat2 dtype ", other.scalar_type());
  at::Tensor a = self.coalesce(), b = other.coalesce();
  auto [of_a, of_b] = pairs_of(a._indices().select(0, 1), b._indices().select(0, 0));
  at::Tensor rows = a._indices().select(0, 0).index_select(0, of_a), columns = b._indices().select(0, 1).index_select(0, of_b);
  at::Tensor indices = at::cat({rows.unsqueeze(0), columns.unsqueeze(0)});
  at::Tensor values = a._values().index_select(0, of_a).mul(b._values().index_select(0, of_b));
  return from_parts(self, {self.size(0), other.size(1)}, indices, values, false).coalesce();
}

// ---- selection and sums over dimensions ----

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TNX_COUNT_OP("aten::index_select");
  TORCH_CHECK_INDEX(self.dim() != 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(
      index.dim() == 1 && index.layout() == at::kStrided && index.scalar_type() == at::kLong,
      "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
  check_same_device(self, index);
  dim = at::maybe_wrap_dim(dim, self.dim());
  int64_t size = self.size(dim), sparse_dim = self.sparse_dim();
  if (index.numel()) {
    int64_t least = index.min().item<int64_t>(), most = index.max().item<int64_t>();
    TORCH_CHECK_INDEX(
        least >= -size && most < size, "index_select(): index contains ", most >= size ? most : least, " that is out of range for tensor of size ",
        self.sizes(), " at dimension ", dim);
  }
  at::Tensor wanted = at::where(index.lt(0), index.add(size), index);
  auto sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.numel();
  if (dim >= sparse_dim)
    return from_parts(self, sizes, self._indices().clone(), self._values().index_select(dim + 1 - sparse_dim, wanted), false);
  auto [sorted, order] = at::sort(self._indices().select(0, dim), /*stable=*/true, 0, /*descending=*/false);
  auto [of_wanted, of_sorted] = pairs_of(wanted, sorted);
  at::Tensor from = order.index_select(0, of_sorted), indices = self._indices().index_select(1, from);
  indices.select(0, dim).copy_(of_wanted);
  return from_parts(self, sizes, indices, self._values().index_select(0, from), false);
}

// The gradient has what was kept of the dimensions; each element of the input gets the gradient of the sum that it went into.
at::Tensor sparse_sum_backward(const at::Tensor& grad, const at::Tensor& self, c10::IntArrayRef dims) {
  TNX_COUNT_OP("aten::_sparse_sum_backward");
  check_same_device(grad, self);
  at::Tensor input = self.coalesce();
  int64_t sparse_dim = input.sparse_dim();
  auto summed = at::dim_list_to_bitset(dims, input.dim());
  c10::DimVector kept, kept_sizes, dense_summed;
  for (int64_t d = 0; d < input.dim(); d++) {
    if (summed[static_cast<size_t>(d)] && d >= sparse_dim) dense_summed.push_back(d - sparse_dim + 1);
    if (summed[static_cast<size_t>(d)] || d >= sparse_dim) continue;
    kept.push_back(d);
    kept_sizes.push_back(input.size(d));
  }
  at::Tensor values;
  if (kept.empty()) {
    TORCH_CHECK(!grad.is_sparse(), "_sparse_sum_backward: expected a dense gradient since all sparse dims are summed");
    values = grad.unsqueeze(0);
  } else {
    TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward: expected grad to be sparse, but got dense");
    at::Tensor rows = input._indices().index_select(0, at::tensor(c10::IntArrayRef(kept), at::kLong).to(input.device()));
    auto none = grad._values().sizes().vec();
    none[0] = input._nnz();
    values = grad._nnz() ? values_at(grad, flatten(rows, kept_sizes)) : at::zeros(none, grad._values().options());
  }
  for (int64_t d : dense_summed) values = values.unsqueeze(d);
  values = values.expand(input._values().sizes()).clone(at::MemoryFormat::Contiguous);
  return from_parts(input, input.sizes(), input._indices().clone(), values, true);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", coalesce);
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
  m.impl("sparse_mask", sparse_mask);
  m.impl("_sparse_mask_projection", sparse_mask_projection);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
  m.impl("addmm_", addmm_);
  m.impl("bmm", bmm);
  m.impl("bmm.out", bmm_out);
  m.impl("_sparse_sparse_matmul", sparse_sparse_matmul);
  m.impl("index_select", index_select);
  m.impl("_sparse_sum_backward", sparse_sum_backward);
}

} // namespace
} // namespace torch_neuronx
