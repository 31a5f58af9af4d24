// Simulates T3's study.
// Used by t3_verb.cpp and claims_verb.cpp.
#pragma once

#include <utility>
#include <vector>

#include "studies/t3_results.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// Models from this degree of tensor parallelism on have means of their own.
inline constexpr int kLargerTp = 32;

/// Simulate all that the paper's figures need: the study, twice the compute units, parts of them and, if `larger`, the
/// models at 32.
[[nodiscard]] T3Study study_of(const Machine& machine, bool larger);

/// Simulate each sub-layer on its machine, on all cores, in order.
[[nodiscard]] std::vector<T3Row> simulate_layers(const std::vector<std::pair<SubLayer, Machine>>& jobs);
/// The models that the paper calls large, "Mega-GPT-2, T-NLG" (at 8 and 16), or if `larger` the larger ones (at 32).
[[nodiscard]] std::vector<T3Model> models_of_study(bool larger);
/// All sub-layers of these models at all their degrees.
[[nodiscard]] std::vector<SubLayer> sub_layers_of(const std::vector<T3Model>& models);

}  // namespace tilewire::cli
