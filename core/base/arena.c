#include "base/arena.h"

#include <string.h>

#include "base/alloc.h"

struct tnx_arena_block {
  struct tnx_arena_block *next;
  size_t size; /* bytes of data[] */
  _Alignas(16) unsigned char data[];
};

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

void tnx_arena_init(tnx_arena *a) { *a = (tnx_arena){0}; }

void tnx_arena_fini(tnx_arena *a) {
  for (struct tnx_arena_block *b = a->head, *next; b; b = next) {
    next = b->next;
    tnx_heap_free(b);
  }
  *a = (tnx_arena){0};
}

void tnx_arena_reset(tnx_arena *a) {
  struct tnx_arena_block *keep = a->head;
  if (!keep) return;
  for (struct tnx_arena_block *b = keep->next, *next; b; b = next) {
    next = b->next;
    tnx_heap_free(b);
  }
  keep->next = NULL;
  a->used = 0;
}

void *tnx_arena_alloc(tnx_arena *a, size_t size) {
  if (size > SIZE_MAX / 2) return NULL;
  size = (size + 15) & ~(size_t)15;
  if (size == 0) size = 16;
  if (!a->head || a->head->size - a->used < size) {
    size_t want = a->head ? a->head->size * 2 : FIRST_BLOCK;
    if (want > LARGEST_BLOCK) want = LARGEST_BLOCK;
    if (want < size) want = size;
    struct tnx_arena_block *b = tnx_heap_alloc(sizeof *b + want);
    if (!b) return NULL;
    b->next = a->head;
    b->size = want;
    a->head = b;
    a->used = 0;
  }
  void *p = a->head->data + a->used;
  a->used += size;
  memset(p, 0, size);
  return p;
}

void *tnx_arena_copy(tnx_arena *a, const void *src, size_t size) {
  void *p = tnx_arena_alloc(a, size);
  if (p && size) memcpy(p, src, size);
  return p;
}

char *tnx_arena_strdup(tnx_arena *a, const char *s) { return tnx_arena_copy(a, s, strlen(s) + 1); }
