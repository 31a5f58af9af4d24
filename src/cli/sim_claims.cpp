// tilewire sim claims: what T3's paper says beside what is simulated.
// Called by sim.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/options.hpp"
#include "cli/sim_t3.hpp"
#include "cli/t3_claims.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {
namespace {

using Jobs = std::vector<std::pair<SubLayer, Machine>>;

// Compute units of the GPU-2X-CU (T3, section 7.5).
constexpr int kTwiceUnits = 160;
// How the paper splits them: GEMM and all-reduce (section 3.2.1).
constexpr int kSplits[2][2] = {{72, 8}, {64, 16}};
constexpr int kSplitTp = 8;

struct Claims {
  T3MachineFlags machine;
  std::string json;
};

Machine with_units(Machine machine, int units) {
  set_value(machine, "compute.units", fmt::format("{}", units));
  validate(machine);
  return machine;
}

// "Attn." of the paper's figure 6 is taken for the projection of its output (assumed).
bool is_op_or_fc2(const SubLayer& layer) {
  return layer.kind == SubLayerKind::output_projection || layer.kind == SubLayerKind::fc2;
}

// Everything at once, so that all cores are busy to the end.
T3Study study_of(const Machine& machine) {
  Jobs jobs;
  const auto add = [&](const std::vector<SubLayer>& layers, const Machine& on) {
    for (const SubLayer& layer : layers) jobs.emplace_back(layer, on);
    return layers.size();
  };
  const std::vector<SubLayer> layers = sub_layers_of(models_of_study(false));
  std::vector<SubLayer> both;
  std::vector<SubLayer> split;
  for (const SubLayer& layer : layers) {
    if (!is_op_or_fc2(layer)) continue;
    both.push_back(layer);
    if (layer.tp == kSplitTp) split.push_back(layer);
  }
  const size_t rows = add(layers, machine);
  const size_t large = add(sub_layers_of(models_of_study(true)), machine);
  const size_t twice = add(both, with_units(machine, kTwiceUnits));
  add(split, machine);
  for (const auto& units : kSplits) {
    for (const int part : units) add(split, with_units(machine, part));
  }
  const std::vector<T3Row> done = simulate_layers(jobs);
  auto at = done.begin();
  const auto take = [&](size_t count) {
    const std::vector<T3Row> some(at, at + static_cast<std::ptrdiff_t>(count));
    at += static_cast<std::ptrdiff_t>(count);
    return some;
  };
  T3Study study;
  study.rows = take(rows);
  study.large = take(large);
  study.twice_cu = take(twice);
  const auto ar_ns = [](const SubLayerTimes& times) { return times.rs_ns + times.ag_ns; };
  const std::vector<T3Row> whole = take(split.size()), gemm72 = take(split.size()), ar8 = take(split.size()),
                           gemm64 = take(split.size()), ar16 = take(split.size());
  for (size_t i = 0; i < split.size(); ++i) {
    study.splits.push_back({.layer = split[i],
                            .gemm_ns = whole[i].times.gemm_ns,
                            .ar_ns = ar_ns(whole[i].times),
                            .gemm72_ns = gemm72[i].times.gemm_ns,
                            .ar8_ns = ar_ns(ar8[i].times),
                            .gemm64_ns = gemm64[i].times.gemm_ns,
                            .ar16_ns = ar_ns(ar16[i].times)});
  }
  return study;
}

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.2f}", value) : "-"; }

std::string line(const ClaimResult& claim) {
  const std::optional<bool> holds = claim.holds();
  const char* sign = claim.relation == ClaimRelation::about ? "" : claim.relation == ClaimRelation::above ? "> " : "< ";
  const std::string difference = holds                       ? (*holds ? "holds" : "fails")
                                 : std::isfinite(claim.ours) ? fmt::format("{:+.2f}", claim.difference())
                                                             : "-";
  return fmt::format("{:<5} {:<48} {:>8} {:>9} {:>10}  {:<6} {}\n", claim.id, claim.text,
                     sign + fmt::format("{:g}", claim.paper), number(claim.ours), difference, claim.unit,
                     claim.assumed);
}

std::string text_of(const Machine& machine, const std::vector<ClaimResult>& claims) {
  std::string text = machine.name + "\n" +
                     fmt::format("{:<5} {:<48} {:>8} {:>9} {:>10}  {:<6} {}\n", "claim", "", "paper", "ours",
                                 "difference", "unit", "assumed");
  for (const ClaimResult& claim : claims) text += line(claim);
  text += "not covered:\n";
  for (const NotCovered& claim : claims_not_covered()) text += fmt::format("{:<5} {}\n", claim.id, claim.reason);
  text += "assumed:\n";
  for (const ClaimAssumption& each : claim_assumptions()) text += fmt::format("  {}  {}\n", each.letter, each.text);
  return text;
}

const char* name_of(ClaimRelation relation) {
  if (relation == ClaimRelation::about) return "about";
  return relation == ClaimRelation::above ? "above" : "below";
}

nlohmann::json json_of(const ClaimResult& claim) {
  nlohmann::json assumed = nlohmann::json::array();
  for (const ClaimAssumption& each : claim_assumptions()) {
    if (claim.assumed.find(each.letter) != std::string::npos) assumed.push_back(each.text);
  }
  const std::optional<bool> holds = claim.holds();
  return {{"id", claim.id},
          {"text", claim.text},
          {"unit", claim.unit},
          {"relation", name_of(claim.relation)},
          {"paper", claim.paper},
          {"ours", claim.ours},
          {"difference", claim.difference()},
          {"holds", holds ? nlohmann::json(*holds) : nlohmann::json()},
          {"assumed", assumed}};
}

void claims_verb(const Claims& flags) {
  for (const std::string& set : flags.machine.set)
    require(!set.starts_with("compute.units="), "--set {}: claims are about 80 and 160 units, and parts of 80", set);
  const Machine machine = machine_of(flags.machine);
  check_writable(flags.json);
  const std::vector<ClaimResult> claims = claims_of(study_of(machine));
  if (flags.json != "-") print(text_of(machine, claims));
  if (flags.json.empty()) return;
  nlohmann::json result = {
      {"machine", machine}, {"claims", nlohmann::json::array()}, {"not_covered", nlohmann::json::array()}};
  for (const ClaimResult& claim : claims) result["claims"].push_back(json_of(claim));
  for (const NotCovered& claim : claims_not_covered()) {
    result["not_covered"].push_back({{"id", claim.id}, {"reason", claim.reason}});
  }
  write_file(flags.json, result.dump(1) + "\n");
}

constexpr const char* kFooter =
    R"(Differences are ours less the paper's, in the same unit; a claim that something is above or below a figure holds or
fails. Letters under `assumed` say which inputs that the paper does not give the figure depends on.

Examples:
  tilewire sim claims
  tilewire sim claims --set links.bandwidth_GBps=150 --json claims.json)";

}  // namespace

void add_sim_claims(CLI::App& sim) {
  auto flags = std::make_shared<Claims>();
  CLI::App* verb = sim.add_subcommand("claims", "The figures of T3's paper beside ours");
  verb->footer(kFooter);
  add_t3_machine_flags(*verb, flags->machine);
  verb->add_option("--json", flags->json, "Write {machine, claims, not_covered} to a file, or - for standard output")
      ->type_name("FILE|-");
  verb->callback([flags, verb, &sim] {
    refuse_flags_before(sim, *verb);
    claims_verb(*flags);
  });
}

}  // namespace tilewire::cli
