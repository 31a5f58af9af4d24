// The kernel of rows: an all-reduce of few rows. CTA r sends row r of x to the peers, sums row r of all ranks, and
// normalises it. Called by programs through row_sums.hpp.
#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/row_sums.cuh"
#include "backends/cuda/runtime/driver.hpp"
#include "lower/kernel_limits.hpp"

namespace tilewire::cuda {
namespace {

constexpr int kRowThreads = 512;

/// Load the thread's units of the row of x, send them, and keep them. They leave when the peers are ready.
template <typename T>
__device__ inline bool send_row(const RowTable& table, const WorkerLaunch& launch, const RowUnits& units, int row,
                                uint64_t epoch) {
  __shared__ bool go;
  TaskSpan* span = span_of(launch, table.first_copy + row);
  const std::byte* from = resolve(launch.bases, table.x) + row * table.ldx * 2;
#pragma unroll 1
  for (int first = units.thread; first < units.count; first += kUnitsTogether * units.threads) {
    uint4 words[kUnitsTogether] = {};
#pragma unroll
    for (int u = 0; u < kUnitsTogether; ++u) {
      const int unit = first + u * units.threads;
      if (unit < units.count) words[u] = *reinterpret_cast<const uint4*>(from + int64_t{unit} * kEight * 2);
    }
#pragma unroll
    for (int u = 0; u < kUnitsTogether; ++u) {
      const int unit = first + u * units.threads;
      if (unit >= units.count) continue;
      // NOTE: through fp32, so that no NaN has the bits of missing data.
      float values[kEight];
      widen_eight<T>(words[u], values);
      units.row[unit] = round_eight<T>(values);
    }
  }
  if (threadIdx.x == 0) {
    note_taken(span);
    go = all_signals_come(table.exchange.waits, table.exchange.num_waits, epoch, launch.watch, table.first_copy + row);
    note_start(span, blockIdx.x);
  }
  __syncthreads();
  if (!*static_cast<volatile bool*>(&go)) return false;
#pragma unroll 1
  for (uint32_t i = 0; i < table.exchange.num_peers; ++i) {
    const TargetRecord& to = table.exchange.peers[i];
    units.for_each([&](int unit) { publish(to.data + (row * to.ld + unit * kEight) * 2, units.row[unit]); });
  }
  if (threadIdx.x == 0) note_end(span);
  return true;
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ RowTable table) {
  extern __shared__ __align__(128) uint8_t shared[];
  ptx::let_next_kernel_begin();
  ptx::await_earlier_kernels();
  if (blockIdx.x == 0 && threadIdx.x == 0) note_call(launch);
  const int row = static_cast<int>(blockIdx.x);
  if (row < table.rows) {
    const uint64_t epoch = calls_before(launch);
    const RowUnits units(shared, kRowThreads, table.cols / kEight);
    if (send_row<T>(table, launch, units, row, epoch)) finish_row<T>(table.sum, launch, units, row, epoch);
  } else {
    const uint32_t sync_only = (blockIdx.x - table.rows) * (kRowThreads / 32) + threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && sync_only < launch.table.sync_lanes)
      run_sync_lane(launch, launch.table.num_lanes - launch.table.sync_lanes + sync_only);
  }
  leave_call(launch);
}

}  // namespace

void load_row_kernels() {
  constexpr int kMost = kRowBlocks * kMostRowCols * 2;
  const auto allow_memory = [](auto* kernel) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMost), "cudaFuncSetAttribute");
  };
  allow_memory(row_kernel<__nv_bfloat16>);
  allow_memory(row_kernel<__half>);
}

void launch_rows(const WorkerLaunch& launch, const RowTable& table, bool early, cudaStream_t stream) {
  const auto kernel = table.dtype == DType::bf16 ? row_kernel<__nv_bfloat16> : row_kernel<__half>;
  const uint32_t ctas = static_cast<uint32_t>(table.rows) + worker_ctas(launch.table, kRowThreads);
  launch_early_kernel("launch of row_kernel", kernel, ctas, kRowThreads, row_bytes_for(table.cols, kRowThreads), early,
                      stream, launch, table);
}

}  // namespace tilewire::cuda
