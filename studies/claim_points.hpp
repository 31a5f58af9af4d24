// The shapes of papers' figures, on the papers' machines, and their simulated times.
// Used by flux_claims, ficco_claims, distfuse_claims, fused_claims, claims_table, claims_verb.cpp and tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "studies/claims.hpp"
#include "tilewire/config.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// How the plan of an entry is chosen.
enum class ClaimPlan {
  given,           ///< a schedule with knobs
  gemms,           ///< the GEMMs of that schedule alone
  fastest_kernel,  ///< the fastest candidate of `fused` whose GEMM is made of tiles
};

/// One of the ways that are compared at a point.
struct ClaimEntry {
  std::string name{};
  ClaimPlan plan = ClaimPlan::given;
  std::string schedule{};          ///< of `given` and `gemms`
  std::vector<std::string> set{};  ///< its knobs, as --set
};

/// One shape on one machine.
struct ClaimPoint {
  std::string name{};     ///< the paper's name; empty: its sizes
  std::string machine{};  ///< name of a known machine
  std::string op{};       ///< an operator; without entries a collective alone, of an m x k matrix
  int64_t m = 0;          ///< sizes over all ranks
  int64_t n = 0;
  int64_t k = 0;
  int ranks = 0;
  /// The ways that are simulated, in addition to the library's GEMM before or after the library's collective.
  std::vector<ClaimEntry> entries{};
  std::vector<std::string> set{};  ///< values of the machine, as --set
  /// Of an all-to-all and the GEMM of each rank's expert (dispatch_plans.hpp): rows that each rank takes. `m` is their
  /// sum, `n` the columns of each expert. Its ways: shards, chunks, tiles.
  std::vector<int64_t> rows{};
  /// Of the GEMM of each rank's expert and an all-to-all (combine_plans.hpp): ranks to which each row goes. `m` is the
  /// number of rows over all ranks, `n` the columns of each expert. Its way: tiles.
  int copies = 0;
};

/// Whether a point is a collective alone.
[[nodiscard]] inline bool is_collective(const ClaimPoint& point) {
  return point.entries.empty() && point.rows.empty() && point.copies == 0;
}

/// The simulated times of a point.
struct PointTimes {
  ClaimPoint point{};
  double gemm_ns = 0;                       ///< a library's GEMM alone
  double comm_ns = 0;                       ///< its collective alone
  double sequential_ns = 0;                 ///< one after the other, as users run them
  std::map<std::string, double> ns{};       ///< by entry or way; of a collective alone by algorithm: direct, ring
  std::map<std::string, Config> configs{};  ///< by entry

  /// Throws Error(internal) if no entry of that name was simulated.
  [[nodiscard]] double of(const std::string& entry) const;
};
using ClaimTimes = std::vector<PointTimes>;

/// `value` of each point for which `keep` is true.
template <class Keep>
[[nodiscard]] std::vector<double> values_of(const ClaimTimes& times, Keep keep, double (*value)(const PointTimes&)) {
  std::vector<double> values;
  for (const PointTimes& each : times) {
    if (keep(each.point)) values.push_back(value(each));
  }
  return values;
}

/// A point is judged by this entry: the fastest kernel, with any order of sums, as in the library's collectives.
inline constexpr const char* kKernel = "kernel";
[[nodiscard]] ClaimEntry kernel_entry();
/// A schedule with knobs.
[[nodiscard]] ClaimEntry entry(const std::string& name, const std::string& schedule, std::vector<std::string> set);

/// A paper whose figures are about such points.
struct PointPaper {
  const char* name;
  std::vector<ClaimPoint> (*points)();
  PaperClaims (*claims)(const ClaimTimes&);
};
/// The papers with tables: flux, ficco, distfuse, fused_collectives.
[[nodiscard]] const std::vector<PointPaper>& point_papers();

[[nodiscard]] std::vector<ClaimPoint> flux_points();
[[nodiscard]] PaperClaims flux_claims(const ClaimTimes& times);
[[nodiscard]] std::vector<ClaimPoint> ficco_points();
[[nodiscard]] PaperClaims ficco_claims(const ClaimTimes& times);
[[nodiscard]] std::vector<ClaimPoint> distfuse_points();
[[nodiscard]] PaperClaims distfuse_claims(const ClaimTimes& times);
[[nodiscard]] std::vector<ClaimPoint> fused_points();
[[nodiscard]] PaperClaims fused_claims(const ClaimTimes& times);

}  // namespace tilewire::cli
