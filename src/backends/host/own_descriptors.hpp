// Runs code with free file descriptors in a process that has none left.
// Called by the rendezvous, so that a rank at its limit of descriptors can still report that.
#pragma once

#include <functional>

namespace tilewire::host {

/// Call `act` in a thread whose descriptor table holds only `kept` (nothing if negative), so that `act` can open up to
/// the process's limit. There are no standard streams in it. Returns whether `act` ran without an exception.
bool with_own_descriptors(int kept, const std::function<void()>& act);

}  // namespace tilewire::host
