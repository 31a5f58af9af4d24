// Papers' figures and simulated ones side by side, as text and as JSON.
// Called by claims_verb.cpp.
#include "studies/claims_table.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/bench_table.hpp"

namespace tilewire::cli {
namespace {

// Ratios are compared with 1, so 0.996 must not be rounded to 1.
int decimals_of(const ClaimResult& claim) { return claim.unit == "x" ? 3 : 2; }

std::string line(const ClaimResult& claim) {
  const std::optional<bool> holds = claim.holds();
  const char* sign = claim.relation == ClaimRelation::above ? "> " : claim.relation == ClaimRelation::below ? "< " : "";
  const int decimals = decimals_of(claim);
  const bool known = std::isfinite(claim.ours);
  const bool claimed = claim.relation != ClaimRelation::none;
  const std::string ours = known ? fmt::format("{:.{}f}", claim.ours, decimals) : "-";
  const std::string difference = holds              ? (*holds ? "holds" : "fails")
                                 : known && claimed ? fmt::format("{:+.{}f}", claim.difference(), decimals)
                                                    : "-";
  const std::string paper = claimed ? sign + fmt::format("{:g}", claim.paper) : "-";
  return fmt::format("{:<5} {:<48} {:>8} {:>9} {:>10}  {:<6} {}\n", claim.id, claim.text, paper, ours, difference,
                     claim.unit, claim.assumed);
}

const char* name_of(ClaimRelation relation) {
  if (relation == ClaimRelation::none) return "none";
  if (relation == ClaimRelation::about) return "about";
  return relation == ClaimRelation::above ? "above" : "below";
}

nlohmann::json json_of(const PaperClaims& paper, const ClaimResult& claim) {
  nlohmann::json assumed = nlohmann::json::array();
  for (const ClaimAssumption& each : paper.assumptions) {
    if (claim.assumed.find(each.letter) != std::string::npos) assumed.push_back(each.text);
  }
  const std::optional<bool> holds = claim.holds();
  const bool claimed = claim.relation != ClaimRelation::none;
  return {{"paper_name", paper.paper},
          {"id", claim.id},
          {"text", claim.text},
          {"unit", claim.unit},
          {"relation", name_of(claim.relation)},
          {"paper", claimed ? nlohmann::json(claim.paper) : nlohmann::json()},
          {"ours", claim.ours},
          {"difference", claimed ? nlohmann::json(claim.difference()) : nlohmann::json()},
          {"holds", holds ? nlohmann::json(*holds) : nlohmann::json()},
          {"assumed", assumed}};
}

}  // namespace

std::string text_of(const PaperClaims& paper) {
  std::string text = paper.title + "\n";
  if (!paper.claims.empty()) {
    text += fmt::format("{:<5} {:<48} {:>8} {:>9} {:>10}  {:<6} {}\n", "claim", "", "paper", "ours", "difference",
                        "unit", "assumed");
  }
  for (const ClaimResult& claim : paper.claims) text += line(claim);
  text += "not covered:\n";
  for (const NotCovered& claim : paper.not_covered) text += fmt::format("{:<5} {}\n", claim.id, claim.reason);
  if (!paper.assumptions.empty()) text += "assumed:\n";
  for (const ClaimAssumption& each : paper.assumptions) text += fmt::format("  {}  {}\n", each.letter, each.text);
  return text;
}

void add_claims(nlohmann::json& result, const PaperClaims& paper) {
  for (const ClaimResult& claim : paper.claims) result["claims"].push_back(json_of(paper, claim));
  for (const NotCovered& claim : paper.not_covered) {
    result["not_covered"].push_back({{"paper_name", paper.paper}, {"id", claim.id}, {"reason", claim.reason}});
  }
}

nlohmann::json json_of(const PointTimes& times) {
  const ClaimPoint& point = times.point;
  nlohmann::json json = {
      {"name", point.name}, {"machine", point.machine}, {"op", point.op}, {"m", point.m}, {"n", point.n},
      {"k", point.k},       {"ranks", point.ranks}};
  if (!point.rows.empty()) json["rows"] = point.rows;
  if (point.copies > 0) json["copies"] = point.copies;
  if (!point.set.empty()) json["set"] = point.set;
  if (!is_collective(point)) {
    json.update({{"gemm_ns", times.gemm_ns}, {"comm_ns", times.comm_ns}, {"sequential_ns", times.sequential_ns}});
  }
  json["ns"] = times.ns;
  for (const auto& [entry, config] : times.configs) json["configs"][entry] = config_json(config);
  return json;
}

}  // namespace tilewire::cli
