// Rows of `tilewire sim`: an operator, a collective or a plan from a file, on a machine.
// Used by sim_request.cpp, sim_compare.cpp and studies/.
#pragma once

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/entries.hpp"
#include "cli/options.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::cli {

/// A plan, and the simulation of one call.
struct SimulatedPlan {
  Plan plan{};
  Simulation simulation{};
};

/// One row, and its simulation.
struct Simulated {
  nlohmann::json row{};   ///< as bench's, and with times in ns, links and memory (docs/bench_json.md)
  std::string refused{};  ///< why there is no result; the row then has the request and the reason
  std::string title{};
  SimulatedPlan run{};
  int sequential_configs = 0;  ///< how many configs of `sequential` were tried for an operator's baseline
};

/// The baselines of all rows of a problem: the fastest of the configs that `sequential` would measure, and of its
/// parts. With `library_alone`, only configs whose collective is a library's. Infinite if there are none.
struct Yardsticks {
  double gemm_ns = std::numeric_limits<double>::infinity();
  double comm_ns = std::numeric_limits<double>::infinity();
  double sequential_ns = std::numeric_limits<double>::infinity();
  Config sequential{};
  int configs = 0;  ///< configs of `sequential` that were simulated
};
[[nodiscard]] Yardsticks yardsticks_of(const Problem& problem, const Team& team, const Machine& machine,
                                       bool library_alone);

/// Time until the last rank has ended; 0 if there is nothing to do.
[[nodiscard]] double ns_of(const Plan& plan, const Machine& machine);

/// Simulate one call.
[[nodiscard]] SimulatedPlan simulated(Plan plan, const Machine& machine);
/// The fastest of all schedules' candidates that `accepts` accepts. Throws Error(unsupported) if there are none.
[[nodiscard]] SimulatedPlan fastest_plan(const Problem& problem, const Team& team, const Machine& machine,
                                         const std::function<bool(const Config&)>& accepts);

/// The configs of `track_trigger` on a machine, the most promising first. On a ring: those of T3's study (tiles of 128
/// x 128, one DMA block each, of which the next 64 start as soon as they are complete). Elsewhere only if it has a
/// tracker.
[[nodiscard]] std::vector<Config> track_trigger_choices(const Machine& machine);

/// One row for each entry, with the times that bench measures of a problem: its GEMM and its communication alone,
/// sequential, free. Throws Error(unsupported) if an entry is refused that may not be refused.
[[nodiscard]] std::vector<Simulated> simulate_operator(const Options& options, const Problem& problem,
                                                       const std::vector<Entry>& entries, const Machine& machine);

/// A collective alone.
struct CollectiveRequest {
  Collective collective = Collective::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int64_t bytes = 0;
};
[[nodiscard]] Simulated simulate_collective(const CollectiveRequest& request, const Machine& machine);
/// The names of the collectives of --bytes, as in "all_reduce, all_gather".
[[nodiscard]] std::string collective_names();
/// The collective of a name. Throws Error(invalid_input) that lists the names.
[[nodiscard]] Collective collective_of(const std::string& name);

/// The row of a plan from a file, which the checker has proven.
[[nodiscard]] Simulated simulate_plan(const std::string& path, const Plan& plan, const Machine& machine);

}  // namespace tilewire::cli
