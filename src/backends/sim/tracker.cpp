// Counters in sets of ways, as in a cache.
// Called by the engine, the claims (bytes_of) and tests.
#include "backends/sim/tracker.hpp"

#include <algorithm>

namespace tilewire {

double bytes_of(const Tracker& tracker) {
  constexpr double kBitsPerByte = 8;
  const int way = tracker.address_bits + tracker.counter_bits + tracker.workgroup_bits + tracker.wavefront_bits;
  return static_cast<double>(tracker.entries) * tracker.ways * way / kBitsPerByte;
}

namespace sim {

TrackerTable::TrackerTable(const Tracker& tracker) : config_(tracker), entries_(tracker.entries) {}

bool TrackerTable::update(int64_t workgroup, int wavefront, int64_t count, int64_t wanted) {
  const std::pair key(workgroup, wavefront);
  std::vector<Way>& entry = entries_[workgroup % config_.entries];
  const auto way = std::ranges::find_if(
      entry, [&](const Way& each) { return each.workgroup == workgroup && each.wavefront == wavefront; });
  const auto other = elsewhere_.find(key);
  if (way != entry.end()) {
    way->count += count;
    if (way->count < wanted) return false;
    entry.erase(way);
    --size_;
    return true;
  }
  if (other != elsewhere_.end()) {
    other->second += count;
    if (other->second < wanted) return false;
    elsewhere_.erase(other);
    --size_;
    return true;
  }
  if (count >= wanted) return true;
  most_ = std::max(most_, ++size_);
  if (std::ssize(entry) < config_.ways) {
    entry.push_back({workgroup, wavefront, count});
  } else {
    ++without_room_;
    elsewhere_.emplace(key, count);
  }
  return false;
}

bool TrackerTable::update_workgroup(int64_t workgroup, int64_t count, int64_t wanted) {
  bool triggered = true;
  for (int wavefront = 0; wavefront < config_.ways; ++wavefront) {
    triggered = update(workgroup, wavefront, count, wanted) && triggered;
  }
  return triggered;
}

}  // namespace sim
}  // namespace tilewire
