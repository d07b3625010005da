/* What the analysis of a program's arguments yields: everything about a run but the addresses. tnxk_program_prepare keeps
 * it in the caller's memory; without that each run repeats it in its worker block. */
#ifndef TNXK_PROGRAM_PLAN_H
#define TNXK_PROGRAM_PLAN_H
#include "kernels/program/internal.h"

enum { PROG_NONE = 0xffff, PROG_MAX_PHASES = 64, PROG_MAX_ACCS = 32, PROG_VECTOR_BYTES = PROG_TILE * 16 };

typedef enum prog_kind { PK_OP, PK_LOAD, PK_STORE, PK_IOTA, PK_ACC, PK_REDUCE, PK_CHECK, PK_RAMP, PK_NOP, PK_FUSED } prog_kind; /* RAMP: the place in the row compared with a; FUSED: its reader does it */

/* How often a value changes. */
typedef enum prog_level { PL_LANE, PL_ROW, PL_RUN } prog_level;

typedef struct prog_node { /* one instruction */
  prog_op_fn fn;
  const tnxk_instr *in;
  uint16_t a, b, c;    /* values read: an instruction, n_instrs for none, n_instrs + 1 + an instruction for its expanded value */
  uint16_t last_use;   /* last instruction that reads this value; own index if none */
  uint8_t kind, level, phase, ready; /* phase it runs in; phase from which its value may be read */
  uint8_t width;       /* bytes of a lane of the value */
  bool epilogue, splat; /* splat: a uniform value read by lanes */
  bool expand;          /* grouped rows: a value of the row level read by lanes */
  bool dot;            /* PK_ACC, PK_REDUCE: of the products of a and b */
  bool pair;           /* PK_OP: with operations before it that were made for it; reads a, b and c */
  bool mirrored;       /* PK_RAMP: a compared with the place */
  bool held;           /* ROW: lives across phases, so the whole row is stored */
  bool uncached;       /* PK_STORE: past the caches */
  int16_t operand;     /* the operand whose memory holds the value, or -1 */
  uint32_t at;         /* else: offset of the value's tile, or held row, in the worker block */
  uint32_t at_expanded;
  uint8_t acc;         /* PK_ACC, PK_REDUCE: which accumulator */
  uint8_t acc_op;
} prog_node;

typedef struct prog_moving { /* a value whose address follows the position */
  uint16_t node;
  int16_t operand; /* -1: a held register at `offset` of the worker block */
  uint32_t step, offset;
} prog_moving;

typedef struct prog_space { /* dimensions [t0, t1), flattened, are walked in tiles */
  int t0, t1;
  int64_t count;
} prog_space;

typedef struct prog_plan {
  int n_instrs, n_accs, n_phases, n_uniform;
  bool addresses_matter;  /* which values can live in operand memory depends on which operands overlap: decided in each run */
  bool uncached;          /* some store goes past the caches */
  prog_space body, epilogue;
  int64_t outer;          /* ROW: rows; REDUCE_INNER: outputs; REDUCE_OUTER: reduced positions */
  int64_t chunk, n_chunks; /* reductions split in two phases: positions of a chunk; n_chunks 1: not split */
  int64_t tile;           /* lanes of a register */
  /* Short rows (ROW, REDUCE_INNER): `group` rows of row_len lanes fill one tile, and values of the row level have a lane for
   * each row, kept a second time expanded to all lanes where lanes read them. group 0: rows are walked one by one. */
  int64_t group, row_len;
  /* MAP over rows: where operands repeat or jump from row to row, rows are walked one by one, as in ROW mode, so that what is the same
   * along a row is computed once for it. Rows are cut into `segments` of PROG_CHUNK; 0: the space is walked flat. */
  int64_t segments;
  prog_space rows;        /* the dimensions outside the rows */
  /* `order` holds instructions of: the run level; for each phase its row level, then its lane level; the epilogue. */
  uint64_t whole_chunks; /* phases (bits) that reduce operands where they lie and need no tiles */
  uint16_t run_end, row_end[PROG_MAX_PHASES], lane_end[PROG_MAX_PHASES], epi_end;
  uint16_t n_mov, n_mov_body; /* `moving`: those of the body come first */
  uint16_t acc_node[PROG_MAX_ACCS];
  uint32_t off_cur, off_uniform, off_acc, off_value; /* offsets into the worker block */
  uint32_t uniform_bytes, acc_bytes; /* of one uniform value's tile; of one accumulator */
  size_t worker_bytes;
  prog_node *nodes;
  uint16_t *order;
  prog_moving *moving;
} prog_plan;

/* Bytes of a plan of n instructions with its arrays, which follow it. */
size_t prog_plan_bytes(int n_instrs);
/* Fills the plan and its arrays; plan has prog_plan_bytes. */
tnx_status prog_analyze(const tnxk_program_args *p, const prog_isa *t, prog_plan *plan);
void prog_plan_copy(prog_plan *to, const prog_plan *from);
/* Where addresses_matter: decides again for the addresses in p. */
void prog_place(const tnxk_program_args *p, prog_plan *plan);

/* True where the operand's elements follow each other in the flattened space. */
bool prog_contiguous(const tnxk_program_args *p, int operand, const prog_space *s);

/* Is the dtype's memory laid out as the registers of its compute type? */
static inline bool prog_same_layout(int dt) {
  return dt == TNX_F32 || dt == TNX_F64 || dt == TNX_I64 || dt == TNX_U64 || dt == TNX_C64 || dt == TNX_C128 || dt == TNX_BOOL;
}

/* Shared memory for the partial results of a split reduction. */
size_t prog_partial_bytes(const prog_plan *plan, int mode);
#endif
