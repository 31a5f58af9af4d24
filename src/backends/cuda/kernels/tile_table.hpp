// The records that a persistent kernel executes: one per tile, with what it waits for, posts and writes.
// Made on the host from a Plan, uploaded once; read on the device by gemm_tiles.cuh. Plain data on both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewire/dtype.hpp"
#include "tilewire/epilogue.hpp"

namespace tilewire::cuda {

/// What the L2 cache is told of lines that a load brings, as `createpolicy.fractional` encodes it for all of them.
enum class Eviction : uint64_t {
  unchanged = 0x10F0'0000'0000'0000,  ///< nothing
  first = 0x12F0'0000'0000'0000,      ///< they are the first to leave it,
  normal = 0x16F0'0000'0000'0000,     ///< or in their turn; what several CTAs load then comes later
};

/// Of the operands of all tiles of a launch (set_cache_hints).
struct CacheHints {
  Eviction a = Eviction::unchanged;
  Eviction b = Eviction::unchanged;
  bool operator==(const CacheHints&) const = default;
};

/// Bits of TileRecord::flags.
enum TileFlags : uint16_t {
  kOutputFp32 = 1,  ///< the tile leaves as fp32; otherwise in the dtype of the inputs
  kPlain = 2,       ///< finished chunks lie in shared memory row by row, as bulk copies take them; else swizzled
  kLeavesFar = 4,   ///< a destination is on another GPU: links are slower than memory
  kAStands = 8,     ///< nobody writes A during the call: it may be loaded before the tile's waits are over
  kBStands = 16,    ///< nor B
};

/// A step of an epilogue.
struct EpilogueRecord {
  EpilogueKind kind = EpilogueKind::bias;
  DType dtype = DType::fp32;           ///< of `operand`: of a tile's, fp32 or the inputs'
  float value = 1;                     ///< the factor of `scale`
  const std::byte* operand = nullptr;  ///< may be relative; bias: 1 x cols; residual: rows x cols
  int64_t ld = 0;                      ///< elements from row to row of a residual

  bool operator==(const EpilogueRecord&) const = default;
};

/// One tile of C = A * B over a range of K, and its epilogue. Tasks are taken in list order.
struct alignas(64) TileRecord {
  int32_t a_row = 0;         ///< first row in the A map
  int32_t b_col = 0;         ///< first column of the result in the B map
  int32_t k_begin = 0;       ///< first element of K, a multiple of 8
  int32_t k_steps = 0;       ///< steps of 64 elements of K, at least 1; the map ends K (zeros follow)
  uint16_t a_map = 0;        ///< number of a tensor map (map_of)
  uint16_t b_map = 0;        ///< number of a tensor map (map_of)
  uint16_t rows = 0;         ///< real rows, at most the tile's; 0 = nothing is sent on: pads a pair, a later part of K
  uint16_t cols = 0;         ///< real columns, at most the tile's
  uint32_t first_wait = 0;   ///< in GemmTable::waits
  uint32_t first_post = 0;   ///< in GemmTable::posts
  uint32_t first_write = 0;  ///< in GemmTable::writes
  uint16_t num_waits = 0;
  uint16_t num_posts = 0;
  uint8_t num_writes = 0;      ///< at most kMaxWrites
  uint8_t split = 0;           ///< some rows of A lie elsewhere: number of GemmTable::splits, from 1 on; 0 = none
  uint16_t flags = 0;          ///< TileFlags
  uint32_t task = 0;           ///< number of the task, for reports
  uint32_t first_step = 0;     ///< in GemmTable::epilogue
  uint32_t num_steps = 0;      ///< of its epilogue
  uint32_t first_partial = 0;  ///< in GemmTable::parts
  uint8_t num_partials = 0;    ///< the tile is one part of a sum; so many others (at most most_partials) lie in memory
  uint8_t own_partial = 0;     ///< its place among all
  uint16_t num_partial_waits = 0;  ///< after the tile's own waits: until the other parts are there
};
static_assert(sizeof(TileRecord) == 64);

/// Where the rows of A of a tile are from one on, if not where the first ones are. The maps bring as many as that.
struct RowSplit {
  int32_t row = 0;     ///< in the map
  uint16_t map = 0;    ///< number of a tensor map (map_of)
  uint16_t first = 0;  ///< of the tile's rows, a multiple of kRowsOfSplit
};

/// Another part of the sum that a tile belongs to. All parts, the tile's own included, are of the inputs' dtype; they
/// are added in fp32, in their order, before epilogue, rounding and stores.
struct PartialRecord {
  int32_t row = 0;    ///< of the tile's element (0, 0) in the map
  int32_t col = 0;    ///< its column
  uint32_t map = 0;   ///< number of a tensor map, as for stores
  uint32_t task = 0;  ///< number of the task that sums, for reports
};

/// Wait until *signal >= epoch * total + at_least.
struct WaitRecord {
  const uint64_t* signal = nullptr;
  uint64_t at_least = 0;
  uint64_t total = 0;  ///< what one call posts to the signal in all
  uint32_t index = 0;  ///< among the waits of the task, for reports
  uint32_t step = 0;   ///< of a tile: the first step of K that needs it; a tile's waits are in this order

  bool operator==(const WaitRecord&) const = default;
};

/// Add to *signal when everything that the tile wrote is visible.
struct PostRecord {
  uint64_t* signal = nullptr;
  uint64_t add = 0;
  bool remote = true;  ///< someone besides this GPU's own kernels reads the signal or the data

  bool operator==(const PostRecord&) const = default;
};

enum class StoreMode : uint8_t {
  store,
  accumulate,
  publish,  ///< store what somebody looks for: relaxed at system scope
};
enum class StoreVia : uint8_t {
  pointer,     ///< 16-byte stores of rows [first_row, first_row + rows) x cols [0, cols): any cut, any alignment
  tensor_map,  ///< TMA; the map's bounds clip. No additions where chunks_overlap
  bulk,        ///< as pointer, a bulk copy for each row of a chunk: multiples of 16 bytes. The tile is kPlain
};

/// As WriteRecord::rest_map, whose boxes have kRestRows: there is none.
inline constexpr uint16_t kNoMap = 0xffff;

/// Rows [first_row, first_row + rows) of a tile go to one place. A box of 64 rows is stored whole through a
/// tensor map where it meets these rows, so that what lies outside must lie outside of the map, too; unless there is a
/// map for what is left of less than 64 rows.
struct alignas(16) WriteRecord {
  /// `pointer`, `bulk`: where element (0, 0) of the tile would go; may be relative. NOTE: first, see fetch_writes.
  void* to = nullptr;
  int32_t ld = 0;    ///< `pointer`: elements from row to row
  int32_t row = 0;   ///< `tensor_map`: row of element (0, 0) of the tile in the map; may be negative
  int32_t col = 0;   ///< `tensor_map`: its column
  uint16_t map = 0;  ///< number of a tensor map (map_of)
  uint16_t first_row = 0;
  uint16_t rows = 0;
  uint16_t cols = 0;
  StoreMode mode = StoreMode::store;
  StoreVia via = StoreVia::pointer;
  uint16_t rest_map =
      kNoMap;  ///< `tensor_map`, of tiles whose rows are a runtime number: make_rest_map of the same matrix
};
static_assert(sizeof(WriteRecord) == 32);

/// Calls of all programs of a rank that have ended, and that have begun, where the caller keeps them in order
/// (CallOrder::stream).
struct TeamCalls {
  uint64_t ended = 0;
  uint64_t begun = 0;
};

/// What a failed wait leaves in host-mapped memory. `written` is set last.
struct WaitFailure {
  uint32_t written = 0;
  uint32_t task = 0;   ///< TileRecord::task
  uint32_t wait = 0;   ///< which wait of the task
  uint32_t owner = 0;  ///< WaitWatch::owner
  uint64_t wanted = 0;
  uint64_t seen = 0;
  uint64_t epoch = 0;
  uint64_t overlaps = 0;  ///< not 0: two calls of the rank were under way, against CallOrder::stream
  uint64_t told = 0;      ///< 1: it was asked to leave before its own deadline
};

/// How a kernel's waits end when nobody posts.
struct WaitWatch {
  uint64_t timeout_ns = 0;         ///< of each wait
  uint32_t* abort = nullptr;       ///< two words of device memory: not 0 = leave; not 0 = somebody reports already
  WaitFailure* failure = nullptr;  ///< host-mapped; filled by the first wait that fails
  /// The host's way to say leave where its streams are stuck: host-mapped, looked at seldom. Or none.
  const uint32_t* stop = nullptr;
  TeamCalls* calls = nullptr;  ///< where calls that overlap are noticed, or none
  uint32_t owner = 0;          ///< whose launch it is, for the report
};

}  // namespace tilewire::cuda
