/* The Neuron runtime's C API (libnrt.so.1) as far as this project calls or provides it: names, values and layouts as published with the runtime.
 *
 * Two sides include it: the trn driver, which finds the functions by name in whatever libnrt.so.1 is installed, and core/nrt_host, which provides them on this
 * machine's processor. What the runtime calls experimental stands at the end, as do the asynchronous functions: there a library may lack a name. */
#ifndef TNX_NRT_H
#define TNX_NRT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NRT_MAJOR_VERSION = 2, NRT_MINOR_VERSION = 0 };

/* ---- status ---- */
/* NRT_STATUS_LIST(X): X(name, value, meaning) */
#define NRT_STATUS_LIST(X)                                                                                        \
  X(NRT_SUCCESS, 0, "success")                                                                                    \
  X(NRT_FAILURE, 1, "non-specific failure")                                                                       \
  X(NRT_INVALID, 2, "an argument is invalid, or the NEFF is")                                                     \
  X(NRT_INVALID_HANDLE, 3, "a handle is invalid")                                                                 \
  X(NRT_RESOURCE, 4, "a resource could not be allocated")                                                         \
  X(NRT_TIMEOUT, 5, "an operation took too long")                                                                 \
  X(NRT_HW_ERROR, 6, "a hardware failure")                                                                        \
  X(NRT_QUEUE_FULL, 7, "a queue is full")                                                                         \
  X(NRT_LOAD_NOT_ENOUGH_NC, 9, "the model needs more NeuronCores than there are")                                 \
  X(NRT_UNSUPPORTED_NEFF_VERSION, 10, "the NEFF's version is not supported")                                      \
  X(NRT_FAIL_HOST_MEM_ALLOC, 11, "host memory could not be allocated")                                            \
  X(NRT_UNINITIALIZED, 13, "the runtime is not initialised")                                                      \
  X(NRT_CLOSED, 14, "the runtime is closed")                                                                      \
  X(NRT_QUEUE_EMPTY, 15, "a queue is empty")                                                                      \
  X(NRT_EXEC_UNIT_UNRECOVERABLE, 101, "the execution unit cannot go on; the runtime must be initialised anew")    \
  X(NRT_EXEC_BAD_INPUT, 1002, "an input of an execution is invalid")                                              \
  X(NRT_EXEC_COMPLETED_WITH_NUM_ERR, 1003, "the execution completed with numerical errors (NaN)")                 \
  X(NRT_EXEC_COMPLETED_WITH_ERR, 1004, "the execution completed with errors")                                     \
  X(NRT_EXEC_NC_BUSY, 1005, "the NeuronCore is in use")                                                           \
  X(NRT_EXEC_OOB, 1006, "an indirect access out of bounds")                                                       \
  X(NRT_COLL_PENDING, 1100, "a collective is under way")                                                          \
  X(NRT_EXEC_HW_ERR_COLLECTIVES, 1200, "a hardware error in a collective")                                        \
  X(NRT_EXEC_HW_ERR_HBM_UE, 1201, "an uncorrectable error in device memory")                                      \
  X(NRT_EXEC_HW_ERR_NC_UE, 1202, "an uncorrectable error in on-chip memory")                                      \
  X(NRT_EXEC_HW_ERR_DMA_ABORT, 1203, "a DMA engine aborted")                                                      \
  X(NRT_EXEC_SW_NQ_OVERFLOW, 1204, "a notification queue overflowed")                                             \
  X(NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE, 1205, "a repairable uncorrectable error in device memory")                 \
  X(NRT_NETWORK_PROXY_FAILURE, 1206, "the network proxy failed")

typedef enum NRT_STATUS {
#define NRT_X(name, value, meaning) name = value,
  NRT_STATUS_LIST(NRT_X)
#undef NRT_X
} NRT_STATUS;
const char *nrt_get_status_as_str(NRT_STATUS status);

/* ---- types ---- */
typedef struct nrt_model nrt_model_t;
typedef struct nrt_tensor nrt_tensor_t;
typedef struct nrt_cc_context nrt_cc_context_t;
typedef void nrt_tensor_set_t;

typedef enum nrt_tensor_placement { NRT_TENSOR_PLACEMENT_DEVICE, NRT_TENSOR_PLACEMENT_HOST, NRT_TENSOR_PLACEMENT_VIRTUAL } nrt_tensor_placement_t;

typedef enum nrt_framework_type {
  NRT_FRAMEWORK_TYPE_INVALID, NRT_FRAMEWORK_TYPE_NO_FW, NRT_FRAMEWORK_TYPE_TENSORFLOW, NRT_FRAMEWORK_TYPE_PYTORCH, NRT_FRAMEWORK_TYPE_MXNET,
  NRT_FRAMEWORK_TYPE_PRECHECK
} nrt_framework_type_t;

enum {
  NRT_INSTANCE_UNKNOWN, NRT_INSTANCE_INF1, NRT_INSTANCE_TRN1, NRT_INSTANCE_TRN1N, NRT_INSTANCE_INF2, NRT_INSTANCE_TRN2, NRT_INSTANCE_TRN2N, NRT_INSTANCE_INF2E,
  NRT_INSTANCE_TRN2P, NRT_INSTANCE_TRN2U, NRT_INSTANCE_TRN2E, NRT_INSTANCE_TRN2EU, NRT_INSTANCE_TRN2AC, NRT_INSTANCE_TRN2UAC, NRT_INSTANCE_TRN3, NRT_INSTANCE_TRN3PDS98
};
enum {
  NRT_INSTANCE_SIZE_1XL, NRT_INSTANCE_SIZE_2XL, NRT_INSTANCE_SIZE_4XL, NRT_INSTANCE_SIZE_6XL, NRT_INSTANCE_SIZE_8XL, NRT_INSTANCE_SIZE_24XL, NRT_INSTANCE_SIZE_32XL,
  NRT_INSTANCE_SIZE_48XL, NRT_INSTANCE_SIZE_3XL, NRT_INSTANCE_SIZE_UNKNOWN
};

typedef enum nrt_dtype {
  NRT_DTYPE_UNKNOWN = 0, NRT_DTYPE_INVALID = 0, NRT_DTYPE_UINT64 = 1, NRT_DTYPE_INT8 = 2, NRT_DTYPE_UINT8 = 3, NRT_DTYPE_INT16 = 4, NRT_DTYPE_UINT16 = 5,
  NRT_DTYPE_BFLOAT16 = 6, NRT_DTYPE_FLOAT16 = 7, NRT_DTYPE_INT32 = 8, NRT_DTYPE_UINT32 = 9, NRT_DTYPE_FLOAT32 = 0xA, NRT_DTYPE_FP32R = 0xB, NRT_DTYPE_INT64 = 0xC,
  NRT_DTYPE_FP8_E3 = 0xD, NRT_DTYPE_FP8_E4 = 0xE, NRT_DTYPE_FP8_E5 = 0xF
} nrt_dtype_t;
typedef enum nrt_op_type { NRT_OP_ADD = 0, NRT_OP_FMA = 1, NRT_OP_MAX = 2, NRT_OP_MIN = 3, NRT_OP_INVALID = 0xF } nrt_op_type_t;
typedef enum nrt_cc_op_type { NRT_CC_ALLGATHER, NRT_CC_ALLREDUCE, NRT_CC_REDUCESCATTER } nrt_cc_op_type_t;

typedef struct nrt_instance_info { uint32_t family, size; char arch_name[16]; char device_revision[8]; } nrt_instance_info_t;
typedef struct nrt_tensor_batch_op { uint64_t offset, size; void *buffer; } nrt_tensor_batch_op_t;
typedef struct nrt_tensor_batch { const nrt_tensor_t *tensor; const nrt_tensor_batch_op_t *ops; uint32_t num_ops; } nrt_tensor_batch_t;
typedef struct nrt_tensor_device_allocation_info { uint64_t physical_address; size_t size; int hbm_index; } nrt_tensor_device_allocation_info_t;
typedef struct nrt_vnc_memory_stats { size_t bytes_used, bytes_limit; } nrt_vnc_memory_stats_t;
typedef struct nrt_cc_comm { uint32_t *replica_group; uint32_t rank, rank_n, ctx_device_id, ctx_device_count, vnc; } nrt_cc_comm_t;
typedef struct nrt_tensor_list { nrt_tensor_t **tensors; size_t num_tensors; } nrt_tensor_list_t;
typedef struct nrt_version { uint64_t rt_major, rt_minor, rt_patch, rt_maintenance; char rt_detail[128], git_hash[64]; } nrt_version_t;

/* ---- process, devices ---- */
NRT_STATUS nrt_get_version(nrt_version_t *out, size_t size);
NRT_STATUS nrt_get_instance_info(nrt_instance_info_t *out, size_t size);
NRT_STATUS nrt_init(nrt_framework_type_t framework, const char *fw_version, const char *fal_version);
void nrt_close(void);
/* The counts may be asked for before nrt_init. */
NRT_STATUS nrt_get_total_vnc_count(uint32_t *out);
NRT_STATUS nrt_get_visible_vnc_count(uint32_t *out);
NRT_STATUS nrt_get_total_nc_count(uint32_t *out);   /* deprecated */
NRT_STATUS nrt_get_visible_nc_count(uint32_t *out); /* deprecated */
NRT_STATUS nrt_get_vnc_memory_stats(uint32_t vnc, nrt_vnc_memory_stats_t *out, size_t size_in, size_t *size_out);
NRT_STATUS nrt_host_device_id_get(int neuron_dev, uint32_t *out);
NRT_STATUS nrt_host_device_id_rid_map_get(uint32_t *count, uint32_t *map);
NRT_STATUS nrt_get_hbm_mmap_va(int device_id, int hbm_idx, void **addr, size_t *size);
NRT_STATUS nrt_get_attached_efa_bdf(const void *va, char *bdf, size_t *len);
NRT_STATUS nrt_get_dmabuf_fd(uint64_t va, uint64_t size, int *fd);

/* ---- models ---- */
NRT_STATUS nrt_load(const void *neff, size_t size, int32_t vnc /* -1: the first free one */, int32_t vnc_count /* -1 */, nrt_model_t **out);
NRT_STATUS nrt_load_collectives(const void *neff, size_t size, int32_t vnc, int32_t vnc_count, uint32_t ctx_device_id, uint32_t ctx_device_count, nrt_model_t **out);
NRT_STATUS nrt_unload(nrt_model_t *model);
NRT_STATUS nrt_get_model_nc_count(const nrt_model_t *model, uint32_t *out);  /* deprecated */
NRT_STATUS nrt_get_model_vnc_count(const nrt_model_t *model, uint32_t *out); /* deprecated */
NRT_STATUS nrt_execute(nrt_model_t *model, const nrt_tensor_set_t *in, nrt_tensor_set_t *out);
NRT_STATUS nrt_execute_repeat(nrt_model_t *model, const nrt_tensor_set_t *in, nrt_tensor_set_t *out, int repeat_count);
NRT_STATUS nrt_build_global_comm(int32_t vnc, uint32_t g_device_id, uint32_t g_device_count);
NRT_STATUS nrt_cc_global_comm_init(uint32_t vnc, uint32_t g_device_id, uint32_t g_device_count);

/* ---- tensors ---- */
NRT_STATUS nrt_tensor_allocate(nrt_tensor_placement_t placement, int vnc /* -1 for host */, size_t size, const char *name /* may be NULL */, nrt_tensor_t **out);
NRT_STATUS nrt_tensor_allocate_empty(const char *name, nrt_tensor_t **out);
NRT_STATUS nrt_tensor_allocate_slice(const nrt_tensor_t *src, size_t offset, size_t size, const char *name, nrt_tensor_t **out); /* shares the memory */
NRT_STATUS nrt_tensor_attach_buffer(nrt_tensor_t *tensor, void *buffer, size_t size); /* the buffer stays the caller's */
void nrt_tensor_free(nrt_tensor_t **tensor);
NRT_STATUS nrt_tensor_read(const nrt_tensor_t *tensor, void *buf, size_t offset, size_t size);
NRT_STATUS nrt_tensor_write(nrt_tensor_t *tensor, const void *buf, size_t offset, size_t size);
NRT_STATUS nrt_tensor_read_batch(const nrt_tensor_batch_t *batches, uint64_t n, bool unsafe);
NRT_STATUS nrt_tensor_write_batch(const nrt_tensor_batch_t *batches, uint64_t n, bool unsafe);
NRT_STATUS nrt_tensor_copy(const nrt_tensor_t *src, size_t src_offset, nrt_tensor_t *dst, size_t dst_offset, size_t size); /* device to device: one core only */
NRT_STATUS nrt_tensor_memset(nrt_tensor_t *tensor, uint64_t offset, int value, size_t size);
size_t nrt_tensor_get_size(const nrt_tensor_t *tensor);
void *nrt_tensor_get_va(const nrt_tensor_t *tensor);
NRT_STATUS nrt_tensor_get_device_allocation_info(const nrt_tensor_t *tensor, nrt_tensor_device_allocation_info_t *out);
NRT_STATUS nrt_tensor_check_output_completion(const nrt_tensor_t *tensor, int64_t timeout_us /* < 0: no limit */, uint64_t expected_count);
NRT_STATUS nrt_tensor_reset_output_completion(nrt_tensor_t *tensor);

NRT_STATUS nrt_allocate_tensor_set(nrt_tensor_set_t **out);
void nrt_destroy_tensor_set(nrt_tensor_set_t **set);
NRT_STATUS nrt_add_tensor_to_tensor_set(nrt_tensor_set_t *set, const char *name, nrt_tensor_t *tensor); /* the tensor outlives the set */
NRT_STATUS nrt_get_tensor_from_tensor_set(nrt_tensor_set_t *set, const char *name, nrt_tensor_t **out);

/* ---- asynchronous: buffers and tensors live until their operation is complete ---- */
typedef enum nrta_xu { NRTA_XU_TENSOR_READ, NRTA_XU_TENSOR_WRITE, NRTA_XU_TENSOR_OP, NRTA_XU_COMPUTE, NRTA_XU_COLLECTIVES } nrta_xu_t;
typedef uint64_t nrta_seq_t; /* the upper 16 bits: the unit; the lower 48: the number within it */
enum { NRTA_SEQ_UNIT_SHIFT = 48 };
typedef struct nrta_error { nrta_seq_t seq_id; uint64_t error_code; } nrta_error_t;
typedef struct nrta_error_tracker nrta_error_tracker_t;

NRT_STATUS nrta_tensor_write(nrt_tensor_t *tensor, const void *buf, uint64_t offset, uint64_t size, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out);
NRT_STATUS nrta_tensor_read(void *buf, nrt_tensor_t *tensor, uint64_t offset, uint64_t size, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out);
NRT_STATUS nrta_tensor_copy(nrt_tensor_t *src, uint64_t src_offset, nrt_tensor_t *dst, uint64_t dst_offset, uint64_t size, int queue, nrta_error_tracker_t *errors,
                            nrta_seq_t *out);
NRT_STATUS nrta_execute_schedule(nrt_model_t *model, const nrt_tensor_set_t *in, nrt_tensor_set_t *result, int queue /* 0 */, nrta_error_tracker_t *errors, nrta_seq_t *out);
NRT_STATUS nrta_cc_prepare(nrt_cc_comm_t *comm, nrt_tensor_list_t *in, nrt_tensor_list_t *result, nrt_dtype_t dtype, nrt_op_type_t op, nrt_cc_op_type_t cc_op,
                           nrt_cc_context_t **out);
NRT_STATUS nrta_cc_schedule(nrt_cc_context_t **context, int queue, nrta_error_tracker_t *errors, nrta_seq_t *out);
NRT_STATUS nrta_is_completed(nrta_seq_t seq, bool *out);
NRT_STATUS nrta_get_sequence(uint32_t lnc, nrta_xu_t unit, int queue, nrta_seq_t *out); /* the last completed one */
NRT_STATUS nrta_get_completion_handle(nrta_seq_t seq, int *fd);                        /* for poll(), then close() */
NRT_STATUS nrta_error_tracker_create(uint32_t lnc, nrta_error_tracker_t **out);
void nrta_error_tracker_destroy(nrta_error_tracker_t *errors);
NRT_STATUS nrta_error_tracker_get_list(nrta_error_tracker_t *errors, const nrta_error_t **list, size_t *count); /* the list is the tracker's */

/* ---- experimental ---- */
enum { NRT_TENSOR_NAME_MAX = 256 };
typedef enum nrt_tensor_usage { NRT_TENSOR_USAGE_INPUT, NRT_TENSOR_USAGE_OUTPUT } nrt_tensor_usage_t;
typedef struct nrt_tensor_info {
  char name[NRT_TENSOR_NAME_MAX];
  nrt_tensor_usage_t usage;
  size_t size; /* bytes */
  nrt_dtype_t dtype;
  uint32_t *shape;
  uint32_t ndim;
} nrt_tensor_info_t;
typedef struct nrt_tensor_info_array {
  uint64_t tensor_count;
  nrt_tensor_info_t tensor_array[];
} nrt_tensor_info_array_t;
typedef struct nrt_model_info { uint32_t vnc; } nrt_model_info_t;

NRT_STATUS nrt_get_model_tensor_info(nrt_model_t *model, nrt_tensor_info_array_t **out);
NRT_STATUS nrt_free_model_tensor_info(nrt_tensor_info_array_t *info);
NRT_STATUS nrt_get_model_instance_count(nrt_model_t *model, uint32_t *out);
NRT_STATUS nrt_get_model_info(const nrt_model_t *model, nrt_model_info_t *out, size_t size_in, size_t *size_out);
NRT_STATUS nrt_barrier(int32_t vnc, uint32_t id, uint32_t count);
NRT_STATUS nrt_all_gather(int32_t vnc, uint32_t id, uint32_t count, uint32_t rank_input_size, void *in, void *out);
NRT_STATUS nrt_async_drain_queued_execs(int32_t vnc);
NRT_STATUS nrt_memcpy_to_device(void *dst, const void *src, size_t size);
NRT_STATUS nrt_trace_start(bool trace_mem);
NRT_STATUS nrt_trace_stop(const char *filename);
NRT_STATUS nrt_profile_start(nrt_model_t *model, const char *filename);
NRT_STATUS nrt_profile_stop(const char *filename);

typedef struct nrt_inspect_config nrt_inspect_config_t;
NRT_STATUS nrt_inspect_begin(void);
NRT_STATUS nrt_inspect_stop(void);
NRT_STATUS nrt_inspect_begin_with_options(nrt_inspect_config_t *config);
NRT_STATUS nrt_inspect_config_allocate(nrt_inspect_config_t **out);
NRT_STATUS nrt_inspect_config_set_defaults(nrt_inspect_config_t *config);
NRT_STATUS nrt_inspect_config_free(nrt_inspect_config_t *config);
NRT_STATUS nrt_inspect_config_set_output_dir(nrt_inspect_config_t *config, const char *folder);

/* ---- layouts, on the 64-bit systems that the runtime exists for ---- */
#ifdef __cplusplus
#define NRT_SAME(a, b) static_assert((a) == (b), "layout of the published header")
#else
#define NRT_SAME(a, b) _Static_assert((a) == (b), "layout of the published header")
#endif
NRT_SAME(sizeof(NRT_STATUS), 4);
NRT_SAME(sizeof(nrt_instance_info_t), 32);
NRT_SAME(sizeof(nrt_tensor_batch_op_t), 24);
NRT_SAME(sizeof(nrt_tensor_batch_t), 24);
NRT_SAME(sizeof(nrt_tensor_device_allocation_info_t), 24);
NRT_SAME(sizeof(nrt_vnc_memory_stats_t), 16);
NRT_SAME(sizeof(nrt_cc_comm_t), 32);
NRT_SAME(sizeof(nrt_tensor_list_t), 16);
NRT_SAME(sizeof(nrt_version_t), 224);
NRT_SAME(sizeof(nrta_error_t), 16);
NRT_SAME(sizeof(nrt_tensor_info_t), 296);
NRT_SAME(offsetof(nrt_tensor_info_t, size), 264);
NRT_SAME(offsetof(nrt_tensor_info_t, shape), 280);
NRT_SAME(offsetof(nrt_tensor_info_array_t, tensor_array), 8);
#undef NRT_SAME

#ifdef __cplusplus
}
#endif
#endif
