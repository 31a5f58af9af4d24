// Runs jobs on all cores, with a progress line.
// Called by sim, demo and studies/.
#include "cli/all_cores.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "cli/ranks.hpp"
#include "core/parallel_for.hpp"

namespace tilewire::cli {

void on_all_cores(size_t count, const std::string& what, const std::function<void(size_t)>& job) {
  std::atomic<size_t> begun = 0;
  std::mutex mutex;
  Progress progress(0);
  parallel_for(count, [&](size_t i) {
    ++begun;
    job(i);
    const std::lock_guard lock(mutex);
    progress.show(fmt::format("{} of {} {} begun", begun.load(), count, what));
  });
}

}  // namespace tilewire::cli
