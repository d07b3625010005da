/* The loops of programs for avx512. */
#define PROG_ISA avx512
#include "kernels/program/body.h"
