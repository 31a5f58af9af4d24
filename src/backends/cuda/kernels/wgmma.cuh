// wgmma, the warpgroup matrix instruction m64nNk16: fp32 += A * B, both in shared memory, K-major or MN-major.
// Used by gemm_tiles.cuh. One macro writes all widths and both dtypes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/kernels/ptx.cuh"

namespace tilewire::cuda::ptx {

/// Call it before the first wgmma that uses registers or shared memory that this thread has accessed.
__device__ inline void matrix_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void matrix_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Wait until all but the newest kDeferred groups are done with their registers and shared memory.
template <int kDeferred>
__device__ inline void matrix_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kDeferred) : "memory");
}
/// Keeps the compiler from moving uses of the accumulators across a matrix_wait.
template <int kCount>
__device__ inline void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// The descriptor of an operand in shared memory with 128-byte swizzle. `leading`: bytes between blocks of 64 elements
/// along M or N (MN-major only). Groups of 8 rows are 1024 bytes apart.
__device__ inline uint64_t matrix_descriptor(const void* p, uint32_t leading) {
  return static_cast<uint64_t>((shared_address(p) & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}

// TW_Ln: the operand names of the first n accumulators.
#define TW_L4 "%0, %1, %2, %3"
#define TW_L8 TW_L4 ", %4, %5, %6, %7"
#define TW_L12 TW_L8 ", %8, %9, %10, %11"
#define TW_L16 TW_L12 ", %12, %13, %14, %15"
#define TW_L20 TW_L16 ", %16, %17, %18, %19"
#define TW_L24 TW_L20 ", %20, %21, %22, %23"
#define TW_L28 TW_L24 ", %24, %25, %26, %27"
#define TW_L32 TW_L28 ", %28, %29, %30, %31"
#define TW_L36 TW_L32 ", %32, %33, %34, %35"
#define TW_L40 TW_L36 ", %36, %37, %38, %39"
#define TW_L44 TW_L40 ", %40, %41, %42, %43"
#define TW_L48 TW_L44 ", %44, %45, %46, %47"
#define TW_L52 TW_L48 ", %48, %49, %50, %51"
#define TW_L56 TW_L52 ", %52, %53, %54, %55"
#define TW_L60 TW_L56 ", %56, %57, %58, %59"
#define TW_L64 TW_L60 ", %60, %61, %62, %63"
#define TW_L68 TW_L64 ", %64, %65, %66, %67"
#define TW_L72 TW_L68 ", %68, %69, %70, %71"
#define TW_L76 TW_L72 ", %72, %73, %74, %75"
#define TW_L80 TW_L76 ", %76, %77, %78, %79"
#define TW_L84 TW_L80 ", %80, %81, %82, %83"
#define TW_L88 TW_L84 ", %84, %85, %86, %87"
#define TW_L92 TW_L88 ", %88, %89, %90, %91"
#define TW_L96 TW_L92 ", %92, %93, %94, %95"
#define TW_L100 TW_L96 ", %96, %97, %98, %99"
#define TW_L104 TW_L100 ", %100, %101, %102, %103"
#define TW_L108 TW_L104 ", %104, %105, %106, %107"
#define TW_L112 TW_L108 ", %108, %109, %110, %111"
#define TW_L116 TW_L112 ", %112, %113, %114, %115"
#define TW_L120 TW_L116 ", %116, %117, %118, %119"
#define TW_L124 TW_L120 ", %120, %121, %122, %123"
#define TW_L128 TW_L124 ", %124, %125, %126, %127"
#define TW_D8(d, i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define TW_D32(d, i) TW_D8(d, i), TW_D8(d, i + 8), TW_D8(d, i + 16), TW_D8(d, i + 24)
#define TW_O32 TW_D32(d, 0)
#define TW_O64 TW_O32, TW_D32(d, 32)
#define TW_O80 TW_O64, TW_D8(d, 64), TW_D8(d, 72)
#define TW_O96 TW_O64, TW_D32(d, 64)
#define TW_O128 TW_O96, TW_D32(d, 96)
#define TW_WGMMA(count, cols, dtype, a_op, b_op, add_op, turn_a_op, turn_b_op, list)                                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_op                                                            \
               ", 0;\n"                                                                                                \
               "wgmma.mma_async.sync.aligned.m64n" #cols "k16.f32." dtype "." dtype " {" list "}, %" #a_op ", %" #b_op \
               ", p, 1, 1, %" #turn_a_op ", %" #turn_b_op ";\n}"                                                       \
               : TW_O##count                                                                                           \
               : "l"(a), "l"(b), "r"(add), "n"(kMMajor ? 1 : 0), "n"(kNMajor ? 1 : 0))
// One width, both dtypes. `list`: the names of the accumulators in use, the first of `count`; then the numbers of the
// other operands.
#define TW_WIDTH(count, cols, list, ...)                                                                     \
  if constexpr (kCount == count && kCols == cols && kBf16) TW_WGMMA(count, cols, "bf16", __VA_ARGS__, list); \
  if constexpr (kCount == count && kCols == cols && !kBf16) TW_WGMMA(count, cols, "f16", __VA_ARGS__, list)
#define TW_OF_64(cols, list) TW_WIDTH(64, cols, list, 64, 65, 66, 67, 68)
#define TW_OF_96(cols, list) TW_WIDTH(96, cols, list, 96, 97, 98, 99, 100)
#define TW_OF_128(cols, list) TW_WIDTH(128, cols, list, 128, 129, 130, 131, 132)

/// d (+)= A * B for 64 rows and kCols columns, in the first kCols / 2 values of d. The operands are K-major, except A
/// with kMMajor ([K,M]) and B with kNMajor ([K,N]). Asynchronous.
template <typename In, bool kMMajor, bool kNMajor, int kCols, int kCount>
__device__ inline void multiply(float (&d)[kCount], uint64_t a, uint64_t b, uint32_t add) {
  constexpr bool kBf16 = std::is_same_v<In, __nv_bfloat16>;
  static_assert(kBf16 || std::is_same_v<In, __half>);
  static_assert(kCols % 8 == 0 && kCols <= 2 * kCount);
  constexpr int kLeast = kCount == 64 ? 8 : kCount == 96 ? 136 : kCount == 128 ? 184 : 2 * kCount;
  static_assert(kCols >= kLeast && (kCount == 32 || kCount == 64 || kCount == 80 || kCount == 96 || kCount == 128));
  TW_WIDTH(32, 64, TW_L32, 32, 33, 34, 35, 36);
  TW_WIDTH(80, 160, TW_L80, 80, 81, 82, 83, 84);
  TW_OF_64(8, TW_L4);
  TW_OF_64(16, TW_L8);
  TW_OF_64(24, TW_L12);
  TW_OF_64(32, TW_L16);
  TW_OF_64(40, TW_L20);
  TW_OF_64(48, TW_L24);
  TW_OF_64(56, TW_L28);
  TW_OF_64(64, TW_L32);
  TW_OF_64(72, TW_L36);
  TW_OF_64(80, TW_L40);
  TW_OF_64(88, TW_L44);
  TW_OF_64(96, TW_L48);
  TW_OF_64(104, TW_L52);
  TW_OF_64(112, TW_L56);
  TW_OF_64(120, TW_L60);
  TW_OF_64(128, TW_L64);
  TW_OF_96(136, TW_L68);
  TW_OF_96(144, TW_L72);
  TW_OF_96(152, TW_L76);
  TW_OF_96(160, TW_L80);
  TW_OF_96(168, TW_L84);
  TW_OF_96(176, TW_L88);
  TW_OF_96(192, TW_L96);
  TW_OF_128(184, TW_L92);
  TW_OF_128(192, TW_L96);
  TW_OF_128(200, TW_L100);
  TW_OF_128(208, TW_L104);
  TW_OF_128(216, TW_L108);
  TW_OF_128(224, TW_L112);
  TW_OF_128(232, TW_L116);
  TW_OF_128(240, TW_L120);
  TW_OF_128(248, TW_L124);
  TW_OF_128(256, TW_L128);
}

#undef TW_OF_64
#undef TW_OF_96
#undef TW_OF_128
#undef TW_WIDTH
#undef TW_WGMMA
#undef TW_O32
#undef TW_O64
#undef TW_O80
#undef TW_O96
#undef TW_O128
#undef TW_D8
#undef TW_D32
#undef TW_L4
#undef TW_L8
#undef TW_L12
#undef TW_L16
#undef TW_L20
#undef TW_L24
#undef TW_L28
#undef TW_L32
#undef TW_L36
#undef TW_L40
#undef TW_L44
#undef TW_L48
#undef TW_L52
#undef TW_L56
#undef TW_L60
#undef TW_L64
#undef TW_L68
#undef TW_L72
#undef TW_L76
#undef TW_L80
#undef TW_L84
#undef TW_L88
#undef TW_L92
#undef TW_L96
#undef TW_L100
#undef TW_L104
#undef TW_L108
#undef TW_L112
#undef TW_L116
#undef TW_L120
#undef TW_L124
#undef TW_L128

}  // namespace tilewire::cuda::ptx
