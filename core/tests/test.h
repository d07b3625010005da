/* A C test is a program: TEST(name) functions, listed by RUN in main, CHECK inside. A failed CHECK prints its place and
 * goes on; main returns 1 if any failed and closes with "N passed, N failed". */
#ifndef TNX_TEST_H
#define TNX_TEST_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_bad, test_passed, test_failed;

#define TEST(name) static void name(void)
#define CHECK(cond)                                                        \
  do {                                                                     \
    if (!(cond)) {                                                         \
      printf("%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond);      \
      test_bad++;                                                          \
    }                                                                      \
  } while (0)
#define CHECK_EQ(a, b)                                                                                        \
  do {                                                                                                        \
    long long a_ = (long long)(a), b_ = (long long)(b);                                                       \
    if (a_ != b_) {                                                                                           \
      printf("%s:%d: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #a, a_, #b, b_);                          \
      test_bad++;                                                                                             \
    }                                                                                                         \
  } while (0)
#define CHECK_OK(expr)                                                                                        \
  do {                                                                                                        \
    tnx_status s_ = (expr);                                                                                   \
    if (s_ != TNX_OK) {                                                                                       \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expr, tnx_status_name(s_), tnx_error_text());        \
      test_bad++;                                                                                             \
    }                                                                                                         \
  } while (0)
#define RUN(name)                                          \
  do {                                                     \
    test_bad = 0;                                          \
    name();                                                \
    if (test_bad) { test_failed++; printf("FAIL %s\n", #name); } \
    else test_passed++;                                    \
    fflush(stdout);                                        \
  } while (0)
#define TEST_END (printf("%d passed, %d failed\n", test_passed, test_failed), test_failed != 0)

/* A small reproducible generator (splitmix64), so that a test prints the seed that failed. */
static inline uint64_t test_rand(uint64_t *s) {
  uint64_t z = (*s += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static inline float test_randf(uint64_t *s) { return (float)((double)(test_rand(s) >> 11) * 0x1p-53 * 2 - 1); }
#endif
