// Waits of tiles and steps that repeat what earlier ones of the same CTA waited for.
// Called when tables are made.
#include <algorithm>
#include <map>
#include <span>

#include "backends/cuda/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

/// Every `stride`-th record from `first` on, which a CTA takes in order.
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
  HostWalk& walk = tables.walk;
  for (const LaneRecord& lane : walk.lanes) {
    if (lane.late) continue;  // steps are anybody's
    // NOTE: of squads, a CTA has one, two or three, by kernel: whichever, steps so far apart are one squad's.
    constexpr uint32_t kSquads = 6;
    static_assert(kMostSquads <= 3);
    const uint32_t workers = lane.serial ? 1 : lane.ctas * (lane.squads ? kSquads : 1);
    const auto steps = std::span(walk.steps).subspan(lane.first_step, lane.num_steps);
    for (uint32_t worker = 0; worker < workers; ++worker) drop_repeated(steps, worker, workers, walk.waits);
  }
}

}  // namespace tilewire::cuda
