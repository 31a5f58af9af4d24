// Strips of A and B that tiles share, and idle strips that stay for later tiles.
// Called by costs.cpp.
#include "backends/sim/cache.hpp"

namespace tilewire::sim {

int64_t Cache::acquire(const Region& region, int64_t bytes) {
  const auto [found, missed] = strips_.try_emplace(key_of(region));
  Strip& strip = found->second;
  if (missed) {
    strip.bytes = bytes;
    held_ += bytes;
  } else if (strip.readers == 0) {
    idle_.erase(strip.place);
  }
  ++strip.readers;
  make_room();
  return missed ? bytes : 0;
}

void Cache::release(const Region& region) {
  const Key key = key_of(region);
  Strip& strip = strips_.at(key);
  if (--strip.readers > 0) return;
  strip.place = idle_.insert(idle_.end(), key);
  make_room();
}

void Cache::make_room() {
  while (held_ > capacity_ && !idle_.empty()) {
    const auto strip = strips_.find(idle_.front());
    held_ -= strip->second.bytes;
    strips_.erase(strip);
    idle_.pop_front();
  }
}

}  // namespace tilewire::sim
