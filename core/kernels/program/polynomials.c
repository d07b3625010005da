/* Orthogonal polynomials in float and double. */
#include "kernels/program/special.h"

/* PyTorch's bound on the degree of Hermite polynomials is the degree at which they overflow for most arguments. */
static int64_t prog_degreef(float n) { return fabsf(n) < 0x1p62f ? (int64_t)n : -1; }
static int64_t prog_degree(double n) { return fabs(n) < 0x1p62 ? (int64_t)n : -1; }

#define TYPE float
#define F(name) prog_##name##f
#define fn(g) g##f
enum { HERMITE_LIMIT_F = 128, HERMITE_LIMIT_D = 512 };
#define HERMITE_LIMIT HERMITE_LIMIT_F
#include "kernels/program/polynomials.h"
#undef TYPE
#undef F
#undef fn
#undef HERMITE_LIMIT

#define TYPE double
#define F(name) prog_##name
#define fn(g) g
#define HERMITE_LIMIT HERMITE_LIMIT_D
#include "kernels/program/polynomials.h"
