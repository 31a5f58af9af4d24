// A 64-bit counter that only grows, with sleep and wake-up; it may lie in memory shared by processes.
// Signals of plans, the group's barrier and the parking of workers are all slots.
#pragma once

#include <atomic>
#include <cstdint>

namespace tilewire::host {

/// Zeroed memory is a valid slot. One cache line, so that neighbours do not slow each other down.
struct alignas(64) Slot {
  std::atomic<uint64_t> value{0};
  std::atomic<uint32_t> waiters{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Slot) == 64);

/// Add and wake whoever sleeps on the slot, or `most` of them. Releases everything written before.
void post(Slot& slot, uint64_t add, int most = INT32_MAX);
/// Whether the counter has reached `wanted`. Acquires what was written before the posts.
[[nodiscard]] inline bool reached(const Slot& slot, uint64_t wanted) {
  return slot.value.load(std::memory_order_acquire) >= wanted;
}
/// Look again for a few microseconds without sleeping.
[[nodiscard]] bool reached_soon(const Slot& slot, uint64_t wanted);
/// Sleep until the counter reaches `wanted` or `limit_ns` have passed; says whether it was reached.
[[nodiscard]] bool sleep_until_reached(Slot& slot, uint64_t wanted, int64_t limit_ns);
/// Wait without a limit, for work that bounds itself.
void wait_for_ever(Slot& slot, uint64_t wanted);

/// CLOCK_MONOTONIC: one clock for all processes of a host.
[[nodiscard]] int64_t now_ns();

}  // namespace tilewire::host
