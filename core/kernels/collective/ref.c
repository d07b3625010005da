/* Reductions over ranks in portable C. */
#define TABLE(name) name##__scalar
#include "kernels/collective/body.h"
