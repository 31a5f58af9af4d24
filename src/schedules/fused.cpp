// The schedule `fused` (Flux): one lane of tiles per rank. AllGather: a tile waits for the chunk that it
// reads, local ones first. Reductions: a tile leaves when it is finished, remote ones first.
// Listed in schedules.cpp.
#include "schedules/fused.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/text.hpp"
#include "schedules/all_to_all.hpp"
#include "schedules/column_gather.hpp"
#include "schedules/gather.hpp"
#include "schedules/gpu_choices.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/route.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

/// `more`: what the operator has besides stores and copy engines.
std::optional<std::string> refuses_transport(const Config& config, std::initializer_list<Transport> more) {
  if (config.transport == Transport::store || config.transport == Transport::copy_engine) return std::nullopt;
  if (std::ranges::find(more, config.transport) != more.end()) return std::nullopt;
  if (config.transport == Transport::ll) return "transport = ll: nobody sums here, who could look at what was sent";
  return fmt::format("transport = {}: only tiles of a GEMM leave so, staged, accumulated or on a ring",
                     to_string(config.transport));
}

/// Flags that travel with the data: nobody can wait for anything else.
std::optional<std::string> refuses_ll(const Config& config) {
  if (config.transport != Transport::ll) return std::nullopt;
  if (config.reduce_mode == ReduceMode::staged && config.reduce_when == ReduceWhen::beside) return std::nullopt;
  return "transport = ll: who sums looks at what was sent, so parts are staged, and no sum waits for all of them";
}

/// Whether a knob says how to turn from owner to owner.
bool turns(const Config& config) { return config.group_owners > 1 || config.rounds > 1; }

/// Knobs of tiles, where there are calls of the library.
std::optional<std::string> refuses_library(const Problem& problem, const Config& config) {
  if (config.compute == Provider::tiles) return std::nullopt;
  if (!multiplies(problem)) return "compute = library: there is no GEMM";
  if (config.split_k > 1) return "split_k: the vendor's library decides how to split";
  const bool clusters = config.cluster_m * config.cluster_n * config.cluster_split_k > 1;
  if (config.group_m > 1 || config.tile_workers > 0 || clusters)
    return "group_m, tile_workers, cluster_m, cluster_n, cluster_split_k: calls of the library have no tiles";
  if (gathers(problem) || exchanges(problem)) {
    if (config.tile_m == Config{}.tile_m && config.tile_n == Config{}.tile_n) return std::nullopt;
    return "tile_m, tile_n: with compute = library the library chooses its tiles";
  }
  if (scatters(problem)) {
    if (by_columns(problem) && (config.tile_order != TileOrder::rank_shifted || turns(config)))
      return "tile_order, group_owners, rounds: one call of the library makes all columns";
    if (config.transport == Transport::copy_engine) return std::nullopt;
    return "compute = library: its results are sent by copy engines";
  }
  if (config.tile_order != TileOrder::rank_shifted || turns(config) || config.reduce_when == ReduceWhen::after)
    return "order, group_owners, rounds, reduce_when: all sums follow one call of the library";
  const bool whole = config.algorithm == Algorithm::direct || config.algorithm == Algorithm::two_phase;
  if (config.transport == Transport::store && config.reduce_mode == ReduceMode::staged && whole) return std::nullopt;
  return "compute = library: one call stores each owner's columns there, which needs transport = store, reduce_mode = "
         "staged, and algorithm = direct or two_phase";
}

std::optional<std::string> refuses_turns(const Config& config) {
  if (config.group_owners == 1) return std::nullopt;
  if (config.group_m == 1) return "group_owners: needs group_m > 1, which has row tiles walked together";
  if (config.rounds > 1) return "group_owners, rounds: one or the other says how to turn from owner to owner";
  return std::nullopt;
}

std::optional<std::string> refuses_gather(const Problem& problem, const Config& config) {
  if (auto knob = ignored_knob(
          config, {"split_k", "copy_workers", "chunk_rows", "chunk_cols", "direction", "transport", "algorithm",
                   "tile_order", "group_owners", "rounds", "copy_lanes", "pacing", "compute"})) {
    return knob;
  }
  if (turns(config) && (config.tile_order == TileOrder::naive || config.compute == Provider::library))
    return "group_owners, rounds: only tiles that are not in tile_order = naive turn from owner to owner";
  if (config.rounds > 1 && config.tile_order == TileOrder::in_step) return "rounds: tiles in step have no rounds";
  if (auto knob = refuses_turns(config)) return knob;
  if (config.tile_order == TileOrder::in_step && config.compute == Provider::library)
    return "tile_order = in_step: calls of the library have no tiles";
  if (config.tile_order == TileOrder::in_step && config.group_m == 1 && problem.m > config.tile_m)
    return "tile_order = in_step: needs group_m > 1, which has row tiles walked together";
  if (config.chunk_cols > 0 && config.split_k > 1) return "chunk_cols: with split_k each part waits for all columns";
  if (config.chunk_cols > 0 && (config.compute == Provider::library || config.algorithm == Algorithm::ring ||
                                config.pacing == Pacing::lockstep)) {
    return "chunk_cols: only tiles wait for columns, which come unpaced and direct";
  }
  if (config.copy_workers > 0 && config.transport == Transport::copy_engine) {
    return "copy_workers: transport = copy_engine copies by copy lanes";
  }
  if (auto algorithm = refuses_gather_algorithm(config)) return algorithm;
  return refuses_transport(config, {});
}

std::optional<std::string> refuses_column_gather(const Config& config) {
  if (auto knob = ignored_knob(config, {"split_k", "copy_workers", "chunk_rows", "transport", "copy_lanes", "compute"}))
    return knob;
  if (config.copy_workers > 0 && config.transport == Transport::copy_engine)
    return "copy_workers: transport = copy_engine copies by copy lanes";
  return refuses_transport(config, {});
}

std::optional<std::string> refuses_reduce(const Problem& problem, const Team& team, const Config& config) {
  const bool ring = config.algorithm == Algorithm::ring;
  const bool sends = config.transport == Transport::copy_engine && !ring;
  if (auto knob = ignored_knob(
          config, {"split_k", "reduce_workers", "chunk_rows", "transport", "algorithm", "reduce_mode", "reduce_when",
                   "wire", "tile_order", "group_owners", "rounds", "copy_lanes", "pacing", "compute"})) {
    return knob;
  }
  if (auto order = refuses_in_step(config)) return order;
  if (turns(config) && (config.tile_order == TileOrder::naive || config.algorithm == Algorithm::one_shot))
    return "group_owners, rounds: only tile_order = rank_shifted of reductions with owners turns from owner to owner";
  if (ring && config.group_owners > 1) return "group_owners: a ring has one owner's tiles after the other's";
  if (auto knob = refuses_turns(config)) return knob;
  if (config.chunk_rows > 0 && (!sends || !scatters(problem)))
    return "chunk_rows: only copy lanes of a reduce-scatter send chunks";
  if (ring && (config.copy_lanes != 1 || config.pacing == Pacing::lockstep))
    return "copy_lanes, pacing: a ring has no copy lanes, whoever has summed sends";
  if (!sends && config.copy_lanes != 1) return "copy_lanes: transport = store has no copy lanes";
  if (!sends && config.pacing == Pacing::lockstep)
    return "pacing = lockstep: stores from tiles are paced by their order";
  if (scatters(problem) && (config.algorithm == Algorithm::one_shot || config.algorithm == Algorithm::two_phase)) {
    return "one_shot and two_phase are algorithms of an all-reduce";
  }
  if (ring && (config.reduce_mode != ReduceMode::staged || config.reduce_when != ReduceWhen::beside ||
               config.transport == Transport::ll || config.compute == Provider::library)) {
    return "a ring has its own way to send and sum: no reduction, reduce_when, transport = ll or compute = library";
  }
  if (ring && config.transport == Transport::copy_engine && sums_in_place(problem, config, team.num_ranks))
    return "transport = copy_engine: x is summed where it is, no part is made first";
  if (sends && config.reduce_mode != ReduceMode::staged) return "a copy lane sends to staged slots only";
  if (config.algorithm == Algorithm::one_shot && config.tile_order == TileOrder::naive) {
    return "order: with one_shot every tile goes to every rank";
  }
  if (auto knob = refuses_tile_knobs(problem, team, config)) return knob;
  const bool accumulates = config.reduce_mode == ReduceMode::accumulate;
  if (accumulates && config.algorithm == Algorithm::one_shot) return "one_shot does not accumulate";
  if ((ring || accumulates) && problem.reduction == Reduction::repeatable) {
    return fmt::format("{} sums in an order that is not the ranks': needs reduction = any",
                       ring ? "a ring" : "accumulate");
  }
  if (auto flags = refuses_ll(config)) return flags;
  if (!multiplies(problem)) return refuses_transport(config, {Transport::ll});
  if (config.reduce_mode == ReduceMode::pull) return refuses_transport(config, {});
  return refuses_transport(config, {Transport::bulk, Transport::tma, Transport::ll});
}

std::optional<std::string> refuses(const Problem& problem, const Team& team, const Config& config) {
  if (auto op = unknown_operator(problem, has_one_collective)) {
    return op;
  }
  if (auto peer = unreachable_peer(team)) return peer;
  if (auto library = refuses_library(problem, config)) return library;
  if (exchanges(problem)) return refuses_all_to_all(config);
  if (gathers_columns(problem)) return refuses_column_gather(config);
  return gathers(problem) ? refuses_gather(problem, config) : refuses_reduce(problem, team, config);
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  if (gathers_columns(problem)) return make_column_gather_plan(problem, team, config);
  if (gathers(problem)) return make_gather_plan(problem, team, config);
  if (exchanges(problem)) return make_all_to_all_plan(problem, team, config);
  const bool by_library = config.compute == Provider::library;
  const Ownership of_all = by_library ? Ownership::columns : Ownership::tiles;
  return make_reduce_plan(problem, team, config, ownership_of(problem, of_all));
}

std::vector<Config> candidates(const Problem& problem, const Team& team) {
  if (exchanges(problem)) return all_to_all_choices(problem, team);
  if (on_gpus(team)) return fused_choices(problem, team);
  const Pacing pacing = team.num_ranks > 2 ? Pacing::lockstep : Pacing::unpaced;
  std::vector<Config> list;
  const auto with = [&](auto&& change) { change(list.emplace_back(Config{.schedule = "fused"})); };
  if (gathers_columns(problem)) {
    with([&](Config& c) { c.transport = Transport::copy_engine, c.chunk_rows = (problem.m + 3) / 4; });
    with([&](Config& c) { c.transport = Transport::copy_engine; });
    with([](Config&) {});
    return list;
  }
  if (gathers(problem)) {
    const int64_t shard = shard_of(problem.m, team.num_ranks, 0).size();
    with([&](Config& c) { c.transport = Transport::copy_engine, c.pacing = pacing; });
    with([&](Config& c) { c.transport = Transport::copy_engine, c.pacing = pacing, c.chunk_rows = (shard + 3) / 4; });
    with([&](Config& c) { c.transport = Transport::copy_engine, c.pacing = pacing, c.direction = Direction::pull; });
    with([](Config&) {});
    return list;
  }
  with([](Config&) {});
  with([&](Config& c) { c.transport = Transport::copy_engine, c.pacing = pacing; });
  with([](Config& c) { c.reduce_mode = ReduceMode::pull; });
  if (!scatters(problem)) with([](Config& c) { c.algorithm = Algorithm::one_shot; });
  return list;
}

}  // namespace

Schedule fused() {
  return {.name = "fused",
          .summary = "tiles wait for the chunk that they read and leave when they are finished (Flux)",
          .refuses = refuses,
          .make = make,
          .candidates = candidates};
}

}  // namespace tilewire
