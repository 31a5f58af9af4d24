// Common code of operators with a GEMM: buffers of A, B and epilogue operands, and the reference product.
// Called by the operators' folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// Dense matrix of doubles, row by row. References compute in it.
struct DoubleMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  DoubleMatrix(int64_t num_rows, int64_t num_cols)
      : rows(num_rows), cols(num_cols), values(static_cast<size_t>(num_rows * num_cols)) {}
  [[nodiscard]] double& at(int64_t row, int64_t col) { return values[static_cast<size_t>(row * cols + col)]; }
  [[nodiscard]] double at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

/// A caller's buffer with a shape per rank. Its rows and cols are the largest of all ranks.
[[nodiscard]] Buffer sharded_buffer(std::string name, DType dtype, Scope scope, std::vector<Shape> shapes);
/// A caller's buffer with the same shape on all ranks.
[[nodiscard]] Buffer whole_buffer(std::string name, DType dtype, Scope scope, Shape shape);
/// Shape of a B with `n` columns and depth `k` in the problem's layout.
[[nodiscard]] Shape b_shape(const Problem& problem, int64_t n, int64_t k);
/// Whether the problem's epilogue starts with a bias. The bias is then an input of 1 x columns.
[[nodiscard]] bool has_bias(const Problem& problem);
/// Whether the epilogue has a residual. The residual is then the last input, of the output's type. The operator defines
/// its rows and columns.
[[nodiscard]] bool has_residual(const Problem& problem);
/// Add the epilogue's operands, bias and residual, of output number `output` to an operator's inputs. `bias` and
/// `residual` are their shapes on each rank.
void add_operands(const Problem& problem, const std::vector<Shape>& bias, const std::vector<Shape>& residual,
                  std::vector<Buffer>& inputs, size_t output = 0);
/// Add the meanings of these operands on `rank`. The bias begins at column `bias_col` of the output, the residual at
/// element (residual_at.rows, residual_at.cols). `buffer` is the number of the next buffer; it is incremented.
void add_operand_meanings(const Problem& problem, int rank, int64_t bias_col, Shape residual_at, int& buffer,
                          std::vector<Meaning>& meanings);
/// Number of a rank's tensors before its first output: a, all b, and the operands of the epilogue.
[[nodiscard]] size_t num_gathered_inputs(const Problem& problem);
/// All buffers of an operator that gathers A. `a` has the shape of each rank's part of A; B and C are sharded by
/// columns.
[[nodiscard]] std::vector<Buffer> gathered_buffers(const Problem& problem, int num_ranks, const std::vector<Shape>& a);
/// The meanings of these buffers. `a_at`: the first element of A (row, column) in each rank's part.
[[nodiscard]] std::vector<Meaning> gathered_meanings(const Problem& problem, int num_ranks,
                                                     const std::vector<Shape>& a_at);
/// Inputs a and b of an operator whose A and B are sharded along K.
[[nodiscard]] std::vector<Buffer> k_sharded_inputs(const Problem& problem, int num_ranks);
/// The meanings of these inputs on one rank.
[[nodiscard]] std::vector<Meaning> k_sharded_meanings(const Problem& problem, int num_ranks, int rank);

/// One element of a tensor as double.
[[nodiscard]] double element(const Tensor& tensor, int64_t row, int64_t col);
/// B as fp32 in the order [k][column], whatever the problem's layout.
[[nodiscard]] std::vector<float> by_rows_of_k(const Problem& problem, const Tensor& b);
/// sum += A * B in double; `b` comes from by_rows_of_k.
void add_product(const Tensor& a, const std::vector<float>& b, DoubleMatrix& sum);
/// A tensor as doubles.
[[nodiscard]] DoubleMatrix doubles_of(const Tensor& tensor);
/// Apply the epilogue to `sum` in double. `bias` is null if there is none; `residual` has the sum's shape. A step that
/// joins columns changes the shape of `sum`.
void apply_epilogue(const Problem& problem, const Tensor* bias, const DoubleMatrix* residual, DoubleMatrix& sum);
/// The same, with the operands taken from a rank's tensors: a, b, then bias and residual if the epilogue has them. The
/// residual has the sum's shape.
void apply_epilogue(const Problem& problem, const std::vector<Tensor>& tensors, DoubleMatrix& sum);
/// Apply the epilogue to output number `output` of an operator that gathers A, and round it into the rank's tensor.
void finish_output(const Problem& problem, const std::vector<Tensor>& tensors, size_t output, DoubleMatrix& sum);
/// The sum over ranks of A * B for inputs sharded along K. `tensors` by rank.
[[nodiscard]] DoubleMatrix k_sharded_sum(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors);
/// Copy some rows of a matrix.
[[nodiscard]] DoubleMatrix rows_of(const DoubleMatrix& matrix, Range rows);
/// Round rows [first_row, first_row + to.rows) of `from` into `to`.
void store_rows(const DoubleMatrix& from, int64_t first_row, const Tensor& to);
/// Round columns [first_col, first_col + to.cols) of `from` into rows [first_row, first_row + from.rows) of `to`.
void store_block(const DoubleMatrix& from, int64_t first_col, int64_t first_row, const Tensor& to);
/// Copy all rows of `from` to rows [first_row, ...) of `to`; same dtype.
void copy_rows(const Tensor& from, const Tensor& to, int64_t first_row);

}  // namespace tilewire
