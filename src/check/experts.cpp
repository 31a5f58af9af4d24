// Symbolic results of mixture of experts: routing, tokens in groups, products of groups, sums of experts.
// Called by coverage.cpp and bodies.cpp.
#include "check/experts.hpp"

#include <array>

#include "core/bodies.hpp"
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

/// The rows of `table` at their numbers, in groups.
std::vector<Patch> in_groups(Values& values, const Operand& table, const Operand& tokens) {
  const Value of = one_value(values, tokens, What::tokens, "numbers of tokens");
  const Range range = of.terms.empty() ? Range{} : of.terms[0];
  const int value = values.add({.what = What::expert_x, .groups = of.groups});
  // Without tokens all groups are empty.
  const Rect all{0, tokens.shape.rows, 0, table.shape.cols};
  if (table.shape.rows == 0 && range.size() == 0) return {{all, {first_row(values, tokens), 0, value}}};
  static_cast<void>(one_value(values, table, What::a, "rows of A"));
  const int64_t first = first_row(values, table);
  if (first != range.begin || table.shape.rows != range.size())
    refuse("takes rows {}..{} of A for the tokens {}..{}", first, first + table.shape.rows, range.begin, range.end);
  std::vector<Patch> result;
  for (const Strip& cols : strips_of(values, table.patches, false, table.shape.cols))
    result.push_back({{0, tokens.shape.rows, cols.begin, cols.end}, {first_row(values, tokens), cols.offset, value}});
  return result;
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
  if (one_value(values, table, What::expert_y, "output rows of experts").groups != of.groups)
    refuse("takes {} by {}: their groups differ", values.describe(table.patches[0]),
           values.describe(places.patches[0]));
  std::vector<Patch> result;
  for (const Strip& cols : strips_of(values, table.patches, false, table.shape.cols))
    result.push_back({{0, places.shape.rows, cols.begin, cols.end}, {first, cols.offset, value}});
  return result;
}

}  // namespace

std::vector<std::vector<Patch>> routed(Values& values, const Task& task, const std::vector<Operand>& reads) {
  const auto groups = static_cast<int64_t>(task.route->groups.size());
  const Shape tokens = reads[0].shape;
  const auto parts = [&](const auto& content_of) {
    const std::array<Shape, 4> shapes{{{2, groups}, {groups, 1}, tokens, tokens}};
    std::vector<std::vector<Patch>> all;
    for (size_t i = 0; i < shapes.size(); ++i) all.push_back(whole(shapes[i], content_of(i)));
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
      if (first % group.replicas != 0)
        refuse("routes tokens from {} on to {} replicas: they count from 0", first, group.replicas);
    }
    require_whole_lists(values, reads[0]);
    require_whole_lists(values, reads[1]);
  }
  return parts([&](size_t part) -> Content {
    switch (part) {
      case 0:
        return {0, 0, values.add({.what = What::extents, .groups = of})};
      case 1:
        return {task.route->first_group, 0,
                values.add({.what = What::tokens, .terms = terms_of({first, first + tokens.rows}), .groups = of})};
      default:
        return {
            first, 0,
            values.add({.what = part == 2 ? What::places : What::place_weights, .groups = of, .width = tokens.cols})};
    }
  });
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
  const int value = values.add({.what = second ? What::expert_y : What::expert_h, .groups = of.groups});
  return whole(shape, {group, 0, value});
}

}  // namespace tilewire::checking
