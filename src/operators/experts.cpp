// Mixture of experts: rules, placement, and the routing of each rank.
// Called by the operators with experts, their schedules and the command line.
#include "operators/experts.hpp"

#include <algorithm>
#include <limits>

#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

constexpr int64_t kMostExperts = 1 << 16;
constexpr int64_t kMostColumns = int64_t{1} << 31;

void validate_placement(const Experts& experts, int num_ranks) {
  if (experts.placement.empty()) return;
  require(std::ssize(experts.placement) == num_ranks, "experts: a placement on {} ranks, want {}",
          experts.placement.size(), num_ranks);
  std::vector<bool> placed(static_cast<size_t>(experts.count), false);
  for (size_t rank = 0; rank < experts.placement.size(); ++rank) {
    std::vector<int64_t> mine = experts.placement[rank];
    std::ranges::sort(mine);
    for (size_t i = 0; i < mine.size(); ++i) {
      require(mine[i] >= 0 && mine[i] < experts.count, "experts: expert {} on rank {}, want 0 to {}", mine[i], rank,
              experts.count - 1);
      require(i == 0 || mine[i] != mine[i - 1], "experts: expert {} is twice on rank {}", mine[i], rank);
      placed[mine[i]] = true;
    }
  }
  for (int64_t expert = 0; expert < experts.count; ++expert)
    require(placed[expert], "experts: expert {} is on no rank", expert);
}

}  // namespace

void validate_experts(const Problem& problem, int num_ranks) {
  require(problem.experts.has_value(), "{}: want experts", problem.op);
  const Experts& experts = *problem.experts;
  require(experts.count >= 1 && experts.count <= kMostExperts, "experts: count = {}, want 1 to {}", experts.count,
          kMostExperts);
  require(experts.top_k >= 1 && experts.top_k <= experts.count, "experts: top_k = {}, want 1 to {}, the experts",
          experts.top_k, experts.count);
  require(experts.ffn >= 1 && experts.ffn <= kMostColumns, "experts: ffn = {}, want 1 to {}", experts.ffn,
          kMostColumns);
  require(problem.k >= 1, "k = {}: {} multiplies tokens of at least one column", problem.k, problem.op);
  require(problem.epilogue.empty(), "{}: epilogue of {} steps: experts take an activation only", problem.op,
          problem.epilogue.size());
  require(problem.m <= std::numeric_limits<int32_t>::max() / experts.top_k, "m = {} with top_k = {}: rows overflow",
          problem.m, experts.top_k);
  constexpr int64_t kMostElements = int64_t{1} << 42;
  const int64_t widest = std::max({first_columns(experts), problem.k, problem.n});
  require(widest <= kMostElements / std::max<int64_t>(1, problem.m * experts.top_k),
          "m = {}, top_k = {}: rows of {} columns overflow", problem.m, experts.top_k, widest);
  require(first_columns(experts) <= kMostElements / std::max({problem.k, problem.n, int64_t{1}}) / experts.count,
          "experts: {} of ffn = {} with k = {}, n = {}: weights overflow", experts.count, experts.ffn, problem.k,
          problem.n);
  validate_placement(experts, num_ranks);
}

std::vector<std::vector<int64_t>> placement_of(const Experts& experts, int num_ranks) {
  if (!experts.placement.empty()) return experts.placement;
  std::vector<std::vector<int64_t>> placement(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Range mine = shard_of(experts.count, num_ranks, rank);
    for (int64_t expert = mine.begin; expert < mine.end; ++expert) placement[rank].push_back(expert);
  }
  return placement;
}

std::vector<RouteParams> routes_of(const Problem& problem, int num_ranks) {
  const Experts& experts = *problem.experts;
  const auto placement = placement_of(experts, num_ranks);
  std::vector<int64_t> replicas(static_cast<size_t>(experts.count), 0);
  for (const auto& mine : placement) {
    for (const int64_t expert : mine) ++replicas[expert];
  }
  std::vector<int64_t> next(replicas.size(), 0);
  std::vector<RouteParams> routes;
  int64_t first = 0;
  for (const auto& mine : placement) {
    RouteParams route{.first_group = first, .experts = experts.count};
    for (const int64_t expert : mine) route.groups.push_back({expert, next[expert]++, replicas[expert]});
    first += std::ssize(mine);
    routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace tilewire
