// The parameters of the GEMV kernel for a rank whose sums are joined to its tiles, or that has tiles alone.
// Called by lane_tables.cpp.
#include "backends/cuda/tables/gemv_table.hpp"

#include "backends/cuda/tables/sum_records.hpp"
#include "lower/gemv_tiles.hpp"

namespace tilewire::cuda {
namespace {

/// Makes the table, and notes what does not fit.
class GemvMaker {
 public:
  explicit GemvMaker(RankView& view) : view_(view) {}

  std::optional<GemvTable> make() {
    if (const int alone = lane_of_gemv_alone(view_.plan, view_.rank); alone >= 0) return make_alone(alone);
    const auto [tiles, sums] = joined_lanes(view_.plan, view_.rank);
    if (tiles < 0 || sums < 0) return std::nullopt;
    const std::vector<Task>& products = view_.plan.lanes[tiles].tasks;
    const std::vector<Task>& totals = view_.plan.lanes[sums].tasks;
    if (!is_gemm_tile(products[0]) || !has_sums_of(totals, products.size())) return std::nullopt;
    add_product(products[0]);
    table_.ctas = static_cast<uint32_t>(products.size());
    for (size_t i = 0; i < products.size() && fits_; ++i) add_columns(products, i);
    SumRecords records(view_, table_.dtype, table_.rows);
    records.add(products, totals, table_.cols);
    if (is_norm(totals.back())) {
      table_.moments = view_.addresses.moments;
      fits_ = fits_ && table_.ctas <= kMostGemvCtas;
    }
    records.check_moved(totals, std::ssize(products), table_.tile_cols);
    if (!fits_ || !records.fits()) return std::nullopt;
    table_.first_tile = records.name(tiles, sums);
    table_.exchange = records.exchange();
    table_.sum = records.sum();
    return table_;
  }

 private:
  /// Tiles that are stored as they are made.
  std::optional<GemvTable> make_alone(int lane) {
    const std::vector<Task>& products = view_.plan.lanes[lane].tasks;
    add_product(products[0]);
    table_.ctas = static_cast<uint32_t>(products.size());
    table_.sums = false;
    SumRecords records(view_, table_.dtype, table_.rows);
    records.add_alone(products[0]);
    for (size_t i = 0; i < products.size() && fits_; ++i) {
      add_columns(products, i);
      fits_ =
          fits_ && are_moved(products[i].epilogue, products[0].epilogue, 0, static_cast<int64_t>(i) * table_.tile_cols);
    }
    if (!fits_ || !records.fits()) return std::nullopt;
    table_.first_tile = records.name(lane);
    table_.sum = records.sum();
    return table_;
  }

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
    table_.b_layout = tile.gemm.b_layout;
    table_.pairs = joins_columns(tile.epilogue);
    const Buffer& b = view_.plan.buffers[tile.reads[1].buffer];
    table_.constant_b = b.constant && b.scope == Scope::input;
    fits_ = in_units(table_.a, table_.lda, shape.rows, table_.dtype) &&
            in_units(table_.b, table_.ldb, tile.reads[1].rows, table_.dtype);
  }

  /// Tile `i` is that of CTA 0, so many columns further.
  void add_columns(const std::vector<Task>& tiles, size_t i) {
    const Task& tile = tiles[i];
    const auto shift = static_cast<int64_t>(i) * table_.tile_cols;
    const Shape shape = result_shape(tile);
    table_.cols = static_cast<int32_t>(shift + shape.cols);
    const bool whole = shape.cols == table_.tile_cols || i + 1 == tiles.size();
    Region b = tile.reads[1];
    (table_.b_layout == BLayout::nk ? b.row : b.col) -= table_.pairs ? 2 * shift : shift;
    fits_ = fits_ && whole && tile.reads[0] == tiles[0].reads[0] && b.row == tiles[0].reads[1].row &&
            b.col == tiles[0].reads[1].col && tile.waits == tiles[0].waits &&
            are_moved(tile.writes, tiles[0].writes, 0, shift);
  }

  RankView& view_;
  GemvTable table_{};
  bool fits_ = true;
};

}  // namespace

bool has_few_rows(const Plan& plan, int rank) {
  return joined_lanes(plan, rank).second >= 0 || lane_of_gemv_alone(plan, rank) >= 0;
}

std::optional<GemvTable> gemv_table(RankView& view) { return GemvMaker(view).make(); }

}  // namespace tilewire::cuda
