// The host's view of the kernel of rows: an all-reduce of few rows, and the norms behind it, in one kernel.
// Called by programs; the table is made by tables/row_table.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernels/sum_of_partials.hpp"

namespace tilewire::cuda {

/// CTA i has part i % `parts` of row i / `parts`; with norms at most kMostRowParts. It is a parameter of the launch,
/// since each record in memory would be far away when the kernel begins.
struct RowTable {
  const std::byte* x = nullptr;  ///< rows x (parts * part_cols); may be relative
  int64_t ldx = 0;               ///< elements from row to row
  int32_t rows = 0;
  int32_t parts = 1;
  int32_t part_cols = 0;
  DType dtype = DType::bf16;
  uint32_t first_task = 0;  ///< number of the first task's name; the others follow
  Exchange exchange{};
  SumOfPartials sum{};
};

/// Load the kernels into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_row_kernels();

/// Enqueue the kernel, which is the whole call of a rank: copies, sums, norms and sync-only lanes. `early`: its CTAs
/// may begin before the kernel before it in the stream ends.
void launch_rows(const WorkerLaunch& launch, const RowTable& table, bool early, cudaStream_t stream);

}  // namespace tilewire::cuda
