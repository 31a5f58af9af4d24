// The groups of a rank as routing on the device looks them up.
// Made by programs; read by route_op.cuh.
#pragma once

#include <cstdint>

namespace tilewire::cuda {

/// Most groups that a rank routes tokens to (of all shards), and most experts of all ranks, shared ones among them.
inline constexpr int kMostRoutedGroups = 512;
inline constexpr int kMostRoutedExperts = 4096;

/// Where the CTAs that route meet, in device memory, zero at first.
struct RouteMeeting {
  uint64_t come = 0;  ///< CTAs, over all calls
  uint64_t bad = 0;   ///< epoch + 1 of the call whose tokens have a wrong expert
};

/// A group that takes the tokens t of its expert with t % replicas == replica; of a shared expert, those of part
/// `replica` of `replicas` equal parts of all tokens.
struct RouteGroup {
  int32_t group = 0;
  int32_t replica = 0;
  int32_t replicas = 1;
};

/// All groups of a rank: those of expert e are groups[first[e]] to groups[first[e + 1] - 1]. Then each group of a
/// shared expert, with a number of its own behind those of the experts.
struct RouteTable {
  const RouteGroup* groups = nullptr;
  const int32_t* first = nullptr;
  int32_t experts = 0;
  int32_t num_groups = 0;     ///< of a shard
  int32_t align = 1;          ///< groups begin at multiples of so many rows
  int32_t shards = 1;         ///< of the tokens; each has groups of its own
  int32_t shared = 0;         ///< groups of shared experts
  int32_t max_rows = 0;       ///< most rows of experts that are not shared; 0: any number
  bool drops = false;         ///< more rows are dropped and counted
  int32_t* counts = nullptr;  ///< rows of each CTA's tokens in the groups of all shards
  RouteMeeting* meeting = nullptr;
};

}  // namespace tilewire::cuda
