// The products of the GEMV kernel: 16-bit types on tensor cores, fp32 by multiply-adds.
// Included by gemv_kernel.cuh.
#pragma once

#include "backends/cuda/kernels/blocks.cuh"
#include "backends/cuda/kernels/gemv_loads.cuh"

namespace tilewire::cuda {

__device__ __forceinline__ uint4 load_piece(uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
}
__device__ __forceinline__ uint32_t load_word(uint32_t from) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

__device__ __forceinline__ void multiply(__nv_bfloat16, float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(__half, float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// A thread's operands of a step, and its products. 16-bit types: weights are the first operand of mma.m16n8k16, so
/// that 16 lines x 8 rows of A are one instruction. Eight consecutive elements of K are a thread's operands of two.
template <typename T, BLayout kLayout, int kBlocks>
struct Operations {
  static constexpr int kSums = 4;  ///< of a tile and block
  /// Whether a thread reads pieces that others copied.
  static constexpr bool kShares = kLayout == BLayout::kn;
  uint4 a[kBlocks];
  uint4 b[2];

  __device__ __forceinline__ void load_a(int block, uint32_t from) {
    a[block] = load_piece(from + threadIdx.x % 32 * kPieceBytes);
  }
  __device__ __forceinline__ void load_b(uint32_t from) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t own = from + half * kPiecesBytes + threadIdx.x % 32 * kPieceBytes;
      if constexpr (kLayout == BLayout::nk) {
        b[half] = load_piece(own);
      } else {
        uint32_t words[4];
        ptx::load_blocks_turned(own, words);
        b[half] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
  __device__ __forceinline__ void multiply_tile(float (&sums)[kBlocks][kSums]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      multiply(T{}, sums[block], b[0].x, b[1].x, b[0].y, b[1].y, a[block].x, a[block].y);
      multiply(T{}, sums[block], b[0].z, b[1].z, b[0].w, b[1].w, a[block].z, a[block].w);
    }
  }
  /// Put the products of a tile and block at `to`, rows `pitch` apart.
  static __device__ __forceinline__ void keep(const float (&sums)[kSums], float* to, int pitch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kSums; ++i) to[(lane % 4 * 2 + i % 2) * pitch + lane / 4 + i / 2 * 8] = sums[i];
  }
};

/// fp32: thread 4 i + j multiplies lines i and i + 8 by all rows of A, over a quarter of the step: of [N, K] the j-th
/// one, of [K, N] every fourth element from the j-th one on.
template <BLayout kLayout, int kBlocks>
struct Operations<float, kLayout, kBlocks> {
  static constexpr int kSums = 2 * kRowBlock;
  static constexpr bool kShares = true;
  uint4 a[kBlocks * kRowBlock];
  uint4 b[2];

  __device__ __forceinline__ void load_a(int block, uint32_t from) {
    const uint32_t part = threadIdx.x % 4;
#pragma unroll
    for (int row = 0; row < kRowBlock; ++row) {
      const uint32_t of_row = from + row * 4 * kPieceBytes;
      a[block * kRowBlock + row] =
          kLayout == BLayout::nk ? load_piece(of_row + part * kPieceBytes) : load_words(of_row + part * 4, kPieceBytes);
    }
  }
  __device__ __forceinline__ void load_b(uint32_t from) {
    constexpr uint32_t kLine = kTileLines * sizeof(float);  // of [K, N]
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      b[half] = kLayout == BLayout::nk ? load_piece(from + half * kPiecesBytes + lane * kPieceBytes)
                                       : load_words(from + lane % 4 * kLine + (half * 8 + lane / 4) * 4, 4 * kLine);
    }
  }
  __device__ __forceinline__ void multiply_tile(float (&sums)[kBlocks][kSums]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const uint4& x = a[block * kRowBlock + i % kRowBlock];
        const uint4& y = b[i / kRowBlock];
        float& sum = sums[block][i];
        sum = fmaf(__uint_as_float(x.x), __uint_as_float(y.x), sum);
        sum = fmaf(__uint_as_float(x.y), __uint_as_float(y.y), sum);
        sum = fmaf(__uint_as_float(x.z), __uint_as_float(y.z), sum);
        sum = fmaf(__uint_as_float(x.w), __uint_as_float(y.w), sum);
      }
    }
  }
  static __device__ __forceinline__ void keep(const float (&sums)[kSums], float* to, int pitch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      float sum = sums[i];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (lane % 4 == i % 4) to[i % kRowBlock * pitch + lane / 4 + i / kRowBlock * 8] = sum;
    }
  }

 private:
  static __device__ __forceinline__ uint4 load_words(uint32_t from, uint32_t apart) {
    return make_uint4(load_word(from), load_word(from + apart), load_word(from + 2 * apart),
                      load_word(from + 3 * apart));
  }
};

/// The products of the warp's lines and slice of K.
template <typename T, BLayout kLayout, int kTiles, int kBlocks, int kSums>
__device__ __forceinline__ void multiply_all(const LoadStream<T, kLayout, kTiles, kBlocks>& stream, bool constant_b,
                                             float (&sums)[kTiles][kBlocks][kSums]) {
  using Of = Ring<kTiles, kBlocks>;
  Operations<T, kLayout, kBlocks> operations;
  if (constant_b) stream.fill(true, false);
  ptx::await_earlier_kernels();
  stream.fill(!constant_b, true);
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < stream.steps; ++step) {
    const int next = step + Of::kSteps;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      asm volatile("cp.async.wait_group %0;" ::"n"(Of::kLoads - 1) : "memory");
      if constexpr (operations.kShares) __syncwarp();
      if (tile == 0) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) operations.load_a(block, stream.block(slot, block));
      }
      operations.load_b(stream.tile(slot, tile));
      if constexpr (operations.kShares) __syncwarp();
      if (next < stream.steps) {
        stream.load_b(next, slot, tile);
        if (tile == 0) stream.load_a(next, slot);
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      operations.multiply_tile(sums[tile]);
    }
    if (++slot == Of::kSteps) slot = 0;
  }
}

}  // namespace tilewire::cuda
