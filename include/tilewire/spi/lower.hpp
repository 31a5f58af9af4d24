// Lowering: named passes that make a plan fast on a target. Each pass is a file in src/lower; the
// table is src/lower/lower.cpp. Called by make_op, backends, the command line and tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// The facts about the ranks' machines that passes need.
struct Target {
  std::string name{};              ///< "host", "h200x4"
  int ranks = 0;                   ///< 0 = any number
  int sms = 0;                     ///< SMs of each GPU that a rank may use; 0 = ranks are not GPUs
  std::vector<int> cluster_sms{};  ///< [n]: SMs that clusters of n CTAs can fill, GPC by GPC; empty = all
  int copy_engines = 0;            ///< of each GPU
  bool streams = false;            ///< streams may wait for kernels: false if ranks share a GPU
  /// `sms` are all SMs of each GPU. If other kernels use the rest (JoinOptions::sms), lowering forms no clusters, whose
  /// CTAs need neighbouring SMs, and starts no helper CTAs.
  bool whole_gpu = true;
  int64_t least_engine_copy = 512 << 10;  ///< least average bytes of copies between GPUs that are worth a copy engine
  int64_t least_local_copy = 4096 << 10;  ///< the same for copies within one GPU

  bool operator==(const Target&) const = default;
};

/// SMs on which clusters of `ctas` CTAs can be resident together. NOTE: clusters of more than two CTAs leave SMs of a
/// GPC idle. If ranks share a GPU, only clusters of two are sure to fit beside the other ranks' CTAs, and only if each
/// rank has an even number of SMs.
[[nodiscard]] int sms_for_clusters(const Target& target, int ctas);
/// The presets: the host, and machines with one to eight GPUs of a kind.
[[nodiscard]] std::span<const Target> targets();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Target& find_target(const std::string& name);
/// The target of CPU ranks.
[[nodiscard]] Target host_target();
/// The target of `ranks` GPUs of a kind, one per rank.
[[nodiscard]] Target gpu_target(const std::string& kind, int ranks, int sms);
/// The team of ranks on the target's machines.
[[nodiscard]] Team team_of(const Target& target, int num_ranks);

/// One row of a target's table of passes.
struct Pass {
  const char* name;
  /// Change the plan. Return a text: the change, or the reason for no change.
  std::string (*run)(Plan& plan, const Target& target);
};

/// In the order in which they run.
[[nodiscard]] std::span<const Pass> passes_of(const Target& target);

/// The text of one pass.
struct PassNote {
  std::string pass{};
  std::string text{};

  bool operator==(const PassNote&) const = default;
};

struct Lowered {
  Plan plan{};
  std::vector<PassNote> notes{};  ///< one for each pass that ran
};

/// Run all passes of the target, or all up to `after`. Throws Error(invalid_input) for an unknown pass, a plan that is
/// already lowered, or a plan for another number of ranks.
[[nodiscard]] Lowered lower(Plan plan, const Target& target, const std::string& after = {});

/// Throw Error(invalid_input) unless the plan is lowered for the target.
void require_target(const Plan& plan, const Target& target);

}  // namespace tilewire
