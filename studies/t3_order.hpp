// The order that T3's configurations should have: Sequential < T3 <= T3-MCA <= Ideal-RS+NMC.
// Used by t3_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "studies/t3_results.hpp"

namespace tilewire::cli {

/// The rows in which two neighbours of that order are the wrong way round: [{"model", "tp", "layer", "slower",
/// "faster", "by"}], the largest first. "slower" ought to be, but is faster by that share.
[[nodiscard]] nlohmann::json out_of_order(std::span<const T3Row> rows);
/// The same in words, a line for each.
[[nodiscard]] std::string order_text(const nlohmann::json& broken, size_t num_rows);

}  // namespace tilewire::cli
