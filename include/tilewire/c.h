// The C interface: join a team, make an operator, run it. For C programs, and for languages that load
// libtilewire_c.so. examples/04_c_api is a complete program; docs/c_api.md is the guide.
#pragma once

#include <stdint.h>

// The version of this header, for #if. tilewire_version() returns the version of the library.
#define TILEWIRE_VERSION_MAJOR 0
#define TILEWIRE_VERSION_MINOR 1
#define TILEWIRE_VERSION_PATCH 0
#define TILEWIRE_VERSION (TILEWIRE_VERSION_MAJOR * 10000 + TILEWIRE_VERSION_MINOR * 100 + TILEWIRE_VERSION_PATCH)

#if defined(__GNUC__)
#define TILEWIRE_API __attribute__((visibility("default")))
#else
#define TILEWIRE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Rules for all functions:
// - They return TILEWIRE_OK or the kind of the error; tilewire_last_error() returns its text. They throw no exception.
// - Input text is UTF-8, ends with a zero byte, and is copied. Returned text belongs to the library.
// - A function that fails sets the targets of its output pointers to null or zero.
// - Structs of options begin with their size, so that later versions can add fields. Fields that the caller's header
//   lacks have their defaults. TILEWIRE_INVALID_INPUT if the size matches no version, or if a field that the library
//   lacks is not zero.
// - "Collective": every rank of the team calls the function, in the same order. All other functions concern one rank.
//   If ranks are at different functions, all ranks get TILEWIRE_INVALID_INPUT: "ranks call different collectives: rank
//   0 make_op, rank 1 barrier". If ranks run different operators, or one rank runs an operator while another rank is at
//   another function, they wait until TILEWIRE_TIMEOUT.
// - Only one thread at a time may use a group and its operators. Different threads may use different groups at once.
// - With "cuda", joining makes the group's GPU the thread's current device. Other calls restore the current device if
//   the process has a context on it.
// - TILEWIRE_INVALID_INPUT for a null handle, a group that was left, or an operator that was freed. NOTE: not if a
//   newer handle has the same address.

/// The kind of an error, which tells the caller what to do. The same kinds as tilewire::ErrorKind.
typedef int32_t tilewire_status;
enum {
  TILEWIRE_OK = 0,
  TILEWIRE_INVALID_INPUT = 1,  ///< the caller's sizes, names, pointers or tensors break a rule
  TILEWIRE_UNSUPPORTED = 2,   ///< a valid request that this machine, backend or schedule cannot do, or lacks memory for
  TILEWIRE_REFUSED_PLAN = 3,  ///< the checker did not prove the plan
  TILEWIRE_WRONG_RESULT = 4,  ///< a verification failed; callers report their own checks by tilewire_fail
  TILEWIRE_RANK_LOST = 5,     ///< a peer died or left while this rank needed it
  TILEWIRE_TIMEOUT = 6,       ///< a wait reached its deadline
  TILEWIRE_INTERNAL = 7       ///< a defect of tilewire
};

/// Element types: four bytes (fp32, int32), two bytes (bf16, fp16), or one byte (fp8_e4m3, int8: of quantised outputs
/// only) per element.
typedef int32_t tilewire_dtype;
enum {
  TILEWIRE_FP32 = 0,
  TILEWIRE_BF16 = 1,
  TILEWIRE_FP16 = 2,
  TILEWIRE_INT32 = 3,
  TILEWIRE_FP8_E4M3 = 4,
  TILEWIRE_INT8 = 5
};

/// A view of a matrix in memory, row by row. The tensor does not own `data`.
typedef struct tilewire_tensor {
  void* data;            ///< may be null only if there are no elements
  tilewire_dtype dtype;  ///< TILEWIRE_FP32, ...
  int64_t rows;
  int64_t cols;
  int64_t row_stride;  ///< elements from one row to the next; `cols` if the matrix is dense
} tilewire_tensor;

/// One rank's membership in a team.
typedef struct tilewire_group tilewire_group;
/// An operator of a group, ready to run.
typedef struct tilewire_op tilewire_op;

// ---- Errors and facts. Callable from any thread, at any time. ----

/// Text of this thread's last failed call: the rule and the value seen. Empty if no call has failed. Valid until this
/// thread's next failed call. Successful calls do not change it.
TILEWIRE_API const char* tilewire_last_error(void);
/// Kind of this thread's last failed call; TILEWIRE_OK if no call has failed. For functions that return no status.
TILEWIRE_API tilewire_status tilewire_last_error_status(void);
/// "ok", "invalid_input", "unsupported", ...; "unknown" for other numbers. Static text.
TILEWIRE_API const char* tilewire_status_name(tilewire_status status);
/// Version of the library, "0.1.0". Static text.
TILEWIRE_API const char* tilewire_version(void);
/// TILEWIRE_OK if this machine and build can run the backend, "host" or "cuda". TILEWIRE_UNSUPPORTED with the reason.
/// TILEWIRE_INVALID_INPUT for an unknown name; the text lists the known ones.
TILEWIRE_API tilewire_status tilewire_check_backend(const char* backend);

// ---- Teams. ----

/// A value of tilewire_join_options.order: the caller keeps the calls and graph replays of a rank in sequence, as one
/// stream does, and the library adds no events between them. TILEWIRE_INVALID_INPUT if two calls overlap; the team is
/// then broken.
#define TILEWIRE_ORDER_STREAM 1

/// How to join a team. The caller sets `size`. One of the two functions below fills the other fields; the caller may
/// then change them: tilewire_join_options options = {.size = sizeof options};
typedef struct tilewire_join_options {
  uint64_t size;  ///< sizeof(tilewire_join_options): tells the library which fields the caller's header has
  int32_t rank;
  int32_t num_ranks;
  int32_t local_rank;  ///< index of the rank on this host; selects the GPU; -1 = same as `rank`
  const char* job;     ///< the ranks of a team find each other by it; null = TILEWIRE_JOB, else from the launcher
  /// Limit of a rank's symmetric memory, in bytes; memory is committed on demand. "cuda": the arena and the operators'
  /// shared workspace have this limit each.
  int64_t arena_bytes;
  double timeout_s;  ///< deadline of every wait, in seconds
  int32_t order;     ///< cuda: keeps calls in sequence: 0 = the library, TILEWIRE_ORDER_STREAM = the caller
  int32_t sms;       ///< cuda: limit of the SMs that the group's kernels use on a GPU; 0 = all: docs/cuda.md
} tilewire_join_options;

/// Rank 0 of 1, an arena of 16 GiB, timeout 30 s.
TILEWIRE_API tilewire_status tilewire_join_options_default(tilewire_join_options* options);
/// The options that torchrun, mpirun, SLURM or the caller put into the environment (RANK and WORLD_SIZE or their
/// equivalents; TILEWIRE_TIMEOUT_S). TILEWIRE_INVALID_INPUT if they are missing or malformed, or if variables of
/// several launchers contradict each other. TILEWIRE_UNSUPPORTED if some ranks are on other hosts.
TILEWIRE_API tilewire_status tilewire_join_options_from_env(tilewire_join_options* options);

/// Join the team of `options` under `backend`. Collective. The caller owns the group and ends it by tilewire_leave.
/// TILEWIRE_TIMEOUT names the ranks that did not join.
TILEWIRE_API tilewire_status tilewire_join(const char* backend, const tilewire_join_options* options,
                                           tilewire_group** group);
/// Leave the team and free the tensors of the arena. Free the group's operators first: if operators are left, the
/// function changes nothing and returns TILEWIRE_INVALID_INPUT. A peer that still needs this rank gets
/// TILEWIRE_RANK_LOST. Null is allowed. TILEWIRE_INVALID_INPUT for a group that was already left.
TILEWIRE_API tilewire_status tilewire_leave(tilewire_group* group);

/// The function that each rank of tilewire_launch calls. It returns TILEWIRE_OK or the status of the call that failed.
/// Any other number is an error of the rank. No exception may leave it: see docs/c_api.md. `user` is the pointer given
/// to tilewire_launch. The group ends when the function returns; free all operators before that, else tilewire_launch
/// returns TILEWIRE_INVALID_INPUT.
typedef tilewire_status (*tilewire_rank_function)(tilewire_group* group, void* user);

/// How to launch ranks. Zero in every field but `size` means the defaults.
typedef struct tilewire_launch_options {
  uint64_t size;        ///< sizeof(tilewire_launch_options)
  const char* backend;  ///< null = "host"
  int32_t threads;      ///< 0 = ranks are child processes; any other value = ranks are threads of this process
  int64_t arena_bytes;  ///< 0 = 16 GiB
  double timeout_s;     ///< 0 = 30; TILEWIRE_INVALID_INPUT if negative
  int32_t order;        ///< as in tilewire_join_options
  int32_t sms;          ///< as in tilewire_join_options
} tilewire_launch_options;

/// Start ranks on this host, call `body` on each, and return when all have ended. Returns TILEWIRE_OK, or the error of
/// the lowest rank that failed by itself. TILEWIRE_RANK_LOST if a child process was killed, or ended before its `body`
/// returned. Null options are the defaults.
/// Ranks that are threads call `body` at the same time, each on a thread of its own. Child processes are forked from
/// the calling thread: use them only while the process has no other threads. Changes that `body` makes in memory stay
/// in its process.
TILEWIRE_API tilewire_status tilewire_launch(int32_t num_ranks, const tilewire_launch_options* options,
                                             tilewire_rank_function body, void* user);

/// This rank, from 0; -1 if the group is null or not live.
TILEWIRE_API int32_t tilewire_rank(const tilewire_group* group);
/// Number of ranks of the team; -1 if the group is null or not live.
TILEWIRE_API int32_t tilewire_num_ranks(const tilewire_group* group);
/// "host" or "cuda"; null if the group is null or not live. Valid as long as the group.
TILEWIRE_API const char* tilewire_backend(const tilewire_group* group);
/// Return when all ranks have called it. Collective. TILEWIRE_RANK_LOST, TILEWIRE_TIMEOUT.
/// It does not wait for work that is enqueued in streams.
TILEWIRE_API tilewire_status tilewire_barrier(tilewire_group* group);
/// Report to all ranks that this rank has failed: their waits end with TILEWIRE_RANK_LOST and this text, and the only
/// valid call on the group is tilewire_leave. Returns `status`, so that a rank's function can end with it, and makes
/// `text` this thread's last error. TILEWIRE_INVALID_INPUT if the group is null or not live, the text is null, or the
/// status is not a kind of error.
TILEWIRE_API tilewire_status tilewire_fail(tilewire_group* group, tilewire_status status, const char* text);

// ---- Memory of the arena: peers can address it. ----

/// Allocate a zeroed, dense tensor in the arena, of the same shape on every rank. Collective. The group owns the memory
/// until tilewire_free or the end of the group. With "cuda" it is GPU memory. Operators use such tensors in place for
/// the buffers that the problem's `arena` names. TILEWIRE_INVALID_INPUT if the arena is too small.
TILEWIRE_API tilewire_status tilewire_allocate(tilewire_group* group, tilewire_dtype dtype, int64_t rows, int64_t cols,
                                               tilewire_tensor* tensor);
/// Return a tensor of tilewire_allocate to the arena, and clear `*tensor`. The memory is reused after all ranks have
/// freed it. No running call may use the tensor. TILEWIRE_INVALID_INPUT if no tensor of the arena starts at `data`.
TILEWIRE_API tilewire_status tilewire_free(tilewire_group* group, tilewire_tensor* tensor);
/// Copy bytes between host memory, the arena, and with "cuda" the memory of this rank's GPU. The copy is complete on
/// return. It does not wait for callers' streams. TILEWIRE_INVALID_INPUT for a negative number of bytes, or for bytes
/// from or to null.
TILEWIRE_API tilewire_status tilewire_copy(tilewire_group* group, void* to, const void* from, int64_t bytes);

// ---- Operators. ----

/// Make an operator. Collective: all ranks give the same problem and config.
/// `problem` is JSON: {"op": "all_gather_gemm", "m": 512, "n": 1024, "k": 256, "dtype": "fp32"}. Sizes are global, over
/// all ranks. The fields are those of tilewire::Problem (docs/c_api.md); unknown fields are errors.
/// `config` is one of:
/// - null or "auto": use the remembered winner, else the one that tilewire ships for the machine, else measure the
///   candidates and remember the winner;
/// - "auto_quick": measure only the first few candidates;
/// - "auto_off": measure nothing; use the remembered winner of the nearest M, else a first choice;
/// - "auto_again": measure again, even if a winner is remembered or shipped, and replace it;
/// - the name of a schedule, "fused": use the first of its candidates for this problem and team, unmeasured;
/// - JSON, {"schedule": "fused", "tile_m": 64}: knobs of tilewire::Config. Missing knobs have the fixed defaults of
///   Config, the same for all problems and machines.
/// If the text of one rank is malformed, all ranks get its TILEWIRE_INVALID_INPUT. The group keeps the operator until
/// tilewire_free_op. TILEWIRE_INVALID_INPUT, TILEWIRE_UNSUPPORTED, TILEWIRE_REFUSED_PLAN.
TILEWIRE_API tilewire_status tilewire_make_op(tilewire_group* group, const char* problem, const char* config,
                                              tilewire_op** op);
/// Free an operator. Each rank may call it at any time after the operator's calls are complete. Null is allowed.
/// TILEWIRE_INVALID_INPUT if the operator was already freed, or if its group has ended.
TILEWIRE_API tilewire_status tilewire_free_op(tilewire_op* op);

/// Make one call. Collective. Tensors have the order and shapes of docs/operators.md: a, b, bias, residual,
/// norm_weight, norm_bias (those that there are); then the outputs. They belong to the caller. The caller may neither
/// change nor free them until the call is complete. No output may overlap another tensor of the call, except that the
/// residual and the output of its shape may be the same tensor (docs/operators.md). Inputs may overlap each other.
/// Tensors with equal `row_stride` may be column ranges of one matrix. Tensors with different strides overlap unless
/// one ends before the other begins.
/// `stream`, with "cuda": a cudaStream_t of this rank's GPU, with CUDA's meaning. 0 (null) and 1 are the legacy default
/// stream, which PyTorch uses by default; 2 is the per-thread default stream. The call is enqueued behind the work in
/// the stream, and the function returns without waiting. If ranks share a GPU, 0 and 1 are TILEWIRE_INVALID_INPUT,
/// because they are one stream for all ranks, and the call is complete on return. With "host" the stream is ignored,
/// and the call is complete on return.
/// TILEWIRE_INVALID_INPUT, before anything runs, for a wrong number, shape, type or stride, a tensor that spans more
/// than 2^48 bytes, data not aligned to its elements, and an output that overlaps. With "cuda" also for memory that is
/// neither this rank's GPU memory nor pinned or managed, and for a stream of another GPU (unless it is being captured).
/// TILEWIRE_UNSUPPORTED for rows that are not dense if the config calls NCCL. TILEWIRE_RANK_LOST and TILEWIRE_TIMEOUT
/// break the group. A later call returns the errors of enqueued work.
TILEWIRE_API tilewire_status tilewire_run(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                                          const tilewire_tensor* outputs, int32_t num_outputs, void* stream);
/// As tilewire_run, but in a stream of the group, and complete on return. With "cuda" the call runs after the work of
/// the legacy default stream, which includes cudaMemcpy and the work of streams without cudaStreamNonBlocking. It waits
/// for no other stream. It waits for no stream at all if ranks share a GPU, or while a stream without
/// cudaStreamNonBlocking is being captured; then call cudaStreamSynchronize first.
TILEWIRE_API tilewire_status tilewire_run_and_wait(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                                                   const tilewire_tensor* outputs, int32_t num_outputs);
/// Return when the calls that tilewire_run enqueued on the operator's group have ended: eager calls, and replays of
/// graphs that have begun. (Replays only with the default order, and if no ranks share a GPU.) With "host" all calls
/// have already ended. Returns the status of the call that failed; tilewire_last_status has it too.
/// TILEWIRE_INVALID_INPUT if the operator is null or not live.
TILEWIRE_API tilewire_status tilewire_wait(tilewire_op* op);
/// Status and text of the operator's last tilewire_run, tilewire_run_and_wait or tilewire_wait: TILEWIRE_OK and "" if
/// it succeeded or there was none. The text is valid until the next of these calls. `text` may be null.
/// TILEWIRE_INVALID_INPUT for a null status, or an operator that is null or not live.
TILEWIRE_API tilewire_status tilewire_last_status(const tilewire_op* op, tilewire_status* status, const char** text);
/// Bytes of workspace that the operator uses on this rank: `symmetric` in the arena, without signals, and `local`. On
/// GPUs most of it belongs to the group, and all its operators use the same memory. Either pointer may be null.
/// TILEWIRE_INVALID_INPUT if the operator is null or not live.
TILEWIRE_API tilewire_status tilewire_workspace(const tilewire_op* op, int64_t* symmetric, int64_t* local);
/// The schedule that runs, the reason for its choice, and the other candidates. Null if the operator is null or not
/// live. Valid as long as the operator.
TILEWIRE_API const char* tilewire_explain(const tilewire_op* op);
/// The config that runs, as JSON that tilewire_make_op accepts. Null if the operator is null or not live. Valid as long
/// as the operator.
TILEWIRE_API const char* tilewire_config(const tilewire_op* op);

#ifdef __cplusplus
}
#endif
