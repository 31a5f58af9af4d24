// Predicates and rows that the schedules' tables of knobs share, the test of a config against a table, and the limits
// of each knob. Called by the schedules and their planners.
#include "schedules/knobs.hpp"

#include <algorithm>
#include <string_view>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/error.hpp"
#include "tilewire/json.hpp"

namespace tilewire {

bool has_one_collective(const Structure& structure) {
  const bool gathers = structure.before == Collective::all_gather && structure.after == Collective::none;
  const bool others = structure.before == Collective::none &&
                      (structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce ||
                       structure.after == Collective::all_to_all);
  if (structure.experts) return false;
  return structure.multiplies ? gathers || others
                              : structure == Structure{.multiplies = false, .after = Collective::all_reduce};
}

bool has_collectives(const Structure& structure) { return structure.experts || has_one_collective(structure); }

bool has_experts(const Problem& problem) { return structure_of(problem).experts; }
bool is_layer_of_experts(const Problem& problem) {
  return has_experts(problem) && structure_of(problem).steps == ExpertSteps{};
}
bool dispatches_tokens(const Problem& problem) { return has_experts(problem) && structure_of(problem).steps.dispatch; }
bool combines_experts(const Problem& problem) { return has_experts(problem) && structure_of(problem).steps.combine; }
bool makes_tiles(const Problem& problem) {
  const ExpertSteps& steps = structure_of(problem).steps;
  return !has_experts(problem) || steps.first || steps.second;
}
bool multiplies(const Problem& problem) { return structure_of(problem).multiplies && !has_experts(problem); }
bool gathers(const Problem& problem) { return structure_of(problem).before == Collective::all_gather; }
bool scatters(const Problem& problem) { return structure_of(problem).after == Collective::reduce_scatter; }
bool all_reduces(const Problem& problem) { return structure_of(problem).after == Collective::all_reduce; }
bool exchanges(const Problem& problem) { return structure_of(problem).after == Collective::all_to_all; }
bool reduces(const Problem& problem) { return scatters(problem) || all_reduces(problem); }
bool by_columns(const Problem& problem) { return structure_of(problem).by_columns; }
bool gathers_columns(const Problem& problem) { return gathers(problem) && by_columns(problem); }
bool gathers_rows(const Problem& problem) { return gathers(problem) && !by_columns(problem); }
bool any_operator(const Problem& /*problem*/) { return true; }
bool has_no_experts(const Problem& problem) { return !has_experts(problem); }

std::vector<Knob> knobs_of_tiles() {
  return {{"tile_m", makes_tiles},
          {"tile_n", makes_tiles},
          {"group_m", multiplies},
          {"cluster_m", multiplies},
          {"cluster_n", multiplies},
          {"cluster_split_k", multiplies},
          {"split_k", multiplies, "", "1, 3"},
          {"tile_workers", makes_tiles}};
}

bool is_broken(const std::vector<KnobRule>& rules, const Asked& asked) {
  return std::ranges::any_of(rules, [&](const KnobRule& rule) { return rule.broken(asked); });
}

namespace {

/// The values of "direct, ring".
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> values;
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    values.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return values;
}

}  // namespace

std::vector<std::string_view> values_of(const Knob& knob) {
  return split(*knob.tried != '\0' ? knob.tried : knob.values);
}

bool by_library(const Config& config) { return config.compute == Provider::library; }
bool sets_tile(const Config& config) { return config.tile_m != Config{}.tile_m || config.tile_n != Config{}.tile_n; }
bool has_clusters(const Config& config) { return config.cluster_m * config.cluster_n * config.cluster_split_k > 1; }

std::vector<KnobRule> rules_of_gemm_calls() {
  return {
      {"compute = library: there is no GEMM",
       [](const Asked& a) { return by_library(a.config) && !multiplies(a.problem); }},
      {"compute = library: the library has no epilogue swiglu_pairs",
       [](const Asked& a) { return by_library(a.config) && joins_columns(a.problem.epilogue); }},
      {"split_k: the epilogue swiglu_pairs needs whole sums",
       [](const Asked& a) { return a.config.split_k > 1 && joins_columns(a.problem.epilogue); }},
      {"split_k: the vendor's library decides how to split",
       [](const Asked& a) { return by_library(a.config) && a.config.split_k > 1; }},
      {"group_m, tile_workers, cluster_m, cluster_n, cluster_split_k: calls of the library have no tiles",
       [](const Asked& a) {
         return by_library(a.config) && (a.config.group_m > 1 || a.config.tile_workers > 0 || has_clusters(a.config));
       }},
      {"tile_m, tile_n: with compute = library the library chooses its tiles",
       [](const Asked& a) { return by_library(a.config) && !reduces(a.problem) && sets_tile(a.config); }},
  };
}

std::vector<KnobRule> rules_of_gathers() {
  return {
      {"direction = pull: a ring pushes",
       [](const Asked& a) {
         return gathers_rows(a.problem) && a.config.algorithm == Algorithm::ring &&
                a.config.direction == Direction::pull;
       }},
      {"pacing = lockstep: a ring needs no pacing",
       [](const Asked& a) {
         return gathers_rows(a.problem) && a.config.algorithm == Algorithm::ring && a.config.pacing == Pacing::lockstep;
       }},
  };
}

namespace {

/// That the schedule does not know the operator, and the operators that it knows; or nothing.
std::optional<std::string> unknown_operator(const Schedule& schedule, const Problem& problem) {
  if (schedule.knows(structure_of(problem))) return std::nullopt;
  std::string names;
  for (const Operator& op : operators()) {
    if (schedule.knows(op.structure)) names += (names.empty() ? "" : ", ") + std::string(op.name);
  }
  return "it knows only " + names;
}

/// Why stores and loads between ranks cannot be used in this team, or nothing.
std::optional<std::string> unreachable_peer(const Team& team) {
  for (int from = 0; from < team.num_ranks; ++from) {
    for (int to = 0; to < team.num_ranks; ++to) {
      const Reach reach = link_between(team, from, to).reach;
      if (from == to || reach == Reach::load_store) continue;
      return fmt::format("rank {} reaches rank {} by {} only, want load_store", from, to, to_string(reach));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> knob_without_row(const std::vector<Knob>& knobs, const Problem& problem,
                                            const Config& config) {
  const nlohmann::json changed = config;  // NOTE: knobs at their default are left out
  for (const auto& [key, value] : changed.items()) {
    if (key == "schedule") continue;
    const Knob* knob = find_knob(knobs, key, problem);
    if (knob == nullptr)
      return fmt::format("knob {} = {} has no meaning for {} (tilewire info --knobs)", key, plain_text(value),
                         problem.op);
    const std::vector<std::string_view> allowed = split(knob->values);
    if (!allowed.empty() && std::ranges::find(allowed, plain_text(value)) == allowed.end())
      return fmt::format("knob {} = {}: for {} want one of: {}", key, plain_text(value), problem.op, knob->values);
  }
  return std::nullopt;
}

const Knob* find_knob(const std::vector<Knob>& knobs, const std::string& name, const Problem& problem) {
  const auto found =
      std::ranges::find_if(knobs, [&](const Knob& row) { return row.name == name && row.applies(problem); });
  return found == knobs.end() ? nullptr : &*found;
}

std::vector<Candidate> Schedule::named_candidates(const Problem& problem, const Team& team) const {
  const Workload work{problem, team};
  std::vector<Candidate> list;
  if (!knows(structure_of(problem))) return list;
  const auto add = [&](const Way& way, Config config) {
    const auto row = static_cast<size_t>(&way - ways.data());
    if (way.set != nullptr) way.set(work, config);
    if (std::ranges::find(list, config, &Candidate::config) == list.end()) list.push_back({config, way.name, row});
  };
  for (const Way& way : ways) {
    const bool fits = problem.m >= way.rows.begin && problem.m < way.rows.end && team.num_ranks >= way.least_ranks;
    if (!fits || (way.when != nullptr && !way.when(work))) continue;
    if (way.tiles == nullptr) {
      add(way, {.schedule = name});
      continue;
    }
    for (const TileChoice& tile : way.tiles(work)) add(way, with_tile({.schedule = name}, work, tile));
  }
  return list;
}

std::vector<Config> Schedule::candidates(const Problem& problem, const Team& team) const {
  std::vector<Config> configs;
  for (const Candidate& candidate : named_candidates(problem, team)) configs.push_back(candidate.config);
  return configs;
}

std::optional<std::string> Schedule::refuses(const Problem& problem, const Team& team, const Config& config) const {
  if (auto op = unknown_operator(*this, problem)) return op;
  if (auto peer = unreachable_peer(team)) return peer;
  for (const KnobRule& rule : rules) {
    const Asked asked{problem, team, config};
    if (!rule.broken(asked)) continue;
    return rule.seen == nullptr ? rule.text : fmt::format("{}: {}", rule.text, rule.seen(asked));
  }
  return knob_without_row(knobs, problem, config);
}

namespace {

/// More than any device has; a few of them together are still numbers of 32 bits.
constexpr int64_t kMostWorkers = 65536;

}  // namespace

void validate(const Config& config) {
  const auto at_least = [](const char* knob, int64_t value, int64_t least) {
    require(value >= least, "knob {} = {}: want at least {}", knob, value, least);
    require(value <= (int64_t{1} << 31), "knob {} = {} is too large", knob, value);
  };
  const auto within = [&](const char* knob, int64_t value, int64_t least, int64_t most) {
    at_least(knob, value, least);
    require(value <= most, "knob {} = {}: want at most {}", knob, value, most);
  };
  at_least("tile_m", config.tile_m, 1);
  at_least("tile_n", config.tile_n, 1);
  at_least("group_m", config.group_m, 1);
  at_least("chunk_rows", config.chunk_rows, 0);
  at_least("chunk_cols", config.chunk_cols, 0);
  at_least("group_owners", config.group_owners, 1);
  within("cluster_m", config.cluster_m, 1, 16);
  within("cluster_n", config.cluster_n, 1, 16);
  within("cluster_split_k", config.cluster_split_k, 1, 8);
  within("split_k", config.split_k, 1, 64);
  within("tile_workers", config.tile_workers, 0, kMostWorkers);
  within("reduce_workers", config.reduce_workers, 0, kMostWorkers);
  within("copy_workers", config.copy_workers, 0, kMostWorkers);
  within("copy_lanes", config.copy_lanes, 1, 64);
  within("launches", config.launches, 1, 2);
  within("rounds", config.rounds, 1, 4096);
  require(config.cluster_split_k == 1 || config.cluster_m * config.cluster_n == 1,
          "knob cluster_split_k = {} with cluster_m = {}, cluster_n = {}: cluster split-K excludes shared loads",
          config.cluster_split_k, config.cluster_m, config.cluster_n);
  require(!config.wire || is_number(*config.wire), "knob wire = {}: want fp32, bf16 or fp16", to_string(*config.wire));
}

}  // namespace tilewire
