// How many CTAs each lane of a rank gets.
// Called when tables are made.
#include "backends/cuda/tables/sm_shares.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

uint32_t workers_in(const RankTables& tables, bool after = false) {
  return worker_ctas(counts_of(tables.workers, after), kOpThreads);
}

/// Take CTAs from the widest lanes until a kernel's are `most`.
void narrow(RankTables& tables, bool after, int most) {
  while (static_cast<int>(workers_in(tables, after)) > most) {
    const auto width = [&](const LaneRecord& lane) { return lane.sync_only || lane.after != after ? 0 : lane.ctas; };
    const auto widest = std::ranges::max_element(tables.workers.lanes, {}, width);
    require(width(*widest) > 1, "{} SMs are too few for {} lanes that wait for each other", most,
            tables.workers.lanes.size());
    --widest->ctas;
  }
}

/// Where waves of tiles are few, and lanes that helper CTAs help can give way so that there is one less: they do.
void save_a_wave(RankTables& tables, uint32_t sms) {
  constexpr uint32_t kFew = 4;
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const auto tiles = static_cast<uint32_t>(tables.gemm.tiles.size());
  const auto turns = [&] {
    const uint32_t ctas = (sms - std::min(sms, workers_in(tables))) / cluster * cluster;
    return ctas == 0 ? tiles : (tiles + ctas - 1) / ctas;
  };
  const uint32_t before = turns();
  const std::vector<LaneRecord> lanes = tables.workers.lanes;
  while (before > 1 && before <= kFew && turns() == before) {
    const auto width = [](const LaneRecord& lane) { return lane.sized || lane.sync_only ? 0 : lane.ctas; };
    const auto widest = std::ranges::max_element(tables.workers.lanes, {}, width);
    if (widest == tables.workers.lanes.end() || width(*widest) <= 1) {
      tables.workers.lanes = lanes;
      return;
    }
    --widest->ctas;
  }
}

}  // namespace

WorkerTable counts_of(const HostWorkerTable& workers, bool after) {
  WorkerTable counts;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.after != after) continue;
    ++counts.num_lanes;
    (lane.sync_only ? counts.sync_lanes : counts.ctas) += lane.ctas;
  }
  return counts;
}

void share_out_sms(RankTables& tables, int sms, int tile_workers, bool may_help) {
  const auto tiles = static_cast<int>(tables.gemm.tiles.size());
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const int least_tiles = tiles > 0 ? static_cast<int>(cluster) : 0;
  // Half of the SMs at most go to what moves data beside tiles.
  const int room = tiles > 0 ? std::max(sms / 2, sms - tiles) : sms;
  for (const bool after : {false, true}) narrow(tables, after, std::min(room, sms - least_tiles));
  if (tiles == 0) return;
  if (tile_workers == 0 && may_help) save_a_wave(tables, static_cast<uint32_t>(sms));
  const int most = tile_workers > 0 ? tile_workers * static_cast<int>(tables.cluster.k) : sms;
  tables.gemm_ctas = static_cast<uint32_t>(std::min({most, sms - static_cast<int>(workers_in(tables)), tiles}));
  require(tables.gemm_ctas >= cluster, "{} SMs and {} workers are too few for {} CTAs that make tiles together", sms,
          tile_workers, cluster);
  // As few as take as many turns: an SM less is power for the others.
  const uint32_t turns = (static_cast<uint32_t>(tiles) + tables.gemm_ctas - 1) / tables.gemm_ctas;
  const uint32_t least = (static_cast<uint32_t>(tiles) + turns - 1) / turns;
  tables.gemm_ctas = std::min(tables.gemm_ctas / cluster * cluster, (least + cluster - 1) / cluster * cluster);
}

void find_helped_lanes(RankTables& tables) {
  HostWorkerTable& workers = tables.workers;
  for (LaneRecord& lane : workers.lanes) {
    const uint32_t at_once = lane.ctas * (lane.warpgroups ? kThreads / kWarpgroupThreads : 1);
    lane.helped = !lane.sized && !lane.sync_only && lane.num_ops > at_once;
    if (lane.helped)
      workers.helper_ctas = std::max(workers.helper_ctas, std::min(tables.gemm_ctas, lane.num_ops - lane.ctas));
  }
}

}  // namespace tilewire::cuda
