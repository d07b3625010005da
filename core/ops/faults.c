/* The words of faults. */
#include "ops/faults.h"

#include <stdio.h>
#include <string.h>


static const struct { tnx_status status; const char *words; } faults[TNX_FAULT_COUNT] = {
    [TNX_FAULT_NONE] = {TNX_INTERNAL, "a fault without a name"},
#define TNX_FAULT(name, status, words) [TNX_FAULT_##name] = {TNX_##status, words},
#include "ops/faults.def"
#undef TNX_FAULT
};

tnx_status tnx_fault_raise(tnx_fault fault, int64_t value, int dim, int64_t size) {
  if ((unsigned)fault >= TNX_FAULT_COUNT) fault = TNX_FAULT_NONE;
  char text[320];
  size_t n = 0;
  for (const char *p = faults[fault].words; *p && n + 32 < sizeof text;) {
    int64_t number = strncmp(p, "{value}", 7) == 0 ? value : strncmp(p, "{dim}", 5) == 0 ? dim : size;
    if (*p != '{') text[n++] = *p++;
    else {
      n += (size_t)snprintf(text + n, sizeof text - n, "%lld", (long long)number);
      p = strchr(p, '}') + 1;
    }
  }
  text[n] = 0;
  return tnx_fail(faults[fault].status, "%s", text);
}
