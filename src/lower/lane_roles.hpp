// What a lane is on GPUs: tiles for tensor cores, CTAs that move data, work of a stream, or handshakes alone.
// Used by passes and by the cuda backend.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// SMs that worker CTAs leave to a GEMM of the library, which must get on while they wait for it.
inline constexpr int kLeastForLibrary = 16;
/// Lanes of handshakes that share a CTA, and warpgroups of a CTA that take tasks of their own, at most.
inline constexpr int kHandshakesOfCta = 8;
inline constexpr int kWarpgroupsOfCta = 3;

/// Whether a lane does more than to wait and post.
[[nodiscard]] bool moves_data(const Lane& lane);

/// Whether streams do what a lane does, where it is of no stage.
[[nodiscard]] inline bool by_stream(const Lane& lane) {
  return lane.engine == Engine::copy || lane.engine == Engine::library;
}

/// Whether tensor cores make a lane's tiles, where they make any.
[[nodiscard]] bool by_tensor_cores(const Lane& lane);

/// Whether a rank has lanes of several stages: its call of the library stands between two kernels.
[[nodiscard]] bool has_stages(const Plan& plan, int rank);

/// Whether a rank has a lane with a kernel of its own, beside the call's first one.
[[nodiscard]] bool has_several_kernels(const Plan& plan, int rank);

/// Whether a rank has a lane of library calls.
[[nodiscard]] bool has_library_lane(const Plan& plan, int rank);

/// Whether tensor cores make a rank's tiles if rows of callers' tensors begin at multiples of 16 bytes: no stages, and
/// tensor copies can load all that its tiles read.
[[nodiscard]] bool uses_tensor_cores(const Plan& plan, int rank);

/// CTAs that make tiles together.
struct TileCluster {
  int m = 1;  ///< of a pair: tiles that share loads of B, and of A
  int n = 1;
  int split_k = 1;

  bool operator==(const TileCluster&) const = default;
};
[[nodiscard]] inline TileCluster cluster_of(const GemmParams& gemm) {
  return {gemm.cluster_m, gemm.cluster_n, gemm.cluster_split_k};
}
[[nodiscard]] inline int ctas_of(const TileCluster& cluster) { return cluster.m * cluster.n * cluster.split_k; }
/// That of a rank's first tile for tensor cores that has one of several CTAs.
[[nodiscard]] TileCluster cluster_of_tiles(const Plan& plan, int rank);

/// Whether all that a lane does waits for the same: the end of everything else.
[[nodiscard]] bool is_late(const Plan& plan, const Lane& lane);

/// Whether a lane of handshakes goes with the call of the lane after it: the kernel before that call does both.
[[nodiscard]] bool goes_with_call(const Plan& plan, size_t lane);

}  // namespace tilewire
