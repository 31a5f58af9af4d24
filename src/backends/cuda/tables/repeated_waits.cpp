// Removes waits of tiles and ops that repeat waits of earlier ones of the same CTA.
// Called when tables are made.
#include <algorithm>
#include <map>
#include <span>

#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

/// Handle every `stride`-th record from `first` on, which one CTA takes in order.
template <typename Record>
void drop_repeated(std::span<Record> records, uint32_t first, uint32_t stride, const std::vector<WaitRecord>& waits) {
  std::map<const uint64_t*, uint64_t> seen;
  for (size_t i = first; i < records.size(); i += stride) {
    Record& record = records[i];
    const auto mine = std::span(waits).subspan(record.first_wait, record.num_waits);
    const bool repeats = std::ranges::all_of(mine, [&](const WaitRecord& wait) {
      const auto found = seen.find(wait.signal);
      return found != seen.end() && found->second >= wait.at_least;
    });
    for (const WaitRecord& wait : mine) seen[wait.signal] = std::max(seen[wait.signal], wait.at_least);
    if (!repeats) continue;
    record.first_wait += record.num_waits;
    record.num_waits = 0;
  }
}

}  // namespace

void drop_repeated_waits(RankTables& tables) {
  for (uint32_t cta = 0; cta < tables.gemm_ctas; ++cta)
    drop_repeated(std::span(tables.gemm.tiles), cta, tables.gemm_ctas, tables.gemm.waits);
  HostWorkerTable& workers = tables.workers;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.helped) continue;  // any CTA may take any op
    // NOTE: a CTA has one, two or three warpgroups, depending on the kernel. In each case the same warpgroup takes ops
    // that are so far apart.
    constexpr uint32_t kWarpgroups = 6;
    static_assert(kMostWarpgroups <= 3);
    const uint32_t takers = lane.serial ? 1 : lane.ctas * (lane.warpgroups ? kWarpgroups : 1);
    const auto steps = std::span(workers.ops).subspan(lane.first_op, lane.num_ops);
    for (uint32_t taker = 0; taker < takers; ++taker) drop_repeated(steps, taker, takers, workers.waits);
  }
}

}  // namespace tilewire::cuda
