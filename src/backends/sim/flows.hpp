// Flows share resources as fluids do: all flows of an overloaded resource slow down by the same factor.
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
  int sender = -1;  ///< for a link into a device: the sending device; -1 = a sender that never meets others there

  auto operator<=>(const Demand&) const = default;
};

/// A flow takes `work_ns` if it is alone. Its speed is 1 unless the demands on one of its resources exceed the
/// resource: then the speeds of all its flows are lowered alike until they fit (max-min fairness), and other flows may
/// use what these leave on other resources. Flows with equal demands have equal speeds, so they are grouped into kinds.
class Flows {
 public:
  /// `when_meeting`, by resource: the share of it that is left when flows of two or more senders of equal demand meet;
  /// 1 = all.
  explicit Flows(std::vector<double> when_meeting);

  /// Start a flow that takes `work_ns` alone. `settle` sets its speed. Returns its number, which is reused later.
  int start(double work_ns, const std::vector<Demand>& demands, Time now);
  /// Recompute the speeds that have changed because flows have started or ended. Large sets of dependent kinds are
  /// recomputed later, at a `next_stop`; kinds that do not depend on them do not wait.
  void settle(Time now);
  /// Time at which the next flow ends at the present speeds, or `settle` has work; kNever if neither will happen.
  [[nodiscard]] Time next_stop();
  /// End the flows that are complete at `now`.
  void take_ended(Time now, std::vector<int>& ended);
  /// By resource: time of full use by flows that have ended, in ns.
  [[nodiscard]] const std::vector<double>& used_ns() const { return used_ns_; }
  /// The highest use of any resource so far, relative to its capacity: at most 1.
  [[nodiscard]] double most_used() const { return most_used_; }

 private:
  /// A flow ends when the progress of its kind reaches this value.
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
    std::vector<int> places;  ///< indices in the resources' lists of members
    std::priority_queue<Goal> goals;
    double progress_ns = 0;  ///< progress of a flow that started with the kind
    double speed = 0;
    Time since = 0;  ///< time of progress_ns
    uint32_t version = 0;
    bool changed = false;  ///< flows have started or ended since speeds were computed
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
    double load = 0;  ///< sum of demands at full speed
    double when_meeting = 1;
    bool tight = false;  ///< overloaded at the last sharing
    bool dirty = false;
    bool gathered = false;
    Time hold_until = 0;    ///< speeds of its many kinds are not recomputed before
    double fixed_use = 0;   ///< used while speeds are computed
    double open_share = 0;  ///< used while speeds are computed
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
  std::vector<int> changed_;         ///< kinds with flows that have started or ended
  std::vector<int> dirty_;           ///< resources of such kinds
  std::vector<int> held_kinds_;      ///< kinds of changed_ and
  std::vector<int> held_resources_;  ///< resources of dirty_ that are on hold
  Time next_sharing_ = kNever;       ///< time at which these are shared anew
  std::vector<int> part_;            ///< kinds that depend on each other and are shared anew
  std::vector<int> part_resources_;  ///< the overloaded resources of these kinds
  std::vector<End> ends_;            ///< heap; the next end first
  uint64_t order_ = 0;
  std::vector<double> used_ns_;
  double most_used_ = 0;
};

}  // namespace tilewire::sim
