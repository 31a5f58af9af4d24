// The expected order of T3's configurations.
// Called by t3_verb.cpp.
#include "studies/t3_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tilewire::cli {
namespace {

constexpr double kRounding = 1e-6;

}  // namespace

nlohmann::json out_of_order(std::span<const T3Row> rows) {
  std::vector<nlohmann::json> broken;
  for (const T3Row& row : rows) {
    const T3Speedups speedups = speedups_of(row.times);
    const std::array<std::pair<const char*, double>, 4> order{
        {{"Sequential", 1}, {"T3", speedups.t3}, {"T3-MCA", speedups.t3_mca}, {"Ideal-RS+NMC", speedups.ideal_near}}};
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const auto& [slower, slow] = order[i];
      const auto& [faster, fast] = order[i + 1];
      if (slow <= fast * (1 + kRounding)) continue;
      broken.push_back({{"model", row.layer.model},
                        {"tp", row.layer.tp},
                        {"layer", short_name(row.layer.kind)},
                        {"slower", slower},
                        {"faster", faster},
                        {"by", slow / fast - 1}});
    }
  }
  std::ranges::stable_sort(broken, [](const nlohmann::json& a, const nlohmann::json& b) {
    return a["by"].get<double>() > b["by"].get<double>();
  });
  return broken;
}

std::string order_text(const nlohmann::json& broken, size_t num_rows) {
  std::string text = fmt::format("order Sequential < T3 <= T3-MCA <= Ideal-RS+NMC: {}\n",
                                 broken.empty() ? fmt::format("holds in all of {} rows", num_rows)
                                                : fmt::format("broken {} times in {} rows", broken.size(), num_rows));
  for (const nlohmann::json& each : broken) {
    text += fmt::format("  {} TP {} {}: {} is {:.2f} % faster than {}\n", each["model"].get<std::string>(),
                        each["tp"].get<int>(), each["layer"].get<std::string>(), each["slower"].get<std::string>(),
                        100 * each["by"].get<double>(), each["faster"].get<std::string>());
  }
  return text;
}

}  // namespace tilewire::cli
