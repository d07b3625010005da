// From an ATen schema to libtnx's argument kinds; shared by the eager adapter and the graph builder.
#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "Call.h"

namespace torch_neuronx {

enum class ArgKind : uint8_t {
  Tensor, TensorList, Int, Float, Bool, Scalar, IntList, FloatList, BoolList, ScalarList, DType, MemoryFormat, String,
  Device, Generator, Ignored
};

// One argument of a row.
struct RowArg {
  ArgKind kind;
  bool written;       // the tensor (or each of the list) is changed
  bool has_default;
  int32_t source;     // position in the called overload's arguments; -1: it has no such argument
  c10::IValue default_value;
};

// False: a type libtnx is never given (Storage, Stream, class types).
bool arg_kind(const c10::Argument& argument, ArgKind* kind);

// The arguments of `reference` (the functional overload) by name among those of `called`. `written`: positions the called
// overload writes. Arguments only `called` has (out tensors, generators) are left out. False: they do not fit.
bool match_arguments(
    const c10::FunctionSchema& called, const c10::FunctionSchema& reference, const std::vector<uint32_t>& written,
    std::vector<RowArg>* out);

// Adds an argument that holds no tensor. False: libtnx cannot represent the value.
bool add_value(Call& call, ArgKind kind, const c10::IValue& value);

} // namespace torch_neuronx
