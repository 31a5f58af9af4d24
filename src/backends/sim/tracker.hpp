// T3's Tracker (section 4.2.1): counters of updates beside a memory controller, found by who makes what is updated.
// Used by the engine and tests.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

/// Beside the signals of track_trigger, which say when a DMA starts: the same counts, in the room that the hardware
/// has. A block of the output counts as one workgroup. A workgroup's number selects an entry by its lowest bits; the
/// rest of it and the wavefront select the way. A way is taken with the first update and free again when all have come.
class TrackerTable {
 public:
  explicit TrackerTable(const Tracker& tracker);

  /// `count` of `wanted` updates of what a wavefront makes. Whether that was the last one, which triggers the DMA.
  bool update(int64_t workgroup, int wavefront, int64_t count, int64_t wanted);
  /// The same for all wavefronts of a workgroup, which has as many as an entry has ways.
  bool update_workgroup(int64_t workgroup, int64_t count, int64_t wanted);

  /// Wavefronts counted at present, and the most there have been.
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] int64_t most() const { return most_; }
  /// Wavefronts that found no free way. T3 does not say what becomes of them: they are counted elsewhere here.
  [[nodiscard]] int64_t without_room() const { return without_room_; }

 private:
  struct Way {
    int64_t workgroup;
    int wavefront;
    int64_t count;
  };
  Tracker config_;
  std::vector<std::vector<Way>> entries_;
  std::map<std::pair<int64_t, int>, int64_t> elsewhere_;
  int64_t size_ = 0;
  int64_t most_ = 0;
  int64_t without_room_ = 0;
};

}  // namespace tilewire::sim
