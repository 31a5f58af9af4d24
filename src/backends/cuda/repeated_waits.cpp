// Waits of tiles that repeat what earlier tiles of the same CTA waited for.
// Called when tables are made.
#include <algorithm>
#include <map>
#include <span>

#include "backends/cuda/lane_tables.hpp"

namespace tilewire::cuda {

void drop_repeated_waits(RankTables& tables) {
  const std::vector<WaitRecord>& waits = tables.gemm.waits;
  for (uint32_t cta = 0; cta < tables.gemm_ctas; ++cta) {
    std::map<const uint64_t*, uint64_t> seen;
    for (size_t i = cta; i < tables.gemm.tiles.size(); i += tables.gemm_ctas) {
      TileRecord& tile = tables.gemm.tiles[i];
      const auto mine = std::span(waits).subspan(tile.first_wait, tile.num_waits);
      const bool repeats = std::ranges::all_of(mine, [&](const WaitRecord& wait) {
        const auto found = seen.find(wait.signal);
        return found != seen.end() && found->second >= wait.at_least;
      });
      for (const WaitRecord& wait : mine) seen[wait.signal] = std::max(seen[wait.signal], wait.at_least);
      if (!repeats) continue;
      tile.first_wait += tile.num_waits;
      tile.num_waits = 0;
    }
  }
}

}  // namespace tilewire::cuda
