// A plan: the tasks of every rank in one call, as plain data. docs/plan.md defines the meaning.
// Made by schedules, proven by the checker, executed by backends, printed by the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/activation.hpp"
#include "tilewire/body.hpp"
#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"
#include "tilewire/range.hpp"
#include "tilewire/team.hpp"

namespace tilewire {

enum class Scope {
  input,      ///< the caller's; only read
  output,     ///< the caller's; every element is written
  local,      ///< workspace; only its own rank addresses it
  symmetric,  ///< workspace at the same offset on every rank; peers can address it
};

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  bool operator==(const Shape&) const = default;
};

/// A matrix. Every rank has one of this name.
struct Buffer {
  std::string name{};
  DType dtype = DType::fp32;
  int64_t rows = 0;  ///< the largest number over the ranks
  int64_t cols = 0;
  Scope scope = Scope::local;
  bool in_arena = false;  ///< a caller's buffer that peers can address
  bool constant = false;  ///< an input that no work before a call writes
  bool ll = false;        ///< symmetric workspace of LL data: the elements are their own flags
  /// Of LL data: 2 = double-buffered, call c uses copy c % 2. The calls of all operators of a group that have such data
  /// are counted together, and use the same memory.
  int copies = 1;
  /// Symmetric workspace that the operators of a group use one after another: no rank touches a peer's before the
  /// peer's call has begun or after it has ended. (Local workspace is always shared: peers cannot address it.)
  bool shared = false;
  /// Of a *grouped* buffer: the buffer that has its extents, int32, 2 x rows. Then a row is a group: the rows of memory
  /// from element (0, row) to element (1, row) of the extents of the same rank. -1: not grouped.
  int extents = -1;
  int64_t most_rows = 0;  ///< of a grouped buffer: rows of memory on every rank, enough for any extents
  /// Of local workspace: the earlier buffer whose memory this one has, too. No task of a call uses that buffer any more
  /// when one uses this buffer. -1: memory of its own.
  int reuses = -1;
  std::vector<Shape> shapes{};  ///< one per rank if they differ; empty = rows x cols on every rank

  bool operator==(const Buffer&) const = default;
};

/// The shape of `buffer` on `rank`.
[[nodiscard]] inline Shape shape_on(const Buffer& buffer, int rank) {
  return buffer.shapes.empty() ? Shape{buffer.rows, buffer.cols} : buffer.shapes[rank];
}

/// Whether the rows of a buffer are groups of rows, whose number only the device knows.
[[nodiscard]] inline bool is_grouped(const Buffer& buffer) { return buffer.extents >= 0; }

/// The shape of `buffer` in the memory of `rank`; a caller's tensor has it.
[[nodiscard]] inline Shape memory_shape_on(const Buffer& buffer, int rank) {
  const Shape shape = shape_on(buffer, rank);
  return is_grouped(buffer) ? Shape{buffer.most_rows, shape.cols} : shape;
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

/// A 64-bit counter in symmetric memory on one rank. It only grows.
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

/// The reason for a wait.
enum class Purpose {
  data,   ///< the task's input has been written
  ready,  ///< the memory that the task overwrites is no longer needed
  pace,   ///< the task's turn, for speed; never needed for correctness
};

/// Wait until the signal is at least `at_least`, counted from the start of this call.
struct Wait {
  Signal signal{};
  int64_t at_least = 1;
  Purpose purpose = Purpose::data;
  /// Of a tile: the first column of reads[0] that needs the wait; the tile may read earlier columns before it. If it is
  /// the number of columns (depth_of), only the addends or the destination need the wait.
  int64_t from_col = 0;

  bool operator==(const Wait&) const = default;
};

/// Add to a signal when all ranks can see everything that the task wrote.
struct Post {
  Signal signal{};
  int64_t add = 1;

  bool operator==(const Post&) const = default;
};

enum class WriteMode { store, accumulate };

/// How a tile is stored on GPUs.
enum class Via {
  automatic,  ///< lowering chooses
  threads,    ///< stores by the threads that hold the result
  bulk,       ///< bulk asynchronous copies
  tma,        ///< tensor copies (TMA), also to other GPUs
};

/// Rows [first_row, first_row + to.rows) of the result go to `to`, with all columns. Of a `gemm_call`, a norm or a
/// grouped GEMM only the columns [first_col, first_col + to.cols) do.
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
  sync,             ///< waits and posts; moves nothing
  gemm_call,        ///< a whole GEMM by the vendor's library
  collective_call,  ///< one rank's part of a collective by the vendor's library: reads[0] to writes[0], both local
};

/// n ranks; rank r reads R(r) and writes W(r).
enum class Collective {
  none,
  all_gather,      ///< W = R(0), R(1), ... one below the other, on every rank
  reduce_scatter,  ///< W(r) = the r-th of n equal parts of the rows of R(0) + R(1) + ...
  all_reduce,      ///< W = R(0) + R(1) + ... on every rank
  all_to_all,      ///< of n equal parts of the rows of each R and W, part s of R(r) = part r of W(s)
};

/// A step of an epilogue. The task that finishes an element applies it.
struct EpilogueStep {
  EpilogueKind kind = EpilogueKind::bias;
  double value = 1;
  std::optional<Region> operand{};  ///< bias: 1 x cols; residual: rows x cols

  bool operator==(const EpilogueStep&) const = default;
};

/// One unit of work of one lane.
struct Task {
  TaskKind kind = TaskKind::sync;
  Body body = Body::gemm;                    ///< of `compute`
  GemmParams gemm{};                         ///< of products
  Norm norm{};                               ///< of the body norm
  std::optional<RouteParams> route{};        ///< of the body route
  Activation activation = Activation::none;  ///< of the body grouped_gemm
  Collective collective = Collective::none;  ///< of `collective_call`
  std::vector<Region> reads{};
  std::vector<Write> writes{};
  std::vector<Wait> waits{};
  std::vector<Post> posts{};
  std::vector<EpilogueStep> epilogue{};
  /// Of a tile that completes a sum: the other terms, in the sum's order, all of one dtype. The product is rounded to
  /// that dtype and added after `product_place` of them. All terms are added in fp32, before the epilogue.
  std::vector<Region> addends{};
  int product_place = 0;  ///< number of addends before the product
  double value = 0;       ///< of `fill`

  bool operator==(const Task&) const = default;
};

enum class Engine {
  tiles,    ///< a pool: any number of workers take tasks in list order
  reduce,   ///< a pool, as tiles
  copy,     ///< serial: a task starts when the task before it has posted; a copy engine
  serial,   ///< serial; on GPUs several CTAs share each task
  library,  ///< serial; the vendor's library
};

/// Whether lanes of this engine run one task at a time.
[[nodiscard]] constexpr bool is_serial(Engine engine) { return engine != Engine::tiles && engine != Engine::reduce; }

/// Tasks of one rank, which one engine starts in list order. Signals and stages order tasks of different lanes.
struct Lane {
  int rank = 0;
  Engine engine = Engine::tiles;
  std::string name{};
  /// Of a pool: threads, CTAs, or clusters of CTAs (cluster split-K) that take its tasks. Of a serial lane on GPUs:
  /// CTAs that share each task; of library calls: SMs that they can count on. 0 = lowering, CPU ranks or the simulator
  /// choose.
  int workers = 0;
  bool warpgroups = false;  ///< on GPUs: each warpgroup of a CTA takes tasks on its own
  bool helped = false;      ///< on GPUs: helper CTAs take tasks of this lane, too
  int kernel = 0;           ///< on GPUs: the kernel of the call that has the lane's workers; kernels run side by side
  int stage = 0;            ///< the lane begins when all lanes of the rank with a smaller stage have ended
  bool joined = false;      ///< on GPUs: the CTA that makes tile i of the rank then does task i of this lane, its sum;
                            ///< and, if norms follow all sums, the i-th of these
  std::vector<Task> tasks{};

  bool operator==(const Lane&) const = default;
};

/// JSON text that a plan carries unread.
struct JsonText {
  std::string text{};  ///< as nlohmann-json writes it, or empty

  bool operator==(const JsonText&) const = default;
};

/// The tasks of all ranks in one call.
struct Plan {
  std::string op{};  ///< name of the operator, for messages
  JsonText note{};   ///< problem and config of the plan (PlanNote, make_plan.hpp); nothing below the schedules reads it
  std::string target{};  ///< name of the target that the plan is lowered for (lower.hpp); empty = not lowered
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
/// Rows x cols of a task's result, before it is written.
[[nodiscard]] Shape result_shape(const Task& task);
/// Length of the dot products (K) of a task that makes a product.
[[nodiscard]] inline int64_t depth_of(const Task& task) { return task.reads[0].cols; }
/// Round up to a multiple of 256, the alignment of buffers in workspace.
[[nodiscard]] constexpr int64_t aligned_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }
/// Bytes of one copy of a buffer in workspace on each rank.
[[nodiscard]] int64_t copy_bytes(const Buffer& buffer);
/// Bytes of all copies of a buffer in workspace on each rank.
[[nodiscard]] int64_t workspace_bytes(const Buffer& buffer);
/// Bytes of symmetric workspace, and of local workspace, on each rank.
[[nodiscard]] int64_t symmetric_bytes(const Plan& plan);
[[nodiscard]] int64_t local_bytes(const Plan& plan);
/// Bytes of peers' memory that the tasks of `rank` read and write, counted at each access. On the host that memory
/// exists once, at its owner, but Linux counts pages that a rank touches in the rank's resident size, too.
[[nodiscard]] int64_t peer_bytes(const Plan& plan, int rank);
/// Index of a signal in a list of all ranks' signals.
[[nodiscard]] size_t signal_id(const Plan& plan, Signal signal);
/// The sum of all posts to each signal in one call, indexed by signal_id.
[[nodiscard]] std::vector<int64_t> signal_totals(const Plan& plan);

/// A hash of the whole plan. Ranks compare it before they run.
[[nodiscard]] uint64_t hash_of(const Plan& plan);

/// Throw Error(invalid_input) unless the team has ranks, and either no devices and links or those of all ranks.
void validate(const Team& team);
/// Throw Error(invalid_input) if an index, rank, region or count is outside of what the plan declares. The checker and
/// the backends call it first, and all other code relies on it.
void validate(const Plan& plan);

}  // namespace tilewire
