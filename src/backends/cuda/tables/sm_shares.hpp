// How many CTAs each lane of a rank gets.
// Called when tables are made.
#pragma once

#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {

/// Lanes and CTAs of the kernel before a stream-ordered call of the library, or of the only one; or of that `after` the
/// call.
[[nodiscard]] WorkerTable counts_of(const HostWorkerTable& workers, bool after);

/// Everybody must be resident at once: where there is not room for what each lane wants, the widest give way.
/// `tile_workers`: most CTAs that compute; 0 = as many as there is room for. `may_help`: find_helped_lanes follows, so
/// that lanes may give way where that saves a wave of tiles.
void share_out_sms(RankTables& tables, int sms, int tile_workers, bool may_help = false);

/// Lanes that are not sized, and whose steps are more than those who take them, get help from CTAs that begin when
/// others, those of tiles among them, end. After share_out_sms, when it is known which lanes have warpgroups.
void find_helped_lanes(RankTables& tables);

}  // namespace tilewire::cuda
