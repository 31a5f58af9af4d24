// A fake driver whose devices are shared memory of the host, to test symmetric memory without a GPU.
// Used by memory_test.cpp, and under the fake runtime.
#pragma once

#include <cstdint>

#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::testing {

[[nodiscard]] cuda::Driver fake_driver();

/// What the fake has handed out and has not got back, in this process.
struct FakeUse {
  int handles = 0;
  int mappings = 0;
  int reservations = 0;

  bool operator==(const FakeUse&) const = default;
};
[[nodiscard]] FakeUse fake_use();

/// From now on, allocations larger than this fail as on a full device; of this process only.
void limit_fake_memory(int64_t bytes);
/// From now on, to give access fails, as between devices without a link; in this process only.
void forbid_fake_access(bool forbid);

}  // namespace tilewire::testing
