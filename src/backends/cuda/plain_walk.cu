// Kernels that walk lanes of plain copies, or of plain sums.
// Called by programs through plain_walk.hpp.
#include <algorithm>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/plain_walk.hpp"
#include "backends/cuda/walk.cuh"

namespace tilewire::cuda {
namespace {

constexpr uint32_t kPlainThreads = 512;
/// Units of eight elements that a thread sums at once: what is not in flight waits for another GPU later.
constexpr uint32_t kUnitsAtOnce = 2;

/// A thread's place in a step, which goes on by a unit of each thread.
struct Place {
  uint32_t row;
  uint32_t unit;  // of the row

  __device__ void advance(uint32_t per_row) {
    row += kPlainThreads / per_row;
    unit += kPlainThreads % per_row;
    if (unit < per_row) return;
    unit -= per_row;
    ++row;
  }
};

template <typename T>
__device__ inline void sum_plain(const WalkTable& table, const StepRecord& step) {
  const auto per_row = static_cast<uint32_t>(step.cols / kEight);
  const auto rows = static_cast<uint32_t>(step.rows);
  const SourceRecord* sources = table.sources + step.first_source;
  const TargetRecord* targets = table.targets + step.first_target;
  Place next{threadIdx.x / per_row, threadIdx.x % per_row};
#pragma unroll 1
  while (next.row < rows) {
    Place at[kUnitsAtOnce];
#pragma unroll
    for (Place& place : at) {
      place = next;
      next.advance(per_row);
    }
    float sums[kUnitsAtOnce][kEight];
#pragma unroll 1
    for (uint32_t first = 0; first < step.num_sources; first += kTogether) {
      uint4 words[kTogether][kUnitsAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
        const SourceRecord& from = sources[min(first + i, step.num_sources - 1u)];
#pragma unroll
        for (uint32_t unit = 0; unit < kUnitsAtOnce; ++unit) {
          if (first + i >= step.num_sources || at[unit].row >= rows) continue;
          words[i][unit] =
              *reinterpret_cast<const uint4*>(from.data + (at[unit].row * from.ld + at[unit].unit * kEight) * 2);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
        if (first + i >= step.num_sources) break;
#pragma unroll
        for (uint32_t unit = 0; unit < kUnitsAtOnce; ++unit) add_eight<T>(words[i][unit], first + i == 0, sums[unit]);
      }
    }
#pragma unroll 1
    for (uint32_t i = 0; i < step.num_targets; ++i) {
      const TargetRecord& to = targets[i];
#pragma unroll
      for (uint32_t unit = 0; unit < kUnitsAtOnce; ++unit) {
        if (at[unit].row >= rows) continue;
        *reinterpret_cast<uint4*>(to.data + (at[unit].row * to.ld + at[unit].unit * kEight) * 2) =
            round_eight<T>(sums[unit]);
      }
    }
  }
}

template <Plain kKind>
__device__ inline void run_plain(const WalkTable& table, const StepRecord& step) {
  const SourceRecord& from = table.sources[step.first_source];
  if constexpr (kKind == Plain::copies) {
    const Slice slice{0, 1, threadIdx.x, kPlainThreads};
#pragma unroll 1
    for (uint32_t i = 0; i < step.num_targets; ++i) {
      copy_vectors(from, table.targets[step.first_target + i], int64_t{step.cols} * element_bytes(from.dtype), slice);
    }
  } else {
    from.dtype == DType::bf16 ? sum_plain<__nv_bfloat16>(table, step) : sum_plain<__half>(table, step);
  }
}

struct PlainShared {
  bool go;
  StepRecords records[2];
};

/// CTA number `cta` of the heavy lanes.
template <Plain kKind>
__device__ inline void walk_plain_lane(const WalkLaunch& launch, uint32_t cta, PlainShared& shared) {
  uint32_t index = 0;
  while (cta >= launch.table.lanes[index].ctas) cta -= launch.table.lanes[index++].ctas;
  const LaneRecord lane = launch.table.lanes[index];
  const uint64_t epoch = calls_before(launch);
  uint32_t turn = 0;
#pragma unroll 1
  for (uint32_t i = cta; i < lane.num_steps; i += lane.ctas) {
    StepRecord step = launch.table.steps[lane.first_step + i];
    WalkTable table = launch.table;
    StepRecords& records = shared.records[turn++ % 2];
    bring_records(table.sources, step.first_source, step.num_sources, records.sources, Squad{});
    bring_records(table.targets, step.first_target, step.num_targets, records.targets, Squad{});
    bring_records(table.posts, step.first_post, step.num_posts, records.posts, Squad{});
    if (threadIdx.x == 0) {
      TaskSpan* span = span_of(launch, step.task);
      note_taken(span);
      shared.go = wait_signals(table.waits + step.first_wait, step.num_waits, epoch, launch.watch, step.task);
      note_start(span, cta);
    }
    __syncthreads();
    if (!*static_cast<volatile bool*>(&shared.go)) return;
    if (step.act != Act::sync) run_plain<kKind>(table, step);
    __syncthreads();
    if (threadIdx.x == 0) post_step(launch, table.posts, step);
  }
}

template <Plain kKind>
__global__ void __launch_bounds__(kPlainThreads, 1)
    plain_kernel(const __grid_constant__ WalkLaunch launch, const __grid_constant__ Opening opening, bool ends_call) {
  __shared__ PlainShared shared;
  if (opening.has_call && blockIdx.x == gridDim.x - 1 && threadIdx.x == kPlainThreads - 32) open_walk(launch, opening);
  if (blockIdx.x < launch.table.ctas) {
    walk_plain_lane<kKind>(launch, blockIdx.x, shared);
  } else {
    const uint32_t light = (blockIdx.x - launch.table.ctas) * (kPlainThreads / 32) + threadIdx.x / 32;
    const bool walks = threadIdx.x % 32 == 0 && light < launch.table.light_lanes;
    if (walks) walk_light_lane(launch, launch.table.num_lanes - launch.table.light_lanes + light);
  }
  if (ends_call) leave_call(launch);
}

}  // namespace

void load_plain_walk_kernels() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, plain_kernel<Plain::copies>), "cudaFuncGetAttributes");
  check(cudaFuncGetAttributes(&attributes, plain_kernel<Plain::sums>), "cudaFuncGetAttributes");
}

void launch_plain_walk(const WalkLaunch& launch, Plain kind, const Opening& opening, bool ends_call,
                       cudaStream_t stream) {
  const uint32_t ctas = std::max(1u, walking_ctas(launch.table, kPlainThreads));
  const auto kernel = kind == Plain::copies ? plain_kernel<Plain::copies> : plain_kernel<Plain::sums>;
  kernel<<<ctas, kPlainThreads, 0, stream>>>(launch, opening, ends_call);
  check(cudaGetLastError(), "launch of plain_kernel");
}

}  // namespace tilewire::cuda
