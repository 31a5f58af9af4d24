// The kernel of rows: an all-reduce of few rows. Each CTA sends a part of a row of x to the peers, sums that part of
// all ranks, and normalises it. Called by programs through rows.hpp.
#include <algorithm>

#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/norm_columns.cuh"
#include "backends/cuda/kernels/rows.hpp"
#include "backends/cuda/kernels/sum_units.cuh"

namespace tilewire::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kMostUnits = 4;  ///< of a thread
static_assert(kMostPartCols <= kRowThreads * kMostUnits * kEight);

/// Load the thread's units of x.
template <typename T, int kUnits>
__device__ __forceinline__ void load_units(const RowTable& table, const Bases& bases, const ThreadUnits<kUnits>& at,
                                           uint4 (&mine)[kUnits]) {
  const std::byte* row = resolve(bases, table.x) + at.row * table.ldx * 2;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if (at.has(unit)) mine[unit] = *reinterpret_cast<const uint4*>(row + at.col(unit) * 2);
  }
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    // NOTE: through fp32, so that no NaN has the bits of missing data.
    float values[kEight];
    widen_eight<T>(mine[unit], values);
    mine[unit] = round_eight<T>(values);
  }
}

/// All threads: wait until the peers are ready, if the plan has handshakes.
__device__ __forceinline__ bool await_peers(const RowTable& table, const WorkerLaunch& launch, uint64_t epoch) {
  __shared__ bool go;
  if (table.exchange.num_waits == 0) return true;
  const uint32_t name = table.first_task + blockIdx.x;
  if (threadIdx.x == 0)
    go = all_signals_come(table.exchange.waits, table.exchange.num_waits, epoch, launch.watch, name);
  __syncthreads();
  return *static_cast<volatile bool*>(&go);
}

/// Send, sum and normalise the CTA's part of a row.
template <typename T, int kUnits>
__device__ __forceinline__ void reduce_part(const WorkerLaunch& launch, const RowTable& table) {
  const auto cta = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int part = cta % table.parts;
  const ThreadUnits<kUnits> at{cta / table.parts, part * table.part_cols + thread * kEight, threads * kEight,
                               (table.part_cols / kEight - thread + threads - 1) / threads};
  TaskSpan* copy_span = thread == 0 ? span_of(launch, table.first_task + cta) : nullptr;
  TaskSpan* sum_span = thread == 0 ? span_of(launch, table.sum.first_name + cta) : nullptr;
  note_taken(copy_span), note_start(copy_span, cta);
  const uint64_t epoch = calls_before(launch);
  const uint64_t copy = copy_of_call(launch);
  uint4 mine[kUnits] = {};
  load_units<T>(table, launch.bases, at, mine);
  const bool counts = cta == 0 && thread == 0;
  const bool waits = table.exchange.num_waits > 0;
  if (counts && waits) note_call(launch);
  bool good = await_peers(table, launch, epoch);
  Operands operands[kUnits];
  float values[kUnits][kEight] = {};
  if (good) {
    send_units(table.exchange, launch.bases, copy, at, mine);
    note_end(copy_span), note_taken(sum_span);
    // NOTE: the counters' answer takes as long as the peers' data.
    if (counts && !waits) note_call(launch);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (at.has(unit)) operands[unit] = load_operands(table.sum, launch.bases, at.row, at.col(unit));
    }
    Patience patience{launch.watch, table.sum.first_name + cta, epoch, thread == 0, sum_span};
    good = sum_units<T>(table.sum, launch.bases, copy, at, mine, operands, values, patience);
  }
  if (good) note_end(sum_span);
  if (good && thread == 0 && table.sum.signal != nullptr)
    atomicAdd(reinterpret_cast<unsigned long long*>(table.sum.signal + at.row * table.sum.signal_step), 1ull);
  if (!table.sum.norm.there) return;
  const NormPlace place{table.moments, table.parts, table.part_cols, table.parts * table.part_cols, at.row, 1, part};
  normalise_columns<T, kUnits, true>(place, table.sum.norm, launch, at, good, operands, values, epoch);
}

template <typename T, int kUnits>
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ RowTable table) {
  ptx::let_next_kernel_begin();
  ptx::await_earlier_kernels();
  const auto ctas = static_cast<uint32_t>(table.rows * table.parts);
  blockIdx.x < ctas ? reduce_part<T, kUnits>(launch, table) : run_sync_lanes(launch, blockIdx.x - ctas);
  leave_call(launch);
}

using Kernel = void (*)(WorkerLaunch, RowTable);

template <typename T>
Kernel kernel_for(int units) {
  return units <= 1 ? row_kernel<T, 1> : units <= 2 ? row_kernel<T, 2> : row_kernel<T, kMostUnits>;
}

}  // namespace

void load_row_kernels() {
  for (const int units : {1, 2, kMostUnits}) {
    for (const Kernel kernel : {kernel_for<__nv_bfloat16>(units), kernel_for<__half>(units)}) {
      cudaFuncAttributes attributes{};
      check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    }
  }
}

void launch_rows(const WorkerLaunch& launch, const RowTable& table, bool early, cudaStream_t stream) {
  const int units = table.part_cols / kEight;
  const int threads = std::min(kRowThreads, (units + 31) / 32 * 32);
  const int each = (units + threads - 1) / threads;
  const Kernel kernel = table.dtype == DType::bf16 ? kernel_for<__nv_bfloat16>(each) : kernel_for<__half>(each);
  const auto of_cta = static_cast<uint32_t>(threads);
  const uint32_t ctas = static_cast<uint32_t>(table.rows * table.parts) + worker_ctas(launch.table, of_cta);
  launch_early_kernel("launch of row_kernel", kernel, ctas, of_cta, 0, early, stream, launch, table);
}

}  // namespace tilewire::cuda
