// What `transport = ll` changes on GPUs: workspace whose elements say themselves that they have arrived.
// Used where plans are refused, where workspace is made, and where a plan becomes records.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// Whether the elements of a region are flags, too. Until an element is written all of its bits are 1; whoever reads
/// it looks until they are not, and puts them back. Nothing that is written there has such bits: what is computed or
/// rounded makes one NaN of all, and that is another (ll_protocol.cuh sees to the rest).
[[nodiscard]] bool is_ll(const Plan& plan, const Region& region);
[[nodiscard]] bool uses_ll(const Plan& plan);

/// By signal_id: signals that nobody needs, as all who wait for them look at flagged data. `whole`:
/// all ranks' lanes.
[[nodiscard]] std::vector<bool> elided_signals(const Plan& whole);

/// Why flags could not travel with the data of a plan that has them, though signals could stand for it; or nothing. An
/// element is stored, never added to; it is read once in a call, by a worker CTA on its rank; another rank stores there
/// after that rank has said that it is ready.
[[nodiscard]] std::optional<std::string> refuses_ll(const Plan& whole);

}  // namespace tilewire::cuda
