/* Writing past the caches. A result larger than the last cache is out of it before anybody reads it; stored the usual way, each of its lines is
 * also read from memory first. Non-temporal stores save that read: a third of the traffic of a copy, half of a fill's. The instructions belong to
 * every x86-64 processor; elsewhere these are plain copies. */
#ifndef TNXK_UNCACHED_H
#define TNXK_UNCACHED_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Is a result of so many bytes better written past the caches? */
static inline bool tnxk_uncached_pays(int64_t bytes) { return bytes >= (4 << 20) && (size_t)bytes >= tnx_cpu_cache_bytes(3); }

/* Copies to memory that does not overlap src. The last cache lines may be on their way until tnxk_uncached_fence. */
static inline void tnxk_uncached_copy(void *dst, const void *src, size_t bytes) {
#if defined(__SSE2__)
  char *d = dst;
  const char *s = src;
  size_t head = -(uintptr_t)d & 63;
  if (head + 64 <= bytes) {
    memcpy(d, s, head);
    d += head, s += head, bytes -= head;
    for (; bytes >= 64; d += 64, s += 64, bytes -= 64)
      for (int k = 0; k < 64; k += 16) _mm_stream_si128((__m128i *)(d + k), _mm_loadu_si128((const __m128i *)(s + k)));
  }
  memcpy(d, s, bytes);
#else
  memcpy(dst, src, bytes);
#endif
}

/* Before another thread may read what this one has written so. */
static inline void tnxk_uncached_fence(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
#endif
