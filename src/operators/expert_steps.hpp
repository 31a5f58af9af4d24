// Common code of the operators with experts, which have some steps of a layer: buffers, meanings, reference.
// Called by the operators' folders, the planner's tests and the verification.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "operators/experts.hpp"
#include "operators/route_tokens.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// Callers' buffers of these steps. Inputs: x, topk_ids, topk_weights, or without a dispatch rows in groups and the
/// handle of their routing (extents, places, place_weights); w13; w2. Outputs: c, or without a combine rows in groups
/// and the handle; dropped.
[[nodiscard]] std::vector<Buffer> buffers_of_steps(const Problem& problem, int num_ranks, const ExpertSteps& steps);
/// The meanings of these buffers.
[[nodiscard]] std::vector<Meaning> meanings_of_steps(const Problem& problem, int num_ranks, const ExpertSteps& steps);
/// The reference of some of the steps, not of the whole layer. Rows of memory outside of the groups stay as they are.
void reference_of_steps(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors,
                        const ExpertSteps& steps);
/// The bytes that must cross links depend on the routing.
[[nodiscard]] int64_t no_least_bytes(const Problem& problem, int num_ranks);
/// An operator of these steps. The reference of the whole layer is moe's own.
template <ExpertSteps kSteps>
[[nodiscard]] Operator operator_of_steps(const char* name, const char* summary) {
  return {
      .name = name,
      .summary = summary,
      .structure = {.experts = true, .steps = kSteps},
      .validate = [](const Problem& problem, int num_ranks) { validate_experts(problem, num_ranks, kSteps); },
      .buffers = [](const Problem& problem, int num_ranks) { return buffers_of_steps(problem, num_ranks, kSteps); },
      .meanings = [](const Problem& problem, int num_ranks) { return meanings_of_steps(problem, num_ranks, kSteps); },
      .least_bytes = no_least_bytes,
      .reference =
          [](const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
            reference_of_steps(problem, tensors, kSteps);
          }};
}
/// Column `col` of `cols` of an activation's result. `values`: all columns of the product.
[[nodiscard]] double activated(Activation activation, const double* values, int64_t col, int64_t cols);

/// Computes rows of the outputs of some steps, in double, from the inputs of all ranks.
class StepRows {
 public:
  /// `read(buffer, rank, row, to)` writes a row of an input. Throws Error(unsupported) if the numbers of rows are no
  /// fp32.
  StepRows(const Problem& problem, int num_ranks, const ExpertSteps& steps,
           std::function<void(int, int, int64_t, float*)> read);
  /// The rows of memory that `output` has on its rank: those in groups, or all of them.
  [[nodiscard]] std::vector<int64_t> rows_of(const Meaning& output) const;
  /// One of these rows.
  [[nodiscard]] std::vector<double> row(const Meaning& output, int64_t row) const;

 private:
  [[nodiscard]] std::vector<float> input(Role role, int rank, int64_t row) const;
  [[nodiscard]] std::vector<double> product(Role b, int rank, int64_t group, std::vector<float> a) const;
  [[nodiscard]] std::vector<double> activated_row(int rank, int64_t row) const;
  [[nodiscard]] std::vector<double> sum_of_token(int64_t token) const;
  [[nodiscard]] Routing given_routing(int rank) const;

  Problem problem_;
  int num_ranks_;
  ExpertSteps steps_;
  std::function<void(int, int, int64_t, float*)> read_;
  std::vector<Buffer> buffers_;
  std::vector<Meaning> meanings_;
  std::vector<Routing> routings_{};  ///< by rank
};

}  // namespace tilewire
