// A paper's figure and the simulated one: the arithmetic that the tables of all papers share.
// Called by t3_claims, flux_claims, ficco_claims, distfuse_claims, claims_table and tests.
#include "studies/claims.hpp"

#include <algorithm>
#include <limits>

#include "cli/geometric_mean.hpp"

namespace tilewire::cli {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::optional<bool> ClaimResult::holds() const {
  if (relation == ClaimRelation::about || relation == ClaimRelation::none) return std::nullopt;
  return relation == ClaimRelation::above ? ours > paper : ours < paper;
}

double average(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double geomean(std::span<const double> values) { return values.empty() ? kNone : geometric_mean(values); }
double most(std::span<const double> values) { return values.empty() ? kNone : std::ranges::max(values); }
double least(std::span<const double> values) { return values.empty() ? kNone : std::ranges::min(values); }
double gain(double ratio) { return 100 * (ratio - 1); }
double loss(double ratio) { return 100 * (1 - ratio); }

}  // namespace tilewire::cli
