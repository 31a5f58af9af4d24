// Runs jobs on all cores, with a progress line.
// Used by sim and studies/.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tilewire::cli {

/// Call job(0) ... job(count - 1), each once, on all cores, and show "3 of 8 WHAT begun". An error ends the run; of
/// several errors, that of the first job is thrown.
void on_all_cores(size_t count, const std::string& what, const std::function<void(size_t)>& job);

}  // namespace tilewire::cli
