// First-fit allocation in the symmetric arena.
// Called by HostGroup.
#include "backends/host/arena.hpp"

#include <algorithm>
#include <iterator>

namespace tilewire::host {
namespace {

constexpr int64_t kAlignment = 4096;

}  // namespace

std::optional<Extent> Arena::carve(int64_t bytes) {
  if (bytes > available()) return std::nullopt;
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  int64_t begin = 0;
  auto next = used_.begin();
  for (; next != used_.end() && next->offset - begin < bytes; ++next) begin = next->offset + next->bytes;
  const Extent extent{next_id_++, begin, rounded};
  used_.insert(next, extent);
  return extent;
}

int64_t Arena::available() const {
  int64_t most = 0;
  int64_t begin = 0;
  for (const Extent& extent : used_) {
    most = std::max(most, extent.offset - begin);
    begin = extent.offset + extent.bytes;
  }
  return std::max(most, bytes_ - begin);
}

std::vector<Extent> Arena::reclaim(const std::vector<std::vector<uint64_t>>& discarded_by_rank) {
  const auto discarded_by_all = [&](uint64_t id) {
    return std::all_of(discarded_by_rank.begin(), discarded_by_rank.end(),
                       [id](const auto& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); });
  };
  std::vector<Extent> freed;
  std::copy_if(used_.begin(), used_.end(), std::back_inserter(freed),
               [&](const Extent& extent) { return discarded_by_all(extent.id); });
  for (const Extent& extent : freed) {
    std::erase_if(used_, [&](const Extent& used) { return used.id == extent.id; });
    std::erase(discarded_, extent.id);
  }
  return freed;
}

}  // namespace tilewire::host
