// The inputs of a problem as verification sees them: A, B and partial sums put together from all ranks'
// parts, and their products in double. Used by verify.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operators/gemm.hpp"
#include "operators/random_data.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// One rank's part of a global tensor: where it starts, and its shape.
struct Part {
  Meaning meaning;
  Shape shape;
};

/// What is cheap to know of every row of an output.
struct RowSizes {
  std::vector<double> dots;     ///< the row times the random vector; empty where that is not linear
  std::vector<double> squares;  ///< the sum of the squares of the products (or partials) behind the row
};

/// The inputs of one problem on all ranks. Knows roles, not operators.
class Inputs {
 public:
  /// Throws Error(invalid_input) where the problem breaks a rule of the operator.
  Inputs(const Operator& op, const Problem& problem, int num_ranks, ReadRow read);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// This rank's outputs, in the order of the buffers.
  [[nodiscard]] std::vector<Part> outputs_of(int rank) const;
  /// +-1 for every column of the output.
  [[nodiscard]] std::vector<double> random_signs(uint64_t seed) const;
  /// Multiply-adds of the whole problem.
  [[nodiscard]] int64_t work() const;
  /// Terms that are rounded before they are added up to an element of an output that is a sum.
  [[nodiscard]] int64_t num_partials(const Part& output) const;
  /// Their type where they are inputs; nothing for products, which are not rounded before.
  [[nodiscard]] std::optional<DType> dtype_of_partials(const Part& output) const;
  /// Product of the epilogue's factors.
  [[nodiscard]] double scale() const;
  [[nodiscard]] bool has_epilogue() const { return !problem_.epilogue.empty(); }
  /// Multiply-adds (or reads) of one row of an output.
  [[nodiscard]] int64_t work_per_row(const Part& output) const;
  /// This rank's outputs by the operator's reference.
  [[nodiscard]] std::vector<DoubleMatrix> reference_outputs(int rank) const;
  /// These local rows of an output, computed here in double.
  [[nodiscard]] DoubleMatrix exact_rows(const Part& output, std::span<const int64_t> rows) const;
  /// Dot products and sizes of all rows; empty for outputs that are only moved.
  [[nodiscard]] RowSizes row_sizes(const Part& output, std::span<const double> signs) const;

 private:
  [[nodiscard]] Shape shape_of(const Meaning& meaning) const {
    return shape_on(buffers_[meaning.buffer], meaning.rank);
  }
  [[nodiscard]] std::vector<Part> input_parts(Role role) const;
  [[nodiscard]] bool is_product(const Part& output) const;
  /// Add these rows of the global A, or of all partial sums, in the columns of `output`.
  void add_input_rows(Role role, const Part& output, std::span<const int64_t> rows, DoubleMatrix& sum) const;
  /// Calls visit(part, local row, its values) for every row of B.
  template <class Visit>
  void for_each_b_row(const Visit& visit) const;
  [[nodiscard]] RowSizes image_of_b(const Part& output, std::span<const double> signs) const;
  [[nodiscard]] RowSizes weigh_rows(Role role, const Part& output, const RowSizes& weights) const;
  /// The columns of the rank's bias that belong to an output; empty where it has none.
  [[nodiscard]] std::vector<float> bias_of(const Part& output) const;
  /// Of these local rows.
  void apply_epilogue_to(const Part& output, std::span<const int64_t> rows, DoubleMatrix& values) const;

  const Operator& op_;
  Problem problem_;
  int num_ranks_;
  ReadRow read_;
  std::vector<Buffer> buffers_;
  std::vector<Meaning> meanings_;
};

}  // namespace tilewire
