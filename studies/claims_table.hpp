// Papers' figures and simulated ones side by side, as text and as JSON.
// Used by claims_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "studies/claim_points.hpp"

namespace tilewire::cli {

/// A paper's rows, the claims that are not covered, and the assumptions.
[[nodiscard]] std::string text_of(const PaperClaims& paper);
/// Append a paper to `claims` and `not_covered` of `result`.
void add_claims(nlohmann::json& result, const PaperClaims& paper);
/// The simulated times of a point, in ns.
[[nodiscard]] nlohmann::json json_of(const PointTimes& times);

}  // namespace tilewire::cli
