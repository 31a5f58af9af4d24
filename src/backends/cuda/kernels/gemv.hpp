// The host's view of the GEMV kernel: tiles of at most 16 rows that read each weight once, and the sums of all ranks'
// tiles in the same CTAs (Lane::joined). Called by programs; the table is made by tables/gemv_table.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernels/worker_table.hpp"
#include "lower/kernel_limits.hpp"

namespace tilewire::cuda {

/// Most ranks, waits, destinations and epilogue steps of a tile and its sum.
inline constexpr uint32_t kGemvRanks = 8;
inline constexpr uint32_t kGemvTargets = 2;
inline constexpr uint32_t kGemvSteps = 4;

/// All tiles and sums of a rank. CTA i makes the columns [i * tile_cols, (i + 1) * tile_cols) of the result; addresses
/// are those of CTA 0, and grow with the column. It is a parameter of the launch, since each record in memory would be
/// far away when the kernel begins.
struct GemvTable {
  const std::byte* a = nullptr;  ///< rows x depth; it and all addresses below may be relative
  const std::byte* b = nullptr;  ///< cols x depth
  int64_t lda = 0;               ///< elements from row to row
  int64_t ldb = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t depth = 0;
  int32_t tile_cols = 0;
  uint32_t ctas = 0;
  DType dtype = DType::bf16;            ///< of operands and partials
  uint8_t num_peers = 0;                ///< destinations of the partial, without the rank's own slot
  uint8_t num_partials = 0;             ///< of a sum, the rank's own one included
  uint8_t own_partial = 0;              ///< its place among them
  uint8_t num_targets = 0;              ///< of the sum
  uint8_t num_steps = 0;                ///< of the sum's epilogue
  uint8_t num_waits = 0;                ///< before the partial goes to peers
  uint32_t first_tile = 0;              ///< number of the first tile's name; the others follow
  uint32_t first_sum = 0;               ///< the same for sums
  TargetRecord peers[kGemvRanks]{};     ///< LL data
  SourceRecord partials[kGemvRanks]{};  ///< LL data; the rank's own is in registers
  TargetRecord targets[kGemvTargets]{};
  EpilogueRecord steps[kGemvSteps]{};
  WaitRecord waits[kGemvRanks]{};
};

/// Load the kernels into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_gemv_kernels();

/// Enqueue the kernel, which is the whole call of a rank: tiles, sums and sync-only lanes.
void launch_gemv(const WorkerLaunch& launch, const GemvTable& table, cudaStream_t stream);

}  // namespace tilewire::cuda
