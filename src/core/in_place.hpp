// The residuals of a plan whose memory an output may share.
// Called by programs; require_tensors allows these pairs.
#pragma once

#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Indices of two callers' buffers.
struct InPlace {
  int residual = 0;
  int output = 0;

  bool operator==(const InPlace&) const = default;
};

/// The pairs that may have the same address, strides and shape on every rank: each write to an element of the output is
/// a store by the one task that reads that element of the residual.
[[nodiscard]] std::vector<InPlace> in_place_pairs(const Plan& plan);

}  // namespace tilewire
