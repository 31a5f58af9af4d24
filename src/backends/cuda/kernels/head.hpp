// The head of every rank's arena, on its device.
// Written by groups and kernels, polled by kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/tile_table.hpp"

namespace tilewire::cuda {

/// Zeroed memory is a valid head.
struct alignas(128) Head {
  uint32_t abort = 0;     ///< not 0: the team is broken, all waits end. A rank that gives up writes 1 on every rank
  uint32_t reported = 0;  ///< not 0: a kernel of this rank has written a WaitFailure, or is writing one
  TeamCalls calls{};      ///< of this rank
};

/// Bytes of the arena for the head.
constexpr int64_t kHeadBytes = 4096;
/// Bytes of the status page, in host-mapped memory. It begins with the WaitFailure of a kernel that gave up.
constexpr int64_t kStatusBytes = 4096;
/// Offset in that page of the word by which the host ends all waits (WaitWatch::stop).
constexpr int64_t kStopOffset = 1024;
/// Offset in that page of the ClockPage, by which host and device compare their clocks.
constexpr int64_t kClockOffset = 1536;
/// The page is unused from this offset on.
constexpr int64_t kFreeStatus = 2048;

}  // namespace tilewire::cuda
