// How far tile lanes must have come before a signal is complete, over all ranks: what tiles may wait for without
// deadlock. Used by unpair_tiles.cpp and fuse_sums.cpp.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// A tile at position p of its lane may wait for whatever needs tiles at positions below p only, on any rank: of all
/// tiles that are not finished, those at the lowest position then never wait for ever.
class TileNeeds {
 public:
  explicit TileNeeds(const Plan& whole);
  /// The highest position of a tile, in the tile lane of any rank, without which not all posts to the signal are made;
  /// -1 = none. Posts of `except` (lane and task) are left out.
  [[nodiscard]] int64_t of(Signal signal, std::pair<int, int64_t> except = {-1, -1});

 private:
  struct Poster {
    int lane = 0;
    int64_t task = 0;
  };
  /// The tasks of a lane that are worked out, in list order: a tile comes after the tiles before it, others after
  /// others.
  struct Prefix {
    int64_t known = 0;
    int64_t of_tiles = -1;   ///< most that the tiles among them wait for
    int64_t of_others = -1;  ///< the same of the other tasks
    bool busy = false;
  };
  int64_t of_task(const Poster& task);
  int64_t of_waits(const Task& task);

  const Plan& plan_;
  std::vector<std::vector<Poster>> posters_;   ///< by signal
  std::vector<int64_t> by_signal_;             ///< memo; kUnknown
  std::vector<std::vector<int64_t>> by_task_;  ///< memo, by lane
  std::vector<Prefix> prefixes_;               ///< by lane
};

}  // namespace tilewire
