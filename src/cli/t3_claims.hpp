// The figures of T3's paper beside ours.
// Used by sim_claims.cpp and tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/t3_results.hpp"

namespace tilewire::cli {

/// A GEMM and its all-reduce side by side, on compute units of their own (T3, section 3.2.1).
struct T3Split {
  SubLayer layer{};
  double gemm_ns = 0;  ///< on all of them, and so on
  double ar_ns = 0;    ///< reduce-scatter and all-gather
  double gemm72_ns = 0;
  double ar8_ns = 0;
  double gemm64_ns = 0;
  double ar16_ns = 0;
};

/// Everything that the claims are about.
struct T3Study {
  std::vector<T3Row> rows{};      ///< Mega-GPT-2 and T-NLG, at 8 and 16
  std::vector<T3Row> large{};     ///< GPT-3, PALM and MT-NLG, at 32
  std::vector<T3Row> twice_cu{};  ///< OP and FC-2 of `rows` with 160 compute units
  std::vector<T3Split> splits{};  ///< OP and FC-2 of `rows` at 8
  T3Assumptions assumptions{};
};

/// What a figure of the paper says of ours.
enum class ClaimRelation {
  about,  ///< this much
  above,  ///< more
  below,  ///< less
};

struct ClaimResult {
  std::string id{};
  std::string text{};
  std::string unit{};  ///< "%", "x", "points" or "reads"
  ClaimRelation relation = ClaimRelation::about;
  double paper = 0;
  double ours = 0;
  std::string assumed{};  ///< letters of claim_assumptions()

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

/// In the order of the paper's sections; a claim may have several figures.
[[nodiscard]] std::vector<ClaimResult> claims_of(const T3Study& study);
[[nodiscard]] const std::vector<NotCovered>& claims_not_covered();
[[nodiscard]] const std::vector<ClaimAssumption>& claim_assumptions();

}  // namespace tilewire::cli
