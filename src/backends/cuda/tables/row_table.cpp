// The parameters of the kernel of rows for a rank whose sums of rows are joined to its copies.
// Called by lane_tables.cpp.
#include "backends/cuda/tables/row_table.hpp"

#include "backends/cuda/tables/gemv_table.hpp"
#include "backends/cuda/tables/sum_records.hpp"

namespace tilewire::cuda {
namespace {

/// Whether copy `i` is the first one, so many rows further.
bool follows(const std::vector<Task>& copies, size_t i) {
  const auto rows = static_cast<int64_t>(i);
  const Task& copy = copies[i];
  return is_moved(copy.reads[0], copies[0].reads[0], rows, 0) && copy.reads[0].cols == copies[0].reads[0].cols &&
         copy.waits == copies[0].waits && are_moved(copy.writes, copies[0].writes, rows, 0);
}

}  // namespace

std::optional<RowTable> row_table(RankView& view) {
  if (!has_joined_sums(view.plan, view.rank)) return std::nullopt;
  const auto [lane, sums] = joined_lanes(view.plan, view.rank);
  if (lane < 0) return std::nullopt;
  const std::vector<Task>& copies = view.plan.lanes[lane].tasks;
  const std::vector<Task>& totals = view.plan.lanes[sums].tasks;
  if (copies[0].kind != TaskKind::copy || !has_sums_of(totals, copies.size())) return std::nullopt;
  const Region& x = copies[0].reads[0];
  RowTable table{.x = view.data_of(x),
                 .ldx = view.base(x).ld,
                 .rows = static_cast<int32_t>(copies.size()),
                 .cols = static_cast<int32_t>(x.cols),
                 .dtype = view.dtype_of(x)};
  SumRecords records(view, table.dtype, table.rows);
  records.add(copies, totals, table.cols);
  records.add_rows(totals, table.cols);
  bool fits = records.fits() && in_units(table.x, table.ldx, table.rows, table.dtype);
  for (size_t i = 0; i < copies.size(); ++i) fits = fits && follows(copies, i);
  if (!fits) return std::nullopt;
  table.first_copy = records.name(lane, sums);
  table.exchange = records.exchange();
  table.sum = records.sum();
  return table;
}

}  // namespace tilewire::cuda
