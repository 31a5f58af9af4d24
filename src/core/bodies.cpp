// The table of compute bodies.
// Used by plans, the checker, the simulator, backends and the command line.
#include "core/bodies.hpp"

#include <array>

#include "core/grouped_tasks.hpp"

namespace tilewire {
namespace {

int64_t all_rows(const Task& task) {
  int64_t rows = 0;
  for (size_t i = 0; i < task.reads.size(); ++i) rows += i == 1 ? 0 : task.reads[i].rows;
  return rows;
}

int64_t columns_of_b(const Task& task) {
  return task.gemm.b_layout == BLayout::nk ? task.reads[1].rows : task.reads[1].cols;
}

Shape product_shape(const Task& task) {
  return {all_rows(task), columns_of_b(task) / (joins_columns(task.epilogue) ? 2 : 1)};
}

double product_ops(const Task& task) {
  return 2.0 * static_cast<double>(all_rows(task)) * static_cast<double>(columns_of_b(task)) *
         static_cast<double>(depth_of(task));
}

Shape pooled_shape(const Task& task) { return {task.reads[1].rows, task.reads[0].cols}; }

int64_t lookups(const Task& task) { return task.reads[1].rows * task.reads[1].cols; }

double pooled_ops(const Task& task) { return static_cast<double>(lookups(task) * task.reads[0].cols); }

/// Behind the elements of a quantised row: its scale.
Shape normed_shape(const Task& task) {
  return {task.reads[0].rows, task.reads[0].cols + (quantises(task.norm) ? 1 : 0)};
}

// A square and its sum, a factor and a weight for each element.
double norm_ops(const Task& task) {
  return 4.0 * static_cast<double>(task.reads[0].rows) * static_cast<double>(task.reads[0].cols);
}

int64_t rows_of_first(const Task& task) { return task.reads[0].rows; }

Shape routed_shape(const Task& task) { return {task.reads[0].rows, task.reads[0].cols}; }

double route_ops(const Task& task) { return static_cast<double>(task.reads[0].rows * task.reads[0].cols); }

Shape grouped_shape(const Task& task) {
  return {task.reads[0].rows, columns_of_each_b(task) / (is_gated(task.activation) ? 2 : 1)};
}

// NOTE: of a group that has one row: the numbers of rows are not in the plan.
double grouped_ops(const Task& task) {
  return 2.0 * static_cast<double>(task.reads[0].rows) * static_cast<double>(columns_of_each_b(task)) *
         static_cast<double>(task.reads[0].cols);
}

Shape selected_shape(const Task& task) { return {task.reads[0].rows, task.reads[0].cols}; }

double no_ops(const Task&) { return 0; }

constexpr int64_t kMany = 1 << 20;

constexpr std::array kBodies{
    BodyFacts{Body::gemm, product_shape, product_ops, all_rows, 2, kMany, true, false},
    BodyFacts{Body::pool, pooled_shape, pooled_ops, lookups, 2, 3, false, true},
    BodyFacts{Body::norm, normed_shape, norm_ops, rows_of_first, 2, 3, false, false},
    BodyFacts{Body::route, routed_shape, route_ops, rows_of_first, 2, 2, false, true, true},
    BodyFacts{Body::grouped_gemm, grouped_shape, grouped_ops, rows_of_first, 2, 2, false, false},
    BodyFacts{Body::select, selected_shape, no_ops, rows_of_first, 2, 2, false, true},
};
static_assert(kBodies[static_cast<size_t>(Body::gemm)].body == Body::gemm);
static_assert(kBodies[static_cast<size_t>(Body::pool)].body == Body::pool);
static_assert(kBodies[static_cast<size_t>(Body::norm)].body == Body::norm);
static_assert(kBodies[static_cast<size_t>(Body::route)].body == Body::route);
static_assert(kBodies[static_cast<size_t>(Body::grouped_gemm)].body == Body::grouped_gemm);
static_assert(kBodies[static_cast<size_t>(Body::select)].body == Body::select);

}  // namespace

const BodyFacts& facts_of(Body body) { return kBodies[static_cast<size_t>(body)]; }

}  // namespace tilewire
