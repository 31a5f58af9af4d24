// Rows of a rank's own input that are copied only to lie beside other ranks' rows, for tiles.
// Called when a program is loaded.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// Rows that tiles multiply, of which the first or the last ones are a copy of the rank's own input.
struct LocalRows {
  Region a{};      ///< what the tiles read
  Region first{};  ///< the same rows where they are: the first ones,
  Region rest{};   ///< and the others
};

/// A write of a copy. Lane: index among the rank's own lanes.
struct CopyWrite {
  int lane = 0;
  int64_t task = 0;
  size_t write = 0;

  auto operator<=>(const CopyWrite&) const = default;
};

/// What tiles can load where it is, instead of from a copy.
struct LocalRowsOfTiles {
  std::vector<LocalRows> rows{};
  std::vector<CopyWrite> spare{};  ///< the copies: nobody else reads them
};

/// Such rows of one rank. All copies from its input to its workspace by pools are spare, or nothing is reported: tiles
/// alone read them, where they are the first rows or the last ones, in at most kMostSplits places, and the border is at
/// a multiple of kRowsOfSplit. What tiles wait for stays as it is.
[[nodiscard]] LocalRowsOfTiles local_rows(const Plan& whole, int rank);

}  // namespace tilewire::cuda
