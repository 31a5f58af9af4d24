// T3's study, simulated.
// Used by t3_verb.cpp and claims_verb.cpp.
#pragma once

#include <utility>
#include <vector>

#include "studies/t3_results.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// Models from this degree on have means of their own.
inline constexpr int kLargerTp = 32;

/// Everything that the paper's figures need: twice the compute units, parts of them and, where `larger`, the models at
/// 32.
[[nodiscard]] T3Study study_of(const Machine& machine, bool larger);

/// Simulate each sub-layer on its machine, on all cores, in order.
[[nodiscard]] std::vector<T3Row> simulate_layers(const std::vector<std::pair<SubLayer, Machine>>& jobs);
/// "Mega-GPT-2, T-NLG": of models that the paper calls large (at 8 and 16) or, where `larger`, larger (at 32).
[[nodiscard]] std::vector<T3Model> models_of_study(bool larger);
/// All sub-layers of these models at all their degrees.
[[nodiscard]] std::vector<SubLayer> sub_layers_of(const std::vector<T3Model>& models);

}  // namespace tilewire::cli
