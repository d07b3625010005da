/* Programs: fused pointwise chains, row programs and reductions, run by a vectorised interpreter.
 *
 * A program is a list of instructions over registers; a register holds one tile of elements (a run of the innermost
 * dimension). Each instruction is one tight loop over the tile, compiled once per ISA, so interpretation costs a few
 * nanoseconds per instruction and tile, and tiles stay in the L1 cache.
 *
 * Iteration space: sizes[0..rank-1], row-major, the last dimension innermost; operands have byte strides, 0 where they
 * are broadcast. Modes:
 *   MAP           every element independently; units are runs of tile elements of the flattened space.
 *   ROW           the innermost dimension is a row held whole in registers; REDUCE_* instructions turn a register into
 *                 the row's value, splat over a register, which later instructions use. Units are rows.
 *   REDUCE_INNER  the last n_reduced dimensions are reduced. Instructions up to `first_epilogue` run per tile and end in ACC_*
 *                 instructions; those after run once per output element (tile of length 1). Units are output elements.
 *   REDUCE_OUTER  the first n_reduced dimensions are reduced and the rest are kept, tile along the innermost kept
 *                 dimension; same split of the instructions. Units are tiles of the kept space.
 * In the REDUCE modes operands that are stored have stride 0 along reduced dimensions, and the epilogue reads ACC_* results,
 * what it loads itself, and values that are the same for the whole run (constants, scalars); select refuses other uses.
 * An operand that is stored may be the memory of one that is loaded only where both have the same elements at the same
 * coordinates; other overlaps give undefined values. */
#ifndef TNXK_PROGRAM_H
#define TNXK_PROGRAM_H
#include "kernels/kernel.h"

/* How a register's elements are computed. Registers have 8 bytes a lane, 16 for C128, so that any type fits. */
typedef enum tnxk_ctype {
  TNXK_F32, /* float32, and bfloat16/float16/float8 after load */
  TNXK_F64,
  TNXK_I64, /* every integer type, as int64 (uint64 by its bits) */
  TNXK_B8,  /* bool: one byte, 0 or 1 */
  TNXK_C64, /* pairs of float32 */
  TNXK_C128,
  TNXK_CTYPE_COUNT
} tnxk_ctype;

/* The compute type of a storage dtype. */
tnxk_ctype tnxk_ctype_of(tnx_dtype t);

typedef enum tnxk_op {
#define TNXK_OP(name, operands, types, doc) TNXK_##name,
#include "kernels/program/ops.def"
#undef TNXK_OP
  TNXK_OP_COUNT
} tnxk_op;

typedef struct tnxk_instr {
  uint16_t op;     /* tnxk_op */
  uint8_t ctype;   /* compute type of the operands */
  uint8_t dtype;   /* CONVERT: storage dtype whose rounding or wrapping applies to the result (TNX_DTYPE_NONE: none);
                      CONVERT's own result type is tnxk_ctype_of(dtype) */
  uint16_t dst;    /* register written (not STORE) */
  uint16_t a, b, c; /* registers read; LOAD and STORE: a (register) and operand index in b */
  union {
    double f[2]; /* CONST of a float or complex type */
    int64_t i;   /* CONST of an integer or bool type; IOTA: dimension of the iteration space; CHECK: the fault's code, not 0 */
  } imm;
} tnxk_instr;

typedef struct tnxk_operand {
  uint8_t dtype; /* storage dtype */
  bool store;    /* written, not read */
} tnxk_operand;

typedef enum tnxk_mode { TNXK_MAP, TNXK_ROW, TNXK_REDUCE_INNER, TNXK_REDUCE_OUTER } tnxk_mode;

enum { TNXK_PROGRAM_MAX_OPERANDS = 32, TNXK_PROGRAM_MAX_REGS = 64, TNXK_ROW_MAX_BYTES = 4 << 20 };
/* An operation may be done together with the one that reads it up to so many instructions later, if its operands' registers are not written in between. */
enum { TNXK_PROGRAM_PAIR_REACH = 4 };

typedef struct tnxk_program {
  const tnxk_instr *instrs;
  const tnxk_operand *operands;
  uint16_t n_instrs, n_operands, n_regs;
  uint16_t first_epilogue; /* REDUCE modes */
  uint8_t mode;            /* tnxk_mode */
} tnxk_program;

typedef struct tnxk_program_args {
  const tnxk_program *program;
  const void *prepared; /* NULL, or set by tnxk_program_prepare */
  tnxk_fault *fault; /* of CHECK instructions; may be NULL */
  int32_t rank;      /* >= 1 */
  int32_t n_reduced; /* REDUCE modes: see above */
  int64_t sizes[TNXK_MAX_RANK];
  struct {
    void *base;                     /* address of element 0 */
    int64_t strides[TNXK_MAX_RANK]; /* bytes; any sign, 0 = broadcast */
  } operand[TNXK_PROGRAM_MAX_OPERANDS];
} tnxk_program_args;

/* Merges dimensions that every operand walks as one, drops dimensions of size 1 (of the kept ones; an empty space keeps
 * one dimension of 0) and, in MAP mode, orders dimensions so that the best one is innermost. IOTA instructions pin the dimension they name. Call once
 * after filling the sizes and strides, before select. */
void tnxk_program_simplify(tnxk_program_args *args);

/* ROW mode: bytes of registers a thread needs for one row; select refuses more than TNXK_ROW_MAX_BYTES with NOT_IMPLEMENTED. */
tnx_status tnxk_program_select(const tnxk_program_args *args, tnx_isa isa, tnxk_kernel *out);

/* Optional, after select: keeps the analysis of args in `memory` (8-byte aligned, of that many bytes, living as long as args
 * and its copies) and points args->prepared at it, which takes most of the fixed cost, about 20 ns an instruction, off each run.
 * Base addresses may still change between runs; nothing else may, and the ISA is the one given to select. */
size_t tnxk_program_prepared_bytes(const tnxk_program_args *args);
tnx_status tnxk_program_prepare(tnxk_program_args *args, tnx_isa isa, void *memory);

/* True where `op` exists for this compute type: used by the planner before it builds a program. */
bool tnxk_op_supported(tnxk_op op, tnxk_ctype ct);
#endif
