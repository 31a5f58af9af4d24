// The records of everything that is not a GEMM tile by tensor cores: copies, sums, fills, handshakes, and products of
// types and shapes that gemm_tiles does not take. Made by lane_tables.cpp from a Plan; read on the device by walk.cuh.
#pragma once

#include <cstdint>

#include "backends/cuda/tile_table.hpp"
#include "tilewire/dtype.hpp"
#include "tilewire/problem.hpp"

#ifdef __CUDACC__
#define TILEWIRE_BOTH_SIDES __host__ __device__
#else
#define TILEWIRE_BOTH_SIDES
#endif

namespace tilewire::cuda {

struct TaskSpan;

/// Of a CTA of the walker's own kernel; the GEMM kernel's have more.
inline constexpr int kStepThreads = 256;
/// Threads that take a step together where steps are small, and most such squads of a CTA.
inline constexpr int kSquadThreads = 128;
inline constexpr int kMostSquads = 3;

enum class Act : uint8_t {
  sync,
  copy,
  reduce,
  fill,
  multiply,
  gate,  ///< let a stream's copy begin, wait until it is over
};

/// Between the device and a stream that copies: each word is written 1 by one side; the device puts both back to 0 when
/// it has seen the end. Streams know no 64-bit sums and no deadlines, and keep their values in a captured graph: they
/// touch nothing else.
struct alignas(32) Gate {
  uint32_t open = 0;  ///< by the device: the copy may begin (one that follows in its stream does not look)
  uint32_t done = 0;  ///< by the stream: it is over
};

/// One task of a lane.
struct StepRecord {
  Act act = Act::sync;
  bool b_is_kn = false;  ///< `multiply`: source 1 is stored [K,N]; otherwise [N,K]
  uint8_t num_sources = 0;
  uint8_t num_targets = 0;
  uint8_t num_epilogue = 0;
  bool looks = false;  ///< the sources say themselves that they are here (is_flagged), and are cleared
  uint16_t num_waits = 0;
  uint16_t num_posts = 0;
  int32_t rows = 0;  ///< of the result
  int32_t cols = 0;
  int32_t depth = 0;     ///< `multiply`: length of the dot products
  uint32_t task = 0;     ///< number of the task in RankTables::names, for reports
  float value = 0;       ///< `fill`
  Gate* gate = nullptr;  ///< `gate`
  uint32_t first_source = 0;
  uint32_t first_target = 0;
  uint32_t first_epilogue = 0;
  uint32_t first_wait = 0;
  uint32_t first_post = 0;
};

struct SourceRecord {
  std::byte* data = nullptr;
  int64_t ld = 0;  ///< elements from row to row
  DType dtype = DType::fp32;

  bool operator==(const SourceRecord&) const = default;
};

/// Rows [first_row, first_row + rows) of the result go here.
struct TargetRecord {
  std::byte* data = nullptr;
  int64_t ld = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  DType dtype = DType::fp32;
  StoreMode mode = StoreMode::store;

  bool operator==(const TargetRecord&) const = default;
};

struct EpilogueRecord {
  EpilogueKind kind = EpilogueKind::bias;
  DType dtype = DType::fp32;  ///< of `operand`
  float value = 1;
  const std::byte* operand = nullptr;  ///< bias: 1 x cols; residual: rows x cols
  int64_t ld = 0;
};

/// A lane: `ctas` CTAs take its steps in turn; all of them work on every step where it is `serial`.
struct LaneRecord {
  uint32_t first_step = 0;
  uint32_t num_steps = 0;
  uint32_t ctas = 1;
  bool serial = false;
  bool light = false;  ///< moves nothing itself: one warp will do
  bool sized = false;  ///< the plan says how many CTAs, or tiles wait for what they do
  /// Steps go in list order to whoever asks next: these CTAs, and WalkTable::late_ctas.
  bool late = false;
  bool squads = false;  ///< steps are many and small: each kSquadThreads of a CTA take one
  bool after = false;   ///< it is walked after a call of the library that stands in line, by a kernel of its own
  uint64_t* progress =
      nullptr;  ///< two device counters, zero between calls: of a serial lane of several CTAs, or a late one
};

/// A rank's steps in device memory.
struct WalkTable {
  const LaneRecord* lanes = nullptr;
  const StepRecord* steps = nullptr;
  const SourceRecord* sources = nullptr;
  const TargetRecord* targets = nullptr;
  const EpilogueRecord* epilogue = nullptr;
  const WaitRecord* waits = nullptr;
  const PostRecord* posts = nullptr;
  uint32_t num_lanes = 0;    ///< heavy ones first
  uint32_t ctas = 0;         ///< of heavy lanes
  uint32_t light_lanes = 0;  ///< the last ones
  /// CTAs more, for which there is room when others end: they take what is left of late lanes. Nobody needs them.
  uint32_t late_ctas = 0;
};

/// What a whole call adds to CallCounters::calls: more than the CTAs of any grid.
inline constexpr uint64_t kWholeCall = uint64_t{1} << 20;

/// Counters of a program in device memory, zero at first.
struct CallCounters {
  /// kWholeCall for every call that is over. The CTAs of a call each add a part when they end, and wait for no answer
  /// but where there are late ones: the last one then clears what counts one call only.
  uint64_t calls = 0;
  uint64_t begun = 0;  ///< CTAs that have begun, of those that are no late ones; where there are late ones
};

/// What a launch of walkers is told.
struct WalkLaunch {
  WalkTable table{};
  CallCounters* counters = nullptr;  ///< the CTAs of the launch end the call; none: nobody does
  WaitWatch watch{};
  TaskSpan* spans = nullptr;  ///< where the call's times go, by number of the task; none: nobody takes them
};

/// Most posts of a call of the library in line, and of the handshake before it.
inline constexpr int kMostOpening = 16;

/// What a kernel does before its lanes: it posts for a task that was over when the kernel began, a handshake or the
/// call of the library before it. It comes with the launch, as records in memory are far away then, and peers wait for
/// it.
struct Opening {
  PostRecord posts[kMostOpening]{};
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
/// As WaitFailure::wait: not all of what a step looks at has come.
inline constexpr uint32_t kDataOfPeers = 0xFFFFFFFD;

/// CTAs of so many threads that walk all lanes: light lanes take a warp each.
TILEWIRE_BOTH_SIDES constexpr uint32_t walking_ctas(const WalkTable& table, uint32_t threads) {
  const uint32_t warps = threads / 32;
  return table.ctas + (table.light_lanes + warps - 1) / warps;
}

}  // namespace tilewire::cuda
