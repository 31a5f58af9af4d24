// The records of everything that is not a GEMM tile by tensor cores: copies, sums, fills, handshakes, and products of
// types and shapes that gemm_tiles does not take. Made by lane_tables.cpp from a Plan; read on the device by
// workers.cuh.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/bases.hpp"
#include "backends/cuda/kernels/tile_table.hpp"
#include "lower/kernel_limits.hpp"
#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

struct TaskSpan;

/// Of a CTA of the worker CTA's own kernel; the GEMM kernel's have more.
inline constexpr int kOpThreads = 256;
/// Threads that take a step together where steps are small, and most such warpgroups of a CTA.
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kMostWarpgroups = 3;

enum class OpCode : uint8_t {
  sync,
  copy,
  reduce,
  fill,
  multiply,
  doorbell,  ///< let a stream's copy begin, wait until it is over
};

/// Between the device and a stream that copies: each word is written 1 by one side; the device puts both back to 0 when
/// it has seen the end. Streams know no 64-bit sums and no deadlines, and keep their values in a captured graph: they
/// touch nothing else.
struct alignas(32) Doorbell {
  uint32_t open = 0;  ///< by the device: the copy may begin (one that follows in its stream does not look)
  uint32_t done = 0;  ///< by the stream: it is over
};

/// Records of a step, of each kind at most, that are in shared memory before it may begin, with their addresses: those
/// of steps with more are taken as they are, and have no relative ones. NOTE: what was read from memory before a wait
/// is often gone from the caches after it, and each look costs a microsecond then.
inline constexpr uint32_t kRecordsAtHand = 8;

/// One task of a lane.
struct OpRecord {
  OpCode code = OpCode::sync;
  bool b_is_kn = false;  ///< `multiply`: source 1 is stored [K,N]; otherwise [N,K]
  uint8_t num_sources = 0;
  uint8_t num_targets = 0;
  uint8_t num_epilogue = 0;
  uint8_t product_place = 0;  ///< `multiply`: so many addends, the last sources, come before the product in its sum
  bool polls = false;         ///< the sources say themselves that they are here (is_ll), and are cleared
  uint16_t num_waits = 0;
  uint16_t num_posts = 0;
  int32_t rows = 0;  ///< of the result
  int32_t cols = 0;
  int32_t depth = 0;             ///< `multiply`: length of the dot products
  int32_t rows_below = 0;        ///< `multiply`: so many rows of A, the last ones, are source 2
  uint32_t task = 0;             ///< number of the task in RankTables::names, for reports
  float value = 0;               ///< `fill`
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

/// Rows [first_row, first_row + rows) of the result go here.
struct TargetRecord {
  std::byte* data = nullptr;  ///< may be relative
  int64_t ld = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  DType dtype = DType::fp32;
  StoreMode mode = StoreMode::store;

  bool operator==(const TargetRecord&) const = default;
};

/// A lane: `ctas` CTAs take its steps in turn; all of them work on every step where it is `serial`.
struct LaneRecord {
  uint32_t first_op = 0;
  uint32_t num_ops = 0;
  uint32_t ctas = 1;
  bool serial = false;
  bool sync_only = false;  ///< moves nothing itself: one warp will do
  /// Steps go in list order to whoever asks next: these CTAs, and WorkerTable::helper_ctas.
  bool helped = false;
  bool warpgroups = false;  ///< steps are many and small: each kWarpgroupThreads of a CTA take one
  bool after = false;       ///< it is executed after a stream-ordered call of the library, by a kernel of its own
  uint64_t* progress =
      nullptr;  ///< two device counters, zero between calls: of a serial lane of several CTAs, or a late one
};

/// A rank's steps in device memory.
struct WorkerTable {
  const LaneRecord* lanes = nullptr;
  const OpRecord* ops = nullptr;
  const SourceRecord* sources = nullptr;
  const TargetRecord* targets = nullptr;
  const EpilogueRecord* epilogue = nullptr;
  const WaitRecord* waits = nullptr;
  const PostRecord* posts = nullptr;
  uint32_t num_lanes = 0;   ///< data ones first
  uint32_t ctas = 0;        ///< of data lanes
  uint32_t sync_lanes = 0;  ///< the last ones
  /// CTAs more, for which there is room when others end: they take what is left of helped lanes. Nobody needs them.
  uint32_t helper_ctas = 0;
  const Bases* bases = nullptr;  ///< the launch's, in kernels
};

/// What a whole call adds to CallCounters::calls: more than the CTAs of any grid.
inline constexpr uint64_t kWholeCall = uint64_t{1} << 20;

/// Counters of a program in device memory, zero at first.
struct CallCounters {
  /// kWholeCall for every call that is over. The CTAs of a call each add a part when they end, and wait for no answer
  /// but where there are helpers: the last one then clears what counts one call only.
  uint64_t calls = 0;
  uint64_t begun = 0;  ///< CTAs that have begun, of those that are no helpers; where there are helpers
};

/// What a launch of worker CTAs is told.
struct WorkerLaunch {
  WorkerTable table{};
  Bases bases{};                     ///< of all tables of the launch
  CallCounters* counters = nullptr;  ///< the CTAs of the launch end the call; none: nobody does
  WaitWatch watch{};
  TaskSpan* spans = nullptr;  ///< where the call's times go, by number of the task; none: nobody takes them
  bool begins = false;        ///< the launch is the first of its call
};

/// What a kernel does before its lanes: it posts for a task that was over when the kernel began, a handshake or the
/// call of the library before it. It comes with the launch, as records in memory are far away then, and peers wait for
/// it.
struct Preamble {
  PostRecord posts[kMostPreamblePosts]{};
  uint32_t num_posts = 0;
  uint32_t task = 0;         ///< for its times
  bool has_task = false;     ///< there was one
  bool notes_begin = false;  ///< of its times, too: no step does
  bool waited = false;       ///< the kernel before it waited for others: if that failed, nothing is posted
};

/// As WaitFailure::wait: the CTA waited for the other CTAs of its lane, not for a signal.
inline constexpr uint32_t kLaneTurn = 0xFFFFFFFF;
/// As WaitFailure::wait: a copy that was let go did not end.
inline constexpr uint32_t kCopyEnd = 0xFFFFFFFE;
/// As WaitFailure::wait: nothing was waited for, another call was under way.
inline constexpr uint32_t kOverlap = 0xFFFFFFFC;
/// As WaitFailure::wait: not all of what a step looks at has come.
inline constexpr uint32_t kDataOfPeers = 0xFFFFFFFD;

/// CTAs of so many threads that work all lanes: sync-only lanes take a warp each.
TILEWIRE_BOTH_SIDES constexpr uint32_t worker_ctas(const WorkerTable& table, uint32_t threads) {
  const uint32_t warps = threads / 32;
  return table.ctas + (table.sync_lanes + warps - 1) / warps;
}

}  // namespace tilewire::cuda
