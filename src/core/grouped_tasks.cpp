// Tasks on grouped buffers: rules, and the extents that such tasks read.
// Called by the validation of plans, the checker and the host backend.
#include "core/grouped_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

using Broken = std::optional<std::string>;

/// The parts of a task that its rules look at.
struct Groups {
  const Plan& plan;
  const Task& task;

  [[nodiscard]] const Buffer& buffer(const Region& region) const { return plan.buffers[region.buffer]; }
  [[nodiscard]] bool grouped(const Region& region) const { return is_grouped(buffer(region)); }

  [[nodiscard]] Broken part_of_route(size_t index, DType dtype, Shape want, bool in_groups) const {
    const Write& write = task.writes[index];
    const Region& to = write.to;
    const bool stored = write.first_row == 0 && write.first_col == 0 && write.mode == WriteMode::store;
    const bool whole = to.row == 0 && to.col == 0 && Shape{to.rows, to.cols} == shape_on(buffer(to), to.rank);
    // Extents and groups fill their buffers, and lists whole rows.
    const bool placed = index < 2 ? whole : to.col == 0 && to.cols == shape_on(buffer(to), to.rank).cols;
    const bool shaped = Shape{to.rows, to.cols} == want && grouped(to) == in_groups;
    if (stored && placed && shaped && buffer(to).dtype == dtype) return std::nullopt;
    return fmt::format("routes to {} of {}, want {} x {} of {}{}", region_name(plan, to), to_string(buffer(to).dtype),
                       want.rows, want.cols, to_string(dtype), in_groups ? " in groups" : "");
  }

  /// The numbers of a routing.
  [[nodiscard]] static Broken of_experts(const RouteParams& route) {
    constexpr int64_t kMost = 1 << 16;
    const auto fits = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
    if (route.max_rows < 0 || route.max_rows > std::numeric_limits<int32_t>::max() ||
        (route.drops && route.max_rows == 0))
      return fmt::format("routes with max_rows = {}, drops = {}", route.max_rows, route.drops);
    if (!fits(route.experts, int64_t{1} << 31) || !fits(route.align, kMost) || !fits(route.shards, kMost) ||
        route.first_group < 0 || std::ssize(route.groups) > kMost)
      return fmt::format("routes to {} groups of {} experts with align = {}, first_group = {}, shards = {}",
                         route.groups.size(), route.experts, route.align, route.first_group, route.shards);
    const auto is_load = [](double load) { return std::isfinite(load) && load >= 0; };
    if (!route.load.empty() && (std::ssize(route.load) != route.experts || !std::ranges::all_of(route.load, is_load)))
      return fmt::format("routes with a load of {} experts, want {} of at least 0", route.load.size(), route.experts);
    std::vector<ExpertGroup> sorted = route.groups;
    std::ranges::sort(sorted, {}, [](const ExpertGroup& group) { return std::pair(group.expert, group.replica); });
    for (size_t i = 0; i < sorted.size(); ++i) {
      const ExpertGroup& group = sorted[i];
      if (group.expert < 0 || group.replica < 0 || group.replica >= group.replicas || group.replicas > kMost)
        return fmt::format("routes to replica {} of {} of expert {}", group.replica, group.replicas, group.expert);
      // No token may be in two groups of an expert.
      if (i == 0 || sorted[i - 1].expert != group.expert) continue;
      if (sorted[i - 1].replica == group.replica || sorted[i - 1].replicas != group.replicas)
        return fmt::format("routes to expert {} as replica {} of {} and replica {} of {}", group.expert,
                           sorted[i - 1].replica, sorted[i - 1].replicas, group.replica, group.replicas);
    }
    return std::nullopt;
  }

  [[nodiscard]] Broken of_route() const {
    const Region& ids = task.reads[0];
    const Region& weights = task.reads[1];
    if (!task.route) return "routes, but has no experts";
    const RouteParams& route = *task.route;
    const size_t results = route.drops ? 5 : 4;
    if (task.writes.size() != results) return fmt::format("routes to {} results, want {}", task.writes.size(), results);
    if (buffer(ids).dtype != DType::int32 || buffer(weights).dtype != DType::fp32 || weights.rows != ids.rows ||
        weights.cols != ids.cols)
      return fmt::format("routes {} with {}: want int32 experts and as many fp32 weights", region_name(plan, ids),
                         region_name(plan, weights));
    if (Broken broken = of_experts(route)) return broken;
    for (const Write& write : task.writes) {
      if (write.to.rank != task.writes[0].to.rank)
        return fmt::format("routes to {} and {}, on two ranks", region_name(plan, task.writes[0].to),
                           region_name(plan, write.to));
    }
    const int64_t groups = num_groups(route);
    Broken broken = part_of_route(0, DType::int32, {2, groups}, false);
    if (!broken) broken = part_of_route(1, DType::int32, {groups, 1}, true);
    const Shape lists{ids.rows, ids.cols + num_shared(route)};
    if (!broken) broken = part_of_route(2, DType::int32, lists, false);
    if (!broken) broken = part_of_route(3, DType::fp32, lists, false);
    if (!broken && route.drops) broken = part_of_route(4, DType::int32, {1, 1}, false);
    if (broken) return broken;
    if (buffer(task.writes[1].to).extents != task.writes[0].to.buffer)
      return fmt::format("routes to {}, whose extents it does not write", region_name(plan, task.writes[1].to));
    const int64_t rows = most_rows_of(route, ids.rows, ids.cols);
    if (buffer(task.writes[1].to).most_rows < rows)
      return fmt::format("routes to {}, which has room for {} rows, want {}", region_name(plan, task.writes[1].to),
                         buffer(task.writes[1].to).most_rows, rows);
    return std::nullopt;
  }

  [[nodiscard]] Broken of_pool() const {
    const Region& indices = task.reads[1];
    if (task.reads.size() == 3) {
      const Region& weights = task.reads[2];
      if (buffer(weights).dtype != DType::fp32 || weights.rows != indices.rows || weights.cols != indices.cols ||
          grouped(weights) != grouped(indices))
        return fmt::format("pools with the weights {}, want one of fp32 for each index of {}",
                           region_name(plan, weights), region_name(plan, indices));
    }
    for (const Write& write : task.writes) {
      const bool fits = grouped(write.to) == grouped(indices);
      const bool same =
          !grouped(indices) || (buffer(write.to).extents == buffer(indices).extents && write.to.rank == indices.rank &&
                                write.to.row == indices.row && write.to.rows == indices.rows && write.first_row == 0);
      if (!fits || !same)
        return fmt::format("pools by {} into {}: their groups differ", region_name(plan, indices),
                           region_name(plan, write.to));
    }
    return std::nullopt;
  }

  [[nodiscard]] Broken of_grouped_gemm() const {
    const Region& a = task.reads[0];
    const Region& b = task.reads[1];
    const bool nk = task.gemm.b_layout == BLayout::nk;
    if (!grouped(a) || grouped(b) || buffer(a).dtype != buffer(b).dtype || !is_number(buffer(a).dtype))
      return fmt::format("multiplies {} and {}: want groups, a B for each, and one floating type", region_name(plan, a),
                         region_name(plan, b));
    const int64_t parts = std::max<int64_t>(1, a.rows);
    const int64_t depth = nk ? b.cols : b.rows / parts;
    if (b.rows % parts != 0 || depth != a.cols)
      return fmt::format("multiplies {} and {}: want {} matrices of depth {}", region_name(plan, a),
                         region_name(plan, b), a.rows, a.cols);
    if (a.col != 0 || a.cols != buffer(a).cols || b.col != 0 || b.cols != buffer(b).cols)
      return fmt::format("multiplies {} and {}: a grouped GEMM takes all columns", region_name(plan, a),
                         region_name(plan, b));
    if (is_gated(task.activation) && columns_of_each_b(task) % 2 != 0)
      return fmt::format("applies {} to {} columns, want an even number", to_string(task.activation),
                         columns_of_each_b(task));
    for (const Write& write : task.writes) {
      const bool same = grouped(write.to) && buffer(write.to).extents == buffer(a).extents && write.to.rank == a.rank &&
                        write.to.row == a.row && write.to.rows == a.rows && write.first_row == 0 &&
                        write.mode == WriteMode::store;
      if (!same)
        return fmt::format("multiplies {} into {}: their groups differ", region_name(plan, a),
                           region_name(plan, write.to));
    }
    if (!task.epilogue.empty()) return "has a grouped GEMM with an epilogue: it takes an activation only";
    return std::nullopt;
  }

  [[nodiscard]] Broken of_select() const {
    const Region& rows = task.reads[0];
    const Region& lists = task.reads[1];
    if (buffer(lists).dtype != DType::int32 || lists.rows != rows.rows || lists.col != 0 || lists.cols < 1)
      return fmt::format("selects rows of {} by {}: want an int32 list for each row", region_name(plan, rows),
                         region_name(plan, lists));
    for (const Write& write : task.writes) {
      if (write.mode != WriteMode::store || buffer(write.to).dtype != buffer(rows).dtype || buffer(write.to).ll ||
          buffer(rows).ll)
        return fmt::format("selects rows of {} for {}: want a store of the same type, without LL data",
                           region_name(plan, rows), region_name(plan, write.to));
    }
    return of_others();
  }

  [[nodiscard]] Broken of_others() const {
    const auto refuse = [&](const Region& region) {
      return fmt::format("touches {}, which has groups: only routing, pools and grouped GEMMs can",
                         region_name(plan, region));
    };
    for (const Region& read : task.reads) {
      if (grouped(read)) return refuse(read);
    }
    for (const Region& addend : task.addends) {
      if (grouped(addend)) return refuse(addend);
    }
    for (const Write& write : task.writes) {
      if (grouped(write.to)) return refuse(write.to);
    }
    return std::nullopt;
  }
};

}  // namespace

int64_t columns_of_each_b(const Task& task) {
  const int64_t parts = std::max<int64_t>(1, task.reads[0].rows);
  return task.gemm.b_layout == BLayout::nk ? task.reads[1].rows / parts : task.reads[1].cols;
}

int64_t num_shared(const RouteParams& route) {
  return std::ranges::count_if(route.groups, [&](const ExpertGroup& group) { return is_shared(route, group); });
}

int64_t most_rows_of(const RouteParams& route, int64_t tokens, int64_t top_k) {
  int64_t rows = tokens * std::min<int64_t>(top_k, std::ssize(route.groups) - num_shared(route));
  if (route.max_rows > 0) rows = std::min(rows, route.max_rows);
  for (const ExpertGroup& group : route.groups) {
    if (is_shared(route, group))
      rows += shard_of(tokens, static_cast<int>(group.replicas), static_cast<int>(group.replica)).size();
  }
  return rows + num_groups(route) * (route.align - 1);
}

std::optional<std::string> broken_rule_of_groups(const Plan& plan, const Task& task) {
  const Groups groups{plan, task};
  for (const EpilogueStep& step : task.epilogue) {
    if (step.operand && groups.grouped(*step.operand)) return "has an epilogue with an operand in groups";
  }
  if (task.activation != Activation::none && !is_grouped_gemm(task))
    return fmt::format("has the activation {}, but is no grouped GEMM", to_string(task.activation));
  if (task.route && !computes_with(task, Body::route)) return "has experts, but routes nothing";
  if (computes_with(task, Body::route)) return groups.of_route();
  if (computes_with(task, Body::pool)) return groups.of_pool();
  if (is_grouped_gemm(task)) return groups.of_grouped_gemm();
  if (computes_with(task, Body::select)) return groups.of_select();
  return groups.of_others();
}

std::vector<Region> extents_read(const Plan& plan, const Task& task) {
  std::vector<Region> extents;
  if (computes_with(task, Body::route)) return extents;  // it makes them
  const auto add = [&](const Region& region) {
    const int of = plan.buffers[region.buffer].extents;
    if (of < 0) return;
    const Shape shape = shape_on(plan.buffers[of], region.rank);
    const Region whole{region.rank, of, 0, shape.rows, 0, shape.cols};
    if (std::ranges::find(extents, whole) == extents.end()) extents.push_back(whole);
  };
  for (const Region& read : task.reads) add(read);
  for (const Write& write : task.writes) add(write.to);
  return extents;
}

}  // namespace tilewire
