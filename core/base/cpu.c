#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static unsigned long long xcr0(void) {
  unsigned a, d;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return ((unsigned long long)d << 32) | a;
}

static tnx_isa detect(void) {
  unsigned a, b, c, d, c1, b7, d7, a71 = 0, ignore;
  if (!__get_cpuid(1, &a, &b, &c1, &d)) return TNX_ISA_SCALAR;
  int osxsave = (c1 >> 27) & 1, fma = (c1 >> 12) & 1, f16c = (c1 >> 29) & 1;
  if (!osxsave || !fma || !f16c || (xcr0() & 6) != 6) return TNX_ISA_SCALAR;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c, &d7) || !((b7 >> 5) & 1)) return TNX_ISA_SCALAR;
  unsigned need512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* F DQ BW VL */
  if ((b7 & need512) != need512 || (xcr0() & 0xe0) != 0xe0) return TNX_ISA_AVX2;
  __get_cpuid_count(7, 1, &a71, &ignore, &ignore, &ignore);
  int vnni = (c >> 11) & 1;
  if (!((a71 >> 5) & 1) || !vnni) return TNX_ISA_AVX512;
  unsigned need_amx = (1u << 22) | (1u << 24) | (1u << 25); /* BF16 TILE INT8 */
  if ((d7 & need_amx) != need_amx || (xcr0() & 0x60000) != 0x60000) return TNX_ISA_AVX512_BF16;
  /* Linux hands out the 8 KiB tile state only on request (Documentation/arch/x86/xstate.rst). */
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) return TNX_ISA_AVX512_BF16;
  return TNX_ISA_AMX;
}
#else
static tnx_isa detect(void) { return TNX_ISA_SCALAR; }
#endif

static const char *const names[TNX_ISA_COUNT] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
static tnx_isa level; /* the CPU feature word */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void) {
  level = detect();
  const char *cap = getenv("TNX_MAX_ISA");
  for (int i = 0; cap && i < (int)level; i++)
    if (strcmp(cap, names[i]) == 0) level = (tnx_isa)i;
}

tnx_isa tnx_cpu_isa(void) {
  pthread_once(&once, init);
  return level;
}

const char *tnx_isa_name(tnx_isa isa) { return (unsigned)isa < TNX_ISA_COUNT ? names[isa] : "unknown"; }

int tnx_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

size_t tnx_cpu_cache_bytes(int lv) {
  static const struct { int name; size_t fallback; } cache[] = {
      {_SC_LEVEL1_DCACHE_SIZE, 32 << 10}, {_SC_LEVEL2_CACHE_SIZE, 512 << 10}, {_SC_LEVEL3_CACHE_SIZE, 8 << 20}};
  static _Atomic size_t known[3]; /* virtual machines trap the instruction that tells */
  if (lv < 1 || lv > 3) return 0;
  size_t bytes = atomic_load_explicit(&known[lv - 1], memory_order_relaxed);
  if (bytes) return bytes;
  long n = sysconf(cache[lv - 1].name);
  bytes = n > 0 ? (size_t)n : cache[lv - 1].fallback;
  atomic_store_explicit(&known[lv - 1], bytes, memory_order_relaxed);
  return bytes;
}
