// Routing that a test chooses, in place of random experts.
// Called by the tests of mixture of experts, on CPU ranks and on GPUs.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/run_case.hpp"

namespace tilewire::testing {

/// The experts of a token, in the tensors of `make_tensors`.
inline int32_t* experts_of(const RankTensors& rank, int64_t token) {
  return static_cast<int32_t*>(rank.tensors[1].data) + token * rank.tensors[1].cols;
}

/// Give each token the experts that `choose` writes.
template <class Choose>
CaseOptions routed_by(const Choose& choose) {
  CaseOptions options;
  options.change_inputs = [choose](std::vector<RankTensors>& ranks) {
    for (const RankTensors& rank : ranks) {
      for (int64_t token = 0; token < rank.tensors[1].rows; ++token) choose(token, experts_of(rank, token));
    }
  };
  return options;
}

}  // namespace tilewire::testing
