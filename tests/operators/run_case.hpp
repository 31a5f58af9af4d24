// Runs one problem under many configs on ranks of one machine, with fresh inputs and poisoned outputs, and compares
// with
// the reference and between configs. Called by the tests in this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tilewire/tilewire.hpp"

namespace tilewire::testing {

/// One rank's tensors in the order of the operator's buffers, with their memory.
struct RankTensors {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Tensor> tensors;
};

/// Inputs of all ranks, random from `seed`, and outputs full of NaN.
[[nodiscard]] std::vector<RankTensors> make_tensors(const Problem& problem, int num_ranks, uint64_t seed);

/// The allowed deviation of a dtype from the reference: |out - ref| / |ref| over the whole output.
[[nodiscard]] double tolerance_of(DType dtype);

struct CaseOptions {
  int num_calls = 2;  ///< with different data each
  std::string backend = "host";
  bool threads = true;
  bool meet = false;  ///< barrier after each call and its copies: no rank is a call ahead if `run` waits for the end
  double timeout_s = 30;
  uint64_t seed = 1;
  std::function<void(Plan&)> change{};                             ///< changes each plan before it is loaded
  std::function<void(std::vector<RankTensors>&)> change_inputs{};  ///< of all ranks; called for each copy of them
  bool lowered = false;                                            ///< the same configs once more, lowered for GPUs
  bool in_place = false;  ///< the output lies in the residual's memory where the plan allows it
  bool all_run = false;   ///< a plan that the backend refuses fails the test
  bool adopted = false;   ///< tensors of the arena lie in memory that ranks adopt (Group::adopt), host
  OpOptions op;
};

/// Run `problem` under every config on `num_ranks` ranks. Fail the current test if a result differs from the reference,
/// or, for repeatable sums, by one bit between configs of the same tile shape, split-K and wire type.
void expect_right(const Problem& problem, int num_ranks, const std::vector<Config>& configs,
                  const CaseOptions& options = {});

}  // namespace tilewire::testing
