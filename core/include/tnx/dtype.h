/* Element types and their properties. */
#ifndef TNX_DTYPE_H
#define TNX_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tnx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tnx_dtype {
#define TNX_DTYPE(name, torch, bytes, kind, hlo) TNX_##name,
#include "tnx/dtypes.def"
#undef TNX_DTYPE
  TNX_DTYPE_COUNT,
  TNX_DTYPE_NONE = 0xff
} tnx_dtype;

typedef enum tnx_dtype_kind { TNX_KIND_BOOL, TNX_KIND_UINT, TNX_KIND_INT, TNX_KIND_FLOAT, TNX_KIND_COMPLEX } tnx_dtype_kind;

TNX_API size_t tnx_dtype_size(tnx_dtype t);          /* bytes of one element */
TNX_API tnx_dtype_kind tnx_dtype_get_kind(tnx_dtype t);
TNX_API const char *tnx_dtype_name(tnx_dtype t);     /* PyTorch's name: "bfloat16" */
TNX_API const char *tnx_dtype_hlo(tnx_dtype t);      /* StableHLO's element type: "bf16" */
TNX_API tnx_dtype tnx_dtype_parse(const char *name); /* by PyTorch's name; TNX_DTYPE_NONE if unknown */
/* PyTorch's type promotion of two dtypes of equal category (torch.promote_types). */
TNX_API tnx_dtype tnx_dtype_promote(tnx_dtype a, tnx_dtype b);
TNX_API tnx_dtype tnx_dtype_real(tnx_dtype t);       /* complex64 -> float32, complex128 -> float64, others unchanged */

static inline bool tnx_dtype_is_float(tnx_dtype t) { return tnx_dtype_get_kind(t) == TNX_KIND_FLOAT; }
static inline bool tnx_dtype_is_complex(tnx_dtype t) { return tnx_dtype_get_kind(t) == TNX_KIND_COMPLEX; }
/* Integers and bool, as c10::isIntegralType(t, includeBool=true). */
static inline bool tnx_dtype_is_integral(tnx_dtype t) { return tnx_dtype_get_kind(t) <= TNX_KIND_INT; }

#ifdef __cplusplus
}
#endif
#endif
