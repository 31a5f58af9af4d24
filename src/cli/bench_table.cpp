// Lines of the bench's table, from the rows of its JSON.
// Called by bench.
#include "cli/bench_table.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tilewire::cli {

namespace {

std::string name_of(const nlohmann::json& row) {
  return row.contains("name") ? row["name"].get<std::string>() : row["schedule"].get<std::string>();
}

// What is known on devices only.
std::string limits_text(const nlohmann::json& row) {
  if (!row.contains("free_us")) return "";
  const auto text = [](const nlohmann::json& us) {
    return us.is_null() ? std::string("-") : fmt::format("{:.1f}", us.get<double>());
  };
  const double free = row["free_us"].is_null() ? 0 : row["free_us"].get<double>();
  const std::string ratio = free > 0 ? fmt::format("{:.2f}", row["total_us"].get<double>() / free) : "-";
  return fmt::format("{:>9} {:>9} {:>7} ", text(row["link_us"]), text(row["free_us"]), ratio);
}

}  // namespace

std::string table_head(bool device, size_t name_width) {
  const std::string limits = device ? fmt::format("{:>9} {:>9} {:>7} ", "link us", "free us", "/ free") : "";
  return fmt::format("{:<20} {:<{}} {:>6} {:>6} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8} {:>7} {}{:>9}  {}\n",
                     "operator", "schedule", name_width, "m", "n", "k", "total us", "gemm us", "comm us", "seq us",
                     "speedup", "overlap", limits, "error", "ok");
}

std::string table_line(const nlohmann::json& row, size_t name_width) {
  const double total = row["total_us"];
  const double sequential = row["sequential_us"];
  const double hidden = row["overlap"];
  const std::string overlap = std::isfinite(hidden) ? fmt::format("{:.2f}", hidden) : "-";
  const std::string error = row["rel_error"].is_number() ? fmt::format("{:.1e}", row["rel_error"].get<double>()) : "-";
  const std::string ok = row["ok"].is_null() ? "not verified" : row["ok"].get<bool>() ? "ok" : "WRONG";
  return fmt::format(
      "{:<20} {:<{}} {:>6} {:>6} {:>6} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>7.2f}x {:>7} "
      "{}{:>9}  {}\n",
      row["operator"].get<std::string>(), name_of(row), name_width, row["m"].get<int64_t>(), row["n"].get<int64_t>(),
      row["k"].get<int64_t>(), total, row["gemm_us"].get<double>(), row["comm_us"].get<double>(), sequential,
      total > 0 ? sequential / total : 1.0, overlap, limits_text(row), error, ok);
}

}  // namespace tilewire::cli
