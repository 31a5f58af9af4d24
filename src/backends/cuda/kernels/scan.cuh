// Sums over the lanes of a warp.
// Used by gemm_groups.cuh and route_rows.cuh.
#pragma once

#include <cstdint>

namespace tilewire::cuda {

/// The sum of the values of the lanes up to this one.
__device__ inline uint32_t sum_to_lane(uint32_t value) {
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(~0U, value, step);
    if (threadIdx.x % 32 >= step) value += other;
  }
  return value;
}

}  // namespace tilewire::cuda
