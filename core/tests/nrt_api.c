/* libnrt on the host device as any program sees it: this one includes the API's header, is linked with the library alone, and gets the programs it runs from nxcc,
 * whose path is its argument. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "drivers/nrt/nrt.h"
#include "test.h"

#define CHECK_NRT(expr, want)                                                                                           \
  do {                                                                                                                  \
    NRT_STATUS n_ = (expr);                                                                                             \
    if (n_ != (want)) {                                                                                                 \
      printf("%s:%d: %s gave %s\n", __FILE__, __LINE__, #expr, nrt_get_status_as_str(n_));                              \
      test_bad++;                                                                                                       \
    }                                                                                                                   \
  } while (0)
#define CHECK_SUCCESS(expr) CHECK_NRT(expr, NRT_SUCCESS)

static const char *compiler;
static unsigned char neff[1 << 16];
static size_t neff_size;

/* (x + y, y): the second result is an input as it is. */
static const char *const module =
    "module @t {\n"
    "  func.func public @main(%1: tensor<2x3xf32>, %2: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {\n"
    "    %3 = \"stablehlo.add\"(%1, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>\n"
    "    func.return %3, %2 : tensor<2x3xf32>, tensor<2x3xf32>\n"
    "  }\n"
    "}\n";
enum { N = 6, BYTES = N * sizeof(float) };

static int compile(const char *text, const char *options) {
  char folder[] = "/tmp/nrt_api.XXXXXX", path[64], command[512];
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/m.mlir", folder);
  FILE *f = fopen(path, "w");
  fputs(text, f);
  fclose(f);
  snprintf(command, sizeof command, "cd %s && '%s' compile m.mlir --framework XLA %s --output m.neff 2>error", folder, compiler, options);
  int code = system(command);
  snprintf(path, sizeof path, "%s/m.neff", folder);
  f = fopen(path, "rb");
  if (code == 0 && f) neff_size = fread(neff, 1, sizeof neff, f);
  if (code != 0) CHECK(f == NULL); /* no file is left behind */
  if (f) fclose(f);
  snprintf(command, sizeof command, "rm -r %s", folder);
  if (system(command) != 0) printf("%s stays\n", folder);
  return code < 0 ? code : code >> 8;
}

typedef struct fixture {
  nrt_model_t *model;
  nrt_tensor_t *x, *y, *sum, *copy;
  nrt_tensor_set_t *in, *out;
} fixture;

static const float xs[N] = {1, 2, 3, 4, 5, 6}, ys[N] = {10, 20, 30, 40, 50, 60};

static void setup(fixture *f) {
  memset(f, 0, sizeof *f);
  CHECK_SUCCESS(nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", ""));
  CHECK_SUCCESS(nrt_load(neff, neff_size, 0, -1, &f->model));
  nrt_tensor_t **tensors[] = {&f->x, &f->y, &f->sum, &f->copy};
  for (int i = 0; i < 4; i++) CHECK_SUCCESS(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, BYTES, "t", tensors[i]));
  CHECK_SUCCESS(nrt_tensor_write(f->x, xs, 0, BYTES));
  CHECK_SUCCESS(nrt_tensor_write(f->y, ys, 0, BYTES));
  CHECK_SUCCESS(nrt_allocate_tensor_set(&f->in));
  CHECK_SUCCESS(nrt_allocate_tensor_set(&f->out));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f->in, "input0", f->x));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f->in, "input1", f->y));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f->out, "output0", f->sum));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f->out, "output1", f->copy));
}

static void teardown(fixture *f) {
  nrt_destroy_tensor_set(&f->in);
  nrt_destroy_tensor_set(&f->out);
  nrt_tensor_free(&f->x);
  nrt_tensor_free(&f->y);
  nrt_tensor_free(&f->sum);
  nrt_tensor_free(&f->copy);
  CHECK(f->in == NULL && f->x == NULL);
  if (f->model) CHECK_SUCCESS(nrt_unload(f->model));
  nrt_close();
  unsetenv("NRT_HOST_FAULT");
}

static bool holds(const nrt_tensor_t *t, float factor_x, float factor_y) {
  float r[N];
  if (nrt_tensor_read(t, r, 0, BYTES) != NRT_SUCCESS) return false;
  for (int i = 0; i < N; i++)
    if (r[i] != factor_x * xs[i] + factor_y * ys[i]) return false;
  return true;
}

TEST(before_initialisation) {
  nrt_tensor_t *t = NULL;
  uint32_t n = 0;
  nrt_version_t v;
  CHECK_NRT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_HOST, -1, 8, NULL, &t), NRT_UNINITIALIZED);
  CHECK_NRT(nrt_init(NRT_FRAMEWORK_TYPE_INVALID, "", ""), NRT_INVALID);
  CHECK_SUCCESS(nrt_get_visible_vnc_count(&n));
  CHECK(n >= 1);
  CHECK_SUCCESS(nrt_get_version(&v, sizeof v));
  CHECK_EQ(v.rt_major, NRT_MAJOR_VERSION);
  CHECK_NRT(nrt_get_version(&v, 1), NRT_INVALID);
  CHECK(strcmp(nrt_get_status_as_str(NRT_EXEC_OOB), "NRT_EXEC_OOB") == 0);
}

TEST(a_program_runs) {
  fixture f;
  setup(&f);
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out));
  CHECK(holds(f.sum, 1, 1) && holds(f.copy, 0, 1));
  CHECK_SUCCESS(nrt_execute_repeat(f.model, f.in, f.out, 3));
  CHECK_SUCCESS(nrt_tensor_check_output_completion(f.sum, 0, 4));
  CHECK_NRT(nrt_tensor_check_output_completion(f.sum, 1000, 5), NRT_TIMEOUT);
  teardown(&f);
  nrt_tensor_t *t;
  CHECK_NRT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_HOST, -1, 8, NULL, &t), NRT_CLOSED);
}

/* x += y, four times: the tensor is in both sets. */
TEST(donated_tensors) {
  fixture f;
  setup(&f);
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f.out, "output0", f.x));
  CHECK_SUCCESS(nrt_execute_repeat(f.model, f.in, f.out, 4));
  CHECK(holds(f.x, 1, 4) && holds(f.copy, 0, 1));
  /* each result into the other's operand */
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f.out, "output0", f.y));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f.out, "output1", f.x));
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out));
  CHECK(holds(f.y, 1, 5) && holds(f.x, 0, 1));
  teardown(&f);
}

TEST(model_information) {
  fixture f;
  nrt_tensor_info_array_t *info = NULL;
  setup(&f);
  CHECK_SUCCESS(nrt_get_model_tensor_info(f.model, &info));
  CHECK_EQ(info->tensor_count, 4);
  static const char *const names[] = {"input0", "input1", "output0", "output1"};
  for (int i = 0; i < 4; i++) {
    const nrt_tensor_info_t *t = &info->tensor_array[i];
    CHECK(strcmp(t->name, names[i]) == 0 && t->usage == (i < 2 ? NRT_TENSOR_USAGE_INPUT : NRT_TENSOR_USAGE_OUTPUT));
    CHECK(t->size == BYTES && t->dtype == NRT_DTYPE_FLOAT32 && t->ndim == 2 && t->shape[0] == 2 && t->shape[1] == 3);
  }
  CHECK_SUCCESS(nrt_free_model_tensor_info(info));
  nrt_model_info_t m;
  size_t size = 0;
  CHECK_SUCCESS(nrt_get_model_info(f.model, &m, sizeof m, &size));
  CHECK(m.vnc == 0 && size == sizeof m);
  teardown(&f);
}

TEST(tensors_and_slices) {
  fixture f;
  float r[N];
  nrt_tensor_t *slice = NULL, *inner = NULL, *buffer = NULL, *got = NULL;
  nrt_vnc_memory_stats_t before, after;
  size_t size;
  setup(&f);
  CHECK_SUCCESS(nrt_get_vnc_memory_stats(0, &before, sizeof before, &size));
  CHECK_SUCCESS(nrt_tensor_allocate_slice(f.x, 8, 12, "slice", &slice));
  CHECK_SUCCESS(nrt_tensor_allocate_slice(slice, 4, 8, NULL, &inner));
  CHECK((char *)nrt_tensor_get_va(inner) == (char *)nrt_tensor_get_va(f.x) + 12);
  CHECK_EQ(nrt_tensor_get_size(inner), 8);
  CHECK_NRT(nrt_tensor_allocate_slice(slice, 8, 8, NULL, &got), NRT_INVALID);
  nrt_tensor_free(&f.x); /* the slices keep the memory */
  CHECK_SUCCESS(nrt_tensor_read(inner, r, 0, 8));
  CHECK(r[0] == 4 && r[1] == 5);
  CHECK_NRT(nrt_tensor_read(inner, r, 4, 8), NRT_INVALID);
  CHECK_SUCCESS(nrt_tensor_memset(inner, 4, 0, 4));
  CHECK_SUCCESS(nrt_tensor_copy(inner, 0, f.sum, 4, 8));
  CHECK_SUCCESS(nrt_tensor_read(f.sum, r, 4, 8));
  CHECK(r[0] == 4 && r[1] == 0);
  CHECK_SUCCESS(nrt_tensor_allocate_empty("empty", &buffer));
  CHECK_NRT(nrt_tensor_read(buffer, r, 0, 1), NRT_INVALID_HANDLE);
  CHECK_SUCCESS(nrt_tensor_attach_buffer(buffer, r, sizeof r));
  CHECK(nrt_tensor_get_va(buffer) == r);
  CHECK_SUCCESS(nrt_tensor_copy(f.y, 0, buffer, 0, BYTES));
  CHECK(r[5] == 60);
  nrt_tensor_batch_op_t ops[2] = {{0, 4, &r[0]}, {20, 4, &r[1]}};
  nrt_tensor_batch_t batch = {f.y, ops, 2};
  CHECK_SUCCESS(nrt_tensor_read_batch(&batch, 1, false));
  CHECK(r[0] == 10 && r[1] == 60);
  CHECK_SUCCESS(nrt_get_tensor_from_tensor_set(f.in, "input1", &got));
  CHECK(got == f.y);
  CHECK_NRT(nrt_get_tensor_from_tensor_set(f.in, "input7", &got), NRT_INVALID);
  CHECK_NRT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 99, 8, NULL, &got), NRT_INVALID);
  CHECK_NRT(nrt_unload((nrt_model_t *)(void *)f.y), NRT_INVALID_HANDLE);
  nrt_tensor_free(&slice);
  nrt_tensor_free(&inner);
  nrt_tensor_free(&buffer);
  CHECK_SUCCESS(nrt_get_vnc_memory_stats(0, &after, sizeof after, &size));
  CHECK(after.bytes_used < before.bytes_used && after.bytes_limit > 0);
  teardown(&f);
}

TEST(wrong_sets_and_programs) {
  fixture f;
  nrt_tensor_t *small = NULL;
  nrt_model_t *m;
  setup(&f);
  CHECK_SUCCESS(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, BYTES - 4, NULL, &small));
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f.in, "input1", small));
  CHECK_NRT(nrt_execute(f.model, f.in, f.out), NRT_EXEC_BAD_INPUT);
  CHECK_NRT(nrt_execute(f.model, f.out, f.in), NRT_EXEC_BAD_INPUT);
  CHECK_NRT(nrt_execute_repeat(f.model, f.in, f.out, 0), NRT_INVALID);
  nrt_tensor_free(&small);
  CHECK_NRT(nrt_load("no NEFF", 7, 0, -1, &m), NRT_INVALID);
  CHECK_NRT(nrt_load(neff, neff_size, 77, -1, &m), NRT_INVALID);
  CHECK_NRT(nrt_load(neff, neff_size, 0, 2, &m), NRT_LOAD_NOT_ENOUGH_NC);
  /* every byte matters */
  for (size_t i = 0; i < neff_size; i += 7) {
    neff[i] ^= 0x40;
    NRT_STATUS s = nrt_load(neff, neff_size, 0, -1, &m);
    CHECK(s == (i >= 8 && i < 16 ? NRT_UNSUPPORTED_NEFF_VERSION : NRT_INVALID));
    neff[i] ^= 0x40;
    CHECK_NRT(nrt_load(neff, i, 0, -1, &m), NRT_INVALID);
  }
  teardown(&f);
}

/* ---- asynchronous ---- */

static void wait_for(nrta_seq_t seq) {
  int fd = -1;
  bool done = false;
  CHECK_SUCCESS(nrta_get_completion_handle(seq, &fd));
  struct pollfd p = {.fd = fd, .events = POLLIN};
  while (poll(&p, 1, 10000) < 0 && errno == EINTR) {}
  CHECK(p.revents & POLLIN);
  close(fd);
  CHECK_SUCCESS(nrta_is_completed(seq, &done));
  CHECK(done);
}

TEST(asynchronous_operations) {
  fixture f;
  nrta_error_tracker_t *errors = NULL;
  const nrta_error_t *list;
  size_t n = 99;
  float r[N];
  nrta_seq_t seq, last;
  setup(&f);
  CHECK_SUCCESS(nrta_error_tracker_create(0, &errors));
  CHECK_SUCCESS(nrta_tensor_write(f.x, ys, 0, BYTES, 0, errors, &seq));
  wait_for(seq);
  CHECK_SUCCESS(nrt_add_tensor_to_tensor_set(f.out, "output0", f.x));
  for (int i = 0; i < 50; i++) {
    CHECK_SUCCESS(nrta_execute_schedule(f.model, f.in, f.out, 0, errors, &last));
    CHECK_EQ(last & 0xffffffff, i + 1);
  }
  wait_for(last);
  CHECK_SUCCESS(nrta_get_sequence(0, NRTA_XU_COMPUTE, 0, &seq));
  CHECK(seq == last);
  CHECK_SUCCESS(nrta_tensor_copy(f.x, 0, f.sum, 0, BYTES, 1, errors, &seq));
  wait_for(seq);
  CHECK_SUCCESS(nrta_tensor_read(r, f.sum, 0, BYTES, 0, errors, &seq));
  wait_for(seq);
  for (int i = 0; i < N; i++) CHECK(r[i] == 51 * ys[i]);
  CHECK_NRT(nrta_execute_schedule(f.model, f.in, f.out, 1, errors, &seq), NRT_INVALID);
  CHECK_SUCCESS(nrta_error_tracker_get_list(errors, &list, &n));
  CHECK_EQ(n, 0);
  CHECK_SUCCESS(nrt_async_drain_queued_execs(0));
  nrta_error_tracker_destroy(errors);
  teardown(&f);
}

/* ---- faults ---- */

TEST(injected_faults) {
  fixture f;
  nrt_model_t *m;
  setenv("NRT_HOST_FAULT", "execute:2,timeout:3,load:2", 1);
  setup(&f);
  CHECK_NRT(nrt_load(neff, neff_size, 0, -1, &m), NRT_RESOURCE);
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out));
  CHECK_NRT(nrt_execute(f.model, f.in, f.out), NRT_EXEC_COMPLETED_WITH_ERR);
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out)); /* the second one did not get as far as the time-out's count */
  CHECK_NRT(nrt_execute(f.model, f.in, f.out), NRT_TIMEOUT);
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out));
  teardown(&f);

  setenv("NRT_HOST_FAULT", "alloc:2+", 1);
  nrt_tensor_t *t[3] = {NULL, NULL, NULL};
  CHECK_SUCCESS(nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", ""));
  CHECK_SUCCESS(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_HOST, -1, 8, NULL, &t[0]));
  for (int i = 1; i < 3; i++) CHECK_NRT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 8, NULL, &t[i]), NRT_RESOURCE);
  CHECK(t[1] == NULL);
  nrt_tensor_free(&t[0]);
  nrt_close();
  setenv("NRT_HOST_FAULT", "execute", 1);
  CHECK_NRT(nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", ""), NRT_INVALID);
  unsetenv("NRT_HOST_FAULT");
}

/* A terminal error: what was queued behind it fails, later calls are refused, and a new initialisation helps. */
TEST(a_terminal_fault) {
  fixture f;
  nrta_error_tracker_t *errors = NULL;
  const nrta_error_t *list;
  size_t n = 0;
  nrta_seq_t first, seq;
  setenv("NRT_HOST_FAULT", "terminal:1", 1);
  setup(&f);
  CHECK_SUCCESS(nrta_error_tracker_create(0, &errors));
  CHECK_SUCCESS(nrta_execute_schedule(f.model, f.in, f.out, 0, errors, &first));
  wait_for(first);
  CHECK_NRT(nrta_execute_schedule(f.model, f.in, f.out, 0, errors, &seq), NRT_EXEC_UNIT_UNRECOVERABLE);
  CHECK_NRT(nrt_execute(f.model, f.in, f.out), NRT_EXEC_UNIT_UNRECOVERABLE);
  CHECK_SUCCESS(nrta_error_tracker_get_list(errors, &list, &n));
  CHECK(n == 1 && list[0].seq_id == first && list[0].error_code == NRT_EXEC_UNIT_UNRECOVERABLE);
  nrta_error_tracker_destroy(errors);
  teardown(&f);
  setup(&f);
  CHECK_SUCCESS(nrt_execute(f.model, f.in, f.out));
  teardown(&f);
}

TEST(collectives_of_one) {
  fixture f;
  nrt_model_t *m = NULL;
  float r[N] = {0};
  setup(&f);
  CHECK_SUCCESS(nrt_load_collectives(neff, neff_size, 0, -1, 0, 1, &m));
  CHECK_SUCCESS(nrt_execute(m, f.in, f.out));
  CHECK_SUCCESS(nrt_unload(m));
  CHECK_NRT(nrt_load_collectives(neff, neff_size, 0, -1, 2, 2, &m), NRT_INVALID);
  CHECK_SUCCESS(nrt_barrier(0, 0, 1));
  CHECK_SUCCESS(nrt_all_gather(0, 0, 1, BYTES, (void *)(uintptr_t)xs, r));
  CHECK(memcmp(r, xs, BYTES) == 0);
  CHECK_NRT(nrt_inspect_begin(), NRT_FAILURE); /* not on the host */
  teardown(&f);
}

TEST(the_compiler) {
  CHECK_EQ(compile(module, "--target trn2 --lnc 2 -O1 --model-type transformer --auto-cast=none"), 0);
  CHECK_EQ(compile(module, ""), 2);                       /* no target */
  CHECK_EQ(compile(module, "--target trn9"), 2);
  CHECK_EQ(compile(module, "--target trn2 --unheard-of"), 2);
  CHECK_EQ(compile(module, "--target trn2 other.mlir"), 2); /* two inputs */
  CHECK_EQ(compile("module {", "--target trn2"), 3);
  CHECK_EQ(compile("module { func.func @main() -> () { \"stablehlo.send\"() : () -> () func.return } }", "--target trn2"), 4);
  CHECK_EQ(compile(module, "--target trn2 --logfile /nonexistent/log"), 1);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  compiler = argv[1];
  setenv("NEURON_RT_LOG_LEVEL", "FATAL", 1);
  RUN(the_compiler);
  if (compile(module, "--target trn2") != 0) return 1;
  RUN(before_initialisation);
  RUN(a_program_runs);
  RUN(donated_tensors);
  RUN(model_information);
  RUN(tensors_and_slices);
  RUN(wrong_sets_and_programs);
  RUN(asynchronous_operations);
  RUN(injected_faults);
  RUN(a_terminal_fault);
  RUN(collectives_of_one);
  return TEST_END;
}
