// How many CTAs each lane of a rank gets.
// Called when tables are made.
#include "backends/cuda/sm_shares.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// One CTA has no partner.
void unpair(RankTables& tables) {
  tables.share = Share::none;
  std::erase_if(tables.gemm.tiles, [](const TileRecord& tile) { return tile.rows == 0; });
}

}  // namespace

void share_out_sms(RankTables& tables, int sms, int tile_workers) {
  const auto tiles = static_cast<int>(tables.gemm.tiles.size());
  const int least_tiles = tiles > 0 ? 1 : 0;
  const auto total = [&] {
    WalkTable table;
    for (const LaneRecord& lane : tables.walk.lanes) (lane.light ? table.light_lanes : table.ctas) += lane.ctas;
    return static_cast<int>(walking_ctas(table, kStepThreads));
  };
  // Half of the SMs at most go to what moves data beside tiles.
  const int room = tiles > 0 ? std::max(sms / 2, sms - tiles) : sms;
  while (total() > std::min(room, sms - least_tiles)) {
    const auto width = [](const LaneRecord& lane) { return lane.light ? 0 : lane.ctas; };
    const auto widest = std::ranges::max_element(tables.walk.lanes, {}, width);
    require(widest->ctas > 1, "{} SMs are too few for {} lanes that wait for each other", sms,
            tables.walk.lanes.size());
    --widest->ctas;
  }
  if (tiles == 0) return;
  const int most = tile_workers > 0 ? tile_workers : sms;
  tables.gemm_ctas = static_cast<uint32_t>(std::min({most, sms - total(), tiles}));
  const uint32_t cluster = cluster_ctas(tables.share);
  if (tables.gemm_ctas < cluster) return unpair(tables);
  // As few as take as many turns: an SM less is power for the others.
  const uint32_t turns = (static_cast<uint32_t>(tiles) + tables.gemm_ctas - 1) / tables.gemm_ctas;
  const uint32_t least = (static_cast<uint32_t>(tiles) + turns - 1) / turns;
  tables.gemm_ctas = std::min(tables.gemm_ctas / cluster * cluster, (least + cluster - 1) / cluster * cluster);
}

}  // namespace tilewire::cuda
