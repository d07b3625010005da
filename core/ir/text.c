/* A growing text and the exact text form of doubles. */
#include "ir/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(tnx_text *t, size_t more) {
  if (t->failed) return false;
  if (more < t->cap - t->len) return true;
  size_t cap = t->cap ? t->cap * 2 : 1024;
  while (cap - t->len <= more) cap *= 2;
  char *p = tnx_heap_realloc(t->data, cap);
  if (!p) {
    t->failed = true;
    return false;
  }
  t->data = p;
  t->cap = cap;
  return true;
}

void tnx_text_add(tnx_text *t, const char *fmt, ...) {
  char small[256];
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if (n >= 0 && reserve(t, (size_t)n + 1)) {
    if ((size_t)n < sizeof small) memcpy(t->data + t->len, small, (size_t)n + 1);
    else vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
    t->len += (size_t)n;
  }
  va_end(again);
}

void tnx_text_add_double(tnx_text *t, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  if (isnan(v)) {
    if (bits == UINT64_C(0x7ff8000000000000)) tnx_text_add(t, "nan");
    else tnx_text_add(t, "nan:0x%016llx", (unsigned long long)bits);
    return;
  }
  if (isinf(v)) {
    tnx_text_add(t, v < 0 ? "-inf" : "inf");
    return;
  }
  char buf[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(buf, sizeof buf, "%.*g", digits, v);
    if (strtod(buf, NULL) == v) break;
  }
  for (char *c = buf; *c; c++) /* whatever the locale's decimal point is */
    if (!strchr("+-0123456789e", *c)) *c = '.';
  tnx_text_add(t, "%s", buf);
}

tnx_status tnx_text_take(tnx_text *t, char **out) {
  if (!t->failed && !t->data) tnx_text_add(t, "%s", "");
  if (t->failed) {
    tnx_text_fini(t);
    return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while writing a graph's text");
  }
  *out = t->data;
  *t = (tnx_text){0};
  return TNX_OK;
}

void tnx_text_fini(tnx_text *t) {
  tnx_heap_free(t->data);
  *t = (tnx_text){0};
}
