// How many CTAs each lane of a rank gets.
// Called when tables are made.
#pragma once

#include "backends/cuda/lane_tables.hpp"

namespace tilewire::cuda {

/// Everybody must be resident at once: where there is not room for what each lane wants, the widest give way.
/// `tile_workers`: most CTAs that compute; 0 = as many as there is room for.
void share_out_sms(RankTables& tables, int sms, int tile_workers);

}  // namespace tilewire::cuda
