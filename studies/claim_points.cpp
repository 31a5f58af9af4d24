// The shapes of papers' figures: what is simulated of them, and the table of papers.
// Called by flux_claims, ficco_claims, distfuse_claims, claims_verb.cpp and tests.
#include "studies/claim_points.hpp"

#include "core/text.hpp"

namespace tilewire::cli {

double PointTimes::of(const std::string& entry) const {
  const auto found = ns.find(entry);
  ensure(found != ns.end(), "{} {} {}x{}x{}: '{}' was not simulated", point.machine, point.op, point.m, point.n,
         point.k, entry);
  return found->second;
}

ClaimEntry kernel_entry() { return {.name = kKernel, .plan = ClaimPlan::fastest_kernel}; }

ClaimEntry entry(const std::string& name, const std::string& schedule, std::vector<std::string> set) {
  return {.name = name, .schedule = schedule, .set = std::move(set)};
}

const std::vector<PointPaper>& point_papers() {
  static const std::vector<PointPaper> papers{{"flux", flux_points, flux_claims},
                                              {"ficco", ficco_points, ficco_claims},
                                              {"distfuse", distfuse_points, distfuse_claims},
                                              {"fused_collectives", fused_points, fused_claims}};
  return papers;
}

}  // namespace tilewire::cli
