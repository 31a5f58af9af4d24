// Reads a kernel's report once, and lets its launcher make the Error.
// Called by programs and groups.
#include "backends/cuda/runtime/failures.hpp"

#include <atomic>
#include <utility>

namespace tilewire::cuda {

uint32_t Failures::add(Describe describe) {
  const std::lock_guard lock(mutex_);
  owners_.emplace(++last_owner_, std::move(describe));
  return last_owner_;
}

void Failures::remove(uint32_t owner) {
  static_cast<void>(first());
  const std::lock_guard lock(mutex_);
  owners_.erase(owner);
}

std::optional<Error> Failures::first() {
  const std::lock_guard lock(mutex_);
  if (first_ || *const_cast<const volatile uint32_t*>(&report_->written) == 0) return first_;
  std::atomic_thread_fence(std::memory_order_acquire);
  const WaitFailure report = *report_;
  const auto owner = owners_.find(report.owner);
  if (owner == owners_.end()) {
    first_.emplace(ErrorKind::internal, "a kernel of no loaded program reported a failed wait");
  } else {
    first_.emplace(owner->second(report));
  }
  return first_;
}

}  // namespace tilewire::cuda
