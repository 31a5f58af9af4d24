// Slots by futex: sleepers watch the low half of the counter.
// Called by groups, programs and their workers.
#include "backends/host/slot.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <ctime>

namespace tilewire::host {
namespace {

static_assert(std::endian::native == std::endian::little, "the low half of a counter is its first word");

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kForEver = 3600 * kSecond;

uint32_t* low_half(Slot& slot) { return reinterpret_cast<uint32_t*>(&slot.value); }

void futex_wait(Slot& slot, uint64_t seen, int64_t limit_ns) {
  const timespec limit{limit_ns / kSecond, limit_ns % kSecond};
  syscall(SYS_futex, low_half(slot), FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void post(Slot& slot, uint64_t add, int most) {
  // NOTE: both sides are sequentially consistent: either this thread sees the waiter, or the waiter sees the new value.
  slot.value.fetch_add(add, std::memory_order_seq_cst);
  if (slot.waiters.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, low_half(slot), FUTEX_WAKE, most, nullptr, nullptr, 0);
}

bool reached_soon(const Slot& slot, uint64_t wanted) {
  constexpr int kPolls = 100;
  for (int look = 0; look < kPolls; ++look) {
    if (reached(slot, wanted)) return true;
    pause();
  }
  return false;
}

bool sleep_until_reached(Slot& slot, uint64_t wanted, int64_t limit_ns) {
  const int64_t deadline = now_ns() + limit_ns;
  slot.waiters.fetch_add(1, std::memory_order_seq_cst);
  uint64_t seen = slot.value.load(std::memory_order_seq_cst);
  while (seen < wanted) {
    const int64_t left = deadline - now_ns();
    if (left <= 0) break;
    futex_wait(slot, seen, left);
    seen = slot.value.load(std::memory_order_seq_cst);
  }
  slot.waiters.fetch_sub(1, std::memory_order_relaxed);
  return seen >= wanted;
}

void wait_for_ever(Slot& slot, uint64_t wanted) {
  if (reached_soon(slot, wanted)) return;
  while (!sleep_until_reached(slot, wanted, kForEver)) {
  }
}

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

}  // namespace tilewire::host
