// Finds the steps of a sweep in which the machine gets better and a row slower.
// Called by sweep_verb.cpp.
#include "studies/anomalies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/json_text.hpp"

namespace tilewire::cli {
namespace {

constexpr size_t kMostLines = 5;
constexpr double kRounding = 1e-6;  // relative to a time: the clock counts picoseconds

// 1: a larger value is better; -1: a smaller one. Other keys depend on the plan, or on each other.
const std::map<std::string, int> kBetter{
    {"compute.units", 1},
    {"compute.clock_GHz", 1},
    {"compute.flops_per_clock_per_unit", 1},
    {"compute.fp32_speed", 1},
    {"compute.tf32_speed", 1},
    {"compute.efficiency", 1},
    {"compute.tile_ns", -1},
    {"memory.bandwidth_GBps", 1},
    {"memory.unit_bandwidth_GBps", 1},
    {"memory.cache_MiB", 1},
    {"controller.clock_GHz", 1},
    {"controller.bank_groups", 1},
    {"controller.column_clocks", -1},
    {"controller.update_clocks", -1},
    {"controller.queue", 1},
    {"controller.latency_ns", -1},
    {"copy.engines", 1},
    {"copy.issue_ns", -1},
    {"copy.doorbell_ns", -1},
    {"links.bandwidth_GBps", 1},
    {"links.latency_ns", -1},
    {"links.store_efficiency", 1},
    {"links.unit_bandwidth_GBps", 1},
    {"links.add_efficiency", 1},
    {"links.meeting_efficiency", 1},
    {"links.between_bandwidth_GBps", 1},
    {"links.between_latency_ns", -1},
    {"overheads.launch_ns", -1},
    {"overheads.signal_ns", -1},
    {"overheads.library_ns", -1},
    {"overheads.library_efficiency", 1},
    {"overheads.collective_ns", -1},
    {"overheads.collective_efficiency", 1},
};

// The larger, the better. NOTE: 0 means no limit for the bandwidth of one unit.
double goodness(const std::string& key, double value) {
  if (key.ends_with(".unit_bandwidth_GBps") && value == 0) return std::numeric_limits<double>::infinity();
  return value * better_direction(key);
}

// The fields that identify a row, without its settings.
nlohmann::json identity_of(const nlohmann::json& row) {
  nlohmann::json identity;
  for (const char* field :
       {"plan", "operator", "m", "n", "k", "schedule", "name", "collective", "algorithm", "bytes"}) {
    if (row.contains(field)) identity[field] = row[field];
  }
  return identity;
}

std::string words_of(const nlohmann::json& slower) {
  std::string words;
  const auto add = [&](const char* field) {
    if (!slower.contains(field)) return;
    const nlohmann::json& value = slower[field];
    if (!words.empty()) words += " ";
    words += plain_text(value);
  };
  for (const char* field : {"plan", "operator", "m", "n", "k", "collective", "algorithm", "bytes"}) add(field);
  add(slower.contains("name") ? "name" : "schedule");
  for (const auto& [key, value] : slower["settings"].items()) {
    words += fmt::format(", {} = {}", key, value.get<double>());
  }
  return words;
}

struct Point {
  double value = 0;
  double ns = 0;
};
using Line = std::map<double, Point>;  // by the goodness of a value

// Lines of rows that differ only in `key`.
std::map<std::string, Line> lines_along(const std::string& key, const nlohmann::json& rows) {
  std::map<std::string, Line> lines;
  for (const nlohmann::json& row : rows) {
    const auto settings = row.find("settings");
    if (settings == row.end() || !settings->contains(key)) continue;
    nlohmann::json same = identity_of(row);
    same["settings"] = *settings;
    same["settings"].erase(key);
    const double value = (*settings)[key];
    lines[json_text(same)][goodness(key, value)] = {.value = value, .ns = row["total_ns"]};
  }
  return lines;
}

}  // namespace

int better_direction(const std::string& key) {
  const auto found = kBetter.find(key);
  return found == kBetter.end() ? 0 : found->second;
}

nlohmann::json anomalies_of(const nlohmann::json& rows) {
  size_t steps = 0;
  std::vector<nlohmann::json> slower;
  for (const auto& [key, direction] : kBetter) {
    for (const auto& [same, line] : lines_along(key, rows)) {
      const Point* before = nullptr;
      for (const auto& [unused, point] : line) {
        const Point* from = std::exchange(before, &point);
        if (from == nullptr) continue;
        ++steps;
        if (point.ns <= from->ns * (1 + kRounding)) continue;
        nlohmann::json each = parse_json(same, "a row");
        each.update({{"key", key},
                     {"from", from->value},
                     {"to", point.value},
                     {"from_ns", from->ns},
                     {"to_ns", point.ns},
                     {"slower", point.ns / from->ns - 1}});
        slower.push_back(std::move(each));
      }
    }
  }
  std::ranges::stable_sort(slower, [](const nlohmann::json& a, const nlohmann::json& b) {
    return a["slower"].get<double>() > b["slower"].get<double>();
  });
  return {{"steps", steps}, {"slower", slower}};
}

std::string anomalies_text(const nlohmann::json& anomalies) {
  const nlohmann::json& slower = anomalies["slower"];
  if (anomalies["steps"] == 0) return "";
  std::string text = fmt::format("\n{} of {} steps to a better value made a row slower{}\n", slower.size(),
                                 anomalies["steps"].get<size_t>(), slower.empty() ? "" : ", the worst first:");
  for (size_t i = 0; i < std::min(slower.size(), kMostLines); ++i) {
    const nlohmann::json& each = slower[i];
    text += fmt::format("  {:+.2f} %: {} from {} to {}, {:.1f} to {:.1f} us: {}\n", 100 * each["slower"].get<double>(),
                        each["key"].get<std::string>(), each["from"].get<double>(), each["to"].get<double>(),
                        each["from_ns"].get<double>() * 1e-3, each["to_ns"].get<double>() * 1e-3, words_of(each));
  }
  if (slower.size() > kMostLines) text += fmt::format("  and {} more\n", slower.size() - kMostLines);
  return text;
}

}  // namespace tilewire::cli
