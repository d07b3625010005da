#include "Status.h"

#include <c10/util/Exception.h>

#include <string>

namespace torch_neuronx {

void raise_status(tnx_status status, const char* what) {
  std::string text = what ? std::string(what) + ": " : std::string();
  const char* detail = tnx_error_text();
  text += *detail ? detail : tnx_status_text(status);
  switch (status) {
    case TNX_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case TNX_NOT_IMPLEMENTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case TNX_INDEX:
      TORCH_CHECK_INDEX(false, text);
    case TNX_LINALG:
      TORCH_CHECK_LINALG(false, text);
    case TNX_PARSE:
      TORCH_CHECK_VALUE(false, text);
    case TNX_BAD_FORK:
      TORCH_CHECK(
          false,
          "Cannot re-initialize Neuron in forked subprocess. To use Neuron with multiprocessing, you must use the "
          "'spawn' start method");
    case TNX_INTERNAL:
      TORCH_CHECK(false, "Neuron internal error: ", text);
    default:
      // Wrong shapes, dtypes and arguments are RuntimeErrors in ATen, and so are device failures.
      TORCH_CHECK(false, text);
  }
  // Every case throws; the compiler cannot see it.
  __builtin_unreachable();
}

} // namespace torch_neuronx
