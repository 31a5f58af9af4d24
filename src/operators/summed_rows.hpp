// Outputs that are rows of sums across ranks, with epilogue and norm.
// Called by gemm_all_reduce, gemm_reduce_scatter and all_reduce, and by products.cpp.
#pragma once

#include <vector>

#include "operators/gemm.hpp"

namespace tilewire {

/// All rows on every rank.
[[nodiscard]] std::vector<Range> all_rows(const Problem& problem, int num_ranks);
/// Add the operands of the epilogue and of the norm, the output `name`, and `normed` (and `norm_scale`) if the problem
/// has a norm. `rows`: of each rank.
void add_summed_rows(const Problem& problem, const std::vector<Range>& rows, const char* name,
                     std::vector<Buffer>& buffers);
/// Add the meanings of these buffers on `rank`, whose first row is `row`. `buffer` is the number of the first one;
/// `terms` are those of the sum.
void add_summed_rows_meanings(const Problem& problem, int rank, int64_t row, int buffer, Range terms,
                              std::vector<Meaning>& meanings);
/// Apply the epilogue to the rank's rows of the sum, round them into its output, and normalise the rounded rows.
/// `buffer` is the number of the first of these tensors.
void store_summed_rows(const Problem& problem, const std::vector<Tensor>& tensors, size_t buffer, DoubleMatrix sum);
/// Normalise the rows in double. `weight` and `bias` have one row; `bias` is null if there is none.
void apply_norm(const Norm& norm, const Tensor& weight, const Tensor* bias, DoubleMatrix& rows);
/// Divide each row by its scale (Norm::out_dtype). Returns the scales.
[[nodiscard]] std::vector<double> quantise(DType dtype, DoubleMatrix& rows);

}  // namespace tilewire
