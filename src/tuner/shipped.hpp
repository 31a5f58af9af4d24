// The winners that tilewire ships: the fastest configs of measured rows, for machines with two and four GPUs.
// Called by tuner.cpp. The tables are tables/*.json; bench/winner_tables.py makes them from bench/results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire::tuner {

/// A measured row of a table.
struct ShippedWinner {
  std::string table{};  ///< "h200x2"
  Problem problem{};
  Config config{};
  double us = 0;  ///< of a call, when the row was measured
};

/// All rows of all tables.
[[nodiscard]] const std::vector<ShippedWinner>& shipped_winners();

/// The row for a problem on a machine, or null. The problem may differ in its 16-bit type, in `reduction`, and in M by
/// less than 8 rows; bias, epilogue, layouts and the rest are those of the measurement, the defaults. GPUs that ranks
/// share or have a part of have no rows.
[[nodiscard]] const ShippedWinner* find_shipped(const Target& target, const Problem& problem);

}  // namespace tilewire::tuner
