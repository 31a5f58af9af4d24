// Mixture of experts: rules, placement, and the routing of each rank.
// Called by the operators with experts, their schedules and the command line.
#include "operators/experts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/grouped_tasks.hpp"
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

void validate_load(const Experts& experts) {
  if (experts.load.empty()) return;
  require(std::ssize(experts.load) == experts.count, "experts: load of {} experts, want {}", experts.load.size(),
          experts.count);
  double all = 0;
  for (const double load : experts.load) {
    require(std::isfinite(load) && load >= 0, "experts: load = {}, want at least 0", load);
    all += load;
  }
  require(all > 0 && std::isfinite(all), "experts: the loads add up to {}, want more than 0", all);
}

}  // namespace

void validate_experts(const Problem& problem, int num_ranks, const ExpertSteps& steps) {
  require(problem.experts.has_value(), "{}: want experts", problem.op);
  const Experts& experts = *problem.experts;
  require(experts.count >= 1 && experts.count <= kMostExperts, "experts: count = {}, want 1 to {}", experts.count,
          kMostExperts);
  require(experts.top_k >= 1 && experts.top_k <= experts.count, "experts: top_k = {}, want 1 to {}, the experts",
          experts.top_k, experts.count);
  require(experts.shared >= 0 && experts.shared <= kMostExperts, "experts: shared = {}, want 0 to {}", experts.shared,
          kMostExperts);
  require(experts.max_rows >= 0, "experts: max_rows = {}, want at least 1, or 0 for any number", experts.max_rows);
  require(!experts.drops || experts.max_rows > 0, "experts: drops = true without max_rows");
  const int64_t least = steps.first || steps.second ? 1 : 0;
  require(experts.ffn >= least && experts.ffn <= kMostColumns, "experts: ffn = {}, want {} to {}", experts.ffn, least,
          kMostColumns);
  require(!steps.first || problem.k >= 1, "k = {}: {} multiplies tokens of at least one column", problem.k, problem.op);
  require(problem.epilogue.empty(), "{}: epilogue of {} steps: experts take an activation only", problem.op,
          problem.epilogue.size());
  const int64_t each = experts.top_k + experts.shared;  // experts of a token
  require(problem.m <= std::numeric_limits<int32_t>::max() / each, "m = {} with {} experts each: rows overflow",
          problem.m, each);
  constexpr int64_t kMostElements = int64_t{1} << 42;
  const int64_t widest = std::max({first_columns(experts), problem.k, problem.n});
  require(widest <= kMostElements / std::max<int64_t>(1, problem.m * each),
          "m = {} with {} experts each: rows of {} columns overflow", problem.m, each, widest);
  const int64_t all = experts.count + experts.shared * num_ranks;
  require(first_columns(experts) <= kMostElements / std::max({problem.k, problem.n, int64_t{1}}) / all,
          "experts: {} of ffn = {} with k = {}, n = {}: weights overflow", all, experts.ffn, problem.k, problem.n);
  validate_placement(experts, num_ranks);
  validate_load(experts);
}

std::vector<std::vector<int64_t>> placement_of(const Experts& experts, int num_ranks) {
  std::vector<std::vector<int64_t>> placement = experts.placement;
  placement.resize(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Range mine = experts.placement.empty() ? shard_of(experts.count, num_ranks, rank) : Range{};
    for (int64_t expert = mine.begin; expert < mine.end; ++expert) placement[rank].push_back(expert);
    for (int64_t i = 0; i < experts.shared; ++i) placement[rank].push_back(experts.count + i);
  }
  return placement;
}

std::vector<RouteParams> routes_of(const Problem& problem, int num_ranks) {
  const Experts& experts = *problem.experts;
  const auto placement = placement_of(experts, num_ranks);
  std::vector<int64_t> replicas(static_cast<size_t>(experts.count + experts.shared), 0);
  for (const auto& mine : placement) {
    for (const int64_t expert : mine) ++replicas[expert];
  }
  std::vector<int64_t> next(replicas.size(), 0);
  std::vector<RouteParams> routes;
  int64_t first = 0;
  for (const auto& mine : placement) {
    RouteParams route{.first_group = first,
                      .experts = experts.count,
                      .align = kGroupAlign,
                      .max_rows = experts.max_rows,
                      .drops = experts.drops,
                      .load = experts.load};
    for (const int64_t expert : mine) route.groups.push_back({expert, next[expert]++, replicas[expert]});
    first += std::ssize(mine);
    routes.push_back(std::move(route));
  }
  return routes;
}

int64_t most_rows_of_groups(const Problem& problem, int num_ranks) {
  int64_t most = 0;
  for (const RouteParams& route : routes_of(problem, num_ranks))
    most = std::max(most, most_rows_of(route, problem.m, problem.experts->top_k));
  return most;
}

KeptRows kept_rows(const Problem& problem, int num_ranks, const std::function<void(int64_t, float*)>& experts_of) {
  const Experts& experts = *problem.experts;
  const std::vector<RouteParams> routes = routes_of(problem, num_ranks);
  KeptRows kept{std::vector<bool>(static_cast<size_t>(problem.m * experts.top_k), true),
                std::vector<int64_t>(static_cast<size_t>(num_ranks), 0)};
  if (experts.max_rows == 0) return kept;
  std::vector<int64_t> taken(static_cast<size_t>(num_ranks), 0);
  std::vector<float> chosen(static_cast<size_t>(experts.top_k));
  for (int64_t token = 0; token < problem.m; ++token) {
    experts_of(token, chosen.data());
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (const ExpertGroup& group : routes[rank].groups) {
        const auto found = std::ranges::find(chosen, static_cast<float>(group.expert));
        if (found == chosen.end() || token % group.replicas != group.replica) continue;
        if (taken[rank] < experts.max_rows) {
          ++taken[rank];
        } else {
          ++kept.dropped[rank];
          kept.pairs[token * experts.top_k + (found - chosen.begin())] = false;
        }
      }
    }
  }
  return kept;
}

}  // namespace tilewire
