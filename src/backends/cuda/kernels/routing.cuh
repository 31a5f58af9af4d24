// What routing reads and writes, and what a CTA that routes has in shared memory.
// Used by route_rows.cuh and route_op.cuh.
#pragma once

#include <climits>

#include "backends/cuda/kernels/expert_rows.cuh"
#include "backends/cuda/kernels/route_table.hpp"

namespace tilewire::cuda {

/// What routing reads and writes (RouteParams).
struct Routing {
  SourceRecord ids;
  SourceRecord weights;
  RouteTable groups;
  TargetRecord extents;
  TargetRecord tokens;
  TargetRecord places;
  TargetRecord shares;
  const TargetRecord* dropped;  ///< the number of dropped rows, if wanted
  int num_tokens;
  int top_k;
  int cta;  ///< of those that route: each takes a part of the tokens
  int ctas;

  /// Length of a token's list: its experts, then the groups of shared experts.
  [[nodiscard]] __device__ int slots() const { return top_k + groups.shared; }
  [[nodiscard]] __device__ int expert(int token, int i) const {
    return i < top_k ? *element_of<const int32_t>(ids, token, i) : groups.experts + i - top_k;
  }
  [[nodiscard]] __device__ float weight(int token, int i) const {
    return i < top_k ? *element_of<const float>(weights, token, i) : 1;
  }
  /// The part of `parts` equal parts of the tokens that has a token (shard_at).
  [[nodiscard]] __device__ int part(int parts, int token) const {
    return parts == 1 ? 0 : token / ((num_tokens + parts - 1) / parts);
  }
  /// The first token of the shard of a token.
  [[nodiscard]] __device__ int first_of_shard(int token) const {
    return groups.shards == 1 ? 0 : part(groups.shards, token) * ((num_tokens + groups.shards - 1) / groups.shards);
  }
  /// Groups of all shards.
  [[nodiscard]] __device__ int all_groups() const { return groups.shards * groups.num_groups; }
  /// Number of a group of a token's shard.
  [[nodiscard]] __device__ int in_shard(int token, int group) const {
    return group < 0 || groups.shards == 1 ? group : part(groups.shards, token) * groups.num_groups + group;
  }
  /// The group of this rank that takes a token for an expert, or -1.
  [[nodiscard]] __device__ int group(int token, int expert) const {
#pragma unroll 1
    for (int i = groups.first[expert]; i < groups.first[expert + 1]; ++i) {
      const RouteGroup& one = groups.groups[i];
      const int replica = expert < groups.experts ? token % one.replicas : part(one.replicas, token);
      if (replica == one.replica) return one.group;
    }
    return -1;
  }
};

/// NOTE: max_rows counts the tokens of all CTAs before those of a CTA, so that one CTA has all.
__device__ inline Routing routing_of(const WorkerTable& table, const OpRecord& step, const Slice& slice) {
  const SourceRecord* from = table.sources + step.first_source;
  const TargetRecord* to = table.targets + step.first_target;
  const RouteTable groups = *reinterpret_cast<const RouteTable*>(from[2].data);
  return {.ids = from[0],
          .weights = from[1],
          .groups = groups,
          .extents = to[0],
          .tokens = to[1],
          .places = to[2],
          .shares = to[3],
          .dropped = step.num_targets > 4 ? to + 4 : nullptr,
          .num_tokens = step.rows,
          .top_k = step.cols,
          .cta = static_cast<int>(slice.index),
          .ctas = groups.max_rows > 0 ? 1 : min(static_cast<int>(slice.count), kMostRouteCtas)};
}

/// The last row that a rank takes, if max_rows bounds them: tokens up to `token` keep theirs, and it keeps those in
/// groups up to `group`.
struct LastRow {
  int token;
  int group;

  [[nodiscard]] __device__ bool keeps(int of_token, int in_group) const {
    return of_token < token || (of_token == token && in_group <= group);
  }
};

/// What a CTA that routes has in its dynamic shared memory.
struct RoutingShared {
  int32_t counts[kExpertThreads / 32][kMostRoutedGroups];   ///< tokens of each warp in each group; then its next row
  int32_t begins[kMostRoutedGroups];                        ///< the CTA's first row in each group
  uint32_t takers[kExpertThreads / 32][kMostRoutedGroups];  ///< of each warp's 32 tokens at a time; 0 in between
  int16_t group_of[kMostRoutedExperts];  ///< the only group of an expert; kNoGroup, or kSomeGroups: the table has them
  int32_t rows[kExpertThreads / 32];     ///< of each warp's tokens, without a bound
  LastRow last;
};
constexpr int16_t kNoGroup = -1;
constexpr int16_t kSomeGroups = -2;

/// The tokens of a warp: a part of all.
__device__ __forceinline__ int2 tokens_of_warp(const Routing& of) {
  constexpr int kWarps = kExpertThreads / 32;
  const int each = (of.num_tokens + of.ctas * kWarps - 1) / (of.ctas * kWarps);
  const auto warp = of.cta * kWarps + static_cast<int>(threadIdx.x) / 32;
  return make_int2(min(of.num_tokens, warp * each), min(of.num_tokens, (warp + 1) * each));
}

/// The group of a rank for an expert of a token; -1 without one, also if the expert is none.
__device__ __forceinline__ int group_of_pair(const Routing& of, const RoutingShared& shared, int token, int expert) {
  if (expert < 0 || expert >= of.groups.experts + of.groups.shared) return kNoGroup;
  const int group = shared.group_of[expert];
  return of.in_shard(token, group == kSomeGroups ? of.group(token, expert) : group);
}

/// The tokens of a warp, 32 at a time: `visit(token)` by all lanes, -1 behind the last one.
template <class Visit>
__device__ __forceinline__ void for_each_token(const Routing& of, const Visit& visit) {
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const int2 tokens = tokens_of_warp(of);
#pragma unroll 1
  for (int first = tokens.x; first < tokens.y; first += 32) visit(first + lane < tokens.y ? first + lane : -1);
}

/// The group that takes entry `i` of a token's list, or -1.
__device__ __forceinline__ int group_of_entry(const Routing& of, const RoutingShared& shared, int token, int i) {
  if (token < 0) return kNoGroup;
  const int group = group_of_pair(of, shared, token, of.expert(token, i));
  return i < of.top_k && !shared.last.keeps(token, group) ? kNoGroup : group;
}

/// All threads: let tokens be found by their experts' groups.
__device__ inline void look_up_groups(const Routing& of, RoutingShared& shared) {
  const int experts = of.groups.experts + of.groups.shared;
  for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += kExpertThreads) {
    const int first = of.groups.first[expert];
    const int count = of.groups.first[expert + 1] - first;
    const bool one = count == 1 && of.groups.groups[first].replicas == 1;
    shared.group_of[expert] = count == 0 ? kNoGroup
                              : one      ? static_cast<int16_t>(of.groups.groups[first].group)
                                         : kSomeGroups;
  }
#pragma unroll 1
  for (int group = static_cast<int>(threadIdx.x); group < of.all_groups(); group += kExpertThreads) {
#pragma unroll
    for (int warp = 0; warp < kExpertThreads / 32; ++warp) shared.counts[warp][group] = shared.takers[warp][group] = 0;
  }
  if (threadIdx.x == 0) shared.last = {INT_MAX, 0};
}

}  // namespace tilewire::cuda
