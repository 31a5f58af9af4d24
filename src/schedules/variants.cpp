// Every combination of knobs that some schedule accepts for a problem.
// Called by src/cli/check.cpp and tests.
#include "schedules/variants.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "core/json_text.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

/// `config` with one knob set to a value of a table.
Config with_knob(const Config& config, const char* knob, std::string_view value) {
  nlohmann::json json = config;
  json[knob] = json_or_text(std::string(value));
  return json.get<Config>();
}

/// Multiply the list by the values that the schedule's table has of one knob.
void vary(std::vector<Config>& configs, const Schedule& schedule, const Problem& problem, const char* knob) {
  const Knob* row = find_knob(schedule.knobs, knob, problem);
  if (row == nullptr) return;
  const std::vector<std::string_view> values = values_of(*row);
  std::vector<Config> product;
  for (const Config& config : configs) {
    for (const std::string_view value : values) product.push_back(with_knob(config, knob, value));
  }
  if (!values.empty()) configs = std::move(product);
}

/// The library's own tiles.
void untile(Config& config) {
  const Config defaults;
  config.tile_m = defaults.tile_m;
  config.tile_n = defaults.tile_n;
  config.group_m = defaults.group_m;
}

/// Tiles of all owners column by column.
void put_in_step(Config& config) {
  config.tile_order = TileOrder::in_step;
  config.group_m = std::max<int64_t>(2, config.group_m);
}

/// Without knobs of tiles that the schedule does not honour for the problem.
Config without_unused_tiles(Config config, const Schedule& schedule, const Problem& problem) {
  const Config defaults;
  const auto unused = [&](const char* knob) { return find_knob(schedule.knobs, knob, problem) == nullptr; };
  if (unused("tile_m")) config.tile_m = defaults.tile_m;
  if (unused("tile_n")) config.tile_n = defaults.tile_n;
  if (unused("group_m")) config.group_m = defaults.group_m;
  return config;
}

/// Cut the columns of the gathered A, or of the sums of experts.
void cut_columns(std::vector<Config>& configs, const Problem& problem) {
  const int64_t cols = combines_experts(problem) ? problem.n : problem.k;
  for (Config& config : configs) config.chunk_cols = std::max<int64_t>(1, cols / 3);
}

void append(std::vector<Config>& list, const std::vector<Config>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// Keep what the schedule accepts, so that the product stays small.
void prune(std::vector<Config>& configs, const Schedule& schedule, const Problem& problem, const Team& team) {
  std::erase_if(configs, [&](const Config& config) { return schedule.refuses(problem, team, config).has_value(); });
}

}  // namespace

std::vector<Config> all_variants(const Problem& problem, const Team& team, const Config& base) {
  std::vector<Config> all;
  for (const Schedule& schedule : schedules()) {
    std::vector<Config> configs{without_unused_tiles(base, schedule, problem)};
    configs.front().schedule = schedule.name;
    configs.front().chunk_rows = 0;
    const auto by = [&](std::initializer_list<const char*> names) {
      for (const char* knob : names) {
        vary(configs, schedule, problem, knob);
        prune(configs, schedule, problem, team);
      }
    };
    by({"reduce_mode", "algorithm", "transport", "direction", "tile_order", "release", "reduce_when", "pacing"});
    vary(configs, schedule, problem, "compute");
    for (Config& config : configs) {
      if (by_library(config) && !reduces(problem)) untile(config);
    }
    vary(configs, schedule, problem, "collective");
    for (Config& config : configs) {
      if (config.collective == Provider::library) untile(config);
    }
    prune(configs, schedule, problem, team);
    by({"copy_lanes", "split_k"});
    if (base.chunk_rows > 0) {
      std::vector<Config> chunks = configs;
      for (Config& config : chunks) config.chunk_rows = base.chunk_rows;
      prune(chunks, schedule, problem, team);
      append(configs, chunks);
    }
    // These reorder tiles and change nothing else: beside the simplest of the others.
    std::vector<Config> rounds = configs;
    std::erase_if(rounds, [](const Config& config) {
      return config.copy_lanes > 1 || config.split_k > 1 || config.pacing == Pacing::lockstep ||
             config.reduce_when == ReduceWhen::after;
    });
    const bool counts = schedule.name == std::string_view("sequential");  // elsewhere it changes only a number
    std::vector<Config> workers = rounds;
    vary(workers, schedule, problem, "copy_workers");
    std::erase_if(workers, [&](const Config& config) { return !counts || config.copy_workers == 0; });
    prune(workers, schedule, problem, team);
    std::vector<Config> in_step = rounds;
    for (Config& config : in_step) put_in_step(config);
    vary(in_step, schedule, problem, "copy_workers");  // few workers push to all peers at once
    vary(in_step, schedule, problem, "group_owners");
    prune(in_step, schedule, problem, team);
    vary(rounds, schedule, problem, "group_owners");
    vary(rounds, schedule, problem, "rounds");
    std::erase_if(rounds, [](const Config& config) { return config.group_owners == 1 && config.rounds == 1; });
    for (Config& config : rounds) {
      if (config.group_owners > 1) config.group_m = std::max<int64_t>(2, config.group_m);
    }
    prune(rounds, schedule, problem, team);
    std::vector<Config> columns = configs;
    append(columns, in_step);
    cut_columns(columns, problem);
    prune(columns, schedule, problem, team);
    for (const auto* list : {&columns, &configs, &rounds, &in_step, &workers}) append(all, *list);
  }
  return all;
}

}  // namespace tilewire
