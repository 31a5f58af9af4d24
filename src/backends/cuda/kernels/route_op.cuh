// The op that routes tokens to the groups of a rank's experts.
// Used by ops.cuh.
#pragma once

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
  int num_tokens;
  int top_k;

  [[nodiscard]] __device__ int expert(int token, int i) const { return *element_of<const int32_t>(ids, token, i); }
  /// The group of this rank that takes a token for an expert, or -1.
  [[nodiscard]] __device__ int group(int token, int expert) const {
#pragma unroll 1
    for (int i = groups.first[expert]; i < groups.first[expert + 1]; ++i) {
      const RouteGroup& one = groups.groups[i];
      if (token % one.replicas == one.replica) return one.group;
    }
    return -1;
  }
};

__device__ inline Routing routing_of(const WorkerTable& table, const OpRecord& step) {
  const SourceRecord* from = table.sources + step.first_source;
  const TargetRecord* to = table.targets + step.first_target;
  return {from[0],   from[1],  *reinterpret_cast<const RouteTable*>(from[2].data), to[0], to[1], to[2], to[3],
          step.rows, step.cols};
}

__device__ inline void report_expert(const OpRecord& step, const Patience& patience, uint32_t what, int token,
                                     int expert) {
  report_failure(patience.watch, {.task = step.task,
                                  .wait = what,
                                  .wanted = static_cast<uint64_t>(token),
                                  .seen = static_cast<uint64_t>(static_cast<int64_t>(expert)),
                                  .epoch = patience.epoch});
}

/// What a CTA that routes has in shared memory.
struct RoutingShared {
  int32_t counts[kOpThreads / 32][kMostRoutedGroups];  ///< tokens of each warp in each group; then its next row there
  int16_t group_of[kMostRoutedExperts];  ///< the only group of an expert; kNoGroup, or kSomeGroups: the table has them
};
constexpr int16_t kNoGroup = -1;
constexpr int16_t kSomeGroups = -2;

/// The pairs of token and expert that a warp has, 32 at a time: `visit(token, i, group)` by all lanes; without a group
/// of this rank, or without a pair (token -1), the group is -1. False if an expert is none.
template <class Visit>
__device__ __forceinline__ bool for_each_pair(const Routing& of, const RoutingShared& shared, const OpRecord& step,
                                              const Patience& patience, const Visit& visit) {
  constexpr int kWarps = kOpThreads / 32;
  constexpr int kAtOnce = 4;  // loads in flight
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const int each = (of.num_tokens + kWarps - 1) / kWarps;
  const int end = min(of.num_tokens, (warp + 1) * each) * of.top_k;
  bool good = true;
#pragma unroll 1
  for (int first = warp * each * of.top_k; first < end; first += 32 * kAtOnce) {
    int tokens[kAtOnce];
    int experts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = first + 32 * i + lane;
      tokens[i] = pair < end ? pair / of.top_k : -1;
      experts[i] = pair < end ? of.expert(tokens[i], pair % of.top_k) : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i >= end) break;
      const int token = tokens[i];
      int group = kNoGroup;
      if (token >= 0 && (experts[i] < 0 || experts[i] >= of.groups.experts)) {
        report_expert(step, patience, kNoExpert, token, experts[i]);
        good = false;
      } else if (token >= 0) {
        group = shared.group_of[experts[i]];
        if (group == kSomeGroups) group = of.group(token, experts[i]);
      }
      visit(token, (first + 32 * i + lane) % of.top_k, group);
    }
  }
  return good;
}

/// One warp: the extents of all groups, from the warps' counts, which become the first row of each warp in each group.
__device__ inline void place_groups(const Routing& of, int32_t (&counts)[kOpThreads / 32][kMostRoutedGroups]) {
  int begin = 0;
#pragma unroll 1
  for (int first = 0; first < of.groups.num_groups; first += 32) {
    const int group = first + static_cast<int>(threadIdx.x);
    const bool there = group < of.groups.num_groups;
    int rows = 0;
    for (const auto& of_warp : counts) rows += there ? of_warp[group] : 0;
    int up_to = (rows + of.groups.align - 1) / of.groups.align * of.groups.align;
    const int room = up_to;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFF, up_to, apart);
      if (static_cast<int>(threadIdx.x) >= apart) up_to += other;
    }
    int row = begin + up_to - room;
    if (there) {
      *element_of<int32_t>(of.extents, 0, group) = row;
      *element_of<int32_t>(of.extents, 1, group) = row + rows;
      for (auto& of_warp : counts) {
        const int mine = of_warp[group];
        of_warp[group] = row;
        row += mine;
      }
    }
    begin += __shfl_sync(0xFFFFFFFF, up_to, 31);
  }
}

/// One thread: the rows of a token in ascending order, -1 behind them, and their weights.
template <int kMost>
__device__ __forceinline__ void sort_places(const Routing& of, int token) {
  uint32_t rows[kMost];  // -1 is the largest
  float shares[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const bool there = i < of.top_k;
    rows[i] = there ? static_cast<uint32_t>(*element_of<int32_t>(of.places, token, i)) : ~0U;
    shares[i] = there ? *element_of<const float>(of.weights, token, i) : 0;
  }
#pragma unroll
  for (int i = 1; i < kMost; ++i) {
#pragma unroll
    for (int j = i; j > 0; --j) {
      const bool swaps = rows[j] < rows[j - 1];
      const uint32_t row = swaps ? rows[j - 1] : rows[j];
      const float share = swaps ? shares[j - 1] : shares[j];
      rows[j - 1] = swaps ? rows[j] : rows[j - 1];
      shares[j - 1] = swaps ? shares[j] : shares[j - 1];
      rows[j] = row;
      shares[j] = share;
    }
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i >= of.top_k) break;
    *element_of<int32_t>(of.places, token, i) = static_cast<int32_t>(rows[i]);
    *element_of<float>(of.shares, token, i) = rows[i] == ~0U ? 0 : shares[i];
  }
}

/// The same for any number of experts, in memory.
__device__ inline void sort_many_places(const Routing& of, int token) {
  auto* places = element_of<int32_t>(of.places, token, 0);
  auto* shares = element_of<float>(of.shares, token, 0);
  int sorted = 0;
#pragma unroll 1
  for (int i = 0; i < of.top_k; ++i) {
    const int row = places[i];
    const float share = *element_of<const float>(of.weights, token, i);
    if (row < 0) continue;
    int at = sorted++;
    for (; at > 0 && places[at - 1] > row; --at) {
      places[at] = places[at - 1];
      shares[at] = shares[at - 1];
    }
    places[at] = row;
    shares[at] = share;
  }
#pragma unroll 1
  for (; sorted < of.top_k; ++sorted) {
    places[sorted] = -1;
    shares[sorted] = 0;
  }
}

/// One thread: whether a token has no expert twice; else report it.
__device__ inline bool has_each_once(const Routing& of, int token, const OpRecord& step, const Patience& patience) {
#pragma unroll 1
  for (int i = 1; i < of.top_k; ++i) {
    const int expert = of.expert(token, i);
    bool twice = false;
#pragma unroll 4
    for (int before = 0; before < i; ++before) twice = twice || of.expert(token, before) == expert;
    if (!twice) continue;
    report_expert(step, patience, kTwiceAnExpert, token, expert);
    return false;
  }
  return true;
}

/// All threads: let tokens be found by their experts' groups.
__device__ inline void look_up_groups(const Routing& of, RoutingShared& shared) {
  for (int expert = static_cast<int>(threadIdx.x); expert < of.groups.experts; expert += kOpThreads) {
    const int first = of.groups.first[expert];
    const int count = of.groups.first[expert + 1] - first;
    const bool one = count == 1 && of.groups.groups[first].replicas == 1;
    shared.group_of[expert] = count == 0 ? kNoGroup
                              : one      ? static_cast<int16_t>(of.groups.groups[first].group)
                                         : kSomeGroups;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kOpThreads / 32 * kMostRoutedGroups; i += kOpThreads)
    shared.counts[i / kMostRoutedGroups][i % kMostRoutedGroups] = 0;
}

/// Make the groups of a rank, by one CTA: count each warp's tokens in each group, place the groups, then the tokens.
__device__ inline void route_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                Patience& patience) {
  if (slice.index > 0) return;
  __shared__ RoutingShared shared;
  const Routing of = routing_of(table, step);
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  look_up_groups(of, shared);
  __syncthreads();
  bool good = for_each_pair(of, shared, step, patience, [&](int, int, int group) {
    if (group >= 0) atomicAdd(&shared.counts[warp][group], 1);
  });
  for (int token = static_cast<int>(threadIdx.x); token < of.num_tokens && good; token += kOpThreads)
    good = has_each_once(of, token, step, patience);
  // NOTE: only a token with an expert twice may have more rows than there is room for.
  if (__syncthreads_and(good) == 0) {
    patience.over = true;
    return;
  }
  if (warp == 0) place_groups(of, shared.counts);
  __syncthreads();
  for_each_pair(of, shared, step, patience, [&](int token, int i, int group) {
    const uint32_t same = __match_any_sync(0xFFFFFFFF, group);
    const uint32_t lanes_before = (1U << threadIdx.x % 32) - 1;
    const int row = group < 0 ? -1 : shared.counts[warp][group] + __popc(same & lanes_before);
    __syncwarp();
    if (group >= 0 && (same & lanes_before) == 0) shared.counts[warp][group] += __popc(same);
    __syncwarp();
    if (row >= 0) *element_of<int32_t>(of.tokens, row, 0) = token;
    if (token >= 0) *element_of<int32_t>(of.places, token, i) = row;
  });
  __syncthreads();
#pragma unroll 1
  for (int token = static_cast<int>(threadIdx.x); token < of.num_tokens; token += kOpThreads)
    of.top_k <= 8 ? sort_places<8>(of, token) : sort_many_places(of, token);
}

}  // namespace tilewire::cuda
