// Exchanges file descriptors between the processes of a team, for memory that only its owner can open.
// Called by backends whose memory is not in the shared segment.
#pragma once

#include <vector>

#include "backends/host/group.hpp"

namespace tilewire::host {

/// Send the descriptor `mine` to every peer. [r] of the result is the descriptor of rank r; this rank's entry is
/// closed. Collective; ranks must be processes. Processes that are not ranks of the group are ignored. Throws
/// Error(timeout) with the silent ranks, or Error(rank_lost); the group is then broken.
[[nodiscard]] std::vector<Descriptor> exchange_descriptors(HostGroup& group, int mine);

}  // namespace tilewire::host
