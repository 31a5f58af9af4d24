// The records of sums that are joined to the tasks that make the partials, and of the norms behind them.
// Used by gemv_table.cpp and row_table.cpp.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/sum_of_partials.hpp"
#include "backends/cuda/tables/rank_view.hpp"

namespace tilewire::cuda {

/// The rank's lane of tasks that make partials, and the lane of sums that is joined to it (Lane::joined): their
/// numbers, -1 where there is none.
[[nodiscard]] std::pair<int, int> joined_lanes(const Plan& plan, int rank);

/// Whether a joined lane has a sum for each of `makers` tasks, and then a norm for each or none.
[[nodiscard]] bool has_sums_of(const std::vector<Task>& tasks, size_t makers);

/// Whether accesses of 16 bytes suit rows at this address; of quantised rows, of 8 bytes.
[[nodiscard]] bool in_units(const std::byte* data, int64_t ld, int64_t rows, DType dtype);

/// Whether a region is `first`, so many rows and columns further. Its number of columns may differ.
[[nodiscard]] bool is_moved(const Region& region, const Region& first, int64_t rows, int64_t cols);
[[nodiscard]] bool are_moved(const std::vector<Write>& writes, const std::vector<Write>& first, int64_t rows,
                             int64_t cols);
[[nodiscard]] bool are_moved(const std::vector<EpilogueStep>& steps, const std::vector<EpilogueStep>& first,
                             int64_t rows, int64_t cols);

/// Makes the records of the first partial and its sum, and notes what does not fit.
class SumRecords {
 public:
  /// `rows`: of the whole result.
  SumRecords(RankView& view, DType dtype, int64_t rows) : view_(view), dtype_(dtype), rows_(rows) {}

  /// Of the first of `makers`, which make the partials, and of its sum; and of the first norm, where `totals` has norms
  /// of rows of `cols` columns.
  void add(const std::vector<Task>& makers, const std::vector<Task>& totals, int64_t cols);
  /// Of the first of tiles that are stored as they are made: a sum of one partial.
  void add_alone(const Task& tile);
  /// Tasks of a joined lane, which has sums, then as many norms or none. Of each kind task i is the first one, i /
  /// `parts` rows and (i % `parts`) x `cols` columns further.
  void check_moved(const std::vector<Task>& tasks, int64_t parts, int64_t cols);
  /// Number the names of both lanes' tasks. Returns that of the first maker.
  uint32_t name(int makers, int totals);
  /// Number the names of a lane of tiles that are stored as they are made. Returns the first one.
  uint32_t name(int makers);

  [[nodiscard]] const Exchange& exchange() const { return exchange_; }
  [[nodiscard]] const SumOfPartials& sum() const { return sum_; }
  [[nodiscard]] bool fits() const { return fits_; }

 private:
  /// The own partial is in registers.
  void add_sum(const Task& partial, const Task& sum);
  /// Where the task stores its result, and its epilogue.
  void add_end(const Task& task);
  /// The norm of rows of `cols` columns that `sum` makes in part.
  void add_norm(const Task& sum, const Task& norm, int64_t cols);
  /// That a norm is `first`, so many rows and columns further.
  void check_moved_norm(const Task& norm, const Task& first, int64_t down, int64_t right);
  /// What the first `sums` tasks post.
  void add_posts(const std::vector<Task>& tasks, size_t sums, size_t parts);
  [[nodiscard]] TargetRecord target_of(const Write& write) const;
  /// Put records into the places for them.
  template <class Record, size_t kMost>
  uint8_t take(const std::vector<Record>& from, Record (&to)[kMost]) {
    fits_ = fits_ && from.size() <= kMost;
    std::copy_n(from.begin(), std::min(from.size(), kMost), to);
    return static_cast<uint8_t>(std::min(from.size(), kMost));
  }
  /// Note whether 16-byte accesses suit all of the records.
  template <class Record>
  void require_units(const std::vector<Record>& records) {
    fits_ = fits_ && std::ranges::all_of(records, [&](const Record& record) {
              return in_units(record.data, record.ld, rows_, record.dtype);
            });
  }

  RankView& view_;
  DType dtype_;
  int64_t rows_;
  Exchange exchange_{};
  SumOfPartials sum_{};
  bool fits_ = true;
};

}  // namespace tilewire::cuda
