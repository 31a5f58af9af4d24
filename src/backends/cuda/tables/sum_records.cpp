// Makes the records of sums that are joined to the tasks that make the partials, and of the norms behind them.
// Called by gemv_table.cpp and row_table.cpp.
#include "backends/cuda/tables/sum_records.hpp"

#include <functional>

namespace tilewire::cuda {

std::pair<int, int> joined_lanes(const Plan& plan, int rank) {
  std::pair<int, int> lanes{-1, -1};
  for (int i = 0; i < std::ssize(plan.lanes); ++i) {
    const Lane& lane = plan.lanes[i];
    if (lane.rank != rank) continue;
    if (lane.joined) lanes.second = i;
    const auto makes = [](const Task& task) { return is_gemm_tile(task) || task.kind == TaskKind::copy; };
    if (!lane.joined && std::ranges::any_of(lane.tasks, makes)) lanes.first = i;
  }
  return lanes;
}

bool has_sums_of(const std::vector<Task>& tasks, size_t makers) {
  if (tasks.empty() || tasks.size() != makers * (is_norm(tasks.back()) ? 2 : 1)) return false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (is_norm(tasks[i]) != (i >= makers)) return false;
  }
  return true;
}

bool in_units(const std::byte* data, int64_t ld, int64_t rows, DType dtype) {
  constexpr int64_t kElements = 8;  // that a thread loads or stores at once
  const int64_t unit = std::min<int64_t>(16, kElements * bytes_of(dtype));
  return reinterpret_cast<uintptr_t>(data) % unit == 0 && (rows <= 1 || ld * bytes_of(dtype) % unit == 0);
}

bool is_moved(const Region& region, const Region& first, int64_t rows, int64_t cols) {
  return region.buffer == first.buffer && region.rank == first.rank && region.row == first.row + rows &&
         region.col == first.col + cols && region.rows == first.rows;
}

bool are_moved(const std::vector<Write>& writes, const std::vector<Write>& first, int64_t rows, int64_t cols) {
  return std::ranges::equal(writes, first,
                            [&](const Write& x, const Write& y) { return is_moved(x.to, y.to, rows, cols); });
}

bool are_moved(const std::vector<EpilogueStep>& steps, const std::vector<EpilogueStep>& first, int64_t rows,
               int64_t cols) {
  return std::ranges::equal(steps, first, [&](const EpilogueStep& x, const EpilogueStep& y) {
    const int64_t of_rows = x.kind == EpilogueKind::bias ? 0 : rows;
    return x.kind == y.kind && x.value == y.value && x.operand.has_value() == y.operand.has_value() &&
           (!x.operand || is_moved(*x.operand, *y.operand, of_rows, cols));
  });
}

TargetRecord SumRecords::target_of(const Write& write) const {
  return {view_.data_of(write.to),  view_.base(write.to).ld, 0, static_cast<int32_t>(write.to.rows),
          view_.dtype_of(write.to), view_.mode_of(write)};
}

void SumRecords::add(const std::vector<Task>& makers, const std::vector<Task>& totals, int64_t cols) {
  add_sum(makers[0], totals[0]);
  if (is_norm(totals.back())) add_norm(totals[0], totals[makers.size()], cols);
}

void SumRecords::add_sum(const Task& partial, const Task& sum) {
  std::vector<SourceRecord> partials;
  std::vector<TargetRecord> peers;
  std::vector<WaitRecord> waits;
  for (const Region& read : sum.reads) partials.push_back({view_.data_of(read), view_.base(read).ld, dtype_});
  for (const Write& write : partial.writes) {
    const auto own = std::ranges::find(sum.reads, write.to);
    if (own != sum.reads.end()) {
      sum_.own_partial = static_cast<uint8_t>(own - sum.reads.begin());
    } else {
      peers.push_back(target_of(write));
    }
  }
  fits_ = fits_ && peers.size() + 1 == partial.writes.size();
  view_.add_waits(partial, RankView::Waits::all, waits);
  require_units(partials);
  require_units(peers);
  sum_.num_partials = take(partials, sum_.partials);
  exchange_.num_peers = take(peers, exchange_.peers);
  exchange_.num_waits = take(waits, exchange_.waits);
  add_end(sum);
}

void SumRecords::add_alone(const Task& tile) {
  sum_.num_partials = 1;
  add_end(tile);
}

void SumRecords::add_end(const Task& task) {
  std::vector<TargetRecord> targets;
  std::vector<EpilogueRecord> steps;
  for (const Write& write : task.writes) {
    targets.push_back(target_of(write));
    fits_ = fits_ && targets.back().dtype == dtype_;
  }
  if (!joins_columns(task.epilogue)) view_.add_epilogue(task, steps);
  require_units(targets);
  sum_.num_targets = take(targets, sum_.targets);
  sum_.num_steps = take(steps, sum_.steps);
  sum_.fetches = std::ranges::all_of(steps, [&](const EpilogueRecord& step) {
    return step.operand == nullptr || (step.dtype == dtype_ && in_units(step.operand, step.ld, rows_, dtype_));
  });
}

void SumRecords::add_norm(const Task& sum, const Task& norm, int64_t cols) {
  const auto source_of = [&](const Region& region) {
    return SourceRecord{view_.data_of(region), view_.base(region).ld, view_.dtype_of(region)};
  };
  RowNorm& to = sum_.norm;
  to.there = true;
  to.layer = norm.norm.kind == NormKind::layer;
  to.eps = static_cast<float>(norm.norm.eps);
  to.weight = source_of(norm.reads[1]);
  to.bias = source_of(norm.reads[to.layer ? 2 : 1]);
  to.normed = target_of(norm.writes[0]);
  const bool scales = quantises(norm.norm);
  if (scales && norm.writes.size() > 1) to.scale = target_of(norm.writes[1]);
  require_units(std::vector{to.weight, to.bias});
  require_units(std::vector{to.normed});
  fits_ = fits_ && norm.reads[0].cols == cols && norm.writes.size() == (scales ? 2 : 1) && norm.epilogue.empty() &&
          to.weight.dtype == dtype_ && to.bias.dtype == dtype_ && (scales || to.normed.dtype == dtype_) &&
          sum.writes.size() == 1;
}

void SumRecords::check_moved(const std::vector<Task>& tasks, int64_t parts, int64_t cols) {
  const size_t sums = sum_.norm.there ? tasks.size() / 2 : tasks.size();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const Task& first = tasks[i < sums ? 0 : sums];
    const auto times = static_cast<int64_t>(i % sums);
    const int64_t down = times / parts;
    const int64_t right = times % parts * cols;
    fits_ = fits_ && is_norm(task) == is_norm(first);
    if (is_norm(task)) {
      check_moved_norm(task, first, down, right);
      continue;
    }
    fits_ = fits_ && are_moved(task.writes, first.writes, down, right);
    const auto moved = [&](const Region& x, const Region& y) { return is_moved(x, y, down, right); };
    fits_ = fits_ && std::ranges::equal(task.reads, first.reads, moved) &&
            are_moved(task.epilogue, first.epilogue, down, right);
  }
  add_posts(tasks, sums, static_cast<size_t>(parts));
}

void SumRecords::check_moved_norm(const Task& norm, const Task& first, int64_t down, int64_t right) {
  // NOTE: the norm of the first columns alone stores the scales of quantised rows.
  const size_t writes = quantises(norm.norm) && right == 0 ? 2 : 1;
  fits_ = fits_ && norm.norm == first.norm && norm.epilogue.empty() && norm.writes.size() == writes &&
          is_moved(norm.reads[0], first.reads[0], down, 0) && norm.reads[0].cols == first.reads[0].cols &&
          std::ranges::equal(norm.reads.begin() + 1, norm.reads.end(), first.reads.begin() + 1, first.reads.end()) &&
          is_moved(norm.writes[0].to, first.writes[0].to, down, right) &&
          norm.writes[0].first_col == first.writes[0].first_col + right &&
          (writes == 1 || is_moved(norm.writes[1].to, first.writes[1].to, down, 0));
}

void SumRecords::add_posts(const std::vector<Task>& tasks, size_t sums, size_t parts) {
  if (tasks[0].posts.empty()) return;
  const Signal& first = tasks[0].posts[0].signal;
  const bool several = parts < sums && !tasks[parts].posts.empty();
  const int step = several ? tasks[parts].posts[0].signal.index - first.index : 0;
  for (size_t i = 0; i < sums; ++i) {
    const std::vector<Post>& posts = tasks[i].posts;
    fits_ = fits_ && posts.size() == 1 && posts[0].add == 1 && posts[0].signal.rank == view_.rank &&
            posts[0].signal.index == first.index + static_cast<int>(i / parts) * step;
  }
  sum_.signal = view_.addresses.signal(first);
  sum_.signal_step = view_.addresses.signal({first.rank, first.index + step}) - sum_.signal;
}

uint32_t SumRecords::name(int makers) {
  const auto first = static_cast<uint32_t>(view_.out.names.size());
  for (int64_t i = 0; i < std::ssize(view_.plan.lanes[makers].tasks); ++i) view_.name_task(makers, i);
  return first;
}

uint32_t SumRecords::name(int makers, int totals) {
  const auto next = [&] { return static_cast<uint32_t>(view_.out.names.size()); };
  const auto name_all = [&](int lane, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) view_.name_task(lane, i);
  };
  const int64_t count = std::ssize(view_.plan.lanes[makers].tasks);
  const uint32_t first = name(makers);
  sum_.first_name = next();
  name_all(totals, 0, count);
  sum_.norm.first_name = next();
  name_all(totals, count, std::ssize(view_.plan.lanes[totals].tasks));
  return first;
}

}  // namespace tilewire::cuda
