// T3's Tracker (section 4.2.1): counters of updates at a memory controller, indexed by the wavefront that writes.
// Used by the engine and tests.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tilewire/sim/machine.hpp"

namespace tilewire::sim {

/// Counts the same updates as the signals of track_trigger, which start DMAs, but within the room of the hardware. A
/// block of the output counts as one workgroup. The low bits of a workgroup's number select an entry; the other bits
/// and the wavefront select the way. A way is allocated at the first update and freed at the last.
class TrackerTable {
 public:
  explicit TrackerTable(const Tracker& tracker);

  /// Count `count` of `wanted` updates of one wavefront's output. Returns whether they are complete, which triggers the
  /// DMA.
  bool update(int64_t workgroup, int wavefront, int64_t count, int64_t wanted);
  /// The same for all wavefronts of a workgroup, as many as an entry has ways.
  bool update_workgroup(int64_t workgroup, int64_t count, int64_t wanted);

  /// Number of counted wavefronts now, and the highest so far.
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] int64_t most() const { return most_; }
  /// Wavefronts that found no free way. T3 does not define this case; the simulator counts them elsewhere.
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
