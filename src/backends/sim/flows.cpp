// Speeds of flows that share resources: max-min fairness, found anew only around what has changed.
// Called by the engine.
#include "backends/sim/flows.hpp"

#include <algorithm>
#include <utility>

namespace tilewire::sim {
namespace {

constexpr double kSlack = 1e-9;  // of sums of shares that ought to make exactly 1

}  // namespace

Flows::Flows(std::vector<double> when_meeting) : resources_(when_meeting.size()), used_ns_(when_meeting.size()) {
  for (size_t i = 0; i < resources_.size(); ++i) resources_[i].when_meeting = when_meeting[i];
}

// Two senders that take turns meet seldom; two that send as much as each other all the time.
double Flows::capacity(const Resource& resource) const {
  if (resource.when_meeting == 1 || resource.members.size() < 2 || resource.load <= 0) return 1;
  std::vector<std::pair<int, double>> by_sender;
  for (const Member& member : resource.members) {
    const Demand& demand = flows_[member.flow].held[member.held].demand;
    const auto found = std::ranges::find(by_sender, demand.sender, &std::pair<int, double>::first);
    found == by_sender.end() ? void(by_sender.emplace_back(demand.sender, demand.share))
                             : void(found->second += demand.share);
  }
  const double most = std::ranges::max_element(by_sender, {}, &std::pair<int, double>::second)->second;
  const double mixed = std::min(1.0, 2 * (1 - most / resource.load));
  return 1 - mixed * (1 - resource.when_meeting);
}

bool Flows::constrains(const Resource& resource) const {
  return resource.tight || resource.load > capacity(resource) * (1 + kSlack);
}

void Flows::mark(int resource) {
  if (std::exchange(resources_[resource].dirty, true)) return;
  dirty_.push_back(resource);
}

int Flows::start(double work_ns, const std::vector<Demand>& demands, Time now) {
  if (free_.empty()) {
    free_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
    new_speed_.push_back(0);
  }
  const int index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[index];
  flow.left_ns = flow.work_ns = work_ns;
  flow.speed = 0;
  flow.since = now;
  flow.held.clear();
  for (const Demand& demand : demands) {
    Resource& resource = resources_[demand.resource];
    flow.held.push_back({demand, static_cast<int>(resource.members.size())});
    resource.members.push_back({index, static_cast<int>(flow.held.size()) - 1});
    resource.load += demand.share;
    mark(demand.resource);
  }
  fresh_.push_back(index);
  return index;
}

void Flows::remove(int index) {
  Flow& flow = flows_[index];
  for (const Held& held : flow.held) {
    Resource& resource = resources_[held.demand.resource];
    const Member last = resource.members.back();
    resource.members[held.place] = last;
    flows_[last.flow].held[last.held].place = held.place;
    resource.members.pop_back();
    // NOTE: what was added and taken away again leaves rounding errors behind.
    resource.load = resource.members.empty() ? 0 : resource.load - held.demand.share;
    used_ns_[held.demand.resource] += held.demand.share * flow.work_ns;
    mark(held.demand.resource);
  }
  flow.held.clear();
  ++flow.version;
  free_.push_back(index);
}

// The flow, and all that share with it something that is too small for all.
void Flows::gather_around(int index) {
  if (std::exchange(flows_[index].gathered, true)) return;
  part_.push_back(index);
  for (size_t next = part_.size() - 1; next < part_.size(); ++next) {
    for (const Held& held : flows_[part_[next]].held) {
      Resource& resource = resources_[held.demand.resource];
      if (!constrains(resource)) continue;
      if (resource.open_share > 0) continue;  // is in part_resources_
      resource.open_share = resource.load;
      resource.fixed_use = 0;
      part_resources_.push_back(held.demand.resource);
      for (const Member& member : resource.members) {
        if (!std::exchange(flows_[member.flow].gathered, true)) part_.push_back(member.flow);
      }
    }
  }
}

void Flows::fix(int index, double speed) {
  flows_[index].fixed = true;
  new_speed_[index] = speed;
  for (const Held& held : flows_[index].held) {
    Resource& resource = resources_[held.demand.resource];
    resource.fixed_use += held.demand.share * speed;
    resource.open_share -= held.demand.share;
  }
}

// Raise all speeds together; the resource that is used up first fixes those of its flows, and so on.
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
      if (!flows_[member.flow].fixed) fix(member.flow, std::max(now, kSlack));
    }
  }
  for (const int index : part_) {
    if (!flows_[index].fixed) fix(index, 1);
  }
}

void Flows::settle(Time now) {
  for (const int index : fresh_) gather_around(index);
  for (const int index : std::exchange(dirty_, {})) {
    resources_[index].dirty = false;
    most_used_ = std::max(most_used_, std::min(1.0, resources_[index].load));
    if (!constrains(resources_[index])) continue;
    for (const Member& member : resources_[index].members) gather_around(member.flow);
  }
  find_speeds();
  for (const int index : part_resources_) {
    Resource& resource = resources_[index];
    resource.tight = resource.load > capacity(resource) * (1 + kSlack);
    most_used_ = std::max(most_used_, resource.fixed_use / capacity(resource));
    resource.open_share = resource.fixed_use = 0;
  }
  for (const int index : part_) {
    Flow& flow = flows_[index];
    flow.gathered = flow.fixed = false;
    if (flow.speed == new_speed_[index]) continue;
    flow.left_ns -= flow.speed * static_cast<double>(now - flow.since) / kPsPerNs;
    flow.since = now;
    flow.speed = new_speed_[index];
    ends_.push({later(now, std::max(0.0, flow.left_ns) / flow.speed), order_++, index, ++flow.version});
  }
  part_.clear();
  part_resources_.clear();
  fresh_.clear();
}

Time Flows::next_end() {
  while (!ends_.empty() && ends_.top().version != flows_[ends_.top().flow].version) ends_.pop();
  return ends_.empty() ? kNever : ends_.top().time;
}

void Flows::take_ended(Time now, std::vector<int>& ended) {
  while (next_end() <= now) {
    const int index = ends_.top().flow;
    ends_.pop();
    remove(index);
    ended.push_back(index);
  }
}

}  // namespace tilewire::sim
