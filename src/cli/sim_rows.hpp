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

/// A plan, and one call of it on a machine.
struct SimulatedPlan {
  Plan plan{};
  Simulation simulation{};
};

/// What is simulated, in one row.
struct Simulated {
  nlohmann::json row{};   ///< as bench's, and with times in ns, links and memory (docs/bench_json.md)
  std::string refused{};  ///< why there is no result; the row then says what was asked, and why not
  std::string title{};
  SimulatedPlan run{};
  int sequential_configs = 0;  ///< the fastest of so many is what an operator's row is compared with
};

/// What all rows of a problem are compared with: the fastest of what `sequential` would measure, and of its parts;
/// where `library_alone`, of those whose collective is a library's. Infinite where there are none.
struct Yardsticks {
  double gemm_ns = std::numeric_limits<double>::infinity();
  double comm_ns = std::numeric_limits<double>::infinity();
  double sequential_ns = std::numeric_limits<double>::infinity();
  Config sequential{};
  int configs = 0;  ///< of `sequential` that were simulated
};
[[nodiscard]] Yardsticks yardsticks_of(const Problem& problem, const Team& team, const Machine& machine,
                                       bool library_alone);

/// Until the last rank has ended; 0 where there is nothing to do.
[[nodiscard]] double ns_of(const Plan& plan, const Machine& machine);

/// One call of it.
[[nodiscard]] SimulatedPlan simulated(Plan plan, const Machine& machine);
/// The fastest of those of all schedules' candidates that `accepts` accepts. Throws Error(unsupported) where there are
/// none.
[[nodiscard]] SimulatedPlan fastest_plan(const Problem& problem, const Team& team, const Machine& machine,
                                         const std::function<bool(const Config&)>& accepts);

/// What `track_trigger` runs with on that machine, the most promising first: on a ring as in T3's study (tiles of 128 x
/// 128, a DMA block each, of which the next 64 start as soon as they are complete), elsewhere where it has a tracker.
[[nodiscard]] std::vector<Config> track_trigger_choices(const Machine& machine);

/// A row for each entry, beside what bench measures of a problem: its GEMM and its communication alone, sequential,
/// free. Throws Error(unsupported) where an entry is refused that may
/// not be.
[[nodiscard]] std::vector<Simulated> simulate_operator(const Options& options, const Problem& problem,
                                                       const std::vector<Entry>& entries, const Machine& machine);

/// A collective alone.
struct CollectiveRequest {
  Collective collective = Collective::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int64_t bytes = 0;
};
[[nodiscard]] Simulated simulate_collective(const CollectiveRequest& request, const Machine& machine);
/// The collectives of --bytes, as in "all_reduce, all_gather".
[[nodiscard]] std::string collective_names();
/// The one of that name. Throws Error(invalid_input) that lists them.
[[nodiscard]] Collective collective_of(const std::string& name);

/// A plan from a file, which the checker has proved.
[[nodiscard]] Simulated simulate_plan(const std::string& path, const Plan& plan, const Machine& machine);

}  // namespace tilewire::cli
