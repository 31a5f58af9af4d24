// Rows of `tilewire sim`: an operator or a collective on a machine.
// Used by sim.cpp and sim_compare.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/entries.hpp"
#include "cli/options.hpp"
#include "tilewire/sim.hpp"

namespace tilewire::cli {

/// What is simulated, in one row.
struct Simulated {
  nlohmann::json row{};   ///< as bench's, and with times in ns, links and memory (docs/simulator.md)
  std::string refused{};  ///< why there is no result; the row then says what was asked, and why not
  std::string title{};
  Plan plan{};
  Simulation simulation{};
};

/// A row for each entry, beside what bench measures of a problem: its GEMM and its communication alone, sequential,
/// free. "auto": the fastest of all schedules' candidates. Throws Error(unsupported) where an entry is refused that may
/// not be.
[[nodiscard]] std::vector<Simulated> simulate_operator(const Options& options, const Problem& problem,
                                                       const std::vector<Entry>& entries, const Machine& machine);

/// A collective alone: names are as on the command line.
struct CollectiveRequest {
  std::string collective;
  std::string algorithm;
  int64_t bytes = 0;
};
[[nodiscard]] Simulated simulate_collective(const CollectiveRequest& request, const Machine& machine);
/// Whether it is one of those.
[[nodiscard]] bool is_collective(const std::string& name);

[[nodiscard]] std::string collective_head();
[[nodiscard]] std::string collective_line(const nlohmann::json& row);

}  // namespace tilewire::cli
