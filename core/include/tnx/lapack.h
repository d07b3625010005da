/* Where libtnx finds LAPACK and BLAS.
 *
 * libtnx links no linear algebra library: whoever loads it names one. Routines are Fortran ones with 32-bit integers ("dgetrf_"). Without a provider the
 * dense factorisations answer NOT_IMPLEMENTED. */
#ifndef TNX_LAPACK_H
#define TNX_LAPACK_H
#include "tnx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Looks every routine up once, now; find(ctx, name) returns its address or NULL. Routines that are missing leave the operators that need them NOT_IMPLEMENTED.
 * May be called again, with NULL to forget all, but not while work is queued. */
typedef void *(*tnx_lapack_find_fn)(void *ctx, const char *name);
TNX_API void tnx_lapack_provide(tnx_lapack_find_fn find, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
