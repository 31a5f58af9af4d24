// Swaps tiles within waves, so that all CTAs complete equally many sums.
// Called when tables are made.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "backends/cuda/tables/lane_tables.hpp"

namespace tilewire::cuda {
namespace {

/// The new place of each tile of a wave: tiles with the most partials go to the CTAs that had the fewest; tiles with
/// equally many partials stay in order.
std::vector<size_t> places_of(std::span<const uint32_t> parts, std::span<const uint64_t> had) {
  std::vector<size_t> places(parts.size());
  std::iota(places.begin(), places.end(), 0);
  const bool even = std::ranges::adjacent_find(had, std::ranges::not_equal_to()) == had.end();
  if (even || std::ranges::adjacent_find(parts, std::ranges::not_equal_to()) == parts.end()) return places;
  std::vector<size_t> tiles = places;
  std::vector<size_t> free = places;
  std::ranges::stable_sort(tiles, std::ranges::greater(), [&](size_t tile) { return parts[tile]; });
  std::ranges::stable_sort(free, {}, [&](size_t place) { return had[place]; });
  for (size_t first = 0; first < tiles.size();) {
    size_t end = first;
    while (end < tiles.size() && parts[tiles[end]] == parts[tiles[first]]) ++end;
    std::sort(free.begin() + static_cast<ptrdiff_t>(first), free.begin() + static_cast<ptrdiff_t>(end));
    for (; first < end; ++first) places[tiles[first]] = free[first];
  }
  return places;
}

std::vector<TileRecord> spread(const RankTables& tables) {
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const size_t clusters = tables.gemm_ctas / cluster;
  const std::vector<TileRecord>& tiles = tables.gemm.tiles;
  std::vector<TileRecord> moved = tiles;
  std::vector<uint64_t> had(clusters, 0);
  for (size_t first = 0; clusters > 0 && first * cluster < tiles.size(); first += clusters) {
    const size_t count = std::min(clusters, tiles.size() / cluster - first);
    std::vector<uint32_t> parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(tiles[(first + i) * cluster].num_partials);
    const std::vector<size_t> places = places_of(parts, std::span(had).first(count));
    for (size_t i = 0; i < count; ++i) {
      had[places[i]] += parts[i];
      const auto from = tiles.begin() + static_cast<ptrdiff_t>((first + i) * cluster);
      std::copy_n(from, cluster, moved.begin() + static_cast<ptrdiff_t>((first + places[i]) * cluster));
    }
  }
  return moved;
}

/// The number of partials of the CTA with the most, for tiles in this order. Partials that cannot be loaded during the
/// CTA's next tile, since that tile waits (comes_late), delay the CTA: they count three times.
int64_t most_parts_of_a_cta(const RankTables& whole, const std::vector<TileRecord>& order) {
  constexpr int64_t kHeldUp = 3;
  RankTables tables{.gemm = {.tiles = order, .waits = whole.gemm.waits}, .gemm_ctas = whole.gemm_ctas};
  drop_repeated_waits(tables);
  const auto& tiles = tables.gemm.tiles;
  const uint32_t cluster = cluster_ctas(whole.cluster);
  std::vector<int64_t> parts(tables.gemm_ctas, 0);
  for (size_t i = 0; i < tiles.size(); i += cluster) {
    const size_t next = std::min(i + tables.gemm_ctas, tiles.size());
    const bool waits = std::ranges::any_of(std::span(tiles).subspan(next, next < tiles.size() ? cluster : 0),
                                           [](const TileRecord& tile) { return tile.num_waits > 0; });
    parts[i % tables.gemm_ctas] += tiles[i].num_partials * (waits ? kHeldUp : 1);
  }
  return std::ranges::max(parts);
}

}  // namespace

void spread_sums(RankTables& tables) {
  const auto task = [](const TileRecord& tile) { return tile.task; };
  auto& tiles = tables.gemm.tiles;
  std::vector<TileRecord> moved = spread(tables);
  if (std::ranges::equal(moved, tiles, {}, task, task)) return;
  if (most_parts_of_a_cta(tables, moved) < most_parts_of_a_cta(tables, tiles)) tiles = std::move(moved);
}

}  // namespace tilewire::cuda
