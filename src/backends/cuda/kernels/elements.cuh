// Elements of any dtype on the device: eight at a time if aligned, else one at a time.
// Used by all kernels that compute.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

/// NOTE: not of quantised types, for which store_quantised is: kernels of tensor cores store elements, too, and more
/// code would cost them registers.
__device__ inline int element_bytes(DType dtype) { return dtype == DType::fp32 || dtype == DType::int32 ? 4 : 2; }

__device__ inline float load_element(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
    case DType::fp16:
      return __half2float(*reinterpret_cast<const __half*>(from));
    case DType::int32:
      return static_cast<float>(*reinterpret_cast<const int32_t*>(from));
    default:
      break;
  }
  return *reinterpret_cast<const float*>(from);
}

/// The value after rounding to `dtype`.
__device__ inline float round_to(float value, DType dtype) {
  if (dtype == DType::bf16) return __bfloat162float(__float2bfloat16_rn(value));
  if (dtype == DType::fp16) return __half2float(__float2half_rn(value));
  return value;
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
    default:
      *reinterpret_cast<float*>(to) = value;
  }
}

/// Atomic addition at system scope, as other GPUs add to the same memory: one element, or 16 aligned bytes.
__device__ inline void add_here(__nv_bfloat16* to, __nv_bfloat16 value) {
  asm volatile("red.relaxed.sys.global.add.noftz.bf16 [%0], %1;" ::"l"(to),
               "h"(*reinterpret_cast<const uint16_t*>(&value))
               : "memory");
}
__device__ inline void add_here(__half* to, __half value) {
  asm volatile("red.relaxed.sys.global.add.noftz.f16 [%0], %1;" ::"l"(to),
               "h"(*reinterpret_cast<const uint16_t*>(&value))
               : "memory");
}
__device__ inline void add_here(float* to, float value) {
  asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__device__ inline void add_here(__nv_bfloat16* to, const uint4& words) {
  asm volatile("red.relaxed.sys.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ inline void add_here(__half* to, const uint4& words) {
  asm volatile("red.relaxed.sys.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ inline void add_here(float* to, const uint4& words) {
  asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(__uint_as_float(words.x)),
               "f"(__uint_as_float(words.y)), "f"(__uint_as_float(words.z)), "f"(__uint_as_float(words.w))
               : "memory");
}

__device__ inline void add_element(std::byte* to, DType dtype, float value) {
  if (dtype == DType::bf16) {
    add_here(reinterpret_cast<__nv_bfloat16*>(to), __float2bfloat16_rn(value));
  } else if (dtype == DType::fp16) {
    add_here(reinterpret_cast<__half*>(to), __float2half_rn(value));
  } else {
    add_here(reinterpret_cast<float*>(to), value);
  }
}

/// The same for 16 aligned bytes.
__device__ __forceinline__ void add_words(std::byte* to, DType dtype, const uint4& words) {
  if (dtype == DType::bf16) {
    add_here(reinterpret_cast<__nv_bfloat16*>(to), words);
  } else if (dtype == DType::fp16) {
    add_here(reinterpret_cast<__half*>(to), words);
  } else {
    add_here(reinterpret_cast<float*>(to), words);
  }
}

constexpr int kEight = 8;

// NOTE: by shifts. A cast through the address of `pair` leaves it in local memory in kernels of few rows.
__device__ __forceinline__ float2 widen_pair(__nv_bfloat16, uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U));
}
__device__ __forceinline__ float2 widen_pair(__half, uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}
__device__ __forceinline__ uint32_t round_pair(__nv_bfloat16, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t round_pair(__half, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// Convert eight elements of type T to fp32, and back.
template <typename T>
__device__ __forceinline__ void widen_eight(const uint4& packed, float* values) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = widen_pair(T{}, words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}
template <typename T>
__device__ __forceinline__ uint4 round_eight(const float* values) {
  return make_uint4(round_pair(T{}, values[0], values[1]), round_pair(T{}, values[2], values[3]),
                    round_pair(T{}, values[4], values[5]), round_pair(T{}, values[6], values[7]));
}
/// Add eight elements to the sums; the first term replaces them.
template <typename T>
__device__ __forceinline__ void add_eight(const uint4& packed, bool first, float* sums) {
  float values[kEight];
  widen_eight<T>(packed, values);
#pragma unroll
  for (int i = 0; i < kEight; ++i) sums[i] = first ? values[i] : __fadd_rn(sums[i], values[i]);
}

/// Load eight consecutive elements, aligned to 16 bytes.
__device__ inline void load_eight(const std::byte* from, DType dtype, float* values) {
  const uint4 first = *reinterpret_cast<const uint4*>(from);
  if (dtype == DType::fp32) {
    const uint4 second = *reinterpret_cast<const uint4*>(from + 16);
    const uint32_t words[kEight] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = __uint_as_float(words[i]);
    return;
  }
  dtype == DType::bf16 ? widen_eight<__nv_bfloat16>(first, values) : widen_eight<__half>(first, values);
}

/// The larger of two numbers without a sign; a NaN is the largest.
__device__ __forceinline__ float larger(float x, float y) {
  return __uint_as_float(max(__float_as_uint(x), __float_as_uint(y)));
}

/// is_quantised, on the device.
__device__ __forceinline__ bool is_one_byte(DType dtype) { return dtype == DType::fp8_e4m3 || dtype == DType::int8; }

constexpr float kLargestFp8 = largest_of(DType::fp8_e4m3);
constexpr float kLargestInt8 = largest_of(DType::int8);

/// The scale of a quantised row whose largest absolute value is `most`.
__device__ inline float scale_of(float most, DType dtype) {
  return most == 0 ? 1 : __fdiv_rn(most, dtype == DType::int8 ? kLargestInt8 : kLargestFp8);
}

/// The bits of a quantised number.
__device__ __forceinline__ uint32_t quantised(float value, DType dtype) {
  if (dtype == DType::fp8_e4m3) return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
  if (isnan(value)) return 0;
  return static_cast<uint32_t>(__float2int_rn(fminf(fmaxf(value, -127.0F), 127.0F))) & 0xFFU;
}

/// Quantise an element or eight, and store them; eight are aligned to 8 bytes.
__device__ __forceinline__ void store_quantised(std::byte* to, DType dtype, float value, float scale) {
  *reinterpret_cast<uint8_t*>(to) = static_cast<uint8_t>(quantised(__fdiv_rn(value, scale), dtype));
}
__device__ __forceinline__ void store_quantised(std::byte* to, DType dtype, const float (&values)[kEight],
                                                float scale) {
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kEight; ++i) words[i / 4] |= quantised(__fdiv_rn(values[i], scale), dtype) << i % 4 * 8;
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

__device__ inline uint4 round_eight(DType dtype, const float* values) {
  return dtype == DType::bf16 ? round_eight<__nv_bfloat16>(values) : round_eight<__half>(values);
}

}  // namespace tilewire::cuda
