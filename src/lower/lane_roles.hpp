// What a lane is on GPUs: tiles for tensor cores, CTAs that move data, work of a stream, or handshakes alone.
// Used by passes and by the cuda backend.
#pragma once

#include "tilewire/plan.hpp"

namespace tilewire {

/// Lanes of handshakes that share a CTA, and warpgroups of a CTA that take tasks of their own, at most.
inline constexpr int kHandshakesOfCta = 8;
inline constexpr int kWarpgroupsOfCta = 3;

/// Whether a task makes a product.
[[nodiscard]] inline bool is_tile(const Task& task) {
  return task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call;
}

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

/// Whether a rank has a lane of library calls.
[[nodiscard]] bool has_library_lane(const Plan& plan, int rank);

/// Whether tensor cores make a rank's tiles if callers' tensors are dense and aligned to 16 bytes: no stages, and
/// tensor copies can load all that its tiles read.
[[nodiscard]] bool uses_tensor_cores(const Plan& plan, int rank);

/// Whether all that a lane does waits for the same: the end of everything else.
[[nodiscard]] bool is_late(const Plan& plan, const Lane& lane);

/// Whether a lane of handshakes goes with the call of the lane after it: the kernel before that call does both.
[[nodiscard]] bool goes_with_call(const Plan& plan, size_t lane);

}  // namespace tilewire
