/* nxcc: compiles StableHLO for the host device, with neuronx-cc's command line.
 *
 *   nxcc compile module.mlir --framework XLA --target trn2 --output module.neff [options of neuronx-cc, which are checked and do not change the host's program]
 *   nxcc list-operators --framework XLA
 *
 * The module is read, verified and planned; the output is written to a temporary file and renamed, so that it is either whole or absent.
 * Exit codes: 0 done; 1 the input or output could not be read or written; 2 the command line is wrong; 3 the module is malformed; 4 it has an operation without a form on
 * the host device; 70 an error of the compiler's own. The message is on standard error and in the log file, where --logfile names one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nrt_host/neff.h"
#include "plan/routine.h"

enum { EXIT_IO = 1, EXIT_USAGE = 2, EXIT_MALFORMED = 3, EXIT_UNSUPPORTED = 4, EXIT_INTERNAL = 70 };

typedef struct options {
  const char *input, *framework, *target, *output, *logfile, *workdir;
} options;

static FILE *log_file;

static int report(int code, const char *fmt, ...) TNX_PRINTF(2, 3);
static int report(int code, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  fprintf(stderr, "nxcc: error: ");
  vfprintf(stderr, fmt, ap);
  fprintf(stderr, "\n");
  if (log_file) {
    fprintf(log_file, "ERROR: ");
    vfprintf(log_file, fmt, again);
    fprintf(log_file, "\n");
  }
  va_end(again);
  va_end(ap);
  return code;
}

/* Options with values; those whose `values` is NULL take any. */
static const struct { const char *name, *brief; const char *const *values; size_t place; } valued[] = {
#define PLACE(member) offsetof(options, member) + 1
#define ONE_OF(...) (const char *const[]) { __VA_ARGS__, NULL }
    {"--framework", NULL, ONE_OF("XLA"), PLACE(framework)},
    {"--target", NULL, ONE_OF("inf2", "trn1", "trn1n", "trn2", "trn2n", "trn3"), PLACE(target)},
    {"--output", "-o", NULL, PLACE(output)},
    {"--logfile", NULL, NULL, PLACE(logfile)},
    {"--workdir", NULL, NULL, PLACE(workdir)},
    {"--model-type", NULL, ONE_OF("generic", "transformer", "unet-inference"), 0},
    {"--auto-cast", NULL, ONE_OF("none", "matmult", "all"), 0},
    {"--auto-cast-type", NULL, ONE_OF("bf16", "fp16", "tf32", "fp8_e4m3"), 0},
    {"--native-int64", NULL, ONE_OF("default", "enabled", "disabled"), 0},
    {"--implicit-integer-downcast", NULL, NULL, 0},
    {"--distribution-strategy", NULL, ONE_OF("llm-training"), 0},
    {"--logical-nc-config", "-lnc", ONE_OF("1", "2"), 0},
    {"--lnc", NULL, ONE_OF("1", "2"), 0},
    {"--optlevel", "-O", ONE_OF("1", "2", "3"), 0},
    {"--hbm-scratchpad-page-size", NULL, NULL, 0},
    {"--verbose", NULL, ONE_OF("debug", "info", "warning", "error", "critical"), 0},
};
static const char *const flags[] = {"--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation", "--enable-saturate-infinity", "--enable-fast-context-switch",
                                    "--enable-fast-loading-neuron-binaries", "-O1", "-O2", "-O3"};

static int parse(int argc, char **argv, options *o) {
  enum { N = sizeof valued / sizeof *valued };
  for (int i = 0; i < argc; i++) {
    const char *arg = argv[i], *equals = strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    bool found = false;
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) found |= strcmp(arg, flags[k]) == 0;
    if (found) continue;
    size_t k = 0;
    while (k < N && !(strlen(valued[k].name) == len && strncmp(valued[k].name, arg, len) == 0) && !(valued[k].brief && strcmp(valued[k].brief, arg) == 0)) k++;
    if (k < N) {
      const char *value = equals ? equals + 1 : ++i < argc ? argv[i] : NULL;
      if (!value) return report(EXIT_USAGE, "%s: a value expected", arg);
      bool known = !valued[k].values;
      for (const char *const *v = valued[k].values; !known && *v; v++) known = strcmp(*v, value) == 0;
      if (!known) return report(EXIT_USAGE, "%s: '%s' is not one of its values", valued[k].name, value);
      if (valued[k].place) memcpy((char *)o + valued[k].place - 1, &value, sizeof value);
    } else if (arg[0] == '-' && arg[1]) {
      return report(EXIT_USAGE, "unknown option '%s'", arg);
    } else if (o->input) {
      return report(EXIT_USAGE, "one input expected, '%s' is another", arg);
    } else {
      o->input = arg;
    }
  }
  return 0;
}

static char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  char *data = NULL, *more;
  size_t cap = 0, n;
  *size = 0;
  if (!f) return NULL;
  do {
    if (*size == cap) {
      more = tnx_heap_realloc(data, cap = cap ? cap * 2 : 1 << 16);
      if (!more) break;
      data = more;
    }
    n = fread(data + *size, 1, cap - *size, f);
    *size += n;
  } while (n);
  bool bad = ferror(f) || !feof(f);
  fclose(f);
  if (!bad) return data;
  tnx_heap_free(data);
  return NULL;
}

static int write_file(const char *path, const unsigned char *data, size_t size) {
  char temporary[4096];
  if ((size_t)snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= sizeof temporary) return report(EXIT_IO, "%s: the path is too long", path);
  int fd = mkstemp(temporary);
  if (fd < 0) return report(EXIT_IO, "%s: %s", path, strerror(errno));
  size_t done = 0;
  while (done < size) {
    ssize_t n = write(fd, data + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  bool ok = done == size && fsync(fd) == 0;
  int error = errno;
  if (close(fd) != 0 || !ok || rename(temporary, path) != 0) {
    error = ok ? errno : error;
    unlink(temporary);
    return report(EXIT_IO, "%s: %s", path, strerror(error));
  }
  return 0;
}

static int compile_module(const options *o) {
  size_t size, neff_size = 0;
  char *text = read_file(o->input, &size);
  if (!text) return report(EXIT_IO, "%s: %s", o->input, errno ? strerror(errno) : "the file could not be read");
  unsigned char *neff = NULL;
  tnx_routine *r = NULL;
  tnx_planned_routine *planned = NULL;
  int code = 0;
  tnx_status status = tnx_routine_from_stablehlo(o->input, text, size, 0, &r);
  if (status == TNX_OK) status = tnx_neff_write(r, o->target, text, size, &neff, &neff_size);
  if (status == TNX_OK && (status = tnx_routine_plan(r, &planned)) == TNX_OK) r = NULL;
  if (status != TNX_OK) code = report(status == TNX_PARSE ? EXIT_MALFORMED : status == TNX_NOT_IMPLEMENTED ? EXIT_UNSUPPORTED : EXIT_INTERNAL, "%s", tnx_error_text());
  else code = write_file(o->output, neff, neff_size);
  if (code == 0 && log_file) fprintf(log_file, "INFO: %s: %zu bytes for %s\n", o->output, neff_size, o->target);
  tnx_planned_routine_destroy(planned);
  tnx_routine_destroy(r);
  tnx_heap_free(neff);
  tnx_heap_free(text);
  return code;
}

static int usage(FILE *to, int code) {
  fprintf(to, "usage: nxcc compile <module.mlir> --framework XLA --target <trn1|trn2|trn3|..> [--output <file.neff>] [--logfile <file>] [options]\n"
              "       nxcc list-operators --framework XLA\n"
              "       nxcc --version\n");
  return code;
}

int main(int argc, char **argv) {
  options o = {.output = "file.neff"};
  if (argc < 2) return usage(stderr, EXIT_USAGE);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return usage(stdout, 0);
  if (strcmp(argv[1], "--version") == 0) {
    printf("nxcc: compiler of StableHLO for the host device, format %d\n", TNX_NEFF_VERSION);
    return 0;
  }
  bool lists = strcmp(argv[1], "list-operators") == 0;
  if (!lists && strcmp(argv[1], "compile") != 0) {
    report(EXIT_USAGE, "unknown command '%s'", argv[1]);
    return usage(stderr, EXIT_USAGE);
  }
  int code = parse(argc - 2, argv + 2, &o);
  if (code) return code;
  if (!o.framework) return report(EXIT_USAGE, "--framework XLA expected");
  if (lists) {
    for (uint32_t i = 0; tnx_hlo_operation_name(i); i++) printf("%s\n", tnx_hlo_operation_name(i));
    return 0;
  }
  if (!o.target) return report(EXIT_USAGE, "--target expected");
  if (!o.input) return report(EXIT_USAGE, "an input expected");
  if (o.logfile && !(log_file = fopen(o.logfile, "w"))) return report(EXIT_IO, "%s: %s", o.logfile, strerror(errno));
  code = compile_module(&o);
  if (log_file) fclose(log_file);
  return code;
}
