// The host's view of sums of LL data across ranks in the CTAs that send the partials, and of the norms behind them
// (Lane::joined). Used by the GEMV kernel and by the kernel of rows; made by tables/.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Most ranks, waits, destinations and epilogue steps.
inline constexpr uint32_t kSumRanks = 8;
inline constexpr uint32_t kSumTargets = 2;
inline constexpr uint32_t kSumSteps = 4;

/// Where a partial goes.
struct Exchange {
  TargetRecord peers[kSumRanks]{};  ///< LL data; without the rank's own slot
  WaitRecord waits[kSumRanks]{};    ///< before the partial goes there
  uint8_t num_peers = 0;
  uint8_t num_waits = 0;
};

/// The norm of the rows of a sum, in the dtype of the partials.
struct RowNorm {
  SourceRecord weight{};  ///< one row, like the bias
  SourceRecord bias{};    ///< of a layer norm
  TargetRecord normed{};
  float eps = 0;
  bool there = false;  ///< there is a norm
  bool layer = false;
  uint32_t first_name = 0;  ///< number of the first norm's name
};

/// Blocks of a row in shared memory: the row, the weight and the bias of its norm, and two operands of an epilogue.
inline constexpr int kRowBlocks = 5;
/// Bytes of them for a row of `cols` 16-bit elements and so many threads.
[[nodiscard]] constexpr int row_bytes_for(int cols, int threads) {
  const int unit_bytes = 16;
  const int units = cols * 2 / unit_bytes;
  return kRowBlocks * ((units + threads - 1) / threads * threads) * unit_bytes;
}

/// Sums of all ranks' partials, in the ranks' order. Addresses are those of the first CTA; they grow with row or
/// column.
struct SumOfPartials {
  SourceRecord partials[kSumRanks]{};  ///< LL data, but for the rank's own
  TargetRecord targets[kSumTargets]{};
  EpilogueRecord steps[kSumSteps]{};
  RowNorm norm{};
  /// Where CTA i posts: i * signal_step further; null: nowhere. In this call nobody waits for it, but the counters
  /// must grow as in calls by other kernels.
  uint64_t* signal = nullptr;
  int64_t signal_step = 0;
  uint8_t num_partials = 0;  ///< the rank's own included
  uint8_t own_partial = 0;   ///< place of the rank's own, which its CTA keeps
  uint8_t num_targets = 0;
  uint8_t num_steps = 0;
  bool fetches = false;     ///< operands of the epilogue are 16-byte units of the partials' dtype
  uint32_t first_name = 0;  ///< number of the first sum's name; the others follow
};

/// An all-reduce of rows: CTA r sends row r to the peers, sums row r of all ranks, and normalises it. It is a parameter
/// of the launch.
struct RowTable {
  const std::byte* x = nullptr;  ///< rows x cols; may be relative
  int64_t ldx = 0;               ///< elements from row to row
  int32_t rows = 0;              ///< one for each CTA
  int32_t cols = 0;
  DType dtype = DType::bf16;
  uint32_t first_copy = 0;  ///< number of the first copy's name; the others follow
  Exchange exchange{};
  SumOfPartials sum{};
};

/// Load the kernels into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_row_kernels();

/// Enqueue the kernel, which is the whole call of a rank: copies, sums, norms and sync-only lanes. `early`: its CTAs
/// may begin before the kernel before it in the stream ends.
void launch_rows(const WorkerLaunch& launch, const RowTable& table, bool early, cudaStream_t stream);

}  // namespace tilewire::cuda
