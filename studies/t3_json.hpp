// The JSON of `tilewire-studies t3 --json` (docs/bench_json.md lists the fields).
// Used by t3_verb.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "studies/t3_results.hpp"
#include "tilewire/sim/machine.hpp"

namespace tilewire::cli {

/// {machine, rows, summaries, out_of_order, end_to_end, attention_share, backward_gemms, assumed}
[[nodiscard]] nlohmann::json json_of(const std::vector<T3Group>& groups, const Machine& machine,
                                     const T3Assumptions& assumptions);
/// Add `twice_cu` and `splits`.
void add_units(nlohmann::json& result, const T3Study& study);
/// The traffic of one sub-layer's memory over time.
[[nodiscard]] nlohmann::json traffic_json(const SubLayer& layer, const SubLayerTraffic& traffic);

}  // namespace tilewire::cli
