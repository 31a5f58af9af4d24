// What a plan amounts to: tasks, bytes, workspace, and its longest chain; and its tasks in words.
// Used by plan.
#pragma once

#include <functional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// Multiply-adds of a task, times two; 0 where it is no GEMM.
[[nodiscard]] double flops_of(const Task& task);
/// Bytes that a copy, reduce or fill writes; 0 for computing and waiting tasks.
[[nodiscard]] double moved_bytes_of(const Plan& plan, const Task& task);

/// The largest sum of `cost` along a chain of tasks that must run one after another: the time of the
/// plan if a task took `cost`, pools had a worker for every task, and nothing else took any. Throws
/// Error(refused_plan) where the plan cannot come to an end.
[[nodiscard]] double critical_path(const Plan& plan, const std::function<double(const Task&)>& cost);

/// Problem, config, tasks, traffic, workspace and critical path, a line each.
[[nodiscard]] std::string summary_of(const Plan& plan);
/// The tasks of every lane, at most `limit` each, a line each: what it does, waits for and posts.
[[nodiscard]] std::string listing_of(const Plan& plan, int64_t limit);

}  // namespace tilewire::cli
