// Turns a tnx_status into PyTorch's exception types. The only place that does.
#pragma once
#include <c10/macros/Macros.h>
#include "tnx/status.h"

namespace torch_neuronx {

// Throws the exception for `status` with libtnx's error text. `what` (may be null) goes before the text.
[[noreturn]] void raise_status(tnx_status status, const char* what = nullptr);

inline void check(tnx_status status, const char* what = nullptr) {
  if (C10_UNLIKELY(status != TNX_OK)) raise_status(status, what);
}

} // namespace torch_neuronx
