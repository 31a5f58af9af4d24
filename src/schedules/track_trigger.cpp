// The schedule `track_trigger` (T3): a tile is added where the output is mapped to, and a copy engine sends a block on
// when all its updates have come; nobody but memory sums. Listed in schedules.cpp.
#include "schedules/track_trigger.hpp"

#include "schedules/gpu_choices.hpp"
#include "schedules/knobs.hpp"
#include "schedules/mapped_plan.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

bool is_ring(const Config& config) { return config.algorithm == Algorithm::ring; }

bool sums_products(const Structure& structure) {
  return structure.multiplies && !structure.by_columns && structure.before == Collective::none &&
         (structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce);
}

std::optional<std::string> refuses(const Problem& problem, const Team& team, const Config& config) {
  if (auto op = unknown_operator(problem, sums_products)) return op;
  if (auto peer = unreachable_peer(team)) return peer;
  if (scatters(problem) && (config.algorithm == Algorithm::one_shot || config.algorithm == Algorithm::two_phase))
    return "one_shot and two_phase are algorithms of an all-reduce";
  if (config.algorithm == Algorithm::one_shot) return "one_shot: each chunk of the sum has one owner here";
  if (scatters(problem) && !is_ring(config) && (config.copy_lanes > 1 || config.chunk_rows > 0))
    return "copy_lanes, chunk_rows: tiles are stored at their owner, only a ring passes blocks on";
  if (problem.reduction == Reduction::repeatable) return "memory sums in the order of arrival: needs reduction = any";
  if (auto order = refuses_in_step(config)) return order;
  return ignored_knob(config,
                      {"algorithm", "split_k", "reduce_workers", "chunk_rows", "wire", "tile_order", "copy_lanes"});
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  const int ranks = team.num_ranks;
  if (all_reduces(problem))
    return make_mapped_plan(problem, team, config, is_ring(config) ? ring_all_reduce(ranks) : direct_all_reduce(ranks));
  return make_mapped_plan(problem, team, config,
                          is_ring(config) ? ring_reduce_scatter(ranks) : direct_reduce_scatter(ranks));
}

std::vector<Config> candidates(const Problem&, const Team& team) {
  if (on_gpus(team)) return {};
  Config ring{.schedule = "track_trigger"};
  ring.algorithm = Algorithm::ring;
  return {{.schedule = "track_trigger"}, ring};
}

}  // namespace

Schedule track_trigger() {
  return {.name = "track_trigger",
          .summary = "memory sums tiles where they are mapped to, copies start when a block is complete (T3)",
          .refuses = refuses,
          .make = make,
          .candidates = candidates};
}

}  // namespace tilewire
