/* The operator table: aten.def as an array, its lowerings, and the search by name. Everything is read-only.
 *
 * A row's id is its place. Names are found by length first, which leaves a few dozen comparisons. */
#include "aten/family.h"

/* Rows stand on lines of their own, so that the line names them. */
#define ID_(line) row_of_line_##line
#define ID(line) ID_(line)

enum {
#define ATEN(functional, inplace, out, fn, flags) ID(__LINE__),
#include "aten/aten.def"
#undef ATEN
  ROWS
};

static const tnx_row rows[ROWS] = {
#define ATEN(functional, inplace, out, fn, flags) {functional, inplace, out, flags, ID(__LINE__)},
#include "aten/aten.def"
#undef ATEN
};

static const tnx_lower_fn lowerings[ROWS] = {
#define ATEN(functional, inplace, out, fn, flags) fn,
#include "aten/aten.def"
#undef ATEN
};

static const uint8_t lengths[ROWS][3] = {
#define ATEN(functional, inplace, out, fn, flags) {sizeof(functional) - 1, sizeof(inplace) - 1, sizeof(out) - 1},
#include "aten/aten.def"
#undef ATEN
};

uint32_t tnx_row_count(void) { return ROWS; }

const tnx_row *tnx_row_at(uint32_t id) { return id < ROWS ? &rows[id] : NULL; }

tnx_lower_fn tnx_row_lowering(uint32_t id) { return id < ROWS ? lowerings[id] : NULL; }

const tnx_row *tnx_row_find(const char *name) {
  size_t n = name ? strlen(name) : 0;
  if (n == 0 || n > UINT8_MAX) return NULL;
  for (uint32_t i = 0; i < ROWS; i++) {
    if (lengths[i][0] == n && memcmp(rows[i].functional, name, n) == 0) return &rows[i];
    if (lengths[i][1] == n && memcmp(rows[i].inplace, name, n) == 0) return &rows[i];
    if (lengths[i][2] == n && memcmp(rows[i].out, name, n) == 0) return &rows[i];
  }
  return NULL;
}
