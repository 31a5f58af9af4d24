// Jobs on all cores, with a line of progress.
// Used by sim and studies/.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tilewire::cli {

/// Call job(0) ... job(count - 1), each once, on all cores, and show "3 of 8 WHAT begun". An error ends everything: of
/// several that one is thrown whose job is first.
void on_all_cores(size_t count, const std::string& what, const std::function<void(size_t)>& job);

}  // namespace tilewire::cli
