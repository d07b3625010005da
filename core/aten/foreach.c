/* Operators over lists of tensors: the lowering of one element, for each element.
 *
 * All elements are one graph, so that a step of an optimizer is one launch and not hundreds. A list argument gives an element its own entry, any
 * other argument is shared. Lists of different lengths are not covered: PyTorch's loop over the elements words the error. */
#include "aten/family.h"

enum { MAX_ARGS = 8 };

static tnx_status for_each(tnx_lower *l, const tnx_arg *a, tnx_value *results, tnx_lower_fn element) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < l->n_args && !n; k++) n = a[k].kind == TNX_ARG_TENSORS ? a[k].count : 0;
  if (n == 0 || l->n_args > MAX_ARGS) return uncovered(l, "empty lists");
  for (uint32_t k = 0; k < l->n_args; k++)
    if ((a[k].kind == TNX_ARG_TENSORS || a[k].kind == TNX_ARG_SCALARS) && a[k].count != n) return uncovered(l, "lists of different lengths");
  for (uint32_t i = 0; i < n; i++) {
    tnx_arg own[MAX_ARGS] = {{0}}; /* what the element's operator has in addition is not given */
    for (uint32_t k = 0; k < l->n_args; k++) {
      own[k] = a[k];
      if (a[k].kind == TNX_ARG_SCALARS) own[k] = a[k].args[i];
      if (a[k].kind != TNX_ARG_TENSORS) continue;
      if (a[k].values[i] == TNX_NO_TENSOR) return uncovered(l, "undefined elements");
      own[k] = (tnx_arg){.kind = TNX_ARG_TENSOR, .value = a[k].values[i]};
    }
    TNX_TRY(element(l, own, results + i));
  }
  l->n_results = n;
  return l->b.status;
}

#define ATEN(functional, inplace, out, fn, flags)
#define EACH_ONE(name, fn) \
  tnx_status lower_each_##name(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return for_each(l, a, results, fn); }
#define EACH(name, overload, fn) EACH_ONE(name##_##overload, fn)
#include "aten/aten.def"
#undef ATEN

tnx_status lower_each_pow_Scalar(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return for_each(l, a, results, lower_pow_tensor_scalar); }
tnx_status lower_each_zero(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return for_each(l, a, results, lower_zero); }

static tnx_status element_copy(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  return give(l, results, expand_like(&l->b, tnx_b_convert(&l->b, a[1].value, tnx_b_dtype(&l->b, a[0].value)), a[0].value));
}
tnx_status lower_each_copy(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return for_each(l, a, results, element_copy); }

/* (self, ord, dtype): the norm of the whole tensor */
static tnx_status element_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) {
  tnx_arg whole[5] = {a[0], a[1], {0}, {.kind = TNX_ARG_BOOL}, a[2]};
  return lower_vector_norm(l, whole, results);
}
tnx_status lower_each_norm(tnx_lower *l, const tnx_arg *a, tnx_value *results) { return for_each(l, a, results, element_norm); }
