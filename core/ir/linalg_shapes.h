/* Shapes and dtypes of the LINALG operators, for the builder and the verifier: one letter for each dimension behind the batch.
 *
 * m, n, k, a, c, r: bound by the operands. l: min(m, n); x: max(m, n); p: the columns of U, q: the rows of Vh. Results are of the operands' dtype (s), int32 (i), int64
 * (j), real (f) or complex (z). LU_PERMUTATION is the one whose result's size (m) no operand has. */
#ifndef TNX_IR_LINALG_SHAPES_H
#define TNX_IR_LINALG_SHAPES_H
#include "ir/graph.h"

typedef struct tnx_linalg_shape {
  const char *in[3], *out[3];
  const char *in_types, *out_types;
  int8_t vectors; /* the flag without which results of two dimensions have no elements; -1: none */
} tnx_linalg_shape;

static inline const tnx_linalg_shape *tnx_linalg_shape_of(tnx_op op) {
  static const tnx_linalg_shape shapes[] = {
      [TNX_OP_CHOLESKY - TNX_OP_CHOLESKY] = {{"nn"}, {"nn", ""}, "s", "si", -1},
      [TNX_OP_LU - TNX_OP_CHOLESKY] = {{"mn"}, {"mn", "l", ""}, "s", "sii", -1},
      [TNX_OP_LU_SOLVE - TNX_OP_CHOLESKY] = {{"nn", "n", "nk"}, {"nk"}, "sis", "s", -1},
      [TNX_OP_LU_PERMUTATION - TNX_OP_CHOLESKY] = {{"k1"}, {"m1"}, "i", "j", -1},
      [TNX_OP_TRIANGULAR_SOLVE - TNX_OP_CHOLESKY] = {{"nn", "nk"}, {"nk"}, "ss", "s", -1},
      [TNX_OP_LDL - TNX_OP_CHOLESKY] = {{"nn"}, {"nn", "n", ""}, "s", "sii", -1},
      [TNX_OP_LDL_SOLVE - TNX_OP_CHOLESKY] = {{"nn", "n", "nk"}, {"nk"}, "sis", "s", -1},
      [TNX_OP_QR - TNX_OP_CHOLESKY] = {{"mn"}, {"mn", "l"}, "s", "ss", -1},
      [TNX_OP_QR_Q - TNX_OP_CHOLESKY] = {{"mn", "k"}, {"mn"}, "ss", "s", -1},
      [TNX_OP_QR_APPLY - TNX_OP_CHOLESKY] = {{"ac", "k", "mn"}, {"mn"}, "sss", "s", -1},
      [TNX_OP_SVD - TNX_OP_CHOLESKY] = {{"mn"}, {"mp", "l", "qn"}, "s", "sfs", 1},
      [TNX_OP_EIGH - TNX_OP_CHOLESKY] = {{"nn"}, {"n", "nn"}, "s", "fs", 1},
      [TNX_OP_EIG - TNX_OP_CHOLESKY] = {{"nn"}, {"n", "nn"}, "s", "zz", 0},
      [TNX_OP_LSTSQ - TNX_OP_CHOLESKY] = {{"mn", "mk"}, {"xk", "", "l"}, "ss", "sjf", -1},
      [TNX_OP_MATRIX_EXP - TNX_OP_CHOLESKY] = {{"nn"}, {"nn"}, "s", "s", -1},
  };
  return &shapes[op - TNX_OP_CHOLESKY];
}

static inline tnx_dtype tnx_linalg_dtype(char letter, tnx_dtype t) {
  switch (letter) {
    case 'i': return TNX_I32;
    case 'j': return TNX_I64;
    case 'f': return tnx_dtype_real(t);
    case 'z': return t == TNX_F32 ? TNX_C64 : t == TNX_F64 ? TNX_C128 : t;
    default: return t;
  }
}
#endif
