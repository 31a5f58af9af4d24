// Every combination of knobs that some schedule accepts for a problem.
// Called by src/cli/check.cpp and tests.
#include "schedules/variants.hpp"

#include <initializer_list>

#include "schedules/knobs.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

/// Multiply the list by the values of one knob.
template <class T>
void vary(std::vector<Config>& configs, T Config::*knob, std::initializer_list<T> values) {
  std::vector<Config> product;
  for (const Config& config : configs) {
    for (const T& value : values) product.emplace_back(config).*knob = value;
  }
  configs = std::move(product);
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

/// Keep what the schedule accepts, so that the product stays small.
void prune(std::vector<Config>& configs, const Schedule& schedule, const Problem& problem, const Team& team) {
  std::erase_if(configs, [&](const Config& config) { return schedule.refuses(problem, team, config).has_value(); });
}

}  // namespace

std::vector<Config> all_variants(const Problem& problem, const Team& team, const Config& base) {
  std::vector<Config> all;
  for (const Schedule& schedule : schedules()) {
    std::vector<Config> configs{base};
    configs.front().schedule = schedule.name;
    configs.front().chunk_rows = 0;
    const auto by = [&](auto knob, auto values) {
      vary(configs, knob, values);
      prune(configs, schedule, problem, team);
    };
    by(&Config::reduce_mode, std::initializer_list{ReduceMode::staged, ReduceMode::pull, ReduceMode::accumulate});
    by(&Config::algorithm, std::initializer_list{Algorithm::direct, Algorithm::ring, Algorithm::one_shot});
    by(&Config::transport, std::initializer_list{Transport::store, Transport::copy_engine, Transport::ll});
    by(&Config::direction, std::initializer_list{Direction::push, Direction::pull});
    by(&Config::tile_order, std::initializer_list{TileOrder::rank_shifted, TileOrder::naive});
    by(&Config::release, std::initializer_list{Release::tile, Release::all});
    by(&Config::reduce_when, std::initializer_list{ReduceWhen::beside, ReduceWhen::after});
    by(&Config::pacing, std::initializer_list{Pacing::unpaced, Pacing::lockstep});
    vary(configs, &Config::compute, {Provider::tiles, Provider::library});
    for (Config& config : configs) {
      if (config.compute == Provider::library && (gathers(problem) || exchanges(problem))) untile(config);
    }
    vary(configs, &Config::collective, {Provider::tiles, Provider::library});
    for (Config& config : configs) {
      if (config.collective == Provider::library) untile(config);
    }
    prune(configs, schedule, problem, team);
    by(&Config::copy_lanes, std::initializer_list{1, 2});
    by(&Config::split_k, std::initializer_list{1, 3});
    if (base.chunk_rows > 0) by(&Config::chunk_rows, std::initializer_list<int64_t>{0, base.chunk_rows});
    // These reorder tiles and change nothing else: beside the simplest of the others.
    std::vector<Config> rounds = configs;
    std::erase_if(rounds, [](const Config& config) {
      return config.copy_lanes > 1 || config.split_k > 1 || config.pacing == Pacing::lockstep ||
             config.reduce_when == ReduceWhen::after;
    });
    std::vector<Config> workers = rounds;
    for (Config& config : workers) config.copy_workers = 2;
    if (schedule.name != std::string("sequential")) workers.clear();  // only there more than a number changes
    prune(workers, schedule, problem, team);
    std::vector<Config> in_step = rounds;
    for (Config& config : in_step) put_in_step(config);
    vary(in_step, &Config::copy_workers, {0, 1});  // what few workers push goes to all peers at once
    vary(in_step, &Config::group_owners, {1, 2});
    prune(in_step, schedule, problem, team);
    vary(rounds, &Config::group_owners, {1, 2});
    for (Config& config : rounds) {
      config.rounds = config.group_owners > 1 ? 1 : 2;
      if (config.rounds == 1) config.group_m = std::max<int64_t>(2, config.group_m);
    }
    prune(rounds, schedule, problem, team);
    std::vector<Config> columns = configs;
    columns.insert(columns.end(), in_step.begin(), in_step.end());
    for (Config& config : columns) config.chunk_cols = std::max<int64_t>(1, problem.k / 3);
    prune(columns, schedule, problem, team);
    for (const auto* list : {&columns, &configs, &rounds, &in_step, &workers})
      all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

}  // namespace tilewire
