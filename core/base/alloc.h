/* The one way libtnx takes host heap memory, so that tests can make the n-th allocation fail. Any thread. */
#ifndef TNX_BASE_ALLOC_H
#define TNX_BASE_ALLOC_H
#include <stddef.h>
#include <stdint.h>

void *tnx_heap_alloc(size_t size);            /* NULL on failure; uninitialised */
void *tnx_heap_zalloc(size_t count, size_t size); /* zeroed, overflow-checked */
void *tnx_heap_realloc(void *p, size_t size);
void tnx_heap_free(void *p);

/* Fault injection: the allocation `countdown` calls from now fails (0 = the next one), once. Negative: off. */
void tnx_heap_fail_after(int64_t countdown);
/* Allocations minus frees since the process started: leak checks of the C tests. */
int64_t tnx_heap_live(void);
#endif
