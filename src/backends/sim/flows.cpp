// Speeds of flows that share resources (max-min fairness), recomputed only where flows have changed.
// Called by the engine.
#include "backends/sim/flows.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace tilewire::sim {
namespace {

constexpr double kSlack = 1e-9;  // rounding of sums of shares that should be exactly 1
// Up to this many kinds of flows that depend on each other are shared anew at every event. Larger sets are shared anew
// only once per kHoldPerKind picoseconds for each kind, because the cost of sharing and the number of events both grow
// with their number.
constexpr size_t kFewKinds = 64;
constexpr Time kHoldPerKind = 600;

}  // namespace

Flows::Flows(std::vector<double> when_meeting) : resources_(when_meeting.size()), used_ns_(when_meeting.size()) {
  for (size_t i = 0; i < resources_.size(); ++i) resources_[i].when_meeting = when_meeting[i];
}

double Flows::wanted(const Member& member) const {
  const Kind& kind = kinds_[member.kind];
  return kind.demands[member.demand].share * kind.count();
}

// Capacity of a resource. Senders with unequal loads meet for a part of the time; two senders with equal loads meet all
// the time.
double Flows::capacity(const Resource& resource) const {
  if (resource.when_meeting == 1 || resource.members.size() < 2) return 1;
  std::vector<std::pair<int, double>> by_sender;
  double sum = 0;
  for (const Member& member : resource.members) {
    const int sender = kinds_[member.kind].demands[member.demand].sender;
    if (sender < 0) continue;
    auto found = std::ranges::find(by_sender, sender, &std::pair<int, double>::first);
    if (found == by_sender.end()) found = by_sender.insert(found, {sender, 0.0});
    found->second += wanted(member);
    sum += wanted(member);
  }
  if (by_sender.size() < 2 || sum <= 0) return 1;
  const double most = std::ranges::max_element(by_sender, {}, &std::pair<int, double>::second)->second;
  const double mixed = std::min(1.0, 2 * (1 - most / sum));
  return 1 - mixed * (1 - resource.when_meeting);
}

bool Flows::constrains(const Resource& resource) const {
  return resource.tight || resource.load > capacity(resource) * (1 + kSlack);
}

int Flows::kind_of(const std::vector<Demand>& demands, Time now) {
  const auto [found, is_new] = kind_by_demands_.try_emplace(demands, -1);
  if (!is_new) return found->second;
  if (free_kinds_.empty()) {
    free_kinds_.push_back(static_cast<int>(kinds_.size()));
    kinds_.emplace_back();
  }
  const int index = found->second = free_kinds_.back();
  free_kinds_.pop_back();
  Kind& kind = kinds_[index];
  kind.demands = demands;
  kind.progress_ns = kind.speed = 0;
  kind.since = now;
  kind.places.clear();
  for (int i = 0; i < std::ssize(demands); ++i) {
    std::vector<Member>& members = resources_[demands[i].resource].members;
    kind.places.push_back(static_cast<int>(members.size()));
    members.push_back({index, i});
  }
  return index;
}

// Remove a kind without running flows.
void Flows::drop(int index) {
  Kind& kind = kinds_[index];
  for (int i = 0; i < std::ssize(kind.demands); ++i) {
    std::vector<Member>& members = resources_[kind.demands[i].resource].members;
    const Member last = members.back();
    members[kind.places[i]] = last;
    kinds_[last.kind].places[last.demand] = kind.places[i];
    members.pop_back();
    // NOTE: additions and subtractions leave rounding errors in the load.
    if (members.empty()) resources_[kind.demands[i].resource].load = 0;
  }
  kind_by_demands_.erase(kind.demands);
  kind.demands.clear();
  kind.changed = false;
  ++kind.version;
  free_kinds_.push_back(index);
}

void Flows::advance(Kind& kind, Time now) const {
  kind.progress_ns += kind.speed * static_cast<double>(now - kind.since) / kPsPerNs;
  kind.since = now;
}

void Flows::change(int index) {
  kinds_[index].changed = true;
  changed_.push_back(index);
  for (const Demand& demand : kinds_[index].demands) {
    if (!std::exchange(resources_[demand.resource].dirty, true)) dirty_.push_back(demand.resource);
  }
}

int Flows::start(double work_ns, const std::vector<Demand>& demands, Time now) {
  if (free_flows_.empty()) free_flows_.push_back(num_flows_++);
  const int flow = free_flows_.back();
  free_flows_.pop_back();
  const int index = kind_of(demands, now);
  Kind& kind = kinds_[index];
  advance(kind, now);
  kind.goals.push({kind.progress_ns + work_ns, order_++, flow, work_ns});
  for (const Demand& demand : demands) resources_[demand.resource].load += demand.share;
  change(index);
  return flow;
}

void Flows::push_end(int index, Time now) {
  Kind& kind = kinds_[index];
  ++kind.version;
  if (kind.goals.empty() || kind.speed <= 0) return;
  const double left_ns = std::max(0.0, kind.goals.top().progress_ns - kind.progress_ns);
  ends_.push_back({later(now, left_ns / kind.speed), order_++, index, kind.version});
  std::push_heap(ends_.begin(), ends_.end());
  if (ends_.size() > 64 + 4 * kinds_.size()) drop_old_ends();
}

// Remove outdated ends: each new speed of a kind leaves one behind.
void Flows::drop_old_ends() {
  std::erase_if(ends_, [&](const End& end) { return end.version != kinds_[end.kind].version; });
  std::make_heap(ends_.begin(), ends_.end());
}

void Flows::gather(int kind) {
  if (!std::exchange(kinds_[kind].gathered, true)) part_.push_back(kind);
}

// Collect in part_ all kinds that share an overloaded resource with kinds in part_, transitively. Returns the time
// until which one of the resources is on hold; 0 = none is.
Time Flows::gather_part(Time now) {
  for (size_t next = 0; next < part_.size(); ++next) {
    for (const Demand& demand : kinds_[part_[next]].demands) {
      Resource& resource = resources_[demand.resource];
      if (resource.gathered || !constrains(resource)) continue;
      resource.gathered = true;
      resource.open_share = resource.load;
      resource.fixed_use = 0;
      part_resources_.push_back(demand.resource);
      if (resource.hold_until > now) return resource.hold_until;
      for (const Member& member : resource.members) gather(member.kind);
    }
  }
  return 0;
}

void Flows::fix(int index, double speed) {
  Kind& kind = kinds_[index];
  kind.fixed = true;
  kind.new_speed = speed;
  for (const Demand& demand : kind.demands) {
    Resource& resource = resources_[demand.resource];
    resource.fixed_use += demand.share * kind.count() * speed;
    resource.open_share -= demand.share * kind.count();
  }
}

// Raise all speeds together. The resource that is full first fixes the speeds of its flows; continue with the others.
void Flows::find_speeds() {
  using Level = std::pair<double, int>;
  std::priority_queue<Level, std::vector<Level>, std::greater<>> levels;
  const auto level = [&](int index) {
    const Resource& resource = resources_[index];
    return (capacity(resource) - resource.fixed_use) / std::max(resource.open_share, 1e-300);
  };
  for (const int index : part_resources_) levels.emplace(level(index), index);
  while (!levels.empty() && levels.top().first < 1) {
    const auto [old, index] = levels.top();
    levels.pop();
    const double now = level(index);
    if (now > old * (1 + kSlack)) {
      levels.emplace(now, index);
      continue;
    }
    for (const Member& member : resources_[index].members) {
      if (!kinds_[member.kind].fixed) fix(member.kind, std::max(now, kSlack));
    }
  }
  for (const int index : part_) {
    if (!kinds_[index].fixed) fix(index, 1);
  }
}

void Flows::forget_part(Time hold_until) {
  for (const int index : part_resources_) {
    Resource& resource = resources_[index];
    resource.open_share = resource.fixed_use = 0;
    resource.gathered = false;
    resource.hold_until = hold_until;
  }
  for (const int index : part_) kinds_[index].gathered = kinds_[index].fixed = false;
  part_.clear();
  part_resources_.clear();
}

// Compute the speeds of all kinds that depend on part_. False if they are on hold.
bool Flows::share_part(Time now) {
  if (const Time held = gather_part(now); held > 0) {
    next_sharing_ = std::min(next_sharing_, held);
    forget_part(held);
    return false;
  }
  find_speeds();
  for (const int index : part_resources_) {
    Resource& resource = resources_[index];
    const double most = capacity(resource);
    resource.tight = resource.load > most * (1 + kSlack);
    resource.dirty = false;
    most_used_ = std::max(most_used_, resource.fixed_use / most);
  }
  for (const int index : part_) {
    Kind& kind = kinds_[index];
    if (!std::exchange(kind.changed, false) && kind.speed == kind.new_speed) continue;
    advance(kind, now);
    kind.speed = kind.new_speed;
    push_end(index, now);
  }
  forget_part(part_.size() > kFewKinds ? now + kHoldPerKind * std::ssize(part_) : 0);
  return true;
}

void Flows::settle(Time now) {
  if (now >= next_sharing_) {
    changed_.insert(changed_.end(), held_kinds_.begin(), held_kinds_.end());
    dirty_.insert(dirty_.end(), held_resources_.begin(), held_resources_.end());
    held_kinds_.clear();
    held_resources_.clear();
    next_sharing_ = kNever;
  }
  for (const int index : changed_) {
    if (kinds_[index].goals.empty() || !kinds_[index].changed) continue;
    gather(index);
    if (!share_part(now)) held_kinds_.push_back(index);
  }
  changed_.clear();
  for (const int index : std::exchange(dirty_, {})) {
    Resource& resource = resources_[index];
    if (!std::exchange(resource.dirty, false)) continue;
    if (!constrains(resource)) {
      most_used_ = std::max(most_used_, resource.load);
      continue;
    }
    for (const Member& member : resource.members) gather(member.kind);
    resource.dirty = !share_part(now);
    if (resource.dirty) held_resources_.push_back(index);
  }
}

Time Flows::next_end() {
  while (!ends_.empty() && ends_.front().version != kinds_[ends_.front().kind].version) {
    std::pop_heap(ends_.begin(), ends_.end());
    ends_.pop_back();
  }
  return ends_.empty() ? kNever : ends_.front().time;
}

Time Flows::next_stop() { return std::min(next_sharing_, next_end()); }

void Flows::take_ended(Time now, std::vector<int>& ended) {
  constexpr double kRounding = 1e-6;  // in ns
  while (next_end() <= now) {
    const int index = ends_.front().kind;
    Kind& kind = kinds_[index];
    advance(kind, now);
    change(index);
    while (!kind.goals.empty() && kind.goals.top().progress_ns <= kind.progress_ns + kRounding) {
      const Goal goal = kind.goals.top();
      kind.goals.pop();
      ended.push_back(goal.flow);
      free_flows_.push_back(goal.flow);
      for (const Demand& demand : kind.demands) {
        used_ns_[demand.resource] += demand.share * goal.work_ns;
        resources_[demand.resource].load -= demand.share;
      }
    }
    kind.goals.empty() ? drop(index) : push_end(index, now);
  }
}

}  // namespace tilewire::sim
