// Which knobs a schedule honours: every other one must have its default, or the schedule refuses.
// Called by the schedules' `refuses`.
#include "schedules/knobs.hpp"

#include <algorithm>
#include <string_view>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire {

std::optional<std::string> ignored_knob(const Config& config, std::initializer_list<const char*> honoured) {
  constexpr std::string_view kAlways[] = {"schedule",  "tile_m",          "tile_n",  "cluster_m",
                                          "cluster_n", "cluster_split_k", "group_m", "tile_workers"};
  const auto knows = [](const auto& list, const std::string& key) {
    return std::ranges::find(list, key) != std::end(list);
  };
  const nlohmann::json changed = config;
  for (const auto& [key, value] : changed.items()) {
    if (knows(kAlways, key) || knows(honoured, key)) continue;
    return fmt::format("knob {} = {} has no meaning here", key, plain_text(value));
  }
  return std::nullopt;
}

std::optional<std::string> unknown_operator(const Problem& problem, bool (*known)(const Structure&)) {
  if (known(structure_of(problem))) return std::nullopt;
  std::string names;
  for (const Operator& op : operators()) {
    if (known(op.structure)) names += (names.empty() ? "" : ", ") + std::string(op.name);
  }
  return "it can do " + names;
}

bool has_one_collective(const Structure& structure) {
  const bool gathers = structure.before == Collective::all_gather && structure.after == Collective::none;
  const bool others = structure.before == Collective::none &&
                      (structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce ||
                       structure.after == Collective::all_to_all);
  return structure.multiplies ? gathers || others
                              : structure == Structure{.multiplies = false, .after = Collective::all_reduce};
}

bool multiplies(const Problem& problem) { return structure_of(problem).multiplies; }
bool gathers(const Problem& problem) { return structure_of(problem).before == Collective::all_gather; }
bool scatters(const Problem& problem) { return structure_of(problem).after == Collective::reduce_scatter; }
bool all_reduces(const Problem& problem) { return structure_of(problem).after == Collective::all_reduce; }
bool exchanges(const Problem& problem) { return structure_of(problem).after == Collective::all_to_all; }
bool by_columns(const Problem& problem) { return structure_of(problem).by_columns; }
bool gathers_columns(const Problem& problem) { return gathers(problem) && by_columns(problem); }

std::optional<std::string> refuses_gather_algorithm(const Config& config) {
  const bool ring = config.algorithm == Algorithm::ring;
  if (config.algorithm != Algorithm::direct && !ring) return "an all-gather is direct or a ring";
  if (ring && config.direction == Direction::pull) return "a ring pushes";
  if (ring && config.pacing == Pacing::lockstep) return "a ring needs no pacing";
  return std::nullopt;
}

std::optional<std::string> refuses_in_step(const Config& config) {
  if (config.tile_order != TileOrder::in_step) return std::nullopt;
  return "tile_order = in_step: only tiles of a gather wait for columns of A";
}

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
          "knob cluster_split_k = {} with cluster_m = {}, cluster_n = {}: blocks that share K share no operand",
          config.cluster_split_k, config.cluster_m, config.cluster_n);
  require(config.wire != DType::int32, "knob wire = int32: want fp32, bf16 or fp16");
}

}  // namespace tilewire
