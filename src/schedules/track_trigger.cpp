// The schedule `track_trigger` (T3): a tile is added where the output is mapped to, and a copy engine sends a block on
// when all its updates have come; nobody but memory sums. Listed in schedules.cpp.
#include "schedules/track_trigger.hpp"

#include "schedules/gpu_choices.hpp"
#include "schedules/knobs.hpp"
#include "schedules/output_map.hpp"

namespace tilewire {
namespace {

std::optional<std::string> refuses(const Problem& problem, const Team& team, const Config& config) {
  if (auto op = unknown_operator(problem, {"gemm_reduce_scatter"})) return op;
  if (auto peer = unreachable_peer(team)) return peer;
  const bool ring = config.algorithm == Algorithm::ring;
  if (!ring && config.algorithm != Algorithm::direct) return "one_shot and two_phase are algorithms of an all-reduce";
  if (!ring && (config.copy_lanes > 1 || config.chunk_rows > 0))
    return "copy_lanes, chunk_rows: tiles are stored at their owner, only a ring passes blocks on";
  if (problem.reduction == Reduction::repeatable) return "memory sums in the order of arrival: needs reduction = any";
  return ignored_knob(config, {"algorithm", "split_k", "reduce_workers", "chunk_rows", "wire", "order", "copy_lanes"});
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  const bool ring = config.algorithm == Algorithm::ring;
  return make_mapped_plan(problem, team, config,
                          ring ? ring_reduce_scatter(team.num_ranks) : direct_reduce_scatter(team.num_ranks));
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
