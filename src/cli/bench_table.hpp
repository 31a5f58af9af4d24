// Lines of the bench's table, from the rows of its JSON, and what its columns mean.
// Used by bench.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace tilewire::cli {

/// Below the help: columns and examples.
extern const char* const kBenchFooter;
/// `device`: with the columns that are known on devices only. `name_width`: of the column that names the row.
[[nodiscard]] std::string table_head(bool device, size_t name_width);
/// A row of the JSON (docs/bench_json.md).
[[nodiscard]] std::string table_line(const nlohmann::json& row, size_t name_width);

}  // namespace tilewire::cli
