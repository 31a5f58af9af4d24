// How many CTAs each lane of a rank gets.
// Called when tables are made.
#include "backends/cuda/sm_shares.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

uint32_t walkers_of(const RankTables& tables, bool after = false) {
  return walking_ctas(counts_of(tables.walk, after), kStepThreads);
}

/// Take CTAs from the widest lanes until a kernel's are `most`.
void narrow(RankTables& tables, bool after, int most) {
  while (static_cast<int>(walkers_of(tables, after)) > most) {
    const auto width = [&](const LaneRecord& lane) { return lane.light || lane.after != after ? 0 : lane.ctas; };
    const auto widest = std::ranges::max_element(tables.walk.lanes, {}, width);
    require(width(*widest) > 1, "{} SMs are too few for {} lanes that wait for each other", most,
            tables.walk.lanes.size());
    --widest->ctas;
  }
}

/// Where turns of tiles are few, and lanes that late CTAs help can give way so that there is one less: they do.
void save_a_turn(RankTables& tables, uint32_t sms) {
  constexpr uint32_t kFew = 4;
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const auto tiles = static_cast<uint32_t>(tables.gemm.tiles.size());
  const auto turns = [&] {
    const uint32_t ctas = (sms - std::min(sms, walkers_of(tables))) / cluster * cluster;
    return ctas == 0 ? tiles : (tiles + ctas - 1) / ctas;
  };
  const uint32_t before = turns();
  const std::vector<LaneRecord> lanes = tables.walk.lanes;
  while (before > 1 && before <= kFew && turns() == before) {
    const auto width = [](const LaneRecord& lane) { return lane.sized || lane.light ? 0 : lane.ctas; };
    const auto widest = std::ranges::max_element(tables.walk.lanes, {}, width);
    if (widest == tables.walk.lanes.end() || width(*widest) <= 1) {
      tables.walk.lanes = lanes;
      return;
    }
    --widest->ctas;
  }
}

}  // namespace

WalkTable counts_of(const HostWalk& walk, bool after) {
  WalkTable counts;
  for (const LaneRecord& lane : walk.lanes) {
    if (lane.after != after) continue;
    ++counts.num_lanes;
    (lane.light ? counts.light_lanes : counts.ctas) += lane.ctas;
  }
  return counts;
}

void share_out_sms(RankTables& tables, int sms, int tile_workers, bool late_help) {
  const auto tiles = static_cast<int>(tables.gemm.tiles.size());
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const int least_tiles = tiles > 0 ? static_cast<int>(cluster) : 0;
  // Half of the SMs at most go to what moves data beside tiles.
  const int room = tiles > 0 ? std::max(sms / 2, sms - tiles) : sms;
  for (const bool after : {false, true}) narrow(tables, after, std::min(room, sms - least_tiles));
  if (tiles == 0) return;
  if (tile_workers == 0 && late_help) save_a_turn(tables, static_cast<uint32_t>(sms));
  const int most = tile_workers > 0 ? tile_workers * static_cast<int>(tables.cluster.k) : sms;
  tables.gemm_ctas = static_cast<uint32_t>(std::min({most, sms - static_cast<int>(walkers_of(tables)), tiles}));
  require(tables.gemm_ctas >= cluster, "{} SMs and {} workers are too few for {} CTAs that make tiles together", sms,
          tile_workers, cluster);
  // As few as take as many turns: an SM less is power for the others.
  const uint32_t turns = (static_cast<uint32_t>(tiles) + tables.gemm_ctas - 1) / tables.gemm_ctas;
  const uint32_t least = (static_cast<uint32_t>(tiles) + turns - 1) / turns;
  tables.gemm_ctas = std::min(tables.gemm_ctas / cluster * cluster, (least + cluster - 1) / cluster * cluster);
}

void find_late_lanes(RankTables& tables) {
  HostWalk& walk = tables.walk;
  for (LaneRecord& lane : walk.lanes) {
    const uint32_t at_once = lane.ctas * (lane.squads ? kThreads / kSquadThreads : 1);
    lane.late = !lane.sized && !lane.light && lane.num_steps > at_once;
    if (lane.late) walk.late_ctas = std::max(walk.late_ctas, std::min(tables.gemm_ctas, lane.num_steps - lane.ctas));
  }
}

}  // namespace tilewire::cuda
