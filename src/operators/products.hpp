// The inputs of a problem for verification: A, B and partial sums, assembled from all ranks' parts, and their products
// in double.
// Used by verify.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operators/expert_steps.hpp"
#include "operators/experts.hpp"
#include "operators/gemm.hpp"
#include "operators/random_data.hpp"
#include "tilewire/problem.hpp"

namespace tilewire {

/// One rank's part of a global tensor, or a block of its rows: its position and its shape.
struct Part {
  Meaning meaning;
  Shape shape;

  /// The part's first row in the rank's buffer.
  [[nodiscard]] int64_t first_row() const { return meaning.rows.begin; }
};

/// Quantities that are cheap to compute for every row of an output.
struct RowSizes {
  std::vector<double> dots;     ///< the row times the random vector; empty if the epilogue is not linear
  std::vector<double> squares;  ///< sum of the squares of the products (or partials) that add up to the row
};

/// The inputs of one problem on all ranks. Depends on roles only, not on the operator.
class Inputs {
 public:
  /// Throws Error(invalid_input) if the problem breaks a rule of the operator.
  Inputs(const Operator& op, const Problem& problem, int num_ranks, ReadRow read);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// The outputs of `rank`, in the order of the buffers; of one with several meanings each block of rows.
  [[nodiscard]] std::vector<Part> outputs_of(int rank) const;
  /// A random vector: +1 or -1 for every column of the output.
  [[nodiscard]] std::vector<double> random_signs(uint64_t seed) const;
  /// Multiply-adds of the whole problem; INT64_MAX if more.
  [[nodiscard]] int64_t work() const;
  /// For an output that is a sum: number of terms of an element that are rounded before the addition.
  [[nodiscard]] int64_t num_partials(const Part& output) const;
  /// Type of these terms if they are inputs; nothing for products, which are not rounded before.
  [[nodiscard]] std::optional<DType> dtype_of_partials(const Part& output) const;
  /// Product of the epilogue's factors.
  [[nodiscard]] double scale() const;
  [[nodiscard]] bool has_epilogue() const { return !problem_.epilogue.empty(); }
  /// Multiply-adds (or reads) per row of an output.
  [[nodiscard]] int64_t work_per_row(const Part& output) const;
  /// The parts of outputs_of(rank) by the operator's reference.
  [[nodiscard]] std::vector<DoubleMatrix> reference_outputs(int rank) const;
  /// The same of all ranks.
  [[nodiscard]] std::vector<std::vector<DoubleMatrix>> all_reference_outputs() const;
  /// Compute some local rows of an output with experts: the reference of these tokens alone.
  [[nodiscard]] DoubleMatrix rows_of_experts(const Part& output, std::span<const int64_t> rows) const;
  /// Whether the operator has some steps of a layer of experts.
  [[nodiscard]] bool has_steps() const { return steps_.has_value(); }
  /// With steps: the rows of an output that are defined.
  [[nodiscard]] std::vector<int64_t> defined_rows(const Part& output) const { return steps_->rows_of(output.meaning); }
  /// Compute some local rows of an output in double.
  [[nodiscard]] DoubleMatrix exact_rows(const Part& output, std::span<const int64_t> rows) const;
  /// Normalise rows of a `normed` output by the problem's norm.
  void normalise(const Part& output, DoubleMatrix& values) const;
  /// Dot products and squares of all rows; empty for outputs that are only moved.
  [[nodiscard]] RowSizes row_sizes(const Part& output, std::span<const double> signs) const;

 private:
  [[nodiscard]] Shape shape_of(const Meaning& meaning) const {
    const Buffer& buffer = buffers_[meaning.buffer];
    if (is_grouped(buffer)) return memory_shape_on(buffer, meaning.rank);
    return {rows_on(buffer, meaning).size(), shape_on(buffer, meaning.rank).cols};
  }
  /// The rank that has a token.
  [[nodiscard]] int owner_of(int64_t token) const;
  [[nodiscard]] std::vector<Part> input_parts(Role role) const;
  [[nodiscard]] bool is_product(const Part& output) const;
  /// Add rows of the global A, or of all partial sums, in the columns of `output`.
  void add_input_rows(Role role, const Part& output, std::span<const int64_t> rows, DoubleMatrix& sum) const;
  /// Call visit(part, local row, values) for every row of B that has one of these columns of the product.
  template <class Visit>
  void for_each_b_row(Range columns, const Visit& visit) const;
  [[nodiscard]] RowSizes image_of_b(const Part& output, std::span<const double> signs) const;
  [[nodiscard]] RowSizes weigh_rows(Role role, const Part& output, const RowSizes& weights) const;
  /// The columns of the bias that belong to an output; empty if there is no bias.
  [[nodiscard]] std::vector<float> bias_of(const Part& output) const;
  /// Add rows of the product of A and B.
  void add_product_rows(const Part& output, std::span<const int64_t> rows, DoubleMatrix& values) const;
  /// Apply the epilogue to some local rows.
  void apply_epilogue_to(const Part& output, std::span<const int64_t> rows, DoubleMatrix& values) const;

  const Operator& op_;
  Problem problem_;
  int num_ranks_;
  ReadRow read_;
  std::vector<Buffer> buffers_;
  std::vector<Meaning> meanings_;
  std::optional<KeptRows> kept_{};   ///< of a layer with Experts::max_rows
  std::optional<StepRows> steps_{};  ///< of some steps of a layer of experts
};

}  // namespace tilewire
