// The expected order of T3's configurations: Sequential < T3 <= T3-MCA <= Ideal-RS+NMC.
// Used by t3_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "studies/t3_results.hpp"

namespace tilewire::cli {

/// The rows in which two neighbours of that order are swapped: [{"model", "tp", "layer", "slower", "faster", "by"}],
/// the largest first. "slower" should be slower, but is faster by the share "by".
[[nodiscard]] nlohmann::json out_of_order(std::span<const T3Row> rows);
/// The same as text, one line for each.
[[nodiscard]] std::string order_text(const nlohmann::json& broken, size_t num_rows);

}  // namespace tilewire::cli
