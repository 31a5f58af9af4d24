// Everything that the figures of T3's paper need, simulated.
// Called by sim_t3.cpp and sim_claims.cpp.
#include <fmt/format.h>

#include "cli/sim_t3.hpp"

namespace tilewire::cli {
namespace {

using Jobs = std::vector<std::pair<SubLayer, Machine>>;

// Compute units of the GPU-2X-CU (T3, section 7.5).
constexpr int kTwiceUnits = 160;
// How the paper splits them: GEMM and all-reduce (section 3.2.1).
constexpr int kSplits[2][2] = {{72, 8}, {64, 16}};
constexpr int kSplitTp = 8;

Machine with_units(Machine machine, int units) {
  set_value(machine, "compute.units", fmt::format("{}", units));
  validate(machine);
  return machine;
}

// "Attn." of the paper's figure 6 is taken for the projection of its output (assumed).
bool is_op_or_fc2(const SubLayer& layer) {
  return layer.kind == SubLayerKind::output_projection || layer.kind == SubLayerKind::fc2;
}

}  // namespace

// Everything at once, so that all cores are busy to the end.
T3Study study_of(const Machine& machine, bool larger) {
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
  const size_t large = larger ? add(sub_layers_of(models_of_study(true)), machine) : 0;
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
  study.tracker = machine.tracker;
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
                            .ar16_ns = ar_ns(ar16[i].times),
                            .rs_ns = whole[i].times.rs_ns,
                            .rs8_ns = ar8[i].times.rs_ns,
                            .rs16_ns = ar16[i].times.rs_ns});
  }
  return study;
}

}  // namespace tilewire::cli
