// A request of `tilewire sim`: operators, collectives or plans from files, and the machine; and its rows.
// Used by sim.cpp, and by sweep_verb.cpp and chakra_verb.cpp of studies/.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/flag_files.hpp"
#include "cli/options.hpp"
#include "cli/sim_rows.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

struct SimRequest {
  Options options{};
  std::string machine{};
  std::string topology{};
  std::vector<std::string> machine_values{};  ///< of --set
  std::string bytes_text{};
  std::optional<int64_t> bytes{};    ///< of bytes_text
  std::vector<std::string> files{};  ///< of plans, among the operators
  std::string algorithm = "ring";
  bool ranks_given = false;
  bool keeps_plans = false;  ///< rows keep their plans; with --trace they always do
};

/// Add the positional names: operators, collectives or files.
void add_request_names(CLI::App& verb, SimRequest& request);
/// --machine and --topology.
void add_machine_flags(CLI::App& verb, SimRequest& request);
/// --bytes and --algorithm.
void add_bytes_flags(CLI::App& verb, SimRequest& request);
/// The flags that choose the plans of operators: problem, schedule, --ranks.
void add_plan_flags(CLI::App& verb, SimRequest& request);
/// --trace.
void add_trace_flag(CLI::App& verb, SimRequest& request);

/// After all flags are parsed: interpret values that have several meanings. Throws Error(invalid_input).
void read_flags(const CLI::App& verb, SimRequest& request);
/// All files that the flags name.
struct RequestFiles {
  std::vector<FlagFile> outputs{};
  std::vector<FlagFile> inputs{};
};
[[nodiscard]] RequestFiles files_of(const SimRequest& request);
/// Throw Error(invalid_input) if one of these flags was given.
void refuse_flags(const CLI::App& verb, const std::vector<std::string>& flags, const char* why);
/// The same for the flags of add_plan_flags, except --ranks and --set.
void refuse_plan_flags(const CLI::App& verb, const char* why);
/// Throw Error(invalid_input) if --set names a knob, as no plan has it.
void refuse_knobs(const SimRequest& request);
/// Throw Error(invalid_input) for flags that mean nothing.
void check_request(const CLI::App& verb, const SimRequest& request);

/// The machine of the flags. Throws Error(invalid_input).
[[nodiscard]] Machine machine_of(const SimRequest& request);
/// Throw Error(invalid_input) if nothing is named; `others`: flags that could be given instead, as ", or --list".
void require_names(const SimRequest& request, const char* others);
/// Number of rows on one machine.
[[nodiscard]] size_t num_rows(const SimRequest& request, const Machine& machine);
/// The rows on each machine, in order, simulated on all cores.
[[nodiscard]] std::vector<std::vector<Simulated>> simulate_on(const std::vector<Machine>& machines,
                                                              const SimRequest& request);

/// {machine, rows, refused}
[[nodiscard]] nlohmann::json json_of(const Machine& machine, const std::vector<Simulated>& rows);
/// Write `result` to --json and the rows to --trace, and print the text. Throws Error(invalid_input) if all rows are
/// refused.
void write_and_print(const SimRequest& request, const nlohmann::json& result, const std::vector<Simulated>& rows,
                     std::string text);

}  // namespace tilewire::cli
