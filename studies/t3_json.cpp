// The JSON of `tilewire-studies t3 --json` (docs/bench_json.md lists the fields).
// Called by t3_verb.cpp.
#include "studies/t3_json.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/geometric_mean.hpp"
#include "studies/t3_order.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

nlohmann::json json_of(const T3Speedups& speedups) {
  return {{"t3", speedups.t3},
          {"t3_mca", speedups.t3_mca},
          {"ideal_overlap", speedups.ideal_overlap},
          {"ideal_near", speedups.ideal_near}};
}

nlohmann::json json_of(const MemoryTraffic& traffic) {
  return {{"gemm_reads", traffic.gemm_reads}, {"gemm_writes", traffic.gemm_writes}, {"rs_reads", traffic.rs_reads},
          {"rs_writes", traffic.rs_writes},   {"ag_reads", traffic.ag_reads},       {"ag_writes", traffic.ag_writes},
          {"total", traffic.total()}};
}

// The bytes of each interval, as whole numbers.
nlohmann::json json_of(const std::vector<IntervalLoad>& intervals) {
  nlohmann::json json;
  for (const auto& [name, bytes] :
       {std::pair("compute_read_bytes", &IntervalLoad::compute_read_bytes),
        std::pair("compute_written_bytes", &IntervalLoad::compute_written_bytes),
        std::pair("communication_read_bytes", &IntervalLoad::communication_read_bytes),
        std::pair("communication_written_bytes", &IntervalLoad::communication_written_bytes)}) {
    json[name] = nlohmann::json::array();
    for (const IntervalLoad& interval : intervals) json[name].push_back(std::llround(interval.*bytes));
  }
  return json;
}

nlohmann::json json_of(const TrafficOverTime& traffic) {
  nlohmann::json json = json_of(traffic.intervals);
  json.update({{"total_ns", traffic.total_ns}, {"gemm_ns", traffic.gemm_ns}});
  return json;
}

// GEMM and all-reduce at the same time, on parts of the compute units, or ideally as if each had all of them.
nlohmann::json part_json(const T3Split& split, const char* name, double gemm_ns, double rs_ns, double ar_ns) {
  return {{"name", name},
          {"gemm_ns", gemm_ns},
          {"rs_ns", rs_ns},
          {"ar_ns", ar_ns},
          {"speedup", split.speedup(gemm_ns, ar_ns)}};
}

nlohmann::json layer_json(const SubLayer& layer) {
  return {{"model", layer.model}, {"tp", layer.tp}, {"layer", short_name(layer.kind)},
          {"m", layer.m},         {"n", layer.n},   {"k", layer.k}};
}

nlohmann::json json_of(const T3Row& row) {
  const SubLayerTimes& times = row.times;
  nlohmann::json json = layer_json(row.layer);
  json.update({{"gemm_ns", times.gemm_ns},
               {"rs_ns", times.rs_ns},
               {"rs_near_ns", times.rs_near_ns},
               {"ag_ns", times.ag_ns},
               {"fused_ns", times.fused_ns},
               {"fused_mca_ns", times.fused_mca_ns},
               {"sequential_ns", sequential_ns(times)},
               {"speedups", json_of(speedups_of(times))},
               {"traffic", {{"sequential", json_of(times.sequential)}, {"t3_mca", json_of(times.t3)}}},
               {"traffic_reduction", traffic_reduction(times)}});
  return json;
}

nlohmann::json json_of(const T3Split& split) {
  nlohmann::json json = layer_json(split.layer);
  json["parts"] = {part_json(split, "72-8", split.gemm72_ns, split.rs8_ns, split.ar8_ns),
                   part_json(split, "64-16", split.gemm64_ns, split.rs16_ns, split.ar16_ns),
                   part_json(split, "ideal", split.gemm_ns, split.rs_ns, split.ar_ns)};
  return json;
}

nlohmann::json json_of(const T3Phase& phase) {
  return {{"gemm_ns", phase.gemm_ns},
          {"communication_ns", phase.communication_ns},
          {"other_ns", phase.other_ns},
          {"sequential_ns", phase.sequential_ns()},
          {"t3_ns", phase.t3_ns},
          {"t3_mca_ns", phase.t3_mca_ns},
          {"communication_share", phase.communication_share()},
          {"speedups", {{"t3", phase.t3_speedup()}, {"t3_mca", phase.t3_mca_speedup()}}}};
}

// {"geomean": {"t3", "t3_mca"}, "most": ...}
nlohmann::json means_json(const std::vector<T3Iteration>& iterations, T3Phase T3Iteration::*phase) {
  nlohmann::json json;
  for (const auto& [name, speedup] :
       {std::pair("t3", &T3Phase::t3_speedup), std::pair("t3_mca", &T3Phase::t3_mca_speedup)}) {
    const std::vector<double> values = phase_speedups(iterations, phase, speedup);
    json["geomean"][name] = geometric_mean(values);
    json["most"][name] = std::ranges::max(values);
  }
  return json;
}

}  // namespace

void add_units(nlohmann::json& result, const T3Study& study) {
  for (const char* list : {"twice_cu", "splits"}) result[list] = nlohmann::json::array();
  for (const T3Row& row : study.twice_cu) result["twice_cu"].push_back(json_of(row));
  for (const T3Split& split : study.splits) result["splits"].push_back(json_of(split));
}

nlohmann::json traffic_json(const SubLayer& layer, const SubLayerTraffic& traffic) {
  nlohmann::json json = layer_json(layer);
  json.update({{"interval_ns", traffic.interval_ns},
               {"gemm", json_of(traffic.gemm)},
               {"t3", json_of(traffic.t3)},
               {"t3_mca", json_of(traffic.t3_mca)}});
  return json;
}

nlohmann::json json_of(const std::vector<T3Group>& groups, const Machine& machine, const T3Assumptions& assumptions) {
  nlohmann::json rows = nlohmann::json::array();
  nlohmann::json summaries = nlohmann::json::array();
  nlohmann::json iterations = nlohmann::json::array();
  for (const T3Group& group : groups) {
    for (const T3Row& row : group.rows) rows.push_back(json_of(row));
    const T3Summary summary = summary_of(group.rows);
    const std::vector<T3Iteration> each = iterations_of(group.rows, assumptions);
    for (const T3Iteration& iteration : each) {
      iterations.push_back({{"model", iteration.model},
                            {"tp", iteration.tp},
                            {"training", json_of(iteration.training)},
                            {"prompt", json_of(iteration.prompt)}});
    }
    summaries.push_back({{"title", group.title},
                         {"rows", group.rows.size()},
                         {"geomean", json_of(summary.geomean)},
                         {"most", json_of(summary.most)},
                         {"traffic_reduction", {{"mean", summary.mean_reduction}, {"most", summary.most_reduction}}},
                         {"training", means_json(each, &T3Iteration::training)},
                         {"prompt", means_json(each, &T3Iteration::prompt)}});
  }
  return {{"machine", machine},
          {"rows", rows},
          {"summaries", summaries},
          {"out_of_order", out_of_order(rows_of(groups))},
          {"end_to_end", iterations},
          {"attention_share", assumptions.attention_share},
          {"backward_gemms", assumptions.backward_gemms},
          {"assumed", texts_of(assumptions)}};
}

}  // namespace tilewire::cli
