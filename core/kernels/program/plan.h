/* What the analysis of a program's arguments yields. select uses it for units and sizes; run repeats it at each hand-out
 * (tens of nanoseconds) because params stay the caller's plain data. */
#ifndef TNXK_PROGRAM_PLAN_H
#define TNXK_PROGRAM_PLAN_H
#include "kernels/program/internal.h"

enum { PROG_NONE = 0xffff, PROG_MAX_PHASES = 64, PROG_MAX_ACCS = 32, PROG_VECTOR_BYTES = PROG_TILE * 16 };

typedef enum prog_kind { PK_OP, PK_LOAD, PK_STORE, PK_IOTA, PK_ACC, PK_REDUCE, PK_NOP } prog_kind;

/* How often a value changes. */
typedef enum prog_level { PL_LANE, PL_ROW, PL_RUN } prog_level;

typedef struct prog_node { /* one instruction */
  prog_op_fn fn;
  const tnxk_instr *in;
  uint16_t a, b, c;    /* instructions whose values are read, or n_instrs for none */
  uint16_t last_use;   /* last instruction that reads this value; own index if none */
  uint8_t kind, level, phase, ready; /* phase it runs in; phase from which its value may be read */
  uint8_t width;       /* bytes of a lane of the value */
  bool epilogue, splat; /* splat: a uniform value read by lanes */
  bool held;           /* ROW: lives across phases, so the whole row is stored */
  int16_t operand;     /* the operand whose memory holds the value, or -1 */
  uint8_t acc;         /* PK_ACC, PK_REDUCE: which accumulator */
  uint8_t acc_op;
} prog_node;

typedef struct prog_moving { /* a value whose address follows the position */
  uint16_t node;
  int16_t operand; /* -1: a held register at base */
  int32_t step;
  char *base;
} prog_moving;

typedef struct prog_space { /* dimensions [t0, t1), flattened, are walked in tiles */
  int t0, t1;
  int64_t count;
} prog_space;

typedef struct prog_plan {
  int n_instrs, n_accs, n_phases, n_uniform;
  prog_space body, epilogue;
  int64_t outer;          /* ROW: rows; REDUCE_INNER: outputs; REDUCE_OUTER: reduced positions */
  int64_t chunk, n_chunks; /* reductions split in two phases: positions of a chunk; n_chunks 1: not split */
  int64_t tile;           /* lanes of a register */
  uint8_t held_pitch[TNXK_PROGRAM_MAX_REGS]; /* ROW: bytes a lane of a register's whole-row storage, 0 where it has none */
  uint32_t off_reg[TNXK_PROGRAM_MAX_REGS], off_held[TNXK_PROGRAM_MAX_REGS]; /* offsets into the worker block */
  size_t off_nodes, off_order, off_moving, off_cur, off_uniform, off_acc, off_value, worker_bytes;
  size_t uniform_bytes, acc_bytes; /* of one uniform value's tile; of one accumulator */
} prog_plan;

/* Fills plan and nodes (n_instrs of them). */
tnx_status prog_analyze(const tnxk_program_args *p, const prog_isa *t, prog_plan *plan, prog_node *nodes);

/* True where the operand's elements follow each other in the flattened space. */
bool prog_contiguous(const tnxk_program_args *p, int operand, const prog_space *s);

/* Shared memory for the partial results of a split reduction. */
size_t prog_partial_bytes(const prog_plan *plan, int mode);
#endif
