// The winners that tilewire ships: the fastest configs of measured rows, for machines with two and four GPUs.
// Called by tuner.cpp and `tilewire plan`. The tables are tables/*.json; bench/winner_tables.py makes them from
// bench/results.
#pragma once

#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire::tuner {

/// A measured row of a table.
struct ShippedWinner {
  std::string table{};     ///< name of the target, "h200x2"
  std::string hardware{};  ///< of the group that was measured (Group::hardware), "2 x NVIDIA H200, 132 SMs"
  Problem problem{};
  Config config{};
  double us = 0;  ///< of a call, when the row was measured
};

/// All rows of all tables.
[[nodiscard]] const std::vector<ShippedWinner>& shipped_winners();

/// The row for a problem on a target's machine, or null. Problems with the same calls are equal: either 16-bit type,
/// any `reduction`, M up to the same multiple of 8. Arena, layout, bias, epilogue and the rest are those of the
/// measurement. GPUs that ranks share or have a part of have no rows.
[[nodiscard]] const ShippedWinner* find_shipped(const Target& target, const Problem& problem);

}  // namespace tilewire::tuner
