#include "Schema.h"

#include <algorithm>

namespace torch_neuronx {
namespace {

c10::TypePtr strip_optional(c10::TypePtr type) {
  if (auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

bool list_kind(const c10::TypePtr& element, ArgKind* kind) {
  switch (strip_optional(element)->kind()) {
    case c10::TypeKind::TensorType: *kind = ArgKind::TensorList; return true;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: *kind = ArgKind::IntList; return true;
    case c10::TypeKind::FloatType: *kind = ArgKind::FloatList; return true;
    case c10::TypeKind::BoolType: *kind = ArgKind::BoolList; return true;
    case c10::TypeKind::NumberType: *kind = ArgKind::ScalarList; return true;
    default: return false;
  }
}

} // namespace

bool arg_kind(const c10::Argument& argument, ArgKind* kind) {
  c10::TypePtr type = strip_optional(argument.real_type());
  switch (type->kind()) {
    case c10::TypeKind::TensorType: *kind = ArgKind::Tensor; return true;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: *kind = ArgKind::Int; return true;
    case c10::TypeKind::FloatType: *kind = ArgKind::Float; return true;
    case c10::TypeKind::BoolType:
      *kind = argument.name() == "pin_memory" ? ArgKind::Ignored : ArgKind::Bool;
      return true;
    case c10::TypeKind::NumberType: *kind = ArgKind::Scalar; return true;
    case c10::TypeKind::ScalarTypeType: *kind = ArgKind::DType; return true;
    case c10::TypeKind::MemoryFormatType: *kind = ArgKind::MemoryFormat; return true;
    case c10::TypeKind::LayoutType: *kind = ArgKind::Ignored; return true;
    case c10::TypeKind::DeviceObjType: *kind = ArgKind::Device; return true;
    case c10::TypeKind::GeneratorType: *kind = ArgKind::Generator; return true;
    case c10::TypeKind::StringType: *kind = ArgKind::String; return true;
    case c10::TypeKind::ListType: return list_kind(type->castRaw<c10::ListType>()->getElementType(), kind);
    default: return false;
  }
}

bool match_arguments(
    const c10::FunctionSchema& called, const c10::FunctionSchema& reference, const std::vector<uint32_t>& written,
    std::vector<RowArg>* out) {
  out->clear();
  const auto& have = called.arguments();
  for (const c10::Argument& a : reference.arguments()) {
    if (a.is_out()) continue;
    RowArg row{ArgKind::Ignored, false, false, -1, {}};
    if (!arg_kind(a, &row.kind)) return false;
    for (size_t i = 0; i < have.size(); i++)
      if (have[i].name() == a.name() && !have[i].is_out()) row.source = static_cast<int32_t>(i);
    if (row.source >= 0) {
      ArgKind here;
      if (!arg_kind(have[static_cast<size_t>(row.source)], &here) || here != row.kind) return false;
      row.written = std::find(written.begin(), written.end(), static_cast<uint32_t>(row.source)) != written.end();
    } else if (row.kind == ArgKind::Tensor || row.kind == ArgKind::TensorList) {
      if (a.type()->kind() != c10::TypeKind::OptionalType) return false;
    }
    if (a.default_value()) {
      row.has_default = true;
      row.default_value = *a.default_value();
    }
    out->push_back(std::move(row));
  }
  return true;
}

bool add_value(Call& call, ArgKind kind, const c10::IValue& v) {
  if (v.isNone()) {
    call.add_none();
    return true;
  }
  switch (kind) {
    case ArgKind::Int:
      if (v.isInt()) call.add_int(v.toInt());
      else call.add_int(v.toSymInt().guard_int(__FILE__, __LINE__));
      return true;
    case ArgKind::Float: call.add_float(v.isDouble() ? v.toDouble() : v.toScalar().toDouble()); return true;
    case ArgKind::Bool: call.add_bool(v.toBool()); return true;
    case ArgKind::Scalar: call.add_scalar(v.toScalar()); return true;
    case ArgKind::DType: {
      tnx_dtype dtype = to_tnx(v.toScalarType());
      if (dtype == TNX_DTYPE_NONE) return false;
      call.add_dtype(dtype);
      return true;
    }
    case ArgKind::MemoryFormat: call.add_int(static_cast<int64_t>(v.toMemoryFormat())); return true;
    case ArgKind::String: call.add(TNX_ARG_STRING).string = v.toStringRef().c_str(); return true;
    case ArgKind::IntList: {
      if (v.isInt()) { // a single number stands for a list of one
        auto* one = call.take<int64_t>(1);
        *one = v.toInt();
        tnx_arg& a = call.add(TNX_ARG_INTS);
        a.dims = one;
        a.count = 1;
        return true;
      }
      c10::ArrayRef<c10::IValue> list = v.toListRef();
      auto* dims = call.take<int64_t>(list.size());
      for (size_t i = 0; i < list.size(); i++)
        dims[i] = list[i].isInt() ? list[i].toInt() : list[i].toSymInt().guard_int(__FILE__, __LINE__);
      tnx_arg& a = call.add(TNX_ARG_INTS);
      a.dims = dims;
      a.count = static_cast<uint32_t>(list.size());
      return true;
    }
    case ArgKind::FloatList: {
      c10::ArrayRef<c10::IValue> list = v.toListRef();
      auto* numbers = call.take<double>(list.size());
      for (size_t i = 0; i < list.size(); i++) numbers[i] = list[i].toDouble();
      tnx_arg& a = call.add(TNX_ARG_FLOATS);
      a.numbers = numbers;
      a.count = static_cast<uint32_t>(list.size());
      return true;
    }
    case ArgKind::BoolList: {
      c10::ArrayRef<c10::IValue> list = v.toListRef();
      auto* dims = call.take<int64_t>(list.size());
      for (size_t i = 0; i < list.size(); i++) dims[i] = list[i].toBool();
      tnx_arg& a = call.add(TNX_ARG_BOOLS);
      a.dims = dims;
      a.count = static_cast<uint32_t>(list.size());
      return true;
    }
    case ArgKind::ScalarList: {
      c10::ArrayRef<c10::IValue> list = v.toListRef();
      auto* items = call.take<tnx_arg>(list.size());
      for (size_t i = 0; i < list.size(); i++) Call::set_scalar(items[i], list[i].toScalar());
      tnx_arg& a = call.add(TNX_ARG_SCALARS);
      a.args = items;
      a.count = static_cast<uint32_t>(list.size());
      return true;
    }
    case ArgKind::Device:
    case ArgKind::Generator:
    case ArgKind::Ignored: call.add_none(); return true;
    case ArgKind::Tensor:
    case ArgKind::TensorList: return false;
  }
  return false;
}

} // namespace torch_neuronx
