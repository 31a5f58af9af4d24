// What lies at the beginning of every rank's arena, on its device.
// Written by groups and kernels, polled by kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/tile_table.hpp"

namespace tilewire::cuda {

/// Zeroed memory is a valid head.
struct alignas(128) Head {
  uint32_t abort = 0;     ///< not 0: the team is broken, all waits end. Whoever gives up writes 1 on every rank
  uint32_t reported = 0;  ///< not 0: a kernel of this rank has said, or is saying, what it waited for
  TeamCalls calls{};      ///< of this rank
};

/// Bytes of the arena that are the head's.
constexpr int64_t kHeadBytes = 4096;
/// Bytes of a page in the host's memory. At its begin, kernels say why they gave up (WaitFailure).
constexpr int64_t kStatusBytes = 4096;
/// Where the host says in that page that all are to leave.
constexpr int64_t kStopOffset = 1024;
/// Where host and device meet to compare their clocks (ClockPage).
constexpr int64_t kClockOffset = 1536;
/// From here on nobody uses it.
constexpr int64_t kFreeStatus = 2048;

}  // namespace tilewire::cuda
