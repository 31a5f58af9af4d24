// The values of sweeps, and their combinations.
// Called by sweep_verb.cpp.
#include "studies/sweep.hpp"

#include <cmath>
#include <sstream>

#include "cli/options.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

constexpr size_t kMostPoints = 100000;
constexpr const char* kWanted = "KEY=from:to:step or KEY=a,b,c";

double number(const std::string& sweep, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  require(!text.empty() && *end == '\0' && std::isfinite(value), "--sweep {}: '{}' is no number", sweep, text);
  return value;
}

std::vector<double> numbers(const std::string& sweep, const std::string& text, char separator) {
  std::vector<double> values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, separator);) values.push_back(number(sweep, part));
  return values;
}

// NOTE: the last value counts even if rounding makes it a little larger than `to`.
std::vector<double> range(const std::string& sweep, const std::string& text) {
  const std::vector<double> bounds = numbers(sweep, text, ':');
  require(bounds.size() == 3, "--sweep {}: want from:to:step", sweep);
  require(bounds[2] > 0, "--sweep {}: step {} is not above 0", sweep, bounds[2]);
  require(bounds[0] <= bounds[1], "--sweep {}: from {} is above to {}", sweep, bounds[0], bounds[1]);
  const double steps = std::floor((bounds[1] - bounds[0]) / bounds[2] + 1e-9);
  require(steps < kMostPoints, "--sweep {}: more than {} values", sweep, kMostPoints);
  std::vector<double> values;
  for (int i = 0; i <= static_cast<int>(steps); ++i)
    values.push_back(std::stod(fmt::format("{:.12g}", bounds[0] + i * bounds[2])));  // 1, not 0.9999999999999999
  return values;
}

}  // namespace

std::vector<std::string> swept_keys(const std::vector<std::string>& sweeps) {
  std::vector<std::string> keys;
  for (const std::string& sweep : sweeps) keys.push_back(key_and_value("--sweep", sweep, kWanted).first);
  return keys;
}

std::vector<SweepPoint> sweep_points(const Machine& machine, const std::vector<std::string>& sweeps) {
  std::vector<SweepPoint> points{{machine, {}}};
  for (const std::string& sweep : sweeps) {
    const auto [key, text] = key_and_value("--sweep", sweep, kWanted);
    require(key.find('.') != std::string::npos,
            "--sweep {}: {} is no value of a machine, which has a dot, as links.latency_ns; only those are swept",
            sweep, key);
    const std::vector<double> values =
        text.find(':') == std::string::npos ? numbers(sweep, text, ',') : range(sweep, text);
    require(!values.empty(), "--sweep {}: no values", sweep);
    require(!points.front().settings.contains(key), "--sweep {}: {} is swept twice", sweep, key);
    require(points.size() * values.size() <= kMostPoints, "--sweep: more than {} machines", kMostPoints);
    std::vector<SweepPoint> grid;
    for (const SweepPoint& point : points) {
      for (const double value : values) {
        SweepPoint& next = grid.emplace_back(point);
        set_value(next.machine, key, fmt::format("{}", value));
        next.settings[key] = value;
      }
    }
    points = std::move(grid);
  }
  // NOTE: validate only now, as values may depend on each other.
  for (const SweepPoint& point : points) validate(point.machine);
  return points;
}

}  // namespace tilewire::cli
