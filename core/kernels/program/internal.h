/* Inside the program family: the table of loops that each ISA file fills, and the executor they share.
 * Loops read and write registers or memory with any alignment; `d` may be the same address as an operand. */
#ifndef TNXK_PROGRAM_INTERNAL_H
#define TNXK_PROGRAM_INTERNAL_H
#include "kernels/program/program.h"

enum {
  PROG_TILE = 512,       /* lanes of a register: 2 KiB of float32, so a dozen stay in a 32 KiB L1 */
  PROG_LANES = 32,       /* running values of a reduction along a tile; fixed, so results do not depend on the ISA */
  PROG_CHUNK_TILES = 64, /* tiles that go into the lanes before they are folded into the wide total */
  PROG_CHUNK = PROG_TILE * PROG_CHUNK_TILES,
  PROG_MAX_INSTRS = 1024
};

typedef void (*prog_op_fn)(void *d, const void *a, const void *b, const void *c, int64_t n, const tnxk_instr *in);
typedef void (*prog_load_fn)(void *d, const char *src, int64_t stride, int64_t n);
typedef void (*prog_store_fn)(char *dst, int64_t stride, const void *src, int64_t n);

/* The order of ACC_* and REDUCE_* instructions and of their loops. */
typedef enum prog_acc_op { PROG_SUM, PROG_PROD, PROG_MAX, PROG_MIN, PROG_ARGMAX, PROG_ARGMIN, PROG_ACC_OPS } prog_acc_op;

/* Two float operations in a pass: SECOND(FIRST(a, b), c), each rounded; RSUB is c - FIRST(a, b). */
typedef enum prog_pair_op { PROG_PAIR_ADD, PROG_PAIR_SUB, PROG_PAIR_MUL, PROG_PAIR_DIV, PROG_PAIR_MAX, PROG_PAIR_MIN, PROG_PAIR_FIRSTS, PROG_PAIR_RSUB = PROG_PAIR_FIRSTS, PROG_PAIR_SECONDS } prog_pair_op;

/* A reduction along tiles: PROG_LANES running values, folded from time to time into the total. ARG*: the total's value
 * and its index only. */
typedef struct prog_acc {
  _Alignas(64) char lane[PROG_LANES * 8];
  double s[2], e[2]; /* float totals: sums with their rounding errors (re, im), products, extremes */
  int64_t i;         /* integer and bool totals */
  int64_t index;     /* ARG* */
} prog_acc;

typedef struct prog_isa {
  prog_op_fn op[TNXK_OP_COUNT][TNXK_CTYPE_COUNT];
  prog_op_fn pair[PROG_PAIR_FIRSTS][PROG_PAIR_SECONDS]; /* of float32 */
  prog_op_fn random24; /* PHILOX's upper 24 bits as float32 */
  prog_op_fn convert[TNXK_CTYPE_COUNT][TNX_DTYPE_COUNT];
  void (*splat[TNXK_CTYPE_COUNT])(void *d, int64_t n); /* lane 0 to all lanes */
  prog_load_fn load[TNX_DTYPE_COUNT];
  prog_store_fn store[TNX_DTYPE_COUNT];
  /* Along a tile, into lanes (ARG*: into the total; pos is the index of x[0]). */
  void (*tile[PROG_ACC_OPS][TNXK_CTYPE_COUNT])(prog_acc *acc, const void *x, int64_t n, int64_t pos);
  /* SUM of products: along a tile, and across tiles. */
  void (*tile_dot[TNXK_CTYPE_COUNT])(prog_acc *acc, const void *x, const void *y, int64_t n);
  void (*lanes_dot[TNXK_CTYPE_COUNT])(void *v, const void *x, const void *y, int64_t n);
  void (*reset[PROG_ACC_OPS][TNXK_CTYPE_COUNT])(prog_acc *acc); /* lanes to the neutral element; NULL for ARG* */
  void (*fold[PROG_ACC_OPS][TNXK_CTYPE_COUNT])(prog_acc *acc);  /* lanes into the total, then reset */
  /* Whole short rows: out[r] from x[r * len ... + len) (ARG*: the index in the row, as int64). */
  void (*rows[PROG_ACC_OPS][TNXK_CTYPE_COUNT])(void *out, const void *x, int64_t rows, int64_t len);
  /* Across tiles, lane by lane: v[i] op= x[i] (ARG*: index[i] = pos where x[i] wins). */
  void (*lanes[PROG_ACC_OPS][TNXK_CTYPE_COUNT])(void *v, int64_t *index, const void *x, int64_t n, int64_t pos);
} prog_isa;

extern const prog_isa prog_isa__scalar;
#if defined(__x86_64__)
extern const prog_isa prog_isa__avx2;
extern const prog_isa prog_isa__avx512;
#endif

void prog_run(const tnxk_program_args *p, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker, const prog_isa *t);
void tnxk_program__scalar(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
void tnxk_program__avx2(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);
void tnxk_program__avx512(const void *params, uint32_t phase, int64_t begin, int64_t end, void *shared, void *worker);

/* Adds to a compensated total (Neumaier: the part of x or of the total that rounding loses goes to e). */
static inline void prog_acc_add(prog_acc *acc, int k, double x) {
  double s = acc->s[k], t = s + x;
  acc->e[k] += (s < 0 ? -s : s) >= (x < 0 ? -x : x) ? (s - t) + x : (x - t) + s;
  acc->s[k] = t;
}

static inline int prog_width(int ct) { return ct == TNXK_F32 ? 4 : ct == TNXK_B8 ? 1 : ct == TNXK_C128 ? 16 : 8; }
#endif
