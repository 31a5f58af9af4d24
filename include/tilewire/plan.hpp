// A plan: what every rank does in one call, as plain data. docs/plan.md says what each part means.
// Made by schedules, proven by the checker, executed by backends, printed by the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"
#include "tilewire/range.hpp"
#include "tilewire/team.hpp"

namespace tilewire {

enum class Scope {
  input,      ///< the caller's, only read
  output,     ///< the caller's, written in full
  local,      ///< workspace that only its own rank reaches
  symmetric,  ///< workspace at the same offset on every rank; peers can address it
};

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  bool operator==(const Shape&) const = default;
};

/// A matrix that every rank has under the same name.
struct Buffer {
  std::string name{};
  DType dtype = DType::fp32;
  int64_t rows = 0;  ///< the most that any rank has
  int64_t cols = 0;
  Scope scope = Scope::local;
  bool in_arena = false;  ///< a caller's buffer that peers can address
  bool ll = false;        ///< symmetric workspace whose elements say themselves that they are there (LL)
  /// Symmetric workspace that a group's operators may use in turn: no rank touches another's before that one's call has
  /// begun, nor after it has ended. (Local workspace always is: nobody else touches it.)
  bool shared = false;
  std::vector<Shape> shapes{};  ///< one per rank where they differ; empty = rows x cols on every rank

  bool operator==(const Buffer&) const = default;
};

/// The shape of `buffer` on `rank`.
[[nodiscard]] inline Shape shape_on(const Buffer& buffer, int rank) {
  return buffer.shapes.empty() ? Shape{buffer.rows, buffer.cols} : buffer.shapes[rank];
}

/// Whether other ranks can address the buffer.
[[nodiscard]] inline bool reachable(const Buffer& buffer) {
  return buffer.scope == Scope::symmetric || buffer.in_arena;
}

/// A rectangle of one rank's buffer, in elements.
struct Region {
  int rank = 0;
  int buffer = 0;  ///< index in Plan::buffers
  int64_t row = 0;
  int64_t rows = 0;
  int64_t col = 0;
  int64_t cols = 0;

  bool operator==(const Region&) const = default;
};

/// A 64-bit counter in symmetric memory on one rank. Only grows.
struct Signal {
  int rank = 0;
  int index = 0;

  bool operator==(const Signal&) const = default;
};

/// A named run of signal indices, the same on every rank: "arrived" = indices first .. first+count-1.
struct SignalBlock {
  std::string name{};
  int first = 0;
  int count = 0;

  bool operator==(const SignalBlock&) const = default;
};

/// Why a task waits.
enum class Purpose {
  data,   ///< what it reads has been written
  ready,  ///< what it overwrites is no longer needed
  pace,   ///< its turn; costs speed, never correctness
};

/// Wait until the signal, counted from the start of this call, is at least `at_least`.
struct Wait {
  Signal signal{};
  int64_t at_least = 1;
  Purpose purpose = Purpose::data;
  /// Of a tile: the first column of reads[0] that needs it; the columns before may be read earlier. All columns
  /// (depth_of) = none of them does: what is added to the product, or where it goes.
  int64_t from_col = 0;

  bool operator==(const Wait&) const = default;
};

/// Add to a signal after everything that the task wrote is visible.
struct Post {
  Signal signal{};
  int64_t add = 1;

  bool operator==(const Post&) const = default;
};

enum class WriteMode { store, accumulate };

/// By what a tile leaves on GPUs.
enum class Via {
  automatic,  ///< chosen when the plan is lowered
  threads,    ///< stores of the threads that hold it
  bulk,       ///< bulk asynchronous copies
  tma,        ///< tensor copies, also to other GPUs
};

/// Rows [first_row, first_row + to.rows) of a task's result go to `to`: all columns, but for a `gemm_call`, of whose
/// result columns [first_col, first_col + to.cols) do.
struct Write {
  Region to{};
  int64_t first_row = 0;
  WriteMode mode = WriteMode::store;
  int64_t first_col = 0;
  Via via = Via::automatic;

  bool operator==(const Write&) const = default;
};

enum class TaskKind {
  compute,          ///< one tile of a compute body
  copy,             ///< reads[0] to every write
  reduce,           ///< reads[0] + reads[1] + ... in this order, in fp32, to every write
  fill,             ///< `value` to every write
  sync,             ///< moves nothing: waits, then posts
  gemm_call,        ///< a whole GEMM by the vendor's library
  collective_call,  ///< my part of a whole collective by the vendor's library: reads[0] to writes[0], both mine
};

enum class Body {
  gemm,  ///< reads[0] = A [M,K], reads[1] = B in `GemmParams::b_layout`; of a tile, reads[2...] = rows of A below these
  pool,  ///< reads[0] = table, reads[1] = int32 indices, one row of them for each row of the result
};

/// n ranks; rank r reads R(r) and writes W(r).
enum class Collective {
  none,
  all_gather,      ///< W = R(0), R(1), ... one below the other, on every rank
  reduce_scatter,  ///< W(r) = the r-th of n equal parts of the rows of R(0) + R(1) + ...
  all_reduce,      ///< W = R(0) + R(1) + ... on every rank
  all_to_all,      ///< of n equal parts of the rows of each R and W, part s of R(r) = part r of W(s)
};

/// L2 eviction priority of the lines that a tile loads.
enum class CacheHint {
  automatic,  ///< the backend's choice
  none,
  evict_first,
  evict_normal,
};

/// How a product is made: of `gemm_call`, and of `compute` with the body gemm.
struct GemmParams {
  BLayout b_layout = BLayout::nk;
  bool allow_tf32 = false;  ///< fp32 operands may be rounded to TF32, by the library
  int64_t tile_m = 128;     ///< rows and columns of the kernel's tile, of which the result may be less
  int64_t tile_n = 256;
  int cluster_m = 1;  ///< CTAs that share loads of B, and of A
  int cluster_n = 1;
  int cluster_split_k = 1;  ///< CTAs that make the tile together, each over a part of K
  CacheHint a_hint = CacheHint::automatic;
  CacheHint b_hint = CacheHint::automatic;

  bool operator==(const GemmParams&) const = default;
};

/// A step of an epilogue, applied by the task that finishes an element.
struct EpilogueStep {
  EpilogueKind kind = EpilogueKind::bias;
  double value = 1;
  std::optional<Region> operand{};  ///< bias: 1 x cols; residual: rows x cols

  bool operator==(const EpilogueStep&) const = default;
};

/// One piece of work of one lane.
struct Task {
  TaskKind kind = TaskKind::sync;
  Body body = Body::gemm;                    ///< of `compute`
  GemmParams gemm{};                         ///< of products
  Collective collective = Collective::none;  ///< of `collective_call`
  std::vector<Region> reads{};
  std::vector<Write> writes{};
  std::vector<Wait> waits{};
  std::vector<Post> posts{};
  std::vector<EpilogueStep> epilogue{};
  /// Of a tile that completes a sum: the other terms, in the sum's order, all of one dtype. The product is rounded to
  /// that dtype and takes its place among them; they are added in fp32, before the epilogue.
  std::vector<Region> addends{};
  int product_place = 0;  ///< how many addends come before the product
  double value = 0;       ///< of `fill`

  bool operator==(const Task&) const = default;
};

enum class Engine {
  tiles,    ///< a pool: any number of workers take tasks in list order
  reduce,   ///< a pool, as tiles
  copy,     ///< serial: a task starts when the one before has posted; a copy engine
  serial,   ///< serial: a worker, on GPUs CTAs that share each task
  library,  ///< serial
};

/// Whether a lane of this engine runs one task at a time.
[[nodiscard]] constexpr bool is_serial(Engine engine) { return engine != Engine::tiles && engine != Engine::reduce; }

/// Tasks that one engine of one rank starts in list order. Lanes meet only through signals.
struct Lane {
  int rank = 0;
  Engine engine = Engine::tiles;
  std::string name{};
  /// Of a pool, those that take its tasks: threads, or CTAs (of tiles that share K, clusters of CTAs). Of a serial lane
  /// on GPUs, CTAs that share each task; of library calls there, SMs that they can count on. 0 = chosen when the plan
  /// is lowered, by CPU ranks and by the simulator.
  int workers = 0;
  bool warpgroups = false;  ///< on GPUs: each warpgroup of a CTA takes tasks of its own
  bool helped = false;      ///< on GPUs: CTAs that begin when others have ended take its tasks, too
  int kernel = 0;           ///< on GPUs: which of the call's kernels, which run side by side, has its workers
  int stage = 0;            ///< it begins when the rank's lanes of all earlier stages have ended
  std::vector<Task> tasks{};

  bool operator==(const Lane&) const = default;
};

/// JSON that is only kept.
struct JsonText {
  std::string text{};  ///< as nlohmann-json writes it, or empty

  bool operator==(const JsonText&) const = default;
};

/// What all ranks do in one call.
struct Plan {
  std::string op{};      ///< name of the operator, for messages
  JsonText note{};       ///< what the plan was made of (PlanNote, schedule.hpp): nothing below the schedules reads it
  std::string target{};  ///< name of the target that it is lowered for (lower.hpp); empty = as the schedule made it
  Team team{};
  std::vector<Buffer> buffers{};
  std::vector<SignalBlock> signals{};
  std::vector<Lane> lanes{};

  bool operator==(const Plan&) const = default;
};

/// Number of signals on each rank.
[[nodiscard]] int num_signals(const Plan& plan);
/// Number of tasks in all lanes.
[[nodiscard]] int64_t num_tasks(const Plan& plan);
/// "arrived[3] on rank 0".
[[nodiscard]] std::string signal_name(const Plan& plan, Signal signal);
/// "rank 1 gathered rows 0..128 cols 0..64".
[[nodiscard]] std::string region_name(const Plan& plan, const Region& region);
/// "task 4 of lane tiles on rank 1 (compute)".
[[nodiscard]] std::string task_name(const Plan& plan, int lane, int64_t task);
/// Rows x cols of what a task computes, before it is written.
[[nodiscard]] Shape result_shape(const Task& task);
/// Length of the dot products of a product.
[[nodiscard]] inline int64_t depth_of(const Task& task) { return task.reads[0].cols; }
/// Up to a multiple of 256: where parts of workspace begin.
[[nodiscard]] constexpr int64_t aligned_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }
/// Bytes of a buffer in workspace, on each rank.
[[nodiscard]] int64_t workspace_bytes(const Buffer& buffer);
/// Bytes of symmetric workspace, and of local workspace, on each rank.
[[nodiscard]] int64_t symmetric_bytes(const Plan& plan);
[[nodiscard]] int64_t local_bytes(const Plan& plan);
/// Bytes of peers' memory that the tasks of `rank` read and write, counted at each access. On the host that memory
/// exists once, at its owner, but the system counts pages that a rank touched in that rank's resident size too.
[[nodiscard]] int64_t peer_bytes(const Plan& plan, int rank);
/// Where a signal is in a list of all ranks' signals.
[[nodiscard]] size_t signal_id(const Plan& plan, Signal signal);
/// The sum of all posts to each signal in one call, by signal_id.
[[nodiscard]] std::vector<int64_t> signal_totals(const Plan& plan);

/// A hash of everything in the plan: ranks compare it before they run.
[[nodiscard]] uint64_t hash_of(const Plan& plan);

/// Throw Error(invalid_input) unless the team has ranks, and devices and links for all of them or none.
void validate(const Team& team);
/// Throw Error(invalid_input) where an index, rank, region or count points outside of what the plan
/// declares. Everything else may rely on it: the checker calls it first, backends before they load.
void validate(const Plan& plan);

}  // namespace tilewire
