// File descriptors that processes of a team give each other, for memory that only its owner can name.
// Called by backends whose memory the segment does not hold.
#pragma once

#include <vector>

#include "backends/host/group.hpp"

namespace tilewire::host {

/// Give `mine` to every other rank; [r] is what rank r gave, mine stays closed. Collective; ranks must be processes.
/// Takes nothing from processes that are not ranks of the group. Throws Error(timeout) that names the silent ranks, or
/// Error(rank_lost); the group is broken then.
[[nodiscard]] std::vector<Descriptor> exchange_descriptors(HostGroup& group, int mine);

}  // namespace tilewire::host
