// Figures of papers beside ours, as text and as JSON.
// Used by claims_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "studies/claim_points.hpp"

namespace tilewire::cli {

/// A paper's rows, what is not covered, and what is assumed.
[[nodiscard]] std::string text_of(const PaperClaims& paper);
/// Append a paper to `claims` and `not_covered` of `result`.
void add_claims(nlohmann::json& result, const PaperClaims& paper);
/// What was simulated of a point, times in ns.
[[nodiscard]] nlohmann::json json_of(const PointTimes& times);

}  // namespace tilewire::cli
