/* Reductions over ranks compiled for AVX2 and F16C: the loops of body.h become 8-lane code. */
#if !defined(TNX_EMULATE_ISA)
#define TNXK_F16C
#endif
#define TABLE(name) name##__avx2
#include "kernels/collective/body.h"
