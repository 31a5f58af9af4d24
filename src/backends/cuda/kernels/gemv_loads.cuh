// The loads of the GEMV kernel: each thread copies pieces of 16 bytes of B and A to its warp's ring in shared memory.
// Included by gemv_kernel.cuh.
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/gemv.hpp"
#include "backends/cuda/kernels/ptx.cuh"
#include "backends/cuda/kernels/sum_units.cuh"

namespace tilewire::cuda {

constexpr int kWarps = 8;  ///< that multiply
constexpr int kComputeThreads = kWarps * 32;
constexpr int kPieceBytes = 16;
constexpr int kPiecesBytes = 32 * kPieceBytes;  ///< of a warp
constexpr int kTileLines = 16;                  ///< lines of B that a warp multiplies at once
constexpr int kRowBlock = 8;                    ///< rows of A that it multiplies at once
constexpr int kMostRingBytes = 108 << 10;

/// Elements of K that a warp multiplies in a step: four pieces.
template <typename T>
constexpr int kStep = 4 * kUnit<T>;

/// Most tiles of a warp. NOTE: fp32 products are in registers, 16 for each tile and block.
template <typename T>
constexpr int kMostTiles = sizeof(T) == 4 ? 2 : 4;

/// What a warp multiplies in a step: `kTiles` x kTileLines lines of B by `kBlocks` x kRowBlock rows of A. And the ring
/// of steps in flight, of all threads' pieces: two of B for each tile, and one of A for each block.
template <int kTiles, int kBlocks>
struct Ring {
  static constexpr int kPieces = 2 * kTiles + kBlocks;
  static constexpr int kSteps = kMostRingBytes / (kPieces * kComputeThreads * kPieceBytes);
  static constexpr int kLoads = kSteps * kTiles;
  static constexpr int kWarpBytes = kSteps * kPieces * kPiecesBytes;
  static constexpr int kPitch = kTiles * kTileLines + 4;  ///< floats from row to row of a warp's sums, in its ring
  static_assert(kBlocks * kRowBlock * kPitch * 4 <= kWarpBytes);
};

/// Copy `bytes` of 16 to shared memory, and zeros behind them.
__device__ __forceinline__ void copy_weights(uint32_t to, const std::byte* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_piece(uint32_t to, const std::byte* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/// How the warps of a CTA share its lines of B and K: `groups` of warps take neighbouring tiles, `slices` of K each.
/// `most`: kMostTiles.
struct Sharing {
  int tiles;  ///< of kTileLines lines, of a warp
  int groups;
  int slices;

  __host__ __device__ constexpr Sharing(int lines, int most)
      : tiles((lines + kTileLines - 1) / kTileLines), groups(tiles > most ? 2 : 1), slices(kWarps / groups) {
    tiles = (tiles + groups - 1) / groups;
  }
};

/// Lines of B, i.e. its columns, that so many columns of the result take.
__host__ __device__ inline int lines_of(const GemvTable& table, int cols) { return table.pairs ? 2 * cols : cols; }

/// What the CTA makes, and a warp's part of it.
struct Part {
  Sharing sharing;
  int first_col;  ///< of the result
  int cols;
  int first_line;  ///< of B
  int lines;
  int slice;
  int tile_line;  ///< first line of the warp, of the CTA's
  int steps;      ///< of the warp
};

template <typename T>
__device__ inline Part part_of(const GemvTable& table) {
  Part part{.sharing = Sharing(lines_of(table, table.tile_cols), kMostTiles<T>)};
  part.first_col = static_cast<int>(blockIdx.x) * table.tile_cols;
  part.cols = min(table.tile_cols, table.cols - part.first_col);
  part.first_line = lines_of(table, part.first_col);
  part.lines = lines_of(table, part.cols);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  part.slice = warp % part.sharing.slices;
  part.tile_line = warp / part.sharing.slices * part.sharing.tiles * kTileLines;
  const int all = (table.depth + kStep<T> - 1) / kStep<T>;
  part.steps = max(0, (all - part.slice + part.sharing.slices - 1) / part.sharing.slices);
  return part;
}

/// A thread's loads of one operand. Tiles, steps and pieces that are not there are zeros.
struct Loads {
  const std::byte* first;  ///< the thread's first piece
  int64_t of_tile;         ///< bytes from tile to tile (of A: from block to block)
  int64_t of_piece;        ///< bytes from the first to the second piece of a tile
  int64_t of_step;
  int lines;  ///< that are there, from the thread's first one on
  int lines_of_tile;
  int lines_of_piece;
  int left;  ///< elements of K from the thread's first one on
  int left_of_piece;
  int left_of_step;
  int bytes_of_k;  ///< of a piece, that an element of K there is worth

  /// Bytes of a piece that are there.
  [[nodiscard]] __device__ __forceinline__ uint32_t bytes(int step, int tile, int piece) const {
    const int there = (left - step * left_of_step - piece * left_of_piece) * bytes_of_k;
    const bool in_lines = tile * lines_of_tile + piece * lines_of_piece < lines;
    return in_lines ? static_cast<uint32_t>(max(0, min(kPieceBytes, there))) : 0;
  }
  [[nodiscard]] __device__ __forceinline__ const std::byte* from(int step, int tile, int piece, uint32_t bytes) const {
    return bytes == 0 ? first : first + step * of_step + tile * of_tile + piece * of_piece;
  }
};

/// A thread's part of its warp's ring, and the loads that fill it.
///
/// B [N, K]: the first piece of thread 4 i + j is the j-th part of the step of line i, the second that of line i + 8.
/// B [K, N]: a thread's pieces are neighbouring columns of two lines of memory. 16-bit elements lie as ldmatrix needs
/// them so that its result is that of [N, K]; 32-bit elements lie as in memory.
template <typename T, BLayout kLayout, int kTiles, int kBlocks>
struct LoadStream {
  using Of = Ring<kTiles, kBlocks>;
  static constexpr bool kTurns = kLayout == BLayout::kn;
  static constexpr int kOfPiece = kTurns && sizeof(T) == 2 ? kPiecesBytes / 2 : kPiecesBytes;
  uint32_t ring;      ///< address of the warp's
  uint32_t to_b;      ///< where the thread's first piece of B goes
  uint32_t own_part;  ///< bytes from the warp's pieces to that of the thread
  Loads a{};
  Loads b{};
  int steps;

  __device__ LoadStream(const GemvTable& table, const Bases& bases, const Part& part, const uint8_t* of_warp)
      : ring(ptx::shared_address(of_warp)), own_part(threadIdx.x % 32 * kPieceBytes), steps(part.steps) {
    constexpr int kBytes = sizeof(T);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int k_of_step = part.sharing.slices * kStep<T>;
    const int k = part.slice * kStep<T> + lane % 4 * kUnit<T>;
    a.lines = table.rows - lane / 4;
    a.lines_of_tile = kRowBlock;
    a.left = table.depth - k;
    a.left_of_step = k_of_step;
    a.bytes_of_k = kBytes;
    a.of_tile = kRowBlock * table.lda * kBytes;
    a.of_step = int64_t{k_of_step} * kBytes;
    a.first = resolve(bases, table.a) + ((a.lines > 0 ? lane / 4 : 0) * table.lda + (a.left > 0 ? k : 0)) * kBytes;

    const int line_of_lane = !kTurns ? lane / 4 : kBytes == 2 ? lane % 2 * 8 : lane % 4 * 4;
    const int pair = lane / 2;
    const int k_of_lane = !kTurns       ? lane % 4 * kUnit<T>
                          : kBytes == 2 ? pair % 8 / 2 * 8 + pair / 8 * 2 + pair % 2
                                        : lane / 4;
    const int line = part.tile_line + line_of_lane;
    const int64_t pitch = table.ldb * kBytes;
    const int64_t of_line = kTurns ? kBytes : pitch;
    const int64_t of_k = kTurns ? pitch : kBytes;
    const int first_k = part.slice * kStep<T> + k_of_lane;
    b.lines = part.lines - line;
    b.lines_of_tile = kTileLines;
    b.lines_of_piece = kTurns ? 0 : kTileLines / 2;
    b.left = table.depth - first_k;
    b.left_of_piece = !kTurns ? 0 : kBytes == 2 ? 4 : 8;
    b.left_of_step = k_of_step;
    b.bytes_of_k = kTurns ? kPieceBytes : kBytes;
    b.of_tile = kTileLines * of_line;
    b.of_piece = (kTurns ? b.left_of_piece : b.lines_of_piece) * pitch;
    b.of_step = k_of_step * of_k;
    const bool there = b.lines > 0 && b.left > 0;
    b.first = resolve(bases, table.b) + part.first_line * of_line;
    if (there) b.first += line * of_line + first_k * of_k;
    to_b = ring + (kTurns && kBytes == 2 ? lane % 2 * kPiecesBytes + pair * kPieceBytes : own_part);
  }

  /// The warp's pieces of a tile of B, and of a block of A.
  [[nodiscard]] __device__ __forceinline__ uint32_t tile(int slot, int tile) const {
    return ring + (slot * kTiles + tile) * 2 * kPiecesBytes;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t block(int slot, int block) const {
    return ring + (Of::kLoads * 2 + slot * kBlocks + block) * kPiecesBytes;
  }
  __device__ __forceinline__ void load_b(int step, int slot, int of_tile) const {
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const uint32_t bytes = b.bytes(step, of_tile, piece);
      copy_weights(tile(slot, of_tile) - ring + to_b + piece * kOfPiece, b.from(step, of_tile, piece, bytes), bytes);
    }
  }
  __device__ __forceinline__ void load_a(int step, int slot) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const uint32_t bytes = a.bytes(step, i, 0);
      copy_piece(block(slot, i) + own_part, a.from(step, i, 0, bytes), bytes);
    }
  }
  /// Start the loads of the first steps: a group for each tile of a step. A comes with the first tile.
  __device__ __forceinline__ void fill(bool with_b, bool with_a) const {
#pragma unroll
    for (int step = 0; step < Of::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (with_b && step < steps) load_b(step, step, i);
        if (!with_a) continue;
        if (i == 0 && step < steps) load_a(step, step);
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
    }
  }
};

}  // namespace tilewire::cuda
