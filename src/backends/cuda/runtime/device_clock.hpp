// A device's clock relative to the host's monotonic clock, which all processes of a host share.
// One in every CudaProgram, for traces.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewire::cuda {

/// Queries of one match_clocks.
inline constexpr int kClockRounds = 48;

/// Host memory for queries and answers.
struct ClockPage {
  alignas(128) uint32_t asked = 0;                          ///< by the host: number of queries so far
  alignas(128) std::array<uint64_t, kClockRounds> times{};  ///< by the device: its answers, 0 = none yet
};
static_assert(sizeof(ClockPage) == 512);  // fits into the status page (head.hpp)

/// A time of the device, and the host's times before the query and after the answer.
struct ClockSample {
  int64_t before = 0;
  uint64_t device = 0;
  int64_t after = 0;
};

/// Host time = device time + offset, within `error`. Nanoseconds.
struct ClockMatch {
  int64_t offset_ns = 0;
  int64_t error_ns = -1;  ///< -1: unknown

  bool operator==(const ClockMatch&) const = default;
};

/// The match of the sample with the fastest answer.
[[nodiscard]] ClockMatch best_match(std::span<const ClockSample> samples);

/// Load the kernel into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_clock_kernel();

/// Query the current device's time repeatedly, by a kernel of one thread in `stream`; complete on return, some 0.2 ms
/// on an idle device. Unknown if there is no answer, which is so where a launch waits for the end of its kernel.
/// `page`: for one caller at a time.
[[nodiscard]] ClockMatch match_clocks(ClockPage& page, cudaStream_t stream);

}  // namespace tilewire::cuda
