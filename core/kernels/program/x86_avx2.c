/* The loops of programs for avx2. */
#define PROG_ISA avx2
#include "kernels/program/body.h"
