// What the operators that contain a GEMM share: buffers of A, B and bias, and the reference product.
// Called by the operators' folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/operator.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// Dense matrix of doubles, row by row: what references compute in.
struct DoubleMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  DoubleMatrix(int64_t num_rows, int64_t num_cols)
      : rows(num_rows), cols(num_cols), values(static_cast<size_t>(num_rows * num_cols)) {}
  [[nodiscard]] double& at(int64_t row, int64_t col) { return values[static_cast<size_t>(row * cols + col)]; }
  [[nodiscard]] double at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

/// A caller's buffer whose shape differs from rank to rank; rows and cols become the largest.
[[nodiscard]] Buffer sharded_buffer(std::string name, DType dtype, Scope scope, std::vector<Shape> shapes);
/// The same shape everywhere.
[[nodiscard]] Buffer whole_buffer(std::string name, DType dtype, Scope scope, Shape shape);
/// The shape of a B of `n` columns and depth `k` in the problem's layout.
[[nodiscard]] Shape b_shape(const Problem& problem, int64_t n, int64_t k);
/// Whether the problem's epilogue starts with a bias, which is then an input of 1 x columns.
[[nodiscard]] bool has_bias(const Problem& problem);
/// Inputs a, b and bias of an operator whose A and B are sharded along K: GEMM, then a sum over ranks.
[[nodiscard]] std::vector<Buffer> k_sharded_inputs(const Problem& problem, int num_ranks);
/// The meanings of these inputs for one rank, buffers numbered from 0.
[[nodiscard]] std::vector<Meaning> k_sharded_meanings(const Problem& problem, int num_ranks, int rank);

/// One element of a tensor as double.
[[nodiscard]] double element(const Tensor& tensor, int64_t row, int64_t col);
/// B as fp32, in whatever layout the problem has it: all columns of one k after the other.
[[nodiscard]] std::vector<float> by_rows_of_k(const Problem& problem, const Tensor& b);
/// sum += A * B in double; `b` from by_rows_of_k.
void add_product(const Tensor& a, const std::vector<float>& b, DoubleMatrix& sum);
/// Apply the epilogue to `sum` in double; `bias` may be null where there is none.
void apply_epilogue(const Problem& problem, const Tensor* bias, DoubleMatrix& sum);
/// What k_sharded_inputs give: the sum over ranks of A * B, then the epilogue. `tensors` by rank.
[[nodiscard]] DoubleMatrix k_sharded_sum(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors);
/// Round rows [first_row, ...) of `from` into `to`.
void store_rows(const DoubleMatrix& from, int64_t first_row, const Tensor& to);
/// Copy rows [first_row, ...) of `to` from all of `from`; same dtype.
void copy_rows(const Tensor& from, const Tensor& to, int64_t first_row);

}  // namespace tilewire
