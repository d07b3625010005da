/* The log mask and the line writer. One write() a line, so lines of different threads do not mix. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Atomic uint32_t tnx_log_mask = UINT32_MAX;

static const struct { const char *name; uint32_t bit; } categories[] = {
    {"alloc", TNX_LOG_ALLOC}, {"plan", TNX_LOG_PLAN}, {"kernel", TNX_LOG_KERNEL}, {"fallback", TNX_LOG_FALLBACK}, {"stream", TNX_LOG_STREAM}, {"all", ~TNX_LOG_UNREAD}};
enum { CATEGORIES = sizeof categories / sizeof categories[0] };

void tnx_log_set(uint32_t mask) { atomic_store(&tnx_log_mask, mask & ~TNX_LOG_UNREAD); }

bool tnx_log_read_environment(tnx_log_category category) {
  uint32_t mask = 0;
  const char *s = getenv("TNX_LOG");
  while (s && *s) {
    size_t n = strcspn(s, ", ");
    for (int i = 0; i < CATEGORIES; i++)
      if (strlen(categories[i].name) == n && memcmp(s, categories[i].name, n) == 0) mask |= categories[i].bit;
    s += n;
    s += strspn(s, ", ");
  }
  uint32_t unread = UINT32_MAX; /* a mask set meanwhile wins */
  if (!atomic_compare_exchange_strong(&tnx_log_mask, &unread, mask)) mask = unread;
  return (mask & (uint32_t)category) != 0;
}

void tnx_log_write(tnx_log_category category, const char *fmt, ...) {
  char line[1024];
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const char *name = "log";
  for (int i = 0; i < CATEGORIES; i++)
    if (categories[i].bit == (uint32_t)category) name = categories[i].name;
  int n = snprintf(line, sizeof line - 1, "[tnx %lld.%06ld %s] ", (long long)t.tv_sec, t.tv_nsec / 1000, name);
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(line + n, sizeof line - 1 - (size_t)n, fmt, ap);
  va_end(ap);
  size_t len = (size_t)n + (m < 0 ? 0 : (size_t)m);
  if (len > sizeof line - 2) len = sizeof line - 2;
  line[len++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, len);
  (void)ignored;
}
