// Configs whose copies are made by engines: whole shards, or parts of them.
// Used by gpu_gather_choices.cpp and gpu_choices.cpp.
#pragma once

#include "schedules/gpu_tiles.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Copies by copy engines, which meet nobody at their destination.
[[nodiscard]] Config paced(const char* schedule, const Team& team);

/// Copies that nothing paces, as of parts of shards: a peer waited for costs more than two senders that meet
/// (docs/decisions.md).
[[nodiscard]] Config unpaced();

/// Whether a quarter of a shard is worth a copy of its own. The rows of smaller shards are so few that a GEMM that
/// takes them shard by shard reads B too often.
[[nodiscard]] bool has_quarters(const Problem& problem, const Team& team);

/// One of so many parts of a shard at once.
[[nodiscard]] Config in_parts_of_shard(const Problem& problem, const Team& team, const TileChoice& tile, int parts);

/// The same, and the tiles of each part are made together.
[[nodiscard]] Config in_groups_of_shard(const Problem& problem, const Team& team, const TileChoice& tile, int parts);

}  // namespace tilewire
