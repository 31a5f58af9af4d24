// Lowering: what makes a plan fast on a target, as named passes from plan to plan. One file each in src/lower; the
// table is src/lower/lower.cpp. Called by make_op, backends, the command line and tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// What a plan is lowered for: the ranks' machines, as passes see them.
struct Target {
  std::string name{};              ///< "host", "h200x4"
  int ranks = 0;                   ///< 0 = any number
  int sms = 0;                     ///< of each GPU that a rank may use; 0 = ranks are no GPUs
  std::vector<int> cluster_sms{};  ///< [n]: SMs for clusters of n CTAs, where GPCs have a rest; empty = all
  int copy_engines = 0;            ///< of each GPU
  bool streams = false;            ///< streams may wait for kernels: not where ranks share a GPU
  /// Those are all SMs of each GPU. Where others' kernels have the rest (JoinOptions::sms), no clusters are formed,
  /// whose CTAs need neighbouring SMs, and no CTAs begin beside those that the SMs are for.
  bool whole_gpu = true;
  int64_t least_engine_copy = 512 << 10;  ///< bytes of copies between GPUs that are worth a copy engine, on average
  int64_t least_local_copy = 4096 << 10;  ///< and within one

  bool operator==(const Target&) const = default;
};

/// SMs on which clusters of so many CTAs can be resident together. NOTE: clusters of more than two leave SMs of a GPC
/// idle. Where ranks share a GPU, pairs alone are sure to find room beside those of the others, and only where each
/// rank has an even share.
[[nodiscard]] int sms_for_clusters(const Target& target, int ctas);
/// The known ones: the host, and machines with one to eight GPUs of a kind.
[[nodiscard]] std::span<const Target> targets();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Target& find_target(const std::string& name);
/// The host's.
[[nodiscard]] Target host_target();
/// So many GPUs of a kind, one for each rank.
[[nodiscard]] Target gpu_target(const std::string& kind, int ranks, int sms);
/// A team of the target's machines.
[[nodiscard]] Team team_of(const Target& target, int num_ranks);

/// One row of a target's table of passes.
struct Pass {
  const char* name;
  /// Change the plan, and say what changed, or why nothing did.
  std::string (*run)(Plan& plan, const Target& target);
};

/// In the order in which they run.
[[nodiscard]] std::span<const Pass> passes_of(const Target& target);

/// What a pass did.
struct PassNote {
  std::string pass{};
  std::string text{};

  bool operator==(const PassNote&) const = default;
};

struct Lowered {
  Plan plan{};
  std::vector<PassNote> notes{};  ///< one for each pass that ran
};

/// Run all passes of the target, or those up to `after`. Throws Error(invalid_input) for a pass that the target has
/// not, a plan that is lowered already, and a plan for another number of ranks.
[[nodiscard]] Lowered lower(Plan plan, const Target& target, const std::string& after = {});

/// Throw Error(invalid_input) unless the plan is lowered for the target.
void require_target(const Plan& plan, const Target& target);

}  // namespace tilewire
