/* Plans as text, for people: one step a line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

typedef struct text { char *data; size_t len, cap; bool failed; } text;

static void add(text *t, const char *fmt, ...) TNX_PRINTF(2, 3);
static void add(text *t, const char *fmt, ...) {
  char line[512];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  if (n < 0 || t->failed) return;
  size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
  if (t->len + len + 1 > t->cap) {
    size_t cap = (t->len + len + 1) * 2;
    char *p = tnx_heap_realloc(t->data, cap);
    if (!p) {
      t->failed = true;
      return;
    }
    t->data = p;
    t->cap = cap;
  }
  memcpy(t->data + t->len, line, len + 1);
  t->len += len;
}

static void add_dim(text *t, tnx_dim d) {
  if (tnx_dim_is_symbolic(d)) add(t, "$%u", (uint32_t)(d - TNX_DIM_SYMBOLIC));
  else add(t, "%lld", (long long)d);
}

static void add_layout(text *t, const tnx_plan *p, const tnx_layout *l) {
  static const char *const kinds[] = {"in", "host", "out", "temp", "dims"};
  if (!l->buffer) {
    add(t, " -");
    return;
  }
  const tnx_buffer *b = &p->buffers.data[l->buffer];
  add(t, " %s%u:%s[", kinds[b->kind], b->index, tnx_dtype_name((tnx_dtype)l->dtype));
  for (int i = 0; i < l->rank; i++) {
    if (i) add(t, ",");
    add_dim(t, l->sizes[i]);
    add(t, ":");
    add_dim(t, l->strides[i]);
  }
  add(t, "]");
  if (l->offset != 0) {
    add(t, "+");
    add_dim(t, l->offset);
  }
}

tnx_status tnx_plan_text(const tnx_plan *p, char **text_out) {
  static const char *const kinds[] = {"program", "copy", "matmul", "attention", "attention_backward", "gather", "scatter", "scan", "topk", "linalg", "fft"};
  static const char *const modes[] = {"map", "row", "reduce_inner", "reduce_outer"};
  text t = {0};
  add(&t, "plan %s: %u inputs, %u outputs, %u temporaries, %u steps\n", p->name, p->inputs.len, p->outputs.len, p->n_temps, p->steps.len);
  for (uint32_t i = 0; i < p->steps.len; i++) {
    const tnx_step *s = &p->steps.data[i];
    add(&t, "%4u %s", i, kinds[s->kind]);
    if (s->kind == TNX_STEP_PROGRAM) add(&t, " %s, %u instructions", modes[s->program.mode], s->program.n_instrs);
    add(&t, " (%s)", s->name);
    for (uint32_t k = 0; k < s->n_layouts; k++) add_layout(&t, p, &s->layouts[k]);
    add(&t, "\n");
  }
  if (t.failed) {
    tnx_heap_free(t.data);
    return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory");
  }
  *text_out = t.data;
  return TNX_OK;
}
