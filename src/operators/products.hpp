// The inputs of a problem as verification sees them: global A, B and partial sums put together from all
// ranks' parts, and products of them in double. Used by verify.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "operators/random_data.hpp"

namespace tilewire {

/// One rank's part of a global tensor: where it starts, and its shape.
struct Part {
  Meaning meaning;
  Shape shape;
};

/// What is cheap to know of every row of an output.
struct RowSizes {
  std::vector<double> dots;     ///< the row times the random vector; empty where that is not linear
  std::vector<double> squares;  ///< sum of the squares of the products (or partials) behind the row
};

/// The inputs of one problem on all ranks.
class Inputs {
 public:
  Inputs(const Problem& problem, int num_ranks, ReadRow read);

  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  /// This rank's outputs in the order of the buffers.
  [[nodiscard]] std::vector<Part> outputs_of(int rank) const;
  /// +-1 for every column of the widest output.
  [[nodiscard]] std::vector<double> random_signs(uint64_t seed) const;
  /// Multiply-adds of the whole problem, and of one row of an output.
  [[nodiscard]] int64_t work() const;
  [[nodiscard]] int64_t work_per_row(const Part& output) const;
  /// All of this rank's outputs by the operator's reference.
  [[nodiscard]] std::vector<std::vector<double>> reference_outputs(int rank) const;
  /// These local rows of an output, computed in double.
  [[nodiscard]] std::vector<double> exact_rows(const Part& output, std::span<const int64_t> rows) const;
  [[nodiscard]] RowSizes row_sizes(const Part& output, std::span<const double> signs) const;

 private:
  [[nodiscard]] std::vector<Part> parts(Role role, size_t nth) const;
  [[nodiscard]] size_t nth_of_role(const Part& output) const;
  [[nodiscard]] bool has_gemm() const;
  [[nodiscard]] bool is_linear(const Part& output) const;
  [[nodiscard]] std::vector<double> rows_of_a(std::span<const int64_t> global_rows, int64_t k) const;
  [[nodiscard]] std::vector<double> bias(const Part& output) const;
  void multiply(const Part& output, std::span<const double> a, std::span<double> result) const;
  void add_partials(const Part& output, std::span<const int64_t> rows, std::span<double> sums,
                    std::span<double> squares) const;
  void finish(const Part& output, std::span<double> values) const;
  [[nodiscard]] RowSizes gemm_row_sizes(const Part& output, std::span<const double> signs) const;
  template <class Visit>
  void for_each_b_row(const Part& output, const Visit& visit) const;

  Problem problem_;
  int num_ranks_;
  ReadRow read_;
  std::vector<Buffer> buffers_;
  std::vector<Meaning> meanings_;
};

}  // namespace tilewire
