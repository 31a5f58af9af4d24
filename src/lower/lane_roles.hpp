// Roles of lanes on GPUs: tiles on tensor cores, data lanes, stream lanes, sync-only lanes.
// Used by passes and by the cuda backend.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// SMs that worker CTAs leave to a library GEMM, which must make progress while they wait for it.
inline constexpr int kLeastForLibrary = 16;
/// Most sync-only lanes of a CTA, and number of warpgroups of a CTA that take tasks on their own.
inline constexpr int kHandshakesOfCta = 8;
inline constexpr int kWarpgroupsOfCta = 3;

/// Stages of a rank with a stream-ordered GEMM: a kernel (0), the call of the library, and a kernel. Or grouped GEMMs,
/// one kernel after another, instead of the call.
inline constexpr int kCallStage = 1;
inline constexpr int kStageAfterCall = 2;

/// Whether a lane has other tasks than waits and posts (a data lane).
[[nodiscard]] bool moves_data(const Lane& lane);

/// Whether a lane multiplies groups.
[[nodiscard]] bool has_groups(const Lane& lane);

/// Whether a task outside of `lane` waits for the signal.
[[nodiscard]] bool others_wait(const Plan& plan, const Lane& lane, const Signal& signal);

/// Whether streams execute a lane of a rank without stages.
[[nodiscard]] inline bool by_stream(const Lane& lane) {
  return lane.engine == Engine::copy || lane.engine == Engine::library;
}

/// Whether tensor cores make the tiles of a lane, if the rank has tiles on tensor cores at all.
[[nodiscard]] bool by_tensor_cores(const Lane& lane);

/// Whether a rank has lanes of several stages: a stream-ordered GEMM between two kernels.
[[nodiscard]] bool has_stages(const Plan& plan, int rank);

/// Whether a rank has a lane with its own kernel, besides the call's first kernel.
[[nodiscard]] bool has_several_kernels(const Plan& plan, int rank);

/// Whether a rank has a lane of library calls.
[[nodiscard]] bool has_library_lane(const Plan& plan, int rank);

/// Whether tensor cores make a rank's tiles, provided that rows of callers' tensors are aligned to 16 bytes: the rank
/// has no stages, and tensor copies can load all reads of its tiles.
[[nodiscard]] bool uses_tensor_cores(const Plan& plan, int rank);

/// The CTAs of one cluster.
struct TileCluster {
  int m = 1;  ///< a pair: the tiles share loads of B (m = 2) or of A (n = 2)
  int n = 1;
  int split_k = 1;

  bool operator==(const TileCluster&) const = default;
};
[[nodiscard]] inline TileCluster cluster_of(const GemmParams& gemm) {
  return {gemm.cluster_m, gemm.cluster_n, gemm.cluster_split_k};
}
[[nodiscard]] inline int ctas_of(const TileCluster& cluster) { return cluster.m * cluster.n * cluster.split_k; }
/// The cluster of the rank's first tensor-core tile that has several CTAs.
[[nodiscard]] TileCluster cluster_of_tiles(const Plan& plan, int rank);

/// Whether all tasks of a lane wait for the same: the lane starts when all other work has ended.
[[nodiscard]] bool is_late(const Plan& plan, const Lane& lane);

/// Whether the library call of the next lane includes this sync-only lane: the kernel before the call does its tasks,
/// too.
[[nodiscard]] bool goes_with_call(const Plan& plan, size_t lane);

}  // namespace tilewire
