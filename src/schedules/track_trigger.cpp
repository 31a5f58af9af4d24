// The schedule `track_trigger` (T3): a tile is added where the output is mapped to, and a copy engine sends a block on
// when all its updates have come; nobody but memory sums. Listed in schedules.cpp.
#include "schedules/track_trigger.hpp"

#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/mapped_plan.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

bool is_ring(const Config& config) { return config.algorithm == Algorithm::ring; }

bool sums_products(const Structure& structure) {
  return structure.multiplies && !structure.by_columns && structure.before == Collective::none &&
         (structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce);
}

std::vector<Knob> knobs() {
  return joined(knobs_of_tiles(), {{"algorithm", scatters, "direct, ring"},
                                   {"algorithm", all_reduces, "direct, ring, two_phase", "direct, ring"},
                                   {"tile_order", any_operator, "rank_shifted, naive"},
                                   {"wire", any_operator},
                                   {"chunk_rows", any_operator},
                                   {"copy_lanes", any_operator, "", "1, 2"},
                                   {"reduce_workers", any_operator}});
}

std::vector<KnobRule> rules() {
  return {{"memory sums in the order of arrival: needs reduction = any",
           [](const Asked& a) { return a.problem.reduction == Reduction::repeatable; }},
          {"it has no norm of the output", [](const Asked& a) { return a.problem.norm.has_value(); }},
          {"copy_lanes, chunk_rows: tiles are stored at their owner, only a ring passes blocks on", [](const Asked& a) {
             return scatters(a.problem) && !is_ring(a.config) && (a.config.copy_lanes > 1 || a.config.chunk_rows > 0);
           }}};
}

Plan make(const Problem& problem, const Team& team, const Config& config) {
  const int ranks = team.num_ranks;
  if (all_reduces(problem))
    return make_mapped_plan(problem, team, config, is_ring(config) ? ring_all_reduce(ranks) : direct_all_reduce(ranks));
  return make_mapped_plan(problem, team, config,
                          is_ring(config) ? ring_reduce_scatter(ranks) : direct_reduce_scatter(ranks));
}

std::vector<Way> ways() {
  const auto on_host = [](const Workload& work) { return !on_gpus(work); };
  return {{"direct", kAll, 1, on_host},
          {"ring", kAll, 1, on_host, nullptr,
           [](const Workload& /*work*/, Config& config) { config.algorithm = Algorithm::ring; }}};
}

}  // namespace

Schedule track_trigger() {
  return {.name = "track_trigger",
          .summary = "memory sums tiles where they are mapped to, copies start when a block is complete (T3)",
          .knows = sums_products,
          .knobs = knobs(),
          .rules = rules(),
          .ways = ways(),
          .make = make};
}

}  // namespace tilewire
