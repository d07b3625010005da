/* Reads the text form that print.c writes (its grammar is described there). The text may come from anywhere: every number is checked before it
 * is used, and the graph is verified at the end, so that a text either gives a sound graph or a PARSE error. */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

enum { MAX_LIST = 4096, MAX_NUMBER = 1 << 24 };

typedef TNX_VEC(tnx_dim) dim_list;

typedef struct parser {
  const char *p;
  uint32_t line;
  tnx_graph *g;
  TNX_VEC(tnx_value) values; /* by the number in the text; 0: not defined */
  dim_list dims;             /* likewise; TNX_DIM_SYMBOLIC (expression 0): not defined */
  dim_list list;             /* the list being read */
  TNX_VEC(double) floats;
} parser;

static tnx_status bad(const parser *ps, const char *what) {
  int n = (int)strcspn(ps->p, "\n");
  return tnx_fail(TNX_PARSE, "line %u: %s at '%.*s'", ps->line, what, n > 40 ? 40 : n, ps->p);
}
static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while reading a graph's text"); }

static void space(parser *ps) {
  while (*ps->p == ' ' || *ps->p == '\t') ps->p++;
}
static bool eat(parser *ps, char c) {
  space(ps);
  if (*ps->p != c) return false;
  ps->p++;
  return true;
}
static tnx_status expect(parser *ps, char c) {
  char text[] = "'_' expected";
  text[1] = c;
  return eat(ps, c) ? TNX_OK : bad(ps, text);
}
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static bool eat_word(parser *ps, const char *word) {
  space(ps);
  size_t n = strlen(word);
  if (strncmp(ps->p, word, n) != 0 || is_word(ps->p[n])) return false;
  ps->p += n;
  return true;
}
static tnx_status word(parser *ps, char *buf, size_t cap) {
  space(ps);
  size_t n = 0;
  while (is_word(ps->p[n])) n++;
  if (n == 0 || n >= cap) return bad(ps, "a word expected");
  memcpy(buf, ps->p, n);
  buf[n] = 0;
  ps->p += n;
  return TNX_OK;
}
static void skip_lines(parser *ps) {
  for (space(ps); *ps->p == '\n'; space(ps)) {
    ps->p++;
    ps->line++;
  }
}
/* The end of a line; empty lines behind it are skipped. */
static tnx_status line_end(parser *ps) {
  space(ps);
  if (*ps->p != '\n' && *ps->p != '\0') return bad(ps, "end of line expected");
  skip_lines(ps);
  return TNX_OK;
}

static tnx_status integer(parser *ps, int64_t *out) {
  bool negative = eat(ps, '-');
  if (!isdigit((unsigned char)*ps->p)) return bad(ps, "a number expected");
  int64_t v = 0;
  for (; isdigit((unsigned char)*ps->p); ps->p++) {
    int digit = *ps->p - '0'; /* built downwards, so that the lowest number fits */
    if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_sub_overflow(v, (int64_t)digit, &v)) return bad(ps, "the number is too large");
  }
  if (!negative && v == INT64_MIN) return bad(ps, "the number is too large");
  *out = negative ? v : -v;
  return TNX_OK;
}
static tnx_status number(parser *ps, uint32_t *out) {
  int64_t v;
  TNX_TRY(integer(ps, &v));
  if (v < 0 || v > MAX_NUMBER) return bad(ps, "the number is out of range");
  *out = (uint32_t)v;
  return TNX_OK;
}

static tnx_status dim(parser *ps, bool plain, tnx_dim *out) {
  if (!eat(ps, '$')) {
    TNX_TRY(integer(ps, out));
    if (!plain && tnx_dim_is_symbolic(*out)) return bad(ps, "the number is out of range");
    return TNX_OK;
  }
  uint32_t id = 0;
  TNX_TRY(number(ps, &id));
  if (plain || id >= ps->dims.len || ps->dims.data[id] == TNX_DIM_SYMBOLIC) return bad(ps, "an unknown size");
  *out = ps->dims.data[id];
  return TNX_OK;
}
/* A list between the brackets, into ps->list. plain: numbers only, the whole range of int64. */
static tnx_status dim_items(parser *ps, char open, char close, bool plain) {
  ps->list.len = 0;
  TNX_TRY(expect(ps, open));
  if (eat(ps, close)) return TNX_OK;
  do {
    tnx_dim d;
    TNX_TRY(dim(ps, plain, &d));
    if (ps->list.len == MAX_LIST) return bad(ps, "the list is too long");
    if (!tnx_vec_push(&ps->list, d)) return no_memory();
  } while (eat(ps, ','));
  return expect(ps, close);
}
static tnx_status copy_list(parser *ps, const tnx_dim **out) {
  *out = tnx_arena_copy(&ps->g->arena, ps->list.data, ps->list.len * sizeof *ps->list.data);
  return *out ? TNX_OK : no_memory();
}

static tnx_status real(parser *ps, double *out) {
  char buf[48];
  size_t n = 0;
  space(ps);
  while (n + 1 < sizeof buf && (isalnum((unsigned char)ps->p[n]) || (ps->p[n] && strchr("+-.:", ps->p[n])))) {
    buf[n] = ps->p[n];
    n++;
  }
  buf[n] = 0;
  char *end = buf;
  if (strncmp(buf, "nan:0x", 6) == 0) {
    uint64_t bits = strtoull(buf + 6, &end, 16);
    memcpy(out, &bits, sizeof bits);
    if (!isnan(*out)) end = buf;
  } else if (strcmp(buf, "nan") == 0) {
    uint64_t bits = UINT64_C(0x7ff8000000000000);
    memcpy(out, &bits, sizeof bits);
    end = buf + n;
  } else if (n) {
    char *point = strchr(buf, '.');
    if (point) *point = localeconv()->decimal_point[0];
    *out = strtod(buf, &end);
    if (isnan(*out)) end = buf;
  }
  if (n == 0 || *end) return bad(ps, "a number expected");
  ps->p += n;
  return TNX_OK;
}
static tnx_status float_items(parser *ps) {
  ps->floats.len = 0;
  TNX_TRY(expect(ps, '{'));
  if (eat(ps, '}')) return TNX_OK;
  do {
    double v;
    TNX_TRY(real(ps, &v));
    if (ps->floats.len == MAX_LIST) return bad(ps, "the list is too long");
    if (!tnx_vec_push(&ps->floats, v)) return no_memory();
  } while (eat(ps, ','));
  return expect(ps, '}');
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static tnx_status name(parser *ps, const char **out) {
  TNX_TRY(expect(ps, '"'));
  size_t n = strcspn(ps->p, "\"\n");
  if (ps->p[n] != '"') return bad(ps, "a name is not closed");
  char *s = tnx_arena_alloc(&ps->g->arena, n + 1);
  if (!s) return no_memory();
  *out = s;
  for (const char *end = ps->p + n; ps->p < end; ps->p++) {
    if (*ps->p != '\\') {
      *s++ = *ps->p;
      continue;
    }
    int hi = end - ps->p > 2 ? hex_digit(ps->p[1]) : -1, lo = hi >= 0 ? hex_digit(ps->p[2]) : -1;
    if (hi < 0 || lo < 0 || hi * 16 + lo == 0) return bad(ps, "a bad escape in a name");
    *s++ = (char)(hi * 16 + lo);
    ps->p += 2;
  }
  *s = 0;
  ps->p++;
  return TNX_OK;
}

/* Makes room for number `id` in a table of names, which grows upwards only. */
static tnx_status define_value(parser *ps, uint32_t id, tnx_value v) {
  if (id == 0 || id < ps->values.len) return bad(ps, "a value is defined twice or out of order");
  while (ps->values.len < id)
    if (!tnx_vec_push(&ps->values, 0)) return no_memory();
  return tnx_vec_push(&ps->values, v) ? TNX_OK : no_memory();
}

static tnx_status size_line(parser *ps) {
  static const char *const names[] = {"add", "sub", "mul", "floordiv", "mod", "min", "max"};
  uint32_t id = 0;
  TNX_TRY(number(ps, &id));
  TNX_TRY(expect(ps, '='));
  if (id == 0 || id < ps->dims.len) return bad(ps, "a size is defined twice or out of order");
  tnx_dim d = 0;
  if (eat_word(ps, "symbol")) {
    const char *s;
    int64_t min;
    TNX_TRY(name(ps, &s));
    if (!eat_word(ps, "min")) return bad(ps, "'min' expected");
    TNX_TRY(integer(ps, &min));
    TNX_TRY(tnx_graph_symbol(ps->g, s, min, &d));
  } else {
    char op[16];
    TNX_TRY(word(ps, op, sizeof op));
    int k = 0;
    while (k <= TNX_DIM_MAX && strcmp(names[k], op) != 0) k++;
    if (k > TNX_DIM_MAX) return bad(ps, "an unknown size operation");
    tnx_dim a, b;
    TNX_TRY(dim(ps, false, &a));
    TNX_TRY(expect(ps, ','));
    TNX_TRY(dim(ps, false, &b));
    TNX_TRY(tnx_graph_dim(ps->g, (tnx_dim_op)k, a, b, &d));
  }
  while (ps->dims.len < id)
    if (!tnx_vec_push(&ps->dims, TNX_DIM_SYMBOLIC)) return no_memory();
  return tnx_vec_push(&ps->dims, d) ? TNX_OK : no_memory();
}

static tnx_status value(parser *ps, tnx_value *out) {
  uint32_t id = 0;
  TNX_TRY(expect(ps, '%'));
  TNX_TRY(number(ps, &id));
  if (id >= ps->values.len || !ps->values.data[id]) return bad(ps, "an unknown value");
  *out = ps->values.data[id];
  return TNX_OK;
}

static tnx_status input_rest(parser *ps, tnx_value v, int64_t number_in_node) {
  tnx_input in = {.value = v, .alias = TNX_NO_TENSOR};
  if (number_in_node != (int64_t)ps->g->inputs.len) return bad(ps, "inputs are out of order");
  if (!eat_word(ps, "strides")) return bad(ps, "'strides' expected");
  TNX_TRY(dim_items(ps, '[', ']', false));
  if (ps->list.len != ps->g->values.data[v].rank) return bad(ps, "an input needs one stride for each dimension");
  TNX_TRY(copy_list(ps, &in.strides));
  if (eat_word(ps, "alias")) TNX_TRY(number(ps, &in.alias));
  in.overlaps = eat_word(ps, "overlaps");
  return tnx_vec_push(&ps->g->inputs, in) ? TNX_OK : no_memory();
}

static tnx_status node_line(parser *ps) {
  uint32_t ids[TNX_MAX_RESULTS], n_results = 0;
  tnx_type types[TNX_MAX_RESULTS];
  char buf[32];
  do {
    if (n_results && !eat(ps, '%')) return bad(ps, "'%' expected");
    if (n_results == TNX_MAX_RESULTS) return bad(ps, "too many results");
    TNX_TRY(number(ps, &ids[n_results]));
    TNX_TRY(expect(ps, ':'));
    TNX_TRY(word(ps, buf, sizeof buf));
    tnx_dtype t = tnx_dtype_parse(buf);
    if (t == TNX_DTYPE_NONE) return bad(ps, "an unknown dtype");
    TNX_TRY(dim_items(ps, '[', ']', false));
    if (ps->list.len > TNX_MAX_RANK) return bad(ps, "too many dimensions");
    types[n_results] = (tnx_type){(uint8_t)t, (uint8_t)ps->list.len, NULL};
    TNX_TRY(copy_list(ps, &types[n_results].sizes));
    n_results++;
  } while (eat(ps, ','));
  TNX_TRY(expect(ps, '='));
  TNX_TRY(word(ps, buf, sizeof buf));
  tnx_op op = TNX_OP_NONE;
  for (int k = 1; k < TNX_OP_COUNT && op == TNX_OP_NONE; k++)
    if (strcmp(tnx_op_get_info((tnx_op)k)->name, buf) == 0) op = (tnx_op)k;
  if (op == TNX_OP_NONE) return bad(ps, "an unknown operator");
  if (tnx_op_get_info(op)->results != n_results) return bad(ps, "the operator has another number of results");
  tnx_value operands[256];
  uint32_t n_operands = 0;
  space(ps);
  if (*ps->p == '%') do {
      if (n_operands == sizeof operands / sizeof *operands) return bad(ps, "too many operands");
      TNX_TRY(value(ps, &operands[n_operands++]));
    } while (eat(ps, ','));
  const tnx_dim *ints = NULL;
  uint32_t n_ints = 0;
  ps->floats.len = 0;
  space(ps);
  if (*ps->p == '{') {
    TNX_TRY(dim_items(ps, '{', '}', op == TNX_OP_CONST));
    n_ints = ps->list.len;
    TNX_TRY(copy_list(ps, &ints));
    space(ps);
    if (*ps->p == '{') TNX_TRY(float_items(ps));
  }
  tnx_value first;
  TNX_TRY(tnx_graph_add(ps->g, op, operands, n_operands, ints, n_ints, ps->floats.data, ps->floats.len, types, n_results, &first));
  for (uint32_t i = 0; i < n_results; i++) TNX_TRY(define_value(ps, ids[i], first + i));
  if (op == TNX_OP_INPUT) TNX_TRY(input_rest(ps, first, n_ints == 1 ? ints[0] : -1));
  if (eat_word(ps, "host")) ps->g->values.data[first].flags |= TNX_VALUE_HOST;
  if (eat_word(ps, "wrapped")) ps->g->values.data[first].flags |= TNX_VALUE_WRAPPED;
  return TNX_OK;
}

static tnx_status output_line(parser *ps) {
  tnx_output o = {.into = TNX_NO_TENSOR};
  if (!eat_word(ps, "none")) TNX_TRY(value(ps, &o.value));
  if (eat_word(ps, "into")) TNX_TRY(number(ps, &o.into));
  if (eat_word(ps, "strides")) {
    TNX_TRY(dim_items(ps, '[', ']', false));
    if (ps->list.len != ps->g->values.data[o.value].rank) return bad(ps, "an output needs one stride for each dimension");
    TNX_TRY(copy_list(ps, &o.strides));
  }
  return tnx_vec_push(&ps->g->outputs, o) ? TNX_OK : no_memory();
}

static tnx_status read_graph(parser *ps) {
  skip_lines(ps);
  if (!eat_word(ps, "graph")) return bad(ps, "'graph' expected");
  TNX_TRY(name(ps, &ps->g->name));
  TNX_TRY(line_end(ps));
  while (*ps->p) {
    if (eat(ps, '$')) TNX_TRY(size_line(ps));
    else if (eat(ps, '%')) TNX_TRY(node_line(ps));
    else if (eat_word(ps, "output")) TNX_TRY(output_line(ps));
    else return bad(ps, "a definition expected");
    TNX_TRY(line_end(ps));
  }
  return tnx_graph_verify(ps->g);
}

tnx_status tnx_graph_parse(tnx_graph *g, const char *text) {
  parser ps = {.p = text, .line = 1, .g = g};
  TNX_TRY(tnx_graph_init(g, ""));
  tnx_status status = read_graph(&ps);
  tnx_vec_fini(&ps.values);
  tnx_vec_fini(&ps.dims);
  tnx_vec_fini(&ps.list);
  tnx_vec_fini(&ps.floats);
  if (status == TNX_OK) return TNX_OK;
  tnx_graph_fini(g);
  /* Whatever rule the text broke, to the caller it is a text that could not be read. */
  if (status != TNX_OUT_OF_MEMORY && status != TNX_PARSE) {
    tnx_error_prefix("line %u", ps.line);
    status = TNX_PARSE;
  }
  return status;
}
