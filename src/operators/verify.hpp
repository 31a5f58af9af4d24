// Verifies outputs: against the operator's reference if that is fast enough, else by sampled rows in double and
// Freivalds' check of every row. Every row of a norm is compared with the norm of the verified sum. Used by the bench,
// by `tilewire run --verify` and by tests.
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

/// The error that a correct result may have.
struct Tolerance {
  /// Relative error: 2^-7 for bf16, 2^-10 for fp16 (and TF32), 1e-5 for fp32. That is two units of rounding of the
  /// coarsest type to which a sum is rounded; for fp32 it covers the accumulation of long sums.
  double relative = 0;
  /// Type of partials between ranks. Near zero a type's smallest step exceeds the relative error; there rounding costs
  /// half a step of the output's type, and half a step of this type for each partial.
  DType wire = DType::fp32;

  bool operator==(const Tolerance&) const = default;
};
[[nodiscard]] Tolerance tolerance_of(const Problem& problem, const Config& config);

/// The errors of outputs against the reference; comparisons add up over ranks. `tolerance` holds for the mean over all
/// compared elements. A row may have twice its share, an element four times. Relative sizes refer to the results, or,
/// if products cancel, to the products.
struct Comparison {
  double tolerance = 0;
  double error_squares = 0;      ///< |out - ref|^2 over the rows compared element by element
  double reference_squares = 0;  ///< |ref|^2 over the same rows
  double size_squares = 0;       ///< the same, but with the size of the products if they cancel
  double dot_error_squares = 0;  ///< |out - ref|^2 of rows times the random vector of +-1; its mean is the same
  double dot_squares = 0;
  double step_squares = 0;  ///< upper bound of |rounding near zero|^2 over the elements compared one by one
  int64_t elements = 0;     ///< compared one by one
  int64_t wrong = 0;        ///< rows outside of their tolerance
  std::string first{};      ///< text of the first wrong row

  void add(const Comparison& other);
  /// |out - ref| / |ref| in Frobenius norms, the larger of the two estimates. Infinite if output and reference differ
  /// in a NaN or Inf.
  [[nodiscard]] double rel_error() const;
  [[nodiscard]] bool ok() const;
  /// "rel_error 1.2e-03, ok", or the first wrong row.
  [[nodiscard]] std::string text() const;
};

struct VerifyOptions {
  int64_t reference_work = int64_t{1} << 21;  ///< most multiply-adds for which the reference runs
  int64_t sample_work = int64_t{1} << 27;     ///< multiply-adds spent on sampled rows of one output
  uint64_t seed = 1;                          ///< seed of the sampled rows and of the random vector
};

/// The expected outputs of one rank. Made once for a problem and its inputs; compares the outputs of many plans. NaN
/// equals NaN, and Inf equals Inf of the same sign.
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

/// Compare on every rank and add the comparisons up; all ranks return the same. Collective.
[[nodiscard]] Comparison verify(Group& group, const Expected& expected, std::span<const Tensor> outputs,
                                const Tolerance& tolerance);

}  // namespace tilewire
