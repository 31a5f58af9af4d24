// Tables on the host and in device memory, and the order of tiles of a plain product on one GPU.
// Used by cuda programs, whose tables come from a Plan, and by tests and benchmarks of the GEMM kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/gemm_tiles.hpp"
#include "lower/cache_hints.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// A tensor map of a matrix at a relative address: made when there is one to put into it.
struct MovingMap {
  uint16_t number = 0;  ///< in HostTable::maps
  MatrixView matrix{};
  std::function<CUtensorMap(const MatrixView&)> make{};
};

/// A GemmTable that is being made.
struct HostTable {
  std::vector<TileRecord> tiles{};
  std::vector<WaitRecord> waits{};
  std::vector<PostRecord> posts{};
  std::vector<WriteRecord> writes{};
  std::vector<PartialRecord> parts{};
  std::vector<EpilogueRecord> epilogue{};
  std::vector<CUtensorMap> maps{};
  std::vector<MovingMap> moving{};  ///< of `maps`, empty there
  std::vector<RowSplit> splits{};   ///< at most kMostSplits
  CacheHints cache_hints{};
};

/// A table in device memory. Freed with its last copy.
struct DeviceTable {
  GemmTable table{};
  std::shared_ptr<std::byte> memory{};
};

/// Number maps so that moving ones come first, if not all go with a launch.
void put_moving_first(HostTable& table);

/// Make the moving maps that go with a launch.
void make_moving(const HostTable& host, const Bases& bases, GemmTable& table);

/// Copy a table to the current device, by way of `stream`; complete on return. Its moving maps go with launches
/// (make_moving).
[[nodiscard]] DeviceTable upload(const HostTable& table, cudaStream_t stream = cudaStreamPerThread);

/// A hint as the kernel takes it.
[[nodiscard]] Eviction eviction_of(CacheHint hint);

/// Give the tiles of a table their hints (HintFinder), when they are in their order; before in_pairs and
/// split_k_in_cluster.
void set_cache_hints(HostTable& table, TileShape shape, int64_t reach);

/// The same tiles in pairs that share B or A: neighbours of which both are `in_pair` (form_clusters), each of the
/// others beside an empty partner.
[[nodiscard]] std::vector<TileRecord> in_pairs(const std::vector<TileRecord>& tiles, const std::vector<bool>& in_pair);

/// The same tiles over parts of K, of at least least_part_steps each: neighbouring records for ClusterShape::k.
/// Each waits for what its part needs; the first alone posts and completes sums.
void split_k_in_cluster(HostTable& table, int parts);

/// Positions (row tile, column tile) in the order in which they are to start. `group_m` row tiles are grouped,
/// column by column; 0 = along a Hilbert curve.
[[nodiscard]] std::vector<std::pair<int, int>> tile_order(int tiles_m, int tiles_n, int group_m);

/// C = A * B on one GPU, and an epilogue.
struct PlainProduct {
  MatrixView a{};  ///< [M,K]
  MatrixView b{};  ///< [N,K], or [K,N] where b_is_kn
  MatrixView c{};  ///< [M,N]; fp32, or the dtype of A and B
  bool b_is_kn = false;
  std::vector<EpilogueRecord> epilogue{};  ///< of all of C
  TileShape shape{};
  ClusterShape cluster{};
  int group_m = 8;
  StoreVia via = StoreVia::pointer;
};

/// Tiles of all of C.
[[nodiscard]] HostTable plain_table(const PlainProduct& product);

}  // namespace tilewire::cuda
