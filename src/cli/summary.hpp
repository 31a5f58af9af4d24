// The summary of a plan: tasks, bytes, workspace, longest chain; and its tasks in words.
// Used by plan.
#pragma once

#include <functional>
#include <string>

#include "tilewire/plan.hpp"

namespace tilewire::cli {

/// Twice the multiply-adds of a task; 0 if it is no GEMM.
[[nodiscard]] double flops_of(const Task& task);
/// Bytes that a copy, reduce or fill writes; 0 for computing and waiting tasks.
[[nodiscard]] double moved_bytes_of(const Plan& plan, const Task& task);

/// The largest sum of `cost` along a chain of tasks that must run one after another. It is the plan's time if each task
/// takes `cost`, pools have a worker for every task, and nothing else takes time. Throws Error(refused_plan) if the
/// plan deadlocks.
[[nodiscard]] double critical_path(const Plan& plan, const std::function<double(const Task&)>& cost);

/// Problem, config, tasks, traffic, workspace and critical path, one line each.
[[nodiscard]] std::string summary_of(const Plan& plan);
/// The tasks of every lane, at most `limit` each, one line for each: its work, its waits and its posts.
[[nodiscard]] std::string listing_of(const Plan& plan, int64_t limit);

}  // namespace tilewire::cli
