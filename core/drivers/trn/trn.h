/* The trn driver's inside: the runtime library's functions, device memory, compilation and programs, one file each. */
#ifndef TNX_DRIVERS_TRN_H
#define TNX_DRIVERS_TRN_H
#include "drivers/driver.h"
#include "drivers/nrt/nrt.h"

/* ---- library.c: libnrt.so.1 ---- */
/* REQUIRED(name): without it the driver does not open. OPTIONAL(name): NULL where the library lacks it. */
#define TRN_FUNCTIONS(REQUIRED, OPTIONAL)                                                                                                    \
  REQUIRED(nrt_init) REQUIRED(nrt_get_visible_vnc_count) REQUIRED(nrt_load) REQUIRED(nrt_unload) REQUIRED(nrt_execute)                       \
  REQUIRED(nrt_tensor_allocate) REQUIRED(nrt_tensor_allocate_slice) REQUIRED(nrt_tensor_free) REQUIRED(nrt_tensor_read)                      \
  REQUIRED(nrt_tensor_write) REQUIRED(nrt_allocate_tensor_set) REQUIRED(nrt_destroy_tensor_set) REQUIRED(nrt_add_tensor_to_tensor_set)       \
  OPTIONAL(nrt_close) OPTIONAL(nrt_get_version) OPTIONAL(nrt_get_instance_info)                                                              \
  OPTIONAL(nrt_get_vnc_memory_stats) OPTIONAL(nrt_tensor_copy) OPTIONAL(nrt_tensor_memset) OPTIONAL(nrt_get_model_tensor_info)               \
  OPTIONAL(nrt_free_model_tensor_info) OPTIONAL(nrta_execute_schedule) OPTIONAL(nrta_is_completed) OPTIONAL(nrta_error_tracker_create)       \
  OPTIONAL(nrta_error_tracker_destroy) OPTIONAL(nrta_error_tracker_get_list)

typedef struct trn_library {
  void *handle;
  char path[512]; /* where it was found */
#define TRN_MEMBER(name) __typeof__(&name) name;
  TRN_FUNCTIONS(TRN_MEMBER, TRN_MEMBER)
#undef TRN_MEMBER
} trn_library;

/* The library, loaded by the first call that finds it. DEVICE says what is missing and how to get it. Any thread. */
tnx_status trn_library_get(const trn_library **out);
/* The loaded library; only after trn_library_get succeeded. */
extern trn_library trn_nrt;
/* What a status of the runtime means to PyTorch; TNX_OK for NRT_SUCCESS. `what`: "nrt_load of aten::add ...". A terminal error is remembered: trn_alive fails from then on. */
tnx_status trn_check(NRT_STATUS status, const char *what);
tnx_status trn_alive(void);

/* ---- memory.c: segments are tensors of the runtime under addresses that nobody can read ---- */
typedef struct trn_place { nrt_tensor_t *tensor; size_t offset; } trn_place;
tnx_status trn_segment_alloc(int device, size_t bytes, bool large, void **out);
void trn_segment_free(int device, void *segment, size_t bytes);
/* Where [address, address + bytes) lies; INTERNAL if that is not inside one segment. */
tnx_status trn_place_of(const void *address, size_t bytes, trn_place *out);
/* Grows when a segment is freed: slices made before may be slices of nothing. */
uint64_t trn_memory_generation(void);
tnx_status trn_copy_to_device(int device, void *dst, const void *src, size_t bytes);
tnx_status trn_copy_to_host(int device, void *dst, const void *src, size_t bytes);
tnx_status trn_copy(int device, void *dst, const void *src, size_t bytes);
tnx_status trn_fill(int device, void *dst, uint8_t value, size_t bytes);

/* ---- settings.c: what the environment says about compiling ---- */
typedef struct trn_settings {
  char compiler[512];     /* TORCH_NEURONX_COMPILER: a command; neuronx-cc */
  char target[32];        /* --target */
  char flags[2048];       /* the other flags, NEURON_CC_FLAGS last */
  char identity[1024];    /* of the compiler's program file: path, size, time of change */
  char cache[900];        /* folder; "" where there is none */
  char debug[900];        /* where the text of a failed compilation is kept */
  uint64_t cache_limit;   /* bytes */
  unsigned workers;       /* compilers at once */
  unsigned compile_timeout, lock_timeout, exec_timeout; /* seconds */
  bool async;
} trn_settings;
/* Read once. INVALID_ARGUMENT names a malformed variable. family: of nrt_get_instance_info, -1 without a device. */
tnx_status trn_settings_get(int family, const trn_settings **out);

/* ---- cache.c: the NEFFs on disk ---- */
typedef struct trn_key { char text[40]; uint64_t check, length; /* another hash of what the key is made of, and its length */ } trn_key;
void trn_key_make(const trn_settings *s, const char *text, size_t bytes, trn_key *out);
/* <cache>/ab/<key><suffix>, and its folder made. */
enum { TRN_PATH_BYTES = 1100 };
void trn_cache_path(const trn_settings *s, const trn_key *key, const char *suffix, char out[TRN_PATH_BYTES]);
tnx_status trn_cache_make_folder(const trn_settings *s, const trn_key *key);
/* The NEFF under the key, on the heap; NULL with TNX_OK: there is none that is whole. */
tnx_status trn_cache_load(const trn_settings *s, const trn_key *key, void **out, size_t *bytes_out);
tnx_status trn_cache_store(const trn_settings *s, const trn_key *key, const void *neff, size_t bytes);
/* One process compiles a key at a time. *lock_out: for trn_cache_unlock; -1 where there is no cache. TIMEOUT after lock_timeout seconds. */
tnx_status trn_cache_lock(const trn_settings *s, const trn_key *key, int *lock_out);
void trn_cache_unlock(int lock);
tnx_status trn_folder_make(const char *path); /* with its parents, for this user only */
tnx_status trn_file_read(const char *path, void **out, size_t *bytes_out);   /* on the heap; NULL with TNX_OK: there is no such file */
tnx_status trn_file_write(const char *path, const void *data, size_t bytes); /* at once: under another name first */

/* ---- compiler.c ---- */
/* The NEFF of a text, from the cache or the compiler; on the heap. Blocks; called by the compile threads. *compiled_out: the compiler ran. */
tnx_status trn_compile(const trn_settings *s, const trn_key *key, const char *name, const char *text, size_t text_bytes, void **out, size_t *bytes_out, bool *compiled_out);

/* ---- program.c ---- */
extern const tnx_program_driver trn_programs;
/* Waits until it is compiled; why it is not. */
tnx_status trn_program_wait(tnx_program *p, trn_key *key_out);
/* The instance family that settings are made for; set by open. */
void trn_family_set(int family);
#endif
