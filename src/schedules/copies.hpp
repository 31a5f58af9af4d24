// Ways to copy and send that several tables of candidates share.
// Called by the tables: gather_ways.cpp, reduce_ways.cpp and the planners' own.
#pragma once

#include <cstdint>

#include "tilewire/spi/schedule.hpp"

namespace tilewire {

/// Numbers of rows for `Way::rows`.
inline constexpr int64_t kAnyRows = int64_t{1} << 62;
inline constexpr Range kAll{0, kAnyRows};

/// Copy engines copy or send whole shards; of several peers in lockstep.
void by_engines(const Workload& work, Config& config);
/// The same, with calls of the library instead of tiles.
void by_engines_of_library(const Workload& work, Config& config);
/// Copy engines send so many parts of each shard, in any order.
void in_parts_of_shard(const Workload& work, Config& config, int64_t parts);
/// The same, and the row tiles of a part are a group.
void in_groups_of_shard(const Workload& work, Config& config, int64_t parts);
void in_halves_of_shard(const Workload& work, Config& config);
void in_quarters_of_shard(const Workload& work, Config& config);
/// Whether quarters of a shard are worth a copy of their own.
[[nodiscard]] bool has_quarters(const Workload& work);
[[nodiscard]] bool has_no_quarters(const Workload& work);
/// A finished tile is stored where it belongs by tensor copies, or, where there is no GEMM, by workers.
void by_stores(const Workload& work, Config& config);

}  // namespace tilewire
