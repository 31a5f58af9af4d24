// Tables of the GEMM kernel on the host and in device memory, and the tile order of a plain product on one GPU.
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

/// A tensor map of a matrix at a relative address. It is made when a launch gives the base.
struct MovingMap {
  uint16_t number = 0;  ///< in HostTable::maps
  MatrixView matrix{};
  std::function<CUtensorMap(const MatrixView&)> make{};
};

/// A GemmTable in the making, on the host.
struct HostTable {
  std::vector<TileRecord> tiles{};
  std::vector<FamilyRecord> families{};  ///< of grouped GEMMs, instead of tiles
  std::vector<WaitRecord> waits{};
  std::vector<PostRecord> posts{};
  std::vector<WriteRecord> writes{};
  std::vector<PartialRecord> parts{};
  std::vector<EpilogueRecord> epilogue{};
  std::vector<CUtensorMap> maps{};
  std::vector<MovingMap> moving{};  ///< maps of relative addresses; empty in `maps`
  std::vector<RowSplit> splits{};   ///< at most kMostSplits
  CacheHints cache_hints{};
};

/// A table in device memory. Freed with its last copy.
struct DeviceTable {
  GemmTable table{};
  std::shared_ptr<std::byte> memory{};
};

/// Renumber the maps so that moving ones come first, if a launch cannot carry all maps.
void put_moving_first(HostTable& table);

/// Make the moving maps for a launch with these bases.
void make_moving(const HostTable& host, const Bases& bases, GemmTable& table);

/// Copy a table to the current device, in `stream`; complete on return. Launches carry its moving maps (make_moving).
[[nodiscard]] DeviceTable upload(const HostTable& table, cudaStream_t stream = cudaStreamPerThread);

/// A cache hint as the kernel takes it.
[[nodiscard]] Eviction eviction_of(CacheHint hint);

/// Set the cache hints of a table (HintFinder). Call it when the tiles are in their order, before in_pairs and
/// split_k_in_cluster.
void set_cache_hints(HostTable& table, TileShape shape, int64_t reach);

/// The tiles in pairs that share B or A. Neighbours that are both `in_pair` (form_clusters) are a pair; every other
/// tile gets an empty partner.
[[nodiscard]] std::vector<TileRecord> in_pairs(const std::vector<TileRecord>& tiles, const std::vector<bool>& in_pair);

/// Replace each tile by `parts` neighbouring records over parts of K (ClusterShape::k), of at least least_part_steps
/// each. Each record has the waits that its part needs; the first one alone posts and completes sums.
void split_k_in_cluster(HostTable& table, int parts);

/// The tile order, as positions (row tile, column tile): groups of `group_m` row tiles, column by column; 0 = along a
/// Hilbert curve.
[[nodiscard]] std::vector<std::pair<int, int>> tile_order(int tiles_m, int tiles_n, int group_m);

/// C = A * B on one GPU, with an epilogue.
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

/// The table of all tiles of C.
[[nodiscard]] HostTable plain_table(const PlainProduct& product);

/// Groups of rows of A times a B for each, on one GPU.
struct GroupedProduct {
  MatrixView a{};        ///< rows of all groups x K
  MatrixView b{};        ///< the B of each group, one below the other
  MatrixView c{};        ///< rows of all groups x N, or N / 2 if gated; the dtype of A and B
  bool b_is_kn = false;  ///< each B is stored [K,N]; otherwise [N,K]
  int64_t groups = 0;
  const int32_t* extents = nullptr;  ///< in device memory: first rows of groups, multiples of 8, then as many ends
  int64_t extents_ld = 0;            ///< from a group's first row to its end there; 0: `groups`
  Activation activation = Activation::none;
  TileShape shape = kWideGroups;  ///< or kNarrowGroups, if not gated
  uint32_t* ended = nullptr;      ///< in device memory: zero, also after each call
};

/// The shape of the tiles of groups that are not gated, if so many rows are expected: few rows are bound by memory, and
/// more tiles then use more SMs.
[[nodiscard]] constexpr TileShape shape_of_groups(int64_t rows, int64_t groups) {
  constexpr int64_t kFewRows = 64;
  return rows <= kFewRows * groups ? kNarrowGroups : kWideGroups;
}

/// The body that multiplies the groups.
[[nodiscard]] GemmBodyKind kind_of(const GroupedProduct& product);
/// The table of one family. Throws Error(invalid_input) for sizes that no tile has.
[[nodiscard]] HostTable grouped_table(const GroupedProduct& product);

}  // namespace tilewire::cuda
