// Where a sweep's machine got better and a row slower.
// Used by sweep_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tilewire::cli {

/// Which values of a machine's key are better: 1 where more is, -1 where less is, 0 where it depends.
[[nodiscard]] int better_direction(const std::string& key);

/// Of the rows of a sweep: {"steps": N, "slower": [...]}. A step is from one value of a key whose better direction is
/// known to the next better one, all else the same; those that made a row slower are listed, worst first.
[[nodiscard]] nlohmann::json anomalies_of(const nlohmann::json& rows);
/// How many there are, and the worst of them; nothing where there were no steps.
[[nodiscard]] std::string anomalies_text(const nlohmann::json& anomalies);

}  // namespace tilewire::cli
