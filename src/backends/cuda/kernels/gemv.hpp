// The host's view of the GEMV kernel: tiles of at most 16 rows that read each weight once, and the sums of all ranks'
// tiles and their norms in the same CTAs (Lane::joined). Called by programs; the table is made by
// tables/gemv_table.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernels/sum_of_partials.hpp"
#include "lower/kernel_limits.hpp"

namespace tilewire::cuda {

/// Most CTAs that make tiles.
inline constexpr int kMostGemvCtas = 256;
static_assert(kMostGemvCtas * kMostGemvRows <= kMostMoments);

/// All tiles and sums of a rank. Without sums over ranks: the tiles are stored. CTA i makes the columns [i * tile_cols,
/// (i + 1) * tile_cols) of the result; addresses are those of CTA 0, and grow with the column. It is a parameter of the
/// launch, since each record in memory would be far away when the kernel begins.
struct GemvTable {
  const std::byte* a = nullptr;  ///< rows x depth; it and all addresses below may be relative
  const std::byte* b = nullptr;  ///< cols x depth, or depth x cols
  int64_t lda = 0;               ///< elements from row to row
  int64_t ldb = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t depth = 0;
  int32_t tile_cols = 0;
  uint32_t ctas = 0;
  DType dtype = DType::bf16;  ///< of operands and partials
  BLayout b_layout = BLayout::nk;
  bool sums = true;            ///< sums follow the tiles; else the tiles are the results
  bool pairs = false;          ///< swiglu_pairs: columns 2i and 2i + 1 of B make column i of the result
  bool constant_b = false;     ///< load B before the kernels before this one are complete
  uint32_t first_tile = 0;     ///< number of the first tile's name; the others follow
  Moments* moments = nullptr;  ///< zeroed, kMostMoments: of each CTA's columns, for norms
  Exchange exchange{};
  SumOfPartials sum{};
};

using GemvKernel = void (*)(WorkerLaunch, GemvTable);

/// The kernel for operands of type T, so many rows, and tiles of a warp (Sharing).
template <typename T>
GemvKernel gemv_kernel_of(int rows, int tiles, BLayout layout);

/// Load the kernels into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_gemv_kernels();

/// Enqueue the kernel, which is the whole call of a rank: tiles, sums and sync-only lanes. `early`: its CTAs may begin
/// before the kernel before it in the stream ends.
void launch_gemv(const WorkerLaunch& launch, const GemvTable& table, bool early, cudaStream_t stream);

}  // namespace tilewire::cuda
