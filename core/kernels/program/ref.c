/* The loops of programs for any CPU. */
#define PROG_ISA scalar
#include "kernels/program/body.h"
