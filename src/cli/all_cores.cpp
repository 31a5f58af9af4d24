// Jobs on all cores, with a line of progress.
// Called by sim and studies/.
#include "cli/all_cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/ranks.hpp"
#include "core/machine.hpp"

namespace tilewire::cli {

void on_all_cores(size_t count, const std::string& what, const std::function<void(size_t)>& job) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  size_t first_error = count;
  Progress progress(0);
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
        const std::lock_guard lock(mutex);
        progress.show(fmt::format("{} of {} {} begun", std::min(count, next.load()), count, what));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < first_error) {
          first_error = i;
          error = std::current_exception();
        }
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t workers = std::min(count, static_cast<size_t>(usable_cores()));
    for (size_t i = 1; i < workers; ++i) threads.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tilewire::cli
