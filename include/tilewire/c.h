// The C interface: join a team, make an operator, run it. For C programs, and for languages that load
// libtilewire_c.so. A complete program is examples/04_c_api; docs/c_api.md says how the parts fit together.
#pragma once

#include <stdint.h>

// The version of this header, for #if; tilewire_version() is that of the library.
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
// - They return TILEWIRE_OK, or the kind of the error; tilewire_last_error() is its text. No C++ exception leaves.
// - Text that goes in is UTF-8, ends with a zero byte, and is copied. Text that comes out belongs to the library.
// - What a function gives through a pointer is null or zero where the function fails.
// - Structs of options begin with their size, so that they may grow: fields that the caller's header lacks have their
//   defaults. TILEWIRE_INVALID_INPUT for a size of no version, and where the library lacks fields that are not zero.
// - "Collective": every rank of the team calls it, in the same order. The others are calls of one rank. Where ranks are
//   at different functions all get TILEWIRE_INVALID_INPUT, "ranks call different collectives: rank 0 make_op, rank 1
//   barrier"; where they run different operators, or one runs while another does something else, they wait until
//   TILEWIRE_TIMEOUT.
// - A group and its operators serve one thread at a time. Different groups serve different threads at once.
// - Under "cuda" joining makes the group's GPU the thread's current device; other calls leave that as it was, where the
//   process uses that device.
// - A group that was left and an operator that was freed are TILEWIRE_INVALID_INPUT, as a null pointer is. NOTE: not
//   where another handle, which was made since, has the same address.

/// What went wrong, as a caller can act on it. The same kinds as tilewire::ErrorKind.
typedef int32_t tilewire_status;
enum {
  TILEWIRE_OK = 0,
  TILEWIRE_INVALID_INPUT = 1,  ///< the caller's sizes, names, pointers or tensors break a rule
  TILEWIRE_UNSUPPORTED = 2,   ///< a valid request that this machine, backend or schedule cannot do, or lacks memory for
  TILEWIRE_REFUSED_PLAN = 3,  ///< the checker did not prove the plan
  TILEWIRE_WRONG_RESULT = 4,  ///< a verification failed; for callers' own checks, see tilewire_fail
  TILEWIRE_RANK_LOST = 5,     ///< a peer died or left while it was needed
  TILEWIRE_TIMEOUT = 6,       ///< a wait reached its deadline
  TILEWIRE_INTERNAL = 7       ///< a defect of tilewire
};

/// Element types. Four bytes an element, or two (bf16, fp16).
typedef int32_t tilewire_dtype;
enum { TILEWIRE_FP32 = 0, TILEWIRE_BF16 = 1, TILEWIRE_FP16 = 2, TILEWIRE_INT32 = 3 };

/// A view of a matrix in memory, row by row. Whoever allocated `data` owns it.
typedef struct tilewire_tensor {
  void* data;            ///< null only where there are no elements
  tilewire_dtype dtype;  ///< TILEWIRE_FP32, ...
  int64_t rows;
  int64_t cols;
  int64_t row_stride;  ///< elements from one row to the next; `cols` where rows lie side by side
} tilewire_tensor;

/// One rank's membership in a team.
typedef struct tilewire_group tilewire_group;
/// An operator of a group, ready to run.
typedef struct tilewire_op tilewire_op;

// ---- Errors and facts. Any thread, at any time. ----

/// Text of the last failed call of this thread: the rule and the value seen. Empty where none has failed. Valid until
/// the next failed call of this thread. Calls that succeed leave it as it is.
TILEWIRE_API const char* tilewire_last_error(void);
/// Kind of the last failed call of this thread, TILEWIRE_OK where none has failed. For functions that return no status.
TILEWIRE_API tilewire_status tilewire_last_error_status(void);
/// "ok", "invalid_input", "unsupported", ...; "unknown" for other numbers. Static text.
TILEWIRE_API const char* tilewire_status_name(tilewire_status status);
/// Version of the library, "0.1.0". Static text.
TILEWIRE_API const char* tilewire_version(void);
/// TILEWIRE_OK where this machine and build can run the backend, "host" or "cuda". TILEWIRE_UNSUPPORTED with the
/// reason, TILEWIRE_INVALID_INPUT for unknown names, with the known ones.
TILEWIRE_API tilewire_status tilewire_check_backend(const char* backend);

// ---- Teams. ----

/// Of tilewire_join_options: each call or replay of a rank begins when the one before has ended, as in one stream; the
/// library puts no events between them. An overlap breaks the team: TILEWIRE_INVALID_INPUT.
#define TILEWIRE_ORDER_STREAM 1

/// How to join a team. `size` is the caller's; the rest is filled by one of the two functions below, then changed where
/// wanted: tilewire_join_options options = {.size = sizeof options};
typedef struct tilewire_join_options {
  uint64_t size;  ///< sizeof(tilewire_join_options): which of the fields below the caller knows
  int32_t rank;
  int32_t num_ranks;
  int32_t local_rank;  ///< rank among those of this host, which chooses the GPU; -1 = as `rank`
  const char* job;     ///< name under which ranks find each other; null = TILEWIRE_JOB, else what the launcher set
  /// Most symmetric memory of a rank, in bytes, committed as it is needed. "cuda": of the arena, and of workspace that
  /// operators share, each.
  int64_t arena_bytes;
  double timeout_s;  ///< deadline of every wait, in seconds
  int32_t order;     ///< cuda: who keeps calls one after another; 0 = the library, TILEWIRE_ORDER_STREAM = the caller
  int32_t sms;       ///< cuda: most SMs that the group's kernels take of a GPU, 0 = all: docs/cuda.md
} tilewire_join_options;

/// Rank 0 of 1, 16 GiB of arena, 30 s.
TILEWIRE_API tilewire_status tilewire_join_options_default(tilewire_join_options* options);
/// What torchrun, mpirun, SLURM or the caller put into the environment (RANK and WORLD_SIZE, or their equivalents;
/// TILEWIRE_TIMEOUT_S). TILEWIRE_INVALID_INPUT where they are missing or malformed, or launchers contradict each other;
/// TILEWIRE_UNSUPPORTED where some of the ranks are on other hosts.
TILEWIRE_API tilewire_status tilewire_join_options_from_env(tilewire_join_options* options);

/// Join the team of `options` under `backend`. Collective. The caller owns the group: tilewire_leave ends it.
/// TILEWIRE_TIMEOUT names the ranks that did not come.
TILEWIRE_API tilewire_status tilewire_join(const char* backend, const tilewire_join_options* options,
                                           tilewire_group** group);
/// End the membership, and free the tensors of its arena. Free its operators first: TILEWIRE_INVALID_INPUT where some
/// are left, and nothing happens. A peer that still needs this rank gets TILEWIRE_RANK_LOST. Null is allowed; a group
/// that has been left is TILEWIRE_INVALID_INPUT.
TILEWIRE_API tilewire_status tilewire_leave(tilewire_group* group);

/// What each rank of tilewire_launch does. Returns TILEWIRE_OK, or the status of the call that failed. Another number
/// is an error of the rank. No exception may leave it: see docs/c_api.md. `user` is the pointer that tilewire_launch
/// was given. The group ends when the function returns, and with it what is left of its operators.
typedef tilewire_status (*tilewire_rank_function)(tilewire_group* group, void* user);

/// How to launch ranks. All zero but `size` is the default.
typedef struct tilewire_launch_options {
  uint64_t size;        ///< sizeof(tilewire_launch_options)
  const char* backend;  ///< null = "host"
  int32_t threads;      ///< 0 = ranks are child processes; else threads of this process
  int64_t arena_bytes;  ///< 0 = 16 GiB
  double timeout_s;     ///< 0 = 30; less is TILEWIRE_INVALID_INPUT
  int32_t order;        ///< as tilewire_join_options
  int32_t sms;          ///< as tilewire_join_options
} tilewire_launch_options;

/// Start ranks on this host, call `body` on each, and return when all have ended: TILEWIRE_OK, or the error of the
/// lowest rank that failed by itself; TILEWIRE_RANK_LOST where a child process was killed, or ended before its `body`
/// returned. Null options are the default.
/// Ranks that are threads call `body` at once, from threads of their own. Child processes are forked from the calling
/// thread: use them before other threads exist; what `body` changes in memory stays in its process.
TILEWIRE_API tilewire_status tilewire_launch(int32_t num_ranks, const tilewire_launch_options* options,
                                             tilewire_rank_function body, void* user);

/// My rank, from 0; -1 for a group that is null or not live.
TILEWIRE_API int32_t tilewire_rank(const tilewire_group* group);
/// Number of ranks of the team; -1 for a group that is null or not live.
TILEWIRE_API int32_t tilewire_num_ranks(const tilewire_group* group);
/// "host" or "cuda"; null for a group that is null or not live. Valid as long as the group.
TILEWIRE_API const char* tilewire_backend(const tilewire_group* group);
/// Return when all ranks have called it. Collective. TILEWIRE_RANK_LOST, TILEWIRE_TIMEOUT.
/// Says nothing about work that is still enqueued in streams.
TILEWIRE_API tilewire_status tilewire_barrier(tilewire_group* group);
/// Tell all ranks that this one has failed: their waits end with TILEWIRE_RANK_LOST and this text, and the group can
/// only be left. Returns `status`, and makes the text this thread's last error, so a rank's function can end with it.
/// TILEWIRE_INVALID_INPUT where the group is null or not live, the text is null or the status is no kind of error.
TILEWIRE_API tilewire_status tilewire_fail(tilewire_group* group, tilewire_status status, const char* text);

// ---- Memory of the arena, which peers can address. ----

/// A zeroed, dense tensor in the arena, the same shape on every rank. Collective. The group owns the memory: it lives
/// until tilewire_free, or until the group ends. Under "cuda" it is the GPU's. Operators use such tensors in place
/// for the buffers that the problem's `arena` names. TILEWIRE_INVALID_INPUT where the arena is too small.
TILEWIRE_API tilewire_status tilewire_allocate(tilewire_group* group, tilewire_dtype dtype, int64_t rows, int64_t cols,
                                               tilewire_tensor* tensor);
/// Give a tensor of tilewire_allocate back, and clear `*tensor`. The memory is reused once all ranks have done so. No
/// call that uses it may be under way. TILEWIRE_INVALID_INPUT where no tensor of the arena starts at `data`.
TILEWIRE_API tilewire_status tilewire_free(tilewire_group* group, tilewire_tensor* tensor);
/// Copy bytes between the host's memory, the arena, and under "cuda" my GPU's memory; complete on return. It waits for
/// nothing in callers' streams. TILEWIRE_INVALID_INPUT for a negative number of bytes, or bytes from or to null.
TILEWIRE_API tilewire_status tilewire_copy(tilewire_group* group, void* to, const void* from, int64_t bytes);

// ---- Operators. ----

/// Make an operator. Collective: all ranks ask for the same.
/// `problem` is JSON: {"op": "all_gather_gemm", "m": 512, "n": 1024, "k": 256, "dtype": "fp32"}; sizes are global, over
/// all ranks. Fields are those of tilewire::Problem (docs/c_api.md); unknown ones are errors.
/// `config` says how: null or "auto" measures the candidates once and remembers the winner, "auto_quick" the first few
/// of them; "auto_off" measures nothing and takes what is remembered of the nearest M, else a first choice; "auto_again"
/// measures whatever is remembered or shipped; the name of
/// a schedule, "fused", takes the first of its candidates for this problem and these ranks, unmeasured; JSON,
/// {"schedule": "fused", "tile_m": 64}, takes the knobs of tilewire::Config, and for those left out its defaults, which
/// are the same for all problems and machines. Where the text of one rank is malformed all ranks get its
/// TILEWIRE_INVALID_INPUT. The group keeps the operator until tilewire_free_op. TILEWIRE_INVALID_INPUT,
/// TILEWIRE_UNSUPPORTED, TILEWIRE_REFUSED_PLAN.
TILEWIRE_API tilewire_status tilewire_make_op(tilewire_group* group, const char* problem, const char* config,
                                              tilewire_op** op);
/// Free an operator. Every rank may do so in its own time, when its calls are complete. Null is allowed; an operator
/// that has been freed, or whose group has ended, is TILEWIRE_INVALID_INPUT.
TILEWIRE_API tilewire_status tilewire_free_op(tilewire_op* op);

/// One call. Collective. Tensors in the order and shapes of docs/operators.md: a, b, bias if there is one; then the
/// outputs. They belong to the caller and stay as they are until the call is complete. An output shares no element with
/// any other tensor of the call, so nothing is done in place; inputs may overlap each other. Columns of one matrix side
/// by side, with one `row_stride`, are apart; tensors of different strides are where one ends before the other begins.
/// `stream`: under "cuda" a cudaStream_t of my GPU with the meaning that CUDA gives it: 0 (null) and 1 are the legacy
/// default stream, which is also PyTorch's, 2 is the thread's own default stream. The call follows the work that is in
/// the stream, and the function returns without waiting. Where ranks share a GPU, 0 and 1 are TILEWIRE_INVALID_INPUT,
/// as they are one stream for all ranks, and the call is complete on return. Under "host" the stream has no meaning,
/// and the call is complete on return. TILEWIRE_INVALID_INPUT, before anything runs, for a wrong number, shape, type or
/// stride, a tensor of more than 2^48 bytes from end to end, data that is not aligned to its elements, and an output
/// that overlaps; under "cuda" also for memory that is neither my GPU's nor pinned or managed, and for a stream of
/// another GPU (unless it is being captured). TILEWIRE_UNSUPPORTED for rows that are not dense where the config calls
/// NCCL. TILEWIRE_RANK_LOST and TILEWIRE_TIMEOUT break the group. What fails in a stream is the error of a later call.
TILEWIRE_API tilewire_status tilewire_run(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                                          const tilewire_tensor* outputs, int32_t num_outputs, void* stream);
/// One call that is complete on return: as tilewire_run, in a stream of the group's own. Under "cuda" it follows the
/// work of the legacy default stream, cudaMemcpy's copies included, and so of streams without cudaStreamNonBlocking,
/// for which that stream waits. It waits for no other stream; nor for any where ranks share a GPU, or while a stream
/// without cudaStreamNonBlocking is captured: there, call cudaStreamSynchronize before it.
TILEWIRE_API tilewire_status tilewire_run_and_wait(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                                                   const tilewire_tensor* outputs, int32_t num_outputs);
/// Return when the calls of the operator's group that tilewire_run has enqueued have ended, eager ones and, with the
/// default order and where ranks share no GPU, replays of graphs that have begun; under "host" they have. The status is
/// that of what failed, and tilewire_last_status has it. TILEWIRE_INVALID_INPUT for an operator that is null or not
/// live.
TILEWIRE_API tilewire_status tilewire_wait(tilewire_op* op);
/// How the last tilewire_run, tilewire_run_and_wait or tilewire_wait of the operator ended, and its text, which is
/// valid until the next one: TILEWIRE_OK and "" where it went well or there was none. `text` may be null.
/// TILEWIRE_INVALID_INPUT for a null status, or an operator that is null or not live.
TILEWIRE_API tilewire_status tilewire_last_status(const tilewire_op* op, tilewire_status* status, const char** text);
/// Bytes of workspace that the operator uses on this rank: `symmetric` in the arena, signals not counted, and `local`.
/// On GPUs most of it is the group's, and the same memory for all its operators.
/// Either pointer may be null. TILEWIRE_INVALID_INPUT for an operator that is null or not live.
TILEWIRE_API tilewire_status tilewire_workspace(const tilewire_op* op, int64_t* symmetric, int64_t* local);
/// Which schedule runs, why it was chosen, and what else was considered. Null for an operator that is null or not live.
/// Valid as long as the operator.
TILEWIRE_API const char* tilewire_explain(const tilewire_op* op);
/// The config that runs, as JSON that tilewire_make_op takes. Null for an operator that is null or not live. Valid as
/// long as the operator.
TILEWIRE_API const char* tilewire_config(const tilewire_op* op);

#ifdef __cplusplus
}
#endif
