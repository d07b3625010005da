/* Status codes and the calling thread's last error text.
 *
 * Every fallible function of libtnx returns a tnx_status; results come through trailing *_out parameters.
 * tnx_fail() records the text that explains a failure; the text belongs to the calling thread and stays valid
 * until that thread's next tnx_fail(). */
#ifndef TNX_STATUS_H
#define TNX_STATUS_H
#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TNX_API __attribute__((visibility("default")))
#define TNX_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define TNX_API
#define TNX_PRINTF(fmt, first)
#endif

typedef enum tnx_status {
#define TNX_STATUS(name, text) TNX_##name,
#include "tnx/status.def"
#undef TNX_STATUS
  TNX_STATUS_COUNT
} tnx_status;

/* The enumerator's name without the prefix ("OUT_OF_MEMORY") and its one-line meaning. Static strings. Any thread. */
TNX_API const char *tnx_status_name(tnx_status s);
TNX_API const char *tnx_status_text(tnx_status s);

/* Records the calling thread's error text and returns `s`, so that callers can write `return tnx_fail(...)`. */
TNX_API tnx_status tnx_fail(tnx_status s, const char *fmt, ...) TNX_PRINTF(2, 3);
/* The calling thread's last error text ("" before the first). Borrowed: valid until the thread's next tnx_fail. */
TNX_API const char *tnx_error_text(void);
/* Puts "<prefix>: " before the recorded text: context is added while the error travels up. */
TNX_API void tnx_error_prefix(const char *fmt, ...) TNX_PRINTF(1, 2);

/* Forwards a failure to the caller. */
#define TNX_TRY(expr)                          \
  do {                                         \
    tnx_status tnx_try_s_ = (expr);            \
    if (tnx_try_s_ != TNX_OK) return tnx_try_s_; \
  } while (0)
/* Forwards a failure to the function's `done:` label; needs a local `tnx_status status`. */
#define TNX_TRY_DONE(expr)              \
  do {                                  \
    status = (expr);                    \
    if (status != TNX_OK) goto done;    \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
