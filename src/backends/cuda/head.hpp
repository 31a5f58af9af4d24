// What lies at the beginning of every rank's arena, on its device.
// Written by groups and kernels, polled by kernels.
#pragma once

#include <cstdint>

namespace tilewire::cuda {

/// Zeroed memory is a valid head.
struct alignas(128) Head {
  uint32_t abort = 0;  ///< not 0: the team is broken, all waits end. Whoever gives up writes 1 on every rank
};

/// Bytes of the arena that are the head's.
constexpr int64_t kHeadBytes = 4096;
/// Bytes of the page in the host's memory where kernels say why they gave up.
constexpr int64_t kStatusBytes = 4096;

}  // namespace tilewire::cuda
