// First-come, first-served queues: runs that wait for a copy engine of a device, or for a link.
// Used by the engine.
#pragma once

#include <cstddef>
#include <vector>

namespace tilewire::sim {

/// Things with `places` places each. A run waits for at most one thing at a time.
class Turns {
 public:
  Turns(size_t things, int places) : things_(things, Thing{.free = places}) {}

  /// Take a place for the run, or queue it. Returns whether it got a place.
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

  /// Free a place. Returns the next run in the queue, which must then enter; kNobody = none waits.
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
    int first = kNobody;  ///< first run in the queue
    int last = kNobody;
  };
  std::vector<Thing> things_;
  std::vector<int> next_;  ///< by run: the next run in the queue
};

}  // namespace tilewire::sim
