// tilewire sim t3: the sub-layers of T3's models in all its configurations, and what they make of whole iterations.
// Called by sim.
#include "cli/sim_t3.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/all_cores.hpp"
#include "cli/geometric_mean.hpp"
#include "cli/machine_values.hpp"
#include "cli/options.hpp"
#include "cli/t3_order.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

// Models from this degree on have means of their own.
constexpr int kLargerTp = 32;

struct T3 {
  T3MachineFlags machine;
  std::vector<std::string> models;
  bool large = false;
  T3Assumptions assumptions;
  std::string json;
};

// Some rows that have means together.
struct Group {
  std::string title;
  std::vector<T3Row> rows;
};

bool is_larger(const T3Model& model) { return model.tp.front() >= kLargerTp; }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const T3Model& find_t3_model(const std::string& name) {
  std::vector<std::string> known;
  for (const T3Model& model : t3_models()) {
    if (lower(model.name) == lower(name)) return model;
    known.push_back(model.name);
  }
  fail(ErrorKind::invalid_input, "--models: unknown model '{}'; known: {}", name, fmt::join(known, ", "));
}

// Those named, or those of the paper's figures 15 to 18, and with --large the others.
std::vector<T3Model> models_of(const T3& t3) {
  require(t3.models.empty() || !t3.large, "--large: --models names them");
  std::vector<T3Model> models;
  for (const std::string& name : t3.models) {
    const T3Model& model = find_t3_model(name);
    if (std::ranges::find(models, model) == models.end()) models.push_back(model);
  }
  if (!models.empty()) return models;
  models = models_of_study(false);
  if (t3.large) std::ranges::copy(models_of_study(true), std::back_inserter(models));
  return models;
}

std::vector<Group> groups_of(const std::vector<T3Row>& rows) {
  std::vector<Group> groups;
  for (const bool larger : {false, true}) {
    Group group{.title = larger ? "TP 32" : "TP 8 and 16"};
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

// From "T3" on: speedups over Sequential, and the change of memory traffic.
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

std::string summary_lines(const Group& group) {
  const T3Summary summary = summary_of(group.rows);
  constexpr int kWidth = 101;  // of the columns before "T3"
  return fmt::format("{:<{}}", group.title + ": geometric mean; mean traffic", kWidth) +
         results(summary.geomean, summary.mean_reduction) + fmt::format("{:<{}}", group.title + ": most", kWidth) +
         results(summary.most, summary.most_reduction);
}

std::vector<double> speedups(const std::vector<T3Iteration>& iterations, T3Phase T3Iteration::*phase,
                             double (T3Phase::*speedup)() const) {
  std::vector<double> values;
  for (const T3Iteration& each : iterations) values.push_back(((each.*phase).*speedup)());
  return values;
}

std::string iteration_line(const T3Iteration& each) {
  return fmt::format("{:<11} {:>3} {:>13.1f} {:>9.1f} {:>9.3f} {:>9.3f} {:>13.1f} {:>9.1f} {:>9.3f} {:>9.3f}\n",
                     each.model, each.tp, each.training.sequential_ns() * 1e-3,
                     100 * each.training.communication_share(), each.training.t3_speedup(),
                     each.training.t3_mca_speedup(), each.prompt.sequential_ns() * 1e-3,
                     100 * each.prompt.communication_share(), each.prompt.t3_speedup(), each.prompt.t3_mca_speedup());
}

// Of four columns of speedups, a mean and the most.
std::string iteration_means(const std::string& title, const std::vector<T3Iteration>& iterations) {
  std::string means = fmt::format("{:<39}", title + ": geometric mean");
  std::string most = fmt::format("{:<39}", title + ": most");
  for (const auto phase : {&T3Iteration::training, &T3Iteration::prompt}) {
    for (const auto speedup : {&T3Phase::t3_speedup, &T3Phase::t3_mca_speedup}) {
      const std::vector<double> values = speedups(iterations, phase, speedup);
      means += fmt::format(" {:>9.3f}", geometric_mean(values));
      most += fmt::format(" {:>9.3f}", std::ranges::max(values));
    }
    if (phase == &T3Iteration::prompt) continue;
    means += std::string(24, ' ');
    most += std::string(24, ' ');
  }
  return means + "\n" + most + "\n";
}

std::vector<T3Row> rows_of(const std::vector<Group>& groups) {
  std::vector<T3Row> rows;
  for (const Group& group : groups) rows.insert(rows.end(), group.rows.begin(), group.rows.end());
  return rows;
}

std::string text_of(const T3& t3, const Machine& machine, const std::vector<Group>& groups) {
  std::string text = machine.name + "\n" + head();
  std::string iterations = fmt::format(
      "\nend to end, one layer\n{:<15} {:>13} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9} "
      "{:>9}\n{:<11} {:>3} {:>13} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9} {:>9}\n",
      "", "training", "", "", "", "prompt", "", "", "", "model", "TP", "Sequential us", "RS+AG %", "T3", "T3-MCA",
      "Sequential us", "RS+AG %", "T3", "T3-MCA");
  std::string means;
  std::string iteration_ends;
  for (const Group& group : groups) {
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

nlohmann::json json_of(const T3Row& row) {
  const SubLayerTimes& times = row.times;
  return {{"model", row.layer.model},
          {"tp", row.layer.tp},
          {"layer", short_name(row.layer.kind)},
          {"m", row.layer.m},
          {"n", row.layer.n},
          {"k", row.layer.k},
          {"gemm_ns", times.gemm_ns},
          {"rs_ns", times.rs_ns},
          {"rs_near_ns", times.rs_near_ns},
          {"ag_ns", times.ag_ns},
          {"fused_ns", times.fused_ns},
          {"fused_mca_ns", times.fused_mca_ns},
          {"sequential_ns", sequential_ns(times)},
          {"speedups", json_of(speedups_of(times))},
          {"traffic", {{"sequential", json_of(times.sequential)}, {"t3_mca", json_of(times.t3)}}},
          {"traffic_reduction", traffic_reduction(times)}};
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
    const std::vector<double> values = speedups(iterations, phase, speedup);
    json["geomean"][name] = geometric_mean(values);
    json["most"][name] = std::ranges::max(values);
  }
  return json;
}

nlohmann::json json_of(const T3& t3, const Machine& machine, const std::vector<Group>& groups) {
  nlohmann::json rows = nlohmann::json::array();
  nlohmann::json summaries = nlohmann::json::array();
  nlohmann::json iterations = nlohmann::json::array();
  for (const Group& group : groups) {
    for (const T3Row& row : group.rows) rows.push_back(json_of(row));
    const T3Summary summary = summary_of(group.rows);
    const std::vector<T3Iteration> each = iterations_of(group.rows, t3.assumptions);
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
          {"attention_share", t3.assumptions.attention_share},
          {"backward_gemms", t3.assumptions.backward_gemms},
          {"assumed", texts_of(t3.assumptions)}};
}

void t3_verb(const T3& t3) {
  const double share = t3.assumptions.attention_share;
  require(share >= 0 && share < 1, "--attention-share {}: want a share from 0 to below 1", share);
  const Machine machine = machine_of(t3.machine);
  const std::vector<T3Model> models = models_of(t3);
  check_writable(t3.json);
  std::vector<std::pair<SubLayer, Machine>> jobs;
  for (const SubLayer& layer : sub_layers_of(models)) jobs.emplace_back(layer, machine);
  const std::vector<Group> groups = groups_of(simulate_layers(jobs));
  if (t3.json != "-") print(text_of(t3, machine, groups));
  if (!t3.json.empty()) write_file(t3.json, json_of(t3, machine, groups).dump(1) + "\n");
}

constexpr const char* kFooter =
    R"(Columns: times in us of the GEMM, its reduce-scatter by compute units (RS) and near memory (RS+NMC), its all-gather
(AG), and of GEMM and reduce-scatter fused (T3, T3-MCA); then speedups over Sequential = GEMM + RS + AG: of T3 and T3-MCA,
each followed by AG, of max(GEMM, RS) + AG (ideal), of max(GEMM, RS+NMC) + AG (+NMC); and the change of memory traffic by T3-MCA.
docs/simulator.md says what is modelled.

Examples:
  tilewire sim t3
  tilewire sim t3 --models t-nlg,gpt-3 --set links.bandwidth_GBps=150 --json t3.json)";

}  // namespace

void add_t3_machine_flags(CLI::App& verb, T3MachineFlags& flags) {
  verb.add_option("--machine", flags.machine, "A known machine, or a JSON file (default: t3_ring)")
      ->type_name("NAME|FILE");
  verb.add_option("--set", flags.set, "Set a value of the machine (--set links.bandwidth_GBps=150)")
      ->type_name("KEY=VALUE");
  verb.add_option("--sweep", flags.sweep)->group("");  // in no help: known so that it is refused in words
}

void refuse_sweeps(const T3MachineFlags& flags) {
  require(flags.sweep.empty(), "--sweep {}: a study has one machine; call once for each value, with --set",
          fmt::join(flags.sweep, " "));
}

Machine machine_of(const T3MachineFlags& flags) {
  refuse_sweeps(flags);
  for (const std::string& set : flags.set) {
    require(!set.starts_with("controller.arbitration=") && !set.starts_with("links.dims="),
            "--set {}: the study sets the arbitration and the number of devices itself", set);
  }
  return with_values(load_machine(flags.machine), flags.set);
}

void refuse_flags_before(const CLI::App& sim, const CLI::App& verb) {
  for (const CLI::Option* option : sim.get_options()) {
    require(option->count() == 0, "{}: goes with `sim` alone; `sim {} --help` lists what it takes", option->get_name(),
            verb.get_name());
  }
}

// FC-2 and FC-1 have the same GEMM, so each is simulated once.
std::vector<T3Row> simulate_layers(const std::vector<std::pair<SubLayer, Machine>>& jobs) {
  const auto same = [](const std::pair<SubLayer, Machine>& a, const std::pair<SubLayer, Machine>& b) {
    const auto shape = [](const SubLayer& layer) { return std::tuple(layer.tp, layer.m, layer.n, layer.k); };
    return shape(a.first) == shape(b.first) && a.second == b.second;
  };
  std::vector<size_t> first(jobs.size());
  std::vector<size_t> distinct;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto found = std::ranges::find_if(distinct, [&](size_t each) { return same(jobs[each], jobs[i]); });
    first[i] = found == distinct.end() ? distinct.emplace_back(i) : *found;
  }
  std::vector<SubLayerTimes> times(jobs.size());
  on_all_cores(distinct.size(), "sub-layers", [&](size_t i) {
    times[distinct[i]] = simulate_sub_layer(jobs[distinct[i]].first, jobs[distinct[i]].second);
  });
  std::vector<T3Row> rows;
  for (size_t i = 0; i < jobs.size(); ++i) rows.push_back({.layer = jobs[i].first, .times = times[first[i]]});
  return rows;
}

std::vector<T3Model> models_of_study(bool larger) {
  std::vector<T3Model> models;
  std::ranges::copy_if(t3_models(), std::back_inserter(models),
                       [&](const T3Model& model) { return is_larger(model) == larger; });
  return models;
}

std::vector<SubLayer> sub_layers_of(const std::vector<T3Model>& models) {
  std::vector<SubLayer> layers;
  for (const T3Model& model : models) {
    for (const int tp : model.tp) std::ranges::copy(tilewire::sub_layers_of(model, tp), std::back_inserter(layers));
  }
  return layers;
}

void add_sim_t3(CLI::App& sim) {
  auto t3 = std::make_shared<T3>();
  CLI::App* verb = sim.add_subcommand("t3", "T3's study: GEMMs fused with their reduce-scatters in a ring");
  verb->footer(kFooter);
  add_t3_machine_flags(*verb, t3->machine);
  verb->add_option("--models", t3->models,
                   "Mega-GPT-2, T-NLG, GPT-3, PALM, MT-NLG, at the degrees of Table 2 (default: the first two)")
      ->type_name("NAME[,NAME]")
      ->delimiter(',');
  verb->add_flag("--large", t3->large, "Also GPT-3, PALM and MT-NLG, at 32 devices");
  verb->add_option("--attention-share", t3->assumptions.attention_share,
                   "Of a whole iteration: what is no GEMM or all-reduce of a layer (default: 0.425)")
      ->type_name("X");
  verb->add_option("--json", t3->json, "Write everything in ns and bytes to a file, or - for standard output")
      ->type_name("FILE|-");
  verb->callback([t3, verb, &sim] {
    refuse_flags_before(sim, *verb);
    t3_verb(*t3);
  });
}

}  // namespace tilewire::cli
