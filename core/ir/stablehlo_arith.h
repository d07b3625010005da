/* StableHLO writer: short names for the arithmetic of formulas. */
#ifndef TNX_STABLEHLO_ARITH_H
#define TNX_STABLEHLO_ARITH_H
#include "ir/stablehlo.h"

static inline hlo add(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.add", x, y); }
static inline hlo sub(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.subtract", x, y); }
static inline hlo mul(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.multiply", x, y); }
static inline hlo quot(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.divide", x, y); }
static inline hlo both(hlo_writer *w, hlo x, hlo y) { return hlo_bin(w, "stablehlo.and", x, y); }
#endif
