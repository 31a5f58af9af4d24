// tilewire-studies t3: the sub-layers of T3's models in all configurations, and their effect on whole iterations.
// Called by main.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/flag_files.hpp"
#include "cli/geometric_mean.hpp"
#include "cli/options.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "studies/t3_json.hpp"
#include "studies/t3_machine.hpp"
#include "studies/t3_order.hpp"
#include "studies/t3_study.hpp"
#include "studies/verbs.hpp"

namespace tilewire::cli {
namespace {

struct T3 {
  T3MachineFlags machine;
  std::vector<std::string> models;
  bool large = false;
  bool units = false;
  std::string traffic;
  double interval_us = 10;
  T3Assumptions assumptions;
  std::string json;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const T3Model& find_t3_model(const char* flag, const std::string& name) {
  std::vector<std::string> known;
  for (const T3Model& model : t3_models()) {
    if (lower(model.name) == lower(name)) return model;
    known.push_back(model.name);
  }
  fail(ErrorKind::invalid_input, "{}: unknown model '{}'; known: {}", flag, name, fmt::join(known, ", "));
}

// Parses "T-NLG:8:FC-2".
SubLayer layer_of(const std::string& text) {
  const size_t first = text.find(':');
  const size_t last = text.rfind(':');
  require(first != last, "--traffic {}: want a model, its TP and a sub-layer, as in T-NLG:8:FC-2", text);
  const T3Model& model = find_t3_model("--traffic", text.substr(0, first));
  const std::string tp = text.substr(first + 1, last - first - 1);
  const std::string kind = lower(text.substr(last + 1));
  for (const int degree : model.tp) {
    for (const SubLayer& layer : tilewire::sub_layers_of(model, degree)) {
      if (tp == std::to_string(degree) && kind == lower(short_name(layer.kind))) return layer;
    }
  }
  fail(ErrorKind::invalid_input, "--traffic {}: {} has TP {} and the sub-layers OP, FC-2, FC-1, IP", text, model.name,
       fmt::join(model.tp, ", "));
}

// The models that are named, or else those of the paper's figures 15 to 18, with --large the others, too.
std::vector<T3Model> models_of(const T3& t3) {
  require(t3.models.empty() || !t3.large, "--large: --models names them");
  require(t3.models.empty() || !t3.units,
          "--units is about the models of the paper's figures 15 to 18; give it without --models");
  std::vector<T3Model> models;
  for (const std::string& name : t3.models) {
    const T3Model& model = find_t3_model("--models", name);
    if (std::ranges::find(models, model) == models.end()) models.push_back(model);
  }
  if (!models.empty()) return models;
  models = models_of_study(false);
  if (t3.large) std::ranges::copy(models_of_study(true), std::back_inserter(models));
  return models;
}

std::vector<T3Group> groups_of(const std::vector<T3Row>& rows) {
  std::vector<T3Group> groups;
  for (const bool larger : {false, true}) {
    T3Group group{.title = larger ? "TP 32" : "TP 8 and 16"};
    std::ranges::copy_if(rows, std::back_inserter(group.rows),
                         [&](const T3Row& row) { return (row.layer.tp >= kLargerTp) == larger; });
    if (!group.rows.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

std::string head() {
  return fmt::format(
      "{:<11} {:>3} {:<5} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>8}\n",
      "model", "TP", "layer", "m", "n", "k", "GEMM us", "RS us", "RS+NMC us", "AG us", "T3 us", "T3-MCA us", "T3",
      "T3-MCA", "ideal", "+NMC", "traffic");
}

// The columns from "T3" on: speedups over Sequential, and the change of memory traffic.
std::string results(const T3Speedups& speedups, double reduction) {
  return fmt::format(" {:>6.3f} {:>6.3f} {:>6.3f} {:>6.3f} {:>+7.1f}%\n", speedups.t3, speedups.t3_mca,
                     speedups.ideal_overlap, speedups.ideal_near, -100 * reduction);
}

std::string line(const T3Row& row) {
  const SubLayer& layer = row.layer;
  const SubLayerTimes& times = row.times;
  return fmt::format("{:<11} {:>3} {:<5} {:>6} {:>6} {:>6} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}",
                     layer.model, layer.tp, short_name(layer.kind), layer.m, layer.n, layer.k, times.gemm_ns * 1e-3,
                     times.rs_ns * 1e-3, times.rs_near_ns * 1e-3, times.ag_ns * 1e-3, times.fused_ns * 1e-3,
                     times.fused_mca_ns * 1e-3) +
         results(speedups_of(times), traffic_reduction(times));
}

std::string summary_lines(const T3Group& group) {
  const T3Summary summary = summary_of(group.rows);
  constexpr int kWidth = 101;  // of the columns before "T3"
  return fmt::format("{:<{}}", group.title + ": geometric mean; mean traffic", kWidth) +
         results(summary.geomean, summary.mean_reduction) + fmt::format("{:<{}}", group.title + ": most", kWidth) +
         results(summary.most, summary.most_reduction);
}

std::string iteration_line(const T3Iteration& each) {
  return fmt::format("{:<11} {:>3} {:>13.1f} {:>9.1f} {:>9.3f} {:>9.3f} {:>13.1f} {:>9.1f} {:>9.3f} {:>9.3f}\n",
                     each.model, each.tp, each.training.sequential_ns() * 1e-3,
                     100 * each.training.communication_share(), each.training.t3_speedup(),
                     each.training.t3_mca_speedup(), each.prompt.sequential_ns() * 1e-3,
                     100 * each.prompt.communication_share(), each.prompt.t3_speedup(), each.prompt.t3_mca_speedup());
}

// Four columns of speedups: the geometric mean and the largest.
std::string iteration_means(const std::string& title, const std::vector<T3Iteration>& iterations) {
  std::string means = fmt::format("{:<39}", title + ": geometric mean");
  std::string most = fmt::format("{:<39}", title + ": most");
  for (const auto phase : {&T3Iteration::training, &T3Iteration::prompt}) {
    for (const auto speedup : {&T3Phase::t3_speedup, &T3Phase::t3_mca_speedup}) {
      const std::vector<double> values = phase_speedups(iterations, phase, speedup);
      means += fmt::format(" {:>9.3f}", geometric_mean(values));
      most += fmt::format(" {:>9.3f}", std::ranges::max(values));
    }
    if (phase == &T3Iteration::prompt) continue;
    means += std::string(24, ' ');
    most += std::string(24, ' ');
  }
  return means + "\n" + most + "\n";
}

std::string text_of(const T3& t3, const Machine& machine, const std::vector<T3Group>& groups) {
  std::string text = machine.name + "\n" + head();
  std::string iterations = fmt::format(
      "\nend to end, one layer\n{:<15} {:>13} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9} "
      "{:>9}\n{:<11} {:>3} {:>13} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9} {:>9}\n",
      "", "training", "", "", "", "prompt", "", "", "", "model", "TP", "Sequential us", "RS+AG %", "T3", "T3-MCA",
      "Sequential us", "RS+AG %", "T3", "T3-MCA");
  std::string means;
  std::string iteration_ends;
  for (const T3Group& group : groups) {
    for (const T3Row& row : group.rows) text += line(row);
    means += summary_lines(group);
    const std::vector<T3Iteration> each = iterations_of(group.rows, t3.assumptions);
    for (const T3Iteration& iteration : each) iterations += iteration_line(iteration);
    iteration_ends += iteration_means(group.title, each);
  }
  iterations += iteration_ends + "assumed:\n";
  for (const std::string& assumed : texts_of(t3.assumptions)) iterations += "  " + assumed + "\n";
  const std::vector<T3Row> rows = rows_of(groups);
  return text + means + order_text(out_of_order(rows), rows.size()) + iterations;
}

// The text that --units adds.
std::string units_text(const T3Study& study) {
  std::string text = "\n160 compute units\n" + head();
  for (const T3Row& row : study.twice_cu) text += line(row);
  text += fmt::format(
      "\ncompute units shared: GEMM and all-reduce on parts of 80, slower by; gain of both at once\n"
      "{:<11} {:>3} {:<5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      "model", "TP", "layer", "GEMM 72", "AR 8", "GEMM 64", "AR 16", "72-8", "64-16", "ideal");
  for (const T3Split& split : study.splits) {
    text += fmt::format("{:<11} {:>3} {:<5} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n",
                        split.layer.model, split.layer.tp, short_name(split.layer.kind),
                        split.gemm72_ns / split.gemm_ns, split.ar8_ns / split.ar_ns, split.gemm64_ns / split.gemm_ns,
                        split.ar16_ns / split.ar_ns, split.speedup(split.gemm72_ns, split.ar8_ns),
                        split.speedup(split.gemm64_ns, split.ar16_ns), split.speedup(split.gemm_ns, split.ar_ns));
  }
  return text;
}

// Refuse flags that do not go together.
void check_flags(const T3& t3) {
  const double share = t3.assumptions.attention_share;
  require(share >= 0 && share < 1, "--attention-share {}: want a share from 0 to below 1", share);
  require(t3.traffic.empty() || !t3.json.empty(), "--traffic {}: goes to the file of --json", t3.traffic);
  require(t3.interval_us >= 0.001 && t3.interval_us <= 1e9, "--interval {}: want 0.001 to 1e9 us", t3.interval_us);
  for (const std::string& set : t3.machine.set)
    require(!t3.units || !set.starts_with("compute.units="),
            "--set {}: --units is about 80 and 160 units, and parts of 80", set);
}

void t3_verb(const T3& t3) {
  check_flags(t3);
  const Machine machine = machine_of(t3.machine);
  const std::vector<T3Model> models = models_of(t3);
  std::optional<SubLayer> layer;
  if (!t3.traffic.empty()) layer = layer_of(t3.traffic);
  check_files({{"--json", t3.json}}, {machine_file(t3.machine.machine)});
  std::optional<SubLayerTraffic> traffic;
  if (layer) traffic = simulate_traffic(*layer, machine, t3.interval_us * 1e3);
  std::optional<T3Study> study;
  if (t3.units) study = study_of(machine, t3.large);
  std::vector<T3Row> rows;
  if (study) {
    rows = study->rows;
    std::ranges::copy(study->large, std::back_inserter(rows));
  } else {
    std::vector<std::pair<SubLayer, Machine>> jobs;
    for (const SubLayer& each : sub_layers_of(models)) jobs.emplace_back(each, machine);
    rows = simulate_layers(jobs);
  }
  const std::vector<T3Group> groups = groups_of(rows);
  if (!t3.json.empty()) {
    nlohmann::json result = json_of(groups, machine, t3.assumptions);
    if (study) add_units(result, *study);
    if (layer) result["traffic_over_time"] = traffic_json(*layer, *traffic);
    write_file(t3.json, json_text(result, 1) + "\n");
  }
  if (t3.json != "-") print(text_of(t3, machine, groups) + (study ? units_text(*study) : ""));
}

constexpr const char* kT3Footer =
    R"(Columns: times in us of the GEMM, its reduce-scatter by compute units (RS) and near memory (RS+NMC), its all-gather
(AG), and of GEMM and reduce-scatter fused (T3, T3-MCA); then speedups over Sequential = GEMM + RS + AG: of T3 and T3-MCA,
each followed by AG, of max(GEMM, RS) + AG (ideal), of max(GEMM, RS+NMC) + AG (+NMC); and the change of memory traffic by T3-MCA.
docs/simulator.md says what is modelled.

Examples:
  tilewire-studies t3
  tilewire-studies t3 --models t-nlg,gpt-3 --set links.bandwidth_GBps=150 --json t3.json
  tilewire-studies t3 --large --units --traffic T-NLG:8:FC-2 --json t3.json)";

}  // namespace

void add_t3(CLI::App& app) {
  auto t3 = std::make_shared<T3>();
  CLI::App* verb = app.add_subcommand("t3", "T3's study: GEMMs fused with their reduce-scatters in a ring");
  verb->footer(kT3Footer);
  add_t3_machine_flags(*verb, t3->machine);
  verb->add_option("--models", t3->models,
                   "Mega-GPT-2, T-NLG, GPT-3, PALM, MT-NLG, at the degrees of Table 2 (default: the first two)")
      ->type_name("NAME[,NAME]")
      ->delimiter(',');
  verb->add_flag("--large", t3->large, "Also GPT-3, PALM and MT-NLG, at 32 devices");
  verb->add_flag("--units", t3->units, "Also OP and FC-2 with 160 compute units, and at TP 8 with 72, 8, 64 and 16");
  verb->add_option("--traffic", t3->traffic, "Also a sub-layer's memory traffic over time, in --json (T-NLG:8:FC-2)")
      ->type_name("MODEL:TP:LAYER");
  verb->add_option("--interval", t3->interval_us, "Of --traffic, in us (default: 10)")->type_name("US");
  verb->add_option("--attention-share", t3->assumptions.attention_share,
                   "Of a whole iteration: what is no GEMM or all-reduce of a layer (default: 0.425)")
      ->type_name("X");
  verb->add_option("--json", t3->json, "Write everything in ns and bytes to a file, or - for standard output")
      ->type_name("FILE|-");
  verb->callback([t3, verb] {
    require(!t3->traffic.empty() || verb->count("--interval") == 0, "--interval: goes with --traffic");
    t3_verb(*t3);
  });
}

}  // namespace tilewire::cli
