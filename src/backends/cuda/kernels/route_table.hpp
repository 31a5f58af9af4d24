// The groups of a rank as routing on the device looks them up.
// Made by programs; read by route_op.cuh.
#pragma once

#include <cstdint>

namespace tilewire::cuda {

/// Most groups that a rank routes tokens to, and most experts of all ranks.
inline constexpr int kMostRoutedGroups = 512;
inline constexpr int kMostRoutedExperts = 4096;

/// A group that takes the tokens t of its expert with t % replicas == replica.
struct RouteGroup {
  int32_t group = 0;
  int32_t replica = 0;
  int32_t replicas = 1;
};

/// All groups of a rank: those of expert e are groups[first[e]] to groups[first[e + 1] - 1].
struct RouteTable {
  const RouteGroup* groups = nullptr;
  const int32_t* first = nullptr;
  int32_t experts = 0;
  int32_t num_groups = 0;
  int32_t align = 1;  ///< groups begin at multiples of so many rows
};

}  // namespace tilewire::cuda
