// The routing of one rank in plain loops.
// Called by the references of operators with experts, and by random data.
#include "operators/route_tokens.hpp"

#include <algorithm>

#include "core/ceil_div.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire {

Routing route_tokens(const RouteParams& route, int64_t tokens, int64_t top_k, int64_t most_rows,
                     const std::function<void(int64_t, float*, float*)>& of) {
  struct Row {
    int64_t token;
    int64_t group;
    float weight;
  };
  const int64_t groups = std::ssize(route.groups);
  Routing routing;
  std::vector<Row> rows;
  std::vector<int64_t> counts(static_cast<size_t>(groups), 0);
  std::vector<float> experts(static_cast<size_t>(top_k));
  std::vector<float> weights(static_cast<size_t>(top_k));
  int64_t taken = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    of(token, experts.data(), weights.data());
    for (int64_t group = 0; group < groups; ++group) {
      const ExpertGroup& one = route.groups[group];
      if (is_shared(route, one)) {
        if (shard_at(tokens, static_cast<int>(one.replicas), token) != one.replica) continue;
        rows.push_back({token, group, 1});
      } else {
        const auto found = std::ranges::find(experts, static_cast<float>(one.expert));
        if (found == experts.end() || token % one.replicas != one.replica) continue;
        if (route.max_rows > 0 && taken == route.max_rows) {
          ++routing.dropped;
          continue;
        }
        ++taken;
        rows.push_back({token, group, weights[found - experts.begin()]});
      }
      ++counts[group];
    }
  }
  routing.extents.resize(static_cast<size_t>(2 * groups));
  int64_t end = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = ceil_div(end, route.align) * route.align;
    end = begin + counts[group];
    counts[group] = begin;  // then the next free row
    routing.extents[group] = static_cast<int32_t>(begin);
    routing.extents[groups + group] = static_cast<int32_t>(end);
  }
  const int64_t width = top_k + num_shared(route);
  routing.places.assign(static_cast<size_t>(tokens * width), -1);
  routing.weights.assign(routing.places.size(), 0);
  int64_t last = -1;
  int64_t place = 0;
  for (const Row& row : rows) {
    place = row.token == last ? place + 1 : row.token * width;
    last = row.token;
    routing.places[place] = static_cast<int32_t>(counts[row.group]++);
    routing.weights[place] = row.weight;
  }
  find_rows(routing, width, most_rows);
  return routing;
}

void find_rows(Routing& routing, int64_t width, int64_t most_rows) {
  routing.tokens.assign(static_cast<size_t>(most_rows), -1);
  routing.groups.assign(static_cast<size_t>(most_rows), -1);
  const int64_t groups = std::ssize(routing.extents) / 2;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = routing.extents[group];
    const int64_t end = routing.extents[groups + group];
    require(begin >= 0 && begin <= end && end <= most_rows, "extents: group {} has the rows {}..{}, want some of 0..{}",
            group, begin, end, most_rows);
    for (int64_t row = begin; row < end; ++row) routing.groups[row] = group;
  }
  for (int64_t place = 0; place < std::ssize(routing.places); ++place) {
    const int64_t row = routing.places[place];
    require(row >= -1 && row < most_rows, "places of token {}: row {}, want -1 to {}", place / width, row,
            most_rows - 1);
    if (row >= 0) routing.tokens[row] = place / width;
  }
}

}  // namespace tilewire
