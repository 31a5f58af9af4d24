// What runs at once shares what it needs: a fluid model. Everybody who meets at a resource slows by the same factor.
// Used by the engine.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "backends/sim/time.hpp"

namespace tilewire::sim {

/// The share of a resource that a flow takes while it runs at full speed.
struct Demand {
  int resource = 0;
  double share = 0;
  int sender = -1;  ///< of a link into a device: who sends; -1 where it does not matter
};

/// Flows take `work` when they are alone. A flow's speed is 1 unless a resource's demands add up to more than it has:
/// then the speeds of its flows are lowered alike until they fit (max-min fairness), and what they leave elsewhere is
/// for others.
class Flows {
 public:
  /// By resource: what is left of it when flows of two senders, or more, that want as much as each other meet there;
  /// 1 = all of it.
  explicit Flows(std::vector<double> when_meeting);

  /// Begin a flow that takes `work_ns` alone; `settle` gives it its speed. Returns its number, which is reused later.
  int start(double work_ns, const std::vector<Demand>& demands, Time now);
  /// Share anew wherever flows have begun or ended since.
  void settle(Time now);
  /// When the next flow ends at the present speeds; kNever where none runs.
  [[nodiscard]] Time next_end();
  /// End the flows whose time has come, in the order in which they began to share so.
  void take_ended(Time now, std::vector<int>& ended);
  /// Nanoseconds of full use so far, by resource, of flows that have ended.
  [[nodiscard]] const std::vector<double>& used_ns() const { return used_ns_; }
  /// The largest use of any resource at any time so far, relative to what it has: at most 1.
  [[nodiscard]] double most_used() const { return most_used_; }

 private:
  struct Held {
    Demand demand;
    int place = 0;  ///< in the resource's list
  };
  struct Flow {
    std::vector<Held> held;
    double left_ns = 0;  ///< at full speed
    double speed = 0;
    Time since = 0;  ///< when left_ns was true
    uint32_t version = 0;
    bool gathered = false;
    bool fixed = false;
    double work_ns = 0;
  };
  struct Member {
    int flow;
    int held;
  };
  struct Resource {
    std::vector<Member> members;
    double load = 0;  ///< at full speed
    double when_meeting = 1;
    bool tight = false;  ///< at the last sharing
    bool dirty = false;
    double fixed_use = 0;   ///< while speeds are found
    double open_share = 0;  ///< while speeds are found
  };
  struct End {
    Time time;
    uint64_t order;
    int flow;
    uint32_t version;
    bool operator<(const End& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  [[nodiscard]] double capacity(const Resource& resource) const;
  [[nodiscard]] bool constrains(const Resource& resource) const;
  void mark(int resource);
  void gather_around(int flow);
  void find_speeds();
  void fix(int flow, double speed);
  void remove(int flow);

  std::vector<Resource> resources_;
  std::vector<Flow> flows_;
  std::vector<int> free_;
  std::vector<int> fresh_;  ///< begun, without a speed
  std::vector<int> dirty_;
  std::vector<int> part_;            ///< flows that are shared anew
  std::vector<int> part_resources_;  ///< and what limits them
  std::vector<double> new_speed_;
  std::priority_queue<End> ends_;
  uint64_t order_ = 0;
  std::vector<double> used_ns_;
  double most_used_ = 0;
};

}  // namespace tilewire::sim
