// Outputs that are sums across ranks, whole on every rank, with epilogue and norm.
// Called by gemm_all_reduce and all_reduce.
#pragma once

#include <vector>

#include "operators/gemm.hpp"

namespace tilewire {

/// Add the operands of the epilogue and of the norm, the output `name`, and `normed` if the problem has a norm.
void add_whole_sum(const Problem& problem, int num_ranks, const char* name, std::vector<Buffer>& buffers);
/// Add the meanings of these buffers on `rank`. `buffer` is the number of the first one; `terms` are those of the sum.
void add_whole_sum_meanings(const Problem& problem, int rank, int buffer, Range terms, std::vector<Meaning>& meanings);
/// Apply the epilogue to the sum, round it into the rank's output, and normalise the rounded rows. `buffer` is the
/// number of the first of these tensors.
void store_whole_sum(const Problem& problem, const std::vector<Tensor>& tensors, size_t buffer, DoubleMatrix sum);
/// Normalise the rows in double. `weight` and `bias` have one row; `bias` is null if there is none.
void apply_norm(const Norm& norm, const Tensor& weight, const Tensor* bias, DoubleMatrix& rows);

}  // namespace tilewire
