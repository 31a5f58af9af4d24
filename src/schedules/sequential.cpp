// The schedule `sequential`: the collective, then the GEMM, or the reverse; the same tiles and sums as the
// others, no overlap. What overlap is measured against. Listed in schedules.cpp.
#include "schedules/sequential.hpp"

#include "schedules/all_to_all.hpp"
#include "schedules/collective.hpp"
#include "schedules/column_gather.hpp"
#include "schedules/gather.hpp"
#include "schedules/gpu_choices.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/route.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

/// What the planner is told: everything of one kind first.
Config apart(const Problem& problem, Config config) {
  config.transport = config.copy_workers > 0 ? Transport::store : Transport::copy_engine;
  config.release = Release::all;
  config.tile_order = TileOrder::naive;
  if (scatters(problem) || all_reduces(problem)) config.reduce_when = ReduceWhen::after;
  return config;
}

std::optional<std::string> refuses_sums(const Problem& problem, const Team& team, const Config& config) {
  Config planned = config;
  planned.transport = Transport::copy_engine;
  if (auto knob = refuses_tile_knobs(problem, team, planned)) return knob;
  if (config.reduce_mode == ReduceMode::accumulate)
    return "reduce_mode = accumulate: tiles add, and here they are stored";
  if (config.algorithm == Algorithm::ring) return "algorithm = ring: it sums on its way, and here owners do at the end";
  if (config.algorithm != Algorithm::direct && scatters(problem))
    return "one_shot and two_phase are algorithms of an all-reduce";
  if (config.chunk_rows > 0 && !scatters(problem)) return "chunk_rows: only a reduce-scatter sends chunks";
  const bool sends = config.chunk_rows > 0 || config.copy_lanes > 1 || config.pacing == Pacing::lockstep;
  if (config.reduce_mode == ReduceMode::pull && sends)
    return "chunk_rows, copy_lanes, pacing: with reduce_mode = pull owners read, and nothing is sent";
  return ignored_knob(config, {"split_k", "reduce_workers", "chunk_rows", "algorithm", "reduce_mode", "wire",
                               "copy_lanes", "pacing", "compute"});
}

std::optional<std::string> refuses(const Problem& problem, const Team& team, const Config& config) {
  if (auto op = unknown_operator(problem, has_one_collective)) {
    return op;
  }
  if (auto peer = unreachable_peer(team)) return peer;
  if (config.collective == Provider::library) return refuses_collective(problem, team, config);
  const bool library = config.compute == Provider::library;
  if (library && config.split_k > 1) return "split_k: the vendor's library decides how to split";
  const bool clusters = config.cluster_m * config.cluster_n * config.cluster_split_k > 1;
  if (library && (config.group_m > 1 || config.tile_workers > 0 || clusters))
    return "group_m, tile_workers, cluster_m, cluster_n, cluster_split_k: one call of the library has no tiles";
  if (library && !multiplies(problem)) return "compute = library: there is no GEMM";
  if (scatters(problem) || all_reduces(problem)) return refuses_sums(problem, team, config);
  if (library && (config.tile_m != Config{}.tile_m || config.tile_n != Config{}.tile_n)) {
    return "tile_m, tile_n: with compute = library the library chooses its tiles";
  }
  if (exchanges(problem)) return ignored_knob(config, {"split_k", "reduce_workers", "copy_lanes", "pacing", "compute"});
  if (by_columns(problem))
    return ignored_knob(config, {"split_k", "copy_workers", "chunk_rows", "copy_lanes", "compute"});
  if (auto algorithm = refuses_gather_algorithm(config)) return algorithm;
  return ignored_knob(
      config, {"split_k", "copy_workers", "chunk_rows", "direction", "algorithm", "copy_lanes", "pacing", "compute"});
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  if (config.collective == Provider::library) return make_collective_plan(problem, team, config);
  if (exchanges(problem)) return make_all_to_all_plan(problem, team, apart(problem, config));
  if (gathers_columns(problem)) return make_column_gather_plan(problem, team, apart(problem, config));
  if (gathers(problem)) return make_gather_plan(problem, team, apart(problem, config));
  return make_reduce_plan(problem, team, apart(problem, config), ownership_of(problem, Ownership::tiles));
}

std::vector<Config> candidates(const Problem& problem, const Team& team) {
  if (on_gpus(team)) return sequential_choices(problem, team);
  Config config{.schedule = "sequential"};
  if (team.num_ranks > 2 && !gathers_columns(problem)) config.pacing = Pacing::lockstep;
  return {config};
}

}  // namespace

Schedule sequential() {
  return {.name = "sequential",
          .summary = "the collective, then the GEMM, or the reverse: no overlap",
          .refuses = refuses,
          .make = make,
          .candidates = candidates};
}

}  // namespace tilewire
