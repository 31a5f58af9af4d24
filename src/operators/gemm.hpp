// What the operators that contain a GEMM share: buffers of A, B and of the epilogue, and the reference product.
// Called by the operators' folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

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
/// Whether it has a residual, which is then the last input: of the output's type, with the rows and columns that the
/// operator says.
[[nodiscard]] bool has_residual(const Problem& problem);
/// Add what the epilogue asks for to an operator's inputs: bias and residual, with a shape for every rank. `output`:
/// whose they are.
void add_operands(const Problem& problem, const std::vector<Shape>& bias, const std::vector<Shape>& residual,
                  std::vector<Buffer>& inputs, size_t output = 0);
/// And what they stand for on `rank`: the bias begins with column `bias_col` of the output, the residual with element
/// (row, col). `buffer`: the number of the next buffer, which is counted up.
void add_operand_meanings(const Problem& problem, int rank, int64_t bias_col, Shape residual_at, int& buffer,
                          std::vector<Meaning>& meanings);
/// How many tensors of a rank come before its first output: a, all b, and the operands of the epilogue.
[[nodiscard]] size_t num_gathered_inputs(const Problem& problem);
/// All buffers of an operator that gathers A, in parts of these shapes, and whose ranks have columns of B and C.
[[nodiscard]] std::vector<Buffer> gathered_buffers(const Problem& problem, int num_ranks, const std::vector<Shape>& a);
/// What they stand for. `a_at`: by rank, the element of A with which its part begins.
[[nodiscard]] std::vector<Meaning> gathered_meanings(const Problem& problem, int num_ranks,
                                                     const std::vector<Shape>& a_at);
/// Inputs a and b of an operator whose A and B are sharded along K: GEMM, then a sum over ranks.
[[nodiscard]] std::vector<Buffer> k_sharded_inputs(const Problem& problem, int num_ranks);
/// The meanings of these inputs for one rank.
[[nodiscard]] std::vector<Meaning> k_sharded_meanings(const Problem& problem, int num_ranks, int rank);

/// One element of a tensor as double.
[[nodiscard]] double element(const Tensor& tensor, int64_t row, int64_t col);
/// B as fp32, in whatever layout the problem has it: all columns of one k after the other.
[[nodiscard]] std::vector<float> by_rows_of_k(const Problem& problem, const Tensor& b);
/// sum += A * B in double; `b` from by_rows_of_k.
void add_product(const Tensor& a, const std::vector<float>& b, DoubleMatrix& sum);
/// A tensor as doubles.
[[nodiscard]] DoubleMatrix doubles_of(const Tensor& tensor);
/// Apply the epilogue to `sum` in double; `bias` and `residual`, of the sum's shape, are null where there is none.
void apply_epilogue(const Problem& problem, const Tensor* bias, const DoubleMatrix* residual, DoubleMatrix& sum);
/// The same with the operands among a rank's tensors: a, b, then bias and residual where there are some. The residual
/// has the sum's shape.
void apply_epilogue(const Problem& problem, const std::vector<Tensor>& tensors, DoubleMatrix& sum);
/// Apply the epilogue of output number `output` of an operator that gathers A, and round it into a rank's tensor.
void finish_output(const Problem& problem, const std::vector<Tensor>& tensors, size_t output, DoubleMatrix& sum);
/// What k_sharded_inputs give: the sum over ranks of A * B. `tensors` by rank.
[[nodiscard]] DoubleMatrix k_sharded_sum(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors);
/// Rows of a matrix.
[[nodiscard]] DoubleMatrix rows_of(const DoubleMatrix& matrix, Range rows);
/// Round rows [first_row, ...) of `from` into `to`.
void store_rows(const DoubleMatrix& from, int64_t first_row, const Tensor& to);
/// Round columns [first_col, ...) of all of `from` into rows [first_row, ...) of `to`.
void store_block(const DoubleMatrix& from, int64_t first_col, int64_t first_row, const Tensor& to);
/// Copy rows [first_row, ...) of `to` from all of `from`; same dtype.
void copy_rows(const Tensor& from, const Tensor& to, int64_t first_row);

}  // namespace tilewire
