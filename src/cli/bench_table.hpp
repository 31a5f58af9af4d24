// Lines of the bench's table, from the rows of its JSON, and what its columns mean.
// Used by bench and sim.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tilewire/config.hpp"
#include "tilewire/error.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::cli {

/// Prints tables; one that cannot be printed is an Error at the end only, so that files are written all the same.
class TablePrinter {
 public:
  void print(const std::string& text);
  /// Throws the first Error(invalid_input) of `print`.
  void finish() const;

 private:
  std::optional<Error> lost_;
};

/// Below the help: columns and examples.
extern const char* const kBenchFooter;
/// `device`: with the columns that are known on devices only. `name_width`: of the column that names the row.
/// `verified`: with the columns of results, which rows without "ok" do not have.
[[nodiscard]] std::string table_head(bool device, size_t name_width, bool verified = true);
/// A row of the JSON (docs/bench_json.md).
[[nodiscard]] std::string table_line(const nlohmann::json& row, size_t name_width);

/// {operator, m, n, k}, what every row begins with.
[[nodiscard]] nlohmann::json sizes_json(const Problem& problem);
/// The config with the schedule's name even where it has its default.
[[nodiscard]] nlohmann::json config_json(const Config& config);

}  // namespace tilewire::cli
