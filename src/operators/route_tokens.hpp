// The routing of one rank in plain loops: the definition that plans are compared with.
// Called by the references of operators with experts, and by random data.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tilewire/body.hpp"

namespace tilewire {

/// What a routing without shards leaves on a rank.
struct Routing {
  std::vector<int32_t> extents{};  ///< 2 x groups
  std::vector<int32_t> places{};   ///< of each token, as many as it has experts with the shared ones
  std::vector<float> weights{};    ///< of these places
  std::vector<int64_t> tokens{};   ///< of each row of memory; -1: in no group
  std::vector<int64_t> groups{};   ///< the same, the groups
  int64_t dropped = 0;
};

/// Route `tokens` tokens. `of(token, experts, weights)` writes a token's top_k experts and their weights. A memory of
/// `most_rows` rows has the groups.
[[nodiscard]] Routing route_tokens(const RouteParams& route, int64_t tokens, int64_t top_k, int64_t most_rows,
                                   const std::function<void(int64_t, float*, float*)>& of);
/// Set `tokens` and `groups` from the extents and places of `width` columns.
void find_rows(Routing& routing, int64_t width, int64_t most_rows);

}  // namespace tilewire
