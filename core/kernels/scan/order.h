/* Internal to the scan family: heaps, selection and sorting. With an order that tells all entries apart any algorithm gives the same result; with one that
 * compares keys alone, these leave equals in the order of PyTorch's CPU kernels.
 *
 * torch.topk promises no order among equal values, and models depend on one all the same: an indexer that scores tokens with relu leaves many
 * zeros, and which of them it takes decides the result. The CPU's answer is that of the C++ library's partial_sort (k up to n / 64), nth_element and
 * sort, which is fixed by their algorithms: heaps whose holes sink to a leaf and rise again (Floyd), quicksort around the median of the second,
 * the middle and the last entry (Hoare), heap sort where that is too deep (Musser's introsort), insertion sort below 16. */
#ifndef TNXK_SCAN_ORDER_H
#define TNXK_SCAN_ORDER_H
#include <stdint.h>

enum { TNXK_SORT_SHORT = 16, TNXK_SELECT_SHORT = 3 };

static inline int twice_log2(int64_t n) { return n > 1 ? 2 * (63 - __builtin_clzll((uint64_t)n)) : 0; }

/* E the entry, BEFORE its order. Ranges are [a, a + n). */
#define ORDER(name, E, BEFORE)                                                                                \
  static inline void name##_swap(E *x, E *y) {                                                                \
    E t = *x;                                                                                                 \
    *x = *y;                                                                                                  \
    *y = t;                                                                                                   \
  }                                                                                                           \
  /* Puts v into the heap (the last entry in order on top) whose place i is free. */                          \
  static inline void name##_heap_put(E *heap, int64_t n, int64_t i, E v) {                                           \
    int64_t top = i, child = 2 * i + 2;                                                                       \
    for (; child < n; child = 2 * i + 2) {                                                                    \
      if (BEFORE(heap[child], heap[child - 1])) child--;                                                      \
      heap[i] = heap[child];                                                                                  \
      i = child;                                                                                              \
    }                                                                                                         \
    if (child == n) {                                                                                         \
      heap[i] = heap[n - 1];                                                                                  \
      i = n - 1;                                                                                              \
    }                                                                                                         \
    for (int64_t parent; i > top && BEFORE(heap[parent = (i - 1) / 2], v); i = parent) heap[i] = heap[parent]; \
    heap[i] = v;                                                                                              \
  }                                                                                                           \
  static inline void name##_heap_make(E *heap, int64_t n) {                                                          \
    for (int64_t i = n / 2; i-- > 0;) name##_heap_put(heap, n, i, heap[i]);                                   \
  }                                                                                                           \
  static inline void name##_heap_unmake(E *heap, int64_t n) {                                                        \
    while (n-- > 1) {                                                                                         \
      E v = heap[n];                                                                                          \
      heap[n] = heap[0];                                                                                      \
      name##_heap_put(heap, n, 0, v);                                                                         \
    }                                                                                                         \
  }                                                                                                           \
  /* The k first of n entries become a heap. */                                                               \
  static inline void name##_heap_select(E *a, int64_t k, int64_t n) {                                                \
    name##_heap_make(a, k);                                                                                   \
    for (int64_t i = k; i < n; i++) {                                                                         \
      if (!BEFORE(a[i], a[0])) continue;                                                                      \
      E v = a[i];                                                                                             \
      a[i] = a[0];                                                                                            \
      name##_heap_put(a, k, 0, v);                                                                            \
    }                                                                                                         \
  }                                                                                                           \
  static inline void name##_insertion_sort(E *a, int64_t n) {                                                        \
    for (int64_t i = 1; i < n; i++) {                                                                         \
      E v = a[i];                                                                                             \
      int64_t j = i;                                                                                          \
      for (; j > 0 && BEFORE(v, a[j - 1]); j--) a[j] = a[j - 1];                                              \
      a[j] = v;                                                                                               \
    }                                                                                                         \
  }                                                                                                           \
  /* Splits around a median, which goes to the front: no entry before the returned place is after one behind it. */ \
  static inline int64_t name##_split(E *a, int64_t n) {                                                              \
    E *x = a + 1, *y = a + n / 2, *z = a + n - 1;                                                             \
    if (BEFORE(*x, *y)) name##_swap(a, BEFORE(*y, *z) ? y : BEFORE(*x, *z) ? z : x);                          \
    else name##_swap(a, BEFORE(*x, *z) ? x : BEFORE(*y, *z) ? z : y);                                         \
    int64_t low = 1, high = n;                                                                                \
    for (;; low++) {                                                                                          \
      while (BEFORE(a[low], a[0])) low++;                                                                     \
      do high--;                                                                                              \
      while (BEFORE(a[0], a[high]));                                                                          \
      if (low >= high) return low;                                                                            \
      name##_swap(a + low, a + high);                                                                         \
    }                                                                                                         \
  }                                                                                                           \
  /* a[nth] becomes what a sort would put there, with nothing after it in front of it. */                     \
  static inline void name##_nth(E *a, int64_t nth, int64_t n) {                                                      \
    for (int depth = twice_log2(n); n > TNXK_SELECT_SHORT; depth--) {                                         \
      if (depth == 0) {                                                                                       \
        name##_heap_select(a, nth + 1, n);                                                                    \
        name##_swap(a, a + nth);                                                                              \
        return;                                                                                               \
      }                                                                                                       \
      int64_t cut = name##_split(a, n);                                                                       \
      if (cut <= nth) a += cut, n -= cut, nth -= cut;                                                         \
      else n = cut;                                                                                           \
    }                                                                                                         \
    name##_insertion_sort(a, n);                                                                              \
  }                                                                                                           \
  static inline void name##_sort_parts(E *a, int64_t n, int depth) {                                                 \
    for (; n > TNXK_SORT_SHORT; depth--) {                                                                    \
      if (depth == 0) {                                                                                       \
        name##_heap_make(a, n);                                                                               \
        name##_heap_unmake(a, n);                                                                             \
        return;                                                                                               \
      }                                                                                                       \
      int64_t cut = name##_split(a, n);                                                                       \
      name##_sort_parts(a + cut, n - cut, depth - 1);                                                         \
      n = cut;                                                                                                \
    }                                                                                                         \
  }                                                                                                           \
  static inline void name##_sort(E *a, int64_t n) {                                                         \
    name##_sort_parts(a, n, twice_log2(n));                                                                   \
    name##_insertion_sort(a, n);                                                                              \
  }
#endif
