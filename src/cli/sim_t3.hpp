// tilewire sim t3, tilewire sim claims, and what both are made of.
// Used by sim.cpp, sim_t3.cpp, t3_study.cpp, sim_claims.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/t3_results.hpp"
#include "tilewire/machine.hpp"

namespace tilewire::cli {

/// Add the verb `t3` to `sim`.
void add_sim_t3(CLI::App& sim);
/// Add the verb `claims` to `sim`.
void add_sim_claims(CLI::App& sim);

/// The machine that both verbs simulate.
struct T3MachineFlags {
  std::string machine = "t3_ring";
  std::vector<std::string> set{};
  std::vector<std::string> sweep{};  ///< refused
};
void add_t3_machine_flags(CLI::App& verb, T3MachineFlags& flags);
/// Throw Error(invalid_input) where there are any.
void refuse_sweeps(const T3MachineFlags& flags);
/// Throws Error(invalid_input).
[[nodiscard]] Machine machine_of(const T3MachineFlags& flags);
/// Throw Error(invalid_input) where `sim` was given flags or names of its own, which `verb` would not see.
void refuse_flags_before(const CLI::App& sim, const CLI::App& verb);

/// What `sim claims` and `sim t3 --units` need of T3: twice the compute units, parts of them and, where `larger`, the
/// models at 32.
[[nodiscard]] T3Study study_of(const Machine& machine, bool larger);

/// Simulate each sub-layer on its machine, on all cores, in order.
[[nodiscard]] std::vector<T3Row> simulate_layers(const std::vector<std::pair<SubLayer, Machine>>& jobs);
/// "Mega-GPT-2, T-NLG": of models that the paper calls large (at 8 and 16) or, where `larger`, larger (at 32).
[[nodiscard]] std::vector<T3Model> models_of_study(bool larger);
/// All sub-layers of these models at all their degrees.
[[nodiscard]] std::vector<SubLayer> sub_layers_of(const std::vector<T3Model>& models);

}  // namespace tilewire::cli
