// Times of programs on a group, and values that all ranks agree on.
// Called by the tuner.
#pragma once

#include <string>
#include <vector>

#include "operators/tensors.hpp"
#include "tilewire/backend.hpp"

namespace tilewire::tuner {

/// The largest of all ranks' values: what every rank decides by. Collective.
[[nodiscard]] double largest(Group& group, double mine);
/// The text of the lowest rank that has any. Collective.
[[nodiscard]] std::string first_text(Group& group, const std::string& mine);
/// Microseconds that the slowest rank took for one call. Collective.
[[nodiscard]] double time_call(Group& group, Program& program, const RankTensors& tensors);
[[nodiscard]] double median(std::vector<double> values);

}  // namespace tilewire::tuner
