// The rows that tokens take in the groups of a rank.
// Used by route_op.cuh.
#pragma once

#include <climits>

#include "backends/cuda/kernels/routing.cuh"
#include "backends/cuda/kernels/scan.cuh"

namespace tilewire::cuda {

/// All threads: find the last row that the rank takes. Returns the number of rows without a bound.
__device__ inline int bound_rows(const Routing& of, RoutingShared& shared) {
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const int2 tokens = tokens_of_warp(of);
  const auto rows_of = [&](int token) {
    int rows = 0;
    for (int i = 0; i < of.top_k && token < tokens.y; ++i)
      rows += group_of_pair(of, shared, token, of.expert(token, i)) >= 0 ? 1 : 0;
    return rows;
  };
  int mine = 0;
  for (int token = tokens.x + lane; token < tokens.y; token += 32) mine += rows_of(token);
  mine = __reduce_add_sync(0xFFFFFFFF, mine);
  if (lane == 0) shared.rows[warp] = mine;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int i = 0; i < kExpertThreads / 32; ++i) {
    before += i < warp ? shared.rows[i] : 0;
    all += shared.rows[i];
  }
  // The warp that has the first token beyond the bound finds it, and how many rows it still keeps.
  const int bound = of.groups.max_rows;
  for (int first = tokens.x; first < tokens.y && before <= bound && bound < before + mine; first += 32) {
    const int rows = rows_of(first + lane);
    const auto up_to = static_cast<int>(sum_to_lane(static_cast<uint32_t>(rows)));
    const uint32_t beyond = __ballot_sync(0xFFFFFFFF, before + up_to > bound);
    if (beyond != 0 && lane == __ffs(static_cast<int>(beyond)) - 1) {
      int group = -1;
      for (int left = bound - before - up_to + rows; left > 0; --left) {
        int next = INT_MAX;
        for (int i = 0; i < of.top_k; ++i) {
          const int other = group_of_pair(of, shared, first + lane, of.expert(first + lane, i));
          if (other > group) next = min(next, other);
        }
        group = next;
      }
      shared.last = {first + lane, group};
    }
    if (beyond != 0) break;
    const auto here = __shfl_sync(0xFFFFFFFF, up_to, 31);
    before += here;
    mine -= here;
  }
  return all;
}

/// All threads: make the counts of a CTA's warps the first row of each warp in each group. `rows_of(group)`: the rows
/// of all tokens, and those of earlier CTAs' tokens.
template <class RowsOf>
__device__ __forceinline__ void place_groups(const Routing& of, RoutingShared& shared, const RowsOf& rows_of) {
  const int all = of.all_groups();
  if (threadIdx.x < 32) {
    int begin = 0;
#pragma unroll 1
    for (int first = 0; first < all; first += 32) {
      // The shards of a group lie one behind the other.
      const int index = first + static_cast<int>(threadIdx.x);
      const bool there = index < all;
      const int group = there ? index % of.groups.shards * of.groups.num_groups + index / of.groups.shards : 0;
      const int2 rows = there ? rows_of(group) : make_int2(0, 0);
      const int room = (rows.x + of.groups.align - 1) / of.groups.align * of.groups.align;
      const auto up_to = static_cast<int>(sum_to_lane(static_cast<uint32_t>(room)));
      const int row = begin + up_to - room;
      if (there) shared.begins[group] = row + rows.y;
      if (there && of.cta == 0) {
        *element_of<int32_t>(of.extents, 0, group) = row;
        *element_of<int32_t>(of.extents, 1, group) = row + rows.x;
      }
      begin += __shfl_sync(0xFFFFFFFF, up_to, 31);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int group = static_cast<int>(threadIdx.x); group < all; group += kExpertThreads) {
    int row = shared.begins[group];
#pragma unroll
    for (auto& of_warp : shared.counts) {
      const int mine = of_warp[group];
      of_warp[group] = row;
      row += mine;
    }
  }
  __syncthreads();
}

/// The rows of a CTA's tokens in a group.
__device__ inline int rows_of_warps(const RoutingShared& shared, int group) {
  int rows = 0;
#pragma unroll
  for (const auto& of_warp : shared.counts) rows += of_warp[group];
  return rows;
}

/// All threads: tell the other CTAs the rows of this one's tokens, and wait for theirs. False if a token is bad, or if
/// they do not come.
__device__ inline bool meet_ctas(const Routing& of, const RoutingShared& shared, bool good, Patience& patience) {
  const int all = of.all_groups();
#pragma unroll 1
  for (int group = static_cast<int>(threadIdx.x); group < all; group += kExpertThreads)
    of.groups.counts[of.cta * all + group] = rows_of_warps(shared, group);
  __syncthreads();
  if (threadIdx.x == 0) {
    RouteMeeting& meeting = *of.groups.meeting;
    if (!good) atomicExch(reinterpret_cast<unsigned long long*>(&meeting.bad), patience.epoch + 1);
    __threadfence();
    const auto ctas = static_cast<uint64_t>(of.ctas);
    const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(&meeting.come), 1ull);
    const uint64_t wanted = (before / ctas + 1) * ctas;
    const auto* come = static_cast<const volatile uint64_t*>(&meeting.come);
    while (*come < wanted && patience.lasts()) {
    }
    if (patience.over)
      report_failure(patience.watch,
                     {.task = patience.task, .wait = kLaneTurn, .epoch = patience.epoch, .told = patience.told});
    __threadfence();
    good = !patience.over && *static_cast<const volatile uint64_t*>(&meeting.bad) != patience.epoch + 1;
  }
  return __syncthreads_and(threadIdx.x > 0 || good) != 0;
}

/// The rows of all CTAs' tokens in a group, and those of earlier CTAs.
__device__ inline int2 rows_of_ctas(const Routing& of, int group) {
  int2 rows = make_int2(0, 0);
#pragma unroll 8
  for (int cta = 0; cta < of.ctas; ++cta) {
    const int mine = __ldcg(of.groups.counts + cta * of.all_groups() + group);
    rows.x += mine;
    rows.y += cta < of.cta ? mine : 0;
  }
  return rows;
}

/// The next rows of a warp's groups. Its lanes' tokens take them in three steps, with a __syncwarp behind each: all
/// mark their groups, all find their rows, all let the next tokens go on.
struct WarpRows {
  int32_t* next;
  uint32_t* takers;

  __device__ WarpRows(RoutingShared& shared)
      : next(shared.counts[threadIdx.x / 32]), takers(shared.takers[threadIdx.x / 32]) {}

  __device__ void mark(int group) const {
    if (group >= 0) atomicOr(&takers[group], 1U << threadIdx.x % 32);
  }
  /// The row of a token in a group: behind those of the earlier lanes. -1 without a group.
  [[nodiscard]] __device__ int row(const Routing& of, int token, int group) const {
    if (group < 0) return -1;
    const int row = next[group] + __popc(takers[group] & ((1U << threadIdx.x % 32) - 1));
    *element_of<int32_t>(of.tokens, row, 0) = token - of.first_of_shard(token);
    return row;
  }
  __device__ void go_on(int group) const {
    const uint32_t all = group < 0 ? 0 : atomicExch(&takers[group], 0);
    if (all != 0) next[group] += __popc(all);
  }
};

/// One warp: the rows of each lane's token in ascending order, -1 behind them, and their weights; at most kMost
/// entries.
template <int kMost>
__device__ __forceinline__ void place_token(const Routing& of, RoutingShared& shared, int token) {
  const WarpRows next(shared);
  const int slots = of.slots();
  int groups[kMost];
  uint32_t rows[kMost];  // -1 is the largest
  float shares[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    shares[i] = i < slots && token >= 0 ? of.weight(token, i) : 0;
    groups[i] = i < slots ? group_of_entry(of, shared, token, i) : kNoGroup;
    next.mark(groups[i]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMost; ++i) rows[i] = static_cast<uint32_t>(next.row(of, token, groups[i]));
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMost; ++i) next.go_on(groups[i]);
  __syncwarp();
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
    if (i >= slots || token < 0) break;
    *element_of<int32_t>(of.places, token, i) = static_cast<int32_t>(rows[i]);
    *element_of<float>(of.shares, token, i) = rows[i] == ~0U ? 0 : shares[i];
  }
}

/// The same for any number of entries, in memory.
__device__ inline void place_long_token(const Routing& of, RoutingShared& shared, int token) {
  int32_t* places = element_of<int32_t>(of.places, max(token, 0), 0);
  auto* shares = element_of<float>(of.shares, max(token, 0), 0);
  const WarpRows next(shared);
  const int slots = of.slots();
#pragma unroll 1
  for (int i = 0; i < slots; ++i) next.mark(group_of_entry(of, shared, token, i));
  __syncwarp();
  int sorted = 0;
#pragma unroll 1
  for (int i = 0; i < slots; ++i) {
    const int row = next.row(of, token, group_of_entry(of, shared, token, i));
    if (row < 0) continue;
    int at = sorted++;
    for (; at > 0 && places[at - 1] > row; --at) {
      places[at] = places[at - 1];
      shares[at] = shares[at - 1];
    }
    places[at] = row;
    shares[at] = of.weight(token, i);
  }
#pragma unroll 1
  for (; sorted < slots && token >= 0; ++sorted) {
    places[sorted] = -1;
    shares[sorted] = 0;
  }
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < slots; ++i) next.go_on(group_of_entry(of, shared, token, i));
  __syncwarp();
}

}  // namespace tilewire::cuda
