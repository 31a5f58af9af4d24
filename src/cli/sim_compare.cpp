// Simulates rows of a bench's JSON with the configs of their measurements.
// Called by sim.
#include "cli/sim_compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/counted.hpp"
#include "cli/flag_files.hpp"
#include "cli/geometric_mean.hpp"
#include "cli/options.hpp"
#include "cli/sim_rows.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::cli {
namespace {

// Relative errors, averaged so that a factor of two counts the same in both directions.
struct Errors {
  std::vector<double> ratios{};  // above 1

  void add(double predicted, double measured) {
    if (!(predicted > 0 && measured > 0)) return;
    ratios.push_back(std::max(predicted / measured, measured / predicted));
  }
  [[nodiscard]] double mean() const { return ratios.empty() ? 0 : geometric_mean(ratios) - 1; }
};

Problem problem_of_row(const nlohmann::json& row) {
  Problem problem{.op = row.at("operator").get<std::string>(),
                  .m = row.at("m").get<int64_t>(),
                  .n = row.at("n").get<int64_t>(),
                  .k = row.at("k").get<int64_t>()};
  problem.dtype = parse<DType>(row.value("dtype", "bf16"), "dtype");
  problem.reduction = Reduction::any;
  return problem;
}

// The row with the predictions.
nlohmann::json predicted(const nlohmann::json& row, const Machine& machine) {
  for (const char* key : {"operator", "m", "n", "k", "ranks", "config", "total_us"})
    require(row.is_object() && row.contains(key), "no '{}': want rows of `tilewire bench --json`", key);
  const Problem problem = problem_of_row(row);
  const Team team = tilewire::team_of(machine, row.at("ranks").get<int>());
  const Plan plan = make_plan(problem, team, row.at("config").get<Config>());
  nlohmann::json both = {{"operator", problem.op}, {"m", problem.m},          {"n", problem.n},
                         {"k", problem.k},         {"ranks", team.num_ranks}, {"config", row["config"]}};
  both["measured_us"] = row.at("total_us");
  both["predicted_us"] = ns_of(plan, machine) * 1e-3;
  const auto measured = [&](const char* field) {
    return row.contains(field) && row[field].is_number() ? row[field].get<double>() : 0.0;
  };
  // As a bench measures: the faster GEMM, by tiles or by the library, and the fastest collective.
  const Yardsticks alone = yardsticks_of(problem, team, machine, true);
  both["measured_gemm_us"] = measured("gemm_us");
  both["predicted_gemm_us"] = std::isfinite(alone.gemm_ns) ? alone.gemm_ns * 1e-3 : 0.0;
  both["measured_comm_us"] = measured("comm_us");
  both["predicted_comm_us"] = alone.comm_ns * 1e-3;
  return both;
}

std::string line(const nlohmann::json& row) {
  const double measured = row["measured_us"];
  const double predicted = row["predicted_us"];
  return fmt::format("{:<20} {:>6} {:>6} {:>6} {:>5} {:>11.1f} {:>12.1f} {:>7.2f} {:>11.1f} {:>12.1f}\n",
                     row["operator"].get<std::string>(), row["m"].get<int64_t>(), row["n"].get<int64_t>(),
                     row["k"].get<int64_t>(), row["ranks"].get<int>(), measured, predicted,
                     measured > 0 ? predicted / measured : 0.0, row["measured_gemm_us"].get<double>(),
                     row["predicted_gemm_us"].get<double>());
}

}  // namespace

void compare_with(const std::string& file, const Machine& machine, const std::string& json) {
  const auto bench = read_json(file);
  require(bench.is_object() && bench.contains("rows") && bench["rows"].is_array() && !bench["rows"].empty(),
          "{}: want a bench's JSON with rows", file);
  nlohmann::json result = {{"machine", machine}, {"rows", nlohmann::json::array()}};
  std::string text = fmt::format("{:<20} {:>6} {:>6} {:>6} {:>5} {:>11} {:>12} {:>7} {:>11} {:>12}\n", "operator", "m",
                                 "n", "k", "ranks", "measured us", "predicted us", "ratio", "gemm us", "predicted us");
  Errors all;
  std::map<std::string, Errors> by_operator;
  for (size_t i = 0; i < bench["rows"].size(); ++i) {
    try {
      const nlohmann::json row = predicted(bench["rows"][i], machine);
      all.add(row["predicted_us"], row["measured_us"]);
      by_operator[row["operator"]].add(row["predicted_us"], row["measured_us"]);
      text += line(row);
      result["rows"].push_back(row);
    } catch (const nlohmann::json::exception& error) {
      fail(ErrorKind::invalid_input, "{}: row {}: {}", file, i, error.what());
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: row {}: {}", file, i, error.what()));
    }
  }
  for (const auto& [name, errors] : by_operator) {
    text += fmt::format("{}: geometric-mean error {:.1f} % over {}\n", name, 100 * errors.mean(),
                        counted(errors.ratios.size(), "row"));
  }
  text +=
      fmt::format("all: geometric-mean error {:.1f} % over {}\n", 100 * all.mean(), counted(all.ratios.size(), "row"));
  result["geometric_mean_error"] = all.mean();
  if (!json.empty()) write_file(json, json_text(result, 1) + "\n");
  if (json != "-") print(text);
}

}  // namespace tilewire::cli
