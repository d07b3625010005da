/* 64-bit non-cryptographic hash of bytes, for in-process tables. */
#ifndef TNX_BASE_HASH_H
#define TNX_BASE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t tnx_hash_mix(uint64_t a, uint64_t b) {
  unsigned __int128 m = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd6e8feb86659fd93ull);
  return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t tnx_hash_bytes(const void *data, size_t n, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t h = tnx_hash_mix(seed, n), a, b;
  for (; n >= 16; n -= 16, p += 16) {
    memcpy(&a, p, 8);
    memcpy(&b, p + 8, 8);
    h = tnx_hash_mix(h ^ a, b);
  }
  if (n >= 8) {
    memcpy(&a, p, 8);
    memcpy(&b, p + n - 8, 8);
    return tnx_hash_mix(h ^ a, b);
  }
  a = 0;
  if (n) memcpy(&a, p, n); /* data may be NULL then */
  return tnx_hash_mix(h, a);
}
#endif
