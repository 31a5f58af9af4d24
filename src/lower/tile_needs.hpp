// Finds the tiles that must be finished before a signal is complete, over all ranks: the waits of a tile that cannot
// deadlock. Used by unpair_tiles.cpp and fuse_sums.cpp.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// Deadlock rule: a tile at position p of its lane may wait for posts that need only tiles at positions below p, on any
/// rank. Then the unfinished tiles at the lowest position never wait for ever.
class TileNeeds {
 public:
  explicit TileNeeds(const Plan& whole);
  /// The highest position of a tile, in the tile lane of any rank, that must be finished before all posts to the signal
  /// are made; -1 if none. `except` (lane and task): a poster to leave out.
  [[nodiscard]] int64_t of(Signal signal, std::pair<int, int64_t> except = {-1, -1});

 private:
  struct Poster {
    int lane = 0;
    int64_t task = 0;
  };
  /// The first tasks of a lane whose needs are known. A tile is assumed to come after the tiles before it, any other
  /// task after the other tasks before it.
  struct Prefix {
    int64_t known = 0;
    int64_t of_tiles = -1;   ///< highest need of the tiles among them
    int64_t of_others = -1;  ///< the same of the other tasks
    bool busy = false;
  };
  int64_t of_task(const Poster& task);
  int64_t of_waits(const Task& task);

  const Plan& plan_;
  std::vector<std::vector<Poster>> posters_;   ///< by signal_id
  std::vector<int64_t> by_signal_;             ///< cache, by signal_id; kUnknown at first
  std::vector<std::vector<int64_t>> by_task_;  ///< cache, by lane and task
  std::vector<Prefix> prefixes_;               ///< by lane
};

}  // namespace tilewire
