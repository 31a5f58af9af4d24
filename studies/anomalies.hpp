// Finds the steps of a sweep in which the machine gets better and a row slower.
// Used by sweep_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewire::cli {

/// Which direction of a machine's key is better: 1 = larger values, -1 = smaller ones, 0 = it depends.
[[nodiscard]] int better_direction(const std::string& key);

/// Of the rows of a sweep: {"steps": N, "slower": [...]}. A step goes from one value of a key with a known direction to
/// the next better value; everything else is equal. "slower" lists the steps that made a row slower, worst first.
[[nodiscard]] nlohmann::json anomalies_of(const nlohmann::json& rows);
/// The number of these, and the worst of them; empty if there were no steps.
[[nodiscard]] std::string anomalies_text(const nlohmann::json& anomalies);

}  // namespace tilewire::cli
