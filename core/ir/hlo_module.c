/* StableHLO reader: from text to operations (hlo_module.h). The text may come from anywhere: nesting, numbers and sizes are bounded, and every name is checked.
 *
 *   module @name { func.func public @main(%1: tensor<2xf32> {..}) -> (tensor<2xf32>) { operations func.return %2 : tensor<2xf32> } .. }
 *   %2, %3 = "dialect.name"(%1) <{attributes}> ({ ^bb0(%4: type): operations "stablehlo.return"(%4) : (type) -> () }, ..) : (types) -> types */
#include "ir/hlo_module.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

enum { MAX_DEPTH = 40, MAX_ID = 1 << 22, MAX_ITEMS = 1 << 16 };

typedef struct reader {
  const char *p, *end, *text;
  tnx_hlo_module *m;
  TNX_VEC(const tnx_type *) types; /* by value; NULL: not defined */
  TNX_VEC(uint32_t) open;          /* values whose regions are open: forgotten when they close */
  int depth;
  const char *placed; /* the last place that was counted to, and its line and column */
  tnx_hlo_place at;
} reader;

/* ---- messages ---- */

static tnx_hlo_place place_of(reader *r, const char *at) {
  if (at < r->placed) {
    r->placed = r->text;
    r->at = (tnx_hlo_place){1, 1};
  }
  for (; r->placed < at; r->placed++) {
    if (*r->placed == '\n') r->at.line++, r->at.column = 1;
    else r->at.column++;
  }
  return r->at;
}
static tnx_status bad_at(reader *r, const char *at, const char *what) {
  tnx_hlo_place p = place_of(r, at);
  int n = 0;
  while (at + n < r->end && at[n] != '\n' && at[n] && n < 40) n++;
  return tnx_fail(TNX_PARSE, "%s:%u:%u: %s%s%.*s%s", r->m->file, p.line, p.column, what, n ? " at '" : "", n, at, n ? "'" : " at the end of the text");
}
static tnx_status bad(reader *r, const char *what) { return bad_at(r, r->p, what); }
static tnx_status no_memory(void) { return tnx_fail(TNX_OUT_OF_MEMORY, "out of host memory while reading StableHLO"); }

/* ---- words ---- */

static void space(reader *r) {
  for (; r->p < r->end; r->p++) {
    if (*r->p == '/' && r->p + 1 < r->end && r->p[1] == '/')
      while (r->p + 1 < r->end && r->p[1] != '\n') r->p++;
    else if (!isspace((unsigned char)*r->p)) return;
  }
}
static char next_char(reader *r) {
  space(r);
  return r->p < r->end ? *r->p : 0;
}
static bool starts(reader *r, const char *s) {
  space(r);
  size_t n = strlen(s);
  return (size_t)(r->end - r->p) >= n && memcmp(r->p, s, n) == 0;
}
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$'; }
static bool eat(reader *r, const char *s) {
  if (!starts(r, s)) return false;
  size_t n = strlen(s);
  if (is_word(s[n - 1]) && r->p + n < r->end && is_word(r->p[n])) return false;
  r->p += n;
  return true;
}
static tnx_status expect(reader *r, const char *s) {
  if (eat(r, s)) return TNX_OK;
  char what[64] = "'";
  strncat(what, s, 32);
  return bad(r, strcat(what, "' expected"));
}
static tnx_status copy_text(reader *r, const char *s, size_t n, const char **out) {
  char *t = tnx_arena_alloc(&r->m->arena, n + 1);
  if (!t) return no_memory();
  memcpy(t, s, n);
  *out = t;
  return TNX_OK;
}
static tnx_status word(reader *r, const char **out) {
  space(r);
  const char *from = r->p;
  while (r->p < r->end && is_word(*r->p)) r->p++;
  if (r->p == from) return bad(r, "a name expected");
  return copy_text(r, from, (size_t)(r->p - from), out);
}
static tnx_status quoted(reader *r, const char **out) {
  TNX_TRY(expect(r, "\""));
  const char *from = r->p;
  while (r->p < r->end && *r->p != '"' && *r->p != '\n' && *r->p != '\\') r->p++;
  if (r->p == r->end || *r->p != '"') return bad_at(r, from, "a string without escapes expected");
  TNX_TRY(copy_text(r, from, (size_t)(r->p - from), out));
  r->p++;
  return TNX_OK;
}
/* A list in the arena grows by doubling; the old copies die with the module. */
static tnx_status grow(reader *r, void **list, uint32_t n, size_t size) {
  if (n >= MAX_ITEMS && size > sizeof(void *)) return bad(r, "the list is too long");
  if (n & (n - 1) && n) return TNX_OK;
  if (n && n < 4) return TNX_OK;
  void *more = tnx_arena_alloc(&r->m->arena, (n ? (size_t)n * 2 : 4) * size);
  if (!more) return no_memory();
  if (n) memcpy(more, *list, n * size);
  *list = more;
  return TNX_OK;
}

static tnx_status integer(reader *r, int64_t *out) {
  bool negative = next_char(r) == '-';
  const char *from = r->p;
  if (negative) r->p++;
  if (r->p == r->end || !isdigit((unsigned char)*r->p)) return bad_at(r, from, "a number expected");
  uint64_t v = 0; /* unsigned 64-bit constants are kept by their bits */
  for (; r->p < r->end && isdigit((unsigned char)*r->p); r->p++)
    if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)(*r->p - '0'), &v)) return bad_at(r, from, "the number is too large");
  if (negative && v > (uint64_t)INT64_MAX + 1) return bad_at(r, from, "the number is too large");
  *out = (int64_t)(negative ? 0 - v : v);
  return TNX_OK;
}
static tnx_status small(reader *r, int64_t limit, int64_t *out) {
  const char *from = (space(r), r->p);
  TNX_TRY(integer(r, out));
  return *out >= 0 && *out <= limit ? TNX_OK : bad_at(r, from, "the number is out of range");
}

/* ---- types ---- */

static tnx_status element_type(reader *r, uint8_t *out) {
  space(r);
  for (int t = 0; t < TNX_DTYPE_COUNT; t++) {
    const char *s = tnx_dtype_hlo((tnx_dtype)t);
    size_t n = strlen(s);
    if ((size_t)(r->end - r->p) > n && memcmp(r->p, s, n) == 0 && !is_word(r->p[n])) {
      r->p += n;
      *out = (uint8_t)t;
      return TNX_OK;
    }
  }
  return bad(r, "an element type that is supported expected");
}

static tnx_status tensor_type(reader *r, tnx_type *out) {
  int64_t sizes[TNX_MAX_RANK + 2], numel = 1;
  int rank = 0;
  const char *from = (space(r), r->p);
  if (!eat(r, "tensor<")) return bad(r, "a tensor type expected");
  while (r->p < r->end && (isdigit((unsigned char)*r->p) || *r->p == '?')) {
    if (*r->p == '?') return bad(r, "static sizes expected");
    if (rank == TNX_MAX_RANK) return bad_at(r, from, "at most 12 dimensions expected");
    TNX_TRY(integer(r, &sizes[rank]));
    if (sizes[rank] < 0 || (sizes[rank] && __builtin_mul_overflow(numel, sizes[rank], &numel)) || numel > INT64_MAX / 16) return bad_at(r, from, "the tensor is too large");
    rank++;
    if (r->p == r->end || *r->p != 'x') return bad(r, "'x' expected");
    r->p++;
  }
  TNX_TRY(element_type(r, &out->dtype));
  if (!eat(r, ">")) return bad(r, "'>' expected");
  out->rank = (uint8_t)rank;
  out->sizes = tnx_arena_copy(&r->m->arena, sizes, (size_t)rank * sizeof *sizes);
  return out->sizes ? TNX_OK : no_memory();
}

/* (T, T) or T, into an array */
static tnx_status type_list(reader *r, tnx_type **out, uint32_t *n) {
  void *list = NULL;
  *n = 0;
  bool many = eat(r, "(");
  if (many && eat(r, ")")) return TNX_OK;
  do {
    TNX_TRY(grow(r, &list, *n, sizeof(tnx_type)));
    TNX_TRY(tensor_type(r, (tnx_type *)list + *n));
    ++*n;
  } while (many && eat(r, ","));
  *out = list;
  return many ? expect(r, ")") : TNX_OK;
}

/* ---- attributes ---- */

static tnx_status attribute(reader *r, tnx_hlo_attr *a);

/* name = value, .. up to the closing text */
static tnx_status dictionary(reader *r, const char *close, const tnx_hlo_attr **out, uint32_t *n) {
  void *list = NULL;
  *n = 0;
  if (eat(r, close)) return TNX_OK;
  do {
    TNX_TRY(grow(r, &list, *n, sizeof(tnx_hlo_attr)));
    tnx_hlo_attr *a = (tnx_hlo_attr *)list + *n;
    *a = (tnx_hlo_attr){.name = ""};
    if (next_char(r) == '"') TNX_TRY(quoted(r, &a->name));
    else TNX_TRY(word(r, &a->name));
    const char *name = a->name;
    if (eat(r, "=")) TNX_TRY(attribute(r, a));
    a->name = name;
    ++*n;
  } while (eat(r, ","));
  *out = list;
  return expect(r, close);
}

static double float_of_bits(uint8_t t, uint64_t bits) {
  double d;
  switch (t) {
    case TNX_F16: return tnx_f16_to_f32((uint16_t)bits);
    case TNX_BF16: return tnx_bf16_to_f32((uint16_t)bits);
    case TNX_F8E4M3: return tnx_f8e4m3_to_f32((uint8_t)bits);
    case TNX_F8E5M2: return tnx_f8e5m2_to_f32((uint8_t)bits);
    case TNX_F32: return tnx_f32_from_bits((uint32_t)bits);
    default: memcpy(&d, &bits, sizeof d); return d;
  }
}

typedef struct literal { bool hex, real; int64_t i; double f; } literal;

static tnx_status number(reader *r, literal *out) {
  *out = (literal){0};
  if (starts(r, "0x")) {
    const char *from = r->p;
    uint64_t v = 0;
    int digits = 0;
    for (r->p += 2; r->p < r->end && isxdigit((unsigned char)*r->p); r->p++, digits++) {
      char c = (char)tolower((unsigned char)*r->p);
      v = v << 4 | (uint64_t)(isdigit((unsigned char)c) ? c - '0' : c - 'a' + 10);
    }
    if (digits == 0 || digits > 16) return bad_at(r, from, "at most 16 hexadecimal digits expected");
    out->hex = true;
    out->i = (int64_t)v;
    return TNX_OK;
  }
  space(r);
  const char *c = r->p + (r->p < r->end && *r->p == '-');
  while (c < r->end && isdigit((unsigned char)*c)) c++;
  if (c == r->end || (*c != '.' && *c != 'e' && *c != 'E')) return integer(r, &out->i);
  char buf[64], *stop;
  size_t n = 0;
  const char *from = r->p;
  for (; r->p < r->end && n + 1 < sizeof buf && (isdigit((unsigned char)*r->p) || strchr("+-.eE", *r->p)); r->p++) buf[n++] = *r->p;
  buf[n] = 0;
  if (memchr(buf, 0, n)) return bad_at(r, from, "a number expected");
  char *point = strchr(buf, '.');
  if (point) *point = localeconv()->decimal_point[0];
  out->f = strtod(buf, &stop);
  if (n == 0 || *stop) return bad_at(r, from, "a number expected");
  out->real = true;
  return TNX_OK;
}

/* The literal as a value of the dtype, into a's i or f. */
static tnx_status typed(reader *r, const char *from, literal l, uint8_t dtype, tnx_hlo_attr *a) {
  if (tnx_dtype_is_complex((tnx_dtype)dtype)) return bad_at(r, from, "a complex constant is made of its parts");
  if (tnx_dtype_is_integral((tnx_dtype)dtype)) {
    if (l.real) return bad_at(r, from, "an integer expected");
    size_t bits = 8 * tnx_dtype_size((tnx_dtype)dtype);
    bool is_unsigned = tnx_dtype_get_kind((tnx_dtype)dtype) == TNX_KIND_UINT;
    if (dtype == TNX_BOOL ? l.i < 0 || l.i > 1
                          : bits < 64 && (is_unsigned ? l.i < 0 || l.i >> bits : l.i < -(INT64_C(1) << (bits - 1)) || l.i >= INT64_C(1) << (bits - 1)))
      return bad_at(r, from, "a number that the element type holds expected");
    a->i = l.i;
  } else {
    a->f = l.hex ? float_of_bits(dtype, (uint64_t)l.i) : l.real ? l.f : (double)l.i;
  }
  return TNX_OK;
}

static tnx_status dense(reader *r, tnx_hlo_attr *a) {
  literal l = {0};
  space(r);
  const char *from = r->p;
  if (eat(r, "true")) l.i = 1;
  else if (!eat(r, "false")) TNX_TRY(number(r, &l));
  TNX_TRY(expect(r, ">"));
  TNX_TRY(expect(r, ":"));
  TNX_TRY(tensor_type(r, &a->type));
  a->kind = TNX_HLO_DENSE;
  return typed(r, from, l, a->type.dtype, a);
}

/* Numbers up to the closing text. */
static tnx_status int_items(reader *r, const char *close, tnx_hlo_attr *a) {
  void *list = NULL;
  a->kind = TNX_HLO_INTS;
  if (eat(r, close)) return TNX_OK;
  do {
    TNX_TRY(grow(r, &list, a->n, sizeof(int64_t)));
    TNX_TRY(integer(r, (int64_t *)list + a->n));
    a->n++;
  } while (eat(r, ","));
  a->ints = list;
  return expect(r, close);
}

static tnx_status list_items(reader *r, tnx_hlo_attr *a) {
  void *list = NULL;
  char c = next_char(r);
  if (c == ']' || c == '-' || isdigit((unsigned char)c)) return int_items(r, "]", a);
  a->kind = TNX_HLO_LIST;
  do {
    TNX_TRY(grow(r, &list, a->n, sizeof(tnx_hlo_attr)));
    tnx_hlo_attr *item = (tnx_hlo_attr *)list + a->n;
    TNX_TRY(attribute(r, item));
    item->name = "";
    a->n++;
  } while (eat(r, ","));
  a->items = list;
  return expect(r, "]");
}

static tnx_status attribute_value(reader *r, tnx_hlo_attr *a) {
  char c = next_char(r);
  if (c == '"') {
    a->kind = TNX_HLO_STRING;
    return quoted(r, &a->s);
  }
  if (eat(r, "@")) {
    a->kind = TNX_HLO_STRING;
    return word(r, &a->s);
  }
  if (eat(r, "[")) return list_items(r, a);
  if (eat(r, "{")) {
    a->kind = TNX_HLO_DICT;
    return dictionary(r, "}", &a->items, &a->n);
  }
  if (eat(r, "dense<")) return dense(r, a);
  if (eat(r, "array<")) {
    const char *t;
    TNX_TRY(word(r, &t));
    if (strcmp(t, "i64") != 0) return bad(r, "array<i64: ..> expected");
    if (eat(r, ">")) {
      a->kind = TNX_HLO_INTS;
      return TNX_OK;
    }
    TNX_TRY(expect(r, ":"));
    return int_items(r, ">", a);
  }
  if (eat(r, "#")) {
    const char *name;
    TNX_TRY(word(r, &name));
    TNX_TRY(expect(r, "<"));
    if (strchr(name, '.')) {
      a->kind = TNX_HLO_DICT;
      return dictionary(r, ">", &a->items, &a->n);
    }
    a->kind = TNX_HLO_STRING; /* #stablehlo<comparison_direction EQ>: the last word */
    TNX_TRY(word(r, &a->s));
    while (next_char(r) != '>') TNX_TRY(word(r, &a->s));
    return expect(r, ">");
  }
  if (eat(r, "true")) return a->kind = TNX_HLO_INT, a->i = 1, TNX_OK;
  if (eat(r, "false")) return a->kind = TNX_HLO_INT, TNX_OK;
  if (eat(r, "unit")) return TNX_OK;
  if (c != '-' && !isdigit((unsigned char)c)) return bad(r, "an attribute expected");
  literal l;
  const char *from = r->p;
  TNX_TRY(number(r, &l));
  uint8_t t = l.real ? TNX_F64 : TNX_I64;
  if (eat(r, ":")) TNX_TRY(element_type(r, &t));
  a->kind = tnx_dtype_is_integral((tnx_dtype)t) ? TNX_HLO_INT : TNX_HLO_FLOAT;
  return typed(r, from, l, t, a);
}

static tnx_status attribute(reader *r, tnx_hlo_attr *a) {
  const char *name = a->name;
  *a = (tnx_hlo_attr){.name = name};
  if (++r->depth > MAX_DEPTH) return bad(r, "attributes are nested too deeply");
  tnx_status status = attribute_value(r, a);
  r->depth--;
  return status;
}

/* ---- values ---- */

static tnx_status value_id(reader *r, uint32_t *out) {
  int64_t id = 0;
  TNX_TRY(expect(r, "%"));
  TNX_TRY(small(r, MAX_ID, &id));
  *out = (uint32_t)id;
  return TNX_OK;
}

static tnx_status define(reader *r, const char *at, uint32_t id, const tnx_type *type) {
  while (r->types.len <= id)
    if (!tnx_vec_push(&r->types, NULL)) return no_memory();
  if (r->types.data[id]) return bad_at(r, at, "the value is defined twice");
  tnx_type *t = tnx_arena_copy(&r->m->arena, type, sizeof *type);
  if (!t || !tnx_vec_push(&r->open, id)) return no_memory();
  r->types.data[id] = t;
  return TNX_OK;
}

static tnx_status use(reader *r, tnx_hlo_value *out) {
  space(r);
  const char *from = r->p;
  TNX_TRY(value_id(r, &out->id));
  if (out->id >= r->types.len || !r->types.data[out->id]) return bad_at(r, from, "a value that is defined before expected");
  out->type = *r->types.data[out->id];
  return TNX_OK;
}

static bool same_type(const tnx_type *a, const tnx_type *b) {
  return a->dtype == b->dtype && a->rank == b->rank && (a->rank == 0 || memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) == 0);
}

/* Values leave the scope of the region or function that ends. */
static void close_scope(reader *r, uint32_t open) {
  while (r->open.len > open) r->types.data[r->open.data[--r->open.len]] = NULL;
}

/* ---- operations ---- */

static tnx_status block(reader *r, tnx_hlo_block *b, bool function);

static tnx_status operands(reader *r, const char *close, tnx_hlo_op *op) {
  void *list = NULL;
  if (close && eat(r, close)) return TNX_OK;
  do {
    TNX_TRY(grow(r, &list, op->n_in, sizeof(tnx_hlo_value)));
    TNX_TRY(use(r, (tnx_hlo_value *)list + op->n_in));
    op->n_in++;
  } while (eat(r, ","));
  op->in = list;
  return close ? expect(r, close) : TNX_OK;
}

static tnx_status check_operands(reader *r, const char *at, const tnx_hlo_op *op, const tnx_type *types, uint32_t n) {
  if (n != op->n_in) return bad_at(r, at, "one type for each operand expected");
  for (uint32_t i = 0; i < n; i++)
    if (!same_type(&types[i], &op->in[i].type)) {
      char what[64] = "operand ";
      size_t k = strlen(what);
      what[k++] = (char)('0' + (i < 10 ? i : 9));
      strcpy(what + k, i < 10 ? " has another type" : " or a later one has another type");
      return bad_at(r, at, what);
    }
  return TNX_OK;
}

/* "%x: type" of a block or a function, added to the list. */
static tnx_status argument(reader *r, void **list, uint32_t *n) {
  TNX_TRY(grow(r, list, *n, sizeof(tnx_hlo_value)));
  tnx_hlo_value *v = (tnx_hlo_value *)*list + (*n)++;
  space(r);
  const char *from = r->p;
  TNX_TRY(value_id(r, &v->id));
  TNX_TRY(expect(r, ":"));
  TNX_TRY(tensor_type(r, &v->type));
  return define(r, from, v->id, &v->type);
}

static tnx_status regions(reader *r, tnx_hlo_op *op) {
  void *list = NULL;
  do {
    TNX_TRY(grow(r, &list, op->n_regions, sizeof(tnx_hlo_block)));
    tnx_hlo_block *b = (tnx_hlo_block *)list + op->n_regions++;
    *b = (tnx_hlo_block){0};
    if (++r->depth > MAX_DEPTH) return bad(r, "regions are nested too deeply");
    uint32_t open = r->open.len;
    TNX_TRY(expect(r, "{"));
    if (eat(r, "^")) {
      const char *label;
      void *args = NULL;
      TNX_TRY(word(r, &label));
      TNX_TRY(expect(r, "("));
      if (!eat(r, ")")) {
        do TNX_TRY(argument(r, &args, &b->n_args));
        while (eat(r, ","));
        TNX_TRY(expect(r, ")"));
      }
      b->args = args;
      TNX_TRY(expect(r, ":"));
    }
    TNX_TRY(block(r, b, false));
    close_scope(r, open);
    r->depth--;
  } while (eat(r, ","));
  op->regions = list;
  return expect(r, ")");
}

/* One operation; *returns: it was a block's return, whose operands are op->in. */
static tnx_status operation(reader *r, tnx_hlo_op *op, bool *returns) {
  void *ids = NULL;
  uint32_t n_ids = 0;
  space(r);
  const char *from = r->p;
  op->place = place_of(r, from);
  if (next_char(r) == '%') {
    do {
      TNX_TRY(grow(r, &ids, n_ids, sizeof(uint32_t)));
      TNX_TRY(value_id(r, (uint32_t *)ids + n_ids));
      n_ids++;
    } while (eat(r, ","));
    TNX_TRY(expect(r, "="));
  }
  if (n_ids == 0 && (eat(r, "func.return") || eat(r, "return"))) { /* its pretty form */
    op->name = "func.return";
    *returns = true;
    if (next_char(r) != '%') return TNX_OK;
    TNX_TRY(operands(r, NULL, op));
    TNX_TRY(expect(r, ":"));
    for (uint32_t i = 0; i < op->n_in; i++) {
      tnx_type t;
      if (i) TNX_TRY(expect(r, ","));
      TNX_TRY(tensor_type(r, &t));
      if (!same_type(&t, &op->in[i].type)) return bad(r, "a returned value has another type");
    }
    return TNX_OK;
  }
  if (next_char(r) != '"') return bad(r, "an operation in generic form expected");
  TNX_TRY(quoted(r, &op->name));
  *returns = strcmp(op->name, "stablehlo.return") == 0 || strcmp(op->name, "func.return") == 0;
  TNX_TRY(expect(r, "("));
  TNX_TRY(operands(r, ")", op));
  if (eat(r, "<{")) TNX_TRY(dictionary(r, "}>", &op->attrs, &op->n_attrs));
  if (eat(r, "(")) TNX_TRY(regions(r, op));
  if (eat(r, "{")) {
    const tnx_hlo_attr *ignored; /* discardable attributes say nothing about the results */
    uint32_t n;
    TNX_TRY(dictionary(r, "}", &ignored, &n));
  }
  TNX_TRY(expect(r, ":"));
  space(r);
  const char *types_at = r->p;
  tnx_type *types = NULL;
  uint32_t n = 0;
  if (next_char(r) != '(') return bad(r, "'(' expected");
  TNX_TRY(type_list(r, &types, &n));
  TNX_TRY(check_operands(r, types_at, op, types, n));
  TNX_TRY(expect(r, "->"));
  TNX_TRY(type_list(r, &types, &n));
  if (n != n_ids) return bad_at(r, types_at, "one type for each result expected");
  tnx_hlo_value *out = tnx_arena_alloc(&r->m->arena, sizeof *out * n);
  if (!out) return no_memory();
  for (uint32_t i = 0; i < n; i++) {
    out[i] = (tnx_hlo_value){((uint32_t *)ids)[i], types[i]};
    TNX_TRY(define(r, from, out[i].id, &types[i]));
  }
  op->out = out;
  op->n_out = n;
  return TNX_OK;
}

static tnx_status block(reader *r, tnx_hlo_block *b, bool function) {
  void *list = NULL;
  while (true) {
    if (next_char(r) == '}') return bad(r, "a return expected");
    tnx_hlo_op *op = TNX_ARENA_NEW(&r->m->arena, tnx_hlo_op);
    if (!op) return no_memory();
    bool returns = false;
    TNX_TRY(operation(r, op, &returns));
    if (returns) {
      b->end = op->place;
      uint32_t *ids = tnx_arena_alloc(&r->m->arena, sizeof *ids * op->n_in);
      if (!ids) return no_memory();
      for (uint32_t i = 0; i < op->n_in; i++) ids[i] = op->in[i].id;
      b->results = ids;
      b->n_results = op->n_in;
      return expect(r, "}");
    }
    TNX_TRY(grow(r, &list, b->n_ops, sizeof(tnx_hlo_op *)));
    ((tnx_hlo_op **)list)[b->n_ops++] = op;
    b->ops = list;
  }
}

/* ---- functions ---- */

static tnx_status function(reader *r, tnx_hlo_function *f) {
  tnx_hlo_block *b = TNX_ARENA_NEW(&r->m->arena, tnx_hlo_block);
  void *args = NULL, *aliases = NULL;
  if (!b) return no_memory();
  f->place = place_of(r, r->p);
  if (!eat(r, "public")) eat(r, "private");
  TNX_TRY(expect(r, "@"));
  TNX_TRY(word(r, &f->name));
  if (tnx_hlo_function_find(r->m, f->name) != NULL) return bad(r, "the function is defined twice");
  TNX_TRY(expect(r, "("));
  if (!eat(r, ")")) {
    do {
      TNX_TRY(grow(r, &aliases, b->n_args, sizeof(int64_t)));
      int64_t *alias = (int64_t *)aliases + b->n_args;
      *alias = -1;
      TNX_TRY(argument(r, &args, &b->n_args));
      if (eat(r, "{")) {
        const tnx_hlo_attr *attrs = NULL, *a;
        uint32_t n;
        TNX_TRY(dictionary(r, "}", &attrs, &n));
        a = tnx_hlo_attr_find(attrs, n, "tf.aliasing_output");
        if (a) *alias = a->i;
      }
    } while (eat(r, ","));
    TNX_TRY(expect(r, ")"));
  }
  b->args = args;
  f->aliases = aliases;
  tnx_type *results = NULL;
  if (eat(r, "->")) TNX_TRY(type_list(r, &results, &f->n_results));
  f->results = results;
  TNX_TRY(expect(r, "{"));
  TNX_TRY(block(r, b, true));
  f->body = b;
  bool fits = b->n_results == f->n_results;
  for (uint32_t i = 0; fits && i < b->n_results; i++) fits = same_type(r->types.data[b->results[i]], &results[i]);
  if (!fits) return tnx_fail(TNX_PARSE, "%s:%u:%u: the function's result types expected", r->m->file, b->end.line, b->end.column);
  for (uint32_t i = 0; i < b->n_args; i++) {
    int64_t o = f->aliases[i];
    if (o != -1 && (o < 0 || o >= b->n_results || !same_type(&b->args[i].type, &results[o])))
      return tnx_fail(TNX_PARSE, "%s:%u:%u: argument %u is aliased with a result of its type expected", r->m->file, f->place.line, f->place.column, i);
  }
  return TNX_OK;
}

static tnx_status module(reader *r) {
  void *list = NULL;
  tnx_hlo_module *m = r->m;
  TNX_TRY(expect(r, "module"));
  m->name = "main";
  if (eat(r, "@")) TNX_TRY(word(r, &m->name));
  if (eat(r, "attributes")) {
    const tnx_hlo_attr *ignored;
    uint32_t n;
    TNX_TRY(expect(r, "{"));
    TNX_TRY(dictionary(r, "}", &ignored, &n));
  }
  TNX_TRY(expect(r, "{"));
  while (!eat(r, "}")) {
    TNX_TRY(expect(r, "func.func"));
    TNX_TRY(grow(r, &list, m->n_functions, sizeof(tnx_hlo_function)));
    m->functions = list;
    tnx_hlo_function f = {0};
    TNX_TRY(function(r, &f));
    close_scope(r, 0);
    m->functions[m->n_functions++] = f;
  }
  if (next_char(r)) return bad(r, "the end of the text expected");
  if (r->p < r->end) return bad(r, "the end of the text expected");
  m->n_values = r->types.len;
  return tnx_hlo_function_find(m, "main") ? TNX_OK : tnx_fail(TNX_PARSE, "%s: a function @main expected", m->file);
}

tnx_status tnx_hlo_module_read(tnx_hlo_module *m, const char *file, const char *text, size_t len) {
  *m = (tnx_hlo_module){.file = file};
  tnx_arena_init(&m->arena);
  reader r = {.p = text, .end = text + len, .text = text, .m = m, .placed = text, .at = {1, 1}};
  tnx_status status = module(&r);
  tnx_vec_fini(&r.types);
  tnx_vec_fini(&r.open);
  if (status != TNX_OK) tnx_hlo_module_fini(m);
  return status;
}

void tnx_hlo_module_fini(tnx_hlo_module *m) {
  tnx_arena_fini(&m->arena);
  *m = (tnx_hlo_module){0};
}

const tnx_hlo_function *tnx_hlo_function_find(const tnx_hlo_module *m, const char *name) {
  for (uint32_t i = 0; i < m->n_functions; i++)
    if (strcmp(m->functions[i].name, name) == 0) return &m->functions[i];
  return NULL;
}

const tnx_hlo_attr *tnx_hlo_attr_find(const tnx_hlo_attr *attrs, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(attrs[i].name, name) == 0) return &attrs[i];
  return NULL;
}
