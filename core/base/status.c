/* Status names and the thread's last error text. */
#include "tnx/status.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[2048];

const char *tnx_status_name(tnx_status s) {
  static const char *const names[] = {
#define TNX_STATUS(name, text) #name,
#include "tnx/status.def"
#undef TNX_STATUS
  };
  return (unsigned)s < TNX_STATUS_COUNT ? names[s] : "UNKNOWN";
}

const char *tnx_status_text(tnx_status s) {
  static const char *const texts[] = {
#define TNX_STATUS(name, text) text,
#include "tnx/status.def"
#undef TNX_STATUS
  };
  return (unsigned)s < TNX_STATUS_COUNT ? texts[s] : "unknown status";
}

tnx_status tnx_fail(tnx_status s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(error_text, sizeof error_text, fmt, ap);
  va_end(ap);
  return s;
}

const char *tnx_error_text(void) { return error_text; }

void tnx_error_prefix(const char *fmt, ...) {
  char text[sizeof error_text];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (n < 0 || (size_t)n + 3 >= sizeof text) return;
  size_t room = sizeof text - (size_t)n - 3;
  snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)room, error_text);
  memcpy(error_text, text, sizeof text);
}
