// The tiles of a rank as records of the GEMM kernel: tensor maps, destinations, sums that they complete.
// Used by lane_tables.cpp.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

class TileRecords {
 public:
  explicit TileRecords(RankView& view) : view_(view) {}

  /// Before the first tile: announce a tile whose rows of A are in two places.
  void add_split(const Task& task);
  /// Add a task of a tile lane to the table.
  void add(int lane, int64_t index);
  /// After the last tile: set the cache hints, and form clusters.
  void finish();

 private:
  using MapKey = std::tuple<int, int64_t, int, int, int64_t, int64_t>;

  uint16_t a_map(const Region& region, int64_t rows);
  uint16_t b_map(const Region& region);
  [[nodiscard]] MatrixView matrix_of(const Region& region) const;
  uint16_t whole_map(const Region& region);
  uint16_t rest_map(const Region& to);
  uint16_t buffer_map(const Region& region, int what, CUtensorMap (*make)(const MatrixView&));
  uint16_t remember(const MapKey& key, const MatrixView& matrix,
                    const std::function<CUtensorMap(const MatrixView&)>& make);
  [[nodiscard]] bool stands(const Region& region) const;
  [[nodiscard]] bool fits_bulk(const Region& to) const;
  [[nodiscard]] bool takes_tensor_stores(const Region& to) const;
  void form_clusters();
  void name_apart(TileRecord& tile);
  void add_rows(TileRecord& tile, const Task& task);
  void sort_waits(const TileRecord& tile);
  void add_sum(TileRecord& tile, const Task& task, uint32_t name);
  void add_write(TileRecord& tile, const Write& write);

  RankView& view_;
  std::map<MapKey, uint16_t> maps_;
  std::vector<std::pair<Region, int64_t>> splits_{};  ///< the last rows of A, and the number of rows before them
  std::vector<bool> in_pair_{};                       ///< of each tile
};

/// Whether tensor copies can load every operand of the rank's tiles.
[[nodiscard]] bool loads_by_tensor_map(const RankView& view);

}  // namespace tilewire::cuda
