// Symbolic results of mixture of experts: routing, tokens in groups, products of groups, sums of experts.
// Called by coverage.cpp and bodies.cpp.
#include "check/experts.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/bodies.hpp"
#include "core/grouped_tasks.hpp"
#include "core/text.hpp"

namespace tilewire::checking {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::refused_plan, format, std::forward<Args>(args)...);
}

bool any_unknown(const std::vector<Operand>& reads) {
  return std::ranges::any_of(reads, [](const Operand& read) { return is_unknown(read.patches); });
}

/// All patches are `what`, of the same groups and contributions as the first one. Returns its value.
const Value& one_value(const Values& values, const Operand& operand, What what, const char* wanted) {
  const Patch& first = operand.patches[0];
  for (const Patch& patch : operand.patches) {
    require_what(values, patch, what, wanted);
    if (patch.content.value != first.content.value)
      refuse("reads {} beside {}: their groups differ", values.describe(patch), values.describe(first));
  }
  return values[first.content.value];
}

/// The global row of the operand's first row; its rows must be contiguous.
int64_t first_row(const Values& values, const Operand& operand) {
  for (const Patch& patch : operand.patches) {
    if (patch.content.row != operand.patches[0].content.row)
      refuse("reads {} beside {}: their rows are not contiguous", values.describe(patch),
             values.describe(operand.patches[0]));
  }
  return operand.patches[0].content.row;
}

void require_first_column(const Values& values, const Operand& operand) {
  for (const Patch& patch : operand.patches) {
    if (patch.content.col != 0) refuse("reads {} from a column that is not the first", values.describe(patch));
  }
}

/// A list of each token, whole.
void require_whole_lists(const Values& values, const Operand& operand) {
  require_first_column(values, operand);
  const Patch& first = operand.patches[0];
  const int64_t width = values[first.content.value].width;
  if (operand.shape.cols != width) refuse("reads {} of {} columns", values.describe(first), width);
}

/// A token is in groups if it has places there: selected rows serve, too.
void require_rows_for(const Values& values, const Operand& table, int64_t groups) {
  for (const Patch& patch : table.patches) {
    const Value& value = values[patch.content.value];
    if (value.what == What::selected && value.groups == groups) continue;
    require_what(values, patch, What::a, "rows of A");
  }
}

/// The rows of `table` at their numbers, in groups.
std::vector<Patch> in_groups(Values& values, const Operand& table, const Operand& tokens) {
  const Value of = one_value(values, tokens, What::tokens, "numbers of tokens");
  const Range range = of.terms.empty() ? Range{} : of.terms[0];
  const int value = values.add({.what = What::expert_x, .terms = of.terms, .groups = of.groups});
  // Without tokens all groups are empty.
  const Rect all{0, tokens.shape.rows, 0, table.shape.cols};
  if (table.shape.rows == 0 && range.size() == 0) return {{all, {first_row(values, tokens), 0, value}}};
  if (table.patches.empty()) refuse("takes no rows of A for the tokens {}..{}", range.begin, range.end);
  require_rows_for(values, table, of.groups);
  const int64_t first = first_row(values, table);
  if (first != range.begin || table.shape.rows != range.size())
    refuse("takes rows {}..{} of A for the tokens {}..{}", first, first + table.shape.rows, range.begin, range.end);
  std::vector<Patch> result;
  for (const Strip& cols : strips_of(values, table.patches, false, table.shape.cols))
    result.push_back({{0, tokens.shape.rows, cols.begin, cols.end}, {first_row(values, tokens), cols.offset, value}});
  return result;
}

/// The first number of `range` that is in none of the others.
std::optional<int64_t> first_missing(std::vector<Range> others, Range range) {
  std::ranges::sort(others, {}, &Range::begin);
  int64_t next = range.begin;
  for (const Range& other : others) {
    if (other.begin <= next) next = std::max(next, other.end);
  }
  return next < range.end ? std::optional(next) : std::nullopt;
}

std::vector<Patch> sums_of_experts(Values& values, int rank, const std::vector<Operand>& reads) {
  const Operand& table = reads[0];
  const Operand& places = reads[1];
  const Value of = one_value(values, places, What::places, "places of tokens");
  if (reads.size() != 3) refuse("sums experts without weights");
  if (one_value(values, reads[2], What::place_weights, "weights of places").groups != of.groups)
    refuse("weighs {} by {}: their groups differ", values.describe(places.patches[0]),
           values.describe(reads[2].patches[0]));
  const int64_t first = first_row(values, places);
  if (first_row(values, reads[2]) != first)
    refuse("weighs {} by {}: other tokens", values.describe(places.patches[0]), values.describe(reads[2].patches[0]));
  require_whole_lists(values, places);
  require_whole_lists(values, reads[2]);
  if (rank_of_extents(of.groups) != rank)
    refuse("takes {}, which rank {} has made", values.describe(places.patches[0]), rank_of_extents(of.groups));
  const int value = values.add({.what = What::partial, .terms = {{rank, int64_t{rank} + 1}}});
  const Rect all{0, places.shape.rows, 0, table.shape.cols};
  // A rank without experts adds zeros, and that is all of its contribution.
  if (table.shape.rows == 0) return {{all, {first, kAnywhere, value}}};
  // Each shard of the tokens has rows of its own.
  std::vector<Range> tokens;
  for (const Patch& patch : table.patches) {
    require_what(values, patch, What::expert_y, "output rows of experts");
    const Value& rows = values[patch.content.value];
    if (rows.groups != of.groups)
      refuse("takes {} by {}: their groups differ", values.describe(patch), values.describe(places.patches[0]));
    tokens.insert(tokens.end(), rows.terms.begin(), rows.terms.end());
  }
  if (const auto missing = first_missing(std::move(tokens), {first, first + places.shape.rows}))
    refuse("sums the experts of tokens {}..{} without the rows of token {}", first, first + places.shape.rows,
           *missing);
  std::vector<Patch> result;
  for (const Strip& cols : strips_of(values, table.patches, false, table.shape.cols))
    result.push_back({{0, places.shape.rows, cols.begin, cols.end}, {first, cols.offset, value}});
  return result;
}

}  // namespace

std::vector<std::vector<Patch>> routed(Values& values, const Task& task, const std::vector<Operand>& reads) {
  const RouteParams& route = *task.route;
  const int64_t groups = num_groups(route);
  const Shape tokens = reads[0].shape;
  const auto parts = [&](const auto& content_of) {
    const Shape lists{tokens.rows, tokens.cols + num_shared(route)};
    const std::array<Shape, 5> shapes{{{2, groups}, {groups, 1}, lists, lists, {1, 1}}};
    std::vector<std::vector<Patch>> all;
    for (size_t i = 0; i < task.writes.size(); ++i) all.push_back(whole(shapes[i], content_of(i)));
    return all;
  };
  if (any_unknown(reads)) return parts([](size_t) { return Values::unknown(); });
  const Region& extents = task.writes[0].to;
  const int64_t of = number_of_extents(extents.rank, extents.buffer);
  int64_t first = 0;
  if (tokens.cols == 0) refuse("routes tokens without experts");
  if (tokens.rows > 0) {
    static_cast<void>(one_value(values, reads[0], What::topk_ids, "experts of tokens"));
    static_cast<void>(one_value(values, reads[1], What::topk_weights, "weights of experts"));
    first = first_row(values, reads[0]);
    if (first_row(values, reads[1]) != first) refuse("routes tokens by the weights of other tokens");
    // A replica takes each of so many tokens, counted over all ranks.
    for (const ExpertGroup& group : task.route->groups) {
      if (!is_shared(route, group) && first % group.replicas != 0)
        refuse("routes tokens from {} on to {} replicas: they count from 0", first, group.replicas);
    }
    require_whole_lists(values, reads[0]);
    require_whole_lists(values, reads[1]);
    // They look at all tokens. structure.cpp wants as many.
    if (first != 0 && (route.max_rows > 0 || num_shared(route) > 0))
      refuse("routes tokens from {} on with max_rows or shared experts: they count from 0", first);
  }
  std::vector<std::vector<Patch>> results = parts([&](size_t part) -> Content {
    if (part == 0) return {0, 0, values.add({.what = What::extents, .groups = of})};
    if (part == 4) return {extents.rank, 0, values.add({.what = What::dropped})};
    const int64_t width = tokens.cols + num_shared(route);
    return {first, 0,
            values.add({.what = part == 2 ? What::places : What::place_weights, .groups = of, .width = width})};
  });
  // The groups of each shard have its tokens.
  results[1].clear();
  const int64_t each = std::ssize(route.groups);
  for (int64_t shard = 0; shard < route.shards; ++shard) {
    const Range mine = shard_of(tokens.rows, static_cast<int>(route.shards), static_cast<int>(shard));
    const int value =
        values.add({.what = What::tokens, .terms = terms_of({first + mine.begin, first + mine.end}), .groups = of});
    const Rect rows{shard * each, (shard + 1) * each, 0, 1};
    results[1].push_back({rows, {route.first_group - rows.row0, 0, value}});
  }
  return results;
}

std::vector<Patch> selected(Values& values, const Operand& rows, const Operand& places) {
  if (is_unknown(rows.patches) || is_unknown(places.patches)) return whole(rows.shape, Values::unknown());
  if (rows.shape.rows == 0 || rows.shape.cols == 0) return {};
  static_cast<void>(one_value(values, rows, What::a, "rows of A"));
  const Value of = one_value(values, places, What::places, "places of tokens");
  const int64_t first = first_row(values, rows);
  if (first_row(values, places) != first)
    refuse("selects {} by {}: other tokens", values.describe(rows.patches[0]), values.describe(places.patches[0]));
  require_first_column(values, places);
  const int value = values.add({.what = What::selected, .groups = of.groups});
  std::vector<Patch> result;
  for (const Strip& cols : strips_of(values, rows.patches, false, rows.shape.cols))
    result.push_back({{0, rows.shape.rows, cols.begin, cols.end}, {first, cols.offset, value}});
  return result;
}

bool pools_by_groups(const Values& values, const Operand& indices) {
  if (indices.patches.empty()) return false;
  const What what = values[indices.patches[0].content.value].what;
  return what == What::tokens || what == What::places;
}

std::vector<Patch> pooled_by_groups(Values& values, const Task& task, const std::vector<Operand>& reads) {
  const Shape shape{reads[1].shape.rows, reads[0].shape.cols};
  if (any_unknown(reads)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  const What what = values[reads[1].patches[0].content.value].what;
  if (what == What::places) return sums_of_experts(values, task.reads[0].rank, reads);
  if (reads.size() != 2) refuse("weighs rows that it puts into groups");
  return in_groups(values, reads[0], reads[1]);
}

std::vector<Patch> grouped_product(Values& values, const Task& task, const Operand& a, const Operand& b) {
  const Shape shape = result_shape(task);
  if (is_unknown(a.patches) || is_unknown(b.patches)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  if (a.shape.cols == 0 || b.patches.empty()) return whole(shape, values.zero());
  const bool second = values[a.patches[0].content.value].what == What::expert_h;
  const Value of = second ? one_value(values, a, What::expert_h, "hidden rows of experts")
                          : one_value(values, a, What::expert_x, "tokens in groups");
  static_cast<void>(one_value(values, b, second ? What::w2 : What::w13, second ? "w2" : "w13"));
  require_first_column(values, a);
  require_first_column(values, b);
  const int64_t group = first_row(values, a);
  const int64_t lines = b.shape.rows / a.shape.rows;
  if (first_row(values, b) != group * lines)
    refuse("multiplies the groups {}..{} of all ranks by {}", group, group + a.shape.rows,
           values.describe(b.patches[0]));
  const int value =
      values.add({.what = second ? What::expert_y : What::expert_h, .terms = of.terms, .groups = of.groups});
  return whole(shape, {group, 0, value});
}

}  // namespace tilewire::checking
