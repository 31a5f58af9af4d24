// The data of T3's study, and its arithmetic: speedups, means, and whole iterations.
// Used by t3_verb.cpp, t3_study.cpp, t3_json.cpp, t3_order.cpp, t3_claims.cpp and tests.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "studies/t3.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// A sub-layer, and its simulated times.
struct T3Row {
  SubLayer layer{};
  SubLayerTimes times{};
};

/// Rows that have common means.
struct T3Group {
  std::string title{};
  std::vector<T3Row> rows{};
};
[[nodiscard]] std::vector<T3Row> rows_of(const std::vector<T3Group>& groups);

/// The time of Sequential divided by those of the paper's other configurations (T3, section 5.3); 1.3 is 30 % faster.
struct T3Speedups {
  double t3 = 1;
  double t3_mca = 1;
  double ideal_overlap = 1;  ///< Ideal-GEMM-RS-Overlap
  double ideal_near = 1;     ///< Ideal-RS+NMC
};

/// The time of GEMM, reduce-scatter and all-gather, one after the other.
[[nodiscard]] double sequential_ns(const SubLayerTimes& times);
[[nodiscard]] T3Speedups speedups_of(const SubLayerTimes& times);
/// The share of Sequential's bytes that T3-MCA does not move: 0.22 is 22 % less.
[[nodiscard]] double traffic_reduction(const SubLayerTimes& times);

/// Means and maxima over some sub-layers; 0 if there are none.
struct T3Summary {
  T3Speedups geomean{};
  T3Speedups most{};
  double mean_reduction = 0;
  double most_reduction = 0;
};
[[nodiscard]] T3Summary summary_of(std::span<const T3Row> rows);

/// The parts of a whole iteration besides the simulated sub-layers. The paper scales a measured breakdown of BERT that
/// it does not give (section 5.1.2).
struct T3Assumptions {
  /// The share in an iteration of Sequential of attention and everything else that is no GEMM or all-reduce of a layer.
  /// Assumed: the middle of section 6.3's 40 to 45 %, in training and in the prompt phase, at all degrees.
  double attention_share = 0.425;
  /// GEMMs of the backward pass for each GEMM of the forward pass: gradients of inputs and of weights. Assumed: each
  /// takes as long as a simulated GEMM of as many FLOP.
  double backward_gemms = 2;
};
/// The assumptions as text, one line each, with their numbers.
[[nodiscard]] std::vector<std::string> texts_of(const T3Assumptions& assumptions);

/// One layer of a model on one device, in a forward pass or in a whole step of training.
struct T3Phase {
  double gemm_ns = 0;
  double communication_ns = 0;  ///< reduce-scatter and all-gather of Sequential
  double other_ns = 0;
  double t3_ns = 0;      ///< the whole phase, with fused sub-layers
  double t3_mca_ns = 0;  ///< the same for T3-MCA

  [[nodiscard]] double sequential_ns() const { return gemm_ns + communication_ns + other_ns; }
  [[nodiscard]] double communication_share() const { return communication_ns / sequential_ns(); }
  [[nodiscard]] double t3_speedup() const { return sequential_ns() / t3_ns; }
  [[nodiscard]] double t3_mca_speedup() const { return sequential_ns() / t3_mca_ns; }
};

struct T3Iteration {
  std::string model{};
  int tp = 1;
  T3Phase training{};
  T3Phase prompt{};
};

/// One speedup of one phase, for each iteration.
[[nodiscard]] std::vector<double> phase_speedups(std::span<const T3Iteration> iterations, T3Phase T3Iteration::*phase,
                                                 double (T3Phase::*speedup)() const);
/// The iterations of each model and degree in `rows`, in order. Throws Error(invalid_input) if one of the four
/// sub-layers is missing, or if the share is not in [0, 1).
[[nodiscard]] std::vector<T3Iteration> iterations_of(std::span<const T3Row> rows, const T3Assumptions& assumptions);

/// A GEMM and its all-reduce at the same time, on separate compute units (T3, section 3.2.1).
struct T3Split {
  SubLayer layer{};
  double gemm_ns = 0;  ///< on all compute units; the other fields: on so many
  double ar_ns = 0;    ///< reduce-scatter and all-gather
  double gemm72_ns = 0;
  double ar8_ns = 0;
  double gemm64_ns = 0;
  double ar16_ns = 0;
  double rs_ns = 0;  ///< the reduce-scatter's part of ar_ns
  double rs8_ns = 0;
  double rs16_ns = 0;

  /// The most that running both at once can gain over one after the other on all units, with these times on parts.
  [[nodiscard]] double speedup(double gemm_part_ns, double ar_part_ns) const {
    return (gemm_ns + ar_ns) / std::max(gemm_part_ns, ar_part_ns);
  }
};

/// All data that the paper's figures need.
struct T3Study {
  std::vector<T3Row> rows{};         ///< Mega-GPT-2 and T-NLG, at 8 and 16
  std::vector<T3Row> large{};        ///< GPT-3, PALM and MT-NLG, at 32
  std::vector<T3Row> twice_cu{};     ///< OP and FC-2 of `rows` with 160 compute units
  std::vector<T3Split> splits{};     ///< OP and FC-2 of `rows` at 8
  std::optional<Tracker> tracker{};  ///< of the machine
  T3Assumptions assumptions{};
};

}  // namespace tilewire::cli
