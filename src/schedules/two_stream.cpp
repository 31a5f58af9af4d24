// The schedule `two_stream` (DistFuse): tiles are stored locally and post flags; a second lane all-reduces
// tile by tile, each rank reading and summing 1/n of a tile and broadcasting it. Listed in schedules.cpp.
#include "schedules/two_stream.hpp"

#include "schedules/builder.hpp"
#include "schedules/gpu_choices.hpp"
#include "schedules/knobs.hpp"
#include "schedules/reduce.hpp"
#include "schedules/route.hpp"
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

std::optional<std::string> refuses(const Problem& problem, const Team& team, const Config& config) {
  if (auto op = unknown_operator(problem, sums_for_all)) return op;
  if (auto peer = unreachable_peer(team)) return peer;
  if (auto knob = refuses_tile_knobs(problem, team, pulled(config))) return knob;
  if (config.launches > 1 && !multiplies(problem)) return "launches: there are no tiles beside the sums";
  const bool in_place = !multiplies(problem) && in_arena(problem, "x");
  if (in_place && config.release == Release::all) return "release: x lies in the arena, no tile is made first";
  return ignored_knob(config, {"split_k", "reduce_workers", "wire", "release", "launches"});
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  return make_reduce_plan(problem, team, pulled(config), Ownership::slices);
}

std::vector<Config> candidates(const Problem& problem, const Team& team) {
  if (on_gpus(team)) return two_stream_choices(problem, team);
  return {Config{.schedule = "two_stream"}};
}

}  // namespace

Schedule two_stream() {
  return {.name = "two_stream",
          .summary = "tiles post flags, a second lane all-reduces them one by one (DistFuse)",
          .refuses = refuses,
          .make = make,
          .candidates = candidates};
}

}  // namespace tilewire
