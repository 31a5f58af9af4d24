// The lines of the bench's table, from the rows of its JSON, and the meaning of its columns.
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

/// Prints tables. A table that cannot be printed gives an Error only in `finish`, so that files are still written.
class TablePrinter {
 public:
  void print(const std::string& text);
  /// Throws the first Error(invalid_input) of `print`.
  void finish() const;

 private:
  std::optional<Error> lost_;
};

/// The text below the help: columns and examples.
extern const char* const kBenchFooter;
/// `device`: with the columns that exist on devices only. `name_width`: of the column with the row's name. `verified`:
/// with the columns of results, which rows without "ok" do not have.
[[nodiscard]] std::string table_head(bool device, size_t name_width, bool verified = true);
/// The line of a row of the JSON (docs/bench_json.md).
[[nodiscard]] std::string table_line(const nlohmann::json& row, size_t name_width);

/// {operator, m, n, k}: the first fields of every row.
[[nodiscard]] nlohmann::json sizes_json(const Problem& problem);
/// The config with the schedule's name, even if that is the default.
[[nodiscard]] nlohmann::json config_json(const Config& config);

}  // namespace tilewire::cli
