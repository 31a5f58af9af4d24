// Kernels that execute lanes of plain copies, or of plain sums and copies.
// Called by programs through plain_ops.hpp.
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "backends/cuda/kernels/launch_kernel.cuh"
#include "backends/cuda/kernels/plain_ops.hpp"
#include "backends/cuda/kernels/workers.cuh"

namespace tilewire::cuda {
namespace {

constexpr uint32_t kPlainThreads = 512;
/// Units of eight elements that a thread sums at once, so that more loads from other GPUs are in flight.
constexpr uint32_t kUnitsAtOnce = 2;

/// A thread's place in an op. `advance` moves it by one unit for each thread of the CTA.
struct Place {
  uint32_t row;
  uint32_t unit;  // in the row

  __device__ void advance(uint32_t per_row) {
    row += kPlainThreads / per_row;
    unit += kPlainThreads % per_row;
    if (unit < per_row) return;
    unit -= per_row;
    ++row;
  }
};

template <typename T>
__device__ inline void sum_plain(const PlainOp& plain) {
  const OpRecord& step = plain.step;
  const auto per_row = static_cast<uint32_t>(step.cols / kEight);
  const auto rows = static_cast<uint32_t>(step.rows);
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
        const SourceRecord& from = plain.sources[min(first + i, step.num_sources - 1u)];
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
      const TargetRecord& to = plain.targets[i];
#pragma unroll
      for (uint32_t unit = 0; unit < kUnitsAtOnce; ++unit) {
        if (at[unit].row >= rows) continue;
        *reinterpret_cast<uint4*>(to.data + (at[unit].row * to.ld + at[unit].unit * kEight) * 2) =
            round_eight<T>(sums[unit]);
      }
    }
  }
}

__device__ inline void copy_plain(const PlainOp& plain) {
  const SourceRecord& from = plain.sources[0];
  const Slice slice{0, 1, threadIdx.x, kPlainThreads};
#pragma unroll 1
  for (uint32_t i = 0; i < plain.step.num_targets;) {
    const AlikeTargets to = targets_alike(plain.targets + i, plain.step.num_targets - i);
    copy_vectors(from, to, int64_t{plain.step.cols} * element_bytes(from.dtype), slice);
    i += to.count;
  }
}

template <Plain kKind>
__device__ inline void run_plain(const PlainOp& plain) {
  if (kKind == Plain::copies || plain.step.code == OpCode::copy) return copy_plain(plain);
  plain.sources[0].dtype == DType::bf16 ? sum_plain<__nv_bfloat16>(plain) : sum_plain<__half>(plain);
}

/// Copy an op to shared memory, by the second and third warp: the first warp waits for signals meanwhile.
__device__ inline void fetch_op(const PlainOp& from, PlainOp& to) {
  constexpr uint32_t kPieces = sizeof(PlainOp) / sizeof(uint4);
  static_assert(sizeof(PlainOp) % sizeof(uint4) == 0 && 32 + kPieces < kPlainThreads - 32);
  if (threadIdx.x < 32 || threadIdx.x >= 32 + kPieces) return;
  const uint32_t piece = threadIdx.x - 32;
  __pipeline_memcpy_async(reinterpret_cast<uint4*>(&to) + piece, reinterpret_cast<const uint4*>(&from) + piece,
                          sizeof(uint4));
  __pipeline_commit();
}

/// All threads: wait until the fetched op is in shared memory, and the first thread has posted.
__device__ inline void meet_step() {
  __pipeline_wait_prior(0);
  __syncthreads();
}

struct PlainShared {
  bool go;
  PlainOp ops[2];  // the current op, and the next
};

/// The second warp: resolve the addresses in a fetched op's records.
__device__ inline void resolve_addresses(const Bases& bases, PlainOp& plain) {
  const uint32_t index = threadIdx.x - 32;
  if (index >= 2 * kPlainRecords) return;
  std::byte*& data = index < kPlainRecords ? plain.sources[index].data : plain.targets[index - kPlainRecords].data;
  data = resolve(bases, data);
}

/// The first thread: wait for all signals of an op. False if the team breaks.
__device__ inline bool await_plain(const WorkerLaunch& launch, const PlainOp& plain, uint64_t epoch, uint32_t cta) {
  TaskSpan* span = span_of(launch, plain.step.task);
  note_taken(span);
  const bool good = all_signals_come(plain.waits, plain.step.num_waits, epoch, launch.watch, plain.step.task);
  note_start(span, cta);
  return good;
}

/// CTA number `cta` of the data lanes: execute its ops.
template <Plain kKind>
__device__ inline void run_plain_ops(const WorkerLaunch& launch, const PlainOp* steps, uint32_t cta,
                                     PlainShared& shared) {
  const uint64_t epoch = calls_before(launch);
  fetch_op(steps[cta], shared.ops[0]);
  meet_step();
  uint32_t turn = 0;
#pragma unroll 1
  while (true) {
    PlainOp& plain = shared.ops[turn++ % 2];
    resolve_addresses(launch.bases, plain);
    if (plain.next != PlainOp::kNone) fetch_op(steps[plain.next], shared.ops[turn % 2]);
    if (threadIdx.x == 0) shared.go = await_plain(launch, plain, epoch, cta);
    __syncthreads();
    if (!*static_cast<volatile bool*>(&shared.go)) return;
    if (plain.step.code != OpCode::sync) run_plain<kKind>(plain);
    __syncthreads();
    if (threadIdx.x == 0) post_op(launch, plain.posts, plain.step);
    if (plain.next == PlainOp::kNone) return;
    meet_step();
  }
}

template <Plain kKind>
__global__ void __launch_bounds__(kPlainThreads, 1)
    plain_kernel(const __grid_constant__ WorkerLaunch launch, const __grid_constant__ Preamble preamble,
                 const PlainOp* steps, bool ends_call) {
  __shared__ PlainShared shared;
  if (blockIdx.x == 0 && threadIdx.x == kPlainThreads - 32) note_call(launch);
  if (preamble.has_task && blockIdx.x == gridDim.x - 1 && threadIdx.x == kPlainThreads - 32)
    open_workers(launch, preamble);
  if (blockIdx.x < launch.table.ctas) {
    run_plain_ops<kKind>(launch, steps, blockIdx.x, shared);
  } else {
    run_sync_lanes(launch, blockIdx.x - launch.table.ctas);
  }
  if (ends_call) leave_call(launch);
}

}  // namespace

void load_plain_ops_kernels() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, plain_kernel<Plain::copies>), "cudaFuncGetAttributes");
  check(cudaFuncGetAttributes(&attributes, plain_kernel<Plain::sums>), "cudaFuncGetAttributes");
}

void launch_plain_ops(const WorkerLaunch& launch, const PlainOps& plain, const Preamble& preamble, bool ends_call,
                      cudaStream_t stream) {
  const uint32_t ctas = std::max(1u, worker_ctas(launch.table, kPlainThreads));
  const auto kernel = plain.kind == Plain::copies ? plain_kernel<Plain::copies> : plain_kernel<Plain::sums>;
  launch_kernel("launch of plain_kernel", kernel, ctas, kPlainThreads, stream, launch, preamble, plain.ops, ends_call);
}

}  // namespace tilewire::cuda
