// The threads that execute an op together, and their barrier.
// Used by workers.cuh and norm_op.cuh.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/ptx.cuh"

namespace tilewire::cuda {

/// The threads that execute an op together: a CTA, or one of its warpgroups.
struct Warpgroup {
  uint32_t index = 0;  ///< in the CTA
  uint32_t count = 1;  ///< of the CTA

  [[nodiscard]] __device__ uint32_t threads() const { return blockDim.x / count; }
  [[nodiscard]] __device__ uint32_t thread() const { return threadIdx.x % threads(); }
  /// Synchronise its threads.
  __device__ void meet() const { ptx::cta_meet(1 + index, threads()); }
  /// The same; whether `says` holds for at least one thread.
  __device__ bool any(bool says) const { return ptx::cta_any(1 + index, threads(), says); }
};

}  // namespace tilewire::cuda
