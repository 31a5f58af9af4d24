// Prints the rows of `tilewire sim`: operators as bench does, collectives, plans from files.
// Called by sim.cpp, and by sweep_verb.cpp and chakra_verb.cpp of studies/.
#include "cli/sim_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/bench_table.hpp"
#include "cli/counted.hpp"
#include "tilewire/json.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

constexpr size_t kLeastName = 11;

// The width of the column of a string field, over all rows.
size_t width_of(const std::vector<Simulated>& rows, const char* field, size_t least) {
  for (const Simulated& each : rows) {
    if (each.row.contains(field)) least = std::max(least, each.row[field].get<std::string>().size());
  }
  return least;
}

std::string collective_head() {
  return fmt::format("{:<15} {:<17} {:>5} {:>13} {:>14} {:>12}\n", "collective", "algorithm", "ranks", "bytes",
                     "total ns", "bytes / ns");
}

std::string collective_line(const nlohmann::json& row) {
  const auto bytes = row["bytes"].get<int64_t>();
  const auto ns = row["total_ns"].get<double>();
  return fmt::format("{:<15} {:<17} {:>5} {:>13} {:>14.1f} {:>12.2f}\n", row["collective"].get<std::string>(),
                     row["algorithm"].get<std::string>(), row["ranks"].get<int>(), bytes, ns,
                     ns > 0 ? static_cast<double>(bytes) / ns : 0.0);
}

std::string plan_head(size_t width) {
  return fmt::format("{:<{}} {:<20} {:<11} {:>6} {:>6} {:>6} {:>5} {:>11}\n", "plan", width, "operator", "schedule",
                     "m", "n", "k", "ranks", "total us");
}

std::string plan_line(const nlohmann::json& row, size_t width) {
  return fmt::format("{:<{}} {:<20} {:<11} {:>6} {:>6} {:>6} {:>5} {:>11.1f}\n", row["plan"].get<std::string>(), width,
                     row["operator"].get<std::string>(), row["schedule"].get<std::string>(), row["m"].get<int64_t>(),
                     row["n"].get<int64_t>(), row["k"].get<int64_t>(), row["ranks"].get<int>(),
                     row["total_us"].get<double>());
}

double megabytes(const nlohmann::json& bytes) { return bytes.get<double>() * 1e-6; }

std::string value_text(const nlohmann::json& row, const std::string& key) {
  return fmt::format("{}", row["settings"][key].get<double>());
}

// The meaning of the column "seq us"; if it differs between problems, their rows' JSON has it.
std::string sequential_text(const std::vector<Simulated>& rows) {
  std::set<std::string> kinds;
  for (const Simulated& each : rows) {
    if (each.sequential_configs == 0) continue;
    const auto config = each.row["sequential_config"].get<Config>();
    kinds.insert(fmt::format("fastest of {} ({})", counted(each.sequential_configs, "sequential config"),
                             tuner::describe(config)));
  }
  if (kinds.empty()) return "";
  const std::string which =
      kinds.size() == 1 ? *kinds.begin() : "fastest of each problem's sequential configs (--json: sequential_config)";
  return "seq us: " + which + ", sums in any order\n";
}

}  // namespace

std::string table_of(const std::vector<Simulated>& rows, const std::vector<std::string>& keys) {
  if (rows.empty()) return "";
  const bool plans = rows.front().row.contains("plan");
  const bool collectives = rows.front().row.contains("collective");
  const size_t width =
      plans ? width_of(rows, "plan", 4) : width_of(rows, "name", width_of(rows, "schedule", kLeastName));
  std::vector<size_t> widths;
  std::string text;
  for (const std::string& key : keys) {
    size_t widest = key.size();
    for (const Simulated& each : rows) widest = std::max(widest, value_text(each.row, key).size());
    widths.push_back(widest);
    text += fmt::format("{:>{}}  ", key, widest);
  }
  text += plans ? plan_head(width) : collectives ? collective_head() : table_head(true, width, false);
  for (const Simulated& each : rows) {
    for (size_t i = 0; i < keys.size(); ++i) text += fmt::format("{:>{}}  ", value_text(each.row, keys[i]), widths[i]);
    if (!each.refused.empty()) {
      text += fmt::format("{}{}\n", keys.empty() ? "  " : "", each.refused);
    } else {
      text += plans         ? plan_line(each.row, width)
              : collectives ? collective_line(each.row)
                            : table_line(each.row, width);
    }
  }
  return text + sequential_text(rows);
}

std::string loads_text(const nlohmann::json& row) {
  std::string text = fmt::format("  {:>6} {:>11} {:>11} {:>11} {:>8} {:>8}\n", "rank", "ends us", "read MB",
                                 "written MB", "memory", "units");
  for (size_t rank = 0; rank < row["rank_ns"].size(); ++rank) {
    const nlohmann::json& memory = row["memory"][rank];
    text += fmt::format("  {:>6} {:>11.1f} {:>11.3f} {:>11.3f} {:>6.1f} % {:>6.1f} %\n", rank,
                        row["rank_ns"][rank].get<double>() * 1e-3, megabytes(memory["read_bytes"]),
                        megabytes(memory["written_bytes"]), 100 * memory["busy"].get<double>(),
                        100 * row["units_busy"][rank].get<double>());
  }
  text += fmt::format("  {:>6} {:>6} {:>11} {:>8}\n", "from", "to", "link MB", "busy");
  for (const nlohmann::json& link : row["links"]) {
    text += fmt::format("  {:>6} {:>6} {:>11.3f} {:>6.1f} %\n", link["from"].get<int>(), link["to"].get<int>(),
                        megabytes(link["bytes"]), 100 * link["busy"].get<double>());
  }
  return text;
}

}  // namespace tilewire::cli
