// Elements of any dtype on the device: eight at a time where alignment allows it, one at a time elsewhere.
// Used by walk.cuh.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

__device__ inline int element_bytes(DType dtype) { return dtype == DType::fp32 || dtype == DType::int32 ? 4 : 2; }

__device__ inline float load_element(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
    case DType::fp16:
      return __half2float(*reinterpret_cast<const __half*>(from));
    case DType::int32:
      return static_cast<float>(*reinterpret_cast<const int32_t*>(from));
    case DType::fp32:
      break;
  }
  return *reinterpret_cast<const float*>(from);
}

__device__ inline void store_element(std::byte* to, DType dtype, float value) {
  switch (dtype) {
    case DType::bf16:
      *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
      return;
    case DType::fp16:
      *reinterpret_cast<__half*>(to) = __float2half_rn(value);
      return;
    case DType::int32:
      *reinterpret_cast<int32_t*>(to) = __float2int_rn(value);
      return;
    case DType::fp32:
      *reinterpret_cast<float*>(to) = value;
  }
}

/// Add in memory that other GPUs add to at the same time.
__device__ inline void add_element(std::byte* to, DType dtype, float value) {
  if (dtype == DType::bf16) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    asm volatile("red.relaxed.sys.global.add.noftz.bf16 [%0], %1;" ::"l"(to),
                 "h"(*reinterpret_cast<const uint16_t*>(&rounded))
                 : "memory");
  } else if (dtype == DType::fp16) {
    const __half rounded = __float2half_rn(value);
    asm volatile("red.relaxed.sys.global.add.noftz.f16 [%0], %1;" ::"l"(to),
                 "h"(*reinterpret_cast<const uint16_t*>(&rounded))
                 : "memory");
  } else {
    asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
  }
}

constexpr int kEight = 8;

/// Eight elements of 16 bits.
__device__ __forceinline__ void widen_eight(const uint4& packed, DType dtype, float* values) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = dtype == DType::bf16 ? __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&words[i]))
                                             : __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

/// Eight consecutive elements, aligned to 16 bytes.
__device__ inline void load_eight(const std::byte* from, DType dtype, float* values) {
  const uint4 first = *reinterpret_cast<const uint4*>(from);
  if (dtype == DType::fp32) {
    const uint4 second = *reinterpret_cast<const uint4*>(from + 16);
    const uint32_t words[kEight] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = __uint_as_float(words[i]);
    return;
  }
  widen_eight(first, dtype, values);
}

__device__ __forceinline__ void store_eight(std::byte* to, DType dtype, const float* values) {
  uint32_t words[kEight];
  if (dtype == DType::fp32) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) words[i] = __float_as_uint(values[i]);
    *reinterpret_cast<uint4*>(to + 16) = make_uint4(words[4], words[5], words[6], words[7]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = make_float2(values[2 * i], values[2 * i + 1]);
      if (dtype == DType::bf16) {
        const __nv_bfloat162 rounded = __float22bfloat162_rn(pair);
        words[i] = *reinterpret_cast<const uint32_t*>(&rounded);
      } else {
        const __half2 rounded = __float22half2_rn(pair);
        words[i] = *reinterpret_cast<const uint32_t*>(&rounded);
      }
    }
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace tilewire::cuda
