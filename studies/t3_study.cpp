// Simulates T3's study.
// Called by t3_verb.cpp and claims_verb.cpp.
#include "studies/t3_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "cli/all_cores.hpp"

namespace tilewire::cli {
namespace {

using Jobs = std::vector<std::pair<SubLayer, Machine>>;

// Compute units of the GPU-2X-CU (T3, section 7.5).
constexpr int kTwiceUnits = 160;
// The paper's splits of the units: GEMM and all-reduce (section 3.2.1).
constexpr int kSplits[2][2] = {{72, 8}, {64, 16}};
constexpr int kSplitTp = 8;

Machine with_units(Machine machine, int units) {
  set_value(machine, "compute.units", fmt::format("{}", units));
  validate(machine);
  return machine;
}

bool is_larger(const T3Model& model) { return model.tp.front() >= kLargerTp; }

// Assumed: "Attn." in the paper's figure 6 is the projection of attention's output.
bool is_op_or_fc2(const SubLayer& layer) {
  return layer.kind == SubLayerKind::output_projection || layer.kind == SubLayerKind::fc2;
}

}  // namespace

// FC-2 and FC-1 have the same GEMM, so each is simulated once.
std::vector<T3Row> simulate_layers(const std::vector<std::pair<SubLayer, Machine>>& jobs) {
  const auto same = [](const std::pair<SubLayer, Machine>& a, const std::pair<SubLayer, Machine>& b) {
    const auto shape = [](const SubLayer& layer) { return std::tuple(layer.tp, layer.m, layer.n, layer.k); };
    return shape(a.first) == shape(b.first) && a.second == b.second;
  };
  std::vector<size_t> first(jobs.size());
  std::vector<size_t> distinct;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto found = std::ranges::find_if(distinct, [&](size_t each) { return same(jobs[each], jobs[i]); });
    first[i] = found == distinct.end() ? distinct.emplace_back(i) : *found;
  }
  std::vector<SubLayerTimes> times(jobs.size());
  on_all_cores(distinct.size(), "sub-layers", [&](size_t i) {
    times[distinct[i]] = simulate_sub_layer(jobs[distinct[i]].first, jobs[distinct[i]].second);
  });
  std::vector<T3Row> rows;
  for (size_t i = 0; i < jobs.size(); ++i) rows.push_back({.layer = jobs[i].first, .times = times[first[i]]});
  return rows;
}

std::vector<T3Model> models_of_study(bool larger) {
  std::vector<T3Model> models;
  std::ranges::copy_if(t3_models(), std::back_inserter(models),
                       [&](const T3Model& model) { return is_larger(model) == larger; });
  return models;
}

std::vector<SubLayer> sub_layers_of(const std::vector<T3Model>& models) {
  std::vector<SubLayer> layers;
  for (const T3Model& model : models) {
    for (const int tp : model.tp) std::ranges::copy(tilewire::sub_layers_of(model, tp), std::back_inserter(layers));
  }
  return layers;
}

// Simulate all at once, so that all cores are busy to the end.
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
