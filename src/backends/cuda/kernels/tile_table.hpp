// The records of the persistent GEMM kernel: one per tile, with its waits, posts and writes.
// Made on the host from a Plan, uploaded once; read on the device by gemm_tiles.cuh. Plain data on both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"

namespace tilewire::cuda {

/// The L2 cache hint of a load, as `createpolicy.fractional` encodes it for all of its lines.
enum class Eviction : uint64_t {
  unchanged = 0x10F0'0000'0000'0000,  ///< no hint
  first = 0x12F0'0000'0000'0000,      ///< evict_first: these lines leave the cache before others
  normal = 0x16F0'0000'0000'0000,     ///< evict_normal; lines that several CTAs load then arrive later
};

/// The hints for the operands of all tiles of a launch (set_cache_hints).
struct CacheHints {
  Eviction a = Eviction::unchanged;
  Eviction b = Eviction::unchanged;
  bool operator==(const CacheHints&) const = default;
};

/// Bits of TileRecord::flags.
enum TileFlags : uint16_t {
  kOutputFp32 = 1,  ///< the results are fp32; otherwise of the inputs' dtype
  kPlain = 2,       ///< chunks in shared memory have no swizzle, for bulk copies
  kLeavesFar = 4,   ///< a destination is on another GPU: links are slower than memory
  kAStands = 8,     ///< no task writes A during the call: it may be loaded before the tile's waits are over
  kBStands = 16,    ///< the same for B
};

/// A step of an epilogue.
struct EpilogueRecord {
  EpilogueKind kind = EpilogueKind::bias;
  DType dtype = DType::fp32;           ///< of `operand`; in tiles: fp32, or the inputs' dtype
  float value = 1;                     ///< the factor of `scale`
  const std::byte* operand = nullptr;  ///< may be relative; bias: 1 x cols; residual: rows x cols
  int64_t ld = 0;                      ///< elements from row to row of a residual

  bool operator==(const EpilogueRecord&) const = default;
};

/// One tile of C = A * B over a range of K, and its epilogue. Tiles are taken in list order.
struct alignas(64) TileRecord {
  int32_t a_row = 0;         ///< first row in the A map
  int32_t b_col = 0;         ///< first column of the result in the B map
  int32_t k_begin = 0;       ///< first element of K, a multiple of 8
  int32_t k_steps = 0;       ///< steps of 64 elements of K, at least 1; beyond the map's end, K is zeros
  uint16_t a_map = 0;        ///< number of a tensor map (map_of)
  uint16_t b_map = 0;        ///< number of a tensor map (map_of)
  uint16_t rows = 0;         ///< real rows, at most the tile's; 0 = no results: pads a pair, or a later part of K
  uint16_t cols = 0;         ///< real columns, at most the tile's
  uint32_t first_wait = 0;   ///< in GemmTable::waits
  uint32_t first_post = 0;   ///< in GemmTable::posts
  uint32_t first_write = 0;  ///< in GemmTable::writes
  uint16_t num_waits = 0;
  uint16_t num_posts = 0;
  uint8_t num_writes = 0;          ///< at most kMaxWrites
  uint8_t split = 0;               ///< number in GemmTable::splits, from 1 on, if A has rows in two places; 0 = none
  uint16_t flags = 0;              ///< TileFlags
  uint32_t task = 0;               ///< number of the task, for reports
  uint32_t first_step = 0;         ///< in GemmTable::epilogue: the steps of its epilogue
  uint32_t num_steps = 0;          ///< number of these
  uint32_t first_partial = 0;      ///< in GemmTable::parts; of a tile of a group: its number in the B map
  uint8_t num_partials = 0;        ///< number of other partials (at most most_partials), if the tile completes a sum
  uint8_t own_partial = 0;         ///< place of the tile's own partial among all
  uint16_t num_partial_waits = 0;  ///< they follow the tile's own waits: for the other partials
};
static_assert(sizeof(TileRecord) == 64);

/// The place of a tile's last rows of A, if they are not in the matrix of the first rows. The map of the first rows has
/// boxes of `first` rows, this map has boxes of the other rows.
struct RowSplit {
  int32_t row = 0;     ///< in the map
  uint16_t map = 0;    ///< number of a tensor map (map_of)
  uint16_t first = 0;  ///< the first of these rows of the tile, a multiple of kRowsOfSplit
};

/// Another partial of the sum that a tile completes. All partials, the tile's own included, have the inputs' dtype.
/// They are added in fp32, in their order, before the epilogue, the rounding and the stores.
struct PartialRecord {
  int32_t row = 0;    ///< row in the map of the tile's element (0, 0)
  int32_t col = 0;    ///< its column
  uint32_t map = 0;   ///< number of a tensor map, as for stores
  uint32_t task = 0;  ///< number of the sum's name, for reports
};

/// Wait until *signal >= epoch * total + at_least.
struct WaitRecord {
  const uint64_t* signal = nullptr;
  uint64_t at_least = 0;
  uint64_t total = 0;  ///< sum of one call's posts to the signal
  uint32_t index = 0;  ///< number among the waits of the task, for reports
  uint32_t step = 0;   ///< of a tile: the first step of K that needs it; a tile's waits are sorted by it

  bool operator==(const WaitRecord&) const = default;
};

/// Add to *signal when everything that the task wrote is visible.
struct PostRecord {
  uint64_t* signal = nullptr;
  uint64_t add = 0;
  bool remote = true;  ///< another rank reads the signal or the data

  bool operator==(const PostRecord&) const = default;
};

enum class StoreMode : uint8_t {
  store,
  accumulate,
  publish,  ///< LL data, which a reader polls: relaxed at system scope
};
enum class StoreVia : uint8_t {
  pointer,     ///< 16-byte stores of rows [first_row, first_row + rows) x cols [0, cols): any size, any alignment
  tensor_map,  ///< TMA; the map's bounds clip. No additions if chunks_overlap
  bulk,        ///< as pointer, one bulk copy per row of a chunk: multiples of 16 bytes. The tile is kPlain
};

/// The value of WriteRecord::rest_map if there is no map with boxes of kRestRows.
inline constexpr uint16_t kNoMap = 0xffff;

/// One destination of a tile, for its rows [first_row, first_row + rows). A tensor map stores every box of 64 rows that
/// contains some of these rows whole. So the other rows of the box must be outside of the map, unless rest_map stores
/// the last rows, fewer than 64.
struct alignas(16) WriteRecord {
  /// `pointer`, `bulk`: address of element (0, 0) of the tile; may be relative. NOTE: first member, see fetch_writes.
  void* to = nullptr;
  int32_t ld = 0;    ///< `pointer`, `bulk`: elements from row to row
  int32_t row = 0;   ///< `tensor_map`: row of element (0, 0) of the tile in the map; may be negative
  int32_t col = 0;   ///< `tensor_map`: its column
  uint16_t map = 0;  ///< number of a tensor map (map_of)
  uint16_t first_row = 0;
  uint16_t rows = 0;
  uint16_t cols = 0;
  StoreMode mode = StoreMode::store;
  StoreVia via = StoreVia::pointer;
  uint16_t rest_map = kNoMap;  ///< `tensor_map`, of tiles with runtime rows: make_rest_map of the matrix
};
static_assert(sizeof(WriteRecord) == 32);

/// What one complete call adds to a counter of calls: more than the CTAs of any grid. Each CTA of a call adds a part
/// when it ends, without waiting for the result.
inline constexpr uint64_t kWholeCall = uint64_t{1} << 20;

/// Counters of the calls of all programs of a rank.
struct TeamCalls {
  uint64_t ended = 0;  ///< kWholeCall for each call, if the caller orders the calls (CallOrder::stream)
  uint64_t begun = 0;  ///< 1 for each call, likewise
  /// kWholeCall for each call with double-buffered LL data (Buffer::copies).
  uint64_t copied = 0;
};

/// The report of a failed wait, in host-mapped memory. `written` is set last.
struct WaitFailure {
  uint32_t written = 0;
  uint32_t task = 0;   ///< TileRecord::task
  uint32_t wait = 0;   ///< number among the waits of the task, or kLaneTurn and the like
  uint32_t owner = 0;  ///< WaitWatch::owner
  uint64_t wanted = 0;
  uint64_t seen = 0;
  uint64_t epoch = 0;
  uint64_t overlaps = 0;  ///< not 0: two calls of the rank overlapped, against CallOrder::stream
  uint64_t told = 0;      ///< 1: the team broke before the wait's own deadline
};

/// How a kernel's waits end if no post comes.
struct WaitWatch {
  uint64_t timeout_ns = 0;         ///< of each wait
  uint32_t* abort = nullptr;       ///< two flags in device memory: not 0 = leave; not 0 = a kernel already reports
  WaitFailure* failure = nullptr;  ///< host-mapped; filled by the first wait that fails
  /// The host's stop flag, in host-mapped memory, in case its streams are stuck; polled seldom. Or null.
  const uint32_t* stop = nullptr;
  TeamCalls* calls = nullptr;  ///< to notice overlapping calls; or null
  uint32_t owner = 0;          ///< number of the launcher (Failures::add), for the report
};

}  // namespace tilewire::cuda
