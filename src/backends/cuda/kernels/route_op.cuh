// The op that routes tokens to the groups of a rank's experts.
// Used by expert_ops.cuh.
#pragma once

#include "backends/cuda/kernels/route_rows.cuh"

namespace tilewire::cuda {

__device__ inline void report_expert(const OpRecord& step, const Patience& patience, uint32_t what, int token,
                                     int expert) {
  report_failure(patience.watch, {.task = step.task,
                                  .wait = what,
                                  .wanted = static_cast<uint64_t>(token),
                                  .seen = static_cast<uint64_t>(static_cast<int64_t>(expert)),
                                  .epoch = patience.epoch});
}

/// One thread: whether the experts of a token exist, and none is there twice; else report it.
template <int kMost>
__device__ __forceinline__ bool has_good_experts(const Routing& of, int token, const OpRecord& step,
                                                 const Patience& patience) {
  int experts[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) experts[i] = i < of.top_k ? of.expert(token, i) : -1 - i;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    uint32_t wrong = i < of.top_k && (experts[i] < 0 || experts[i] >= of.groups.experts) ? kNoExpert : 0;
#pragma unroll
    for (int before = 0; before < i; ++before) wrong = experts[before] == experts[i] ? kTwiceAnExpert : wrong;
    if (wrong == 0) continue;
    report_expert(step, patience, wrong, token, experts[i]);
    return false;
  }
  return true;
}

/// The same for any number of experts.
__device__ inline bool has_many_good_experts(const Routing& of, int token, const OpRecord& step,
                                             const Patience& patience) {
#pragma unroll 1
  for (int i = 0; i < of.top_k; ++i) {
    const int expert = of.expert(token, i);
    uint32_t wrong = expert < 0 || expert >= of.groups.experts ? kNoExpert : 0;
#pragma unroll 4
    for (int before = 0; before < i; ++before) wrong = of.expert(token, before) == expert ? kTwiceAnExpert : wrong;
    if (wrong == 0) continue;
    report_expert(step, patience, wrong, token, expert);
    return false;
  }
  return true;
}

/// Make the groups of a rank: count each warp's tokens in each group, place the groups, then the tokens. Several CTAs
/// tell each other their counts.
__device__ __noinline__ void route_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                      Patience& patience) {
  extern __shared__ __align__(16) uint8_t routing_shared[];
  auto& shared = *reinterpret_cast<RoutingShared*>(routing_shared);
  const Routing of = routing_of(table, step, slice);
  if (of.cta >= of.ctas) return;
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  look_up_groups(of, shared);
  __syncthreads();
  int beyond = 0;
  if (of.groups.max_rows > 0) {
    beyond = max(0, bound_rows(of, shared) - of.groups.max_rows);
    __syncthreads();
  }
  constexpr int kFew = 8;  // entries in registers
  const bool few = of.slots() <= kFew;
  bool good = true;
  for_each_token(of, [&](int token) {
    if (token < 0) return;
    good =
        (few ? has_good_experts<kFew>(of, token, step, patience) : has_many_good_experts(of, token, step, patience)) &&
        good;
#pragma unroll 4
    for (int i = 0; i < of.slots(); ++i) {
      const int group = group_of_entry(of, shared, token, i);
      if (group >= 0) atomicAdd(&shared.counts[warp][group], 1);
    }
  });
  good = __syncthreads_and(good) != 0;
  if (good && beyond > 0 && !of.groups.drops) {
    if (threadIdx.x == 0) report_expert(step, patience, kTooManyRows, of.groups.max_rows, of.groups.max_rows + beyond);
    good = false;
  }
  if (of.ctas > 1) good = meet_ctas(of, shared, good, patience);
  // NOTE: only a token with an expert twice may have more rows than there is room for.
  if (!good) {
    patience.over = true;
    return;
  }
  if (threadIdx.x == 0 && of.dropped != nullptr) *element_of<int32_t>(*of.dropped, 0, 0) = beyond;
  of.ctas > 1 ? place_groups(of, shared, [&](int group) { return rows_of_ctas(of, group); })
              : place_groups(of, shared, [&](int group) { return make_int2(rows_of_warps(shared, group), 0); });
  for_each_token(of,
                 [&](int token) { few ? place_token<kFew>(of, shared, token) : place_long_token(of, shared, token); });
}

}  // namespace tilewire::cuda
