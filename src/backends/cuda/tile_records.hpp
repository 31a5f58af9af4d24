// The tiles of a rank as the tensor-core kernel takes them: tensor maps, records, destinations, sums that they
// complete. Used by lane_tables.cpp.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "backends/cuda/rank_view.hpp"

namespace tilewire::cuda {

class TileRecords {
 public:
  /// `completes`: the sums that tiles complete, by lane and tile; outlives this.
  TileRecords(RankView& view, const std::map<std::pair<int, int64_t>, const FusedSum*>& completes)
      : view_(view), completes_(completes) {}

  /// Add a task of a tile lane to the table.
  void add(int lane, int64_t index);
  /// Let neighbours of the table that agree in an operand load it once for both, where the config asks for it.
  void pair_up();

 private:
  using MapKey = std::tuple<int, int, int, int64_t, int64_t>;

  uint16_t operand_map(const Region& region, bool is_b);
  uint16_t whole_map(const Region& region);
  uint16_t remember(const MapKey& key, const CUtensorMap& map);
  [[nodiscard]] bool stands(const Region& region) const;
  std::optional<uint16_t> store_map(const TileRecord& tile, const Write& write);
  void name_apart(TileRecord& tile);
  void add_exit(TileRecord& tile, const Task& task);
  void add_sum(TileRecord& tile, const FusedSum& fused);
  void add_write(TileRecord& tile, const Write& write);

  RankView& view_;
  const std::map<std::pair<int, int64_t>, const FusedSum*>& completes_;
  std::map<MapKey, uint16_t> maps_;
};

/// Whether tensor copies can load every operand of the rank's tiles.
[[nodiscard]] bool loads_by_tensor_map(const RankView& view);

}  // namespace tilewire::cuda
