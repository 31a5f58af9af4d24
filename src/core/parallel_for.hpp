// Jobs that do not depend on each other, on all cores.
// Used by the command line (cli/all_cores.hpp) and by the tuner's model.
#pragma once

#include <cstddef>
#include <functional>

namespace tilewire {

/// Call job(0) ... job(count - 1), each once, on all cores that the process may use; on fewer where threads cannot be
/// started. An error ends everything: of several that one is thrown whose job is first.
void parallel_for(size_t count, const std::function<void(size_t)>& job);

}  // namespace tilewire
