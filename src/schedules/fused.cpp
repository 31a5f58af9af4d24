// The schedule `fused` (Flux): one lane of tiles per rank. AllGather: a tile waits for the chunk that it
// reads, local ones first. Reductions: a tile leaves when it is finished, remote ones first.
// Listed in schedules.cpp.
#include "schedules/fused.hpp"

#include "core/ceil_div.hpp"
#include "schedules/all_to_all.hpp"
#include "schedules/column_gather.hpp"
#include "schedules/copies.hpp"
#include "schedules/gather.hpp"
#include "schedules/gather_ways.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/reduce_ways.hpp"
#include "schedules/route.hpp"
#include "schedules/routed.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

bool reduces_tiles(const Problem& problem) { return reduces(problem) && multiplies(problem); }
bool sends_by_turns(const Problem& problem) { return gathers_rows(problem) || reduces_tiles(problem); }
bool has_copies(const Problem& problem) { return gathers(problem) || exchanges(problem) || reduces(problem); }
bool has_chunks(const Problem& problem) { return has_copies(problem) && !all_reduces(problem); }
bool has_pacing(const Problem& problem) { return has_copies(problem) && !gathers_columns(problem); }

std::vector<Knob> knobs() {
  const std::vector<Knob> rows{
      {"compute", has_no_experts, "tiles, library"},
      {"transport", gathers, "store, copy_engine"},
      {"transport", exchanges, "store, copy_engine, bulk, tma", "store, copy_engine"},
      {"transport", reduces_tiles, "store, copy_engine, bulk, tma, ll", "store, copy_engine, ll"},
      {"transport", reduces, "store, copy_engine, ll"},
      {"direction", gathers_rows, "push, pull"},
      {"algorithm", gathers_rows, "direct, ring"},
      {"algorithm", scatters, "direct, ring"},
      {"algorithm", all_reduces, "direct, ring, one_shot, two_phase", "direct, ring, one_shot"},
      {"reduce_mode", reduces, "staged, pull, accumulate"},
      {"reduce_when", reduces, "beside, after"},
      {"wire", reduces},
      {"tile_order", gathers_rows, "rank_shifted, naive, in_step", "rank_shifted, naive"},
      {"tile_order", reduces, "rank_shifted, naive"},
      {"tile_order", exchanges, "rank_shifted, naive"},
      {"group_owners", sends_by_turns, "", "1, 2"},
      {"rounds", sends_by_turns, "", "1, 2"},
      {"rounds", exchanges, "", "1, 2"},
      {"chunk_rows", has_chunks},
      {"chunk_cols", gathers_rows},
      {"chunk_cols", combines_experts},
      {"copy_lanes", has_copies, "", "1, 2"},
      {"pacing", has_pacing, "unpaced, lockstep"},
      {"copy_workers", gathers, "", "0, 1"},
      {"reduce_workers", reduces},
      {"reduce_workers", exchanges}};
  return joined(joined(knobs_of_tiles(), rows), knobs_of_experts());
}

/// Whether a knob sets the order of owners.
bool orders_owners(const Config& config) { return config.group_owners > 1 || config.rounds > 1; }
bool sends(const Config& config) { return config.transport == Transport::copy_engine; }
bool flags_travel(const Config& config) { return config.transport == Transport::ll; }
bool is_ring(const Asked& a) { return reduces(a.problem) && a.config.algorithm == Algorithm::ring; }
bool sums_by_library(const Asked& a) { return by_library(a.config) && all_reduces(a.problem); }

/// Where calls of the library make the products.
std::vector<KnobRule> rules_of_library() {
  return {
      {"tile_order, group_owners, rounds: one call of the library makes all columns",
       [](const Asked& a) {
         return by_library(a.config) && scatters(a.problem) && by_columns(a.problem) &&
                (a.config.tile_order != TileOrder::rank_shifted || orders_owners(a.config));
       }},
      {"compute = library: copies send its results, which needs transport = copy_engine or ll",
       [](const Asked& a) {
         return by_library(a.config) && scatters(a.problem) && !sends(a.config) && !flags_travel(a.config);
       }},
      {"tile_order, group_owners, rounds, reduce_when: all sums follow one call of the library",
       [](const Asked& a) {
         return sums_by_library(a) && (a.config.tile_order != TileOrder::rank_shifted || orders_owners(a.config) ||
                                       a.config.reduce_when == ReduceWhen::after);
       }},
      {"compute = library: one call stores each owner's columns there, which needs transport = store, reduce_mode = "
       "staged, and algorithm = direct or two_phase; or its result is sent with transport = ll",
       [](const Asked& a) {
         const bool whole = a.config.algorithm == Algorithm::direct || a.config.algorithm == Algorithm::two_phase;
         return sums_by_library(a) && !flags_travel(a.config) &&
                !(a.config.transport == Transport::store && a.config.reduce_mode == ReduceMode::staged && whole);
       }},
      {"tile_order = in_step, naive, group_owners, rounds: calls of the library have no tiles",
       [](const Asked& a) {
         if (!by_library(a.config)) return false;
         if (exchanges(a.problem)) return a.config.tile_order == TileOrder::naive || a.config.rounds > 1;
         return gathers_rows(a.problem) && (orders_owners(a.config) || a.config.tile_order == TileOrder::in_step);
       }},
      {"compute = library: the library stores, or copy engines send",
       [](const Asked& a) {
         return by_library(a.config) && exchanges(a.problem) && a.config.transport != Transport::store &&
                !sends(a.config);
       }},
  };
}

/// The order of tiles.
std::vector<KnobRule> rules_of_order() {
  return {{"group_owners, rounds: only tiles that are not in tile_order = naive are grouped by owners",
           [](const Asked& a) { return orders_owners(a.config) && a.config.tile_order == TileOrder::naive; }},
          {"group_owners, rounds: with one_shot every tile goes to every rank",
           [](const Asked& a) { return orders_owners(a.config) && a.config.algorithm == Algorithm::one_shot; }},
          {"group_owners: a ring makes the tiles of one owner after those of the other",
           [](const Asked& a) { return is_ring(a) && a.config.group_owners > 1; }},
          {"group_owners: needs group_m > 1, which groups row tiles",
           [](const Asked& a) { return a.config.group_owners > 1 && a.config.group_m == 1; }},
          {"group_owners, rounds: they exclude each other, as each sets the order of owners",
           [](const Asked& a) { return a.config.group_owners > 1 && a.config.rounds > 1; }},
          {"rounds: tiles in step have no rounds",
           [](const Asked& a) { return a.config.rounds > 1 && a.config.tile_order == TileOrder::in_step; }},
          {"tile_order = in_step: only tiles of a gather wait for columns of A",
           [](const Asked& a) { return !gathers_rows(a.problem) && a.config.tile_order == TileOrder::in_step; }},
          {"tile_order = in_step: needs group_m > 1, which groups row tiles",
           [](const Asked& a) {
             return a.config.tile_order == TileOrder::in_step && a.config.group_m == 1 && a.problem.m > a.config.tile_m;
           }},
          {"tile_order = naive: with one_shot every tile goes to every rank",
           [](const Asked& a) {
             return a.config.algorithm == Algorithm::one_shot && a.config.tile_order == TileOrder::naive;
           }},
          {"tile_order, tile_workers: x is summed in place, no tile is made first", [](const Asked& a) {
             return all_reduces(a.problem) && !multiplies(a.problem) &&
                    sums_in_place(a.problem, a.config, a.team.num_ranks) &&
                    (a.config.tile_order == TileOrder::naive || a.config.tile_workers > 0);
           }}};
}

/// Copies of a gather.
std::vector<KnobRule> rules_of_copies() {
  return {{"chunk_cols: with split_k each part waits for all columns",
           [](const Asked& a) { return a.config.chunk_cols > 0 && a.config.split_k > 1; }},
          {"chunk_cols: only tiles wait for columns, which come unpaced and direct",
           [](const Asked& a) {
             return a.config.chunk_cols > 0 && (by_library(a.config) || a.config.algorithm == Algorithm::ring ||
                                                a.config.pacing == Pacing::lockstep);
           }},
          {"copy_workers: needs transport = store; with copy_engine copy lanes copy",
           [](const Asked& a) { return a.config.copy_workers > 0 && sends(a.config); }}};
}

/// How partials and results are sent.
std::vector<KnobRule> rules_of_sending() {
  return {
      {"chunk_rows: only copy lanes of a reduce-scatter send chunks",
       [](const Asked& a) {
         const bool chunks = sends(a.config) && a.config.algorithm != Algorithm::ring && scatters(a.problem);
         return reduces(a.problem) && a.config.chunk_rows > 0 && !chunks;
       }},
      {"chunk_rows: only copy lanes and the library have chunks",
       [](const Asked& a) {
         return exchanges(a.problem) && a.config.chunk_rows > 0 && !sends(a.config) && !by_library(a.config);
       }},
      {"copy_lanes, pacing: a ring has no copy lanes, the rank that has summed sends",
       [](const Asked& a) { return is_ring(a) && (a.config.copy_lanes != 1 || a.config.pacing == Pacing::lockstep); }},
      {"copy_lanes: only transport = copy_engine has copy lanes",
       [](const Asked& a) { return !gathers(a.problem) && !sends(a.config) && a.config.copy_lanes != 1; }},
      {"pacing = lockstep: needs transport = copy_engine; stores follow the order of tiles",
       [](const Asked& a) { return !gathers(a.problem) && !sends(a.config) && a.config.pacing == Pacing::lockstep; }},
      {"algorithm = ring: it has its own way to send and sum, without reduce_mode, reduce_when, transport = ll or "
       "compute "
       "= library",
       [](const Asked& a) {
         return is_ring(a) &&
                (a.config.reduce_mode != ReduceMode::staged || a.config.reduce_when != ReduceWhen::beside ||
                 a.config.transport == Transport::ll || by_library(a.config));
       }},
      {"transport = copy_engine: x is summed in place, no part is made first",
       [](const Asked& a) {
         return is_ring(a) && sends(a.config) && sums_in_place(a.problem, a.config, a.team.num_ranks);
       }},
      {"transport = copy_engine: a copy lane sends to staged slots only",
       [](const Asked& a) {
         return reduces(a.problem) && !is_ring(a) && sends(a.config) && a.config.reduce_mode != ReduceMode::staged;
       }},
      {"transport = bulk, tma, ll: with reduce_mode = pull no tile leaves",
       [](const Asked& a) {
         return a.config.reduce_mode == ReduceMode::pull && a.config.transport != Transport::store && !sends(a.config);
       }},
      {"transport = ll: the summing worker polls the data, so partials are staged, and no sum waits for all of them",
       [](const Asked& a) {
         return a.config.transport == Transport::ll &&
                (a.config.reduce_mode != ReduceMode::staged || a.config.reduce_when != ReduceWhen::beside);
       }},
      {"reduce_mode = accumulate: one_shot does not accumulate",
       [](const Asked& a) {
         return a.config.reduce_mode == ReduceMode::accumulate && a.config.algorithm == Algorithm::one_shot;
       }},
      {"algorithm = ring: it sums in another order than that of the ranks, which needs reduction = any",
       [](const Asked& a) { return is_ring(a) && a.problem.reduction == Reduction::repeatable; }},
      {"reduce_mode = accumulate: it sums in another order than that of the ranks, which needs reduction = any",
       [](const Asked& a) {
         return a.config.reduce_mode == ReduceMode::accumulate && a.problem.reduction == Reduction::repeatable;
       }},
  };
}

std::vector<Way> ways_of_experts() {
  const auto experts = [](const Workload& work) { return has_experts(work.problem); };
  const auto combines = [](const Workload& work) { return combines_experts(work.problem); };
  // Else most tokens have experts on all ranks.
  const auto few = [](const Workload& work) {
    return is_layer_of_experts(work.problem) && work.problem.experts->top_k < work.team.num_ranks;
  };
  return {{"experts one by one", kAll, 1, experts},
          {"experts one by one, halves of the output", kAll, 1, combines, nullptr,
           [](const Workload& work, Config& config) { config.chunk_cols = ceil_div(work.problem.n, 2); }},
          {"tokens once a rank", kAll, 2, few, nullptr,
           [](const Workload&, Config& config) { config.dispatch = Dispatch::per_rank; }},
          {"tokens once an expert", kAll, 2, few, nullptr,
           [](const Workload&, Config& config) { config.dispatch = Dispatch::per_expert; }}};
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  if (has_experts(problem)) return make_routed_plan(problem, team, config, true);
  if (gathers_columns(problem)) return make_column_gather_plan(problem, team, config);
  if (gathers(problem)) return make_gather_plan(problem, team, config);
  if (exchanges(problem)) return make_all_to_all_plan(problem, team, config);
  const Ownership of_all = by_library(config) && !flags_travel(config) ? Ownership::columns : Ownership::tiles;
  return make_reduce_plan(problem, team, config, ownership_of(problem, of_all));
}

}  // namespace

Schedule fused() {
  return {.name = "fused",
          .summary = "tiles wait for the chunk that they read and leave when they are finished (Flux)",
          .knows = has_collectives,
          .knobs = knobs(),
          .rules = joined(joined(joined(joined(joined(rules_of_gemm_calls(), rules_of_library()), rules_of_order()),
                                        rules_of_gathers()),
                                 rules_of_copies()),
                          rules_of_sending()),
          .ways = joined(joined(ways_of_gathers(), ways_of_columns()),
                         joined(joined(ways_of_reductions(), ways_of_exchanges()), ways_of_experts())),
          .make = make};
}

}  // namespace tilewire
