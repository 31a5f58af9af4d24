// A device's clock in terms of the host's monotonic one, which all processes of a host share.
// One in every CudaProgram, for traces.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewire::cuda {

/// Times that a device is asked for in a row.
inline constexpr int kClockRounds = 48;

/// Memory of the host in which a kernel and the host talk.
struct ClockPage {
  alignas(128) uint32_t asked = 0;                          ///< by the host: rounds that it has asked for
  alignas(128) std::array<uint64_t, kClockRounds> times{};  ///< by the device: its answers, 0 = none yet
};
static_assert(sizeof(ClockPage) == 512);  // head.hpp has room for it

/// A time of the device, and the host's before it asked and after it had the answer.
struct ClockSample {
  int64_t before = 0;
  uint64_t device = 0;
  int64_t after = 0;
};

/// Host's time = device's time + offset, give or take `error`. Nanoseconds.
struct ClockMatch {
  int64_t offset_ns = 0;
  int64_t error_ns = -1;  ///< -1: nothing is known

  bool operator==(const ClockMatch&) const = default;
};

/// By the sample whose answer came soonest.
[[nodiscard]] ClockMatch best_match(std::span<const ClockSample> samples);

/// Load the kernel into the current device: the first launch of one that is not there waits for all that run.
void load_clock_kernel();

/// Ask the current device for its time again and again, by a kernel of one thread in `stream`, complete on return: some
/// 0.2 ms on an idle device. Nothing is known where it does not answer: where launches wait for the end of their
/// kernel. `page`: for one caller at a time.
[[nodiscard]] ClockMatch match_clocks(ClockPage& page, cudaStream_t stream);

}  // namespace tilewire::cuda
