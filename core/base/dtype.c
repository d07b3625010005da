/* Element type properties and PyTorch's promotion table. */
#include "tnx/dtype.h"

#include <string.h>

static const struct {
  const char *name, *hlo;
  uint8_t size, kind;
} info[] = {
#define TNX_DTYPE(name, torch, bytes, kind, hlo) {torch, hlo, bytes, TNX_KIND_##kind},
#include "tnx/dtypes.def"
#undef TNX_DTYPE
};

size_t tnx_dtype_size(tnx_dtype t) { return (unsigned)t < TNX_DTYPE_COUNT ? info[t].size : 0; }
tnx_dtype_kind tnx_dtype_get_kind(tnx_dtype t) { return (tnx_dtype_kind)((unsigned)t < TNX_DTYPE_COUNT ? info[t].kind : 0); }
const char *tnx_dtype_name(tnx_dtype t) { return (unsigned)t < TNX_DTYPE_COUNT ? info[t].name : "none"; }
const char *tnx_dtype_hlo(tnx_dtype t) { return (unsigned)t < TNX_DTYPE_COUNT ? info[t].hlo : "none"; }

tnx_dtype tnx_dtype_parse(const char *name) {
  for (int i = 0; i < TNX_DTYPE_COUNT; i++)
    if (strcmp(name, info[i].name) == 0) return (tnx_dtype)i;
  return TNX_DTYPE_NONE;
}

tnx_dtype tnx_dtype_real(tnx_dtype t) { return t == TNX_C64 ? TNX_F32 : t == TNX_C128 ? TNX_F64 : t; }

/* The lattice of torch.promote_types: within a kind the wider type wins; uint8 with a signed integer gives the signed
 * type wider than 8 bits; float16 with bfloat16 gives float32; a float8 with another float8 or a half gives the half or,
 * where neither holds the other, the wider type by the table's order. */
tnx_dtype tnx_dtype_promote(tnx_dtype a, tnx_dtype b) {
  if (a == b) return a;
  tnx_dtype_kind ka = tnx_dtype_get_kind(a), kb = tnx_dtype_get_kind(b);
  if (ka == TNX_KIND_COMPLEX || kb == TNX_KIND_COMPLEX) {
    tnx_dtype r = tnx_dtype_promote(tnx_dtype_real(a), tnx_dtype_real(b));
    return r == TNX_F64 ? TNX_C128 : TNX_C64;
  }
  if (ka == TNX_KIND_FLOAT && kb == TNX_KIND_FLOAT) {
    if ((a == TNX_F16 && b == TNX_BF16) || (a == TNX_BF16 && b == TNX_F16)) return TNX_F32;
    return a > b ? a : b;
  }
  if (ka == TNX_KIND_FLOAT) return a;
  if (kb == TNX_KIND_FLOAT) return b;
  if (ka == TNX_KIND_BOOL) return b;
  if (kb == TNX_KIND_BOOL) return a;
  if (ka == kb) return info[a].size > info[b].size ? a : b;
  /* One signed, one unsigned: the signed type wins where it is wider, else the next wider signed type. */
  tnx_dtype s = ka == TNX_KIND_INT ? a : b, u = ka == TNX_KIND_INT ? b : a;
  if (info[s].size > info[u].size) return s;
  return info[u].size == 1 ? TNX_I16 : info[u].size == 2 ? TNX_I32 : TNX_I64;
}
