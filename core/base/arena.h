/* Bump allocator. Everything allocated from an arena dies with it (tnx_arena_fini) or with a reset; nothing is freed
 * one by one. Not thread-safe: an arena belongs to one thread at a time. */
#ifndef TNX_BASE_ARENA_H
#define TNX_BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>

typedef struct tnx_arena {
  struct tnx_arena_block *head; /* the block being filled; older ones behind it */
  size_t used;                  /* bytes used in head */
} tnx_arena;

void tnx_arena_init(tnx_arena *a);
void tnx_arena_fini(tnx_arena *a);
/* Forgets everything but keeps the newest block for reuse. */
void tnx_arena_reset(tnx_arena *a);
/* 16-byte aligned, zeroed memory; NULL when the system has none. size 0 gives a valid unique pointer. */
void *tnx_arena_alloc(tnx_arena *a, size_t size);
void *tnx_arena_copy(tnx_arena *a, const void *src, size_t size);
char *tnx_arena_strdup(tnx_arena *a, const char *s);
#define TNX_ARENA_NEW(a, type) ((type *)tnx_arena_alloc((a), sizeof(type)))
#define TNX_ARENA_ARRAY(a, type, n) ((type *)tnx_arena_alloc((a), sizeof(type) * (size_t)(n)))
#endif
