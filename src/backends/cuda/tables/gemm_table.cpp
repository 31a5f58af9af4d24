// Tables of the GEMM kernel on the host and in device memory, and the tile order of a plain product on one GPU.
// Used by cuda programs, tests and benchmarks.
#include "backends/cuda/tables/gemm_table.hpp"

#include <algorithm>
#include <bit>

#include "backends/cuda/runtime/upload.hpp"
#include "core/ceil_div.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

/// Point `distance` of the Hilbert curve over a square of `side` (a power of two).
std::pair<int, int> hilbert_point(int side, int distance) {
  int x = 0;
  int y = 0;
  for (int s = 1; s < side; s *= 2) {
    const int right = distance / 2 % 2;
    const int up = (distance ^ right) % 2;
    if (up == 0) {
      if (right == 1) {
        x = s - 1 - x;
        y = s - 1 - y;
      }
      std::swap(x, y);
    }
    x += s * right;
    y += s * up;
    distance /= 4;
  }
  return {x, y};
}

}  // namespace

DeviceTable upload(const HostTable& table, cudaStream_t stream) {
  DeviceTable out;
  Upload all;
  out.table.cache_hints = table.cache_hints;
  require(table.splits.size() <= kMostSplits, "{} row splits of A, want at most {}", table.splits.size(), kMostSplits);
  std::ranges::copy(table.splits, out.table.splits);
  const auto at_hand = static_cast<std::ptrdiff_t>(std::min<size_t>(table.maps.size(), kMapsAtHand));
  std::copy_n(table.maps.begin(), at_hand, out.table.at_hand);
  const std::vector<CUtensorMap> others(table.maps.begin() + at_hand, table.maps.end());
  all.add(others, &out.table.maps);
  all.add(table.tiles, &out.table.tiles);
  all.add(table.families, &out.table.families);
  all.add(table.waits, &out.table.waits);
  all.add(table.posts, &out.table.posts);
  all.add(table.epilogue, &out.table.epilogue);
  all.add(table.writes, &out.table.writes);
  all.add(table.parts, &out.table.parts);
  out.memory = all.finish(stream);
  out.table.num_families = static_cast<uint32_t>(table.families.size());
  out.table.num_tiles = static_cast<uint32_t>(table.tiles.size());
  out.table.num_maps = static_cast<uint32_t>(table.maps.size());
  return out;
}

void put_moving_first(HostTable& table) {
  if (table.maps.size() <= kMapsAtHand || table.moving.empty()) return;
  std::vector<uint16_t> numbers(table.maps.size(), kNoMap);
  uint16_t next = 0;
  for (const MovingMap& map : table.moving) numbers[map.number] = next++;
  for (uint16_t& number : numbers) {
    if (number == kNoMap) number = next++;
  }
  std::vector<CUtensorMap> maps(table.maps.size());
  for (size_t i = 0; i < numbers.size(); ++i) maps[numbers[i]] = table.maps[i];
  table.maps = std::move(maps);
  for (MovingMap& map : table.moving) map.number = numbers[map.number];
  for (TileRecord& tile : table.tiles) {
    tile.a_map = numbers[tile.a_map];
    tile.b_map = numbers[tile.b_map];
  }
  for (WriteRecord& write : table.writes) {
    if (write.via != StoreVia::tensor_map) continue;
    write.map = numbers[write.map];
    if (write.rest_map != kNoMap) write.rest_map = numbers[write.rest_map];
  }
  for (PartialRecord& part : table.parts) part.map = numbers[part.map];
  for (RowSplit& split : table.splits) split.map = numbers[split.map];
}

void make_moving(const HostTable& host, const Bases& bases, GemmTable& table) {
  for (const MovingMap& map : host.moving) {
    MatrixView matrix = map.matrix;
    matrix.data = resolve(bases, matrix.data);
    table.at_hand[map.number] = map.make(matrix);
  }
}

Eviction eviction_of(CacheHint hint) {
  switch (hint) {
    case CacheHint::evict_first:
      return Eviction::first;
    case CacheHint::evict_normal:
      return Eviction::normal;
    case CacheHint::automatic:
    case CacheHint::none:
      break;
  }
  return Eviction::unchanged;
}

void set_cache_hints(HostTable& table, TileShape shape, int64_t reach) {
  HintFinder finder(reach);
  for (const TileRecord& tile : table.tiles)
    finder.add({tile.b_map, tile.b_col, tile.k_begin}, tile.rows, tile.cols, tile.k_steps);
  const OperandHints hints = finder.find(shape.m);
  table.cache_hints = {eviction_of(hints.a), eviction_of(hints.b)};
}

std::vector<TileRecord> in_pairs(const std::vector<TileRecord>& tiles, const std::vector<bool>& in_pair) {
  std::vector<TileRecord> paired;
  for (size_t i = 0; i < tiles.size(); ++i) {
    paired.push_back(tiles[i]);
    if (in_pair[i]) {
      require(i + 1 < tiles.size() && in_pair[i + 1], "{} tiles: the last tile of a pair has no partner", i + 1);
      paired.push_back(tiles[++i]);
      continue;
    }
    TileRecord empty = tiles[i];
    // NOTE: the padding tile loads its part of the shared operand, which must have arrived.
    empty.rows = empty.cols = empty.num_partial_waits = empty.num_posts = empty.num_writes = 0;
    paired.push_back(empty);
  }
  return paired;
}

namespace {

/// Give one part of a tile's K the waits that its steps need, followed by the waits for the partials of the tile's sum.
void wait_for_part(std::vector<WaitRecord>& waits, TileRecord& part, int first_step) {
  const auto mine = waits.begin() + part.first_wait;
  const bool all_first = std::all_of(mine, mine + part.num_waits, [](const WaitRecord& w) { return w.step == 0; });
  if (all_first) return;
  const std::vector<WaitRecord> before(mine, mine + part.num_waits + part.num_partial_waits);
  const auto end = static_cast<uint32_t>(first_step + part.k_steps);
  const uint16_t num_waits = part.num_waits;
  part.first_wait = static_cast<uint32_t>(waits.size());
  part.num_waits = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    WaitRecord wait = before[i];
    if (i < num_waits && wait.step >= end) continue;
    wait.step = wait.step > static_cast<uint32_t>(first_step) ? wait.step - static_cast<uint32_t>(first_step) : 0;
    waits.push_back(wait);
    if (i < num_waits) ++part.num_waits;
  }
}

}  // namespace

void split_k_in_cluster(HostTable& table, int parts) {
  std::vector<TileRecord> cut;
  for (const TileRecord& tile : table.tiles) {
    require(tile.k_steps >= parts, "{} parts of {} steps of K: want at least a step each", parts, tile.k_steps);
    for (int i = 0; i < parts; ++i) {
      TileRecord part = tile;
      const int first_step = tile.k_steps * i / parts;
      part.k_begin += first_step * kTileK;
      part.k_steps = tile.k_steps * (i + 1) / parts - first_step;
      // NOTE: as in adders_of, the first CTA alone stores a tile that completes a sum or posts.
      if (i > 0 && (tile.num_partials > 0 || tile.num_posts > 0)) {
        part.num_partials = 0;
        part.rows = part.cols = part.num_partial_waits = part.num_posts = part.num_writes = 0;
      }
      wait_for_part(table.waits, part, first_step);
      cut.push_back(part);
    }
  }
  table.tiles = std::move(cut);
}

std::vector<std::pair<int, int>> tile_order(int tiles_m, int tiles_n, int group_m) {
  std::vector<std::pair<int, int>> order;
  if (group_m > 0) {
    for (int first = 0; first < tiles_m; first += group_m) {
      for (int n = 0; n < tiles_n; ++n) {
        for (int m = first; m < std::min(first + group_m, tiles_m); ++m) order.emplace_back(m, n);
      }
    }
    return order;
  }
  const int side = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(tiles_m, tiles_n))));
  for (int i = 0; i < side * side; ++i) {
    const auto [m, n] = hilbert_point(side, i);
    if (m < tiles_m && n < tiles_n) order.emplace_back(m, n);
  }
  return order;
}

namespace {

/// Add the epilogue of a matrix for its tile at (row, col).
void add_epilogue(HostTable& table, TileRecord& tile, const std::vector<EpilogueRecord>& steps, int64_t row,
                  int64_t col) {
  tile.first_step = static_cast<uint32_t>(table.epilogue.size());
  tile.num_steps = static_cast<uint32_t>(steps.size());
  for (EpilogueRecord step : steps) {
    const int64_t at = step.kind == EpilogueKind::residual ? row * step.ld + col : col;
    if (step.operand != nullptr) step.operand += at * bytes_of(step.dtype);
    table.epilogue.push_back(step);
  }
}

}  // namespace

HostTable plain_table(const PlainProduct& p) {
  HostTable table;
  table.maps = {make_a_map(p.a, p.shape, rows_of_a_box(p.shape, p.cluster)),
                make_b_map(p.b, p.shape, p.cluster, p.b_is_kn)};
  if (p.via == StoreVia::tensor_map) table.maps.insert(table.maps.end(), {make_output_map(p.c), make_rest_map(p.c)});
  const auto unit_m = static_cast<int>(p.cluster.m);
  const auto unit_n = static_cast<int>(p.cluster.n);
  const auto tiles_m = static_cast<int>(ceil_div(p.c.rows, p.shape.m * unit_m));
  const auto tiles_n = static_cast<int>(ceil_div(p.c.cols, p.shape.n * unit_n));
  const auto order = tile_order(tiles_m, tiles_n, static_cast<int>(ceil_div(p.group_m, unit_m)));
  for (const auto& [m, n] : order) {
    for (int i = 0; i < unit_m * unit_n; ++i) {
      const int64_t row = static_cast<int64_t>(m * unit_m + i / unit_n) * p.shape.m;
      const int64_t col = static_cast<int64_t>(n * unit_n + i % unit_n) * p.shape.n;
      TileRecord tile;
      tile.a_row = static_cast<int32_t>(row);
      tile.b_col = static_cast<int32_t>(col);
      tile.k_steps = static_cast<int32_t>(ceil_div(p.a.cols, kTileK));
      tile.b_map = 1;
      tile.rows = static_cast<uint16_t>(std::clamp<int64_t>(p.c.rows - row, 0, p.shape.m));
      tile.cols = static_cast<uint16_t>(std::clamp<int64_t>(p.c.cols - col, 0, p.shape.n));
      tile.first_write = static_cast<uint32_t>(table.writes.size());
      tile.num_writes = 1;
      if (p.c.dtype == DType::fp32) tile.flags |= kOutputFp32;
      if (p.via == StoreVia::bulk) tile.flags |= kPlain;
      add_epilogue(table, tile, p.epilogue, row, col);
      tile.task = static_cast<uint32_t>(table.tiles.size());
      table.writes.push_back(
          {.to = static_cast<char*>(const_cast<void*>(p.c.data)) + (row * p.c.ld + col) * bytes_of(p.c.dtype),
           .ld = static_cast<int32_t>(p.c.ld),
           .row = tile.a_row,
           .col = tile.b_col,
           .map = 2,
           .rows = tile.rows,
           .cols = tile.cols,
           .via = p.via,
           .rest_map = has_runtime_rows(p.shape) ? uint16_t{3} : kNoMap});
      table.tiles.push_back(tile);
    }
  }
  set_cache_hints(table, p.shape, kNear);
  return table;
}

GemmBodyKind kind_of(const GroupedProduct& product) {
  return {.dtype = product.a.dtype,
          .b_is_kn = product.b_is_kn,
          .shape = product.shape,
          .groups = is_gated(product.activation) ? Groups::gated : Groups::plain};
}

HostTable grouped_table(const GroupedProduct& p) {
  const int64_t lines = is_gated(p.activation) ? 2 * p.c.cols : p.c.cols;
  const int64_t rows = p.b_is_kn ? p.a.cols : lines;
  require(p.groups >= 1 && p.a.cols >= 1 && p.b.cols == (p.b_is_kn ? lines : p.a.cols) && p.b.rows == p.groups * rows,
          "{} groups of K = {} times {} x {}: want a B of {} rows for each", p.groups, p.a.cols, p.b.rows, p.b.cols,
          rows);
  require(p.a.dtype == p.b.dtype && p.a.dtype == p.c.dtype, "groups: A, B and C have one type");
  HostTable table;
  const auto add_map = [&](const MatrixView& matrix, const auto& make) {
    const bool moves = is_relative(reinterpret_cast<uint64_t>(matrix.data));
    const auto number = static_cast<uint16_t>(table.maps.size());
    if (moves) table.moving.push_back({number, matrix, make});
    table.maps.push_back(moves ? CUtensorMap{} : make(matrix));
    return number;
  };
  for (int box = kMostGroupRows; box >= 8; box /= 2)
    add_map(p.a, [box](const MatrixView& a) { return make_group_a_map(a, box); });
  FamilyRecord family;
  family.extents = p.extents;
  family.extents_ld = static_cast<int32_t>(p.extents_ld > 0 ? p.extents_ld : p.groups);
  family.groups = static_cast<int32_t>(p.groups);
  family.most_rows = static_cast<int32_t>(p.a.rows);
  family.cols = static_cast<int32_t>(p.c.cols);
  family.k_steps = static_cast<int32_t>(ceil_div(p.a.cols, kTileK));
  family.activation = p.activation;
  family.ended = p.ended;
  const auto make_b = [groups = p.groups, activation = p.activation, shape = p.shape, b_is_kn = p.b_is_kn](
                          const MatrixView& b) { return make_group_b_map(b, groups, activation, shape, b_is_kn); };
  family.b_map = add_map(p.b, make_b);
  family.c_map = add_map(p.c, make_output_map);
  family.rest_map = add_map(p.c, make_rest_map);
  table.families.push_back(family);
  return table;
}

}  // namespace tilewire::cuda
