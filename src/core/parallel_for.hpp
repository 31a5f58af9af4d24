// Runs independent jobs on all cores.
// Used by the command line (cli/all_cores.hpp) and by the tuner's model.
#pragma once

#include <cstddef>
#include <functional>

namespace tilewire {

/// Call job(0) ... job(count - 1), each once, on all cores that the process may use, or on fewer if threads cannot
/// start. After an exception no further job starts; of several exceptions, the one with the lowest job number is
/// thrown.
void parallel_for(size_t count, const std::function<void(size_t)>& job);

}  // namespace tilewire
