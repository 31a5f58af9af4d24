// The table of passes of each target, and the function that runs them.
// Called by make_op, backends, the command line and tests.
#include "tilewire/spi/lower.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.hpp"
#include "lower/passes.hpp"

namespace tilewire {

std::span<const Pass> passes_of(const Target& target) {
  static constexpr std::array kGpu{
      Pass{"assign_engines", lowering::assign_engines}, Pass{"stage_experts", lowering::stage_experts},
      Pass{"reuse_memory", lowering::reuse_memory},     Pass{"part_slow_tiles", lowering::part_slow_tiles},
      Pass{"unpair_tiles", lowering::unpair_tiles},     Pass{"hint_caches", lowering::hint_caches},
      Pass{"defer_waits", lowering::defer_waits},       Pass{"fuse_sums", lowering::fuse_sums},
      Pass{"form_clusters", lowering::form_clusters},   Pass{"take_local_rows", lowering::take_local_rows},
      Pass{"choose_stores", lowering::choose_stores},   Pass{"stage_gemm_call", lowering::stage_gemm_call},
      Pass{"elide_signals", lowering::elide_signals},   Pass{"double_buffer", lowering::double_buffer},
      Pass{"join_sums", lowering::join_sums},           Pass{"sum_whole_rows", lowering::sum_whole_rows},
      Pass{"split_kernels", lowering::split_kernels},   Pass{"share_sms", lowering::share_sms},
  };
  return target.sms > 0 ? std::span<const Pass>(kGpu) : std::span<const Pass>();
}

Lowered lower(Plan plan, const Target& target, const std::string& after) {
  require(plan.target.empty(), "the plan is lowered for {} already", plan.target);
  require(target.ranks == 0 || target.ranks == plan.team.num_ranks, "target {} has {} ranks, the plan is for {}",
          target.name, target.ranks, plan.team.num_ranks);
  std::string names;
  for (const Pass& pass : passes_of(target)) names += (names.empty() ? "" : ", ") + std::string(pass.name);
  const auto passes = passes_of(target);
  require(after.empty() || std::ranges::any_of(passes, [&](const Pass& pass) { return after == pass.name; }),
          "target {} has no pass '{}'; it has: {}", target.name, after, names.empty() ? "none" : names);
  Lowered lowered{std::move(plan), {}};
  lowered.plan.target = target.name;
  for (const Pass& pass : passes) {
    lowered.notes.push_back({pass.name, pass.run(lowered.plan, target)});
    if (after == pass.name) break;
  }
  return lowered;
}

void require_target(const Plan& plan, const Target& target) {
  require(plan.target == target.name, "the plan is lowered for {}, and this is {}", plan.target, target.name);
}

}  // namespace tilewire
