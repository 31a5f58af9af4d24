// From which column of A on a tile needs what it waits for: the loads of the columns before do not wait.
// Called when the cuda backend loads a program, and by the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// A tile some of whose waits are for columns of A that its loads come to later. Lane: index among the rank's own
/// lanes.
struct ColumnWaits {
  int lane = 0;
  int64_t tile = 0;
  std::vector<int64_t> columns{};  ///< for each of the task's waits: the first column that needs it, from 0
};

/// Such tiles of one rank. Where nobody writes A, what waits for owners to be ready are the results: that comes with
/// the last column. Elsewhere everything that writes a part of such a tile's A during a call posts a signal that the
/// tile waits for in full, and B is an input: so columns that come before all that a signal's posters write need it
/// not.
[[nodiscard]] std::vector<ColumnWaits> column_waits(const Plan& whole, int rank);

}  // namespace tilewire
