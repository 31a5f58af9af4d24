// The tiles of a rank as records of the GEMM kernel: tensor maps, destinations, sums that they complete.
// Used by lane_tables.cpp.
#include "backends/cuda/tables/tile_records.hpp"

#include <algorithm>
#include <span>

#include "core/ceil_div.hpp"

namespace tilewire::cuda {
namespace {

/// The kinds of maps of a buffer: to load A (by the rows of a box), to load B, to store, to store the rest of the rows.
constexpr int kOfA = 0;
constexpr int kOfB = 1;
constexpr int kStores = 2;
constexpr int kRests = 3;

bool is_aligned(const RankView& view, const Region& read) {
  const int64_t size = bytes_of(view.dtype_of(read));
  return reinterpret_cast<uintptr_t>(view.data_of(read)) % 16 == 0 && view.base(read).ld * size % 16 == 0;
}

}  // namespace

/// Whether tensor copies can load every operand.
bool loads_by_tensor_map(const RankView& view) {
  for (const Lane& lane : view.plan.lanes) {
    if (lane.rank != view.rank || lane.kernel > 0) continue;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      for (const Region& read : task.reads) {
        if (!is_aligned(view, read) || read.rows == 0 || read.cols == 0) return false;
      }
      if (!std::ranges::all_of(task.addends, [&](const Region& addend) { return is_aligned(view, addend); }))
        return false;
    }
  }
  return true;
}

void TileRecords::finish() {
  const GemmParams gemm = gemm_params_of(view_.plan);
  view_.out.gemm.cache_hints = {eviction_of(gemm.a_hint), eviction_of(gemm.b_hint)};
  form_clusters();
  put_moving_first(view_.out.gemm);
}

/// Form the clusters of the tables: put the tiles of a pair beside each other, or cut the K of each tile.
void TileRecords::form_clusters() {
  const ClusterShape& cluster = view_.out.cluster;
  if (cluster_ctas(cluster) == 1 || view_.out.gemm.tiles.empty()) return;
  if (cluster.k > 1) {
    split_k_in_cluster(view_.out.gemm, static_cast<int>(cluster.k));
  } else {
    view_.out.gemm.tiles = in_pairs(view_.out.gemm.tiles, in_pair_);
  }
  auto& tiles = view_.out.gemm.tiles;
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i].rows == 0 || i % cluster.k != 0) name_apart(tiles[i]);
  }
}

/// Rename a tile that pads a pair or has a later part of K: it is a copy of its partner, and must not overwrite its
/// times.
void TileRecords::name_apart(TileRecord& tile) {
  const auto again = [&](uint32_t task) {
    TaskName name = view_.out.names[task];
    name.again = true;
    view_.out.names.push_back(name);
    return static_cast<uint32_t>(view_.out.names.size() - 1);
  };
  tile.task = again(tile.task);
  if (tile.num_partials == 0) return;
  auto& parts = view_.out.gemm.parts;
  const uint32_t sum = again(parts[tile.first_partial].task);
  const auto first = static_cast<uint32_t>(parts.size());
  for (uint32_t i = 0; i < tile.num_partials; ++i) {
    PartialRecord part = parts[tile.first_partial + i];
    part.task = sum;
    parts.push_back(part);
  }
  tile.first_partial = first;
}

void TileRecords::add_split(const Task& task) {
  if (task.reads.size() <= 2) return;
  const Region& below = task.reads[2];
  const int64_t first = task.reads[0].rows;
  const std::pair split{below, first};
  if (std::ranges::find(splits_, split) != splits_.end()) return;
  splits_.push_back(split);
  view_.out.gemm.splits.push_back({.row = static_cast<int32_t>(below.row),
                                   .map = a_map(below, view_.out.kind.shape.m - first),
                                   .first = static_cast<uint16_t>(first)});
}

/// A map over all rows of A and the range of K of a region, in boxes of `rows` rows.
uint16_t TileRecords::a_map(const Region& region, int64_t rows) {
  const MapKey key{kOfA, rows, region.rank, region.buffer, region.col, region.cols};
  if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
  Region whole = region;
  whole.row = 0;
  whole.rows = shape_on(view_.plan.buffers[region.buffer], region.rank).rows;
  return remember(key, matrix_of(whole), [shape = view_.out.kind.shape, rows](const MatrixView& a) {
    return make_a_map(a, shape, static_cast<int>(rows));
  });
}

/// A map over all columns of the result and the range of K of a region of B.
uint16_t TileRecords::b_map(const Region& region) {
  const GemmBodyKind& kind = view_.out.kind;
  const bool kn = kind.b_is_kn;
  const MapKey key{kOfB, 0, region.rank, region.buffer, kn ? region.row : region.col, kn ? region.rows : region.cols};
  if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
  const Shape shape = shape_on(view_.plan.buffers[region.buffer], region.rank);
  Region whole = region;
  (kn ? whole.col : whole.row) = 0;
  (kn ? whole.cols : whole.rows) = kn ? shape.cols : shape.rows;
  return remember(key, matrix_of(whole), [shape = kind.shape, cluster = view_.out.cluster, kn](const MatrixView& b) {
    return make_b_map(b, shape, cluster, kn);
  });
}

MatrixView TileRecords::matrix_of(const Region& region) const {
  return {view_.data_of(region), view_.dtype_of(region), region.rows, region.cols, view_.base(region).ld};
}

uint16_t TileRecords::remember(const MapKey& key, const MatrixView& matrix,
                               const std::function<CUtensorMap(const MatrixView&)>& make) {
  HostTable& table = view_.out.gemm;
  const auto number = static_cast<uint16_t>(table.maps.size());
  const bool moves = is_relative(reinterpret_cast<uint64_t>(matrix.data));
  table.maps.push_back(moves ? CUtensorMap{} : make(matrix));
  if (moves) table.moving.push_back({number, matrix, make});
  return maps_[key] = number;
}

/// Whether no task writes a region during a call.
bool TileRecords::stands(const Region& region) const {
  return view_.plan.buffers[region.buffer].scope == Scope::input && region.rank == view_.rank;
}

void TileRecords::add(int lane, int64_t index) {
  const Task& task = view_.plan.lanes[lane].tasks[index];
  const Region& a = task.reads[0];
  const Region& b = task.reads[1];
  const bool kn = view_.out.kind.b_is_kn;
  TileRecord tile;
  tile.b_col = static_cast<int32_t>(kn ? b.col : b.row);
  tile.k_steps = static_cast<int32_t>(ceil_div(a.cols, kTileK));
  add_rows(tile, task);
  tile.b_map = b_map(b);
  const Shape result = result_shape(task);
  tile.rows = static_cast<uint16_t>(result.rows);
  tile.cols = static_cast<uint16_t>(result.cols);
  if (stands(a) && (task.reads.size() == 2 || stands(task.reads[2]))) tile.flags |= kAStands;
  if (stands(b)) tile.flags |= kBStands;
  if (leaves_by_bulk(task)) tile.flags |= kPlain;
  tile.task = view_.name_task(lane, index);
  tile.first_wait = static_cast<uint32_t>(view_.out.gemm.waits.size());
  tile.first_post = static_cast<uint32_t>(view_.out.gemm.posts.size());
  tile.first_write = static_cast<uint32_t>(view_.out.gemm.writes.size());
  view_.add_waits(task, RankView::Waits::of_product, view_.out.gemm.waits);
  view_.add_posts(task, view_.out.gemm.posts);
  tile.num_waits = count_in_record(view_.out.gemm.waits.size() - tile.first_wait);
  sort_waits(tile);
  if (!task.addends.empty()) add_sum(tile, task, view_.name_sum(lane, index));
  for (const Write& write : task.writes) add_write(tile, write);
  tile.first_step = static_cast<uint32_t>(view_.out.gemm.epilogue.size());
  tile.num_steps = static_cast<uint32_t>(task.epilogue.size());
  view_.add_epilogue(task, view_.out.gemm.epilogue);
  tile.num_posts = count_in_record(view_.out.gemm.posts.size() - tile.first_post);
  view_.out.gemm.tiles.push_back(tile);
  in_pair_.push_back(in_cluster(task));
}

/// Set the place of a tile's rows of A.
void TileRecords::add_rows(TileRecord& tile, const Task& task) {
  const Region& a = task.reads[0];
  const bool split = task.reads.size() > 2;
  tile.a_row = static_cast<int32_t>(a.row);
  tile.a_map = a_map(a, split ? a.rows : rows_of_a_box(view_.out.kind.shape, view_.out.cluster));
  if (!split) return;
  const auto found = std::ranges::find(splits_, std::pair(task.reads[2], a.rows));
  tile.split = static_cast<uint8_t>(found - splits_.begin() + 1);
}

/// Sort a tile's waits by the step of K that needs them.
void TileRecords::sort_waits(const TileRecord& tile) {
  const auto mine = std::span(view_.out.gemm.waits).subspan(tile.first_wait, tile.num_waits);
  std::ranges::stable_sort(mine, {}, &WaitRecord::step);
}

/// Add the partials of the sum that a tile completes. `name`: of the sum, for reports.
void TileRecords::add_sum(TileRecord& tile, const Task& task, uint32_t name) {
  tile.first_partial = static_cast<uint32_t>(view_.out.gemm.parts.size());
  tile.num_partials = small_count("addends", task.addends.size());
  tile.own_partial = static_cast<uint8_t>(task.product_place);
  for (const Region& part : task.addends) {
    view_.out.gemm.parts.push_back(
        {static_cast<int32_t>(part.row), static_cast<int32_t>(part.col), whole_map(part), name});
  }
  const size_t first = view_.out.gemm.waits.size();
  view_.add_waits(task, RankView::Waits::of_addends, view_.out.gemm.waits);
  tile.num_partial_waits = count_in_record(view_.out.gemm.waits.size() - first);
}

void TileRecords::add_write(TileRecord& tile, const Write& write) {
  if (write.to.rows == 0 || write.to.cols == 0) return;
  const Base& at = view_.base(write.to);
  const DType dtype = view_.dtype_of(write.to);
  if (dtype == DType::fp32) tile.flags |= kOutputFp32;
  if (write.to.rank != view_.rank) tile.flags |= kLeavesFar;
  if (write.via == Via::tma && takes_tensor_stores(write.to)) {
    view_.out.gemm.writes.push_back({.row = static_cast<int32_t>(write.to.row - write.first_row),
                                     .col = static_cast<int32_t>(write.to.col),
                                     .map = whole_map(write.to),
                                     .first_row = static_cast<uint16_t>(write.first_row),
                                     .rows = static_cast<uint16_t>(write.to.rows),
                                     .cols = static_cast<uint16_t>(write.to.cols),
                                     .mode = view_.mode_of(write),
                                     .via = StoreVia::tensor_map,
                                     .rest_map = rest_map(write.to)});
    ++tile.num_writes;
    return;
  }
  const bool bulk = write.via == Via::bulk && fits_bulk(write.to);
  view_.out.gemm.writes.push_back({.to = view_.data_of(write.to) - write.first_row * at.ld * bytes_of(dtype),
                                   .ld = static_cast<int32_t>(at.ld),
                                   .first_row = static_cast<uint16_t>(write.first_row),
                                   .rows = static_cast<uint16_t>(write.to.rows),
                                   .cols = static_cast<uint16_t>(write.to.cols),
                                   .mode = view_.mode_of(write),
                                   .via = bulk ? StoreVia::bulk : StoreVia::pointer});
  ++tile.num_writes;
}

/// Whether every row of a region begins and ends at multiples of 16 bytes, as bulk copies need.
bool TileRecords::fits_bulk(const Region& to) const {
  const int64_t size = bytes_of(view_.dtype_of(to));
  return reinterpret_cast<uintptr_t>(view_.data_of(to)) % 16 == 0 && view_.base(to).ld * size % 16 == 0 &&
         to.cols * size % 16 == 0;
}

/// Whether a buffer has the alignment that tensor copies need.
bool TileRecords::takes_tensor_stores(const Region& to) const {
  const Base& at = view_.base(to);
  return reinterpret_cast<uintptr_t>(at.data) % 16 == 0 && at.ld * bytes_of(view_.dtype_of(to)) % 16 == 0;
}

/// A map over the whole buffer, in boxes of a chunk.
uint16_t TileRecords::whole_map(const Region& region) { return buffer_map(region, kStores, make_output_map); }

/// The same in boxes of kRestRows, if boxes of a chunk would store beyond the region; else kNoMap.
uint16_t TileRecords::rest_map(const Region& to) {
  const bool ends = to.row + to.rows == shape_on(view_.plan.buffers[to.buffer], to.rank).rows;
  return ends || to.rows % kStoreRows == 0 ? kNoMap : buffer_map(to, kRests, make_rest_map);
}

uint16_t TileRecords::buffer_map(const Region& region, int what, CUtensorMap (*make)(const MatrixView&)) {
  const MapKey key{what, 0, region.rank, region.buffer, 0, 0};
  if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
  const Shape shape = shape_on(view_.plan.buffers[region.buffer], region.rank);
  const Base& at = view_.base(region);
  return remember(key, {at.data, view_.dtype_of(region), shape.rows, shape.cols, at.ld}, make);
}

}  // namespace tilewire::cuda
