// The flags of the command line, defined once: the same flag means the same in every verb.
// Used by every verb.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/team.hpp"

namespace tilewire::cli {

/// The values of the flags. Names are still text: the library checks them, and its errors list the known ones.
struct Options {
  // The problem.
  std::vector<std::string> operators;
  std::optional<int64_t> m, n, k;
  std::vector<int64_t> more_n;
  std::string shapes;
  std::string model;
  std::optional<int64_t> tokens;
  std::string dtype;
  std::string out_dtype;
  std::string b_layout = "nk";
  std::string reduction = "repeatable";
  bool bias = false;
  std::vector<std::string> epilogue{};  ///< "gelu", "scale=0.5"
  std::string norm{};                   ///< "rms", "layer"
  double norm_eps = Norm{}.eps;
  std::string norm_out_dtype{};             ///< "fp8_e4m3", "int8"
  Experts experts{.count = 8, .top_k = 2};  ///< of operators with experts; ffn = 0: as many as n
  std::string placement{};                  ///< JSON; empty: equal numbers
  std::string activation = "swiglu";
  bool gathered = false;
  bool allow_tf32 = false;
  std::vector<std::string> arena;
  std::vector<std::string> constant;
  // The schedule.
  Tuning tuning = Tuning::full;  ///< of --schedule auto
  std::string schedule = "all";
  std::vector<std::string> set;
  std::string configs;
  // The ranks.
  std::string backend = "host";
  int ranks = 4;
  bool threads = false;
  std::string order = "any";
  std::optional<double> timeout_s;  ///< default: the environment's
  double arena_gib = 16;
  uint64_t seed = 1;
  // The results.
  std::string json;
  std::string trace;
  bool verify = true;
};

/// Names of a table's rows, as in "ring, direct".
template <class Table>
[[nodiscard]] std::string names_of(const Table& table) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

/// Add the list of operators as a positional argument, or one operator (not `several`).
CLI::Option* add_operators(CLI::App& verb, Options& options, bool several);
/// Sizes and types: -m -n -k --shapes --model --tokens --dtype ...
void add_problem_flags(CLI::App& verb, Options& options);
/// --schedule and --set. `by_default`: the verb's default of --schedule.
void add_schedule_flags(CLI::App& verb, Options& options, const std::string& by_default);
/// --backend --ranks --threads --timeout --arena-gib.
void add_rank_flags(CLI::App& verb, Options& options);
/// --seed.
void add_seed_flag(CLI::App& verb, Options& options);

/// --verify and --no-verify.
void add_verify_flag(CLI::App& verb, Options& options, bool by_default);
/// --json, which a verb writes to a file or to standard output.
void add_json_flag(CLI::App& verb, Options& options, const std::string& what);

/// The type of matrices that a flag names. Throws Error(invalid_input) that lists the types.
[[nodiscard]] DType dtype_of(const std::string& flag, const std::string& name);
/// The steps of --bias and --epilogue. Throws Error(invalid_input) for an unknown step.
[[nodiscard]] std::vector<Epilogue> epilogue_of(const Options& options);
/// The norm of --norm, --norm-eps and --norm-out-dtype. Throws Error(invalid_input) for an unknown kind or type.
[[nodiscard]] std::optional<Norm> norm_of(const Options& options);
/// The problems that the flags name: every operator x every shape. Validated.
[[nodiscard]] std::vector<Problem> problems_of(const Options& options);
/// One problem with these sizes and the flags' types. Validated.
[[nodiscard]] Problem problem_of(const Options& options, const std::string& op, int64_t m, int64_t n, int64_t k);
/// The ranks as a team without known links.
[[nodiscard]] Team team_of(const Options& options);

/// Throw Error(invalid_input) for unknown operators, schedules and knobs. Call it before any work.
void check_names(const Options& options);
/// The schedules of `--schedule`: one, or all of them for "all"; "auto" stays "auto".
[[nodiscard]] std::vector<std::string> schedules_of(const Options& options);
/// Apply every --set to `config`.
[[nodiscard]] Config with_knobs(Config config, const Options& options);
/// The config of a schedule: its first candidate for the problem, then --set. Throws Error(unsupported) with the
/// schedule's reason if it refuses.
[[nodiscard]] Config config_of(const Options& options, const std::string& schedule, const Problem& problem,
                               const Team& team);

/// As config_of, but without each --set that this schedule refuses. Also returns the reasons, one for each.
[[nodiscard]] std::pair<Config, std::vector<std::string>> config_taken(const Options& options,
                                                                       const std::string& schedule,
                                                                       const Problem& problem, const Team& team);

/// Split "KEY=VALUE" of a flag. Throws Error(invalid_input) with what the flag wants.
[[nodiscard]] std::pair<std::string, std::string> key_and_value(const std::string& flag, const std::string& text,
                                                                const std::string& wanted);

/// A number of bytes: "1048576", "1e6", "64KiB", "1.5MiB", "2MB". Throws Error(invalid_input) that names the flag and
/// the value.
[[nodiscard]] int64_t bytes_of(const std::string& flag, const std::string& text);

/// The text of a file. "-" is a file of that name, not standard input. Throws Error(invalid_input).
[[nodiscard]] std::string read_file(const std::string& path);
/// Write a file (core/output_file.hpp), or standard output for "-". Throws Error(invalid_input).
void write_file(const std::string& path, const std::string& text);
/// Write to standard output at once. Throws Error(invalid_input) if that fails.
void print(const std::string& text);

}  // namespace tilewire::cli
