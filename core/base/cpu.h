/* Instruction sets: what this CPU and its operating system offer, lowered by TNX_MAX_ISA=scalar|avx2|avx512|avx512_bf16|amx.
 * Each level holds the ones before it. Any thread; detected once. */
#ifndef TNX_BASE_CPU_H
#define TNX_BASE_CPU_H
#include <stddef.h>

typedef enum tnx_isa {
  TNX_ISA_SCALAR,      /* portable C */
  TNX_ISA_AVX2,        /* AVX2 + FMA + F16C */
  TNX_ISA_AVX512,      /* AVX-512 F, BW, DQ, VL */
  TNX_ISA_AVX512_BF16, /* + VDPBF16PS, VNNI */
  TNX_ISA_AMX,         /* + AMX tile, bf16, int8, with the kernel's permission */
  TNX_ISA_COUNT
} tnx_isa;

tnx_isa tnx_cpu_isa(void);
const char *tnx_isa_name(tnx_isa isa);
/* Cores this process may run on (its affinity mask), at least 1. */
int tnx_cpu_count(void);
/* Data cache sizes in bytes of one core (l1, l2) and of the package (l3); documented defaults where unknown. */
size_t tnx_cpu_cache_bytes(int level);
#endif
