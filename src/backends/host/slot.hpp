// A 64-bit counter that only grows, with sleep and wake-up. It may be in memory shared by processes.
// Used for signals of plans, exchanges of the group, and sleeping workers.
#pragma once

#include <atomic>
#include <cstdint>

namespace tilewire::host {

/// Zeroed memory is a valid slot. One cache line, to avoid false sharing.
struct alignas(64) Slot {
  std::atomic<uint64_t> value{0};
  std::atomic<uint32_t> waiters{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Slot) == 64);

/// Add, and wake all threads that sleep on the slot, or at most `most`. Releases all earlier writes.
void post(Slot& slot, uint64_t add, int most = INT32_MAX);
/// Whether the counter has reached `wanted`. Acquires the writes before the posts.
[[nodiscard]] inline bool reached(const Slot& slot, uint64_t wanted) {
  return slot.value.load(std::memory_order_acquire) >= wanted;
}
/// Poll for a few microseconds without sleeping.
[[nodiscard]] bool reached_soon(const Slot& slot, uint64_t wanted);
/// Sleep until the counter reaches `wanted` or `limit_ns` have passed. Returns whether it was reached.
[[nodiscard]] bool sleep_until_reached(Slot& slot, uint64_t wanted, int64_t limit_ns);
/// Wait without a deadline, for work with a bounded duration.
void wait_for_ever(Slot& slot, uint64_t wanted);

/// CLOCK_MONOTONIC: one clock for all processes of a host.
[[nodiscard]] int64_t now_ns();

}  // namespace tilewire::host
