// Compares a machine's rates, shares and times with usual values.
// Called by simulate.cpp.
#include "backends/sim/slow_values.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::sim {
namespace {

constexpr size_t kMost = 3;        // values in the text
constexpr double kFarSlower = 30;  // times slower than usual

struct Value {
  std::string key;
  double value;
  double slower;  ///< times slower than usual
};

// The usual value of a rate or share, by the end of its key; nothing for sizes and counts.
std::optional<double> usual_of(const std::string& key) {
  static const std::pair<std::string, double> kUsual[] = {
      {"memory.bandwidth_GBps", 1000},    {"unit_bandwidth_GBps", 10}, {"_GBps", 100},   {"_GHz", 1},
      {"flops_per_clock_per_unit", 1000}, {"efficiency", 1},           {"32_speed", 0.5}};
  for (const auto& [end, usual] : kUsual) {
    if (key.ends_with(end)) return usual;
  }
  return std::nullopt;
}

// NOTE: a rate of 0 means no limit, or that the machine has no such part.
void add(std::vector<Value>& values, const std::string& key, const nlohmann::json& number) {
  constexpr double kUsualNs = 1000;
  const auto value = number.get<double>();
  const std::optional<double> usual = usual_of(key);
  if (key.ends_with("_ns")) values.push_back({key, value, value / kUsualNs});
  if (usual && value > 0) values.push_back({key, value, *usual / value});
}

std::vector<Value> values_of(const Machine& machine) {
  std::vector<Value> values;
  const nlohmann::json parts = machine;
  for (const auto& [part, keys] : parts.items()) {
    if (!keys.is_object()) continue;
    for (const auto& [key, value] : keys.items()) {
      if (value.is_number()) add(values, part + "." + key, value);
    }
  }
  for (const auto& [shape, share] : machine.compute.tile_efficiency)
    values.push_back({"compute.tile_efficiency." + shape, share, 1 / share});
  return values;
}

}  // namespace

std::string slowest_values(const Machine& machine) {
  std::vector<Value> values = values_of(machine);
  std::ranges::stable_sort(values, std::greater<>(), &Value::slower);
  std::string text;
  for (size_t i = 0; i < kMost && (i == 0 || values[i].slower > kFarSlower); ++i)
    text += fmt::format("{}{} = {}", i == 0 ? "" : ", ", values[i].key, values[i].value);
  return text;
}

}  // namespace tilewire::sim
