// Executes the tasks of mixture of experts: routing and grouped GEMMs.
// Called by TaskRunner::run.
#include <algorithm>
#include <utility>
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

bool takes(const ExpertGroup& group, int64_t token) { return token % group.replicas == group.replica; }

/// Throw Error(invalid_input) unless a token's experts exist and are different.
void require_experts(const int32_t* experts, int64_t count, int64_t token, int64_t num_experts) {
  for (int64_t i = 0; i < count; ++i) {
    require(experts[i] >= 0 && experts[i] < num_experts, "topk_ids of token {}: expert {}, want 0 to {}", token,
            experts[i], num_experts - 1);
    for (int64_t other = 0; other < i; ++other)
      require(experts[i] != experts[other], "topk_ids of token {}: expert {} twice", token, experts[i]);
  }
}

}  // namespace

void TaskRunner::route(const Task& task) {
  const Block ids = addresses_->block(task.reads[0]);
  const Block weights = addresses_->block(task.reads[1]);
  const Block extents = addresses_->block(task.writes[0].to);
  const Block tokens = addresses_->block(task.writes[1].to);
  const Block places = addresses_->block(task.writes[2].to);
  const Block shares = addresses_->block(task.writes[3].to);
  const RouteParams& route = *task.route;
  std::vector<std::vector<int64_t>> groups_of(static_cast<size_t>(route.experts));
  for (int64_t group = 0; group < std::ssize(route.groups); ++group)
    groups_of[route.groups[group].expert].push_back(group);
  std::vector<int64_t> next(route.groups.size(), 0);  // rows of each group, then the next row of it
  for (int64_t token = 0; token < ids.rows; ++token) {
    callbacks_->check();
    const auto* experts = row_of<const int32_t>(ids, token);
    require_experts(experts, ids.cols, token, route.experts);
    for (int64_t i = 0; i < ids.cols; ++i) {
      for (const int64_t group : groups_of[experts[i]]) next[group] += takes(route.groups[group], token) ? 1 : 0;
    }
  }
  int64_t end = 0;
  for (size_t group = 0; group < next.size(); ++group) {
    const int64_t begin = ceil_div(end, route.align) * route.align;
    end = begin + next[group];
    row_of<int32_t>(extents, 0)[group] = static_cast<int32_t>(begin);
    row_of<int32_t>(extents, 1)[group] = static_cast<int32_t>(end);
    next[group] = begin;
  }
  // NOTE: `validate` knows that the worst routing has room.
  ensure(end <= tokens.rows, "{} rows of tokens, room for {}", end, tokens.rows);
  std::vector<std::pair<int32_t, float>> rows;  // of one token, and their weights
  for (int64_t token = 0; token < ids.rows; ++token) {
    rows.clear();
    const auto* experts = row_of<const int32_t>(ids, token);
    for (int64_t i = 0; i < ids.cols; ++i) {
      for (const int64_t group : groups_of[experts[i]]) {
        if (!takes(route.groups[group], token)) continue;
        const auto row = static_cast<int32_t>(next[group]++);
        *row_of<int32_t>(tokens, row) = static_cast<int32_t>(token);
        rows.emplace_back(row, row_of<const float>(weights, token)[i]);
      }
    }
    std::ranges::sort(rows, {}, &std::pair<int32_t, float>::first);
    for (int64_t i = 0; i < ids.cols; ++i) {
      const bool there = i < std::ssize(rows);
      row_of<int32_t>(places, token)[i] = there ? rows[i].first : -1;
      row_of<float>(shares, token)[i] = there ? rows[i].second : 0.0F;
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
