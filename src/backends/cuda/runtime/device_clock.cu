// A device's clock relative to the host's: a kernel that answers queries with its time.
// Called by programs when they are loaded, and when a trace is read.
#include <algorithm>
#include <atomic>
#include <vector>

#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/runtime/device_clock.hpp"
#include "backends/host/slot.hpp"

namespace tilewire::cuda {
namespace {

/// The kernel ends if it gets no query for so long.
constexpr uint64_t kPatienceNs = 1'000'000'000;

/// NOTE: an answer is one 64-bit store, so that it needs no fence, which would delay it.
__global__ void answer_kernel(ClockPage* page) {
  auto* times = reinterpret_cast<uint64_t*>(&page->times);
  for (uint32_t round = 0; round < kClockRounds; ++round) {
    const uint64_t begin = ptx::global_time_ns();
    for (uint32_t asked = 0; asked <= round;) {
      asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(asked) : "l"(&page->asked) : "memory");
      if (asked <= round && ptx::global_time_ns() - begin > kPatienceNs) return;
    }
    // NOTE: after the branch that depends on the query, so that the time is not read before the query has arrived.
    const uint64_t now = ptx::global_time_ns();
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(&times[round]), "l"(now) : "memory");
  }
}

/// Query once. False if the kernel has ended without an answer.
bool ask(ClockPage& page, uint32_t round, cudaStream_t stream, ClockSample& sample) {
  constexpr uint32_t kPollsPerQuery = 10000;
  const std::atomic_ref answer(page.times[round]);
  bool ended = false;
  sample.before = host::now_ns();
  std::atomic_ref(page.asked).store(round + 1, std::memory_order_relaxed);
  for (uint32_t polls = 1;; ++polls) {
    sample.device = answer.load(std::memory_order_relaxed);
    sample.after = host::now_ns();
    if (sample.device != 0 || ended) return sample.device != 0;
    if (polls % kPollsPerQuery != 0) continue;
    ended = cudaStreamQuery(stream) != cudaErrorNotReady;
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace

ClockMatch best_match(std::span<const ClockSample> samples) {
  if (samples.empty()) return {};
  const ClockSample& best =
      *std::ranges::min_element(samples, {}, [](const ClockSample& sample) { return sample.after - sample.before; });
  const int64_t error = (best.after - best.before + 1) / 2;
  return {best.before + error - static_cast<int64_t>(best.device), error};
}

void load_clock_kernel() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, answer_kernel), "cudaFuncGetAttributes");
}

ClockMatch match_clocks(ClockPage& page, cudaStream_t stream) {
  std::atomic_ref(page.asked).store(0);
  for (uint64_t& time : page.times) std::atomic_ref(time).store(0);
  launch_kernel("launch of answer_kernel", answer_kernel, 1, 1, stream, &page);
  std::vector<ClockSample> samples(kClockRounds);
  uint32_t answered = 0;
  while (answered < kClockRounds && ask(page, answered, stream, samples[answered])) ++answered;
  samples.resize(answered);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return best_match(samples);
}

}  // namespace tilewire::cuda
