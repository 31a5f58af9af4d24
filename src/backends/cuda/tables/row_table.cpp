// The parameters of the kernel of rows for a rank whose sums of rows are joined to its copies.
// Called by lane_tables.cpp.
#include "backends/cuda/tables/row_table.hpp"

#include "backends/cuda/tables/sum_records.hpp"
#include "lower/kernel_limits.hpp"

namespace tilewire::cuda {
namespace {

/// The parts of each row, or 0 if the copies are not equal parts of rows, one after another.
int parts_of_rows(const std::vector<Task>& copies) {
  const auto next_row =
      std::ranges::find_if(copies, [&](const Task& copy) { return copy.reads[0].row != copies[0].reads[0].row; });
  const auto parts = static_cast<int>(next_row - copies.begin());
  const Task& first = copies[0];
  for (size_t i = 0; i < copies.size(); ++i) {
    const Task& copy = copies[i];
    const int64_t down = static_cast<int64_t>(i) / parts;
    const int64_t right = static_cast<int64_t>(i) % parts * first.reads[0].cols;
    const bool follows = is_moved(copy.reads[0], first.reads[0], down, right) &&
                         copy.reads[0].cols == first.reads[0].cols && copy.waits == first.waits &&
                         are_moved(copy.writes, first.writes, down, right);
    if (!follows) return 0;
  }
  return copies.size() % parts == 0 ? parts : 0;
}

}  // namespace

std::optional<RowTable> row_table(RankView& view) {
  const auto [lane, sums] = joined_lanes(view.plan, view.rank);
  if (lane < 0 || sums < 0) return std::nullopt;
  const std::vector<Task>& copies = view.plan.lanes[lane].tasks;
  const std::vector<Task>& totals = view.plan.lanes[sums].tasks;
  if (copies[0].kind != TaskKind::copy || !has_sums_of(totals, copies.size())) return std::nullopt;
  const int parts = parts_of_rows(copies);
  if (parts == 0) return std::nullopt;
  const Region& x = copies[0].reads[0];
  RowTable table{.x = view.data_of(x),
                 .ldx = view.base(x).ld,
                 .rows = static_cast<int32_t>(copies.size()) / parts,
                 .parts = parts,
                 .part_cols = static_cast<int32_t>(x.cols),
                 .dtype = view.dtype_of(x)};
  SumRecords records(view, table.dtype, table.rows);
  records.add(copies, totals, int64_t{parts} * x.cols);
  records.check_moved(totals, parts, x.cols);
  const bool wide = totals.size() > copies.size() && parts > kMostRowParts;
  if (!records.fits() || wide || !in_units(table.x, table.ldx, table.rows, table.dtype)) return std::nullopt;
  table.first_task = records.name(lane, sums);
  table.exchange = records.exchange();
  table.sum = records.sum();
  return table;
}

}  // namespace tilewire::cuda
