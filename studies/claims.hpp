// A figure of a paper beside ours: what a claim is, and the arithmetic that the tables of all papers share.
// Used by t3_claims, flux_claims, ficco_claims, distfuse_claims, fused_claims, claims_table and tests.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewire::cli {

/// What a figure of the paper says of ours.
enum class ClaimRelation {
  about,  ///< this much
  above,  ///< more
  below,  ///< less
};

struct ClaimResult {
  std::string id{};
  std::string text{};
  std::string unit{};  ///< "%", "x", "us", "KB", "points" or "reads"
  ClaimRelation relation = ClaimRelation::about;
  double paper = 0;
  double ours = 0;
  std::string assumed{};  ///< letters of the paper's assumptions

  [[nodiscard]] double difference() const { return ours - paper; }
  /// Nothing where the paper has a number; else whether ours is on the same side.
  [[nodiscard]] std::optional<bool> holds() const;
};

/// A claim that nothing here can tell of.
struct NotCovered {
  std::string id{};
  std::string reason{};
};

/// What figures depend on that the paper does not give.
struct ClaimAssumption {
  char letter = ' ';
  std::string text{};
};

/// One paper: in the order of its sections; a claim may have several figures, and some of them may be not covered.
struct PaperClaims {
  std::string paper{};  ///< as `--paper` calls it
  std::string title{};
  std::vector<ClaimResult> claims{};
  std::vector<NotCovered> not_covered{};
  std::vector<ClaimAssumption> assumptions{};
};

/// A row of a paper's table: its figure, and how ours is computed from what was simulated.
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

/// Geometric mean, largest and smallest; NaN where there are no values: then a claim has no figure.
[[nodiscard]] double geomean(std::span<const double> values);
[[nodiscard]] double most(std::span<const double> values);
[[nodiscard]] double least(std::span<const double> values);
/// In %: what a ratio has above 1, and what it is short of 1.
[[nodiscard]] double gain(double ratio);
[[nodiscard]] double loss(double ratio);

}  // namespace tilewire::cli
