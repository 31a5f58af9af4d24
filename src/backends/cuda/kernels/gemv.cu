// The GEMV kernel: few rows of A by many columns, at the rate of memory, and the sums across ranks behind it.
// Called by programs through gemv.hpp.
//
// A CTA makes up to 128 columns. Its warps slice K: weights are the first operand of mma.m16n8k16, so that 16 columns x
// 8 rows of A are one instruction. Each thread loads the pieces of B and of A that it multiplies itself, 16 bytes each,
// through a ring of its own in shared memory, so that no barrier is between the loads and the products. Eight
// consecutive elements of K are a thread's operands of two instructions.
#include <algorithm>
#include <array>

#include "backends/cuda/kernels/gemv.hpp"
#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/norm_columns.cuh"
#include "backends/cuda/kernels/sum_units.cuh"
#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {
namespace {

constexpr int kWarps = 8;  ///< that multiply
constexpr int kComputeThreads = kWarps * 32;
constexpr int kGemvThreads = kComputeThreads + 32;  ///< the last warp waits for signals
constexpr int kStep = 32;                           ///< elements of K of two instructions
constexpr int kPieceBytes = 16;
constexpr int kTileCols = 16;  ///< columns of an instruction
constexpr int kRowBlock = 8;   ///< rows of A of an instruction
constexpr int kMostRingBytes = 108 << 10;

/// What a warp multiplies in a step: `kTiles` x kTileCols columns by `kBlocks` x kRowBlock rows of A. And the ring of
/// steps in flight, of a thread's pieces: two of B for each tile, and one of A for each block.
template <int kTiles, int kBlocks>
struct Ring {
  static constexpr int kPieces = 2 * kTiles + kBlocks;
  static constexpr int kSteps = kMostRingBytes / (kPieces * kComputeThreads * kPieceBytes);
  static constexpr int kLoads = kSteps * kTiles;
  static constexpr int kWarpBytes = kSteps * kPieces * 32 * kPieceBytes;
  static constexpr int kPitch = kTiles * kTileCols + 4;  ///< floats from row to row of a warp's sums, in its ring
  static_assert(kBlocks * kRowBlock * kPitch * 4 <= kWarpBytes);
};

/// Copy `bytes` of 16 to shared memory, and zeros behind them.
__device__ __forceinline__ void copy_weights(uint32_t to, const std::byte* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_piece(uint32_t to, const std::byte* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ uint4 load_piece(uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
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

/// How the warps of a CTA share its columns and K: `groups` of warps take neighbouring tiles, `slices` of K each.
struct Sharing {
  int tiles;  ///< of kTileCols columns, of a warp
  int groups;
  int slices;

  __host__ __device__ explicit constexpr Sharing(int cols)
      : tiles((cols + kTileCols - 1) / kTileCols), groups(tiles > 4 ? 2 : 1), slices(kWarps / groups) {
    tiles = (tiles + groups - 1) / groups;
  }
};

/// What the CTA makes, and a warp's part of it.
struct Part {
  Sharing sharing;
  int first_col;  ///< of the result
  int cols;
  int slice;
  int tile_col;  ///< first column of the warp, of the CTA's
  int steps;     ///< of the warp
};

__device__ inline Part part_of(const GemvTable& table) {
  Part part{.sharing = Sharing(table.tile_cols)};
  part.first_col = static_cast<int>(blockIdx.x) * table.tile_cols;
  part.cols = min(table.tile_cols, table.cols - part.first_col);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  part.slice = warp % part.sharing.slices;
  part.tile_col = warp / part.sharing.slices * part.sharing.tiles * kTileCols;
  const int all = (table.depth + kStep - 1) / kStep;
  part.steps = max(0, (all - part.slice + part.sharing.slices - 1) / part.sharing.slices);
  return part;
}

/// A thread's loads: 16 bytes of a row of B or A in a step. Rows that are not there are zeros.
struct Loads {
  const std::byte* first;  ///< the thread's first row
  int64_t pitch;           ///< bytes from row to row
  int rows;                ///< that are there, from the thread's first one on
  int at;                  ///< element of K in the first step
  int stride;              ///< elements from step to step
  int depth;

  /// Whether `row` is there in `step`: where from, and how many bytes.
  __device__ __forceinline__ uint32_t bytes(int row, int step) const {
    const int left = (depth - at - step * stride) * 2;
    return row < rows ? static_cast<uint32_t>(max(0, min(kPieceBytes, left))) : 0;
  }
  __device__ __forceinline__ const std::byte* from(int row, int step, uint32_t bytes) const {
    return bytes == 0 ? first : first + row * pitch + int64_t{at + step * stride} * 2;
  }
};

/// A thread's part of its warp's ring, and the loads that fill it.
template <int kTiles, int kBlocks>
struct Stream {
  using Of = Ring<kTiles, kBlocks>;
  uint32_t ring;  ///< address of the thread's first piece
  Loads a;
  Loads b;
  int steps;

  __device__ Stream(const GemvTable& table, const Bases& bases, const Part& part, const uint8_t* of_warp)
      : ring(ptx::shared_address(of_warp) + threadIdx.x % 32 * kPieceBytes), steps(part.steps) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = lane / 4;
    b.at = part.slice * kStep + lane % 4 * 8;
    b.stride = part.sharing.slices * kStep;
    b.depth = table.depth;
    a = b;
    b.pitch = table.ldb * 2;
    b.rows = part.cols - part.tile_col - group;
    b.first = resolve(bases, table.b) + (part.first_col + (b.rows > 0 ? part.tile_col + group : 0)) * b.pitch;
    a.pitch = table.lda * 2;
    a.rows = table.rows - group;
    a.first = resolve(bases, table.a) + (a.rows > 0 ? group : 0) * a.pitch;
  }

  [[nodiscard]] __device__ __forceinline__ uint32_t place_of_b(int slot, int tile, int half) const {
    return ring + ((slot * kTiles + tile) * 2 + half) * 32 * kPieceBytes;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t place_of_a(int slot, int block) const {
    return ring + (Of::kLoads * 2 + slot * kBlocks + block) * 32 * kPieceBytes;
  }
  __device__ __forceinline__ void load_b(int step, int slot, int tile) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile * kTileCols + half * 8;
      const uint32_t bytes = b.bytes(row, step);
      copy_weights(place_of_b(slot, tile, half), b.from(row, step, bytes), bytes);
    }
  }
  __device__ __forceinline__ void load_a(int step, int slot) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint32_t bytes = a.bytes(block * kRowBlock, step);
      copy_piece(place_of_a(slot, block), a.from(block * kRowBlock, step, bytes), bytes);
    }
  }
  /// Start the loads of the first steps: a group for each tile of a step. A comes with the first tile.
  __device__ __forceinline__ void fill(bool with_b, bool with_a) const {
#pragma unroll
    for (int step = 0; step < Of::kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (with_b && step < steps) load_b(step, step, tile);
        if (!with_a) continue;
        if (tile == 0 && step < steps) load_a(step, step);
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
    }
  }
};

/// The products of the warp's columns and slice of K.
template <typename T, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_all(const Stream<kTiles, kBlocks>& stream, bool constant_b,
                                             float (&sums)[kTiles][kBlocks][4]) {
  using Of = Ring<kTiles, kBlocks>;
  if (constant_b) stream.fill(true, false);
  ptx::await_earlier_kernels();
  stream.fill(!constant_b, true);
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < stream.steps; ++step) {
    const int next = step + Of::kSteps;
    uint4 v[kBlocks];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      asm volatile("cp.async.wait_group %0;" ::"n"(Of::kLoads - 1) : "memory");
      if (tile == 0) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) v[block] = load_piece(stream.place_of_a(slot, block));
      }
      const uint4 x = load_piece(stream.place_of_b(slot, tile, 0));
      const uint4 y = load_piece(stream.place_of_b(slot, tile, 1));
      if (next < stream.steps) {
        stream.load_b(next, slot, tile);
        if (tile == 0) stream.load_a(next, slot);
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        multiply(T{}, sums[tile][block], x.x, y.x, x.y, y.y, v[block].x, v[block].y);
        multiply(T{}, sums[tile][block], x.z, y.z, x.w, y.w, v[block].z, v[block].w);
      }
    }
    if (++slot == Of::kSteps) slot = 0;
  }
}

/// Put a warp's products where its ring was.
template <int kTiles, int kBlocks>
__device__ inline void keep_sums(const float (&sums)[kTiles][kBlocks][4], uint8_t* of_warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* kept = reinterpret_cast<float*>(of_warp);
  __syncwarp();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = block * kRowBlock + lane % 4 * 2 + i % 2;
        kept[row * Ring<kTiles, kBlocks>::kPitch + tile * kTileCols + lane / 4 + i / 2 * 8] = sums[tile][block][i];
      }
    }
  }
}

/// One thread: eight elements of the partial.
template <typename T, int kTiles, int kBlocks>
__device__ inline uint4 partial_unit(const Part& part, const uint8_t* shared, int row, int col) {
  using Of = Ring<kTiles, kBlocks>;
  float values[kEight] = {};
  const int group = col / (kTiles * kTileCols);
  const uint8_t* from = shared + group * part.sharing.slices * Of::kWarpBytes +
                        (row * Of::kPitch + col - group * kTiles * kTileCols) * sizeof(float);
#pragma unroll 4
  for (int slice = 0; slice < part.sharing.slices; ++slice, from += Of::kWarpBytes) {
#pragma unroll
    for (int i = 0; i < kEight; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i * sizeof(float));
      values[i] += four.x, values[i + 1] += four.y, values[i + 2] += four.z, values[i + 3] += four.w;
    }
  }
  return round_eight<T>(values);
}

/// One warp: let the operands of the CTA's columns come to the L2 cache, since weights have replaced them there.
__device__ inline void prefetch_operands(const SumOfPartials& of, const Bases& bases, const Part& part, int rows) {
  const auto fetch = [&](const std::byte* from, int64_t at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(resolve(bases, from) + at * 2));
  };
  constexpr int kLine = 64;  // elements
  const int lines = (part.cols + kLine - 1) / kLine + 1;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < rows * lines; i += 32) {
    const int row = i / lines;
    const int64_t col = part.first_col + min(i % lines * kLine, part.cols - 1);
#pragma unroll 1
    for (uint32_t step = 0; step < of.num_steps && of.fetches; ++step) {
      const EpilogueRecord& what = of.steps[step];
      if (what.kind == EpilogueKind::bias && row == 0) fetch(what.operand, col);
      if (what.kind == EpilogueKind::residual) fetch(what.operand, row * what.ld + col);
    }
    if (row > 0 || !of.norm.there) continue;
    fetch(of.norm.weight.data, col);
    if (of.norm.layer) fetch(of.norm.bias.data, col);
  }
}

/// The last warp: the call begins; peers may be written to when their signals are here.
__device__ inline bool await_peers(const GemvTable& table, const WorkerLaunch& launch, uint64_t epoch) {
  TaskSpan* span = span_of(launch, table.first_tile + blockIdx.x);
  note_taken(span);
  note_start(span, blockIdx.x);
  return all_signals_come(table.exchange.waits, table.exchange.num_waits, epoch, launch.watch,
                          table.first_tile + blockIdx.x);
}

template <typename T, int kTiles, int kBlocks>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ GemvTable table) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ bool go;
  __shared__ uint64_t epoch_here, copy_here;
  ptx::let_next_kernel_begin();
  // NOTE: until the earlier kernels are complete, only parameters of the launch and constant inputs may be read.
  if (blockIdx.x >= table.ctas) {
    ptx::await_earlier_kernels();
    run_sync_lanes(launch, blockIdx.x - table.ctas);
    return leave_call(launch);
  }
  const Part part = part_of(table);
  if (threadIdx.x < kComputeThreads) {
    uint8_t* of_warp = shared + threadIdx.x / 32 * Ring<kTiles, kBlocks>::kWarpBytes;
    float sums[kTiles][kBlocks][4] = {};
    multiply_all<T>(Stream<kTiles, kBlocks>(table, launch.bases, part, of_warp), table.constant_b, sums);
    keep_sums(sums, of_warp);
  } else {
    ptx::await_earlier_kernels();
    prefetch_operands(table.sum, launch.bases, part, table.rows);
    if (threadIdx.x == kComputeThreads) {
      if (blockIdx.x == 0) note_call(launch);
      epoch_here = calls_before(launch);
      copy_here = copy_of_call(launch);
      count_call(launch);
      go = await_peers(table, launch, epoch_here);
    }
  }
  __syncthreads();
  const uint64_t epoch = *static_cast<volatile uint64_t*>(&epoch_here);
  const uint64_t copy = *static_cast<volatile uint64_t*>(&copy_here);
  bool good = *static_cast<volatile bool*>(&go);
  const int units = part.cols / kEight;
  const auto unit = static_cast<int>(threadIdx.x);
  const int col = unit % units * kEight;
  const ThreadUnits<1> at{unit / units, part.first_col + col, 0, unit < table.rows * units ? 1 : 0};
  Operands operands[1]{};
  float values[1][kEight] = {};
  if (good && at.has(0)) {
    const SumOfPartials& sum = table.sum;
    TaskSpan* tile_span = unit == 0 ? span_of(launch, table.first_tile + blockIdx.x) : nullptr;
    TaskSpan* span = table.sums && unit == 0 ? span_of(launch, sum.first_name + blockIdx.x) : nullptr;
    Patience patience{launch.watch, sum.first_name + blockIdx.x, epoch, unit == 0, span};
    if (table.sums) note_taken(span), note_end(tile_span);
    const uint4 mine[1] = {partial_unit<T, kTiles, kBlocks>(part, shared, at.row, col)};
    send_units(table.exchange, launch.bases, copy, at, mine);
    operands[0] = load_operands(sum, launch.bases, at.row, at.col(0));
    good = sum_units<T>(sum, launch.bases, copy, at, mine, operands, values, patience);
    if (good) note_end(table.sums ? span : tile_span);
    if (unit == 0 && good && sum.signal != nullptr) atomicAdd(reinterpret_cast<unsigned long long*>(sum.signal), 1ull);
  }
  if (table.sum.norm.there) {
    const NormPlace place{table.moments, static_cast<int>(table.ctas), table.tile_cols, table.cols,
                          table.rows,    static_cast<int>(blockIdx.x)};
    normalise_columns<T>(place, table.sum.norm, launch, at, good, operands, values, epoch);
  }
  leave_call(launch, true);
}

using Kernel = void (*)(WorkerLaunch, GemvTable);

template <typename T, int kBlocks>
Kernel kernel_for(int tiles) {
  constexpr std::array<Kernel, 4> kKernels{gemv_kernel<T, 1, kBlocks>, gemv_kernel<T, 2, kBlocks>,
                                           gemv_kernel<T, 3, kBlocks>, gemv_kernel<T, 4, kBlocks>};
  return kKernels[tiles - 1];
}
template <typename T>
Kernel kernel_for(int rows, int tiles) {
  return rows <= kRowBlock ? kernel_for<T, 1>(tiles) : kernel_for<T, 2>(tiles);
}
static_assert(Sharing(kMostGemvCols).tiles == 4 && kMostGemvRows == 2 * kRowBlock);

/// NOTE: more than half of an SM's shared memory, as two CTAs on an SM take twice as long as one.
constexpr uint32_t kSharedBytes = 150 << 10;
static_assert(kSharedBytes >= kMostRingBytes);

}  // namespace

void load_gemv_kernels() {
  const auto allow_memory = [](Kernel kernel) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "cudaFuncSetAttribute");
  };
  for (const int rows : {1, kMostGemvRows}) {
    for (int tiles = 1; tiles <= 4; ++tiles) {
      allow_memory(kernel_for<__nv_bfloat16>(rows, tiles));
      allow_memory(kernel_for<__half>(rows, tiles));
    }
  }
}

void launch_gemv(const WorkerLaunch& launch, const GemvTable& table, bool early, cudaStream_t stream) {
  const int tiles = Sharing(table.tile_cols).tiles;
  const Kernel kernel =
      table.dtype == DType::bf16 ? kernel_for<__nv_bfloat16>(table.rows, tiles) : kernel_for<__half>(table.rows, tiles);
  const uint32_t ctas = table.ctas + worker_ctas(launch.table, kGemvThreads);
  const LaunchShape shape{.ctas = ctas, .threads = kGemvThreads, .shared_bytes = kSharedBytes};
  launch_early_kernel("launch of gemv_kernel", kernel, shape, early, stream, launch, table);
}

}  // namespace tilewire::cuda
