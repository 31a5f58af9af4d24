// Room for a few descriptors in a process that has none left.
// Called by the rendezvous, so that a rank at its limit can still say so.
#pragma once

#include <functional>

namespace tilewire::host {

/// Do `act` in a thread whose table of descriptors is its own and holds nothing but `kept`, where that is not negative:
/// what `act` opens counts against the limit alone. Nothing there is a standard stream. Says whether `act` was done and
/// threw nothing.
bool with_own_descriptors(int kept, const std::function<void()>& act);

}  // namespace tilewire::host
