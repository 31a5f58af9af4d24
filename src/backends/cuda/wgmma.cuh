// The warpgroup matrix instruction m64nNk16: fp32 += A (shared memory, K-major) * B (shared memory, either major).
// Used by gemm_tiles.cuh. One macro writes the five widths and two dtypes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/ptx.cuh"

namespace tilewire::cuda::ptx {

/// Before the first matrix instruction that uses registers or shared memory touched by this thread.
__device__ inline void matrix_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void matrix_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until all but the newest kPending groups are done with their registers and shared memory.
template <int kPending>
__device__ inline void matrix_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Keeps the compiler from moving uses of the accumulators across a matrix_wait.
template <int kCount>
__device__ inline void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// Describes an operand in shared memory with 128-byte swizzle. `leading`: bytes between blocks of 64 elements along
/// M or N (MN-major only); groups of 8 rows lie 1024 bytes apart.
__device__ inline uint64_t matrix_descriptor(const void* p, uint32_t leading) {
  return static_cast<uint64_t>((shared_address(p) & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}

#define TW_LIST_0                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TW_LIST_1                            \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define TW_LIST_2A                           \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define TW_LIST_2B                           \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define TW_LIST_3                                    \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define TW_D8(d, i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define TW_D32(d, i) TW_D8(d, i), TW_D8(d, i + 8), TW_D8(d, i + 16), TW_D8(d, i + 24)
#define TW_O32 TW_D32(d, 0)
#define TW_O64 TW_O32, TW_D32(d, 32)
#define TW_O80 TW_O64, TW_D8(d, 64), TW_D8(d, 72)
#define TW_O96 TW_O64, TW_D32(d, 64)
#define TW_O128 TW_O96, TW_D32(d, 96)
#define TW_L32 TW_LIST_0
#define TW_L64 TW_L32 ", " TW_LIST_1
#define TW_L80 TW_L64 ", " TW_LIST_2A
#define TW_L96 TW_L80 ", " TW_LIST_2B
#define TW_L128 TW_L96 ", " TW_LIST_3
#define TW_WGMMA(width, dtype, list, outputs, a_op, b_op, add_op, major_op)                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add_op                                                           \
               ", 0;\n"                                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" width "k16.f32." dtype "." dtype " {" list "}, %" a_op ", %" b_op \
               ", p, 1, 1, 0, %" major_op ";\n}"                                                                     \
               : outputs                                                                                             \
               : "l"(a), "l"(b), "r"(add), "n"(kNMajor ? 1 : 0))

/// d (+)= A * B for 64 rows and 2 * kCount columns of kNMajor ([K,N]) or K-major ([N,K]) B. Asynchronous.
template <typename In, bool kNMajor, int kCount>
__device__ inline void multiply(float (&d)[kCount], uint64_t a, uint64_t b, uint32_t add) {
  constexpr bool kBf16 = std::is_same_v<In, __nv_bfloat16>;
  static_assert(kBf16 || std::is_same_v<In, __half>);
  static_assert(kCount == 32 || kCount == 64 || kCount == 80 || kCount == 96 || kCount == 128);
  if constexpr (kCount == 32 && kBf16) TW_WGMMA("64", "bf16", TW_L32, TW_O32, "32", "33", "34", "35");
  if constexpr (kCount == 32 && !kBf16) TW_WGMMA("64", "f16", TW_L32, TW_O32, "32", "33", "34", "35");
  if constexpr (kCount == 64 && kBf16) TW_WGMMA("128", "bf16", TW_L64, TW_O64, "64", "65", "66", "67");
  if constexpr (kCount == 64 && !kBf16) TW_WGMMA("128", "f16", TW_L64, TW_O64, "64", "65", "66", "67");
  if constexpr (kCount == 80 && kBf16) TW_WGMMA("160", "bf16", TW_L80, TW_O80, "80", "81", "82", "83");
  if constexpr (kCount == 80 && !kBf16) TW_WGMMA("160", "f16", TW_L80, TW_O80, "80", "81", "82", "83");
  if constexpr (kCount == 96 && kBf16) TW_WGMMA("192", "bf16", TW_L96, TW_O96, "96", "97", "98", "99");
  if constexpr (kCount == 96 && !kBf16) TW_WGMMA("192", "f16", TW_L96, TW_O96, "96", "97", "98", "99");
  if constexpr (kCount == 128 && kBf16) TW_WGMMA("256", "bf16", TW_L128, TW_O128, "128", "129", "130", "131");
  if constexpr (kCount == 128 && !kBf16) TW_WGMMA("256", "f16", TW_L128, TW_O128, "128", "129", "130", "131");
}

#undef TW_WGMMA
#undef TW_L32
#undef TW_L64
#undef TW_L80
#undef TW_L96
#undef TW_L128
#undef TW_O32
#undef TW_O64
#undef TW_O80
#undef TW_O96
#undef TW_O128
#undef TW_D32
#undef TW_D8
#undef TW_LIST_0
#undef TW_LIST_1
#undef TW_LIST_2A
#undef TW_LIST_2B
#undef TW_LIST_3

}  // namespace tilewire::cuda::ptx
