// Executes the tasks of mixture of experts: routing, selected rows, and grouped GEMMs.
// Called by TaskRunner::run.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/host/activations.hpp"
#include "backends/host/elements.hpp"
#include "backends/host/tasks.hpp"
#include "core/ceil_div.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire::host {
namespace {

template <class T>
T* row_of(const Block& block, int64_t row) {
  return reinterpret_cast<T*>(block.at(row, 0));
}

/// Throw Error(invalid_input) unless a token's experts exist and are different.
void require_experts(const int32_t* experts, int64_t count, int64_t token, int64_t num_experts) {
  for (int64_t i = 0; i < count; ++i) {
    require(experts[i] >= 0 && experts[i] < num_experts, "topk_ids of token {}: expert {}, want 0 to {}", token,
            experts[i], num_experts - 1);
    for (int64_t other = 0; other < i; ++other)
      require(experts[i] != experts[other], "topk_ids of token {}: expert {} twice", token, experts[i]);
  }
}

/// Finds the rows that tokens have in the groups of a rank.
class Router {
 public:
  Router(const RouteParams& route, const Block& ids, const Block& weights)
      : route_(route), ids_(ids), weights_(weights), groups_of_(static_cast<size_t>(route.experts)) {
    for (int64_t group = 0; group < std::ssize(route.groups); ++group) {
      const ExpertGroup& one = route.groups[group];
      (is_shared(route, one) ? shared_ : groups_of_[one.expert]).push_back(group);
    }
  }

  struct Row {
    int64_t group;
    float weight;
  };
  /// The rows of a token in the order of the groups, which are numbered over all shards. Tokens must come in order.
  const std::vector<Row>& rows_of(int64_t token) {
    rows_.clear();
    const int64_t first = shard_at(ids_.rows, route_.shards, token) * std::ssize(route_.groups);
    const auto* experts = row_of<const int32_t>(ids_, token);
    for (int64_t i = 0; i < ids_.cols; ++i) {
      for (const int64_t group : groups_of_[experts[i]]) {
        if (token % route_.groups[group].replicas == route_.groups[group].replica)
          rows_.push_back({first + group, row_of<const float>(weights_, token)[i]});
      }
    }
    std::ranges::sort(rows_, {}, &Row::group);
    if (token == 0) taken_ = 0;
    if (route_.max_rows > 0) keep_at_most(route_.max_rows - taken_);
    taken_ += std::ssize(rows_);
    for (const int64_t group : shared_) {
      if (shard_at(ids_.rows, route_.groups[group].replicas, token) == route_.groups[group].replica)
        rows_.push_back({first + group, 1.0F});
    }
    std::ranges::sort(rows_, {}, &Row::group);
    return rows_;
  }

  /// Rows of the tokens so far, those of shared experts apart.
  [[nodiscard]] int64_t taken() const { return taken_; }
  /// Rows that max_rows left out.
  [[nodiscard]] int64_t dropped() const { return dropped_; }
  /// The first token of the shard of a token.
  [[nodiscard]] int64_t first_of_shard(int64_t token) const {
    return shard_at(ids_.rows, route_.shards, token) * ceil_div(ids_.rows, route_.shards);
  }

 private:
  void keep_at_most(int64_t most) {
    const int64_t kept = std::min<int64_t>(most, std::ssize(rows_));
    dropped_ += std::ssize(rows_) - kept;
    rows_.resize(static_cast<size_t>(kept));
  }

  const RouteParams& route_;
  const Block& ids_;
  const Block& weights_;
  std::vector<std::vector<int64_t>> groups_of_;  ///< by expert
  std::vector<int64_t> shared_{};
  std::vector<Row> rows_{};
  int64_t taken_ = 0;
  int64_t dropped_ = 0;
};

/// Place the groups in memory by their numbers of rows: the shards of a group one after another. Sets `rows` to the
/// groups' first rows. Returns the end of the last one.
int64_t place_groups(const RouteParams& route, std::vector<int64_t>& rows, const Block& extents) {
  int64_t end = 0;
  for (int64_t i = 0; i < num_groups(route); ++i) {
    const int64_t group = i % route.shards * std::ssize(route.groups) + i / route.shards;
    const int64_t begin = ceil_div(end, route.align) * route.align;
    end = begin + rows[group];
    row_of<int32_t>(extents, 0)[group] = static_cast<int32_t>(begin);
    row_of<int32_t>(extents, 1)[group] = static_cast<int32_t>(end);
    rows[group] = begin;
  }
  return end;
}

}  // namespace

void TaskRunner::route(const Task& task) {
  const Block ids = addresses_->block(task.reads[0]);
  const Block weights = addresses_->block(task.reads[1]);
  const Block tokens = addresses_->block(task.writes[1].to);
  const Block places = addresses_->block(task.writes[2].to);
  const Block shares = addresses_->block(task.writes[3].to);
  const RouteParams& route = *task.route;
  Router router(route, ids, weights);
  std::vector<int64_t> next(static_cast<size_t>(num_groups(route)), 0);  // rows of each group, then its next row
  for (int64_t token = 0; token < ids.rows; ++token) {
    callbacks_->check();
    require_experts(row_of<const int32_t>(ids, token), ids.cols, token, route.experts);
    for (const Router::Row& row : router.rows_of(token)) ++next[row.group];
  }
  const int64_t dropped = router.dropped();
  require(dropped == 0 || route.drops, "tokens give rank {} {} rows, max_rows = {}", task.reads[0].rank,
          router.taken() + dropped, route.max_rows);
  if (route.drops) *row_of<int32_t>(addresses_->block(task.writes[4].to), 0) = static_cast<int32_t>(dropped);
  const int64_t end = place_groups(route, next, addresses_->block(task.writes[0].to));
  // NOTE: `validate` knows that the worst routing has room.
  ensure(end <= tokens.rows, "{} rows of tokens, room for {}", end, tokens.rows);
  for (int64_t token = 0; token < ids.rows; ++token) {
    const std::vector<Router::Row>& rows = router.rows_of(token);
    for (int64_t i = 0; i < places.cols; ++i) {
      const bool there = i < std::ssize(rows);
      const int64_t row = there ? next[rows[i].group]++ : -1;
      if (there) *row_of<int32_t>(tokens, row) = static_cast<int32_t>(token - router.first_of_shard(token));
      row_of<int32_t>(places, token)[i] = static_cast<int32_t>(row);
      row_of<float>(shares, token)[i] = there ? rows[i].weight : 0.0F;
    }
  }
}

void TaskRunner::select(const Task& task) {
  const Block rows = addresses_->block(task.reads[0]);
  const Block lists = addresses_->block(task.reads[1]);
  for (int64_t row = 0; row < rows.rows; ++row) {
    callbacks_->check();
    if (row_of<const int32_t>(lists, row)[0] == -1) continue;
    for (const Write& write : task.writes) {
      const Block to = addresses_->block(write.to);
      const int64_t at = row - write.first_row;
      if (at < 0 || at >= to.rows) continue;
      std::memcpy(to.at(at, 0), rows.at(row, 0), static_cast<size_t>(rows.cols * bytes_of(rows.dtype)));
    }
  }
}

void TaskRunner::grouped_gemm(const Task& task) {
  constexpr int64_t kScratch = 1 << 20;  // elements
  const Region& groups = task.reads[0];
  const Block a = addresses_->block(groups);
  const Block b = addresses_->block(task.reads[1]);
  const bool nk = task.gemm.b_layout == BLayout::nk;
  const int64_t made = columns_of_each_b(task);
  const int64_t cols = result_shape(task).cols;
  prepare_end(task);
  for (int64_t group = 0; group < groups.rows; ++group) {
    const Range rows = addresses_->rows_of_group(groups.rank, groups.buffer, groups.row + group);
    const std::byte* matrix = b.at(group * (nk ? made : a.cols), 0);
    const int64_t most = std::max<int64_t>(16, kScratch / std::max<int64_t>(1, made));
    for (int64_t begin = rows.begin; begin < rows.end && made > 0; begin += most) {
      const int64_t count = std::min(most, rows.end - begin);
      float* values = scratch(count * made);
      gemm_.multiply({.m = count,
                      .n = made,
                      .k = a.cols,
                      .a = {a.at(begin, 0), a.dtype, a.stride, false},
                      .b = {matrix, b.dtype, b.stride, nk},
                      .c = values,
                      .c_stride = made});
      for (int64_t row = 0; row < count; ++row) {
        callbacks_->check();
        activate(task.activation, values + row * made, cols);
        finish(task, begin + row, 0, cols, values + row * made);
      }
    }
  }
}

}  // namespace tilewire::host
