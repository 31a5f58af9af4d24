// What runs at once shares what it needs: a fluid model. Everybody who meets at a resource slows by the same factor.
// Used by the engine, costs.cpp (Demand) and tests.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <queue>
#include <vector>

#include "backends/sim/time.hpp"

namespace tilewire::sim {

/// The share of a resource that a flow takes while it runs at full speed.
struct Demand {
  int resource = 0;
  double share = 0;
  int sender = -1;  ///< of a link into a device: who sends; -1 = who never meets others there

  auto operator<=>(const Demand&) const = default;
};

/// Flows take `work` when they are alone. A flow's speed is 1 unless a resource's demands add up to more than it has:
/// then the speeds of its flows are lowered alike until they fit (max-min fairness), and what they leave elsewhere is
/// for others. Flows with the same demands have the same speed, so they are kept, and found, together.
class Flows {
 public:
  /// By resource: what is left of it when flows of two senders, or more, that want as much as each other meet there;
  /// 1 = all of it.
  explicit Flows(std::vector<double> when_meeting);

  /// Begin a flow that takes `work_ns` alone; `settle` gives it its speed. Returns its number, which is reused later.
  int start(double work_ns, const std::vector<Demand>& demands, Time now);
  /// Share anew wherever flows have begun or ended since. Where many kinds of flows depend on each other, a little
  /// later, at a `next_stop`; whoever does not depend on those does not wait for them.
  void settle(Time now);
  /// When the next flow ends at the present speeds, or `settle` has something to do; kNever where nothing will happen.
  [[nodiscard]] Time next_stop();
  /// End the flows whose time has come.
  void take_ended(Time now, std::vector<int>& ended);
  /// Nanoseconds of full use so far, by resource, of flows that have ended.
  [[nodiscard]] const std::vector<double>& used_ns() const { return used_ns_; }
  /// The largest use of any resource at any time so far, relative to what it has: at most 1.
  [[nodiscard]] double most_used() const { return most_used_; }

 private:
  /// A flow ends when its kind has come so far.
  struct Goal {
    double progress_ns;
    uint64_t order;
    int flow;
    double work_ns;
    bool operator<(const Goal& other) const {
      return progress_ns != other.progress_ns ? progress_ns > other.progress_ns : order > other.order;
    }
  };
  /// All running flows with the same demands.
  struct Kind {
    std::vector<Demand> demands;
    std::vector<int> places;  ///< in the resources' lists of members
    std::priority_queue<Goal> goals;
    double progress_ns = 0;  ///< that a flow has made which began with the kind
    double speed = 0;
    Time since = 0;  ///< when progress_ns was true
    uint32_t version = 0;
    bool changed = false;  ///< flows have begun or ended since the last sharing
    bool gathered = false;
    bool fixed = false;
    double new_speed = 0;

    [[nodiscard]] double count() const { return static_cast<double>(goals.size()); }
  };
  struct Member {
    int kind;
    int demand;
  };
  struct Resource {
    std::vector<Member> members;
    double load = 0;  ///< at full speed
    double when_meeting = 1;
    bool tight = false;  ///< at the last sharing
    bool dirty = false;
    bool gathered = false;
    Time hold_until = 0;    ///< it joins many kinds, which are not shared anew before
    double fixed_use = 0;   ///< while speeds are found
    double open_share = 0;  ///< while speeds are found
  };
  struct End {
    Time time;
    uint64_t order;
    int kind;
    uint32_t version;
    bool operator<(const End& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  [[nodiscard]] double wanted(const Member& member) const;
  [[nodiscard]] double capacity(const Resource& resource) const;
  [[nodiscard]] bool constrains(const Resource& resource) const;
  int kind_of(const std::vector<Demand>& demands, Time now);
  [[nodiscard]] Time next_end();
  void advance(Kind& kind, Time now) const;
  void change(int kind);
  void drop(int kind);
  void push_end(int kind, Time now);
  void drop_old_ends();
  void gather(int kind);
  [[nodiscard]] Time gather_part(Time now);
  [[nodiscard]] bool share_part(Time now);
  void forget_part(Time hold_until);
  void find_speeds();
  void fix(int kind, double speed);

  std::vector<Resource> resources_;
  std::vector<Kind> kinds_;
  std::map<std::vector<Demand>, int> kind_by_demands_;
  std::vector<int> free_kinds_;
  std::vector<int> free_flows_;
  int num_flows_ = 0;
  std::vector<int> changed_;         ///< kinds of which flows have begun or ended
  std::vector<int> dirty_;           ///< resources of such kinds
  std::vector<int> held_kinds_;      ///< of changed_ and
  std::vector<int> held_resources_;  ///< of dirty_, what waits
  Time next_sharing_ = kNever;       ///< of these
  std::vector<int> part_;            ///< kinds that depend on each other, which are shared anew
  std::vector<int> part_resources_;  ///< and what limits them
  std::vector<End> ends_;            ///< a heap, the next one first
  uint64_t order_ = 0;
  std::vector<double> used_ns_;
  double most_used_ = 0;
};

}  // namespace tilewire::sim
