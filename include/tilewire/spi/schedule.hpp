// A schedule: a function from a problem to a plan, with its table of knobs. One file each in src/schedules; the table
// of schedules is src/schedules/schedules.cpp. Used by make_op, the tuner and the command line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// A row of a schedule's table of knobs. The first row of a knob that applies to the problem counts; a knob that has
/// none must have its default.
struct Knob {
  const char* name;                 ///< field of Config
  bool (*applies)(const Problem&);  ///< to which operators; may look at nothing but the operator
  const char* values = "";          ///< enumerators that are allowed, "direct, ring"; empty: all that `validate` takes
  const char* tried = "";           ///< values of a number that `tilewire check` and the tests try, "1, 3"; of
                                    ///< enumerators: these instead of all allowed ones
};

/// What a rule may look at.
struct Asked {
  const Problem& problem;
  const Team& team;
  const Config& config;
};

/// A row of a schedule's table of rules: values of knobs that exclude each other.
struct KnobRule {
  const char* text;  ///< the knobs and the reason: "group_owners: needs group_m > 1"
  bool (*broken)(const Asked& asked);
  std::string (*seen)(const Asked& asked) = nullptr;  ///< the values that break it, to follow the text
};

/// What is to be run: what the rows of candidates may look at.
struct Workload {
  const Problem& problem;
  const Team& team;
};

/// A tile of the GEMM kernel, and the CTAs that share its operands or its K.
struct TileChoice {
  int64_t m = 128;
  int64_t n = 256;
  int cluster_m = 1;
  int cluster_n = 1;
  int cluster_split_k = 1;

  bool operator==(const TileChoice&) const = default;
};

/// A row of a schedule's table of candidates: one way to run a problem, with one config for each tile. The table is the
/// space that `auto` searches.
struct Way {
  const char* name;  ///< "copy engines, quarters of shards"
  Range rows;        ///< M over all ranks, [begin, end), for which the way is worth a measurement
  int least_ranks = 1;
  bool (*when)(const Workload&) = nullptr;                      ///< a further condition
  std::vector<TileChoice> (*tiles)(const Workload&) = nullptr;  ///< null: one config without tiles of its own
  void (*set)(const Workload&, Config&) = nullptr;              ///< sets the other knobs; the tile is set already
};

/// A config that is worth a measurement, and the row that it is of.
struct Candidate {
  Config config{};
  const char* way = "";
  size_t row = 0;  ///< of `ways`
};

/// One row of the table of schedules.
struct Schedule {
  const char* name;
  const char* summary;
  bool (*knows)(const Structure&);  ///< operators that it can do
  std::vector<Knob> knobs;
  std::vector<KnobRule> rules;
  std::vector<Way> ways;  ///< the most promising first
  /// Build the plan for all ranks; only called where `refuses` returns nothing.
  Plan (*make)(const Problem&, const Team&, const Config&);

  /// Why this schedule cannot do the problem or honour a knob of the config, or nothing.
  [[nodiscard]] std::optional<std::string> refuses(const Problem& problem, const Team& team,
                                                   const Config& config) const;
  /// The configs of all ways that fit the problem, in their order; none twice.
  [[nodiscard]] std::vector<Candidate> named_candidates(const Problem& problem, const Team& team) const;
  [[nodiscard]] std::vector<Config> candidates(const Problem& problem, const Team& team) const;
};

[[nodiscard]] std::span<const Schedule> schedules();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Schedule& find_schedule(const std::string& name);

}  // namespace tilewire
