// First come, first served: runs that wait for a copy engine of a device, or for a link.
// Used by the engine.
#pragma once

#include <cstddef>
#include <vector>

namespace tilewire::sim {

/// Things that serve so many runs at once each; the others wait for their turn. A run waits at one of them at a time.
class Turns {
 public:
  Turns(size_t things, int places) : things_(things, Thing{.free = places}) {}

  /// Whether a place was free, and is the run's now; else it waits.
  bool enter(size_t thing, int run) {
    Thing& at = things_[thing];
    if (at.free > 0) {
      --at.free;
      return true;
    }
    if (next_.size() <= static_cast<size_t>(run)) next_.resize(run + 1, kNobody);
    next_[run] = kNobody;
    (at.first == kNobody ? at.first : next_[at.last]) = run;
    at.last = run;
    return false;
  }

  /// Give a place back. Returns the run whose turn it is, which then enters; kNobody = none waits.
  int leave(size_t thing) {
    Thing& at = things_[thing];
    ++at.free;
    const int run = at.first;
    if (run != kNobody) at.first = next_[run];
    return run;
  }

  static constexpr int kNobody = -1;

 private:
  struct Thing {
    int free = 0;
    int first = kNobody;  ///< that waits
    int last = kNobody;
  };
  std::vector<Thing> things_;
  std::vector<int> next_;  ///< by run: who waits behind it
};

}  // namespace tilewire::sim
