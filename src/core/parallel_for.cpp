// Runs independent jobs on all cores.
// Called by the command line and by the tuner's model.
#include "core/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/machine.hpp"

namespace tilewire {

void parallel_for(size_t count, const std::function<void(size_t)>& job) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  size_t first_error = count;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
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
    try {
      for (size_t i = 1; i < workers; ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // NOTE: the threads that have started, and this one, do all jobs.
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tilewire
