/* A growing text, for the writers of the program form. Failure to allocate is sticky and reported once, by tnx_text_take. */
#ifndef TNX_IR_TEXT_H
#define TNX_IR_TEXT_H
#include "ir/graph.h"

typedef struct tnx_text {
  char *data; /* NUL-terminated once something was added */
  size_t len, cap;
  bool failed;
} tnx_text;

void tnx_text_add(tnx_text *t, const char *fmt, ...) TNX_PRINTF(2, 3);
/* The shortest decimal form that reads back as the same double: "0.1", "-0", "inf", "nan"; a NaN with other bits than the default one as "nan:0x...". */
void tnx_text_add_double(tnx_text *t, double v);
/* One node as a line of the graph's text form, without the end of line. */
void tnx_text_add_node(tnx_text *t, const tnx_graph *g, const tnx_node *n);
/* Hands the heap text to the caller (tnx_text_free) and empties t; frees it where something failed. */
tnx_status tnx_text_take(tnx_text *t, char **out);
void tnx_text_fini(tnx_text *t);
#endif
