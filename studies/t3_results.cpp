// The arithmetic of T3's study on the times of sub-layers: speedups, means, and whole iterations.
// Called by t3_verb.cpp, t3_json.cpp, t3_order.cpp, t3_claims.cpp and tests.
#include "studies/t3_results.hpp"

#include <algorithm>
#include <array>

#include "cli/geometric_mean.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

constexpr std::array kFields{&T3Speedups::t3, &T3Speedups::t3_mca, &T3Speedups::ideal_overlap, &T3Speedups::ideal_near};

const SubLayerTimes& times_of(std::span<const T3Row> rows, const std::string& model, int tp, SubLayerKind kind) {
  const auto found = std::ranges::find_if(
      rows, [&](const T3Row& row) { return row.layer.model == model && row.layer.tp == tp && row.layer.kind == kind; });
  require(found != rows.end(), "{}, tp = {}: an iteration needs all four sub-layers, {} is missing", model, tp,
          short_name(kind));
  return found->times;
}

// A pass whose GEMMs take `gemm_ns`, those of the two sub-layers included.
T3Phase pass_of(double gemm_ns, const SubLayerTimes& first, const SubLayerTimes& second, double attention_share) {
  T3Phase phase{.gemm_ns = gemm_ns};
  double t3_ns = 0;
  double t3_mca_ns = 0;
  for (const SubLayerTimes& times : {first, second}) {
    phase.communication_ns += times.rs_ns + times.ag_ns;
    t3_ns += times.fused_ns + times.ag_ns - sequential_ns(times);
    t3_mca_ns += times.fused_mca_ns + times.ag_ns - sequential_ns(times);
  }
  phase.other_ns = (phase.gemm_ns + phase.communication_ns) * attention_share / (1 - attention_share);
  phase.t3_ns = phase.sequential_ns() + t3_ns;
  phase.t3_mca_ns = phase.sequential_ns() + t3_mca_ns;
  return phase;
}

T3Phase sum(const T3Phase& a, const T3Phase& b) {
  return {.gemm_ns = a.gemm_ns + b.gemm_ns,
          .communication_ns = a.communication_ns + b.communication_ns,
          .other_ns = a.other_ns + b.other_ns,
          .t3_ns = a.t3_ns + b.t3_ns,
          .t3_mca_ns = a.t3_mca_ns + b.t3_mca_ns};
}

}  // namespace

std::vector<T3Row> rows_of(const std::vector<T3Group>& groups) {
  std::vector<T3Row> rows;
  for (const T3Group& group : groups) rows.insert(rows.end(), group.rows.begin(), group.rows.end());
  return rows;
}

double sequential_ns(const SubLayerTimes& times) { return times.gemm_ns + times.rs_ns + times.ag_ns; }

T3Speedups speedups_of(const SubLayerTimes& times) {
  const double sequential = sequential_ns(times);
  return {.t3 = sequential / (times.fused_ns + times.ag_ns),
          .t3_mca = sequential / (times.fused_mca_ns + times.ag_ns),
          .ideal_overlap = sequential / (std::max(times.gemm_ns, times.rs_ns) + times.ag_ns),
          .ideal_near = sequential / (std::max(times.gemm_ns, times.rs_near_ns) + times.ag_ns)};
}

double traffic_reduction(const SubLayerTimes& times) {
  const auto before = static_cast<double>(times.sequential.total());
  return before > 0 ? 1 - static_cast<double>(times.t3.total()) / before : 0;
}

T3Summary summary_of(std::span<const T3Row> rows) {
  T3Summary summary;
  for (const auto field : kFields) {
    std::vector<double> values;
    for (const T3Row& row : rows) values.push_back(speedups_of(row.times).*field);
    summary.geomean.*field = geometric_mean(values);
    summary.most.*field = values.empty() ? 0 : std::ranges::max(values);
  }
  for (const T3Row& row : rows) {
    const double reduction = traffic_reduction(row.times);
    summary.mean_reduction += reduction / static_cast<double>(rows.size());
    summary.most_reduction = std::max(summary.most_reduction, reduction);
  }
  return summary;
}

std::vector<std::string> texts_of(const T3Assumptions& assumptions) {
  return {
      fmt::format("attention and all else that is no GEMM or all-reduce of a layer: {:g} % of Sequential (section 6.3: "
                  "40 to 45 %), in training as in the prompt phase",
                  100 * assumptions.attention_share),
      "forward: GEMMs of QKV and FC-1 as long as those of IP and FC-1 backward, which have as many FLOP; all-reduces "
      "after OP and FC-2",
      fmt::format("backward: {:g} times the GEMMs of forward, with any layout as long; all-reduces after FC-1 and IP",
                  assumptions.backward_gemms),
      "no recomputation of activations, no weight update, no data parallelism",
      "GEMMs of 128 x 128 tiles; blocks of a tile, the next 64 of which start by DMA as soon as they are complete; "
      "memory that is added to is clear beforehand",
  };
}

std::vector<double> phase_speedups(std::span<const T3Iteration> iterations, T3Phase T3Iteration::*phase,
                                   double (T3Phase::*speedup)() const) {
  std::vector<double> values;
  for (const T3Iteration& each : iterations) values.push_back(((each.*phase).*speedup)());
  return values;
}

std::vector<T3Iteration> iterations_of(std::span<const T3Row> rows, const T3Assumptions& assumptions) {
  const double share = assumptions.attention_share;
  require(share >= 0 && share < 1, "attention_share = {}: want a share from 0 to below 1", share);
  require(assumptions.backward_gemms >= 1, "backward_gemms = {} is below 1", assumptions.backward_gemms);
  std::vector<T3Iteration> iterations;
  for (const T3Row& row : rows) {
    const std::string& model = row.layer.model;
    const int tp = row.layer.tp;
    const bool known =
        std::ranges::any_of(iterations, [&](const T3Iteration& each) { return each.model == model && each.tp == tp; });
    if (known) continue;
    const SubLayerTimes& projection = times_of(rows, model, tp, SubLayerKind::output_projection);
    const SubLayerTimes& fc2 = times_of(rows, model, tp, SubLayerKind::fc2);
    const SubLayerTimes& fc1 = times_of(rows, model, tp, SubLayerKind::fc1);
    const SubLayerTimes& input = times_of(rows, model, tp, SubLayerKind::input_projection);
    const double gemms_ns = projection.gemm_ns + fc2.gemm_ns + fc1.gemm_ns + input.gemm_ns;
    const T3Phase forward = pass_of(gemms_ns, projection, fc2, share);
    const T3Phase backward = pass_of(assumptions.backward_gemms * gemms_ns, fc1, input, share);
    iterations.push_back({.model = model, .tp = tp, .training = sum(forward, backward), .prompt = forward});
  }
  return iterations;
}

}  // namespace tilewire::cli
