// Finds out whether ranks share nothing but LL data.
// Called by elide_signals.cpp and double_buffer.cpp.
#include "lower/ll_alone.hpp"

#include <algorithm>

#include "core/gemm_tasks.hpp"

namespace tilewire::lowering {

bool shares_ll_data_alone(const Plan& plan) {
  const auto is_plain = [&](int rank, const Region& region) {
    const Buffer& buffer = plan.buffers[region.buffer];
    const bool callers = buffer.scope == Scope::input || buffer.scope == Scope::output;
    return !buffer.ll && (!callers || region.rank != rank);
  };
  return std::ranges::none_of(plan.lanes, [&](const Lane& lane) {
    const auto plain = [&](const Region& region) { return is_plain(lane.rank, region); };
    const auto reads_plain = [&](const Region& region) {
      return plain(region) || plan.buffers[region.buffer].scope == Scope::output;
    };
    return std::ranges::any_of(lane.tasks, [&](const Task& task) {
      return std::ranges::any_of(all_reads(task), reads_plain) || std::ranges::any_of(task.writes, plain, &Write::to) ||
             std::ranges::any_of(task.epilogue, [&](const EpilogueStep& s) { return s.operand && plain(*s.operand); });
    });
  });
}

}  // namespace tilewire::lowering
