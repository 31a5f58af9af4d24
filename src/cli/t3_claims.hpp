// The figures of T3's paper beside ours.
// Used by sim_claims.cpp and tests.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "cli/claims.hpp"
#include "cli/t3_results.hpp"
#include "tilewire/machine.hpp"

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
  double rs_ns = 0;  ///< of ar_ns, the reduce-scatter
  double rs8_ns = 0;
  double rs16_ns = 0;

  /// What running both at once could gain at most over one after the other on all units, where they take so long.
  [[nodiscard]] double speedup(double gemm_part_ns, double ar_part_ns) const {
    return (gemm_ns + ar_ns) / std::max(gemm_part_ns, ar_part_ns);
  }
};

/// Everything that the claims are about.
struct T3Study {
  std::vector<T3Row> rows{};         ///< Mega-GPT-2 and T-NLG, at 8 and 16
  std::vector<T3Row> large{};        ///< GPT-3, PALM and MT-NLG, at 32
  std::vector<T3Row> twice_cu{};     ///< OP and FC-2 of `rows` with 160 compute units
  std::vector<T3Split> splits{};     ///< OP and FC-2 of `rows` at 8
  std::optional<Tracker> tracker{};  ///< of the machine
  T3Assumptions assumptions{};
};

/// The paper's figures beside those of a study.
[[nodiscard]] PaperClaims t3_claims(const T3Study& study);

}  // namespace tilewire::cli
