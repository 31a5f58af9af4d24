// A paper's figure and the simulated one: claims, and the arithmetic that the tables of all papers share.
// Used by t3_claims, flux_claims, ficco_claims, distfuse_claims, fused_claims, claims_table and tests.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewire::cli {

/// What the paper claims about the figure.
enum class ClaimRelation {
  about,  ///< it is about this
  above,  ///< it is more
  below,  ///< it is less
  none,   ///< nothing: the figure is ours alone
};

struct ClaimResult {
  std::string id{};
  std::string text{};
  std::string unit{};  ///< "%", "x", "us", "KB", "points" or "reads"
  ClaimRelation relation = ClaimRelation::about;
  double paper = 0;
  double ours = 0;
  std::string assumed{};  ///< letters of the assumptions that it depends on

  [[nodiscard]] double difference() const { return ours - paper; }
  /// Whether the simulated figure is on the side of `paper` that is claimed; nothing if no side is.
  [[nodiscard]] std::optional<bool> holds() const;
};

/// A claim that the simulator cannot judge.
struct NotCovered {
  std::string id{};
  std::string reason{};
};

/// An assumption about a value that the paper does not give.
struct ClaimAssumption {
  char letter = ' ';
  std::string text{};
};

/// One paper, in the order of its sections. A claim may have several figures; some of them may be not covered.
struct PaperClaims {
  std::string paper{};  ///< as `--paper` calls it
  std::string title{};
  std::vector<ClaimResult> claims{};
  std::vector<NotCovered> not_covered{};
  std::vector<ClaimAssumption> assumptions{};
};

/// A row of a paper's table: its figure, and how ours follows from the simulated times.
template <class Study>
struct Claim {
  const char* id;
  const char* text;
  double paper;
  const char* unit;
  const char* assumed;
  double (*value)(const Study&);
  ClaimRelation relation = ClaimRelation::about;
};

template <class Study>
[[nodiscard]] std::vector<ClaimResult> results_of(std::span<const Claim<Study>> table, const Study& study) {
  std::vector<ClaimResult> results;
  for (const Claim<Study>& claim : table) {
    results.push_back({.id = claim.id,
                       .text = claim.text,
                       .unit = claim.unit,
                       .relation = claim.relation,
                       .paper = claim.paper,
                       .ours = claim.value(study),
                       .assumed = claim.assumed});
  }
  return results;
}

/// Geometric mean, largest and smallest; NaN without values: the claim then has no figure.
[[nodiscard]] double geomean(std::span<const double> values);
[[nodiscard]] double most(std::span<const double> values);
[[nodiscard]] double least(std::span<const double> values);
/// Arithmetic mean, for values that may be negative.
[[nodiscard]] double average(std::span<const double> values);
/// In %: how far a ratio is above 1, and how far it is below 1.
[[nodiscard]] double gain(double ratio);
[[nodiscard]] double loss(double ratio);

}  // namespace tilewire::cli
