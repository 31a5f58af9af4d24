// The parameters of the GEMV kernel for a rank whose sums are joined to its tiles.
// Called by lane_tables.cpp.
#include "backends/cuda/tables/gemv_table.hpp"

#include <algorithm>
#include <utility>

namespace tilewire::cuda {
namespace {

/// The rank's lane of tiles, and of the sums that are joined to it.
std::pair<int, int> joined_lanes(const Plan& plan, int rank) {
  std::pair<int, int> lanes{-1, -1};
  for (int i = 0; i < std::ssize(plan.lanes); ++i) {
    const Lane& lane = plan.lanes[i];
    if (lane.rank != rank) continue;
    if (lane.joined) lanes.second = i;
    if (std::ranges::any_of(lane.tasks, is_gemm_tile)) lanes.first = i;
  }
  return lanes;
}

bool in_units(const std::byte* data, int64_t ld, int64_t rows, DType dtype) {
  constexpr int64_t kUnit = 16;
  return reinterpret_cast<uintptr_t>(data) % kUnit == 0 && (rows <= 1 || ld * bytes_of(dtype) % kUnit == 0);
}

/// Makes the table, and notes what does not fit.
class GemvMaker {
 public:
  explicit GemvMaker(RankView& view) : view_(view) {}

  std::optional<GemvTable> make() {
    const auto [tiles, sums] = joined_lanes(view_.plan, view_.rank);
    const std::vector<Task>& products = view_.plan.lanes[tiles].tasks;
    const std::vector<Task>& totals = view_.plan.lanes[sums].tasks;
    add_product(products[0]);
    add_sum(products[0], totals[0]);
    table_.ctas = static_cast<uint32_t>(products.size());
    for (size_t i = 0; i < products.size() && fits_; ++i) add_columns(products, totals, i);
    if (!fits_) return std::nullopt;
    table_.first_tile = static_cast<uint32_t>(view_.out.names.size());
    for (int64_t i = 0; i < std::ssize(products); ++i) view_.name_task(tiles, i);
    table_.first_sum = static_cast<uint32_t>(view_.out.names.size());
    for (int64_t i = 0; i < std::ssize(totals); ++i) view_.name_task(sums, i);
    return table_;
  }

 private:
  void add_product(const Task& tile) {
    const Shape shape = result_shape(tile);
    table_.a = view_.data_of(tile.reads[0]);
    table_.b = view_.data_of(tile.reads[1]);
    table_.lda = view_.base(tile.reads[0]).ld;
    table_.ldb = view_.base(tile.reads[1]).ld;
    table_.rows = static_cast<int32_t>(shape.rows);
    table_.tile_cols = static_cast<int32_t>(shape.cols);
    table_.depth = static_cast<int32_t>(depth_of(tile));
    table_.dtype = view_.dtype_of(tile.reads[0]);
    fits_ = in_units(table_.a, table_.lda, shape.rows, table_.dtype) &&
            in_units(table_.b, table_.ldb, shape.cols, table_.dtype);
    std::vector<WaitRecord> waits;
    view_.add_waits(tile, RankView::Waits::all, waits);
    table_.num_waits = take(waits, table_.waits);
  }

  void add_sum(const Task& tile, const Task& sum) {
    std::vector<SourceRecord> partials;
    std::vector<TargetRecord> peers;
    for (const Region& read : sum.reads) partials.push_back({view_.data_of(read), view_.base(read).ld, table_.dtype});
    for (const Write& write : tile.writes) {
      const auto own = std::ranges::find(sum.reads, write.to);
      if (own != sum.reads.end()) {
        table_.own_partial = static_cast<uint8_t>(own - sum.reads.begin());
      } else {
        peers.push_back(target_of(write));
      }
    }
    std::vector<TargetRecord> targets;
    for (const Write& write : sum.writes) targets.push_back(target_of(write));
    std::vector<EpilogueRecord> steps;
    view_.add_epilogue(sum, steps);
    table_.num_partials = take(partials, table_.partials);
    table_.num_peers = take(peers, table_.peers);
    table_.num_targets = take(targets, table_.targets);
    table_.num_steps = take(steps, table_.steps);
    const auto aligned = [&](const auto& record) {
      return in_units(record.data, record.ld, table_.rows, record.dtype);
    };
    fits_ = fits_ && std::ranges::all_of(partials, aligned) && std::ranges::all_of(peers, aligned) &&
            std::ranges::all_of(targets, aligned);
  }

  [[nodiscard]] TargetRecord target_of(const Write& write) const {
    return {view_.data_of(write.to),  view_.base(write.to).ld, 0, static_cast<int32_t>(write.to.rows),
            view_.dtype_of(write.to), view_.mode_of(write)};
  }

  /// Tile `i` and its sum are those of CTA 0, so many columns further.
  void add_columns(const std::vector<Task>& tiles, const std::vector<Task>& sums, size_t i) {
    const Task& tile = tiles[i];
    const Task& sum = sums[i];
    const auto shift = static_cast<int64_t>(i) * table_.tile_cols;
    const Shape shape = result_shape(tile);
    table_.cols = static_cast<int32_t>(shift + shape.cols);
    const bool whole = shape.cols == table_.tile_cols || i + 1 == tiles.size();
    const auto moved = [&](Region region, const Region& first) {
      region.col -= shift;
      return region.buffer == first.buffer && region.rank == first.rank && region.row == first.row &&
             region.col == first.col && region.rows == first.rows;
    };
    Region b = tile.reads[1];
    b.row -= shift;
    fits_ = fits_ && whole && tile.reads[0] == tiles[0].reads[0] && b.row == tiles[0].reads[1].row &&
            b.col == tiles[0].reads[1].col && tile.waits == tiles[0].waits &&
            std::ranges::equal(tile.writes, tiles[0].writes, moved, &Write::to, &Write::to) &&
            std::ranges::equal(sum.reads, sums[0].reads, moved) &&
            std::ranges::equal(sum.writes, sums[0].writes, moved, &Write::to, &Write::to) &&
            std::ranges::equal(sum.epilogue, sums[0].epilogue, [&](const EpilogueStep& x, const EpilogueStep& y) {
              return x.kind == y.kind && x.value == y.value && x.operand.has_value() == y.operand.has_value() &&
                     (!x.operand || moved(*x.operand, *y.operand));
            });
  }

  /// Put records into the table's places for them.
  template <class Record, size_t kMost>
  uint8_t take(const std::vector<Record>& from, Record (&to)[kMost]) {
    fits_ = fits_ && from.size() <= kMost;
    std::copy_n(from.begin(), std::min(from.size(), kMost), to);
    return static_cast<uint8_t>(std::min(from.size(), kMost));
  }

  RankView& view_;
  GemvTable table_{};
  bool fits_ = true;
};

}  // namespace

bool has_joined_sums(const Plan& plan, int rank) {
  return std::ranges::any_of(plan.lanes, [&](const Lane& lane) { return lane.rank == rank && lane.joined; });
}

std::optional<GemvTable> gemv_table(RankView& view) {
  if (!has_joined_sums(view.plan, view.rank)) return std::nullopt;
  return GemvMaker(view).make();
}

}  // namespace tilewire::cuda
