// The schedule `sequential`: the collective, then the GEMM, or the reverse; the same tiles and sums as the
// others, no overlap. What overlap is measured against. Listed in schedules.cpp.
#include "schedules/sequential.hpp"

#include "schedules/all_to_all.hpp"
#include "schedules/collective.hpp"
#include "schedules/column_gather.hpp"
#include "schedules/copies.hpp"
#include "schedules/gather.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/reduce_ways.hpp"
#include "schedules/route.hpp"
#include "schedules/routed.hpp"
#include "schedules/tiles.hpp"
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

bool has_pacing(const Problem& problem) { return !gathers_columns(problem) && !has_experts(problem); }
bool has_chunks(const Problem& problem) { return gathers(problem) || scatters(problem); }

std::vector<Knob> knobs() {
  const std::vector<Knob> rows{{"compute", has_no_experts, "tiles, library"},
                               {"collective", has_no_experts, "tiles, library"},
                               {"direction", gathers_rows, "push, pull"},
                               {"algorithm", gathers_rows, "direct, ring"},
                               {"algorithm", scatters, "direct"},
                               {"algorithm", all_reduces, "direct, one_shot, two_phase", "direct, one_shot"},
                               {"reduce_mode", reduces, "staged, pull"},
                               {"wire", reduces},
                               {"chunk_rows", has_chunks},
                               {"copy_lanes", has_no_experts, "", "1, 2"},
                               {"pacing", has_pacing, "unpaced, lockstep"},
                               {"copy_workers", gathers, "", "0, 2"},
                               {"reduce_workers", reduces},
                               {"reduce_workers", exchanges}};
  return joined(joined(knobs_of_tiles(), rows), knobs_of_experts());
}

/// Whether x is summed in place.
bool in_place(const Asked& a) {
  Config planned = a.config;
  planned.transport = Transport::copy_engine;
  return all_reduces(a.problem) && !multiplies(a.problem) && sums_in_place(a.problem, planned, a.team.num_ranks);
}

std::vector<KnobRule> rules() {
  return {
      {"tile_workers: x is summed in place, no tile is made first",
       [](const Asked& a) { return in_place(a) && a.config.tile_workers > 0; }},
      {"chunk_rows, copy_lanes, pacing: with reduce_mode = pull owners read, and nothing is sent",
       [](const Asked& a) {
         return a.config.reduce_mode == ReduceMode::pull &&
                (a.config.chunk_rows > 0 || a.config.copy_lanes > 1 || a.config.pacing == Pacing::lockstep);
       }},
  };
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  if (has_experts(problem)) return make_routed_plan(problem, team, config, false);
  if (config.collective == Provider::library) return make_collective_plan(problem, team, config);
  if (exchanges(problem)) return make_all_to_all_plan(problem, team, apart(problem, config));
  if (gathers_columns(problem)) return make_column_gather_plan(problem, team, apart(problem, config));
  if (gathers(problem)) return make_gather_plan(problem, team, apart(problem, config));
  return make_reduce_plan(problem, team, apart(problem, config), ownership_of(problem, Ownership::tiles));
}

/// As every schedule that copies: in lockstep where there are several peers.
void paced(const Workload& work, Config& config) {
  if (has_experts(work.problem)) return;
  if (work.team.num_ranks > 2 && !gathers_columns(work.problem)) config.pacing = Pacing::lockstep;
}

void library_and_paced(const Workload& work, Config& config) {
  paced(work, config);
  config.compute = Provider::library;
}

void all_by_library(const Workload& work, Config& config) {
  config.compute = multiplies(work.problem) ? Provider::library : Provider::tiles;
  config.collective = Provider::library;
}

/// NOTE: GPUs call no all-to-all of the library (refusals.cpp).
bool has_collective(const Workload& work) {
  Config config{.schedule = "sequential"};
  all_by_library(work, config);
  return on_gpus(work) && !exchanges(work.problem) && !has_experts(work.problem) &&
         !is_broken(rules_of_collectives(), {work.problem, work.team, config});
}

std::vector<Way> ways() {
  return {{"tiles", kAll, 1, [](const Workload& work) { return on_gpus(work) && makes_tiles(work.problem); },
           first_tile, paced},
          {"GEMM of the library", kAll, 1,
           [](const Workload& work) { return on_gpus(work) && multiplies(work.problem); }, nullptr, library_and_paced},
          stream_ordered_gemm(),
          {"GEMM and collective of the library", kAll, 1, has_collective, nullptr, all_by_library},
          {"tiles", kAll, 1, [](const Workload& work) { return !on_gpus(work) || !makes_tiles(work.problem); }, nullptr,
           paced}};
}

}  // namespace

Schedule sequential() {
  return {.name = "sequential",
          .summary = "the collective, then the GEMM, or the reverse: no overlap",
          .knows = has_collectives,
          .knobs = knobs(),
          .rules = joined(joined(joined(rules_of_collectives(), rules_of_gemm_calls()), rules()), rules_of_gathers()),
          .ways = ways(),
          .make = make};
}

}  // namespace tilewire
