// Whether outputs are right: against the operator's reference where that is quick, else sampled rows in
// double and Freivalds' check of every row. Used by the bench, by `tilewire run --verify` and by tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "operators/random_data.hpp"
#include "tilewire/config.hpp"
#include "tilewire/group.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// The error that a right result may have.
struct Tolerance {
  /// As a part of its size: 2^-7 for bf16, 2^-10 for fp16 (and TF32), 1e-5 for fp32: two units of rounding of the
  /// coarsest type that a sum is rounded to, and for fp32 the cost of accumulating long sums.
  double relative = 0;
  /// Type that partials are rounded to. Near zero, where the smallest step of a type is more than that part of a size,
  /// rounding costs half a step of the output's type, or of this one once a partial.
  DType wire = DType::fp32;

  bool operator==(const Tolerance&) const = default;
};
[[nodiscard]] Tolerance tolerance_of(const Problem& problem, const Config& config);

/// How outputs compare with the reference. Adds up over ranks. The tolerance holds for all that was
/// compared; a row may have twice, an element four times its share. Sizes are those of the results, or
/// of the products that were added up, where they cancel.
struct Comparison {
  double tolerance = 0;
  double error_squares = 0;      ///< |out - ref|^2 over the rows compared element by element
  double reference_squares = 0;  ///< |ref|^2 over the same
  double size_squares = 0;       ///< the same, but counting products that cancelled
  double dot_error_squares = 0;  ///< |out - ref|^2 of rows times a random vector of +-1: the same in the mean
  double dot_squares = 0;
  double step_squares = 0;  ///< |rounding near zero|^2 of the elements compared one by one, at most
  int64_t elements = 0;     ///< compared one by one
  int64_t wrong = 0;        ///< rows outside of their tolerance
  std::string first{};      ///< the first wrong row, in words

  void add(const Comparison& other);
  /// |out - ref| / |ref|, Frobenius norms; the larger of the two estimates. Infinite where a NaN or an
  /// Inf stands where the reference has none, or the reverse.
  [[nodiscard]] double rel_error() const;
  [[nodiscard]] bool ok() const;
  /// "rel_error 1.2e-03, ok"; names the first wrong row.
  [[nodiscard]] std::string text() const;
};

struct VerifyOptions {
  int64_t reference_work = int64_t{1} << 21;  ///< multiply-adds up to which the operator's reference runs
  int64_t sample_work = int64_t{1} << 27;     ///< multiply-adds spent on sampled rows of one output
  uint64_t seed = 1;                          ///< of the rows and of the random vector
};

/// What one rank's outputs must hold. Made once for a problem and its inputs, compared with the outputs
/// of many plans. NaN equals NaN, and Inf equals Inf of the same sign.
class Expected {
 public:
  Expected(const Problem& problem, int num_ranks, int rank, ReadRow read, const VerifyOptions& options = {});
  /// The same for an operator that is not in the table.
  Expected(const Operator& op, const Problem& problem, int num_ranks, int rank, ReadRow read,
           const VerifyOptions& options = {});
  ~Expected();
  Expected(Expected&&) noexcept;
  Expected& operator=(Expected&&) noexcept;

  /// Compare with this rank's outputs, in the order of the operator's buffers.
  [[nodiscard]] Comparison compare(std::span<const Tensor> outputs, const Tolerance& tolerance) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Compare on every rank and add up: all ranks return the same. Collective.
[[nodiscard]] Comparison verify(Group& group, const Expected& expected, std::span<const Tensor> outputs,
                                const Tolerance& tolerance);

}  // namespace tilewire
