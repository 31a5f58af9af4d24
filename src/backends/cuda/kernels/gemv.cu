// The GEMV kernel: few rows of A by many columns, at the rate of memory, and the sums across ranks behind it.
// Called by programs through gemv.hpp.
//
// A CTA makes up to 128 columns. A warp takes a slice of K of 16 columns: weights are the first operand of
// mma.m16n8k16, so that 16 columns x 8 rows of A are one instruction. Each thread loads the 16 bytes of a row of B that
// it multiplies itself, through a ring of its own in shared memory, so that no barrier is between the loads and the
// products. Eight consecutive elements of K are a thread's operands of two instructions; A is read in the same order.
#include <algorithm>

#include "backends/cuda/kernels/gemv.hpp"
#include "backends/cuda/kernels/workers.cuh"
#include "backends/cuda/runtime/driver.hpp"

namespace tilewire::cuda {
namespace {

constexpr int kWarps = 8;  ///< that multiply
constexpr int kComputeThreads = kWarps * 32;
constexpr int kGemvThreads = kComputeThreads + 32;  ///< the last warp waits for signals
constexpr int kStep = 32;                           ///< elements of K of two instructions
constexpr int kInFlight = 12;                       ///< steps of a thread's ring
constexpr int kPieceBytes = 16;
constexpr int kRingBytes = kInFlight * 2 * kComputeThreads * kPieceBytes;
constexpr int kTileCols = 16;  ///< columns of a warp
constexpr int kRowBlock = 8;   ///< rows of A of an instruction

/// Columns of A in shared memory at once, and bytes from row to row: rows begin in different banks.
template <int kBlocks>
constexpr int kChunkCols = kBlocks == 1 ? 2048 : 1024;
template <int kBlocks>
constexpr int kChunkPitch = kChunkCols<kBlocks> * 2 + 64;
template <int kBlocks>
constexpr int kChunkBytes = kBlocks* kRowBlock* kChunkPitch<kBlocks>;

/// Copy `bytes` of 16 to shared memory, and zeros behind them.
__device__ __forceinline__ void copy_piece(uint32_t to, const std::byte* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
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

/// Tiles of kTileCols columns that a CTA makes.
__host__ __device__ constexpr int tiles_of(const GemvTable& table) {
  return (table.tile_cols + kTileCols - 1) / kTileCols;
}

/// Floats from row to row of the slices' sums in shared memory.
__host__ __device__ constexpr int pitch_of(int tiles) { return tiles * kTileCols + 4; }

/// What the CTA makes, and a thread's part of it.
struct Part {
  int first_col;  ///< of the result
  int cols;
  int tiles;   ///< of kTileCols columns
  int slices;  ///< of K
  int tile;    ///< of this warp
  int slice;
  int steps;  ///< of this warp; 0: it has no slice
};

__device__ inline Part part_of(const GemvTable& table) {
  Part part;
  part.first_col = static_cast<int>(blockIdx.x) * table.tile_cols;
  part.cols = min(table.tile_cols, table.cols - part.first_col);
  part.tiles = tiles_of(table);
  part.slices = kWarps / part.tiles;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  part.tile = warp % part.tiles;
  part.slice = warp / part.tiles;
  const int all = (table.depth + kStep - 1) / kStep;
  part.steps = part.slice < part.slices ? (all - part.slice + part.slices - 1) / part.slices : 0;
  return part;
}

/// A thread's ring of weights: two rows of B, 16 bytes each, for each step.
struct Ring {
  const std::byte* rows[2];
  uint32_t place;
  int stride;  ///< elements of K from step to step
  int first;   ///< of this thread
  int depth;

  __device__ __forceinline__ void load(int step, int slot) const {
    const int at = first + step * stride;
    const uint32_t bytes = static_cast<uint32_t>(max(0, min(kPieceBytes, (depth - at) * 2)));
    const int from = bytes == 0 ? 0 : at;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      copy_piece(place + (slot * 2 + i) * kComputeThreads * kPieceBytes, rows[i] + int64_t{from} * 2, bytes);
  }
};

/// Start the loads of a chunk of A, by one thread.
template <int kBlocks>
__device__ inline void load_chunk(const GemvTable& table, const std::byte* a, uint8_t* to, uint64_t* barrier, int first,
                                  int cols) {
  const int bytes = min(cols, table.depth - first) * 2;
  ptx::barrier_arrive_expect(barrier, table.rows * bytes);
#pragma unroll 1
  for (int row = 0; row < table.rows; ++row)
    ptx::bulk_load(to + row * kChunkPitch<kBlocks>, a + (row * table.lda + first) * 2, bytes, barrier);
}

/// Zeros behind the last column of A in a chunk: weights there are zeros, but zero times a NaN is none.
template <int kBlocks>
__device__ inline void clear_tail(const GemvTable& table, uint8_t* chunk, int cols) {
  const int tail = (kStep - cols % kStep) % kStep;
  if (tail == 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < table.rows * tail; i += kComputeThreads)
    *reinterpret_cast<uint16_t*>(chunk + i / tail * kChunkPitch<kBlocks> + (cols + i % tail) * 2) = 0;
  ptx::cta_meet(1, kComputeThreads);
}

/// The steps from `step` to `end`, whose columns of A are in shared memory `at` bytes behind `rows`. `slot`: of the
/// ring.
template <typename T, int kBlocks>
__device__ __forceinline__ void multiply_steps(const Ring& ring, const Part& part, const uint32_t (&rows)[kBlocks],
                                               uint32_t at, int end, int& step, int& slot, float (&sums)[kBlocks][4]) {
#pragma unroll 4
  for (; step < end; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight - 1) : "memory");
    const uint32_t from = ring.place + slot * 2 * kComputeThreads * kPieceBytes;
    const uint4 x = load_piece(from);
    const uint4 y = load_piece(from + kComputeThreads * kPieceBytes);
    if (step + kInFlight < part.steps) ring.load(step + kInFlight, slot);
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (++slot == kInFlight) slot = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint4 v = load_piece(rows[block] + at);
      multiply(T{}, sums[block], x.x, y.x, x.y, y.y, v.x, v.y);
      multiply(T{}, sums[block], x.z, y.z, x.w, y.w, v.z, v.w);
    }
    at += ring.stride * 2;
  }
}

/// The products of this warp's columns and slice of K.
template <typename T, int kBlocks>
__device__ inline void multiply_all(const GemvTable& table, const Bases& bases, const Part& part, uint8_t* shared,
                                    uint64_t (&here)[2], float (&sums)[kBlocks][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4;
  const int quad = lane % 4;
  const std::byte* b = resolve(bases, table.b);
  const std::byte* a = resolve(bases, table.a);
  Ring ring;
  ring.stride = part.slices * kStep;
  ring.first = part.slice * kStep + quad * 8;
  ring.depth = table.depth;
  ring.place = ptx::shared_address(shared + 2 * kChunkBytes<kBlocks>) + threadIdx.x * kPieceBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(part.tile * kTileCols + group + i * 8, part.cols - 1);
    ring.rows[i] = b + int64_t{part.first_col + row} * table.ldb * 2;
  }
#pragma unroll
  for (int slot = 0; slot < kInFlight; ++slot) {
    if (slot < part.steps) ring.load(slot, slot);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // A chunk of A is a whole number of steps of every slice.
  const int chunk_cols = kChunkCols<kBlocks> / ring.stride * ring.stride;
  const int chunks = (table.depth + chunk_cols - 1) / chunk_cols;
  const auto start_chunk = [&](int chunk) {
    load_chunk<kBlocks>(table, a, shared + chunk % 2 * kChunkBytes<kBlocks>, &here[chunk % 2], chunk * chunk_cols,
                        chunk_cols);
  };
  if (threadIdx.x == 0) {
    start_chunk(0);
    if (chunks > 1) start_chunk(1);
  }
  uint32_t rows[kBlocks];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    rows[block] = ptx::shared_address(shared) + min(block * kRowBlock + group, table.rows - 1) * kChunkPitch<kBlocks> +
                  ring.first * 2;
  const int steps_of_chunk = chunk_cols / ring.stride;
  int slot = 0;
  int step = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ptx::barrier_wait(&here[chunk % 2], chunk / 2 % 2);
    clear_tail<kBlocks>(table, shared + chunk % 2 * kChunkBytes<kBlocks>,
                        min(chunk_cols, table.depth - chunk * chunk_cols));
    const int end = min(part.steps, (chunk + 1) * steps_of_chunk);
    const uint32_t at = chunk % 2 * kChunkBytes<kBlocks>;
    multiply_steps<T, kBlocks>(ring, part, rows, at, end, step, slot, sums);
    if (chunk + 2 >= chunks) continue;
    ptx::cta_meet(1, kComputeThreads);
    if (threadIdx.x == 0) start_chunk(chunk + 2);
  }
}

template <int kBlocks>
__device__ inline void keep_sums(const Part& part, const float (&sums)[kBlocks][4], float* kept) {
  if (part.slice >= part.slices) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* mine = kept + part.slice * kBlocks * kRowBlock * pitch_of(part.tiles) + part.tile * kTileCols;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mine[(block * kRowBlock + lane % 4 * 2 + i % 2) * pitch_of(part.tiles) + lane / 4 + i / 2 * 8] = sums[block][i];
  }
}

/// One thread: send eight elements of the partial to the peers, add those of the peers, finish the result. False if the
/// peers' data do not come.
template <typename T, int kBlocks>
__device__ inline bool finish_unit(const GemvTable& table, const WorkerLaunch& launch, const Part& part,
                                   const float* kept, int row, int col, Patience& patience) {
  const Bases& bases = launch.bases;
  float values[kEight] = {};
#pragma unroll 1
  for (int slice = 0; slice < part.slices; ++slice) {
    const float* from = kept + (slice * kBlocks * kRowBlock + row) * pitch_of(part.tiles) + col;
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] += from[i];
  }
  const uint4 mine = round_eight<T>(values);
  const int64_t at = part.first_col + col;
#pragma unroll 1
  for (uint32_t i = 0; i < table.num_peers; ++i)
    publish(table.peers[i].data + (row * table.peers[i].ld + at) * 2, mine);
#pragma unroll 1
  for (uint32_t i = 0; i < table.num_partials; ++i) {
    uint4 words = mine;
    if (i != table.own_partial) {
      std::byte* from = table.partials[i].data + (row * table.partials[i].ld + at) * 2;
      do {
        poll_words(from, true, words);
      } while (missing_halves(words) != 0 && patience.lasts());
      if (patience.over) {
        patience.give_up(i);
        return false;
      }
      clear_words(from);
    }
    add_eight<T>(words, i == 0, values);
  }
  patience.has_begun();
#pragma unroll 1
  for (uint32_t step = 0; step < table.num_steps; ++step) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) apply_step(bases, table.steps[step], row, static_cast<int>(at) + i, values[i]);
  }
#pragma unroll 1
  for (uint32_t i = 0; i < table.num_targets; ++i) {
    const TargetRecord& to = table.targets[i];
    store_others(resolve(bases, to.data) + (row * to.ld + at) * element_bytes(to.dtype), to.dtype, StoreMode::store,
                 values);
  }
  return true;
}

/// The last warp: the call begins; peers may be written to when their signals are here.
__device__ inline bool await_peers(const GemvTable& table, const WorkerLaunch& launch, uint64_t epoch) {
  TaskSpan* span = span_of(launch, table.first_tile + blockIdx.x);
  note_taken(span);
  note_start(span, blockIdx.x);
  return all_signals_come(table.waits, table.num_waits, epoch, launch.watch, table.first_tile + blockIdx.x);
}

template <typename T, int kBlocks>
__global__ void __launch_bounds__(kGemvThreads, 1)
    gemv_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ GemvTable table) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint64_t here[2];
  __shared__ bool go;
  if (blockIdx.x == 0 && threadIdx.x == kGemvThreads - 32) note_call(launch);
  if (blockIdx.x >= table.ctas) {
    const uint32_t sync_only = (blockIdx.x - table.ctas) * (kGemvThreads / 32) + threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && sync_only < launch.table.sync_lanes)
      run_sync_lane(launch, launch.table.num_lanes - launch.table.sync_lanes + sync_only);
    return leave_call(launch);
  }
  const Part part = part_of(table);
  const uint64_t epoch = calls_before(launch);
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : here) ptx::barrier_init(&barrier, 1);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  auto* kept = reinterpret_cast<float*>(shared + 2 * kChunkBytes<kBlocks> + kRingBytes);
  if (threadIdx.x < kComputeThreads) {
    float sums[kBlocks][4] = {};
    multiply_all<T, kBlocks>(table, launch.bases, part, shared, here, sums);
    keep_sums<kBlocks>(part, sums, kept);
  } else if (threadIdx.x == kComputeThreads) {
    go = await_peers(table, launch, epoch);
  }
  __syncthreads();
  bool good = *static_cast<volatile bool*>(&go);
  const int units = part.cols / kEight;
  const int unit = static_cast<int>(threadIdx.x);
  if (good && unit < table.rows * units) {
    Patience patience{launch.watch, table.first_sum + blockIdx.x, epoch, unit == 0};
    if (unit == 0) patience.span = span_of(launch, table.first_sum + blockIdx.x);
    if (unit == 0) note_taken(patience.span), note_end(span_of(launch, table.first_tile + blockIdx.x));
    good = finish_unit<T, kBlocks>(table, launch, part, kept, unit / units, unit % units * kEight, patience);
    if (unit == 0 && good) note_end(span_of(launch, table.first_sum + blockIdx.x));
  }
  leave_call(launch);
}

template <typename T>
auto kernel_for(int rows) {
  return rows <= kRowBlock ? gemv_kernel<T, 1> : gemv_kernel<T, 2>;
}

uint32_t bytes_for(const GemvTable& table) {
  const int blocks = table.rows <= kRowBlock ? 1 : 2;
  const int tiles = tiles_of(table);
  const int chunk = blocks == 1 ? kChunkBytes<1> : kChunkBytes<2>;
  const int kept = kWarps / tiles * blocks * kRowBlock * pitch_of(tiles) * static_cast<int>(sizeof(float));
  return static_cast<uint32_t>(2 * chunk + kRingBytes + kept);
}

template <class Kernel>
void allow_memory(Kernel kernel) {
  constexpr int kMost = 180 << 10;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMost), "cudaFuncSetAttribute");
}

}  // namespace

void load_gemv_kernels() {
  for (const int rows : {1, kMostGemvRows}) {
    allow_memory(kernel_for<__nv_bfloat16>(rows));
    allow_memory(kernel_for<__half>(rows));
  }
}

void launch_gemv(const WorkerLaunch& launch, const GemvTable& table, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  const uint32_t warps = kGemvThreads / 32;
  config.gridDim = dim3(table.ctas + (launch.table.sync_lanes + warps - 1) / warps);
  config.blockDim = dim3(kGemvThreads);
  config.dynamicSmemBytes = bytes_for(table);
  config.stream = stream;
  const auto kernel =
      table.dtype == DType::bf16 ? kernel_for<__nv_bfloat16>(table.rows) : kernel_for<__half>(table.rows);
  check(cudaLaunchKernelEx(&config, kernel, launch, table), "launch of gemv_kernel");
}

}  // namespace tilewire::cuda
