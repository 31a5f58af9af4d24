// The kernel of rows: an all-reduce of few rows. Each CTA sends a part of a row of x to the peers, sums that part of
// all ranks, and normalises it. With norms the CTAs of a row are a cluster. Called by programs through rows.hpp.
#include <algorithm>

#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/norm_rows.cuh"
#include "backends/cuda/kernels/rows.hpp"
#include "backends/cuda/kernels/sum_units.cuh"

namespace tilewire::cuda {
namespace {

constexpr int kRowThreads = kMostRowWarps * 32;
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

/// Send and sum the CTA's part of a row, and normalise it if kNorm.
template <typename T, int kUnits, bool kNorm>
__device__ __forceinline__ void reduce_part(const WorkerLaunch& launch, const RowTable& table) {
  const auto cta = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int part = cta % table.parts;
  __shared__ MomentsOfRow moments;
  if constexpr (kNorm) expect_moments(moments, table.parts);
  ptx::await_earlier_kernels();
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
  if (good) send_units<T>(table.exchange, launch.bases, copy, at, mine);
  // NOTE: while the data travel. At the end of the call the additions of all CTAs would take turns.
  __syncthreads();
  if (thread == 0) count_call(launch);
  if (good) {
    note_end(copy_span), note_taken(sum_span);
    // NOTE: the counters' answer takes as long as the peers' data.
    if (counts && !waits) note_call(launch);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (at.has(unit)) operands[unit] = load_operands<T>(table.sum, launch.bases, at.row, at.col(unit));
    }
    Patience patience{launch.watch, table.sum.first_name + cta, epoch, thread == 0, sum_span};
    good = sum_units<T>(table.sum, launch.bases, copy, at, mine, operands, values, patience);
  }
  if (good) note_end(sum_span);
  if (good && thread == 0 && table.sum.signal != nullptr)
    atomicAdd(reinterpret_cast<unsigned long long*>(table.sum.signal + at.row * table.sum.signal_step), 1ull);
  if constexpr (kNorm) {
    const RowNorm& norm = table.sum.norm;
    TaskSpan* span = thread == 0 ? span_of(launch, norm.first_name + cta) : nullptr;
    note_taken(span), note_start(span, cta);
    Spread spread;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (good && at.has(unit)) spread.add(spread_of<T>(norm, operands[unit], values[unit]), norm.layer);
    }
    if (!exchange_moments(moments, part, table.parts, norm.layer, good, spread)) return;
    store_normed<T>(norm, launch.bases, spread, at, operands, values);
    note_end(span);
  }
}

/// CTAs of one unit a thread have room for those of the next call beside them. With norms that would take registers
/// that they need.
template <int kUnits, bool kNorm>
constexpr int kCtasOfSm = kUnits == 1 && !kNorm ? 2 : 1;

template <typename T, int kUnits, bool kNorm>
__global__ void __launch_bounds__(kRowThreads, kCtasOfSm<kUnits, kNorm>)
    row_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ RowTable table) {
  ptx::let_next_kernel_begin();
  const auto ctas = static_cast<uint32_t>(table.rows * table.parts);
  const bool counted = blockIdx.x < ctas;
  if (counted) {
    reduce_part<T, kUnits, kNorm>(launch, table);
  } else {
    ptx::await_earlier_kernels();
    run_sync_lanes(launch, blockIdx.x - ctas);
  }
  leave_call(launch, counted);
}

using Kernel = void (*)(WorkerLaunch, RowTable);

template <typename T, bool kNorm>
Kernel kernel_for(int units) {
  return units <= 1 ? row_kernel<T, 1, kNorm> : units <= 2 ? row_kernel<T, 2, kNorm> : row_kernel<T, kMostUnits, kNorm>;
}
Kernel kernel_for(DType dtype, bool norm, int units) {
  if (dtype == DType::bf16)
    return norm ? kernel_for<__nv_bfloat16, true>(units) : kernel_for<__nv_bfloat16, false>(units);
  return norm ? kernel_for<__half, true>(units) : kernel_for<__half, false>(units);
}

}  // namespace

void load_row_kernels() {
  for (const int units : {1, 2, kMostUnits}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const bool norm : {false, true}) {
        cudaFuncAttributes attributes{};
        check(cudaFuncGetAttributes(&attributes, kernel_for(dtype, norm, units)), "cudaFuncGetAttributes");
      }
    }
  }
}

void launch_rows(const WorkerLaunch& launch, const RowTable& table, bool early, cudaStream_t stream) {
  const bool norm = table.sum.norm.there;
  const int units = table.part_cols / kEight;
  const int threads = std::min(kRowThreads, (units + 31) / 32 * 32);
  const Kernel kernel = kernel_for(table.dtype, norm, (units + threads - 1) / threads);
  LaunchShape shape{.threads = static_cast<uint32_t>(threads),
                    .cluster = norm ? static_cast<uint32_t>(table.parts) : 1};
  const uint32_t ctas = static_cast<uint32_t>(table.rows * table.parts) + worker_ctas(launch.table, shape.threads);
  shape.ctas = (ctas + shape.cluster - 1) / shape.cluster * shape.cluster;
  launch_early_kernel("launch of row_kernel", kernel, shape, early, stream, launch, table);
}

}  // namespace tilewire::cuda
