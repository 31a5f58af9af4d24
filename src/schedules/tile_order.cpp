// In which order a rank turns to its peers and walks its tiles. One place for every schedule.
// Called by whatever builds plans: gather.cpp, reduce.cpp, the builder and what they are made of.
#include "schedules/tile_order.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/ceil_div.hpp"

namespace tilewire {

std::vector<int> peers_after(int num_ranks, int rank) {
  std::vector<int> peers;
  for (int step = 1; step < num_ranks; ++step) peers.push_back((rank + step) % num_ranks);
  return peers;
}

std::vector<int> peers_before(int num_ranks, int rank) {
  std::vector<int> peers = peers_after(num_ranks, rank);
  std::ranges::reverse(peers);
  return peers;
}

std::vector<int> adders_of(int num_ranks, int last_owner, int owner) {
  std::vector<int> order = peers_before(num_ranks, last_owner);
  order.push_back(last_owner);
  std::erase(order, owner);
  return order;
}

std::vector<Range> cuts(Range whole, int64_t size) {
  std::vector<Range> slices;
  const int64_t step = size > 0 ? size : std::max<int64_t>(1, whole.size());
  for (int64_t at = whole.begin; at < whole.end; at += step) slices.push_back({at, std::min(whole.end, at + step)});
  return slices;
}

namespace {

/// Rows of the tiles of a grid: shard by shard, unless that takes more tiles.
std::vector<Range> rows_of_tiles(int64_t rows, int64_t tile_m, int num_ranks) {
  std::vector<Range> across = cuts({0, rows}, tile_m);
  std::vector<Range> by_shard;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<Range> mine = cuts(shard_of(rows, num_ranks, rank), tile_m);
    by_shard.insert(by_shard.end(), mine.begin(), mine.end());
  }
  return by_shard.size() <= across.size() ? by_shard : across;
}

}  // namespace

std::vector<Tile> tile_grid(int64_t rows, int64_t cols, int64_t tile_m, int64_t tile_n, int num_ranks) {
  return tile_grid(rows, {{0, cols}}, tile_m, tile_n, num_ranks);
}

std::vector<Tile> tile_grid(int64_t rows, const std::vector<Range>& columns, int64_t tile_m, int64_t tile_n,
                            int num_ranks) {
  std::vector<Range> across;
  for (const Range& some : columns) {
    const std::vector<Range> each = cuts(some, tile_n);
    across.insert(across.end(), each.begin(), each.end());
  }
  std::vector<Tile> tiles;
  for (const Range row : rows_of_tiles(rows, tile_m, num_ranks)) {
    for (const Range col : across) tiles.push_back({row, col});
  }
  return tiles;
}

namespace {

/// Indices in the order of `stage`, and within a stage `group_m` row tiles at a time, column by column of tiles.
std::vector<int> in_groups(const std::vector<Tile>& tiles, const std::vector<int>& stage, const Config& config,
                           LocalTiles mine) {
  std::vector<int> order(tiles.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int tile) { return stage[tile]; });
  const auto together = [&](int tile) { return stage[tile] / config.group_owners; };
  // Number the row tiles of each stage.
  std::vector<int64_t> group(tiles.size());
  int64_t row_tile = -1;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool new_stage = i == 0 || together(order[i]) != together(order[i - 1]);
    const bool new_row = new_stage || tiles[order[i]].rows.begin != tiles[order[i - 1]].rows.begin;
    row_tile = new_stage ? 0 : row_tile + static_cast<int64_t>(new_row);
    group[order[i]] = row_tile / config.group_m;
  }
  // Then sort each group of them by column.
  const int last = order.empty() ? 0 : stage[order.back()];
  const auto column = [&](int tile) {
    const bool late = mine != LocalTiles::first && last % config.group_owners > 0 && stage[tile] == last;
    return tiles[tile].cols.begin / (config.tile_n * config.cluster_n) + static_cast<int64_t>(late);
  };
  const bool by_column = config.group_m > 1;
  using Key = std::tuple<int, int64_t, int64_t>;
  std::vector<std::pair<Key, int>> keys;
  keys.reserve(order.size());
  for (const int tile : order) keys.emplace_back(Key(together(tile), group[tile], by_column ? column(tile) : 0), tile);
  std::ranges::stable_sort(keys, {}, &std::pair<Key, int>::first);
  std::ranges::transform(keys, order.begin(), &std::pair<Key, int>::second);
  return order;
}

/// A walk whose stages are each cut into rounds, of whole columns.
std::vector<int> in_rounds(const std::vector<int>& tile_order, const std::vector<int>& stage, const Config& config,
                           LocalTiles mine) {
  const int rounds = config.rounds;
  const int64_t together = config.group_m * config.cluster_n;
  const int last = *std::ranges::max_element(stage);
  std::vector<std::vector<int>> stages(last + 1);
  for (const int tile : tile_order) stages[stage[tile]].push_back(tile);
  std::vector<int> order;
  const auto add_cut = [&](const std::vector<int>& tiles, int round) {
    const int64_t columns = ceil_div(std::ssize(tiles), together);
    const auto bound = [&](int64_t r) {
      return std::clamp<int64_t>(columns * r / rounds * together, 0, std::ssize(tiles));
    };
    const int64_t end = round + 1 == rounds ? std::ssize(tiles) : bound(round + 1);
    order.insert(order.end(), tiles.begin() + bound(round), tiles.begin() + end);
  };
  // How many rounds late each stage is: as much as what it adds to takes to come. A gather has its own before.
  const int behind = std::max(1, rounds / 4);
  const auto late = [&](int s) {
    if (config.algorithm == Algorithm::ring) return s * behind;
    return s == last && mine == LocalTiles::last ? behind : 0;
  };
  if (mine == LocalTiles::first) order = stages[0];
  const int first = mine == LocalTiles::first ? 1 : 0;
  const int most = mine == LocalTiles::first ? 0 : late(last);
  for (int step = 0; step < rounds + most; ++step) {
    for (int s = first; s <= last; ++s) {
      const int round = mine == LocalTiles::first ? step : step - late(s);
      if (round >= 0 && round < rounds) add_cut(stages[s], round);
    }
  }
  return order;
}

}  // namespace

LocalTiles local_tiles_of_reduction(const Problem& problem, int num_ranks, const Config& config) {
  constexpr int kMostRanks = 4;  // measured with up to three parts of others
  const bool by_tiles = config.transport == Transport::tma && config.reduce_mode == ReduceMode::staged &&
                        config.reduce_when != ReduceWhen::after && config.split_k == 1;
  // What has to wait for the end of its own tile is better off later.
  const bool during_next = by_tiles && num_ranks <= kMostRanks && problem.epilogue.empty() &&
                           bytes_of(out_dtype_of(problem)) == 2 && bytes_of(problem.dtype) == 2;
  if (!during_next) return LocalTiles::last;
  // Steps of 64 columns of A; chunks of 64 x 64 of each half of a tile, one every 10 steps at most, leave, then are
  // summed (steps_before_sum of the CUDA backend).
  const int64_t steps = shard_of(problem.k, num_ranks, 0).size() / 64;
  const int64_t chunks = ceil_div(config.tile_m, 128) * ceil_div(config.tile_n, 64);
  constexpr int64_t kOnTheirWay = 8;
  return steps >= 2 * 10 * chunks + kOnTheirWay ? LocalTiles::last_of_round : LocalTiles::last;
}

std::vector<int> order_tiles(const std::vector<Tile>& tiles, const std::vector<int>& stage, const Config& config,
                             LocalTiles mine) {
  std::vector<int> tile_order = in_groups(tiles, stage, config, mine);
  if (config.rounds == 1 || tile_order.empty()) return tile_order;
  return in_rounds(tile_order, stage, config, mine);
}

Range owners_of(Range rows, int64_t extent, int num_ranks) {
  if (rows.size() <= 0) return {};
  const int64_t each = shard_of(extent, num_ranks, 0).size();
  return {rows.begin / each, (rows.end - 1) / each + 1};
}

std::vector<int> stages_behind(const std::vector<Tile>& tiles, const std::vector<int>& peers, int64_t extent,
                               int num_ranks) {
  std::vector<int> turn(num_ranks, 0);
  for (int i = 0; i < std::ssize(peers); ++i) turn[peers[i]] = i + 1;
  std::vector<int> stages;
  for (const Tile& tile : tiles) {
    int stage = 0;
    const Range owners = owners_of(tile.rows, extent, num_ranks);
    for (int64_t owner = owners.begin; owner < owners.end; ++owner) stage = std::max(stage, turn[owner]);
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace tilewire
