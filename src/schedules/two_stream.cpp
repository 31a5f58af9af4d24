// The schedule `two_stream` (DistFuse): tiles are stored locally and post flags; a second lane all-reduces
// tile by tile, each rank reading and summing 1/n of a tile and broadcasting it. Listed in schedules.cpp.
#include "schedules/two_stream.hpp"

#include "schedules/builder.hpp"
#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/route.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

/// What the planner is told: partials stay where they are.
Config pulled(Config config) {
  config.reduce_mode = ReduceMode::pull;
  return config;
}

bool sums_for_all(const Structure& structure) {
  return structure.before == Collective::none && structure.after == Collective::all_reduce;
}

std::vector<Knob> knobs() {
  return joined(knobs_of_tiles(), {{"reduce_workers", any_operator},
                                   {"wire", any_operator},
                                   {"release", any_operator, "tile, all"},
                                   {"launches", multiplies}});
}

std::vector<KnobRule> rules() {
  return {{"tile_workers: x is summed in place, no tile is made first",
           [](const Asked& a) {
             return !multiplies(a.problem) && a.config.tile_workers > 0 &&
                    sums_in_place(a.problem, pulled(a.config), a.team.num_ranks);
           }},
          {"release = all: x lies in the arena, no tile is made first", [](const Asked& a) {
             return !multiplies(a.problem) && in_arena(a.problem, "x") && a.config.release == Release::all;
           }}};
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  return make_reduce_plan(problem, team, pulled(config), Ownership::slices);
}

std::vector<Way> ways() {
  return {{"usual tiles", kAll, 1, [](const Workload& work) { return on_gpus(work); }, first_two_tiles},
          {"default tile", kAll, 1, [](const Workload& work) { return !on_gpus(work); }}};
}

}  // namespace

Schedule two_stream() {
  return {.name = "two_stream",
          .summary = "tiles post flags, a second lane all-reduces them one by one (DistFuse)",
          .knows = sums_for_all,
          .knobs = knobs(),
          .rules = rules(),
          .ways = ways(),
          .make = make};
}

}  // namespace tilewire
