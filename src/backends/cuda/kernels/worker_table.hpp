// The op records: copies, sums, fills, handshakes, and products that the GEMM kernel does not take.
// Made by lane_tables.cpp from a Plan; read on the device by workers.cuh.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/bases.hpp"
#include "backends/cuda/kernels/tile_table.hpp"
#include "lower/kernel_limits.hpp"
#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

struct TaskSpan;

/// Threads of a CTA of the worker kernel; CTAs of the GEMM kernel have more.
inline constexpr int kOpThreads = 256;
/// The same for a mixture of experts, which moves rows at addresses that it loads first: many loads must be in flight.
inline constexpr int kExpertThreads = 512;
/// Threads that execute an op together in lanes of small ops, and the most such warpgroups of a CTA.
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kMostWarpgroups = 3;

enum class OpCode : uint8_t {
  sync,
  copy,
  reduce,
  fill,
  multiply,
  norm,
  doorbell,     ///< open a stream's doorbell, wait until its work is complete
  route,        ///< make groups of tokens; source 2 is a RouteTable
  group_rows,   ///< bring rows into groups: source 1 has their numbers, source 2 the extents
  select,       ///< copy the rows whose list in source 1 does not begin with -1
  sum_experts,  ///< weighted sums of the rows of each token; source 1 has the rows, source 2 the weights
};

/// The doorbell between the device and a stream. Each side writes 1 to one field; the device resets both to 0 when it
/// has seen `done`. Streams access no other memory of the protocol: they have no 64-bit additions and no deadlines, and
/// a captured graph repeats its values.
struct alignas(32) Doorbell {
  uint32_t open = 0;  ///< by the device: the stream's work may begin (not needed if StreamWork::follows)
  uint32_t done = 0;  ///< by the stream: its work is complete
};

/// Most records of each kind that an op fetches to shared memory, with real addresses, before it begins. An op with
/// more uses them in device memory, and has no relative addresses. NOTE: what was read before a wait is often no longer
/// in the caches after it, and each access then costs a microsecond.
inline constexpr uint32_t kRecordsAtHand = 8;

/// One op: a task of a lane.
struct OpRecord {
  OpCode code = OpCode::sync;
  bool b_is_kn = false;  ///< `multiply`: source 1 is stored [K,N]; otherwise [N,K]
  uint8_t num_sources = 0;
  uint8_t num_targets = 0;
  uint8_t num_epilogue = 0;
  uint8_t product_place = 0;  ///< `multiply`: number of addends, the last sources, before the product in its sum
  bool polls = false;         ///< the sources are LL data (is_ll): poll them, then set them back to ones
  uint16_t num_waits = 0;
  uint16_t num_posts = 0;
  int32_t rows = 0;  ///< of the result
  int32_t cols = 0;
  /// `multiply`: length of the dot products; `norm`: columns of a row; `sum_experts`: most rows of a token.
  int32_t depth = 0;
  int32_t first_col = 0;  ///< `norm`: the first column of the row that is stored
  /// `multiply`: the last rows of A, so many, are source 2; `sum_experts`: rows of source 0 in memory.
  int32_t rows_below = 0;
  uint32_t task = 0;             ///< number of the task in RankTables::names, for reports
  float value = 0;               ///< `fill`; eps of `norm`
  Doorbell* doorbell = nullptr;  ///< `doorbell`
  uint32_t first_source = 0;
  uint32_t first_target = 0;
  uint32_t first_epilogue = 0;
  uint32_t first_wait = 0;
  uint32_t first_post = 0;
};

struct SourceRecord {
  std::byte* data = nullptr;  ///< may be relative
  int64_t ld = 0;             ///< elements from row to row
  DType dtype = DType::fp32;

  bool operator==(const SourceRecord&) const = default;
};

/// The destination of rows [first_row, first_row + rows) of the result.
struct TargetRecord {
  std::byte* data = nullptr;  ///< may be relative
  int64_t ld = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  DType dtype = DType::fp32;
  StoreMode mode = StoreMode::store;

  bool operator==(const TargetRecord&) const = default;
};

/// A lane. Its `ctas` CTAs take ops one after another; in a `serial` lane all of them execute each op together.
struct LaneRecord {
  uint32_t first_op = 0;
  uint32_t num_ops = 0;
  uint32_t ctas = 1;
  bool serial = false;
  bool sync_only = false;  ///< moves no data: one warp serves it
  /// Each free worker takes the next op in list order: these CTAs, and WorkerTable::helper_ctas.
  bool helped = false;
  bool warpgroups = false;  ///< ops are many and small: each kWarpgroupThreads threads of a CTA take one
  bool after = false;       ///< runs after a stream-ordered GEMM, in a kernel of its own
  uint64_t* progress =
      nullptr;  ///< two counters, zero between calls, of a helped lane or a serial lane of several CTAs
};

/// A rank's ops in device memory.
struct WorkerTable {
  const LaneRecord* lanes = nullptr;
  const OpRecord* ops = nullptr;
  const SourceRecord* sources = nullptr;
  const TargetRecord* targets = nullptr;
  const EpilogueRecord* epilogue = nullptr;
  const WaitRecord* waits = nullptr;
  const PostRecord* posts = nullptr;
  uint32_t num_lanes = 0;   ///< data lanes first
  uint32_t ctas = 0;        ///< of data lanes
  uint32_t sync_lanes = 0;  ///< the last lanes
  /// Helper CTAs, which start when other CTAs end: they take remaining ops of helped lanes. No CTA waits for them.
  uint32_t helper_ctas = 0;
  const Bases* bases = nullptr;  ///< of the launch; set in kernels
};

/// Counters of a program in device memory, zero at first.
struct CallCounters {
  /// kWholeCall for every complete call. With helper CTAs each CTA waits for the result of its addition: the last one
  /// resets the counters that count one call only.
  uint64_t calls = 0;
  uint64_t begun = 0;  ///< with helper CTAs: other CTAs that have begun
};

/// The parameters of a launch of worker CTAs.
struct WorkerLaunch {
  WorkerTable table{};
  Bases bases{};                     ///< of all tables of the launch
  CallCounters* counters = nullptr;  ///< the launch's CTAs count the call; null: they do not
  WaitWatch watch{};
  TaskSpan* spans = nullptr;   ///< for the times of the call's tasks, by number of the task; null: no trace
  bool begins = false;         ///< the launch is the first of its call
  uint64_t* copied = nullptr;  ///< TeamCalls::copied, if the plan has double-buffered LL data
  uint64_t copy_distance = 0;  ///< bytes from the first copy of such data to the second
};

/// The preamble of a kernel, before its lanes: it posts for a task that is already complete, a handshake or the library
/// call before the kernel. It is a parameter of the launch, as peers wait for these posts and records in memory are far
/// away then.
struct Preamble {
  PostRecord posts[kMostPreamblePosts]{};
  uint32_t num_posts = 0;
  uint32_t task = 0;         ///< for the task's times
  bool has_task = false;     ///< there is such a task
  bool notes_begin = false;  ///< it also records the begin of the task, as no op does
  bool waited = false;       ///< the kernel before has waits; if one of them failed, post nothing
};

/// As WaitFailure::wait: the CTA waited for other CTAs of its lane, not for a signal.
inline constexpr uint32_t kLaneTurn = 0xFFFFFFFF;
/// As WaitFailure::wait: a copy whose doorbell was opened did not end.
inline constexpr uint32_t kCopyEnd = 0xFFFFFFFE;
/// As WaitFailure::wait: no wait failed, but two calls overlapped.
inline constexpr uint32_t kOverlap = 0xFFFFFFFC;
/// As WaitFailure::wait: an expert (`seen`) of a token (`wanted`) that is none, or that the token has twice.
inline constexpr uint32_t kNoExpert = 0xFFFFFFFB;
inline constexpr uint32_t kTwiceAnExpert = 0xFFFFFFFA;
/// As WaitFailure::wait: more rows (`seen`) for the experts of a rank than max_rows (`wanted`).
inline constexpr uint32_t kTooManyRows = 0xFFFFFFF9;
/// As WaitFailure::wait: in a caller's handle of a routing, a row (`seen`) of a token (`wanted`), or of a group
/// (`wanted`) that begins at row `seen`, beyond the memory of rows.
inline constexpr uint32_t kRowBeyond = 0xFFFFFFF8;
inline constexpr uint32_t kGroupBeyond = 0xFFFFFFF7;
/// As WaitFailure::wait: not all LL data of an op have arrived.
inline constexpr uint32_t kDataOfPeers = 0xFFFFFFFD;

/// Number of CTAs, of `threads` threads each, for all lanes; sync-only lanes take one warp each.
TILEWIRE_BOTH_SIDES constexpr uint32_t worker_ctas(const WorkerTable& table, uint32_t threads) {
  const uint32_t warps = threads / 32;
  return table.ctas + (table.sync_lanes + warps - 1) / warps;
}

}  // namespace tilewire::cuda
